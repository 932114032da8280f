//! Hands a renewal over to Claude Code itself: `claude auth status` renews an expired login that it owns, and makes no
//! model call.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::OwnedMutexGuard;

use crate::profile::Profile;

/// How long we wait for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often we look whether it can be ended.
const PAUSE: Duration = Duration::from_secs(5);
/// What it may know of our environment.
const PASSED_ON: [&str; 6] = ["HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "LANG"];

/// Claude Code on this machine.
#[derive(Clone, Debug)]
pub struct Claude {
    program: PathBuf,
    environment: BTreeMap<&'static str, OsString>,
}

impl Claude {
    /// Its executable.
    pub fn path(&self) -> &Path {
        &self.program
    }

    /// The one at `configured`, else where its installers put it: the native one, npm's prefix, Homebrew.
    pub fn find(configured: Option<&Path>, home: &Path) -> Option<Self> {
        let npm = std::fs::read_to_string(home.join(".npmrc")).unwrap_or_default();
        let npm = npm.lines().find_map(|line| {
            Some(PathBuf::from(
                line.trim()
                    .strip_prefix("prefix")?
                    .trim_start()
                    .strip_prefix('=')?
                    .trim(),
            ))
        });
        let usual = [
            Some(home.join(".local/bin")),
            npm.map(|prefix| prefix.join("bin")),
            Some(home.join(".npm-global/bin")),
            Some("/opt/homebrew/bin".into()),
            Some("/usr/local/bin".into()),
            Some("/usr/bin".into()),
        ];
        let program = match configured {
            Some(path) => path.is_file().then(|| path.to_owned()),
            None => usual
                .into_iter()
                .flatten()
                .map(|folder| folder.join("claude"))
                .find(|path| path.is_file()),
        }?;
        let environment = PASSED_ON
            .into_iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?)))
            .chain([("HOME", home.as_os_str().to_owned())])
            .collect();
        Some(Self { program, environment })
    }

    /// Asks it for the state of `profile`'s login, which makes it renew one that has expired. Returns whether it ended
    /// in time; read the login anew afterwards, whatever it is.
    ///
    /// `config_dir` is what `CLAUDE_CONFIG_DIR` says, if anything. `turn` is kept as long as it runs: one at a time.
    pub async fn ask(&self, profile: &Profile, config_dir: Option<OsString>, turn: OwnedMutexGuard<()>) -> bool {
        let mut command = Command::new(&self.program);
        command
            .args(["auth", "status"])
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for us, not for a renewal that it may be in the middle of.
            .process_group(0);
        if let Some(config_dir) = config_dir {
            command.env("CLAUDE_CONFIG_DIR", config_dir);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!("{} could not be started: {error}", self.program.display());
                return false;
            }
        };
        if let Ok(ended) = tokio::time::timeout(PATIENCE, child.wait()).await {
            return ended.is_ok_and(|status| status.success());
        }
        tracing::warn!(
            "Claude Code did not answer within {} s; it is not waited for",
            PATIENCE.as_secs()
        );
        tokio::spawn(end(child, profile.dir.join(".oauth_refresh.lock"), turn));
        false
    }
}

/// Ends the child, but never while it holds the lock: it may be in the middle of a renewal.
async fn end(mut child: Child, lock: PathBuf, _turn: OwnedMutexGuard<()>) {
    while lock.exists() {
        if tokio::time::timeout(PAUSE, child.wait()).await.is_ok() {
            return;
        }
    }
    let _ = child.kill().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn script(path: &Path, text: &str) {
        std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn it_is_asked_by_absolute_path_with_a_bare_environment() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".local/bin")).unwrap();
        let seen = home.path().join("seen");
        script(
            &home.path().join(".local/bin/claude"),
            &format!("{{ echo \"$@\"; env; }} > {}", seen.display()),
        );
        let claude = Claude::find(None, home.path()).unwrap();
        let profile = Profile::named(home.path().join("work"), "work".into());
        let turn = std::sync::Arc::new(tokio::sync::Mutex::new(())).lock_owned().await;
        assert!(claude.ask(&profile, Some("/work".into()), turn).await);
        let seen = std::fs::read_to_string(seen).unwrap();
        assert!(seen.starts_with("auth status\n"), "{seen}");
        let mut names: Vec<_> = seen
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name)
            .collect();
        names.retain(|name| !PASSED_ON.contains(name) && !["PWD", "_", "SHLVL", "OLDPWD"].contains(name));
        assert_eq!(names, ["CLAUDE_CONFIG_DIR"], "{seen}");
    }

    #[test]
    fn the_one_that_the_settings_name_counts_only_where_it_is_and_no_other_does() {
        let home = tempfile::tempdir().unwrap();
        let (usual, named) = (home.path().join(".local/bin/claude"), home.path().join("named"));
        std::fs::create_dir_all(usual.parent().unwrap()).unwrap();
        script(&usual, "true");
        let found = |home: &Path| Claude::find(Some(&named), home).map(|claude| claude.program);
        assert_eq!(found(home.path()), None);
        script(&named, "true");
        assert_eq!(found(home.path()), Some(named.clone()));
    }

    #[test]
    fn it_is_found_where_npm_was_told_to_put_it() {
        let home = tempfile::tempdir().unwrap();
        let prefix = home.path().join("np");
        std::fs::create_dir_all(prefix.join("bin")).unwrap();
        std::fs::write(
            home.path().join(".npmrc"),
            format!("fund=false\nprefix = {}\n", prefix.display()),
        )
        .unwrap();
        script(&prefix.join("bin/claude"), "true");
        assert_eq!(
            Claude::find(None, home.path()).unwrap().program,
            prefix.join("bin/claude")
        );
    }
}
