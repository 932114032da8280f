//! What the pool has news of for whoever writes down what outlasts the process. That nothing is left out is seen in
//! random histories (`invariants.rs`); here, what is news and what is none.

#![allow(clippy::unwrap_used, reason = "a test program stops where it stumbles")]

mod bench;

use bench::{MODEL, at, attempt, id, only, pool, read, rejected};
use jiff::SignedDuration;
use pool::{
    Action, Chances, End, ExtraUsage, Heard, Memory, Observation, Outcome, Poll, Pool, Refusal, Renewal, Request,
    Token, Tokens, WindowKind, Wishes,
};

/// Three seats of which all is written down.
fn written() -> Pool {
    let mut pool = pool(ExtraUsage::Last);
    assert_eq!(news(&mut pool), ["A", "B", "C"]);
    pool
}

fn news(pool: &mut Pool) -> Vec<String> {
    let news = pool.news();
    let current: Vec<_> = pool.known_seats().filter(|seat| news.contains(seat)).collect();
    assert_eq!(news, current, "a seat is handed out as it is, and once");
    news.iter().map(|seat| seat.id.as_str().into()).collect()
}

fn hear(pool: &mut Pool, heard: impl Into<Heard>) {
    attempt(pool, &only("A"), heard, Chances::ALL, 0);
}

#[test]
fn whatever_changes_what_outlasts_the_process_is_news_once() {
    type Change = fn(&mut Pool);
    let changes: [(&str, Change); 14] = [
        ("served", |pool| hear(pool, Outcome::Served)),
        ("a limit", |pool| {
            hear(pool, Outcome::Limited(rejected(&[(WindowKind::Weekly, 900)])));
        }),
        ("a plan without credits", |pool| hear(pool, Outcome::NoCredits)),
        ("a refused token", |pool| hear(pool, Outcome::Unauthorized)),
        ("figures that come with a failure", |pool| {
            let mut other = Pool::new(pool.policy(), 7);
            other.observe(&id("A"), Observation::Discovered(Wishes::default()), at(0));
            read(&mut other, "A", WindowKind::Weekly, 20.0, 900, 0);
            let windows = other.account(&id("A")).unwrap().windows.iter();
            let heard = Heard {
                windows: windows.map(|(kind, window)| (kind.clone(), *window)).collect(),
                ..Outcome::PassedOn.into()
            };
            hear(pool, heard);
        }),
        ("one failure too many", |pool| {
            for _ in 0..5 {
                hear(pool, Outcome::Faulty);
            }
        }),
        ("one broken answer too many", |pool| {
            for _ in 0..5 {
                let lease = pool.acquire(&only("A"), at(0)).unwrap().lease;
                pool.settle(lease, &End::Interrupted, at(0));
            }
        }),
        ("a model refused too often", |pool| {
            for _ in 0..3 {
                hear(pool, Outcome::Throttled);
            }
        }),
        ("a reading", |pool| read(pool, "A", WindowKind::Weekly, 20.0, 900, 0)),
        ("a poll that failed", |pool| {
            pool.observe(&id("A"), Observation::Polled(Poll::Failed), at(0));
        }),
        ("a poll that is begun", |pool| {
            for other in ["B", "C"] {
                pool.observe(&id(other), Observation::Token(Token::Missing), at(0));
            }
            assert_eq!(pool.due(at(400)), [Action::PollUsage(id("A"))]);
        }),
        ("an owner's word to try it now", |pool| {
            pool.observe(&id("A"), Observation::TryNow, at(0));
        }),
        ("a seat that went and came back", |pool| {
            pool.observe(&id("A"), Observation::Gone, at(0));
            assert_eq!(news(pool), [""; 0], "one that is gone is no news");
            pool.observe(&id("A"), Observation::Discovered(Wishes::default()), at(0));
        }),
        ("what is recalled late", |pool| {
            let seats = pool.known_seats().filter(|seat| seat.id == id("A")).collect();
            let memory = Memory {
                seats,
                ..Memory::default()
            };
            pool.recall(memory, at(0));
        }),
    ];
    for (what, change) in changes {
        let mut pool = written();
        change(&mut pool);
        assert_eq!(news(&mut pool), ["A"], "{what}");
        assert_eq!(news(&mut pool), [""; 0], "{what}, asked again");
    }
}

#[test]
fn a_clock_that_was_set_is_news_of_every_seat() {
    let mut pool = written();
    pool.woke(at(-500));
    assert_eq!(news(&mut pool), ["A", "B", "C"]);
}

#[test]
fn what_ends_with_the_process_is_no_news() {
    type Change = fn(&mut Pool);
    let changes: [(&str, Change); 11] = [
        ("nothing at all", |_| {}),
        ("a token", |pool| {
            pool.observe(&id("A"), Observation::Token(Token::Missing), at(0));
        }),
        ("its owner's wishes", |pool| {
            let wishes = Wishes {
                draining: true,
                ..Wishes::default()
            };
            pool.observe(&id("A"), Observation::Discovered(wishes), at(0));
        }),
        ("what an answer used", |pool| {
            let tokens = Tokens {
                input: 100,
                ..Tokens::default()
            };
            let model = Some(MODEL.into());
            pool.observe(&id("A"), Observation::Metered { model, tokens }, at(0));
        }),
        ("a renewal", |pool| {
            let failed = Renewal::Failed(Some(SignedDuration::from_secs(60)));
            pool.observe(&id("A"), Observation::Renewed(failed), at(0));
        }),
        ("nothing that is due", |pool| {
            assert_eq!(pool.due(at(0)), []);
        }),
        ("a request that was given up", |pool| {
            let lease = pool.acquire(&only("A"), at(0)).unwrap().lease;
            pool.settle(lease, &End::Abandoned, at(0));
        }),
        ("an answer about the request itself", |pool| {
            hear(pool, Outcome::PassedOn);
        }),
        ("a service that is overloaded", |pool| hear(pool, Outcome::Overloaded)),
        ("a single failure", |pool| hear(pool, Outcome::Faulty)),
        ("a single burst", |pool| hear(pool, Outcome::Throttled)),
    ];
    for (what, change) in changes {
        let mut pool = written();
        change(&mut pool);
        assert_eq!(news(&mut pool), [""; 0], "{what}");
    }
}

#[test]
fn who_tries_what_rested_is_no_news() {
    let mut pool = written();
    hear(&mut pool, Outcome::Limited(rejected(&[(WindowKind::Weekly, 900)])));
    news(&mut pool);
    let known = |pool: &Pool| pool.known_seats().collect::<Vec<_>>();
    let before = known(&pool);
    let lease = pool.acquire(&only("A"), at(1_000)).unwrap().lease;
    assert_eq!(pool.acquire(&only("A"), at(1_000)).unwrap_err(), Refusal::Returning);
    assert_eq!((known(&pool), news(&mut pool)), (before, vec![]));
    pool.settle(lease, &End::Withdrawn, at(1_001));
    assert_eq!(news(&mut pool), [""; 0]);
}

#[test]
fn a_refused_model_that_takes_the_place_of_a_served_one_is_news() {
    let mut pool = written();
    let of = |model: String| Request {
        model: Some(model),
        ..only("A")
    };
    for n in 0..32 {
        attempt(&mut pool, &of(format!("claude-{n}")), Outcome::Served, Chances::ALL, n);
    }
    news(&mut pool);
    attempt(&mut pool, &of("claude-32".into()), Outcome::Throttled, Chances::ALL, 40);
    assert_eq!(news(&mut pool), ["A"]);
}
