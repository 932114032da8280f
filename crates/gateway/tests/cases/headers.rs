//! Headers and bodies (HD).

use std::io::{self, Read as _};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request};
use sandbox::{Answer, Encoding, Recorded, SseStep};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    Bench, ENCODINGS, KEY, Log, MESSAGES, OPUS, T, encoded, messages, messages_in_pieces, pieces, seat, stream_body,
    turn_body,
};

const OAUTH_UNSUPPORTED: &str = "OAuth authentication is currently not supported.";
/// What Claude Code offers.
const OFFERED: &str = "gzip, deflate, br, zstd";

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

fn ask() -> Request<Body> {
    messages(&turn_body(OPUS, "hello"))
}

/// All values of that header.
fn values<'a>(request: &'a Recorded, name: &str) -> Vec<&'a str> {
    let lines = request.headers.iter().filter(|(have, _)| have == name);
    lines.map(|(_, value)| value.as_str()).collect()
}

/// All that arrived, as text to search.
fn wire(bench: &Bench) -> String {
    let requests = bench.sandbox.requests();
    let lines = requests.iter().map(|request| {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        format!("{} {:?} {body}\n", request.target, request.headers)
    });
    lines.collect()
}

fn error_text(kind: &str, message: &str) -> String {
    json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
}

#[tokio::test(start_paused = true)]
async fn hd_01_compressed_answers_pass_as_they_are_on_every_path() {
    for encoding in ENCODINGS {
        for (status, text) in [
            (200, json!({"id": "msg_1", "content": []}).to_string()),
            (404, error_text("not_found_error", "model: x")),
            (400, error_text("invalid_request_error", "too long")),
            (429, error_text("rate_limit_error", "Error")),
            (500, error_text("api_error", "Internal server error")),
            (529, error_text("overloaded_error", "Overloaded")),
        ] {
            let bench = Bench::new("A").await;
            let bytes = encoded(encoding, text.as_bytes());
            let answer = Answer::bytes(status, "application/json", bytes.clone())
                .header("content-encoding", encoding.name())
                .header("content-length", &bytes.len().to_string());
            bench.sandbox.script_always("tok-A", MESSAGES, answer);
            let reply = bench.send(with(ask(), "accept-encoding", OFFERED)).await;
            let what = format!("{status}, {}", encoding.name());
            assert_eq!(reply.status.as_u16(), status, "{what}");
            assert_eq!(reply.header("content-encoding"), Some(encoding.name()), "{what}");
            assert_eq!(reply.body, bytes, "{what}");
            if let Some(length) = reply.header("content-length") {
                assert_eq!(length, bytes.len().to_string(), "{what}");
            }
            assert_eq!(values(&bench.arrived(MESSAGES)[0], "accept-encoding"), [OFFERED]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hd_01_a_compressed_stream_passes_as_it_is() {
    for encoding in ENCODINGS {
        let bench = Bench::new("A").await;
        let plain: String = ["message_start", "content_block_delta", "message_stop"]
            .map(|kind| format!("event: {kind}\ndata: {{}}\n\n"))
            .concat();
        let bytes = encoded(encoding, plain.as_bytes());
        let (head, tail) = bytes.split_at(10);
        let steps = [head, tail].map(|piece| SseStep::Raw(Bytes::copy_from_slice(piece)));
        let answer = Answer::sse(steps.to_vec()).header("content-encoding", encoding.name());
        bench.sandbox.script("tok-A", MESSAGES, answer);
        let asked = messages(&stream_body(OPUS, "hello"));
        let reply = bench.send(with(asked, "accept-encoding", OFFERED)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-encoding"), Some(encoding.name()));
        assert_eq!(reply.body, bytes, "{}", encoding.name());
    }
}

#[tokio::test(start_paused = true)]
async fn hd_02_what_the_client_did_not_offer_is_not_asked_for() {
    let bench = Bench::new("A").await;
    let text = error_text("invalid_request_error", "messages: too long");
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::text(400, "application/json", &text));
    let reply = bench.send(ask()).await;
    assert_eq!(reply.message(), "messages: too long");
    let arrived = bench.arrived(MESSAGES);
    let offered = values(&arrived[0], "accept-encoding");
    assert!(offered.is_empty() || offered == ["identity"], "{offered:?}");
}

#[tokio::test(start_paused = true)]
async fn hd_02_no_compressed_text_stands_in_the_log() {
    for encoding in ENCODINGS {
        let bench = Bench::new("A").await;
        let answer = Answer::error(400, "invalid_request_error", "messages: too long").encoded(encoding);
        bench.sandbox.script("tok-A", MESSAGES, answer);
        let (log, _guard) = Log::of_this_test();
        bench.send(with(ask(), "accept-encoding", OFFERED)).await;
        let odd = |letter: char| (letter.is_control() && letter != '\n') || letter == char::REPLACEMENT_CHARACTER;
        assert!(!log.text().contains(odd), "{:?}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn hd_03_the_clients_betas_stay_and_the_oauth_beta_is_there_once() {
    let bench = Bench::new("A").await;
    const CLIENTS: &str = "claude-code-20250219,context-management-2025-06-27";
    for lines in [
        vec![CLIENTS],
        vec!["claude-code-20250219", "context-management-2025-06-27"],
        vec!["claude-code-20250219, oauth-2025-04-20 ,context-management-2025-06-27"],
    ] {
        let asked = lines
            .iter()
            .fold(ask(), |asked, line| with(asked, "anthropic-beta", line));
        assert_eq!(bench.send(asked).await.status, 200);
        let arrived = bench.sandbox.take_requests();
        let mut betas: Vec<_> = values(&arrived[0], "anthropic-beta")
            .into_iter()
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .collect();
        betas.sort_unstable();
        let want = [
            "claude-code-20250219",
            "context-management-2025-06-27",
            "oauth-2025-04-20",
        ];
        assert_eq!(betas, want, "from {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hd_04_a_missing_oauth_beta_is_added() {
    let bench = Bench::new("A").await;
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(
        values(&bench.arrived(MESSAGES)[0], "anthropic-beta"),
        ["oauth-2025-04-20"]
    );
}

#[tokio::test(start_paused = true)]
async fn hd_04_where_oauth_is_not_taken_no_seat_is_at_fault_and_the_client_stops() {
    let plain = Answer::error(401, "authentication_error", OAUTH_UNSUPPORTED);
    let compressed = ENCODINGS.map(|encoding| plain.clone().encoded(encoding));
    for answer in [plain].into_iter().chain(compressed) {
        let bench = Bench::new("AB").await;
        bench.sandbox.script("tok-A", MESSAGES, answer);
        let before = bench.status().seats;
        let reply = bench.turn(OPUS).await;
        assert_eq!(reply.status, 502);
        assert_eq!(reply.header("x-should-retry"), Some("false"));
        assert_eq!(reply.header("content-encoding"), None);
        assert!(reply.message().contains(OAUTH_UNSUPPORTED), "{}", reply.message());
        assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
        assert_eq!(bench.sandbox.token_posts().len(), 0);
        assert_eq!(bench.status().seats, before);
        assert_eq!(bench.next_seat(OPUS).await, "tok-A");
    }
}

#[tokio::test(start_paused = true)]
async fn hd_05_exactly_one_credential_goes_upstream() {
    let bearer = format!("Bearer {KEY}");
    for lines in [
        vec![("x-api-key", KEY)],
        vec![("authorization", bearer.as_str())],
        vec![("x-router-key", KEY)],
        vec![("x-api-key", KEY), ("authorization", &bearer), ("x-router-key", KEY)],
    ] {
        let bench = Bench::new("A").await;
        let mut asked = ask();
        asked.headers_mut().remove("x-router-key");
        let asked = lines
            .iter()
            .fold(asked, |asked, (name, value)| with(asked, name, value));
        assert_eq!(bench.send(asked).await.status, 200, "{lines:?}");
        let arrived = bench.arrived(MESSAGES);
        assert_eq!(values(&arrived[0], "authorization"), ["Bearer tok-A"]);
        assert!(values(&arrived[0], "x-api-key").is_empty());
        assert!(!wire(&bench).contains(KEY), "{}", wire(&bench));
    }
}

#[tokio::test(start_paused = true)]
async fn hd_07_the_target_and_the_clients_headers_arrive_as_they_were() {
    const TARGET: &str = "/v1/messages?beta=true&x=a%2Fb%20c&x=";
    const CLIENTS: [(&str, &str); 8] = [
        ("anthropic-version", "2023-06-01"),
        ("user-agent", "claude-cli/2.1.300 (external, cli)"),
        ("x-app", "cli"),
        ("x-stainless-lang", "js"),
        ("x-stainless-retry-count", "0"),
        ("x-stainless-timeout", "600"),
        ("x-claude-code-session-id", "0a1b2c3d"),
        ("anthropic-dangerous-direct-browser-access", "true"),
    ];
    let bench = Bench::new("A").await;
    let mut asked = ask();
    *asked.uri_mut() = TARGET.parse().unwrap();
    asked.headers_mut().remove("anthropic-version");
    let asked = CLIENTS
        .iter()
        .fold(asked, |asked, (name, value)| with(asked, name, value));
    assert_eq!(bench.send(asked).await.status, 200);
    let arrived = bench.arrived(MESSAGES);
    assert_eq!(
        (arrived[0].method.as_str(), arrived[0].target.as_str()),
        ("POST", TARGET)
    );
    for (name, value) in CLIENTS {
        assert_eq!(values(&arrived[0], name), [value], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn hd_08_the_answers_headers_are_handed_on() {
    let bench = Bench::new("A").await;
    let answer = Answer::ok()
        .with_limits(T, 0.3, 0.2)
        .header("request-id", "req_011")
        .header("anthropic-organization-id", "o-1")
        .header("retry-after", "7")
        .header("anthropic-foo", "bar");
    bench.sandbox.script("tok-A", MESSAGES, answer);
    let reply = bench.turn(OPUS).await;
    let (hour, week) = ((T + 3_600).to_string(), (T + 300_000).to_string());
    for (name, want) in [
        ("content-type", "application/json"),
        ("request-id", "req_011"),
        ("anthropic-organization-id", "o-1"),
        ("retry-after", "7"),
        ("anthropic-foo", "bar"),
        ("anthropic-ratelimit-unified-status", "allowed"),
        ("anthropic-ratelimit-unified-5h-status", "allowed"),
        ("anthropic-ratelimit-unified-5h-utilization", "0.3"),
        ("anthropic-ratelimit-unified-5h-reset", &hour),
        ("anthropic-ratelimit-unified-7d-status", "allowed"),
        ("anthropic-ratelimit-unified-7d-utilization", "0.2"),
        ("anthropic-ratelimit-unified-7d-reset", &week),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-reset", &hour),
    ] {
        assert_eq!(reply.header(name), Some(want), "{name}");
    }
    assert_eq!(reply.header("x-claude-proxy-router"), Some("A; only seat"));
    assert!(reply.header("x-claude-proxy-router-request").is_some());
    let ours = usize::from(reply.header("content-length").is_some()) + 2;
    assert_eq!(reply.headers.len(), 14 + ours, "and no others: {:?}", reply.headers);
}

#[tokio::test(start_paused = true)]
async fn hd_09_a_chunked_upload_is_whole_on_the_second_seat_too() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let body = turn_body(OPUS, &"0123456789abcdef".repeat(5 << 16));
    let reply = bench.send(messages_in_pieces(pieces(&body, 10_000), 1)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    for request in bench.arrived(MESSAGES) {
        assert!(
            request.body == body,
            "{:?} got {} bytes",
            request.token,
            request.body.len()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn hd_09_an_upload_over_a_slow_line_moves_like_any_other() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let body = turn_body(OPUS, &"0123456789abcdef".repeat(1 << 16));
    let reply = bench.send(messages_in_pieces(pieces(&body, 1 << 14), 1_000)).await;
    assert_eq!(reply.status, 200, "after {} s of sending", bench.now() - T);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert!(bench.arrived(MESSAGES)[1].body == body);
}

#[tokio::test(start_paused = true)]
async fn a_replay_differs_in_its_credential_alone() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let asked = with(ask(), "anthropic-beta", "claude-code-20250219");
    let asked = with(with(asked, "accept-encoding", OFFERED), "x-app", "cli");
    assert_eq!(bench.send(asked).await.status, 200);
    let [first, second] = &bench.arrived(MESSAGES)[..] else {
        panic!("two attempts")
    };
    let but_for_the_token = |request: &Recorded| {
        let others = request.headers.iter().filter(|(name, _)| name != "authorization");
        (
            request.method.clone(),
            request.target.clone(),
            others.cloned().collect::<Vec<_>>(),
            request.body.clone(),
        )
    };
    assert_eq!(but_for_the_token(first), but_for_the_token(second));
    assert_ne!(first.token, second.token);
}

/// A device's own login, which goes along in login mode.
const LOGIN: &str = "sk-ant-oat01-device";

fn in_login_mode() -> Request<Body> {
    with(ask(), "authorization", &format!("Bearer {LOGIN}"))
}

#[tokio::test(start_paused = true)]
async fn hd_11_a_devices_own_login_is_replaced_and_appears_nowhere() {
    let bench = Bench::new("A").await;
    let (log, _guard) = Log::of_this_test();
    assert_eq!(bench.send(in_login_mode()).await.status, 200);
    assert_eq!(values(&bench.arrived(MESSAGES)[0], "authorization"), ["Bearer tok-A"]);

    bench.sandbox.script("tok-A", MESSAGES, Answer::reset());
    bench.send(in_login_mode()).await;
    let mut wrong = in_login_mode();
    wrong.headers_mut().insert("x-router-key", "rk-other".parse().unwrap());
    bench.send(wrong).await;

    assert!(!wire(&bench).contains(LOGIN), "{}", wire(&bench));
    assert!(!log.text().contains(LOGIN), "{}", log.text());
    let status = serde_json::to_string(&bench.status()).unwrap();
    assert!(!status.contains(LOGIN));
    for (path, text) in files_in(bench.home.path()) {
        assert!(!text.contains(LOGIN), "{path}");
    }
}

/// The files in and below `folder`.
fn files_in(folder: &std::path::Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_in(&path)),
            false => {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                found.push((path.display().to_string(), text));
            }
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn hd_11_login_mode_gets_the_native_answer_when_all_is_used_up() {
    let bench = Bench::new("A").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 1_800));
    for attempt in ["the one that finds out", "the next"] {
        let reply = bench.send(in_login_mode()).await;
        assert_eq!(reply.status, 429, "{attempt}");
        assert_eq!(reply.header("anthropic-ratelimit-unified-status"), Some("rejected"));
        let claim = reply.header("anthropic-ratelimit-unified-representative-claim");
        assert_eq!(claim, Some("five_hour"));
        let reset = (T + 1_800).to_string();
        assert_eq!(reply.header("anthropic-ratelimit-unified-reset"), Some(reset.as_str()));
        assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    }
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn hd_11_a_wrong_key_beside_a_login_is_403_so_that_the_login_is_left_alone() {
    let bench = Bench::new("A").await;
    let mut wrong = in_login_mode();
    wrong.headers_mut().insert("x-router-key", "rk-other".parse().unwrap());
    let reply = bench.send(wrong).await;
    assert_eq!(reply.status, 403);
    assert!(reply.message().contains("Claude Proxy Router"), "{}", reply.message());

    let reply = bench.send(with(ask(), "x-api-key", "rk-test-0002")).await;
    assert_eq!(reply.status, 401, "two router keys that differ");
    assert!(reply.message().contains("Claude Proxy Router"), "{}", reply.message());
    assert_eq!(bench.sandbox.requests().len(), 0);
}

/// Each coding, and none.
fn codings() -> Vec<Option<Encoding>> {
    ENCODINGS.into_iter().map(Some).chain([None]).collect()
}

/// A stream that opens with an error of that kind, compressed event by event.
fn failing_stream(kind: &str, encoding: Option<Encoding>) -> Answer {
    let steps = vec![
        SseStep::event(json!({"type": "message_start", "message": {"id": "msg_1"}})),
        SseStep::event(json!({"type": "ping"})),
        SseStep::event(json!({"type": "error", "error": {"type": kind, "message": "not now"}})),
    ];
    match encoding {
        None => Answer::sse(steps),
        Some(encoding) => Answer::sse(steps).encoded(encoding),
    }
}

#[tokio::test(start_paused = true)]
async fn hd_12_a_stream_that_opens_overloaded_is_tried_once_more_on_the_same_seat() {
    for encoding in codings() {
        let bench = Bench::new("AB").await;
        bench
            .sandbox
            .script("tok-A", MESSAGES, failing_stream("overloaded_error", encoding));
        let began = Instant::now();
        let reply = bench.send(messages(&stream_body(OPUS, "hello"))).await;
        let waited = began.elapsed();
        assert_eq!(reply.status, 200, "{encoding:?}");
        assert!(reply.text().contains("`A`"), "{encoding:?}: {}", reply.text());
        assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-A"], "{encoding:?}");
        let jitter = Duration::from_millis(700)..Duration::from_millis(3_100);
        assert!(jitter.contains(&waited), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hd_12_a_stream_that_opens_rate_limited_moves_once() {
    for encoding in codings() {
        let bench = Bench::new("ABC").await;
        bench
            .sandbox
            .script("tok-A", MESSAGES, failing_stream("rate_limit_error", encoding));
        let before = bench.seat("A");
        let reply = bench.send(messages(&stream_body(OPUS, "hello"))).await;
        assert_eq!(reply.status, 200, "{encoding:?}");
        assert!(reply.text().contains("`B`"), "{encoding:?}: {}", reply.text());
        assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"], "{encoding:?}");
        assert_eq!(bench.seat("A"), before, "{encoding:?}: it says nothing about A");
    }
}

/// The bytes that the sandbox itself gives for an answer that stays.
async fn direct(bench: &Bench) -> Bytes {
    use tower::ServiceExt as _;
    let mut request = messages(&stream_body(OPUS, "hello"));
    let bearer = "Bearer tok-A".parse().unwrap();
    request.headers_mut().insert("authorization", bearer);
    let Ok(response) = bench.sandbox.router().oneshot(request).await;
    axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn hd_12_an_opening_error_that_stays_reaches_the_client_untouched() {
    for encoding in codings() {
        for (kind, tokens) in [
            ("overloaded_error", ["tok-A", "tok-A"]),
            ("rate_limit_error", ["tok-A", "tok-B"]),
        ] {
            let bench = Bench::new("ABC").await;
            bench
                .sandbox
                .script_always("*", MESSAGES, failing_stream(kind, encoding));
            let want = direct(&bench).await;
            bench.sandbox.take_requests();
            let reply = bench.send(messages(&stream_body(OPUS, "hello"))).await;
            assert_eq!(reply.status, 200, "{kind}, {encoding:?}");
            assert_eq!(reply.header("content-encoding"), encoding.map(Encoding::name));
            assert_eq!(reply.body, want, "{kind}, {encoding:?}");
            assert_eq!(bench.tokens(MESSAGES), tokens, "{kind}, {encoding:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hd_12_a_compressed_401_is_a_401() {
    for encoding in codings() {
        let bench = Bench::with(
            vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)],
            json!({"tokenRefresh": false}),
        )
        .await;
        let answer = Answer::error(401, "authentication_error", "invalid bearer token");
        let answer = match encoding {
            None => answer,
            Some(encoding) => answer.encoded(encoding),
        };
        bench.sandbox.script("tok-A", MESSAGES, answer);
        assert_eq!(bench.turn(OPUS).await.status, 200, "{encoding:?}");
        assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"], "{encoding:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hd_12_of_what_cannot_be_decoded_the_head_alone_decides() {
    let garbage = Bytes::from_static(b"\x1f\x8b\x08\x00 this is no gzip stream \xff\xfe");
    let broken = |status| Answer::bytes(status, "application/json", garbage.clone()).header("content-encoding", "gzip");
    for (what, answer, status, tokens) in [
        ("400", broken(400), 400, &["tok-A"][..]),
        ("403", broken(403), 403, &["tok-A"]),
        ("401", broken(401), 200, &["tok-A", "tok-B"]),
        (
            "429 with a window rejected",
            broken(429)
                .header("anthropic-ratelimit-unified-status", "rejected")
                .header("anthropic-ratelimit-unified-5h-status", "rejected")
                .header("anthropic-ratelimit-unified-5h-reset", &(T + 3_600).to_string()),
            200,
            &["tok-A", "tok-B"],
        ),
        (
            "an event stream",
            Answer::sse(vec![SseStep::Raw(garbage.clone())]).header("content-encoding", "gzip"),
            200,
            &["tok-A"],
        ),
        (
            "a coding nobody knows",
            broken(400).header("content-encoding", "x-own"),
            400,
            &["tok-A"],
        ),
    ] {
        let settings = json!({"tokenRefresh": false});
        let bench = Bench::with(vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)], settings).await;
        bench.sandbox.script("tok-A", MESSAGES, answer);
        let reply = bench.turn(OPUS).await;
        assert_eq!(reply.status.as_u16(), status, "{what}");
        assert_eq!(bench.tokens(MESSAGES), tokens, "{what}");
        if tokens == ["tok-A"] {
            assert_eq!(reply.body, garbage, "{what}");
        }
    }
}

/// Very many spaces, compressed to very little.
fn bomb() -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::copy(&mut io::repeat(b' ').take(200 << 20), &mut encoder).unwrap();
    encoder.finish().unwrap().into()
}

#[tokio::test(start_paused = true)]
async fn hd_12_a_body_that_swells_is_decoded_no_further_than_needed() {
    let bomb = bomb();
    assert!(bomb.len() < 2 << 20);
    let bench = Bench::with(
        vec![seat("A", 0.1, 0.1), seat("B", 0.3, 0.3)],
        json!({"tokenRefresh": false}),
    )
    .await;
    let swelling = |status| Answer::bytes(status, "application/json", bomb.clone()).header("content-encoding", "gzip");
    bench.sandbox.script("tok-A", MESSAGES, swelling(401));
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);

    bench.sandbox.script("tok-B", MESSAGES, swelling(400));
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 400);
    assert!(reply.body == bomb, "and the client gets it as it came");

    let mut headers = http::HeaderMap::new();
    headers.insert("content-encoding", "gzip".parse().unwrap());
    let mut copy = gateway::decode::SideCopy::new(&headers, 64 << 10);
    copy.write(&bomb);
    assert!(copy.is_closed());
    assert!(copy.bytes().len() <= 64 << 10);
}

#[tokio::test(start_paused = true)]
async fn every_answer_after_a_valid_key_says_who_gave_it() {
    let bench = Bench::new("AB").await;
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.header("x-claude-proxy-router"), Some("A; most room"));
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.header("x-claude-proxy-router"), Some("A; same conversation"));
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.header("x-claude-proxy-router"), Some("B; took over"));
    let reply = bench.send(crate::support::request(Method::GET, "/v1/models", "")).await;
    assert!(reply.header("x-claude-proxy-router").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_is_tried_once_more_does_not_claim_to_own_an_id() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, failing_stream("overloaded_error", None));
    let reply = bench.turn(OPUS).await;
    let said = reply.header("x-claude-proxy-router").unwrap();
    assert!(said.starts_with("A; ") && !said.contains("id"), "{said}");
}
