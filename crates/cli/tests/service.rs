//! The router that runs by itself, played through from the first question to the last trace, with stand-ins for
//! systemd's user mode and for launchd: they keep records, start what they are given, and end it.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use support::own::{FIRST_KEY, GLANCE, GUARD, Own, is_inside};
use support::port::free_port;

/// Ends the router in `$state/pid` and waits for it, as both managers do.
const END: &str = r#"
end() {
  [ -f "$state/pid" ] || return 0
  kill "$(cat "$state/pid")" 2>/dev/null
  while kill -0 "$(cat "$state/pid")" 2>/dev/null; do sleep 0.05; done
  rm -f "$state/pid"
}
begin() { "$@" </dev/null >>"$state/output" 2>&1 & echo $! >"$state/pid"; }
alive() { [ -f "$state/pid" ] && kill -0 "$(cat "$state/pid")" 2>/dev/null; }
"#;

/// `systemctl --user` as far as the command uses it. It reads the unit it finds, as systemd does.
const SYSTEMCTL: &str = r#"
echo "$*" >>"$state/calls"
[ "$1" = --user ] || exit 9
shift
unit=$HOME/.config/systemd/user/claude-proxy-router.service
case $1 in
  show-environment | daemon-reload) ;;
  enable) [ -f "$unit" ] && touch "$state/enabled" ;;
  restart) end; eval "begin $(sed -n 's/^ExecStart=//p' "$unit")" ;;
  disable) rm "$state/enabled"; end ;;
  is-active) alive ;;
  *) exit 9 ;;
esac
"#;

/// `/bin/launchctl` as far as the crate and we use it. It reads the agent with Python's plistlib.
const LAUNCHCTL: &str = r#"
echo "$*" >>"$state/calls"
case $1 in
  print) [ -f "$state/loaded" ] || exit 113 ;;
  enable) ;;
  bootstrap)
    touch "$state/loaded"
    begin /usr/bin/python3 -c 'import os, plistlib, sys
words = plistlib.load(open(sys.argv[1], "rb"))["ProgramArguments"]
os.execv(words[0], words)' "$3" ;;
  bootout) rm -f "$state/loaded"; end ;;
  *) exit 9 ;;
esac
"#;

/// A stand-in's folder: what it recorded, and the program itself.
fn stand_in(own: &Own, name: &str, script: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix("cpr-stand-in-")
        .tempdir_in("/tmp")
        .unwrap();
    let program = folder.path().join(name);
    let state = folder.path().display();
    let home = own.home().display();
    fs::write(
        &program,
        format!("#!/bin/sh\nstate={state}\nHOME={home}\n{END}{script}"),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn calls(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("calls")).unwrap_or_default();
    fs::write(folder.join("calls"), "").unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Runs the command with the stand-in first in the search path.
async fn run(own: &Own, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = own.command(arguments);
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", folder.display()));
    timeout(GUARD, command.output()).await.expect("it ends").unwrap()
}

async fn done(own: &Own, folder: &Path, arguments: &[&str]) -> String {
    let output = run(own, folder, arguments).await;
    let log = fs::read_to_string(folder.join("output")).unwrap_or_default();
    assert!(output.status.success(), "{arguments:?}: {output:?}\n{log}");
    String::from_utf8(output.stdout).unwrap()
}

async fn is_refused_at(port: u16) {
    timeout(GUARD, async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            sleep(GLANCE).await;
        }
    })
    .await
    .expect("the router ends");
}

fn settings(own: &Own) -> Value {
    serde_json::from_slice(&fs::read(own.config()).unwrap()).unwrap()
}

