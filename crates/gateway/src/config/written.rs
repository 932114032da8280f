//! The file as it is written: which settings there are, what they may be and are by default, and the refusal of all else
//! by name.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use http::Uri;
use pool::Strategy;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Config, ConfigError, PORT, SeatWishes, TokenRefresh};

// What holds where the file says nothing.
const HOST: &str = "127.0.0.1";
const UPSTREAM: &str = "https://api.anthropic.com";
const TOKEN_URL: &str = "https://platform.claude.com/v1/oauth/token";
const USAGE_POLL_S: i64 = 300;
const LIMIT_PCT: i64 = 100;
const ROUTING: Strategy = Strategy::Price;
const HOLD_S: i64 = 0;
const HISTORY_DAYS: i64 = 7;

/// The settings and their defaults, all but the key; null where a default is not one value.
pub fn defaults() -> Map<String, Value> {
    let defaults = json!({
        "host": HOST,
        "port": PORT,
        "upstream": UPSTREAM,
        "tokenUrl": TOKEN_URL,
        "usagePollS": USAGE_POLL_S,
        "limitPct": LIMIT_PCT,
        "tokenRefresh": true,
        "includeDefaultAccount": true,
        "profilesRoot": null,
        "configDirs": [],
        "accounts": [],
        "routing": ROUTING.name(),
        "paused": false,
        "holdS": HOLD_S,
        "historyDays": HISTORY_DAYS,
        "proxy": null,
        "claudePath": null,
        "language": "system",
        "app": {},
    });
    match defaults {
        Value::Object(defaults) => defaults,
        _ => Map::new(),
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(default)]
    host: Option<OneOrMany>,
    #[serde(default)]
    port: Option<i64>,
    router_key: Option<String>,
    #[serde(default)]
    upstream: Option<String>,
    #[serde(default)]
    token_url: Option<String>,
    #[serde(default)]
    usage_poll_s: Option<i64>,
    #[serde(default)]
    limit_pct: Option<i64>,
    #[serde(default)]
    token_refresh: Option<WrittenRefresh>,
    #[serde(default)]
    include_default_account: Option<bool>,
    #[serde(default)]
    profiles_root: Option<PathBuf>,
    #[serde(default)]
    config_dirs: Vec<PathBuf>,
    #[serde(default)]
    accounts: Vec<SeatWishes>,
    #[serde(default)]
    routing: Option<String>,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    hold_s: Option<i64>,
    #[serde(default)]
    history_days: Option<i64>,
    #[serde(default)]
    proxy: Option<String>,
    #[serde(default)]
    claude_path: Option<PathBuf>,
    #[serde(default)]
    #[expect(dead_code, reason = "the app acts on it; here a mistake in it is told")]
    language: Option<Language>,
    #[serde(default)]
    #[expect(dead_code, reason = "the app's own; here a mistake in it is told")]
    app: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an address, or a list of addresses")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "true, false or \"delegate\"")]
