//! The rules over the table: when rests end and how what rested comes back, what is held back while trouble lasts, who
//! is the last resort.

#![allow(clippy::unwrap_used, reason = "a test program stops where it stumbles")]

mod bench;

use pool::{
    Cause, Chances, End, ExtraUsage, Feature, Granted, Heard, Lease, Next, Observation, Out, Outcome, Pool, Reason,
    Refusal, Renewal, Request, Tier, Token, Trouble, Why, WindowKind, Wishes,
};

use bench::{MODEL, at, attempt, id, only, plain, read, rejected, rests};

fn usual() -> Pool {
    bench::pool(ExtraUsage::Last)
}

fn five_hours(second: i64) -> Outcome {
    Outcome::Limited(rejected(&[(WindowKind::FiveHour, second)]))
}

/// Lets A end that way, whatever else could serve.
fn on_a(pool: &mut Pool, outcome: Outcome, second: i64) -> Next {
    let (account, next) = attempt(pool, &only("A"), outcome, Chances::ALL, second);
    assert_eq!(account, id("A"));
    next
}

/// A served answer that told of its limits.
fn within_limits() -> Heard {
    Heard {
        outcome: Outcome::Served,
        windows: Vec::new(),
        allowed: true,
    }
}

fn take(pool: &mut Pool, request: &Request, second: i64) -> Lease {
    pool.acquire(request, at(second)).unwrap().lease
}

fn end(pool: &mut Pool, lease: Lease, heard: impl Into<Heard>, second: i64) {
    pool.judge(&lease, &plain(), heard.into(), Chances::NONE, at(second));
    pool.settle(lease, &End::Whole, at(second));
}

fn stands(pool: &Pool, seat: &str, request: &Request, second: i64) -> Result<Tier, Out> {
    let mut standings = pool.standings(request, at(second));
    standings.find(|(account, _)| **account == id(seat)).unwrap().1
}

/// When A's rest for that cause ends, in seconds.
fn until(pool: &Pool, cause: Cause) -> Option<i64> {
    let account = pool.account(&id("A")).unwrap();
    let bench = account.benches.iter().find(|bench| bench.cause == cause)?;
    Some(bench.until.duration_since(at(0)).as_secs())
}

#[test]
fn a_rest_that_is_set_again_grows_up_to_its_cap_and_starts_anew_after_a_success() {
    for (outcome, cause, want) in [
        (Outcome::Unauthorized, Cause::Login, vec![300, 600, 1_200, 1_800, 1_800]),
        (
            Outcome::NotAllowed,
            Cause::Organization,
            vec![1_800, 3_600, 7_200, 14_400, 21_600, 21_600],
        ),
        (Outcome::Unpaid, Cause::Payment, vec![1_800, 1_800]),
    ] {
        let mut pool = usual();
        let mut now = 0;
        for length in &want {
            on_a(&mut pool, outcome.clone(), now);
            assert_eq!(until(&pool, cause), Some(now + length), "{cause:?} at {now}");
            now += length;
        }
        on_a(&mut pool, Outcome::Served, now);
        assert_eq!(until(&pool, cause), None, "{cause:?}");
        on_a(&mut pool, outcome, now + 1);
        assert_eq!(until(&pool, cause), Some(now + 1 + want[0]), "{cause:?}, anew");
    }
}

