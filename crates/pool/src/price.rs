//! What a conversation would cost on a seat: the tokens it will use there, times what a token of that seat is worth now.
//!
//! A token is worth more the scarcer the seat's week is: the time that is left of it, divided by the quota that is left.
//! At 1 the week is used evenly; below, quota would go unused, and above, it runs out early. Plans of different sizes need
//! no table, since all terms are shares of a seat's own windows.

use jiff::{SignedDuration, Timestamp};

use crate::account::Account;
use crate::window::WindowKind;

/// The numbers in the price. The defaults are what is shipped; others serve to see what each of them is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// How many times dearer its seat must be than another before a conversation leaves a warm cache. By default it
    /// stays as long as the seat may serve: in `examples/policy.rs` each move that comes earlier costs more than it saves.
    pub hysteresis: f32,
    /// From what share of its five hours on a seat gets dearer.
    pub barrier: f32,
    /// Whether requests under way, and what was spent since the last reading, count already.
    pub anticipates: bool,
    /// What the learnt capacity is multiplied with.
    pub capacity: f32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            hysteresis: f32::INFINITY,
            barrier: 0.7,
            anticipates: true,
            capacity: 1.0,
        }
    }
}

/// The turns that a conversation is expected to go on for, and a sub-agent's.
const LATER_TURNS: f32 = 12.0;
const LATER_TURNS_OF_AGENTS: f32 = 5.0;
/// What an answer costs, and what a turn adds to its context, where nothing better is known; in input tokens.
const ANSWER: f32 = 3_500.0;
const ADDED: f32 = 2_000.0;
/// The context of a request whose size is not known.
const CONTEXT: f32 = 30_000.0;
/// A token is about so many bytes of a request.
const BYTES_PER_TOKEN: f32 = 4.0;

/// What a request, and the conversation after it, will cost: in input tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bill {
    /// This turn where the cache is warm, and where it is not.
    warm: f32,
    cold: f32,
    /// The turns after it.
    later: f32,
    /// The context it brings.
    pub(crate) context: f32,
}

impl Bill {
    /// Of a request of `size` bytes, 0 if unknown, whose conversation had the context `known` a turn before.
    pub(crate) fn of(size: u32, known: Option<f32>, hour_cache: bool, sub_agent: bool) -> Self {
        let context = match size {
            0 => known.map_or(CONTEXT, |known| known + ADDED),
            size => size as f32 / BYTES_PER_TOKEN,
        };
        let write = if hour_cache { 2.0 } else { 1.25 };
        let new = known.map_or(ADDED, |known| (context - known).max(0.0)).min(context);
        let turn = 0.1 * context + write * ADDED + ANSWER;
        Self {
            warm: 0.1 * (context - new) + write * new + ANSWER,
            cold: write * context + ANSWER,
            later: turn * if sub_agent { LATER_TURNS_OF_AGENTS } else { LATER_TURNS },
            context,
        }
    }

    /// The turns after this one.
    pub(crate) fn later(&self) -> f32 {
        self.later
    }

    /// This turn alone.
    pub(crate) fn turn(&self, warm: bool) -> f32 {
        if warm { self.warm } else { self.cold }
    }
}

const FIVE_HOURS: f32 = 5.0 * 3_600.0;
const WEEK: f32 = 7.0 * 24.0 * 3_600.0;
/// The least share of a week's time that counts as left, so that its last hours are not given away.
const LEAST_TIME: f32 = 0.015;
/// The least share of quota that counts as left.
const LEAST_QUOTA: f32 = 0.004;
/// What a token costs once five hours are used up.
const DEAREST: f32 = 100.0;

/// What a token of a seat is worth, and the same with the seat's five hours and starts counted in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Price {
    /// Time left ÷ quota left of the week that is scarcest: 1 where it is used evenly.
    pub(crate) week: f32,
    /// What the token costs now.
    pub(crate) now: f32,
}

/// The price at which `account` takes a request for `model`. `at_home` says that its conversation runs there already.
/// `None` where nothing is known of its windows.
pub(crate) fn price(
    account: &Account,
    model: Option<&str>,
    bill: &Bill,
    at_home: bool,
    tuning: &Tuning,
    now: Timestamp,
) -> Option<Price> {
    let meter = &account.meter;
    let arriving = match at_home {
        true => bill.warm,
        false => bill.cold + bill.later,
    };
    let coming = if tuning.anticipates { meter.reserved() + arriving } else { 0.0 };
    let mut five = None;
    let mut week: Option<f32> = None;
    for (kind, window) in account.windows.iter().filter(|(kind, _)| kind.governs(model)) {
        let gauge = meter.gauge(kind);
        let capacity = gauge.capacity * tuning.capacity;
        let since = if tuning.anticipates { gauge.spent } else { 0.0 };
        let used = f32::from(window.used_at(now).basis_points()) / 10_000.0;
        let used = used + (since + coming) / capacity;
        let ends = window.resets_at.map(|reset| seconds(reset.duration_since(now))).filter(|&left| left > 0.0);
        match kind {
            WindowKind::FiveHour => {
                five = Some((used, ends.unwrap_or(FIVE_HOURS), capacity));
            }
            WindowKind::Weekly | WindowKind::Model(_) => {
                let left = ends.unwrap_or(WEEK).min(WEEK);
                let mut quota = 1.0 - used;
                if let Some((five_used, five_left, five_capacity)) = five {
                    // What cannot pass through the five-hour windows before the week ends is not there.
                    let windows = (1.0 - five_used).max(0.0) + (left - five_left).max(0.0) / FIVE_HOURS;
                    quota = quota.min(windows * five_capacity / capacity);
                }
                let worth = (left / WEEK).max(LEAST_TIME) / quota.max(LEAST_QUOTA);
                week = Some(week.map_or(worth, |other| other.max(worth)));
            }
        }
    }
    let barrier = match five {
        Some((used, ..)) => barrier(used, tuning.barrier),
        None if week.is_none() => return None,
        None => 1.0,
    };
    // A seat whose week was never seen is taken to be used evenly.
    let week = week.unwrap_or(1.0);
    Some(Price { week, now: week * barrier })
}

/// 1 up to `from`, then rising ever more steeply until the window is full.
fn barrier(projected: f32, from: f32) -> f32 {
    let room = (1.0 - projected) / (1.0 - from);
    match room {
        room if room >= 1.0 => 1.0,
        room if room <= 0.1 => DEAREST,
        room => 1.0 / (room * room),
    }
}

/// How much dearer a seat is for a new conversation by its latest starts: a third of what it is thought to take is free.
pub(crate) fn crowding(account: &Account, now: Timestamp) -> f32 {
    let (count, limit) = (account.starts.count(now), account.starts.limit(now));
    let above = count.saturating_sub(limit / 3) as f32;
    1.0 + above / 4.0
}

fn seconds(duration: SignedDuration) -> f32 {
    duration.as_secs_f32()
}
