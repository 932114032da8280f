//! The genuine Claude Code through the router, over the sandbox: what a person at a device sees.
//!
//! Only where `GENUINE_CLAUDE` names it, and only where loopback is all there is; `scripts/test` sees to both.

#![expect(clippy::unwrap_used, reason = "the helpers are tests, too")]

mod support;

use serde_json::{Value, json};

use support::claude::{DEVICE_TOKEN, Device, Mode, genuine};
use support::wire::Asked;
use support::{KEY, Router};

const FROM_WORK: &str = "Hello from the sandbox, served by seat `work`.";
const FROM_PERSONAL: &str = "Hello from the sandbox, served by seat `personal`.";
const BOTH: [Mode; 2] = [Mode::Token, Mode::Login];

/// The values of a header that the pretended Anthropic received, list by list.
fn values<'a>(request: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = request["headers"].as_array().unwrap();
    let named = headers.iter().filter(|header| header[0] == name);
    named
        .flat_map(|header| header[1].as_str().unwrap().split(',').map(str::trim))
        .collect()
}

/// How often a request names the scheme of its bearer.
fn oauth_betas(request: &Value) -> usize {
    let betas = values(request, "anthropic-beta");
    betas.iter().filter(|beta| **beta == "oauth-2025-04-20").count()
}

#[tokio::test]
async fn a_turn_in_token_mode_is_one_request_with_the_login_of_the_seat_with_the_most_room() {
    let Some(claude) = genuine() else { return };
    let router = Router::start().await;
    let ended = Device::new(&claude, &router, Mode::Token).await.say("say hi").await;

    assert_eq!((ended.status, ended.text(), ended.retries()), (0, FROM_WORK, 0));
    assert_eq!(ended.asked.len(), 1);
    let turns = router.turns().await;
    let [turn] = turns.as_slice() else { panic!("{turns:?}") };
    assert_eq!(turn["target"], "/v1/messages?beta=true");
    assert_eq!(values(turn, "authorization"), ["Bearer sk-ant-oat01-sandbox-work"]);
    assert_eq!(oauth_betas(turn), 1);
    assert!(!turn.to_string().contains(KEY));
    assert_eq!(
        turn["body"].as_str().unwrap().as_bytes(),
        ended.asked[0].body,
        "byte for byte"
    );
    assert!(!router.output().contains("say hi"));
}

#[tokio::test]
async fn a_turn_in_login_mode_leaves_the_devices_own_login_at_the_router() {
    let Some(claude) = genuine() else { return };
    let router = Router::start().await;
    let device = Device::new(&claude, &router, Mode::Login).await;
    let login = device.login();
    let ended = device.say("say hi").await;

    assert_eq!((ended.status, ended.text(), ended.retries()), (0, FROM_WORK, 0));
    let sent = ended.turns();
    let [sent] = sent.as_slice() else { panic!("{sent:?}") };
    assert!(
        sent.head.contains(DEVICE_TOKEN) && sent.head.contains(&format!("x-router-key: {KEY}")),
        "{}",
        sent.head
    );
    let turns = router.turns().await;
    let [turn] = turns.as_slice() else { panic!("{turns:?}") };
    assert_eq!(values(turn, "authorization"), ["Bearer sk-ant-oat01-sandbox-work"]);
    assert_eq!(oauth_betas(turn), 1);
    let received = json!(router.requests().await).to_string();
    for (place, text) in [
        ("the pretended Anthropic", received),
        ("the router's output", router.output()),
    ] {
        assert!(!text.contains(DEVICE_TOKEN), "{place}");
    }
    assert!(!turn.to_string().contains(KEY));
    assert_eq!(device.login(), login);
}

#[tokio::test]
async fn a_seat_at_its_limit_is_passed_over_and_nobody_notices() {
    let Some(claude) = genuine() else { return };
    for mode in BOTH {
        let router = Router::start().await;
        router
            .script("work", json!({"preset": "rejected_five_hour", "reset_in_s": 3600}))
            .await;
        let ended = Device::new(&claude, &router, mode).await.say("say hi").await;

        assert_eq!(
            (ended.status, ended.text(), ended.retries()),
            (0, FROM_PERSONAL, 0),
            "{mode:?}"
        );
        assert_eq!(ended.turns().len(), 1, "{mode:?}");
        assert_eq!(router.seats_asked().await, ["work", "personal"], "{mode:?}");
    }
}

/// A router whose seats are all full; `work` is the first to return.
async fn full_router() -> Router {
    let router = Router::start().await;
    for (seat, reset_in_s) in [("work", 3600), ("personal", 5400), ("spare", 7200)] {
        router.use_up(seat, reset_in_s).await;
    }
    router
}

#[tokio::test]
async fn when_all_seats_are_full_one_request_tells_the_person_until_when() {
    let Some(claude) = genuine() else { return };
    for (mode, before, after) in [
        (
            Mode::Token,
            "API Error: Request rejected (429) · Claude Proxy Router: all 3 seats have reached a limit; \
             the first returns from its 5-hour limit at ",
            "m (UTC), in 1 h.",
        ),
        // Claude Code's own sentence.
        (Mode::Login, "You've hit your 5-hour limit · resets ", "m (UTC)"),
    ] {
        let router = full_router().await;
        let ended = Device::new(&claude, &router, mode).await.say("say hi").await;

        assert_eq!(
            (ended.status, ended.retries(), ended.turns().len()),
            (1, 0, 1),
            "{mode:?}"
        );
        assert_eq!(ended.result()["api_error_status"], 429);
        assert!(
            ended.text().starts_with(before) && ended.text().ends_with(after),
            "{}",
            ended.text()
        );
        assert_eq!(router.seats_asked().await, ["work", "personal", "spare"]);
    }
}

