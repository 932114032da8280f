//! The settings file and the list of devices: what is refused, what is mended, and what is never replaced.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use tokio::net::TcpStream;

use crate::home::{Home, KEY, mode, said};
use crate::port::free_port;

#[tokio::test]
async fn cf_01_an_unknown_setting_is_named_and_the_file_stays() {
    let home = Home::new().await;
    let text = format!(r#"{{"routerKey":"{KEY}","prot":18787}}"#);
    fs::write(home.config(), &text).unwrap();
    for arguments in [&["start"][..], &["key"]] {
        let said = home.run(arguments).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.err.contains("`prot`") && !said.err.contains(KEY), "{said:?}");
        assert_eq!(fs::read_to_string(home.config()).unwrap(), text);
    }
}

#[tokio::test]
async fn cf_02_a_damaged_settings_file_is_never_replaced() {
    let home = Home::new().await;
    for text in ["", "{\"host\":", "\u{0}\u{0}\u{0}", "{} {}", "[]", "{\"routerKey\":7}"] {
        fs::write(home.config(), text).unwrap();
        for arguments in [&["start"][..], &["key"]] {
            let said = home.run(arguments).await;
            assert_eq!(said.code, Some(1), "{text:?}: {said:?}");
            assert!(said.err.contains("config.json"), "{text:?}: {said:?}");
            assert_eq!(fs::read_to_string(home.config()).unwrap(), text);
        }
    }
}

#[tokio::test]
async fn cf_02_a_full_disk_leaves_the_old_settings() {
    let home = Home::new().await;
    let text = r#"{"usagePollS": 60}"#; // no key yet: one is to be saved
    fs::write(home.config(), text).unwrap();
    let mut command = home.bare("/bin/sh");
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .args([env!("CARGO_BIN_EXE_claude-proxy-router"), "start", "--config"])
        .arg(home.config());
    let said = said(command).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.err.contains("config.json"), "{said:?}");
    assert_eq!(fs::read_to_string(home.config()).unwrap(), text);
    let left: Vec<_> = fs::read_dir(home.dir.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| [".claude", ".claude.json", "config.json", "config.lock"]
                .iter()
                .any(|known| name == known)),
        "{left:?}"
    );
}

#[tokio::test]
async fn cf_03_settings_that_others_can_read_are_closed_to_them() {
    let home = Home::new().await;
    fs::write(home.config(), home.settings(18_999).to_string()).unwrap();
    fs::set_permissions(home.config(), fs::Permissions::from_mode(0o644)).unwrap();
    let said = home.run(&["key"]).await;
    assert_eq!((said.code, mode(&home.config())), (Some(0), 0o600), "{said:?}");
    assert!(said.err.contains("readable by others"), "{said:?}");
}

#[tokio::test]
async fn sc_03_without_a_key_nothing_listens() {
    let home = Home::new().await;
    for host in ["127.0.0.1", "0.0.0.0"] {
        let port = free_port();
        let mut settings = home.settings(port);
        (settings["routerKey"], settings["host"]) = ("".into(), host.into());
        fs::write(home.config(), settings.to_string()).unwrap();
        let said = home.run(&["start"]).await;
        assert_eq!(said.code, Some(1), "{host}: {said:?}");
        assert!(said.err.contains("`routerKey`"), "{host}: {said:?}");
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err());
    }
}

#[tokio::test]
async fn cf_02_a_damaged_list_of_devices_counts_again_with_a_rescan_once_it_is_mended() {
    let home = Home::new().await;
    let file = home.path("devices.json");
    let mut running = home.start().await;
    assert_eq!(home.run(&["devices", "add", "laptop"]).await.code, Some(0));
    assert_eq!(home.run(&["stop"]).await.code, Some(0));
    running.ended().await;
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();

    let _running = home.start().await;
    assert_eq!(home.status().await["problems"][0]["kind"], "devicesDamaged");
    let said = home.run(&["devices", "add", "phone"]).await;
    assert!(said.code == Some(1) && said.err.contains("devices.json"), "{said:?}");
    fs::write(&file, &whole).unwrap();
    assert_eq!(home.run(&["rescan"]).await.code, Some(0));
    assert_eq!(home.status().await["problems"], json!([]));
    let listed = home.run(&["devices", "list"]).await;
    assert!(listed.out.contains("laptop"), "{listed:?}");
    assert!(
        home.output().contains("the list of devices was mended"),
        "{}",
        home.output()
    );
}
