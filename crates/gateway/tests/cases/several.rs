//! Several logins of one seat, and one login in several directories (RT-06).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gateway::credential::Files;
use gateway::snapshot::{LoginTrouble, SeatState};
use sandbox::{Answer, Seat};
use serde_json::json;

use crate::support::{Bench, MESSAGES, OPUS, T, no_claude, seat, write_login};

/// A login of the one seat that these tests are about.
fn twin(name: &str, token: &str, end: i64) -> Seat {
    seat(name, 0.1, 0.1)
        .account("acc-1", "me@example.test")
        .organization("org-1", "Team")
        .tokens(token, &format!("rt-{token}"))
        .expires_at_ms(end * 1_000)
}

#[tokio::test(start_paused = true)]
async fn rt_06_of_several_logins_the_routers_own_is_used_and_the_others_stand_by() {
    let claudes = twin("P", "tok-claudes", T + 20_000);
    let own = twin("own", "tok-own", T + 10_000);
    let bench = Bench::with(vec![claudes], json!({})).await;
    let dir = bench.home.path().join(".config/claude-proxy-router/logins/calm");
    bench.sandbox.script_always("tok-own", MESSAGES, Answer::ok());
    write_login(&dir, &own);
    bench.pass(11).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-own");
    assert_eq!(bench.status().seats.len(), 1);
    assert_eq!(bench.status().seats[0].dirs.len(), 2);
    bench
        .sandbox
        .script_always("tok-own", MESSAGES, Answer::error(401, "authentication_error", "no"));
    assert_eq!(bench.new_turn(OPUS).await.status, 200);
    assert_eq!(
        bench.tokens(MESSAGES)[1..],
        ["tok-own", "tok-claudes"],
        "the next stands by"
    );
}

#[tokio::test(start_paused = true)]
async fn rt_06_an_own_login_that_ended_is_renewed_before_one_that_is_shared() {
    // The sandbox knows the live one alone; the other is dead.
    for own_lives in [true, false] {
        let (own, shared) = (twin("P", "tok-own", T - 4_000), twin("P", "tok-shared", T + 1_000));
        let lives = if own_lives { &own } else { &shared };
        let bench = Bench::laid_out(vec![lives.clone()], no_claude(), Arc::new(Files), |home| {
            write_login(&home.join("P"), &shared);
            write_login(&home.join(".config/claude-proxy-router/logins/calm"), &own);
        })
        .await;
        bench.sandbox.script_always("tok-shared", MESSAGES, Answer::ok());
        bench.pass(600).await;
        assert_eq!(bench.next_seat(OPUS).await, "tok-shared", "it works, so it serves");
        assert_eq!(bench.posted(), [""; 0]);
        bench.pass(150).await;
        let want: &[&str] = match own_lives {
            true => &["rt-tok-own"],
            false => &["rt-tok-own", "rt-tok-shared"],
        };
        assert_eq!(bench.posted(), want);
        assert_eq!(bench.next_seat(OPUS).await, bench.sandbox.access_token("P"));
        assert_eq!(bench.seat("Team").login, None);
    }
}

#[tokio::test(start_paused = true)]
async fn rt_06_a_login_that_lies_in_several_directories_is_renewed_for_all_of_them() {
    let login = twin("P", "tok-first", T + 200).token_lifetime_s(1_800);
    let dirs = [".claude-before", "P", ".claude-work"];
    for of_a_known_account in [true, false] {
        let bench = Bench::laid_out(vec![login.clone()], no_claude(), Arc::new(Files), |home| {
            for dir in dirs {
                match of_a_known_account || dir == "P" {
                    true => write_login(&home.join(dir), &login),
                    false => unproven(&home.join(dir), &login),
                }
            }
        })
        .await;
        for _ in 0..3 {
            bench.pass(1_700).await;
            for dir in dirs {
                assert_eq!(
                    bench.stored(dir)["refreshToken"],
                    bench.sandbox.refresh_token("P"),
                    "{dir}"
                );
            }
        }
        let posted = bench.posted();
        let once: BTreeSet<&String> = posted.iter().collect();
        assert!(posted.len() >= 3 && once.len() == posted.len(), "{posted:?}");
        assert!(bench.status().seats.iter().all(|seat| seat.state == SeatState::Ready));
    }
}

