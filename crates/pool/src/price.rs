//! What a conversation would cost on a seat: the tokens it will use there, times what a token of that seat is worth now.
//!
//! A token is worth more the scarcer the seat's week is: the time that is left of it, divided by the quota that is left.
//! At 1 the week is used evenly; below, quota would go unused, and above, it runs out early. Plans of different sizes need
//! no table, since all terms are shares of a seat's own windows.

use jiff::Timestamp;

use crate::account::Account;
use crate::window::WindowKind;

/// The numbers in the price. The defaults are what is shipped; others serve to see what each of them is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// How many times dearer its seat must be than another before a conversation leaves a warm cache. By default it
    /// stays as long as the seat may serve: in `examples/policy.rs` each move that comes earlier costs more than it saves.
    pub hysteresis: f32,
    /// From what share of its five hours on a seat gets dearer; infinite for never.
    pub barrier: f32,
    /// Whether requests under way, and what was spent since the last reading, count already.
    pub anticipates: bool,
    /// What the learnt capacity is multiplied with.
    pub capacity: f32,
}

impl Tuning {
    /// What is shipped.
    pub const SHIPPED: Self = Self {
        hysteresis: f32::INFINITY,
        barrier: 0.7,
        anticipates: true,
        capacity: 1.0,
    };
}

impl Default for Tuning {
    fn default() -> Self {
        Self::SHIPPED
    }
}

/// The turns that a conversation is expected to go on for, and a sub-agent's.
const LATER_TURNS: f32 = 12.0;
const LATER_TURNS_OF_AGENTS: f32 = 5.0;
/// What an answer costs, and what a turn adds to its context, where nothing better is known; in input tokens.
const ANSWER: f32 = 3_500.0;
const ADDED: f32 = 2_000.0;
/// The context of a request whose size is not known.
const CONTEXT: f32 = 30_000.0;
/// A token is about so many bytes of a request.
const BYTES_PER_TOKEN: f32 = 4.0;

/// What a request, and the conversation after it, will cost: in input tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bill {
    /// This turn where the cache is warm, and where it is not.
    warm: f32,
    cold: f32,
    /// The turns after it.
    later: f32,
    /// The context it brings.
    pub(crate) context: f32,
}

impl Bill {
    /// Of a request of `size` bytes, 0 if unknown, whose conversation had the context `known` a turn before.
    pub(crate) fn of(size: u32, known: Option<f32>, hour_cache: bool, sub_agent: bool) -> Self {
        let context = match size {
            0 => known.map_or(CONTEXT, |known| known + ADDED),
            size => size as f32 / BYTES_PER_TOKEN,
        };
        let write = if hour_cache { 2.0 } else { 1.25 };
        let new = known.map_or(ADDED, |known| (context - known).max(0.0)).min(context);
        let turn = 0.1 * context + write * ADDED + ANSWER;
        Self {
            warm: 0.1 * (context - new) + write * new + ANSWER,
            cold: write * context + ANSWER,
            later: turn * if sub_agent { LATER_TURNS_OF_AGENTS } else { LATER_TURNS },
            context,
        }
    }

    /// The turns after this one.
    pub(crate) fn later(&self) -> f32 {
        self.later
    }

    /// This turn alone.
    pub(crate) fn turn(&self, warm: bool) -> f32 {
        if warm { self.warm } else { self.cold }
    }
}

const FIVE_HOURS: f32 = 5.0 * 3_600.0;
const WEEK: f32 = 7.0 * 24.0 * 3_600.0;
/// The least share of a week's time that counts as left, so that its last hours are not given away.
const LEAST_TIME: f32 = 0.015;
/// The least share of quota that counts as left.
const LEAST_QUOTA: f32 = 0.004;
/// How many starts in ten seconds a seat is taken to bear where nothing was learnt.
const USUAL_STARTS: u32 = 12;
/// What a token costs once five hours are used up.
const DEAREST: f32 = 100.0;

/// What a token of a seat is worth, and the same with the seat's five hours and starts counted in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Price {
    /// Time left ÷ quota left of the week that is scarcest: 1 where it is used evenly.
    pub(crate) week: f32,
    /// What the token costs now.
    pub(crate) now: f32,
}

