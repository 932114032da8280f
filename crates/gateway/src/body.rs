//! The two bodies of an exchange: the client's upload, kept for a replay while it is forwarded; and the answer, which
//! carries its lease to the last byte.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use pool::Outcome;
use tokio::sync::Notify;

use crate::connections::Busy;
use crate::decode::SideCopy;
use crate::peek::{Found, Peek};
use crate::scheduler::LeaseGuard;

/// What one upload may take up to be replayable, and the most that Anthropic takes for messages.
pub const REPLAY_LIMIT: u64 = 32 << 20;
/// What all uploads together may take up.
pub const REPLAY_LIMIT_IN_ALL: usize = 256 << 20;
/// How far an upload that is not kept may run ahead of its forwarding.
const AHEAD: usize = 256 << 10;

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
            first: 0,
            held: 0,
            replayable: true,
            released: complete,
            broken: false,
            reader: None,
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
        Body::new(Reader {
            pieces: Arc::clone(&self.pieces),
            next: state.first,
            left: self.length,
        })
    }

    /// Runs `sending` while taking in the rest. Once the whole was seen, `still_right` decides whether it is going
    /// to the right place; if not, `sending` is dropped before it could complete.
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
        if self.complete {
            return;
        }
        tokio::spawn(async move {
            let rest = async {
                while !self.complete && self.step().await.is_ok() {}
                self.pieces.release();
            };
            let _ = tokio::time::timeout(DRAIN_KNOWN.1, rest).await;
        });
    }

    /// Takes in one more piece.
    async fn step(&mut self) -> Result<(), UploadError> {
        self.pieces.wait_for_room().await;
        match self.body.frame().await {
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
        state.replayable = false;
        self.pieces.forget_sent(&mut state);
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
    /// The number of the first piece that is kept.
    first: usize,
    /// Bytes kept.
    held: usize,
    /// Whether pieces stay after they were sent.
    replayable: bool,
    /// Whether the last piece may go out.
    released: bool,
    /// Whether the body will never be whole.
    broken: bool,
    /// The number of the piece that the present reader takes next.
    reader: Option<usize>,
    waker_slot: WakerSlot,
}

/// Who waits for the next piece.
#[derive(Default)]
struct WakerSlot(Option<Waker>);

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker_slot.0.take() {
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
        if state.replayable && (received > REPLAY_LIMIT || !self.budget.take(piece.len())) {
            state.replayable = false;
            self.budget.give_back(state.held);
            self.forget_sent(&mut state);
        }
        state.held += piece.len();
        state.kept.push_back(piece);
        state.wake();
    }

    /// Drops what was sent, once no replay is possible.
    fn forget_sent(&self, state: &mut State) {
        if state.replayable {
            return;
        }
        let sent = state.reader.map_or(0, |next| next - state.first).min(state.kept.len());
        for piece in state.kept.drain(..sent) {
            state.held -= piece.len();
            state.first += 1;
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
        state.released = true;
        state.wake();
    }

    fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.wake();
    }
}
