//! The world as this Anthropic sees it, and its natural answer to each request.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::messages::{self, Message};
use crate::oauth::{Denied, Tokens, Verdict};
use crate::objects::Objects;
use crate::record::{Record, Recorded};
use crate::script::Scripts;
use crate::seat::Seat;
use crate::{account, limits};

const TOKEN_PATH: &str = "/v1/oauth/token";
const OAUTH_BETA: &str = "oauth-2025-04-20";

/// Everything that changes.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) seats: Vec<Seat>,
    pub(crate) tokens: Tokens,
    pub(crate) scripts: Scripts,
    pub(crate) record: Record,
    /// Milliseconds between the words of natural streams.
    pub(crate) pace_ms: u64,
    objects: Objects,
    answered: u64,
}

impl World {
    pub(crate) fn add_seat(&mut self, seat: Seat) {
        self.tokens.forget(&seat.name);
        self.tokens
            .admit(&seat.name, &seat.access_token, &seat.refresh_token, seat.expires_at_ms);
        match self.seat_index(&seat.name) {
            Some(index) => self.seats[index] = seat,
            None => self.seats.push(seat),
        }
    }

    pub(crate) fn seat_index(&self, name: &str) -> Option<usize> {
        self.seats.iter().position(|seat| seat.name == name)
    }

    /// Empties the windows whose reset has come.
    pub(crate) fn settle(&mut self, now_ms: i64) {
        for seat in &mut self.seats {
            seat.settle(now_ms);
        }
    }

    /// A name for the answer that is about to be given.
    pub(crate) fn next_request_id(&mut self) -> String {
        self.answered += 1;
        format!("req_sandbox_{:04}", self.answered)
    }

    /// The scripted answer if there is one, or else the natural one.
    pub(crate) fn answer(&mut self, request: &Recorded, id: &str, now_ms: i64) -> Answer {
        self.settle(now_ms);
        let is_token_post = request.method == "POST" && request.path == TOKEN_PATH;
        match self.scripts.next(request.token.as_deref(), &request.path) {
            None => self.natural(request, id, now_ms),
            Some(scripted) => {
                if is_token_post && scripted.rotates {
                    self.token_post(request, now_ms);
                } else if is_token_post {
                    self.note_post(request, Verdict::Scripted);
                }
                scripted
            }
        }
    }

    fn natural(&mut self, request: &Recorded, id: &str, now_ms: i64) -> Answer {
        match (request.method.as_str(), request.path.as_str()) {
            ("HEAD" | "GET", "/api/hello") => Answer::json(200, json!({"message": "hello"})),
            ("POST", TOKEN_PATH) => self.token_post(request, now_ms),
            _ => self
                .admitted(request, id, now_ms)
                .unwrap_or_else(|refused| refused.answer(id)),
        }
    }

    /// What needs a bearer.
    fn admitted(&mut self, request: &Recorded, id: &str, now_ms: i64) -> Result<Answer, Refused> {
        let seat = self
            .tokens
            .seat_of(request.token.as_deref(), now_ms)
            .map_err(|denied| match denied {
                Denied::Unknown => Refused::unauthorized("invalid bearer token"),
                Denied::Dead => Refused::unauthorized(
                    "OAuth token has expired. Please obtain a new token or refresh your existing token.",
                ),
            })?
            .to_owned();
        let index = self
            .seat_index(&seat)
            .ok_or(Refused::unauthorized("invalid bearer token"))?;
        let segments: Vec<&str> = request.path.split('/').skip(1).collect();
        let answer = match (request.method.as_str(), segments.as_slice()) {
            ("POST", ["v1", "messages"]) => self.message(request, index, id, now_ms)?,
            ("POST", ["v1", "messages", "count_tokens"]) => {
                scheme(request)?;
                asked(request)?;
                let count = messages::tokens_in(&request.body);
                Answer::json(200, json!({"input_tokens": count}))
            }
            ("GET", ["v1", "models"]) => Answer::json(200, messages::models()),
            ("POST", ["v1", "files"]) => self.objects.upload(&seat, request.body.len()),
            ("GET", ["v1", "files"]) => self.objects.files(&seat),
            ("GET", ["v1", "files", file]) => {
                let found = self.objects.file(&seat, file);
                found.ok_or_else(|| Refused::not_found(file))?
            }
            ("DELETE", ["v1", "files", file]) => {
                let deleted = self.objects.delete_file(&seat, file);
                deleted.ok_or_else(|| Refused::not_found(file))?
            }
            ("POST", ["v1", "messages", "batches"]) => self.objects.start_batch(&seat),
            ("GET", ["v1", "messages", "batches", batch]) => {
                let found = self.objects.batch(&seat, batch);
                found.ok_or_else(|| Refused::not_found(batch))?
            }
            ("POST", ["api", "event_logging", "v2", "batch"]) => Answer::json(200, json!({})),
            ("GET", ["api", "oauth", "usage"]) => Answer::json(200, account::usage(&self.seats[index])),
            ("GET", ["api", "oauth", "profile"]) => Answer::json(200, account::profile(&self.seats[index])),
            _ => return Err(Refused::not_found(&request.path)),
        };
        let organization = &self.seats[index].organization_uuid;
        Ok(answer.header("anthropic-organization-id", organization))
    }

