//! Asks for one seat's usage.

use axum::body::Body;
use http::{Request, StatusCode, Uri, header};
use jiff::{SignedDuration, Timestamp};
use pool::{Poll, Window, WindowKind};
use tower::ServiceExt as _;

use crate::anthropic;
use crate::credential::Secret;
use crate::ports::Upstream;

/// Who we say we are in our own calls: ourselves.
pub const USER_AGENT: &str = concat!("claude-proxy-router/", env!("CARGO_PKG_VERSION"));
/// A usage answer is a few kilobytes.
const LIMIT: usize = 256 << 10;

/// Asks `origin` for the usage of the seat with that token. Returns how the poll ended and what it read.
pub async fn poll(calls: Upstream, origin: &Uri, access: &Secret, now: Timestamp) -> (Poll, Vec<(WindowKind, Window)>) {
    let request = Request::builder()
        .uri(at(origin, anthropic::USAGE_PATH))
        .header(header::AUTHORIZATION, format!("Bearer {}", access.expose()))
        .header(anthropic::BETA, anthropic::OAUTH_BETA)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, USER_AGENT)
        .body(Body::empty());
    let Ok(request) = request else {
        return (Poll::Failed, Vec::new());
    };
    let answer = match calls.oneshot(request).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::debug!("could not ask for usage: {error}");
            return (Poll::Failed, Vec::new());
        }
    };
    let poll = match answer.status() {
        StatusCode::OK => {
            let body = axum::body::to_bytes(answer.into_body(), LIMIT)
                .await
                .unwrap_or_default();
            return match anthropic::parse_usage(&body, now) {
                Ok(windows) => (Poll::Read, windows),
                Err(error) => {
                    tracing::warn!("usage endpoint: {error}");
                    (Poll::Failed, Vec::new())
                }
            };
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let hint = answer.headers().get(header::RETRY_AFTER);
            let hint = hint.and_then(|hint| hint.to_str().ok()?.parse::<u32>().ok());
            Poll::Throttled(hint.map(|seconds| SignedDuration::from_secs(seconds.into())))
        }
        StatusCode::FORBIDDEN => Poll::Forbidden,
        _ => Poll::Failed,
    };
    tracing::debug!("usage endpoint answered {}", answer.status());
    (poll, Vec::new())
}

fn at(origin: &Uri, path: &str) -> String {
    format!(
        "{}://{}{path}",
        origin.scheme_str().unwrap_or("https"),
        origin.authority().map_or("", |authority| authority.as_str())
    )
}
