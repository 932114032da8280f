//! The exchange of a refresh token for a new pair, at the token endpoint.

use axum::body::Body;
use http::{Request, StatusCode, header};
use jiff::SignedDuration;
use tower::ServiceExt as _;

use super::home::Home;
use super::{RefreshError, Renewer};
use crate::anthropic::{self, TokenAnswer};
use crate::credential::{Credential, Pair, Secret};
use crate::ledger::Fate;
use crate::lock::{self, LockError};
use crate::ports::UpstreamError;
use crate::usage::USER_AGENT;

/// A token answer is a few kilobytes.
const LIMIT: usize = 256 << 10;

impl Renewer {
    /// Sends the refresh token, which is marked as sent. Where it was not spent for sure, the mark is taken away.
    pub(super) async fn exchange(
        &self,
        mut homes: Vec<Home>,
        login: &Credential,
        refresh: &Secret,
    ) -> Result<(Vec<Home>, Pair), RefreshError> {
        let mut scopes = None;
        let unspent = loop {
            let now = self.clock.now();
            if let Err(lost) = homes.iter().try_for_each(|home| home.lock.check(now)) {
                break lost.into();
            }
            let answer;
            (homes, answer) = self.ask_under(homes, refresh, scopes.as_deref()).await;
            match answer {
                Ok(TokenAnswer::Granted(pair)) => return Ok((self.touched(homes).await, pair)),
                Ok(TokenAnswer::InvalidScope) if scopes.is_none() && !login.scopes.is_empty() => {
                    scopes = Some(login.scopes.join(" "));
                }
                Ok(TokenAnswer::InvalidScope) => break failed("it did not like the login's scopes".into(), None),
                Ok(TokenAnswer::Refused { status, retry_after }) => {
                    break failed(format!("it answered {status}"), retry_after);
                }
                Ok(TokenAnswer::Rejected) => return Err(self.rejected(&homes, refresh).await),
                Ok(TokenAnswer::Uncertain) | Err(UpstreamError::Broken(_) | UpstreamError::Stale(_)) => {
                    return Err(RefreshError::Uncertain);
                }
                Err(UpstreamError::Connect(error)) => break RefreshError::Unreachable(error.to_string()),
            }
        };
        self.clear(refresh).await;
        Err(unspent)
    }

    /// Asks, and says that the locks' holder lives while the answer is awaited.
    async fn ask_under(
        &self,
        mut homes: Vec<Home>,
        refresh: &Secret,
        scopes: Option<&str>,
    ) -> (Vec<Home>, Result<TokenAnswer, UpstreamError>) {
        let mut asking = std::pin::pin!(self.ask(refresh, scopes));
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return (homes, answer),
                () = tokio::time::sleep(lock::HEARTBEAT) => homes = self.touched(homes).await,
            }
        }
    }

    /// The token is dead, unless another has put a new one into a store meanwhile.
    async fn rejected(&self, homes: &[Home], refresh: &Secret) -> RefreshError {
        for Home { profile, .. } in homes {
            if self.read(profile).await.is_ok_and(|now| !now.holds(refresh)) {
                return RefreshError::Lock(LockError::Busy(profile.credentials()));
            }
        }
        // If this cannot be written, the token stays marked as sent, which keeps it from being sent again too.
        let _ = self.mark(refresh, Fate::Rejected).await;
        RefreshError::Rejected
    }

    async fn ask(&self, refresh: &Secret, scopes: Option<&str>) -> Result<TokenAnswer, UpstreamError> {
        let body = anthropic::refresh_request(refresh.expose(), scopes).to_string();
        let request = Request::builder()
            .method("POST")
            .uri(&self.token_url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Body::from(body))
            .map_err(|error| UpstreamError::Connect(error.into()))?;
        // The new token's life is counted from before the question: at the latest then it began.
        let asked = self.clock.now();
        let answer = self.calls.clone().oneshot(request).await?;
        let (head, body) = answer.into_parts();
        // A body that breaks off is an answer that was lost.
        let Ok(body) = axum::body::to_bytes(body, LIMIT).await else {
            return Ok(match head.status {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::INTERNAL_SERVER_ERROR => {
                    anthropic::read_token_answer(head.status, &head.headers, &[], asked)
                }
                _ => TokenAnswer::Uncertain,
            });
        };
        Ok(anthropic::read_token_answer(head.status, &head.headers, &body, asked))
    }
}

fn failed(what: String, retry_after: Option<SignedDuration>) -> RefreshError {
    RefreshError::Failed { what, retry_after }
}
