//! Why we answer a request ourselves, and the answer: in Anthropic's shape, in words a person can act on.
//!
//! Claude Code shows `error.message`, retries what does not say `x-should-retry: false`, renews its own login after a
//! 401, and drops features after a 400. So we never invent a 400, answer 401 for a bad key alone, and stop retries
//! except where the gap closes by itself within a minute.

use axum::body::Body;
use axum::response::Response;
use http::header::{self, HeaderMap, HeaderValue};
use http::{HeaderName, StatusCode, Uri};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use pool::WindowKind;
use serde_json::json;

use crate::anthropic;

/// Tells our own answers from Anthropic's, and says which it is.
pub const KIND: HeaderName = HeaderName::from_static("x-claude-proxy-router-error");

/// Why we answer ourselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// No key, a wrong one, or several that differ.
    WrongKey {
        /// Whether the device sent its own Claude login, which a 401 would make it renew.
        login_mode: bool,
    },
    /// A web page asks.
    FromWebPage,
    /// The router is addressed by a name that is not its own.
    ForeignHost,
    /// The path is not for devices, or not one at all.
    NotForDevices,
    /// The method is not one that is forwarded.
    Method,
    /// The request's framing is ambiguous.
    Framing,
    /// The body is longer than Anthropic takes.
    TooLong,
    /// Every seat rests from a limit.
    AllFull {
        /// When the first returns.
        until: Timestamp,
        /// The allowance that keeps it.
        window: Option<WindowKind>,
        /// How many rest.
        seats: usize,
    },
    /// No login was found on this machine.
    NoSeat,
    /// All seats are switched off.
    Paused,
    /// The seats that are switched on need a login.
    NeedLogin {
        /// Their short names.
        seats: Vec<String>,
    },
    /// A login could not be renewed yet, and is tried again by itself.
    LoginDelayed {
        /// When.
        until: Timestamp,
    },
    /// Logins of several seats were refused at once.
    LoginsRefused {
        /// Their short names.
        seats: Vec<String>,
        /// When the first of them is tried again.
        until: Timestamp,
    },
    /// The request's seat reached its limit, and the request is too long to be sent to another.
    NotMovable,
    /// A login is being renewed, and it takes longer than a request may wait.
    Renewing,
    /// The seats that could serve are not allowed to by their organisations.
    NotAllowed {
        /// Their short names.
        seats: Vec<String>,
    },
    /// Every seat was tried, and none gave an answer worth handing on.
    Exhausted,
    /// Anthropic says that OAuth is not supported for this request; no seat is at fault.
    OauthUnsupported {
        /// Its words.
        message: String,
    },
    /// Anthropic could not be reached.
    Unreachable {
        /// The proxy that the settings name.
        proxy: Option<Uri>,
    },
    /// The connection to Anthropic broke before an answer.
    Broken,
}

impl ProxyError {
    const fn status(&self) -> StatusCode {
        match self {
            Self::WrongKey { login_mode: false } => StatusCode::UNAUTHORIZED,
            Self::WrongKey { login_mode: true } | Self::FromWebPage | Self::ForeignHost | Self::NotForDevices => {
                StatusCode::FORBIDDEN
            }
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Framing => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::AllFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NoSeat
            | Self::Paused
            | Self::NeedLogin { .. }
            | Self::LoginDelayed { .. }
            | Self::LoginsRefused { .. }
            | Self::NotMovable
            | Self::Renewing
            | Self::Exhausted => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotAllowed { .. } | Self::OauthUnsupported { .. } | Self::Unreachable { .. } | Self::Broken => {
                StatusCode::BAD_GATEWAY
            }
        }
    }

