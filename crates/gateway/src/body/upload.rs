//! The two bodies of an exchange: the client's upload, kept for a replay while it is forwarded; and the answer, which
//! carries its lease to the last byte.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use pool::End;
use tokio::sync::Notify;

use crate::anthropic;
use crate::connections::Busy;
use crate::peek::{Found, Peek};
use crate::scheduler::LeaseGuard;

/// What one upload may take up to be replayable, and the most that Anthropic takes for messages.
pub const REPLAY_LIMIT: u64 = 32 << 20;
/// What all uploads together may take up.
pub const REPLAY_LIMIT_IN_ALL: usize = 256 << 20;
/// Pieces up to this size are gathered into blocks, or their bookkeeping would take more than they do.
const SMALL: usize = 4 << 10;
const BLOCK: usize = 16 << 10;
/// How far an upload that is not kept may run ahead of its forwarding.
const AHEAD: usize = 256 << 10;

/// How long an upload may be silent: its device went to sleep, or lost its network.
const SILENCE: Duration = Duration::from_secs(60);

/// The memory that all uploads share.
pub struct Budget(AtomicUsize);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicUsize::new(REPLAY_LIMIT_IN_ALL))
    }
}

impl Budget {
    fn take(&self, bytes: usize) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Why an upload did not become whole.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// It is longer than it may be.
    #[error("the body is too long")]
    TooLong,
    /// The client left.
    #[error("the client left")]
    ClientLeft,
}

/// The client's body: taken in piece by piece, looked at as it passes, and readable as often as it must be sent.
///
/// Its last piece is held back until the whole was seen, so that a body that turns out to belong elsewhere has not
/// run yet and can be taken back.
pub struct Upload {
    body: Body,
    length: Option<u64>,
    limit: Option<u64>,
    received: u64,
    complete: bool,
    peek: Option<Peek>,
    pieces: Arc<Pieces>,
}

/// How a sending went that ran alongside the taking in.
pub enum Sent<T> {
    /// It ended so.
    Ended(T),
    /// The whole body says that it should go elsewhere.
    Misdirected,
}

impl Upload {
    /// An upload of `length` bytes, if that is known, refused beyond `limit`. `peek` looks for what it is about.
    pub fn new(body: Body, length: Option<u64>, limit: Option<u64>, peek: bool, budget: Arc<Budget>) -> Self {
        let complete = body.is_end_stream();
        let state = State {
            kept: VecDeque::new(),
            open: BytesMut::new(),
            first: 0,
            held: 0,
            charged: 0,
            replayable: true,
            released: complete,
            broken: false,
            reader: None,
            generation: 0,
            waker: None,
        };
        Self {
            body,
            length,
            limit,
            received: 0,
            complete,
            peek: peek.then(Peek::default),
            pieces: Arc::new(Pieces {
                state: Mutex::new(state),
                room: Notify::new(),
                budget,
            }),
        }
    }

    /// What was found in it so far.
    pub fn found(&self) -> Option<&Found> {
        self.peek.as_ref().map(Peek::found)
    }

    /// Whether it was taken in whole.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether it can be sent once more.
    pub fn is_replayable(&self) -> bool {
        self.pieces.lock().replayable
    }

    /// Takes it in until it is complete, `enough` was seen, or no more can be kept.
    ///
    /// # Errors
    /// If the client leaves, or sends more than it may.
    pub async fn take_in_until(&mut self, enough: impl Fn(&Found) -> bool) -> Result<(), UploadError> {
        while !self.complete && self.is_replayable() && !self.found().is_none_or(&enough) {
            self.step().await?;
        }
        Ok(())
    }

    /// The body to send, from its beginning.
    pub fn reader(&self) -> Body {
        if self.complete && self.received == 0 {
            return Body::empty();
        }
        let mut state = self.pieces.lock();
        state.reader = Some(state.first);
        state.generation += 1;
        Body::new(Reader {
            pieces: Arc::clone(&self.pieces),
            next: state.first,
            generation: state.generation,
            left: self.length,
        })
    }

    /// Runs `sending` while taking in the rest. Once the whole was seen, `still_right` decides whether it is going
    /// to the right place; if not, `sending` is dropped before it could complete.
    ///
    /// # Errors
    /// If the client leaves, or sends more than it may; `sending` is then dropped.
    pub async fn alongside<T>(
        &mut self,
        sending: impl Future<Output = T>,
        still_right: impl Fn(&Found) -> bool,
    ) -> Result<Sent<T>, UploadError> {
        let mut sending = std::pin::pin!(sending);
        while !self.complete {
            tokio::select! {
                biased;
                ended = &mut sending => return Ok(Sent::Ended(ended)),
                step = self.step() => step?,
            }
            if self.complete && self.is_replayable() && !self.found().is_none_or(&still_right) {
                return Ok(Sent::Misdirected);
            }
        }
        self.pieces.release();
        Ok(Sent::Ended(sending.await))
    }

