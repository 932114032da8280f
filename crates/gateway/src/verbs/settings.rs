//! The settings: shown, and changed one by one.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::process;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Running, blocking};
use crate::config::{self, Config, ConfigError};
use crate::control::{CommandError, Reply};
use crate::holder;
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
        match key.as_str() {
            "host" | "port" => self.listen_as(key, value).await,
            _ => self.change(change_of(&key, value)?).await,
        }
    }

    /// Changes where it listens, once it is known that it can: the ports that are open now would be lost for nothing.
    /// Tells which addresses have to be waited for.
    async fn listen_as(&self, key: String, value: Value) -> Reply {
        let (settings, doors) = (Arc::clone(&self.gateway.settings), self.doors.clone());
        let change = change_of(&key, value)?;
        let try_out = move |config: &Config| {
            let wanted = config.addresses();
            let absent = doors
                .try_out(&wanted)
                .map_err(|(address, error)| no_port(address, &error, &wanted))?;
            Ok((wanted, absent))
        };
        let (wanted, absent) = blocking(move || settings.change_if(change, try_out)).await?;
        self.doors.follow(wanted);
        self.apply_settings().await?;
        match absent.is_empty() {
            true => Ok(Value::Null),
            false => Ok(json!({"waiting": absent})),
        }
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
    settings.change(change_of(key, value)?)
}

/// The change that makes one setting what `value` says.
fn change_of(
    key: &str,
    value: Value,
) -> Result<impl FnOnce(&mut Written) -> Result<(), CommandError> + use<>, CommandError> {
    let (key, inner) = match key.split_once('.') {
        Some(("app", inner)) => ("app", Some(inner.to_owned())),
        _ => (key, None),
    };
    if !config::defaults().contains_key(key) {
        let message = format!("`{key}` is not a setting that can be changed here");
        return Err(CommandError::new("unknownSetting", message).hint("the command `settings` lists them"));
    }
    let key = key.to_owned();
    Ok(move |written: &mut Written| {
        let Some(inner) = inner else {
            put(written, &key, value);
            return Ok(());
        };
        match written.entry(key).or_insert_with(|| Value::Object(Map::new())) {
            Value::Object(app) => put(app, &inner, value),
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

/// Why that address cannot be listened on, of those that were wanted.
fn no_port(address: SocketAddr, error: &io::Error, wanted: &[SocketAddr]) -> CommandError {
    let port = address.port();
    if error.kind() != ErrorKind::AddrInUse {
        let message = format!("the system refuses to listen on {address}: {}", error.kind());
        return CommandError::new("portRefused", message);
    }
    // The router itself may have the port at another address; whoever has this one is not told then.
    let holder = holder::of(port).filter(|holder| holder.pid != process::id());
    let who = holder.map_or_else(|| "another program".into(), |holder| holder.to_string());
    let busy = CommandError::new("portBusy", format!("port {port} is taken by {who}"));
    match holder::free_port(wanted) {
        Some(free) => busy.hint(format!("{free} is free")),
        None => busy,
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
