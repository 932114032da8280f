//! An event stream's beginning and its end, where they tell what became of the request.

use http::StatusCode;
use http::header::HeaderMap;
use pool::Outcome;

use super::judge::{ErrorBody, judge};
use super::limits::Limits;

/// What a stream's beginning says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Nothing yet but `message_start` and `ping`.
    Undecided,
    /// Content has begun, or something that is no error.
    Content,
    /// It opens with an error.
    Error(ErrorBody),
}

/// Reads the beginning of an event stream.
pub fn opening(stream: &[u8]) -> Opening {
    let text = String::from_utf8_lossy(stream);
    let text = text.replace("\r\n", "\n");
    let mut blocks = text.split("\n\n").peekable();
    while let Some(block) = blocks.next() {
        if blocks.peek().is_none() {
            break; // the last piece is not complete
        }
        let field = |name: &str| {
            block
                .lines()
                .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("\n")
        };
        match field("event").as_str() {
            // A block without an event's name is a comment, or white space.
            "" | "message_start" | "ping" => {}
            "error" => return Opening::Error(ErrorBody::read(field("data").as_bytes()).unwrap_or_default()),
            _ => return Opening::Content,
        }
    }
    Opening::Undecided
}

/// What an error in a stream means, whose head had those headers: the same as the status it stands for.
pub fn judge_opening(error: &ErrorBody, headers: &HeaderMap, limits: &Limits) -> Outcome {
    let status = match error.kind.as_str() {
        "invalid_request_error" => StatusCode::BAD_REQUEST,
        "authentication_error" => StatusCode::UNAUTHORIZED,
        "billing_error" => StatusCode::PAYMENT_REQUIRED,
        "permission_error" => StatusCode::FORBIDDEN,
        "not_found_error" => StatusCode::NOT_FOUND,
        "rate_limit_error" => StatusCode::TOO_MANY_REQUESTS,
        "timeout_error" => StatusCode::GATEWAY_TIMEOUT,
        "overloaded_error" => StatusCode::SERVICE_UNAVAILABLE,
        "api_error" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => return Outcome::PassedOn,
    };
    judge(status, headers, limits, Some(error))
}

/// The error that a stream ended with, if the last that came of it is one.
pub fn closing(tail: &[u8]) -> Option<Outcome> {
    let at = memchr::memmem::rfind(tail, b"event: error")?;
    let text = String::from_utf8_lossy(&tail[at..]);
    let data = text.lines().find_map(|line| line.strip_prefix("data:"))?;
    let error = ErrorBody::read(data.trim().as_bytes())?;
    Some(judge_opening(&error, &HeaderMap::new(), &Limits::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_opening_is_told_by_its_first_event_that_says_something() {
        let start = "event: message_start\ndata: {}\n\nevent: ping\ndata: {}\n\n: comment\n\n";
        let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
        let overloaded = ErrorBody {
            kind: "overloaded_error".into(),
            message: "Overloaded".into(),
        };
        for (stream, want) in [
            (String::new(), Opening::Undecided),
            (start.into(), Opening::Undecided),
            (
                format!("{start}event: content_block_start\ndata: {{}}"),
                Opening::Undecided,
            ),
            (
                format!("{start}event: content_block_start\ndata: {{}}\n\n"),
                Opening::Content,
            ),
            (format!("{start}{error}"), Opening::Error(overloaded.clone())),
            (error.replace('\n', "\r\n"), Opening::Error(overloaded.clone())),
            (
                "event: error\ndata: gibberish\n\n".into(),
                Opening::Error(ErrorBody::default()),
            ),
        ] {
            assert_eq!(opening(stream.as_bytes()), want, "{stream}");
        }
    }

    #[test]
    fn an_error_at_a_streams_end_is_found_and_nothing_else_is() {
        let error = |kind: &str| {
            format!(
                "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"no\"}}}}\n\n"
            )
        };
        for (tail, want) in [
            (error("overloaded_error"), Some(Outcome::Overloaded)),
            (format!("half a line\n\n{}", error("api_error")), Some(Outcome::Faulty)),
            (error("rate_limit_error"), Some(Outcome::Throttled)),
            ("event: content_block_delta\ndata: {}\n\n".into(), None),
            ("event: error\ndata: {\"type\":\"er".into(), None),
        ] {
            assert_eq!(closing(tail.as_bytes()), want, "{tail}");
        }
    }
}
