//! Four weeks of a pool: seats as Anthropic would count them, clients that wait and give up, and the shipped
//! [`Pool`] in between.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use pool::{
    AccountId, Action, Chances, Conversation, End, Family, Heard, Lease, Next, Observation, Outcome, Poll, Pool,
    Rejection, Request, Token, Tokens, Utilization, Window, WindowKind, Wishes,
};

use crate::rules::{Memory, Rule};
use crate::week::{COMPACT_AT, COMPACTED, Chance, DEVICES, Demand, HOUR, MINUTE, Ms, SECOND, WEEK, WEEKS, busy, cost};

/// What a seat of size 1 may use in five hours, in tokens as the plans count them.
const UNIT: f64 = 1_500_000.0;
/// A week is worth that many full five-hour windows.
const FIVES_A_WEEK: f64 = 8.0;
/// How long a prompt cache lives after its last use.
const CACHE: Ms = 5 * MINUTE;
/// Until an answer's head comes.
const HEAD: Ms = 1_500;
/// What the owner asks of seat 0 past the router, as a share of that seat's week.
const OUTSIDE: f64 = 0.22;
const EPOCH: i64 = 1_800_000_000;

/// One cell of the table: which seats, how much is asked of them, and what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub seats: [f64; 4],
    pub load: f64,
    pub trouble: Trouble,
}

/// What goes wrong with what the router is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// No usage poll is answered.
    NoPolls,
    /// Answers carry no rate-limit headers.
    NoHeaders,
    /// The router's clock runs three minutes ahead.
    Skew,
    /// Every seat is used past the router, not seat 0 alone.
    Foreign,
    /// Nothing is used past the router. No trouble at all, but a check.
    NoOutside,
}

/// What came of it, over the last three weeks.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub turns: f64,
    /// Turns that were given up.
    pub lost: f64,
    /// Refusals for quota that a client saw.
    pub refused: f64,
    /// Those of them where some seat would have served.
    pub avoidable: f64,
    /// 429s for too many starts that were met.
    pub bursts: f64,
    /// Those that a client saw.
    pub bursts_seen: f64,
    /// Caches lost because the conversation was moved.
    pub misses: f64,
    pub quota: f64,
    unused: f64,
    unused_of: f64,
    outside: f64,
    displaced: f64,
    waits: Vec<f32>,
    asked_by: [f64; DEVICES.len()],
    served_by: [f64; DEVICES.len()],
}

impl Figures {
    pub fn misses_per_1000(&self) -> f64 {
        1_000.0 * self.misses / self.turns.max(1.0)
    }

    pub fn quota_per_turn(&self) -> f64 {
        self.quota / self.turns.max(1.0)
    }

    /// In per cent.
    pub fn unused(&self) -> f64 {
        100.0 * self.unused / self.unused_of.max(1.0)
    }

    /// The part of the owner's own use that found seat 0 full, in per cent.
    pub fn displaced(&self) -> f64 {
        100.0 * self.displaced / self.outside.max(1.0)
    }

    /// The same in turns of the usual size.
    pub fn owner_lost(&self) -> f64 {
        self.displaced / self.quota_per_turn()
    }

    /// Turns that the devices gave up, and those that the owner could not do on seat 0: a rule that empties the owner's
    /// seat first would else look good.
    pub fn lost_to_anyone(&self) -> f64 {
        self.lost + self.owner_lost()
    }

    /// How long conversations waited for a seat in all, the 95th percentile, in minutes.
    pub fn wait_p95(&self) -> f64 {
        let mut waits = self.waits.clone();
        waits.sort_by(f32::total_cmp);
        waits.get(waits.len() * 95 / 100).map_or(0.0, |&wait| f64::from(wait))
    }

    /// Jain's index over what each device was served of its fair share: 1 where every device got what it asked for, or
    /// as much as any other.
    pub fn fairness(&self) -> f64 {
        let mut left: f64 = self.served_by.iter().sum();
        let mut asked: Vec<usize> = (0..DEVICES.len()).collect();
        asked.sort_by(|&a, &b| self.asked_by[a].total_cmp(&self.asked_by[b]));
        let (mut sum, mut squares) = (0.0, 0.0);
        for (n, &device) in asked.iter().enumerate() {
            let fair = self.asked_by[device].min(left / (DEVICES.len() - n) as f64);
            left -= fair;
            let got = self.served_by[device] / fair.max(1.0);
            sum += got;
            squares += got * got;
        }
        sum * sum / (DEVICES.len() as f64 * squares.max(1e-9))
    }
}

