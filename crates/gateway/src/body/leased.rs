//! The answer's body, which holds its lease until the last byte.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use pool::End;

use crate::anthropic;
use crate::connections::Busy;
use crate::scheduler::LeaseGuard;

/// An event stream's last event.
const LAST_EVENT: &[u8] = b"message_stop";
/// How much of the end is kept to find it, or the error that came in its place.
const TAIL: usize = 512;

/// An answer's body that holds its lease until the last byte, or until it is dropped.
pub struct LeasedBody {
    /// What was read already, to see how the stream opens.
    opening: VecDeque<Bytes>,
    rest: Body,
    lease: Option<LeaseGuard>,
    /// The last bytes of an event stream, to see whether it ended as it should.
    tail: Option<Vec<u8>>,
    _busy: Option<Busy>,
}

impl LeasedBody {
    /// `rest` after the `opening` that was read already. A `stream` that ends without its last event is logged.
    pub fn new(opening: Vec<Bytes>, rest: Body, lease: Option<LeaseGuard>, stream: bool, busy: Option<Busy>) -> Self {
        let mut body = Self {
            opening: VecDeque::new(),
            rest,
            lease,
            tail: stream.then(Vec::new),
            _busy: busy,
        };
        for piece in &opening {
            body.see(piece);
        }
        body.opening = opening.into();
        body
    }

    fn see(&mut self, piece: &Bytes) {
        if let Some(tail) = &mut self.tail {
            match piece.len() >= TAIL {
                true => {
                    tail.clear();
                    tail.extend_from_slice(&piece[piece.len() - TAIL..]);
                }
                false => {
                    tail.extend_from_slice(piece);
                    let excess = tail.len().saturating_sub(TAIL);
                    tail.drain(..excess);
                }
            }
        }
    }

    fn end(&mut self, mut end: End) {
        let Some(lease) = self.lease.take() else { return };
        if end == End::Whole {
            let tail = self.tail.as_deref();
            if tail.is_some_and(|tail| memchr::memmem::find(tail, LAST_EVENT).is_none()) {
                tracing::warn!(account.id = %lease.account(), "a stream ended without its last event");
                end = match tail.and_then(anthropic::closing) {
                    Some(outcome) => End::Failed(outcome),
                    None => End::Interrupted,
                };
            }
        }
        lease.settle(&end);
    }
}

impl http_body::Body for LeasedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(piece) = self.opening.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let polled = Pin::new(&mut self.rest).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(piece) = frame.data_ref() {
                    self.see(piece);
                }
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::warn!("an answer broke off: {error}");
                self.end(End::Interrupted);
            }
            Poll::Ready(None) => self.end(End::Whole),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.opening.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let opening: u64 = self.opening.iter().map(|piece| piece.len() as u64).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(opening + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(opening + upper);
        }
        hint
    }
}

impl Drop for LeasedBody {
    fn drop(&mut self) {
        // A server that knows the length does not ask for the end.
        let end = match self.is_end_stream() {
            true => End::Whole,
            false => End::Abandoned,
        };
        self.end(end);
    }
}
