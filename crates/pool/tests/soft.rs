//! What is only thought of a seat, and what costs its owner money: neither makes a limit of its own, and neither comes
//! before what passes by itself.

#![allow(clippy::unwrap_used, reason = "a test program stops where it stumbles")]

mod bench;

use pool::{
    Cause, Chances, Conversation, End, ExtraUsage, Feature, Lease, Observation, Out, Outcome, Pool, Reason, Refusal,
    Renewal, Request, Tier, Token, Utilization, Why, Window, WindowKind,
};

use bench::{MODEL, at, attempt, id, only, plain, rejected};

fn usual() -> Pool {
    bench::pool(ExtraUsage::Last)
}

fn five_hours(second: i64) -> Outcome {
    Outcome::Limited(rejected(&[(WindowKind::FiveHour, second)]))
}

fn beyond() -> Outcome {
    Outcome::Beyond(rejected(&[(WindowKind::FiveHour, 3_600)]))
}

fn on(pool: &mut Pool, seat: &str, outcome: Outcome, second: i64) {
    attempt(pool, &only(seat), outcome, Chances::NONE, second);
}

fn take(pool: &mut Pool, seat: &str, second: i64) -> Lease {
    pool.acquire(&only(seat), at(second)).unwrap().lease
}

fn stands(pool: &Pool, seat: &str, request: &Request, second: i64) -> Result<Tier, Out> {
    let mut standings = pool.standings(request, at(second));
    standings.find(|(account, _)| **account == id(seat)).unwrap().1
}

#[test]
fn a_burst_that_is_refused_is_no_reason_to_think_that_a_plan_lacks_what_it_served() {
    let mut pool = usual();
    on(&mut pool, "A", Outcome::Served, -10);
    let burst: Vec<Lease> = (0..8).map(|_| take(&mut pool, "A", 0)).collect();
    for (number, lease) in burst.into_iter().enumerate() {
        let outcome = if number < 4 {
            Outcome::Throttled
        } else {
            Outcome::Served
        };
        pool.judge(&lease, &plain(), outcome.into(), Chances::NONE, at(1));
        pool.settle(lease, &End::Whole, at(2));
    }
    let account = pool.account(&id("A")).unwrap();
    assert!(account.benches.is_empty(), "{:?}", account.benches);
    assert!(
        account.starts.limit(at(3)).is_some(),
        "how many it takes at once is learnt"
    );
}

#[test]
fn what_a_seat_never_served_teaches_nothing_of_how_many_it_takes_at_once() {
    let mut pool = usual();
    for second in 0..3 {
        on(&mut pool, "A", Outcome::Served, second);
    }
    let another = Request {
        model: Some("claude-opus-9".into()),
        ..only("A")
    };
    attempt(&mut pool, &another, Outcome::Throttled, Chances::NONE, 3);
    assert_eq!(pool.account(&id("A")).unwrap().starts.limit(at(4)), None);
}

#[test]
fn a_seat_that_may_lack_the_model_is_asked_before_all_count_as_full() {
    let mut pool = usual();
    on(&mut pool, "A", Outcome::Lacks(Feature::LongContext), 0);
    for seat in ["B", "C"] {
        on(&mut pool, seat, five_hours(3_600), 1);
    }
    let tried = Request {
        tried: vec![id("B"), id("C")],
        ..plain()
    };
    let (account, _) = attempt(&mut pool, &tried, Outcome::Served, Chances::ALL, 2);
    assert_eq!(account, id("A"));
}

