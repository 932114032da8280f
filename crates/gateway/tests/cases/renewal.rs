//! Renewal of logins (RF), the locks (LK), sleep and network (NW), as far as one gateway shows them. What many actors
//! do to each other is the simulation's.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use gateway::credential::{CredentialError, Document, Files, Mark, Place, Store, WriteError};
use gateway::lock::WriteLock;
use gateway::profile::Profile;
use gateway::reads::Asking;
use gateway::snapshot::{LoginTrouble, SeatState};
use jiff::{SignedDuration, Timestamp};
use sandbox::{Answer, Seat};
use serde_json::{Value, json};

use crate::support::{Bench, Log, MESSAGES, OPUS, T, no_claude, seat, write_login};

const TOKEN: &str = "/v1/oauth/token";

/// A seat whose login ended a minute ago.
fn expired(name: &str) -> Seat {
    seat(name, 0.1, 0.1).expires_at_ms((T - 60) * 1_000)
}

/// A seat whose login ends in so many seconds.
fn ending(name: &str, seconds: i64) -> Seat {
    seat(name, 0.1, 0.1).expires_at_ms((T + seconds) * 1_000)
}

fn posts(bench: &Bench) -> usize {
    bench.sandbox.token_posts().len()
}

fn locks(dir: &Path) -> [PathBuf; 3] {
    let beside = format!("{}.lock", fs::canonicalize(dir).unwrap().display());
    [
        dir.join(".oauth_refresh.lock"),
        beside.into(),
        dir.join(".storage-write.lock"),
    ]
}

/// Makes a lock that was touched so many seconds before `T`.
fn foreign_lock(path: &Path, age: u64) -> u64 {
    fs::create_dir(path).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(T.unsigned_abs() - age);
    File::open(path).unwrap().set_modified(at).unwrap();
    fs::metadata(path).unwrap().ino()
}

#[tokio::test(start_paused = true)]
async fn rf_01_ten_requests_on_an_expired_login_cause_one_exchange() {
    let bench = Bench::slow_tokens(vec![expired("A")], 1_000).await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..10 {
        asking.spawn(bench.later_turn(OPUS, &format!("conversation {number}")));
    }
    while let Some(reply) = asking.join_next().await {
        assert_eq!(reply.unwrap().status, 200);
    }
    assert_eq!(posts(&bench), 1);
    assert!(bench.tokens(MESSAGES).iter().all(|token| *token != "tok-A"));
}

#[tokio::test(start_paused = true)]
async fn rf_01_waiting_requests_use_another_seat_where_there_is_one() {
    let bench = Bench::slow_tokens(vec![expired("A"), seat("B", 0.5, 0.5)], 30_000).await;
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);
    assert_eq!(bench.now() - T, 0, "nobody waited");
}

#[tokio::test(start_paused = true)]
async fn rf_02_somebody_else_was_quicker() {
    let bench = Bench::with(vec![ending("A", 400)], json!({})).await;
    let newer = seat("A", 0.1, 0.1)
        .tokens("tok-A2", "rt-2")
        .expires_at_ms((T + 30_000) * 1_000);
    write_login(&bench.dir("A"), &newer);
    bench.sandbox.script_always("tok-A2", MESSAGES, Answer::ok());
    bench.pass(130).await;
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A2"]);
    assert_eq!(posts(&bench), 0);
}

#[tokio::test(start_paused = true)]
async fn rf_03_a_dead_login_is_left_as_it_is_and_serves_again_when_it_is_new() {
    let bench = Bench::prepared(vec![expired("A"), seat("B", 0.5, 0.5)], json!({}), |sandbox| {
        sandbox.script_always("*", TOKEN, Answer::json(400, json!({"error": "invalid_grant"})));
    })
    .await;
    let file = bench.dir("A").join(".credentials.json");
    let before = fs::read(&file).unwrap();
    bench.pass(600).await;
    assert_eq!(posts(&bench), 1);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(
        bench.seat("A").state,
        SeatState::NeedsLogin {
            trouble: LoginTrouble::Rejected
        }
    );
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);

    bench.sandbox.log_in_again("A");
    let again = bench.sandbox.seats().into_iter().find(|seat| seat.name == "A").unwrap();
    write_login(&bench.dir("A"), &again);
    bench.pass(11).await;
    assert_eq!(bench.seat("A").state, SeatState::Ready);
}

