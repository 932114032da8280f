//! All seats exhausted (AX).

use sandbox::{Allowance, Answer};
use serde_json::json;

use crate::support::{Bench, FABLE, MESSAGES, OPUS, Reply, SONNET, T, messages, seat, stream_body, with_fable};

/// Lets the seats of `bench` be rejected until so many seconds after the beginning, each by name.
fn used_up(bench: &Bench, seats: &[(&str, i64)]) {
    for (name, wait) in seats {
        bench.sandbox.script(
            &format!("tok-{name}"),
            MESSAGES,
            Answer::rejected_five_hour(T, T + wait),
        );
    }
}

fn retry_after(reply: &Reply) -> i64 {
    reply.header("retry-after").unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn ax_01_the_answer_has_the_native_shape_and_asks_nobody() {
    let bench = Bench::new("AB").await;
    used_up(&bench, &[("A", 3_600), ("B", 1_800)]);
    bench.turn(OPUS).await;
    bench.sandbox.take_requests();
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 429);
    let reset = (T + 1_800).to_string();
    let wait = (T + 1_800 - bench.now()).to_string();
    for (name, want) in [
        ("content-type", "application/json"),
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-reset", &reset),
        ("retry-after", &wait),
        ("x-should-retry", "false"),
        ("x-claude-proxy-router-error", "all_full"),
    ] {
        assert_eq!(reply.header(name), Some(want), "{name}");
    }
    assert_eq!(reply.json()["type"], "error");
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    assert!(
        reply.message().contains("5-hour limit at 2:44pm (UTC), in 30 min"),
        "{}",
        reply.message()
    );
    assert_eq!(bench.sandbox.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn ax_02_retry_after_is_the_real_wait_and_long_waits_are_not_retried() {
    for (wait, retried) in [(20, true), (60, true), (70, false), (10_800, false)] {
        let bench = Bench::new("AB").await;
        used_up(&bench, &[("A", 14_000), ("B", wait)]);
        for attempt in ["the one that finds out", "the next"] {
            let reply = bench.turn(OPUS).await;
            assert_eq!(reply.status, 429, "{attempt}");
            let told = retry_after(&reply);
            assert!((wait - 2..=wait).contains(&told), "{attempt}: {told} for {wait}");
            let want = if retried { None } else { Some("false") };
            assert_eq!(reply.header("x-should-retry"), want, "{attempt}: {wait} s");
        }
        assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    }
}

#[tokio::test(start_paused = true)]
async fn ax_03_retry_after_is_never_an_epoch_and_never_nothing() {
    let resets = [
        -T,
        -1,
        0,
        1,
        T - 5,
        T,
        T + 1,
        T + 18_000,
        T + 700_000,
        T * 1_000,
        T * 1_000_000,
    ];
    let hints = [
        None,
        Some("0"),
        Some("1"),
        Some("124633"),
        Some("1790003600"),
        Some("soon"),
    ];
    for reset in resets {
        for hint in hints {
            for answer in [Answer::rejected_five_hour(T, reset), Answer::rejected_weekly(T, reset)] {
                let bench = Bench::new("A").await;
                let answer = match hint {
                    None => answer.without_header("retry-after"),
                    Some(hint) => answer.header("retry-after", hint),
                };
                bench.sandbox.script("tok-A", MESSAGES, answer);
                let reply = bench.turn(OPUS).await;
                assert_eq!(reply.status, 429);
                let told = retry_after(&reply);
                assert!((1..700_000).contains(&told), "{told} from {reset} and {hint:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ax_04_a_streaming_client_gets_a_plain_429() {
    let bench = Bench::new("A").await;
    used_up(&bench, &[("A", 3_600)]);
    for attempt in ["the one that finds out", "the next"] {
        let reply = bench.send(messages(&stream_body(OPUS, "hello"))).await;
        assert_eq!(reply.status, 429, "{attempt}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{attempt}");
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error", "{attempt}");
    }
}

#[tokio::test(start_paused = true)]
async fn ax_05_the_answer_is_about_the_model_asked_for_and_the_seats_that_count() {
    let seats = vec![
        with_fable(seat("A", 0.1, 0.1), 0.0),
        with_fable(seat("B", 0.3, 0.3), 1.0),
    ];
    let bench = Bench::with(seats, json!({"accounts": [{"seat": "A", "enabled": false}]})).await;
    for attempt in ["the one that finds out", "the next"] {
        let reply = bench.new_turn(FABLE).await;
        assert_eq!(reply.status, 429, "{attempt}");
        assert!(reply.message().contains("Fable"), "{}", reply.message());
        for wrong in ["2 seats", "2 accounts", "all"] {
            assert!(!reply.message().contains(wrong), "{}", reply.message());
        }
        let claim = reply.header("anthropic-ratelimit-unified-representative-claim");
        assert_eq!(claim, Some("seven_day_overage_included"));
        let reset = (T + 300_000).to_string();
        assert_eq!(reply.header("anthropic-ratelimit-unified-reset"), Some(reset.as_str()));
    }
    assert_eq!(bench.next_seat(SONNET).await, "tok-B");
    assert!(!bench.tokens(MESSAGES).contains(&"tok-A".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn ax_06_a_reset_ends_it_without_a_restart() {
    let bench = Bench::new("AB").await;
    used_up(&bench, &[("A", 3_600), ("B", 5)]);
    assert_eq!(bench.turn(OPUS).await.status, 429);
    bench.pass(3).await;
    assert_eq!(bench.turn(OPUS).await.status, 429);
    bench.pass(3).await;
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B", "tok-B"]);
}

#[tokio::test(start_paused = true)]
async fn ax_06_a_reading_with_room_ends_it_before_the_announced_reset() {
    let bench = Bench::new("A").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_weekly(T, T + 300_000));
    assert_eq!(bench.turn(OPUS).await.status, 429);
    bench.sandbox.use_up("A", Allowance::Weekly, 0.0);
    bench.pass(3_700).await;
    assert_eq!(bench.turn(OPUS).await.status, 200);
}
