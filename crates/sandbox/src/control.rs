//! `/__sandbox/…`: the sandbox's own door, for tests in other processes and for the demo.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::{Answer, SseStep};
use crate::encode::Encoding;
use crate::messages::Message;
use crate::record::Recorded;
use crate::seat::Allowance;
use crate::{Sandbox, Verdict};

pub(crate) const PREFIX: &str = "/__sandbox/";
/// How much of a body is shown, in bytes.
const MOST_SHOWN: usize = 64 << 10;
/// When a preset does not say when it resets.
const RESET_IN_S: i64 = 3600;

/// Does what is asked and answers it.
pub(crate) fn answer(sandbox: &Sandbox, request: &Recorded) -> Answer {
    let what = request.path.trim_start_matches(PREFIX);
    let done = match (request.method.as_str(), what) {
        ("GET", "requests") => {
            let all: Vec<Value> = sandbox.requests().iter().map(shown).collect();
            Ok(json!(all))
        }
        ("DELETE", "requests") => {
            sandbox.take_requests();
            Ok(json!({}))
        }
        ("POST", "script") => script(sandbox, &request.body),
        ("DELETE", "script") => {
            sandbox.clear_scripts();
            Ok(json!({}))
        }
        ("POST", "use_up") => use_up(sandbox, &request.body),
        ("GET", "open_streams") => Ok(json!({"open_streams": sandbox.open_streams()})),
        ("GET", "token_posts") => Ok(token_posts(sandbox)),
        _ => return Answer::json(404, json!({"error": format!("nothing at {}", request.path)})),
    };
    match done {
        Ok(value) => Answer::json(200, value),
        Err(error) => Answer::json(400, json!({"error": error})),
    }
}

fn shown(request: &Recorded) -> Value {
    let body = &request.body[..request.body.len().min(MOST_SHOWN)];
    json!({
        "method": request.method,
        "target": request.target,
        "path": request.path,
        "headers": request.headers,
        "body_length": request.body.len(),
        "body": String::from_utf8_lossy(body),
        "token": request.token,
        "at_ms": request.at_ms,
        "completed": request.completed,
    })
}

fn token_posts(sandbox: &Sandbox) -> Value {
    let name = |verdict| match verdict {
        Verdict::Rotated => "rotated",
        Verdict::Reused => "reused",
        Verdict::Unknown => "unknown",
        Verdict::Malformed => "malformed",
        Verdict::Scripted => "scripted",
    };
    sandbox
        .token_posts()
        .into_iter()
        .map(|post| {
            json!({
                "refresh_token": post.refresh_token,
                "verdict": name(post.verdict),
                "at_ms": post.at_ms,
            })
        })
        .collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UseUp {
    seat: String,
    allowance: Allowance,
    fraction: f64,
    reset_in_s: Option<i64>,
}

fn use_up(sandbox: &Sandbox, body: &[u8]) -> Result<Value, String> {
    let asked: UseUp = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let now_ms = sandbox.now_ms();
    let mut world = sandbox.world();
    let index = world
        .seat_index(&asked.seat)
        .ok_or_else(|| format!("no seat `{}`", asked.seat))?;
    let meter = world.seats[index]
        .meter_mut(asked.allowance)
        .ok_or_else(|| format!("seat `{}` has no such allowance", asked.seat))?;
    meter.set_used(asked.fraction, now_ms);
    if let Some(seconds) = asked.reset_in_s {
        meter.resets_at_s = Some(now_ms.div_euclid(1000) + seconds);
    }
    Ok(json!({}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default = "any")]
    token: String,
    #[serde(default = "any")]
    path: String,
    #[serde(default)]
    always: bool,
    answer: Described,
}

fn any() -> String {
    "*".to_owned()
}

/// An answer in words. `preset` goes before `sse`, and `sse` before `body`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// A string is sent as plain text, anything else as JSON.
    body: Option<Value>,
    #[serde(default)]
    delay_ms: u64,
    sse: Option<Stream>,
    preset: Option<Preset>,
    /// For the rejected presets, in seconds from now.
    reset_in_s: Option<i64>,
    encoding: Option<Encoding>,
    /// At the token endpoint: the refresh token is spent first.
    #[serde(default)]
    rotate: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stream {
    Ok,
    /// Ends in the middle, the connection dropped.
    Cut,
    /// Ends in the middle, but cleanly.
    Truncated,
    /// No event at all.
    Empty,
    /// An `overloaded_error` event instead of `message_start`.
    ErrorFirst,
    /// An `overloaded_error` event after some text.
    ErrorMid,
    /// Some text, then a minute of silence before the rest.
    Stall,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Preset {
    RejectedFiveHour,
    RejectedWeekly,
    RejectedFable,
    Reset,
    Never,
}

fn script(sandbox: &Sandbox, body: &[u8]) -> Result<Value, String> {
    let asked: Script = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let answer = asked.answer.build(sandbox.now_ms().div_euclid(1000));
    if asked.always {
        sandbox.script_always(&asked.token, &asked.path, answer);
    } else {
        sandbox.script(&asked.token, &asked.path, answer);
    }
    Ok(json!({}))
}

impl Described {
    fn build(self, now_s: i64) -> Answer {
        let reset = now_s + self.reset_in_s.unwrap_or(RESET_IN_S);
        let mut answer = match (self.preset, self.sse, self.body) {
            (Some(Preset::RejectedFiveHour), ..) => Answer::rejected_five_hour(now_s, reset),
            (Some(Preset::RejectedWeekly), ..) => Answer::rejected_weekly(now_s, reset),
            (Some(Preset::RejectedFable), ..) => Answer::rejected_fable(now_s, reset),
            (Some(Preset::Reset), ..) => Answer::reset(),
            (Some(Preset::Never), ..) => Answer::never(),
            (None, Some(stream), _) => Answer::sse(stream.steps()),
            (None, None, Some(Value::String(text))) => Answer::text(200, "text/plain", &text),
            (None, None, Some(value)) => Answer::json(200, value),
            (None, None, None) => Answer::ok(),
        };
        if let Some(status) = self.status {
            answer.status = status;
        }
        if let Some(encoding) = self.encoding {
            answer = answer.encoded(encoding);
        }
        for (name, value) in &self.headers {
            answer = answer.header(name, value);
        }
        answer.rotates = self.rotate;
        answer.after_ms(self.delay_ms)
    }
}

impl Stream {
    fn steps(&self) -> Vec<SseStep> {
        /// The head of a message and its first words.
        const SOME: usize = 5;
        const STALL_MS: u64 = 60_000;
        let whole = Message::sample().steps(0);
        let overloaded = SseStep::event(json!({
            "type": "error",
            "error": {"type": "overloaded_error", "message": "Overloaded"},
        }));
        let some = whole[..SOME].to_vec();
        match self {
            Self::Ok => whole,
            Self::Cut => [some, vec![SseStep::Cut]].concat(),
            Self::Truncated => some,
            Self::Empty => Vec::new(),
            Self::ErrorFirst => vec![overloaded],
            Self::ErrorMid => [some, vec![overloaded]].concat(),
            Self::Stall => {
                let rest = whole[SOME..].to_vec();
                [some, vec![SseStep::Wait(STALL_MS)], rest].concat()
            }
        }
    }
}
