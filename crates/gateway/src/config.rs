//! The settings: `config.json`, the earlier tool's file.
//!
//! It is a person's file. What it holds is read strictly and refused by name; a file that cannot be read is never
//! replaced, since that would change the key that other devices hold.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use http::Uri;
use pool::Strategy;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The port to listen on where the settings name none.
pub const PORT: u16 = 18_787;

/// The settings in force.
#[derive(Clone, Debug)]
pub struct Config {
    /// The addresses to listen on.
    pub hosts: Vec<IpAddr>,
    /// The port to listen on.
    pub port: u16,
    /// The first device's key.
    pub router_key: String,
    /// Where requests go: scheme and authority.
    pub upstream: Uri,
    /// The token endpoint.
    pub token_url: Uri,
    /// How often usage may be asked for at most, in seconds.
    pub usage_poll_s: u32,
    /// The soft threshold of every seat, in per cent.
    pub limit_pct: u8,
    /// Who renews logins.
    pub token_refresh: TokenRefresh,
    /// Whether `~/.claude` is looked at.
    pub include_default_account: bool,
    /// Where Orca keeps its profiles.
    pub profiles_root: Option<PathBuf>,
    /// Further Claude configuration directories.
    pub config_dirs: Vec<PathBuf>,
    /// How long a request is held open for a seat to return, in seconds; 0 for not at all.
    pub hold_s: u16,
    /// What the owner wants of single seats.
    pub accounts: Vec<SeatWishes>,
    /// How a seat is picked among those that can serve.
    pub routing: Strategy,
    /// Whether no seat is given anything.
    pub paused: bool,
    /// How many days history is kept; 0 is not at all.
    pub history_days: u16,
    /// The `claude` that renewals are handed to.
    pub claude_path: Option<PathBuf>,
    /// Settings that are understood and not yet acted upon in this version.
    pub not_yet: Vec<&'static str>,
}

/// What the owner wants of one seat.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SeatWishes {
    /// E-mail, organisation name, or `account/organisation` ids, as long as it names one seat.
    pub seat: String,
    /// What to call it.
    #[serde(default)]
    pub name: Option<String>,
    /// Whether it may serve.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Whether it takes no new conversation.
    #[serde(default)]
    pub draining: bool,
    /// Its own soft threshold, in per cent.
    #[serde(default)]
    pub limit_pct: Option<u8>,
    /// Its place in the owner's order.
    #[serde(default)]
    pub order: Option<u32>,
    /// Its priority group.
    #[serde(default)]
    pub group: Option<u32>,
    /// The share of it that is left to its owner's direct use, in per cent.
    #[serde(default)]
    pub reserve_pct: Option<u8>,
    /// Whether it may go on beyond its plan.
    #[serde(default)]
    pub extra_usage: Option<ExtraUsage>,
}

/// Who renews a login that is about to expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefresh {
    /// The router, under Claude Code's locks.
    Router,
    /// Claude Code, when asked.
    Delegate,
    /// Nobody here.
    Nobody,
}

/// Whether a seat whose plan is used up may go on, at its owner's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExtraUsage {
    /// It rests until its plan has room again.
    Never,
    /// When no other seat is left.
    Last,
    /// Like any other.
    Allowed,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not JSON, or not of the right form.
    #[error("{}: {what}", path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// What is wrong, naming the setting.
        what: String,
    },
    /// A value is out of its range.
    #[error("`{key}` {want}")]
    Value {
        /// Which setting.
        key: String,
        /// What it must be.
        want: String,
    },
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
    language: Option<Language>,
    #[serde(default)]
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

const fn yes() -> bool {
    true
}

