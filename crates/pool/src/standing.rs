//! What stands between a seat and a request: the filters in front of the choice.
//!
//! Hard are the owner's word (pause, drain, reserve, pins), a missing login, and a rejection by Anthropic that still
//! runs. Everything that we only read or guess is soft: such a seat is taken when nothing better is left, so that no
//! reading of ours refuses a request that Anthropic would have served.

use jiff::Timestamp;

use crate::account::Account;
use crate::bench::{Bench, Cause, Scope};
use crate::request::Request;
use crate::window::{Utilization, Window, WindowKind};
use crate::windows::Windows;
use crate::wishes::ExtraUsage;

/// From here on five hours count as good as used up: what is under way may take the rest.
pub const FIVE_HOURS_NEARLY_FULL: Utilization = Utilization::from_basis_points(9_850);
/// The same for a week, of which a request takes less.
pub const WEEK_NEARLY_FULL: Utilization = Utilization::from_basis_points(9_960);

/// How well a seat suits a request. A lower tier is taken when no seat of a higher one is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Nothing is in the way.
    Ready,
    /// As many requests start on it together as it may take for now.
    Braked,
    /// It is over its owner's threshold, or as good as full.
    NearlyFull,
    /// It failed lately, or its plan seems to lack what is asked for.
    Marked,
    /// Its plan is used up, and its owner pays for more when nobody else is left.
    SetAside,
    /// It rests for another reason than a limit, until then. Of several the one that returns first.
    LastResort(Timestamp),
}

impl Tier {
    /// Whether it is only taken when there is nothing else to wait for.
    pub(crate) const fn is_last(self) -> bool {
        matches!(self, Self::SetAside | Self::LastResort(_))
    }
}

/// Why a seat is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// Its owner switched it off.
    Disabled,
    /// It takes no new conversations.
    Draining,
    /// It has no login that could be used.
    NoLogin,
    /// It rests from a limit, or what is left of it is its owner's own.
    Full {
        /// When it returns.
        until: Timestamp,
        /// The allowance that keeps it, if that was told.
        window: Option<WindowKind>,
    },
    /// It comes back from a rest, and another request is trying it.
    Trying,
    /// Its plan lacks what is asked for, and another seat's did too: there is nothing to gain.
    NotInPlan,
}

/// What `account` is to `request`. `at_home` says that the request's conversation runs on it.
///
/// # Errors
/// Why it is not taken.
pub fn standing(account: &Account, request: &Request, at_home: bool, now: Timestamp) -> Result<Tier, Out> {
    if is_ready(account, now) {
        return Ok(Tier::Ready);
    }
    match if_logged_in(account, request, at_home, now) {
        Err(out @ (Out::Disabled | Out::Draining)) => Err(out),
        stands if has_login(account, now) => stands,
        _ => Err(Out::NoLogin),
    }
}

/// The same, as if its login were good.
pub(crate) fn if_logged_in(account: &Account, request: &Request, at_home: bool, now: Timestamp) -> Result<Tier, Out> {
    let wishes = &account.wishes;
    if !wishes.enabled {
        return Err(Out::Disabled);
    }
    let is_own = at_home || request.owner.as_ref() == Some(&account.id);
    if wishes.draining && !is_own {
        return Err(Out::Draining);
    }
    let model = request.model.as_deref();
    let tier = rested(account, request, now)?;
    if let Some(full) = reserved(account, model, now) {
        return Err(full);
    }
    let read = match is_nearly_full(&account.windows, wishes.threshold, model, now) {
        true => Tier::NearlyFull,
        false if account.is_braked(now) && !at_home => Tier::Braked,
        false => Tier::Ready,
    };
    Ok(tier.max(read))
}

/// Whether nothing is in the way, whatever is asked for: so it is with most seats most of the time, and every choice asks
/// all of them.
fn is_ready(account: &Account, now: Timestamp) -> bool {
    let wishes = &account.wishes;
    // Whether it has reset meanwhile, and which models it counts, is left to the long look.
    let is_high = |(kind, window): (&WindowKind, &Window)| window.used >= nearly_full(kind).min(wishes.threshold);
    account.benches.is_empty()
        && account.brake.is_none()
        && wishes.enabled
        && !wishes.draining
        && wishes.reserve.basis_points() == 0
        && account.token.is_usable(now)
        && !account.windows.iter().any(is_high)
}

/// Whether a request may be sent with its token.
fn has_login(account: &Account, now: Timestamp) -> bool {
    let refused = |bench: &Bench| bench.cause == Cause::Login && bench.runs(now);
    account.token.is_usable(now) && !account.benches.iter().any(refused)
}

