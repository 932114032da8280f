//! Limits and utilisation (LM).

use futures_util::future::join;
use gateway::snapshot::{SeatState, SeatView};
use jiff::SignedDuration;
use sandbox::{Allowance, Answer, Seat, SseStep};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Bench, FABLE, MESSAGES, OPUS, SONNET, T, USAGE, messages, seat, turn_body, with_fable};

const UNIFIED: &str = "anthropic-ratelimit-unified-";

fn unified(answer: Answer, field: &str, value: impl std::fmt::Display) -> Answer {
    answer.header(&format!("{UNIFIED}{field}"), &format!("{value}"))
}

/// A and B, after the sandbox was prepared.
async fn prepared(prepare: impl FnOnce(&sandbox::Sandbox)) -> Bench {
    Bench::prepared(pair(), json!({}), prepare).await
}

fn pair() -> Vec<Seat> {
    vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)]
}

/// A seat's windows as the status shows them: which, how much of it in basis points, when it resets.
fn windows(seat: &SeatView) -> Vec<(String, u16, Option<i64>)> {
    let row = |window: &gateway::snapshot::WindowView| {
        let kind = window.family.clone().unwrap_or(window.kind.clone());
        (kind, window.used, window.resets_at)
    };
    seat.windows.iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn lm_01_a_quota_429_moves_the_same_request_and_rests_the_seat() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(
        bench.tokens(MESSAGES),
        ["tok-A", "tok-B", "tok-B"],
        "A is not asked again"
    );
    assert_eq!(
        bench.seat("A").state.words(|at| (at - T).to_string()),
        "5-hour limit reached, back 3600"
    );
}

#[tokio::test(start_paused = true)]
async fn lm_02_a_known_reset_counts_and_not_a_blind_back_off() {
    let bench = Bench::new("AB").await;
    bench.sandbox.script(
        "tok-A",
        MESSAGES,
        Answer::rejected_weekly(T, T + 300_000).without_header("retry-after"),
    );
    bench.turn(OPUS).await;
    bench.sandbox.use_up("A", Allowance::Weekly, 1.0);
    bench.pass(7_200).await;
    bench.sandbox.take_requests();
    bench.turn(OPUS).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);
}

#[tokio::test(start_paused = true)]
async fn lm_03_of_two_rejected_windows_the_later_one_counts() {
    let lasting = |seat: Seat| seat.expires_at_ms((T + 1_000_000) * 1_000);
    let bench = Bench::with(pair().into_iter().map(lasting).collect(), json!({})).await;
    let both = unified(Answer::rejected_weekly(T, T + 200_000), "5h-status", "rejected");
    let both = unified(unified(both, "5h-reset", T + 600), "reset", T + 600);
    bench.sandbox.script("tok-A", MESSAGES, both);
    bench.sandbox.use_up("A", Allowance::FiveHour, 1.0);
    bench.sandbox.set_reset("A", Allowance::FiveHour, T + 600);
    bench.sandbox.use_up("A", Allowance::Weekly, 1.0);
    bench.sandbox.set_reset("A", Allowance::Weekly, T + 200_000);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    let until = T + 200_000;
    let resting = |state| matches!(state, SeatState::Resting { until: at, .. } if at == until);
    assert!(resting(bench.seat("A").state));
    bench.pass(700).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    assert!(resting(bench.seat("A").state));

    bench.clock.skew(SignedDuration::from_secs(until - 60 - bench.now()));
    bench.pass(20).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    bench.pass(60).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn lm_04_a_window_is_empty_after_its_reset_even_if_nobody_reads_it() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script_always("*", USAGE, Answer::error(500, "api_error", "Internal server error"));
    let full = unified(Answer::rejected_five_hour(T, T + 60), "5h-utilization", "1.01");
    bench.sandbox.script("tok-A", MESSAGES, full);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    bench.pass(50).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    bench.pass(15).await;
    assert_eq!(windows(&bench.seat("A"))[0], ("fiveHour".into(), 0, None));
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn lm_05_a_throttled_usage_endpoint_is_left_alone_and_keeps_nobody_from_serving() {
    let bench = Bench::new("AB").await;
    let throttled = Answer::error(429, "rate_limit_error", "Rate limited").header("retry-after", "1800");
    bench.sandbox.script_always("tok-A", USAGE, throttled);
    let polls = |bench: &Bench| bench.tokens(USAGE).iter().filter(|token| *token == "tok-A").count();
    let before = bench.seat("A");
    while polls(&bench) == 0 {
        bench.pass(10).await;
    }
    let asked_at = bench.now();
    bench.pass(900).await;
    let after = bench.seat("A");
    assert_eq!(after.state, SeatState::Ready);
    assert_eq!(after.windows, before.windows, "the last values, with their age");
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::ok().with_limits(bench.now(), 0.2, 0.15));
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
    let used: Vec<_> = bench.seat("A").windows.iter().map(|window| window.used).collect();
    assert_eq!(used, [2_000, 1_500], "answers keep them fresh");
    assert_eq!(bench.seat("A").read_at, Some(bench.now()));
    bench.pass(u64::try_from(asked_at + 1_785 - bench.now()).unwrap()).await;
    assert_eq!(polls(&bench), 1);
    bench.pass(600).await;
    assert_eq!(polls(&bench), 2, "and asked again when it may be");
}

