//! Has the recorder know what the pool knows, a quarter of a second after it changed.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use pool::SeatMemory;

use crate::recorder::Recorder;
use crate::scheduler::Scheduler;
use crate::settings::Settings;

/// How long changes gather before they are noted. A rest waits like all else: to wake this task for each of them costs the
/// request that goes on to another seat a third of the move.
const GATHER: Duration = Duration::from_millis(250);
/// How often old history is dropped.
const TRIM_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// The longest nap while nothing changes: timers stand still while a laptop sleeps.
const NAP: Duration = Duration::from_secs(900);

/// Keeps the recorder informed.
#[derive(Clone)]
pub struct Keeper {
    /// The pool.
    pub scheduler: Arc<Scheduler>,
    /// Who writes down.
    pub recorder: Arc<Recorder>,
    /// Says how long history is kept.
    pub settings: Arc<Settings>,
}

impl Keeper {
    /// Notes changes, until it is dropped.
    pub async fn run(self) {
        let mut changed = self.scheduler.subscribe();
        let mut trim_at = None;
        loop {
            self.note();
            let (now, kept_for) = (self.scheduler.now(), self.kept_for());
            if trim_at.is_none_or(|(at, as_of)| at <= now || as_of != kept_for) {
                trim_at = Some((now + TRIM_EVERY, kept_for));
                self.recorder.trim(now, kept_for);
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(NAP) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Notes what the pool knows now that it did not know before.
    fn note(&self) {
        let seats = match self.recorder.wants_all() {
            true => self.known(),
            false => self.scheduler.news(),
        };
        if !seats.is_empty() {
            self.recorder.seats(seats);
        }
    }

    /// Notes all that the pool knows, and waits until it is written. It waits for the disk.
    pub fn close(&self) {
        self.recorder.seats(self.known());
        self.recorder.close();
    }

    fn known(&self) -> Vec<SeatMemory> {
        self.scheduler.look(|pool, _| pool.known_seats().collect())
    }

    fn kept_for(&self) -> SignedDuration {
        SignedDuration::from_hours(24 * i64::from(self.settings.now().history_days))
    }
}
