//! Every wire format of Anthropic's that we read or write: rate-limit headers, error bodies, the usage answer, the
//! OAuth beta value, our own answer in the native shape. Pure; nothing else knows these names.

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use pool::{Family, Feature, Features, Outcome, Rejection, Utilization, Window, WindowKind};
use serde::Deserialize;
use serde_json::Value;

/// The header that lists the client's beta features.
pub const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// The beta value that names the scheme of an OAuth bearer; without it Anthropic refuses the token.
pub const OAUTH_BETA: &str = "oauth-2025-04-20";
/// Where a seat's usage is asked for.
pub const USAGE_PATH: &str = "/api/oauth/usage";
/// The header by which Claude Code decides whether to retry.
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

const PREFIX: &str = "anthropic-ratelimit-unified-";
/// How headers and claims name the weekly window of the very model that was asked for, whichever it is.
const OF_THE_MODEL: (&str, &str) = ("7d_oi", "seven_day_overage_included");
/// The families whose claims Claude Code knows by name.
const CLAIMED_BY_NAME: [&str; 2] = ["opus", "sonnet"];

/// Whether a limit lets requests through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Rejected,
}

/// What the headers of an answer say about the seat's limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    overall: Option<Verdict>,
    windows: Vec<HeaderWindow>,
    claim: Option<WindowKind>,
    resets_at: Option<Timestamp>,
    retry_after: Option<SignedDuration>,
    out_of_credits: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct HeaderWindow {
    kind: WindowKind,
    used: Option<Utilization>,
    resets_at: Option<Timestamp>,
    verdict: Option<Verdict>,
}

impl Limits {
    /// The limits that the `headers` of an answer name, which was to a request for `model`. What is missing or odd is
    /// left out.
    pub fn read(headers: &HeaderMap, model: Option<&str>) -> Self {
        let mut limits = Self {
            retry_after: text(headers, header::RETRY_AFTER.as_str())
                .and_then(|seconds| seconds.parse::<u32>().ok())
                .filter(|&seconds| seconds > 0)
                .map(|seconds| SignedDuration::from_secs(seconds.into())),
            ..Self::default()
        };
        for (name, value) in headers {
            let Some(field) = name.as_str().strip_prefix(PREFIX) else {
                continue;
            };
            let Ok(value) = value.to_str() else { continue };
            match field {
                "status" => limits.overall = verdict(value),
                "reset" => limits.resets_at = epoch(value),
                "representative-claim" => limits.claim = claimed(value, model),
                "overage-disabled-reason" => limits.out_of_credits = value == "out_of_credits",
                _ => limits.read_window(field, value, model),
            }
        }
        limits
    }

    fn read_window(&mut self, field: &str, value: &str, model: Option<&str>) {
        let Some((label, what)) = field.rsplit_once('-') else {
            return;
        };
        let Some(kind) = labelled(label, model) else { return };
        let index = match self.windows.iter().position(|window| window.kind == kind) {
            Some(index) => index,
            None => {
                self.windows.push(HeaderWindow {
                    kind,
                    used: None,
                    resets_at: None,
                    verdict: None,
                });
                self.windows.len() - 1
            }
        };
        let window = &mut self.windows[index];
        match what {
            "utilization" => window.used = value.parse().ok().and_then(Utilization::from_fraction),
            "reset" => window.resets_at = epoch(value),
            "status" => window.verdict = verdict(value),
            _ => {}
        }
    }

    /// The windows whose use was told, as seen at `now`.
    pub fn readings(&self, now: Timestamp) -> Vec<(WindowKind, Window)> {
        let told = |window: &HeaderWindow| {
            let used = match (window.used, window.verdict) {
                (used, Some(Verdict::Rejected)) => used.max(Some(Utilization::FULL)),
                (used, _) => used,
            }?;
            let seen = Window {
                used,
                resets_at: window.resets_at,
                observed_at: now,
            };
            Some((window.kind.clone(), seen))
        };
        self.windows.iter().filter_map(told).collect()
    }

    /// Whether the answer was within every limit; an answer without limits says nothing, so it is not.
    pub fn allowed(&self) -> bool {
        self.overall == Some(Verdict::Allowed)
    }

