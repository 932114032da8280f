//! The rules that are compared: the shipped strategies, and others as they are met elsewhere.
//!
//! The others pick a seat from what the pool knows and ask for that one; filters, rests and leases are the shipped ones.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use pool::{Account, AccountId, Granted, Policy, Pool, Refusal, Request, Strategy, Tuning, WindowKind};

use crate::week::Talk;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// A shipped strategy.
    Shipped(Strategy, Tuning),
    /// The shipped price without fair shares.
    Unshared,
    /// Another seat at each request.
    RotateRequests,
    /// The least used seat at each request, as the earlier tool did.
    LeastUsed,
    /// A session with all its sub-agents stays on its seat; else the least used.
    Session,
    /// One seat for all until it is full, then the one whose week ends first.
    SoonestReset,
    /// The soonest end of a week among seats of much the same room, less what is under way; a conversation stays.
    Expiry,
    /// The same without regard to what is under way.
    ExpiryAlone,
}

/// What the rules remember beside the pool.
#[derive(Default)]
pub struct Memory {
    bound: HashMap<u64, (AccountId, Timestamp)>,
    current: Option<AccountId>,
    turn: usize,
}

const KEPT: SignedDuration = SignedDuration::from_hours(1);

impl Rule {
    pub fn policy(&self) -> Policy {
        let (strategy, tuning) = match self {
            Self::Shipped(strategy, tuning) => (*strategy, *tuning),
            Self::Unshared => (Strategy::Price, Tuning::default()),
            _ => (Strategy::Headroom, Tuning::default()),
        };
        Policy {
            strategy,
            tuning,
            ..Policy::default()
        }
    }

    /// Tells what the gateway would of a request with that context.
    pub fn describe(&self, request: &mut Request, talk: &Talk, context: f64) {
        request.size = (4.0 * context) as u32;
        request.sub_agent = talk.agent;
        request.device = (*self != Self::Unshared).then_some(talk.device as u64);
    }

    pub fn acquire(
        &self,
        pool: &mut Pool,
        memory: &mut Memory,
        request: &Request,
        session: u64,
        now: Timestamp,
    ) -> Result<Granted, Refusal> {
        let key = match self {
            Self::Session => session,
            _ => request.conversation.map_or(0, |conversation| conversation.0),
        };
        let Some(id) = self.choose(pool, memory, request, key, now) else {
            return pool.acquire(request, now);
        };
        memory.bound.insert(key, (id.clone(), now));
        let mut asked = request.clone();
        asked.owner = Some(id);
        pool.acquire(&asked, now)
    }

    /// A local rule's seat; `None` for the shipped ones, and where nobody can serve.
    fn choose(
        &self,
        pool: &Pool,
        memory: &mut Memory,
        request: &Request,
        key: u64,
        now: Timestamp,
    ) -> Option<AccountId> {
        if matches!(self, Self::Shipped(..) | Self::Unshared) {
            return None;
        }
        let model = request.model.as_deref();
        let standings: Vec<_> = pool
            .standings(request, now)
            .filter(|(id, _)| !request.tried.contains(id))
            .filter_map(|(id, stands)| Some((stands.ok()?, pool.account(id)?)))
            .collect();
        let best = standings.iter().map(|(tier, _)| *tier).min()?;
        let usable: Vec<&Account> = (standings.iter().filter(|(tier, _)| *tier == best))
            .map(|(_, account)| *account)
            .collect();
        let used = |account: &Account| {
            account
                .windows
                .used_for(model, now)
                .map_or(0, |used| i32::from(used.basis_points()))
        };
        let week_ends = |account: &Account| {
            let week = account.windows.get(&WindowKind::Weekly);
            week.and_then(|week| week.resets_at)
                .filter(|&end| end > now)
                .unwrap_or(Timestamp::MAX)
        };
        let bound = memory
            .bound
            .get(&key)
            .filter(|(_, at)| now.duration_since(*at) < KEPT)
            .map(|(id, _)| id);
        let home = usable.iter().copied().find(|account| Some(&account.id) == bound);
        let least_used = || usable.iter().copied().min_by_key(|account| used(account));
        let chosen = match self {
            Self::Shipped(..) | Self::Unshared => None,
            Self::RotateRequests => {
                memory.turn += 1;
                usable.get(memory.turn % usable.len().max(1)).copied()
            }
            Self::LeastUsed => least_used(),
            Self::Session => home.or_else(least_used),
            Self::SoonestReset => {
                let current = usable
                    .iter()
                    .copied()
                    .find(|account| Some(&account.id) == memory.current.as_ref());
                current.or_else(|| usable.iter().copied().min_by_key(|account| week_ends(account)))
            }
            Self::Expiry | Self::ExpiryAlone => home.or_else(|| {
                let under_way = if *self == Self::Expiry { 100 } else { 0 };
                let room = |account: &Account| 10_000 - used(account) - under_way * account.in_flight as i32;
                let most = usable.iter().map(|account| room(account)).max()?;
                let band = usable.iter().copied().filter(|account| 3 * room(account) >= 2 * most);
                band.min_by_key(|account| week_ends(account))
            }),
        };
        memory.current = chosen.map(|account| account.id.clone());
        memory.current.clone()
    }
}
