//! The choice: which seat serves a request, and why; or why none does.
//!
//! Hard rules take a seat out: the owner's switch, no usable login, a rejection that still runs. Readings and
//! thresholds are soft: such a seat is taken when nothing else is left, so that no reading of ours refuses a
//! request that Anthropic would have served.

use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::fmt;

use jiff::Timestamp;

use crate::account::{Account, AccountId};
use crate::affinity::Conversation;
use crate::window::{Utilization, WindowKind};

/// How much fuller a conversation's seat must be than the freest one before it moves, in basis points.
pub const MARGIN: i32 = 1_000;
/// What a request under way counts for until its own reading comes, in basis points of the seat's room.
pub const UNDER_WAY: i32 = 100;

/// What the choice needs to know of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The conversation it belongs to, if one can be told.
    pub conversation: Option<Conversation>,
    /// The model's id as the client wrote it.
    pub model: Option<String>,
    /// The seat that owns an id this request names; it goes nowhere else.
    pub owner: Option<AccountId>,
    /// The seat to try once more, if it still can serve.
    pub again: Option<AccountId>,
    /// Seats that were tried for this request already.
    pub tried: Vec<AccountId>,
}

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
        })
    }
}

/// Why nobody serves now. A decision, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No login was found.
    NoSeat,
    /// Seats there are, but their owner switched all of them off.
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
    /// Every seat that could serve was tried for this request.
    Exhausted,
}

/// Chooses among `accounts` for `request` at `now`. `bound` is the seat its conversation last
/// used; `salt` breaks the ties of requests that belong to none.
pub fn select(
    accounts: &BTreeMap<AccountId, Account>,
    request: &Request,
    bound: Option<&AccountId>,
    salt: u64,
    now: Timestamp,
) -> Result<(AccountId, Reason), Refusal> {
    let model = request.model.as_deref();
    let open = |account: &&Account| account.can_serve(model, now) && !request.tried.contains(&account.id);

    if let Some(owner) = request.owner.as_ref().and_then(|id| accounts.get(id)) {
        return match open(&owner) {
            true => Ok((owner.id.clone(), Reason::OwnsId)),
            false => Err(refusal(core::iter::once(owner), model, now)),
        };
    }

    if let Some(again) = request.again.as_ref().and_then(|id| accounts.get(id)).filter(open) {
        return Ok((again.id.clone(), Reason::Again));
    }

    let usable: Vec<Candidate<'_>> = accounts
        .values()
        .filter(open)
        .map(|account| Candidate {
            account,
            used: account.windows.used_for(model, now),
        })
        .collect();
    let soft = !usable.iter().any(Candidate::is_under);
    let unknown_as = match usable.iter().any(|candidate| candidate.used.is_none()) {
        true => median(usable.iter().filter_map(|candidate| candidate.used).collect()),
        false => Utilization::default(),
    };
    let room = |candidate: &Candidate<'_>| i32::from(candidate.used.unwrap_or(unknown_as).left());
    let candidates = || usable.iter().filter(|candidate| soft || candidate.is_under());
    let key = request.conversation.map_or(salt, |conversation| conversation.0);
    let best = candidates().max_by_key(|candidate| {
        let under_way = candidate.account.in_flight.min(1_000) as i32;
        (
            room(candidate) - UNDER_WAY * under_way,
            mix(candidate.account.id.hash() ^ mix(key)),
        )
    });
    let Some(best) = best else {
        return Err(refusal(accounts.values(), model, now));
    };

    let stays = bound
        .and_then(|id| candidates().find(|candidate| candidate.account.id == *id))
        .filter(|home| room(best) - room(home) < MARGIN);
    let reason = match (stays, request.tried.is_empty()) {
        (Some(_), true) => Reason::SameConversation,
        (_, false) => Reason::Instead,
        (None, true) if soft => Reason::LeastFull,
        (None, true) if accounts.len() == 1 => Reason::OnlyOne,
        (None, true) => Reason::MostRoom,
    };
    Ok((stays.unwrap_or(best).account.id.clone(), reason))
}

/// A seat that can serve, with the fullest of the windows that count the model.
struct Candidate<'a> {
    account: &'a Account,
    used: Option<Utilization>,
}

impl Candidate<'_> {
    /// Whether it is under its threshold; one that was never read may be.
    fn is_under(&self) -> bool {
        self.used.is_none_or(|used| used < self.account.wishes.threshold)
    }
}

/// Why none of `accounts` serves `model`.
fn refusal<'a>(accounts: impl Iterator<Item = &'a Account>, model: Option<&str>, now: Timestamp) -> Refusal {
    let accounts: Vec<&Account> = accounts.collect();
    if accounts.is_empty() {
        return Refusal::NoSeat;
    }
    let enabled: Vec<&Account> = accounts.into_iter().filter(|account| account.wishes.enabled).collect();
    if enabled.is_empty() {
        return Refusal::Paused;
    }
    let signed_in: Vec<&Account> = enabled
        .iter()
        .copied()
        .filter(|account| account.token.is_usable(now))
        .collect();
    if signed_in.is_empty() {
        return Refusal::NeedLogin(enabled.into_iter().map(|account| account.id.clone()).collect());
    }
    let resting: Vec<_> = signed_in
        .iter()
        .filter_map(|account| account.resting(model, now))
        .collect();
    if resting.len() < signed_in.len() {
        return Refusal::Exhausted;
    }
    match resting.iter().min_by_key(|rest| rest.until) {
        Some(first) => Refusal::Cooling {
            until: first.until,
            window: first.window.clone(),
            seats: resting.len(),
        },
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