    /// What was rejected; `None` if the answer names no limit at all.
    ///
    /// A window's own status counts; without one the claim of an answer that was rejected as a whole; without
    /// either the answer as a whole.
    pub fn rejection(&self) -> Option<Rejection> {
        let rejected = self
            .windows
            .iter()
            .filter(|window| window.verdict == Some(Verdict::Rejected));
        let mut windows: Vec<_> = rejected.map(|window| (window.kind.clone(), window.resets_at)).collect();
        if windows.is_empty() {
            if self.overall != Some(Verdict::Rejected) {
                return None;
            }
            windows.extend(self.claim.clone().map(|kind| {
                let own = self.windows.iter().find(|window| window.kind == kind);
                (kind, own.and_then(|window| window.resets_at))
            }));
        }
        Some(Rejection {
            windows,
            resets_at: self.resets_at,
            retry_after: self.retry_after,
        })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn verdict(value: &str) -> Option<Verdict> {
    match value {
        "allowed" | "allowed_warning" => Some(Verdict::Allowed),
        "rejected" => Some(Verdict::Rejected),
        _ => None,
    }
}

/// Seconds since the epoch; a value beyond the year 3000 is no such thing.
fn epoch(value: &str) -> Option<Timestamp> {
    let seconds: i64 = value.parse().ok()?;
    (0..32_503_680_000)
        .contains(&seconds)
        .then(|| Timestamp::from_second(seconds).ok())
        .flatten()
}

/// The window that a header's middle part names: `5h`, `7d`, `7d_oi`.
fn labelled(label: &str, model: Option<&str>) -> Option<WindowKind> {
    match label {
        "5h" => Some(WindowKind::FiveHour),
        "7d" => Some(WindowKind::Weekly),
        _ if label == OF_THE_MODEL.0 => family_of(model?),
        _ => family_of(label.strip_prefix("7d_")?),
    }
}

/// The window that a claim names: `five_hour`, `seven_day`, `seven_day_opus`.
fn claimed(claim: &str, model: Option<&str>) -> Option<WindowKind> {
    match claim {
        "five_hour" => Some(WindowKind::FiveHour),
        "seven_day" => Some(WindowKind::Weekly),
        _ if claim == OF_THE_MODEL.1 => family_of(model?),
        _ => family_of(claim.strip_prefix("seven_day_")?),
    }
}

/// The window of the family that `name` belongs to, be it a model's id or what people read: `claude-fable-5` and
/// `Fable` are one. The family is the first word that is neither the maker's nor a number.
fn family_of(name: &str) -> Option<WindowKind> {
    let words = name.split(|letter: char| !letter.is_alphanumeric());
    let mut families = words.filter(|word| {
        !word.is_empty()
            && !word.eq_ignore_ascii_case("claude")
            && !word.starts_with(|letter: char| letter.is_numeric())
    });
    families.next().map(|word| WindowKind::Model(Family::new(word)))
}

/// The claim that names the window, as Claude Code knows it.
fn claim(kind: &WindowKind) -> String {
    match kind {
        WindowKind::FiveHour => "five_hour".into(),
        WindowKind::Weekly => "seven_day".into(),
        WindowKind::Model(family) if CLAIMED_BY_NAME.contains(&family.name()) => format!("seven_day_{}", family.name()),
        WindowKind::Model(_) => OF_THE_MODEL.1.into(),
    }
}

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
pub fn seconds_until(until: Timestamp, now: Timestamp) -> u64 {
    let wait = until.duration_since(now);
    let up = wait.as_secs() + i64::from(wait.subsec_nanos() > 0);
    u64::try_from(up).unwrap_or(0).max(1)
}

fn seconds_up(at: Timestamp) -> i64 {
    at.as_second() + i64::from(at.subsec_nanosecond() > 0)
}

/// Adds the OAuth beta value unless it is there; every other value keeps its place.
pub fn add_oauth_beta(headers: &mut HeaderMap) {
    let named = headers.get_all(BETA).iter().any(|line| {
        line.to_str()
            .is_ok_and(|line| line.split(',').any(|value| value.trim() == OAUTH_BETA))
    });
    if named {
        return;
    }
    let value = match headers.get(BETA) {
        None => HeaderValue::from_static(OAUTH_BETA),
        Some(first) => {
            let mut joined = first.as_bytes().to_vec();
            joined.extend_from_slice(b",");
            joined.extend_from_slice(OAUTH_BETA.as_bytes());
            HeaderValue::from_bytes(&joined).unwrap_or(HeaderValue::from_static(OAUTH_BETA))
        }
    };
    // `insert` would drop further lines of the same name.
    match headers.get_mut(BETA) {
        Some(first) => *first = value,
        None => {
            headers.insert(BETA, value);
        }
    }
}

/// The error that a body tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// `rate_limit_error`, `authentication_error`, …
    pub kind: String,
    /// The sentence.
    pub message: String,
}

impl ErrorBody {
    /// The error in `body`; `None` if it is not Anthropic's error shape.
    pub fn read(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Outer {
            error: Inner,
        }
        #[derive(Deserialize)]
        struct Inner {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default)]
            message: String,
        }
        let Outer { error } = serde_json::from_slice(body).ok()?;
        Some(Self {
            kind: error.kind,
            message: error.message,
        })
    }
}

