//! A household in virtual time over real files, or a Keychain: routers, a rival Claude Code, a copy of a login that
//! everybody forgot, devices, lids that close, disks that fill, Keychains that lock or do not answer, logins anew,
//! answers that are lost, processes that are killed. Whatever happens, no login is lost by us.
//!
//! `any_seed_holds` plays 200 seeds, or as many as `SEEDS` says; `SEED=…` plays one, and prints what
//! happens in it. A history may differ from the one before by the race of files and timers.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test program has no outside, and stops where it stumbles"
)]

#[path = "../support/mod.rs"]
mod support;

mod chance;
mod household;
mod rival;
mod shelf;
mod wire;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use household::{Household, Report};

/// Plays one seed from beginning to end.
fn play(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // One after the other, so that the same seed gives the same history but for the race of files and timers.
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async move { Household::new(seed).await.live().await })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn any_seed_holds() {
    if let Some(seed) = number("SEED") {
        let log = tracing_subscriber::fmt().without_time().with_ansi(false);
        log.with_max_level(tracing::Level::DEBUG).init();
        let report = play(seed);
        println!("SEED={seed} {report:#?}");
        assert!(report.broken.is_empty(), "SEED={seed}: {:#?}", report.broken);
        return;
    }
    let seeds = number("SEEDS").unwrap_or(200);
    let next = AtomicU64::new(1);
    let total = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from).min(4) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    let report = play(seed);
                    for what in &report.broken {
                        println!("SEED={seed}: {what}");
                    }
                    let mut total = total.lock().unwrap();
                    total.add(seed, report);
                    if total.seeds.is_multiple_of(1_000) {
                        println!("{} seeds", total.seeds);
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    println!("{seeds} seeds: {total:#?}");
    assert!(total.broken.is_empty(), "{:#?}", total.broken);
    assert!(
        total.renewed_by_us > 0 && total.renewed_by_rival > 0,
        "the household did not live: {total:#?}"
    );
    assert!(
        seeds < 20 || total.keychains > 0 && total.copies > 0 && total.kept_unsaved > 0 && total.logins_meanwhile > 0,
        "it did not meet what it should: {total:#?}"
    );
}
