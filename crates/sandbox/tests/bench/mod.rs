//! What the tests share: a clock that follows tokio's, seats, and requests in memory.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use sandbox::{Now, Sandbox, Seat};
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) const T: i64 = 1_796_000_000;

/// Milliseconds that advance with tokio's clock, which the tests pause.
pub(crate) fn clock() -> Now {
    let start = tokio::time::Instant::now();
    Arc::new(move || {
        let passed = i64::try_from(start.elapsed().as_millis()).expect("tests are short");
        T * 1000 + passed
    })
}

/// Seats `work` and `home`.
pub(crate) fn two_seats() -> Sandbox {
    let sandbox = Sandbox::new(clock());
    sandbox.add_seat(Seat::new("work"));
    sandbox.add_seat(Seat::new("home"));
    sandbox
}

pub(crate) fn ask(model: &str) -> Value {
    json!({"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]})
}

pub(crate) fn request(token: &str, method: &str, target: &str, body: &Value) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(target)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("anthropic-beta", "claude-code-20250219,oauth-2025-04-20")
        .body(Body::from(body.to_string()))
        .unwrap()
}

pub(crate) async fn send(sandbox: &Sandbox, request: Request<Body>) -> Response<Body> {
    sandbox.router().oneshot(request).await.unwrap()
}

/// A question to the seat with its live token.
pub(crate) async fn message(sandbox: &Sandbox, seat: &str, body: &Value) -> Response<Body> {
    let token = sandbox.access_token(seat);
    send(sandbox, request(&token, "POST", "/v1/messages?beta=true", body)).await
}

pub(crate) async fn refresh(sandbox: &Sandbox, refresh_token: &str) -> (u16, Value) {
    let grant = json!({"grant_type": "refresh_token", "refresh_token": refresh_token});
    let response = send(sandbox, request("none", "POST", "/v1/oauth/token", &grant)).await;
    (response.status().as_u16(), read(response).await)
}

pub(crate) async fn bytes(response: Response<Body>) -> Vec<u8> {
    let body = response.into_body().collect().await.unwrap();
    body.to_bytes().to_vec()
}

pub(crate) async fn read(response: Response<Body>) -> Value {
    serde_json::from_slice(&bytes(response).await).unwrap()
}

pub(crate) fn unified<'a>(response: &'a Response<Body>, suffix: &str) -> Option<&'a str> {
    let name = format!("anthropic-ratelimit-unified-{suffix}");
    response.headers().get(name)?.to_str().ok()
}
