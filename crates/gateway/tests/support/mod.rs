//! What the tests share: a gateway over the sandbox, in one process, in virtual time, on real files in a temporary home.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test program uses a part of it"
)]

mod bench;
mod clock;
mod log;
mod seats;
mod wire;

pub use bench::{Bench, network};
pub use clock::{T, VirtualClock};
pub use log::Log;
pub use seats::{no_claude, seat, with_fable, write_login};
pub use wire::{
    COUNT_TOKENS, ENCODINGS, FABLE, KEY, MESSAGES, OPUS, Reply, SONNET, USAGE, encoded, in_session, messages,
    messages_in_pieces, pieces, request, stream_body, turn_body,
};