/// Whether an answer's body decides what the answer means.
pub fn wants_body(status: StatusCode, limits: &Limits) -> bool {
    match status.as_u16() {
        400 | 401 | 403 | 404 => true,
        429 => limits.rejection().is_none_or(|rejection| rejection.windows.is_empty()),
        _ => false,
    }
}

/// What an answer means, from its head and, where it was read, its error.
pub fn judge(status: StatusCode, headers: &HeaderMap, limits: &Limits, error: Option<&ErrorBody>) -> Outcome {
    if is_challenge(status, headers) {
        return Outcome::Challenged;
    }
    let lacks = || error.and_then(ErrorBody::lacks).map(Outcome::Lacks);
    let says = |what: fn(&ErrorBody) -> bool| error.is_some_and(what);
    match status.as_u16() {
        200..=299 if limits.overall == Some(Verdict::Rejected) => {
            Outcome::Beyond(limits.rejection().unwrap_or_default())
        }
        200..=299 => Outcome::Served,
        400 if says(ErrorBody::is_about_the_organization) => Outcome::NotAllowed,
        400 => lacks().unwrap_or(Outcome::PassedOn),
        401 if says(ErrorBody::is_oauth_unsupported) => Outcome::OauthUnsupported,
        401 => Outcome::Unauthorized,
        402 => Outcome::Unpaid,
        403 if says(ErrorBody::is_revoked) => Outcome::Unauthorized,
        403 if says(ErrorBody::is_about_the_organization) => Outcome::NotAllowed,
        403 if says(ErrorBody::is_about_the_place) => Outcome::WrongPlace,
        403 if says(ErrorBody::is_about_a_model) => Outcome::NoSuchModelHere,
        404 if says(ErrorBody::is_about_a_model) => Outcome::UnknownModel,
        408 | 409 | 425 => Outcome::Unlucky,
        429 => match limits.rejection() {
            Some(rejection) if !rejection.windows.is_empty() => Outcome::Limited(rejection),
            rejection => lacks().or(rejection.map(Outcome::Limited)).unwrap_or_else(|| {
                match limits.out_of_credits || says(ErrorBody::is_about_credits) {
                    true => Outcome::NoCredits,
                    false => Outcome::Throttled,
                }
            }),
        },
        503 | 529 => Outcome::Overloaded,
        504 | 524 => Outcome::TimedOut,
        500..=599 => Outcome::Faulty,
        _ => Outcome::PassedOn,
    }
}

/// A page of the network in front of Anthropic, which wants to see a person.
fn is_challenge(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_page = || text(headers, header::CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("text/html"));
    match status.as_u16() {
        403 => headers.contains_key("cf-mitigated") || is_page(),
        503 => headers.contains_key("cf-mitigated"),
        _ => false,
    }
}

/// What Anthropic's sentences tell; they are looked at here and nowhere else.
impl ErrorBody {
    fn says(&self, any: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        any.iter().any(|words| message.contains(words))
    }

    /// The answer to a request without the OAuth beta value; no seat is at fault.
    fn is_oauth_unsupported(&self) -> bool {
        self.says(&["oauth authentication is currently not supported"])
    }

    /// A token that was taken back, told as a 403.
    fn is_revoked(&self) -> bool {
        self.says(&["token has been revoked"])
    }

    /// An organisation that is switched off, or does not let its logins be used so.
    fn is_about_the_organization(&self) -> bool {
        self.says(&["organization"]) && self.says(&["disabled", "not allowed", "not permitted"])
    }

