//! The exchange of a refresh token for a new pair, at the token endpoint.

use axum::body::Body;
use http::{Request, StatusCode, header};
use jiff::SignedDuration;
use tower::ServiceExt as _;

use super::{RefreshError, Renewer, blocking};
use crate::anthropic::{self, TokenAnswer};
use crate::credential::{Credential, Pair, Secret};
use crate::ledger::Fate;
use crate::lock::{self, LockError, ProfileLock};
use crate::ports::UpstreamError;
use crate::profile::Profile;
use crate::usage::USER_AGENT;

/// A token answer is a few kilobytes.
const LIMIT: usize = 256 << 10;

impl Renewer {
    /// Sends the refresh token, which is marked as sent. Where it was not spent for sure, the mark is taken away.
    pub(super) async fn exchange(
        &self,
        profile: &Profile,
        mut lock: ProfileLock,
        login: &Credential,
        refresh: &Secret,
    ) -> Result<(ProfileLock, Pair), RefreshError> {
        let mut scopes = None;
        let unspent = loop {
            if let Err(lost) = lock.check(self.clock.now()) {
                break lost.into();
            }
            let answer;
            (lock, answer) = self.ask_under(lock, refresh, scopes.as_deref()).await;
            match answer {
                Ok(TokenAnswer::Granted(pair)) => return Ok((self.touched(lock).await, pair)),
                Ok(TokenAnswer::InvalidScope) if scopes.is_none() && !login.scopes.is_empty() => {
                    scopes = Some(login.scopes.join(" "));
                }
                Ok(TokenAnswer::InvalidScope) => break failed("it did not like the login's scopes".into(), None),
                Ok(TokenAnswer::Refused { status, retry_after }) => {
                    break failed(format!("it answered {status}"), retry_after);
                }
                Ok(TokenAnswer::Rejected) => return Err(self.rejected(profile, refresh).await),
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
        mut lock: ProfileLock,
        refresh: &Secret,
        scopes: Option<&str>,
    ) -> (ProfileLock, Result<TokenAnswer, UpstreamError>) {
        let mut asking = std::pin::pin!(self.ask(refresh, scopes));
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return (lock, answer),
                () = tokio::time::sleep(lock::HEARTBEAT) => lock = self.touched(lock).await,
            }
        }
    }

    async fn touched(&self, mut lock: ProfileLock) -> ProfileLock {
        let now = self.clock.now();
        blocking(move || {
            // A lock that was taken from us shows when it is checked.
            let _ = lock.touch(now);
            lock
        })
        .await
    }

    /// The token is dead, unless another has put a new one into the store meanwhile.
    async fn rejected(&self, profile: &Profile, refresh: &Secret) -> RefreshError {
        if let Ok(now) = self.read(profile).await
            && !now.holds(refresh)
        {
            return RefreshError::Lock(LockError::Busy(profile.credentials()));
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