#[tokio::test]
async fn from_onboard_to_uninstall_nothing_is_left() {
    let own = Own::empty().await;
    let folder = stand_in(&own, "systemctl", SYSTEMCTL);
    let before = own.files();
    let port = free_port().to_string();
    let said = done(
        &own,
        folder.path(),
        &["onboard", "--host", "local", "--port", &port, "--install", "--yes"],
    )
    .await;
    for words in [
        "It reads",
        "never",
        "terms",
        "No Claude login",
        &format!("It answers at http://127.0.0.1:{port}"),
    ] {
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    let key = settings(&own)["routerKey"].as_str().unwrap().to_owned();
    assert!(key.len() > 64 && !said.contains(&key[3..]));
    let names = [
        "show-environment",
        "daemon-reload",
        "enable claude-proxy-router.service",
        "restart claude-proxy-router.service",
    ];
    let wanted: Vec<String> = names.iter().map(|name| format!("--user {name}")).collect();
    let called = calls(folder.path());
    assert!(wanted.iter().all(|call| called.contains(call)), "{called:?}");

    // A second time: the key stays, the terms are not read out again.
    let said = done(&own, folder.path(), &["onboard", "--install", "--yes"]).await;
    assert!(!said.contains("terms"), "{said}");
    assert_eq!(
        (settings(&own)["routerKey"].as_str(), settings(&own)["port"].to_string()),
        (Some(&*key), port.clone())
    );
    assert_eq!(
        own.run(&["ping", &format!("http://127.0.0.1:{port}"), &key])
            .await
            .status
            .code(),
        Some(1),
        "no seat yet"
    );
    let said = done(&own, folder.path(), &["doctor"]).await;
    assert!(
        said.contains("installed and running") && !said.contains(&key[3..]),
        "{said}"
    );
    assert!(own.path(".local/state/claude-proxy-router/log/router.log").exists());

    let said = done(&own, folder.path(), &["uninstall"]).await;
    assert!(said.contains("stay"), "{said}");
    is_refused_at(port.parse().unwrap()).await;
    assert_eq!(
        settings(&own)["routerKey"].as_str(),
        Some(&*key),
        "the key is for the next time"
    );
    assert!(!own.path(".config/systemd/user/claude-proxy-router.service").exists());
    done(&own, folder.path(), &["uninstall", "--purge"]).await;
    let after = own.files();
    let left: Vec<_> = after.iter().filter(|path| !before.contains(path)).collect();
    let folders = [
        ".config",
        ".config/systemd",
        ".config/systemd/user",
        ".local",
        ".local/state",
    ];
    let folders: Vec<String> = folders
        .iter()
        .map(|name| own.path(name).display().to_string())
        .collect();
    assert!(
        left.iter().all(|path| folders.contains(path)),
        "beside folders that are everybody's: {left:?}"
    );
}

#[tokio::test]
async fn on_01_onboard_leaves_a_taken_port_and_proposes_another() {
    let own = Own::empty().await;
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let said = own
        .done(&[
            "onboard",
            "--host",
            "local",
            "--port",
            &port.to_string(),
            "--no-install",
            "--yes",
        ])
        .await;
    let this = format!("(process {})", std::process::id());
    assert!(said.contains(&this) && said.contains("left alone"), "{said}");
    let chosen = settings(&own)["port"].as_u64().unwrap();
    assert!(chosen > u64::from(port), "{chosen}");
    assert!(TcpStream::connect(held.local_addr().unwrap()).await.is_ok());
    assert!(
        own.refused(&["onboard"]).await.contains("--yes"),
        "there is nobody to ask"
    );
}

#[tokio::test]
async fn onboard_asks_three_questions() {
    let own = Own::new().await;
    own.set(&json!({}));
    let port = free_port();
    let program = env!("CARGO_BIN_EXE_claude-proxy-router");
    let line = format!("{program} onboard --port {port}");
    // `script` is the terminal: the answers come from its input.
    let mut command = own.bare("script", &["-qec", &line, "/dev/null"]);
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let Ok(mut child) = command.spawn() else { return };
    let mut input = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut input, b"y\n127.0.0.1\nn\n")
        .await
        .unwrap();
    let output = timeout(GUARD, child.wait_with_output())
        .await
        .expect("it ends")
        .unwrap();
    drop(input);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    for words in [
        "my own accounts",
        "Seats found",
        "work",
        "Who may connect?",
        "by itself",
        "claude-proxy-router start",
    ] {
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    let settings = settings(&own);
    assert_eq!(settings["host"], "127.0.0.1");
    assert_eq!(settings["port"], port);
    assert_eq!(settings["routerKey"], FIRST_KEY, "kept");
    assert_eq!(settings["app"]["ownAccounts"], true);
}

#[tokio::test]
async fn brew_services_and_install_know_of_each_other() {
    let own = Own::empty().await;
    own.set(&json!({}));
    let folder = stand_in(&own, "systemctl", SYSTEMCTL);
    let brew = own.path(".config/systemd/user/homebrew.claude-proxy-router.service");
    fs::create_dir_all(brew.parent().unwrap()).unwrap();
    fs::write(&brew, "[Service]\n").unwrap();
    let output = run(&own, folder.path(), &["install"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("brew services stop"),
        "{said}"
    );
    assert!(!calls(folder.path()).iter().any(|call| call.contains("restart")));
}

#[tokio::test]
async fn a_router_with_other_settings_takes_nothing_of_the_usual_one_along() {
    let own = Own::empty().await;
    own.set(&json!({"port": free_port()}));
    let folder = stand_in(&own, "systemctl", SYSTEMCTL);
    done(&own, folder.path(), &["install"]).await;

    let other = own.path("try/설정 one.json");
    let write_other = || {
        let settings = json!({"routerKey": "rk-other-01", "port": free_port()});
        gateway::file::save(&other, settings.to_string().as_bytes()).unwrap();
    };
    write_other();
    let thesis = own.path("try/earlier/thesis.txt");
    fs::create_dir_all(thesis.parent().unwrap()).unwrap();
    fs::write(&thesis, "years of work").unwrap();
    let with = ["--config", other.to_str().unwrap()];
    let output = run(&own, folder.path(), &[&with[..], &["install"]].concat()).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("other settings"),
        "{said}"
    );

    let said = done(&own, folder.path(), &[&with[..], &["uninstall", "--purge"]].concat()).await;
    assert!(said.contains("stays"), "{said}");
    assert!(!other.exists() && thesis.exists());
    let said = done(&own, folder.path(), &["doctor"]).await;
    assert!(said.contains("installed and running"), "{said}");
    assert!(own.path(".local/state/claude-proxy-router/log/router.log").exists());

    // The usual one is this one's to end.
    done(&own, folder.path(), &["uninstall", "--purge"]).await;
    write_other();
    done(&own, folder.path(), &[&with[..], &["install"]].concat()).await;
    let said = done(&own, folder.path(), &[&with[..], &["uninstall", "--purge"]].concat()).await;
    assert!(said.contains("no longer runs by itself") && thesis.exists(), "{said}");
}

#[tokio::test]
async fn install_says_that_it_runs_once_it_answers() {
    let own = Own::empty().await;
    let folder = stand_in(&own, "systemctl", SYSTEMCTL);
    fs::create_dir_all(own.config().parent().unwrap()).unwrap();
    fs::write(own.config(), "{\"port\": ").unwrap();
    let output = run(&own, folder.path(), &["install"]).await;
    assert_eq!(output.status.code(), Some(1), "damaged settings: {output:?}");
    assert!(calls(folder.path()).is_empty(), "nothing was begun");
}

#[tokio::test]
async fn a_lock_that_cannot_be_opened_is_no_router_that_runs() {
    let own = Own::empty().await;
    own.set(&json!({}));
    let folder = stand_in(&own, "systemctl", SYSTEMCTL);
    // As root's would be to others; root itself may open anything but a folder.
    fs::create_dir_all(own.config().with_extension("lock")).unwrap();
    for verb in ["install", "onboard"] {
        let arguments: &[&str] = if verb == "onboard" { &[verb, "--yes"] } else { &[verb] };
        let output = run(&own, folder.path(), arguments).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("config.lock") && !said.contains("stop"), "{verb}: {said}");
    }
}