#[test]
fn five_failures_in_a_row_open_the_breaker_and_one_probe_at_a_time_closes_it() {
    let mut pool = usual();
    for second in 0..4 {
        on_a(&mut pool, Outcome::Faulty, second);
    }
    on_a(&mut pool, Outcome::Served, 4);
    for second in 5..9 {
        on_a(&mut pool, Outcome::TimedOut, second);
        assert_eq!(stands(&pool, "A", &plain(), second), Ok(Tier::Ready), "not in a row");
    }
    on_a(&mut pool, Outcome::Faulty, 9);
    assert_eq!(until(&pool, Cause::Faults), Some(39));
    assert_eq!(stands(&pool, "A", &plain(), 10), Ok(Tier::Marked));
    on_a(&mut pool, Outcome::Faulty, 20);
    assert_eq!(
        until(&pool, Cause::Faults),
        Some(39),
        "those who had nowhere else to go do not make it longer"
    );

    let probe = take(&mut pool, &only("A"), 40);
    assert_eq!(stands(&pool, "A", &plain(), 40), Err(Out::Trying));
    end(&mut pool, probe, Outcome::Faulty, 41);
    assert_eq!(until(&pool, Cause::Faults), Some(101), "twice as long");
    on_a(&mut pool, Outcome::Served, 102);
    on_a(&mut pool, Outcome::Faulty, 103);
    assert_eq!(
        stands(&pool, "A", &plain(), 104),
        Ok(Tier::Ready),
        "closed: it takes five again"
    );
}

#[test]
fn a_stream_that_breaks_off_counts_as_a_failure_and_a_client_that_leaves_does_not() {
    let mut pool = usual();
    for (end, failed) in [
        (End::Abandoned, false),
        (End::Withdrawn, false),
        (End::Interrupted, true),
    ] {
        for second in 0..5 {
            let lease = take(&mut pool, &only("A"), second);
            pool.judge(&lease, &plain(), Outcome::PassedOn.into(), Chances::ALL, at(second));
            pool.settle(lease, &end, at(second));
        }
        assert_eq!(until(&pool, Cause::Faults).is_some(), failed, "{end:?}");
    }
}

#[test]
fn an_error_late_in_a_stream_is_noted_as_its_kind_and_rests_nothing() {
    let mut pool = usual();
    for seat in ["A", "B"] {
        let lease = take(&mut pool, &only(seat), 0);
        pool.judge(&lease, &plain(), Outcome::Served.into(), Chances::ALL, at(0));
        pool.settle(lease, &End::Failed(Outcome::Overloaded), at(1));
    }
    assert_eq!(pool.troubles(at(2)), [(Trouble::Overloaded, at(1))]);
    assert!(rests(&pool).is_empty());
}

#[test]
fn a_rest_ends_on_fresh_evidence_and_on_nothing_else() {
    // A reading with room.
    let mut pool = usual();
    on_a(&mut pool, five_hours(3_600), 0);
    read(&mut pool, "A", WindowKind::Weekly, 5.0, 300_000, 10);
    read(&mut pool, "A", WindowKind::FiveHour, 100.0, 3_600, 10);
    assert_eq!(rests(&pool).len(), 1, "neither another window's room nor a full one");
    read(&mut pool, "A", WindowKind::FiveHour, 100.0, 600, 20);
    assert_eq!(until(&pool, Cause::Limit), Some(600), "a sooner reset shortens it");
    read(&mut pool, "A", WindowKind::FiveHour, 3.0, 600, 30);
    assert_eq!(stands(&pool, "A", &plain(), 30), Ok(Tier::Ready));

    // An answer that began before it, one that told of no limit, an error of another kind.
    let mut pool = usual();
    let before = take(&mut pool, &only("A"), 0);
    on_a(&mut pool, five_hours(3_600), 10);
    end(&mut pool, before, within_limits(), 20);
    assert_eq!(until(&pool, Cause::Limit), Some(3_600));
    pool.observe(&id("A"), Observation::TryNow, at(30));
    let probe = take(&mut pool, &only("A"), 30);
    end(&mut pool, probe, Outcome::PassedOn, 31);
    assert!(until(&pool, Cause::Limit).is_some(), "a 400 proves nothing");
    on_a(&mut pool, Outcome::Served, 40);
    on_a(&mut pool, Outcome::Served, 41);
    on_a(&mut pool, Outcome::Served, 42);
    on_a(&mut pool, Outcome::Served, 43);
    assert_eq!(until(&pool, Cause::Limit), None);

    // A seat of last resort that serves within its limits is back.
    let mut pool = usual();
    on_a(&mut pool, Outcome::NotAllowed, 0);
    on_a(&mut pool, Outcome::Served, 10);
    assert_eq!(rests(&pool), Vec::<String>::new());

    // Another login, and for money any reading.
    let mut pool = usual();
    on_a(&mut pool, Outcome::NotAllowed, 0);
    pool.observe(&id("A"), Observation::LoginChanged, at(1));
    assert!(rests(&pool).is_empty());
    on_a(&mut pool, Outcome::Unpaid, 2);
    read(&mut pool, "A", WindowKind::FiveHour, 10.0, 3_600, 3);
    assert_eq!(stands(&pool, "A", &plain(), 3), Ok(Tier::Ready));
}