/// What the seat's rests make of it.
fn rested(account: &Account, request: &Request, now: Timestamp) -> Result<Tier, Out> {
    let mut tier = Tier::Ready;
    let mut full: Option<(Timestamp, Option<WindowKind>)> = None;
    let mut trying = false;
    for bench in &account.benches {
        if !bench.scope.covers(request) || bench.is_moot(account.wishes.extra_usage) {
            continue;
        }
        let until = bench.until;
        if !bench.runs(now) {
            if bench.trying >= bench.allowance {
                trying |= bench.allowance == 1 && !request.impatient;
                tier = tier.max(Tier::Braked);
            }
            continue;
        }
        let is_hard = match bench.cause {
            Cause::Limit => true,
            Cause::ExtraUsage => account.wishes.extra_usage == ExtraUsage::Never || lacks_credits(account, now),
            Cause::NotInPlan if request.lacking => return Err(Out::NotInPlan),
            _ => false,
        };
        if is_hard && full.as_ref().is_none_or(|(latest, _)| *latest < until) {
            full = Some((until, bench.window().cloned()));
        }
        tier = tier.max(match bench.cause {
            Cause::Payment | Cause::Organization => Tier::LastResort(until),
            Cause::ExtraUsage => Tier::SetAside,
            Cause::NotInPlan | Cause::Faults => Tier::Marked,
            Cause::Limit | Cause::Login | Cause::NoCredits => Tier::Ready,
        });
    }
    match full {
        Some((until, window)) => Err(Out::Full { until, window }),
        None if trying => Err(Out::Trying),
        None => Ok(tier),
    }
}

/// Whether there are no credits for what goes beyond its plan.
fn lacks_credits(account: &Account, now: Timestamp) -> bool {
    account
        .benches
        .iter()
        .any(|bench| bench.scope == Scope::ExtraUsage && bench.runs(now))
}

/// The window whose remainder is the owner's own; of several the one that lasts longest.
fn reserved(account: &Account, model: Option<&str>, now: Timestamp) -> Option<Out> {
    let reserve = account.wishes.reserve.basis_points();
    if reserve == 0 {
        return None;
    }
    account
        .windows
        .iter()
        .filter(|(kind, window)| kind.governs(model) && window.used_at(now).left() <= reserve)
        // One that has not begun has no end; it is read anew within minutes.
        .map(|(kind, window)| {
            let reset = window.resets_at.filter(|&reset| reset > now);
            (reset.unwrap_or(now + crate::outcome::UNTOLD_REST), kind)
        })
        .max()
        .map(|(until, kind)| Out::Full {
            until,
            window: Some(kind.clone()),
        })
}

/// From where on a window is as good as used up.
const fn nearly_full(kind: &WindowKind) -> Utilization {
    match kind {
        WindowKind::FiveHour => FIVE_HOURS_NEARLY_FULL,
        WindowKind::Weekly | WindowKind::Model(_) => WEEK_NEARLY_FULL,
    }
}

