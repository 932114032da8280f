//! How long the pool will last, from how fast its allowances have been used up.
//!
//! A forecast informs, and makes the choice a little stricter. It never benches a seat: only Anthropic's word does.

use alloc::vec::Vec;

use jiff::{SignedDuration, Timestamp};

use crate::account::Account;
use crate::bench::Cause;
use crate::window::{Utilization, Window, WindowKind};
use crate::windows::PerWindow;

/// Resets this close to each other are one and the same: the time that Anthropic tells trembles.
const SAME_RESET: SignedDuration = SignedDuration::from_secs(60);
/// A use slower than this, in basis points an hour, is none.
const NO_USE: f64 = 1.0;

/// How fast a seat's allowances are being used up.
#[derive(Clone, Debug, Default)]
pub struct Burns(PerWindow<Burn>);

/// A moving average, which follows within the window's own time and fades while nothing is read.
#[derive(Clone, Copy, Debug)]
struct Burn {
    /// Basis points an hour.
    per_hour: f64,
    seen_at: Timestamp,
}

/// How long the average remembers, in hours.
const fn memory_h(kind: &WindowKind) -> f64 {
    match kind {
        WindowKind::FiveHour => 0.5,
        WindowKind::Weekly | WindowKind::Model(_) => 8.0,
    }
}

fn hours(span: SignedDuration) -> f64 {
    span.as_millis() as f64 / 3_600_000.0
}

impl Burns {
    /// Takes in what was `seen` of a window, after what was seen `before`.
    pub(crate) fn see(&mut self, kind: &WindowKind, before: Option<&Window>, seen: &Window) {
        let Some(before) = before else { return };
        let passed = hours(seen.observed_at.duration_since(before.observed_at));
        if passed <= 0.0 {
            return;
        }
        let same = match (before.resets_at, seen.resets_at) {
            (Some(one), Some(other)) => one.duration_since(other).abs() < SAME_RESET,
            // It had not begun.
            (None, _) => true,
            (Some(_), None) => false,
        };
        let used = |window: &Window| f64::from(window.used.basis_points());
        let spent = match same {
            true => (used(seen) - used(before)).max(0.0),
            // What was used before the reset is not known.
            false => used(seen),
        };
        let memory = memory_h(kind);
        let old = self.per_hour(kind, before.observed_at);
        let per_hour = old + passed / (passed + memory) * (spent / passed - old);
        let burn = Burn {
            per_hour,
            seen_at: seen.observed_at,
        };
        *self.0.or_insert_with(kind, || burn) = burn;
    }

    /// How fast it is used up at `now`, in basis points an hour.
    pub fn per_hour(&self, kind: &WindowKind, now: Timestamp) -> f64 {
        let Some(burn) = self.0.get(kind) else {
            return 0.0;
        };
        let idle = hours(now.duration_since(burn.seen_at)).max(0.0);
        let memory = memory_h(kind);
        burn.per_hour * memory / (memory + idle)
    }

    /// When `window` is used up if this goes on; `None` if it resets before.
    pub fn lasts_until(&self, kind: &WindowKind, window: &Window, now: Timestamp) -> Option<Timestamp> {
        let left = f64::from(window.used_at(now).left());
        let end = ahead(now, left, self.per_hour(kind, now))?;
        window.resets_at.is_none_or(|reset| end < reset).then_some(end)
    }
}

/// When `left` is gone, at that speed; `None` if that is too slow to tell.
fn ahead(now: Timestamp, left: f64, per_hour: f64) -> Option<Timestamp> {
    if per_hour < NO_USE {
        return None;
    }
    let millis = (left / per_hour * 3_600_000.0) as i64;
    now.checked_add(SignedDuration::from_millis(millis)).ok()
}

/// How long the pool will last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forecast {
    /// Nothing was read that would tell.
    Unknown,
    /// It lasts: what is used up returns in time.
    Enough,
    /// At this speed it is used up before enough of it returns.
    RunsOut {
        /// When.
        lasts_until: Timestamp,
        /// When the first of its allowances returns after that.
        returns_at: Option<Timestamp>,
    },
    /// All of it rests.
    Resting {
        /// When the first seat returns.
        returns_at: Timestamp,
    },
}

/// Forecasts for `seats`, each with how fast it is being used up. Seats count alike, since nobody tells how large they
/// are.
pub(crate) fn forecast<'a>(seats: impl Iterator<Item = (&'a Account, &'a Burns)>, now: Timestamp) -> Forecast {
    let serving: Vec<_> = seats
        .filter(|(seat, _)| seat.wishes.enabled && !seat.wishes.draining && seat.token.is_usable(now))
        .collect();
    let limited = |seat: &Account| {
        let limits = seat
            .rests(now)
            .filter(|bench| bench.keeps_the_seat() && bench.cause == Cause::Limit);
        limits.map(|bench| bench.until).max()
    };
    let rests: Vec<Option<Timestamp>> = serving.iter().map(|(seat, _)| limited(seat)).collect();
    if !rests.is_empty() && rests.iter().all(Option::is_some) {
        return match rests.iter().flatten().min() {
            Some(&returns_at) => Forecast::Resting { returns_at },
            None => Forecast::Unknown,
        };
    }
    let ends = [WindowKind::FiveHour, WindowKind::Weekly].map(|kind| {
        let known: Vec<Stock> = serving
            .iter()
            .zip(&rests)
            .filter_map(|((seat, burns), rest)| {
                let window = seat.windows.get(&kind)?;
                Some(Stock {
                    left: match rest {
                        Some(_) => 0.0,
                        None => f64::from(window.used_at(now).left()),
                    },
                    returns_at: rest.or(window.resets_at).filter(|&at| at > now),
                    per_hour: burns.per_hour(&kind, now),
                })
            })
            .collect();
        (!known.is_empty()).then(|| used_up(known, now))
    });
    match ends {
        [None, None] => Forecast::Unknown,
        [five_hours, week] => {
            let soonest = five_hours.flatten().into_iter().chain(week.flatten()).min();
            soonest.map_or(Forecast::Enough, |(lasts_until, returns_at)| Forecast::RunsOut {
                lasts_until,
                returns_at,
            })
        }
    }
}

