//! The pool of seats: the only place where an account changes state.
//!
//! Five verbs: `acquire` a seat for a request, `judge` the answer, `settle` how it ended, `observe` what was learnt
//! aside from a request, and do what is `due`. Time is always an argument.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use jiff::{SignedDuration, Timestamp};

use crate::account::{Account, Brake, Token};
use crate::affinity::Affinity;
use crate::bench::{Bench, Cause, Scope, Source};
use crate::forecast::{Burns, Forecast};
use crate::id::AccountId;
use crate::memory::{Memory, SeatMemory};
use crate::meter::Tokens;
use crate::outcome::{self, LEAST_WAIT, LONGEST_WAIT, Length, NOT_IN_PLAN, Next, Note, Outcome, Rest, Trouble};
use crate::price::{Bill, Tuning};
use crate::rank::{self, Pick, Strategy, Terms};
use crate::request::{Chances, Request};
use crate::seat::Seat;
use crate::select::{self, Reason, Refusal};
use crate::shares::Shares;
use crate::standing::{Out, Tier, if_logged_in, standing};
use crate::switch::{Switch, Why};
use crate::trouble::{RetryBudget, Troubles};
use crate::upkeep::{Poll, Renewal, Renewals, UsagePolls};
use crate::window::{Window, WindowKind};
use crate::wishes::{ExtraUsage, Wishes};

/// So many failures in a row are a reason to rest.
const FAULTS: u32 = 5;
/// So many windowless refusals of one model in a row, where another seat serves it, mean that the plan lacks it.
const THROTTLED: u32 = 3;
/// How long a brake holds at most.
const BRAKED_FOR_S: u64 = 30;

/// How long a prompt cache lives after its last use, and one that is paid for an hour.
const CACHE: SignedDuration = SignedDuration::from_mins(5);
const HOUR_CACHE: SignedDuration = SignedDuration::from_hours(1);
/// The longest that a request is asked to wait before it is sent.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// What holds for the whole pool.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// How often a seat's usage may be asked for at most.
    pub usage_interval: SignedDuration,
    /// Whether logins are renewed at all.
    pub renews: bool,
    /// How a seat is picked among those that can serve.
    pub strategy: Strategy,
    /// The numbers in the price.
    pub tuning: Tuning,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            usage_interval: SignedDuration::from_secs(300),
            renews: true,
            strategy: Strategy::default(),
            tuning: Tuning::default(),
        }
    }
}

/// A claim on a seat for one attempt. It must be settled, exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is not settled keeps its seat busy for ever"]
pub struct Lease {
    number: u64,
    account: AccountId,
    wait: SignedDuration,
}

impl Lease {
    /// The seat it is for.
    pub fn account(&self) -> &AccountId {
        &self.account
    }

    /// How long the request should wait before it is sent; mostly nothing.
    pub fn wait(&self) -> SignedDuration {
        self.wait
    }
}

/// A seat that was found.
#[derive(Debug)]
pub struct Granted {
    /// The claim on it.
    pub lease: Lease,
    /// Why that one.
    pub reason: Reason,
    /// The switch, if the conversation was elsewhere before.
    pub switch: Option<Switch>,
}

/// What an answer's head told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// What it is.
    pub outcome: Outcome,
    /// The allowances that it told of.
    pub windows: Vec<(WindowKind, Window)>,
    /// Whether it was within every limit.
    pub allowed: bool,
}

impl From<Outcome> for Heard {
    /// An answer that told of no allowance.
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            windows: Vec::new(),
            allowed: false,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With the answer's last byte, or with nothing more to come.
    Whole,
    /// The answer broke off.
    Interrupted,
    /// The answer ended with an error in its stream, of this kind.
    Failed(Outcome),
    /// The client left.
    Abandoned,
    /// Taken back before the request was complete upstream: nothing has run.
    Withdrawn,
}

