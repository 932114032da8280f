//! The file itself: read, given a key where it has none, and closed to others.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Map, Value};

use super::{Config, ConfigError};
use crate::{file, key};

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
        let unusable = |source| ConfigError::file(path, source);
        let odd = |error: serde_json::Error| ConfigError::form(path, error.to_string());
        let text = text(path).map_err(unusable)?.unwrap_or_else(|| b"{}".to_vec());
        let mut written: Map<String, Value> = serde_json::from_slice(&text).map_err(odd)?;
        written.insert("routerKey".into(), key::new_key().into());
        let text = serde_json::to_vec_pretty(&written).map_err(odd)?;
        file::save(path, &text).map_err(unusable)?;
        Self::parse_at(path, &text)
    }

    /// Reads the settings from `path` and changes nothing but the mode of a file that others can read; `None` if there
    /// is no file, or no key in it.
    ///
    /// # Errors
    /// If the file cannot be read or understood, or a value is out of range.
    pub fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let unusable = |source| ConfigError::file(path, source);
        let Some(text) = text(path).map_err(unusable)? else {
            return Ok(None);
        };
        let config = Self::parse(&text).map_err(|error| match error {
            ConfigError::Value { .. } => ConfigError::form(path, error.to_string()),
            other => other.at(path),
        })?;
        if config.is_some() {
            close_to_others(path).map_err(unusable)?;
        }
        Ok(config)
    }

    /// The settings in `text`, which stands in the file at `path`, or is to.
    pub(crate) fn parse_at(path: &Path, text: &[u8]) -> Result<Self, ConfigError> {
        let config = Self::parse(text).map_err(|error| error.at(path))?;
        config.ok_or_else(|| ConfigError::form(path, "has no `routerKey`"))
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
    fn cf_03_the_file_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, r#"{"routerKey":"rk-test-0001"}"#).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        Config::load(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
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
}
