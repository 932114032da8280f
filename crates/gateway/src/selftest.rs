//! The router tries itself: a ping through its own sockets, then a question to Anthropic that costs nothing, on the way
//! that a device's request takes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

use crate::connect;
use crate::error;
use crate::forward;
use crate::gate;
use crate::ping;

/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(10);
/// A list of models: it needs a good login, and spends nothing of a plan.
const FREE: &str = "/v1/models?limit=1";

/// What became of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its name: `listen`, `ping` or `upstream`.
    pub step: String,
    /// Whether it went well.
    pub ok: bool,
    /// What was found, in words.
    pub words: String,
}

impl Step {
    fn new(step: &str, outcome: Result<String, String>) -> Self {
        Self {
            step: step.to_owned(),
            ok: outcome.is_ok(),
            words: outcome.unwrap_or_else(|words| words),
        }
    }
}

/// Tries the sockets `at` which the router listens, and `router` itself, with the first device's `key`. A step that
/// fails is the last one.
pub async fn run(at: &[SocketAddr], key: &str, router: axum::Router) -> Vec<Step> {
    let mut steps = Vec::new();
    let words: Vec<String> = at.iter().map(ToString::to_string).collect();
    steps.push(Step::new(
        "listen",
        match words.is_empty() {
            false => Ok(format!("listening on {}", words.join(" and "))),
            true => Err("nothing is listened on: the address is not there, or its port is taken".into()),
        },
    ));
    for &address in at {
        let url = connect::url(reachable(address), address.port());
        let pinged = ping::ping(&url, key, LIMIT).await;
        let outcome = pinged
            .map(|()| format!("{url} answers"))
            .map_err(|error| error.to_string());
        steps.push(Step::new("ping", outcome));
    }
    if steps.iter().all(|step| step.ok) {
        steps.push(Step::new("upstream", ask(key, router).await));
    }
    steps
}

/// Where this machine reaches a socket that listens on all addresses.
fn reachable(address: SocketAddr) -> std::net::IpAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        other => other.ip(),
    }
}

async fn ask(key: &str, router: axum::Router) -> Result<String, String> {
    let request = Request::get(FREE)
        .header(gate::ROUTER_KEY, key)
        .header("anthropic-version", "2023-06-01");
    let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
    let Ok(Ok(answer)) = tokio::time::timeout(LIMIT * 2, router.oneshot(request)).await else {
        return Err("Anthropic did not answer in time".into());
    };
    let headers = answer.headers();
    let word = |name: &http::HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    if let Some(kind) = word(&error::KIND) {
        return Err(format!("the router could not ask Anthropic: {kind}"));
    }
    let seat = word(&forward::SERVED_BY).unwrap_or_default();
    match answer.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(format!(
            "Anthropic refused the login of {seat} ({})",
            answer.status().as_u16()
        )),
        status if status.is_server_error() => Err(format!("Anthropic answers with {}", status.as_u16())),
        // What else it says of this question, it was reached and the login was read.
        status => Ok(format!("Anthropic answers ({}), through {seat}", status.as_u16())),
    }
}
