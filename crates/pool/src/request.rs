//! What the choice needs to know of a request.

use alloc::{string::String, vec::Vec};

use crate::affinity::Conversation;
use crate::id::AccountId;

/// Something that a request asks for and a plan may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// A context of a million tokens.
    LongContext,
    /// Faster answers, for a surcharge.
    FastMode,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::LongContext, Self::FastMode];

    /// A word that stands for it where it is kept or shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::LongContext => "longContext",
            Self::FastMode => "fastMode",
        }
    }

    /// The feature that `word` stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.word() == word)
    }
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u8);

impl Features {
    /// The same, and `feature`.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// Whether `feature` is among them.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }
}

/// A request, as far as it matters who serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The conversation it belongs to, if one can be told.
    pub conversation: Option<Conversation>,
    /// The model's id as the client wrote it.
    pub model: Option<String>,
    /// What it asks for that a plan may lack.
    pub features: Features,
    /// The seats that its device or conversation may use; `None` for all of them.
    pub allowed: Option<Vec<AccountId>>,
    /// The seat that owns an id this request names; it goes nowhere else.
    pub owner: Option<AccountId>,
    /// The seat to try once more, if it still can serve.
    pub again: Option<AccountId>,
    /// Seats that were tried for this request already.
    pub tried: Vec<AccountId>,
    /// Whether the plan of one of them seemed to lack what it asks for.
    pub lacking: bool,
    /// Whether it has waited long enough for another request to try a seat that comes back.
    pub impatient: bool,
    /// How long its body is, in bytes; 0 if that is not known.
    pub size: u32,
    /// Whether it asks for caches of an hour.
    pub hour_cache: bool,
    /// Whether a sub-agent sends it.
    pub sub_agent: bool,
    /// Whether it uses nothing of the plan, such as a count of tokens: it is no load, and waits for nobody.
    pub is_free: bool,
    /// The device that sends it, by a number that stays.
    pub device: Option<u64>,
}

impl Request {
    /// Whether it may use that seat at all.
    pub fn may_use(&self, id: &AccountId) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(id))
            && self.owner.as_ref().is_none_or(|owner| owner == id)
    }
}

/// What a request has used up of its chances, and whether it can be sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chances {
    /// Whether its body was kept, and there is time left to go from seat to seat.
    pub movable: bool,
    /// Whether the one move that no seat's own fault asks for is still open.
    pub spare: bool,
    /// Whether the one retry on the same seat is still open.
    pub retry: bool,
}

impl Chances {
    /// A request that is at its end: nothing is tried again.
    pub const NONE: Self = Self {
        movable: false,
        spare: false,
        retry: false,
    };
    /// A request at its beginning.
    pub const ALL: Self = Self {
        movable: true,
        spare: true,
        retry: true,
    };
}
