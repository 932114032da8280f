//! What is known of one seat: its login's state, its windows, its rests, what runs on it.

use alloc::{sync::Arc, vec::Vec};
use core::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::outcome::Cooldown;
use crate::window::{Utilization, WindowKind, Windows};

/// A seat: a Claude account within an organisation. The text is stable across restarts and says nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountId {
    key: Arc<str>,
    hash: u64,
}

impl AccountId {
    /// The seat of that key.
    pub fn new(key: &str) -> Self {
        // FNV-1a: the same in every run, so that ties fall alike after a restart.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self {
            key: key.into(),
            hash: key.bytes().fold(0xcbf2_9ce4_8422_2325, step),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.key
    }

    /// A number that stands for the key.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

/// What is known of a seat's access token; never its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// It may be used until then; `None` where the login does not say.
    Valid {
        /// When it ends.
        expires_at: Option<Timestamp>,
    },
    /// Anthropic refused it. It waits for another token, from the store or from a renewal.
    Refused {
        /// When that was.
        since: Timestamp,
        /// When it would have ended.
        expires_at: Option<Timestamp>,
    },
    /// There is no login, or one that cannot be read.
    Missing,
}

impl Token {
    /// Whether a request may be sent with it at `now`.
    pub fn is_usable(self, now: Timestamp) -> bool {
        match self {
            Self::Valid { expires_at } => expires_at.is_none_or(|end| now < end),
            Self::Refused { .. } | Self::Missing => false,
        }
    }

    /// Whether it ends within `margin` of `now`, or has ended.
    pub fn ends_within(self, margin: SignedDuration, now: Timestamp) -> bool {
        match self {
            Self::Valid { expires_at: Some(end) } => end.duration_since(now) < margin,
            _ => false,
        }
    }
}

/// What the owner decided about a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Whether the seat may serve at all.
    pub enabled: bool,
    /// Whether it finishes the conversations that run on it and takes no new one.
    pub draining: bool,
    /// The used share from which the seat is taken only when nothing else is left.
    pub threshold: Utilization,
    /// The share of each of its windows that is left to its owner's direct use.
    pub reserve: Utilization,
    /// Its place in the owner's order, the lowest first; [`Wishes::LAST`] where none was given.
    pub order: u32,
    /// Its priority group: a higher number serves only while no seat of a lower one can.
    pub group: u32,
    /// Whether it may go on beyond its plan, at its owner's cost.
    pub extra_usage: ExtraUsage,
}

impl Wishes {
    /// The place of a seat that was given none: behind all that were.
    pub const LAST: u32 = u32::MAX;
    /// The group of a seat that was given none.
    pub const FIRST_GROUP: u32 = 1;
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            enabled: true,
            draining: false,
            threshold: Utilization::FULL,
            reserve: Utilization::default(),
            order: Self::LAST,
            group: Self::FIRST_GROUP,
            extra_usage: ExtraUsage::Last,
        }
    }
}

/// Whether a seat whose plan is used up may go on, at its owner's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraUsage {
    /// It rests until its plan has room again.
    Never,
    /// It is used when no other seat is left.
    Last,
    /// It is used like any other.
    Allowed,
}

/// One seat as the pool knows it.
#[derive(Clone, Debug)]
pub struct Account {
    /// Which seat.
    pub id: AccountId,
    /// Its access token's state.
    pub token: Token,
    /// What its owner wants.
    pub wishes: Wishes,
    /// Its allowances as last seen.
    pub windows: Windows,
    /// Why it rests, and until when; only those that still run matter.
    pub cooldowns: Vec<Cooldown>,
    /// Requests that were given to it and have not been settled.
    pub in_flight: u32,
}

impl Account {
    /// A seat of which nothing is known yet.
    pub fn new(id: AccountId) -> Self {
        Self {
            id,
            token: Token::Missing,
            wishes: Wishes::default(),
            windows: Windows::default(),
            cooldowns: Vec::new(),
            in_flight: 0,
        }
    }

    /// The rest that keeps it longest from serving `model` at `now`.
    pub fn resting(&self, model: Option<&str>, now: Timestamp) -> Option<&Cooldown> {
        self.cooldowns
            .iter()
            .filter(|rest| rest.until > now && rest.window.as_ref().is_none_or(|kind| kind.governs(model)))
            .max_by_key(|rest| rest.until)
    }

    /// Whether it may serve `model` at `now`: the hard rules alone, no reading.
    pub fn can_serve(&self, model: Option<&str>, now: Timestamp) -> bool {
        self.wishes.enabled && self.token.is_usable(now) && self.resting(model, now).is_none()
    }

    /// Ends the rests that `kind`'s fresh reading, taken at `observed_at`, shows to be over.
    pub(crate) fn wake(&mut self, kind: &WindowKind, observed_at: Timestamp) {
        self.cooldowns
            .retain(|rest| rest.window.as_ref() != Some(kind) || rest.since >= observed_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_usable_until_the_instant_it_expires() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let token = Token::Valid {
            expires_at: Some(at(100)),
        };
        for (now, want) in [(99, true), (100, false), (101, false)] {
            assert_eq!(token.is_usable(at(now)), want, "now = {now}");
        }
        assert!(Token::Valid { expires_at: None }.is_usable(at(0)));
        assert!(!Token::Missing.is_usable(at(0)));
        assert!(
            !Token::Refused {
                since: at(0),
                expires_at: None
            }
            .is_usable(at(1))
        );
    }
}
