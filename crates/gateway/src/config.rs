//! The settings: `config.json`, the earlier tool's file.
//!
//! It is a person's file. What it holds is read strictly and refused by name; a file that cannot be read is never
//! replaced, since that would change the key that other devices hold.

mod load;
mod written;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use http::Uri;
use pool::Strategy;
use serde::Deserialize;

pub use written::defaults;

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
    /// The proxy that connections to Anthropic go through, by HTTP or SOCKS 5.
    pub proxy: Option<Uri>,
    /// The `claude` that renewals are handed to.
    pub claude_path: Option<PathBuf>,
}

impl Config {
    /// Where to listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let at = |host: &IpAddr| SocketAddr::new(*host, self.port);
        self.hosts.iter().map(at).collect()
    }
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

impl ConfigError {
    pub(crate) fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn form(path: &Path, what: impl Into<String>) -> Self {
        Self::Form {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// The same, where it was not known yet which file the text is from.
    fn at(self, path: &Path) -> Self {
        match self {
            Self::Form { what, .. } => Self::form(path, what),
            other => other,
        }
    }
}

const fn yes() -> bool {
    true
}
