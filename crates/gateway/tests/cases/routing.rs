//! Routing (RT).

use std::collections::BTreeMap;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, Request};
use sandbox::Answer;
use serde_json::{Value, json};

use crate::support::{
    Bench, COUNT_TOKENS, ENCODINGS, FABLE, Log, MESSAGES, OPUS, Reply, SONNET, T, in_session, messages,
    messages_in_pieces, pieces, request, seat, turn_body, with_fable,
};

/// A body of exactly that many bytes, the model before or after the long part.
fn body_of(length: usize, model: &str, model_last: bool) -> String {
    let model = format!(r#""model":"{model}""#);
    let turn = r#""messages":[{"role":"user","content":""#;
    let (before, after) = match model_last {
        false => (format!("{{{model},{turn}"), "\"}]}".to_owned()),
        true => (format!("{{{turn}"), format!("\"}}],{model}}}")),
    };
    format!("{before}{}{after}", "a".repeat(length - before.len() - after.len()))
}

/// How often each token was used at `path`.
fn counts(bench: &Bench, path: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for token in bench.tokens(path) {
        *counts.entry(token).or_default() += 1;
    }
    counts
}

const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn rt_01_a_long_body_arrives_whole_and_unchanged() {
    let bench = Bench::new("A").await;
    bench.sandbox.script_always("*", MESSAGES, Answer::ok());
    for length in [2_097_153, 31 * MIB, 32 * MIB] {
        let body = body_of(length, OPUS, false);
        for in_one in [true, false] {
            let sent = match in_one {
                true => messages(&body),
                false => messages_in_pieces(pieces(&body, 64 << 10), 0),
            };
            assert_eq!(bench.send(sent).await.status, 200, "{length} bytes");
            let arrived = bench.sandbox.take_requests();
            assert_eq!(arrived.len(), 1);
            assert!(arrived[0].body == body, "{length} bytes, in one: {in_one}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rt_01_a_body_over_32_mib_is_refused_in_the_native_shape() {
    let bench = Bench::new("A").await;
    let body = body_of(32 * MIB + 1, OPUS, false);
    for told in [true, false] {
        let sent = match told {
            true => messages(&body),
            false => messages_in_pieces(pieces(&body, 256 << 10), 0),
        };
        let reply = bench.send(sent).await;
        assert_eq!(reply.status, 413, "length told: {told}");
        assert_eq!(reply.json()["type"], "error");
        assert_eq!(reply.json()["error"]["type"], "request_too_large");
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert!(reply.message().contains("32 MB"), "{}", reply.message());
        let arrived = bench.sandbox.take_requests();
        assert!(arrived.iter().all(|request| !request.completed), "nothing may have run");
    }
}

#[tokio::test(start_paused = true)]
async fn rt_01_the_refusal_of_a_long_body_is_logged() {
    let bench = Bench::new("A").await;
    let body = body_of(32 * MIB + 1, OPUS, false);
    for told in [true, false] {
        let (log, _guard) = Log::of_this_test();
        let sent = match told {
            true => messages(&body),
            false => messages_in_pieces(pieces(&body, 256 << 10), 0),
        };
        bench.send(sent).await;
        assert!(
            log.text().contains("413"),
            "length told: {told}; logged: {}",
            log.text()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn rt_02_the_body_is_never_written_anew() {
    let bench = Bench::new("A").await;
    let body = r#"{"model":"claude-x", "messages" :[{"role":"assistant","content":[{"type":"thinking","thinking":"a\u00e9 \/ b","signature":"AAA=="}]}],"z":1.0,"a":1e2}"#;
    assert_eq!(bench.send(messages(body)).await.status, 200);
    assert_eq!(bench.send(messages_in_pieces(pieces(body, 7), 1)).await.status, 200);
    let arrived = bench.arrived(MESSAGES);
    assert_eq!(arrived.len(), 2);
    for request in arrived {
        assert_eq!(request.body, body);
    }
}

#[tokio::test(start_paused = true)]
async fn rt_03_a_bad_signature_is_the_clients_own_and_moves_nothing() {
    let bench = Bench::new("AB").await;
    let told = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let answer = Answer::error(400, "invalid_request_error", told);
    bench.sandbox.script("tok-A", MESSAGES, answer);
    let before = bench.status().seats;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 400);
    let want = json!({"type": "error", "error": {"type": "invalid_request_error", "message": told}});
    assert_eq!(reply.text(), want.to_string());
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
    assert_eq!(bench.status().seats, before);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

/// Turn `number` of a conversation: the same first message, more after it.
fn later_turn(user_id: &str, first: &str, number: usize) -> String {
    let mut turns = vec![json!({"role": "user", "content": first})];
    for turn in 1..number {
        turns.push(json!({"role": "assistant", "content": format!("answer {turn}")}));
        turns.push(json!({"role": "user", "content": format!("question {turn}")}));
    }
    json!({"model": OPUS, "metadata": {"user_id": user_id}, "max_tokens": 100, "messages": turns}).to_string()
}

#[tokio::test(start_paused = true)]
async fn rt_04_a_conversation_stays_where_it_is_unless_another_seat_is_clearly_freer() {
    let seats = vec![seat("A", 0.40, 0.10).cost(0.02), seat("B", 0.41, 0.10).cost(0.02)];
    let bench = Bench::with(seats, json!({})).await;
    for turn in 1..=20 {
        let reply = bench.send(messages(&later_turn("user_1", "first words", turn))).await;
        assert_eq!(reply.status, 200);
    }
    let tokens = bench.tokens(MESSAGES);
    assert_eq!(tokens.len(), 20);
    let changes = tokens.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes <= 3, "{changes} changes: {tokens:?}");
    assert_eq!(tokens[..5], ["tok-A"; 5], "within the margin it stays");
    assert!(tokens.contains(&"tok-B".to_owned()), "beyond it, it moves");
}

#[tokio::test(start_paused = true)]
async fn rt_04_by_price_a_conversation_stays_while_its_cache_is_warm_and_its_seat_is_not_nearly_full() {
    let seats = vec![seat("A", 0.10, 0.10).cost(0.08), seat("B", 0.10, 0.60)];
    let bench = Bench::with(seats, json!({"routing": "price"})).await;
    let turn = async |number| bench.send(messages(&later_turn("user_1", "first words", number))).await;
    for number in 1..=11 {
        turn(number).await;
    }
    assert_eq!(
        bench.tokens(MESSAGES),
        ["tok-A"; 11],
        "A had most to spare, and is warm"
    );
    bench.send(messages(&later_turn("user_2", "other words", 1))).await;
    assert_eq!(bench.tokens(MESSAGES)[11], "tok-B", "a new one has no cache to lose");
    turn(12).await;
    assert_eq!(bench.tokens(MESSAGES)[12], "tok-A", "at 98 %");
    turn(13).await;
    assert_eq!(bench.tokens(MESSAGES)[13], "tok-B", "A is full now");
}

#[tokio::test(start_paused = true)]
async fn rt_04_a_new_conversation_takes_the_freest_seat() {
    let seats = vec![seat("A", 0.40, 0.10).cost(0.02), seat("B", 0.41, 0.10).cost(0.02)];
    let bench = Bench::with(seats, json!({})).await;
    for turn in 1..=3 {
        bench.send(messages(&later_turn("user_1", "first words", turn))).await;
    }
    bench.send(messages(&later_turn("user_2", "other words", 1))).await;
    bench.send(messages(&later_turn("user_1", "first words", 4))).await;
    assert_eq!(
        bench.tokens(MESSAGES),
        ["tok-A", "tok-A", "tok-A", "tok-B", "tok-A"],
        "A is at 46 %, B at 41 %"
    );
}

#[tokio::test(start_paused = true)]
async fn rt_04_a_sub_agent_is_a_conversation_of_its_own() {
    let seats = vec![seat("A", 0.40, 0.10).cost(0.02), seat("B", 0.41, 0.10).cost(0.02)];
    let bench = Bench::with(seats, json!({})).await;
    let turn = |agent: Option<&str>, text: &str| {
        let mut turn = in_session(messages(&turn_body(OPUS, text)), "session-1");
        if let Some(agent) = agent {
            let headers = turn.headers_mut();
            headers.insert("x-claude-code-agent-id", agent.parse().unwrap());
        }
        turn
    };
    for (agent, text, want) in [
        (None, "main", "tok-A"),
        (None, "main", "tok-A"),
        (Some("agent-1"), "look for x", "tok-B"),
        (None, "main", "tok-A"),
        (Some("agent-1"), "and its answer", "tok-B"),
        (None, "a title for this session", "tok-B"),
        (None, "main", "tok-A"),
    ] {
        bench.send(turn(agent, text)).await;
        assert_eq!(bench.tokens(MESSAGES).pop().as_deref(), Some(want), "{agent:?}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn rt_04_a_hiccup_does_not_move_a_conversation() {
    let bench = Bench::new("AB").await;
    bench.turn(OPUS).await;
    let windowless = Answer::error(429, "rate_limit_error", "Error");
    bench.sandbox.script("tok-A", MESSAGES, windowless);
    bench.sandbox.use_up("B", sandbox::Allowance::FiveHour, 0.05);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(
        bench.tokens(MESSAGES),
        ["tok-A", "tok-A", "tok-B", "tok-A"],
        "it borrows B for one turn"
    );
}

/// How 40 sessions that ask at once are spread over A, unused, and B, that much of it used.
async fn burst_over(used_of_b: f64) -> BTreeMap<String, usize> {
    let bench = Bench::with(vec![seat("A", 0.0, 0.0), seat("B", used_of_b, 0.0)], json!({})).await;
    bench.sandbox.script_always("*", MESSAGES, Answer::ok().after_ms(2_000));
    let burst = (0..40).map(|session| {
        let turn = messages(&turn_body(OPUS, &format!("task {session}")));
        bench.send(in_session(turn, &format!("session-{session}")))
    });
    for reply in join_all(burst).await {
        assert_eq!(reply.status, 200);
    }
    let counts = counts(&bench, MESSAGES);
    assert_eq!(counts.values().sum::<usize>(), 40);
    counts
}

#[tokio::test(start_paused = true)]
async fn rt_05_a_burst_spreads_over_equal_seats() {
    let counts = burst_over(0.0).await;
    assert!(counts.values().all(|count| *count <= 28), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn rt_05_what_is_under_way_counts_so_the_first_seat_does_not_get_all_of_it() {
    let counts = burst_over(0.05).await;
    assert!(counts.values().all(|count| *count <= 28), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn rt_05_ties_are_not_always_broken_the_same_way() {
    let bench = Bench::with(vec![seat("A", 0.0, 0.0), seat("B", 0.0, 0.0)], json!({})).await;
    bench.sandbox.script_always("*", MESSAGES, Answer::ok());
    for _ in 0..20 {
        bench.new_turn(OPUS).await;
    }
    assert_eq!(counts(&bench, MESSAGES).len(), 2);
}

/// Two logins of one seat: equal account and organisation, different addresses and tokens.
fn twins() -> Vec<sandbox::Seat> {
    let twin = |name: &str| {
        seat(name, 0.1, 0.1)
            .account("acc-1", &format!("{name}@example.test"))
            .organization("org-1", "Team")
    };
    vec![twin("P1"), twin("P2")]
}

#[tokio::test(start_paused = true)]
async fn rt_06_two_logins_of_one_seat_count_once() {
    let bench = Bench::with(twins(), json!({})).await;
    let seats = bench.status().seats;
    assert_eq!(seats.len(), 1);
    assert_eq!(seats[0].label, "Team");
    assert_eq!(seats[0].dirs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn rt_06_a_full_seat_does_not_fail_over_to_itself() {
    let mut seats = twins();
    seats.push(seat("B", 0.5, 0.5));
    let bench = Bench::with(seats, json!({})).await;
    for token in ["tok-P1", "tok-P2"] {
        let full = Answer::rejected_five_hour(T, T + 3_600);
        bench.sandbox.script_always(token, MESSAGES, full);
    }
    assert_eq!(bench.turn(OPUS).await.status, 200);
    let tokens = bench.tokens(MESSAGES);
    assert_eq!(tokens.len(), 2, "{tokens:?}");
    assert_eq!(tokens[1], "tok-B");

    let bench = Bench::with(twins(), json!({})).await;
    bench
        .sandbox
        .script_always("*", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    assert_eq!(bench.turn(OPUS).await.status, 429);
    assert_eq!(bench.tokens(MESSAGES).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rt_07_one_person_in_two_organisations_has_two_seats() {
    let member = |name: &str, used: f64, organization: &str, label: &str| {
        seat(name, used, used)
            .account("acc-1", "me@example.test")
            .organization(organization, label)
    };
    let seats = vec![member("A", 0.1, "o-1", "Home"), member("B", 0.3, "o-2", "Team")];
    let bench = Bench::with(seats, json!({})).await;
    let labels: Vec<_> = bench.status().seats.into_iter().map(|seat| seat.label).collect();
    assert_eq!(labels, ["Home", "Team"]);
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    let ready = |label: &str| bench.seat(label).state == gateway::snapshot::SeatState::Ready;
    assert!(!ready("Home") && ready("Team"), "their limits are separate");
}

#[tokio::test(start_paused = true)]
async fn rt_08_an_unknown_model_is_the_clients_own_and_benches_nobody() {
    let bench = Bench::new("AB").await;
    let body = turn_body("claude-opus-9[1m]", "warm-up");
    let answer = Answer::error(404, "not_found_error", "model: claude-opus-9[1m]");
    bench.sandbox.script("tok-A", MESSAGES, answer);
    let before = bench.status().seats;
    let reply = bench.send(messages(&body)).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["type"], "not_found_error");
    let arrived = bench.arrived(MESSAGES);
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].body, body);
    assert_eq!(bench.status().seats, before);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

fn count_tokens(text: &str) -> Request<Body> {
    let body = turn_body(OPUS, text);
    request(Method::POST, "/v1/messages/count_tokens?beta=true", body)
}

#[tokio::test(start_paused = true)]
async fn rt_09_a_burst_of_token_counts_is_forwarded_with_its_query() {
    let bench = Bench::new("AB").await;
    let burst = (0..50).map(|n| bench.send(count_tokens(&format!("file {n}"))));
    for reply in join_all(burst).await {
        assert_eq!(reply.status, 200);
        assert!(reply.json()["input_tokens"].is_u64());
    }
    let arrived = bench.arrived(COUNT_TOKENS);
    assert_eq!(arrived.len(), 50);
    for request in arrived {
        assert_eq!(request.target, "/v1/messages/count_tokens?beta=true");
    }
}

#[tokio::test(start_paused = true)]
async fn rt_09_a_count_that_fails_leaves_its_seat_for_messages() {
    let windowless = Answer::error(429, "rate_limit_error", "Error").header("x-should-retry", "true");
    for (what, answer) in [
        ("404", Answer::error(404, "not_found_error", "Not found")),
        ("400", Answer::error(400, "invalid_request_error", "too long")),
        ("500", Answer::error(500, "api_error", "Internal server error")),
        ("529", Answer::error(529, "overloaded_error", "Overloaded")),
        ("429", windowless),
    ] {
        let bench = Bench::new("AB").await;
        let before = bench.status().seats;
        bench.sandbox.script_always("*", COUNT_TOKENS, answer);
        let reply = bench.send(count_tokens("file")).await;
        assert_eq!(reply.status.as_str(), what);
        if what == "404" {
            assert_eq!(bench.tokens(COUNT_TOKENS), ["tok-A"], "never tried again");
        }
        assert_eq!(bench.status().seats, before, "{what}");
        assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn rt_10_the_probe_is_answered_here_without_a_key() {
    let bench = Bench::new("A").await;
    let mut probe = Request::new(Body::empty());
    *probe.method_mut() = Method::HEAD;
    *probe.uri_mut() = "/api/hello".parse().unwrap();
    let reply = bench.send(probe).await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.sandbox.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn rt_10_what_buys_inference_is_forwarded_unchanged_known_or_not() {
    let bench = Bench::new("A").await;
    for (method, target, body) in [
        (Method::GET, "/v1/models?limit=1000", ""),
        (Method::GET, "/v1/some-new-thing", ""),
        (Method::POST, "/v1/some-new-thing?x=1", "not { json"),
        (Method::POST, "/api/event_logging/v2/batch", r#"{"events":[]}"#),
        (Method::DELETE, "/v1/files/file_1", ""),
    ] {
        let (path, _) = target.split_once('?').unwrap_or((target, ""));
        bench.sandbox.script(
            "tok-A",
            path,
            Answer::text(418, "text/plain", "teapot").header("x-odd", "1"),
        );
        let reply = bench.send(request(method.clone(), target, body)).await;
        assert_eq!(
            (reply.status.as_u16(), reply.text().as_str()),
            (418, "teapot"),
            "{target}"
        );
        assert_eq!(reply.header("x-odd"), Some("1"));
        let arrived = bench.sandbox.take_requests();
        assert_eq!(arrived.len(), 1, "{target}");
        assert_eq!(
            (arrived[0].method.as_str(), arrived[0].target.as_str()),
            (method.as_str(), target)
        );
        assert_eq!(arrived[0].body, body);
    }
}

const OF_THE_OWNER: [(Method, &str); 12] = [
    (Method::GET, "/api/oauth/usage"),
    (Method::GET, "/api/oauth/profile"),
    (Method::POST, "/v1/oauth/token"),
    (Method::GET, "/v1/organizations/o"),
    (Method::GET, "/v1/mcp_servers?limit=1000"),
    (Method::POST, "/v1/privacy-consents/checkup"),
    (Method::GET, "/v1/sessions/s"),
    (Method::GET, "/v1/code/x"),
    (Method::GET, "/v1/environments/e"),
    (Method::GET, "/api/claude_cli/bootstrap"),
    (Method::POST, "/api/anything"),
    (Method::GET, "/api/hello/x"),
];

#[tokio::test(start_paused = true)]
async fn rt_10_what_is_the_owners_account_is_refused_by_the_router() {
    let bench = Bench::new("A").await;
    for (method, target) in OF_THE_OWNER {
        let reply = bench.send(request(method, target, "")).await;
        assert_eq!(reply.status, 403, "{target}");
        assert_eq!(reply.json()["type"], "error", "{target}");
        assert!(reply.message().contains("Claude Proxy Router"), "{}", reply.message());
    }
    assert_eq!(bench.sandbox.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn rt_10_a_burst_of_refused_requests_is_one_line_in_the_log_at_most() {
    let bench = Bench::new("A").await;
    let (log, _guard) = Log::of_this_test();
    for _ in 0..50 {
        bench.send(request(Method::GET, "/v1/mcp_servers?limit=1000", "")).await;
        bench.send(request(Method::HEAD, "/api/hello", "")).await;
    }
    assert!(log.text().lines().count() <= 1, "{}", log.text());
}

async fn fable_bench() -> Bench {
    let seats = vec![
        with_fable(seat("A", 0.1, 0.1), 1.0),
        with_fable(seat("B", 0.3, 0.3), 0.05),
    ];
    Bench::with(seats, json!({})).await
}

#[tokio::test(start_paused = true)]
async fn rt_11_the_model_counts_wherever_it_stands() {
    let bench = fable_bench().await;
    bench.sandbox.script_always("*", MESSAGES, Answer::ok());
    for (length, model_last) in [(1_500_000, true), (1_500_000, false), (31 * MIB, true)] {
        let body = body_of(length, FABLE, model_last);
        for in_one in [true, false] {
            let sent = match in_one {
                true => messages(&body),
                false => messages_in_pieces(pieces(&body, 64 << 10), 0),
            };
            assert_eq!(bench.send(sent).await.status, 200);
            let arrived = bench.sandbox.take_requests();
            let tokens: Vec<_> = arrived.iter().map(|request| request.token.as_deref()).collect();
            assert_eq!(
                tokens,
                [Some("tok-B")],
                "{length} bytes, last: {model_last}, in one: {in_one}"
            );
            assert!(arrived[0].body == body);
        }
    }
    let sonnet = messages(&body_of(1_500_000, SONNET, true));
    assert_eq!(bench.send(sonnet).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"], "another model is not kept from A");
}

#[tokio::test(start_paused = true)]
async fn a_later_model_counts_before_anything_has_run() {
    let bench = fable_bench().await;
    let (first, rest) = (
        r#"{"model":"claude-sonnet-5","messages":[{"role":"user","content":"hi"}],"#,
        r#""max_tokens":5,"model":"claude-fable-5"}"#,
    );
    let reply = bench.send(messages_in_pieces([first, rest], 500)).await;
    assert_eq!(reply.status, 200);
    let arrived = bench.arrived(MESSAGES);
    let complete: Vec<_> = arrived.iter().filter(|request| request.completed).collect();
    assert_eq!(complete.len(), 1, "it runs once");
    assert_eq!(complete[0].token.as_deref(), Some("tok-B"));
    assert_eq!(complete[0].body, format!("{first}{rest}"));
    assert_eq!(bench.seat("A").in_flight, 0);
}

/// A bench whose A has issued `file_t1` and is fuller than B since.
async fn with_a_file_of_a() -> Bench {
    let bench = Bench::new("AB").await;
    let uploaded = json!({"id": "file_t1", "type": "file", "filename": "x.pdf"});
    let answer = Answer::json(200, uploaded.clone()).with_limits(T, 0.6, 0.2);
    bench.sandbox.script("tok-A", "/v1/files", answer);
    let upload = request(Method::POST, "/v1/files", "multipart, and no JSON");
    let reply = bench.send(upload).await;
    assert_eq!(reply.json(), uploaded);
    bench.sandbox.script_always("*", MESSAGES, Answer::ok());
    bench
}

fn document(file: &str) -> Value {
    json!([{"type": "document", "source": {"type": "file", "file_id": file}}])
}

async fn ask_about(bench: &Bench, file: &str) -> Reply {
    let turns = json!([{"role": "user", "content": document(file)}]);
    let body = json!({"model": OPUS, "max_tokens": 5, "messages": turns});
    bench.send(messages(&body.to_string())).await
}

#[tokio::test(start_paused = true)]
async fn rt_12_a_message_follows_the_file_it_names() {
    let bench = with_a_file_of_a().await;
    assert_eq!(ask_about(&bench, "file_t1").await.status, 200);
    assert_eq!(bench.next_seat(OPUS).await, "tok-B");
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);

    bench.send(request(Method::GET, "/v1/files/file_t1/content", "")).await;
    bench.send(request(Method::DELETE, "/v1/files/file_t1", "")).await;
    assert_eq!(bench.tokens("/v1/files/file_t1/content"), ["tok-A"]);
    assert_eq!(bench.tokens("/v1/files/file_t1"), ["tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn rt_12_a_batch_is_asked_for_where_it_was_started() {
    let bench = Bench::new("AB").await;
    let started = Answer::json(200, json!({"id": "msgbatch_t1"})).with_limits(T, 0.6, 0.2);
    bench.sandbox.script("tok-A", "/v1/messages/batches", started);
    bench.send(request(Method::POST, "/v1/messages/batches", "{}")).await;
    bench
        .send(request(Method::GET, "/v1/messages/batches/msgbatch_t1/results", ""))
        .await;
    assert_eq!(bench.tokens("/v1/messages/batches/msgbatch_t1/results"), ["tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn rt_12_an_id_without_a_known_owner_goes_to_the_usual_seat_and_its_404_comes_back() {
    let bench = Bench::new("AB").await;
    let missing = Answer::error(404, "not_found_error", "File not found: file_old");
    bench.sandbox.script_always("*", MESSAGES, missing);
    let reply = ask_about(&bench, "file_old").await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.message(), "File not found: file_old");
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn rt_12_an_id_that_comes_late_is_followed_before_anything_has_run() {
    let bench = with_a_file_of_a().await;
    let first = format!(r#"{{"model":"{OPUS}","max_tokens":5,"messages":[{{"role":"user","content":"hi"}},"#);
    let rest = format!(r#"{{"role":"user","content":{}}}]}}"#, document("file_t1"));
    let sent: [Bytes; 2] = [first.clone().into(), rest.clone().into()];
    assert_eq!(bench.send(messages_in_pieces(sent, 500)).await.status, 200);
    let arrived = bench.arrived(MESSAGES);
    let complete: Vec<_> = arrived.iter().filter(|request| request.completed).collect();
    assert_eq!(complete.len(), 1, "it runs once");
    assert_eq!(complete[0].token.as_deref(), Some("tok-A"));
    assert_eq!(complete[0].body, first + &rest);
}

#[tokio::test(start_paused = true)]
async fn rt_12_an_id_that_came_in_a_compressed_answer_is_followed() {
    for encoding in ENCODINGS {
        let bench = Bench::new("AB").await;
        let uploaded = Answer::json(200, json!({"id": "file_t1"})).with_limits(T, 0.6, 0.2);
        bench.sandbox.script("tok-A", "/v1/files", uploaded.encoded(encoding));
        bench.send(request(Method::POST, "/v1/files", "pdf")).await;
        bench.sandbox.script_always("*", MESSAGES, Answer::ok());
        ask_about(&bench, "file_t1").await;
        assert_eq!(bench.tokens(MESSAGES), ["tok-A"], "{}", encoding.name());
    }
}

#[tokio::test(start_paused = true)]
async fn rt_12_a_full_owner_is_waited_for_and_nobody_else_is_asked() {
    let bench = with_a_file_of_a().await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    for attempt in ["the one that finds out", "the next"] {
        let reply = ask_about(&bench, "file_t1").await;
        assert_eq!(reply.status, 429, "{attempt}");
        assert_eq!(reply.header("anthropic-ratelimit-unified-status"), Some("rejected"));
    }
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn rt_12_a_turn_follows_the_container_it_names() {
    let bench = Bench::new("AB").await;
    let answer = json!({"id": "msg_1", "content": [], "container": {"id": "container_t1", "expires_at": "2026-09-22T00:00:00Z"}});
    let answer = Answer::json(200, answer).with_limits(T, 0.6, 0.2);
    bench.sandbox.script("tok-A", MESSAGES, answer);
    bench.turn(OPUS).await;
    bench.sandbox.script_always("*", MESSAGES, Answer::ok());
    let turns = json!([{"role": "user", "content": "go on"}]);
    let body = json!({"model": OPUS, "max_tokens": 5, "container": "container_t1", "messages": turns});
    bench.send(messages(&body.to_string())).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-A"]);
}