#[tokio::test(start_paused = true)]
async fn rt_06_a_login_is_not_renewed_while_somebody_renews_a_copy_of_it() {
    let login = twin("P", "tok-first", T + 200);
    let bench = Bench::laid_out(vec![login.clone()], no_claude(), Arc::new(Files), |home| {
        for dir in ["P", ".claude-work"] {
            write_login(&home.join(dir), &login);
        }
        fs::create_dir(home.join("P/.oauth_refresh.lock")).unwrap();
    })
    .await;
    bench.pass(30).await;
    assert_eq!(bench.posted(), [""; 0]);
    fs::remove_dir(bench.home.path().join("P/.oauth_refresh.lock")).unwrap();
    bench.pass(60).await;
    assert_eq!(bench.posted(), ["rt-tok-first"]);
}

#[tokio::test(start_paused = true)]
async fn rt_06_a_copy_of_a_login_that_was_renewed_elsewhere_is_never_sent() {
    let login = twin("P", "tok-first", T + 200);
    let bench = Bench::laid_out(vec![login.clone()], no_claude(), Arc::new(Files), |home| {
        write_login(&home.join("P"), &login);
    })
    .await;
    bench.pass(60).await;
    assert_eq!(bench.posted(), ["rt-tok-first"]);
    // Somebody lays a backup beside it.
    write_login(&bench.home.path().join(".claude-copy"), &login);
    // The living one is refused, although the copy has long ended: it is the living one that is renewed.
    bench.pass(600).await;
    bench.sandbox.revoke_access("P");
    assert_eq!(bench.turn(OPUS).await.status, 200);
    bench.pass(60).await;
    let posted = bench.posted();
    assert_eq!(posted.len(), 2, "{posted:?}");
    assert_ne!(posted[1], "rt-tok-first", "{posted:?}");
    assert_eq!(bench.seat("Team").state, SeatState::Ready);
}

#[tokio::test(start_paused = true)]
async fn rt_06_the_verdict_on_one_dead_login_is_not_that_on_the_next() {
    let (dead, living) = (twin("P", "tok-dead", T - 100), twin("P", "tok-living", T - 200));
    let bench = Bench::laid_out(vec![living.clone()], no_claude(), Arc::new(Files), |home| {
        write_login(&home.join("P"), &dead);
        write_login(&home.join(".claude-living"), &living);
    })
    .await;
    bench.pass(30).await;
    assert_eq!(bench.posted(), ["rt-tok-dead", "rt-tok-living"]);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.seat("Team").state, SeatState::Ready);
}

#[tokio::test(start_paused = true)]
async fn rt_06_a_dead_login_does_not_hide_a_living_one_of_its_seat() {
    // The dead one lasts longer.
    let (dead, living) = (twin("P", "tok-dead", T + 250), twin("Q", "tok-living", T + 200));
    let bench = Bench::prepared(vec![dead], json!({}), |sandbox| {
        let token = "/v1/oauth/token";
        sandbox.script("*", token, Answer::json(400, json!({"error": "invalid_grant"})));
        sandbox.script_always("*", token, Answer::error(503, "api_error", "later"));
    })
    .await;
    assert_eq!(bench.posted(), ["rt-tok-dead"]);
    bench.sandbox.script_always("tok-living", MESSAGES, Answer::ok());
    write_login(&bench.home.path().join(".claude-living"), &living);
    bench.pass(11).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-living");
    bench.pass(60).await;
    let posted = bench.posted();
    assert_eq!(posted[1], "rt-tok-living", "{posted:?}");
    assert!(!posted[1..].contains(&"rt-tok-dead".to_owned()), "{posted:?}");
}

