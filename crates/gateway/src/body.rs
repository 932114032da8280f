//! The two bodies of an exchange.

mod upload;

pub use upload::*;