    /// The word in our own header.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::WrongKey { .. } => "wrong_key",
            Self::FromWebPage => "from_web_page",
            Self::ForeignHost => "foreign_host",
            Self::NotForDevices => "not_for_devices",
            Self::Method => "method",
            Self::Framing => "framing",
            Self::TooLong => "too_long",
            Self::AllFull { .. } => "all_full",
            Self::NoSeat => "no_seat",
            Self::Paused => "paused",
            Self::NeedLogin { .. } => "need_login",
            Self::LoginDelayed { .. } => "login_delayed",
            Self::LoginsRefused { .. } => "logins_refused",
            Self::NotMovable => "not_movable",
            Self::Renewing => "renewing",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Exhausted => "exhausted",
            Self::OauthUnsupported { .. } => "oauth_unsupported",
            Self::Unreachable { .. } => "unreachable",
            Self::Broken => "broken",
        }
    }

    /// Anthropic's word for it.
    const fn anthropic_type(&self) -> &'static str {
        match self {
            Self::WrongKey { .. } => "authentication_error",
            Self::FromWebPage | Self::ForeignHost | Self::NotForDevices => "permission_error",
            Self::Method | Self::Framing => "invalid_request_error",
            Self::TooLong => "request_too_large",
            Self::AllFull { .. } => "rate_limit_error",
            Self::NoSeat
            | Self::Paused
            | Self::NeedLogin { .. }
            | Self::LoginDelayed { .. }
            | Self::LoginsRefused { .. }
            | Self::NotMovable
            | Self::Renewing
            | Self::NotAllowed { .. }
            | Self::Exhausted
            | Self::OauthUnsupported { .. }
            | Self::Unreachable { .. }
            | Self::Broken => "api_error",
        }
    }

    /// Whether the client may try again by itself: the gap closes within a minute.
    fn closes_by_itself(&self, now: Timestamp) -> bool {
        match self {
            Self::AllFull { until, .. } => until.duration_since(now) <= SignedDuration::from_secs(60),
            Self::LoginDelayed { until } => until.duration_since(now) <= SignedDuration::from_secs(60),
            Self::Unreachable { .. } | Self::Renewing | Self::NotMovable => true,
            _ => false,
        }
    }

    /// What happened, what we do about it, what the reader can do. Times are in `zone`.
    fn sentence(&self, now: Timestamp, zone: &TimeZone) -> String {
        match self {
            Self::WrongKey { .. } => "Claude Proxy Router does not know this key. Nothing was forwarded. On the machine it runs on, \
                 `claude-proxy-router devices add NAME` makes one and shows what to set."
                .into(),
            Self::FromWebPage => "Claude Proxy Router does not answer web pages.".into(),
            Self::ForeignHost => "Claude Proxy Router was addressed by a name that is not its own. Use its IP address.".into(),
            Self::NotForDevices => "Claude Proxy Router does not forward this path: a device key opens inference and \
                 nothing of the owner's account."
                .into(),
            Self::Method => "Claude Proxy Router does not forward this method.".into(),
            Self::Framing => "Claude Proxy Router could not tell where this request ends, so it was not forwarded.".into(),
            Self::TooLong => "This request is longer than 32 MB, the most that Anthropic takes. Claude Proxy Router did not send it; \
                 shorten the conversation (`/compact`) or leave out attachments."
                .into(),
            Self::AllFull { until, window, seats } => full_sentence(*until, window.as_ref(), *seats, now, zone),
            Self::NoSeat => "Claude Proxy Router found no Claude login on its machine. Log in there with `claude`; it is noticed \
                 within ten seconds."
                .into(),
            Self::Paused => "Every seat of Claude Proxy Router is paused, or finishes what it has. Resume one there.".into(),
            Self::NeedLogin { seats } => format!(
                "Claude Proxy Router needs a new login for {}. On its machine, run `claude` and log in there; \
                 it is noticed within ten seconds.",
                list(seats)
            ),
            Self::LoginDelayed { until } => format!(
                "Claude Proxy Router could not renew a login yet, and no other seat can serve. It tries again by itself {}.",
                clock_time(*until, now, zone)
            ),
            Self::LoginsRefused { seats, until } => format!(
                "Anthropic refused the logins of {} at the same time, which looks like trouble of its own. Claude Proxy \
                 Router tries them again by itself {}; if it stays so, log in again with `claude` on its machine.",
                list(seats),
                clock_time(*until, now, zone)
            ),
            Self::NotMovable => "The seat that this request went to has reached its limit, and the request is too long to be kept for another. \
                 Send it again: Claude Proxy Router gives it to another seat."
                .into(),
            Self::Renewing => "Claude Proxy Router is renewing a login, and no other seat can serve. It tries on by itself.".into(),
            Self::NotAllowed { seats } => format!(
                "Anthropic does not let {} serve: the organisation is switched off, or does not allow Claude logins. \
                 Claude Proxy Router looks again by itself within hours, and at once after a new login.",
                list(seats)
            ),
            Self::Exhausted => "No seat of Claude Proxy Router could answer this request just now. Its log says why.".into(),
            Self::OauthUnsupported { message } => format!("Anthropic did not take this request's form of login: {message}"),
            Self::Unreachable { proxy } => {
                let proxy = proxy.as_ref().and_then(|proxy| proxy.authority());
                let proxy = proxy.map_or(String::new(), |proxy| format!(" through the proxy {proxy} that its settings name"));
                format!(
                    "Claude Proxy Router cannot reach Anthropic{proxy}: check the network of the machine it runs on. \
                     Your seats are unaffected."
                )
            }
            Self::Broken => "The connection to Anthropic broke before it answered. The request may have been carried out, so \
                 Claude Proxy Router did not send it again."
                .into(),
        }
    }

    /// The answer, with times in `zone`.
    pub fn response(&self, now: Timestamp, zone: &TimeZone) -> Response {
        let message = self.sentence(now, zone);
        let body = json!({"type": "error", "error": {"type": self.anthropic_type(), "message": message}});
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        self.put_headers(headers, now);
        response
    }

    fn put_headers(&self, headers: &mut HeaderMap, now: Timestamp) {
        if let Self::AllFull { until, window, .. } = self {
            headers.extend(anthropic::rejected_headers(window.as_ref(), *until, now));
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(KIND, HeaderValue::from_static(self.kind()));
        if !self.closes_by_itself(now) {
            headers.insert(anthropic::SHOULD_RETRY, HeaderValue::from_static("false"));
        }
    }
}

