//! The menu-bar app: it runs the router in its own process, and shows it.
//!
//! Wiring: what is decided is decided in [`glance`], [`notices`], [`placement`] and [`icon`], from values; the rest
//! carries it to the system. The router begins before any window and needs none. The order of the modules is the order
//! of the layers: a module uses those above it, and `panel`, `windows`, `commands` and `tray` one another's functions.

#![deny(unsafe_code)]

pub mod preferences;
pub mod words;
pub mod facts;
pub mod icon;
pub mod glance;
pub mod notices;
pub mod notify;
pub mod placement;
pub mod crash;
pub mod door;
pub mod login_item;
pub mod service;
pub mod diagnostics;
pub mod router;
pub mod pulse;
pub mod platform;
pub mod shell;
pub mod panel;
pub mod windows;
pub mod quit;
pub mod commands;
pub mod tray;
pub mod awake;
pub mod update;
pub mod watch;
mod start;
#[cfg(test)]
mod testing;

pub use start::run;
