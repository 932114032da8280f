//! Logins that do not work, before anybody renews them (RF, the parts that need no renewal).

use gateway::snapshot::SeatState;
use sandbox::{Answer, Seat};
use serde_json::json;

use crate::support::{Bench, Log, MESSAGES, OPUS, T, seat, write_login};

/// A and B, whose logins nobody renews.
async fn bench() -> Bench {
    with(vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)]).await
}

async fn with(seats: Vec<Seat>) -> Bench {
    Bench::with(seats, json!({"tokenRefresh": false})).await
}

fn refused() -> Answer {
    Answer::error(401, "authentication_error", "invalid bearer token")
}

/// A's login with its next token, which is good.
fn renewed(bench: &Bench) {
    bench.sandbox.script_always("tok-A2", MESSAGES, Answer::ok());
    write_login(&bench.dir("A"), &seat("A", 0.1, 0.1).tokens("tok-A2", "rt-A2"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_login_serves_nothing_and_says_so() {
    let short = |name: &str, used| seat(name, used, used).expires_at_ms((T + 60) * 1_000);
    let bench = with(vec![short("A", 0.1), seat("B", 0.3, 0.3)]).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
    bench.pass(60).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    assert_eq!(bench.seat("A").state, SeatState::Expired { since: T + 60 });
    let words = bench.seat("A").state.words(|_| String::new());
    assert!(words.contains("expired") && words.contains("`claude`"), "{words}");

    let bench = with(vec![short("A", 0.1), short("B", 0.3)]).await;
    bench.pass(60).await;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert!(reply.message().contains("`A` and `B`"), "{}", reply.message());
    assert_eq!(bench.tokens(MESSAGES).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_clock_decides_about_expiry_even_after_a_sleep() {
    let bench = with(vec![
        seat("A", 0.1, 0.1).expires_at_ms((T + 60) * 1_000),
        seat("B", 0.3, 0.3),
    ])
    .await;
    bench.clock.skew(jiff::SignedDuration::from_secs(60));
    assert_eq!(bench.next_seat(OPUS).await, "tok-B", "no timer ran in between");
}

#[tokio::test(start_paused = true)]
async fn rf_05_a_401_looks_for_another_token_and_tries_the_seat_once_more() {
    let bench = bench().await;
    bench.sandbox.script_always("tok-A", MESSAGES, refused());
    renewed(&bench);
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-A2"]);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A2");
}

#[tokio::test(start_paused = true)]
async fn rf_05_a_401_without_another_token_moves_on_and_the_token_is_not_tried_again() {
    let bench = bench().await;
    bench.sandbox.script_always("tok-A", MESSAGES, refused());
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    assert_eq!(bench.seat("A").state, SeatState::Refused);

    renewed(&bench);
    bench.pass(11).await;
    assert_eq!(bench.seat("A").state, SeatState::Ready);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A2");
}

#[tokio::test(start_paused = true)]
async fn rf_05_a_second_401_from_the_new_token_moves_on_too() {
    let bench = bench().await;
    renewed(&bench);
    for token in ["tok-A", "tok-A2"] {
        bench.sandbox.script_always(token, MESSAGES, refused());
    }
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-A2", "tok-B"]);
}

#[tokio::test(start_paused = true)]
async fn rf_06_when_every_seat_answers_401_the_client_is_told_which_logins_are_needed() {
    let bench = bench().await;
    bench.sandbox.script_always("*", MESSAGES, refused());
    for attempt in ["the one that finds out", "the next"] {
        let reply = bench.turn(OPUS).await;
        assert_eq!(reply.status, 503, "{attempt}");
        assert_eq!(reply.header("x-should-retry"), Some("false"), "{attempt}");
        assert_eq!(reply.json()["type"], "error");
        assert!(reply.message().contains("`A` and `B`"), "{}", reply.message());
    }
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_seat_the_client_is_told_to_log_in_and_not_to_retry() {
    let bench = with(vec![]).await;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(reply.header("x-claude-proxy-router-error"), Some("no_seat"));

    let off = |name: &str| json!({"seat": name, "enabled": false});
    let settings = json!({"accounts": [off("A"), off("B")]});
    let bench = Bench::with(vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)], settings).await;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(reply.header("x-claude-proxy-router-error"), Some("paused"));
    assert_eq!(bench.tokens(MESSAGES).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn rf_06_two_dead_logins_of_one_seat_are_not_tried_in_turns_for_ever() {
    let twin = |name: &str| {
        seat(name, 0.1, 0.1)
            .account("acc-1", "me@example.test")
            .organization("org-1", "Team")
    };
    let bench = with(vec![twin("P1"), twin("P2")]).await;
    bench.sandbox.script_always("*", MESSAGES, refused());
    for attempt in ["the one that finds out", "the next"] {
        let reply = bench.turn(OPUS).await;
        assert_eq!(reply.status, 503, "{attempt}");
        assert_eq!(
            reply.header("x-should-retry"),
            Some("false"),
            "{attempt}: {}",
            reply.message()
        );
        assert!(reply.message().contains("`Team`"), "{}", reply.message());
    }
    assert_eq!(
        bench.tokens(MESSAGES).len(),
        2,
        "each login once: {:?}",
        bench.tokens(MESSAGES)
    );
}

#[tokio::test(start_paused = true)]
async fn no_device_reads_an_address_in_a_seats_name() {
    let bench = with(vec![]).await;
    bench.sandbox.add_seat(seat("A", 0.1, 0.1));
    for name in [".claude-me@example.test", ".claude-me@example.org"] {
        let dir = bench.home.path().join(name);
        write_login(&dir, &seat("A", 0.1, 0.1));
        std::fs::write(dir.join(".claude.json"), "{}").unwrap();
    }
    bench.pass(11).await;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 200);
    let served_by = reply.header("x-claude-proxy-router").unwrap();
    assert!(
        served_by.starts_with("login-") && !served_by.contains('@'),
        "{served_by}"
    );
    let labels: Vec<_> = bench.status().seats.into_iter().map(|seat| seat.label).collect();
    assert!(labels.len() == 2 && labels[0] != labels[1], "{labels:?}");
    assert!(labels.iter().all(|label| !label.contains("example")), "{labels:?}");
}

#[tokio::test(start_paused = true)]
async fn wishes_that_name_two_seats_are_told_of_once() {
    let (log, _guard) = Log::of_this_test();
    let of_me = |name: &str| seat(name, 0.1, 0.1).account("acc-1", "me@example.test");
    let settings = json!({"accounts": [{"seat": "A", "name": "one"}, {"seat": "me@example.test", "limitPct": 50}]});
    let bench = Bench::with(vec![of_me("A"), of_me("B")], settings).await;
    bench.pass(60).await;
    let told: Vec<_> = log
        .text()
        .lines()
        .filter(|line| line.contains("several seats"))
        .map(str::to_owned)
        .collect();
    assert!(matches!(&told[..], [one] if one.contains("accounts[1]")), "{told:?}");
    assert!(!told[0].contains('@'), "{told:?}");
}
