//! Three seats to try the pool with.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use jiff::Timestamp;
use pool::{
    AccountId, Bench, Chances, End, ExtraUsage, Feature, Features, Granted, Heard, Next, Observation, Outcome, Policy,
    Pool, Rejection, Request, Token, Utilization, Window, WindowKind, Wishes,
};

pub const MODEL: &str = "claude-opus-5-5";
pub const NOW: i64 = 1_000_000;

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(NOW + second).unwrap()
}

pub fn id(name: &str) -> AccountId {
    AccountId::new(name)
}

/// Seats A, B and C, each with a login, the first with the most room; B and C have served the model before.
pub fn pool(extra_usage: ExtraUsage) -> Pool {
    let mut pool = Pool::new(Policy::default(), 7);
    for (name, percent) in [("A", 10.0), ("B", 30.0), ("C", 50.0)] {
        let wishes = Wishes {
            extra_usage,
            ..Wishes::default()
        };
        pool.observe(&id(name), Observation::Discovered(wishes), at(-100));
        pool.observe(
            &id(name),
            Observation::Token(Token::Valid { expires_at: None }),
            at(-100),
        );
        let window = Window {
            used: Utilization::from_percent(percent).unwrap(),
            resets_at: Some(at(3_600)),
            observed_at: at(-100),
        };
        pool.observe(
            &id(name),
            Observation::Reading(vec![(WindowKind::FiveHour, window)]),
            at(-100),
        );
    }
    for other in ["B", "C"] {
        let request = Request {
            allowed: Some(vec![id(other)]),
            ..plain()
        };
        attempt(&mut pool, &request, Outcome::Served, Chances::ALL, -50);
    }
    pool
}

pub fn plain() -> Request {
    Request {
        model: Some(MODEL.into()),
        features: Features::default().with(Feature::LongContext),
        ..Request::default()
    }
}

/// One attempt from beginning to end. Returns the seat, and what is to be done next.
pub fn attempt(
    pool: &mut Pool,
    request: &Request,
    heard: impl Into<Heard>,
    chances: Chances,
    second: i64,
) -> (AccountId, Next) {
    let Granted { lease, .. } = pool.acquire(request, at(second)).unwrap();
    let account = lease.account().clone();
    let next = pool.judge(&lease, request, heard.into(), chances, at(second));
    pool.settle(lease, &End::Whole, at(second));
    (account, next)
}

/// What rests on A, and for how many seconds.
pub fn rests(pool: &Pool) -> Vec<String> {
    let account = pool.account(&id("A")).unwrap();
    let rests = account.rests(at(0));
    let row = |bench: &Bench| {
        let seconds = bench.until.duration_since(at(0)).as_secs();
        format!("{} {} {seconds}", bench.scope.word(), bench.cause.word())
    };
    rests.map(row).collect()
}

pub fn rejected(windows: &[(WindowKind, i64)]) -> Rejection {
    Rejection {
        windows: windows
            .iter()
            .map(|(kind, second)| (kind.clone(), Some(at(*second))))
            .collect(),
        ..Rejection::default()
    }
}

/// A reading of one window of a seat.
pub fn read(pool: &mut Pool, seat: &str, kind: WindowKind, percent: f64, resets_at: i64, second: i64) {
    let window = Window {
        used: Utilization::from_percent(percent).unwrap(),
        resets_at: Some(at(resets_at)),
        observed_at: at(second),
    };
    pool.observe(&id(seat), Observation::Reading(vec![(kind, window)]), at(second));
}

/// A request that may use this seat alone.
pub fn only(seat: &str) -> Request {
    Request {
        allowed: Some(vec![id(seat)]),
        ..plain()
    }
}
