//! Scripted answers, streams, encodings, the record and the control door.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod bench;

use std::io::Read as _;
use std::time::Duration;

use axum::body::Body;
use bench::{T, ask, bytes, message, read, refresh, request, send, two_seats, unified};
use http_body_util::BodyExt as _;
use sandbox::{Answer, Cut, Encoding, Sandbox, SseStep, Verdict};
use serde_json::{Value, json};

const MESSAGES: &str = "/v1/messages";

async fn statuses(sandbox: &Sandbox, seat: &str, count: usize) -> Vec<u16> {
    let mut seen = Vec::new();
    for _ in 0..count {
        let response = message(sandbox, seat, &ask("claude-opus-4-5")).await;
        seen.push(response.status().as_u16());
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn queued_answers_come_in_order_before_the_lasting_one() {
    let sandbox = two_seats();
    let work = sandbox.access_token("work");
    let teapot = |status| Answer::error(status, "api_error", "scripted");
    sandbox.script_always(&work, "*", teapot(503));
    sandbox.script(&work, MESSAGES, teapot(500));
    sandbox.script("*", MESSAGES, teapot(502));
    sandbox.script(&work, "/v1/models", teapot(418));
    assert_eq!(statuses(&sandbox, "work", 4).await, [500, 502, 503, 503]);
    assert_eq!(statuses(&sandbox, "home", 1).await, [200]);
    sandbox.clear_scripts();
    assert_eq!(statuses(&sandbox, "work", 1).await, [200]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_well_formed_from_start_to_stop() {
    let sandbox = two_seats();
    sandbox.script("*", MESSAGES, Answer::sse_ok());
    let mut asked = ask("claude-opus-4-5");
    asked["stream"] = json!(true);
    for words in [
        "Hello from the sandbox.",
        "Hello from the sandbox, served by seat `work`.",
    ] {
        let response = message(&sandbox, "work", &asked).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        assert!(response.headers().get("content-length").is_none());
        let text = String::from_utf8(bytes(response).await).unwrap();
        let mut order: Vec<String> = Vec::new();
        let mut said = String::new();
        for event in text.split_terminator("\n\n") {
            let (name, data) = event.split_once('\n').unwrap();
            let name = name.strip_prefix("event: ").unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(data["type"], name);
            said += data["delta"]["text"].as_str().unwrap_or_default();
            if order.last().is_none_or(|last| last != name) {
                order.push(name.to_owned());
            }
        }
        let want =
            "message_start content_block_start ping content_block_delta content_block_stop message_delta message_stop";
        assert_eq!(order.join(" "), want);
        assert_eq!(said, words);
    }
    assert_eq!(sandbox.open_streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn encoded_bodies_decode_back() {
    let sandbox = two_seats();
    for (encoding, name) in [
        (Encoding::Gzip, "gzip"),
        (Encoding::Brotli, "br"),
        (Encoding::Zstd, "zstd"),
    ] {
        let plain = SseStep::event(json!({"type": "ping"}));
        let stream = Answer::sse(vec![plain.clone(), SseStep::Wait(10), plain]);
        sandbox.script(
            "*",
            MESSAGES,
            Answer::text(200, "text/plain", "words").encoded(encoding),
        );
        sandbox.script("*", MESSAGES, stream.encoded(encoding));
        let response = message(&sandbox, "work", &Value::Null).await;
        assert_eq!(response.headers()["content-encoding"], name);
        assert_eq!(decoded(encoding, &bytes(response).await), "words");

        let mut body = message(&sandbox, "work", &Value::Null).await.into_body();
        let event = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
        let mut wire = body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
        assert_eq!(decoded(encoding, &wire), event, "{name}: an event waits for the next");
        wire.extend_from_slice(&body.collect().await.unwrap().to_bytes());
        assert_eq!(decoded(encoding, &wire), event.repeat(2));
    }
}

/// What a client can read so far of a body, also of one that is not at its end.
fn decoded(encoding: Encoding, bytes: &[u8]) -> String {
    let mut reader: Box<dyn std::io::Read + '_> = match encoding {
        Encoding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
        Encoding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
        Encoding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).unwrap()),
    };
    let mut text = Vec::new();
    let mut byte = [0];
    while let Ok(1) = reader.read(&mut byte) {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_is_counted_until_it_is_dropped() {
    let sandbox = two_seats();
    let steps = vec![SseStep::event(json!({"type": "ping"})), SseStep::Wait(3_600_000)];
    sandbox.script_always("*", MESSAGES, Answer::sse(steps));
    let unread = message(&sandbox, "work", &Value::Null).await;
    let mut begun = message(&sandbox, "work", &Value::Null).await.into_body();
    begun.frame().await.unwrap().unwrap();
    assert_eq!(sandbox.open_streams(), 2);
    drop(unread);
    assert_eq!(sandbox.open_streams(), 1);
    drop(begun);
    assert_eq!(sandbox.open_streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cut_is_an_error_in_the_body_or_a_mark_instead_of_a_head() {
    let sandbox = two_seats();
    let steps = vec![SseStep::Raw("event: pi".into()), SseStep::Cut];
    sandbox.script("*", MESSAGES, Answer::sse(steps));
    sandbox.script("*", MESSAGES, Answer::reset());
    let mut body = message(&sandbox, "work", &Value::Null).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.frame().await.unwrap().is_err());
    let response = message(&sandbox, "work", &Value::Null).await;
    assert!(response.extensions().get::<Cut>().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_delay_comes_before_the_head_and_never_does_not_end() {
    let sandbox = two_seats();
    sandbox.script("*", MESSAGES, Answer::ok().after_ms(5_000));
    sandbox.script("*", MESSAGES, Answer::never());
    let start = tokio::time::Instant::now();
    message(&sandbox, "work", &Value::Null).await;
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    let asked = Value::Null;
    let never = message(&sandbox, "work", &asked);
    let waited = tokio::time::timeout(Duration::from_secs(86_400), never).await;
    assert!(waited.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_rotation_can_be_lost_on_the_way() {
    let sandbox = two_seats();
    let first = sandbox.refresh_token("work");
    sandbox.script("*", "/v1/oauth/token", Answer::error(500, "api_error", "try later"));
    sandbox.script(
        "*",
        "/v1/oauth/token",
        Answer::rotate_then(Answer::text(504, "text/html", "")),
    );
    let grant = json!({"grant_type": "refresh_token", "refresh_token": first});
    for (status, is_new) in [(500, false), (504, true)] {
        let response = send(&sandbox, request("", "POST", "/v1/oauth/token", &grant)).await;
        assert_eq!(response.status(), status);
        assert_eq!(sandbox.refresh_token("work") != first, is_new);
    }
    assert_eq!(refresh(&sandbox, &first).await.0, 400);
    let verdicts: Vec<Verdict> = sandbox.token_posts().iter().map(|post| post.verdict).collect();
    assert_eq!(verdicts, [Verdict::Scripted, Verdict::Rotated, Verdict::Reused]);
}

#[tokio::test(start_paused = true)]
async fn ready_made_limits_have_the_native_headers() {
    let sandbox = two_seats();
    for (answer, status, claim, full) in [
        (Answer::ok().with_limits(T, 0.3, 0.1), 200, "five_hour", None),
        (Answer::rejected_five_hour(T, T + 90), 429, "five_hour", Some("5h")),
        (Answer::rejected_weekly(T, T + 90), 429, "seven_day", Some("7d")),
        (
            Answer::rejected_fable(T, T + 90),
            429,
            "seven_day_overage_included",
            Some("7d_oi"),
        ),
    ] {
        sandbox.script("*", MESSAGES, answer);
        let response = message(&sandbox, "work", &Value::Null).await;
        assert_eq!(response.status(), status);
        assert_eq!(unified(&response, "representative-claim"), Some(claim));
        for window in ["5h", "7d", "7d_oi"] {
            let is_rejected = unified(&response, &format!("{window}-status")) == Some("rejected");
            assert_eq!(is_rejected, full == Some(window), "{claim} {window}");
        }
        let retry_after = response.headers().get("retry-after");
        assert_eq!(retry_after.map(|value| value.to_str().unwrap()), full.map(|_| "90"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_can_be_set_and_left_out() {
    let sandbox = two_seats();
    let answer = Answer::ok()
        .header("Retry-After", "1")
        .header("retry-after", "2")
        .without_header("request-id");
    sandbox.script("*", MESSAGES, answer);
    let response = message(&sandbox, "work", &Value::Null).await;
    assert_eq!(response.headers().get_all("retry-after").iter().count(), 1);
    assert!(!response.headers().contains_key("request-id"));
}

#[tokio::test(start_paused = true)]
async fn requests_are_recorded_as_they_came() {
    let sandbox = two_seats();
    tokio::time::sleep(Duration::from_millis(7)).await;
    let big = "x".repeat(3 << 20);
    let token = sandbox.access_token("work");
    send(&sandbox, request(&token, "POST", "/v1/files?a=%2F&b", &json!(big))).await;
    let seen = &sandbox.take_requests()[0];
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("POST", "/v1/files?a=%2F&b")
    );
    assert_eq!(seen.path, "/v1/files");
    assert_eq!(seen.token.as_deref(), Some(token.as_str()));
    assert_eq!(seen.header("Content-Type"), Some("application/json"));
    assert_eq!((seen.body.len(), seen.completed), ((3 << 20) + 2, true));
    assert_eq!(seen.at_ms, T * 1000 + 7);
    assert!(sandbox.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_breaks_off_is_recorded_as_incomplete() {
    let sandbox = two_seats();
    let pieces = futures_util::stream::iter([Ok("half"), Err(std::io::Error::other("gone"))]);
    let mut broken = request("t", "POST", MESSAGES, &Value::Null);
    *broken.body_mut() = Body::from_stream(pieces);
    send(&sandbox, broken).await;
    assert!(!sandbox.requests()[0].completed);
}

#[tokio::test(start_paused = true)]
async fn another_process_can_script_look_and_clear() {
    let sandbox = two_seats();
    let control = |method: &'static str, what: &str, body: Value| {
        send(&sandbox, request("", method, &format!("/__sandbox/{what}"), &body))
    };
    for (answer, status) in [
        (json!({"status": 503, "headers": {"x-a": "b"}, "body": {"k": 1}}), 503),
        (json!({"preset": "rejected_five_hour", "reset_in_s": 7}), 429),
        (json!({"sse": "error_first"}), 200),
        (json!({"body": "plain", "delay_ms": 20}), 200),
    ] {
        let script = json!({"token": "*", "path": MESSAGES, "answer": answer});
        assert_eq!(control("POST", "script", script).await.status(), 200);
        let response = message(&sandbox, "work", &ask("claude-opus-4-5")).await;
        assert_eq!(response.status(), status, "{answer}");
    }
    let wrong = control("POST", "script", json!({"answer": {"sttatus": 1}})).await;
    assert_eq!(wrong.status(), 400);

    let used = json!({"seat": "work", "allowance": "five_hour", "fraction": 1.0, "reset_in_s": 5});
    assert_eq!(control("POST", "use_up", used).await.status(), 200);
    assert_eq!(statuses(&sandbox, "work", 1).await, [429]);
    let nobody = json!({"seat": "nobody", "allowance": "weekly", "fraction": 1.0});
    assert_eq!(control("POST", "use_up", nobody).await.status(), 400);

    let seen = read(control("GET", "requests", Value::Null).await).await;
    assert_eq!(seen.as_array().unwrap().len(), 5);
    assert_eq!(seen[0]["target"], "/v1/messages?beta=true");
    control("DELETE", "requests", Value::Null).await;
    assert!(sandbox.requests().is_empty());
    let open = read(control("GET", "open_streams", Value::Null).await).await;
    assert_eq!(open["open_streams"], 0);
}
