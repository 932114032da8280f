//! Which conversation stays with which seat, and for how long.
//!
//! A conversation's context is cached at Anthropic per account, so a hop re-reads all of it at full price.

use alloc::{collections::BTreeMap, vec::Vec};

use jiff::{SignedDuration, Timestamp};

use crate::id::AccountId;

/// After this long without a turn even the one-hour cache is cold, and moving is free.
pub const KEPT_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How many conversations are remembered at most.
pub const REMEMBERED: usize = 10_000;

/// A conversation, by a hash of what identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conversation(pub u64);

/// A conversation that is bound to a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Which conversation.
    pub conversation: Conversation,
    /// Which seat.
    pub account: AccountId,
    /// When its last turn was.
    pub used_at: Timestamp,
}

/// Where a conversation's last turn was served.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) account: AccountId,
    pub(crate) used_at: Timestamp,
    /// The context it had, in tokens; 0 where that is not known.
    pub(crate) context: f32,
}

/// The seats that conversations are bound to.
#[derive(Clone, Debug, Default)]
pub struct Affinity(BTreeMap<Conversation, Binding>);

impl Affinity {
    /// The seat that `conversation` last used, unless its last turn is long ago.
    pub fn of(&self, conversation: Conversation, now: Timestamp) -> Option<&AccountId> {
        self.binding(conversation, now).map(|binding| &binding.account)
    }

    /// The same with what else is known of that turn.
    pub(crate) fn binding(&self, conversation: Conversation, now: Timestamp) -> Option<&Binding> {
        self.0
            .get(&conversation)
            .filter(|binding| now.duration_since(binding.used_at) < KEPT_FOR)
    }

    /// Binds `conversation`, which has a context of so many tokens, to `account` from `now` on.
    pub fn bind(&mut self, conversation: Conversation, account: &AccountId, context: f32, now: Timestamp) {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&conversation) {
            self.forget_oldest_tenth();
        }
        self.0.insert(
            conversation,
            Binding {
                account: account.clone(),
                used_at: now,
                context,
            },
        );
    }

    /// Every conversation that is remembered.
    pub fn iter(&self) -> impl Iterator<Item = Bound> {
        self.0.iter().map(|(&conversation, binding)| Bound {
            conversation,
            account: binding.account.clone(),
            used_at: binding.used_at,
        })
    }

    /// Takes back one that was remembered elsewhere, unless its cache is cold by now or a later turn is known.
    pub fn recall(&mut self, bound: Bound, now: Timestamp) {
        let Bound {
            conversation,
            account,
            used_at,
        } = bound;
        let warm = now.duration_since(used_at) < KEPT_FOR;
        if warm && !self.0.contains_key(&conversation) {
            self.bind(conversation, &account, 0.0, used_at.min(now));
        }
    }

    /// How many conversations are remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets a tenth at once, so that the search for the oldest is paid seldom.
    fn forget_oldest_tenth(&mut self) {
        let mut ages: Vec<Timestamp> = self.0.values().map(|binding| binding.used_at).collect();
        let tenth = ages.len() / 10;
        let (_, &mut cut, _) = ages.select_nth_unstable(tenth);
        self.0.retain(|_, binding| binding.used_at > cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_conversation_is_kept_for_an_hour_after_its_last_turn() {
        let mut affinity = Affinity::default();
        affinity.bind(Conversation(1), &AccountId::new("a"), 0.0, at(0));
        for (now, want) in [(3_599, Some("a")), (3_600, None)] {
            assert_eq!(
                affinity.of(Conversation(1), at(now)).map(AccountId::as_str),
                want,
                "now = {now}"
            );
        }
    }

    #[test]
    fn the_oldest_are_forgotten_first_and_the_map_stays_bounded() {
        let mut affinity = Affinity::default();
        for n in 0..3 * REMEMBERED as u64 {
            affinity.bind(Conversation(n), &AccountId::new("a"), 0.0, at(n as i64 / 100));
            assert!(affinity.len() <= REMEMBERED);
        }
        let newest = 3 * REMEMBERED as u64 - 1;
        let now = at(newest as i64 / 100);
        assert!(affinity.of(Conversation(newest), now).is_some());
        assert!(affinity.of(Conversation(0), now).is_none());
    }
}
