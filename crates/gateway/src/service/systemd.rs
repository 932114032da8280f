//! The systemd user unit, put in place and taken away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Done, Plan, ServiceError, UNIT, brews};
use crate::file;

/// The owner's unit.
#[derive(Clone, Debug)]
pub struct Systemd {
    folder: PathBuf,
}

impl Systemd {
    /// The unit below `config_home`, which is `~/.config` unless the environment says otherwise.
    pub fn new(config_home: &Path) -> Self {
        Self {
            folder: config_home.join("systemd/user"),
        }
    }

    /// Its file.
    pub fn file(&self) -> PathBuf {
        self.folder.join(UNIT)
    }

    /// Puts the unit in place, enables and starts it.
    ///
    /// # Errors
    /// If `brew services` has it, or systemd does not run it.
    pub fn install(&self, plan: &Plan) -> Result<Done, ServiceError> {
        if let Some(brew) = brews(&self.folder) {
            return Err(ServiceError::Brew(brew));
        }
        // Asked first: without it nothing is to be left behind.
        systemctl(&["show-environment"])?;
        let file = self.file();
        file::save(&file, plan.systemd_unit().as_bytes()).map_err(|error| ServiceError::file(&file, error))?;
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", UNIT])?;
        // A running one has an older file.
        systemctl(&["restart", UNIT])?;
        Ok(Done { file, earlier: None })
    }

    /// Stops the unit and takes it away. Returns whether there was one.
    ///
    /// # Errors
    /// If systemd does not stop it, or its file cannot be removed.
    pub fn uninstall(&self) -> Result<bool, ServiceError> {
        let file = self.file();
        if !file.exists() {
            return Ok(false);
        }
        systemctl(&["disable", "--now", UNIT])?;
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(ServiceError::file(&file, error)),
            _ => {}
        }
        systemctl(&["daemon-reload"])?;
        Ok(true)
    }

    /// Whether it runs.
    pub fn is_active(&self) -> bool {
        self.file().exists() && systemctl(&["is-active", "--quiet", UNIT]).is_ok()
    }
}

fn systemctl(arguments: &[&str]) -> Result<(), ServiceError> {
    let output = Command::new("systemctl")
        .arg("--user")
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|_| ServiceError::NoManager("systemctl"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(ServiceError::Refused {
        manager: "systemd",
        said: said.lines().next().unwrap_or("it gave no reason").to_owned(),
    })
}