#[tokio::test]
async fn without_a_service_manager_nothing_is_left_behind() {
    let own = Own::empty().await;
    own.set(&json!({}));
    let before = own.files();
    let mut command = own.command(&["install"]);
    command.env("PATH", "/nonexistent");
    let output = timeout(GUARD, command.output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("systemctl is not there"),
        "{output:?}"
    );
    let after: Vec<String> = own
        .files()
        .into_iter()
        .filter(|path| !path.ends_with(".lock"))
        .collect();
    assert_eq!(after, before);
}

#[tokio::test]
async fn on_a_mac_the_earlier_tool_is_taken_over_and_nothing_is_left_in_the_end() {
    const NAME: &str = "on_a_mac_the_earlier_tool_is_taken_over_and_nothing_is_left_in_the_end";
    if !is_inside(NAME, "--mount", "") {
        return;
    }
    let own = Own::empty().await;
    let folder = stand_in(&own, "launchctl", LAUNCHCTL);
    let layers = format!("lowerdir={}:/usr/bin", folder.path().display());
    let mounted = std::process::Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &layers, "/usr/bin"])
        .output();
    assert!(mounted.as_ref().unwrap().status.success(), "{mounted:?}");

    // The earlier tool: its agent is loaded, its settings are there.
    let agents = own.path("Library/LaunchAgents");
    fs::create_dir_all(&agents).unwrap();
    let before = own.files();
    let agent = agents.join("io.github.choiyounggi.claude-proxy-router.plist");
    let earlier = "<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>Label</key><string>io.github.choiyounggi.claude-proxy-router</string>\
                   <key>ProgramArguments</key><array><string>/opt/homebrew/bin/node</string><string>cli.js</string><string>start</string></array></dict></plist>";
    fs::write(&agent, earlier).unwrap();
    fs::write(folder.path().join("loaded"), "").unwrap();
    let port = free_port();
    own.set(&json!({"host": "127.0.0.1", "port": port, "usagePollS": 60}));
    let theirs = fs::read_to_string(own.config()).unwrap();

    let said = done(&own, folder.path(), &["onboard", "--yes"]).await;
    assert!(said.contains("earlier tool") && said.contains("copy"), "{said}");
    assert_eq!(settings(&own)["routerKey"], FIRST_KEY, "devices keep their key");
    assert_eq!(settings(&own)["usagePollS"], 60);
    let kept = own.config().with_file_name("earlier");
    assert_eq!(
        fs::read_to_string(kept.join("config.json")).unwrap().trim_end(),
        theirs.trim_end()
    );
    assert_eq!(
        fs::read_to_string(kept.join(agent.file_name().unwrap()))
            .unwrap()
            .trim_end(),
        earlier
    );
    let written = fs::read_to_string(&agent).unwrap();
    assert!(written.contains("--log") && !written.contains("node"), "{written}");

    let uid = rustix::process::getuid().as_raw();
    let (domain, label) = (format!("gui/{uid}"), "io.github.choiyounggi.claude-proxy-router");
    let called = calls(folder.path());
    let orders: Vec<&str> = called
        .iter()
        .map(String::as_str)
        .filter(|call| !call.starts_with("print"))
        .collect();
    let plist = agent.display();
    let wanted = [
        format!("bootout {domain} {plist}"),
        format!("enable {domain}/{label}"),
        format!("bootstrap {domain} {plist}"),
    ];
    assert_eq!(orders, wanted, "and never a kickstart");
    assert!(
        called
            .iter()
            .all(|call| !call.starts_with("print") || call == &format!("print {domain}/{label}"))
    );

    // Once more: it is ours by now, and is replaced without another copy.
    fs::remove_dir_all(&kept).unwrap();
    done(&own, folder.path(), &["install"]).await;
    assert!(!kept.exists());
    timeout(GUARD, async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            sleep(GLANCE).await;
        }
    })
    .await
    .expect("it runs again");

    done(&own, folder.path(), &["uninstall", "--purge"]).await;
    is_refused_at(port).await;
    let left: Vec<_> = own.files().into_iter().filter(|path| !before.contains(path)).collect();
    let folders: Vec<String> = [".config", ".local", ".local/state"]
        .iter()
        .map(|name| own.path(name).display().to_string())
        .collect();
    assert!(left.iter().all(|path| folders.contains(path)), "{left:?}");
}
