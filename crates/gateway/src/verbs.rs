//! What each command does to a running router. Wishes of the owner's go into the settings file, where a person would
//! write them, and count from then on.

use std::net::SocketAddr;
use std::sync::Arc;

use pool::AccountId;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::Gateway;
use crate::config::ConfigError;
use crate::control::{Command, CommandError, Reply};
use crate::roster::NotOne;
use crate::settings::{self, Written};
use crate::snapshot::Snapshot;

/// A router with its sockets open.
pub struct Running {
    /// The router.
    pub gateway: Gateway,
    /// Where it listens.
    pub listening: Vec<SocketAddr>,
    /// Whether its seats are made up.
    pub sandbox: bool,
    /// Told when it is to stop.
    pub stop: Arc<Notify>,
}

impl Running {
    /// The router as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.gateway.snapshot(&self.listening, self.sandbox)
    }

    /// Does what `command` says. Run it on the router's own runtime.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn command(self: Arc<Self>, command: Command) -> Reply {
        match command {
            Command::Status => serde_json::to_value(self.snapshot()).map_err(unwritable),
            Command::Stop => {
                self.stop.notify_one();
                Ok(Value::Null)
            }
            Command::Stir => {
                self.gateway.driver().stir();
                Ok(Value::Null)
            }
            Command::Rescan => {
                self.gateway.scan().await;
                Ok(Value::Null)
            }
            Command::Pause { seat: Some(seat) } => self.wish(&seat, [("enabled", false.into())]).await,
            Command::Resume { seat: Some(seat) } => self.wish(&seat, [("enabled", Value::Null)]).await,
            Command::Pause { seat: None } => self.set("paused".into(), true.into()).await,
            Command::Resume { seat: None } => self.set("paused".into(), Value::Null).await,
            Command::Rename { seat, name } => {
                let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
                self.wish(&seat, [("name", json!(name))]).await
            }
            Command::Limit { seat, percent } => self.wish(&seat, [("limitPct", json!(percent))]).await,
            Command::Settings => {
                let settings = Arc::clone(&self.gateway.settings);
                let shown = blocking(move || settings.shown().map_err(CommandError::from)).await?;
                Ok(Value::Object(shown))
            }
            Command::Set { key, value } => self.set(key, value).await,
        }
    }

    /// Changes one setting.
    async fn set(&self, key: String, value: Value) -> Reply {
        let (key, inner) = match key.split_once('.') {
            Some(("app", inner)) => ("app".to_owned(), Some(inner.to_owned())),
            _ => (key, None),
        };
        if !settings::defaults().contains_key(&key) {
            let error = CommandError::new(
                "unknownSetting",
                format!("`{key}` is not a setting that can be changed here"),
            );
            return Err(error.hint("the command `settings` lists them"));
        }
        self.change(move |written| {
            match inner {
                None => put(written, &key, value),
                Some(inner) => {
                    let app = written.entry(key).or_insert_with(|| Value::Object(Map::new()));
                    match app {
                        Value::Object(app) => put(app, &inner, value),
                        _ => return Err(CommandError::new("badValue", "`app` is not an object")),
                    }
                }
            }
            Ok(())
        })
        .await
    }

    /// Writes what the owner wants of one seat; null is what holds for all seats.
    async fn wish<const N: usize>(&self, seat: &str, wishes: [(&'static str, Value); N]) -> Reply {
        let id = self.seat(seat)?;
        let roster = Arc::clone(&self.gateway.proxy.roster);
        self.change(move |written| {
            let accounts = written.entry("accounts").or_insert_with(|| json!([]));
            let Value::Array(accounts) = accounts else {
                return Err(CommandError::new("badValue", "`accounts` is not a list"));
            };
            let known = accounts.iter().position(|entry| roster.is_meant(&id, entry));
            let place = known.unwrap_or_else(|| {
                accounts.push(json!({"seat": id.as_str()}));
                accounts.len() - 1
            });
            if let Some(Value::Object(entry)) = accounts.get_mut(place) {
                for (key, value) in wishes {
                    put(entry, key, value);
                }
            }
            Ok(())
        })
        .await
    }

    /// Changes the settings, and looks at the seats again with the new ones.
    async fn change(&self, change: impl FnOnce(&mut Written) -> Result<(), CommandError> + Send + 'static) -> Reply {
        let settings = Arc::clone(&self.gateway.settings);
        blocking(move || settings.change(change)).await?;
        self.gateway.scan().await;
        Ok(Value::Null)
    }

    /// The seat that goes by that name.
    fn seat(&self, name: &str) -> Result<AccountId, CommandError> {
        self.gateway.proxy.roster.named(name).map_err(|not_one| match not_one {
            NotOne::None => {
                CommandError::new("unknownSeat", format!("no seat goes by `{name}`")).hint("`status` lists the seats")
            }
            NotOne::Several => CommandError::new("severalSeats", format!("several seats go by `{name}`"))
                .hint("`status --json` has the id of each"),
        })
    }
}

/// Puts a value in its place; null takes the key out, which makes it the default.
fn put(written: &mut Written, key: &str, value: Value) {
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

fn unwritable(error: serde_json::Error) -> CommandError {
    CommandError::new("internal", error.to_string())
}

/// Runs what waits for the disk where that holds up nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommandError> + Send + 'static,
) -> Result<T, CommandError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| CommandError::new("stopping", "the router is stopping"))?
}
