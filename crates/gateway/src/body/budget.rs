//! The memory that all uploads share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What all uploads together may take up.
const REPLAY_LIMIT_IN_ALL: usize = 256 << 20;

/// How much of that memory is left.
pub struct Budget(AtomicUsize);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicUsize::new(REPLAY_LIMIT_IN_ALL))
    }
}

impl Budget {
    /// Whether there was room for so many bytes more, which are then taken.
    pub(super) fn take(&self, bytes: usize) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok()
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Budget {
    pub(super) fn of(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    pub(super) fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