impl Config {
    /// Reads the settings from `path`. A missing file, or one without a key, gets a new key and is saved; a file that
    /// others can read is closed to them. Hold the instance lock where that may be.
    ///
    /// # Errors
    /// If the file cannot be read, written or understood, or a value is out of range. The file is then as it was.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        if let Some(config) = Self::read(path)? {
            return Ok(config);
        }
        let (file, form) = (|source| file(path, source), |what| form(path, what));
        let text = text(path).map_err(file)?.unwrap_or_else(|| b"{}".to_vec());
        let mut written: Map<String, Value> = serde_json::from_slice(&text).map_err(|error| form(error.to_string()))?;
        written.insert("routerKey".into(), new_key().into());
        let text = serde_json::to_vec_pretty(&written).map_err(|error| form(error.to_string()))?;
        save(path, &text).map_err(file)?;
        match Self::parse(&text)? {
            Some(config) => Ok(config),
            None => Err(form("has no `routerKey`".into())),
        }
    }

    /// Reads the settings from `path` and changes nothing but the mode of a file that others can read; `None` if there
    /// is no file, or no key in it.
    ///
    /// # Errors
    /// If the file cannot be read or understood, or a value is out of range.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let Some(text) = text(path).map_err(|source| file(path, source))? else {
            return Ok(None);
        };
        let config = Self::parse(&text).map_err(|error| match error {
            ConfigError::Form { what, .. } => form(path, what),
            ConfigError::Value { key, want } => form(path, format!("`{key}` {want}")),
            other => other,
        })?;
        if config.is_some() {
            close_to_others(path).map_err(|source| file(path, source))?;
        }
        Ok(config)
    }

    /// Reads the settings from the file's text; `None` if all is well but the key is still missing.
    ///
    /// # Errors
    /// If the text is not of the right form, naming the setting and never showing its value.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, ConfigError> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let written: Written = serde_path_to_error::deserialize(&mut json).map_err(|error| describe(&error))?;
        json.end().map_err(|error| ConfigError::Form {
            path: PathBuf::new(),
            what: format!("something follows the settings at line {}", error.line()),
        })?;
        let key = written.router_key.clone();
        let config = written.check()?;
        Ok(key.map(|router_key| Self { router_key, ..config }))
    }
}

