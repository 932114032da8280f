//! The choice: which seat serves a request, and why; or why none does.
//!
//! [`standing`](crate::standing) says which seats come into question; among the best of them the ranking decides.

use alloc::vec::Vec;
use core::fmt;

use jiff::Timestamp;

use crate::account::Account;
use crate::id::AccountId;
use crate::rank::{Ground, Pick, Ranking, Terms};
use crate::request::Request;
use crate::seats::Seats;
use crate::standing::{Out, Tier, standing};
use crate::window::WindowKind;

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
    /// It is the first in its owner's order.
    FirstInOrder,
    /// It is the fullest that still serves.
    Fullest,
    /// Its turn is the longest ago.
    ItsTurn,
    /// As things go its week ends with quota to spare.
    RoomToSpare,
    /// Every seat's week runs short, this one's least.
    LeastShort,
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
            Self::FirstInOrder => "first in order",
            Self::Fullest => "fullest first",
            Self::ItsTurn => "its turn",
            Self::RoomToSpare => "room to spare this week",
            Self::LeastShort => "least short this week",
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

/// Chooses among `seats` for `request`, on the strategy's `terms`.
pub(crate) fn select<'a>(seats: &'a Seats, request: &Request, terms: Terms<'a>) -> Result<(Pick<'a>, Reason), Refusal> {
    let stands = |account: &Account| standing(account, request, terms.home == Some(&account.id), terms.now);
    let untried = |account: &&Account| !request.tried.contains(&account.id);

    let again = request.again.as_ref().and_then(|id| seats.get(id));
    let again = again.map(|seat| &seat.account);
    if let Some(again) = again.filter(untried)
        && let Ok(tier) = stands(again)
    {
        let mut ranking = Ranking::new(terms);
        ranking.offer(again, tier);
        if let Some(pick) = ranking.pick() {
            return Ok((pick, Reason::Again));
        }
    }
    // An owner that is gone is no reason to refuse: the upstream says what it knows of the id.
    let gone = request.owner.as_ref().is_some_and(|owner| seats.get(owner).is_none());
    let may = |account: &&Account| match gone {
        true => request
            .allowed
            .as_ref()
            .is_none_or(|allowed| allowed.contains(&account.id)),
        false => request.may_use(&account.id),
    };

    let accounts = || seats.iter().map(|seat| &seat.account).filter(may);
    let mut ranking = Ranking::new(terms);
    let (mut with_room, mut returning) = (0, false);
    for account in accounts().filter(untried) {
        match stands(account) {
            Ok(tier) => {
                with_room += u32::from(matches!(tier, Tier::Ready | Tier::Braked));
                ranking.offer(account, tier);
            }
            Err(out) => returning |= out == Out::Trying,
        }
    }
    let Some(pick) = ranking.pick() else {
        return Err(refusal(accounts(), stands));
    };
    // What costs its owner money, or was refused before, waits for what comes back.
    if returning && pick.tier.is_last() {
        return Err(Refusal::Returning);
    }
    let reason = match (pick.tier, pick.ground) {
        (Tier::SetAside, _) => Reason::BeyondPlan,
        (Tier::LastResort(_), _) => Reason::ReturnsFirst,
        _ if !request.tried.is_empty() => Reason::Instead,
        _ if request.owner.is_some() && !gone => Reason::OwnsId,
        (_, Ground::Stays) => Reason::SameConversation,
        (Tier::NearlyFull | Tier::Marked, _) => Reason::LeastFull,
        (Tier::Ready | Tier::Braked, _) if with_room == 1 => Reason::OnlyOne,
        (Tier::Ready | Tier::Braked, ground) => match ground {
            Ground::Stays => Reason::SameConversation,
            Ground::MostRoom => Reason::MostRoom,
            Ground::FirstInOrder => Reason::FirstInOrder,
            Ground::Fullest => Reason::Fullest,
            Ground::ItsTurn => Reason::ItsTurn,
            Ground::RoomToSpare => Reason::RoomToSpare,
            Ground::LeastShort => Reason::LeastShort,
        },
    };
    Ok((pick, reason))
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
