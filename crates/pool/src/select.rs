//! The choice: which seat serves a request, and why; or why none does.
//!
//! [`standing`](crate::standing) says which seats come into question; among the best of them the ranking decides.

use alloc::{collections::BTreeMap, vec::Vec};
use core::cmp::Ordering;
use core::fmt;

use jiff::Timestamp;

use crate::account::Account;
use crate::id::AccountId;
use crate::request::Request;
use crate::standing::{Out, Tier, standing};
use crate::window::{Utilization, WindowKind};

/// How much fuller a conversation's seat must be than the freest one before it moves, in basis points.
pub const MARGIN: i32 = 1_000;
/// What a request under way counts for until its own reading comes, in basis points of the seat's room.
pub const UNDER_WAY: i32 = 100;

/// Why a seat was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has the most room.
    MostRoom,
    /// It served this conversation before.
    SameConversation,
    /// It is the only one that can serve.
    OnlyOne,
    /// It owns an id that the request names.
    OwnsId,
    /// It is tried once more.
    Again,
    /// Every seat is over its threshold; this one is the least full.
    LeastFull,
    /// Another seat could not serve this request.
    Instead,
    /// No other seat is left, and its owner pays for what goes beyond its plan.
    BeyondPlan,
    /// It rests, and returns before all others that could serve.
    ReturnsFirst,
}

/// A few words, fit for a header and a log line.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MostRoom => "most room",
            Self::SameConversation => "same conversation",
            Self::OnlyOne => "only seat",
            Self::OwnsId => "owns the id",
            Self::Again => "tried again",
            Self::LeastFull => "least full",
            Self::Instead => "took over",
            Self::BeyondPlan => "beyond its plan",
            Self::ReturnsFirst => "returns first",
        })
    }
}

/// Why nobody serves now. A decision, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No login was found.
    NoSeat,
    /// Seats there are, but their owner switched all of them off, or has them finish what they have.
    Paused,
    /// Every seat that is switched on needs a login.
    NeedLogin(Vec<AccountId>),
    /// Every seat that could serve this model rests from a rejection.
    Cooling {
        /// When the first of them returns.
        until: Timestamp,
        /// The allowance that keeps that one.
        window: Option<WindowKind>,
        /// How many rest.
        seats: usize,
    },
    /// A seat that could serve is having its login renewed.
    Renewing,
    /// A login could not be renewed yet, and is tried again by itself.
    LoginDelayed {
        /// When.
        until: Timestamp,
    },
    /// Logins of several seats were refused at once, which is the service's trouble rather than theirs.
    LoginsRefused {
        /// Whose.
        seats: Vec<AccountId>,
        /// When the first of them is tried again.
        until: Timestamp,
    },
    /// A seat comes back from a rest, and another request is trying it: what it finds is worth waiting for.
    Returning,
    /// The seats that could serve are not allowed to by their organisations.
    NotAllowed(Vec<AccountId>),
    /// Every seat that could serve was tried for this request.
    Exhausted,
}

/// A seat that comes into question.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The seat.
    pub account: &'a Account,
    /// The fullest of its windows that count the model; `None` where none was ever read.
    pub used: Option<Utilization>,
}

/// Chooses among `accounts` for `request` at `now`. `home` is the seat its conversation last used, which it leaves for
/// one that has `margin` basis points more room; `salt` breaks the ties of requests that belong to no conversation.
pub fn select(
    accounts: &BTreeMap<AccountId, Account>,
    request: &Request,
    home: Option<&AccountId>,
    margin: i32,
    salt: u64,
    now: Timestamp,
) -> Result<(AccountId, Reason), Refusal> {
    let stands = |account: &Account| standing(account, request, home == Some(&account.id), now);
    let untried = |account: &&Account| !request.tried.contains(&account.id);

    let again = request.again.as_ref().and_then(|id| accounts.get(id));
    if let Some(again) = again.filter(untried).filter(|again| stands(again).is_ok()) {
        return Ok((again.id.clone(), Reason::Again));
    }
    // An owner that is gone is no reason to refuse: the upstream says what it knows of the id.
    let gone = request
        .owner
        .as_ref()
        .is_some_and(|owner| !accounts.contains_key(owner));
    let may = |account: &&Account| match gone {
        true => request
            .allowed
            .as_ref()
            .is_none_or(|allowed| allowed.contains(&account.id)),
        false => request.may_use(&account.id),
    };

    let model = request.model.as_deref();
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    let mut best: Option<(Tier, u32)> = None;
    for account in accounts.values().filter(may).filter(untried) {
        let Ok(tier) = stands(account) else { continue };
        let rank = (tier, account.wishes.group);
        match best.map(|best| rank.cmp(&best)) {
            Some(Ordering::Greater) => continue,
            Some(Ordering::Equal) => {}
            None | Some(Ordering::Less) => {
                candidates.clear();
                best = Some(rank);
            }
        }
        candidates.push(Candidate {
            account,
            used: account.windows.used_for(model, now),
        });
    }
    let Some((tier, _)) = best else {
        return Err(refusal(accounts.values().filter(may), stands));
    };
    let key = request.conversation.map_or(salt, |conversation| conversation.0);
    let (chosen, stays) = most_room(&candidates, home, margin, key);
    let reason = match tier {
        Tier::SetAside => Reason::BeyondPlan,
        Tier::LastResort(_) => Reason::ReturnsFirst,
        _ if !request.tried.is_empty() => Reason::Instead,
        _ if request.owner.is_some() && !gone => Reason::OwnsId,
        _ if stays => Reason::SameConversation,
        Tier::NearlyFull | Tier::Marked => Reason::LeastFull,
        Tier::Ready | Tier::Braked if accounts.len() == 1 => Reason::OnlyOne,
        Tier::Ready | Tier::Braked => Reason::MostRoom,
    };
    Ok((chosen.account.id.clone(), reason))
}

