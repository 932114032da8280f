//! The seats by id, and which of them know something that is worth writing down.

use alloc::collections::{BTreeMap, BTreeSet};
use core::mem;

use crate::id::AccountId;
use crate::seat::Seat;

/// The seats. What of one outlasts the process is changed through [`Seats::change`], so that whoever writes it down
/// needs to look at no other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats {
    seats: BTreeMap<AccountId, Seat>,
    /// Those that changed so since they were last taken.
    changed: BTreeSet<AccountId>,
}

impl Seats {
    /// All of them, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.seats.values()
    }

    /// One of them.
    pub(crate) fn get(&self, id: &AccountId) -> Option<&Seat> {
        self.seats.get(id)
    }

    /// One of them, to change what ends with the process.
    pub(crate) fn get_mut(&mut self, id: &AccountId) -> Option<&mut Seat> {
        self.seats.get_mut(id)
    }

    /// One of them, to change what outlasts the process.
    pub(crate) fn change(&mut self, id: &AccountId) -> Option<&mut Seat> {
        let seat = self.seats.get_mut(id)?;
        self.changed.insert(id.clone());
        Some(seat)
    }

    /// All of them, to change what outlasts the process.
    pub(crate) fn change_all(&mut self) -> impl Iterator<Item = &mut Seat> {
        self.changed.extend(self.seats.keys().cloned());
        self.seats.values_mut()
    }

    /// Adds one, or puts it in the place of the one with its id.
    pub(crate) fn insert(&mut self, seat: Seat) {
        let id = seat.account.id.clone();
        self.changed.insert(id.clone());
        self.seats.insert(id, seat);
    }

    /// Takes one away.
    pub(crate) fn remove(&mut self, id: &AccountId) {
        self.seats.remove(id);
        self.changed.remove(id);
    }

    /// Those in which what outlasts the process may have changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> impl Iterator<Item = &Seat> {
        let changed = mem::take(&mut self.changed);
        changed.into_iter().filter_map(|id| self.seats.get(&id))
    }
}
