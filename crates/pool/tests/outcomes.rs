//! The failure table, a row each: what an answer means for its seat, for the request, and for what is noted beside.

#![allow(clippy::unwrap_used, reason = "a test program stops where it stumbles")]

mod bench;

use pool::{Chances, ExtraUsage, Family, Feature, Next, Outcome, Rejection, Trouble, WindowKind};

use bench::{at, attempt, id, plain, rejected, rests};

/// How a request goes on.
#[derive(Debug, PartialEq)]
enum Then {
    /// The client gets what came.
    Deliver,
    /// On this seat, once, after a wait.
    Here,
    /// On this seat, once, at once.
    Reconnect,
    /// On this seat if the store has another login, else on another.
    Reread,
    /// On every other seat that can serve.
    Free,
    /// The same, but what came is kept for the client.
    FreeKept,
    /// On one other seat.
    Spare,
}

impl From<Next> for Then {
    fn from(next: Next) -> Self {
        match next {
            Next::Deliver => Self::Deliver,
            Next::RetryHere { after } => {
                assert!((750..=3_000).contains(&after.as_millis()), "{after:?}");
                Self::Here
            }
            Next::Reconnect => Self::Reconnect,
            Next::RereadAndRetry => Self::Reread,
            Next::TryAnother => Self::Free,
            Next::TryAnotherOrDeliver => Self::FreeKept,
            Next::TryOneOther => Self::Spare,
        }
    }
}

/// The event, its outcome, what the owner says of extra usage, what follows, what rests, what is noted.
type Row = (
    &'static str,
    Outcome,
    ExtraUsage,
    Then,
    Vec<&'static str>,
    Option<Trouble>,
);

#[test]
fn the_table() {
    use ExtraUsage::{Allowed, Last, Never};
    use Outcome as O;
    let fable = || WindowKind::Model(Family::new("fable"));
    let five = || rejected(&[(WindowKind::FiveHour, 3_600)]);
    let both = || rejected(&[(WindowKind::FiveHour, 600), (WindowKind::Weekly, 200_000)]);
    let untold = || Rejection {
        resets_at: Some(at(900)),
        ..Rejection::default()
    };
    let noted = Some;
    #[rustfmt::skip]
    let rows: Vec<Row> = vec![
        ("200", O::Served, Last, Then::Deliver, vec![], None),
        ("429, five hours", O::Limited(five()), Last, Then::Free, vec!["window:fiveHour limit 3600"], None),
        ("429, two windows", O::Limited(both()), Last, Then::Free, vec!["window:fiveHour limit 600", "window:weekly limit 200000"], None),
        ("429, a model's week", O::Limited(rejected(&[(fable(), 120_000)])), Last, Then::Free, vec!["window:model:fable limit 120000"], None),
        ("429, no window told", O::Limited(untold()), Last, Then::Free, vec!["seat limit 900"], None),
        ("429, nothing told", O::Limited(Rejection::default()), Last, Then::Free, vec!["seat limit 60"], None),
        ("429, windowless", O::Throttled, Last, Then::Spare, vec![], None),
        ("429, out of credits", O::NoCredits, Last, Then::Spare, vec!["extraUsage noCredits 1800"], None),
        ("400 or 429, long context", O::Lacks(Feature::LongContext), Last, Then::Spare, vec!["feature:longContext notInPlan 43200"], None),
        ("400 or 429, fast mode", O::Lacks(Feature::FastMode), Last, Then::Spare, vec!["feature:fastMode notInPlan 43200"], None),
        ("200 beyond the plan, never", O::Beyond(five()), Never, Then::Free, vec!["window:fiveHour extraUsage 3600"], None),
        ("200 beyond the plan, last", O::Beyond(five()), Last, Then::Free, vec!["window:fiveHour extraUsage 3600"], None),
        ("200 beyond the plan, allowed", O::Beyond(five()), Allowed, Then::Deliver, vec![], None),
        ("529 or 503", O::Overloaded, Last, Then::Here, vec![], None),
        ("500, 502, 520 to 523", O::Faulty, Last, Then::Here, vec![], None),
        ("504, 524", O::TimedOut, Last, Then::Deliver, vec![], None),
        ("408, 409, 425", O::Unlucky, Last, Then::Here, vec![], None),
        ("401, or 403 revoked", O::Unauthorized, Last, Then::Reread, vec!["seat login 300"], None),
        ("401 without the beta", O::OauthUnsupported, Last, Then::Deliver, vec![], None),
        ("402", O::Unpaid, Last, Then::FreeKept, vec!["seat payment 1800"], None),
        ("403 organisation", O::NotAllowed, Last, Then::Free, vec!["seat organization 1800"], None),
        ("403 model", O::NoSuchModelHere, Last, Then::FreeKept, vec!["model:claude-opus-5-5 notInPlan 43200"], None),
        ("403 place", O::WrongPlace, Last, Then::Deliver, vec![], noted(Trouble::WrongPlace)),
        ("403 challenge", O::Challenged, Last, Then::Deliver, vec![], noted(Trouble::Challenged)),
        ("404 for a model that others served", O::UnknownModel, Last, Then::Spare, vec![], None),
        ("other 4xx", O::PassedOn, Last, Then::Deliver, vec![], None),
        ("no connection", O::Unreachable, Last, Then::Reconnect, vec![], noted(Trouble::Unreachable)),
        ("broken before an answer", O::Broken, Last, Then::Deliver, vec![], None),
    ];
    for (event, outcome, extra_usage, then, want, trouble) in rows {
        let mut pool = bench::pool(extra_usage);
        let (account, next) = attempt(&mut pool, &plain(), outcome.clone(), Chances::ALL, 0);
        assert_eq!(account, id("A"), "{event}");
        assert_eq!(Then::from(next), then, "{event}");
        assert_eq!(rests(&pool), want, "{event}");
        let troubles: Vec<Trouble> = pool.troubles(at(0)).into_iter().map(|(trouble, _)| trouble).collect();
        assert_eq!(troubles, Vec::from_iter(trouble), "{event}");
        assert_eq!(pool.open_leases(), 0, "{event}");

        // What is no seat's own fault is not tried again by a request that has used up its chances.
        if matches!(then, Then::Here | Then::Reconnect | Then::Spare) {
            let mut pool = bench::pool(extra_usage);
            let (_, next) = attempt(&mut pool, &plain(), outcome, Chances::NONE, 0);
            assert_eq!(Then::from(next), Then::Deliver, "{event}, at its end");
        }
    }
}