#[tokio::test(start_paused = true)]
async fn rf_03_a_dead_login_is_not_tried_again_after_a_restart() {
    let bench = Bench::prepared(vec![expired("A")], json!({}), |sandbox| {
        sandbox.script_always("*", TOKEN, Answer::json(400, json!({"error": "invalid_grant"})));
    })
    .await;
    assert_eq!(posts(&bench), 1);
    let bench = bench.restarted().await;
    bench.pass(600).await;
    assert_eq!(posts(&bench), 1);
    assert_eq!(
        bench.seat("A").state,
        SeatState::NeedsLogin {
            trouble: LoginTrouble::Rejected
        }
    );
}

#[tokio::test(start_paused = true)]
async fn rf_04_temporary_trouble_is_not_the_end_of_a_login() {
    for trouble in [
        Answer::error(503, "api_error", "later"),
        Answer::error(429, "rate_limit_error", "slow down"),
        Answer::error(500, "api_error", "oops"),
    ] {
        let bench = Bench::prepared(vec![ending("A", 900)], json!({}), |sandbox| {
            sandbox.script("*", TOKEN, trouble);
        })
        .await;
        bench.pass(605).await;
        assert_eq!(posts(&bench), 1);
        assert_eq!(
            bench.turn(OPUS).await.status,
            200,
            "the old token serves while it lives"
        );
        assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
        assert_eq!(bench.seat("A").login, Some(LoginTrouble::Retrying));
        bench.pass(200).await;
        assert_eq!(posts(&bench), 1, "not within the back-off");
        bench.pass(360).await;
        assert_eq!(posts(&bench), 2);
        assert_eq!(bench.seat("A").state, SeatState::Ready);
        assert_eq!(bench.seat("A").login, None);
    }
}

#[tokio::test(start_paused = true)]
async fn rf_05_a_revoked_token_is_renewed_and_the_request_retried() {
    let bench = Bench::new("A").await;
    bench.sandbox.revoke_access("A");
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(posts(&bench), 1);
    let tokens = bench.tokens(MESSAGES);
    assert_eq!(
        (tokens.len(), tokens[0].as_str(), &tokens[1]),
        (2, "tok-A", &bench.sandbox.access_token("A"))
    );
}

#[tokio::test(start_paused = true)]
async fn rf_06_seats_that_refuse_for_ever_cost_bounded_work() {
    let bench = Bench::prepared(vec![seat("A", 0.1, 0.1), seat("B", 0.2, 0.2)], json!({}), |sandbox| {
        sandbox.script_always("*", MESSAGES, Answer::error(401, "authentication_error", "invalid"));
        sandbox.script_always("*", TOKEN, Answer::json(400, json!({"error": "invalid_grant"})));
    })
    .await;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert!(reply.message().contains("`A` and `B`"), "{}", reply.message());
    assert!(bench.tokens(MESSAGES).len() <= 4);
}