    /// `POST /v1/messages`, in the order in which the checks are made.
    fn message(&mut self, request: &Recorded, index: usize, id: &str, now_ms: i64) -> Result<Answer, Refused> {
        scheme(request)?;
        let (body, model) = asked(request)?;
        let seat = &mut self.seats[index];
        if let Some(file) = self.objects.foreign_file(&seat.name, &body) {
            return Err(Refused::not_found(file));
        }
        let is_fable = model.contains("fable");
        if let Some(until_s) = limits::exhausted_until_s(seat, is_fable, now_ms) {
            return Ok(exhausted(seat, is_fable, until_s, id, now_ms));
        }
        seat.spend_request(is_fable, now_ms);
        let message = Message {
            id: id.replacen("req", "msg", 1),
            model,
            text: format!("Hello from the sandbox, served by seat `{}`.", seat.name),
            input_tokens: messages::tokens_in(&request.body),
        };
        let answer = if body["stream"] == json!(true) {
            Answer::sse(message.steps(self.pace_ms))
        } else {
            Answer::json(200, message.whole())
        };
        Ok(with_headers(answer, &limits::headers(seat, is_fable, now_ms, true)))
    }
}

/// 429 in the native shape.
fn exhausted(seat: &Seat, is_fable: bool, until_s: i64, id: &str, now_ms: i64) -> Answer {
    // Rounded up: a client that waits so long must find the window open.
    let left_s = (until_s * 1000 - now_ms + 999).div_euclid(1000).max(1);
    let message = "This request would exceed your account's rate limit. Please try again later.";
    let refused = Refused {
        status: 429,
        kind: "rate_limit_error",
        message: message.to_owned(),
    };
    with_headers(refused.answer(id), &limits::headers(seat, is_fable, now_ms, false))
        .header("retry-after", &left_s.to_string())
        .header("x-should-retry", "true")
}

fn with_headers(answer: Answer, headers: &[(String, String)]) -> Answer {
    headers
        .iter()
        .fold(answer, |answer, (name, value)| answer.header(name, value))
}

/// The scheme of the bearer must be named, and there must not be a second one.
fn scheme(request: &Recorded) -> Result<(), Refused> {
    let names_oauth = request
        .headers
        .iter()
        .filter(|(name, _)| name == "anthropic-beta")
        .flat_map(|(_, values)| values.split(','))
        .any(|value| value.trim() == OAUTH_BETA);
    if !names_oauth {
        let message = "OAuth authentication is currently not supported.";
        return Err(Refused::unauthorized(message));
    }
    if request.header("x-api-key").is_some() {
        return Err(Refused::unauthorized("invalid x-api-key"));
    }
    Ok(())
}

/// The body and the model it asks for.
fn asked(request: &Recorded) -> Result<(Value, String), Refused> {
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return Err(Refused::invalid("The request body is not valid JSON."));
    };
    let Some(model) = body["model"].as_str().map(str::to_owned) else {
        return Err(Refused::invalid("model: Field required"));
    };
    Ok((body, model))
}

/// A natural refusal, before it has a request id.
#[derive(Debug)]
struct Refused {
    status: u16,
    kind: &'static str,
    message: String,
}

impl Refused {
    fn unauthorized(message: &str) -> Self {
        Self {
            status: 401,
            kind: "authentication_error",
            message: message.to_owned(),
        }
    }

    fn invalid(message: &str) -> Self {
        Self {
            status: 400,
            kind: "invalid_request_error",
            message: message.to_owned(),
        }
    }

    fn not_found(what: &str) -> Self {
        Self {
            status: 404,
            kind: "not_found_error",
            message: format!("Not found: {what}"),
        }
    }

    fn answer(self, id: &str) -> Answer {
        let body = json!({
            "type": "error",
            "error": {"type": self.kind, "message": self.message},
            "request_id": id,
        });
        Answer::json(self.status, body)
    }
}
