//! Where notes wait for the thread that carries them to the store. Whoever puts one in never waits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Trouble;
use crate::store::Batch;

/// How long notes gather before they are written as one; a rest does not wait.
const GATHER: Duration = Duration::from_millis(250);
/// How long the store is left alone after it took nothing.
const RETRY: Duration = Duration::from_secs(10);
/// How long one who wants to read waits for what was noted before.
const FLUSH: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Mailbox {
    inside: Mutex<Inside>,
    /// Told when there is something to write.
    filled: Condvar,
    /// Told when something was written, or could not be.
    emptied: Condvar,
}

#[derive(Default)]
pub(super) struct Inside {
    pub(super) batch: Batch,
    /// Whether it is not to wait for more.
    urgent: bool,
    pub(super) closing: bool,
    /// Whether nobody will ever write.
    pub(super) closed: bool,
    pub(super) keeps_history: bool,
    /// How many batches were taken out, and how many of them are done with.
    taken: u64,
    done: u64,
    /// Notes of the history that were dropped.
    pub(super) dropped: u64,
    /// Whether the store is new, and wants all that is known.
    pub(super) wants_all: bool,
    pub(super) trouble: Option<Trouble>,
}

impl Mailbox {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a note in, unless nobody will ever write it.
    pub(super) fn note(&self, urgent: bool, put: impl FnOnce(&mut Inside)) {
        let mut inside = self.lock();
        if inside.closed {
            return;
        }
        // Whoever carries waits only while there is nothing, or nothing urgent.
        let wakes = inside.batch.is_empty() || (urgent && !inside.urgent);
        put(&mut inside);
        inside.urgent |= urgent;
        drop(inside);
        if wakes {
            self.filled.notify_one();
        }
    }

    /// Waits until all that was noted is written, within two seconds.
    pub(super) fn flush(&self) {
        let mut inside = self.lock();
        let wanted = inside.taken + u64::from(!inside.batch.is_empty());
        inside.urgent = true;
        self.filled.notify_one();
        let waits = |inside: &mut Inside| inside.done < wanted && !inside.closed;
        let _ = self.emptied.wait_timeout_while(inside, FLUSH, waits);
    }

    /// Has what waits written, and no more.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.filled.notify_one();
    }

    /// Waits for notes, for whoever carries them; with some `left` from before, not for ever. `None` at the end.
    pub(super) fn take(&self, left: bool) -> Option<(Batch, bool)> {
        let mut inside = self.lock();
        let patience = match left {
            true => RETRY,
            false => {
                let empty = |inside: &mut Inside| inside.batch.is_empty() && !inside.closing;
                let waited = self.filled.wait_while(inside, empty);
                inside = waited.unwrap_or_else(PoisonError::into_inner);
                GATHER
            }
        };
        let waits = |inside: &mut Inside| !inside.urgent && !inside.closing;
        let waited = self.filled.wait_timeout_while(inside, patience, waits);
        inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        if inside.closing && inside.batch.is_empty() && (!left || inside.closed) {
            return None;
        }
        inside.urgent = false;
        inside.taken += 1;
        Some((std::mem::take(&mut inside.batch), inside.keeps_history))
    }

    /// A batch that was taken is done with.
    pub(super) fn done(&self) {
        self.lock().done += 1;
        self.emptied.notify_all();
    }

    /// Nobody carries any more.
    pub(super) fn shut(&self) {
        self.lock().closed = true;
        self.emptied.notify_all();
    }
}
