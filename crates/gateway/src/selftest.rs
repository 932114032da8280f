//! The router tries itself: a ping through its own sockets, then a question to Anthropic that costs nothing, on the way
//! that a device's request takes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
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
    /// Why it failed, as a word for programs.
    pub kind: Option<String>,
    /// How long it took, in milliseconds.
    pub ms: u64,
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

impl Fault {
    /// The word for programs. The router's own refusals keep theirs, and so do the steps of a ping.
    fn kind(&self) -> &str {
        match self {
            Self::NotListening => "not_listening",
            Self::Ping(failed) => failed.word(),
            Self::Request(_) => "internal",
            Self::NoAnswer => "no_answer",
            Self::NotAsked(kind) => kind,
            Self::LoginRefused { .. } => "login_refused",
            Self::Trouble(_) => "trouble",
        }
    }
}

/// Tries the sockets `at` which the router listens, and `router` itself, with the first device's `key`. A step that
/// fails is the last one.
pub async fn run(at: &[SocketAddr], key: &str, router: axum::Router) -> Vec<Step> {
    let mut steps = vec![step("listen", async { listening(at) }).await];
    for &address in at {
        steps.push(step("ping", call(address, key)).await);
    }
    if steps.iter().all(|step| step.ok) {
        steps.push(step("upstream", ask(key, router)).await);
    }
    steps
}

/// Takes the step of that name, and measures how long it takes.
async fn step(name: &str, outcome: impl Future<Output = Result<String, Fault>>) -> Step {
    let began = Instant::now();
    let outcome = outcome.await;
    Step {
        step: name.to_owned(),
        ok: outcome.is_ok(),
        kind: outcome.as_ref().err().map(|fault| fault.kind().to_owned()),
        words: outcome.unwrap_or_else(|fault| fault.to_string()),
        ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

fn listening(at: &[SocketAddr]) -> Result<String, Fault> {
    let words: Vec<String> = at.iter().map(ToString::to_string).collect();
    match words.is_empty() {
        false => Ok(format!("listening on {}", words.join(" and "))),
        true => Err(Fault::NotListening),
    }
}

/// Calls the router at its own socket.
async fn call(address: SocketAddr, key: &str) -> Result<String, Fault> {
    let url = connect::url(reachable(address), address.port());
    ping::ping(&url, key, LIMIT).await?;
    Ok(format!("{url} answers"))
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
        for (status, refusal, want, kind) in [
            (200, None, "Anthropic answers (200), through work", None),
            (429, None, "Anthropic answers (429), through work", None),
            (
                401,
                None,
                "Anthropic refused the login of work (401)",
                Some("login_refused"),
            ),
            (
                403,
                None,
                "Anthropic refused the login of work (403)",
                Some("login_refused"),
            ),
            (529, None, "Anthropic answers with 529", Some("trouble")),
            (
                503,
                Some("no_seat"),
                "the router could not ask Anthropic: no_seat",
                Some("no_seat"),
            ),
        ] {
            let answer = async move || {
                let answer = Response::builder().status(status).header(forward::SERVED_BY, "work");
                let answer = match refusal {
                    Some(kind) => answer.header(error::KIND, kind),
                    None => answer,
                };
                answer.body(Body::empty()).unwrap()
            };
            let router = axum::Router::new().fallback(answer);
            let said = step("upstream", ask("rk-test-0001", router)).await;
            assert_eq!((said.words.as_str(), said.kind.as_deref()), (want, kind));
            assert_eq!((said.step.as_str(), said.ok), ("upstream", kind.is_none()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_tells_how_long_it_took() {
        let slow = async || {
            tokio::time::sleep(Duration::from_millis(212)).await;
            Response::new(Body::empty())
        };
        let router = axum::Router::new().fallback(slow);
        assert_eq!(step("upstream", ask("rk-test-0001", router)).await.ms, 212);
    }

    #[tokio::test]
    async fn each_failure_has_a_word_of_its_own() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        for (at, want) in [
            (&[][..], [("listen", Some("not_listening"))].as_slice()),
            (&[silent], &[("listen", None), ("ping", Some("connect"))]),
        ] {
            let steps = run(at, "rk-test-0001", axum::Router::new()).await;
            let told: Vec<_> = steps
                .iter()
                .map(|step| (step.step.as_str(), step.kind.as_deref()))
                .collect();
            assert_eq!(told, want);
        }
    }
}
