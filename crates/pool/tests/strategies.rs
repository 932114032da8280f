//! The strategies over the same filters.

#![allow(clippy::unwrap_used, reason = "a test program stops where it stumbles")]

use jiff::{SignedDuration, Timestamp};
use pool::{
    AccountId, Chances, Conversation, End, Heard, Observation, Outcome, Policy, Pool, Reason, Rejection, Request,
    Strategy, Token, Utilization, Window, WindowKind, Wishes,
};
use proptest::prelude::{Just, any, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

const DAY: i64 = 24 * 3_600;
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn id(name: &str) -> AccountId {
    AccountId::new(name)
}

fn ordered(order: u32) -> Wishes {
    Wishes {
        order,
        ..Wishes::default()
    }
}

/// What is read of a seat: five hours and week, used in per cent, the week ending in so many days.
type Seen = (f64, f64, i64);

fn read(pool: &mut Pool, name: &str, (five, week, days): Seen, now: i64) {
    let window = |percent, ends| Window {
        used: Utilization::from_percent(percent).unwrap(),
        resets_at: Some(at(ends)),
        observed_at: at(now),
    };
    let windows = vec![
        (WindowKind::FiveHour, window(five, now + 3 * 3_600)),
        (WindowKind::Weekly, window(week, days * DAY)),
    ];
    pool.observe(&id(name), Observation::Reading(windows), at(now));
}

fn pool(strategy: Strategy, seats: &[(&str, Wishes, Seen)]) -> Pool {
    let mut pool = Pool::new(
        Policy {
            strategy,
            ..Policy::default()
        },
        7,
    );
    for (name, wishes, seen) in seats {
        pool.observe(&id(name), Observation::Discovered(*wishes), at(0));
        pool.observe(&id(name), Observation::Token(Token::Valid { expires_at: None }), at(0));
        read(&mut pool, name, *seen, 0);
    }
    pool
}

fn request(conversation: u64) -> Request {
    Request {
        conversation: Some(Conversation(conversation)),
        model: Some("claude-opus-5-5".into()),
        ..Request::default()
    }
}

/// A turn from beginning to end: who served it, and why.
fn turn(pool: &mut Pool, request: &Request, now: i64) -> (String, Reason) {
    let granted = pool.acquire(request, at(now)).unwrap();
    let served = granted.lease.account().to_string();
    pool.judge(&granted.lease, request, Outcome::Served.into(), Chances::ALL, at(now));
    pool.settle(granted.lease, &End::Whole, at(now));
    (served, granted.reason)
}

#[test]
fn who_gets_a_new_conversation_by_each_strategy() {
    let seats = [
        // As full as its week is old.
        ("even", ordered(2), (20.0, 50.0, 3)),
        // Full, but its week begins anew tomorrow.
        ("expiring", ordered(3), (10.0, 60.0, 1)),
        // The emptiest, with a long week before it.
        ("fresh", ordered(1), (5.0, 30.0, 6)),
    ];
    for (strategy, want, reason) in [
        (Strategy::Headroom, "fresh", Reason::MostRoom),
        (Strategy::Order, "fresh", Reason::FirstInOrder),
        (Strategy::FillFirst, "expiring", Reason::Fullest),
        (Strategy::RoundRobin, "even", Reason::ItsTurn),
        (Strategy::Price, "expiring", Reason::RoomToSpare),
    ] {
        let mut pool = pool(strategy, &seats);
        assert_eq!(turn(&mut pool, &request(1), 1), (want.into(), reason), "{strategy:?}");
    }
}

#[test]
fn the_only_one_of_several_that_can_serve_is_said_to_be_that_by_each_strategy() {
    let off = Wishes {
        enabled: false,
        ..ordered(1)
    };
    let seats = [
        ("paused", off, (0.0, 0.0, 5)),
        ("ready", ordered(2), (50.0, 50.0, 5)),
        ("full", ordered(3), (100.0, 100.0, 5)),
    ];
    for strategy in Strategy::ALL {
        let mut pool = pool(strategy, &seats);
        let want = ("ready".into(), Reason::OnlyOne);
        assert_eq!(turn(&mut pool, &request(1), 1), want, "{strategy:?}");
    }
}

#[test]
fn in_order_a_seat_that_is_back_takes_over_again_by_itself() {
    let mut pool = pool(
        Strategy::Order,
        &[
            ("second", ordered(2), (0.0, 0.0, 5)),
            ("main", ordered(1), (0.0, 0.0, 5)),
        ],
    );
    assert_eq!(turn(&mut pool, &request(1), 1).0, "main");
    let granted = pool.acquire(&request(1), at(2)).unwrap();
    let windows = vec![(WindowKind::FiveHour, Some(at(100)))];
    let limited = Outcome::Limited(Rejection {
        windows,
        ..Rejection::default()
    });
    pool.judge(&granted.lease, &request(1), Heard::from(limited), Chances::ALL, at(2));
    pool.settle(granted.lease, &End::Whole, at(2));
    assert_eq!(turn(&mut pool, &request(1), 3).0, "second");
    assert_eq!(turn(&mut pool, &request(1), 50).0, "second");
    assert_eq!(turn(&mut pool, &request(1), 200), ("main".into(), Reason::FirstInOrder));
}

#[test]
fn in_order_a_seat_over_its_threshold_is_passed_over_and_the_least_bad_serves_when_all_are() {
    let cautious = |order| Wishes {
        threshold: Utilization::from_percent(80.0).unwrap(),
        ..ordered(order)
    };
    let mut pool = pool(
        Strategy::Order,
        &[
            ("main", cautious(1), (90.0, 10.0, 5)),
            ("second", cautious(2), (10.0, 10.0, 5)),
        ],
    );
    assert_eq!(turn(&mut pool, &request(1), 1).0, "second");
    read(&mut pool, "second", (85.0, 10.0, 5), 2);
    assert_eq!(
        turn(&mut pool, &request(1), 3),
        ("main".into(), Reason::LeastFull),
        "best effort, in order"
    );
}

#[test]
fn round_robin_deals_new_conversations_and_leaves_old_ones_where_they_are() {
    let even = (10.0, 10.0, 5);
    let mut pool = pool(
        Strategy::RoundRobin,
        &[
            ("a", ordered(1), even),
            ("b", ordered(1), even),
            ("c", ordered(1), even),
        ],
    );
    let dealt: Vec<String> = (0..6).map(|n| turn(&mut pool, &request(n), 1).0).collect();
    assert_eq!(dealt, ["a", "b", "c", "a", "b", "c"]);
    let again: Vec<String> = (0..6).map(|n| turn(&mut pool, &request(n), 2).0).collect();
    assert_eq!(again, dealt);
}

#[test]
fn fill_first_leaves_a_conversation_where_it_is() {
    let mut pool = pool(
        Strategy::FillFirst,
        &[("a", ordered(1), (40.0, 10.0, 5)), ("b", ordered(1), (30.0, 10.0, 5))],
    );
    assert_eq!(turn(&mut pool, &request(1), 1).0, "a");
    read(&mut pool, "b", (60.0, 10.0, 5), 2);
    assert_eq!(turn(&mut pool, &request(1), 3), ("a".into(), Reason::SameConversation));
    assert_eq!(turn(&mut pool, &request(2), 3).0, "b");
}

#[test]
fn by_price_a_warm_cache_stays_and_a_cold_one_is_free_to_move() {
    let mut pool = pool(
        Strategy::Price,
        &[("a", ordered(1), (10.0, 10.0, 5)), ("b", ordered(1), (10.0, 60.0, 6))],
    );
    assert_eq!(turn(&mut pool, &request(1), 1), ("a".into(), Reason::RoomToSpare));
    read(&mut pool, "a", (90.0, 80.0, 5), 2);
    assert_eq!(
        turn(&mut pool, &request(1), 200),
        ("a".into(), Reason::SameConversation)
    );
    assert_eq!(turn(&mut pool, &request(1), 600), ("b".into(), Reason::LeastShort));
    let hour = Request {
        hour_cache: true,
        ..request(2)
    };
    read(&mut pool, "a", (10.0, 10.0, 5), 601);
    assert_eq!(turn(&mut pool, &hour, 602).0, "a");
    read(&mut pool, "a", (90.0, 80.0, 5), 603);
    assert_eq!(turn(&mut pool, &hour, 3_000).0, "a", "its cache lives for an hour");
}

#[test]
fn by_price_a_burst_waits_for_its_turn_once_a_refusal_has_taught_how_many_may_start() {
    let mut pool = pool(Strategy::Price, &[("only", ordered(1), (0.0, 0.0, 5))]);
    let mut start = |now| pool.acquire(&request(now as u64), at(now)).unwrap().lease;
    let served = start(-60);
    let mut last = start(1);
    for _ in 0..12 {
        assert!(last.wait().is_zero(), "nothing is known yet");
        last = start(1);
    }
    for (lease, outcome) in [(&served, Outcome::Served), (&last, Outcome::Throttled)] {
        pool.judge(lease, &request(1), outcome.into(), Chances::NONE, at(1));
    }
    let mut start = |now| pool.acquire(&request(now as u64), at(now)).unwrap().lease.wait();
    let waits: Vec<SignedDuration> = (0..15).map(|_| start(100)).collect();
    assert_eq!(waits.iter().filter(|wait| wait.is_zero()).count(), 12);
    assert!(
        waits[12..].iter().all(|wait| *wait == SignedDuration::from_secs(10)),
        "{waits:?}"
    );
}

#[test]
fn by_price_thirty_starts_are_spread_over_the_seats() {
    let even = (10.0, 10.0, 5);
    let mut pool = pool(
        Strategy::Price,
        &[
            ("a", ordered(1), even),
            ("b", ordered(1), even),
            ("c", ordered(1), even),
        ],
    );
    let mut count = std::collections::BTreeMap::new();
    for n in 0..30 {
        let granted = pool.acquire(&request(n), at(1)).unwrap();
        assert!(granted.lease.wait().is_zero());
        *count.entry(granted.lease.account().to_string()).or_insert(0) += 1;
    }
    assert!(count.values().all(|&n| n <= 12) && count.len() == 3, "{count:?}");
}

#[test]
fn by_price_what_is_free_is_no_load() {
    let mut pool = pool(
        Strategy::Price,
        &[("a", ordered(1), (10.0, 10.0, 5)), ("b", ordered(1), (10.0, 30.0, 5))],
    );
    for n in 0..30 {
        let count = Request {
            is_free: true,
            ..request(n)
        };
        let granted = pool.acquire(&count, at(1)).unwrap();
        assert_eq!(granted.lease.account(), &id("a"));
        assert!(granted.lease.wait().is_zero());
    }
}

#[test]
fn ties_fall_alike_after_a_restart() {
    let even = (10.0, 10.0, 5);
    let seats = [
        ("a", ordered(1), even),
        ("b", ordered(1), even),
        ("c", ordered(1), even),
    ];
    let dealt = |seed| -> Vec<String> {
        (0..50)
            .map(|n| {
                let policy = Policy {
                    strategy: Strategy::Price,
                    ..Policy::default()
                };
                let mut fresh = Pool::new(policy, seed);
                for (name, wishes, seen) in &seats {
                    fresh.observe(&id(name), Observation::Discovered(*wishes), at(0));
                    fresh.observe(&id(name), Observation::Token(Token::Valid { expires_at: None }), at(0));
                    read(&mut fresh, name, *seen, 0);
                }
                turn(&mut fresh, &request(n), 1).0
            })
            .collect()
    };
    let first = dealt(1);
    assert_eq!(first, dealt(2));
    assert!(
        ["a", "b", "c"]
            .iter()
            .all(|name| first.iter().any(|dealt| dealt == name))
    );
}

proptest! {
    /// Whatever the readings: no seat that is out, and no seat of a lower group while one of a higher is ready.
    #[test]
    fn no_strategy_gets_past_the_filters(
        seats in proptest::collection::vec(
            (any::<bool>(), 1..4_u32, 0.0..110.0_f64, 0.0..110.0_f64, 1..7_i64, any::<bool>()), 1..6),
        conversation in any::<u64>(),
        strategy in prop_oneof![Just(0_usize), Just(1), Just(2), Just(3), Just(4)].prop_map(|n| Strategy::ALL[n]),
    ) {
        let mut pool = Pool::new(Policy { strategy, ..Policy::default() }, 7);
        for (n, (enabled, group, five, week, days, is_read)) in seats.iter().enumerate() {
            let name = n.to_string();
            let wishes = Wishes { enabled: *enabled, group: *group, ..Wishes::default() };
            pool.observe(&id(&name), Observation::Discovered(wishes), at(0));
            pool.observe(&id(&name), Observation::Token(Token::Valid { expires_at: None }), at(0));
            if *is_read {
                read(&mut pool, &name, (*five, *week, *days), 0);
            }
        }
        let request = request(conversation);
        let standings: Vec<_> = pool
            .standings(&request, at(1))
            .filter_map(|(id, stands)| Some((stands.ok()?, pool.account(id)?.wishes.group, id.clone())))
            .collect();
        match pool.acquire(&request, at(1)) {
            Ok(granted) => {
                let best = standings.iter().map(|(tier, group, _)| (*tier, *group)).min().unwrap();
                let taken = standings.iter().find(|(_, _, id)| id == granted.lease.account());
                let (tier, group, _) = taken.expect("a seat that is out was taken");
                assert_eq!((*tier, *group), best);
                pool.settle(granted.lease, &End::Whole, at(1));
            }
            Err(_) => assert!(standings.is_empty(), "refused, though a seat could serve"),
        }
    }
}