enum WrittenRefresh {
    Switch(bool),
    Word(RefreshWord),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum RefreshWord {
    Delegate,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Language {
    System,
    En,
    Ko,
}

impl Config {
    /// Reads the settings from the file's text; `None` if all is well but the key is still missing.
    ///
    /// # Errors
    /// If the text is not of the right form, naming the setting and never showing its value.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, ConfigError> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let written: Written = serde_path_to_error::deserialize(&mut json).map_err(|error| describe(&error))?;
        json.end().map_err(|error| {
            let what = format!("something follows the settings at line {}", error.line());
            ConfigError::form(Path::new(""), what)
        })?;
        let key = written.router_key.clone();
        let config = written.check()?;
        Ok(key.map(|router_key| Self { router_key, ..config }))
    }
}

/// What is wrong with the file, naming the setting. A value is never shown: it might be the key. What serde found is in
/// its words alone, and each of those says what was expected last, after the value.
fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> ConfigError {
    let inner = error.inner();
    let path = error.path().to_string();
    let text = inner.to_string();
    let line = inner.line();
    // Of a key that is there twice, or is not there, the path is that of the object around it.
    let inside = |start: &str| {
        let (field, _) = text.strip_prefix(start)?.split_once('`')?;
        Some(match path.as_str() {
            "." => format!("`{field}`"),
            around => format!("`{around}.{field}`"),
        })
    };
    let what = match inner.classify() {
        serde_json::error::Category::Data if text.starts_with("unknown field") => {
            // The unknown key is the path's last step; the message lists those that exist.
            format!(
                "`{path}` is not a setting ({})",
                text.split(" at line").next().unwrap_or_default()
            )
        }
        serde_json::error::Category::Data => match (inside("duplicate field `"), inside("missing field `")) {
            (Some(field), _) => format!("{field} is there twice (line {line})"),
            (_, Some(field)) => format!("{field} is missing (line {line})"),
            (None, None) => {
                let expected = text.rsplit_once("expected ").map_or("something else", |(_, rest)| {
                    rest.split(" at line").next().unwrap_or(rest)
                });
                let subject = match path.as_str() {
                    "." => "what is in it".to_owned(),
                    path => format!("`{path}`"),
                };
                format!("{subject} must be {} (line {line})", in_words(expected))
            }
        },
        _ => format!("is not complete JSON (line {line}, column {})", inner.column()),
    };
    ConfigError::form(Path::new(""), what)
}

/// A type as people say it; what is no type's name was written for them already.
fn in_words(expected: &str) -> &str {
    match expected {
        "i64" => "a whole number",
        "u8" | "u32" => "a whole number in its range",
        "a boolean" => "true or false",
        "a string" | "path string" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        words => words,
    }
}

impl Written {
    fn check(self) -> Result<Config, ConfigError> {
        let named = |name: &str| Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
        let routing = match self.routing.as_deref() {
            None => ROUTING,
            Some(name) => named(name).ok_or_else(|| {
                let want = "must be `price`, `headroom`, `order`, `fill-first` or `round-robin`";
                refuse("routing", want)
            })?,
        };
        for (index, seat) in self.accounts.iter().enumerate() {
            if let Some(limit) = seat.limit_pct {
                within(&format!("accounts[{index}].limitPct"), i64::from(limit), 1, 100)?;
            }
            for (key, place) in [("order", seat.order), ("group", seat.group)] {
                if let Some(place) = place {
                    within(&format!("accounts[{index}].{key}"), i64::from(place), 1, 1_000)?;
                }
            }
            if let Some(reserve) = seat.reserve_pct {
                within(&format!("accounts[{index}].reservePct"), i64::from(reserve), 0, 100)?;
            }
        }
        if let Some(key) = &self.router_key
            && (key.len() < 8 || !key.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(refuse("routerKey", "must be at least 8 visible ASCII characters"));
        }
        let upstream = self.upstream.as_deref().unwrap_or(UPSTREAM);
        let token_url = self.token_url.as_deref().unwrap_or(TOKEN_URL);
        absolute("claudePath", self.claude_path.as_deref())?;
        absolute("profilesRoot", self.profiles_root.as_deref())?;
        for (index, dir) in self.config_dirs.iter().enumerate() {
            absolute(&format!("configDirs[{index}]"), Some(dir))?;
        }
        Ok(Config {
            hosts: hosts(self.host)?,
            port: within("port", self.port.unwrap_or(PORT.into()), 1, 65_535)? as u16,
            router_key: String::new(),
            upstream: origin(upstream)?,
            token_url: url("tokenUrl", token_url)?,
            usage_poll_s: within("usagePollS", self.usage_poll_s.unwrap_or(USAGE_POLL_S), 15, 86_400)? as u32,
            limit_pct: within("limitPct", self.limit_pct.unwrap_or(LIMIT_PCT), 1, 100)? as u8,
            token_refresh: match self.token_refresh {
                None | Some(WrittenRefresh::Switch(true)) => TokenRefresh::Router,
                Some(WrittenRefresh::Switch(false)) => TokenRefresh::Nobody,
                Some(WrittenRefresh::Word(RefreshWord::Delegate)) => TokenRefresh::Delegate,
            },
            include_default_account: self.include_default_account.unwrap_or(true),
            profiles_root: self.profiles_root,
            config_dirs: self.config_dirs,
            hold_s: within("holdS", self.hold_s.unwrap_or(HOLD_S), 0, 300)? as u16,
            accounts: self.accounts,
            routing,
            paused: self.paused,
            history_days: within("historyDays", self.history_days.unwrap_or(HISTORY_DAYS), 0, 365)? as u16,
            proxy: self.proxy.as_deref().map(proxy).transpose()?,
            claude_path: self.claude_path,
        })
    }
}

fn refuse(key: &str, want: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        key: key.into(),
        want: want.into(),
    }
}