#[test]
fn a_limit_of_which_nobody_says_when_it_ends_is_read_anew() {
    let due = |outcome: Outcome| {
        let mut pool = usual();
        for action in pool.due(at(0)) {
            if let pool::Action::PollUsage(seat) = action {
                pool.observe(&seat, Observation::Polled(pool::Poll::Read), at(0));
            }
        }
        for seat in ["A", "B", "C"] {
            read(&mut pool, seat, WindowKind::FiveHour, 10.0, 9_000, 1);
        }
        on_a(&mut pool, outcome, 10);
        pool.next_wakeup(at(10))
    };
    let told = due(five_hours(3_600));
    let untold = due(Outcome::Limited(pool::Rejection::default()));
    assert!(untold < told, "{untold:?} {told:?}");
    assert!(untold <= Some(at(180)));
}

#[test]
fn what_rested_comes_back_with_one_probe_then_two_then_four() {
    let mut pool = usual();
    on_a(&mut pool, five_hours(100), 0);
    for together in [1, 2, 4, 8] {
        let leases: Vec<Lease> = (0..together).map(|_| take(&mut pool, &only("A"), 101)).collect();
        let want = match together {
            1 => Err(Out::Trying),
            _ => Ok(Tier::Braked),
        };
        assert_eq!(stands(&pool, "A", &plain(), 101), want, "{together}");
        if together == 1 {
            assert_eq!(pool.acquire(&only("A"), at(101)).unwrap_err(), Refusal::Returning);
            let impatient = Request {
                impatient: true,
                ..only("A")
            };
            assert_eq!(
                stands(&pool, "A", &impatient, 101),
                Ok(Tier::Braked),
                "nobody waits for ever"
            );
        }
        let mut leases = leases.into_iter();
        end(&mut pool, leases.next().unwrap(), Outcome::Served, 102);
        leases.for_each(|lease| pool.settle(lease, &End::Abandoned, at(102)));
    }
    assert_eq!(pool.account(&id("A")).unwrap().benches.as_slice(), []);
}

#[test]
fn a_probe_that_is_given_up_makes_room_for_the_next() {
    let mut pool = usual();
    on_a(&mut pool, five_hours(100), 0);
    for end in [End::Abandoned, End::Withdrawn] {
        let probe = take(&mut pool, &only("A"), 101);
        assert_eq!(stands(&pool, "A", &plain(), 101), Err(Out::Trying));
        pool.settle(probe, &end, at(102));
        assert_eq!(stands(&pool, "A", &plain(), 102), Ok(Tier::Ready));
    }
}

#[test]
fn a_windowless_refusal_halves_what_starts_together_and_never_excludes() {
    let mut pool = usual();
    let mut leases: Vec<Lease> = (0..12).map(|_| take(&mut pool, &only("A"), 0)).collect();
    let first = leases.pop().unwrap();
    assert_eq!(
        pool.judge(&first, &plain(), Outcome::Throttled.into(), Chances::ALL, at(0)),
        Next::TryOneOther
    );
    pool.settle(first, &End::Whole, at(0));
    let brake = pool.account(&id("A")).unwrap().brake.unwrap();
    assert_eq!(brake.limit, 6);
    assert!((at(1)..=at(30)).contains(&brake.until), "{}", brake.until);
    assert_eq!(
        stands(&pool, "A", &plain(), 0),
        Ok(Tier::Braked),
        "eleven have no answer yet"
    );
    assert!(pool.acquire(&only("A"), at(0)).is_ok_and(|granted| {
        leases.push(granted.lease);
        true
    }));
    for lease in leases.drain(6..) {
        end(&mut pool, lease, Outcome::Served, 0);
    }
    assert_eq!(stands(&pool, "A", &plain(), 0), Ok(Tier::Braked), "six");
    end(&mut pool, leases.pop().unwrap(), Outcome::Served, 0);
    assert_eq!(stands(&pool, "A", &plain(), 0), Ok(Tier::Ready), "five");
    leases
        .into_iter()
        .for_each(|lease| pool.settle(lease, &End::Whole, at(1)));
}

