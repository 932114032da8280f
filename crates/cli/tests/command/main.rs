//! The command as its owner runs it: a process of its own, with a home of its own, before a pretended Anthropic.
//!
//! Time is real here, so no test asserts on it; the guards only end what hangs.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod ends;
mod home;
mod looks;
#[cfg(target_os = "linux")]
mod memory;
#[path = "../support/port.rs"]
mod port;
mod secrets;
mod settings;
mod start;
