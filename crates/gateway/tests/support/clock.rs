//! The time of a test: it stands still but where a test lets it pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gateway::ports::Clock;
use jiff::{SignedDuration, Timestamp};

/// When every test begins, in seconds since the epoch: 2026-09-21 14:13:20 UTC.
pub const T: i64 = 1_790_000_000;

/// The wall clock of a test: tokio's paused time, and what the lid's closing added.
pub struct VirtualClock {
    began: tokio::time::Instant,
    skew_ms: AtomicI64,
    set_ms: AtomicI64,
}

impl VirtualClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            began: tokio::time::Instant::now(),
            skew_ms: AtomicI64::new(0),
            set_ms: AtomicI64::new(0),
        })
    }

    /// Moves the wall clock while every timer stands still.
    pub fn skew(&self, by: SignedDuration) {
        self.skew_ms
            .fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Sets this machine's clock wrong, by so much; the rest of the world goes by the true time.
    pub fn set(&self, wrong_by: SignedDuration) {
        self.set_ms
            .store(i64::try_from(wrong_by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// The true time, in milliseconds since the epoch.
    pub fn true_ms(&self) -> i64 {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap();
        T * 1_000 + elapsed + self.skew_ms.load(Ordering::Relaxed)
    }

    /// The time that this machine believes it is.
    pub fn now_ms(&self) -> i64 {
        self.true_ms() + self.set_ms.load(Ordering::Relaxed)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms()).unwrap()
    }
}
