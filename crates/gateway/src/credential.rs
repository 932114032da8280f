//! A login as Claude Code stores it: read where a profile keeps it, held in memory, and never printed.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use pool::Token;
use serde_json::{Map, Value};

use crate::file::{self, ReadError};
use crate::profile::{Identity, Profile};

/// A credential file holds a few kilobytes.
const LIMIT: u64 = 1 << 20;

/// A token's text. It cannot be printed or serialised by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps `text` from being printed.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// What requests are sent with.
    pub access: Secret,
    /// When it ends; `None` where the login does not say in a form we know.
    pub expires_at: Option<Timestamp>,
    /// The plan: `max`, `pro`, `team`.
    pub plan: Option<String>,
    /// The ids it carries itself, where it does.
    pub ids: Identity,
}

impl Credential {
    /// What the pool may know of it.
    pub fn token(&self) -> Token {
        Token::Valid {
            expires_at: self.expires_at,
        }
    }
}

/// Why a profile gives no login.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// There is none: never logged in, logged out, or other secrets only.
    #[error("not logged in")]
    LoggedOut,
    /// The store cannot be read at the moment.
    #[error("the login file {0}")]
    Unreadable(#[source] ReadError),
}

/// The login that `profile` keeps.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn read(profile: &Profile) -> Result<Credential, CredentialError> {
    match file::read_json::<Value>(&profile.credentials(), LIMIT) {
        Ok(Value::Object(document)) => parse(&document).ok_or(CredentialError::LoggedOut),
        Ok(_) => Err(CredentialError::Unreadable(ReadError::Damaged)),
        Err(ReadError::Absent) => Err(CredentialError::LoggedOut),
        Err(error) => Err(CredentialError::Unreadable(error)),
    }
}

/// The login in Claude Code's document; `None` if it holds none, or a blanked one.
fn parse(document: &Map<String, Value>) -> Option<Credential> {
    let login = document.get("claudeAiOauth")?;
    let text = |value: &Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let access = text(login, "accessToken")?;
    Some(Credential {
        access: Secret::new(&access),
        expires_at: login.get("expiresAt").and_then(expiry),
        plan: text(login, "subscriptionType"),
        ids: Identity {
            account_uuid: text(login, "accountUuid"),
            organization_uuid: text(login, "organizationUuid").or_else(|| {
                document
                    .get("organizationUuid")
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            }),
            ..Identity::default()
        },
    })
}

/// The expiry in milliseconds since the epoch. Another unit or form means that it is not known: a guess would
/// either renew without end or never.
fn expiry(value: &Value) -> Option<Timestamp> {
    /// 2001 in milliseconds; as seconds it lies beyond any login's life.
    const LEAST: f64 = 1e12;
    let milliseconds = value.as_f64().filter(|value| (LEAST..1e14).contains(value))?;
    Timestamp::from_millisecond(milliseconds as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<Credential> {
        parse(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn rf_12_an_expiry_counts_in_milliseconds_alone() {
        for (written, want) in [
            ("1790000000000", Some(1_790_000_000)),
            ("1.79e12", Some(1_790_000_000)),
            ("\"1790000000000\"", None),
            ("1790000000", None),
            ("0", None),
            ("null", None),
            ("-5", None),
            ("1e300", None),
        ] {
            let login = parsed(&format!(
                r#"{{"claudeAiOauth":{{"accessToken":"tok-A","expiresAt":{written}}}}}"#
            ))
            .unwrap();
            assert_eq!(login.expires_at.map(|at| at.as_second()), want, "{written}");
        }
        assert_eq!(
            parsed(r#"{"claudeAiOauth":{"accessToken":"tok-A"}}"#)
                .unwrap()
                .expires_at,
            None
        );
    }

    #[test]
    fn on_02_what_holds_no_access_token_is_logged_out() {
        for text in [
            r#"{"mcpOAuth":{"x":1}}"#,
            "{}",
            r#"{"claudeAiOauth":null}"#,
            r#"{"claudeAiOauth":{"accessToken":"","refreshToken":"","expiresAt":0}}"#,
            r#"{"claudeAiOauth":{"refreshToken":"rt-A"}}"#,
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn a_secret_does_not_print() {
        let login = parsed(r#"{"claudeAiOauth":{"accessToken":"tok-A","refreshToken":"rt-A"}}"#).unwrap();
        let printed = format!("{login:?}");
        assert!(!printed.contains("tok-A") && !printed.contains("rt-A"), "{printed}");
    }

    #[test]
    fn the_credentials_own_ids_are_read() {
        let login = parsed(
            r#"{"claudeAiOauth":{"accessToken":"t","accountUuid":"a-1","subscriptionType":"max"},"organizationUuid":"o-1"}"#,
        )
        .unwrap();
        assert_eq!(login.ids.account_uuid.as_deref(), Some("a-1"));
        assert_eq!(login.ids.organization_uuid.as_deref(), Some("o-1"));
        assert_eq!(login.plan.as_deref(), Some("max"));
    }
}