#[tokio::test(start_paused = true)]
async fn rf_07_hd_12_a_revocation_told_as_a_403_is_understood_in_every_coding() {
    for encoding in [
        None,
        Some(sandbox::Encoding::Gzip),
        Some(sandbox::Encoding::Brotli),
        Some(sandbox::Encoding::Zstd),
    ] {
        let bench = Bench::new("AB").await;
        let revoked = Answer::error(
            403,
            "permission_error",
            "OAuth token has been revoked. Please obtain a new token.",
        );
        let revoked = encoding.map_or(revoked.clone(), |encoding| revoked.encoded(encoding));
        bench
            .sandbox
            .script_always("*", TOKEN, Answer::json(400, json!({"error": "invalid_grant"})));
        bench.sandbox.script_always("tok-A", MESSAGES, revoked);
        assert_eq!(bench.turn(OPUS).await.status, 200);
        assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
        bench.pass(1).await;
        assert!(
            matches!(bench.seat("A").state, SeatState::NeedsLogin { .. }),
            "{encoding:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn rf_08_the_new_pair_is_in_the_file_before_it_is_used_and_nothing_else_changed() {
    let bench = Bench::with(vec![ending("A", 301)], json!({})).await;
    let file = bench.dir("A").join(".credentials.json");
    let mut document: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    document["mcpOAuth"] = json!({"server": {"token": "x"}});
    document["claudeAiOauth"]["rateLimitTier"] = json!("default_claude_max_5x");
    document["later"] = json!([1, 2.5, null]);
    fs::write(&file, document.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    bench.pass(12).await;
    assert_eq!(posts(&bench), 1);
    let mut saved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(saved["claudeAiOauth"]["refreshToken"], bench.sandbox.refresh_token("A"));
    assert_eq!(saved["claudeAiOauth"]["accessToken"], bench.sandbox.access_token("A"));
    for key in ["accessToken", "refreshToken", "expiresAt"] {
        saved["claudeAiOauth"][key] = document["claudeAiOauth"][key].clone();
    }
    assert_eq!(saved, document);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(locks(&bench.dir("A")).iter().all(|lock| !lock.exists()));
}

/// Login files on a disk that is full when told.
struct FullDisk {
    full: Arc<AtomicBool>,
    /// Writes that still succeed once it is full: the probe, say.
    grace: std::sync::atomic::AtomicUsize,
}

impl Store for FullDisk {
    fn mark(&self, profile: &Profile, now: Timestamp) -> Mark {
        Files.mark(profile, now)
    }

    fn read(&self, profile: &Profile, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        Files.read(profile, asking)
    }

    fn read_at(&self, profile: &Profile, place: &Place, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        Files.read_at(profile, place, asking)
    }

    fn write(
        &self,
        profile: &Profile,
        document: &Document,
        lock: &WriteLock<'_>,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let spared = || {
            self.grace
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
        };
        match self.full.load(Ordering::Relaxed) && !spared() {
            true => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            false => Files.write(profile, document, lock, now),
        }
    }
}

fn full_disk(grace: usize) -> (Arc<AtomicBool>, Arc<FullDisk>) {
    let full = Arc::new(AtomicBool::new(true));
    let disk = FullDisk {
        full: Arc::clone(&full),
        grace: grace.into(),
    };
    (full, Arc::new(disk))
}

#[tokio::test(start_paused = true)]
async fn rf_09_what_could_not_be_saved_is_not_spent() {
    let (full, disk) = full_disk(0);
    let bench = Bench::on(vec![ending("A", 280)], json!({}), disk).await;
    bench.pass(60).await;
    assert_eq!(posts(&bench), 0);
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::CannotSave));
    assert_eq!(
        bench.turn(OPUS).await.status,
        200,
        "the old token serves while it lives"
    );
    full.store(false, Ordering::Relaxed);
    bench.pass(70).await;
    assert_eq!(posts(&bench), 1);
    assert_eq!(bench.seat("A").login, None);
}

#[tokio::test(start_paused = true)]
async fn rf_13_a_pair_that_cannot_be_saved_is_used_from_memory_and_saved_later() {
    let (full, disk) = full_disk(1); // the probe still fits
    let bench = Bench::on(vec![expired("A")], json!({}), disk).await;
    bench.pass(5).await;
    assert_eq!(posts(&bench), 1);
    assert_eq!(bench.stored("A")["refreshToken"], "rt-A");
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), [bench.sandbox.access_token("A")]);
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::Unsaved));
    bench.pass(20).await;
    full.store(false, Ordering::Relaxed);
    bench.pass(11).await;
    assert_eq!(bench.stored("A")["refreshToken"], bench.sandbox.refresh_token("A"));
    assert_eq!(bench.seat("A").login, None);
    assert_eq!(posts(&bench), 1, "the old one was never sent again");
}

#[tokio::test(start_paused = true)]
async fn rf_10_nw_after_a_sleep_no_request_goes_out_with_a_token_that_expired_meanwhile() {
    let bench = Bench::with(vec![ending("A", 3_600)], json!({})).await;
    bench.clock.skew(SignedDuration::from_hours(9));
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(posts(&bench), 1);
    assert_eq!(bench.tokens(MESSAGES), [bench.sandbox.access_token("A")]);
}

