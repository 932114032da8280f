//! How many requests a seat takes at once.
//!
//! Anthropic refuses a burst of starts with a 429 that names no window. How large a burst may be is told nowhere, so it is
//! learnt: a refusal after so many starts says that one fewer was allowed, and a day without one allows one more.
//! Until then nothing is held back.

use jiff::{SignedDuration, Timestamp};
use smallvec::SmallVec;

/// Starts are counted over this time.
const SPAN: SignedDuration = SignedDuration::from_secs(10);
/// A refusal after fewer is about something else, such as a model that the plan lacks.
const BURST: u32 = 4;
/// So many are counted at most. A limit beyond it is none.
const MOST: usize = 64;
/// After so long without a refusal one more is allowed.
const REGAINED: SignedDuration = SignedDuration::from_hours(24);
/// After a refusal half of what is allowed, for this long.
const BRAKE: SignedDuration = SignedDuration::from_secs(30);

/// A seat's latest starts, and how many it is thought to take.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    recent: SmallVec<[Timestamp; 2]>,
    /// The refusal that was learnt from last, and the number of starts it left.
    refused: Option<(Timestamp, u32)>,
}

impl Starts {
    /// Notes a start, at once or at a time soon after `now`.
    pub(crate) fn began(&mut self, at: Timestamp, now: Timestamp) {
        let over = self.over(now).max((self.recent.len() + 1).saturating_sub(MOST));
        self.recent.drain(..over);
        let place = self.recent.partition_point(|start| *start <= at);
        self.recent.insert(place, at);
    }

    /// Notes that the last start was refused for the burst it was part of.
    pub(crate) fn refused(&mut self, now: Timestamp) {
        let count = self.count(now);
        if (BURST..MOST as u32).contains(&count) {
            let left = count - 1;
            let left = self.learnt(now).map_or(left, |learnt| learnt.min(left));
            self.refused = Some((now, left));
        }
    }

    /// How many began in the last ten seconds, or are about to.
    pub fn count(&self, now: Timestamp) -> u32 {
        (self.recent.len() - self.over(now)) as u32
    }

    /// How many may begin in ten seconds; `None` while no refusal told.
    pub fn limit(&self, now: Timestamp) -> Option<u32> {
        let (refused_at, _) = self.refused?;
        let braked = now.duration_since(refused_at) < BRAKE;
        let learnt = self.learnt(now)?;
        Some(if braked { learnt.div_ceil(2) } else { learnt })
    }

    /// How long a start has to wait until the seat takes it.
    pub fn wait(&self, now: Timestamp) -> SignedDuration {
        let Some(limit) = self.limit(now) else {
            return SignedDuration::ZERO;
        };
        match self.recent.len().checked_sub(limit as usize) {
            Some(at) => (self.recent[at] + SPAN).duration_since(now).max(SignedDuration::ZERO),
            None => SignedDuration::ZERO,
        }
    }

    /// How many of those that are kept began longer ago.
    fn over(&self, now: Timestamp) -> usize {
        let is_over = |start: &Timestamp| now.duration_since(*start) >= SPAN;
        // Every choice asks every seat, and most of them began nothing lately.
        match self.recent.last() {
            Some(last) if !is_over(last) => self.recent.partition_point(is_over),
            _ => self.recent.len(),
        }
    }

    fn learnt(&self, now: Timestamp) -> Option<u32> {
        let (at, left) = self.refused?;
        let regained = now.duration_since(at).as_secs() / REGAINED.as_secs();
        let learnt = left.saturating_add(regained.clamp(0, 1_000) as u32);
        ((learnt as usize) < MOST).then_some(learnt)
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
    use alloc::vec::Vec;

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
    fn nothing_waits_until_a_refused_burst_has_taught_how_many_are_allowed() {
        let mut starts = Starts::default();
        for _ in 0..9 {
            assert_eq!((starts.limit(at(0)), starts.wait(at(0))), (None, SignedDuration::ZERO));
            starts.began(at(0), at(0));
        }
        starts.refused(at(0));
        for (now, want) in [(0, 4), (29, 4), (30, 8), (86_399, 8), (86_400, 9), (172_800, 10)] {
            assert_eq!(starts.limit(at(now)), Some(want), "now = {now}");
        }
        assert_eq!(
            starts.limit(at(10_000_000)),
            None,
            "after months nothing is known of it"
        );
    }

    #[test]
    fn a_start_beyond_the_limit_waits_for_a_place_and_the_next_one_for_the_next_place() {
        let mut starts = Starts::default();
        for second in [0, 1, 2, 3] {
            starts.began(at(second), at(second));
        }
        starts.refused(at(3));
        // Three are allowed, once the brake is off.
        for second in [100, 103, 104] {
            assert_eq!(starts.wait(at(second)), SignedDuration::ZERO);
            starts.began(at(second), at(second));
        }
        let mut waits = Vec::new();
        for _ in 0..3 {
            let wait = starts.wait(at(105));
            starts.began(at(105) + wait, at(105));
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [5, 8, 9]);
    }

    #[test]
    fn only_so_many_starts_are_kept() {
        let mut starts = Starts::default();
        for _ in 0..100_000 {
            starts.began(at(0), at(0));
        }
        starts.refused(at(0));
        assert_eq!((starts.recent.len(), starts.limit(at(0))), (MOST, None));
    }

    #[test]
    fn a_refusal_of_single_requests_teaches_nothing_of_bursts() {
        let mut starts = Starts::default();
        for second in 0..100 {
            starts.began(at(5 * second), at(5 * second));
            starts.refused(at(5 * second));
        }
        assert_eq!(starts.limit(at(500)), None);
    }
}