/// A seat as Anthropic counts it.
struct Seat {
    id: AccountId,
    size: f64,
    /// Used of the five hours, of the week, of the family's week.
    used: [f64; 3],
    /// When the five hours end, if they have begun.
    five_ends: Option<Ms>,
    week_ends: Ms,
    burst_limit: usize,
    starts: VecDeque<Ms>,
}

impl Seat {
    fn caps(&self) -> [f64; 3] {
        let five = UNIT * self.size;
        [five, FIVES_A_WEEK * five, FIVES_A_WEEK * five / 2.0]
    }

    /// Ends the windows that are over.
    fn roll(&mut self, now: Ms, figures: &mut Figures) {
        if self.five_ends.is_some_and(|end| end <= now) {
            self.five_ends = None;
            self.used[0] = 0.0;
        }
        while self.week_ends <= now {
            if self.week_ends >= WEEK {
                let cap = self.caps()[1];
                figures.unused += (cap - self.used[1]).max(0.0);
                figures.unused_of += cap;
            }
            self.used[1] = 0.0;
            self.used[2] = 0.0;
            self.week_ends += WEEK;
        }
    }

    fn charge(&mut self, amount: f64, fable: bool, now: Ms) {
        self.five_ends.get_or_insert(now + 5 * HOUR);
        self.used[0] += amount;
        self.used[1] += amount;
        if fable {
            self.used[2] += amount;
        }
    }

    /// Which windows are full for that model.
    fn full(&self, fable: bool) -> impl Iterator<Item = usize> {
        let caps = self.caps();
        let counted = if fable { 3 } else { 2 };
        (0..counted).filter(move |&n| self.used[n] >= caps[n])
    }

    fn kind(n: usize) -> WindowKind {
        match n {
            0 => WindowKind::FiveHour,
            1 => WindowKind::Weekly,
            _ => WindowKind::Model(Family::new("fable")),
        }
    }

    fn ends(&self, n: usize) -> Option<Ms> {
        match n {
            0 => self.five_ends,
            _ => Some(self.week_ends),
        }
    }

    /// The first `count` windows as an answer tells them: in whole hundredths.
    fn reading(&self, count: usize, now: Timestamp) -> Vec<(WindowKind, Window)> {
        (0..count)
            .map(|n| {
                let share = (100.0 * self.used[n] / self.caps()[n]).floor() / 100.0;
                let window = Window {
                    used: Utilization::from_fraction(share).unwrap(),
                    resets_at: self.ends(n).map(time),
                    observed_at: now,
                };
                (Self::kind(n), window)
            })
            .collect()
    }
}

/// Where a talk stands.
#[derive(Default)]
struct Standing {
    next: usize,
    context: f64,
    /// When each seat last had its context, and how long that was.
    cached: [Option<(Ms, f64)>; 4],
    last_seat: Option<usize>,
    /// How often it was refused since it was last served.
    refusals: u32,
    wanted_at: Ms,
    waited: Ms,
    children: usize,
    over: bool,
}

/// An answer on its way back.
struct Answer {
    attempt: Attempt,
    seat: usize,
    cost: f64,
    ends: Ms,
    lease: Lease,
}

/// A request on its way through the router.
struct Attempt {
    talk: usize,
    request: Request,
    /// Whether it met a burst already.
    burst: bool,
}

enum Event {
    /// A talk wants its next turn.
    Ask(usize),
    /// An attempt has waited for its turn.
    Send(Box<Attempt>, Lease),
    /// An answer's head came.
    Head(Box<Answer>),
    /// An answer ended.
    End(Box<Answer>),
    Minute,
}

/// Ordered by time, then by when it was planned.
struct Planned(Reverse<(Ms, u64)>, Event);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

fn time(at: Ms) -> Timestamp {
    Timestamp::from_millisecond(EPOCH * 1_000 + at).unwrap()
}

pub struct World<'a> {
    cell: Cell,
    demand: &'a Demand,
    seats: Vec<Seat>,
    standings: Vec<Standing>,
    pool: Pool,
    rule: Rule,
    memory: Memory,
    events: BinaryHeap<Planned>,
    planned: u64,
    figures: Figures,
    seed: u64,
}

/// A pool's weekly capacity in tokens.
pub fn weekly(seats: [f64; 4]) -> f64 {
    seats.iter().sum::<f64>() * UNIT * FIVES_A_WEEK
}

