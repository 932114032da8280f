//! What stands between a seat and a request: the filters in front of the choice.
//!
//! Hard are the owner's word (pause, drain, reserve, pins), a missing login, and a rejection by Anthropic that still
//! runs. Everything that we only read or guess is soft: such a seat is taken when nothing else is left, so that no
//! reading of ours refuses a request that Anthropic would have served.

use jiff::Timestamp;

use crate::account::Account;
use crate::request::Request;
use crate::window::{Utilization, WindowKind, Windows};

/// From here on five hours count as good as used up: what is under way may take the rest.
pub const FIVE_HOURS_NEARLY_FULL: Utilization = Utilization::from_basis_points(9_850);
/// The same for a week, of which a request takes less.
pub const WEEK_NEARLY_FULL: Utilization = Utilization::from_basis_points(9_960);

/// What a seat is to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is in the way.
    Ready,
    /// It is taken when nothing better is left.
    Soft,
    /// It is not taken.
    Out(Out),
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
}

/// What `account` is to `request`. `at_home` says that the request's conversation runs on it.
pub fn standing(account: &Account, request: &Request, at_home: bool, now: Timestamp) -> Standing {
    let wishes = &account.wishes;
    if !wishes.enabled {
        return Standing::Out(Out::Disabled);
    }
    let is_own = at_home || request.owner.as_ref() == Some(&account.id);
    if wishes.draining && !is_own {
        return Standing::Out(Out::Draining);
    }
    if !account.token.is_usable(now) {
        return Standing::Out(Out::NoLogin);
    }
    let model = request.model.as_deref();
    if let Some(full) = rejected(account, model, now).or_else(|| reserved(account, model, now)) {
        return Standing::Out(full);
    }
    match is_nearly_full(&account.windows, wishes.threshold, model, now) {
        true => Standing::Soft,
        false => Standing::Ready,
    }
}

/// The rejection that keeps it longest from serving `model`.
fn rejected(account: &Account, model: Option<&str>, now: Timestamp) -> Option<Out> {
    let rest = account.resting(model, now)?;
    Some(Out::Full {
        until: rest.until,
        window: rest.window.clone(),
    })
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
        .map(|(kind, window)| (window.resets_at.unwrap_or(now + crate::outcome::UNTOLD_REST), kind))
        .max()
        .map(|(until, kind)| Out::Full {
            until,
            window: Some(kind.clone()),
        })
}

/// Whether a window that counts `model` is at its owner's threshold, or so full that the next request may be refused.
fn is_nearly_full(windows: &Windows, threshold: Utilization, model: Option<&str>, now: Timestamp) -> bool {
    windows
        .iter()
        .filter(|(kind, _)| kind.governs(model))
        .any(|(kind, window)| {
            let most = match kind {
                WindowKind::FiveHour => FIVE_HOURS_NEARLY_FULL,
                WindowKind::Weekly | WindowKind::Model(_) => WEEK_NEARLY_FULL,
            };
            window.used_at(now) >= most.min(threshold)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{AccountId, Token, Wishes};
    use crate::window::{Family, Window};

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
            account.windows.observe(kind.clone(), window);
        }
        account
    }

    fn full(kind: WindowKind) -> Standing {
        Standing::Out(Out::Full {
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
            ("nothing known", usual, &[][..], Standing::Ready),
            ("room", usual, &[(FiveHour, 98.4), (Weekly, 99.5)], Standing::Ready),
            ("five hours nearly full", usual, &[(FiveHour, 98.5)], Standing::Soft),
            ("a week nearly full", usual, &[(Weekly, 99.6)], Standing::Soft),
            ("full, as we read it", usual, &[(Weekly, 100.0)], Standing::Soft),
            ("the owner's threshold", limited, &[(Weekly, 80.0)], Standing::Soft),
            ("switched off", off, &[], Standing::Out(Out::Disabled)),
            ("above the reserve", reserving, &[(FiveHour, 79.9)], Standing::Ready),
            ("at the reserve", reserving, &[(FiveHour, 80.0)], full(FiveHour)),
            ("all of it reserved", all_of_it, &[(Weekly, 0.0)], full(Weekly)),
            (
                "another model's window",
                reserving,
                &[(fable(), 100.0)],
                Standing::Ready,
            ),
        ] {
            let request = Request::default();
            assert_eq!(standing(&seat(wishes, windows), &request, false, at(1)), want, "{what}");
        }
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
        assert_eq!(standing(&seat, &new, false, at(1)), Standing::Out(Out::Draining));
        assert_eq!(standing(&seat, &new, true, at(1)), Standing::Ready);
        assert_eq!(standing(&seat, &owned, false, at(1)), Standing::Ready);
    }
}
