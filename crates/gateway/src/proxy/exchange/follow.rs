//! What follows from an attempt: the answer for the client, or another attempt.

use axum::response::Response;
use http::StatusCode;
use pool::{AccountId, Chances, End, Heard, Next, Outcome, Refusal};

use super::{Exchange, Kept};
use crate::answer::Answer;
use crate::body::UploadError;
use crate::error::ProxyError;
use crate::gate::Route;
use crate::ports::UpstreamError;
use crate::proxy::{close, words};
use crate::receipt::ReadFor;
use crate::record;
use crate::scheduler::LeaseGuard;

impl Exchange {
    /// What follows from the answer: a response for the client, or another attempt.
    pub(super) async fn next(&mut self, mut answer: Answer, heard: Heard, wanted: &pool::Request) -> Option<Response> {
        let account = answer.account.clone();
        let outcome = heard.outcome.clone();
        let chances = match outcome {
            // The usual case wants no clock.
            Outcome::Served | Outcome::PassedOn => Chances::NONE,
            _ => self.chances(),
        };
        let next = answer.judge(wanted, heard, chances);
        self.again = None;
        if next == Next::Deliver {
            if outcome == Outcome::OauthUnsupported {
                let message = answer.error.map(|error| error.message).unwrap_or_default();
                let label = self.label(&account);
                return Some(self.own_answer(&label, &ProxyError::OauthUnsupported { message }));
            }
            if matches!(outcome, Outcome::WrongPlace | Outcome::Challenged) {
                words::meant(&self.label(&account), &account, &outcome);
            }
            return Some(self.deliver(answer));
        }
        let label = self.label(&account);
        words::meant(&label, &account, &outcome);
        self.receipt.attempted(record::Attempt {
            seat: account.to_string(),
            reason: answer.reason.to_string(),
            status: Some(answer.head.status.as_u16()),
            came_of_it: record::came_of(&outcome),
        });
        answer.release();
        self.lacking |= outcome.is_of_the_plan();
        match next {
            Next::Deliver | Next::Reconnect => {}
            // One seat's limit is not the pool's.
            Next::TryAnother if !chances.movable && matches!(outcome, Outcome::Limited(_) | Outcome::Beyond(_)) => {
                return Some(self.own_answer(&label, &ProxyError::NotMovable));
            }
            Next::TryAnother | Next::TryAnotherOrDeliver | Next::TryOneOther if !chances.movable => {
                return Some(self.deliver(answer));
            }
            Next::TryAnother => {
                self.tried.gave(&account, &outcome);
                // What is paid for is not listened to.
                if !answer.head.status.is_success() {
                    answer.read_to_end().await;
                }
            }
            Next::TryAnotherOrDeliver | Next::TryOneOther => {
                self.moved |= next == Next::TryOneOther;
                self.tried.gave(&account, &outcome);
                self.kept = Some(Kept {
                    seat: answer.account.clone(),
                    response: answer.into_response(&label, None),
                    gives_way: next == Next::TryAnotherOrDeliver,
                });
            }
            Next::RereadAndRetry => {
                let another = self.proxy.roster.refused(&account, &answer.access).await;
                if !chances.movable {
                    return Some(self.own_answer(&label, &ProxyError::Exhausted));
                }
                // A seat gets a second try with another token, from the store or from a renewal, and no third.
                match self.reread.contains(&account) {
                    true => self.tried.gave(&account, &outcome),
                    false => {
                        self.reread.push(account.clone());
                        self.again = another.then_some(account);
                    }
                }
            }
            Next::RetryHere { after } => {
                self.retried = true;
                self.again = Some(account);
                drop(answer);
                tokio::time::sleep(after.unsigned_abs()).await;
            }
        }
        None
    }

    /// Hands the answer on as it came; its lease is settled at its last byte.
    fn deliver(&mut self, answer: Answer) -> Response {
        let read_for = match self.route {
            Route::NewFile | Route::NewBatch => Some(ReadFor::Issued),
            Route::Messages => Some(ReadFor::Turn {
                is_stream: answer.is_stream(),
            }),
            _ => None,
        };
        if let Some(read_for) = read_for.filter(|_| answer.head.status.is_success()) {
            self.receipt.read(read_for, &answer.head.headers);
        }
        let (status, reason) = (answer.head.status, answer.reason.to_string());
        let label = self.label(&answer.account);
        self.answered(Some(&answer.account), &label, status, &reason);
        answer.into_response(&label, self.busy.take())
    }