    /// A place or a network that is not served.
    fn is_about_the_place(&self) -> bool {
        self.kind == "forbidden" || self.says(&["request not allowed"])
    }

    fn is_about_a_model(&self) -> bool {
        self.says(&["model"])
    }

    /// Nothing pays for what goes beyond the plan.
    fn is_about_credits(&self) -> bool {
        self.says(&["extra usage", "out of credits", "credit balance"])
    }

    /// The feature that the plan lacks, if that is what it says.
    fn lacks(&self) -> Option<Feature> {
        let feature = match () {
            () if self.says(&["long context"]) => Feature::LongContext,
            () if self.says(&["fast mode"]) => Feature::FastMode,
            () => return None,
        };
        let missing = [
            "available",
            "subscription",
            "plan",
            "extra usage",
            "enabled",
            "required",
        ];
        self.says(&missing).then_some(feature)
    }
}

/// What a request asks for, by its betas, that a plan may lack.
pub fn features(headers: &HeaderMap) -> Features {
    let lines = headers.get_all(BETA).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .fold(Features::default(), |features, value| match value.trim() {
            value if value.starts_with("context-1m") => features.with(Feature::LongContext),
            value if value.starts_with("fast-mode") => features.with(Feature::FastMode),
            _ => features,
        })
}

/// Whether the request asks for prompt caches of an hour: the client names that beta only then.
pub fn asks_hour_cache(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(BETA).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .any(|value| value.trim().starts_with("extended-cache-ttl"))
}

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

/// Why a usage answer could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the usage answer is not of the form we know")]
pub struct UsageUnreadable(#[source] serde_json::Error);

/// The windows of a usage answer, as seen at `now`. A window that is absent, null or odd is left out and spoils
/// no other.
///
/// # Errors
/// If it is not a JSON object.
pub fn parse_usage(body: &[u8], now: Timestamp) -> Result<Vec<(WindowKind, Window)>, UsageUnreadable> {
    let answer: serde_json::Map<String, Value> = serde_json::from_slice(body).map_err(UsageUnreadable)?;
    let mut windows = Vec::new();
    for (key, value) in &answer {
        let kind = match key.as_str() {
            // Others of that form are about surfaces, not models; a model's own window stands in the list below.
            "five_hour" | "seven_day" | "seven_day_opus" | "seven_day_sonnet" => claimed(key, None),
            _ => None,
        };
        windows.extend(kind.zip(usage_window(value, "utilization", now)));
    }
    let limits = answer.get("limits").and_then(Value::as_array);
    for limit in limits.into_iter().flatten() {
        windows.extend(limit_kind(limit).zip(usage_window(limit, "percent", now)));
    }
    Ok(windows)
}

/// The window that an entry of `limits[]` is about. It is told by its kind; a scope that is not a model's is not ours.
fn limit_kind(limit: &Value) -> Option<WindowKind> {
    match limit.get("kind")?.as_str()? {
        "session" => Some(WindowKind::FiveHour),
        "weekly_all" => Some(WindowKind::Weekly),
        "weekly_scoped" => family_of(limit.pointer("/scope/model/display_name")?.as_str()?),
        _ => None,
    }
}

fn usage_window(value: &Value, share: &str, now: Timestamp) -> Option<Window> {
    Some(Window {
        used: Utilization::from_percent(value.get(share)?.as_f64()?)?,
        resets_at: match value.get("resets_at") {
            None | Some(Value::Null) => None,
            Some(reset) => Some(reset.as_str()?.parse().ok()?),
        },
        observed_at: now,
    })
}

/// The public id under which Claude Code asks for tokens; a login's refresh token is bound to it.
const CLIENT_ID: &str = "9d1c250a-e61b-44d9-88ed-5944d1962f5e";
/// The scopes Claude Code asks for.
const SCOPES: &str =
    "user:profile user:inference user:sessions:claude_code user:mcp_servers user:file_upload user:plugins";
/// How long an access token is taken to last where the answer does not say.
const UNTOLD_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// The body of a request for a new pair. `scopes` stands in for the usual ones.
pub fn refresh_request(refresh: &str, scopes: Option<&str>) -> Value {
    serde_json::json!({
        "grant_type": "refresh_token",
        "refresh_token": refresh,
        "client_id": CLIENT_ID,
        "scope": scopes.unwrap_or(SCOPES),
    })
}

/// What the token endpoint granted.
#[derive(Clone, PartialEq, Eq)]
pub struct Grant {
    /// The new access token.
    pub access: String,
    /// The new refresh token; the old one goes on where it is missing.
    pub refresh: Option<String>,
    /// When the access token ends.
    pub expires_at: Timestamp,
    /// When the refresh token ends, if it was said.
    pub refresh_expires_at: Option<Timestamp>,
}

/// What the token endpoint's answer means for the refresh token that was sent.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenAnswer {
    /// It was exchanged.
    Granted(Grant),
    /// It is dead: only a new login helps.
    Rejected,
    /// The scopes were not liked; the token was not spent.
    InvalidScope,
    /// Temporary trouble; the token was not spent.
    Refused {
        /// The status.
        status: u16,
        /// When to come back, if it was said.
        retry_after: Option<SignedDuration>,
    },
    /// It may have been spent, and its successor lost.
    Uncertain,
}