#[tokio::test(start_paused = true)]
async fn lm_05_the_age_of_a_share_that_answers_do_not_bring_is_not_that_of_the_answers() {
    let bench = Bench::with(vec![with_fable(seat("A", 0.1, 0.1), 0.2)], json!({})).await;
    while bench.seat("A").windows.len() < 3 {
        bench.pass(10).await;
    }
    let read = bench.seat("A").read_at;
    let throttled = Answer::error(429, "rate_limit_error", "Rate limited").header("retry-after", "7200");
    bench.sandbox.script_always("tok-A", USAGE, throttled);
    bench.pass(3_000).await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::ok().with_limits(bench.now(), 0.2, 0.15));
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
    let after = bench.seat("A");
    assert_eq!((after.read_at, after.oldest_read_at()), (Some(bench.now()), read));
}

#[tokio::test(start_paused = true)]
async fn lm_06_trouble_with_the_usage_endpoint_is_not_trouble_with_the_login() {
    for (what, answer) in [
        ("429", Answer::error(429, "rate_limit_error", "Rate limited")),
        ("500", Answer::error(500, "api_error", "Internal server error")),
        ("no answer", Answer::never()),
        ("no JSON", Answer::text(200, "text/html", "<html>")),
    ] {
        let bench = Bench::new("AB").await;
        let told = |bench: &Bench| {
            let seats = bench.status().seats.into_iter();
            seats
                .map(|seat| (seat.state, seat.login, seat.windows))
                .collect::<Vec<_>>()
        };
        let before = told(&bench);
        bench.sandbox.script_always("*", USAGE, answer);
        bench.pass(700).await;
        assert!(!bench.tokens(USAGE).is_empty(), "{what}");
        assert_eq!(told(&bench), before, "{what}");
        assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{what}");
        assert_eq!(bench.sandbox.token_posts().len(), 0, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn lm_07_a_login_that_may_not_read_its_usage_serves_and_is_asked_hourly() {
    let told = "OAuth token does not meet scope requirement user:profile";
    let bench = prepared(|sandbox| {
        sandbox.script_always("tok-A", USAGE, Answer::error(403, "permission_error", told));
        sandbox.script_always("tok-A", MESSAGES, Answer::ok().with_limits(T, 0.2, 0.1));
    })
    .await;
    assert_eq!(windows(&bench.seat("A")), []);
    bench
        .sandbox
        .script("tok-B", MESSAGES, Answer::rejected_five_hour(T, T + 900));
    assert_eq!(bench.turn(OPUS).await.status, 200);
    let want = [
        ("fiveHour".into(), 2_000, Some(T + 3_600)),
        ("weekly".into(), 1_000, Some(T + 300_000)),
    ];
    assert_eq!(windows(&bench.seat("A")), want);
    assert_eq!(bench.seat("A").state, SeatState::Ready);
    bench.pass(3_500).await;
    let polls = bench.tokens(USAGE).iter().filter(|token| *token == "tok-A").count();
    assert_eq!(polls, 0, "one before the test, the next an hour later");
    assert_eq!(bench.sandbox.token_posts().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn lm_08_null_and_absent_windows_are_unknown_and_spoil_no_others() {
    let week = json!({"utilization": 12.0, "resets_at": "2026-12-03T07:00:00.528743+00:00"});
    let weekly = ("weekly".to_owned(), 1_200, Some(1_796_281_200));
    let unopened = ("fiveHour".to_owned(), 0, None);
    for (answer, want) in [
        (
            json!({"five_hour": {"utilization": 0, "resets_at": null}, "seven_day": week, "seven_day_opus": null}),
            vec![unopened, weekly.clone()],
        ),
        (json!({"five_hour": null, "seven_day": week}), vec![weekly.clone()]),
        (json!({"seven_day": week}), vec![weekly.clone()]),
        (
            json!({"five_hour": {"utilization": "lots", "resets_at": 5}, "seven_day": week}),
            vec![weekly.clone()],
        ),
        (json!({}), vec![]),
    ] {
        let bench = prepared(|sandbox| sandbox.script_always("tok-A", USAGE, Answer::json(200, answer.clone()))).await;
        assert_eq!(windows(&bench.seat("A")), want, "{answer}");
        assert_eq!(bench.seat("A").state, SeatState::Ready, "{answer}");
        if !want.is_empty() {
            assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{answer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lm_09_a_models_own_limit_is_read_from_the_list_and_keeps_that_model_away() {
    let reset = "2026-09-25T14:00:00Z";
    let scoped = |scope: Value, percent: i64| json!({"kind": "weekly_scoped", "percent": percent, "resets_at": reset, "scope": scope});
    let answer = json!({
        "seven_day_opus": null,
        "limits": [
            {"kind": "session", "percent": 10, "resets_at": null, "scope": null},
            {"kind": "weekly_all", "percent": 20, "resets_at": reset, "scope": null},
            scoped(json!({"model": {"id": null, "display_name": "Fable"}}), 100),
            scoped(json!({"model": null, "surface": "cowork"}), 100),
            {"kind": "monthly_mystery", "percent": 100, "resets_at": reset, "scope": null},
        ],
    });
    let bench = prepared(|sandbox| sandbox.script_always("tok-A", USAGE, Answer::json(200, answer))).await;
    let at = Some("2026-09-25T14:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second());
    let want = [
        ("fiveHour".into(), 1_000, None),
        ("weekly".into(), 2_000, at),
        ("Fable".into(), 10_000, at),
    ];
    assert_eq!(windows(&bench.seat("A")), want);
    for (model, want) in [(FABLE, "tok-B"), (SONNET, "tok-A"), (OPUS, "tok-A")] {
        assert_eq!(bench.next_seat(model).await, want, "{model}");
    }
}

#[tokio::test(start_paused = true)]
async fn lm_10_more_than_all_of_it_is_all_of_it() {
    let week = json!({"utilization": 104.3, "resets_at": "2026-09-25T14:00:00Z"});
    let answer = json!({"five_hour": {"utilization": 1, "resets_at": null}, "seven_day": week});
    let bench = prepared(|sandbox| sandbox.script_always("tok-A", USAGE, Answer::json(200, answer))).await;
    let shown = |used| pool::Utilization::from_basis_points(used).shown_percent();
    let weekly = bench.seat("A").windows[1].used;
    assert!(weekly >= 10_000);
    assert_eq!(shown(weekly), 100);
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");

    let over = unified(Answer::ok().with_limits(T, 0.3, 0.3), "5h-utilization", "1.02");
    bench.sandbox.script("tok-B", MESSAGES, over);
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    let five_hour = bench.seat("B").windows[0].used;
    assert!(five_hour >= 10_000);
    assert_eq!(shown(five_hour), 100);
}

#[tokio::test(start_paused = true)]
async fn lm_11_an_overloaded_service_is_no_seats_fault() {
    let bench = Bench::new("AB").await;
    let overloaded = Answer::error(529, "overloaded_error", "Overloaded");
    bench.sandbox.script_always("tok-A", MESSAGES, overloaded);
    let before = bench.status().seats;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 529);
    assert_eq!(reply.json()["error"]["type"], "overloaded_error");
    let tokens = bench.tokens(MESSAGES);
    assert!(tokens == ["tok-A"] || tokens == ["tok-A", "tok-A"], "{tokens:?}");
    assert_eq!(bench.status().seats, before);
    bench.sandbox.clear_scripts();
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn lm_11_a_529_does_not_lengthen_a_rest() {
    let bench = Bench::new("AB").await;
    let late = Answer::error(529, "overloaded_error", "Overloaded").after_ms(5_000);
    bench.sandbox.script("tok-A", MESSAGES, late);
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let (_, second) = join(bench.new_turn(OPUS), async {
        bench.pass(1).await;
        bench.new_turn(OPUS).await
    })
    .await;
    assert_eq!(second.status, 200);
    let until = |state| match state {
        SeatState::Resting { until, .. } => until - T,
        other => panic!("{other:?}"),
    };
    assert_eq!(until(bench.seat("A").state), 3_600);
}

/// While a request waits to be tried once more on A, another one finds A used up.
#[tokio::test(start_paused = true)]
async fn a_seat_that_fills_up_before_the_retry_is_not_taken_for_a_full_pool() {
    let bench = Bench::new("AB").await;
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let late = Answer::sse(vec![SseStep::event(overloaded)]).after_ms(5_000);
    bench.sandbox.script("tok-A", MESSAGES, late);
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let (first, _) = join(bench.new_turn(OPUS), async {
        bench.pass(1).await;
        bench.new_turn(OPUS).await
    })
    .await;
    assert_eq!(
        first.status,
        200,
        "B has room, but the client is told: {}",
        first.text()
    );
}

#[tokio::test(start_paused = true)]
async fn lm_12_a_gateways_520_is_not_called_a_limit() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_weekly(T, T + 300_000));
    bench.sandbox.use_up("A", Allowance::Weekly, 1.0);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    let page = Answer::text(
        520,
        "text/html",
        "<html>Web server is returning an unknown error</html>",
    );
    bench.sandbox.script_always("tok-B", MESSAGES, page);
    let reply = bench.new_turn(OPUS).await;
    assert!(reply.status == 520 || reply.status == 502, "{}", reply.status);
}

/// Refusals that say nothing about the seat: as they came, after one attempt, and nothing is remembered.
async fn passes_and_changes_nothing(answer: Answer, status: u16, text: &str) {
    let bench = Bench::new("AB").await;
    bench.sandbox.script_always("tok-A", MESSAGES, answer);
    let before = bench.status().seats;
    let body = turn_body(OPUS, "hello");
    let reply = bench.send(messages(&body)).await;
    assert_eq!(reply.status.as_u16(), status);
    assert_eq!(reply.text(), text);
    let arrived = bench.arrived(MESSAGES);
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].token.as_deref(), Some("tok-A"));
    assert_eq!(arrived[0].body, body, "no disguise");
    assert_eq!(bench.status().seats, before);
    assert_eq!(bench.sandbox.token_posts().len(), 0);
    bench.sandbox.clear_scripts();
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn lm_13_a_challenge_page_passes() {
    let page = "<!DOCTYPE html><html><head><title>Just a moment...</title></head></html>";
    let challenge = Answer::text(403, "text/html; charset=UTF-8", page).header("cf-mitigated", "challenge");
    passes_and_changes_nothing(challenge, 403, page).await;
}

#[tokio::test(start_paused = true)]
async fn lm_14_a_place_that_is_not_allowed_is_not_walked_through_the_seats() {
    let error = json!({"error": {"type": "forbidden", "message": "Request not allowed"}});
    passes_and_changes_nothing(Answer::json(403, error.clone()), 403, &error.to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn lm_17_what_only_claude_code_may_do_is_not_disguised() {
    let told = "This credential is only authorized for use with Claude Code and cannot be used for other API requests.";
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": told}});
    passes_and_changes_nothing(Answer::json(400, error.clone()), 400, &error.to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn lm_18_out_of_credits_is_not_a_used_up_plan() {
    let spent = || {
        let answer = Answer::error(429, "rate_limit_error", "Out of credits").header("x-should-retry", "true");
        unified(answer, "overage-disabled-reason", "out_of_credits")
    };
    let bench = Bench::new("ABC").await;
    bench.sandbox.script("tok-A", MESSAGES, spent());
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(bench.seat("A").state, SeatState::Ready);

    let bench = Bench::new("ABC").await;
    bench.sandbox.script_always("*", MESSAGES, spent());
    let reply = bench.turn(OPUS).await;
    assert_eq!(
        (reply.status.as_u16(), reply.message().as_str()),
        (429, "Out of credits")
    );
    assert_eq!(bench.tokens(MESSAGES).len(), 2);
    for seat in bench.status().seats {
        assert_eq!(seat.state, SeatState::Ready, "{}", seat.label);
    }
}

#[tokio::test(start_paused = true)]
async fn lm_19_one_models_limit_leaves_the_seat_to_the_others() {
    let seats = vec![
        with_fable(seat("A", 0.1, 0.1), 0.2),
        with_fable(seat("B", 0.3, 0.3), 0.3),
    ];
    let bench = Bench::with(seats, json!({})).await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_fable(T, T + 120_000));
    bench.sandbox.use_up("A", Allowance::Fable, 1.0);
    assert_eq!(bench.new_turn(FABLE).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    for (model, want) in [(SONNET, "tok-A"), (OPUS, "tok-A"), (FABLE, "tok-B")] {
        assert_eq!(bench.next_seat(model).await, want, "{model}");
    }
    assert_eq!(
        bench.seat("A").state.words(|at| (at - T).to_string()),
        "ready; Fable limit reached, back 120000"
    );
}

#[tokio::test(start_paused = true)]
async fn lm_20_a_429_that_names_no_limit_benches_nobody_and_moves_once() {
    let windowless = || Answer::error(429, "rate_limit_error", "Error").header("x-should-retry", "true");
    let bench = Bench::new("ABC").await;
    bench.sandbox.script("tok-A", MESSAGES, windowless());
    let began = Instant::now();
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert!(began.elapsed().as_millis() < 2_000);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");

    let bench = Bench::new("ABC").await;
    bench.sandbox.script_always("*", MESSAGES, windowless());
    let before = bench.status().seats;
    let began = Instant::now();
    let reply = bench.turn(OPUS).await;
    assert!(began.elapsed().as_millis() < 2_000);
    assert_eq!((reply.status.as_u16(), reply.message().as_str()), (429, "Error"));
    assert_eq!(reply.header("x-should-retry"), Some("true"), "as it came");
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(bench.status().seats, before);
}

#[tokio::test(start_paused = true)]
async fn lm_21_a_later_reading_with_room_ends_a_rest() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_weekly(T, T + 300_000));
    assert_eq!(bench.turn(OPUS).await.status, 200);
    bench.sandbox.use_up("A", Allowance::Weekly, 0.03);
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    while bench.tokens(USAGE).iter().all(|token| token != "tok-A") {
        assert!(bench.now() < T + 3_600, "usage is asked for within the hour");
        bench.pass(10).await;
    }
    assert_eq!(bench.seat("A").state, SeatState::Ready);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}
