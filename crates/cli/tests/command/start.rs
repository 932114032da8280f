//! Starting: where it listens, what it finds there, and what it needs for that.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::home::{GLANCE, GUARD, Home, KEY, Running, are_read, labels, mode, said, seat, shows_no_secret};
use crate::port::free_port;

#[tokio::test]
async fn start_makes_settings_with_a_key_for_the_owners_eyes_alone_and_says_where_it_listens() {
    let home = Home::empty().await;
    let port = free_port();
    let mut command = home.command(&["start", "--port", &port.to_string()]);
    command.kill_on_drop(true);
    let Some(_process) = home.standing(command, port).await else {
        return; // another test was quicker; the next run will do
    };
    let said = home.output();
    assert!(said.contains(&format!("listens on 127.0.0.1:{port}")), "{said}");
    assert!(said.contains("No Claude login was found"), "{said}");
    shows_no_secret("start", &said);
    let file = fs::read(home.config()).unwrap();
    let settings: Value = serde_json::from_slice(&file).unwrap();
    let key = settings["routerKey"].as_str().unwrap();
    assert!(key.len() >= 32, "{key}");
    assert_eq!(mode(&home.config()), 0o600);

    let shown = home.run(&["key"]).await;
    assert_eq!(
        (shown.code, shown.out.lines().last()),
        (Some(0), Some(key)),
        "{shown:?}"
    );
    let pinged = home.run(&["ping", &format!("http://127.0.0.1:{port}"), key]).await;
    assert!(pinged.err.contains("seat: the key is good"), "{pinged:?}");
    assert_eq!(
        fs::read(home.config()).unwrap(),
        file,
        "nothing of this changes the settings"
    );
}

#[tokio::test]
async fn key_shows_the_address_and_the_key() {
    let home = Home::empty().await;
    fs::write(home.config(), home.settings(18_999).to_string()).unwrap();
    let said = home.run(&["key"]).await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "http://127.0.0.1:18999\nrk-test-0001\n")
    );
}

#[tokio::test]
async fn a_router_that_was_given_another_port_is_told_to_devices_by_that() {
    let home = Home::new().await;
    fs::write(home.config(), home.settings(18_999).to_string()).unwrap();
    let (port, _running) = loop {
        let port = free_port();
        let command = home.command(&["start", "--port", &port.to_string()]);
        if let Some(running) = home.standing(command, port).await {
            break (port, running);
        }
    };
    let url = format!("http://127.0.0.1:{port}");
    let added = home.run(&["devices", "add", "laptop"]).await;
    assert!(added.out.contains(&format!("ANTHROPIC_BASE_URL={url}\n")), "{added:?}");
    assert!(home.run(&["key"]).await.out.starts_with(&format!("{url}\n")));
    let mut exec = home.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
    exec.arg("--config").arg(home.config());
    exec.args(["exec", "--", "/bin/sh", "-c", "echo $ANTHROPIC_BASE_URL"]);
    assert_eq!(said(exec).await.out.trim_end(), url);
}

#[tokio::test]
async fn gu_06_a_second_start_names_the_first_and_is_no_failure() {
    let home = Home::new().await;
    let running = home.start().await;
    let second = home.run(&["start"]).await;
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.out.contains(&running.pid().to_string()), "{second:?}");
    assert_eq!(running.turn().await, 200, "the first goes on");
    assert_eq!(home.run(&["status"]).await.code, Some(0), "and can still be asked");
}

