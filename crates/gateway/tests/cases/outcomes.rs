//! What an answer means, once through the whole gateway: who is asked, what the client gets, what rests afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use gateway::snapshot::SeatState;
use http::{HeaderValue, Request};
use sandbox::{Allowance, Answer, SseStep};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    Bench, COUNT_TOKENS, ENCODINGS, FABLE, MESSAGES, OPUS, SONNET, T, in_session, messages, seat, stream_body,
    turn_body, with_fable,
};

const UNIFIED: &str = "anthropic-ratelimit-unified-";

fn unified(answer: Answer, field: &str, value: impl std::fmt::Display) -> Answer {
    answer.header(&format!("{UNIFIED}{field}"), &format!("{value}"))
}

/// An answer beyond the plan: five hours are used up, and it is served all the same.
fn beyond(answer: Answer) -> Answer {
    let answer = unified(answer.with_limits(T, 1.0, 0.2), "status", "rejected");
    unified(unified(answer, "5h-status", "rejected"), "overage-in-use", "true")
}

fn failing_stream(kind: &str) -> Answer {
    Answer::sse(vec![SseStep::event(
        json!({"type": "error", "error": {"type": kind, "message": kind}}),
    )])
}

/// What rests on a seat, as the status says it.
fn rests(bench: &Bench, label: &str) -> String {
    match bench.seat(label).state {
        SeatState::Ready => "ready".into(),
        SeatState::ReadyBut { family, .. } => format!("not {family}"),
        SeatState::Resting { cause, .. } => serde_json::to_value(cause).unwrap().as_str().unwrap().into(),
        other => format!("{other:?}"),
    }
}

