//! An answer as a value: what will be sent, and when.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::encode::Encoding;
use crate::{limits, messages};

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream; charset=utf-8";

/// One step of an event stream.
#[derive(Clone, Debug)]
pub enum SseStep {
    Event {
        event: String,
        data: Value,
    },
    /// These bytes as they are; half an event, or no event at all.
    Raw(Bytes),
    /// Milliseconds of silence.
    Wait(u64),
    /// The connection is dropped here, without a clean end.
    Cut,
}

impl SseStep {
    /// An event named after its `type`, as Anthropic's are.
    pub fn event(data: Value) -> Self {
        let event = data["type"].as_str().unwrap_or("message").to_owned();
        Self::Event { event, data }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Whole(Bytes),
    Stream(Vec<SseStep>),
    /// Not even a head, ever.
    Never,
    /// The connection is closed instead of a head.
    Cut,
}

/// What to answer. Built up from one of the constructors.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Headers that are otherwise added when the answer is sent, and shall not be.
    pub(crate) omitted: Vec<String>,
    pub(crate) payload: Payload,
    /// Milliseconds before the head.
    pub(crate) delay_ms: u64,
    pub(crate) encoding: Option<Encoding>,
    /// At the token endpoint: the refresh token is spent first, whatever is then answered.
    pub(crate) rotates: bool,
}

impl Answer {
    fn new(status: u16, content_type: &str, payload: Payload) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            omitted: Vec::new(),
            payload,
            delay_ms: 0,
            encoding: None,
            rotates: false,
        }
    }

    #[allow(clippy::needless_pass_by_value)] // `json!(…)` reads better than `&json!(…)`
    pub fn json(status: u16, value: Value) -> Self {
        Self::bytes(status, JSON, Bytes::from(value.to_string()))
    }

    /// An error in Anthropic's shape, such as `(429, "rate_limit_error", "limit")`.
    pub fn error(status: u16, kind: &str, message: &str) -> Self {
        let error = json!({"type": "error", "error": {"type": kind, "message": message}});
        Self::json(status, error)
    }

    pub fn text(status: u16, content_type: &str, text: &str) -> Self {
        Self::bytes(status, content_type, Bytes::from(text.to_owned()))
    }

    pub fn bytes(status: u16, content_type: &str, body: Bytes) -> Self {
        Self::new(status, content_type, Payload::Whole(body))
    }

    /// A normal message, not streamed.
    pub fn ok() -> Self {
        Self::json(200, messages::Message::sample().whole())
    }

    /// An event stream, sent step by step with status 200.
    pub fn sse(steps: Vec<SseStep>) -> Self {
        Self::new(200, SSE, Payload::Stream(steps)).header("cache-control", "no-cache")
    }

    /// A normal message as an event stream, from `message_start` to `message_stop`.
    pub fn sse_ok() -> Self {
        Self::sse(messages::Message::sample().steps(0))
    }

    /// Sets a header, in place of one of that name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
        self.omitted.retain(|have| !have.eq_ignore_ascii_case(name));
        self.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        self
    }

    /// Leaves a header out, also `request-id`, which is otherwise added when the answer is sent.
    #[must_use]
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
        self.omitted.push(name.to_ascii_lowercase());
        self
    }

    /// Waits before the head, in milliseconds.
    #[must_use]
    pub fn after_ms(mut self, ms: u64) -> Self {
        self.delay_ms = ms;
        self
    }

    /// Compresses the body for real. Of a stream, each event can be decoded as it arrives.
    #[must_use]
    pub fn encoded(mut self, encoding: Encoding) -> Self {
        self.encoding = Some(encoding);
        self.header("content-encoding", encoding.name())
            .header("vary", "accept-encoding")
    }

    /// The rate-limit headers of a healthy seat: fractions used, five-hour reset an hour from now,
    /// weekly reset 300 000 s from now.
    #[must_use]
    pub fn with_limits(self, now_s: i64, u5: f64, u7: f64) -> Self {
        let (reset5, reset7) = (now_s + 3600, now_s + 300_000);
        self.unified("status", "allowed")
            .unified("5h-status", "allowed")
            .unified("5h-utilization", &limits::fraction(u5))
            .unified("5h-reset", &reset5.to_string())
            .unified("7d-status", "allowed")
            .unified("7d-utilization", &limits::fraction(u7))
            .unified("7d-reset", &reset7.to_string())
            .unified("representative-claim", "five_hour")
            .unified("reset", &reset5.to_string())
    }

    /// 429: the five-hour allowance is used up until `resets_at_s`.
    pub fn rejected_five_hour(now_s: i64, resets_at_s: i64) -> Self {
        Self::rejected("five_hour", &["5h", "7d"], "5h", now_s, resets_at_s)
    }

    /// 429: the weekly allowance is used up until `resets_at_s`.
    pub fn rejected_weekly(now_s: i64, resets_at_s: i64) -> Self {
        Self::rejected("seven_day", &["5h", "7d"], "7d", now_s, resets_at_s)
    }

    /// 429: the Fable allowance alone is used up until `resets_at_s`; other models would be served.
    pub fn rejected_fable(now_s: i64, resets_at_s: i64) -> Self {
        Self::rejected(
            "seven_day_overage_included",
            &["5h", "7d", "7d_oi"],
            "7d_oi",
            now_s,
            resets_at_s,
        )
    }

    fn rejected(claim: &str, windows: &[&str], full: &str, now_s: i64, resets_at_s: i64) -> Self {
        let reset = resets_at_s.to_string();
        let mut answer = Self::error(429, "rate_limit_error", "limit")
            .unified("status", "rejected")
            .unified("representative-claim", claim)
            .unified("reset", &reset)
            .unified(&format!("{full}-utilization"), "1.0")
            .unified(&format!("{full}-reset"), &reset)
            .header("retry-after", &(resets_at_s - now_s).max(0).to_string());
        for window in windows {
            let status = if *window == full { "rejected" } else { "allowed" };
            answer = answer.unified(&format!("{window}-status"), status);
        }
        answer
    }

    /// The head never comes; the request hangs until it is dropped.
    pub fn never() -> Self {
        Self::new(200, JSON, Payload::Never)
    }

    /// The connection is closed before the head. In memory: a response with [`crate::Cut`] in its
    /// extensions.
    pub fn reset() -> Self {
        Self::new(502, JSON, Payload::Cut)
    }

    /// For the token endpoint: the rotation happens, and this is what the caller sees of it.
    #[must_use]
    pub fn rotate_then(answer: Self) -> Self {
        Self {
            rotates: true,
            ..answer
        }
    }

    /// For the token endpoint: the rotation happens and its answer is lost on the way.
    pub fn rotate_then_reset() -> Self {
        Self::rotate_then(Self::reset())
    }

    fn unified(self, suffix: &str, value: &str) -> Self {
        self.header(&limits::name(suffix), value)
    }
}