#[test]
fn two_seats_that_are_throttled_are_not_the_seats_and_nobody_moves_for_ten_seconds() {
    let mut pool = usual();
    let freely = |pool: &mut Pool, outcome, second| {
        let (account, next) = attempt(pool, &plain(), outcome, Chances::ALL, second);
        assert_eq!(account, id("A"));
        next
    };
    assert_eq!(freely(&mut pool, Outcome::Throttled, 0), Next::TryOneOther);
    let on_b = |pool: &mut Pool, second| attempt(pool, &only("B"), Outcome::Throttled, Chances::ALL, second).1;
    on_b(&mut pool, 5);
    assert_eq!(freely(&mut pool, Outcome::Throttled, 14), Next::Deliver);
    assert_eq!(freely(&mut pool, Outcome::NoCredits, 14), Next::Deliver);
    assert_eq!(
        freely(&mut pool, five_hours(600), 14),
        Next::TryAnother,
        "a free move stays free"
    );
}

#[test]
fn a_model_that_is_throttled_again_and_again_where_another_seat_serves_it_is_not_in_the_plan() {
    let mut pool = usual();
    for second in [0, 100] {
        on_a(&mut pool, Outcome::Throttled, second);
    }
    assert!(rests(&pool).is_empty());
    on_a(&mut pool, Outcome::Throttled, 200);
    assert_eq!(until(&pool, Cause::NotInPlan), Some(200 + 12 * 3_600));
    assert_eq!(stands(&pool, "A", &plain(), 300), Ok(Tier::Marked), "soft");
    let another = Request {
        model: Some("claude-sonnet-5".into()),
        ..plain()
    };
    assert_eq!(stands(&pool, "A", &another, 300), Ok(Tier::Ready));
    on_a(&mut pool, Outcome::Served, 400);
    assert!(rests(&pool).is_empty(), "until it serves it");

    for second in [500, 600, 700] {
        let other = Request {
            model: Some("claude-of-nobody".into()),
            ..only("A")
        };
        attempt(&mut pool, &other, Outcome::Throttled, Chances::ALL, second);
    }
    assert!(rests(&pool).is_empty(), "nobody else serves it");
}

#[test]
fn an_overloaded_service_is_not_retried_and_retries_have_a_budget() {
    let mut pool = usual();
    assert!(matches!(
        on_a(&mut pool, Outcome::Overloaded, 0),
        Next::RetryHere { .. }
    ));
    let (_, next) = attempt(&mut pool, &only("B"), Outcome::Overloaded, Chances::ALL, 1);
    assert_eq!(next, Next::Deliver, "two seats say so");
    assert_eq!(on_a(&mut pool, Outcome::Faulty, 10), Next::Deliver);
    assert!(matches!(on_a(&mut pool, Outcome::Faulty, 12), Next::RetryHere { .. }));

    let mut pool = usual();
    let tried = (0..20).filter(|_| matches!(on_a(&mut pool, Outcome::Unlucky, 0), Next::RetryHere { .. }));
    assert_eq!(tried.count(), 3);
    assert_eq!(
        on_a(&mut pool, Outcome::NotAllowed, 0),
        Next::TryAnother,
        "free moves cost nothing"
    );
}

