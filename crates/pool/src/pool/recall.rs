//! What is remembered beyond the process, and taken back.

use alloc::vec::Vec;

use jiff::Timestamp;

use super::Pool;
use crate::memory::{Memory, SeatMemory};

impl Pool {
    /// What should outlast the process, of the seats that are there.
    pub fn known_seats(&self) -> impl Iterator<Item = SeatMemory> {
        self.seats.iter().map(SeatMemory::of)
    }

    /// The same of those seats alone in which it may have changed since this was last asked. It is handed out once.
    pub fn news(&mut self) -> Vec<SeatMemory> {
        self.seats.take_changed().map(SeatMemory::of).collect()
    }

    /// What should outlast the process.
    pub fn remember(&self) -> Memory {
        Memory {
            seats: self.known_seats().chain(self.remembered.values().cloned()).collect(),
            conversations: self.affinity.iter().collect(),
        }
    }

    /// Takes back what outlasted an earlier process. Seats get theirs when they are found; what has run out by then
    /// is dropped.
    pub fn recall(&mut self, memory: Memory, now: Timestamp) {
        for bound in memory.conversations {
            self.affinity.recall(bound, now);
        }
        for memory in memory.seats {
            match self.seats.change(&memory.id) {
                Some(seat) => memory.restore(seat, now),
                None => {
                    self.remembered.insert(memory.id.clone(), memory);
                }
            }
        }
    }
}
