//! Which seat serves a request, for how long it stays with it, and what a failure means.
//!
//! Everything here is a decision on values: no clock, no network, no files, no threads, no secrets. What happens
//! outside comes in as an argument ([`Request`], [`Outcome`], [`Observation`]), what should happen goes out as a value
//! ([`Lease`], [`Next`], [`Action`], or a [`Refusal`]).
//!
//! Read [`window`] first (how much is used), then [`account`] (what is known of a seat), [`outcome`] (what a failure
//! means), [`affinity`], [`standing`] and [`select`] (who serves), [`upkeep`] (what wants asking for), and last [`pool`], which holds
//! them together.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod window;
pub mod outcome;
pub mod account;
pub mod affinity;
pub mod request;
pub mod standing;
pub mod select;
pub mod upkeep;
pub mod pool;

pub use account::{Account, AccountId, ExtraUsage, Token, Wishes};
pub use affinity::Conversation;
pub use outcome::{Cooldown, Next, Outcome, Rejection};
pub use pool::{Action, Lease, Observation, Policy, Pool};
pub use request::Request;
pub use select::{Candidate, Reason, Refusal};
pub use standing::{Out, Standing};
pub use upkeep::{Poll, Renewal, Renewals};
pub use window::{Family, Utilization, Window, WindowKind, Windows};
