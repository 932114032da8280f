//! What an answer means: for its seat, for what is noted beside it, and for the request. The whole policy on failures,
//! in one table.

use alloc::{vec, vec::Vec};

use jiff::{SignedDuration, Timestamp};

use crate::bench::{Bench, Cause, Scope, Source};
use crate::request::Feature;
use crate::window::WindowKind;

/// A rest after a limit that came without a time, or with one that has passed; the window is read anew meanwhile.
pub const UNTOLD_REST: SignedDuration = SignedDuration::from_secs(60);
/// The longest rest after a five-hour rejection; a hint beyond it is wrong.
pub const FIVE_HOUR_CAP: SignedDuration = SignedDuration::from_mins(5 * 60 + 5);
/// The longest rest after any other rejection.
pub const WEEKLY_CAP: SignedDuration = SignedDuration::from_hours(8 * 24);
/// The least wait before the same seat is tried once more.
pub const LEAST_WAIT: SignedDuration = SignedDuration::from_millis(750);
/// The longest.
pub const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(3);
/// How long a seat rests that must be paid first, or has no credits for what goes beyond its plan.
const UNPAID: Length = Length::Fixed(SignedDuration::from_mins(30));
/// How long a model or a feature is known to be missing from a plan.
pub(crate) const NOT_IN_PLAN: Length = Length::Fixed(SignedDuration::from_hours(12));
/// How long a seat rests whose organisation does not allow this use.
const NOT_ALLOWED: Length = Length::Growing(SignedDuration::from_mins(30), SignedDuration::from_hours(6));
/// How long a refused token is not tried.
const REFUSED: Length = Length::Growing(SignedDuration::from_mins(5), SignedDuration::from_mins(30));
/// How long a seat rests that failed several times in a row.
pub(crate) const FAILING: Length = Length::Growing(SignedDuration::from_secs(30), SignedDuration::from_mins(5));

/// What an attempt's answer is, or its lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Served.
    Served,
    /// Served, beyond the plan: the allowances that are used up.
    Beyond(Rejection),
    /// 429 for a plan's limit.
    Limited(Rejection),
    /// 429 that names no limit; it says nothing about the seat's allowances.
    Throttled,
    /// 429 for want of credits: the plan does not cover it, and nothing else does.
    NoCredits,
    /// 400 or 429 for a feature that the plan lacks.
    Lacks(Feature),
    /// 401, or a 403 that says the token was revoked.
    Unauthorized,
    /// 401 because the request lacked the OAuth beta value; no fault of the seat.
    OauthUnsupported,
    /// 402.
    Unpaid,
    /// 403, or a 400 that says the same: the organisation is switched off, or does not allow logins.
    NotAllowed,
    /// 403: no permission for this model.
    NoSuchModelHere,
    /// 404 for the model.
    UnknownModel,
    /// 403 for the place or the network.
    WrongPlace,
    /// A page that wants a person to prove that it is one.
    Challenged,
    /// 529 or 503: overloaded, before any content.
    Overloaded,
    /// A fault of the service, before any content.
    Faulty,
    /// A gateway waited in vain: the request may have run.
    TimedOut,
    /// 408, 409, 425: bad luck.
    Unlucky,
    /// An answer about the request itself.
    PassedOn,
    /// No connection came about, so nothing was sent.
    Unreachable,
    /// The connection broke before an answer.
    Broken,
}

impl Outcome {
    /// Whether the seat's plan may lack what the request asks for.
    pub const fn is_of_the_plan(&self) -> bool {
        matches!(self, Self::Throttled | Self::Lacks(_) | Self::NoSuchModelHere)
    }
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

/// What is noted beside rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nothing: it says nothing about anybody.
    Nothing,
    /// The seat serves.
    Good,
    /// The seat, or the way to it, failed; several in a row are a reason to rest.
    Fault,
    /// Trouble of no single seat, perhaps.
    Trouble(Trouble),
}

