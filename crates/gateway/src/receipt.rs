//! What goes along with a request to its last byte, and is written down then: who answered, why, at what cost. And which
//! ids the answer issued: whoever names one later belongs to the seat that made it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use jiff::Timestamp;
use pool::{AccountId, Conversation, Observation, Switch};
use tokio::time::Instant;

use crate::decode::SideCopy;
use crate::meter::{Meter, Metered, Places};
use crate::owners::{self, Owners};
use crate::record::{self, Attempt, Cause, End, RequestRecord, SwitchRecord};
use crate::recorder::Recorder;
use crate::scheduler::Scheduler;

/// How much of an answer is read for the id it issues.
const ISSUED_LIMIT: usize = 64 << 10;

/// Where receipts end up; all requests share it.
pub struct Books {
    recorder: Arc<Recorder>,
    scheduler: Arc<Scheduler>,
    owners: Mutex<Owners>,
    places: Places,
}

/// What an answer is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFor {
    /// Its cost, and the container it ran in.
    Turn {
        /// Whether it is an event stream.
        is_stream: bool,
    },
    /// The id of what it made: a file, a batch.
    Issued,
}

impl Books {
    /// Notes that a key was turned away.
    pub fn refused(&self, now: Timestamp) {
        self.recorder.refused(now);
    }

    /// Books that go on where the last run left off.
    pub fn new(recorder: Arc<Recorder>, scheduler: Arc<Scheduler>, known: Vec<(String, AccountId)>) -> Self {
        let mut owners = Owners::default();
        for (id, account) in known {
            owners.note(id, account);
        }
        Self {
            recorder,
            scheduler,
            owners: Mutex::new(owners),
            places: Places::default(),
        }
    }

    /// The seat that issued the first of `ids` that is known.
    pub fn owner_of<'a>(&self, ids: impl IntoIterator<Item = &'a String>) -> Option<AccountId> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).of(ids)
    }

    /// A receipt for a request of `device` to `path` that came at `now`.
    pub fn begin(self: &Arc<Self>, device: &str, path: &str, now: Timestamp) -> Receipt {
        Receipt {
            books: Arc::clone(self),
            began: Instant::now(),
            came: now,
            reading: None,
            record: RequestRecord {
                number: self.recorder.next_number(),
                at: now.as_millisecond(),
                device: device.to_owned(),
                path: record::short(path),
                model: None,
                conversation: None,
                seat: None,
                status: 0,
                reason: String::new(),
                tokens: None,
                head_ms: 0,
                whole_ms: 0,
                end: End::Left,
                attempts: Vec::new(),
            },
        }
    }

    fn issued(&self, id: String, account: &AccountId, now: Timestamp) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // A container is named by every turn that runs in it.
        if owners.of([&id]).as_ref() != Some(account) {
            owners.note(id.clone(), account.clone());
            self.recorder.owner(id, account, now);
        }
    }
}

/// A request's record in the making. It is written down when it is dropped.
pub struct Receipt {
    books: Arc<Books>,
    began: Instant,
    came: Timestamp,
    reading: Option<Reading>,
    record: RequestRecord,
}

enum Reading {
    Turn(Meter),
    Issued(SideCopy),
}

impl Receipt {
    /// The request's number.
    pub fn number(&self) -> i64 {
        self.record.number
    }

    /// Notes what the request is about.
    pub fn concerns(&mut self, model: Option<&str>, conversation: Option<Conversation>) {
        self.record.model = model.map(record::short);
        self.record.conversation = conversation.map(|conversation| conversation.0);
    }

    /// Notes an attempt that will not be answered with.
    pub fn attempted(&mut self, attempt: Attempt) {
        self.record.attempts.push(attempt);
    }

    /// Notes where the conversation runs.
    pub fn bound(&self, conversation: Conversation, seat: &AccountId) {
        self.books.recorder.bound(conversation, seat, self.came);
    }

