//! The Keychain (KC) through a pretended `security`, which has the limits of the real one.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway::credential::{Document, Place, Store as _};
use gateway::items::{Item, Listing};
use gateway::keychain::Keychain;
use gateway::lock::{Judgement, ProfileLock};
use gateway::profile::Profile;
use gateway::reads::{Asking, Reads, Why};
use gateway::security::{self, Ended, Found, Security, Tool};
use gateway::snapshot::{LoginTrouble, SeatState};
use jiff::Timestamp;
use sandbox::{Answer, Seat};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{Bench, Log, MESSAGES, OPUS, T, no_claude, seat};

/// The tool, waited for as long as a busy machine needs, but where it is told to hang.
struct Patient {
    tool: Security,
    how: PathBuf,
}

impl Tool for Patient {
    fn run(&self, arguments: &[&str], input: &[u8], limit: Duration) -> io::Result<(Ended, Vec<u8>)> {
        let wanted = if arguments[0] == "-i" { 10 } else { 2 };
        assert_eq!(limit, Duration::from_secs(wanted), "{arguments:?}");
        let how = fs::read_to_string(&self.how).unwrap_or_default();
        let hangs = how == "asks" || how.contains("late");
        let limit = Duration::from_secs(if hangs { 2 } else { 60 });
        self.tool.run(arguments, input, limit)
    }
}

/// A Mac's Keychain: the pretended tool and its items.
struct Mac {
    dir: Arc<tempfile::TempDir>,
    keychain: Arc<Keychain>,
}

/// The items as files; their times are those of the files.
struct Items(PathBuf);

impl Listing for Items {
    fn items(&self, account: &str) -> io::Result<Vec<Item>> {
        let Ok(entries) = fs::read_dir(self.0.join(account)) else {
            return Ok(Vec::new());
        };
        let item = |entry: fs::DirEntry| {
            let modified = entry.metadata().ok()?.modified().ok()?;
            let modified = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some(Item {
                service: entry.file_name().into_string().ok()?,
                account: account.to_owned(),
                modified: Timestamp::from_nanosecond(i128::try_from(modified.as_nanos()).ok()?).ok()?,
            })
        };
        Ok(entries.flatten().filter_map(item).collect())
    }
}

impl Mac {
    fn new() -> Self {
        Self::of("me")
    }

    /// The Mac of the user of that name.
    fn of(user: &str) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let tool = dir.path().join("security");
        fs::write(&tool, include_str!("fake_security.sh")).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let keychain = Self::keychain(dir.path(), user);
        Self { dir, keychain }
    }

    fn keychain(dir: &Path, user: &str) -> Arc<Keychain> {
        let tool = Arc::new(Patient {
            tool: Security::new(dir.join("security")),
            how: dir.join("how"),
        });
        let listing = Arc::new(Items(dir.join("items")));
        Arc::new(Keychain::new(tool, listing, Some(user), dir.join("state.json")))
    }

    /// How the tool behaves from now on.
    fn behaves(&self, how: &str) {
        fs::write(self.dir.path().join("how"), how).unwrap();
    }

    /// Puts `text` into the item of the directory `dir`.
    fn put(&self, dir: &Path, text: &str) {
        self.put_named(&service(&dir.display().to_string()), text);
    }

    fn put_named(&self, service: &str, text: &str) {
        let folder = self.dir.path().join("items/me");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(service), text).unwrap();
    }

    /// The item of the directory `dir`.
    fn item(&self, dir: &Path) -> String {
        let file = self
            .dir
            .path()
            .join("items/me")
            .join(service(&dir.display().to_string()));
        String::from_utf8(fs::read(file).unwrap()).unwrap()
    }

    fn login(&self, dir: &Path) -> Value {
        serde_json::from_str::<Value>(&self.item(dir)).unwrap()["claudeAiOauth"].clone()
    }

    /// What the tool was asked: its arguments, a call a line.
    fn calls(&self) -> Vec<String> {
        let argv = fs::read_to_string(self.dir.path().join("argv")).unwrap_or_default();
        argv.split_terminator("--\n")
            .map(|call| call.trim_end().replace('\n', " "))
            .collect()
    }

    fn reads(&self) -> usize {
        self.calls().iter().filter(|call| call.starts_with("find-")).count()
    }

    /// The lines that it was given on standard input.
    fn lines(&self) -> Vec<String> {
        let lines = fs::read_to_string(self.dir.path().join("lines")).unwrap_or_default();
        lines.lines().map(str::to_owned).collect()
    }

    /// The secrets that it was given, decoded.
    fn given(&self) -> Vec<String> {
        let secret = |line: &String| {
            let hex = line.split_once("-X \"").unwrap().1.trim_end_matches('"');
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            String::from_utf8((0..hex.len()).step_by(2).map(byte).collect()).unwrap()
        };
        self.lines().iter().map(secret).collect()
    }

    /// A router over these seats, whose logins lie in the Keychain alone.
    async fn bench(&self, seats: Vec<Seat>, settings: Value) -> Bench {
        self.bench_with(seats, settings, |_| ()).await
    }

    /// The same, after `lay` has changed the home directory.
    async fn bench_with(&self, seats: Vec<Seat>, settings: Value, lay: impl FnOnce(&Path)) -> Bench {
        let names: Vec<String> = seats.iter().map(|seat| seat.name.clone()).collect();
        Bench::laid_out(seats, settings, self.keychain.clone(), |home| {
            for name in names {
                let file = home.join(&name).join(".credentials.json");
                self.put(&home.join(name), &fs::read_to_string(&file).unwrap());
                fs::remove_file(file).unwrap();
            }
            lay(home);
        })
        .await
    }
}

