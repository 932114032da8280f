//! Every strategy over the same seeded weeks: one table of figures, and what each part of the price is worth.
//!
//! `make policy`, or `cargo run --release -p pool --example policy -- [SEEDS [parts]]`, the latter for the price alone.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a program for the terminal, which stops where it stumbles"
)]

#[path = "policy/week.rs"]
mod week;
#[path = "policy/rules.rs"]
mod rules;
#[path = "policy/world.rs"]
mod world;
#[path = "policy/table.rs"]
mod table;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pool::{Strategy, Tuning};

use rules::Rule;
use week::{Chance, Demand};
use world::{Cell, Figures, Trouble, play, weekly};

/// The pools, by the sizes of their seats: 20 is the largest plan, 1 the smallest.
const POOLS: [(&str, [f64; 4]); 2] = [("mixed 20-5-5-1", [20.0, 5.0, 5.0, 1.0]), ("equal 5-5-5-5", [5.0; 4])];
const LOADS: [f64; 4] = [0.6, 0.8, 1.0, 1.2];

/// The first is what all others are compared with.
const RULES: [(&str, Rule); 10] = [
    ("price", Rule::Shipped(Strategy::Price, Tuning::SHIPPED)),
    ("headroom", Rule::Shipped(Strategy::Headroom, Tuning::SHIPPED)),
    ("fill-first", Rule::Shipped(Strategy::FillFirst, Tuning::SHIPPED)),
    ("round-robin", Rule::Shipped(Strategy::RoundRobin, Tuning::SHIPPED)),
    ("expiry band", Rule::Expiry),
    ("expiry, no starts", Rule::ExpiryAlone),
    ("soonest reset", Rule::SoonestReset),
    ("session", Rule::Session),
    ("least used", Rule::LeastUsed),
    ("another each time", Rule::RotateRequests),
];

fn main() {
    let seeds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20);
    if std::env::args().nth(2).is_some_and(|only| only == "parts") {
        return parts(seeds);
    }
    let cells = |trouble| {
        POOLS.into_iter().flat_map(move |(name, seats)| {
            LOADS.map(|load| (format!("{name}, load {load:.1}"), Cell { seats, load, trouble }))
        })
    };
    let mut verdicts = Vec::new();
    for (name, cell) in cells(Trouble::None) {
        let results = run(cell, &RULES, seeds);
        table::figures(&name, &RULES, &results);
        verdicts.push(table::verdict(&name, &RULES, &results));
    }
    table::verdicts(
        "turns lost to anyone, the owner's own included: price against the best of the others",
        &verdicts,
    );
    let alone: Vec<_> = cells(Trouble::NoOutside)
        .map(|(name, cell)| table::verdict(&name, &RULES, &run(cell, &RULES, seeds)))
        .collect();
    table::verdicts("the same where the owner uses nothing past the router", &alone);
    parts(seeds);
}

/// What each part of the price is worth, and what trouble does to it.
fn parts(seeds: usize) {
    let with = |change: fn(&mut Tuning)| {
        let mut tuning = Tuning::SHIPPED;
        change(&mut tuning);
        Rule::Shipped(Strategy::Price, tuning)
    };
    let rules = [
        ("price", with(|_| {})),
        ("anticipates nothing", with(|tuning| tuning.anticipates = false)),
        ("barrier from a half", with(|tuning| tuning.barrier = 0.5)),
        ("no five-hour barrier", with(|tuning| tuning.barrier = f32::INFINITY)),
        ("hysteresis 1.5", with(|tuning| tuning.hysteresis = 1.5)),
        ("no hysteresis", with(|tuning| tuning.hysteresis = 1.0)),
        ("capacity taken for half", with(|tuning| tuning.capacity = 0.5)),
        ("capacity taken for twice", with(|tuning| tuning.capacity = 2.0)),
        ("no fair shares", Rule::Unshared),
    ];
    for ((name, seats), load) in POOLS.into_iter().flat_map(|pool| [(pool, 1.0), (pool, 1.2)]) {
        let cell = Cell {
            seats,
            load,
            trouble: Trouble::None,
        };
        let title = format!("{name}, load {load:.1}: parts of the price");
        table::figures(&title, &rules, &run(cell, &rules, seeds));
    }
    let compared = [RULES[0], rules[1], RULES[1], RULES[3], RULES[4]];
    for (what, trouble) in [
        ("no polls", Trouble::NoPolls),
        ("no headers", Trouble::NoHeaders),
        ("a clock three minutes ahead", Trouble::Skew),
        ("every seat used past the router", Trouble::Foreign),
    ] {
        let (name, seats) = POOLS[0];
        let cell = Cell {
            seats,
            load: 0.8,
            trouble,
        };
        table::figures(
            &format!("{name}, load 0.8: {what}"),
            &compared,
            &run(cell, &compared, seeds),
        );
    }
}

/// The figures of each rule for each seed; the same demand for every rule.
fn run(cell: Cell, rules: &[(&str, Rule)], seeds: usize) -> Vec<Vec<Figures>> {
    let results = Mutex::new(vec![Vec::new(); seeds]);
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let demand = Demand::draw(cell.load * weekly(cell.seats), &mut Chance(7_919 * seed as u64 + 1));
                    let play = |(_, rule): &(&str, Rule)| play(cell, &demand, *rule, seed as u64);
                    let figures = rules.iter().map(play).collect();
                    results.lock().unwrap()[seed] = figures;
                }
            });
        }
    });
    results.into_inner().unwrap()
}
