//! What people ask for: conversations with all their sizes and pauses, drawn before any rule sees them.

use std::ops::Range;

/// Milliseconds since the start.
pub type Ms = i64;
pub const SECOND: Ms = 1_000;
pub const MINUTE: Ms = 60 * SECOND;
pub const HOUR: Ms = 60 * MINUTE;
pub const DAY: Ms = 24 * HOUR;
pub const WEEK: Ms = 7 * DAY;
/// Four weeks are played; the first only fills the windows and is not counted.
pub const WEEKS: i64 = 4;

/// How many devices send, and how much of the work each brings.
pub const DEVICES: [f64; 4] = [0.5, 0.25, 0.15, 0.1];

/// Chance that a seed decides (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Evenly in 0..1.
    pub fn even(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.even()
    }

    /// With a long tail, of that mean.
    pub fn tailed(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.even()).ln()
    }
}

/// One turn: what it adds to the context and answers, in tokens, and the pause before it.
pub struct Turn {
    pub pause: Ms,
    pub new: f64,
    pub out: f64,
    /// The sub-agents that it starts; the conversation goes on when all have ended.
    pub starts: Range<usize>,
}

/// A conversation, or a sub-agent's.
pub struct Talk {
    /// When it begins; a sub-agent's is counted from its start by the parent.
    pub at: Ms,
    pub device: usize,
    pub session: u64,
    pub fable: bool,
    pub agent: bool,
    pub parent: Option<usize>,
    /// The context it begins with.
    pub base: f64,
    pub turns: Vec<Turn>,
}

impl Talk {
    pub fn model(&self) -> &'static str {
        if self.fable { "claude-fable-5" } else { "claude-opus-5" }
    }
}

/// All talks of four weeks. Those with a parent begin when it says so.
pub struct Demand {
    pub talks: Vec<Talk>,
}

/// The longest context; beyond it the client compacts.
pub const COMPACT_AT: f64 = 160_000.0;
/// What is left after that.
pub const COMPACTED: f64 = 30_000.0;

/// What a turn costs, in tokens as the plans count them: five times for output, a tenth for what the cache holds,
/// a quarter more for what is written to it.
pub fn cost(context: f64, new: f64, out: f64, warm: bool) -> f64 {
    match warm {
        true => 0.1 * context + 1.25 * new + 5.0 * out,
        false => 1.25 * (context + new) + 5.0 * out,
    }
}

/// How busy people are at that time, 0 to 1: few at night, most in the afternoon, less at weekends.
pub fn busy(at: Ms) -> f64 {
    let hour = (at % DAY) as f64 / HOUR as f64;
    let day = (at / DAY) % 7;
    let awake = match hour {
        h if h < 7.0 => 0.06,
        h if h < 10.0 => 0.06 + 0.94 * (h - 7.0) / 3.0,
        h if h < 20.0 => 1.0,
        h => 1.0 - 0.94 * (h - 20.0) / 4.0,
    };
    awake * if day >= 5 { 0.5 } else { 1.0 }
}

impl Demand {
    /// Draws talks until they would cost `weekly` tokens a week where no cache is ever lost to a move.
    pub fn draw(weekly: f64, chance: &mut Chance) -> Self {
        let mut talks = Vec::new();
        let mut total = 0.0;
        while total < weekly * WEEKS as f64 {
            total += main(&mut talks, chance);
        }
        Self { talks }
    }
}

/// Adds one conversation with its sub-agents; returns what all of it costs.
fn main(talks: &mut Vec<Talk>, chance: &mut Chance) -> f64 {
    let at = loop {
        let at = chance.between(0.0, (WEEKS * WEEK) as f64) as Ms;
        if chance.even() < busy(at) {
            break at;
        }
    };
    let mut which = chance.even();
    let device = DEVICES
        .iter()
        .position(|share| {
            which -= share;
            which < 0.0
        })
        .unwrap_or(0);
    let fable = chance.even() < 0.3;
    let session = chance.next();
    let length = (4.0 + chance.tailed(56.0)).min(300.0) as usize;
    let own = talks.len();
    talks.push(Talk {
        at,
        device,
        session,
        fable,
        agent: false,
        parent: None,
        base: 25_000.0,
        turns: Vec::new(),
    });
    let mut total = 0.0;
    let mut turns = Vec::with_capacity(length);
    for n in 0..length {
        let pause = match chance.even() {
            _ if n == 0 => 0.0,
            d if d < 0.75 => chance.between(1.0, 8.0),
            d if d < 0.95 => chance.between(20.0, 240.0),
            _ => chance.between(300.0, 2_400.0),
        };
        let first = talks.len();
        if chance.even() < 0.006 {
            for _ in 0..chance.between(4.0, 15.0) as usize {
                total += agent(talks, own, chance);
            }
        }
        turns.push(Turn {
            pause: (pause * 1_000.0) as Ms,
            new: chance.tailed(2_200.0).min(30_000.0),
            out: 50.0 + chance.tailed(600.0),
            starts: first..talks.len(),
        });
    }
    talks[own].turns = turns;
    total + undisturbed(&talks[own])
}

fn agent(talks: &mut Vec<Talk>, parent: usize, chance: &mut Chance) -> f64 {
    let turns = (0..(3.0 + chance.tailed(9.0)).min(60.0) as usize)
        .map(|n| Turn {
            pause: (if n == 0 { 0.0 } else { chance.between(1.0, 8.0) } * 1_000.0) as Ms,
            new: chance.tailed(2_500.0).min(30_000.0),
            out: 50.0 + chance.tailed(400.0),
            starts: 0..0,
        })
        .collect();
    let talk = Talk {
        at: chance.between(0.0, 3_000.0) as Ms,
        device: talks[parent].device,
        session: talks[parent].session,
        fable: talks[parent].fable,
        agent: true,
        parent: Some(parent),
        base: 14_000.0,
        turns,
    };
    let total = undisturbed(&talk);
    talks.push(talk);
    total
}

/// What a talk costs on a seat that it never leaves.
fn undisturbed(talk: &Talk) -> f64 {
    let mut context = talk.base;
    let mut total = 0.0;
    for (n, turn) in talk.turns.iter().enumerate() {
        total += cost(context, turn.new, turn.out, n > 0 && turn.pause < 5 * MINUTE);
        context += turn.new + turn.out;
        if context > COMPACT_AT {
            context = COMPACTED;
        }
    }
    total
}
