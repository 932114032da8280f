//! The settings: shown, and changed one by one.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Running, blocking};
use crate::config::{self, ConfigError};
use crate::control::{CommandError, Reply};
use crate::settings::{Settings, Written};

impl Running {
    /// Every setting, but for the key.
    pub(super) async fn settings(&self) -> Reply {
        let settings = Arc::clone(&self.gateway.settings);
        let shown = blocking(move || Ok(settings.shown()?)).await?;
        Ok(Value::Object(shown))
    }

    /// Changes one setting.
    pub(super) async fn set(&self, key: String, value: Value) -> Reply {
        let settings = Arc::clone(&self.gateway.settings);
        let moves = matches!(key.as_str(), "host" | "port");
        let addresses = blocking(move || {
            set(&settings, &key, value)?;
            Ok(settings.addresses()?)
        });
        let addresses = addresses.await?;
        if moves {
            self.doors.follow(addresses);
        }
        self.apply_settings().await
    }

    /// Changes the settings, and looks at the seats again with the new ones.
    pub(super) async fn change(
        &self,
        change: impl FnOnce(&mut Written) -> Result<(), CommandError> + Send + 'static,
    ) -> Reply {
        let settings = Arc::clone(&self.gateway.settings);
        blocking(move || settings.change(change)).await?;
        self.apply_settings().await
    }

    async fn apply_settings(&self) -> Reply {
        self.gateway.driver.apply_settings();
        self.gateway.scan().await;
        Ok(Value::Null)
    }
}

/// Changes one setting, also of a router that does not run. `app.` and a name are one of the app's own.
///
/// # Errors
/// If there is no such setting, or its value is not valid.
pub fn set(settings: &Settings, key: &str, value: Value) -> Result<(), CommandError> {
    let (key, inner) = match key.split_once('.') {
        Some(("app", inner)) => ("app", Some(inner)),
        _ => (key, None),
    };
    if !config::defaults().contains_key(key) {
        let message = format!("`{key}` is not a setting that can be changed here");
        return Err(CommandError::new("unknownSetting", message).hint("the command `settings` lists them"));
    }
    settings.change(|written| {
        let Some(inner) = inner else {
            put(written, key, value);
            return Ok(());
        };
        match written.entry(key).or_insert_with(|| Value::Object(Map::new())) {
            Value::Object(app) => put(app, inner, value),
            _ => return Err(CommandError::new("badValue", "`app` is not an object")),
        }
        Ok(())
    })
}

/// Puts a value in its place; null takes the key out, which makes it the default.
pub(super) fn put(written: &mut Written, key: &str, value: Value) {
    match value {
        // What follows keeps its order.
        Value::Null => drop(written.shift_remove(key)),
        value => drop(written.insert(key.to_owned(), value)),
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        let code = match &error {
            ConfigError::File { .. } => "file",
            ConfigError::Form { .. } | ConfigError::Value { .. } => "badValue",
        };
        Self::new(code, error.to_string())
    }
}
