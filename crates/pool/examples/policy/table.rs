//! The figures as a table, and who is ahead: means over the seeds, differences in pairs of the same seed.

use crate::rules::Rule;
use crate::world::Figures;

/// A difference that may still count as a tie, in turns.
const TIE: f64 = 10.0;

/// A mean with the half-width of its 95 % interval.
#[derive(Clone, Copy)]
struct Interval {
    mean: f64,
    half: f64,
}

impl Interval {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let freedom = (n - 1.0).max(1.0);
        // Student's t, close enough from five seeds on.
        let t = 1.96 + 2.4 / freedom + 3.2 / (freedom * freedom);
        Self {
            mean,
            half: t * (squares / freedom / n).sqrt(),
        }
    }

    fn upper(&self) -> f64 {
        self.mean + self.half
    }
}

fn each(results: &[Vec<Figures>], rule: usize, figure: impl Fn(&Figures) -> f64) -> Vec<f64> {
    results.iter().map(|seed| figure(&seed[rule])).collect()
}

/// How many more turns the first rule lost than `other`.
fn ahead(results: &[Vec<Figures>], other: usize) -> Interval {
    let pairs = results
        .iter()
        .map(|seed| seed[0].lost_to_anyone() - seed[other].lost_to_anyone());
    Interval::of(&pairs.collect::<Vec<_>>())
}

/// Prints a cell of the comparison.
pub fn figures(title: &str, rules: &[(&str, Rule)], results: &[Vec<Figures>]) {
    println!("\n{title}");
    println!(
        "{:24} {:>6} {:>6} {:>6} {:>13} {:>6} {:>5} {:>11} {:>6} {:>6} {:>6} {:>6} {:>5} {:>5}",
        "",
        "lost",
        "owner",
        "all",
        "first − this",
        "429s",
        "avoid",
        "bursts",
        "misses",
        "quota",
        "unused",
        "displ",
        "wait",
        "fair"
    );
    for (n, (name, _)) in rules.iter().enumerate() {
        let mean = |figure: &dyn Fn(&Figures) -> f64| Interval::of(&each(results, n, figure)).mean;
        let difference = match n {
            0 => String::new(),
            n => {
                let Interval { mean, half } = ahead(results, n);
                format!("{mean:+.0} ± {half:.0}")
            }
        };
        println!(
            "{name:24} {:6.0} {:6.0} {:6.0} {difference:>13} {:6.0} {:5.0} {:>11} {:6.1} {:6.0} {:5.1}% {:5.1}% {:5.0} {:5.3}",
            mean(&|f| f.lost),
            mean(&Figures::owner_lost),
            mean(&Figures::lost_to_anyone),
            mean(&|f| f.refused),
            mean(&|f| f.avoidable),
            format!("{:.0}/{:.0}", mean(&|f| f.bursts), mean(&|f| f.bursts_seen)),
            mean(&Figures::misses_per_1000),
            mean(&Figures::quota_per_turn),
            mean(&Figures::unused),
            mean(&Figures::displaced),
            mean(&Figures::wait_p95),
            mean(&Figures::fairness),
        );
    }
}

/// How the first rule does in one cell.
pub struct Verdict {
    cell: String,
    lost: f64,
    best: String,
    best_lost: f64,
    difference: Interval,
    misses: f64,
}

pub fn verdict(cell: &str, rules: &[(&str, Rule)], results: &[Vec<Figures>]) -> Verdict {
    let lost = |n| Interval::of(&each(results, n, Figures::lost_to_anyone)).mean;
    let best = (1..rules.len()).min_by(|&a, &b| lost(a).total_cmp(&lost(b))).unwrap();
    Verdict {
        cell: cell.into(),
        lost: lost(0),
        best: rules[best].0.into(),
        best_lost: lost(best),
        difference: ahead(results, best),
        misses: Interval::of(&each(results, 0, Figures::misses_per_1000)).mean,
    }
}

/// Prints how the first rule does in all cells.
pub fn verdicts(title: &str, verdicts: &[Verdict]) {
    println!("\n{title}");
    for verdict in verdicts {
        let Interval { mean, half } = verdict.difference;
        let word = match verdict.difference.upper() {
            upper if upper < 0.0 => "ahead",
            upper if upper <= TIE => "level",
            _ => "BEHIND",
        };
        println!(
            "{:26} {:6.0} against {:6.0} ({}): {mean:+.0} ± {half:.0}, {word}; {:.1} caches lost to moves in 1000 turns",
            verdict.cell, verdict.lost, verdict.best_lost, verdict.best, verdict.misses
        );
    }
}
