//! The seats by id, and which of them know something that is worth writing down.

use alloc::{collections::BTreeSet, vec::Vec};
use core::mem;

use crate::id::AccountId;
use crate::seat::Seat;

/// The seats. What of one outlasts the process is changed through [`Seats::change`], so that whoever writes it down
/// needs to look at no other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats {
    /// By id, in one row: every choice walks along it.
    seats: Vec<Seat>,
    /// Those that changed so since they were last taken.
    changed: BTreeSet<AccountId>,
}

impl Seats {
    /// All of them, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter()
    }

    /// One of them.
    pub(crate) fn get(&self, id: &AccountId) -> Option<&Seat> {
        self.place(id).ok().map(|at| &self.seats[at])
    }

    /// One of them, to change what ends with the process.
    pub(crate) fn get_mut(&mut self, id: &AccountId) -> Option<&mut Seat> {
        self.place(id).ok().map(|at| &mut self.seats[at])
    }

    /// One of them, to change what outlasts the process.
    pub(crate) fn change(&mut self, id: &AccountId) -> Option<&mut Seat> {
        let at = self.place(id).ok()?;
        self.changed.insert(id.clone());
        Some(&mut self.seats[at])
    }

    /// All of them, to change what outlasts the process.
    pub(crate) fn change_all(&mut self) -> impl Iterator<Item = &mut Seat> {
        self.changed
            .extend(self.seats.iter().map(|seat| seat.account.id.clone()));
        self.seats.iter_mut()
    }

    /// Adds one, or puts it in the place of the one with its id.
    pub(crate) fn insert(&mut self, seat: Seat) {
        self.changed.insert(seat.account.id.clone());
        match self.place(&seat.account.id) {
            Ok(at) => self.seats[at] = seat,
            Err(at) => self.seats.insert(at, seat),
        }
    }

    /// Takes one away.
    pub(crate) fn remove(&mut self, id: &AccountId) {
        if let Ok(at) = self.place(id) {
            self.seats.remove(at);
        }
        self.changed.remove(id);
    }

    /// Those in which what outlasts the process may have changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> impl Iterator<Item = &Seat> {
        let changed = mem::take(&mut self.changed);
        changed.into_iter().filter_map(|id| self.get(&id))
    }

    /// Where the one of that id is, or would be.
    fn place(&self, id: &AccountId) -> Result<usize, usize> {
        self.seats.binary_search_by(|seat| seat.account.id.cmp(id))
    }
}
