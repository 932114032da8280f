//! Claude Code's document, in which the login is one part of several.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::KeychainError;
use super::login::{Credential, Pair, Secret};
use crate::profile::Identity;

/// Where Claude Code keeps the login within its document.
const LOGIN: &str = "claudeAiOauth";
/// What says that part of the document lies in a second Keychain item.
const OVERFLOW: &str = "keychainOverflow";

/// The parts of an object, each as it was written.
type Parts = BTreeMap<String, Box<RawValue>>;

/// Where a document is kept, which is where it is written back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `.credentials.json` in the configuration directory.
    File,
    /// The Keychain item of that service.
    Item(String),
}

/// Claude Code's document: the login, and whatever else it keeps there, each value as it was written.
#[derive(Clone)]
pub struct Document {
    text: Vec<u8>,
    parts: Parts,
    place: Place,
    behind: Option<KeychainError>,
}

impl Document {
    /// The document in `text`, read at `place`; `None` if it is no JSON object.
    pub fn parse(text: Vec<u8>, place: Place) -> Option<Self> {
        Some(Self {
            parts: serde_json::from_slice(&text).ok()?,
            text,
            place,
            behind: None,
        })
    }

    /// The document's bytes: those that were read, unless something was put in.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Where it was read.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The same, from a place that Claude Code looks at second, while the first cannot be read. A newer login may be
    /// there: this one may be used, and not renewed.
    pub fn behind(mut self, trouble: KeychainError) -> Self {
        self.behind = Some(trouble);
        self
    }

    /// Why the place that comes first could not be read.
    pub fn is_behind(&self) -> Option<KeychainError> {
        self.behind
    }

    /// Whether part of it lies in a second item that only Claude Code can write.
    pub fn overflows(&self) -> bool {
        self.parts.contains_key(OVERFLOW)
    }

    /// The login in it; `None` if it holds none, or a blanked one.
    pub fn credential(&self) -> Option<Credential> {
        let login = self.login()?;
        let value = |key: &str| serde_json::from_str::<Value>(login.get(key)?.get()).ok();
        let text = |key: &str| value(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let outer = || serde_json::from_str::<String>(self.parts.get("organizationUuid")?.get()).ok();
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

    /// Whether its login is the one of that refresh token.
    pub fn holds(&self, refresh: &Secret) -> bool {
        self.credential().and_then(|login| login.refresh).as_ref() == Some(refresh)
    }

    /// Whether it holds a login that was blanked, as Claude Code does when its renewal is refused.
    pub fn is_blanked(&self) -> bool {
        let empty = |login: &Parts| login.get("accessToken").is_some_and(|token| token.get() == "\"\"");
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
        let mut parts = self.parts.clone();
        let raw = serde_json::value::to_raw_value(&login).expect("raw values under text keys are JSON");
        parts.insert(LOGIN.to_owned(), raw);
        let text = serde_json::to_vec(&parts).expect("raw values under text keys are JSON");
        let text = match self.place {
            Place::File => text,
            Place::Item(_) => plain(&text),
        };
        Self {
            text,
            parts,
            place: self.place.clone(),
            behind: self.behind,
        }
    }

    fn login(&self) -> Option<Parts> {
        serde_json::from_str(self.parts.get(LOGIN)?.get()).ok()
    }
}

/// The same JSON in one line of printable ASCII, or others could not read it from the Keychain: `security` prints
/// anything else in hex.
fn plain(json: &[u8]) -> Vec<u8> {
    let Ok(json) = std::str::from_utf8(json) else {
        return json.to_vec();
    };
    let mut plain = Vec::with_capacity(json.len());
    let (mut in_text, mut escaped) = (false, false);
    for letter in json.chars() {
        match letter {
            ' ' | '\t' | '\n' | '\r' if !in_text => continue,
            // What lies beyond may stand in a text as it is; DEL is the one of ASCII, and is not printable.
            ' '..='~' => plain.push(letter as u8),
            _ => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    plain.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
        let quote = letter == '"' && !escaped;
        escaped = in_text && letter == '\\' && !escaped;
        in_text ^= quote;
    }
    plain
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

    fn document(text: &str, place: Place) -> Document {
        Document::parse(text.into(), place).unwrap()
    }

    fn parsed(text: &str) -> Option<Credential> {
        document(text, Place::File).credential()
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
        let written = document(text, Place::File).with_pair(&pair());
        let written = String::from_utf8(written.text().to_vec()).unwrap();
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

    fn pair() -> Pair {
        Pair {
            access: Secret::new("new"),
            refresh: None,
            expires_at: Timestamp::from_second(2_000_000_000).unwrap(),
            refresh_expires_at: None,
        }
    }

    #[test]
    fn what_nothing_was_put_into_is_the_very_bytes_that_were_read() {
        let text = "{ \"z\": 1,\n \"claudeAiOauth\": {\"accessToken\" : \"old\"}, \"a\":\"é\" }\n";
        assert_eq!(document(text, Place::File).text(), text.as_bytes());
    }

    #[test]
    fn kc_01_what_goes_into_the_keychain_is_one_line_of_ascii() {
        let text = "{\n  \"claudeAiOauth\": {\"accessToken\": \"old\", \"name\": \"J\u{fc}rg \u{1f600}\"},\n  \"mcpOAuth\": {\"a b\": [1, 2.50e1, \"x  \\\"y\\\\\", \"\\u00e9\", \"\u{7f}\"]}\n}\n";
        let place = Place::Item("Claude Code-credentials".into());
        let written = document(text, place).with_pair(&pair());
        let written = String::from_utf8(written.text().to_vec()).unwrap();
        assert!(written.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{written}");
        for kept in [
            r#""mcpOAuth":{"a b":[1,2.50e1,"x  \"y\\","\u00e9","\u007f"]}"#,
            r#""name":"J\u00fcrg \ud83d\ude00""#,
            r#""accessToken":"new""#,
        ] {
            assert!(written.contains(kept), "{kept} in {written}");
        }
        let (before, after): (Value, Value) = (
            serde_json::from_str(text).unwrap(),
            serde_json::from_str(&written).unwrap(),
        );
        assert_eq!(before["mcpOAuth"], after["mcpOAuth"]);
        assert_eq!(before["claudeAiOauth"]["name"], after["claudeAiOauth"]["name"]);
    }
}
