//! Which seat serves a request, for how long it stays with it, and what a failure means.
//!
//! Everything here is a decision on values: no clock, no network, no files, no threads, no secrets. What happens
//! outside comes in as an argument ([`Request`], [`Outcome`], [`Observation`]), what should happen goes out as a value
//! ([`Lease`], [`Next`], [`Action`], or a [`Refusal`]).
//!
//! Read [`window`] first (how much is used), then [`outcome`] (what an answer means: the table), [`bench`] (what a rest
//! is), [`account`] (what is known of a seat), [`standing`], [`rank`], [`price`] and [`select`] (who serves), and last [`pool`], which holds
//! them together. Aside stand [`affinity`] (where conversations run), [`trouble`] (what is no seat's fault), [`polls`] and
//! [`renewals`] (what wants asking for), [`forecast`] (how long it lasts) and [`memory`] (what outlasts the process).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod window;
pub mod windows;
pub mod id;
pub mod wishes;
pub mod affinity;
pub mod request;
pub mod bench;
pub mod outcome;
pub mod trouble;
pub mod meter;
pub mod starts;
pub mod account;
pub mod polls;
pub mod renewals;
pub mod forecast;
mod seat;
mod seats;
pub mod standing;
pub mod price;
pub mod rank;
pub mod switch;
pub mod select;
pub mod memory;
mod shares;
pub mod pool;

pub use account::{Account, Brake, Token};
pub use affinity::{Bound, Conversation};
pub use bench::{Bench, Cause, Scope, Source};
pub use forecast::{Burns, Forecast};
pub use id::AccountId;
pub use memory::{Memory, SeatMemory};
pub use meter::Tokens;
pub use outcome::{Next, Outcome, Rejection, Trouble};
pub use polls::{Poll, UsagePolls};
pub use pool::{Action, End, Granted, Heard, Lease, Observation, Policy, Pool};
pub use price::Tuning;
pub use rank::Strategy;
pub use renewals::{Renewal, Renewals};
pub use request::{Chances, Feature, Features, Request};
pub use select::{Reason, Refusal};
pub use standing::{Out, Tier};
pub use switch::{Switch, Why};
pub use window::{Family, Utilization, Window, WindowKind};
pub use windows::Windows;
pub use wishes::{ExtraUsage, Wishes};