#[test]
fn two_refused_logins_are_the_services_trouble_and_send_nobody_to_log_in() {
    let refused = |seats: &[&str], rejected: bool| {
        let mut pool = usual();
        for (second, seat) in seats.iter().enumerate() {
            attempt(
                &mut pool,
                &only(seat),
                Outcome::Unauthorized,
                Chances::ALL,
                second as i64,
            );
            let token = Token::Refused {
                since: at(0),
                expires_at: None,
            };
            pool.observe(&id(seat), Observation::Token(token), at(3));
            let renewal = if rejected {
                Renewal::Rejected
            } else {
                Renewal::Uncertain
            };
            pool.observe(&id(seat), Observation::Renewed(renewal), at(3));
        }
        let request = Request {
            allowed: Some(seats.iter().map(|seat| id(seat)).collect()),
            ..plain()
        };
        pool.acquire(&request, at(4)).unwrap_err()
    };
    assert_eq!(refused(&["A"], false), Refusal::NeedLogin(vec![id("A")]));
    assert_eq!(
        refused(&["A", "B"], false),
        Refusal::LoginsRefused {
            seats: vec![id("A"), id("B")],
            until: at(300)
        }
    );
    let both = vec![id("A"), id("B")];
    assert_eq!(
        refused(&["A", "B"], true),
        Refusal::NeedLogin(both),
        "Anthropic said so of each"
    );
}

#[test]
fn what_an_old_token_was_told_says_nothing_of_the_new_one() {
    let mut pool = usual();
    let old = take(&mut pool, &only("A"), 0);
    pool.observe(&id("A"), Observation::LoginChanged, at(1));
    end(&mut pool, old, Outcome::Unauthorized, 2);
    assert!(rests(&pool).is_empty());
}

#[test]
fn the_seat_that_returns_first_is_tried_rather_than_refusing_and_its_failure_does_not_hide_a_full_pool() {
    let mut pool = usual();
    attempt(&mut pool, &only("B"), Outcome::Unpaid, Chances::ALL, 0);
    attempt(&mut pool, &only("C"), Outcome::NotAllowed, Chances::ALL, 10);
    on_a(&mut pool, five_hours(3_600), 0);
    let Granted { lease, reason, .. } = pool.acquire(&plain(), at(20)).unwrap();
    assert_eq!((lease.account(), reason), (&id("B"), Reason::ReturnsFirst));
    end(&mut pool, lease, Outcome::Unpaid, 20);
    let granted = pool.acquire(&plain(), at(1_799)).unwrap();
    assert_eq!(
        granted.lease.account(),
        &id("B"),
        "it returns first still: a try made while it rests does not put it off"
    );
    pool.settle(granted.lease, &End::Withdrawn, at(20));
    let tried = Request {
        tried: vec![id("B"), id("C")],
        ..plain()
    };
    let full = Refusal::Cooling {
        until: at(3_600),
        window: Some(WindowKind::FiveHour),
        seats: 1,
    };
    assert_eq!(pool.acquire(&tried, at(20)).unwrap_err(), full);
    pool.observe(&id("A"), Observation::Gone, at(21));
    assert_eq!(
        pool.acquire(&tried, at(21)).unwrap_err(),
        Refusal::NotAllowed(vec![id("B"), id("C")])
    );
}

#[test]
fn extra_usage_is_spent_as_the_owner_wants() {
    let beyond = || Outcome::Beyond(rejected(&[(WindowKind::FiveHour, 3_600)]));
    for (wish, first, later) in [
        (ExtraUsage::Never, Err(()), Err(())),
        (ExtraUsage::Last, Ok(Tier::SetAside), Err(())),
        (ExtraUsage::Allowed, Ok(Tier::Ready), Ok(Tier::Ready)),
    ] {
        let mut pool = bench::pool(wish);
        on_a(&mut pool, beyond(), 0);
        assert_eq!(stands(&pool, "A", &plain(), 1).map_err(|_| ()), first, "{wish:?}");
        on_a_if_open(&mut pool, Outcome::NoCredits, 2);
        assert_eq!(
            stands(&pool, "A", &plain(), 3).map_err(|_| ()),
            later,
            "{wish:?}, without credits"
        );
    }
    // Served beyond the plan only once nobody else is left.
    let mut pool = usual();
    let nobody = |pool: &mut Pool| attempt(pool, &only("A"), beyond(), Chances::ALL, 0).1;
    assert_eq!(nobody(&mut pool), Next::Deliver);
    assert_eq!(
        attempt(&mut pool, &plain(), Outcome::Served, Chances::ALL, 1).0,
        id("B")
    );
    for seat in ["B", "C"] {
        attempt(&mut pool, &only(seat), five_hours(3_600), Chances::ALL, 2);
    }
    let granted = pool.acquire(&plain(), at(3)).unwrap();
    assert_eq!(
        (granted.lease.account(), granted.reason),
        (&id("A"), Reason::BeyondPlan)
    );
    end(&mut pool, granted.lease, Outcome::Served, 3);
}