/// The price at which `account` takes a request for `model`. `at_home` says that its conversation runs there already.
/// `None` where nothing is known of its windows.
pub(crate) fn price(
    account: &Account,
    model: Option<&str>,
    bill: &Bill,
    at_home: bool,
    tuning: &Tuning,
    now: Timestamp,
) -> Option<Price> {
    let meter = &account.meter;
    let arriving = match at_home {
        true => bill.warm,
        false => bill.cold + bill.later,
    };
    let coming = if tuning.anticipates {
        meter.reserved() + arriving
    } else {
        0.0
    };
    let mut five = None;
    let mut week: Option<f32> = None;
    // Whole seconds are near enough, and cost every seat of every choice less than what is exact.
    let seconds_to = |reset: Timestamp| (reset.as_second() - now.as_second()) as f32;
    let windows = account.windows.iter().filter(|(kind, _)| kind.governs(model));
    windows.for_each(|(kind, window)| {
        let gauge = meter.gauge(kind);
        let capacity = gauge.capacity * tuning.capacity;
        let since = if tuning.anticipates { gauge.spent } else { 0.0 };
        let used = f32::from(window.used_at(now).basis_points()) / 10_000.0;
        let used = used + (since + coming) / capacity;
        let ends = window.resets_at.filter(|&reset| reset > now).map(seconds_to);
        match kind {
            WindowKind::FiveHour => {
                five = Some((used, ends.unwrap_or(FIVE_HOURS), capacity));
            }
            WindowKind::Weekly | WindowKind::Model(_) => {
                let left = ends.unwrap_or(WEEK).min(WEEK);
                let mut quota = 1.0 - used;
                if let Some((five_used, five_left, five_capacity)) = five {
                    // What cannot pass through the five-hour windows before the week ends is not there.
                    let windows = (1.0 - five_used).max(0.0) + (left - five_left).max(0.0) / FIVE_HOURS;
                    quota = quota.min(windows * five_capacity / capacity);
                }
                let worth = (left / WEEK).max(LEAST_TIME) / quota.max(LEAST_QUOTA);
                week = Some(week.map_or(worth, |other| other.max(worth)));
            }
        }
    });
    let barrier = match five {
        Some((used, ..)) => barrier(used, tuning.barrier),
        None if week.is_none() => return None,
        None => 1.0,
    };
    // A seat whose week was never seen is taken to be used evenly.
    let week = week.unwrap_or(1.0);
    Some(Price {
        week,
        now: week * barrier,
    })
}

/// 1 up to `from`, then rising ever more steeply until the window is full.
fn barrier(projected: f32, from: f32) -> f32 {
    if projected <= from {
        return 1.0;
    }
    match (1.0 - projected) / (1.0 - from) {
        room if room <= 0.1 => DEAREST,
        room => 1.0 / (room * room),
    }
}

