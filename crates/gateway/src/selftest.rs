//! The router tries itself: a ping through its own sockets, then a question to Anthropic that costs nothing, on the way
//! that a device's request takes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

use crate::connect;
use crate::error;
use crate::forward;
use crate::gate;
use crate::ping::{self, PingError};

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

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("nothing is listened on: the address is not there, or its port is taken")]
    NotListening,
    #[error(transparent)]
    Ping(#[from] PingError),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("Anthropic did not answer in time")]
    NoAnswer,
    #[error("the router could not ask Anthropic: {0}")]
    NotAsked(String),
    #[error("Anthropic refused the login of {seat} ({status})")]
    LoginRefused { seat: String, status: u16 },
    #[error("Anthropic answers with {0}")]
    Trouble(u16),
}

impl Step {
    fn new(step: &str, outcome: Result<String, Fault>) -> Self {
        Self {
            step: step.to_owned(),
            ok: outcome.is_ok(),
            words: outcome.unwrap_or_else(|fault| fault.to_string()),
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
            true => Err(Fault::NotListening),
        },
    ));
    for &address in at {
        let url = connect::url(reachable(address), address.port());
        let pinged = ping::ping(&url, key, LIMIT).await;
        let outcome = pinged.map(|()| format!("{url} answers"));
        steps.push(Step::new("ping", outcome.map_err(Fault::Ping)));
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

/// Asks Anthropic something free through the router.
async fn ask(key: &str, router: axum::Router) -> Result<String, Fault> {
    let request = Request::get(FREE)
        .header(gate::ROUTER_KEY, key)
        .header("anthropic-version", "2023-06-01");
    let request = request.body(Body::empty())?;
    let Ok(Ok(answer)) = tokio::time::timeout(LIMIT * 2, router.oneshot(request)).await else {
        return Err(Fault::NoAnswer);
    };
    let headers = answer.headers();
    let word = |name: &http::HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    if let Some(kind) = word(&error::KIND) {
        return Err(Fault::NotAsked(kind));
    }
    let seat = word(&forward::SERVED_BY).unwrap_or_default();
    let status = answer.status().as_u16();
    match status {
        401 | 403 => Err(Fault::LoginRefused { seat, status }),
        500..=599 => Err(Fault::Trouble(status)),
        // What else it says of this question, it was reached and the login was read.
        _ => Ok(format!("Anthropic answers ({status}), through {seat}")),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::Response;

    use super::*;

    #[tokio::test]
    async fn the_last_step_goes_well_where_anthropic_was_reached_with_a_good_login() {
        for (status, kind, want) in [
            (200, None, Ok("Anthropic answers (200), through work")),
            (429, None, Ok("Anthropic answers (429), through work")),
            (401, None, Err("Anthropic refused the login of work (401)")),
            (403, None, Err("Anthropic refused the login of work (403)")),
            (529, None, Err("Anthropic answers with 529")),
            (503, Some("no_seat"), Err("the router could not ask Anthropic: no_seat")),
        ] {
            let answer = async move || {
                let answer = Response::builder().status(status).header(forward::SERVED_BY, "work");
                let answer = match kind {
                    Some(kind) => answer.header(error::KIND, kind),
                    None => answer,
                };
                answer.body(Body::empty()).unwrap()
            };
            let said = ask("rk-test-0001", axum::Router::new().fallback(answer)).await;
            let said = said.map_err(|fault| fault.to_string());
            assert_eq!(said, want.map(str::to_owned).map_err(str::to_owned));
        }
    }
}
