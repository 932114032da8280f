//! A conversation's move from one seat to another, and why.

use core::fmt;

use crate::id::AccountId;
use crate::standing::Out;

/// A conversation went on somewhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Where it was.
    pub from: AccountId,
    /// Where it is.
    pub to: AccountId,
    /// Why.
    pub why: Why,
    /// Whether it goes back with its next turn: the seat is borrowed.
    pub for_one_turn: bool,
}

/// Why a conversation left its seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its seat cannot serve it.
    Out(Out),
    /// Its seat could not serve this one turn.
    Passing,
    /// Its seat is as good as full, or over its owner's threshold.
    NearlyFull,
    /// Another has much more room.
    MoreRoom,
    /// A seat that comes first, by its group or in its owner's order, can serve again.
    Group,
    /// It may no longer use its seat.
    Pinned,
    /// Its seat is gone.
    Gone,
}

/// A few words, for a log line and a table.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Out(out) => out.fmt(f),
            Self::Passing => f.write_str("could not serve this turn"),
            Self::NearlyFull => f.write_str("nearly full"),
            Self::MoreRoom => f.write_str("another has more room"),
            Self::Group => f.write_str("a seat that comes first is back"),
            Self::Pinned => f.write_str("pinned elsewhere"),
            Self::Gone => f.write_str("the seat is gone"),
        }
    }
}

/// What keeps a seat, in a few words.
impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("paused"),
            Self::Draining => f.write_str("draining"),
            Self::NoLogin => f.write_str("no usable login"),
            Self::Full { window: None, .. } => f.write_str("limit reached"),
            Self::Full { window: Some(kind), .. } => write!(f, "{kind} limit reached"),
            Self::Trying => f.write_str("being tried after a rest"),
            Self::NotInPlan => f.write_str("not in its plan"),
        }
    }
}