/// "All 3 seats have reached a limit. The first returns at 8:16pm (Asia/Seoul), in 48 min, from its 5-hour limit."
fn full_sentence(
    until: Timestamp,
    window: Option<&WindowKind>,
    seats: usize,
    now: Timestamp,
    zone: &TimeZone,
) -> String {
    let limit = window.map_or_else(|| "limit".to_owned(), |kind| format!("{kind} limit"));
    let when = format!(
        "{}, in {}",
        clock_time(until, now, zone),
        span(until.duration_since(now))
    );
    match seats {
        0 | 1 => format!("Claude Proxy Router: the seat has reached its {limit} and returns {when}."),
        _ => format!(
            "Claude Proxy Router: all {seats} seats have reached a limit; the first returns from its {limit} {when}."
        ),
    }
}

/// "at 8:16pm (UTC)", with the day where it is another one.
pub fn clock_time(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    // Rounded up to the minute: at the time we say, it must be true.
    let minute = at.as_second().div_euclid(60) + i64::from(at.as_second().rem_euclid(60) > 0);
    let at = Timestamp::from_second(minute * 60)
        .unwrap_or(at)
        .to_zoned_datetime(zone.clone());
    let today = now.to_zoned_datetime(zone.clone()).date();
    let day = match at.date() == today {
        true => String::new(),
        false => at.strftime("%b %-d, ").to_string(),
    };
    let name = zone.iana_name().unwrap_or("local time");
    format!("at {day}{} ({name})", at.strftime("%-I:%M%P"))
}

