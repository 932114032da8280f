//! The head of our own refusal in the shape of Anthropic's, which Claude Code understands.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use pool::WindowKind;

use super::limits::PREFIX;
use super::windows::claim;

/// The header by which Claude Code decides whether to retry.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The headers of a native limit answer for the pool: rejected, which allowance, when it returns, in how many
/// seconds (rounded up, never 0).
pub fn rejected_headers(window: Option<&WindowKind>, until: Timestamp, now: Timestamp) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |field: &str, value: &str| {
        let name = HeaderName::try_from(format!("{PREFIX}{field}"));
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    };
    put("status", "rejected");
    put(
        "representative-claim",
        &window.map_or_else(|| "five_hour".into(), claim),
    );
    put("reset", &seconds_up(until).to_string());
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds_until(until, now)));
    headers
}

/// Whole seconds from `now` to `until`, rounded up, at least 1.
fn seconds_until(until: Timestamp, now: Timestamp) -> u64 {
    let wait = until.duration_since(now);
    let up = wait.as_secs() + i64::from(wait.subsec_nanos() > 0);
    u64::try_from(up).unwrap_or(0).max(1)
}

fn seconds_up(at: Timestamp) -> i64 {
    at.as_second() + i64::from(at.subsec_nanosecond() > 0)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::given::at;
    use super::*;

    #[test]
    fn ax_03_retry_after_is_seconds_never_an_epoch_and_never_nothing() {
        let now = at(1_790_000_000);
        for (wait, want) in [(-5, 1), (0, 1), (20, 20), (10_800, 10_800), (691_200, 691_200)] {
            assert_eq!(seconds_until(at(1_790_000_000 + wait), now), want);
        }
        let half = now + SignedDuration::from_millis(19_500);
        assert_eq!(seconds_until(half, now), 20, "rounded up");
    }
}