fn within(key: &str, value: i64, least: i64, most: i64) -> Result<i64, ConfigError> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(refuse(key, format!("must be a number from {least} to {most}"))),
    }
}

fn absolute(key: &str, path: Option<&Path>) -> Result<(), ConfigError> {
    match path.is_none_or(Path::is_absolute) {
        true => Ok(()),
        false => Err(refuse(key, "must be an absolute path; `~` is not understood in it")),
    }
}

/// The addresses named by `host`; `localhost` is both loopbacks.
fn hosts(written: Option<OneOrMany>) -> Result<Vec<IpAddr>, ConfigError> {
    let names = match written {
        None => vec![HOST.into()],
        Some(OneOrMany::One(name)) => vec![name],
        Some(OneOrMany::Many(names)) => names,
    };
    let mut addresses = BTreeSet::new();
    for name in &names {
        match name.as_str() {
            "localhost" => addresses.extend([IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]),
            address => {
                addresses.insert(
                    address
                        .parse()
                        .map_err(|_| refuse("host", "must be an IP address, `localhost`, or a list of them"))?,
                );
            }
        }
    }
    match addresses.is_empty() {
        true => Err(refuse("host", "must name at least one address")),
        false => Ok(addresses.into_iter().collect()),
    }
}

/// A URL whose credentials travel safely: https, or plain http that stays on this machine.
fn url(key: &str, text: &str) -> Result<Uri, ConfigError> {
    let want = "must be an https URL, or plain http on loopback";
    let uri: Uri = text.parse().map_err(|_| refuse(key, want))?;
    let host = uri.host().unwrap_or_default();
    let loopback = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") if !host.is_empty() => Ok(uri),
        Some("http") if loopback => Ok(uri),
        _ => Err(refuse(key, want)),
    }
}

fn origin(text: &str) -> Result<Uri, ConfigError> {
    let uri = url("upstream", text)?;
    match uri.path_and_query().map_or("/", |path| path.as_str()) {
        "/" | "" => Ok(uri),
        _ => Err(refuse("upstream", "must name a server, without a path")),
    }
}

