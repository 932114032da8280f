//! What the choice costs, and how it grows with the seats: `cargo bench -p pool`.

#![allow(clippy::unwrap_used, reason = "a benchmark stops where it stumbles")]

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use pool::{
    AccountId, Conversation, End, Family, Observation, Policy, Pool, Request, Strategy, Token, Utilization, Window,
    WindowKind, Wishes,
};

const CONVERSATIONS: u64 = 10_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn request(conversation: u64) -> Request {
    Request {
        conversation: Some(Conversation(conversation)),
        model: Some("claude-opus-5-5".into()),
        size: 300_000,
        device: Some(conversation % 4),
        ..Request::default()
    }
}

/// Seats with three windows each, and ten thousand conversations that run on them.
fn pool(strategy: Strategy, seats: usize) -> Pool {
    let mut pool = Pool::new(
        Policy {
            strategy,
            ..Policy::default()
        },
        7,
    );
    for seat in 0..seats {
        let id = AccountId::new(&format!("seat-{seat}"));
        pool.observe(&id, Observation::Discovered(Wishes::default()), at(0));
        pool.observe(&id, Observation::Token(Token::Valid { expires_at: None }), at(0));
        let kinds = [
            (WindowKind::FiveHour, 4 * 3_600),
            (WindowKind::Weekly, 300_000),
            (WindowKind::Model(Family::new("fable")), 300_000),
        ];
        let windows = kinds.map(|(kind, ends)| {
            let used = Utilization::from_basis_points((seat * 37 % 9_000) as u16);
            (
                kind,
                Window {
                    used,
                    resets_at: Some(at(ends)),
                    observed_at: at(0),
                },
            )
        });
        pool.observe(&id, Observation::Reading(windows.to_vec()), at(0));
    }
    for conversation in 0..CONVERSATIONS {
        let granted = pool.acquire(&request(conversation), at(1)).unwrap();
        pool.settle(granted.lease, &End::Whole, at(1));
    }
    pool
}

fn choice(criterion: &mut Criterion) {
    for (name, strategy) in [("price", Strategy::Price), ("headroom", Strategy::Headroom)] {
        let mut group = criterion.benchmark_group(name);
        for seats in [1, 10, 100, 900] {
            let mut pool = pool(strategy, seats);
            let mut turn = 0;
            group.bench_function(BenchmarkId::new("a turn of a known conversation", seats), |bencher| {
                bencher.iter(|| {
                    turn += 1;
                    let granted = pool
                        .acquire(black_box(&request(turn * 7_919 % CONVERSATIONS)), at(60))
                        .unwrap();
                    pool.settle(granted.lease, &End::Whole, at(60));
                });
            });
            group.bench_function(BenchmarkId::new("the choice for a new one", seats), |bencher| {
                bencher.iter(|| pool.preview(black_box(&request(u64::MAX)), at(60)).unwrap());
            });
            // What a router does that serves now and then: others have had the caches meanwhile.
            let mut others = vec![0_u8; 64 << 20];
            group.bench_function(BenchmarkId::new("the same with cold caches", seats), |bencher| {
                bencher.iter_batched(
                    || others.fill(black_box(1)),
                    |()| pool.preview(black_box(&request(u64::MAX)), at(60)).unwrap(),
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

criterion_group!(benches, choice);
criterion_main!(benches);
