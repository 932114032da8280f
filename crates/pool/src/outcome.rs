//! What an attempt's end means for its seat, and what happens next: the failure policy, in one table.

use alloc::vec::Vec;

use jiff::{SignedDuration, Timestamp};

use crate::window::WindowKind;

/// A rest after a limit that came without a time, or with one that has passed.
pub const UNTOLD_REST: SignedDuration = SignedDuration::from_secs(60);
/// The longest rest after a five-hour rejection; a hint beyond it is wrong.
pub const FIVE_HOUR_CAP: SignedDuration = SignedDuration::from_mins(5 * 60 + 5);
/// The longest rest after a weekly rejection.
pub const WEEKLY_CAP: SignedDuration = SignedDuration::from_hours(8 * 24);

/// How an attempt on a seat ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered to the last byte.
    Served,
    /// 429 for a plan's limit.
    Limited(Rejection),
    /// 429 that names no limit; it says nothing about the seat.
    Throttled,
    /// 401, or a 403 that says the token was revoked.
    Unauthorized,
    /// 401 because the request lacked the OAuth beta value; no fault of the seat.
    OauthUnsupported,
    /// Overloaded, before any content.
    Overloaded,
    /// A fault of the service, before any content.
    Faulty,
    /// An answer about the request itself; it is passed on as it came and nothing is remembered.
    PassedOn,
    /// No answer: refused, unreachable, or cut before its head.
    Unreachable,
    /// The answer broke off.
    Interrupted,
    /// The client left.
    Abandoned,
    /// Taken back before the request was complete upstream: nothing has run.
    Withdrawn,
}

/// What a limit answer said about which allowance, and until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejection {
    /// The windows that were rejected, each with its own reset.
    pub windows: Vec<(WindowKind, Option<Timestamp>)>,
    /// The reset of the answer as a whole.
    pub resets_at: Option<Timestamp>,
    /// `retry-after`.
    pub retry_after: Option<SignedDuration>,
}

/// A seat's rest from a rejection by Anthropic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooldown {
    /// The allowance that was rejected: a family's bench that family only, any other the seat.
    /// `None` where the answer did not say which.
    pub window: Option<WindowKind>,
    /// When it was set.
    pub since: Timestamp,
    /// When it ends.
    pub until: Timestamp,
}

/// What to do with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Give the client what came.
    Deliver,
    /// Try another seat. Every seat gets its turn, since the fault is the seat's own.
    TryAnother,
    /// Try another seat, once for this request; then give the client what came.
    TryOneOther,
    /// Read the login again, and try here once more if it holds another token; else try another seat.
    RereadAndRetry,
    /// Try here once more, after a short wait; then give the client what came.
    RetryHere,
}

/// The whole policy on how attempts end. The rests it returns replace those of the same window.
pub fn consequence(outcome: &Outcome, now: Timestamp) -> (Vec<Cooldown>, Next) {
    use Outcome::*;
    match outcome {
        Served | Interrupted | Abandoned | Withdrawn | PassedOn | OauthUnsupported | Unreachable => {
            (Vec::new(), Next::Deliver)
        }
        Limited(rejection) => (rests(rejection, now), Next::TryAnother),
        Throttled => (Vec::new(), Next::TryOneOther),
        Unauthorized => (Vec::new(), Next::RereadAndRetry),
        Overloaded | Faulty => (Vec::new(), Next::RetryHere),
    }
}