/// The candidate with the most room, unless the conversation's `home` is among them and not much fuller. `key` breaks
/// ties: the same conversation falls to the same seat. Returns whether it stays at home.
fn most_room<'a>(
    candidates: &[Candidate<'a>],
    home: Option<&AccountId>,
    margin: i32,
    key: u64,
) -> (Candidate<'a>, bool) {
    let unknown_as = match candidates.iter().any(|candidate| candidate.used.is_none()) {
        true => median(candidates.iter().filter_map(|candidate| candidate.used).collect()),
        false => Utilization::default(),
    };
    let room = |candidate: &Candidate<'_>| i32::from(candidate.used.unwrap_or(unknown_as).left());
    let weight = |candidate: &Candidate<'_>| {
        let under_way = candidate.account.in_flight.min(1_000) as i32;
        let tie = mix(candidate.account.id.hash() ^ mix(key));
        (room(candidate) - UNDER_WAY * under_way, tie)
    };
    let mut best = candidates[0];
    let mut most = weight(&best);
    for candidate in &candidates[1..] {
        let weight = weight(candidate);
        if weight > most {
            (best, most) = (*candidate, weight);
        }
    }
    home.and_then(|home| candidates.iter().find(|candidate| candidate.account.id == *home))
        .filter(|home| room(&best) - room(home) < margin)
        .map_or((best, false), |home| (*home, true))
}

/// Why none of `accounts` serves.
fn refusal<'a>(accounts: impl Iterator<Item = &'a Account>, stands: impl Fn(&Account) -> Result<Tier, Out>) -> Refusal {
    let (mut seats, mut paused, mut full, mut returning) = (0, 0, 0, false);
    let (mut need_login, mut not_allowed) = (Vec::new(), Vec::new());
    let mut first: Option<(Timestamp, Option<WindowKind>)> = None;
    for account in accounts {
        seats += 1;
        match stands(account) {
            Err(Out::Disabled | Out::Draining) => paused += 1,
            Err(Out::NoLogin) => need_login.push(account.id.clone()),
            Err(Out::Full { until, window }) => {
                full += 1;
                if first.as_ref().is_none_or(|(soonest, _)| until < *soonest) {
                    first = Some((until, window));
                }
            }
            Err(Out::Trying) => returning = true,
            // What is left was tried for this request, and found wanting for another reason than a limit.
            Ok(Tier::LastResort(_)) => not_allowed.push(account.id.clone()),
            Err(Out::NotInPlan) | Ok(_) => {}
        }
    }
    match first {
        _ if seats == 0 => Refusal::NoSeat,
        _ if returning => Refusal::Returning,
        _ if paused == seats => Refusal::Paused,
        _ if paused + need_login.len() == seats => Refusal::NeedLogin(need_login),
        Some((until, window)) => Refusal::Cooling {
            until,
            window,
            seats: full,
        },
        None if !not_allowed.is_empty() => Refusal::NotAllowed(not_allowed),
        None => Refusal::Exhausted,
    }
}

/// What an unread seat is taken for: the middle of the others, neither empty nor full.
fn median(mut used: Vec<Utilization>) -> Utilization {
    used.sort_unstable();
    used.get(used.len() / 2).copied().unwrap_or_default()
}

/// Spreads `value` over all bits (the finaliser of splitmix64).
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
