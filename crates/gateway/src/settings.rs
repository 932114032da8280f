//! The settings in force, and the file they come from: changed here on the owner's behalf, with everything else in it
//! left as it stands.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde_json::{Map, Value};

use crate::config::{self, Config, ConfigError};
use crate::file::{self, Mark};

/// The settings in force.
pub struct Settings {
    path: PathBuf,
    now: RwLock<Arc<Config>>,
    file: Mutex<AsRead>,
}

/// The file as it was last looked at.
#[derive(Default)]
struct AsRead {
    mark: Option<Mark>,
    /// Why it is not in force.
    refused: Option<String>,
}

/// What came of a look at the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// It is as it was.
    Same,
    /// It changed, and is in force.
    Changed,
    /// It changed, and the settings from before stay in force; or it is gone.
    Refused(String),
}

/// The file's text: every key with its value, in the order that its owner wrote them.
pub type Written = Map<String, Value>;

impl Settings {
    /// These settings, from the file at `path`.
    pub fn new(config: Config, path: PathBuf) -> Self {
        let seen = AsRead {
            mark: file::mark(&path),
            refused: None,
        };
        Self {
            path,
            now: RwLock::new(Arc::new(config)),
            file: Mutex::new(seen),
        }
    }

    /// The settings as they are now.
    pub fn now(&self) -> Arc<Config> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the file, and what is in force with it. It reads, writes and waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be read or written, or what `change` made of it is not valid; the file is then as it was.
    pub fn change<E: From<ConfigError>>(&self, change: impl FnOnce(&mut Written) -> Result<(), E>) -> Result<(), E> {
        self.change_if(change, |_| Ok(()))
    }

    /// The same, if `agree` has nothing against what the settings would be; what it gives is returned.
    ///
    /// # Errors
    /// As of [`change`](Self::change), or if `agree` refuses; the file is then as it was.
    pub fn change_if<T, E: From<ConfigError>>(
        &self,
        change: impl FnOnce(&mut Written) -> Result<(), E>,
        agree: impl FnOnce(&Config) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut file = self.lock();
        // Where the file is a link, what it leads to is replaced.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mut written = read(&path)?;
        change(&mut written)?;
        let text = serde_json::to_vec_pretty(&written).map_err(|error| ConfigError::file(&path, error.into()))?;
        let config = Config::parse_at(&path, &text)?;
        let agreed = agree(&config)?;
        file::save(&path, &text).map_err(|source| ConfigError::file(&path, source))?;
        self.put(config);
        *file = AsRead {
            mark: file::mark(&self.path),
            refused: None,
        };
        Ok(agreed)
    }

    /// Looks whether another hand changed the file, and puts in force what it says now. It reads from the disk.
    ///
    /// A file that is not valid changes nothing. Nor does one that is gone: an editor may be about to put it back.
    pub fn look(&self) -> Look {
        let mut file = self.lock();
        let mark = file::mark(&self.path);
        if mark == file.mark {
            return Look::Same;
        }
        // Marked before it is read: what is written meanwhile is another change.
        file.mark = mark;
        let read = fs::read(&self.path).map_err(|source| ConfigError::file(&self.path, source));
        match read.and_then(|text| Config::parse_at(&self.path, &text)) {
            Ok(config) => {
                file.refused = None;
                self.put(config);
                Look::Changed
            }
            Err(error) => {
                let why = error.to_string();
                file.refused = Some(why.clone());
                Look::Refused(why)
            }
        }
    }

    /// Why the file as it stands is not in force, if it is not.
    pub fn refused(&self) -> Option<String> {
        self.lock().refused.clone()
    }

