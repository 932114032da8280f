//! The natural rules: who is let in, what is spent, what is rotated.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod bench;

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bench::{T, ask, clock, message, read, refresh, request, send, two_seats, unified};
use sandbox::{Allowance, Sandbox, Seat, Verdict};
use serde_json::{Value, json};

#[tokio::test(start_paused = true)]
async fn the_first_check_that_fails_gives_the_answer() {
    let sandbox = two_seats();
    sandbox.add_seat(Seat::new("late").expires_at_ms(T * 1000));
    let live = sandbox.access_token("work");
    let late = sandbox.access_token("late");
    let oauth = Some("oauth-2025-04-20");
    for (token, beta, key, body, status, words) in [
        ("nobody", None, false, "{}", 401, "invalid bearer token"),
        (late.as_str(), None, false, "{}", 401, "OAuth token has expired"),
        (&live, None, true, "{}", 401, "currently not supported"),
        (&live, oauth, true, "{}", 401, "invalid x-api-key"),
        (&live, oauth, false, "no json", 400, "not valid JSON"),
        (&live, oauth, false, "{}", 400, "model"),
    ] {
        let mut request = Request::post("/v1/messages").header("authorization", format!("Bearer {token}"));
        if let Some(beta) = beta {
            request = request.header("anthropic-beta", beta);
        }
        if key {
            request = request.header("x-api-key", "k");
        }
        let response = send(&sandbox, request.body(Body::from(body)).unwrap()).await;
        assert_eq!(response.status().as_u16(), status, "{words}");
        assert!(response.headers().contains_key("request-id"), "{words}");
        let error = read(response).await;
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_names_its_seat_and_what_is_left_of_it() {
    let sandbox = two_seats();
    sandbox.use_up("work", Allowance::FiveHour, 0.62);
    let response = message(&sandbox, "work", &ask("claude-opus-4-5")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(unified(&response, "5h-utilization"), Some("0.62"));
    assert_eq!(unified(&response, "status"), Some("allowed"));
    assert_eq!(
        unified(&response, "5h-reset"),
        Some((T + 5 * 3600).to_string().as_str())
    );
    assert_eq!(unified(&response, "7d_oi-status"), None);
    assert!(response.headers().contains_key("anthropic-organization-id"));
    let text = read(response).await["content"][0]["text"].clone();
    assert_eq!(text, "Hello from the sandbox, served by seat `work`.");
}

#[tokio::test(start_paused = true)]
async fn a_used_up_allowance_says_when_it_resets_and_does() {
    let sandbox = Sandbox::new(clock());
    sandbox.add_seat(Seat::new("work").cost(0.5).five_hour(0.0, T + 100));
    for (used, status) in [("0.5", "allowed"), ("1.0", "allowed_warning")] {
        let response = message(&sandbox, "work", &ask("claude-opus-4-5")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(unified(&response, "5h-utilization"), Some(used));
        assert_eq!(unified(&response, "status"), Some(status));
    }
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    let response = message(&sandbox, "work", &ask("claude-opus-4-5")).await;
    assert_eq!(response.status(), 429);
    assert_eq!(unified(&response, "status"), Some("rejected"));
    assert_eq!(unified(&response, "representative-claim"), Some("five_hour"));
    assert_eq!(unified(&response, "7d-status"), Some("allowed"));
    assert_eq!(unified(&response, "7d-utilization"), Some("0.125"));
    assert_eq!(response.headers()["retry-after"], "90");
    assert_eq!(response.headers()["x-should-retry"], "true");
    tokio::time::sleep(Duration::from_secs(90)).await;
    let response = message(&sandbox, "work", &ask("claude-opus-4-5")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(unified(&response, "5h-utilization"), Some("0.5"));
}

#[tokio::test(start_paused = true)]
async fn the_claim_names_the_allowance_that_is_missing() {
    for (allowance, model, status, claim) in [
        (Allowance::FiveHour, "claude-opus-4-5", 429, "five_hour"),
        (Allowance::Weekly, "claude-opus-4-5", 429, "seven_day"),
        (Allowance::Fable, "claude-opus-4-5", 200, "five_hour"),
        (Allowance::Fable, "claude-fable-5", 429, "seven_day_overage_included"),
    ] {
        let sandbox = Sandbox::new(clock());
        sandbox.add_seat(Seat::new("work").with_fable());
        sandbox.use_up("work", allowance, 1.0);
        let response = message(&sandbox, "work", &ask(model)).await;
        assert_eq!(response.status(), status, "{allowance:?} {model}");
        assert_eq!(unified(&response, "representative-claim"), Some(claim));
        assert_eq!(unified(&response, "7d_oi-status").is_some(), model.contains("fable"));
    }
}

#[tokio::test(start_paused = true)]
async fn usage_and_profile_tell_the_same_story() {
    let sandbox = Sandbox::new(clock());
    sandbox.add_seat(Seat::new("work").with_fable().five_hour(0.37, T + 60));
    sandbox.use_up("work", Allowance::Fable, 0.81);
    let token = sandbox.access_token("work");
    let get = |path| send(&sandbox, request(&token, "GET", path, &Value::Null));
    let usage = read(get("/api/oauth/usage").await).await;
    assert_eq!(usage["five_hour"]["utilization"], 37.0);
    assert_eq!(usage["five_hour"]["resets_at"], "2026-11-30T00:54:20.000000+00:00");
    assert_eq!(usage["seven_day"], json!({"utilization": 0.0, "resets_at": null}));
    let kinds: Vec<&str> = usage["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["session", "weekly_all", "weekly_scoped"]);
    assert_eq!(usage["limits"][2]["severity"], "warning");
    let profile = read(get("/api/oauth/profile").await).await;
    assert_eq!(profile["account"]["email"], "work@example.com");
    assert_eq!(profile["organization"]["organization_type"], "claude_max");
}

#[tokio::test(start_paused = true)]
async fn files_and_batches_belong_to_one_seat() {
    let sandbox = two_seats();
    let (work, home) = (sandbox.access_token("work"), sandbox.access_token("home"));
    let file = read(send(&sandbox, request(&work, "POST", "/v1/files", &json!("bytes"))).await).await;
    let batch = read(send(&sandbox, request(&work, "POST", "/v1/messages/batches", &json!({}))).await).await;
    let file = file["id"].as_str().unwrap();
    let batch = batch["id"].as_str().unwrap();
    let mut with_file = ask("claude-opus-4-5");
    with_file["messages"][0]["content"] = json!([{"type": "document", "source": {"type": "file", "file_id": file}}]);
    for (method, target, body) in [
        ("GET", format!("/v1/files/{file}"), Value::Null),
        ("GET", format!("/v1/messages/batches/{batch}"), Value::Null),
        ("POST", "/v1/messages".to_owned(), with_file),
        ("DELETE", format!("/v1/files/{file}"), Value::Null),
    ] {
        for (token, status) in [(&home, 404), (&work, 200)] {
            let response = send(&sandbox, request(token, method, &target, &body)).await;
            assert_eq!(response.status(), status, "{method} {target}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_path_has_its_answer() {
    let sandbox = two_seats();
    let token = sandbox.access_token("work");
    for (method, path, status) in [
        ("HEAD", "/api/hello", 200),
        ("GET", "/v1/models?limit=1000", 200),
        ("POST", "/v1/messages/count_tokens?beta=true", 200),
        ("POST", "/api/event_logging/v2/batch", 200),
        ("GET", "/v1/files", 200),
        ("GET", "/v1/nothing", 404),
    ] {
        let response = send(&sandbox, request(&token, method, path, &ask("claude-opus-4-5"))).await;
        assert_eq!(response.status(), status, "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_rotates_the_pair_and_the_old_access_token_dies() {
    let sandbox = two_seats();
    let (access, first) = (sandbox.access_token("work"), sandbox.refresh_token("work"));
    let (status, pair) = refresh(&sandbox, &first).await;
    assert_eq!(status, 200);
    assert_eq!(pair["expires_in"], 28_800);
    assert_eq!(pair["access_token"], sandbox.access_token("work"));
    assert_eq!(pair["refresh_token"], sandbox.refresh_token("work"));
    assert_ne!(pair["refresh_token"], first);
    assert_eq!(message(&sandbox, "work", &ask("claude-opus-4-5")).await.status(), 200);
    let old = request(&access, "POST", "/v1/messages", &ask("claude-opus-4-5"));
    assert_eq!(send(&sandbox, old).await.status(), 401);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_token_used_twice_kills_its_family_and_no_other() {
    let sandbox = two_seats();
    let first = sandbox.refresh_token("work");
    assert_eq!(refresh(&sandbox, &first).await.0, 200);
    let (status, error) = refresh(&sandbox, &first).await;
    assert_eq!((status, &error["error"]), (400, &json!("invalid_grant")));
    let live = sandbox.refresh_token("work");
    assert_eq!(refresh(&sandbox, &live).await.0, 400);
    assert_eq!(message(&sandbox, "work", &ask("claude-opus-4-5")).await.status(), 401);
    assert_eq!(message(&sandbox, "home", &ask("claude-opus-4-5")).await.status(), 200);
    let verdicts: Vec<Verdict> = sandbox.token_posts().iter().map(|post| post.verdict).collect();
    assert_eq!(verdicts, [Verdict::Rotated, Verdict::Reused, Verdict::Unknown]);

    sandbox.log_in_again("work");
    assert_eq!(refresh(&sandbox, &first).await.0, 400);
    assert_eq!(message(&sandbox, "work", &ask("claude-opus-4-5")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_token_endpoint_wants_json() {
    let sandbox = two_seats();
    let form = Request::post("/v1/oauth/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from("grant_type=refresh_token"))
        .unwrap();
    assert_eq!(send(&sandbox, form).await.status(), 429);
    assert_eq!(refresh(&sandbox, "never-seen").await.0, 400);
    let verdicts: Vec<Verdict> = sandbox.token_posts().iter().map(|post| post.verdict).collect();
    assert_eq!(verdicts, [Verdict::Malformed, Verdict::Unknown]);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_access_token_is_renewed_by_its_refresh_token() {
    let sandbox = two_seats();
    sandbox.revoke_access("work");
    assert_eq!(message(&sandbox, "work", &ask("claude-opus-4-5")).await.status(), 401);
    assert_eq!(refresh(&sandbox, &sandbox.refresh_token("work")).await.0, 200);
    assert_eq!(message(&sandbox, "work", &ask("claude-opus-4-5")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_demo_fails_over_fills_up_and_recovers() {
    let sandbox = sandbox::demo(clock());
    let seats = ["personal", "work", "spare"];
    let mut served = [0; 3];
    for (index, seat) in seats.iter().enumerate() {
        while message(&sandbox, seat, &ask("claude-opus-4-5")).await.status() == 200 {
            served[index] += 1;
        }
    }
    assert_eq!(served, [6, 12, 3]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    for seat in seats {
        assert_eq!(message(&sandbox, seat, &ask("claude-opus-4-5")).await.status(), 200);
    }
}