/// An address without a name or password: the settings are no place for another secret.
fn proxy(text: &str) -> Result<Uri, ConfigError> {
    let want = || {
        refuse(
            "proxy",
            "must be like `http://host:port` or `socks5://host:port`, with nothing more in it",
        )
    };
    let uri: Uri = text.parse().map_err(|_| want())?;
    let is_plain = uri.port().is_some() && uri.path_and_query().is_none_or(|path| path == "/");
    let has_login = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
    match uri.scheme_str() {
        Some("http" | "socks5") if is_plain && !has_login => Ok(uri),
        _ => Err(want()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        match Config::parse(text.as_bytes()) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn cf_04_a_value_out_of_range_is_refused_by_name() {
        for (text, key) in [
            (r#"{"usagePollS":1}"#, "usagePollS"),
            (r#"{"limitPct":0}"#, "limitPct"),
            (r#"{"limitPct":101}"#, "limitPct"),
            (r#"{"limitPct":"90"}"#, "limitPct"),
            (r#"{"port":0}"#, "port"),
            (r#"{"port":70000}"#, "port"),
            (r#"{"holdS":301}"#, "holdS"),
            (r#"{"host":"example.test"}"#, "host"),
            (r#"{"host":[]}"#, "host"),
            (r#"{"host":5}"#, "host"),
            (r#"{"routing":"cheapest"}"#, "routing"),
            (r#"{"tokenRefresh":"never"}"#, "tokenRefresh"),
            (r#"{"upstream":"http://example.test"}"#, "upstream"),
            (r#"{"upstream":"https://example.test/path"}"#, "upstream"),
            (r#"{"tokenUrl":"ftp://127.0.0.1"}"#, "tokenUrl"),
            (r#"{"accounts":[{"seat":"a","limitPct":0}]}"#, "accounts[0].limitPct"),
            (r#"{"accounts":[{"seat":"a","order":0}]}"#, "accounts[0].order"),
            (r#"{"accounts":[{"seat":"a","group":1001}]}"#, "accounts[0].group"),
            (
                r#"{"accounts":[{"seat":"a","reservePct":101}]}"#,
                "accounts[0].reservePct",
            ),
            (
                r#"{"accounts":[{"seat":"a","extraUsage":"often"}]}"#,
                "accounts[0].extraUsage",
            ),
            (r#"{"accounts":[{"seat":"a","colour":1}]}"#, "accounts[0].colour"),
            (r#"{"configDirs":["relative"]}"#, "configDirs[0]"),
            (r#"{"profilesRoot":"~/orca"}"#, "profilesRoot"),
            (r#"{"claudePath":"claude"}"#, "claudePath"),
        ] {
            let said = refusal(text);
            assert!(said.contains(&format!("`{key}`")), "{text}: {said}");
        }
    }

    #[test]
    fn cf_04_what_has_not_the_right_form_is_told_in_peoples_words() {
        for (text, want) in [
            ("{\"port\":1,\n\"port\":2}", "`port` is there twice (line 2)"),
            (
                r#"{"accounts":[{"name":"a"}]}"#,
                "`accounts[0].seat` is missing (line 1)",
            ),
            (
                r#"{"accounts":[{"seat":"a","seat":"b"}]}"#,
                "`accounts[0].seat` is there twice (line 1)",
            ),
            (r#"{"port":"80"}"#, "`port` must be a whole number (line 1)"),
            (r#"{"port":80.5}"#, "`port` must be a whole number (line 1)"),
            (r#"{"paused":"yes"}"#, "`paused` must be true or false (line 1)"),
            (r#"{"proxy":1}"#, "`proxy` must be a text (line 1)"),
            (r#"{"claudePath":1}"#, "`claudePath` must be a text (line 1)"),
            (r#"{"configDirs":"/a"}"#, "`configDirs` must be a list (line 1)"),
            (r#"{"app":1}"#, "`app` must be an object (line 1)"),
            (
                r#"{"accounts":["me@example.com"]}"#,
                "`accounts[0]` must be an object (line 1)",
            ),
            (
                r#"{"accounts":[{"seat":"a","limitPct":-1}]}"#,
                "`accounts[0].limitPct` must be a whole number in its range (line 1)",
            ),
            (r#"["port"]"#, "what is in it must be an object (line 1)"),
            (
                r#"{"language":"fr"}"#,
                "`language` must be one of `system`, `en`, `ko` (line 1)",
            ),
            (
                r#"{"limitPct":"expected the-key"}"#,
                "`limitPct` must be a whole number (line 1)",
            ),
        ] {
            let said = refusal(text);
            assert!(said.ends_with(&format!(": {want}")), "{text}: {said}");
        }
    }

    #[test]
    fn sc_03_an_empty_key_is_refused_wherever_the_router_listens() {
        for host in ["127.0.0.1", "0.0.0.0"] {
            let said = refusal(&format!(r#"{{"routerKey":"","host":"{host}"}}"#));
            assert!(said.contains("`routerKey`"), "{said}");
        }
    }

    #[test]
    fn a_wrong_key_is_not_shown() {
        let said = refusal(r#"{"routerKey":12345678}"#);
        assert!(said.contains("`routerKey`") && !said.contains("12345678"), "{said}");
    }

    #[test]
    fn the_earlier_tools_file_is_read_as_it_is() {
        let text = r#"{"host":"100.64.0.1","port":18787,"routerKey":"0123456789abcdef","upstream":"https://api.anthropic.com",
            "usagePollS":60,"limitPct":95,"tokenRefresh":true,"includeDefaultAccount":true,"profilesRoot":"/Users/me/x"}"#;
        let config = Config::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((config.usage_poll_s, config.limit_pct, config.port), (60, 95, 18_787));
        assert_eq!(config.hosts, ["100.64.0.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn localhost_is_both_loopbacks_and_a_list_gives_several() {
        let hosts = |text: &str| Config::parse(text.as_bytes()).unwrap().unwrap().hosts.len();
        assert_eq!(hosts(r#"{"routerKey":"rk-test-0001","host":"localhost"}"#), 2);
        assert_eq!(
            hosts(r#"{"routerKey":"rk-test-0001","host":["127.0.0.1","::1","127.0.0.1"]}"#),
            2
        );
    }

    #[test]
    fn the_defaults_are_valid() {
        let mut text = defaults();
        text.retain(|_, value| !value.is_null());
        text.insert("routerKey".into(), "rk-test-0001".into());
        let of = |text: &str| format!("{:?}", Config::parse(text.as_bytes()).unwrap().unwrap());
        let usual = of(r#"{"routerKey":"rk-test-0001"}"#);
        assert_eq!(
            of(&json!(text).to_string()),
            usual,
            "what is listed is what holds where nothing is set"
        );
    }
}
