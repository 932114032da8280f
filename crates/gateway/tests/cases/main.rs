//! The real-world cases, one test each, named by id (docs/cases.md).
#![allow(clippy::unwrap_used, reason = "all of it is a test, its helpers too")]

#[path = "../support/mod.rs"]
mod support;

mod exhausted;
mod headers;
mod keychain;
mod limits;
mod logins;
mod network;
mod onboarding;
mod outcomes;
mod renewal;
mod routing;
mod security;
mod several;
mod store;
mod streaming;
