//! What requests cost a seat, and what its windows hold.
//!
//! Anthropic tells shares of windows and answers tell tokens; neither tells how many tokens a window holds. The two
//! together do: tokens spent, divided by how far the window moved meanwhile. Shares come in whole per cents, so the sums
//! run over long stretches and begin with a guess.

use jiff::SignedDuration;

use crate::window::{Window, WindowKind};
use crate::windows::PerWindow;

/// What a five-hour window is taken to hold before anything was learnt.
const GUESS: f32 = 5_000_000.0;
/// A week is worth this many full five-hour windows, as public reports have it.
const FIVES_A_WEEK: f32 = 8.0;
/// The guess counts as much as this share of a window that was seen to move.
const PRIOR: f32 = 0.03;
/// Beyond this many whole windows what was seen first is forgotten, so that a changed plan is noticed.
const MEMORY: f32 = 2.0;

/// What one answer used, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Read anew.
    pub input: u64,
    /// Written to the cache.
    pub cache_write: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Answered.
    pub output: u64,
}

impl Tokens {
    /// The same in input tokens, by the proportions of the prices.
    pub fn cost(&self) -> f32 {
        let [input, write, read, output] =
            [self.input, self.cache_write, self.cache_read, self.output].map(|tokens| tokens as f32);
        input + 1.25 * write + 0.1 * read + 5.0 * output
    }
}

/// How one window moved and what that cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge {
    /// How much the window holds, as far as is known.
    pub(crate) capacity: f32,
    /// Spent since the window was last seen.
    pub(crate) spent: f32,
    /// Spent while the window moved by `moved`.
    cost: f32,
    /// As a share of the window.
    moved: f32,
}

/// What is known of a seat's spending, in input tokens.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    gauges: PerWindow<Gauge>,
    /// What the requests under way are expected to cost.
    reserved: f32,
}

impl Meter {
    /// Notes that a request of about that cost began.
    pub(crate) fn reserve(&mut self, cost: f32) {
        self.reserved += cost;
    }

    /// Notes that it ended.
    pub(crate) fn release(&mut self, cost: f32) {
        self.reserved = (self.reserved - cost).max(0.0);
    }

    /// What the requests under way are expected to cost.
    pub fn reserved(&self) -> f32 {
        self.reserved
    }

    /// Notes what an answer for `model` did cost.
    pub(crate) fn spent(&mut self, cost: f32, model: Option<&str>) {
        for (kind, gauge) in self.gauges.iter_mut() {
            if kind.governs(model) {
                gauge.spent += cost;
            }
        }
    }

    /// Notes that a window was seen. `before` is how it was known until now.
    pub(crate) fn saw(&mut self, kind: &WindowKind, before: Option<&Window>, seen: &Window) {
        let guess = self.guess(kind);
        let gauge = self.gauges.or_insert_with(kind, || Gauge::new(guess));
        let spent = core::mem::take(&mut gauge.spent);
        // What moved while nothing of ours was spent was somebody else's, and says nothing of the size.
        let Some(before) = before.filter(|before| spent > 0.0 && is_same(before, seen)) else {
            return;
        };
        gauge.cost += spent;
        gauge.moved += share(seen.used.basis_points()) - share(before.used.basis_points());
        if gauge.moved > MEMORY {
            gauge.cost /= 2.0;
            gauge.moved /= 2.0;
        }
        gauge.capacity = (gauge.cost + PRIOR * guess) / (gauge.moved + PRIOR);
    }

    /// What is known of the window of that kind.
    pub(crate) fn gauge(&self, kind: &WindowKind) -> Gauge {
        let known = self.gauges.get(kind).copied();
        known.unwrap_or_else(|| Gauge::new(self.guess(kind)))
    }

    /// What a window of that kind is taken to hold where it was not seen to move: by the seat's five hours.
    fn guess(&self, kind: &WindowKind) -> f32 {
        let five = self.gauges.get(&WindowKind::FiveHour);
        let five = five.map_or(GUESS, |gauge| gauge.capacity);
        match kind {
            WindowKind::FiveHour => GUESS,
            WindowKind::Weekly => five * FIVES_A_WEEK,
            WindowKind::Model(_) => five * FIVES_A_WEEK / 2.0,
        }
    }
}

impl Gauge {
    const fn new(capacity: f32) -> Self {
        Self {
            capacity,
            spent: 0.0,
            cost: 0.0,
            moved: 0.0,
        }
    }
}

/// Whether both readings are of the same period, and the second is not behind the first. Resets tremble by a second.
fn is_same(before: &Window, seen: &Window) -> bool {
    let period = match (before.resets_at, seen.resets_at) {
        (Some(one), Some(other)) => one.duration_since(other).abs() < SignedDuration::from_mins(2),
        (None, Some(_)) => before.used.basis_points() == 0,
        _ => false,
    };
    period && seen.used >= before.used && seen.observed_at >= before.observed_at
}

fn share(basis_points: u16) -> f32 {
    f32::from(basis_points) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Utilization;
    use jiff::Timestamp;

    fn week(percent: f64, resets_at: i64, observed_at: i64) -> Window {
        Window {
            used: Utilization::from_percent(percent).unwrap(),
            resets_at: Some(Timestamp::from_second(resets_at).unwrap()),
            observed_at: Timestamp::from_second(observed_at).unwrap(),
        }
    }

    /// A hundred answers of 100 000 tokens each, and what the window said after each.
    fn learnt(percent_after: impl Fn(f64) -> f64) -> f32 {
        let mut meter = Meter::default();
        let mut before = week(0.0, 9_000, 0);
        meter.saw(&WindowKind::Weekly, None, &before);
        for answer in 1..=100 {
            meter.spent(100_000.0, None);
            let seen = week(percent_after(f64::from(answer)), 9_000, answer.into());
            meter.saw(&WindowKind::Weekly, Some(&before), &seen);
            before = seen;
        }
        meter.gauge(&WindowKind::Weekly).capacity
    }

    #[test]
    fn what_a_window_holds_is_learnt_from_whole_per_cents() {
        let capacity = learnt(|answer| (answer / 2.0).floor());
        assert!(
            (18e6..23e6).contains(&capacity),
            "{capacity}: 10 M tokens moved it by a half"
        );
    }

    #[test]
    fn what_was_spent_while_the_window_reset_teaches_nothing() {
        let mut meter = Meter::default();
        let before = week(90.0, 50, 0);
        meter.saw(&WindowKind::Weekly, None, &before);
        meter.spent(5e9, None);
        let guess = meter.gauge(&WindowKind::Weekly).capacity;
        meter.saw(&WindowKind::Weekly, Some(&before), &week(1.0, 9_000, 60));
        let gauge = meter.gauge(&WindowKind::Weekly);
        assert_eq!((gauge.capacity, gauge.spent), (guess, 0.0));
    }

    #[test]
    fn what_others_use_teaches_nothing() {
        let mut meter = Meter::default();
        let before = week(10.0, 9_000, 0);
        meter.saw(&WindowKind::Weekly, None, &before);
        let guess = meter.gauge(&WindowKind::Weekly).capacity;
        meter.saw(&WindowKind::Weekly, Some(&before), &week(80.0, 9_000, 60));
        assert_eq!(meter.gauge(&WindowKind::Weekly).capacity, guess);
    }

    #[test]
    fn output_costs_most_and_what_the_cache_holds_least() {
        let tokens = Tokens {
            input: 10,
            cache_write: 100,
            cache_read: 1_000,
            output: 20,
        };
        assert_eq!(tokens.cost(), 10.0 + 125.0 + 100.0 + 100.0);
    }
}
