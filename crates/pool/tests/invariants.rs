//! What holds in every history, time stepping forwards and backwards.

#![allow(clippy::unwrap_used, reason = "a test program stops where it stumbles")]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use pool::{
    AccountId, Cause, Chances, Conversation, End, ExtraUsage, Family, Feature, Features, Heard, Lease, Next,
    Observation, Outcome, Policy, Poll, Pool, Rejection, Request, SeatMemory, Token, Utilization, Window, WindowKind,
    Wishes,
};
use proptest::prelude::*;

const START: i64 = 1_790_000_000;

#[derive(Clone, Debug)]
enum Step {
    Pass(i64),
    Ask {
        conversation: u64,
        model: u8,
        long: bool,
        pinned: Option<u8>,
    },
    Hear {
        lease: usize,
        outcome: u8,
        reset: i64,
    },
    End {
        lease: usize,
        how: u8,
    },
    Read {
        seat: u8,
        kind: u8,
        basis_points: u16,
        reset: i64,
    },
    Wish {
        seat: u8,
        enabled: bool,
        draining: bool,
        group: u8,
        extra: u8,
    },
    Login {
        seat: u8,
        usable: bool,
    },
    Gone {
        seat: u8,
    },
    Restart,
    TryNow {
        seat: u8,
    },
    Polled {
        seat: u8,
        how: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let seat = || 0..3_u8;
    prop_oneof![
        3 => (-600..20_000_i64).prop_map(Step::Pass),
        8 => (0..4_u64, 0..3_u8, any::<bool>(), prop::option::of(seat()))
            .prop_map(|(conversation, model, long, pinned)| Step::Ask { conversation, model, long, pinned }),
        8 => (any::<usize>(), 0..21_u8, -100..900_000_i64)
            .prop_map(|(lease, outcome, reset)| Step::Hear { lease, outcome, reset }),
        8 => (any::<usize>(), 0..5_u8).prop_map(|(lease, how)| Step::End { lease, how }),
        3 => (seat(), 0..3_u8, 0..11_000_u16, -100..700_000_i64)
            .prop_map(|(seat, kind, basis_points, reset)| Step::Read { seat, kind, basis_points, reset }),
        1 => (seat(), any::<bool>(), any::<bool>(), 1..3_u8, 0..3_u8)
            .prop_map(|(seat, enabled, draining, group, extra)| Step::Wish { seat, enabled, draining, group, extra }),
        1 => (seat(), any::<bool>()).prop_map(|(seat, usable)| Step::Login { seat, usable }),
        1 => seat().prop_map(|seat| Step::Gone { seat }),
        1 => Just(Step::Restart),
        1 => seat().prop_map(|seat| Step::TryNow { seat }),
        2 => (seat(), 0..4_u8).prop_map(|(seat, how)| Step::Polled { seat, how }),
    ]
}

fn id(seat: u8) -> AccountId {
    AccountId::new(["a", "b", "c"][usize::from(seat)])
}

fn kind(kind: u8) -> WindowKind {
    match kind {
        0 => WindowKind::FiveHour,
        1 => WindowKind::Weekly,
        _ => WindowKind::Model(Family::new("fable")),
    }
}

fn outcome(number: u8, reset: Timestamp) -> Outcome {
    let rejection = |windows: &[u8]| Rejection {
        windows: windows.iter().map(|&window| (kind(window), Some(reset))).collect(),
        resets_at: Some(reset),
        retry_after: None,
    };
    match number {
        0 | 1 => Outcome::Served,
        2 => Outcome::Beyond(rejection(&[0])),
        3 => Outcome::Limited(rejection(&[0])),
        4 => Outcome::Limited(rejection(&[1, 2])),
        5 => Outcome::Limited(rejection(&[])),
        6 => Outcome::Throttled,
        7 => Outcome::NoCredits,
        8 => Outcome::Lacks(Feature::LongContext),
        9 => Outcome::Unauthorized,
        10 => Outcome::Unpaid,
        11 => Outcome::NotAllowed,
        12 => Outcome::NoSuchModelHere,
        13 => Outcome::UnknownModel,
        14 => Outcome::Challenged,
        15 => Outcome::Overloaded,
        16 => Outcome::Faulty,
        17 => Outcome::TimedOut,
        18 => Outcome::Unlucky,
        19 => Outcome::PassedOn,
        _ => Outcome::Unreachable,
    }
}

fn discover(pool: &mut Pool, now: Timestamp) {
    for seat in 0..3 {
        if pool.account(&id(seat)).is_none() {
            pool.observe(&id(seat), Observation::Discovered(Wishes::default()), now);
            pool.observe(&id(seat), Observation::Token(Token::Valid { expires_at: None }), now);
        }
    }
}

/// Writes down the news, and says whether all that the pool knows is written now, and nothing is news any more.
fn agrees(pool: &mut Pool, written: &mut BTreeMap<AccountId, SeatMemory>) -> bool {
    written.extend(pool.news().into_iter().map(|seat| (seat.id.clone(), seat)));
    pool.news().is_empty() && pool.known_seats().all(|seat| written.get(&seat.id) == Some(&seat))
}

/// Plays a history, and checks after each step what must hold.
fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut now = Timestamp::from_second(START).unwrap();
    let after = |now: Timestamp, seconds: i64| now + SignedDuration::from_secs(seconds);
    let mut pool = Pool::new(Policy::default(), 7);
    let mut open: Vec<(Lease, Request, bool)> = Vec::new();
    let mut written = BTreeMap::new();
    discover(&mut pool, now);
    for step in steps {
        match step {
            Step::Pass(seconds) => {
                now = after(now, seconds);
                if seconds < 0 {
                    pool.woke(now);
                }
            }
            Step::Ask {
                conversation,
                model,
                long,
                pinned,
            } => {
                let request = Request {
                    conversation: Some(Conversation(conversation)),
                    model: Some(["claude-opus-5", "claude-fable-5", "claude-sonnet-5"][usize::from(model)].into()),
                    features: if long {
                        Features::default().with(Feature::LongContext)
                    } else {
                        Features::default()
                    },
                    allowed: pinned.map(|seat| vec![id(seat)]),
                    ..Request::default()
                };
                let preview = pool.preview(&request, now).map(|(account, _)| account);
                if let Ok(granted) = pool.acquire(&request, now) {
                    let account = pool.account(granted.lease.account()).unwrap();
                    prop_assert!(preview.is_ok());
                    prop_assert!(account.wishes.enabled && account.token.is_usable(now));
                    prop_assert!(pinned.is_none_or(|seat| account.id == id(seat)));
                    let limited = account
                        .rests(now)
                        .any(|rest| rest.cause == Cause::Limit && rest.scope.covers(&request));
                    prop_assert!(!limited, "a seat that Anthropic refused for a limit is not asked");
                    open.push((granted.lease, request, false));
                } else {
                    prop_assert!(preview.is_err());
                }
            }
            Step::Hear {
                lease,
                outcome: number,
                reset,
            } if !open.is_empty() => {
                let at = lease % open.len();
                let (lease, request, judged) = &mut open[at];
                let heard = Heard {
                    allowed: number == 0,
                    ..outcome(number, after(now, reset)).into()
                };
                let next = pool.judge(lease, request, heard, Chances::ALL, now);
                *judged = true;
                prop_assert!(number > 1 || next == Next::Deliver);
            }
            Step::End { lease, how } if !open.is_empty() => {
                let (lease, _, _) = open.swap_remove(lease % open.len());
                let end = match how {
                    0 => End::Whole,
                    1 => End::Interrupted,
                    2 => End::Failed(Outcome::Overloaded),
                    3 => End::Abandoned,
                    _ => End::Withdrawn,
                };
                pool.settle(lease, &end, now);
            }
            Step::Hear { .. } | Step::End { .. } => {}
            Step::Read {
                seat,
                kind: window,
                basis_points,
                reset,
            } => {
                let seen = Window {
                    used: Utilization::from_basis_points(basis_points),
                    resets_at: Some(after(now, reset)),
                    observed_at: now,
                };
                pool.observe(&id(seat), Observation::Reading(vec![(kind(window), seen)]), now);
            }
            Step::Wish {
                seat,
                enabled,
                draining,
                group,
                extra,
            } => {
                let wishes = Wishes {
                    enabled,
                    draining,
                    group: group.into(),
                    extra_usage: [ExtraUsage::Never, ExtraUsage::Last, ExtraUsage::Allowed][usize::from(extra)],
                    ..Wishes::default()
                };
                pool.observe(&id(seat), Observation::Discovered(wishes), now);
            }
            Step::Login { seat, usable } => {
                let token = if usable {
                    Token::Valid { expires_at: None }
                } else {
                    Token::Missing
                };
                pool.observe(&id(seat), Observation::Token(token), now);
                pool.observe(&id(seat), Observation::LoginChanged, now);
            }
            Step::Gone { seat } => {
                pool.observe(&id(seat), Observation::Gone, now);
                discover(&mut pool, now);
            }
            Step::Restart => {
                let memory = pool.remember();
                pool = Pool::new(Policy::default(), 8);
                pool.recall(memory, now);
                discover(&mut pool, now);
                // Leases go with the process.
                open.clear();
            }
            Step::TryNow { seat } => pool.observe(&id(seat), Observation::TryNow, now),
            Step::Polled { seat, how } => {
                let poll = [Poll::Read, Poll::Throttled(None), Poll::Forbidden, Poll::Failed][usize::from(how)];
                pool.observe(&id(seat), Observation::Polled(poll), now);
            }
        }
        prop_assert!(
            agrees(&mut pool, &mut written),
            "the news bring whoever writes them down up to date"
        );
        pool.due(now);
        prop_assert!(
            agrees(&mut pool, &mut written),
            "and so they do once something was asked for"
        );
        pool.next_wakeup(now);
        pool.forecast(now);
        prop_assert_eq!(pool.open_leases(), open.len());
        for account in pool.accounts() {
            prop_assert!(account.starting <= account.in_flight);
            for bench in &account.benches {
                prop_assert!(bench.until <= now.max(bench.since) + SignedDuration::from_hours(8 * 24));
            }
            let scopes: BTreeSet<_> = account.benches.iter().map(|bench| &bench.scope).collect();
            prop_assert_eq!(scopes.len(), account.benches.len(), "one rest for each scope");
        }
    }
    // The world calms: every seat serves again.
    for (lease, _, _) in open {
        pool.settle(lease, &End::Abandoned, now);
    }
    now = after(now, 9 * 24 * 3_600);
    for seat in 0..3 {
        pool.observe(&id(seat), Observation::Discovered(Wishes::default()), now);
        pool.observe(&id(seat), Observation::Token(Token::Valid { expires_at: None }), now);
    }
    for account in pool.accounts() {
        prop_assert_eq!((account.in_flight, account.starting), (0, 0));
    }
    for seat in 0..3 {
        let request = Request {
            model: Some("claude-fable-5".into()),
            features: Features::default().with(Feature::LongContext),
            allowed: Some(vec![id(seat)]),
            ..Request::default()
        };
        let granted = pool.acquire(&request, now);
        prop_assert!(granted.is_ok(), "{:?}", granted);
        pool.settle(granted.unwrap().lease, &End::Whole, now);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_leases_are_counted_limits_are_kept_and_every_seat_returns(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        play(steps)?;
    }
}