#[test]
fn what_is_paid_for_waits_for_a_seat_that_is_being_tried() {
    let mut pool = usual();
    on(&mut pool, "B", beyond(), 0);
    for (seat, second) in [("A", 100), ("C", 3_600)] {
        on(&mut pool, seat, five_hours(second), 0);
    }
    let probe = take(&mut pool, "A", 200);
    assert_eq!(pool.preview(&plain(), at(201)), Err(Refusal::Returning));
    let impatient = Request {
        impatient: true,
        ..plain()
    };
    assert_eq!(pool.preview(&impatient, at(201)).unwrap().0, id("A"));
    pool.judge(&probe, &plain(), five_hours(3_600).into(), Chances::NONE, at(202));
    pool.settle(probe, &End::Whole, at(202));
    assert_eq!(pool.preview(&plain(), at(203)), Ok((id("B"), Reason::BeyondPlan)));
}

#[test]
fn what_is_paid_for_waits_for_a_login_that_is_being_renewed() {
    let mut pool = usual();
    on(&mut pool, "B", beyond(), 0);
    on(&mut pool, "C", five_hours(3_600), 0);
    let ended = Token::Valid {
        expires_at: Some(at(-1)),
    };
    pool.observe(&id("A"), Observation::Token(ended), at(0));
    assert_eq!(pool.preview(&plain(), at(1)), Err(Refusal::Renewing));
    let impatient = Request {
        impatient: true,
        ..plain()
    };
    assert_eq!(pool.preview(&impatient, at(1)), Ok((id("B"), Reason::BeyondPlan)));
}

#[test]
fn what_is_paid_for_waits_neither_for_a_renewal_that_fails_nor_for_a_seat_that_is_no_better() {
    let ended = || {
        Observation::Token(Token::Valid {
            expires_at: Some(at(-1)),
        })
    };
    for renewal in [
        Renewal::Unreachable,
        Renewal::CannotSave,
        Renewal::Failed(None),
        Renewal::Hidden,
    ] {
        let mut pool = usual();
        on(&mut pool, "B", beyond(), 0);
        on(&mut pool, "C", five_hours(3_600), 0);
        pool.observe(&id("A"), ended(), at(0));
        pool.due(at(0));
        pool.observe(&id("A"), Observation::Renewed(renewal), at(1));
        assert_eq!(
            pool.preview(&plain(), at(31)),
            Ok((id("B"), Reason::BeyondPlan)),
            "{renewal:?}"
        );
    }
    let mut pool = usual();
    for seat in ["A", "B"] {
        on(&mut pool, seat, beyond(), 0);
    }
    on(&mut pool, "C", five_hours(3_600), 0);
    pool.observe(&id("A"), ended(), at(1));
    assert_eq!(pool.preview(&plain(), at(2)), Ok((id("B"), Reason::BeyondPlan)));
}

#[test]
fn a_seat_that_serves_beyond_its_plan_rests_like_any_other_from_what_is_worse() {
    let mut pool = usual();
    on(&mut pool, "A", Outcome::Beyond(pool::Rejection::default()), 0);
    on(&mut pool, "A", Outcome::Unpaid, 1);
    assert!(matches!(stands(&pool, "A", &plain(), 2), Ok(Tier::LastResort(_))));
}

#[test]
fn a_conversation_whose_seat_lacks_its_model_stays_where_it_goes() {
    let mut pool = usual();
    let of_a = Request {
        conversation: Some(Conversation(1)),
        ..only("A")
    };
    attempt(&mut pool, &of_a, Outcome::Served, Chances::NONE, 0);
    attempt(
        &mut pool,
        &only("A"),
        Outcome::Lacks(Feature::LongContext),
        Chances::NONE,
        1,
    );
    let turn = Request {
        conversation: Some(Conversation(1)),
        ..plain()
    };
    let granted = pool.acquire(&turn, at(2)).unwrap();
    let switch = granted.switch.unwrap();
    assert_eq!((switch.why, switch.for_one_turn), (Why::Out(Out::NotInPlan), false));
    let moved_to = granted.lease.account().clone();
    pool.settle(granted.lease, &End::Whole, at(2));
    let (next, reason) = pool.preview(&turn, at(3)).unwrap();
    assert_eq!((next, reason), (moved_to, Reason::SameConversation));
}

