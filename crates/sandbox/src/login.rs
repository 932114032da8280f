//! A seat's login, as Claude Code keeps it in a directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Sandbox, Seat};

impl Seat {
    /// What `.credentials.json` holds.
    pub fn credentials(&self) -> Value {
        json!({"claudeAiOauth": {
            "accessToken": self.access_token,
            "refreshToken": self.refresh_token,
            "expiresAt": self.expires_at_ms,
            "scopes": ["user:inference", "user:profile"],
            "subscriptionType": self.plan,
            "accountUuid": self.account_uuid,
            "organizationUuid": self.organization_uuid,
        }})
    }

    /// What `.claude.json` says of whose it is.
    pub fn identity(&self) -> Value {
        json!({"oauthAccount": {
            "accountUuid": self.account_uuid,
            "organizationUuid": self.organization_uuid,
            "emailAddress": self.email,
            "organizationName": self.organization_name,
        }})
    }
}

/// Writes the seat's login into `dir`, which is made if need be.
///
/// # Errors
/// If it cannot be written.
pub fn write_login(seat: &Seat, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    // A login is read as soon as it is there; by then it must be known whose it is.
    fs::write(dir.join(".claude.json"), seat.identity().to_string())?;
    fs::write(dir.join(".credentials.json"), seat.credentials().to_string())
}

/// Writes a login for each seat into a directory named after it under `home`. Returns those.
///
/// # Errors
/// If one cannot be written.
pub fn write_logins(sandbox: &Sandbox, home: &Path) -> io::Result<Vec<PathBuf>> {
    let write = |seat: Seat| {
        let dir = home.join(format!(".claude-{}", seat.name));
        write_login(&seat, &dir)?;
        Ok(dir)
    };
    sandbox.seats().into_iter().map(write).collect()
}