#[tokio::test(start_paused = true)]
async fn rf_10_a_lid_that_closes_on_the_answer_does_not_lengthen_the_new_tokens_life() {
    let pair = json!({
        "access_token": "sk-ant-oat01-sandbox-A-1",
        "refresh_token": "sk-ant-ort01-sandbox-A-1",
        "expires_in": 28_800,
    });
    let bench = Bench::prepared(vec![ending("A", 250)], json!({}), |sandbox| {
        sandbox.script("*", TOKEN, Answer::rotate_then(Answer::json(200, pair).after_ms(2_000)));
    })
    .await;
    assert_eq!(posts(&bench), 1, "the pair is made");
    bench.clock.skew(SignedDuration::from_secs(3_000));
    bench.pass(5).await;
    let login = bench.stored("A");
    assert_eq!(login["accessToken"], bench.sandbox.access_token("A"));
    let ends = login["expiresAt"].as_i64().unwrap();
    assert!(ends <= (T + 28_801) * 1_000, "{}", ends - T * 1_000);
}

#[tokio::test(start_paused = true)]
async fn rf_11_the_token_endpoint_is_asked_as_it_wants_and_its_429_is_its_own() {
    let bench = Bench::prepared(vec![ending("A", 250)], json!({}), |sandbox| {
        sandbox.script(
            "*",
            TOKEN,
            Answer::error(429, "rate_limit_error", "slow down").header("retry-after", "40"),
        );
    })
    .await;
    bench.pass(1).await;
    let asked = bench.sandbox.token_posts();
    assert_eq!(asked.len(), 1);
    assert_eq!(bench.seat("A").state, SeatState::Ready, "never the seat's limit");
    bench.pass(300).await;
    let posts = bench.sandbox.token_posts();
    assert!(
        matches!(posts.last().unwrap().verdict, sandbox::Verdict::Rotated),
        "JSON was taken"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_never_asked_for_again_not_even_after_a_restart() {
    for lost in [
        Answer::rotate_then_reset(),
        Answer::rotate_then(Answer::error(502, "api_error", "bad gateway")),
        Answer::rotate_then(Answer::text(200, "text/html", "<html>")),
    ] {
        let bench = Bench::prepared(vec![ending("A", 290)], no_claude(), |sandbox| {
            sandbox.script("*", TOKEN, lost);
        })
        .await;
        bench.pass(1).await;
        assert_eq!(bench.seat("A").login, Some(LoginTrouble::Uncertain));
        bench.pass(900).await;
        assert_eq!(posts(&bench), 1);
        assert_eq!(
            bench.seat("A").state,
            SeatState::NeedsLogin {
                trouble: LoginTrouble::Uncertain
            }
        );
        let bench = bench.restarted().await;
        bench.pass(900).await;
        assert_eq!(posts(&bench), 1);
        assert_eq!(
            bench.seat("A").state,
            SeatState::NeedsLogin {
                trouble: LoginTrouble::Uncertain
            }
        );
        let words = bench.seat("A").state.words(|at| at.to_string());
        assert!(words.contains("log in again with `claude`"), "{words}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_a_renewal_thirty_five_seconds_and_no_longer() {
    let bench = Bench::prepared(vec![expired("A")], json!({}), |sandbox| {
        sandbox.script_always("*", TOKEN, Answer::never());
    })
    .await;
    let began = bench.now();
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("x-should-retry"), None);
    assert_eq!(reply.header("x-claude-proxy-router-error"), Some("renewing"));
    assert_eq!(bench.now() - began, 35);
}

#[tokio::test(start_paused = true)]
async fn nobody_renews_where_the_settings_say_so() {
    let bench = Bench::with(vec![expired("A")], json!({"tokenRefresh": false})).await;
    bench.pass(60).await;
    assert_eq!(posts(&bench), 0);
    let reply = bench.turn(OPUS).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("x-claude-proxy-router-error")),
        (503, Some("need_login"))
    );
}

#[tokio::test(start_paused = true)]
async fn lk_01_with_either_lock_held_this_round_is_skipped() {
    for which in 0..2 {
        let bench = Bench::with(vec![ending("A", 400)], json!({})).await;
        let lock = &locks(&bench.dir("A"))[which];
        let inode = foreign_lock(lock, 0);
        // Its holder lives: it touches the lock.
        for _ in 0..12 {
            bench.pass(10).await;
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(bench.now().unsigned_abs());
            File::open(lock).unwrap().set_modified(at).unwrap();
        }
        assert_eq!(posts(&bench), 0);
        assert_eq!(fs::metadata(lock).unwrap().ino(), inode);
        fs::remove_dir(lock).unwrap();
        bench.pass(25).await;
        assert_eq!(posts(&bench), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn lk_02_a_lock_is_left_over_after_sixty_seconds() {
    for (age, want) in [(20, 0), (58, 0), (62, 1)] {
        let bench = Bench::with(vec![ending("A", 400)], json!({})).await;
        let lock = locks(&bench.dir("A"))[0].clone();
        bench.pass(98).await;
        foreign_lock(&lock, 0);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(bench.now().unsigned_abs() - age);
        File::open(&lock).unwrap().set_modified(at).unwrap();
        bench.pass(3).await;
        assert_eq!(posts(&bench), want, "age {age}");
    }
}

#[tokio::test(start_paused = true)]
async fn lk_03_after_a_kill_the_next_start_recovers_by_itself() {
    let bench = Bench::slow_tokens(vec![expired("A")], 30_000).await;
    bench.pass(3).await;
    let locks = locks(&bench.dir("A"));
    assert!(locks[0].exists() && locks[1].exists());
    let bench = bench.killed().await;
    assert!(
        locks[0].exists() && locks[1].exists(),
        "a killed process leaves its locks"
    );
    bench.pass(100).await;
    // Its token was on the way: whether it was spent is not known, and it is not sent again.
    assert_eq!(posts(&bench), 0, "the exchange never arrived");
    assert!(
        !locks[0].exists() && !locks[1].exists(),
        "what was left over is cleared away"
    );
    assert_eq!(
        bench.seat("A").state,
        SeatState::NeedsLogin {
            trouble: LoginTrouble::Uncertain
        }
    );
}

#[tokio::test(start_paused = true)]
async fn lk_04_a_lock_that_another_took_from_us_stays_and_nothing_is_overwritten() {
    let bench = Bench::slow_tokens(vec![expired("A")], 20_000).await;
    bench.pass(3).await;
    let lock = locks(&bench.dir("A"))[0].clone();
    fs::remove_dir(&lock).unwrap();
    fs::create_dir(bench.dir("A").join("spacer")).unwrap();
    // Of another moment than ours: its inode may be the one that ours had.
    let theirs = foreign_lock(&lock, 1);
    let other = seat("A", 0.1, 0.1)
        .tokens("tok-other", "rt-other")
        .expires_at_ms((T + 30_000) * 1_000);
    write_login(&bench.dir("A"), &other);
    bench.pass(40).await;
    assert_eq!(fs::metadata(&lock).unwrap().ino(), theirs);
    assert_eq!(bench.stored("A")["refreshToken"], "rt-other");
}

#[tokio::test(start_paused = true)]
async fn the_twentieth_try_for_the_storage_lock_still_saves_a_new_pair() {
    let bench = Bench::slow_tokens(vec![expired("A")], 20_000).await;
    bench.pass(3).await;
    let storage = locks(&bench.dir("A"))[2].clone();
    fs::create_dir(&storage).unwrap();
    // Its holder lives when the pair arrives.
    let touched = SystemTime::UNIX_EPOCH + Duration::from_secs(T.unsigned_abs() + 20);
    File::open(&storage).unwrap().set_modified(touched).unwrap();
    while posts(&bench) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // One try at once, eighteen more by now, and one to come.
    tokio::time::sleep(Duration::from_millis(1_850)).await;
    assert_eq!(bench.stored("A")["refreshToken"], "rt-A");
    fs::remove_dir(&storage).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.stored("A")["refreshToken"], bench.sandbox.refresh_token("A"));
    assert_eq!(bench.seat("A").login, None, "it never was in memory alone");
}

#[tokio::test(start_paused = true)]
async fn lk_05_without_a_lock_nothing_is_renewed_and_the_reason_is_told_seldom() {
    let (log, _guard) = Log::of_this_test();
    let name = "d".repeat(253); // with `.lock` behind it, too long for a name
    let bench = Bench::with(vec![ending(&name, 400)], json!({})).await;
    bench.pass(300).await;
    assert_eq!(posts(&bench), 0);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.seat(&name).login, Some(LoginTrouble::CannotLock));
    let lines = log
        .text()
        .lines()
        .filter(|line| line.contains("cannot be made"))
        .count();
    assert!((1..=6).contains(&lines), "{lines} lines in five minutes");
}

#[tokio::test(start_paused = true)]
async fn after_a_wake_no_lock_counts_as_left_over_for_a_minute() {
    let bench = Bench::with(vec![ending("A", 7_200)], json!({})).await;
    foreign_lock(&locks(&bench.dir("A"))[0], 0);
    bench.clock.skew(SignedDuration::from_hours(3));
    bench.pass(50).await;
    assert_eq!(posts(&bench), 0, "its holder slept too");
    bench.pass(40).await;
    assert_eq!(posts(&bench), 1);
}

/// Login files on a disk that is full when told, with a fault of ours in the way for so many readings.
struct Faulty {
    disk: Arc<FullDisk>,
    faults: std::sync::atomic::AtomicUsize,
}

impl Store for Faulty {
    fn mark(&self, profile: &Profile, now: Timestamp) -> Mark {
        self.disk.mark(profile, now)
    }

    fn read(&self, profile: &Profile, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        self.disk.read(profile, asking)
    }

    fn read_at(&self, profile: &Profile, place: &Place, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        let left = self
            .faults
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "a fault that the test made");
        self.disk.read_at(profile, place, asking)
    }

    fn write(
        &self,
        profile: &Profile,
        document: &Document,
        lock: &WriteLock<'_>,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        self.disk.write(profile, document, lock, now)
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_stumbles_over_a_fault_is_tried_again() {
    let (full, disk) = full_disk(0);
    full.store(false, Ordering::Relaxed);
    let faulty = Arc::new(Faulty { disk, faults: 1.into() });
    let bench = Bench::on(vec![expired("A")], json!({}), faulty).await;
    assert_eq!(posts(&bench), 0);
    bench.pass(60).await;
    assert_eq!(posts(&bench), 1);
    assert_eq!(bench.seat("A").state, SeatState::Ready);
    assert!(!locks(&bench.dir("A")).iter().any(|lock| lock.exists()));
}

#[tokio::test(start_paused = true)]
async fn a_fault_in_the_upkeep_is_told_once_and_does_not_end_it() {
    let (log, _guard) = Log::of_this_test();
    let (full, disk) = full_disk(1);
    let faulty = Arc::new(Faulty { disk, faults: 0.into() });
    let bench = Bench::on(vec![expired("A")], json!({}), faulty.clone()).await;
    assert_eq!(bench.seat("A").login, Some(LoginTrouble::Unsaved));
    faulty.faults.store(3, Ordering::Relaxed);
    full.store(false, Ordering::Relaxed);
    bench.pass(60).await;
    assert_eq!(bench.seat("A").login, None);
    assert_eq!(bench.stored("A")["refreshToken"], bench.sandbox.refresh_token("A"));
    assert_eq!(log.text().matches("begins anew").count(), 1, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn rf_09_the_probe_writes_the_very_bytes_that_it_read() {
    let (_full, disk) = full_disk(1); // the probe, and nothing after it
    let before = "{ \"z\": 1.50,\n  \"claudeAiOauth\": {\"accessToken\": \"tok-A\", \"refreshToken\": \"rt-A\", \"expiresAt\": 1789999940000}, \"a\": \"\u{e9}\" }\n";
    let file = |home: &Path| home.join("A/.credentials.json");
    let bench = Bench::laid_out(vec![expired("A")], json!({}), disk, |home| {
        fs::write(file(home), before).unwrap();
    })
    .await;
    bench.pass(5).await;
    assert_eq!(posts(&bench), 1, "it was probed");
    assert_eq!(fs::read_to_string(file(bench.home.path())).unwrap(), before);
}