/// Trouble that is not one seat's: of Anthropic's service, or of this machine's way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The service is overloaded.
    Overloaded,
    /// Requests are throttled whichever seat they use.
    Throttled,
    /// Logins are refused whichever seat they belong to.
    LoginsRefused,
    /// Requests from here must pass a challenge.
    Challenged,
    /// Requests from this place or network are not allowed.
    WrongPlace,
    /// Anthropic cannot be reached.
    Unreachable,
}

/// What to do with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Give the client what came.
    Deliver,
    /// Drop what came and try another seat. Each gets its turn, since the fault is the seat's own.
    TryAnother,
    /// The same, but what came is given to the client if nobody has better, and no seat is just out for a limit.
    TryAnotherOrDeliver,
    /// Try another seat, once for this request; then give the client what came.
    TryOneOther,
    /// Read the login again, and try here once more if it holds another token; else try another seat.
    RereadAndRetry,
    /// Try here once more, after a short wait; then give the client what came.
    RetryHere {
        /// The wait.
        after: SignedDuration,
    },
    /// Try here once more at once, over a new connection.
    Reconnect,
}

/// How long a rest lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// So long.
    Fixed(SignedDuration),
    /// So long at first, twice as long with each further one, up to so long.
    Growing(SignedDuration, SignedDuration),
}

/// What follows from an outcome.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Consequence {
    /// What rests from now on.
    pub(crate) rests: Vec<Rest>,
    /// What is noted beside.
    pub(crate) note: Note,
    /// What to do with the request.
    pub(crate) next: Next,
}

/// A rest to come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// As Anthropic said.
    Told(Bench),
    /// By our own rule.
    Ruled(Scope, Cause, Length),
}

/// The table. Whether a move or a retry is still open to the request, and whether its owner pays for what goes beyond
/// the plan, is not decided here.
pub(crate) fn consequence(outcome: &Outcome, model: Option<&str>, now: Timestamp) -> Consequence {
    use Cause::{Limit, Login, NotInPlan, Organization, Payment};
    use Next::{Deliver, Reconnect, RereadAndRetry, TryAnother, TryAnotherOrDeliver, TryOneOther};
    use Note::{Fault, Good, Nothing, Trouble as Noted};
    use Outcome as O;

    let ruled = |scope, cause, length| vec![Rest::Ruled(scope, cause, length)];
    let model = || model.map_or(Scope::Seat, |model| Scope::Model(model.into()));
    let none = Vec::new;
    let retry_here = Next::RetryHere { after: LEAST_WAIT };
    #[rustfmt::skip]
    let (rests, note, next) = match outcome {
        // outcome               what rests                                          noted                             then
        O::Served            => (none(),                                             Good,                             Deliver),
        O::Beyond(used_up)   => (told(used_up, Cause::ExtraUsage, now),              Good,                             TryAnother),
        O::Limited(rejected) => (told(rejected, Limit, now),                         Nothing,                          TryAnother),
        O::Throttled         => (none(),                                             Noted(Trouble::Throttled),        TryOneOther),
        O::NoCredits         => (ruled(Scope::ExtraUsage, Cause::NoCredits, UNPAID), Nothing,                          TryOneOther),
        O::Lacks(feature)    => (ruled(Scope::Feature(*feature), NotInPlan, NOT_IN_PLAN), Nothing,                     TryOneOther),
        O::Unauthorized      => (ruled(Scope::Seat, Login, REFUSED),                 Noted(Trouble::LoginsRefused),    RereadAndRetry),
        O::OauthUnsupported  => (none(),                                             Nothing,                          Deliver),
        O::Unpaid            => (ruled(Scope::Seat, Payment, UNPAID),                Nothing,                          TryAnotherOrDeliver),
        O::NotAllowed        => (ruled(Scope::Seat, Organization, NOT_ALLOWED),      Nothing,                          TryAnother),
        O::NoSuchModelHere   => (ruled(model(), NotInPlan, NOT_IN_PLAN),             Nothing,                          TryAnotherOrDeliver),
        O::UnknownModel      => (none(),                                             Nothing,                          TryOneOther),
        O::WrongPlace        => (none(),                                             Noted(Trouble::WrongPlace),       Deliver),
        O::Challenged        => (none(),                                             Noted(Trouble::Challenged),       Deliver),
        O::Overloaded        => (none(),                                             Noted(Trouble::Overloaded),       retry_here),
        O::Faulty            => (none(),                                             Fault,                            retry_here),
        O::TimedOut          => (none(),                                             Fault,                            Deliver),
        O::Unlucky           => (none(),                                             Nothing,                          retry_here),
        O::PassedOn          => (none(),                                             Nothing,                          Deliver),
        O::Unreachable       => (none(),                                             Noted(Trouble::Unreachable),      Reconnect),
        O::Broken            => (none(),                                             Nothing,                          Deliver),
    };
    Consequence { rests, note, next }
}

