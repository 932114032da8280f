//! The pool of seats: the only place where an account changes state.
//!
//! Five verbs: `acquire` a seat for a request, `judge` the answer, `settle` how it ended, `observe` what was learnt
//! aside from a request, and do what is `due`. Time is always an argument.

mod choice;
mod lease;
mod judge;
mod verdict;
mod observe;
mod due;
mod recall;

use alloc::{collections::BTreeMap, vec::Vec};

use jiff::{SignedDuration, Timestamp};

use crate::account::Account;
use crate::affinity::Affinity;
use crate::forecast::{Burns, Forecast};
use crate::id::AccountId;
use crate::memory::SeatMemory;
use crate::outcome::Trouble;
use crate::polls::UsagePolls;
use crate::price::Tuning;
use crate::rank::{self, Strategy};
use crate::renewals::Renewals;
use crate::seats::Seats;
use crate::shares::Shares;
use crate::trouble::{RetryBudget, Troubles};

pub use due::Action;
pub use judge::Heard;
use lease::Open;
pub use lease::{End, Granted, Lease};
pub use observe::Observation;

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

/// The seats and what is remembered of them.
#[derive(Debug)]
pub struct Pool {
    policy: Policy,
    seats: Seats,
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
            seats: Seats::default(),
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
        self.seats.iter().map(|seat| &seat.account)
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
        crate::forecast::forecast(self.seats.iter().map(|seat| (&seat.account, &*seat.burns)), now)
    }

    /// How a seat's usage is asked for.
    pub fn polls(&self, id: &AccountId) -> Option<&UsagePolls> {
        self.seats.get(id).map(|seat| &*seat.polls)
    }

    /// How fast a seat's allowances are being used up.
    pub fn burns(&self, id: &AccountId) -> Option<&Burns> {
        self.seats.get(id).map(|seat| &*seat.burns)
    }

    /// What is known of a seat's renewals.
    pub fn renewals(&self, id: &AccountId) -> Option<&Renewals> {
        self.seats.get(id).map(|seat| &*seat.renewals)
    }

    /// The next number of a sequence that the seed decides (splitmix64).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        rank::mix(self.chance)
    }
}
