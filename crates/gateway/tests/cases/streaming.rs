//! Streaming (ST).

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use sandbox::{Answer, SseStep};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Bench, Log, MESSAGES, OPUS, Reply, T, messages, stream_body, turn_body};

fn raw(text: &str) -> SseStep {
    SseStep::Raw(Bytes::copy_from_slice(text.as_bytes()))
}

/// The text of an event named after its type.
fn event(kind: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\"}}\n\n")
}

/// These texts as a stream, with nothing else in it.
fn stream_of(texts: &[String]) -> Answer {
    Answer::sse(texts.iter().map(|text| raw(text)).collect())
}

fn ask() -> http::Request<Body> {
    messages(&stream_body(OPUS, "hello"))
}

#[tokio::test(start_paused = true)]
async fn st_01_an_event_stream_passes_byte_for_byte() {
    let texts = [
        ": comment\n\n",
        "event: message_start\ndata: {\"type\":\"message_start\"}\n\n",
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        ":\n\nid: 7\nretry: 10\nevent:content_block_start\ndata:{\"a\":\"é\"}\n\n",
        "event: content_block_delta\r\ndata: {\"half\":",
        " 1}\r\n\r\n",
        "event: something_new\ndata: line one\ndata: line two\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    let texts = texts.map(str::to_owned);
    let bench = Bench::new("A").await;
    bench.sandbox.script("tok-A", MESSAGES, stream_of(&texts));
    let reply = bench.send(ask()).await;
    assert_eq!(reply.status, 200);
    assert!(reply.whole);
    assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(reply.text(), texts.concat());
}

/// The milliseconds since `began` at which each piece of the body came.
async fn arrivals(response: Response<Body>, began: Instant) -> Vec<(u128, Bytes)> {
    let mut body = response.into_body();
    let mut arrivals = Vec::new();
    while let Some(frame) = body.frame().await {
        arrivals.push((began.elapsed().as_millis(), frame.unwrap().into_data().unwrap()));
    }
    arrivals
}

#[tokio::test(start_paused = true)]
async fn st_02_the_head_waits_for_content_or_two_seconds_and_then_each_event_leaves_at_once() {
    let (start, ping, content) = ("message_start", "ping", "content_block_delta");
    for (what, opening, head_at) in [
        ("content at once", vec![content], 0),
        ("content after a start and a ping", vec![start, ping, content], 400),
        ("an event we do not know is content", vec![start, "something_new"], 200),
        ("pings for four seconds", [vec![start], vec![ping; 20]].concat(), 2_000),
    ] {
        let events = [opening, vec![content; 10], vec!["message_stop"]].concat();
        let mut steps = Vec::new();
        for kind in &events {
            steps.extend([raw(&event(kind)), SseStep::Wait(200)]);
        }
        let bench = Bench::new("A").await;
        bench.sandbox.script("tok-A", MESSAGES, Answer::sse(steps));
        let began = Instant::now();
        let response = bench.open(ask()).await;
        let head = began.elapsed().as_millis();
        assert!(
            (head_at..=head_at + 100).contains(&head),
            "{what}: the head came at {head} ms"
        );
        let arrivals = arrivals(response, began).await;
        assert_eq!(arrivals.len(), events.len(), "{what}");
        for (index, (at, piece)) in arrivals.iter().enumerate() {
            assert_eq!(*piece, event(events[index]), "{what}");
            let sent = 200 * index as u128;
            let due = sent.max(head);
            assert!(
                (due..=due + 100).contains(at),
                "{what}: event {index} of {sent} ms came at {at} ms"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn st_03_long_silence_is_not_cut() {
    let silent = Answer::sse(vec![
        raw(&event("message_start")),
        SseStep::Wait(90_000),
        raw(&event("content_block_delta")),
        SseStep::Wait(599_000),
        raw(&event("message_stop")),
    ]);
    let want = ["message_start", "content_block_delta", "message_stop"]
        .map(event)
        .concat();
    let bench = Bench::new("A").await;
    bench.sandbox.script("tok-A", MESSAGES, silent);
    let began = Instant::now();
    let reply = bench.send(ask()).await;
    assert!(reply.whole);
    assert_eq!(reply.text(), want);
    assert!(began.elapsed() >= Duration::from_secs(689));
}

#[tokio::test(start_paused = true)]
async fn st_03_a_stream_of_eleven_minutes_is_not_cut() {
    let mut steps = vec![raw(&event("message_start"))];
    let mut want = event("message_start");
    for _ in 0..33 {
        steps.extend([SseStep::Wait(20_000), raw(&event("ping"))]);
        want += &event("ping");
    }
    steps.push(raw(&event("message_stop")));
    want += &event("message_stop");
    let bench = Bench::new("A").await;
    bench.sandbox.script("tok-A", MESSAGES, Answer::sse(steps));
    let reply = bench.send(ask()).await;
    assert!(reply.whole);
    assert_eq!(reply.text(), want);
    assert_eq!(bench.sandbox.open_streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn st_03_a_head_may_take_two_and_a_half_minutes() {
    let bench = Bench::new("AB").await;
    for (body, answer) in [
        (turn_body(OPUS, "think"), Answer::ok()),
        (stream_body(OPUS, "think"), Answer::sse_ok()),
    ] {
        bench.sandbox.script("tok-A", MESSAGES, answer.after_ms(150_000));
        let reply = bench.send(messages(&body)).await;
        assert_eq!(reply.status, 200);
        assert!(reply.whole);
    }
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-A"]);
}

#[tokio::test(start_paused = true)]
async fn st_04_a_client_that_leaves_ends_the_upstream_stream_and_nothing_else() {
    let bench = Bench::new("AB").await;
    let mut steps = vec![raw(&event("message_start")), raw(&event("content_block_delta"))];
    for _ in 0..60 {
        steps.extend([SseStep::Wait(1_000), raw(&event("content_block_delta"))]);
    }
    bench.sandbox.script("tok-A", MESSAGES, Answer::sse(steps));
    let before = bench.status().seats;
    let mut response = bench.open(ask()).await;
    let first = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), event("message_start"));
    assert_eq!((bench.sandbox.open_streams(), bench.seat("A").in_flight), (1, 1));
    drop(response);
    bench.pass(2).await;
    assert_eq!(bench.sandbox.open_streams(), 0);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
    assert_eq!(bench.status().seats, before);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn st_04_a_client_that_leaves_before_the_head_frees_its_seat() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let held = Answer::sse(vec![raw(&event("message_start")), SseStep::Wait(60_000)]);
    for (what, answer) in [
        ("no head", Answer::never()),
        ("a head held back", held),
        (
            "a retry to come",
            Answer::sse(vec![raw(&format!("event: error\ndata: {overloaded}\n\n"))]),
        ),
    ] {
        let bench = Bench::new("AB").await;
        bench.sandbox.script("tok-A", MESSAGES, answer);
        let before = bench.status().seats;
        let asking = tokio::time::timeout(Duration::from_millis(500), bench.open(ask()));
        assert!(asking.await.is_err(), "{what}");
        bench.pass(2).await;
        assert_eq!(bench.sandbox.open_streams(), 0, "{what}");
        assert_eq!(bench.tokens(MESSAGES), ["tok-A"], "{what}");
        assert_eq!(bench.status().seats, before, "{what}");
        assert_eq!(bench.next_seat(OPUS).await, "tok-A", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn st_04_a_client_that_leaves_while_sending_runs_nothing() {
    let bench = Bench::new("AB").await;
    let before = bench.status().seats;
    let body = turn_body(OPUS, "hello");
    let (first, _) = body.split_at(body.len() - 5);
    let pieces = [
        Ok(Bytes::from(first.to_owned())),
        Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
    ];
    let mut asked = messages("");
    *asked.body_mut() = Body::from_stream(futures_util::stream::iter(pieces));
    bench.send(asked).await;
    bench.pass(2).await;
    let arrived = bench.arrived(MESSAGES);
    assert!(arrived.len() <= 1 && arrived.iter().all(|request| !request.completed));
    assert_eq!(bench.status().seats, before);
}

#[tokio::test(start_paused = true)]
async fn st_05_an_error_after_content_is_handed_on_and_never_replayed() {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let texts = [
        event("message_start"),
        event("content_block_delta"),
        event("content_block_delta"),
        format!("event: error\ndata: {error}\n\n"),
    ];
    let bench = Bench::new("AB").await;
    bench.sandbox.script("tok-A", MESSAGES, stream_of(&texts));
    let before = bench.status().seats;
    let reply = bench.send(ask()).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.text(), texts.concat());
    assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
    assert_eq!(bench.status().seats, before);
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
}

#[tokio::test(start_paused = true)]
async fn st_06_a_stream_without_its_last_event_stays_so_and_is_logged() {
    let texts = ["message_start", "content_block_delta"].map(event);
    let bench = Bench::new("A").await;
    bench.sandbox.script("tok-A", MESSAGES, stream_of(&texts));
    let (log, _guard) = Log::of_this_test();
    let reply = bench.send(ask()).await;
    assert!(reply.whole, "it ended cleanly, so it ends cleanly");
    assert_eq!(reply.text(), texts.concat());
    assert!(log.text().contains("without its last event"), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_is_cut_for_the_client_too() {
    for opening in [
        vec![event("message_start")],
        ["message_start", "content_block_delta"].map(event).to_vec(),
    ] {
        let mut steps: Vec<_> = opening.iter().map(|text| raw(text)).collect();
        steps.extend([SseStep::Wait(5_000), SseStep::Cut]);
        let bench = Bench::new("AB").await;
        bench.sandbox.script("tok-A", MESSAGES, Answer::sse(steps));
        let before = bench.status().seats;
        let reply = bench.send(ask()).await;
        assert!(!reply.whole);
        assert_eq!(reply.text(), opening.concat());
        assert_eq!(bench.tokens(MESSAGES), ["tok-A"]);
        assert_eq!(bench.status().seats, before);
    }
}

#[tokio::test(start_paused = true)]
async fn st_07_a_stream_without_line_ends_is_relayed_whole() {
    let bench = Bench::new("A").await;
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let steps = vec![SseStep::Raw(piece.clone()); 64];
    bench.sandbox.script("tok-A", MESSAGES, Answer::sse(steps));
    let mut body = bench.open(ask()).await.into_body();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data == piece, "pieces are handed on, not gathered");
        length += data.len();
    }
    assert_eq!(length, 64 << 20);
}

#[tokio::test(start_paused = true)]
async fn st_08_nothing_is_written_before_the_last_word_is_known() {
    let bench = Bench::new("AB").await;
    bench.sandbox.script(
        "tok-A",
        MESSAGES,
        Answer::rejected_five_hour(T, T + 3_600).after_ms(5_000),
    );
    let response = bench.open(ask()).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    let reply = Reply::read(response).await;
    assert_eq!(reply.status, 200);
    assert!(reply.text().starts_with("event: message_start\n"), "{}", reply.text());
    assert_eq!(reply.text().matches("event: message_start").count(), 1);
    assert!(reply.text().contains("`B`"), "{}", reply.text());
}
