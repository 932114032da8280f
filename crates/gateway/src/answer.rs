//! A seat's answer: as much of it as decides what it means is read and kept, and the whole is handed on as it came.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::response::Parts;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use pool::{AccountId, Chances, End, Heard, Next, Outcome, Reason, Request};

use crate::anthropic::{self, ErrorBody, Limits, Opening};
use crate::body::LeasedBody;
use crate::connections::Busy;
use crate::credential::Secret;
use crate::decode::SideCopy;
use crate::forward;
use crate::scheduler::LeaseGuard;

/// How much of a rejection is read to understand it.
const REJECTION_LIMIT: usize = 64 << 10;
/// How much of a stream is held back to see how it opens.
const OPENING_LIMIT: usize = 16 << 10;
/// How long either may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// An attempt's answer, with the seat that gave it.
pub struct Answer {
    /// The seat.
    pub account: AccountId,
    /// Why that one.
    pub reason: Reason,
    /// The token that the request was sent with.
    pub access: Secret,
    /// The answer's head.
    pub head: Parts,
    /// The error that it tells, where its body was read.
    pub error: Option<ErrorBody>,
    /// The claim on the seat, until it is settled.
    lease: Option<LeaseGuard>,
    /// What was read of the body already.
    read: Vec<Bytes>,
    rest: Body,
}

impl Answer {
    /// The answer to a request that was sent on `lease` with that token.
    pub fn new(response: Response, lease: LeaseGuard, reason: Reason, access: Secret) -> Self {
        let (head, rest) = response.into_parts();
        Self {
            account: lease.account().clone(),
            reason,
            access,
            head,
            error: None,
            lease: Some(lease),
            read: Vec::new(),
            rest,
        }
    }

    /// Whether it is an event stream.
    pub fn is_stream(&self) -> bool {
        forward::is_event_stream(self.head.status, &self.head.headers)
    }

    /// Reads as much as decides what it means to a request for `model`, as of `now`.
    pub async fn understand(&mut self, model: Option<&str>, now: Timestamp) -> Heard {
        let limits = Limits::read(&self.head.headers, model);
        let mut outcome = None;
        if self.is_stream() {
            if let Opening::Error(error) = self.opening().await {
                outcome = Some(anthropic::judge_opening(&error, &self.head.headers, &limits));
                self.error = Some(error);
            }
        } else if anthropic::wants_body(self.head.status, &limits) {
            self.error = self.rejection().await;
        }
        let outcome = outcome
            .unwrap_or_else(|| anthropic::judge(self.head.status, &self.head.headers, &limits, self.error.as_ref()));
        Heard {
            allowed: limits.allowed() && outcome == Outcome::Served,
            outcome,
            windows: limits.readings(now),
        }
    }

    /// Lets the pool know what it told, and says what to do with the request.
    pub fn judge(&self, request: &Request, heard: Heard, chances: Chances) -> Next {
        self.lease
            .as_ref()
            .map_or(Next::Deliver, |lease| lease.judge(request, heard, chances))
    }

    /// Gives the seat back before the answer has ended.
    pub fn release(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.settle(&End::Whole);
        }
    }

    /// The answer as it came, from the seat of that `label`. A lease that is still held is settled at its last byte.
    pub fn into_response(self, label: &str, busy: Option<Busy>) -> Response {
        let served_by = forward::served_by(label, &self.reason.to_string());
        // Where it is compressed, its last event cannot be seen in passing.
        let watched = self.is_stream() && !self.head.headers.contains_key(http::header::CONTENT_ENCODING);
        let body = LeasedBody::new(self.read, self.rest, self.lease, watched, busy);
        let mut response = Response::from_parts(self.head, Body::new(body));
        forward::answer_headers(response.headers_mut(), served_by);
        response
    }

    /// Reads what is left of a small rejection, so that its connection can be used for the next attempt.
    pub async fn read_to_end(self) {
        let mut rest = http_body_util::Limited::new(self.rest, REJECTION_LIMIT);
        let end = async { while let Some(Ok(_)) = rest.frame().await {} };
        let _ = tokio::time::timeout(Duration::from_millis(250), end).await;
        drop(rest);
        // The client puts the connection back in a task of its own.
        tokio::task::yield_now().await;
    }

    /// How the stream opens. What was read to see it is kept, and handed on first.
    async fn opening(&mut self) -> Opening {
        let mut copy = SideCopy::new(&self.head.headers, OPENING_LIMIT);
        let mut time = std::pin::pin!(tokio::time::sleep(PATIENCE));
        let mut held = 0;
        loop {
            let opening = anthropic::opening(copy.bytes());
            if opening != Opening::Undecided || copy.is_closed() || held >= OPENING_LIMIT {
                return opening;
            }
            tokio::select! {
                biased;
                more = self.read_more() => match more {
                    Some(piece) => {
                        held += piece.len();
                        copy.write(&piece);
                    }
                    None => return opening,
                },
                () = &mut time => return opening,
            }
        }
    }

    /// The error that a rejection's body tells, if it can be understood.
    async fn rejection(&mut self) -> Option<ErrorBody> {
        let mut copy = SideCopy::new(&self.head.headers, REJECTION_LIMIT);
        let mut held = 0;
        let mut time = std::pin::pin!(tokio::time::sleep(PATIENCE));
        while held < REJECTION_LIMIT && !copy.is_closed() {
            let more = tokio::select! {
                biased;
                more = self.read_more() => more,
                () = &mut time => None,
            };
            let Some(piece) = more else { break };
            held += piece.len();
            copy.write(&piece);
        }
        ErrorBody::read(copy.bytes())
    }

    /// Reads one more piece of the body, and keeps it; `None` at its end, or where it breaks.
    async fn read_more(&mut self) -> Option<Bytes> {
        loop {
            match self.rest.frame().await {
                None => {
                    self.rest = Body::empty();
                    return None;
                }
                Some(Err(error)) => {
                    // What broke off here must break off for the client.
                    let broken = futures_util::stream::iter([Err::<Bytes, _>(error)]);
                    self.rest = Body::from_stream(broken);
                    return None;
                }
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.read.push(piece.clone());
                        return Some(piece);
                    }
                }
            }
        }
    }
}
