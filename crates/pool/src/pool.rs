//! The pool of seats: the only place where an account changes state.
//!
//! Four verbs: `acquire` a seat for a request, `settle` how it ended, `observe` what was learnt aside from a request,
//! and do what is `due`. Time is always an argument.

use alloc::{collections::BTreeMap, vec::Vec};

use jiff::{SignedDuration, Timestamp};

use crate::account::{Account, AccountId, Token, Wishes};
use crate::affinity::Affinity;
use crate::outcome::{self, Next, Outcome};
use crate::request::Request;
use crate::select::{self, Reason, Refusal};
use crate::upkeep::{Poll, Renewal, Renewals, UsagePolls};
use crate::window::{Window, WindowKind};

/// What holds for the whole pool.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// How often a seat's usage may be asked for at most.
    pub usage_interval: SignedDuration,
    /// Whether logins are renewed at all.
    pub renews: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            usage_interval: SignedDuration::from_secs(300),
            renews: true,
        }
    }
}

/// A claim on a seat for one attempt. It must be settled, exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is not settled keeps its seat busy for ever"]
pub struct Lease {
    number: u64,
    account: AccountId,
}

impl Lease {
    /// The seat it is for.
    pub fn account(&self) -> &AccountId {
        &self.account
    }
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
    /// Windows were read; `allowed` if they came with a request that was served within the plan.
    Reading {
        /// What was read.
        windows: Vec<(WindowKind, Window)>,
        /// Whether the answer they came with was allowed by every limit.
        allowed: bool,
    },
    /// A usage poll ended.
    Polled(Poll),
    /// The store holds another login than before.
    LoginChanged,
    /// A renewal ended.
    Renewed(Renewal),
}

/// What should be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for this seat's usage.
    PollUsage(AccountId),
    /// Renew this seat's login.
    Renew(AccountId),
}

/// The seats and what is remembered of them.
#[derive(Debug)]
pub struct Pool {
    policy: Policy,
    accounts: BTreeMap<AccountId, Account>,
    polls: BTreeMap<AccountId, UsagePolls>,
    renewals: BTreeMap<AccountId, Renewals>,
    affinity: Affinity,
    leases: BTreeMap<u64, AccountId>,
    next_lease: u64,
    chance: u64,
}

