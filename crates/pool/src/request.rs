//! What the choice needs to know of a request.

use alloc::{string::String, vec::Vec};

use crate::account::AccountId;
use crate::affinity::Conversation;

/// A request, as far as it matters who serves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The conversation it belongs to, if one can be told.
    pub conversation: Option<Conversation>,
    /// The model's id as the client wrote it.
    pub model: Option<String>,
    /// The seats that its device or conversation may use; `None` for all of them.
    pub allowed: Option<Vec<AccountId>>,
    /// The seat that owns an id this request names; it goes nowhere else.
    pub owner: Option<AccountId>,
    /// The seat to try once more, if it still can serve.
    pub again: Option<AccountId>,
    /// Seats that were tried for this request already.
    pub tried: Vec<AccountId>,
}

impl Request {
    /// Whether it may use that seat at all.
    pub fn may_use(&self, id: &AccountId) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(id))
            && self.owner.as_ref().is_none_or(|owner| owner == id)
    }
}