/// The file's text, if there is one.
fn text(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn file(path: &Path, source: io::Error) -> ConfigError {
    ConfigError::File {
        path: path.to_owned(),
        source,
    }
}

fn form(path: &Path, what: String) -> ConfigError {
    ConfigError::Form {
        path: path.to_owned(),
        what,
    }
}

/// What is wrong with the file, naming the setting. A value is never shown: it might be the key.
fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> ConfigError {
    let inner = error.inner();
    let path = error.path().to_string();
    let text = inner.to_string();
    let what = match inner.classify() {
        serde_json::error::Category::Data if text.starts_with("unknown field") => {
            // The unknown key is the path's last step; the message lists those that exist.
            format!(
                "`{path}` is not a setting ({})",
                text.split(" at line").next().unwrap_or_default()
            )
        }
        serde_json::error::Category::Data => {
            let expected = text.split_once("expected ").map_or("something else", |(_, rest)| {
                rest.split(" at line").next().unwrap_or(rest)
            });
            format!("`{path}` must be {expected} (line {})", inner.line())
        }
        _ => format!(
            "is not complete JSON (line {}, column {})",
            inner.line(),
            inner.column()
        ),
    };
    ConfigError::Form {
        path: PathBuf::new(),
        what,
    }
}

impl Written {
    fn check(self) -> Result<Config, ConfigError> {
        let mut not_yet = Vec::new();
        let mut later = |key: &'static str, set: bool| {
            if set {
                not_yet.push(key);
            }
        };
        later("proxy", self.proxy.is_some());
        later("language", self.language.is_some());
        later("app", self.app.is_some());
        let named = |name: &str| Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
        let routing = match self.routing.as_deref() {
            None => Strategy::Price,
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
        let upstream = self.upstream.as_deref().unwrap_or("https://api.anthropic.com");
        let token_url = self
            .token_url
            .as_deref()
            .unwrap_or("https://platform.claude.com/v1/oauth/token");
        if self.claude_path.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err(refuse("claudePath", "must be an absolute path"));
        }
        for (index, dir) in self.config_dirs.iter().enumerate() {
            if !dir.is_absolute() {
                return Err(refuse(&format!("configDirs[{index}]"), "must be an absolute path"));
            }
        }
        Ok(Config {
            hosts: hosts(self.host)?,
            port: within("port", self.port.unwrap_or(PORT.into()), 1, 65_535)? as u16,
            router_key: String::new(),
            upstream: origin(upstream)?,
            token_url: url("tokenUrl", token_url)?,
            usage_poll_s: within("usagePollS", self.usage_poll_s.unwrap_or(300), 15, 86_400)? as u32,
            limit_pct: within("limitPct", self.limit_pct.unwrap_or(100), 1, 100)? as u8,
            token_refresh: match self.token_refresh {
                None | Some(WrittenRefresh::Switch(true)) => TokenRefresh::Router,
                Some(WrittenRefresh::Switch(false)) => TokenRefresh::Nobody,
                Some(WrittenRefresh::Word(RefreshWord::Delegate)) => TokenRefresh::Delegate,
            },
            include_default_account: self.include_default_account.unwrap_or(true),
            profiles_root: self.profiles_root,
            config_dirs: self.config_dirs,
            hold_s: within("holdS", self.hold_s.unwrap_or(0), 0, 300)? as u16,
            accounts: self.accounts,
            routing,
            paused: self.paused,
            history_days: within("historyDays", self.history_days.unwrap_or(7), 0, 365)? as u16,
            claude_path: self.claude_path,
            not_yet,
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

/// The addresses named by `host`; `localhost` is both loopbacks.
fn hosts(written: Option<OneOrMany>) -> Result<Vec<IpAddr>, ConfigError> {
    let names = match written {
        None => vec!["127.0.0.1".into()],
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

/// A new key: 256 bits from the system, in hexadecimal.
///
/// # Panics
/// If the system has no randomness: it can keep no key secret.
pub fn new_key() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("a system without randomness can keep no key secret");
    format!("rk-{}", hex(&bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces the file whole, readable by its owner alone. On failure the old file is intact.
///
/// # Errors
/// If the new file cannot be written or put in place.
pub fn save(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?; // mode 0600
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!("{} was readable by others; its mode is now 0600", path.display());
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
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
    fn cf_01_an_unknown_key_is_refused_by_name_and_the_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let text = r#"{"routerKey":"rk-test-0001","prot":18787}"#;
        fs::write(&path, text).unwrap();
        let said = Config::load(&path).unwrap_err().to_string();
        assert!(said.contains("`prot`") && !said.contains("rk-test"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn cf_02_a_damaged_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for text in ["", "{\"host\":", "[]", "{\"routerKey\":\"rk-test-0001\"} x"] {
            fs::write(&path, text).unwrap();
            let said = Config::load(&path).unwrap_err().to_string();
            assert!(said.contains("config.json"), "{said}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn cf_02_a_save_that_fails_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        save(&path, b"old").unwrap();
        // A folder in the file's place makes the last step fail, as a full disk makes an earlier one.
        let blocked = folder.path().join("folder");
        fs::create_dir_all(blocked.join("x")).unwrap();
        assert!(save(&blocked, b"new").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "no temporary file stays"
        );
    }

    #[test]
    fn cf_03_the_file_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, r#"{"routerKey":"rk-test-0001"}"#).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        Config::load(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
        ] {
            let said = refusal(text);
            assert!(said.contains(&format!("`{key}`")), "{text}: {said}");
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
    fn a_first_start_makes_a_key_and_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/config.json");
        let first = Config::load(&path).unwrap();
        assert_eq!(first.router_key.len(), 3 + 64);
        assert_eq!(Config::load(&path).unwrap().router_key, first.router_key);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_earlier_tools_file_is_read_as_it_is() {
        let text = r#"{"host":"100.64.0.1","port":18787,"routerKey":"0123456789abcdef","upstream":"https://api.anthropic.com",
            "usagePollS":60,"limitPct":95,"tokenRefresh":true,"includeDefaultAccount":true,"profilesRoot":"/Users/me/x"}"#;
        let config = Config::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((config.usage_poll_s, config.limit_pct, config.port), (60, 95, 18_787));
        assert_eq!(config.hosts, ["100.64.0.1".parse::<IpAddr>().unwrap()]);
        assert!(config.not_yet.is_empty());
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
}
