//! What the commands say of a router that runs, and of one that does not.

use std::io;
use std::net::Ipv4Addr;
use std::process::Stdio;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::home::{GUARD, Home, KEY, are_read, labels};
use crate::port::free_port;

#[tokio::test]
async fn status_shows_the_seats_as_a_table_and_as_json() {
    let home = Home::new().await;
    let running = home.start().await;
    let status = home.status_where("usage is known", are_read).await;
    assert_eq!(status["version"], 2);
    assert_eq!(status["listening"], json!([running.address.to_string()]));
    assert_eq!((&status["sandbox"], labels(&status)), (&json!(false), vec!["default"]));
    let seat = &status["seats"][0];
    assert_eq!(
        (&seat["plan"], &seat["state"]),
        (&json!("max"), &json!({"kind": "ready"}))
    );
    assert_eq!(seat["windows"][0]["used"], 1_000);
    assert_eq!(seat["dirs"], json!([home.path(".claude")]));

    let table = home.run(&["status"]).await;
    assert_eq!(table.code, Some(0));
    assert!(
        table.out.contains(&format!("listening on {}", running.address)),
        "{}",
        table.out
    );
    let row = table.out.lines().find(|line| line.contains("default")).unwrap();
    for cell in ["max", "10 %", "ready", "just now"] {
        assert!(row.contains(cell), "{row}");
    }
}

#[tokio::test]
async fn a_command_whose_words_nobody_reads_any_more_ends_quietly() {
    let home = Home::new().await;
    let _running = home.start().await;
    home.run(&["devices", "add", "laptop"]).await;
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["key"],
        &["devices", "revoke", "laptop"],
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut command = home.command(arguments);
        let process = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        // It holds our end of the pipe.
        drop(command);
        let ended = timeout(GUARD, process.wait_with_output())
            .await
            .expect("it ends")
            .unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), said.as_str()), (Some(0), ""), "{arguments:?}");
    }
    let devices = home.run(&["devices", "list"]).await;
    assert!(
        devices.out.contains("laptop (shut out)"),
        "what it was told to do is done: {devices:?}"
    );
}

#[tokio::test]
async fn commands_without_a_router_say_so() {
    let home = Home::new().await;
    for arguments in [&["status"][..], &["status", "--json"], &["stop"]] {
        let said = home.run(arguments).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.err.contains("not running"), "{said:?}");
    }
    assert!(!home.config().exists(), "asking makes no settings");
}

#[tokio::test]
async fn ping_names_the_step_that_failed() {
    let home = Home::new().await;
    let running = home.start().await;
    let good = home.run(&["ping", &running.url(), KEY]).await;
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.out.contains("the key is good"), "{good:?}");
    let slash = home.run(&["ping", &format!("{}/", running.url()), KEY]).await;
    assert_eq!(slash.code, Some(0), "{slash:?}");

    let rude = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let rude_url = format!("http://{}", rude.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = rude.accept().await {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
        }
    });
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let anthropic = format!("http://{}", home.anthropic);
    for (url, key, step) in [
        (running.url().as_str(), "rk-wrong-0001", "key:"),
        (&running.url(), "rk-test-0001x", "key:"),
        (&running.url(), "two\nlines", "key:"),
        (&nobody, KEY, "connect:"),
        (&anthropic, KEY, "service:"),
        (&rude_url, KEY, "service:"),
        ("http://nobody.invalid:18787", KEY, "name:"),
        ("not an address", KEY, "is no address"),
        ("/v1", KEY, "is no address"),
        (&running.address.to_string(), KEY, "is no address"),
        ("ftp://127.0.0.1:18787", KEY, "is no address"),
    ] {
        let said = home.run(&["ping", url, key]).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{url}: {said:?}");
        assert!(said.err.contains(step), "{url}: {said:?}");
        assert!(!said.err.contains(key), "{url}: {said:?}");
    }
}
