//! A login as Claude Code stores it: read where a profile keeps it, held in memory, and never printed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::sync::Arc;

use jiff::Timestamp;
use pool::Token;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::file::{self, ReadError};
use crate::lock::WriteLock;
use crate::profile::{Identity, Profile};

/// A credential file holds a few kilobytes.
const LIMIT: u64 = 1 << 20;
/// Where Claude Code keeps the login within its document.
const LOGIN: &str = "claudeAiOauth";

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
    /// What the next pair is asked for with.
    pub refresh: Option<Secret>,
    /// When the access token ends; `None` where the login does not say in a form we know.
    pub expires_at: Option<Timestamp>,
    /// The scopes it was granted.
    pub scopes: Vec<String>,
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

/// Claude Code's document: the login, and whatever else it keeps there, each value as it was written.
#[derive(Clone)]
pub struct Document(BTreeMap<String, Box<RawValue>>);

impl Document {
    /// The document in `text`; `None` if it is no JSON object.
    pub fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().map(Self)
    }

    /// The document as one line of JSON.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("raw values under text keys are JSON")
    }

    /// The login in it; `None` if it holds none, or a blanked one.
    pub fn credential(&self) -> Option<Credential> {
        let login = self.login()?;
        let value = |key: &str| serde_json::from_str::<Value>(login.get(key)?.get()).ok();
        let text = |key: &str| value(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let outer = || serde_json::from_str::<String>(self.0.get("organizationUuid")?.get()).ok();
        Some(Credential {
            access: Secret::new(&text("accessToken")?),
            refresh: text("refreshToken").map(|text| Secret::new(&text)),
            expires_at: value("expiresAt").as_ref().and_then(expiry),
            scopes: value("scopes")
                .as_ref()
                .and_then(Value::as_array)
                .map(|scopes| scopes.iter().filter_map(Value::as_str).map(str::to_owned).collect())
                .unwrap_or_default(),
            plan: text("subscriptionType"),
            ids: Identity {
                account_uuid: text("accountUuid"),
                organization_uuid: text("organizationUuid").or_else(outer),
                ..Identity::default()
            },
        })
    }

    /// Whether it holds a login that was blanked, as Claude Code does when its renewal is refused.
    pub fn is_blanked(&self) -> bool {
        let empty = |login: &BTreeMap<String, Box<RawValue>>| {
            login.get("accessToken").is_some_and(|token| token.get() == "\"\"")
        };
        self.login().as_ref().is_some_and(empty)
    }

    /// The same document with the new pair in it, and everything else as it was.
    pub fn with_pair(&self, pair: &Pair) -> Self {
        let mut login = self.login().unwrap_or_default();
        let mut put = |key: &str, value: Value| {
            let raw = serde_json::value::to_raw_value(&value).expect("a JSON value is JSON");
            login.insert(key.to_owned(), raw);
        };
        put("accessToken", pair.access.expose().into());
        if let Some(refresh) = &pair.refresh {
            put("refreshToken", refresh.expose().into());
        }
        put("expiresAt", pair.expires_at.as_millisecond().into());
        if let Some(end) = pair.refresh_expires_at {
            put("refreshTokenExpiresAt", end.as_millisecond().into());
        }
        let mut document = self.0.clone();
        let raw = serde_json::value::to_raw_value(&login).expect("raw values under text keys are JSON");
        document.insert(LOGIN.to_owned(), raw);
        Self(document)
    }

    fn login(&self) -> Option<BTreeMap<String, Box<RawValue>>> {
        serde_json::from_str(self.0.get(LOGIN)?.get()).ok()
    }
}

/// What an exchange brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The new access token.
    pub access: Secret,
    /// The new refresh token; `None` where the old one goes on.
    pub refresh: Option<Secret>,
    /// When the access token ends.
    pub expires_at: Timestamp,
    /// When the refresh token ends, if the answer said so.
    pub refresh_expires_at: Option<Timestamp>,
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

/// Where Claude Code keeps its logins.
pub trait Store: Send + Sync {
    /// The document that `profile` keeps.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    fn read(&self, profile: &Profile) -> Result<Document, CredentialError>;

    /// Puts `document` in its place, whole or not at all. All of the profile's locks must be held.
    ///
    /// # Errors
    /// If it cannot be written; the old one is then as it was.
    fn write(&self, profile: &Profile, document: &Document, lock: &WriteLock<'_>) -> io::Result<()>;
}

/// `.credentials.json` in the configuration directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Store for Files {
    fn read(&self, profile: &Profile) -> Result<Document, CredentialError> {
        match file::read(&profile.credentials(), LIMIT) {
            Ok(text) => Document::parse(&text).ok_or(CredentialError::Unreadable(ReadError::Damaged)),
            Err(ReadError::Absent) => Err(CredentialError::LoggedOut),
            Err(error) => Err(CredentialError::Unreadable(error)),
        }
    }

    fn write(&self, profile: &Profile, document: &Document, _lock: &WriteLock<'_>) -> io::Result<()> {
        // A link that its owner made survives: what it leads to is replaced.
        let path = profile.credentials();
        let target = fs::canonicalize(&path).unwrap_or(path);
        let folder = target.parent().unwrap_or(&profile.dir);
        let mut file = tempfile::Builder::new()
            .prefix(".credentials.json.tmp.")
            .rand_bytes(8)
            .tempfile_in(folder)?; // mode 0600
        file.write_all(&document.text())?;
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|error| error.error)?;
        // The new name must outlast a loss of power, before the mark of the old token is taken away.
        fs::File::open(folder)?.sync_all()
    }
}

/// The login that `profile` keeps in `store`.
///
/// # Errors
/// If there is none, or it cannot be read.
pub fn read(store: &dyn Store, profile: &Profile) -> Result<Credential, CredentialError> {
    store.read(profile)?.credential().ok_or(CredentialError::LoggedOut)
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
        Document::parse(text.as_bytes()).unwrap().credential()
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
            assert_eq!(login.expires_at.map(Timestamp::as_second), want, "{written}");
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

    #[test]
    fn rf_08_a_new_pair_changes_nothing_else() {
        let text = r#"{"claudeAiOauth":{"accessToken":"old","refreshToken":"rt-1","expiresAt":1,"scopes":["user:inference"],"odd":1.50e3},"mcpOAuth":{"x":[1, 2]},"z":"\u00e9"}"#;
        let pair = Pair {
            access: Secret::new("new"),
            refresh: None,
            expires_at: Timestamp::from_second(2_000_000_000).unwrap(),
            refresh_expires_at: None,
        };
        let written = String::from_utf8(Document::parse(text.as_bytes()).unwrap().with_pair(&pair).text()).unwrap();
        for kept in [
            r#""refreshToken":"rt-1""#,
            r#""odd":1.50e3"#,
            r#""mcpOAuth":{"x":[1, 2]}"#,
            r#""z":"\u00e9""#,
            r#""scopes":["user:inference"]"#,
        ] {
            assert!(written.contains(kept), "{kept} in {written}");
        }
        assert!(
            written.contains(r#""accessToken":"new""#) && written.contains(r#""expiresAt":2000000000000"#),
            "{written}"
        );
    }
}