/// What was learnt aside from a request.
#[derive(Clone, Debug)]
pub enum Observation {
    /// The seat exists, and its owner wants this of it.
    Discovered(Wishes),
    /// Its login is gone from this machine.
    Gone,
    /// Its access token is now of that state.
    Token(Token),
    /// Windows were read.
    Reading(Vec<(WindowKind, Window)>),
    /// An answer used so much.
    Metered {
        /// The model's id as the client wrote it.
        model: Option<String>,
        /// What it used.
        tokens: Tokens,
    },
    /// A usage poll ended.
    Polled(Poll),
    /// The store holds another login than before.
    LoginChanged,
    /// A renewal ended.
    Renewed(Renewal),
    /// Its owner wants it tried now, whatever it rests from.
    TryNow,
}

/// What should be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for this seat's usage.
    PollUsage(AccountId),
    /// Renew this seat's login.
    Renew(AccountId),
}

/// A lease that was not settled.
#[derive(Debug)]
struct Open {
    account: AccountId,
    /// Whether its seat went away meanwhile. One that is found again does not answer for it.
    orphaned: bool,
    since: Timestamp,
    /// The scopes that it tries, after their rest.
    tries: Vec<Scope>,
    /// Whether its answer was judged.
    judged: bool,
    /// What it is expected to cost, in input tokens.
    cost: f32,
}

/// The seats and what is remembered of them.
#[derive(Debug)]
pub struct Pool {
    policy: Policy,
    seats: BTreeMap<AccountId, Seat>,
    /// What is remembered of seats that were not found yet.
    remembered: BTreeMap<AccountId, SeatMemory>,
    affinity: Affinity,
    shares: Shares,
    troubles: Troubles,
    retries: RetryBudget,
    leases: BTreeMap<u64, Open>,
    next_lease: u64,
    /// Whether the forecast is that the pool runs out: then moving, which costs a cache, takes more of a reason.
    scarce: bool,
    chance: u64,
}

