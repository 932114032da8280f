//! A login as Claude Code stores it.

mod document;

pub use document::*;