impl Pool {
    /// An empty pool. `seed` decides ties and jitter.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            accounts: BTreeMap::new(),
            polls: BTreeMap::new(),
            renewals: BTreeMap::new(),
            affinity: Affinity::default(),
            leases: BTreeMap::new(),
            next_lease: 0,
            chance: seed,
        }
    }

    /// The seats, by id.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values()
    }

    /// One seat.
    pub fn account(&self, id: &AccountId) -> Option<&Account> {
        self.accounts.get(id)
    }

    /// Leases that have not been settled.
    pub fn open_leases(&self) -> usize {
        self.leases.len()
    }

    /// Claims a seat for one attempt at `request`, and says why that one; or why none.
    pub fn acquire(&mut self, request: &Request, now: Timestamp) -> Result<(Lease, Reason), Refusal> {
        let salt = self.draw();
        let bound = request
            .conversation
            .and_then(|conversation| self.affinity.of(conversation, now));
        let (id, reason) = select::select(&self.accounts, request, bound, salt, now)
            .map_err(|refusal| self.unless_renewing(refusal, request, now))?;
        if let Some(conversation) = request.conversation {
            // A seat that is only passed over for this request keeps its conversation: it is borrowed for a hop.
            let borrowed = bound.is_some_and(|home| {
                *home != id
                    && request.tried.contains(home)
                    && self
                        .accounts
                        .get(home)
                        .is_some_and(|home| home.can_serve(request.model.as_deref(), now))
            });
            if !borrowed {
                self.affinity.bind(conversation, &id, now);
            }
        }
        if let Some(account) = self.accounts.get_mut(&id) {
            account.in_flight += 1;
        }
        self.next_lease += 1;
        self.leases.insert(self.next_lease, id.clone());
        let lease = Lease {
            number: self.next_lease,
            account: id,
        };
        Ok((lease, reason))
    }

    /// The seat that `request` would get if it came now, and why; or why none. Nothing is claimed.
    ///
    /// # Errors
    /// The refusal, as of [`Pool::acquire`].
    pub fn outlook(&self, request: &Request, now: Timestamp) -> Result<(AccountId, Reason), Refusal> {
        select::select(&self.accounts, request, None, 0, now)
            .map_err(|refusal| self.unless_renewing(refusal, request, now))
    }

    /// Takes the lease back and says what to do with the request.
    #[expect(clippy::needless_pass_by_value, reason = "a settled lease must be gone")]
    pub fn settle(&mut self, lease: Lease, outcome: &Outcome, now: Timestamp) -> Next {
        let (rests, next) = outcome::consequence(outcome, now);
        self.leases.remove(&lease.number);
        let Some(account) = self.accounts.get_mut(&lease.account) else {
            return next;
        };
        account.in_flight = account.in_flight.saturating_sub(1);
        account.cooldowns.retain(|rest| rest.until > now);
        for rest in rests {
            account.cooldowns.retain(|known| known.window != rest.window);
            account.cooldowns.push(rest);
        }
        next
    }

    /// Notes what was learnt of a seat.
    pub fn observe(&mut self, id: &AccountId, observation: Observation, now: Timestamp) {
        if let Observation::Discovered(wishes) = observation {
            self.accounts
                .entry(id.clone())
                .or_insert_with(|| Account::new(id.clone()))
                .wishes = wishes;
            self.polls.entry(id.clone()).or_default();
            self.renewals.entry(id.clone()).or_default();
            return;
        }
        let jitter = self.draw() as u8;
        let Some(account) = self.accounts.get_mut(id) else {
            return;
        };
        match observation {
            Observation::Discovered(_) => {}
            Observation::Gone => {
                self.accounts.remove(id);
                self.polls.remove(id);
                self.renewals.remove(id);
            }
            Observation::Token(token) => account.token = token,
            Observation::Reading { windows, allowed } => {
                for (kind, window) in windows {
                    if allowed || !window.used.is_full() {
                        account.wake(&kind, window.observed_at);
                    }
                    account.windows.observe(kind, window);
                }
                if allowed {
                    account
                        .cooldowns
                        .retain(|rest| rest.window.is_some() || rest.since >= now);
                }
            }
            Observation::Polled(poll) => {
                if let Some(polls) = self.polls.get_mut(id) {
                    polls.ended(poll, jitter, now);
                }
            }
            Observation::LoginChanged => {
                if let Some(renewals) = self.renewals.get_mut(id) {
                    renewals.login_changed();
                }
            }
            Observation::Renewed(renewal) => {
                if let Some(renewals) = self.renewals.get_mut(id) {
                    renewals.ended(renewal, account, jitter, now);
                }
            }
        }
    }

    /// Notes that the machine woke, or its clock was set.
    pub fn woke(&mut self, now: Timestamp) {
        self.polls.values_mut().for_each(|polls| polls.woke(now));
        self.renewals.values_mut().for_each(|renewals| renewals.woke(now));
        self.accounts.values_mut().for_each(|account| account.windows.woke(now));
    }

    /// What should be done now. Each action is handed out once, until its end is observed.
    pub fn due(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        for (id, account) in &self.accounts {
            let Some(polls) = self.polls.get_mut(id) else { continue };
            if polls
                .due_at(account, self.policy.usage_interval, now)
                .is_some_and(|at| at <= now)
            {
                polls.asked(now);
                actions.push(Action::PollUsage(id.clone()));
            }
        }
        for (id, account) in self.accounts.iter().filter(|_| self.policy.renews) {
            let Some(renewals) = self.renewals.get_mut(id) else {
                continue;
            };
            if renewals.due_at(account).is_some_and(|at| at <= now) {
                renewals.began(now);
                actions.push(Action::Renew(id.clone()));
            }
        }
        actions
    }

    /// When something will be due next.
    pub fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let poll = |(id, account)| self.polls.get(id)?.due_at(account, self.policy.usage_interval, now);
        let renewal = |(id, account)| self.renewals.get(id)?.due_at(account);
        let polls = self.accounts.iter().filter_map(poll);
        let renewals = self.accounts.iter().filter(|_| self.policy.renews).filter_map(renewal);
        polls.chain(renewals).min()
    }

    /// What is known of a seat's renewals.
    pub fn renewals(&self, id: &AccountId) -> Option<&Renewals> {
        self.renewals.get(id)
    }

    /// The refusal, unless a seat that could serve this request is being renewed: that is worth waiting for.
    fn unless_renewing(&self, refusal: Refusal, request: &Request, now: Timestamp) -> Refusal {
        let could_serve = |account: &&Account| {
            !request.tried.contains(&account.id)
                && request.may_use(&account.id)
                && account.resting(request.model.as_deref(), now).is_none()
        };
        let awaited = |account: &Account| {
            self.renewals
                .get(&account.id)
                .is_some_and(|renewals| renewals.is_awaited(account, now))
        };
        if !self.policy.renews {
            return refusal;
        }
        if self.accounts.values().filter(could_serve).any(awaited) {
            return Refusal::Renewing;
        }
        match refusal {
            // Trouble that passes is no reason to send anybody to log in.
            Refusal::NeedLogin(seats) => {
                let next_try = |account: &Account| self.renewals.get(&account.id)?.next_try(account, now);
                match self.accounts.values().filter(could_serve).filter_map(next_try).min() {
                    Some(until) => Refusal::LoginDelayed { until },
                    None => Refusal::NeedLogin(seats),
                }
            }
            other => other,
        }
    }

    /// The next number of a sequence that the seed decides (splitmix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        select::mix(self.chance)
    }
}