/// What is left of one allowance of one seat.
struct Stock {
    left: f64,
    returns_at: Option<Timestamp>,
    per_hour: f64,
}

/// When all of it is used up at the speed of all of it, and when the first returns after that; `None` if it lasts
/// beyond the last known return.
fn used_up(mut stocks: Vec<Stock>, now: Timestamp) -> Option<(Timestamp, Option<Timestamp>)> {
    let per_hour: f64 = stocks.iter().map(|stock| stock.per_hour).sum();
    let mut left: f64 = stocks.iter().map(|stock| stock.left).sum();
    let mut at = now;
    stocks.sort_by_key(|stock| stock.returns_at.unwrap_or(Timestamp::MAX));
    for stock in &stocks {
        let end = ahead(at, left, per_hour)?;
        let Some(returns_at) = stock.returns_at else {
            return Some((end, None));
        };
        if end < returns_at {
            return Some((end, Some(returns_at)));
        }
        left -= per_hour * hours(returns_at.duration_since(at));
        left += f64::from(Utilization::FULL.basis_points()) - stock.left;
        at = returns_at;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    use crate::account::Token;
    use crate::bench::{Bench, Scope, Source};
    use crate::id::AccountId;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + minute * 60).unwrap()
    }

    fn window(percent: f64, resets_at: Option<i64>, observed_at: i64) -> Window {
        Window {
            used: Utilization::from_percent(percent).unwrap(),
            resets_at: resets_at.map(at),
            observed_at: at(observed_at),
        }
    }

    /// A seat of which five hours were read every minute, from `from` to `to` per cent, up to minute 60.
    fn read(from: f64, to: f64, resets_at: i64) -> (Account, Burns) {
        let mut seat = Account::new(AccountId::new("a"));
        seat.token = Token::Valid { expires_at: None };
        let mut burns = Burns::default();
        for minute in 0..=60 {
            let seen = window(from + (to - from) * minute as f64 / 60.0, Some(resets_at), minute);
            burns.see(&WindowKind::FiveHour, seat.windows.get(&WindowKind::FiveHour), &seen);
            seat.windows.observe(&WindowKind::FiveHour, seen);
        }
        (seat, burns)
    }

    fn of(seats: &[(Account, Burns)]) -> Forecast {
        forecast(seats.iter().map(|(seat, burns)| (seat, burns)), at(60))
    }

    #[test]
    fn the_speed_is_an_average_that_follows_and_fades() {
        let (_, burns) = read(0.0, 30.0, 300);
        let speed = |minute| burns.per_hour(&WindowKind::FiveHour, at(minute));
        assert!((2_400.0..3_000.0).contains(&speed(60)), "{}", speed(60));
        assert!(speed(90) < speed(60) && speed(600) < speed(60) / 10.0, "{}", speed(600));
    }

    #[test]
    fn a_reset_is_not_read_as_use_given_back() {
        let mut burns = Burns::default();
        let (before, after) = (window(90.0, Some(10), 0), window(1.0, Some(310), 20));
        burns.see(&WindowKind::FiveHour, Some(&before), &after);
        let speed = burns.per_hour(&WindowKind::FiveHour, at(20));
        assert!((0.0..400.0).contains(&speed), "{speed}");
    }

    #[test]
    fn the_pool_lasts_until_what_is_left_is_gone_unless_more_returns_before() {
        // 40 % left at about 54 % an hour.
        let Forecast::RunsOut {
            lasts_until,
            returns_at,
        } = of(&[read(0.0, 60.0, 300)])
        else {
            panic!("it runs out");
        };
        assert!((at(95)..at(125)).contains(&lasts_until), "{lasts_until}");
        assert_eq!(returns_at, Some(at(300)));
        for (what, seats, want) in [
            ("nothing is known", vec![], Forecast::Unknown),
            ("nothing is used", vec![read(50.0, 50.0, 300)], Forecast::Enough),
            ("it returns in time", vec![read(0.0, 60.0, 90)], Forecast::Enough),
            (
                "another seat has room",
                vec![read(0.0, 60.0, 150), read(0.0, 0.0, 200)],
                Forecast::Enough,
            ),
        ] {
            assert_eq!(of(&seats), want, "{what}");
        }
    }

    #[test]
    fn a_pool_that_rests_says_when_it_returns() {
        let rest = |minute| {
            let (mut seat, burns) = read(0.0, 100.0, minute);
            let scope = Scope::Window(WindowKind::FiveHour);
            seat.rest(Bench::new(scope, Cause::Limit, Source::Window, at(60), at(minute)));
            (seat, burns)
        };
        assert_eq!(of(&[rest(300), rest(200)]), Forecast::Resting { returns_at: at(200) });
    }

    #[test]
    fn a_window_lasts_until_it_is_full_or_resets() {
        let (seat, burns) = read(0.0, 60.0, 300);
        let window = seat.windows.get(&WindowKind::FiveHour).unwrap();
        let until = burns.lasts_until(&WindowKind::FiveHour, window, at(60)).unwrap();
        assert!((at(95)..at(125)).contains(&until), "{until}");
        let soon = Window {
            resets_at: Some(at(80)),
            ..*window
        };
        assert_eq!(burns.lasts_until(&WindowKind::FiveHour, &soon, at(60)), None);
    }
}