fn on_a_if_open(pool: &mut Pool, outcome: Outcome, second: i64) {
    if let Ok(granted) = pool.acquire(&only("A"), at(second)) {
        end(pool, granted.lease, outcome, second);
    } else {
        // It rests already; what a request that was under way is told counts all the same.
    }
}

#[test]
fn a_move_for_a_missing_feature_goes_to_no_seat_that_lacks_it_too() {
    let mut pool = usual();
    attempt(
        &mut pool,
        &only("B"),
        Outcome::Lacks(Feature::LongContext),
        Chances::ALL,
        0,
    );
    assert_eq!(
        on_a(&mut pool, Outcome::Lacks(Feature::LongContext), 1),
        Next::Deliver,
        "A alone is allowed"
    );
    let tried = Request {
        tried: vec![id("A")],
        lacking: true,
        ..plain()
    };
    assert_eq!(stands(&pool, "B", &tried, 2), Err(Out::NotInPlan));
    let (account, _) = attempt(&mut pool, &tried, Outcome::Served, Chances::ALL, 2);
    assert_eq!(account, id("C"));
    let without = Request {
        model: Some(MODEL.into()),
        ..Request::default()
    };
    assert_eq!(
        stands(&pool, "A", &without, 3),
        Ok(Tier::Ready),
        "what does not ask for it is served as before"
    );
}

#[test]
fn a_404_moves_only_where_another_seat_has_served_the_model() {
    let mut pool = usual();
    let unknown = Request {
        model: Some("claude-opus-9[1m]".into()),
        ..plain()
    };
    let (_, next) = attempt(&mut pool, &unknown, Outcome::UnknownModel, Chances::ALL, 0);
    assert_eq!(next, Next::Deliver);
    let (_, next) = attempt(&mut pool, &plain(), Outcome::UnknownModel, Chances::ALL, 0);
    assert_eq!(next, Next::TryOneOther);
}

#[test]
fn groups_come_before_room_and_a_reserve_is_never_taken() {
    let mut pool = usual();
    let wishes = |group, reserve| Wishes {
        group,
        reserve: pool::Utilization::from_percent(reserve).unwrap(),
        ..Wishes::default()
    };
    pool.observe(&id("A"), Observation::Discovered(wishes(3, 0.0)), at(0));
    pool.observe(&id("B"), Observation::Discovered(wishes(2, 0.0)), at(0));
    pool.observe(&id("C"), Observation::Discovered(wishes(1, 40.0)), at(0));
    let next = |pool: &Pool, second| pool.preview(&plain(), at(second)).map(|(account, _)| account);
    assert_eq!(next(&pool, 0), Ok(id("C")));
    read(&mut pool, "C", WindowKind::FiveHour, 60.0, 3_600, 1);
    assert_eq!(next(&pool, 1), Ok(id("B")));
    attempt(&mut pool, &only("B"), five_hours(100), Chances::ALL, 2);
    assert_eq!(next(&pool, 3), Ok(id("A")));
    assert_eq!(next(&pool, 101), Ok(id("B")), "it comes back by itself");
    attempt(&mut pool, &only("A"), five_hours(5_000), Chances::ALL, 102);
    attempt(&mut pool, &only("B"), five_hours(6_000), Chances::ALL, 102);
    let full = Refusal::Cooling {
        until: at(3_600),
        window: Some(WindowKind::FiveHour),
        seats: 3,
    };
    assert_eq!(
        next(&pool, 103),
        Err(full),
        "the reserve's window is the first to return"
    );
}

