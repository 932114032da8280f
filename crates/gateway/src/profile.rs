//! Finds the Claude configuration directories on this machine, and whose each one says it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::file::{self, ReadError};
use crate::paths::Paths;

/// A Claude configuration directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Profile {
    /// The directory as its owner names it.
    pub dir: PathBuf,
    /// The file that names the account.
    identity: PathBuf,
    /// A short name for people: `default`, `work`, the folder's name. Never an e-mail address.
    pub name: String,
    /// Whether nobody but the router uses it.
    pub is_ours: bool,
}

impl Profile {
    /// The profile in `dir`, which names its account itself.
    pub fn named(dir: PathBuf, name: String) -> Self {
        Self {
            identity: dir.join(".claude.json"),
            dir,
            name: without_address(name),
            is_ours: false,
        }
    }

    /// Whether it is the one that Claude Code uses where nothing is set.
    pub fn is_default(&self) -> bool {
        self.identity.parent() != Some(&self.dir)
    }

    /// Where the login is kept on a machine without a usable Keychain.
    pub fn credentials(&self) -> PathBuf {
        self.dir.join(".credentials.json")
    }

    /// The file that names the account.
    pub fn identity_file(&self) -> &Path {
        &self.identity
    }

    /// Whose directory it says it is; `None` where it does not say.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, ReadError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct File {
            oauth_account: Option<Identity>,
        }
        match file::read_json::<File>(&self.identity, IDENTITY_LIMIT) {
            Ok(file) => Ok(file.oauth_account),
            Err(ReadError::Absent) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// `.claude.json` grows with every project its owner opens.
const IDENTITY_LIMIT: u64 = 64 << 20;

/// The account that a configuration directory names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// The account's id.
    pub account_uuid: Option<String>,
    /// The organisation's id.
    pub organization_uuid: Option<String>,
    /// The owner's e-mail address.
    pub email_address: Option<String>,
    /// The organisation's name.
    pub organization_name: Option<String>,
}

/// The name of a folder, unless it is an e-mail address: names are shown to devices.
pub(crate) fn without_address(name: String) -> String {
    match name.contains('@') {
        true => format!("login-{}", short_hash(&name)),
        false => name,
    }
}

fn short_hash(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(2).map(|byte| format!("{byte:02x}")).collect()
}

/// The directories that the settings ask for, each once, in the order default, the router's own, Orca's, configured,
/// found.
pub fn discover(config: &Config, paths: &Paths) -> Vec<Profile> {
    let mut profiles = Vec::new();
    let default = paths.home.join(".claude");
    if config.include_default_account && default.is_dir() {
        profiles.push(Profile {
            identity: paths.home.join(".claude.json"),
            dir: default.clone(),
            name: "default".into(),
            is_ours: false,
        });
    }
    profiles.extend(folders_in(&paths.own_logins()).into_iter().map(|dir| {
        let name = folder_name(&dir);
        Profile {
            is_ours: true,
            ..Profile::named(dir, name)
        }
    }));
    let orca = config.profiles_root.as_ref().unwrap_or(&paths.orca_profiles);
    let homes = folders_in(orca).into_iter().map(|folder| folder.join("home"));
    profiles.extend(homes.filter(|home| home.is_dir()).map(|home| {
        let id = home.parent().map(folder_name).unwrap_or_default();
        Profile::named(home, format!("orca-{}", id.chars().take(8).collect::<String>()))
    }));
    profiles.extend(config.config_dirs.iter().filter(|dir| dir.is_dir()).map(|dir| {
        let name = folder_name(dir).trim_start_matches(".claude-").to_owned();
        Profile::named(dir.clone(), name)
    }));
    profiles.extend(folders_in(&paths.home).into_iter().filter_map(|dir| {
        let name = folder_name(&dir).strip_prefix(".claude-")?.to_owned();
        looks_like_a_profile(&dir).then(|| Profile::named(dir, name))
    }));
    let mut seen = BTreeSet::new();
    profiles.retain(|profile| seen.insert(fs::canonicalize(&profile.dir).unwrap_or_else(|_| profile.dir.clone())));
    profiles
}

fn looks_like_a_profile(dir: &Path) -> bool {
    [".credentials.json", ".claude.json"]
        .iter()
        .any(|file| dir.join(file).exists())
}

fn folder_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The folders in `dir`, by name; none if it cannot be listed.
fn folders_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut folders: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_directory_is_found_once() {
        let home = tempfile::tempdir().unwrap();
        let make = |path: &str| fs::create_dir_all(home.path().join(path)).unwrap();
        let touch = |path: &str| fs::write(home.path().join(path), "{}").unwrap();
        for dir in [
            ".claude",
            "orca/0a1b2c3d-ffff/home",
            "orca/empty",
            "elsewhere",
            ".claude-work",
            ".claude-cache",
            ".claude-plain",
            ".claude-me@example.test",
            ".config/claude-proxy-router/logins/calm",
        ] {
            make(dir);
        }
        touch(".claude-me@example.test/.claude.json");
        touch(".claude-work/.credentials.json");
        touch(".claude-plain/.claude.json");
        std::os::unix::fs::symlink(home.path().join(".claude-work"), home.path().join(".claude-same")).unwrap();
        let written = serde_json::json!({
            "routerKey": "rk-test-0001",
            "profilesRoot": home.path().join("orca"),
            "configDirs": [home.path().join("elsewhere"), home.path().join(".claude-work"), home.path().join("missing")],
        });
        let config = Config::parse(written.to_string().as_bytes()).unwrap().unwrap();
        let paths = Paths {
            config: home.path().join(".config/claude-proxy-router/config.json"),
            ..Paths::new(home.path(), None, |_| None)
        };
        let profiles = discover(&config, &paths);
        let names: Vec<_> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        let address = format!("login-{}", short_hash("me@example.test"));
        assert_eq!(
            names,
            [
                "default",
                "calm",
                "orca-0a1b2c3d",
                "elsewhere",
                "work",
                &address,
                "plain"
            ]
        );
        let ours: Vec<_> = profiles.iter().filter(|profile| profile.is_ours).collect();
        assert!(matches!(ours[..], [only] if only.name == "calm"), "{ours:?}");
    }

    #[test]
    fn the_default_login_is_named_by_the_file_in_the_home_directory() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".claude")).unwrap();
        fs::write(
            home.path().join(".claude.json"),
            r#"{"projects":{},"oauthAccount":{"emailAddress":"me@example.test"}}"#,
        )
        .unwrap();
        let config = Config::parse(br#"{"routerKey":"rk-test-0001"}"#).unwrap().unwrap();
        let profiles = discover(&config, &Paths::new(home.path(), None, |_| None));
        let identity = profiles[0].identity().unwrap().unwrap();
        assert_eq!(identity.email_address.as_deref(), Some("me@example.test"));
        assert_eq!(identity.account_uuid, None);
    }
}
