//! What of the pool should outlast the process: readings, rests, what is known of models, conversations.
//!
//! Plain values; whoever keeps them decides how.

use alloc::borrow::ToOwned;
use alloc::{string::String, vec::Vec};

use jiff::Timestamp;

use crate::affinity::Bound;
use crate::bench::Bench;
use crate::id::AccountId;
use crate::seat::Seat;
use crate::window::{Window, WindowKind};

/// What should outlast the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The seats.
    pub seats: Vec<SeatMemory>,
    /// Where conversations run.
    pub conversations: Vec<Bound>,
}

/// What should outlast the process, of one seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatMemory {
    /// Which seat.
    pub id: AccountId,
    /// Its allowances as last seen.
    pub windows: Vec<(WindowKind, Window)>,
    /// What of it rests.
    pub benches: Vec<Bench>,
    /// The models it has served, and when last.
    pub served: Vec<(String, Timestamp)>,
    /// When its usage was last asked for.
    pub asked_at: Option<Timestamp>,
    /// Before when its usage may not be asked for again.
    pub not_before: Option<Timestamp>,
}

impl SeatMemory {
    /// What is remembered of `seat`.
    pub(crate) fn of(seat: &Seat) -> Self {
        let Seat { account, polls, .. } = seat;
        let windows = account.windows.iter();
        let served = account.models.served();
        Self {
            id: account.id.clone(),
            windows: windows.map(|(kind, window)| (kind.clone(), *window)).collect(),
            benches: account.benches.iter().map(Bench::anew).collect(),
            served: served.map(|(model, at)| (model.to_owned(), at)).collect(),
            asked_at: polls.asked_at(),
            not_before: polls.not_before(),
        }
    }

    /// Lets `seat` know it, but for what has run out at `now`, or lies in the future of a clock that was set.
    pub(crate) fn restore(self, seat: &mut Seat, now: Timestamp) {
        let Seat { account, polls, .. } = seat;
        polls.recall(self.asked_at, self.not_before, now);
        for (kind, window) in self.windows {
            if window.observed_at <= now {
                account.windows.observe(&kind, window);
            }
        }
        for bench in self.benches {
            if bench.runs(now) && bench.since <= now {
                account.rest(bench.anew());
            }
        }
        for (model, at) in self.served {
            account.models.note_served(&model, at.min(now));
        }
    }
}