    /// Takes in the rest in the background, for an answer that came before the upload's end: what is still being
    /// sent goes on, and what nobody reads is dropped, within bounds.
    pub fn finish_behind(mut self) {
        let is_read = Arc::strong_count(&self.pieces) > 1 && !self.pieces.lock().broken;
        if self.complete || !is_read {
            return drain(std::mem::take(&mut self.body), DRAIN_KNOWN);
        }
        tokio::spawn(async move {
            let taking_in = async {
                while !self.complete && self.received < DRAIN_KNOWN.bytes && self.step().await.is_ok() {}
                if self.complete {
                    self.pieces.release();
                }
            };
            let _ = tokio::time::timeout(DRAIN_KNOWN.time, taking_in).await;
        });
    }

    /// Takes in one more piece.
    async fn step(&mut self) -> Result<(), UploadError> {
        self.pieces.wait_for_room().await;
        let silent = tokio::time::timeout(SILENCE, self.body.frame());
        match silent.await.unwrap_or_else(|late| Some(Err(axum::Error::new(late)))) {
            None => self.complete = true,
            Some(Err(_)) => {
                self.pieces.break_off();
                return Err(UploadError::ClientLeft);
            }
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    self.received += piece.len() as u64;
                    if self.limit.is_some_and(|limit| self.received > limit) {
                        self.pieces.break_off();
                        return Err(UploadError::TooLong);
                    }
                    if let Some(peek) = &mut self.peek {
                        peek.look(&piece);
                    }
                    self.pieces.push(piece, self.received);
                }
                self.complete = self.body.is_end_stream();
            }
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut state = self.pieces.lock();
        // Nobody will ask for a replay any more, and a body that is not whole must not look as if it were.
        if !state.released {
            state.broken = true;
        }
        self.pieces.stop_keeping(&mut state);
        state.wake();
    }
}

/// The pieces taken in, shared between the one who takes them in and the one who sends them.
struct Pieces {
    state: Mutex<State>,
    /// Told when a piece was sent.
    room: Notify,
    budget: Arc<Budget>,
}

struct State {
    kept: VecDeque<Bytes>,
    /// Small pieces that are gathered, behind those that are kept.
    open: BytesMut,
    /// The number of the first piece that is kept.
    first: usize,
    /// Bytes kept.
    held: usize,
    /// Bytes of them that the budget was charged for.
    charged: usize,
    /// Whether pieces stay after they were sent.
    replayable: bool,
    /// Whether the last piece may go out.
    released: bool,
    /// Whether the body will never be whole.
    broken: bool,
    /// The number of the piece that the present reader takes next.
    reader: Option<usize>,
    /// Which reader that is: an attempt that was given up may still be polled.
    generation: u64,
    /// Who waits for the next piece.
    waker: Option<Waker>,
}