/// A copy as it comes of `cp -r ~/.claude ~/.claude-work`: the file that says whose it is lies elsewhere.
fn unproven(dir: &Path, login: &Seat) {
    write_login(dir, login);
    fs::remove_file(dir.join(".claude.json")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn rt_06_a_login_of_which_nothing_says_whose_it_is_is_not_renewed_beside_others() {
    // The sandbox has long exchanged what the backup holds: sent again, it would end the living one.
    let (living, old) = (twin("P", "tok-living", T + 20_000), twin("P", "tok-old", T - 90_000));
    let bench = Bench::laid_out(vec![living.clone()], no_claude(), Arc::new(Files), |home| {
        write_login(&home.join("P"), &living);
        unproven(&home.join(".claude-backup"), &old);
    })
    .await;
    bench.pass(3_600).await;
    assert_eq!(bench.posted(), [""; 0]);
    assert_eq!(bench.seat("backup").login, Some(LoginTrouble::Unproven));
    assert_eq!(bench.turn(OPUS).await.status, 200);
    // Once Claude Code has said whose it is, it counts as what it is.
    write_login(&bench.dir(".claude-backup"), &old);
    bench.pass(30).await;
    assert_eq!(bench.status().seats.len(), 1);
    assert_eq!(bench.posted(), [""; 0]);

    // With nothing beside it there is nothing to lose.
    let alone = twin("P", "tok-alone", T - 60);
    let bench = Bench::laid_out(vec![alone.clone()], no_claude(), Arc::new(Files), |home| {
        unproven(&home.join("P"), &alone);
    })
    .await;
    bench.pass(30).await;
    assert_eq!(bench.posted(), ["rt-tok-alone"]);
}

/// A router that has Claude Code renew the login that lies in `P` and in `.claude-backup`. It finds `after` there then.
async fn handed_over(place: &Path, after: &Seat, lay: impl FnOnce(&Path)) -> Bench {
    let login = twin("P", "tok-first", T + 250);
    let (claude, renewed) = (place.join("claude"), place.join("renewed"));
    write_login(&renewed, after);
    let script = format!(
        "#!/bin/sh\ncp '{0}/.credentials.json' '{0}/.claude.json' \"$CLAUDE_CONFIG_DIR/\"\necho >'{1}'\n",
        renewed.display(),
        place.join("asked").display()
    );
    fs::write(&claude, script).unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = json!({"claudePath": claude, "tokenRefresh": "delegate"});
    Bench::laid_out(vec![login.clone()], settings, Arc::new(Files), |home| {
        for dir in ["P", ".claude-backup"] {
            write_login(&home.join(dir), &login);
        }
        lay(home);
    })
    .await
}

/// Waits, in real time: a paused clock does not wait for another program.
async fn eventually(is: impl Fn() -> bool) -> bool {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok()
}

#[tokio::test]
async fn rt_06_what_claude_code_renews_for_us_goes_to_the_copies_too() {
    let place = tempfile::tempdir().unwrap();
    let second = twin("P", "tok-second", T + 30_000);
    // Somebody is at work in both of them: it is laid there once their locks are free.
    let locks = |home: &Path| ["P", ".claude-backup"].map(|dir| home.join(dir).join(".oauth_refresh.lock"));
    let lay = |home: &Path| locks(home).iter().for_each(|lock| fs::create_dir(lock).unwrap());
    let bench = handed_over(place.path(), &second, lay).await;
    let holds = |dir: &str| bench.stored(dir)["refreshToken"] == "rt-tok-second";
    assert!(eventually(|| place.path().join("asked").exists()).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    locks(bench.home.path())
        .iter()
        .for_each(|lock| fs::remove_dir(lock).unwrap());
    let everywhere = eventually(|| ["P", ".claude-backup"].into_iter().all(holds)).await;
    assert!(everywhere, "{} {}", bench.stored("P"), bench.stored(".claude-backup"));
    assert_eq!(bench.posted(), [""; 0]);
}

#[tokio::test]
async fn rt_06_a_login_of_another_account_is_not_laid_into_the_copies() {
    let place = tempfile::tempdir().unwrap();
    // Somebody logs in as another while Claude Code is asked.
    let other = twin("P", "tok-other", T + 30_000)
        .account("acc-2", "you@example.test")
        .organization("org-2", "Others");
    let bench = handed_over(place.path(), &other, |_| ()).await;
    assert!(eventually(|| place.path().join("asked").exists()).await);
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let stored = |dir: &str| bench.stored(dir)["refreshToken"].clone();
    let both = ["P", ".claude-backup"].map(stored);
    assert!(both.contains(&"rt-tok-first".into()), "{both:?}");
}
