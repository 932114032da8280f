//! The two bodies of an exchange: the client's [`Upload`], kept for a replay while it is forwarded; and the answer, a
//! [`LeasedBody`], which carries its lease to the last byte.

mod budget;
mod pieces;
mod drain;
mod upload;
mod leased;

pub use budget::Budget;
pub use drain::{DRAIN_KNOWN, DRAIN_STRANGER, Drain, drain};
pub use leased::LeasedBody;
pub use pieces::REPLAY_LIMIT;
pub use upload::{Sent, Upload, UploadError};
