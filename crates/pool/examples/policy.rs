//! Every strategy over the same seeded weeks: one table of figures.
//!
//! `make policy`, or `cargo run --release -p pool --example policy -- [SEEDS] [ablations]`.

#[path = "policy/week.rs"]
mod week;
#[path = "policy/rules.rs"]
mod rules;
#[path = "policy/world.rs"]
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pool::Strategy;

use rules::Rule;
use week::{Chance, Demand};
use world::{Cell, Figures, Trouble, play, weekly};

const MIXED: [f64; 4] = [20.0, 5.0, 5.0, 1.0];
const EQUAL: [f64; 4] = [5.0; 4];
const LOADS: [f64; 4] = [0.6, 0.8, 1.0, 1.2];

fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    let all = [
        ("price", Rule::shipped(Strategy::Price)),
        ("unshared", Rule::Unshared),
        ("headroom", Rule::shipped(Strategy::Headroom)),
        ("fill-first", Rule::shipped(Strategy::FillFirst)),
        ("round-robin", Rule::shipped(Strategy::RoundRobin)),
        ("rotate", Rule::RotateRequests),
        ("least-used", Rule::LeastUsed),
        ("session", Rule::Session),
        ("soonest", Rule::SoonestReset),
        ("expiry", Rule::Expiry),
    ];
    let mut rules: Vec<(String, Rule)> = Vec::new();
    for arg in std::env::args().skip(2) {
        if arg == "all" { rules.extend(all.iter().map(|(n, r)| (n.to_string(), *r))); continue; }
        if let Some((n, r)) = all.iter().find(|(n, _)| *n == arg) { rules.push((n.to_string(), *r)); continue; }
        let mut t = pool::Tuning::default();
        for kv in arg.split(',') {
            let Some((k, v)) = kv.split_once('=') else { continue };
            let v: f32 = v.parse().unwrap();
            match k { "h" => t.hysteresis = v, "b" => t.barrier = v, "c" => t.capacity = v, "n" => t.anticipates = v > 0.0, _ => panic!() }
        }
        rules.push((arg.clone(), Rule::Shipped(Strategy::Price, t)));
    }
    for seats in [MIXED, EQUAL] {
        for load in LOADS {
            let cell = Cell { seats, load, trouble: Trouble::None };
            let results = Mutex::new(vec![vec![Figures::default(); rules.len()]; seeds as usize]);
            let next = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| loop {
                        let job = next.fetch_add(1, Ordering::Relaxed);
                        if job >= seeds as usize { break; }
                        let demand = Demand::draw(load * weekly(seats), &mut Chance(job as u64 * 7919 + 1));
                        let figures: Vec<Figures> = rules.iter().map(|(_, rule)| play(cell, &demand, *rule, job as u64)).collect();
                        results.lock().unwrap()[job] = figures;
                    });
                }
            });
            let results = results.into_inner().unwrap();
            if std::env::var("CELL").is_ok_and(|c| !format!("{seats:?} {load}").contains(&c)) { continue; }
            println!("{seats:?} load {load}");
            for (n, (name, _)) in rules.iter().enumerate() {
                let mean = |f: &dyn Fn(&Figures) -> f64| results.iter().map(|r| f(&r[n])).sum::<f64>() / seeds as f64;
                println!(
                    "{name:20} turns {:7.0} lost {:6.0} owner {:5.0} sum {:6.0} | 429s {:5.0} avoid {:4.1} bursts {:5.1}/{:4.1} miss {:5.1} q/t {:6.0} unused {:4.1}% displ {:4.1}% wait {:5.1} jain {:.4}",
                    mean(&|f| f.turns), mean(&|f| f.lost), mean(&|f| f.owner_lost()), mean(&|f| f.lost + f.owner_lost()), mean(&|f| f.refused), mean(&|f| f.avoidable),
                    mean(&|f| f.bursts), mean(&|f| f.bursts_seen), mean(&|f| f.misses_per_1000()), mean(&|f| f.quota_per_turn()), mean(&|f| f.unused()),
                    mean(&|f| f.displaced()), mean(&|f| f.wait_p95()), mean(&|f| f.fairness()),
                );
            }
        }
    }
}