impl State {
    /// Puts the gathered pieces behind those that are kept, as one.
    fn close_block(&mut self) {
        if !self.open.is_empty() {
            let block = self.open.split().freeze();
            self.kept.push_back(block);
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Pieces {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, piece: Bytes, received: u64) {
        let mut state = self.lock();
        if state.replayable {
            match received <= REPLAY_LIMIT && self.budget.take(piece.len()) {
                true => state.charged += piece.len(),
                false => self.stop_keeping(&mut state),
            }
        }
        state.held += piece.len();
        if state.replayable && piece.len() <= SMALL {
            state.open.extend_from_slice(&piece);
            if state.open.len() < BLOCK {
                return;
            }
            state.close_block();
        } else {
            state.close_block();
            state.kept.push_back(piece);
        }
        state.wake();
    }

    /// Gives up the replay, and with it the memory of what was sent.
    fn stop_keeping(&self, state: &mut State) {
        state.close_block();
        state.replayable = false;
        self.forget_sent(state);
    }

    /// Drops what was sent and need not be sent again.
    fn forget_sent(&self, state: &mut State) {
        let sent = state.reader.map_or(0, |next| next - state.first).min(state.kept.len());
        for piece in state.kept.drain(..sent) {
            state.held -= piece.len();
            state.first += 1;
            let charged = piece.len().min(state.charged);
            state.charged -= charged;
            self.budget.give_back(charged);
        }
        self.room.notify_one();
    }

    async fn wait_for_room(&self) {
        loop {
            {
                let state = self.lock();
                if state.replayable || state.held < AHEAD || state.broken {
                    return;
                }
            }
            self.room.notified().await;
        }
    }

    fn release(&self) {
        let mut state = self.lock();
        state.close_block();
        state.released = true;
        state.wake();
    }

    fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.wake();
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.give_back(state.charged);
    }
}

/// Sends the pieces from the first one on.
struct Reader {
    pieces: Arc<Pieces>,
    next: usize,
    generation: u64,
    left: Option<u64>,
}

/// The upload broke off, so the request must not complete.
#[derive(Debug, thiserror::Error)]
#[error("the upload broke off")]
struct BrokenOff;

impl http_body::Body for Reader {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let me = &mut *self;
        let mut state = me.pieces.lock();
        if me.generation != state.generation {
            return Poll::Ready(Some(Err(BrokenOff)));
        }
        let held_back = usize::from(!state.released && state.replayable);
        let index = me.next - state.first;
        if index + held_back < state.kept.len() {
            let piece = state.kept[index].clone();
            me.next += 1;
            me.left = me.left.map(|left| left.saturating_sub(piece.len() as u64));
            state.reader = Some(me.next);
            if !state.replayable {
                me.pieces.forget_sent(&mut state);
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if state.broken {
            return Poll::Ready(Some(Err(BrokenOff)));
        }
        if state.released {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// How much of a refused body is read and dropped, so that the client sees the answer and not a broken pipe.
#[derive(Clone, Copy)]
pub struct Drain {
    bytes: u64,
    time: Duration,
}

/// After a right key.
pub const DRAIN_KNOWN: Drain = Drain {
    bytes: 64 << 20,
    time: Duration::from_secs(5),
};
/// From anybody.
pub const DRAIN_STRANGER: Drain = Drain {
    bytes: 1 << 20,
    time: Duration::from_secs(2),
};

/// Reads and drops `body` in the background, within `bounds`.
pub fn drain(mut body: Body, bounds: Drain) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let rest = async {
            let mut left = bounds.bytes;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                left = match left.checked_sub(length) {
                    Some(left) => left,
                    None => return,
                };
            }
        };
        let _ = tokio::time::timeout(bounds.time, rest).await;
    });
}

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

/// An event stream's last event.
const LAST_EVENT: &[u8] = b"message_stop";
/// How much of the end is kept to find it, or the error that came in its place.
const TAIL: usize = 512;

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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn pieces(of: &[&'static str]) -> Body {
        let items: Vec<Result<Bytes, std::convert::Infallible>> =
            of.iter().map(|text| Ok(Bytes::from_static(text.as_bytes()))).collect();
        Body::from_stream(stream::iter(items))
    }

    async fn read(body: Body) -> String {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    fn upload(body: Body, limit: Option<u64>, budget: &Arc<Budget>) -> Upload {
        Upload::new(body, None, limit, true, Arc::clone(budget))
    }

    #[tokio::test]
    async fn an_upload_can_be_sent_again_and_gives_its_memory_back() {
        let budget = Arc::new(Budget::default());
        let mut upload = upload(pieces(&["{\"model\":", "\"m\"", "}"]), None, &budget);
        for _ in 0..2 {
            let reader = upload.reader();
            let Ok(Sent::Ended(sent)) = upload.alongside(read(reader), |_| true).await else {
                panic!("the upload did not become whole");
            };
            assert_eq!(sent, "{\"model\":\"m\"}");
        }
        assert_eq!(upload.found().unwrap().model.as_deref(), Some("m"));
        drop(upload);
        assert_eq!(budget.0.load(Ordering::Relaxed), REPLAY_LIMIT_IN_ALL);
    }

    #[tokio::test]
    async fn the_last_piece_waits_until_the_whole_was_seen() {
        let mut upload = upload(
            pieces(&["{\"model\":\"a\",", "\"model\":\"b\"}"]),
            None,
            &Arc::default(),
        );
        let reader = upload.reader();
        let sent = upload
            .alongside(read(reader), |found| found.model.as_deref() == Some("a"))
            .await;
        assert!(matches!(sent, Ok(Sent::Misdirected)));
        let reader = upload.reader();
        let Ok(Sent::Ended(sent)) = upload.alongside(read(reader), |_| true).await else {
            panic!("the upload did not become whole");
        };
        assert_eq!(sent, "{\"model\":\"a\",\"model\":\"b\"}");
    }

    #[tokio::test]
    async fn an_upload_over_its_limit_is_never_sent_whole() {
        let mut upload = upload(pieces(&["12345", "67890"]), Some(9), &Arc::default());
        let reader = upload.reader();
        assert!(matches!(
            upload.alongside(reader.collect(), |_| true).await,
            Err(UploadError::TooLong)
        ));
    }

    #[tokio::test]
    async fn an_upload_beyond_what_can_be_kept_streams_through_without_replay() {
        let budget = Arc::new(Budget(AtomicUsize::new(600_000)));
        let piece = Bytes::from(vec![b'x'; 100_000]);
        let items: Vec<Result<Bytes, std::convert::Infallible>> = (0..50).map(|_| Ok(piece.clone())).collect();
        let mut upload = upload(Body::from_stream(stream::iter(items)), None, &budget);
        let reader = upload.reader();
        let Ok(Sent::Ended(sent)) = upload.alongside(reader.collect(), |_| true).await else {
            panic!("the upload did not become whole");
        };
        assert_eq!(sent.unwrap().to_bytes().len(), 5_000_000);
        assert!(!upload.is_replayable());
        assert_eq!(
            budget.0.load(Ordering::Relaxed),
            600_000,
            "what is not kept is not charged"
        );
    }

    #[tokio::test]
    async fn a_reader_of_an_upload_that_was_dropped_half_way_fails() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::convert::Infallible>>());
        let upload = upload(body, None, &Arc::default());
        let reader = upload.reader();
        drop(upload);
        assert!(reader.collect().await.is_err());
    }
}