    /// Nobody serves it: what was kept from an earlier attempt, or why.
    pub(super) fn refused(&mut self, refusal: Refusal) -> Response {
        let error = words::refusal(refusal, |seat| self.label(seat));
        let full = matches!(error, ProxyError::AllFull { .. });
        if let Some(kept) = self.kept.take().filter(|kept| !(full && kept.gives_way)) {
            self.answered(Some(&kept.seat), "nobody else", kept.response.status(), "handed on");
            return kept.response;
        }
        let response = self.own_answer("nobody", &error);
        self.close_after(response)
    }

    /// No answer came: an answer of ours, unless the request may be sent once more over a new connection. It may where
    /// nothing was sent, and where a kept connection was closed while idle.
    pub(super) fn failed(
        &mut self,
        lease: LeaseGuard,
        error: &UpstreamError,
        wanted: &pool::Request,
    ) -> Option<Response> {
        let label = self.label(lease.account());
        let resend = !self.resent && self.upload.is_replayable();
        let chances = Chances {
            retry: resend,
            ..self.chances()
        };
        let (said, again) = match error {
            UpstreamError::Connect(_) => {
                let next = lease.judge(wanted, Outcome::Unreachable.into(), chances);
                let proxy = self.proxy.settings.now().proxy.clone();
                (ProxyError::Unreachable { proxy }, next == Next::Reconnect)
            }
            UpstreamError::Stale(_) => (ProxyError::Broken, resend),
            UpstreamError::Broken(_) => {
                lease.judge(wanted, Outcome::Broken.into(), chances);
                (ProxyError::Broken, false)
            }
        };
        if again {
            self.receipt.attempted(record::Attempt {
                seat: lease.account().to_string(),
                reason: String::new(),
                status: None,
                came_of_it: "no answer, over a connection that was closed".into(),
            });
            self.resent = true;
            self.again = Some(lease.account().clone());
            lease.settle(&End::Withdrawn);
            // Those beside it are not trusted either.
            self.proxy.network.drop_connections();
            return None;
        }
        let seat = lease.account().clone();
        lease.settle(&End::Whole);
        let response = self.proxy.answer(&said);
        self.log(&label, response.status(), &words::chain(error));
        self.receipt.answered(Some(&seat), response.status(), said.kind());
        Some(self.close_after(response))
    }

    /// An answer of ours after `seat` was asked.
    fn own_answer(&mut self, seat: &str, error: &ProxyError) -> Response {
        let response = self.proxy.answer(error);
        self.answered(None, seat, response.status(), error.kind());
        response
    }

    /// The client's body did not become whole.
    pub(super) fn broken_upload(&mut self, error: &UploadError) -> Response {
        match error {
            UploadError::TooLong => {
                words::too_long(&self.device.name, self.head.uri.path());
                let response = self.proxy.answer(&ProxyError::TooLong);
                self.receipt
                    .answered(None, response.status(), ProxyError::TooLong.kind());
                self.close_after(response)
            }
            // Nobody is there to read it.
            UploadError::ClientLeft => {
                self.receipt.left();
                self.proxy.answer(&ProxyError::Broken)
            }
        }
    }

    /// An answer of ours while the upload may still be on its way: the rest is dropped, the connection closed.
    fn close_after(&self, mut response: Response) -> Response {
        if !self.upload.is_complete() {
            close(&mut response);
        }
        response
    }

    /// Notes an answer's head, in the record and in the log: from that seat, or from us.
    fn answered(&mut self, seat: Option<&AccountId>, label: &str, status: StatusCode, reason: &str) {
        self.log(label, status, reason);
        self.receipt.answered(seat, status, reason);
    }

    fn log(&self, seat: &str, status: StatusCode, reason: &str) {
        let model = self.upload.found().and_then(|found| found.model.as_deref());
        words::answered(&self.device.name, &self.head, &self.route, model, status, seat, reason);
    }
}
