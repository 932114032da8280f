//! Onboarding (ON).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gateway::snapshot::SeatState;
use sandbox::Answer;
use serde_json::{Value, json};

use crate::support::{Bench, MESSAGES, OPUS, seat, write_login};

/// Longer than the router goes without a look at the logins.
const A_CHECK: u64 = 11;

fn login_file(bench: &Bench, name: &str) -> PathBuf {
    bench.dir(name).join(".credentials.json")
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[tokio::test(start_paused = true)]
async fn on_02_a_profile_without_a_login_is_listed_as_not_logged_in() {
    for (what, login) in [
        (
            "other secrets only",
            Some(json!({"mcpOAuth": {"server": {"accessToken": "other"}}})),
        ),
        ("empty", Some(json!({}))),
        (
            "blanked",
            Some(json!({"claudeAiOauth": {"accessToken": "", "refreshToken": "", "expiresAt": 0}})),
        ),
        ("no file", None),
    ] {
        let bench = Bench::new("A").await;
        let dir = bench.home.path().join(".claude-spare");
        write(&dir.join(".claude.json"), "{}");
        if let Some(login) = &login {
            write(&dir.join(".credentials.json"), login.to_string());
        }
        bench.pass(A_CHECK).await;
        let spare = bench.seat("spare");
        assert_eq!(spare.state, SeatState::LoggedOut, "{what}");
        let words = spare.state.words(|_| String::new());
        assert!(words.starts_with("not logged in"), "{what}: {words}");
        assert_eq!(spare.windows, [], "{what}");
        assert_eq!(bench.seat("A").state, SeatState::Ready, "{what}");
        assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{what}");
        let left = fs::read(dir.join(".credentials.json")).ok();
        assert_eq!(
            left,
            login.map(|login| login.to_string().into_bytes()),
            "{what}: untouched"
        );
    }
}

/// Puts something in the place of the file at `path` that is no login.
type Damage = fn(&Path);

const DAMAGES: [(&str, Damage); 6] = [
    ("cut short", |path| {
        write(path, r#"{"claudeAiOauth":{"accessToken":"tok"#);
    }),
    ("empty", |path| write(path, "")),
    ("invalid UTF-8", |path| {
        write(path, b"{\"claudeAiOauth\":{\"accessToken\":\"\xff\xfe\"}}");
    }),
    ("50 MB", |path| {
        let file = fs::File::create(path).unwrap();
        file.set_len(50_000_000).unwrap();
    }),
    ("a directory", |path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("a pipe", |path| {
        fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }),
];

#[tokio::test(start_paused = true)]
async fn on_03_while_a_login_file_is_damaged_its_last_good_token_serves() {
    for (what, damage) in DAMAGES {
        let bench = Bench::new("AB").await;
        let path = login_file(&bench, "A");
        damage(&path);
        let before = fs::symlink_metadata(&path).unwrap();
        for _ in 0..6 {
            bench.pass(5).await;
            assert_eq!(bench.seat("A").state, SeatState::Ready, "{what}");
            assert_eq!(bench.seat("B").state, SeatState::Ready, "{what}");
            assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{what}");
        }
        let after = fs::symlink_metadata(&path).unwrap();
        assert_eq!(after.file_type(), before.file_type(), "{what}");
        assert_eq!(
            after.modified().unwrap(),
            before.modified().unwrap(),
            "{what}: never rewritten"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn on_03_a_file_that_was_being_written_is_read_again_soon() {
    let bench = Bench::new("AB").await;
    let path = login_file(&bench, "A");
    let good = fs::read_to_string(&path).unwrap();
    write(&path, &good[..good.len() / 2]);
    bench.pass(10).await;
    bench.sandbox.script_always("tok-A2", MESSAGES, Answer::ok());
    bench.sandbox.revoke_access("A");
    write(&path, good.replace("tok-A", "tok-A2"));
    bench.pass(1).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-A2");
}

#[tokio::test(start_paused = true)]
async fn on_03_a_file_that_stays_damaged_is_told_in_the_status() {
    let bench = Bench::new("AB").await;
    for (what, damage) in DAMAGES {
        let dir = bench.home.path().join(".claude-new");
        let _ = fs::remove_dir_all(&dir);
        bench.pass(A_CHECK).await;
        write(&dir.join(".credentials.json"), "");
        damage(&dir.join(".credentials.json"));
        bench.pass(A_CHECK + 2).await;
        assert_eq!(
            bench.seat("new").state,
            SeatState::Unreadable,
            "{what}: with no token at all"
        );
        assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{what}: the others go on");
    }
}

#[tokio::test(start_paused = true)]
async fn on_03_a_half_written_login_is_never_called_logged_out() {
    let bench = Bench::new("A").await;
    let file = bench.home.path().join(".claude-new/.credentials.json");
    write(&file, "{\"claudeAiOauth\":");
    for _ in 0..120 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let seen = bench.status().seats.into_iter().find(|seat| seat.label == "new");
        assert_ne!(seen.map(|seat| seat.state), Some(SeatState::LoggedOut));
    }
}

#[tokio::test(start_paused = true)]
async fn on_03_a_damaged_file_behind_a_good_token_is_told_in_the_status_too() {
    let bench = Bench::new("AB").await;
    let shown = |bench: &Bench| serde_json::to_value(bench.seat("A")).unwrap();
    let before = shown(&bench);
    write(&login_file(&bench, "A"), "{");
    bench.pass(A_CHECK + 2).await;
    assert_ne!(
        shown(&bench),
        before,
        "after three failed reads the status gives the reason"
    );
}

/// A login in a directory that is found by its name, of a person whose organisation bears an address.
fn personal_login(dir: &Path) {
    let seat = seat("A", 0.1, 0.1);
    write_login(dir, &seat);
    let mut identity: Value = serde_json::from_slice(&fs::read(dir.join(".claude.json")).unwrap()).unwrap();
    identity["oauthAccount"]["organizationName"] = json!("a@example.com's Organization");
    write(&dir.join(".claude.json"), identity.to_string());
}

#[tokio::test(start_paused = true)]
async fn on_04_a_renamed_profile_returns_under_its_new_name() {
    let bench = Bench::with(vec![], json!({})).await;
    bench.sandbox.add_seat(seat("A", 0.1, 0.1));
    let at = |name: &str| bench.home.path().join(name);
    personal_login(&at(".claude-work"));
    bench.pass(A_CHECK).await;
    assert_eq!(bench.seat("work").state, SeatState::Ready);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");

    fs::rename(at(".claude-work"), at(".claude-job")).unwrap();
    bench.pass(A_CHECK).await;
    let seats = bench.status().seats;
    assert_eq!(seats.len(), 1);
    assert_eq!(seats[0].label, "job");
    assert_eq!(seats[0].dirs, [at(".claude-job").display().to_string()]);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn on_04_a_profile_that_moved_away_leaves_no_token_behind() {
    let bench = Bench::with(vec![], json!({})).await;
    bench.sandbox.add_seat(seat("A", 0.1, 0.1));
    let at = |name: &str| bench.home.path().join(name);
    personal_login(&at(".claude-work"));
    bench.pass(A_CHECK).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");

    fs::rename(at(".claude-work"), at("attic")).unwrap();
    bench.pass(A_CHECK).await;
    assert_eq!(bench.status().seats, []);
    bench.sandbox.take_requests();
    assert_eq!(bench.turn(OPUS).await.status, 503);
    assert_eq!(bench.sandbox.requests().len(), 0);

    fs::rename(at("attic"), at(".claude-work")).unwrap();
    bench.pass(A_CHECK).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn on_04_a_login_that_was_deleted_is_not_used_any_more() {
    let bench = Bench::new("AB").await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
    fs::remove_file(login_file(&bench, "A")).unwrap();
    bench.pass(A_CHECK).await;
    assert_eq!(bench.seat("A").state, SeatState::LoggedOut);
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
}