    /// Notes that the conversation moved.
    pub fn switched(&self, switch: Switch, now: Timestamp) {
        self.books.recorder.switch(SwitchRecord {
            at: now.as_millisecond(),
            request: self.record.number,
            cause: Cause::of(&switch.why),
            words: switch.why.to_string(),
            from: switch.from,
            to: switch.to,
        });
    }

    /// Notes an answer's head: from that seat, or from us.
    pub fn answered(&mut self, seat: Option<&AccountId>, status: StatusCode, reason: &str) {
        self.record.seat = seat.cloned();
        self.record.status = status.as_u16();
        self.record.reason = record::short(reason);
        self.record.head_ms = self.elapsed_ms();
    }

    /// Notes that the client left before there was an answer.
    pub fn left(&mut self) {
        self.record.reason = "the client left".into();
    }

    /// Reads the answer with those headers as it passes, as far as there is a place for it.
    pub fn read(&mut self, read_for: ReadFor, headers: &HeaderMap) {
        self.reading = match read_for {
            ReadFor::Turn { is_stream } => Meter::begin(&self.books.places, headers, is_stream).map(Reading::Turn),
            ReadFor::Issued => Some(Reading::Issued(SideCopy::new(headers, ISSUED_LIMIT))),
        };
    }

    /// Goes along with the answer to its last byte.
    pub fn go_along(self, response: Response) -> Response {
        response.map(|inner| {
            Body::new(Accompanied {
                inner,
                receipt: Some(self),
            })
        })
    }

    fn see(&mut self, piece: &Bytes) {
        match &mut self.reading {
            Some(Reading::Turn(meter)) => meter.see(piece),
            Some(Reading::Issued(copy)) => copy.write(piece),
            None => {}
        }
    }

    fn end(mut self, end: End) {
        if self.record.status > 0 {
            self.record.end = end;
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Closes what was read. An id counts only where the whole answer came.
    fn close_reading(&mut self) {
        let ids = match self.reading.take() {
            Some(Reading::Turn(meter)) => {
                let Metered { tokens, container } = meter.end();
                self.record.tokens = tokens;
                if let Some((tokens, seat)) = tokens.zip(self.record.seat.as_ref()) {
                    let model = self.record.model.clone();
                    let tokens = tokens.into();
                    self.books
                        .scheduler
                        .observe(seat, Observation::Metered { model, tokens });
                }
                container.into_iter().collect()
            }
            Some(Reading::Issued(copy)) if self.record.end == End::Whole => owners::issued(copy.bytes()),
            Some(Reading::Issued(_)) | None => Vec::new(),
        };
        if let Some(seat) = &self.record.seat {
            for id in ids {
                self.books.issued(id, seat, self.came);
            }
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.close_reading();
        self.record.whole_ms = self.elapsed_ms();
        let record = RequestRecord {
            device: std::mem::take(&mut self.record.device),
            path: std::mem::take(&mut self.record.path),
            model: self.record.model.take(),
            seat: self.record.seat.take(),
            reason: std::mem::take(&mut self.record.reason),
            attempts: std::mem::take(&mut self.record.attempts),
            ..self.record
        };
        self.books.recorder.request(record);
    }
}

/// An answer's body with its receipt.
struct Accompanied {
    inner: Body,
    receipt: Option<Receipt>,
}

impl http_body::Body for Accompanied {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let end = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(receipt), Some(piece)) = (&mut self.receipt, frame.data_ref()) {
                    receipt.see(piece);
                }
                None
            }
            Poll::Ready(Some(Err(_))) => Some(End::Broken),
            Poll::Ready(None) => Some(End::Whole),
            Poll::Pending => None,
        };
        if let Some((receipt, end)) = self.receipt.take_if(|_| end.is_some()).zip(end) {
            receipt.end(end);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Accompanied {
    fn drop(&mut self) {
        // A server that knows the length does not ask for the end.
        let is_whole = self.inner.is_end_stream();
        if let Some(receipt) = self.receipt.take().filter(|_| is_whole) {
            receipt.end(End::Whole);
        }
    }
}