/// The service of a directory's item, as Claude Code names it.
fn service(dir: &str) -> String {
    let hash: String = Sha256::digest(dir.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("Claude Code-credentials-{}", &hash[..8])
}

/// A seat whose login ends in so many seconds.
fn ending(name: &str, seconds: i64) -> Seat {
    seat(name, 0.1, 0.1).expires_at_ms((T + seconds) * 1_000)
}

/// A login document of that pair, with those other sections.
fn document(token: &str, refresh: &str, end: i64, others: &Value) -> Value {
    let mut document = json!({"claudeAiOauth": {
        "accessToken": token, "refreshToken": refresh, "expiresAt": end * 1_000,
        "scopes": ["user:inference", "user:profile"], "subscriptionType": "max",
    }});
    for (key, value) in others.as_object().unwrap() {
        document[key] = value.clone();
    }
    document
}

fn write_file(home: &Path, name: &str, document: &Value) {
    fs::write(home.join(name).join(".credentials.json"), document.to_string()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn kc_01_a_hex_answer_is_a_login_and_what_is_written_is_plain_ascii() {
    let mac = Mac::new();
    let others = json!({"mcpOAuth": {"caf\u{e9}": [1, 2.50, "\u{1f600}"]}, "odd": "a\u{301}"});
    let pretty = serde_json::to_string_pretty(&document("tok-A", "rt-A", T + 200, &others)).unwrap();
    let text = pretty.clone();
    let bench = mac
        .bench_with(vec![ending("A", 200)], no_claude(), |home| {
            mac.put(&home.join("A"), &text);
        })
        .await;
    bench.pass(30).await;
    assert_eq!(bench.posted(), ["rt-A"]);
    let given = mac.given();
    assert_eq!(given.len(), 2, "the probe and the pair");
    assert_eq!(given[0], pretty, "the probe writes the very bytes that it read");
    let item = mac.item(&bench.dir("A"));
    assert_eq!(item, given[1]);
    assert!(item.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{item}");
    let item: Value = serde_json::from_str(&item).unwrap();
    assert_eq!(item["mcpOAuth"], others["mcpOAuth"]);
    assert_eq!(item["odd"], others["odd"]);
    assert_eq!(item["claudeAiOauth"]["refreshToken"], bench.sandbox.refresh_token("A"));
    assert_eq!(item["claudeAiOauth"]["subscriptionType"], "max");
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), [bench.sandbox.access_token("A")]);
    assert!(!bench.dir("A").join(".credentials.json").exists(), "no second copy");
}

#[tokio::test(start_paused = true)]
async fn kc_02_secrets_are_read_when_the_item_changed_and_not_otherwise() {
    let mac = Mac::new();
    let bench = mac.bench(vec![seat("A", 0.1, 0.1)], no_claude()).await;
    bench.pass(3_600).await;
    assert_eq!(mac.reads(), 1);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(mac.reads(), 1, "no request reads");
    bench.sandbox.script_always("tok-A2", MESSAGES, Answer::ok());
    mac.put(
        &bench.dir("A"),
        &document("tok-A2", "rt-A2", T + 40_000, &json!({})).to_string(),
    );
    bench.pass(11).await;
    assert_eq!(mac.reads(), 2);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-A2"]);
    let reads = bench.status().reads;
    let read = reads
        .iter()
        .find(|read| read.what.starts_with("Keychain item "))
        .unwrap();
    assert_eq!(
        read.what,
        format!("Keychain item {}", service(&bench.dir("A").display().to_string()))
    );
    assert_eq!((read.why, bench.now() - read.when <= 11), (Why::Changed, true));
    assert_eq!(read.seat.as_deref(), Some("A"), "its name is a hash, and does not tell");
}

#[tokio::test(start_paused = true)]
async fn kc_02_a_dialog_that_nobody_answers_is_asked_once_in_half_an_hour_then_in_six() {
    let mac = Mac::new();
    let bench = mac.bench(vec![seat("A", 0.1, 0.1)], no_claude()).await;
    assert_eq!(mac.reads(), 1);
    mac.behaves("asks");
    let touch = || {
        mac.put(
            &bench.dir("A"),
            &document("tok-A", "rt-A", T + 28_800, &json!({})).to_string(),
        );
    };
    touch();
    bench.pass(11).await;
    assert_eq!(mac.reads(), 2);
    for _ in 0..9 {
        touch();
        assert_eq!(bench.turn(OPUS).await.status, 200, "requests are served from memory");
        bench.pass(180).await;
    }
    assert_eq!(mac.reads(), 2);
    assert_eq!(bench.seat("A").state, SeatState::Ready);
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::KeychainAsks));
    bench.pass(600).await;
    assert_eq!(mac.reads(), 3, "half an hour later, once");
    bench.pass(5 * 3_600).await;
    assert_eq!(mac.reads(), 3);

    // What was remembered is remembered by the next process.
    let next = Mac::keychain(mac.dir.path(), "me");
    let reads = Reads::default();
    let profile = Profile::named(bench.dir("A"), "A".into());
    let asking = |now| Asking {
        why: Why::First,
        now,
        reads: &reads,
    };
    let now = Timestamp::from_second(bench.now()).unwrap();
    assert!(next.read(&profile, &asking(now)).is_err());
    assert_eq!(mac.reads(), 3);
    assert_eq!(reads.all(), [], "what is not tried is not called a reading");

    // Its owner asks, and says yes.
    mac.behaves("");
    bench.gateway.look_again().await;
    assert_eq!(mac.reads(), 4);
    assert_eq!(bench.seat("A").login, None);
    let children = fs::read_to_string(mac.dir.path().join("children")).unwrap();
    for child in children.lines().filter(|_| cfg!(target_os = "linux")) {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        assert!(
            status.is_empty() || status.contains("State:\tZ"),
            "its group ends with it: {status}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn kc_02_a_refused_token_is_looked_up_aside_from_the_request() {
    let mac = Mac::new();
    let bench = mac
        .bench(vec![seat("A", 0.1, 0.1), seat("B", 0.5, 0.5)], no_claude())
        .await;
    bench.sandbox.revoke_access("A");
    let before = mac.reads();
    mac.behaves("asks");
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(bench.now() - T, 0, "it waited for nothing");
    bench.pass(30).await;
    assert_eq!(mac.reads(), before + 1, "and then the item was looked at, once");
}

#[tokio::test(start_paused = true)]
async fn kc_03_the_account_follows_the_clients_rule() {
    for (user, account) in [
        ("first.last", "first.last"),
        ("first.last@example.test", "claude-code-user"),
    ] {
        let mac = Mac::of(user);
        let bench = Bench::laid_out(vec![seat("A", 0.1, 0.1)], no_claude(), mac.keychain.clone(), |home| {
            let folder = mac.dir.path().join("items").join(account);
            fs::create_dir_all(&folder).unwrap();
            let item = folder.join(service(&home.join("A").display().to_string()));
            fs::rename(home.join("A/.credentials.json"), item).unwrap();
        })
        .await;
        assert_eq!(bench.turn(OPUS).await.status, 200, "{user}");
        let service = service(&bench.dir("A").display().to_string());
        assert_eq!(
            mac.calls(),
            [format!("find-generic-password -a {account} -w -s {service}")]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn kc_04_of_the_names_that_an_item_may_have_the_one_that_exists_is_used() {
    let forms: [fn(&str) -> String; 2] = [|dir| service(dir), |dir| service(&format!("{dir}/"))];
    for form in forms {
        let mac = Mac::new();
        let bench = Bench::laid_out(vec![ending("A", 200)], no_claude(), mac.keychain.clone(), |home| {
            let dir = home.join("A");
            let text = fs::read_to_string(dir.join(".credentials.json")).unwrap();
            fs::remove_file(dir.join(".credentials.json")).unwrap();
            mac.put_named(&form(&dir.display().to_string()), &text);
            // The default directory's item is nobody else's.
            mac.put_named("Claude Code-credentials", &text.replace("tok-A", "tok-X"));
        })
        .await;
        bench.pass(30).await;
        assert_eq!(bench.turn(OPUS).await.status, 200);
        assert_eq!(bench.tokens(MESSAGES), [bench.sandbox.access_token("A")]);
        let name = form(&bench.dir("A").display().to_string());
        for line in mac.lines() {
            assert!(line.contains(&format!("-s \"{name}\"")), "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn kc_05_the_pair_that_lasts_longer_is_used_and_renewed_where_it_lies() {
    for newer_in_file in [true, false] {
        let mac = Mac::new();
        let old = document("tok-old", "rt-old", T - 600, &json!({}));
        let new = document("tok-A", "rt-A", T + 900, &json!({}));
        let (file, item) = if newer_in_file { (&new, &old) } else { (&old, &new) };
        let bench = mac
            .bench_with(vec![ending("A", 900)], no_claude(), |home| {
                mac.put(&home.join("A"), &item.to_string());
                write_file(home, "A", file);
            })
            .await;
        assert_eq!(bench.turn(OPUS).await.status, 200);
        assert_eq!(bench.tokens(MESSAGES), ["tok-A"], "newer in the file: {newer_in_file}");
        bench.pass(700).await;
        assert_eq!(bench.posted(), ["rt-A"], "newer in the file: {newer_in_file}");
        let in_file: Value =
            serde_json::from_slice(&fs::read(bench.dir("A").join(".credentials.json")).unwrap()).unwrap();
        let in_file = in_file["claudeAiOauth"]["refreshToken"].clone();
        let in_item = mac.login(&bench.dir("A"))["refreshToken"].clone();
        let (renewed, left) = if newer_in_file {
            (in_file, in_item)
        } else {
            (in_item, in_file)
        };
        assert_eq!(renewed, bench.sandbox.refresh_token("A"));
        assert_eq!(left, "rt-old");
    }
}

#[tokio::test(start_paused = true)]
async fn kc_06_no_secret_is_on_a_command_line_in_a_log_or_a_file_or_the_status() {
    let (log, _guard) = Log::of_this_test();
    let mac = Mac::new();
    let bench = mac.bench(vec![ending("A", 200)], no_claude()).await;
    bench.pass(30).await;
    assert_eq!(bench.posted(), ["rt-A"]);
    // Every way in which the tool can fail.
    for how in [
        "asks",
        "status-36",
        "status-51",
        "status-1",
        "late",
        "pair-late",
        "pair-late-but-done",
        "pair-drops-writes",
        "",
    ] {
        mac.behaves(how);
        let live = document(
            &bench.sandbox.access_token("A"),
            &bench.sandbox.refresh_token("A"),
            bench.now() + 200,
            &json!({"mcpOAuth": {"token": "mcp-secret-1"}}),
        );
        mac.put(&bench.dir("A"), &live.to_string());
        bench.pass(60).await;
        bench.gateway.look_again().await;
    }
    mac.put(&bench.dir("A"), "{\"claudeAiOauth\": {\"accessToken\": \"tok-broken\"");
    bench.pass(60).await;
    let status = serde_json::to_string(&bench.status()).unwrap();
    let calls = mac.calls().join("\n");
    let mut kept = String::new();
    for file in files_in(bench.home.path()) {
        if file.file_name().is_some_and(|name| name == ".claude.json") {
            continue;
        }
        kept += &format!(
            "{}\n{}\n",
            file.display(),
            String::from_utf8_lossy(&fs::read(&file).unwrap())
        );
    }
    kept += &fs::read_to_string(mac.dir.path().join("state.json")).unwrap_or_default();
    assert!(calls.contains("-i") && log.text().contains("renewed"), "it was tried");
    for (place, text) in [
        ("argv", &calls),
        ("log", &log.text()),
        ("status", &status),
        ("files", &kept),
    ] {
        for secret in [
            "tok-A",
            "rt-A",
            "tok-broken",
            "mcp-secret",
            "sk-ant",
            "746f6b2d41",
            "72742d41",
            "736b2d616e74",
        ] {
            assert!(!text.contains(secret), "{secret} in the {place}: {text}");
        }
    }
}

#[test]
fn kc_06_what_the_keychain_itself_says_and_logs_holds_no_secret() {
    let (log, _guard) = Log::of_this_test();
    let home = tempfile::tempdir().unwrap();
    let profile = Profile::named(home.path().join("A"), "A".into());
    fs::create_dir(&profile.dir).unwrap();
    let service = service(&profile.dir.display().to_string());
    let text = document("tok-A", "rt-A", T, &json!({"mcpOAuth": {"token": "mcp-secret"}})).to_string();
    let long = document("tok-A", "rt-A", T, &json!({"pad": "mcp-secret".repeat(300)})).to_string();
    let now = Timestamp::from_second(T).unwrap();
    let mut said = String::new();
    for how in [
        "",
        "asks",
        "late",
        "late-but-done",
        "drops-writes",
        "status-1",
        "status-36",
        "status-44",
        "status-51",
    ] {
        for (stored, written) in [(&text, &text), (&text, &long), (&long[..70].to_owned(), &text)] {
            let mac = Mac::new();
            mac.put_named(&service, stored);
            mac.behaves(how);
            let reads = Reads::default();
            let asking = Asking {
                why: Why::First,
                now,
                reads: &reads,
            };
            let lock = ProfileLock::take(&profile.dir, Judgement::ByAge, now).unwrap();
            let document = Document::parse(written.clone().into(), Place::Item(service.clone())).unwrap();
            let read = mac.keychain.read(&profile, &asking).err();
            let storage = lock.for_writing(Judgement::ByAge, now).unwrap();
            let write = mac.keychain.write(&profile, &document, &storage, now).err();
            said += &format!("{how}: {read:?} {write:?} {:?} {:?}\n", reads.all(), mac.calls());
        }
    }
    for wanted in ["Permission", "Locked", "Unknown", "TooLong", "Damaged"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(log.text().contains("macOS asks"), "{}", log.text());
    for secret in [
        "tok-A",
        "rt-A",
        "mcp-secret",
        "746f6b2d41",
        "72742d41",
        "6d63702d736563726574",
    ] {
        assert!(!said.contains(secret), "{secret}: {said}");
        assert!(!log.text().contains(secret), "{secret}: {}", log.text());
    }
}

#[test]
fn kc_02_the_tool_runs_once_at_a_time() {
    let mac = Mac::new();
    mac.put_named("Claude Code-credentials", "{}");
    mac.behaves("slow");
    let tool = Patient {
        tool: Security::new(mac.dir.path().join("security")),
        how: mac.dir.path().join("how"),
    };
    std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let found = security::find(&tool, "Claude Code-credentials", "me").unwrap();
                assert!(matches!(found, Found::Value(text) if text == b"{}"));
            });
        }
    });
    assert_eq!(mac.reads(), 5);
    assert!(!mac.dir.path().join("overlaps").exists());
}

/// Every file below `folder`.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_in(&path)),
            false => files.push(path),
        }
    }
    files
}

#[tokio::test(start_paused = true)]
async fn kc_07_a_locked_keychain_is_not_a_missing_login() {
    let mac = Mac::new();
    let bench = mac.bench(vec![ending("A", 1_000)], no_claude()).await;
    mac.behaves("status-36");
    mac.put(&bench.dir("A"), &mac.item(&bench.dir("A")));
    bench.pass(60).await;
    assert_eq!(bench.turn(OPUS).await.status, 200, "what is in memory works on");
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
    bench.pass(660).await;
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::KeychainLocked));
    assert_eq!(bench.posted(), [""; 0], "nothing is renewed unread");
    let tried = mac.reads();
    bench.pass(600).await;
    assert!(mac.reads() - tried < 50, "{}", mac.reads() - tried);

    mac.behaves("");
    bench.pass(310).await;
    assert_eq!(
        bench.posted(),
        ["rt-A"],
        "and when it is open again it goes on by itself"
    );
    assert_eq!(bench.turn(OPUS).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn kc_07_locked_and_absent_have_different_reasons() {
    for (how, want) in [
        (
            "status-36",
            SeatState::NeedsLogin {
                trouble: LoginTrouble::KeychainLocked,
            },
        ),
        ("status-44", SeatState::LoggedOut),
        ("status-51", SeatState::NeedsPermission),
        ("status-1", SeatState::Unreadable),
    ] {
        let mac = Mac::new();
        mac.behaves(how);
        let bench = mac.bench(vec![seat("A", 0.1, 0.1)], no_claude()).await;
        assert_eq!(bench.seat("A").state, want, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn kc_07_behind_a_locked_keychain_the_file_serves_and_is_not_renewed() {
    let mac = Mac::new();
    mac.behaves("status-36");
    let bench = mac
        .bench_with(vec![ending("A", 900)], no_claude(), |home| {
            write_file(home, "A", &document("tok-A", "rt-superseded", T + 900, &json!({})));
        })
        .await;
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
    bench.pass(1_200).await;
    assert_eq!(bench.posted(), [""; 0], "the item may have replaced it");
}

#[tokio::test(start_paused = true)]
async fn kc_08_a_blanked_item_hides_no_good_login() {
    let mac = Mac::new();
    let blank = json!({"claudeAiOauth": {"accessToken": "", "refreshToken": "", "expiresAt": 0}}).to_string();
    let bench = mac
        .bench_with(vec![ending("A", 1_000)], no_claude(), |home| {
            mac.put(&home.join("A"), &blank);
            write_file(home, "A", &document("tok-A", "rt-A", T + 1_000, &json!({})));
        })
        .await;
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
    assert_eq!(bench.posted(), [""; 0]);
    bench.pass(800).await;
    assert_eq!(bench.posted(), ["rt-A"]);
    assert_eq!(mac.item(&bench.dir("A")), blank, "and it is left as it is");
    assert_eq!(mac.lines(), [""; 0]);

    let mac = Mac::new();
    let bench = mac
        .bench_with(vec![seat("A", 0.1, 0.1)], no_claude(), |home| {
            mac.put(&home.join("A"), &blank);
        })
        .await;
    bench.pass(600).await;
    assert_eq!(bench.seat("A").state, SeatState::LoggedOut);
    assert_eq!(bench.posted(), [""; 0], "an empty token is never sent");
}

#[tokio::test(start_paused = true)]
async fn kc_an_item_with_other_secrets_alone_is_no_login() {
    let mac = Mac::new();
    let bench = mac
        .bench_with(vec![seat("A", 0.1, 0.1)], no_claude(), |home| {
            mac.put(&home.join("A"), r#"{"mcpOAuth":{"x":{"accessToken":"mcp-1"}}}"#);
        })
        .await;
    assert_eq!(bench.seat("A").state, SeatState::LoggedOut);
}

/// Waits in real time until `so` holds.
async fn eventually(so: impl Fn() -> bool) {
    for _ in 0..400 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never came");
}

// In real time: a paused clock does not wait for another program.
#[tokio::test]
async fn kc_what_only_claude_code_can_write_is_claude_codes_to_renew() {
    for others in [
        json!({"mcpOAuth": {"token": "x".repeat(2_200)}}),
        json!({"keychainOverflow": {"slot": "a", "key": "k", "login": "h"}}),
    ] {
        let mac = Mac::new();
        let place = tempfile::tempdir().unwrap();
        let (claude, told) = (place.path().join("claude"), place.path().join("told"));
        let renewed = document("tok-A2", "rt-A2", T + 30_000, &others).to_string();
        fs::write(place.path().join("renewed"), &renewed).unwrap();
        let bench = mac
            .bench_with(vec![ending("A", 250)], json!({"claudePath": claude}), |home| {
                let dir = home.join("A");
                mac.put(&dir, &document("tok-A", "rt-A", T + 250, &others).to_string());
                // Renews the login in the item, as `claude auth status` does.
                let item = mac
                    .dir
                    .path()
                    .join("items/me")
                    .join(service(&dir.display().to_string()));
                let script = format!(
                    "#!/bin/sh\necho \"$* $CLAUDE_CONFIG_DIR\" >>'{}'\ncp '{}' '{}'\n",
                    told.display(),
                    place.path().join("renewed").display(),
                    item.display()
                );
                fs::write(&claude, script).unwrap();
                fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
            })
            .await;
        bench.sandbox.script_always("tok-A2", MESSAGES, Answer::ok());
        eventually(|| bench.seat("A").token_ends_at == Some(T + 30_000)).await;
        assert_eq!(bench.posted(), [""; 0], "the router spends nothing");
        assert_eq!(mac.lines(), [""; 0], "and writes nothing");
        assert_eq!(mac.item(&bench.dir("A")), renewed);
        let told = fs::read_to_string(told).unwrap();
        assert_eq!(told, format!("auth status {}\n", bench.dir("A").display()));
        assert_eq!(bench.turn(OPUS).await.status, 200);
        assert_eq!(bench.tokens(MESSAGES), ["tok-A2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn kc_a_failing_tool_is_tried_ever_less_often() {
    let mac = Mac::new();
    mac.behaves("status-1");
    let bench = mac.bench(vec![seat("A", 0.1, 0.1)], no_claude()).await;
    bench.pass(3_600).await;
    let reads = mac.reads();
    assert!((5..30).contains(&reads), "{reads}");
    mac.behaves("");
    bench.pass(310).await;
    assert_eq!(bench.seat("A").state, SeatState::Ready);
}

#[tokio::test(start_paused = true)]
async fn kc_without_a_claude_it_says_whose_login_it_is() {
    let mac = Mac::new();
    let others = json!({"keychainOverflow": {"slot": "a"}});
    let text = document("tok-A", "rt-A", T + 400, &others).to_string();
    let bench = mac
        .bench_with(vec![ending("A", 400)], no_claude(), |home| {
            mac.put(&home.join("A"), &text);
        })
        .await;
    bench.pass(250).await;
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::ClaudeCodes));
    assert_eq!(bench.turn(OPUS).await.status, 200, "it serves while it lasts");
    assert_eq!(mac.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn kc_no_line_ever_reaches_the_tools_buffer() {
    let sized = |length: usize| {
        let others = |pad: usize| json!({"mcpOAuth": {"pad": "p".repeat(pad)}});
        let bare = document("tok-A", "rt-A", T + 200, &others(0)).to_string().len();
        document("tok-A", "rt-A", T + 200, &others(length - bare)).to_string()
    };
    let (mut written, mut left) = (0, 0);
    for length in [
        1_000, 1_600, 1_700, 1_750, 1_800, 1_850, 1_900, 1_950, 1_970, 2_000, 2_050, 3_000,
    ] {
        let mac = Mac::new();
        let text = sized(length);
        let bench = mac
            .bench_with(vec![ending("A", 200)], no_claude(), |home| {
                mac.put(&home.join("A"), &text);
            })
            .await;
        bench.pass(30).await;
        for line in mac.lines() {
            assert!(line.len() < 4_095, "{length}: {} bytes and the line's end", line.len());
        }
        let item: Value = serde_json::from_str(&mac.item(&bench.dir("A"))).expect("whole");
        let before: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(item["mcpOAuth"], before["mcpOAuth"]);
        match bench.posted().is_empty() {
            true => {
                left += 1;
                assert_eq!(mac.item(&bench.dir("A")), text, "{length}: untouched");
            }
            false => {
                written += 1;
                assert_eq!(
                    item["claudeAiOauth"]["refreshToken"],
                    bench.sandbox.refresh_token("A"),
                    "{length}"
                );
            }
        }
    }
    assert!(written >= 3 && left >= 3, "{written} written, {left} left");
}

#[test]
fn kc_the_pretended_tool_cuts_a_long_line_as_the_real_one_does() {
    let mac = Mac::new();
    let tool = Security::new(mac.dir.path().join("security"));
    let line = format!(
        "add-generic-password -U -a \"me\" -s \"s\" -X \"{}\"\n",
        "41".repeat(3_000)
    );
    let (_, printed) = tool.run(&["-i"], line.as_bytes(), Duration::from_secs(20)).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert!(
        printed.contains("unknown command \"41"),
        "the rest is echoed: {printed}"
    );
    let kept = fs::read_to_string(mac.dir.path().join("items/me/s")).unwrap();
    assert!(
        kept.len() > 1_900 && kept.len() < 2_100,
        "and the beginning was run: {}",
        kept.len()
    );
    assert!(
        security::line("s", "me", &[0x41; 3_000]).is_none(),
        "which is why none is sent"
    );
}

#[tokio::test(start_paused = true)]
async fn kc_a_write_that_was_killed_is_unknown_until_it_is_read_back() {
    // Killed before it acted: the pair is kept in memory and saved later.
    let mac = Mac::new();
    let bench = mac.bench(vec![ending("A", 400)], no_claude()).await;
    mac.behaves("pair-late");
    bench.pass(130).await;
    assert_eq!(bench.posted(), ["rt-A"]);
    assert_eq!(mac.login(&bench.dir("A"))["refreshToken"], "rt-A");
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::Unsaved));
    assert_eq!(bench.turn(OPUS).await.status, 200, "it is used meanwhile");
    assert_eq!(bench.tokens(MESSAGES), [bench.sandbox.access_token("A")]);
    let lines = mac.lines().len();
    bench.pass(600).await;
    assert_eq!(mac.lines().len(), lines, "nobody is asked again so soon");
    mac.behaves("");
    bench.pass(1_400).await;
    assert_eq!(
        mac.login(&bench.dir("A"))["refreshToken"],
        bench.sandbox.refresh_token("A")
    );
    assert_eq!(bench.seat("A").login, None);
    assert_eq!(bench.posted(), ["rt-A"]);

    // Killed after it acted: it is there, and that is seen.
    let mac = Mac::new();
    let bench = mac.bench(vec![ending("A", 400)], no_claude()).await;
    mac.behaves("pair-late-but-done");
    bench.pass(130).await;
    assert_eq!(bench.posted(), ["rt-A"]);
    assert_eq!(
        mac.login(&bench.dir("A"))["refreshToken"],
        bench.sandbox.refresh_token("A")
    );
    assert_eq!(bench.seat("A").login, None);
}

#[tokio::test(start_paused = true)]
async fn kc_a_pair_that_waits_is_offered_once_more_when_the_router_stops() {
    let mac = Mac::new();
    let bench = mac.bench(vec![ending("A", 400)], no_claude()).await;
    mac.behaves("pair-late");
    bench.pass(130).await;
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::Unsaved));
    mac.behaves("");
    bench.gateway.driver().finish().await;
    assert_eq!(
        mac.login(&bench.dir("A"))["refreshToken"],
        bench.sandbox.refresh_token("A")
    );
}

#[tokio::test(start_paused = true)]
async fn kc_a_store_that_says_yes_and_keeps_nothing_is_no_place_for_a_new_pair() {
    let mac = Mac::new();
    let bench = mac.bench(vec![ending("A", 400)], no_claude()).await;
    // The probe's write changes nothing that can be seen, so only the pair's does not arrive.
    mac.behaves("pair-drops-writes");
    bench.pass(130).await;
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::Unsaved));
    mac.behaves("");
    bench.pass(80).await;
    assert_eq!(
        mac.login(&bench.dir("A"))["refreshToken"],
        bench.sandbox.refresh_token("A")
    );
}