impl Pool {
    /// An empty pool. `seed` decides ties and jitter.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            seats: BTreeMap::new(),
            remembered: BTreeMap::new(),
            affinity: Affinity::default(),
            shares: Shares::default(),
            troubles: Troubles::default(),
            retries: RetryBudget::default(),
            leases: BTreeMap::new(),
            next_lease: 0,
            scarce: false,
            chance: seed,
        }
    }

    /// What holds for all of it.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Lets something else hold for all of it.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// The seats, by id.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.seats.values().map(|seat| &seat.account)
    }

    /// One seat.
    pub fn account(&self, id: &AccountId) -> Option<&Account> {
        self.seats.get(id).map(|seat| &seat.account)
    }

    /// Leases that have not been settled.
    pub fn open_leases(&self) -> usize {
        self.leases.len()
    }

    /// The trouble that is no single seat's, and since when.
    pub fn troubles(&self, now: Timestamp) -> Vec<(Trouble, Timestamp)> {
        self.troubles.at(now)
    }

    /// How long the pool will last.
    pub fn forecast(&self, now: Timestamp) -> Forecast {
        crate::forecast::forecast(self.seats.values().map(|seat| (&seat.account, &seat.burns)), now)
    }

    /// How a seat's usage is asked for.
    pub fn polls(&self, id: &AccountId) -> Option<&UsagePolls> {
        self.seats.get(id).map(|seat| &seat.polls)
    }

    /// How fast a seat's allowances are being used up.
    pub fn burns(&self, id: &AccountId) -> Option<&Burns> {
        self.seats.get(id).map(|seat| &seat.burns)
    }

    /// The seat that `request` would get, and why; nothing is claimed.
    ///
    /// # Errors
    /// Why it would get none.
    pub fn preview(&self, request: &Request, now: Timestamp) -> Result<(AccountId, Reason), Refusal> {
        let (pick, reason) = self.choose(request, self.terms(request, self.chance, now))?;
        Ok((pick.account.id.clone(), reason))
    }

    /// What each seat is to `request`: how well it suits, or why it is not taken.
    pub fn standings(
        &self,
        request: &Request,
        now: Timestamp,
    ) -> impl Iterator<Item = (&AccountId, Result<Tier, Out>)> {
        let home = self.home(request, now).cloned();
        self.accounts().map(move |account| {
            let at_home = home.as_ref() == Some(&account.id);
            (&account.id, standing(account, request, at_home, now))
        })
    }

    /// Claims a seat for one attempt at `request`, and says why that one.
    ///
    /// # Errors
    /// Why none serves it.
    pub fn acquire(&mut self, request: &Request, now: Timestamp) -> Result<Granted, Refusal> {
        let salt = self.draw();
        let terms = self.terms(request, salt, now);
        let (pick, reason) = self.choose(request, terms)?;
        let id = pick.account.id.clone();
        let at_home = terms.home == Some(&id);
        let cost = if request.is_free {
            0.0
        } else {
            terms.bill.turn(at_home && terms.warm)
        };
        let context = terms.bill.context;
        // Weeks that run ahead of their time, and five hours that fill up: what one device takes now, another lacks soon.
        let is_short = pick
            .price
            .is_some_and(|price| price.week > 1.0 && price.now > price.week);
        let switch = self.moves(request, &id, now);
        if let Some(conversation) = request.conversation
            && !switch.as_ref().is_some_and(|switch| switch.for_one_turn)
            // What is free warms no cache.
            && !(request.is_free && at_home)
        {
            self.affinity.bind(conversation, &id, context, now);
        }
        let shares = request.tried.is_empty() && !request.is_free;
        let fair = match request.device.filter(|_| shares) {
            Some(device) => self.shares.take(device, cost, now),
            None => SignedDuration::ZERO,
        };
        let mut wait = if is_short { fair } else { SignedDuration::ZERO };
        if request.tried.is_empty() && request.again.is_none() {
            self.retries.request(now);
        }
        self.next_lease += 1;
        let mut tries = Vec::new();
        if let Some(Seat { account, .. }) = self.seats.get_mut(&id) {
            if !request.is_free {
                if self.policy.strategy == Strategy::Price {
                    wait = wait.max(account.starts.wait(now)).min(LONGEST_PAUSE);
                }
                account.starts.began(now + wait, now);
            }
            account.meter.reserve(cost);
            if !at_home {
                account.last_begun = self.next_lease;
            }
            account.in_flight += 1;
            account.starting += 1;
            for bench in &mut account.benches {
                if !bench.runs(now) && bench.scope.covers(request) {
                    bench.trying += 1;
                    tries.push(bench.scope.clone());
                }
            }
        }
        let open = Open {
            account: id.clone(),
            orphaned: false,
            since: now,
            tries,
            judged: false,
            cost,
        };
        self.leases.insert(self.next_lease, open);
        let lease = Lease {
            number: self.next_lease,
            account: id,
            wait,
        };
        Ok(Granted { lease, reason, switch })
    }

    /// Takes in what an answer's head told, while its body is still to come, and says what to do with the request.
    pub fn judge(&mut self, lease: &Lease, request: &Request, heard: Heard, chances: Chances, now: Timestamp) -> Next {
        let since = self.answered(lease);
        let Heard {
            outcome,
            windows,
            allowed,
        } = heard;
        let consequence = outcome::consequence(&outcome, request.model.as_deref(), now);
        if let Some((since, seat)) = since.zip(self.seats.get_mut(&lease.account)) {
            for (kind, window) in windows {
                seat.see(kind, window, since, now);
            }
            let Seat { account, polls, .. } = seat;
            if consequence.note == Note::Good {
                served(account, request, since, allowed, now);
            }
            for rest in consequence.rests {
                let Some(bench) = rest.of(account, now) else { continue };
                if (bench.cause, bench.source) == (Cause::Limit, Source::Rule) {
                    polls.want();
                }
                let outdated = bench.cause == Cause::Login && account.login_since.is_some_and(|login| since < login);
                if !outdated {
                    account.rest(bench);
                }
            }
            self.note(&lease.account, consequence.note, request.model.as_deref(), now);
        }
        self.refine(consequence.next, &outcome, &lease.account, request, chances, now)
    }

    /// Takes the lease back.
    #[expect(clippy::needless_pass_by_value, reason = "a settled lease must be gone")]
    pub fn settle(&mut self, lease: Lease, end: &End, now: Timestamp) {
        let lives = self.answered(&lease).is_some();
        let open = self.leases.remove(&lease.number);
        let Some(Seat { account, .. }) = self.seats.get_mut(&lease.account).filter(|_| lives) else {
            return;
        };
        account.meter.release(open.map_or(0.0, |open| open.cost));
        account.in_flight = account.in_flight.saturating_sub(1);
        let note = match end {
            End::Whole | End::Abandoned | End::Withdrawn => return,
            End::Interrupted => Note::Fault,
            // What it would rest from is left to the next answer's head: this one has no headers of its own.
            End::Failed(outcome) => outcome::consequence(outcome, None, now).note,
        };
        if note != Note::Good {
            self.note(&lease.account, note, None, now);
        }
    }

    /// Notes what was learnt of a seat.
    pub fn observe(&mut self, id: &AccountId, observation: Observation, now: Timestamp) {
        if let Observation::Discovered(wishes) = observation {
            return self.discovered(id, wishes, now);
        }
        let jitter = self.draw() as u8;
        let Some(seat) = self.seats.get_mut(id) else {
            return;
        };
        let account = &mut seat.account;
        match observation {
            Observation::Discovered(_) => {}
            Observation::Gone => {
                self.seats.remove(id);
                for open in self.leases.values_mut().filter(|open| open.account == *id) {
                    open.orphaned = true;
                }
            }
            Observation::Token(token) => account.token = token,
            Observation::Reading(windows) => {
                for (kind, window) in windows {
                    let seen_at = window.observed_at;
                    seat.see(kind, window, seen_at, now);
                }
                seat.account.end_rests(Cause::ends_with_a_reading, now);
            }
            Observation::Metered { model, tokens } => account.meter.spent(tokens.cost(), model.as_deref()),
            Observation::Polled(poll) => seat.polls.ended(poll, jitter, now),
            Observation::LoginChanged => {
                account.benches.retain(|bench| !bench.cause.ends_with_the_login());
                account.login_since = Some(now);
                seat.renewals.login_changed();
            }
            Observation::Renewed(renewal) => seat.renewals.ended(renewal, account, jitter, now),
            Observation::TryNow => account.end_rests(|_| true, now),
        }
    }

    /// Notes that the machine woke, or its clock was set.
    pub fn woke(&mut self, now: Timestamp) {
        for seat in self.seats.values_mut() {
            seat.polls.woke(now);
            seat.renewals.woke(now);
            let account = &mut seat.account;
            account.windows.woke(now);
            account.starts.woke(now);
            account.benches.iter_mut().for_each(|bench| bench.woke(now));
        }
    }

    /// What should be done now. Each action is handed out once, until its end is observed.
    pub fn due(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        self.scarce = matches!(self.forecast(now), Forecast::RunsOut { .. });
        for (id, seat) in &mut self.seats {
            let due = seat.poll_due_at(self.policy.usage_interval, now);
            if due.is_some_and(|at| at <= now) {
                seat.polls.asked(now);
                actions.push(Action::PollUsage(id.clone()));
            }
        }
        for (id, seat) in self.seats.iter_mut().filter(|_| self.policy.renews) {
            if seat.renewal_due_at().is_some_and(|at| at <= now) {
                seat.renewals.began(now);
                actions.push(Action::Renew(id.clone()));
            }
        }
        actions
    }

    /// When something will be due next.
    pub fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let seats = || self.seats.values();
        let polls = seats().filter_map(|seat| seat.poll_due_at(self.policy.usage_interval, now));
        let renewals = seats().filter(|_| self.policy.renews).filter_map(Seat::renewal_due_at);
        polls.chain(renewals).min()
    }

    /// What is known of a seat's renewals.
    pub fn renewals(&self, id: &AccountId) -> Option<&Renewals> {
        self.seats.get(id).map(|seat| &seat.renewals)
    }

    /// What should outlast the process, of the seats that are there.
    pub fn known_seats(&self) -> impl Iterator<Item = SeatMemory> {
        self.seats.values().map(SeatMemory::of)
    }

    /// What should outlast the process.
    pub fn remember(&self) -> Memory {
        Memory {
            seats: self.known_seats().chain(self.remembered.values().cloned()).collect(),
            conversations: self.affinity.iter().collect(),
        }
    }

    /// Takes back what outlasted an earlier process. Seats get theirs when they are found; what has run out by then
    /// is dropped.
    pub fn recall(&mut self, memory: Memory, now: Timestamp) {
        for bound in memory.conversations {
            self.affinity.recall(bound, now);
        }
        for memory in memory.seats {
            match self.seats.get_mut(&memory.id) {
                Some(seat) => memory.restore(seat, now),
                None => {
                    self.remembered.insert(memory.id.clone(), memory);
                }
            }
        }
    }

    fn discovered(&mut self, id: &AccountId, wishes: Wishes, now: Timestamp) {
        if let Some(seat) = self.seats.get_mut(id) {
            seat.account.wishes = wishes;
            return;
        }
        let mut seat = Seat::new(id.clone());
        seat.account.wishes = wishes;
        if let Some(memory) = self.remembered.remove(id) {
            memory.restore(&mut seat, now);
        }
        self.seats.insert(id.clone(), seat);
    }

    /// The seat that the request's conversation last used.
    fn home(&self, request: &Request, now: Timestamp) -> Option<&AccountId> {
        self.affinity.of(request.conversation?, now)
    }

    /// What the strategy goes by for `request`; `salt` breaks the ties of requests that belong to no conversation.
    fn terms<'a>(&'a self, request: &'a Request, salt: u64, now: Timestamp) -> Terms<'a> {
        let bound = request
            .conversation
            .and_then(|conversation| self.affinity.binding(conversation, now));
        let known = bound.map(|bound| bound.context).filter(|&context| context > 0.0);
        let cache = if request.hour_cache { HOUR_CACHE } else { CACHE };
        Terms {
            strategy: self.policy.strategy,
            tuning: self.policy.tuning,
            model: request.model.as_deref(),
            home: bound.map(|bound| &bound.account),
            warm: bound.is_some_and(|bound| now.duration_since(bound.used_at) < cache),
            margin: if self.scarce { 2.0 * rank::MARGIN } else { rank::MARGIN },
            bill: Bill::of(request.size, known, request.hour_cache, request.sub_agent),
            key: request.conversation.map_or(salt, |conversation| conversation.0),
            now,
        }
    }

    fn choose<'a>(&'a self, request: &Request, terms: Terms<'a>) -> Result<(Pick<'a>, Reason), Refusal> {
        select::select(&self.seats, request, terms)
            .map_err(|refusal| self.unless_it_passes(refusal, request, terms.now))
    }

    /// The switch that giving the request to `id` is, if its conversation was elsewhere. A seat that is only passed
    /// over keeps its conversation: it is borrowed for a turn.
    fn moves(&self, request: &Request, id: &AccountId, now: Timestamp) -> Option<Switch> {
        let from = self.home(request, now).filter(|home| *home != id)?;
        let home = self.account(from);
        let stands = home.map(|home| standing(home, request, true, now));
        let was_tried = request.tried.contains(from);
        let (why, for_one_turn) = match stands {
            None => (Why::Gone, false),
            Some(_) if !request.may_use(from) => (Why::Pinned, false),
            Some(Err(out)) => (Why::Out(out), false),
            Some(Ok(tier @ (Tier::Ready | Tier::Braked | Tier::Marked))) if was_tried || tier != Tier::Ready => {
                (Why::Passing, true)
            }
            Some(Ok(Tier::Ready)) => {
                let group = |id| self.account(id).map(|account| account.wishes.group);
                match group(id) < group(from) || self.policy.strategy == Strategy::Order {
                    true => (Why::Group, false),
                    false => (Why::MoreRoom, false),
                }
            }
            Some(Ok(Tier::NearlyFull)) => (Why::NearlyFull, false),
            Some(Ok(_)) => (Why::Passing, false),
        };
        Some(Switch {
            from: from.clone(),
            to: id.clone(),
            why,
            for_one_turn,
        })
    }

    /// Notes that a lease has its answer, or needs none. Returns when it was given; `None` if its seat is gone.
    fn answered(&mut self, lease: &Lease) -> Option<Timestamp> {
        let open = self.leases.get_mut(&lease.number).filter(|open| !open.orphaned)?;
        let Seat { account, .. } = self.seats.get_mut(&lease.account)?;
        if !open.judged {
            open.judged = true;
            account.starting = account.starting.saturating_sub(1);
            for bench in &mut account.benches {
                if open.tries.contains(&bench.scope) {
                    bench.trying = bench.trying.saturating_sub(1);
                }
            }
        }
        Some(open.since)
    }

    /// Keeps what is noted beside rests.
    fn note(&mut self, id: &AccountId, note: Note, model: Option<&str>, now: Timestamp) {
        match note {
            Note::Nothing => {}
            Note::Good => self.troubles.served(),
            Note::Fault => {
                let Some(Seat { account, .. }) = self.seats.get_mut(id) else {
                    return;
                };
                account.faults += 1;
                let is_on_trial = account.benches.iter().any(|bench| bench.cause == Cause::Faults);
                let rest = Rest::Ruled(Scope::Seat, Cause::Faults, outcome::FAILING);
                if (is_on_trial || account.faults >= FAULTS)
                    && let Some(bench) = rest.of(account, now)
                {
                    account.rest(bench);
                }
            }
            Note::Trouble(trouble) => {
                self.troubles.meet(trouble, id, now);
                if trouble == Trouble::Throttled {
                    self.throttled(id, model, now);
                }
            }
        }
    }

    /// A refusal that names no limit: fewer may start together for a while; and a model that is refused so again and
    /// again is perhaps not in the plan.
    fn throttled(&mut self, id: &AccountId, model: Option<&str>, now: Timestamp) {
        let wait = 1 + self.draw() % BRAKED_FOR_S;
        let served_elsewhere = model.is_some_and(|model| self.another_has_served(id, model));
        let Some(Seat { account, .. }) = self.seats.get_mut(id) else {
            return;
        };
        account.starts.refused(now);
        // This one has its answer already.
        let together = account.starting + 1;
        let before = account.brake.filter(|brake| now < brake.until).map(|brake| brake.limit);
        account.brake = Some(Brake {
            limit: (before.unwrap_or(together).min(together) / 2).max(1),
            until: now + SignedDuration::from_secs(wait as i64),
        });
        if let Some(model) = model
            && account.models.note_throttled(model) >= THROTTLED
            && served_elsewhere
        {
            let scope = Scope::Model(model.into());
            if let Some(bench) = Rest::Ruled(scope, Cause::NotInPlan, NOT_IN_PLAN).of(account, now) {
                account.rest(bench);
            }
        }
    }

    fn another_has_served(&self, id: &AccountId, model: &str) -> bool {
        self.accounts()
            .any(|account| account.id != *id && account.models.has_served(model))
    }

    /// What is really done, given what the request has left and how things stand elsewhere.
    fn refine(
        &mut self,
        next: Next,
        outcome: &Outcome,
        id: &AccountId,
        request: &Request,
        chances: Chances,
        now: Timestamp,
    ) -> Next {
        let there_is = |trouble| self.troubles.since(trouble, now).is_some();
        match next {
            Next::TryAnother if matches!(outcome, Outcome::Beyond(_)) => {
                let wish = self
                    .account(id)
                    .map_or(ExtraUsage::Last, |account| account.wishes.extra_usage);
                let moves = match wish {
                    ExtraUsage::Never => true,
                    ExtraUsage::Last => chances.movable && self.is_left(id, request, Tier::Marked, now),
                    ExtraUsage::Allowed => false,
                };
                if moves { next } else { Next::Deliver }
            }
            Next::TryOneOther => {
                let may = chances.movable && chances.spare && !there_is(Trouble::Throttled);
                let helps = match outcome {
                    Outcome::UnknownModel => request
                        .model
                        .as_deref()
                        .is_some_and(|model| self.another_has_served(id, model)),
                    _ => true,
                };
                let moves = may && helps && self.is_left(id, request, Tier::Marked, now) && self.retries.take(now);
                if moves { next } else { Next::Deliver }
            }
            Next::RetryHere { .. } => {
                let may = chances.movable && chances.retry && !there_is(Trouble::Overloaded);
                if !may || !self.retries.take(now) {
                    return Next::Deliver;
                }
                // Full jitter: those who failed together must not come back together.
                let spread = (LONGEST_WAIT - LEAST_WAIT).as_millis() as u64;
                Next::RetryHere {
                    after: LEAST_WAIT + SignedDuration::from_millis((self.draw() % spread) as i64),
                }
            }
            Next::Reconnect => match chances.movable && chances.retry && self.retries.take(now) {
                true => next,
                false => Next::Deliver,
            },
            Next::TryAnother | Next::TryAnotherOrDeliver | Next::RereadAndRetry | Next::Deliver => next,
        }
    }

    /// Whether a seat of that tier or a better one, other than `id`, is left to try for `request`.
    fn is_left(&self, id: &AccountId, request: &Request, least: Tier, now: Timestamp) -> bool {
        let moved = Request {
            tried: request.tried.iter().chain([id]).cloned().collect(),
            ..request.clone()
        };
        self.accounts().any(|account| {
            request.may_use(&account.id)
                && !moved.tried.contains(&account.id)
                && standing(account, &moved, false, now).is_ok_and(|tier| tier <= least)
        })
    }

    /// The refusal, unless what stands in the way passes by itself: that is worth waiting for.
    fn unless_it_passes(&self, refusal: Refusal, request: &Request, now: Timestamp) -> Refusal {
        let could_serve = |seat: &&Seat| {
            let account = &seat.account;
            !request.tried.contains(&account.id)
                && request.may_use(&account.id)
                && if_logged_in(account, request, true, now).is_ok()
        };
        let candidates = || self.seats.values().filter(|_| self.policy.renews).filter(could_serve);
        if candidates().any(|seat| seat.renewals.is_awaited(&seat.account, now)) {
            return Refusal::Renewing;
        }
        // Trouble that passes is no reason to send anybody to log in.
        let Refusal::NeedLogin(seats) = refusal else {
            return refusal;
        };
        let renewal = candidates()
            .filter_map(|seat| seat.renewals.next_try(&seat.account, now))
            .min();
        let next_probe = |seat: &Seat| {
            let rejected = seat.renewals.last() == Some(Renewal::Rejected);
            let bench = seat.account.rests(now).find(|bench| bench.cause == Cause::Login)?;
            (!rejected).then_some(bench.until)
        };
        let of_the_service = self.troubles.since(Trouble::LoginsRefused, now).is_some();
        let probe = || {
            self.seats
                .values()
                .filter(|_| of_the_service)
                .filter_map(next_probe)
                .min()
        };
        match (renewal, probe()) {
            (Some(until), _) => Refusal::LoginDelayed { until },
            (None, Some(until)) => Refusal::LoginsRefused { seats, until },
            (None, None) => Refusal::NeedLogin(seats),
        }
    }

    /// The next number of a sequence that the seed decides (splitmix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        rank::mix(self.chance)
    }
}

