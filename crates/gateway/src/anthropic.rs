//! Anthropic's side of the wire: every name, header and sentence of theirs that we read or write. Pure; nothing else
//! knows them.
//!
//! An answer tells its seat's limits in headers ([`Limits`]), and what became of the request by its status, an
//! [`ErrorBody`], or the [`Opening`] of its stream; [`judge()`] makes one [`pool::Outcome`] of them. Usage and new tokens
//! are asked for apart from that, and have answers of their own.

mod betas;
mod windows;
mod limits;
mod judge;
mod stream;
mod refusal;
mod usage;
mod token;

pub use betas::{BETA, OAUTH_BETA, add_oauth_beta, asks_hour_cache, features};
pub use judge::{ErrorBody, judge, wants_body};
pub use limits::Limits;
pub use refusal::{SHOULD_RETRY, rejected_headers};
pub use stream::{Opening, closing, judge_opening, opening};
pub use token::{TokenAnswer, read_token_answer, refresh_request};
pub use usage::{USAGE_PATH, UsageUnreadable, parse_usage};

/// What the tests beside these files begin with.
#[cfg(test)]
mod given {
    use http::header::{HeaderMap, HeaderValue};
    use jiff::Timestamp;

    pub(super) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    pub(super) fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }
}
