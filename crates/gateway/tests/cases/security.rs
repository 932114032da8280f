//! Security (SC), the parts that need no socket.

use axum::body::Body;
use http::{Method, Request, Uri};
use sandbox::{Answer, SseStep};
use serde_json::json;

use crate::support::{Bench, KEY, Log, MESSAGES, OPUS, Reply, messages, request, stream_body, turn_body};

/// A request without a key.
fn bare(method: Method, target: &str) -> Request<Body> {
    let mut request = Request::new(Body::from(turn_body(OPUS, "hello")));
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().unwrap();
    request
}

fn with(mut request: Request<Body>, lines: &[(&'static str, &str)]) -> Request<Body> {
    for (name, value) in lines {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// Routes of each kind: ours, forwarded ones, refused ones, and some that are none.
const ROUTES: [(Method, &str); 11] = [
    (Method::POST, MESSAGES),
    (Method::POST, "/v1/messages/count_tokens"),
    (Method::GET, "/v1/models"),
    (Method::GET, "/api/oauth/usage"),
    (Method::GET, "/_router/ping"),
    (Method::GET, "/_router/status"),
    (Method::POST, "/_router/ping"),
    (Method::GET, "/v1/status"),
    (Method::POST, "/v1/stop"),
    (Method::OPTIONS, MESSAGES),
    (Method::GET, "/metrics"),
];

fn gives_no_leave(reply: &Reply) -> bool {
    reply
        .headers
        .keys()
        .all(|name| !name.as_str().starts_with("access-control-"))
}

#[tokio::test(start_paused = true)]
async fn sc_01_a_web_page_is_refused_on_every_route_with_and_without_a_key() {
    let bench = Bench::new("A").await;
    for (method, target) in ROUTES {
        for lines in [
            &[("origin", "https://evil.test")][..],
            &[("origin", "https://evil.test"), ("host", "127.0.0.1:18787")],
            &[("origin", "https://evil.test"), ("content-type", "text/plain")],
            &[("origin", "null"), ("x-router-key", KEY)],
            &[("origin", "http://127.0.0.1:18787"), ("x-router-key", KEY)],
        ] {
            let reply = bench.send(with(bare(method.clone(), target), lines)).await;
            let what = format!("{method} {target} {lines:?}");
            assert!(
                [401, 403, 405].contains(&reply.status.as_u16()),
                "{what}: {}",
                reply.status
            );
            assert!(gives_no_leave(&reply), "{what}");
        }
    }
    assert_eq!(bench.sandbox.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn sc_01_a_foreign_name_passes_with_a_key_alone() {
    let bench = Bench::new("A").await;
    for (method, target) in ROUTES {
        let foreign = with(bare(method.clone(), target), &[("host", "evil.test:18787")]);
        let reply = bench.send(foreign).await;
        let what = format!("{method} {target}");
        assert!(
            [401, 403, 405].contains(&reply.status.as_u16()),
            "{what}: {}",
            reply.status
        );
        assert!(gives_no_leave(&reply), "{what}");
    }
    assert_eq!(bench.sandbox.requests().len(), 0);

    let tunnelled = with(
        messages(&turn_body(OPUS, "hello")),
        &[("host", "host.docker.internal:18787")],
    );
    assert_eq!(bench.send(tunnelled).await.status, 200);
    let arrived = bench.arrived(MESSAGES);
    assert_eq!(arrived.len(), 1);
    assert_ne!(arrived[0].header("host"), Some("host.docker.internal:18787"));
}

#[tokio::test(start_paused = true)]
async fn sc_01_the_probe_says_nothing_so_it_may_come_under_any_name() {
    let bench = Bench::new("A").await;
    let probe = with(bare(Method::HEAD, "/api/hello"), &[("host", "evil.test:18787")]);
    let reply = bench.send(probe).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body.len(), 0);
    assert!(gives_no_leave(&reply));
    let page = [("origin", "https://evil.test"), ("host", "127.0.0.1:18787")];
    let reply = bench.send(with(bare(Method::HEAD, "/api/hello"), &page)).await;
    assert!(gives_no_leave(&reply));
}

#[tokio::test(start_paused = true)]
async fn sc_02_a_key_in_the_address_is_no_key() {
    let bench = Bench::new("A").await;
    for name in ["key", "api_key", "x-api-key", "x-router-key", "token", "access_token"] {
        let reply = bench
            .send(bare(Method::POST, &format!("/v1/messages?{name}={KEY}")))
            .await;
        assert_eq!(reply.status, 401, "{name}");
    }
    assert_eq!(bench.sandbox.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn sc_02_no_secret_is_logged_or_shown() {
    const LOGIN: &str = "sk-ant-oat01-device";
    let log = Log::of_everything();
    let bench = Bench::new("AB").await;
    let asked = |target: &str| {
        let mut asked = messages(&stream_body(OPUS, "hello"));
        *asked.uri_mut() = target.parse().unwrap();
        with(asked, &[("authorization", &format!("Bearer {LOGIN}"))])
    };
    let with_a_key = format!("/v1/messages?beta=true&key={KEY}");
    let echo = |status| Answer::error(status, "api_error", &format!("bad token tok-A, key {KEY}"));
    for answer in [
        Answer::ok(),
        Answer::reset(),
        Answer::sse(vec![SseStep::Cut]),
        echo(400),
        echo(500),
        echo(529),
        Answer::rejected_five_hour(bench.now(), bench.now() + 60),
        echo(401),
    ] {
        bench.sandbox.script("tok-A", MESSAGES, answer);
        bench.send(asked(&with_a_key)).await;
        bench.pass(61).await;
    }
    bench.sandbox.script("tok-B", MESSAGES, echo(401));
    bench.send(asked(&with_a_key)).await;
    bench.send(bare(Method::POST, &with_a_key)).await;
    bench
        .send(with(bare(Method::POST, MESSAGES), &[("x-router-key", "rk-test-0001x")]))
        .await;
    bench
        .send(request(Method::GET, &format!("/v1/oauth/x?key={KEY}"), ""))
        .await;
    std::fs::write(
        bench.dir("A").join(".credentials.json"),
        r#"{"claudeAiOauth":{"accessToken":"tok-A"#,
    )
    .unwrap();
    bench.pass(20).await;

    let status = serde_json::to_string(&bench.status()).unwrap();
    let log = log.text();
    assert!(log.contains("/v1/messages"), "something was logged");
    for secret in ["tok-A", "tok-B", "rt-A", "rt-B", "rk-test", LOGIN] {
        let line = log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} is in the log");
        assert!(!status.contains(secret), "{secret} is in the status");
    }
}

#[tokio::test(start_paused = true)]
async fn sc_04_without_the_key_nothing_is_told_but_ok() {
    let bench = Bench::new("AB").await;
    bench.turn(OPUS).await;
    let seats = bench.status().seats;
    let mut said = String::new();
    for (method, target) in ROUTES.into_iter().chain([
        (Method::GET, "/"),
        (Method::HEAD, "/"),
        (Method::GET, "/api/hello"),
        (Method::HEAD, "/_router/ping"),
        (Method::GET, "/_router"),
        (Method::GET, "/_router/"),
        (Method::GET, "/status"),
        (Method::GET, "/health"),
        (Method::GET, "/v1/models?limit=1"),
    ]) {
        let reply = bench.send(bare(method.clone(), target)).await;
        match target {
            "/_router/ping" if method == Method::GET => assert_eq!(reply.text(), "ok\n"),
            _ => {
                let what = format!("{method} {target}: {} {}", reply.status, reply.text());
                assert!(reply.body.is_empty() || reply.status.as_u16() >= 400, "{what}");
            }
        }
        said += &format!("{:?} {}\n", reply.headers, reply.text());
    }
    for seat in seats {
        for private in [
            seat.email.as_deref(),
            Some(seat.id.as_str()),
            seat.dirs.first().map(String::as_str),
        ] {
            let private = private.unwrap();
            assert!(!said.contains(private), "{private} in {said}");
        }
    }
    for private in [
        "utilization",
        "anthropic-ratelimit",
        "x-claude-proxy-router\"",
        "organization",
    ] {
        assert!(!said.contains(private), "{private} in {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn sc_05_a_key_matches_exactly_or_not_at_all() {
    let bench = Bench::new("A").await;
    let long = "k".repeat(1 << 20);
    let longer = format!("{KEY}{}", "x".repeat(1 << 20));
    let bearer = format!("Bearer {KEY}");
    let spaced = format!("{KEY} ");
    let mut refused = 0;
    for (lines, status) in [
        (&[("x-router-key", KEY)][..], 200),
        (&[("x-api-key", KEY)], 200),
        (&[("authorization", bearer.as_str())], 200),
        (&[("x-api-key", KEY), ("authorization", &bearer)], 200),
        (&[("x-router-key", KEY), ("x-api-key", "sk-ant-api03-placeholder")], 200),
        (
            &[("x-router-key", KEY), ("authorization", "Bearer sk-ant-oat01-x")],
            200,
        ),
        (&[("x-router-key", &spaced)], 401),
        (&[("x-api-key", "rk-test-000")], 401),
        (&[("x-api-key", "RK-TEST-0001")], 401),
        (&[("x-api-key", &long)], 401),
        (&[("x-api-key", &longer)], 401),
        (&[("x-api-key", "")], 401),
        (&[("x-router-key", KEY), ("x-api-key", "rk-test-0002")], 401),
        (&[("x-router-key", KEY), ("authorization", "Bearer rk-test-0002")], 401),
        (&[("x-router-key", KEY), ("x-router-key", "rk-test-0002")], 401),
        (&[("x-api-key", "sk-ant-api03-placeholder")], 401),
        (&[], 401),
    ] {
        let asked = with(bare(Method::POST, MESSAGES), lines);
        let reply = bench.send(asked).await;
        assert_eq!(reply.status.as_u16(), status, "{lines:.60?}");
        if status == 401 {
            refused += 1;
            assert!(reply.message().contains("Claude Proxy Router"), "{}", reply.message());
            assert_eq!(reply.header("x-should-retry"), Some("false"));
        }
    }
    assert_eq!((refused, bench.sandbox.requests().len()), (11, 6));
}

#[tokio::test(start_paused = true)]
async fn sc_07_a_path_that_climbs_or_can_be_read_in_two_ways_is_refused() {
    let bench = Bench::new("A").await;
    for (method, target) in [
        ("GET", "/v1/../api/oauth/usage"),
        ("GET", "/v1/./models"),
        ("GET", "/v1/models/../../api/oauth/usage"),
        ("GET", "/v1/%2e%2e/api/oauth/profile"),
        ("GET", "/v1/files/%2E%2e/%2e%2E/api/oauth/profile"),
        ("POST", "//evil.test/v1/messages"),
        ("GET", "http://evil.test/v1/messages"),
        ("POST", "https://api.anthropic.com/v1/messages"),
        ("CONNECT", "evil.test:443"),
        ("TRACE", "/v1/messages"),
        ("GET", "/v1/%6frganizations/o"),
        ("POST", "/%76%31/messages"),
        ("POST", "/v1/messages%00"),
        ("POST", "/v1//oauth/token"),
        ("POST", "/v1/oauth%2ftoken"),
        ("POST", "/v1/files%5c..%5coauth"),
        ("POST", "/V1/OAuth/token"),
        ("POST", "/v1/OAUTH/token"),
        ("GET", "/v1/Organizations/o"),
        ("POST", "/v1/messages;x=1"),
        ("GET", "*"),
    ] {
        let mut asked = request(Method::from_bytes(method.as_bytes()).unwrap(), "/", "");
        *asked.uri_mut() = target.parse::<Uri>().unwrap();
        let reply = bench.send(asked).await;
        assert!(
            [403, 405].contains(&reply.status.as_u16()),
            "{method} {target}: {}",
            reply.status
        );
        assert_eq!(reply.json()["type"], "error", "{method} {target}");
    }
    assert_eq!(bench.sandbox.requests().len(), 0);
    for target in ["/v1/messages\u{0}", "/v1/mess ages", "/v1/messages\u{7f}"] {
        assert!(target.parse::<Uri>().is_err(), "{target:?} is no target at all");
    }
}

#[tokio::test(start_paused = true)]
async fn sc_07_what_follows_the_first_segments_may_be_escaped() {
    let bench = Bench::new("A").await;
    bench
        .sandbox
        .script("tok-A", "/v1/models/claude%20x", Answer::json(200, json!({})));
    let reply = bench
        .send(request(Method::GET, "/v1/models/claude%20x?y=..%2f", ""))
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.sandbox.requests()[0].target, "/v1/models/claude%20x?y=..%2f");
}