/// Notes that `account` served `request`, which was given to it at `since`: what rested is proven well, step by step.
fn served(account: &mut Account, request: &Request, since: Timestamp, allowed: bool, now: Timestamp) {
    account.faults = 0;
    account.benches.retain_mut(|bench| {
        if !bench.scope.covers(request) {
            return true;
        }
        match bench.runs(now) {
            false => !bench.proven(),
            // An answer that began before the rest says nothing against it; nor does one that told of no limit, where
            // a limit is the reason. What its owner pays for is ended by a reading, or by its time.
            true => match bench.cause {
                Cause::ExtraUsage => true,
                Cause::Limit => !allowed || since < bench.since,
                _ => since < bench.since,
            },
        }
    });
    if let Some(model) = &request.model {
        account.models.note_served(model, now);
    }
}

impl Rest {
    /// The rest as it is set now. One of our own rules that runs is not made longer by those who had nowhere else to
    /// go: `None`.
    fn of(self, account: &Account, now: Timestamp) -> Option<Bench> {
        let (scope, cause, length) = match self {
            Self::Told(bench) => return Some(bench),
            Self::Ruled(scope, cause, length) => (scope, cause, length),
        };
        let mut before = account.benches.iter();
        let before = before.find(|bench| bench.cause == cause && bench.scope == scope);
        if before.is_some_and(|bench| bench.runs(now)) {
            return None;
        }
        let length = match length {
            Length::Fixed(length) => length,
            Length::Growing(first, most) => before.map_or(first, |bench| bench.grown(first, most)),
        };
        Some(Bench::new(scope, cause, Source::Rule, now, now + length))
    }
}