/// A turn of conversation 1. Returns the seat, and why it is another one than before.
fn turn(pool: &mut Pool, tried: &[&str], second: i64) -> (pool::AccountId, Option<(Why, bool)>) {
    let request = Request {
        conversation: Some(pool::Conversation(1)),
        tried: tried.iter().map(|seat| id(seat)).collect(),
        ..plain()
    };
    let Granted { lease, switch, .. } = pool.acquire(&request, at(second)).unwrap();
    let account = lease.account().clone();
    end(pool, lease, Outcome::Served, second);
    (account, switch.map(|switch| (switch.why, switch.for_one_turn)))
}

#[test]
fn every_switch_says_why() {
    let mut pool = usual();
    assert_eq!(turn(&mut pool, &[], 0), (id("A"), None));
    let borrowed = Some((Why::Passing, true));
    assert_eq!(turn(&mut pool, &["A"], 1), (id("B"), borrowed), "for one turn");
    assert_eq!(turn(&mut pool, &[], 2), (id("A"), None), "and back");
    read(&mut pool, "A", WindowKind::FiveHour, 45.0, 3_600, 3);
    assert_eq!(turn(&mut pool, &[], 3), (id("B"), Some((Why::MoreRoom, false))));
    read(&mut pool, "B", WindowKind::FiveHour, 99.0, 3_600, 4);
    assert_eq!(turn(&mut pool, &[], 4), (id("A"), Some((Why::NearlyFull, false))));
    on_a(&mut pool, five_hours(3_600), 5);
    let limit = Out::Full {
        until: at(3_600),
        window: Some(WindowKind::FiveHour),
    };
    assert_eq!(turn(&mut pool, &[], 6), (id("C"), Some((Why::Out(limit), false))));
    pool.observe(&id("C"), Observation::Gone, at(7));
    assert_eq!(turn(&mut pool, &[], 7), (id("B"), Some((Why::Gone, false))));
}

#[test]
fn what_is_remembered_outlasts_the_process_but_for_what_has_run_out() {
    let mut pool = usual();
    on_a(
        &mut pool,
        Outcome::Limited(rejected(&[(WindowKind::FiveHour, 100), (WindowKind::Weekly, 9_000)])),
        0,
    );
    attempt(
        &mut pool,
        &only("B"),
        Outcome::Lacks(Feature::FastMode),
        Chances::ALL,
        0,
    );
    turn(&mut pool, &[], 1);
    let memory = pool.remember();

    let mut later = Pool::new(pool::Policy::default(), 1);
    later.recall(memory.clone(), at(200));
    assert_eq!(later.accounts().count(), 0, "a seat is known once its login is found");
    assert_eq!(later.remember().seats, memory.seats, "and not forgotten meanwhile");
    for seat in ["A", "B", "C"] {
        later.observe(&id(seat), Observation::Discovered(Wishes::default()), at(200));
        later.observe(
            &id(seat),
            Observation::Token(Token::Valid { expires_at: None }),
            at(200),
        );
    }
    let causes = |seat: &str| {
        let account = later.account(&id(seat)).unwrap();
        account
            .benches
            .iter()
            .map(|bench| bench.scope.word())
            .collect::<Vec<_>>()
    };
    assert_eq!(causes("A"), ["window:weekly"]);
    assert_eq!(causes("B"), ["feature:fastMode"]);
    for seat in ["A", "B", "C"] {
        let (was, is) = (pool.account(&id(seat)).unwrap(), later.account(&id(seat)).unwrap());
        assert_eq!((&was.windows, &was.models), (&is.windows, &is.models), "{seat}");
    }
    let conversation = Request {
        conversation: Some(pool::Conversation(1)),
        ..plain()
    };
    let home = later.preview(&conversation, at(201)).unwrap();
    assert_eq!(home, (id("B"), Reason::SameConversation));
}
