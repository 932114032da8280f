//! What each command does to a running router. Wishes of the owner's go into the settings file, where a person would
//! write them, and count from then on.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pool::AccountId;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::Gateway;
use crate::addresses::{self, Candidate};
use crate::config::{self, ConfigError};
use crate::connect::{self, Form, Link, Mode};
use crate::control::{Command, CommandError, Reply};
use crate::devices::{DeviceError, FIRST};
use crate::listen::{Door, Doors};
use crate::roster::NotOne;
use crate::selftest::{self, Step};
use crate::settings::{self, Settings, Written};
use crate::snapshot::{Problem, ProblemKind, Snapshot};

/// A router with its sockets open.
pub struct Running {
    /// The router.
    pub gateway: Gateway,
    /// Where it listens.
    pub doors: Doors,
    /// Whether its seats are made up.
    pub sandbox: bool,
    /// Told when it is to stop.
    pub stop: Arc<Notify>,
}

impl Running {
    /// The router as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.gateway.snapshot(&self.doors.those(Door::Open), self.sandbox);
        let problem = |door, kind, words: fn(SocketAddr) -> String| {
            self.doors.those(door).into_iter().map(move |address| Problem {
                kind,
                words: words(address),
                address: Some(address.to_string()),
                holder: None,
                since: None,
            })
        };
        snapshot
            .problems
            .extend(problem(Door::Taken, ProblemKind::PortBusy, |address| {
                format!("another program listens on {address}")
            }));
        snapshot
            .problems
            .extend(problem(Door::Waiting, ProblemKind::AddressGone, |address| {
                format!("{} is not an address of this machine now", address.ip())
            }));
        snapshot
    }

    /// Does what `command` says. Run it on the router's own runtime.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn command(self: Arc<Self>, command: Command) -> Reply {
        match command {
            Command::Status => json(self.snapshot()),
            Command::Stop => {
                self.stop.notify_one();
                Ok(Value::Null)
            }
            Command::Stir => {
                self.gateway.driver().stir();
                Ok(Value::Null)
            }
            Command::Rescan => {
                self.gateway.look_again().await;
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
            Command::Devices => json(self.gateway.devices().list()),
            Command::AddDevice { name, seats } => {
                let (seats, now) = (self.seats(seats)?, self.gateway.scheduler().now().as_second());
                let devices = Arc::clone(self.gateway.devices());
                let (device, key) = blocking(move || Ok(devices.add(&name, seats, now)?)).await?;
                tracing::info!("the device `{}` was added", device.name);
                let mut reply = json(device)?;
                reply["key"] = key.into();
                Ok(reply)
            }
            Command::RevokeDevice { id } => {
                let gateway = self.gateway.clone();
                json(blocking(move || Ok(gateway.revoke(&id)?)).await?)
            }
            Command::RenameDevice { id, name } => {
                let devices = Arc::clone(self.gateway.devices());
                json(blocking(move || Ok(devices.rename(&id, &name)?)).await?)
            }
            Command::LimitDevice { id, seats } => {
                let (seats, devices) = (self.seats(seats)?, Arc::clone(self.gateway.devices()));
                json(blocking(move || Ok(devices.limit(&id, seats)?)).await?)
            }
            Command::Addresses => {
                let candidates = here();
                let url = self.url(&candidates);
                Ok(json!({"candidates": json(candidates)?, "url": url}))
            }
            Command::Test => json(self.test().await),
            Command::Connect {
                device,
                key,
                mode,
                form,
            } => self.connect(device.as_deref(), key, mode, form),
            Command::Settings => {
                let settings = Arc::clone(&self.gateway.settings);
                let shown = blocking(move || settings.shown().map_err(CommandError::from)).await?;
                Ok(Value::Object(shown))
            }
            Command::Set { key, value } => self.set(key, value).await,
        }
    }

    /// The block to copy on that device.
    fn connect(&self, device: Option<&str>, key: Option<String>, mode: Mode, form: Form) -> Reply {
        let devices = self.gateway.devices();
        let holder = match (&key, device) {
            (Some(key), _) => devices.with_key(key.as_bytes()).map(|device| device.view()),
            (None, Some(named)) => Some(devices.named(named)?),
            (None, None) => None,
        };
        // In login mode Anthropic sees the key, and the settings' own cannot be revoked alone.
        if mode == Mode::Login && holder.is_some_and(|device| device.id == FIRST) {
            let error = CommandError::new(
                "firstDevice",
                "Anthropic sees the key of a device in login mode, so it is never the settings' own",
            );
            return Err(error.hint("add a device for it"));
        }
        let url = self.url(&here());
        let link = key.clone().map(|key| {
            Link {
                url: url.clone(),
                key,
                mode,
            }
            .to_string()
        });
        let key = key.unwrap_or_else(|| "<the device's key>".into());
        Ok(json!({
            "url": url,
            "block": connect::block(&url, &key, mode, form),
            "notes": connect::notes(mode),
            "link": link,
        }))
    }

    /// The address to tell another device.
    fn url(&self, candidates: &[Candidate]) -> String {
        let asked = self.doors.asked();
        let ips: Vec<IpAddr> = asked.iter().map(SocketAddr::ip).collect();
        let port = asked.first().map_or(config::PORT, SocketAddr::port);
        connect::url(addresses::best(&ips, candidates), port)
    }

    /// Tries the way that a device's request takes.
    async fn test(&self) -> Vec<Step> {
        let at = self.doors.those(Door::Open);
        let config = self.gateway.settings.now();
        selftest::run(&at, &config.router_key, self.gateway.router()).await
    }

    /// The ids of the seats that go by those names.
    fn seats(&self, names: Option<Vec<String>>) -> Result<Option<Vec<String>>, CommandError> {
        let id = |name: &String| self.seat(name).map(|id| id.to_string());
        names.map(|names| names.iter().map(id).collect()).transpose()
    }

    /// Changes one setting.
    async fn set(&self, key: String, value: Value) -> Reply {
        let settings = Arc::clone(&self.gateway.settings);
        blocking(move || set(&settings, &key, value)).await?;
        self.gateway.scan().await;
        Ok(Value::Null)
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

/// Changes one setting, also of a router that does not run. `app.` and a name are one of the app's own.
///
/// # Errors
/// If there is no such setting, or its value is not valid.
pub fn set(settings: &Settings, key: &str, value: Value) -> Result<(), CommandError> {
    let (key, inner) = match key.split_once('.') {
        Some(("app", inner)) => ("app", Some(inner)),
        _ => (key, None),
    };
    if !settings::defaults().contains_key(key) {
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

impl From<DeviceError> for CommandError {
    fn from(error: DeviceError) -> Self {
        let code = match &error {
            DeviceError::Unknown(_) => "unknownDevice",
            DeviceError::NameTaken(_) => "nameTaken",
            DeviceError::BadName => "badName",
            DeviceError::First => "firstDevice",
            DeviceError::Damaged { .. } | DeviceError::File { .. } => "file",
        };
        Self::new(code, error.to_string())
    }
}

/// The addresses worth offering now.
fn here() -> Vec<Candidate> {
    addresses::candidates(&addresses::list().unwrap_or_default())
}

fn json(value: impl Serialize) -> Reply {
    serde_json::to_value(value).map_err(|error| CommandError::new("internal", error.to_string()))
}

/// Runs what waits for the disk where that holds up nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommandError> + Send + 'static,
) -> Result<T, CommandError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| CommandError::new("stopping", "the router is stopping"))?
}