/// The rests that follow from a rejection. The window's own reset counts first, then the answer's, then
/// `retry-after`; a time that has passed or is missing gives a minute, in which the reading is fetched anew.
fn rests(rejection: &Rejection, now: Timestamp) -> Vec<Cooldown> {
    let hinted = rejection
        .resets_at
        .filter(|&reset| reset > now)
        .or_else(|| now.checked_add(rejection.retry_after?).ok())
        .filter(|&until| until > now);
    let rest = |window: Option<&WindowKind>, own: Option<Timestamp>| {
        let cap = match window {
            Some(WindowKind::FiveHour) => FIVE_HOUR_CAP,
            Some(WindowKind::Weekly | WindowKind::Model(_)) | None => WEEKLY_CAP,
        };
        let until = own.filter(|&reset| reset > now).or(hinted).unwrap_or(now + UNTOLD_REST);
        Cooldown {
            window: window.cloned(),
            since: now,
            until: until.min(now + cap),
        }
    };
    if rejection.windows.is_empty() {
        return alloc::vec![rest(None, None)];
    }
    rejection
        .windows
        .iter()
        .map(|(kind, own)| rest(Some(kind), *own))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Family;
    use alloc::vec;

    const NOW: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn until(rejection: &Rejection) -> Vec<i64> {
        let (rests, next) = consequence(&Outcome::Limited(rejection.clone()), at(NOW));
        assert_eq!(next, Next::TryAnother);
        rests.iter().map(|rest| rest.until.as_second() - NOW).collect()
    }

    #[test]
    fn a_rest_lasts_to_the_best_hint_within_its_cap() {
        let five = |reset: Option<i64>| vec![(WindowKind::FiveHour, reset.map(|s| at(NOW + s)))];
        let week = |reset: Option<i64>| vec![(WindowKind::Weekly, reset.map(|s| at(NOW + s)))];
        let secs = SignedDuration::from_secs;
        for (what, windows, overall, retry_after, want) in [
            (
                "the window's own reset",
                five(Some(3_600)),
                Some(600),
                Some(5),
                vec![3_600],
            ),
            (
                "the answer's reset where the window has none",
                five(None),
                Some(600),
                Some(5),
                vec![600],
            ),
            (
                "retry-after where there is no reset",
                week(None),
                None,
                Some(124_633),
                vec![124_633],
            ),
            ("a minute where nothing is said", five(None), None, None, vec![60]),
            (
                "a minute where the reset has passed",
                five(Some(-5)),
                Some(-5),
                None,
                vec![60],
            ),
            (
                "five hours and five minutes at most",
                five(Some(700_000)),
                None,
                None,
                vec![18_300],
            ),
            ("eight days at most", week(Some(9_000_000)), None, None, vec![691_200]),
            ("no window named: the whole seat", vec![], Some(900), None, vec![900]),
        ] {
            let rejection = Rejection {
                windows,
                resets_at: overall.map(|s| at(NOW + s)),
                retry_after: retry_after.map(secs),
            };
            assert_eq!(until(&rejection), want, "{what}");
        }
    }

    #[test]
    fn a_familys_rejection_rests_the_family_alone() {
        let fable = WindowKind::Model(Family::new("fable"));
        let rejection = Rejection {
            windows: vec![(fable.clone(), Some(at(NOW + 120_000)))],
            ..Rejection::default()
        };
        let (rests, _) = consequence(&Outcome::Limited(rejection), at(NOW));
        assert_eq!(rests[0].window, Some(fable));
    }

    #[test]
    fn only_a_limit_gives_a_rest() {
        for (outcome, next) in [
            (Outcome::Served, Next::Deliver),
            (Outcome::Throttled, Next::TryOneOther),
            (Outcome::Unauthorized, Next::RereadAndRetry),
            (Outcome::OauthUnsupported, Next::Deliver),
            (Outcome::Overloaded, Next::RetryHere),
            (Outcome::Faulty, Next::RetryHere),
            (Outcome::PassedOn, Next::Deliver),
            (Outcome::Unreachable, Next::Deliver),
            (Outcome::Interrupted, Next::Deliver),
            (Outcome::Abandoned, Next::Deliver),
            (Outcome::Withdrawn, Next::Deliver),
        ] {
            assert_eq!(consequence(&outcome, at(NOW)), (Vec::new(), next), "{outcome:?}");
        }
    }
}
