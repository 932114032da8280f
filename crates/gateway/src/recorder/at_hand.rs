//! What a screen shows all the time, without asking the disk. Times are seconds since the epoch.

use std::collections::VecDeque;

use crate::record::SwitchRecord;

/// How much of the history is at hand.
pub(super) const SWITCHES_SHOWN: u32 = 10;
const REQUESTS_SHOWN: usize = 10_000;
const HOUR: i64 = 3_600;

/// The last of what happened.
#[derive(Default)]
pub(super) struct AtHand {
    /// The last switches, the newest first.
    pub(super) switches: VecDeque<SwitchRecord>,
    /// When the requests of the last hour came.
    requests: VecDeque<i64>,
    /// When a key was last turned away.
    pub(super) refused_at: Option<i64>,
}

impl AtHand {
    /// A conversation moved.
    pub(super) fn switch(&mut self, switch: SwitchRecord) {
        self.switches.push_front(switch);
        self.switches.truncate(SWITCHES_SHOWN as usize);
    }

    /// A request came at that time, and has ended.
    pub(super) fn request(&mut self, at: i64) {
        self.requests.push_back(at);
        let ended = at - HOUR;
        while self.requests.len() > REQUESTS_SHOWN || self.requests.front().is_some_and(|at| *at < ended) {
            self.requests.pop_front();
        }
    }

    /// How many requests came in the hour before `now`.
    pub(super) fn last_hour(&self, now: i64) -> usize {
        self.requests.iter().filter(|at| **at >= now - HOUR).count()
    }
}