#[test]
fn a_limit_that_runs_is_ended_by_no_rest_of_another_kind() {
    let mut pool = usual();
    let told = pool::Rejection {
        resets_at: Some(at(900)),
        ..pool::Rejection::default()
    };
    let under_way = take(&mut pool, "A", 0);
    on(&mut pool, "A", Outcome::Limited(told), 1);
    pool.judge(&under_way, &plain(), Outcome::Unpaid.into(), Chances::NONE, at(2));
    pool.settle(under_way, &End::Whole, at(2));
    let full = Out::Full {
        until: at(900),
        window: None,
    };
    assert_eq!(stands(&pool, "A", &plain(), 3), Err(full));
}

#[test]
fn a_reading_with_room_everywhere_ends_a_limit_that_named_no_window() {
    let told = || pool::Rejection {
        resets_at: Some(at(500_000)),
        ..pool::Rejection::default()
    };
    let reading = |percents: [f64; 2], second| {
        let window = |percent| Window {
            used: Utilization::from_percent(percent).unwrap(),
            resets_at: Some(at(3_600)),
            observed_at: at(second),
        };
        let [five, week] = percents.map(window);
        Observation::Reading(vec![(WindowKind::FiveHour, five), (WindowKind::Weekly, week)])
    };
    for (what, reading, ends) in [
        ("room", reading([10.0, 20.0], 10), true),
        ("a full week", reading([10.0, 100.0], 10), false),
        ("read before", reading([10.0, 20.0], -10), false),
    ] {
        let mut pool = usual();
        on(&mut pool, "A", Outcome::Limited(told()), 0);
        pool.observe(&id("A"), reading, at(11));
        let rests = pool.account(&id("A")).unwrap().rests(at(12)).count();
        assert_eq!(rests == 0, ends, "{what}");
    }
}

#[test]
fn streams_that_break_open_the_breaker_although_each_began_well() {
    let mut pool = usual();
    let broken = |pool: &mut Pool, second| {
        let lease = take(pool, "A", second);
        pool.judge(&lease, &plain(), Outcome::Served.into(), Chances::NONE, at(second));
        pool.settle(lease, &End::Interrupted, at(second));
    };
    (0..4).for_each(|second| broken(&mut pool, second));
    on(&mut pool, "A", Outcome::Served, 4);
    (5..9).for_each(|second| broken(&mut pool, second));
    let fails = |pool: &Pool, second| {
        let mut rests = pool.account(&id("A")).unwrap().rests(at(second));
        rests.any(|bench| bench.cause == Cause::Faults)
    };
    assert!(!fails(&pool, 9), "one that ended well is between them");
    broken(&mut pool, 9);
    assert!(fails(&pool, 10));
}

#[test]
fn an_error_that_opens_a_stream_counts_once() {
    let mut pool = usual();
    for second in 0..4 {
        let lease = take(&mut pool, "A", second);
        pool.judge(&lease, &plain(), Outcome::Faulty.into(), Chances::NONE, at(second));
        pool.settle(lease, &End::Failed(Outcome::Faulty), at(second));
    }
    assert_eq!(pool.account(&id("A")).unwrap().rests(at(5)).count(), 0);
}

#[test]
fn trouble_that_was_met_by_a_clock_that_ran_ahead_is_forgotten() {
    let mut pool = usual();
    for seat in ["A", "B"] {
        on(&mut pool, seat, Outcome::Overloaded, 3_600);
        on(&mut pool, seat, Outcome::Throttled, 3_600);
    }
    pool.woke(at(0));
    assert_eq!(pool.troubles(at(0)), []);
    let brake = pool.account(&id("A")).unwrap().brake.unwrap();
    assert!(brake.until <= at(30), "{brake:?}");
    assert_eq!(
        stands(
            &pool,
            "A",
            &Request {
                model: Some(MODEL.into()),
                ..plain()
            },
            1
        ),
        Ok(Tier::Ready)
    );
}
