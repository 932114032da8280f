//! What outlasts the process, what is written down of requests, and files that change under a running router.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use gateway::credential::Files;
use gateway::meter::Tokens;
use gateway::paths::Paths;
use gateway::record::End;
use gateway::snapshot::ProblemKind;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use sandbox::{Answer, SseStep};
use serde_json::{Value, json};

use crate::support::{
    Bench, ENCODINGS, KEY, MESSAGES, OPUS, T, in_session, messages, request, seat, stream_body, turn_body,
};

/// A stream that tells its cost, and the container it ran in.
fn metered_stream() -> Answer {
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 11,
        "cache_creation_input_tokens": 22, "cache_read_input_tokens": 33, "output_tokens": 1}}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": {"id": "container_s1"}},
        "usage": {"output_tokens": 44}});
    let stop = json!({"type": "message_stop"});
    Answer::sse([start, delta, end, stop].map(SseStep::event).to_vec())
}

const COST: Tokens = Tokens {
    input: 11,
    output: 44,
    cache_read: 33,
    cache_write: 22,
};

/// Every file below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        })
        .collect()
}

fn settings(bench: &Bench, more: &Value) {
    let names = ["A", "B", "C"];
    let dirs: Vec<_> = names
        .iter()
        .map(|name| bench.dir(name))
        .filter(|dir| dir.exists())
        .collect();
    let mut file = json!({
        "routerKey": KEY, "includeDefaultAccount": false, "configDirs": dirs, "routing": "headroom",
    });
    for (key, value) in more.as_object().unwrap() {
        file[key] = value.clone();
    }
    gateway::file::save(&bench.settings_file(), file.to_string().as_bytes()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_seat_that_is_full_is_not_asked_again_before_its_reset_after_a_kill_either() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    bench.sandbox.use_up("A", sandbox::Allowance::FiveHour, 1.0);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    // It is written in a moment, off the request's way.
    bench.pass(1).await;

    let bench = bench.killed().await;
    let rest = bench.seat("A").state.words(|at| (at - T).to_string());
    assert_eq!(rest, "5-hour limit reached, back 3600");
    bench.sandbox.take_requests();
    for _ in 0..20 {
        assert_eq!(bench.new_turn(OPUS).await.status, 200);
    }
    assert!(bench.tokens(MESSAGES).iter().all(|token| token == "tok-B"));

    bench.pass(3_700).await;
    bench.sandbox.take_requests();
    for _ in 0..20 {
        bench.new_turn(OPUS).await;
    }
    assert!(
        bench.tokens(MESSAGES).contains(&"tok-A".to_owned()),
        "it is back after its reset"
    );
}

#[tokio::test(start_paused = true)]
async fn a_conversation_and_an_id_stay_with_their_seat_after_a_restart() {
    let bench = Bench::with(vec![seat("A", 0.32, 0.1), seat("B", 0.30, 0.1)], json!({})).await;
    bench.sandbox.script_always("*", MESSAGES, metered_stream());
    let turn = || in_session(messages(&turn_body(OPUS, "hello")), "s-1");
    bench.send(turn()).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);
    // The other one has a little more room from here on, which is not worth a move.
    bench.sandbox.use_up("A", sandbox::Allowance::FiveHour, 0.25);
    bench.pass(400).await;

    let bench = bench.restarted().await;
    bench.sandbox.take_requests();
    assert_eq!(bench.next_seat(OPUS).await, "tok-A");
    bench.sandbox.take_requests();
    bench.send(turn()).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);

    // A turn that names the container of the first one goes where that ran, whatever conversation it is of.
    let body = json!({"model": OPUS, "max_tokens": 9, "container": {"id": "container_s1"},
        "messages": [{"role": "user", "content": "another"}]});
    bench.sandbox.take_requests();
    let reply = bench.send(messages(&body.to_string())).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);
    let reason = reply.header("x-claude-proxy-router").unwrap().to_owned();
    assert!(reason.contains("owns the id"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn rt_12_a_container_that_a_stream_names_follows_its_seat() {
    for encoding in ENCODINGS {
        let bench = Bench::new("AB").await;
        bench
            .sandbox
            .script_always("tok-A", MESSAGES, metered_stream().encoded(encoding));
        bench.turn(OPUS).await;
        bench.sandbox.use_up("A", sandbox::Allowance::FiveHour, 0.9);
        bench.pass(400).await;
        bench.sandbox.take_requests();
        let body = json!({"model": OPUS, "max_tokens": 9, "container": {"id": "container_s1"},
            "messages": [{"role": "user", "content": "another"}]});
        bench.send(messages(&body.to_string())).await;
        assert_eq!(bench.tokens(MESSAGES), ["tok-A"], "{encoding:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_turn_cost_is_read_from_its_answer_whatever_its_encoding() {
    let bench = Bench::new("A").await;
    let stream = messages(&stream_body(OPUS, "hello"));
    bench.sandbox.script("*", MESSAGES, metered_stream());
    let plain = bench.send(stream).await;
    for encoding in ENCODINGS {
        bench.sandbox.script("*", MESSAGES, metered_stream().encoded(encoding));
        bench.send(messages(&stream_body(OPUS, "hello"))).await;
    }
    let whole = json!({"id": "msg_1", "type": "message", "content": [], "usage": {"input_tokens": 11,
        "cache_creation_input_tokens": 22, "cache_read_input_tokens": 33, "output_tokens": 44}});
    bench.sandbox.script("*", MESSAGES, Answer::json(200, whole));
    bench.turn(OPUS).await;
    let records = bench.records().await;
    assert_eq!(records.len(), 5);
    for record in &records {
        assert_eq!(record.tokens, Some(COST), "{record:?}");
        assert_eq!((record.status, record.end), (200, End::Whole));
        assert_eq!(record.model.as_deref(), Some(OPUS));
    }
    assert_eq!(records[0].reason, "only seat");
    let number: i64 = plain.header("x-claude-proxy-router-request").unwrap().parse().unwrap();
    assert_eq!(records[0].number, number, "its number is in its answer");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_written_down_with_its_way_and_its_end() {
    let bench = Bench::new("AB").await;
    // One that moves, one that nobody serves, one whose client leaves, one that breaks off.
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    assert_eq!(bench.turn(OPUS).await.status, 200);
    let start = SseStep::event(json!({"type": "content_block_delta", "delta": {"text": "x"}}));
    let waiting = Answer::sse(vec![start.clone(), SseStep::Wait(60_000)]);
    bench.sandbox.script("tok-B", MESSAGES, waiting);
    let mut left = bench.open(messages(&stream_body(OPUS, "hello"))).await.into_body();
    left.frame().await.unwrap().unwrap();
    drop(left);
    let cut = Answer::sse(vec![start, SseStep::Wait(10), SseStep::Cut]);
    bench.sandbox.script("tok-B", MESSAGES, cut);
    assert!(!bench.send(messages(&stream_body(OPUS, "hello"))).await.whole);
    bench
        .sandbox
        .script("tok-B", MESSAGES, Answer::rejected_five_hour(T, T + 3_000));
    assert_eq!(bench.turn(OPUS).await.status, 429);

    let records = bench.records().await;
    let ends: Vec<_> = records.iter().map(|record| (record.status, record.end)).collect();
    assert_eq!(
        ends,
        [
            (200, End::Whole),
            (200, End::Left),
            (200, End::Broken),
            (429, End::Whole)
        ]
    );
    assert_eq!(records[0].attempts.len(), 1);
    assert_eq!(records[0].attempts[0].status, Some(429));
    assert!(
        records[0].attempts[0].came_of_it.contains("5-hour"),
        "{:?}",
        records[0].attempts
    );
    assert_eq!((&records[3].seat, records[3].reason.as_str()), (&None, "all_full"));
    assert_eq!(records[3].attempts.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn sc_02_no_token_key_header_or_body_is_ever_in_the_store() {
    let bench = Bench::new("AB").await;
    bench.sandbox.script_always("*", MESSAGES, metered_stream());
    let said = "words-of-the-owner";
    bench.send(messages(&stream_body(OPUS, said))).await;
    let mut own = in_session(messages(&turn_body(OPUS, said)), "session-of-the-owner");
    own.headers_mut()
        .insert("authorization", "Bearer sk-ant-oat01-of-the-device".parse().unwrap());
    bench.send(own).await;
    bench
        .send(request(Method::GET, "/v1/models?key=in-the-query", Body::empty()))
        .await;
    let stranger = Request::post("/v1/messages").header("x-router-key", "rk-of-a-stranger");
    bench.send(stranger.body(Body::from("{}")).unwrap()).await;
    bench.pass(400).await;
    assert!(bench.records().await.len() >= 3);
    bench.gateway.close_books().await;
    let folder = Paths::new(bench.home.path(), None, |_| None).state;
    let files = files(&folder);
    assert!(files.iter().any(|file| file.ends_with("router.db")), "{files:?}");
    let secrets = [
        "tok-A",
        "tok-B",
        "rt-A",
        "rt-B",
        KEY,
        said,
        "session-of-the-owner",
        "of-the-device",
        "in-the-query",
        "of-a-stranger",
        "hello",
    ];
    for file in files {
        let bytes = fs::read(&file).unwrap();
        for secret in secrets {
            assert!(
                memchr::memmem::find(&bytes, secret.as_bytes()).is_none(),
                "`{secret}` is in {}",
                file.display()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn history_is_kept_as_long_as_the_settings_say() {
    let lasting = seat("A", 0.1, 0.1).expires_at_ms((T + 1_000_000) * 1_000);
    let bench = Bench::with(vec![lasting], json!({"historyDays": 1, "usagePollS": 86_400})).await;
    bench.turn(OPUS).await;
    bench.pass(13 * 3_600).await;
    bench.turn(OPUS).await;
    assert_eq!(bench.records().await.len(), 2);
    bench.pass(12 * 3_600).await;
    assert_eq!(bench.records().await.len(), 1, "the first is older than a day");

    settings(&bench, &json!({"historyDays": 0}));
    bench.pass(30).await;
    bench.turn(OPUS).await;
    bench.pass(2).await;
    assert_eq!(bench.records().await.len(), 0, "nothing is kept");
    let bench = bench.restarted().await;
    assert!(bench.seat("A").windows.iter().any(|window| window.kind == "fiveHour"));
}

#[tokio::test(start_paused = true)]
async fn cf_02_settings_change_under_a_running_stream_and_damaged_ones_do_not() {
    let bench = Bench::new("AB").await;
    let delta = |text: &str| SseStep::event(json!({"type": "content_block_delta", "delta": {"text": text}}));
    let slow = vec![
        delta("first"),
        SseStep::Wait(60_000),
        delta("last"),
        SseStep::event(json!({"type": "message_stop"})),
    ];
    bench.sandbox.script("tok-A", MESSAGES, Answer::sse(slow));
    let mut running = bench.open(messages(&stream_body(OPUS, "hello"))).await.into_body();
    running.frame().await.unwrap().unwrap();

    settings(
        &bench,
        &json!({"accounts": [{"seat": "A", "enabled": false, "name": "resting"}]}),
    );
    bench.pass(15).await;
    assert_eq!(bench.seat("resting").state.words(|_| String::new()), "switched off");
    bench.sandbox.take_requests();
    bench.new_turn(OPUS).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);

    let path = bench.settings_file();
    gateway::file::save(&path, b"{\"routerKey\":").unwrap();
    bench.pass(15).await;
    assert_eq!(bench.seat("resting").state.words(|_| String::new()), "switched off");
    assert!(bench.gateway.settings().refused().is_some());
    assert_eq!(bench.new_turn(OPUS).await.status, 200);

    settings(&bench, &json!({"routerKey": "rk-test-0002"}));
    bench.pass(15).await;
    assert_eq!(bench.gateway.settings().refused(), None);
    assert_eq!(bench.turn(OPUS).await.status, 401, "the old key opens nothing");

    let rest = running.collect().await.unwrap().to_bytes();
    assert!(
        String::from_utf8_lossy(&rest).contains("message_stop"),
        "the stream was not dropped"
    );
}

#[tokio::test(start_paused = true)]
async fn cf_02_a_damaged_list_of_devices_is_a_problem_until_it_is_mended_under_the_running_router() {
    let file = |home: &Path| Paths::new(home, None, |_| None).devices();
    let damaged = |home: &Path| gateway::file::save(&file(home), b"{\"devices\": [").unwrap();
    let store = Arc::new(Files);
    let bench = Bench::laid_out(vec![seat("A", 0.1, 0.1)], json!({}), store, damaged).await;
    let problems = || {
        let problems = bench.status().problems;
        problems.iter().map(|problem| problem.kind).collect::<Vec<_>>()
    };
    assert_eq!(problems(), [ProblemKind::DevicesDamaged]);
    assert_eq!(bench.turn(OPUS).await.status, 200, "the settings' key is good");

    let mended = json!({"devices": [{"id": "device-1", "name": "laptop", "keyHash": "0".repeat(64)}]});
    fs::write(file(bench.home.path()), mended.to_string()).unwrap();
    bench.pass(11).await;
    assert_eq!(problems(), []);
    let names: Vec<_> = bench.status().devices.into_iter().map(|device| device.name).collect();
    assert_eq!(names, ["first device", "laptop"]);
}