/// Reads the token endpoint's answer. Statuses of a proxy in between (502, 504, 52x) say nothing about what the
/// server did; a success that cannot be read was one all the same.
pub fn read_token_answer(status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> TokenAnswer {
    let answer: Option<serde_json::Map<String, Value>> = serde_json::from_slice(body).ok();
    let field = |key: &str| answer.as_ref().and_then(|answer| answer.get(key));
    match status.as_u16() {
        200..=299 => granted(&field, now).map_or(TokenAnswer::Uncertain, TokenAnswer::Granted),
        400..=401 if field("error").and_then(Value::as_str) == Some("invalid_grant") => TokenAnswer::Rejected,
        400 if field("error").and_then(Value::as_str) == Some("invalid_scope") => TokenAnswer::InvalidScope,
        502 | 504 | 520..=599 => TokenAnswer::Uncertain,
        status => TokenAnswer::Refused {
            status,
            retry_after: Limits::read(headers, None).retry_after,
        },
    }
}

fn granted<'a>(field: &impl Fn(&str) -> Option<&'a Value>, now: Timestamp) -> Option<Grant> {
    let text = |key: &str| {
        field(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let life = |key: &str| {
        let seconds = field(key).and_then(|value| value.as_f64().or_else(|| value.as_str()?.parse().ok()))?;
        // A year at most: what is longer is another unit.
        (1.0..31_536_000.0)
            .contains(&seconds)
            .then(|| SignedDuration::from_secs(seconds as i64))
    };
    Some(Grant {
        access: text("access_token")?,
        refresh: text("refresh_token"),
        expires_at: now + life("expires_in").unwrap_or(UNTOLD_LIFE),
        refresh_expires_at: life("refresh_token_expires_in").map(|life| now + life),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        map
    }

    fn unified(lines: &[(&str, &str)]) -> Limits {
        let lines: Vec<_> = lines
            .iter()
            .map(|(field, value)| (format!("{PREFIX}{field}"), *value))
            .collect();
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Limits::read(&headers(&lines), Some("claude-fable-5"))
    }

    fn fable() -> WindowKind {
        WindowKind::Model(Family::new("fable"))
    }

    #[test]
    fn healthy_headers_give_readings_and_no_rejection() {
        let limits = unified(&[
            ("status", "allowed_warning"),
            ("5h-utilization", "0.05"),
            ("5h-reset", "1784607600"),
            ("7d-utilization", "0.14"),
            ("7d-reset", "1785031200"),
            ("7d_oi-utilization", "0.27"),
            ("7d_oi-reset", "1785031200"),
            ("fallback-percentage", "0.5"),
            ("overage-status", "rejected"),
            ("overage-utilization", "0.9"),
        ]);
        let readings: Vec<_> = limits
            .readings(at(1))
            .into_iter()
            .map(|(kind, window)| (kind.to_string(), window.used.basis_points()))
            .collect();
        assert_eq!(
            readings,
            [
                ("5-hour".into(), 500),
                ("weekly".into(), 1_400),
                ("Fable".into(), 2_700)
            ]
        );
        assert!(limits.allowed());
        assert_eq!(limits.rejection(), None);
    }

    #[test]
    fn what_is_rejected_is_told_by_the_window_then_the_claim_then_the_answer() {
        type Row<'a> = (
            &'a str,
            &'a [(&'a str, &'a str)],
            Option<Vec<(WindowKind, Option<i64>)>>,
        );
        let rows: &[Row<'_>] = &[
            (
                "two windows",
                &[
                    ("status", "rejected"),
                    ("5h-status", "rejected"),
                    ("5h-reset", "600"),
                    ("7d-status", "rejected"),
                    ("7d-reset", "200000"),
                ],
                Some(vec![
                    (WindowKind::FiveHour, Some(600)),
                    (WindowKind::Weekly, Some(200_000)),
                ]),
            ),
            (
                "a family alone",
                &[
                    ("status", "rejected"),
                    ("5h-status", "allowed"),
                    ("7d_oi-status", "rejected"),
                    ("7d_oi-reset", "9"),
                ],
                Some(vec![(fable(), Some(9))]),
            ),
            (
                "the claim",
                &[
                    ("status", "rejected"),
                    ("representative-claim", "seven_day"),
                    ("7d-reset", "77"),
                ],
                Some(vec![(WindowKind::Weekly, Some(77))]),
            ),
            (
                "the whole answer",
                &[("status", "rejected"), ("reset", "5")],
                Some(vec![]),
            ),
            ("no limit named", &[("overage-disabled-reason", "out_of_credits")], None),
            (
                "allowed",
                &[("status", "allowed"), ("representative-claim", "five_hour")],
                None,
            ),
        ];
        for (what, lines, want) in rows {
            let got = unified(lines).rejection().map(|rejection| rejection.windows);
            let want = want.as_ref().map(|windows| {
                windows
                    .iter()
                    .map(|(kind, reset)| (kind.clone(), reset.map(at)))
                    .collect::<Vec<_>>()
            });
            assert_eq!(got, want, "{what}");
        }
    }

    #[test]
    fn odd_header_values_are_left_out() {
        let limits = unified(&[
            ("5h-utilization", "NaN"),
            ("5h-reset", "-1"),
            ("7d-utilization", "lots"),
            ("7d-reset", "99999999999999"),
        ]);
        assert_eq!(limits.readings(at(0)), []);
    }

    #[test]
    fn hd_03_the_oauth_beta_is_added_once_and_nothing_is_lost() {
        for (lines, want) in [
            (&[][..], vec![OAUTH_BETA]),
            (&[("anthropic-beta", "a,b")], vec!["a,b,oauth-2025-04-20"]),
            (
                &[("anthropic-beta", "a, oauth-2025-04-20,b")],
                vec!["a, oauth-2025-04-20,b"],
            ),
            (
                &[("anthropic-beta", "a"), ("anthropic-beta", "b")],
                vec!["a,oauth-2025-04-20", "b"],
            ),
            (
                &[("anthropic-beta", "a"), ("anthropic-beta", "oauth-2025-04-20")],
                vec!["a", OAUTH_BETA],
            ),
        ] {
            let mut map = headers(lines);
            add_oauth_beta(&mut map);
            let got: Vec<_> = map.get_all(BETA).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(got, want);
        }
    }

    #[test]
    fn lm_08_null_and_absent_windows_spoil_no_others() {
        let read = |body: &str| {
            let windows = parse_usage(body.as_bytes(), at(0)).unwrap();
            windows
                .into_iter()
                .map(|(kind, window)| (kind.to_string(), window.used.basis_points(), window.resets_at.is_some()))
                .collect::<Vec<_>>()
        };
        let body = r#"{"five_hour":{"utilization":0,"resets_at":null},"seven_day":{"utilization":12.0,"resets_at":"2026-12-03T07:00:00.528743+00:00"},"seven_day_opus":null}"#;
        assert_eq!(
            read(body),
            [("5-hour".into(), 0, false), ("weekly".into(), 1_200, true)]
        );
        assert_eq!(
            read(r#"{"five_hour":null,"seven_day":{"utilization":1,"resets_at":null}}"#),
            [("weekly".into(), 100, false)]
        );
        assert_eq!(
            read(r#"{"five_hour":{"utilization":"x"},"seven_day":{"utilization":1}}"#),
            [("weekly".into(), 100, false)]
        );
        assert_eq!(read(r#"{"five_hour":{"utilization":5,"resets_at":"soon"}}"#), []);
        assert_eq!(read("{}"), []);
        assert!(parse_usage(b"<html>", at(0)).is_err());
    }

    #[test]
    fn lm_09_a_models_weekly_limit_is_read_from_the_limits_list() {
        let body = r#"{"seven_day_opus":null,"limits":[
            {"kind":"session","percent":10,"resets_at":null,"scope":null},
            {"kind":"weekly_all","percent":38,"resets_at":"2026-08-04T14:00:00Z","scope":null},
            {"kind":"weekly_scoped","percent":100,"resets_at":"2026-08-04T14:00:00Z","scope":{"model":{"id":null,"display_name":"Fable"},"surface":null}},
            {"kind":"weekly_scoped","percent":12,"resets_at":null,"scope":{"model":null,"surface":"cowork"}},
            {"kind":"monthly_mystery","percent":99,"resets_at":null}]}"#;
        let windows = parse_usage(body.as_bytes(), at(0)).unwrap();
        let kinds: Vec<_> = windows
            .iter()
            .map(|(kind, window)| (kind.to_string(), window.used.shown_percent()))
            .collect();
        assert_eq!(
            kinds,
            [("5-hour".into(), 10), ("weekly".into(), 38), ("Fable".into(), 100)]
        );
    }

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
    fn ax_03_retry_after_is_seconds_never_an_epoch_and_never_nothing() {
        let now = at(1_790_000_000);
        for (wait, want) in [(-5, 1), (0, 1), (20, 20), (10_800, 10_800), (691_200, 691_200)] {
            assert_eq!(seconds_until(at(1_790_000_000 + wait), now), want);
        }
        let half = now + SignedDuration::from_millis(19_500);
        assert_eq!(seconds_until(half, now), 20, "rounded up");
    }

    #[test]
    fn each_window_has_the_claim_that_claude_code_knows() {
        for (kind, want) in [
            (WindowKind::FiveHour, "five_hour"),
            (WindowKind::Weekly, "seven_day"),
            (fable(), "seven_day_overage_included"),
            (WindowKind::Model(Family::new("Opus")), "seven_day_opus"),
        ] {
            assert_eq!(claim(&kind), want);
            assert_eq!(claimed(want, Some("claude-fable-5")), Some(kind));
        }
    }

    #[test]
    fn lm_09_a_familys_name_is_learnt_from_what_anthropic_says() {
        for (name, want) in [
            ("claude-fable-5", Some("fable")),
            ("claude-3-5-sonnet-20241022", Some("sonnet")),
            ("claude-opus-5-5[1m]", Some("opus")),
            ("Fable", Some("fable")),
            ("Claude Saga 6", Some("saga")),
            ("opus", Some("opus")),
            ("claude", None),
            ("", None),
        ] {
            let want = want.map(|name| WindowKind::Model(Family::new(name)));
            assert_eq!(family_of(name), want, "{name}");
        }
        let of = |model| {
            let headers = headers(&[("anthropic-ratelimit-unified-7d_oi-utilization", "0.5")]);
            Limits::read(&headers, model).readings(at(0)).len()
        };
        assert_eq!(
            (of(Some("claude-saga-6")), of(None)),
            (1, 0),
            "the window of the model that was asked for"
        );
    }

    #[test]
    fn what_an_answer_means_is_told_by_its_status_and_where_that_is_not_enough_by_its_words() {
        use Outcome as O;
        let error = |kind: &str, message: &str| ErrorBody {
            kind: kind.into(),
            message: message.into(),
        };
        let judged = |status: u16, error: Option<&ErrorBody>| {
            let status = StatusCode::from_u16(status).unwrap();
            judge(status, &HeaderMap::new(), &Limits::default(), error)
        };
        for (status, want) in [
            (200, O::Served),
            (204, O::Served),
            (302, O::PassedOn),
            (400, O::PassedOn),
            (401, O::Unauthorized),
            (402, O::Unpaid),
            (403, O::PassedOn),
            (404, O::PassedOn),
            (408, O::Unlucky),
            (409, O::Unlucky),
            (413, O::PassedOn),
            (422, O::PassedOn),
            (425, O::Unlucky),
            (429, O::Throttled),
            (500, O::Faulty),
            (502, O::Faulty),
            (503, O::Overloaded),
            (504, O::TimedOut),
            (520, O::Faulty),
            (524, O::TimedOut),
            (529, O::Overloaded),
        ] {
            assert_eq!(judged(status, None), want, "{status} without words");
        }
        let long = Feature::LongContext;
        for (status, kind, message, want) in [
            (
                400,
                "invalid_request_error",
                "The long context beta is not yet available for this subscription.",
                O::Lacks(long),
            ),
            (
                429,
                "rate_limit_error",
                "Extra usage is required for long context requests.",
                O::Lacks(long),
            ),
            (
                429,
                "rate_limit_error",
                "Fast mode is not enabled for your plan",
                O::Lacks(Feature::FastMode),
            ),
            (429, "rate_limit_error", "You're out of extra usage", O::NoCredits),
            (429, "rate_limit_error", "Error", O::Throttled),
            (
                400,
                "invalid_request_error",
                "prompt is too long: 300000 tokens > 200000 maximum",
                O::PassedOn,
            ),
            (
                400,
                "invalid_request_error",
                "This organization has been disabled.",
                O::NotAllowed,
            ),
            (
                403,
                "permission_error",
                "OAuth authentication is currently not allowed for this organization.",
                O::NotAllowed,
            ),
            (
                403,
                "permission_error",
                "OAuth token has been revoked. Please obtain a new token.",
                O::Unauthorized,
            ),
            (403, "forbidden", "Request not allowed", O::WrongPlace),
            (
                403,
                "permission_error",
                "Your account does not have access to this model.",
                O::NoSuchModelHere,
            ),
            (403, "permission_error", "No", O::PassedOn),
            (404, "not_found_error", "model: claude-opus-9", O::UnknownModel),
            (404, "not_found_error", "Not found: file_t1", O::PassedOn),
            (
                401,
                "authentication_error",
                "OAuth authentication is currently not supported.",
                O::OauthUnsupported,
            ),
        ] {
            assert_eq!(judged(status, Some(&error(kind, message))), want, "{status} {message}");
        }
        let page = headers(&[("content-type", "text/html; charset=UTF-8")]);
        let challenge = headers(&[("content-type", "text/html"), ("cf-mitigated", "challenge")]);
        for (status, headers, want) in [
            (403, &page, O::Challenged),
            (503, &challenge, O::Challenged),
            (503, &page, O::Overloaded),
            (520, &page, O::Faulty),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judge(status, headers, &Limits::default(), None), want, "{status}");
        }
        let limits = unified(&[("status", "rejected"), ("5h-status", "rejected"), ("5h-reset", "600")]);
        let rejected = limits.rejection().unwrap();
        for (status, want) in [(200, O::Beyond(rejected.clone())), (429, O::Limited(rejected))] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judge(status, &HeaderMap::new(), &limits, None), want);
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

    #[test]
    fn a_token_answer_says_whether_the_refresh_token_was_spent() {
        let now = at(1_000_000);
        let read = |status: u16, body: &str| {
            read_token_answer(
                StatusCode::from_u16(status).unwrap(),
                &HeaderMap::new(),
                body.as_bytes(),
                now,
            )
        };
        let life = |body: &str| match read(200, body) {
            TokenAnswer::Granted(grant) => Some((grant.expires_at.as_second() - 1_000_000, grant.refresh)),
            _ => None,
        };
        for (body, want) in [
            (
                r#"{"access_token":"a","refresh_token":"r","expires_in":28800}"#,
                Some((28_800, Some("r".into()))),
            ),
            (r#"{"access_token":"a","expires_in":"600"}"#, Some((600, None))),
            (r#"{"access_token":"a","refresh_token":""}"#, Some((3_600, None))),
            (r#"{"access_token":"a","expires_in":"soon"}"#, Some((3_600, None))),
            (r#"{"access_token":"","refresh_token":"r"}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(life(body), want, "{body}");
        }
        let uncertain = |status, body| matches!(read(status, body), TokenAnswer::Uncertain);
        assert!(uncertain(200, "<html>") && uncertain(502, "") && uncertain(504, "") && uncertain(522, ""));
        assert!(matches!(
            read(400, r#"{"error":"invalid_grant"}"#),
            TokenAnswer::Rejected
        ));
        assert!(matches!(
            read(400, r#"{"error":"invalid_scope"}"#),
            TokenAnswer::InvalidScope
        ));
        for status in [400, 403, 404, 429, 500, 503] {
            assert!(matches!(read(status, "{}"), TokenAnswer::Refused { .. }), "{status}");
        }
    }
}