/// How much dearer a seat is for a new conversation by its latest starts: a third of what it is thought to take is free.
pub(crate) fn crowding(account: &Account, now: Timestamp) -> f32 {
    let limit = account.starts.limit(now).unwrap_or(USUAL_STARTS);
    let above = account.starts.count(now).saturating_sub(limit / 3) as f32;
    1.0 + above / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::AccountId;
    use crate::window::{Family, Utilization, Window};
    use jiff::SignedDuration;

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;
    const OPUS: Option<&str> = Some("claude-opus-5");

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A seat whose windows are used so far, in per cent, and end in so many seconds.
    fn seat(windows: &[(WindowKind, f64, i64)]) -> Account {
        let mut account = Account::new(AccountId::new("a"));
        for (kind, percent, ends) in windows {
            let window = Window {
                used: Utilization::from_percent(*percent).unwrap(),
                resets_at: Some(at(*ends)),
                observed_at: at(0),
            };
            account.see(kind, window, at(0), at(0));
        }
        account
    }

    fn of(account: &Account, model: Option<&str>) -> Price {
        let tuning = Tuning {
            anticipates: false,
            ..Tuning::default()
        };
        price(account, model, &Bill::of(0, None, false, false), false, &tuning, at(0)).unwrap()
    }

    #[test]
    fn a_token_is_worth_the_time_that_is_left_by_the_quota_that_is_left() {
        for (used, days, want) in [
            (0.0, 7, 1.0),
            (50.0, 7, 2.0),
            (50.0, 1, 2.0 / 7.0),
            (90.0, 1, 10.0 / 7.0),
            (100.0, 7, 250.0),
        ] {
            let week = of(&seat(&[(WindowKind::Weekly, used, days * DAY)]), OPUS).week;
            assert!(
                (week / want - 1.0).abs() < 0.01,
                "{used} %, {days} days: {week}, not {want}"
            );
        }
    }

    #[test]
    fn a_weeks_last_hours_are_not_given_away() {
        let week = |ends| of(&seat(&[(WindowKind::Weekly, 0.0, ends)]), OPUS).week;
        assert_eq!(week(60), week(600));
        assert!(week(60) > 0.01);
    }

    #[test]
    fn a_window_that_ends_within_this_second_has_not_begun_anew() {
        let mut seat = seat(&[]);
        let window = Window {
            used: Utilization::from_percent(50.0).unwrap(),
            resets_at: Some(at(60) + SignedDuration::from_millis(900)),
            observed_at: at(0),
        };
        seat.see(&WindowKind::Weekly, window, at(0), at(0));
        let bill = Bill::of(0, None, false, false);
        let week = |now| price(&seat, OPUS, &bill, false, &Tuning::default(), now).unwrap().week;
        assert_eq!(week(at(60)), week(at(30)));
    }

    #[test]
    fn what_cannot_pass_through_the_five_hours_is_not_there() {
        let with_room = of(
            &seat(&[(WindowKind::FiveHour, 0.0, HOUR), (WindowKind::Weekly, 0.0, 2 * HOUR)]),
            OPUS,
        );
        let without = of(
            &seat(&[
                (WindowKind::FiveHour, 60.0, 2 * HOUR),
                (WindowKind::Weekly, 0.0, 2 * HOUR),
            ]),
            OPUS,
        );
        assert!(without.week > 2.0 * with_room.week, "{without:?} {with_room:?}");
    }

    #[test]
    fn a_familys_week_makes_only_its_own_models_dear() {
        let fable = WindowKind::Model(Family::new("fable"));
        let seat = seat(&[(WindowKind::Weekly, 10.0, 6 * DAY), (fable, 95.0, 6 * DAY)]);
        assert!(of(&seat, OPUS).week < 1.0);
        assert!(of(&seat, Some("claude-fable-5")).week > 10.0);
    }

    #[test]
    fn five_hours_are_free_up_to_seven_tenths_and_then_ever_dearer() {
        let now = |used| of(&seat(&[(WindowKind::FiveHour, used, HOUR)]), OPUS).now;
        for (used, want) in [(0.0, 1.0), (70.0, 1.0), (85.0, 4.0), (97.5, DEAREST), (120.0, DEAREST)] {
            assert!((now(used) / want - 1.0).abs() < 0.01, "{used} %: {}", now(used));
        }
    }

    #[test]
    fn what_is_under_way_counts_already_and_more_on_a_small_plan() {
        let mut seat = seat(&[(WindowKind::FiveHour, 60.0, HOUR), (WindowKind::Weekly, 10.0, 6 * DAY)]);
        let bill = Bill::of(400_000, None, false, false);
        let now = |seat: &Account| price(seat, OPUS, &bill, false, &Tuning::default(), at(0)).unwrap().now;
        let idle = now(&seat);
        seat.meter.reserve(1_000_000.0);
        assert!(now(&seat) > idle);
        seat.meter.release(1_000_000.0);
        assert_eq!(now(&seat), idle);
    }

    #[test]
    fn a_seat_of_which_nothing_is_known_has_no_price() {
        let seat = Account::new(AccountId::new("a"));
        let bill = Bill::of(0, None, false, false);
        assert_eq!(price(&seat, OPUS, &bill, false, &Tuning::default(), at(0)), None);
    }

    #[test]
    fn a_cold_turn_costs_its_context_and_an_hour_of_cache_twice() {
        let warm = Bill::of(400_000, Some(100_000.0), false, false);
        assert_eq!(warm.turn(true), 10_000.0 + ANSWER);
        assert_eq!(warm.turn(false), 125_000.0 + ANSWER);
        assert_eq!(
            Bill::of(400_000, Some(100_000.0), true, false).turn(false),
            200_000.0 + ANSWER
        );
    }
}
