//! Whether a router can be used from here: step by step, naming the one that failed.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Collected};
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

use crate::ports::{self, UpstreamError, UpstreamProxy};

/// Where the router answers.
pub const PATH: &str = "/_router/ping";
/// What it says to a good key.
pub const GOOD: &str = "ok, and the key is good";
/// What it adds where no seat could serve the device.
pub const NO_SEAT: &str = "no seat";

/// A step on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// The router's name is known here.
    Name,
    /// Something listens there.
    Connect,
    /// What listens is a router.
    Service,
    /// It knows the key.
    Key,
    /// It has a seat for this device.
    Seat,
}

/// The step that failed, and what to look at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", self.word())]
pub struct PingError {
    /// Which one.
    pub step: Step,
    /// In words.
    pub what: String,
}

impl PingError {
    /// The step, as a word for programs.
    pub const fn word(&self) -> &'static str {
        match self.step {
            Step::Name => "name",
            Step::Connect => "connect",
            Step::Service => "service",
            Step::Key => "key",
            Step::Seat => "seat",
        }
    }
}

/// Checks the router at `url` with `key`; each step may take `limit`.
///
/// # Errors
/// The step that failed.
pub async fn ping(url: &str, key: &str, limit: Duration) -> Result<(), PingError> {
    let failed = |step, what: String| Err(PingError { step, what });
    let uri = url.parse().ok();
    let uri = uri.filter(|uri: &Uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")));
    let Some(uri) = uri else {
        return failed(
            Step::Name,
            format!("`{url}` is no address; it looks like `http://100.64.0.1:18787`"),
        );
    };
    let secure = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let found = tokio::time::timeout(limit, tokio::net::lookup_host((host, port))).await;
    let Ok(Ok(_)) = found else {
        return failed(
            Step::Name,
            format!("`{host}` is not known here; is Tailscale running on both machines, and the name right?"),
        );
    };
    let request = Request::get(format!("{}{PATH}", url.trim_end_matches('/'))).header("x-router-key", key);
    let Ok(request) = request.body(Body::empty()) else {
        return failed(Step::Key, "it holds characters that no key has".into());
    };
    let calls = match secure {
        true => ports::system_tls().ok(),
        false => Some(ports::no_tls()),
    };
    let Some(calls) = calls.and_then(|tls| ports::own_calls(tls, &UpstreamProxy::default()).ok()) else {
        return failed(Step::Connect, "this system's trust store cannot be used".into());
    };
    let answer = match tokio::time::timeout(limit, calls.oneshot(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(UpstreamError::Broken(_) | UpstreamError::Stale(_))) => {
            return failed(
                Step::Service,
                format!("something listens at {url}, but it does not speak HTTP"),
            );
        }
        Ok(Err(UpstreamError::Connect(_))) | Err(_) => {
            return failed(
                Step::Connect,
                format!(
                    "nothing answers at {host}:{port}; is the machine awake, the router running there, listening on that \
                     address, and let through by the firewall?"
                ),
            );
        }
    };
    let ours = answer.headers().contains_key("x-claude-proxy-router-error");
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if ours => {
            return failed(
                Step::Key,
                format!(
                    "the router at {url} does not know this key; `claude-proxy-router devices add` on its machine makes one"
                ),
            );
        }
        status => {
            return failed(
                Step::Service,
                format!("what answers at {url} is not a Claude Proxy Router (it said {status})"),
            );
        }
    }
    let body = tokio::time::timeout(limit, answer.into_body().collect()).await;
    let body = body
        .ok()
        .and_then(Result::ok)
        .map(Collected::to_bytes)
        .unwrap_or_default();
    let said = String::from_utf8_lossy(&body);
    match said.strip_prefix(GOOD) {
        None => failed(Step::Service, format!("what answers at {url} is not a Claude Proxy Router")),
        Some(more) if more.contains(NO_SEAT) => failed(
            Step::Seat,
            "the key is good, but no seat may serve this device: look at `claude-proxy-router status` on the router's machine"
                .into(),
        ),
        Some(_) => Ok(()),
    }
}