/// Plays four weeks of `demand` under `rule`.
pub fn play(cell: Cell, demand: &Demand, rule: Rule, seed: u64) -> Figures {
    let mut chance = Chance(seed ^ 0x5ea7);
    let seats = (cell.seats.iter().enumerate())
        .map(|(n, &size)| {
            // The weeks are under way at the start, and used as far.
            let left = chance.even();
            let used = (1.0 - left) * FIVES_A_WEEK * UNIT * size * cell.load.min(1.0);
            Seat {
                id: AccountId::new(&format!("seat-{n}")),
                size,
                used: [0.0, used, 0.3 * used],
                five_ends: None,
                week_ends: (left * WEEK as f64) as Ms + 1,
                burst_limit: chance.between(9.0, 16.0) as usize,
                starts: VecDeque::new(),
            }
        })
        .collect();
    let mut world = World {
        cell,
        demand,
        seats,
        standings: demand
            .talks
            .iter()
            .map(|talk| Standing {
                context: talk.base,
                ..Standing::default()
            })
            .collect(),
        pool: Pool::new(rule.policy(), seed),
        rule,
        memory: Memory::default(),
        events: BinaryHeap::new(),
        planned: 0,
        figures: Figures::default(),
        seed,
    };
    world.run();
    world.figures
}