#[tokio::test]
async fn a_wrong_key_is_said_once_and_touches_no_login() {
    let Some(claude) = genuine() else { return };
    let router = Router::start().await;
    for (mode, status) in [(Mode::Token, 401), (Mode::Login, 403)] {
        let device = Device::new(&claude, &router, mode).await.with_key("not-this-key");
        let login = device.login();
        let ended = device.say("say hi").await;

        assert_eq!(
            (ended.status, ended.retries(), ended.turns().len()),
            (1, 0, 1),
            "{mode:?}"
        );
        assert_eq!(ended.result()["api_error_status"], status);
        let sentence = format!(
            "Failed to authenticate. API Error: {status} Claude Proxy Router does not know this key. Nothing was \
             forwarded. On the machine it runs on, `claude-proxy-router devices add NAME` makes one and shows what to set."
        );
        assert_eq!(ended.text(), sentence);
        assert_eq!(device.login(), login, "{mode:?}");
    }
    assert!(router.turns().await.is_empty());
    assert!(!router.output().contains("not-this-key") && !router.output().contains(DEVICE_TOKEN));
}

#[tokio::test]
async fn the_start_up_probe_is_answered_without_a_key() {
    let Some(claude) = genuine() else { return };
    let router = Router::start().await;
    for mode in BOTH {
        let ended = Device::new(&claude, &router, mode)
            .await
            .talkative()
            .say("say hi")
            .await;

        assert_eq!((ended.status, ended.text()), (0, FROM_WORK), "{mode:?}");
        let probe = ended
            .asked
            .iter()
            .find(|asked| asked.head.starts_with("HEAD /api/hello "));
        let probe = probe.expect("Claude Code asks whether somebody is there");
        assert!(!probe.head.contains(KEY), "{}", probe.head);
        assert!(probe.answered.starts_with("HTTP/1.1 200 OK\r\n"), "{}", probe.answered);
    }
}

#[tokio::test]
async fn tokens_are_counted_by_a_seat_many_at_once() {
    let Some(claude) = genuine() else { return };
    let router = Router::start().await;
    let ended = Device::new(&claude, &router, Mode::Token).await.say("/context").await;

    assert_eq!((ended.status, ended.retries()), (0, 0));
    assert!(ended.text().starts_with("## Context Usage"), "{}", ended.text());
    let mut requests = router.requests().await;
    requests.retain(|request| request["path"] == "/v1/messages/count_tokens");
    assert!(requests.len() > 10, "{}", requests.len());
    assert_eq!(requests.len(), ended.asked.len());
    for request in &requests {
        assert_eq!(request["target"], "/v1/messages/count_tokens?beta=true");
        assert_eq!(values(request, "authorization"), ["Bearer sk-ant-oat01-sandbox-work"]);
    }
    for asked in &ended.asked {
        assert!(asked.answered.starts_with("HTTP/1.1 200 OK\r\n"), "{}", asked.answered);
        assert!(
            asked.answered.contains("x-claude-proxy-router: work; "),
            "{}",
            asked.answered
        );
    }
    assert!(
        !router.output().contains("count_tokens"),
        "a burst of side calls leaves the log alone"
    );
}

#[tokio::test]
async fn a_stream_that_goes_wrong_ends_in_an_answer() {
    let Some(claude) = genuine() else { return };
    // Whether each request of the client asked for a stream, and how often it said that it tries again.
    let table: [(&str, &[bool], usize); 5] = [
        ("cut", &[true, true], 1),
        ("truncated", &[true, true], 1),
        ("empty", &[true, false], 0),
        ("error_mid", &[true, false], 0),
        // Nothing was handed on yet, so the router itself asks once more.
        ("error_first", &[true], 0),
    ];
    for (sse, streamed, retries) in table {
        let router = Router::start().await;
        router.script("work", json!({"sse": sse})).await;
        let ended = Device::new(&claude, &router, Mode::Token).await.say("say hi").await;

        assert_eq!(
            (ended.status, ended.text(), ended.retries()),
            (0, FROM_WORK, retries),
            "{sse}"
        );
        let asked: Vec<bool> = ended.turns().into_iter().map(asks_for_a_stream).collect();
        assert_eq!(asked, streamed, "{sse}");
        assert_eq!(router.seats_asked().await, ["work", "work"], "{sse}");
    }
}

fn asks_for_a_stream(turn: &Asked) -> bool {
    let body: Value = serde_json::from_slice(&turn.body).unwrap();
    body["stream"] == true
}

#[tokio::test]
async fn a_seat_whose_login_is_refused_is_passed_over_and_nobody_notices() {
    let Some(claude) = genuine() else { return };
    for mode in BOTH {
        let router = Router::start().await;
        let error = json!({"type": "authentication_error", "message": "invalid bearer token"});
        router
            .script(
                "work",
                json!({"status": 401, "body": {"type": "error", "error": error}}),
            )
            .await;
        let device = Device::new(&claude, &router, mode).await;
        let login = device.login();
        let ended = device.say("say hi").await;

        assert_eq!(
            (ended.status, ended.text(), ended.retries()),
            (0, FROM_PERSONAL, 0),
            "{mode:?}"
        );
        assert_eq!(ended.turns().len(), 1, "{mode:?}");
        assert_eq!(router.seats_asked().await, ["work", "personal"], "{mode:?}");
        assert_eq!(device.login(), login, "{mode:?}");
    }
}