/// Every row of the table: what A answers once, who is asked, what the client gets, what then rests on A; and who is
/// asked and what the client gets where every seat answers so.
#[tokio::test(start_paused = true)]
async fn every_row_of_the_table() {
    type Row<'a> = (&'a str, Answer, &'a [&'a str], u16, &'a str, &'a [&'a str], u16);
    const A: &[&str] = &["A"];
    const AA: &[&str] = &["A", "A"];
    const AB: &[&str] = &["A", "B"];
    const ABC: &[&str] = &["A", "B", "C"];
    let error = Answer::error;
    let spent = unified(
        error(429, "rate_limit_error", "Out of credits"),
        "overage-disabled-reason",
        "out_of_credits",
    );
    let untold = unified(
        unified(error(429, "rate_limit_error", "limit"), "status", "rejected"),
        "reset",
        T + 900,
    );
    let lacks_400 = error(
        400,
        "invalid_request_error",
        "The long context beta is not yet available for this subscription.",
    );
    let lacks_429 = error(
        429,
        "rate_limit_error",
        "Extra usage is required for long context requests.",
    );
    let off = "This organization has been disabled.";
    let challenge =
        || Answer::text(403, "text/html", "<title>Just a moment...</title>").header("cf-mitigated", "challenge");
    #[rustfmt::skip]
    let rows: Vec<Row<'_>> = vec![
        // event                    A's answer                                             asked  client  rests on A      all answer so
        ("200",                     Answer::ok(),                                          A,     200,    "ready",        A,   200),
        ("429, five hours",         Answer::rejected_five_hour(T, T + 3_600),              AB,    200,    "limit",        ABC, 429),
        ("429, a week",             Answer::rejected_weekly(T, T + 300_000),               AB,    200,    "limit",        ABC, 429),
        ("429, no window told",     untold,                                                AB,    200,    "limit",        ABC, 429),
        ("429, windowless",         error(429, "rate_limit_error", "Error"),               AB,    200,    "ready",        AB,  429),
        ("429, out of credits",     spent,                                                 AB,    200,    "ready",        AB,  429),
        ("429, a feature",          lacks_429,                                             AB,    200,    "ready",        AB,  429),
        ("400, a feature",          lacks_400,                                             AB,    200,    "ready",        AB,  400),
        ("200, beyond the plan",    beyond(Answer::ok()),                                  AB,    200,    "extraUsage",   ABC, 200),
        ("529",                     error(529, "overloaded_error", "Overloaded"),          AA,    200,    "ready",        AA,  529),
        ("503",                     error(503, "overloaded_error", "Overloaded"),          AA,    200,    "ready",        AA,  503),
        ("500",                     error(500, "api_error", "Internal server error"),      AA,    200,    "ready",        AA,  500),
        ("502",                     Answer::text(502, "text/html", "<html>"),              AA,    200,    "ready",        AA,  502),
        ("520",                     Answer::text(520, "text/html", "<html>"),              AA,    200,    "ready",        AA,  520),
        ("504",                     error(504, "timeout_error", "Timed out"),              A,     504,    "ready",        A,   504),
        ("524",                     Answer::text(524, "text/html", "<html>"),              A,     524,    "ready",        A,   524),
        ("408",                     error(408, "timeout_error", "Timed out"),              AA,    200,    "ready",        AA,  408),
        ("409",                     error(409, "conflict_error", "Conflict"),              AA,    200,    "ready",        AA,  409),
        ("425",                     error(425, "invalid_request_error", "Too early"),      AA,    200,    "ready",        AA,  425),
        ("a stream: overloaded",    failing_stream("overloaded_error"),                    AA,    200,    "ready",        AA,  200),
        ("a stream: a fault",       failing_stream("api_error"),                           AA,    200,    "ready",        AA,  200),
        ("a stream: throttled",     failing_stream("rate_limit_error"),                    AB,    200,    "ready",        AB,  200),
        ("a stream: to be paid",    failing_stream("billing_error"),                       AB,    200,    "payment",      ABC, 200),
        ("a stream: the request",   failing_stream("invalid_request_error"),               A,     200,    "ready",        A,   200),
        ("401, without the beta",   error(401, "authentication_error", "OAuth authentication is currently not supported."), A, 502, "ready", A, 502),
        ("402",                     error(402, "billing_error", "Pay first"),              AB,    200,    "payment",      ABC, 402),
        ("403, organisation",       error(403, "permission_error", off),                   AB,    200,    "organization", ABC, 502),
        ("400, organisation",       error(400, "invalid_request_error", off),              AB,    200,    "organization", ABC, 502),
        ("403, a model",            error(403, "permission_error", "You do not have access to this model."), AB, 200, "ready", ABC, 403),
        ("403, the place",          error(403, "forbidden", "Request not allowed"),        A,     403,    "ready",        A,   403),
        ("403, a challenge",        challenge(),                                           A,     403,    "ready",        A,   403),
        ("503, a challenge",        Answer::text(503, "text/html", "…").header("cf-mitigated", "challenge"), A, 503, "ready", A, 503),
        ("404, of nobody's",        error(404, "not_found_error", "model: claude-opus-9"), A,     404,    "ready",        A,   404),
        ("400",                     error(400, "invalid_request_error", "prompt is too long: 300000 tokens"), A, 400, "ready", A, 400),
        ("413",                     error(413, "request_too_large", "Request too large"),  A,     413,    "ready",        A,   413),
        ("422",                     error(422, "invalid_request_error", "No"),             A,     422,    "ready",        A,   422),
        ("broken before an answer", Answer::reset(),                                       A,     502,    "ready",        A,   502),
    ];
    let tokens = |seats: &[&str]| seats.iter().map(|seat| format!("tok-{seat}")).collect::<Vec<_>>();
    for (event, answer, asked, status, rest, asked_all, status_all) in rows {
        let bench = Bench::new("ABC").await;
        bench.sandbox.script("tok-A", MESSAGES, answer.clone());
        let reply = bench.turn(OPUS).await;
        assert_eq!(bench.tokens(MESSAGES), tokens(asked), "{event}");
        assert_eq!(reply.status.as_u16(), status, "{event}");
        assert_eq!(rests(&bench, "A"), rest, "{event}");
        assert_eq!(
            bench.gateway.scheduler().look(|pool, _| pool.open_leases()),
            0,
            "{event}"
        );

        let bench = Bench::new("ABC").await;
        bench.sandbox.script_always("*", MESSAGES, answer);
        let reply = bench.turn(OPUS).await;
        assert_eq!(bench.tokens(MESSAGES), tokens(asked_all), "{event}, from all");
        assert_eq!(reply.status.as_u16(), status_all, "{event}, from all");
        assert_eq!(
            bench.gateway.scheduler().look(|pool, _| pool.open_leases()),
            0,
            "{event}, from all"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn lm_15_an_organisation_that_does_not_allow_logins_rests_and_others_serve() {
    let told = "OAuth authentication is currently not allowed for this organization.";
    let bench = Bench::new("AB").await;
    let answer = Answer::error(403, "permission_error", told);
    bench.sandbox.script_always("tok-A", MESSAGES, answer);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(rests(&bench, "A"), "organization");
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    assert_eq!(bench.sandbox.token_posts().len(), 0, "its login is not renewed");
    bench.pass(1_795).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    bench.pass(10).await;
    bench.sandbox.take_requests();
    let replies = join_all((0..4).map(|_| bench.new_turn(OPUS))).await;
    assert!(replies.iter().all(|reply| reply.status == 200));
    let probes = bench.tokens(MESSAGES).iter().filter(|token| *token == "tok-A").count();
    assert_eq!(probes, 1, "one looks whether it still holds");
    assert_eq!(rests(&bench, "A"), "organization");
}

#[tokio::test(start_paused = true)]
async fn lm_15_when_no_organisation_allows_it_the_answer_names_the_seats() {
    let bench = Bench::new("AB").await;
    let off = Answer::error(403, "permission_error", "Your organization has been disabled.");
    bench.sandbox.script_always("*", MESSAGES, off);
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 502);
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(reply.header("x-claude-proxy-router-error"), Some("not_allowed"));
    assert!(reply.message().contains("`A` and `B`"), "{}", reply.message());
}

/// A turn that asks for a context of a million tokens.
fn long_turn(text: &str) -> Request<axum::body::Body> {
    let mut request = messages(&turn_body(OPUS, text));
    let beta = HeaderValue::from_static("claude-code-20250219,context-1m-2025-08-07");
    request.headers_mut().insert("anthropic-beta", beta);
    request
}

#[tokio::test(start_paused = true)]
async fn lm_16_a_missing_feature_is_looked_for_elsewhere_once_and_remembered() {
    let told = "The long context beta is not yet available for this subscription.";
    let lacks = || Answer::error(400, "invalid_request_error", told);
    let bench = Bench::new("ABC").await;
    bench.sandbox.script("tok-A", MESSAGES, lacks());
    assert_eq!(bench.send(long_turn("one")).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    for request in bench.arrived(MESSAGES) {
        let betas = request.header("anthropic-beta").unwrap();
        assert!(betas.contains("context-1m-2025-08-07"), "never taken out: {betas}");
    }
    assert_eq!(bench.next_seat(OPUS).await, "tok-A", "plain requests as before");
    bench.sandbox.take_requests();
    assert_eq!(bench.send(long_turn("two")).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);

    let bench = Bench::new("ABC").await;
    bench.sandbox.script_always("*", MESSAGES, lacks());
    let reply = bench.send(long_turn("one")).await;
    assert_eq!((reply.status.as_u16(), reply.message().as_str()), (400, told));
    assert_eq!(bench.tokens(MESSAGES).len(), 2);
    bench.send(long_turn("two")).await;
    bench.sandbox.take_requests();
    let reply = bench.send(long_turn("three")).await;
    assert_eq!(reply.status, 400, "as it came");
    assert_eq!(bench.tokens(MESSAGES).len(), 1, "nobody has it, so one is asked");
}

#[tokio::test(start_paused = true)]
async fn hd_12_compressed_refusals_are_understood_like_plain_ones() {
    let error = Answer::error;
    let revoked = "OAuth token has been revoked. Please obtain a new token.";
    let organisation = "OAuth authentication is currently not allowed for this organization.";
    let feature = "The long context beta is not yet available for this subscription.";
    let rows = [
        ("LM-15", error(403, "permission_error", organisation), "organization"),
        (
            "LM-15, as a 400",
            error(400, "invalid_request_error", "This organization has been disabled."),
            "organization",
        ),
        ("RF-07", error(403, "permission_error", revoked), "Refused"),
        ("LM-16", error(400, "invalid_request_error", feature), "ready"),
        (
            "LM-16, as a 429",
            error(
                429,
                "rate_limit_error",
                "Extra usage is required for long context requests.",
            ),
            "ready",
        ),
        ("a stream that opens so", failing_stream("billing_error"), "payment"),
    ];
    let codings = || std::iter::once(None).chain(ENCODINGS.map(Some));
    for (what, plain, rest) in rows {
        for encoding in codings() {
            let answer = match encoding {
                None => plain.clone(),
                Some(encoding) => plain.clone().encoded(encoding),
            };
            let seats = vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)];
            let bench = Bench::with(seats, json!({"tokenRefresh": false})).await;
            bench.sandbox.script("tok-A", MESSAGES, answer);
            assert_eq!(bench.turn(OPUS).await.status, 200, "{what}, {encoding:?}");
            assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"], "{what}, {encoding:?}");
            assert_eq!(rests(&bench, "A"), rest, "{what}, {encoding:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rt_08_a_model_that_another_seat_has_served_is_looked_for_there_once() {
    let bench = Bench::new("AB").await;
    bench.sandbox.use_up("A", Allowance::FiveHour, 1.0);
    assert_eq!(bench.turn(OPUS).await.status, 200, "B serves it");
    bench.sandbox.use_up("A", Allowance::FiveHour, 0.0);
    bench.pass(4_000).await;
    bench.sandbox.take_requests();
    let unknown = Answer::error(404, "not_found_error", &format!("model: {OPUS}"));
    bench.sandbox.script("tok-A", MESSAGES, unknown);
    assert_eq!(bench.new_turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(rests(&bench, "A"), "ready");
}

#[tokio::test(start_paused = true)]
async fn rt_09_trouble_with_side_calls_says_nothing_about_turns_and_is_not_retried() {
    for status in [404, 429, 500, 529] {
        let bench = Bench::new("AB").await;
        let answer = Answer::error(status, "api_error", "no");
        bench.sandbox.script_always("*", COUNT_TOKENS, answer);
        for _ in 0..6 {
            let mut request = messages(&turn_body(OPUS, "hello"));
            *request.uri_mut() = format!("{COUNT_TOKENS}?beta=true").parse().unwrap();
            assert_eq!(bench.send(request).await.status.as_u16(), status);
        }
        assert_eq!(bench.tokens(COUNT_TOKENS).len(), 6, "{status}");
        assert_eq!(rests(&bench, "A"), "ready", "{status}");
        assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{status}");
    }
}

/// The status of a streamed turn, whose body nobody waits for.
async fn head_of_a_turn(bench: &Bench) -> u16 {
    let response = bench.open(messages(&stream_body(OPUS, "hello"))).await;
    response.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn extra_usage_is_spent_as_the_owner_wants() {
    let with = |wish: &'static str| async move {
        let seats = vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)];
        let wishes: Value = json!({"accounts": [{"seat": "A", "extraUsage": wish}, {"seat": "B", "extraUsage": wish}]});
        let bench = Bench::with(seats, wishes).await;
        bench.sandbox.script_always("tok-A", MESSAGES, beyond(Answer::sse_ok()));
        bench
    };
    for (wish, first, with_b_full) in [
        ("never", "tok-B", 429),
        ("last", "tok-B", 200),
        ("allowed", "tok-A", 200),
    ] {
        let bench = with(wish).await;
        assert_eq!(head_of_a_turn(&bench).await, 200, "{wish}");
        assert_eq!(bench.tokens(MESSAGES).last().unwrap(), first, "{wish}");
        bench.sandbox.use_up("B", Allowance::FiveHour, 1.0);
        assert_eq!(head_of_a_turn(&bench).await, with_b_full, "{wish}");
        bench.settle().await;
        assert_eq!(
            bench.sandbox.open_streams(),
            0,
            "{wish}: what is not wanted is cancelled at its head"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_its_owner_pays_for_last_is_paid_for_rather_than_told_that_all_are_full() {
    let bench = Bench::new("AB").await;
    bench.sandbox.script_always("tok-A", MESSAGES, beyond(Answer::sse_ok()));
    bench
        .sandbox
        .script("tok-B", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    assert_eq!(head_of_a_turn(&bench).await, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B", "tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_served_beyond_the_plan_reaches_the_client_with_truthful_headers() {
    let bench = Bench::new("A").await;
    bench.sandbox.script("tok-A", MESSAGES, beyond(Answer::ok()));
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("anthropic-ratelimit-unified-status"), Some("rejected"));
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_let_others_go_first_and_nobody_is_refused() {
    let bench = Bench::new("AB").await;
    let fault = Answer::error(500, "api_error", "Internal server error");
    bench.sandbox.script_always("tok-A", MESSAGES, fault);
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(bench.new_turn(OPUS).await.status.as_u16());
    }
    assert!(statuses.contains(&500), "{statuses:?}");
    assert_eq!(rests(&bench, "A"), "faults");
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    bench
        .sandbox
        .script_always("tok-B", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    assert_eq!(
        bench.new_turn(OPUS).await.status,
        500,
        "the seat's own answer, and no refusal of ours"
    );
    bench.sandbox.clear_scripts();
    bench.sandbox.use_up("B", Allowance::FiveHour, 1.0);
    bench.pass(301).await;
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
    assert_eq!(rests(&bench, "A"), "ready");
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_seats_return_send_one_to_look() {
    let bench = Bench::new("A").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 60));
    assert_eq!(bench.turn(OPUS).await.status, 429);
    bench.pass(60).await;
    bench.sandbox.take_requests();
    // It is full still, and says so after a second.
    let still_full = Answer::rejected_five_hour(T, T + 3_600).after_ms(1_000);
    bench.sandbox.script_always("tok-A", MESSAGES, still_full);
    let replies = join_all((0..20).map(|_| bench.new_turn(OPUS))).await;
    assert!(replies.iter().all(|reply| reply.status == 429));
    assert_eq!(bench.tokens(MESSAGES).len(), 1);

    let bench = Bench::new("A").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 60));
    assert_eq!(bench.turn(OPUS).await.status, 429);
    bench.pass(60).await;
    bench
        .sandbox
        .script_always("tok-A", MESSAGES, Answer::ok().after_ms(20_000));
    let began = Instant::now();
    let replies = join_all((0..20).map(|_| bench.new_turn(OPUS))).await;
    assert!(replies.iter().all(|reply| reply.status == 200));
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "nobody waits long for another's answer"
    );
}

/// A bench that holds requests for so many seconds, its one seat full until T + `until`.
async fn holding(hold_s: u16, until: i64) -> Bench {
    let bench = Bench::with(vec![seat("A", 0.1, 0.1)], json!({"holdS": hold_s})).await;
    let full = Answer::rejected_five_hour(T, T + until);
    bench.sandbox.script("tok-A", MESSAGES, full);
    bench
}

#[tokio::test(start_paused = true)]
async fn a_request_is_held_until_a_seat_returns_where_the_owner_wants_it() {
    for (hold_s, until, timeout, want) in [
        (0, 30, None, 429),
        (60, 30, None, 200),
        (20, 30, None, 429),
        (60, 30, Some("600"), 200),
        (60, 30, Some("40"), 429),
        (300, 250, None, 200),
    ] {
        let what = format!("holdS {hold_s}, back in {until} s, client's time-out {timeout:?}");
        let bench = holding(hold_s, until).await;
        let mut request = messages(&stream_body(OPUS, "hello"));
        if let Some(timeout) = timeout {
            let timeout = HeaderValue::from_static(timeout);
            request.headers_mut().insert("x-stainless-timeout", timeout);
        }
        let began = Instant::now();
        let reply = bench.send(request).await;
        assert_eq!(reply.status.as_u16(), want, "{what}");
        let attempts = bench.tokens(MESSAGES).len();
        match want {
            200 => {
                assert!(began.elapsed() >= Duration::from_secs(until as u64 - 2), "{what}");
                assert_eq!(attempts, 2, "{what}");
                assert!(!reply.text().contains("ping: "), "no event of ours");
            }
            _ => {
                assert!(began.elapsed() < Duration::from_secs(2), "{what}: told at once");
                assert_eq!(attempts, 1, "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_held_leaves_a_seat_alone_that_may_not_serve() {
    let bench = Bench::with(vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)], json!({"holdS": 300})).await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 200));
    let forbidden = "Your organization has disabled OAuth authentication";
    let switched_off = Answer::error(403, "permission_error", forbidden);
    bench.sandbox.script_always("tok-B", MESSAGES, switched_off);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B", "tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_ends_the_holding() {
    let bench = holding(60, 30).await;
    let left = tokio::time::timeout(Duration::from_secs(10), bench.turn(OPUS)).await;
    assert!(left.is_err());
    bench.pass(60).await;
    assert_eq!(bench.tokens(MESSAGES).len(), 1, "nothing is sent for it afterwards");
    assert_eq!(bench.gateway.scheduler().look(|pool, _| pool.open_leases()), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reading_with_room_ends_the_holding_early() {
    let bench = holding(300, 290).await;
    let (reply, ()) = futures_util::future::join(bench.turn(OPUS), async {
        bench.pass(20).await;
        let ids: Vec<_> = bench
            .status()
            .seats
            .iter()
            .map(|seat| pool::AccountId::new(&seat.id))
            .collect();
        let scheduler = bench.gateway.scheduler();
        scheduler.observe(&ids[0], pool::Observation::TryNow);
    })
    .await;
    assert_eq!(reply.status, 200);
    assert!(bench.now() < T + 60);
}

#[tokio::test(start_paused = true)]
async fn ax_05_the_soonest_usable_return_for_this_model_is_told() {
    let seats = vec![
        with_fable(seat("A", 0.1, 0.1), 0.0),
        with_fable(seat("B", 0.3, 0.3), 0.0),
    ];
    let bench = Bench::with(seats, json!({})).await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_fable(T, T + 120_000));
    bench
        .sandbox
        .script("tok-B", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let reply = bench.new_turn(FABLE).await;
    assert_eq!(reply.status, 429);
    let told = |name: &str| reply.header(&format!("{UNIFIED}{name}")).unwrap().to_owned();
    assert_eq!(told("reset"), (T + 3_600).to_string());
    assert_eq!(told("representative-claim"), "five_hour");
    assert_eq!(bench.next_seat(SONNET).await, "tok-A");
}

/// How often each seat was asked, and with which answers.
fn counts(bench: &Bench) -> BTreeMap<String, usize> {
    bench
        .tokens(MESSAGES)
        .into_iter()
        .fold(BTreeMap::new(), |mut counts, token| {
            *counts.entry(token).or_default() += 1;
            counts
        })
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_forty_conversations_is_split_between_two_equal_seats() {
    let bench = Bench::with(vec![seat("A", 0.0, 0.0), seat("B", 0.0, 0.0)], json!({})).await;
    bench.sandbox.script_always("*", MESSAGES, Answer::ok().after_ms(2_000));
    let turn = |number: usize| in_session(messages(&turn_body(OPUS, "hello")), &format!("session-{number}"));
    let replies = join_all((0..40).map(|number| bench.send(turn(number)))).await;
    assert!(replies.iter().all(|reply| reply.status == 200));
    let counts = counts(&bench);
    println!("40 conversations at once, two equal seats: {counts:?}");
    assert!(counts.values().all(|count| (18..=22).contains(count)), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_herd_of_thirty_that_fails_over_meets_few_refusals_and_the_clients_none() {
    let seats = vec![
        seat("X", 0.0, 0.0),
        seat("A", 0.2, 0.2),
        seat("B", 0.2, 0.2),
        seat("C", 0.2, 0.2),
    ];
    let bench = Bench::with(seats, json!({})).await;
    // Thirty conversations run on X, which is then used up; of the three others, A is full and nobody knows.
    let turn = |number: usize| in_session(messages(&turn_body(OPUS, "hello")), &format!("session-{number}"));
    for number in 0..30 {
        assert_eq!(bench.send(turn(number)).await.status, 200);
    }
    assert_eq!(counts(&bench)["tok-X"], 30);
    // Answers take their time, so that all of them are on their way before the first refusal comes.
    let full = || Answer::rejected_five_hour(T, T + 3_600).after_ms(300);
    bench.sandbox.script_always("tok-X", MESSAGES, full());
    bench.sandbox.script_always("tok-A", MESSAGES, full());
    for seat in ["tok-B", "tok-C"] {
        bench
            .sandbox
            .script_always(seat, MESSAGES, Answer::ok().after_ms(2_000));
    }
    bench.sandbox.take_requests();
    let replies = join_all((0..30).map(|number| bench.send(turn(number)))).await;
    let seen = replies.iter().filter(|reply| reply.status == 429).count();
    let counts = counts(&bench);
    let met = counts["tok-X"] + counts.get("tok-A").copied().unwrap_or_default();
    println!("30 conversations fail over at once: {counts:?}; 429s met {met}, 429s that clients saw {seen}");
    assert_eq!(seen, 0);
    assert!(replies.iter().all(|reply| reply.status == 200));
    assert!(
        met <= 30 + 10,
        "at most one third of the herd meets the full seat: {met}"
    );
}