    /// Every setting, with what the file says or the default; never the key.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn shown(&self) -> Result<Written, ConfigError> {
        let mut shown = config::defaults();
        for (key, value) in read(&self.path)? {
            if let Some(place) = shown.get_mut(&key) {
                *place = value;
            }
        }
        Ok(shown)
    }

    /// Puts `config` in force, but for what a running router cannot change: where it listens, and whom it asks.
    fn put(&self, config: Config) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(Config {
            hosts: now.hosts.clone(),
            port: now.port,
            upstream: now.upstream.clone(),
            token_url: now.token_url.clone(),
            ..config
        });
    }

    fn lock(&self) -> MutexGuard<'_, AsRead> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<Written, ConfigError> {
    let text = fs::read(path).map_err(|source| ConfigError::file(path, source))?;
    // Nothing of the file is shown: it holds the key.
    serde_json::from_slice(&text).map_err(|_| ConfigError::form(path, "is not complete JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settings(text: &str) -> (tempfile::TempDir, Settings) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, text).unwrap();
        let settings = Settings::new(Config::load(&path).unwrap(), path);
        (folder, settings)
    }

    #[test]
    fn a_change_keeps_all_else_and_its_order_and_counts_at_once() {
        let (_folder, settings) = settings(r#"{"usagePollS":60,"routerKey":"rk-test-0001","app":{"z":1,"a":2}}"#);
        settings
            .change::<ConfigError>(|written| {
                written.insert("limitPct".into(), 90.into());
                Ok(())
            })
            .unwrap();
        let text = fs::read_to_string(&settings.path).unwrap();
        let keys = ["usagePollS", "routerKey", "app", "\"z\"", "\"a\"", "limitPct"];
        let places: Vec<_> = keys.iter().map(|key| text.find(key).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
        assert_eq!((settings.now().limit_pct, settings.now().usage_poll_s), (90, 60));
    }

    #[test]
    fn cf_04_a_change_that_is_not_valid_changes_nothing() {
        let (_folder, settings) = settings(r#"{"routerKey":"rk-test-0001"}"#);
        let before = fs::read_to_string(&settings.path).unwrap();
        let refused = settings.change::<ConfigError>(|written| {
            written.insert("limitPct".into(), 0.into());
            Ok(())
        });
        assert!(refused.unwrap_err().to_string().contains("`limitPct`"));
        assert_eq!(fs::read_to_string(&settings.path).unwrap(), before);
        assert_eq!(settings.now().limit_pct, 100);
    }

    #[test]
    fn a_change_goes_through_a_link() {
        let (folder, settings) = settings(r#"{"routerKey":"rk-test-0001"}"#);
        let kept = folder.path().join("kept.json");
        fs::rename(&settings.path, &kept).unwrap();
        std::os::unix::fs::symlink(&kept, &settings.path).unwrap();
        settings
            .change::<ConfigError>(|written| {
                written.insert("port".into(), 18_788.into());
                Ok(())
            })
            .unwrap();
        assert!(fs::symlink_metadata(&settings.path).unwrap().is_symlink());
        assert!(fs::read_to_string(&kept).unwrap().contains("18788"));
    }

    #[test]
    fn cf_02_a_change_by_another_hand_counts_and_a_damaged_one_does_not() {
        let (_folder, settings) = settings(r#"{"routerKey":"rk-test-0001","limitPct":80}"#);
        assert_eq!(settings.look(), Look::Same);
        // A replaced file has another inode, whatever the clock's grain.
        let replace = |text: &str| file::save(&settings.path, text.as_bytes()).unwrap();
        replace(r#"{"routerKey":"rk-test-0001","limitPct":70}"#);
        assert_eq!(settings.look(), Look::Changed);
        assert_eq!(settings.now().limit_pct, 70);
        for damaged in ["{\"routerKey\":", r#"{"routerKey":"rk-test-0001","limitPct":0}"#, "{}"] {
            replace(damaged);
            assert!(matches!(settings.look(), Look::Refused(_)), "{damaged}");
            assert_eq!(settings.look(), Look::Same, "it is told once");
            assert!(
                settings.refused().is_some_and(|why| !why.contains("rk-test")),
                "{damaged}"
            );
            assert_eq!(settings.now().limit_pct, 70);
        }
        fs::remove_file(&settings.path).unwrap();
        assert!(matches!(settings.look(), Look::Refused(_)));
        replace(r#"{"routerKey":"rk-test-0001","limitPct":60}"#);
        assert_eq!(settings.look(), Look::Changed);
        assert_eq!((settings.now().limit_pct, settings.refused()), (60, None));
    }

    #[test]
    fn every_setting_that_can_be_read_is_shown_and_the_key_never() {
        let (_folder, settings) = settings(r#"{"routerKey":"rk-test-0001","limitPct":80}"#);
        let shown = settings.shown().unwrap();
        assert_eq!(shown["limitPct"], 80);
        assert!(!json!(shown).to_string().contains("rk-test"));
        // The refusal of an unknown setting lists those that there are.
        let said = Config::parse(br#"{"noSuchSetting":1}"#).unwrap_err().to_string();
        let mut known: Vec<&str> = said.split('`').skip(1).step_by(2).collect();
        known.retain(|name| !["noSuchSetting", "routerKey"].contains(name) && name.chars().all(char::is_alphanumeric));
        known.dedup();
        for name in &known {
            assert!(shown.contains_key(*name), "`{name}` is missing from the defaults");
        }
        assert!(known.len() >= shown.len(), "{known:?}");
    }
}