impl World<'_> {
    fn run(&mut self) {
        for seat in &self.seats {
            self.pool
                .observe(&seat.id, Observation::Discovered(Wishes::default()), time(0));
            self.pool
                .observe(&seat.id, Observation::Token(Token::Valid { expires_at: None }), time(0));
        }
        for (n, talk) in self.demand.talks.iter().enumerate() {
            if talk.parent.is_none() {
                self.standings[n].wanted_at = talk.at;
                self.plan(talk.at, Event::Ask(n));
            }
        }
        self.plan(0, Event::Minute);
        while let Some(Planned(Reverse((now, _)), event)) = self.events.pop() {
            if now >= WEEKS * WEEK {
                break;
            }
            for seat in &mut self.seats {
                seat.roll(now, &mut self.figures);
            }
            match event {
                Event::Ask(talk) => self.ask(talk, now),
                Event::Send(attempt, lease) => self.send(*attempt, lease, now),
                Event::Head(answer) => self.head(answer, now),
                Event::End(answer) => self.end(*answer, now),
                Event::Minute => self.minute(now),
            }
        }
        let counted = self
            .demand
            .talks
            .iter()
            .zip(&self.standings)
            .filter(|(talk, _)| talk.at >= WEEK && !talk.agent);
        self.figures.waits = counted
            .map(|(_, standing)| standing.waited as f32 / MINUTE as f32)
            .collect();
    }

    fn plan(&mut self, at: Ms, event: Event) {
        self.planned += 1;
        self.events.push(Planned(Reverse((at, self.planned)), event));
    }

    /// The time as the router has it.
    fn router_time(&self, now: Ms) -> Timestamp {
        time(
            now + if self.cell.trouble == Trouble::Skew {
                3 * MINUTE
            } else {
                0
            },
        )
    }

    /// A talk asks.
    fn ask(&mut self, talk: usize, now: Ms) {
        let asks = &self.demand.talks[talk];
        let turn = &asks.turns[self.standings[talk].next];
        let mut request = Request {
            conversation: Some(Conversation(Chance(talk as u64).next())),
            model: Some(asks.model().into()),
            ..Request::default()
        };
        self.rule
            .describe(&mut request, asks, self.standings[talk].context + turn.new);
        self.acquire(
            Attempt {
                talk,
                request,
                burst: false,
            },
            now,
        );
    }

    /// The router claims a seat, and waits if the pool says so.
    fn acquire(&mut self, attempt: Attempt, now: Ms) {
        let at = self.router_time(now);
        let session = self.demand.talks[attempt.talk].session;
        match self
            .rule
            .acquire(&mut self.pool, &mut self.memory, &attempt.request, session, at)
        {
            Ok(granted) => match granted.lease.wait().as_millis() as Ms {
                0 => self.send(attempt, granted.lease, now),
                wait => self.plan(now + wait, Event::Send(Box::new(attempt), granted.lease)),
            },
            // A burst that was met is handed on rather than the router's own refusal.
            Err(_) if attempt.burst => self.retry(attempt.talk, now),
            Err(_) => self.refused(attempt.talk, now),
        }
    }

    /// A request reaches its seat.
    fn send(&mut self, mut attempt: Attempt, lease: Lease, now: Ms) {
        let at = self.router_time(now);
        let fable = self.demand.talks[attempt.talk].fable;
        let n = self.seats.iter().position(|seat| seat.id == *lease.account()).unwrap();
        let seat = &mut self.seats[n];
        let id = seat.id.clone();
        while seat.starts.front().is_some_and(|&start| start <= now - 10 * SECOND) {
            seat.starts.pop_front();
        }
        if seat.starts.len() >= seat.burst_limit {
            self.figures.bursts += f64::from(now >= WEEK);
            let next = self.judged(&attempt, lease, Outcome::Throttled.into(), at);
            if next == Next::Deliver {
                return self.retry(attempt.talk, now);
            }
            attempt.burst = true;
            attempt.request.tried.push(id);
            return self.acquire(attempt, now);
        }
        let full: Vec<usize> = seat.full(fable).collect();
        if !full.is_empty() {
            let rejected = full.iter().map(|&w| (Seat::kind(w), seat.ends(w).map(time))).collect();
            let rejection = Rejection {
                windows: rejected,
                ..Rejection::default()
            };
            let windows = match self.cell.trouble {
                Trouble::NoHeaders => Vec::new(),
                _ => seat.reading(if fable { 3 } else { 2 }, at),
            };
            let heard = Heard {
                outcome: Outcome::Limited(rejection),
                windows,
                allowed: false,
            };
            self.judged(&attempt, lease, heard, at);
            attempt.request.tried.push(id);
            return self.acquire(attempt, now);
        }
        seat.starts.push_back(now);
        self.serve(attempt, n, lease, now);
    }

    /// A refusal comes back from a seat: what the pool makes of it.
    fn judged(&mut self, attempt: &Attempt, lease: Lease, heard: Heard, at: Timestamp) -> Next {
        let chances = Chances {
            spare: !attempt.burst,
            ..Chances::ALL
        };
        let next = self.pool.judge(&lease, &attempt.request, heard, chances, at);
        self.pool.settle(lease, &End::Whole, at);
        next
    }

    /// The client sees a 429 that names no window, and tries again by itself.
    fn retry(&mut self, talk: usize, now: Ms) {
        self.figures.bursts_seen += f64::from(now >= WEEK);
        let pause = self.hash(talk, now) % 8_000 + 2_000;
        self.plan(now + pause as Ms, Event::Ask(talk));
    }

    fn hash(&self, talk: usize, salt: i64) -> u64 {
        Chance(self.seed ^ (talk as u64) << 24 ^ salt as u64).next()
    }

    /// The client was refused: it waits, and gives up after the third time.
    fn refused(&mut self, talk: usize, now: Ms) {
        let asks = &self.demand.talks[talk];
        if now >= WEEK {
            self.figures.refused += 1.0;
            let free = |seat: &Seat| seat.full(asks.fable).next().is_none();
            self.figures.avoidable += f64::from(self.seats.iter().any(free));
        }
        let standing = &mut self.standings[talk];
        standing.refusals += 1;
        if standing.refusals > 3 {
            return self.give_up(talk, now);
        }
        let refusals = i64::from(standing.refusals);
        let wait = 15 * MINUTE + (self.hash(talk, refusals) % (30 * MINUTE) as u64) as Ms;
        self.plan(now + wait, Event::Ask(talk));
    }

    fn give_up(&mut self, talk: usize, now: Ms) {
        let lost = self.left(talk);
        if now >= WEEK {
            self.figures.lost += lost;
            self.figures.asked_by[self.demand.talks[talk].device] += lost;
        }
        let standing = &mut self.standings[talk];
        standing.waited += now - standing.wanted_at;
        self.over(talk, now);
    }

    /// The turns that a talk still has, with those of sub-agents that it has not started.
    fn left(&self, talk: usize) -> f64 {
        let talks = &self.demand.talks;
        let turns = &talks[talk].turns[self.standings[talk].next..];
        let agents = turns.iter().flat_map(|turn| turn.starts.clone());
        (turns.len() + agents.map(|agent| talks[agent].turns.len()).sum::<usize>()) as f64
    }

    fn over(&mut self, talk: usize, now: Ms) {
        self.standings[talk].over = true;
        let Some(parent) = self.demand.talks[talk].parent else {
            return;
        };
        self.standings[parent].children -= 1;
        if self.standings[parent].children == 0 && !self.standings[parent].over {
            self.ask_next(parent, now);
        }
    }

    /// Plans the next turn after its pause, or ends the talk.
    fn ask_next(&mut self, talk: usize, now: Ms) {
        let Some(turn) = self.demand.talks[talk].turns.get(self.standings[talk].next) else {
            return self.over(talk, now);
        };
        let at = now + turn.pause;
        self.standings[talk].wanted_at = at;
        self.plan(at, Event::Ask(talk));
    }

    fn serve(&mut self, attempt: Attempt, seat: usize, lease: Lease, now: Ms) {
        let talk = attempt.talk;
        let asks = &self.demand.talks[talk];
        let standing = &mut self.standings[talk];
        let turn = &asks.turns[standing.next];
        standing.refusals = 0;
        standing.waited += now - standing.wanted_at;
        // What of the context the seat's cache holds; the rest is written anew.
        let held = |cached: Option<(Ms, f64)>| {
            cached
                .filter(|(used, _)| now - used < CACHE)
                .map_or(0.0, |(_, context)| context.min(standing.context))
        };
        let here = held(standing.cached[seat]);
        let spent = cost(here, turn.new + standing.context - here, turn.out, here > 0.0);
        let elsewhere = standing
            .last_seat
            .filter(|&last| last != seat)
            .map_or(0.0, |last| held(standing.cached[last]));
        if now >= WEEK {
            self.figures.turns += 1.0;
            self.figures.quota += spent;
            self.figures.misses += f64::from(elsewhere > here);
            self.figures.asked_by[asks.device] += 1.0;
            self.figures.served_by[asks.device] += 1.0;
        }
        standing.last_seat = Some(seat);
        standing.context += turn.new + turn.out;
        let end = now + HEAD + (turn.out / 60.0 * 1_000.0) as Ms;
        standing.cached[seat] = Some((end, standing.context));
        if standing.context > COMPACT_AT {
            standing.context = COMPACTED;
            standing.cached = [None; 4];
        }
        standing.next += 1;
        let answer = Answer {
            attempt,
            seat,
            cost: spent,
            ends: end,
            lease,
        };
        self.plan(now + HEAD, Event::Head(Box::new(answer)));
    }

    fn head(&mut self, answer: Box<Answer>, now: Ms) {
        let at = self.router_time(now);
        let windows = match self.cell.trouble {
            Trouble::NoHeaders => Vec::new(),
            _ => self.seats[answer.seat].reading(3, at),
        };
        let heard = Heard {
            outcome: Outcome::Served,
            windows,
            allowed: self.cell.trouble != Trouble::NoHeaders,
        };
        self.pool
            .judge(&answer.lease, &answer.attempt.request, heard, Chances::ALL, at);
        self.plan(answer.ends, Event::End(answer));
    }

    fn end(&mut self, answer: Answer, now: Ms) {
        let at = self.router_time(now);
        let talk = answer.attempt.talk;
        let asks = &self.demand.talks[talk];
        self.seats[answer.seat].charge(answer.cost, asks.fable, now);
        let tokens = Tokens {
            input: answer.cost as u64,
            ..Tokens::default()
        };
        let metered = Observation::Metered {
            model: Some(asks.model().into()),
            tokens,
        };
        self.pool.observe(answer.lease.account(), metered, at);
        self.pool.settle(answer.lease, &End::Whole, at);
        let starts = asks.turns[self.standings[talk].next - 1].starts.clone();
        self.standings[talk].children = starts.len();
        if starts.is_empty() {
            return self.ask_next(talk, now);
        }
        for agent in starts {
            let at = now + self.demand.talks[agent].at;
            self.standings[agent].wanted_at = at;
            self.plan(at, Event::Ask(agent));
        }
    }

    /// What the driver does, and what the owner uses past the router.
    fn minute(&mut self, now: Ms) {
        let at = self.router_time(now);
        for action in self.pool.due(at) {
            let Action::PollUsage(id) = action else { continue };
            let seat = self.seats.iter().find(|seat| seat.id == id).unwrap();
            let poll = match self.cell.trouble {
                Trouble::NoPolls => Poll::Throttled(Some(SignedDuration::from_hours(1))),
                _ => {
                    let windows = seat.reading(3, at);
                    self.pool.observe(&id, Observation::Reading(windows), at);
                    Poll::Read
                }
            };
            self.pool.observe(&id, Observation::Polled(poll), at);
        }
        let used_outside = match self.cell.trouble {
            Trouble::Foreign => 4,
            Trouble::NoOutside => 0,
            _ => 1,
        };
        for seat in &mut self.seats[..used_outside] {
            // `busy` is 0.505 on average.
            let minutes_a_week = (WEEK / MINUTE) as f64;
            let wanted = OUTSIDE * seat.caps()[1] / minutes_a_week * busy(now) / 0.505;
            let room = seat.full(false).next().is_none();
            if now >= WEEK {
                self.figures.outside += wanted;
                self.figures.displaced += if room { 0.0 } else { wanted };
            }
            if room && wanted > 0.0 {
                seat.charge(wanted, false, now);
            }
        }
        self.plan(now + MINUTE, Event::Minute);
    }
}
