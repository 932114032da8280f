//! The token endpoint: how a new pair is asked for, and what its answer means for the refresh token that was sent.

use http::StatusCode;
use http::header::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::limits::retry_after;
use crate::credential::{Pair, Secret};

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

/// What the token endpoint's answer means for the refresh token that was sent.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenAnswer {
    /// It was exchanged; without a new refresh token the old one goes on.
    Granted(Pair),
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
    let answer: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    match (status.as_u16(), answer.get("error").and_then(Value::as_str)) {
        (200..=299, _) => granted(&answer, now).map_or(TokenAnswer::Uncertain, TokenAnswer::Granted),
        (400 | 401, Some("invalid_grant")) => TokenAnswer::Rejected,
        (400, Some("invalid_scope")) => TokenAnswer::InvalidScope,
        (502 | 504 | 520..=599, _) => TokenAnswer::Uncertain,
        (status, _) => TokenAnswer::Refused {
            status,
            retry_after: retry_after(headers),
        },
    }
}

fn granted(answer: &Map<String, Value>, now: Timestamp) -> Option<Pair> {
    let token = |key: &str| {
        answer
            .get(key)?
            .as_str()
            .filter(|text| !text.is_empty())
            .map(Secret::new)
    };
    let life = |key: &str| {
        let value = answer.get(key)?;
        let seconds = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
        // A year at most: what is longer is another unit.
        (1.0..31_536_000.0)
            .contains(&seconds)
            .then(|| SignedDuration::from_secs(seconds as i64))
    };
    Some(Pair {
        access: token("access_token")?,
        refresh: token("refresh_token"),
        expires_at: now + life("expires_in").unwrap_or(UNTOLD_LIFE),
        refresh_expires_at: life("refresh_token_expires_in").map(|life| now + life),
    })
}

#[cfg(test)]
mod tests {
    use super::super::given::at;
    use super::*;

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
            TokenAnswer::Granted(pair) => {
                let refresh = pair.refresh.map(|refresh| refresh.expose().to_owned());
                Some((pair.expires_at.as_second() - 1_000_000, refresh))
            }
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