/// Whether a window that counts `model` is at its owner's threshold, or so full that the next request may be refused.
fn is_nearly_full(windows: &Windows, threshold: Utilization, model: Option<&str>, now: Timestamp) -> bool {
    windows.iter().any(|(kind, window)| {
        // Most are not, so that what is looked for in the model's name is looked for seldom.
        window.used_at(now) >= nearly_full(kind).min(threshold) && kind.governs(model)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Brake, Token};
    use crate::bench::Source;
    use crate::id::AccountId;
    use crate::window::Family;
    use crate::wishes::Wishes;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seat(wishes: Wishes, windows: &[(WindowKind, f64)]) -> Account {
        let mut account = Account::new(AccountId::new("a"));
        account.token = Token::Valid { expires_at: None };
        account.wishes = wishes;
        for (kind, percent) in windows {
            let window = Window {
                used: Utilization::from_percent(*percent).unwrap(),
                resets_at: Some(at(1_000)),
                observed_at: at(0),
            };
            account.windows.observe(kind, window);
        }
        account
    }

    fn full(kind: WindowKind) -> Result<Tier, Out> {
        Err(Out::Full {
            until: at(1_000),
            window: Some(kind),
        })
    }

    #[test]
    fn the_owners_word_is_hard_and_readings_are_soft() {
        use WindowKind::{FiveHour, Weekly};
        let share = Utilization::from_basis_points;
        let usual = Wishes::default();
        let off = Wishes {
            enabled: false,
            ..usual
        };
        let reserving = Wishes {
            reserve: share(2_000),
            ..usual
        };
        let all_of_it = Wishes {
            reserve: Utilization::FULL,
            ..usual
        };
        let limited = Wishes {
            threshold: share(8_000),
            ..usual
        };
        let fable = || WindowKind::Model(Family::new("fable"));
        for (what, wishes, windows, want) in [
            ("nothing known", usual, &[][..], Ok(Tier::Ready)),
            ("room", usual, &[(FiveHour, 98.4), (Weekly, 99.5)], Ok(Tier::Ready)),
            (
                "five hours nearly full",
                usual,
                &[(FiveHour, 98.5)],
                Ok(Tier::NearlyFull),
            ),
            ("a week nearly full", usual, &[(Weekly, 99.6)], Ok(Tier::NearlyFull)),
            ("full, as we read it", usual, &[(Weekly, 100.0)], Ok(Tier::NearlyFull)),
            (
                "the owner's threshold",
                limited,
                &[(Weekly, 80.0)],
                Ok(Tier::NearlyFull),
            ),
            ("switched off", off, &[], Err(Out::Disabled)),
            ("above the reserve", reserving, &[(FiveHour, 79.9)], Ok(Tier::Ready)),
            ("at the reserve", reserving, &[(FiveHour, 80.0)], full(FiveHour)),
            ("all of it reserved", all_of_it, &[(Weekly, 0.0)], full(Weekly)),
            (
                "another model's window",
                reserving,
                &[(fable(), 100.0)],
                Ok(Tier::Ready),
            ),
        ] {
            let request = Request::default();
            assert_eq!(standing(&seat(wishes, windows), &request, false, at(1)), want, "{what}");
        }
    }

    #[test]
    fn who_is_ready_at_a_glance_is_ready_after_a_long_look_too() {
        use WindowKind::{FiveHour, Weekly};
        let share = Utilization::from_basis_points;
        let usual = Wishes::default();
        let wishes = [
            usual,
            Wishes {
                enabled: false,
                ..usual
            },
            Wishes {
                draining: true,
                ..usual
            },
            Wishes {
                reserve: share(2_000),
                ..usual
            },
            Wishes {
                threshold: share(8_000),
                ..usual
            },
        ];
        let valid = |expires_at: i64| Token::Valid {
            expires_at: Some(at(expires_at)),
        };
        let tokens = [valid(2_000), valid(500), Token::Missing];
        let limit = |until| Bench::new(Scope::Seat, Cause::Limit, Source::Rule, at(0), at(until));
        let brake = |limit| Brake { limit, until: at(900) };
        let mut ready = 0;
        for (wishes, token) in wishes
            .into_iter()
            .flat_map(|wishes| tokens.map(|token| (wishes, token)))
        {
            for (five, week) in [
                (0.0, 0.0),
                (79.9, 99.5),
                (85.0, 0.0),
                (98.5, 0.0),
                (0.0, 99.6),
                (100.0, 100.0),
            ] {
                for bench in [None, Some(limit(100)), Some(limit(900))] {
                    for brake in [None, Some(brake(0)), Some(brake(1))] {
                        let mut seat = seat(wishes, &[(FiveHour, five), (Weekly, week)]);
                        seat.token = token;
                        seat.brake = brake;
                        seat.benches.extend(bench.clone());
                        // Before anything ends, while it runs, and after the windows have reset.
                        for now in [at(1), at(600), at(1_500)] {
                            let glance = is_ready(&seat, now);
                            let long = if_logged_in(&seat, &Request::default(), false, now);
                            let has_login = has_login(&seat, now);
                            assert!(!glance || long == Ok(Tier::Ready) && has_login, "{seat:?} at {now}");
                            ready += u32::from(glance);
                        }
                    }
                }
            }
        }
        assert!(ready > 0);
    }

    #[test]
    fn a_draining_seat_finishes_its_conversations_and_keeps_its_ids() {
        let draining = Wishes {
            draining: true,
            ..Wishes::default()
        };
        let seat = seat(draining, &[]);
        let owned = Request {
            owner: Some(seat.id.clone()),
            ..Request::default()
        };
        let new = Request::default();
        assert_eq!(standing(&seat, &new, false, at(1)), Err(Out::Draining));
        assert_eq!(standing(&seat, &new, true, at(1)), Ok(Tier::Ready));
        assert_eq!(standing(&seat, &owned, false, at(1)), Ok(Tier::Ready));
    }
}