#[tokio::test]
async fn gu_06_of_many_that_start_at_once_one_stays_and_its_key_is_the_one_in_the_settings() {
    for _ in 0..50 {
        let home = Home::empty().await;
        let port = free_port();
        let mut copies: Vec<Child> = (0..4)
            .map(|_| {
                let mut command = home.command(&["start", "--port", &port.to_string()]);
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        let settling = async {
            loop {
                let codes: Vec<_> = copies.iter_mut().filter_map(|copy| copy.try_wait().unwrap()).collect();
                assert!(codes.iter().all(std::process::ExitStatus::success), "{codes:?}");
                if codes.len() >= 3 && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                    return;
                }
                sleep(GLANCE).await;
            }
        };
        timeout(GUARD, settling).await.expect("one stays");
        let key = home.run(&["key"]).await.out.lines().last().unwrap().to_owned();
        let pinged = home.run(&["ping", &format!("http://127.0.0.1:{port}"), &key]).await;
        assert!(pinged.err.contains("seat: the key is good"), "{pinged:?}");
        assert_eq!(copies.iter_mut().filter_map(|copy| copy.try_wait().unwrap()).count(), 3);
    }
}

#[tokio::test]
async fn on_01_a_port_that_is_taken_is_left_to_its_holder() {
    let home = Home::new().await;
    let foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = foreign.local_addr().unwrap();
    fs::write(home.config(), home.settings(address.port()).to_string()).unwrap();
    let said = home.run(&["start"]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.err.contains(&address.port().to_string()), "{said:?}");
    assert!(said.err.contains("`--port"), "{said:?}");
    let this = format!("(process {})", std::process::id());
    assert!(said.err.contains(&this) && said.err.contains(" is free"), "{said:?}");
    let (greeting, accepted) = tokio::join!(TcpStream::connect(address), foreign.accept());
    assert!(
        greeting.is_ok() && accepted.is_ok(),
        "the foreign listener still listens"
    );
}

#[tokio::test]
async fn logins_are_found_wherever_they_lie_and_whenever_they_come() {
    let home = Home::new().await;
    let data = home.path("data");
    let work = home.path(".claude-work");
    home.log_in(&work, seat("B"));
    let orca = data.join("orca/claude-profiles/0a1b2c3d-4e5f-6789/home");
    home.log_in(&orca, seat("C"));
    let with_data = |command: &mut Command| {
        command.env("XDG_DATA_HOME", &data);
    };
    let settings = match cfg!(target_os = "macos") {
        true => json!({"profilesRoot": data.join("orca/claude-profiles")}),
        false => json!({}),
    };
    let running = home.start_with(&settings, with_data).await;
    assert_eq!(labels(&home.status().await), ["default", "orca-0a1b2c3d", "work"]);

    let late = home.path(".claude-late");
    home.log_in(&late, seat("D"));
    let status = home
        .status_where("the new login is found", |status| labels(status).contains(&"late"))
        .await;
    assert_eq!(labels(&status), ["default", "late", "orca-0a1b2c3d", "work"]);

    home.status_where("usage is known", are_read).await;
    for name in ["A", "B", "C"] {
        home.sandbox.use_up(name, sandbox::Allowance::FiveHour, 1.0);
    }
    home.sandbox.take_requests();
    assert_eq!(running.turn().await, 200);
    let served = home
        .sandbox
        .requests()
        .into_iter()
        .rfind(|request| request.path == "/v1/messages");
    assert_eq!(served.unwrap().token.as_deref(), Some("tok-D"), "the new one serves");
}

#[tokio::test]
async fn ld_02_home_and_user_are_all_it_needs() {
    let home = Home::new().await;
    let usual = match cfg!(target_os = "macos") {
        true => home.path("Library/Application Support/claude-proxy-router"),
        false => home.path(".config/claude-proxy-router"),
    };
    fs::create_dir_all(&usual).unwrap();
    let process = loop {
        let port = free_port();
        fs::write(usual.join("config.json"), home.settings(port).to_string()).unwrap();
        let mut command = home.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
        command.arg("start");
        if let Some(process) = home.standing(command, port).await {
            break Running {
                address: (Ipv4Addr::LOCALHOST, port).into(),
                process,
            };
        }
    };
    assert_eq!(process.turn().await, 200);
    let mut command = home.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
    command.args(["status", "--json"]);
    let status = said(command).await;
    assert!(status.out.contains("\"default\""), "{status:?}");
    assert_eq!(mode(&usual.join("run")), 0o700);
    assert_eq!(mode(&usual.join("run/control.sock")), 0o600);
}

#[tokio::test]
async fn the_control_socket_is_the_owners_alone_and_a_dead_one_is_replaced() {
    let home = Home::new().await;
    let (folder, socket) = (home.path("config.run"), home.path("config.run/control.sock"));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut running = home.start().await;
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    assert_eq!(mode(&home.path("config.lock")), 0o600);

    running.signal(Signal::KILL);
    running.ended().await;
    assert!(socket.exists(), "a killed process leaves it");
    let said = home.run(&["status"]).await;
    assert!(said.code == Some(1) && said.err.contains("not running"), "{said:?}");
    let again = home.start().await;
    assert_eq!(home.status().await["listening"], json!([again.address.to_string()]));
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
}

#[tokio::test]
async fn a_router_whose_socket_was_taken_away_is_told_from_none_and_can_soon_be_asked_again() {
    let home = Home::new().await;
    let mut running = home.start().await;
    // Held still, so that it cannot be quicker than the command.
    running.signal(Signal::STOP);
    fs::remove_dir_all(home.path("config.run")).unwrap();
    let pid = running.pid().to_string();
    for arguments in [&["status"][..], &["stop"], &["devices", "list"]] {
        let said = home.run(arguments).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        let socket = home.path("config.run/control.sock").display().to_string();
        for words in ["is running", &pid, &socket, &format!("`kill {pid}`")] {
            assert!(said.err.contains(words), "{said:?}");
        }
    }
    running.signal(Signal::CONT);
    let answers = async {
        while home.run(&["status"]).await.code != Some(0) {
            sleep(GLANCE).await;
        }
    };
    timeout(GUARD, answers).await.expect("it makes its socket anew");
    assert_eq!(home.run(&["stop"]).await.code, Some(0));
    running.ended().await;
}

#[tokio::test]
async fn nw_02_localhost_is_both_loopbacks() {
    if TcpListener::bind("[::1]:0").await.is_err() {
        return; // a machine without IPv6
    }
    let home = Home::new().await;
    let running = home.start_with(&json!({"host": "localhost"}), |_| {}).await;
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let url = format!("http://{host}:{}", running.address.port());
        let said = home.run(&["ping", &url, KEY]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

#[tokio::test]
async fn nw_05_proxies_in_the_environment_are_not_asked() {
    let home = Home::new().await;
    let with_proxies = |command: &mut Command| {
        for name in [
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
        ] {
            command.env(name, "http://127.0.0.1:1");
        }
    };
    let running = home.start_with(&json!({}), with_proxies).await;
    assert_eq!(running.turn().await, 200);
    home.status_where("usage is asked for too", are_read).await;
    let mut command = home.command(&["ping", &running.url(), KEY]);
    with_proxies(&mut command);
    let said = said(command).await;
    assert_eq!(said.code, Some(0), "{said:?}");
}
