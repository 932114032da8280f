//! The pieces of an upload, between the one who takes them in and the one who sends them.
//!
//! They stay after they were sent as long as there is room, so that the body can be sent once more.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;

use super::budget::Budget;

/// What one upload may take up to be replayable, and the most that Anthropic takes for messages.
pub const REPLAY_LIMIT: u64 = 32 << 20;
/// Pieces up to this size are gathered into blocks, or their bookkeeping would take more than they do.
const SMALL: usize = 4 << 10;
const BLOCK: usize = 16 << 10;
/// How far an upload that is not kept may run ahead of its forwarding.
const AHEAD: usize = 256 << 10;

/// The pieces taken in, shared between the one who takes them in and the one who sends them.
pub(super) struct Pieces {
    state: Mutex<State>,
    /// Told when a piece was sent.
    room: Notify,
    budget: Arc<Budget>,
}

#[derive(Default)]
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
    /// No pieces yet; with `all` of them taken in, there will be none.
    pub(super) fn new(budget: Arc<Budget>, all: bool) -> Self {
        Self {
            state: Mutex::new(State {
                replayable: true,
                released: all,
                ..State::default()
            }),
            room: Notify::new(),
            budget,
        }
    }

    /// Whether they can be sent once more.
    pub(super) fn is_replayable(&self) -> bool {
        self.lock().replayable
    }

    /// Whether somebody may still send them.
    pub(super) fn is_read(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 && !self.lock().broken
    }

    /// Sends them from the first one on, in place of whoever did so until now. They are `length` bytes, if that is known.
    pub(super) fn reader(self: &Arc<Self>, length: Option<u64>) -> Reader {
        let mut state = self.lock();
        state.reader = Some(state.first);
        state.generation += 1;
        Reader {
            pieces: Arc::clone(self),
            next: state.first,
            generation: state.generation,
            left: length,
        }
    }

    /// Takes in the next one, with which so many bytes were `received`.
    pub(super) fn push(&self, piece: Bytes, received: u64) {
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

    /// Waits until the next one may be taken in.
    pub(super) async fn wait_for_room(&self) {
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

    /// Lets the last one go out: all were seen.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        state.close_block();
        state.released = true;
        state.wake();
    }

    /// The body will never be whole.
    pub(super) fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.wake();
    }

    /// Nobody takes in more, and nobody will ask for a replay.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        // A body that is not whole must not look as if it were.
        if !state.released {
            state.broken = true;
        }
        self.stop_keeping(&mut state);
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.give_back(state.charged);
    }
}

/// Sends the pieces from the first one on.
pub(super) struct Reader {
    pieces: Arc<Pieces>,
    next: usize,
    generation: u64,
    left: Option<u64>,
}

/// The upload broke off, so the request must not complete.
#[derive(Debug, thiserror::Error)]
#[error("the upload broke off")]
pub(super) struct BrokenOff;

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
