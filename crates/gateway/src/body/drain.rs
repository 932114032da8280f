//! A body that is read and dropped, so that its sender sees the answer and not a broken pipe.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt as _;

/// How much of a refused body is read, and for how long.
#[derive(Clone, Copy)]
pub struct Drain {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

/// After a right key.
pub const DRAIN_KNOWN: Drain = Drain {
    bytes: 64 << 20,
    time: Duration::from_secs(5),
};
/// From anybody.
pub const DRAIN_STRANGER: Drain = Drain {
    bytes: 1 << 20,
    time: Duration::from_secs(2),
};

/// Reads and drops `body` in the background, within `bounds`.
pub fn drain(mut body: Body, bounds: Drain) {
    if body.is_end_stream() {
        return;
    }
    tokio::spawn(async move {
        let rest = async {
            let mut left = bounds.bytes;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                left = match left.checked_sub(length) {
                    Some(left) => left,
                    None => return,
                };
            }
        };
        let _ = tokio::time::timeout(bounds.time, rest).await;
    });
}
