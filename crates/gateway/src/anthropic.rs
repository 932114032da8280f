//! Anthropic's side of the wire.

mod limits;

pub use limits::*;