/// "48 min", "3 h 20 min", "2 d 4 h"; rounded up, at least a minute.
pub fn span(duration: SignedDuration) -> String {
    let minutes = (duration.as_secs().max(1) + 59) / 60;
    match (minutes / 1_440, minutes / 60 % 24, minutes % 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, 0) => format!("{hours} h"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, 0, _) => format!("{days} d"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// "`a`", "`a` and `b`", "`a`, `b` and `c`".
fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "your seats".into(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    const NOW: i64 = 1_790_000_000; // 2026-09-21 14:13:20 UTC

    #[test]
    fn a_full_pool_says_which_limit_and_when_it_returns() {
        let seoul = TimeZone::get("Asia/Seoul").unwrap_or(TimeZone::UTC);
        for (seats, window, wait, want) in [
            (
                2,
                Some(WindowKind::FiveHour),
                1_800,
                "all 2 seats have reached a limit; the first returns from its 5-hour limit at 11:44pm (Asia/Seoul), in 30 min.",
            ),
            (
                1,
                Some(WindowKind::Weekly),
                190_000,
                "the seat has reached its weekly limit and returns at Sep 24, 4:00am (Asia/Seoul), in 2 d 4 h.",
            ),
            (
                1,
                None,
                30,
                "the seat has reached its limit and returns at 11:14pm (Asia/Seoul), in 1 min.",
            ),
        ] {
            let full = ProxyError::AllFull {
                until: at(NOW + wait),
                window,
                seats,
            };
            assert_eq!(full.sentence(at(NOW), &seoul), format!("Claude Proxy Router: {want}"));
        }
    }

    #[test]
    fn gu_08_the_wait_is_told_from_absolute_time_across_the_end_of_summer_time() {
        let Ok(berlin) = TimeZone::get("Europe/Berlin") else {
            return;
        };
        let before: Timestamp = "2026-10-25T00:30:00Z".parse().unwrap(); // 2:30 am, the hour that comes twice
        let reset: Timestamp = "2026-10-25T02:30:00Z".parse().unwrap();
        assert_eq!(clock_time(reset, before, &berlin), "at 3:30am (Europe/Berlin)");
        assert_eq!(span(reset.duration_since(before)), "2 h");
    }

    #[test]
    fn the_client_retries_only_what_closes_within_a_minute() {
        let full = |wait| ProxyError::AllFull {
            until: at(NOW + wait),
            window: None,
            seats: 1,
        };
        for (error, retried) in [
            (full(60), true),
            (full(61), false),
            (ProxyError::Unreachable { proxy: None }, true),
            (ProxyError::Broken, false),
            (ProxyError::NoSeat, false),
            (ProxyError::NeedLogin { seats: vec![] }, false),
            (ProxyError::WrongKey { login_mode: false }, false),
        ] {
            let response = error.response(at(NOW), &TimeZone::UTC);
            assert_eq!(
                !response.headers().contains_key(anthropic::SHOULD_RETRY),
                retried,
                "{error:?}"
            );
            assert!(response.headers().contains_key(KIND));
        }
    }

    #[test]
    fn a_device_whose_key_is_wrong_is_told_of_one_of_its_own_and_never_of_the_first_devices() {
        for login_mode in [false, true] {
            let said = ProxyError::WrongKey { login_mode }.sentence(at(NOW), &TimeZone::UTC);
            assert!(said.contains("`claude-proxy-router devices add NAME`"), "{said}");
            assert!(!said.contains("claude-proxy-router key"), "{said}");
        }
    }

    #[test]
    fn no_answer_of_ours_is_a_401_but_for_a_wrong_key() {
        let need = ProxyError::NeedLogin {
            seats: vec!["work".into(), "spare".into()],
        };
        let response = need.response(at(NOW), &TimeZone::UTC);
        assert_eq!(response.status(), 503);
        assert!(need.sentence(at(NOW), &TimeZone::UTC).contains("`work` and `spare`"));
    }
}
