//! How many requests a seat takes at once.
//!
//! Anthropic refuses a burst of starts with a 429 that names no window. How large a burst may be is told nowhere, so it is
//! learnt: a refusal after so many starts says that one fewer was allowed, and an hour without one allows one more.

use alloc::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Starts are counted over this time.
const SPAN: SignedDuration = SignedDuration::from_secs(10);
/// What is taken to be allowed where nothing was learnt.
const GUESS: u32 = 12;
/// After a refusal half of that, for this long.
const BRAKE: SignedDuration = SignedDuration::from_secs(30);

/// A seat's latest starts, and how many it is thought to take.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    recent: VecDeque<Timestamp>,
    /// The refusal that was learnt from last, and the number of starts it left.
    refused: Option<(Timestamp, u32)>,
}

impl Starts {
    /// Notes a start, at once or at a time soon after `now`.
    pub(crate) fn began(&mut self, at: Timestamp, now: Timestamp) {
        while self
            .recent
            .front()
            .is_some_and(|&start| now.duration_since(start) >= SPAN)
        {
            self.recent.pop_front();
        }
        let behind = self.recent.iter().rev().take_while(|start| **start > at).count();
        self.recent.insert(self.recent.len() - behind, at);
    }

    /// How long a start has to wait until the seat takes it.
    pub fn wait(&self, now: Timestamp) -> SignedDuration {
        let limit = self.limit(now) as usize;
        match self.recent.len().checked_sub(limit) {
            Some(at) => (self.recent[at] + SPAN).duration_since(now).max(SignedDuration::ZERO),
            None => SignedDuration::ZERO,
        }
    }

    /// Notes that the last start was refused for the burst it was part of.
    pub(crate) fn refused(&mut self, now: Timestamp) {
        let left = self.count(now).saturating_sub(1).max(1);
        self.refused = Some((now, left.min(self.learnt(now))));
    }

    /// How many began in the last ten seconds.
    pub fn count(&self, now: Timestamp) -> u32 {
        let recent = self.recent.iter().rev();
        recent.take_while(|start| now.duration_since(**start) < SPAN).count() as u32
    }

    /// How many may begin in ten seconds.
    pub fn limit(&self, now: Timestamp) -> u32 {
        let braked = self.refused.is_some_and(|(at, _)| now.duration_since(at) < BRAKE);
        if braked {
            self.learnt(now).div_ceil(2)
        } else {
            self.learnt(now)
        }
    }

    fn learnt(&self, now: Timestamp) -> u32 {
        self.refused.map_or(GUESS, |(at, left)| {
            let hours = now.duration_since(at).as_hours().clamp(0, 1_000) as u32;
            left + hours
        })
    }

    /// Notes that the machine's clock was set: nothing began in the future.
    pub(crate) fn woke(&mut self, now: Timestamp) {
        self.recent.iter_mut().for_each(|start| *start = now.min(*start));
        self.refused = self.refused.map(|(at, left)| (at.min(now), left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn starts_are_counted_for_ten_seconds() {
        let mut starts = Starts::default();
        for second in [0, 3, 9] {
            starts.began(at(second), at(second));
        }
        for (now, want) in [(9, 3), (10, 2), (13, 1), (19, 0)] {
            assert_eq!(starts.count(at(now)), want, "now = {now}");
        }
    }

    #[test]
    fn a_refused_burst_teaches_how_many_are_allowed_and_time_allows_more() {
        let mut starts = Starts::default();
        assert_eq!(starts.limit(at(0)), GUESS);
        for _ in 0..9 {
            starts.began(at(0), at(0));
        }
        starts.refused(at(0));
        for (now, want) in [(0, 4), (29, 4), (30, 8), (3_599, 8), (3_600, 9), (7_200, 10)] {
            assert_eq!(starts.limit(at(now)), want, "now = {now}");
        }
    }

    #[test]
    fn a_seat_that_refuses_everything_is_still_tried_one_by_one() {
        let mut starts = Starts::default();
        for second in 0..100 {
            starts.began(at(60 * second), at(60 * second));
            starts.refused(at(60 * second));
            assert!(starts.limit(at(60 * second)) >= 1);
        }
    }
}
