//! A login in memory: its tokens, and the pair that takes their place.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use pool::Token;

use crate::profile::Identity;

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

impl Pair {
    /// The one that `login` is made of; `None` where it does not say when it ends.
    pub fn of(login: &Credential) -> Option<Self> {
        Some(Self {
            access: login.access.clone(),
            refresh: login.refresh.clone(),
            expires_at: login.expires_at?,
            refresh_expires_at: None,
        })
    }

    /// Whether `login` is made of it.
    pub fn is_in(&self, login: &Credential) -> bool {
        self.access == login.access && (self.refresh.is_none() || self.refresh == login.refresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let login = Credential {
            access: Secret::new("tok-A"),
            refresh: Some(Secret::new("rt-A")),
            expires_at: None,
            scopes: Vec::new(),
            plan: None,
            ids: Identity::default(),
        };
        let printed = format!("{login:?}");
        assert!(!printed.contains("tok-A") && !printed.contains("rt-A"), "{printed}");
    }
}
