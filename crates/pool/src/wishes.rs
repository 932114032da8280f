//! What the owner decided about a seat.

use crate::window::Utilization;

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
