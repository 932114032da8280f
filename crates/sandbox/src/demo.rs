//! Three made-up seats that fill up while one watches, and recover.

use crate::{Meter, Now, Sandbox, Seat};

/// Five hours, for the impatient.
const WINDOW_S: i64 = 120;
const DAY_S: i64 = 24 * 3600;
/// About twenty requests, and all three seats are full.
const COST: f64 = 0.07;
/// A day of demonstration must not use up a week.
const WEEKLY_SHARE: f64 = 0.005;
const PACE_MS: u64 = 40;

/// A sandbox with seats `personal`, `work` and `spare`, whose five-hour windows last two minutes.
pub fn demo(now: Now) -> Sandbox {
    let now_s = now().div_euclid(1000);
    let sandbox = Sandbox::new(now);
    sandbox.set_pace(PACE_MS);
    let seat = |name: &str, used: f64, weekly: f64, resets_in_s: i64| Seat {
        five_hour: Meter {
            used,
            resets_at_s: Some(now_s + resets_in_s),
            length_s: WINDOW_S,
        },
        weekly_share: WEEKLY_SHARE,
        organization_name: name.to_owned(),
        ..Seat::new(name)
            .weekly(weekly, now_s + 4 * DAY_S)
            .with_fable()
            .cost(COST)
    };
    sandbox.add_seat(seat("personal", 0.62, 0.41, WINDOW_S - 15));
    sandbox.add_seat(seat("work", 0.20, 0.12, WINDOW_S));
    sandbox.add_seat(seat("spare", 0.85, 0.33, WINDOW_S - 30));
    sandbox
}