/// The rests that follow from a rejection. The window's own reset counts first, then the answer's, then
/// `retry-after`; a time that has passed or is missing gives a minute, in which the reading is fetched anew.
fn told(rejection: &Rejection, cause: Cause, now: Timestamp) -> Vec<Rest> {
    let ahead = |at: &Timestamp| *at > now;
    let answers = rejection.resets_at.filter(ahead).map(|reset| (reset, Source::Answer));
    let waits = rejection
        .retry_after
        .and_then(|wait| now.checked_add(wait).ok())
        .filter(ahead);
    let hinted = answers.or(waits.map(|until| (until, Source::RetryAfter)));
    let rest = |window: Option<&WindowKind>, own: Option<Timestamp>| {
        let cap = match window {
            Some(WindowKind::FiveHour) => FIVE_HOUR_CAP,
            Some(WindowKind::Weekly | WindowKind::Model(_)) | None => WEEKLY_CAP,
        };
        let own = own.filter(ahead).map(|reset| (reset, Source::Window));
        let (until, source) = own.or(hinted).unwrap_or((now + UNTOLD_REST, Source::Rule));
        let scope = window.cloned().map_or(Scope::Seat, Scope::Window);
        Rest::Told(Bench::new(scope, cause, source, now, until.min(now + cap)))
    };
    match rejection.windows.is_empty() {
        true => vec![rest(None, None)],
        false => rejection
            .windows
            .iter()
            .map(|(kind, own)| rest(Some(kind), *own))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_rest_lasts_to_the_best_hint_within_its_cap() {
        use Source::{Answer, RetryAfter, Rule, Window};
        let five = |reset: Option<i64>| vec![(WindowKind::FiveHour, reset.map(|s| at(NOW + s)))];
        let week = |reset: Option<i64>| vec![(WindowKind::Weekly, reset.map(|s| at(NOW + s)))];
        for (what, windows, overall, retry_after, want) in [
            (
                "the window's own reset",
                five(Some(3_600)),
                Some(600),
                Some(5),
                (3_600, Window),
            ),
            (
                "the answer's where the window has none",
                five(None),
                Some(600),
                Some(5),
                (600, Answer),
            ),
            (
                "retry-after where there is no reset",
                week(None),
                None,
                Some(124_633),
                (124_633, RetryAfter),
            ),
            ("a minute where nothing is said", five(None), None, None, (60, Rule)),
            (
                "a minute where the reset has passed",
                five(Some(-5)),
                Some(-5),
                None,
                (60, Rule),
            ),
            (
                "five hours and five minutes at most",
                five(Some(700_000)),
                None,
                None,
                (18_300, Window),
            ),
            (
                "eight days at most",
                week(Some(9_000_000)),
                None,
                None,
                (691_200, Window),
            ),
            (
                "no window named: the whole seat",
                vec![],
                Some(900),
                None,
                (900, Answer),
            ),
        ] {
            let rejection = Rejection {
                windows,
                resets_at: overall.map(|s| at(NOW + s)),
                retry_after: retry_after.map(SignedDuration::from_secs),
            };
            let rests = told(&rejection, Cause::Limit, at(NOW));
            let got: Vec<_> = rests
                .into_iter()
                .map(|rest| match rest {
                    Rest::Told(bench) => (bench.until.as_second() - NOW, bench.source),
                    Rest::Ruled(..) => panic!("{what}"),
                })
                .collect();
            assert_eq!(got, [want], "{what}");
        }
    }
}
