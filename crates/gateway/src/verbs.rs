//! What each command does to a running router. Wishes of the owner's go into the settings file, where a person would
//! write them, and count from then on.

mod devices;
mod history;
mod seats;
mod settings;

use std::net::SocketAddr;
use std::sync::Arc;

use pool::Observation;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::control::{Command, CommandError, Reply};
use crate::listen::{Door, Doors};
use crate::selftest::{self, Step};
use crate::snapshot::{self, Snapshot};
use crate::store::Wanted;
use crate::{Gateway, addresses};

pub use devices::addresses_answer;
pub use settings::set;

/// How many requests or switches are told at most.
const MOST: u32 = 10_000;

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
        let (open, closed): (Vec<_>, Vec<_>) = self
            .doors
            .states()
            .into_iter()
            .partition(|(_, door)| *door == Door::Open);
        let open: Vec<SocketAddr> = open.into_iter().map(|(address, _)| address).collect();
        let mut snapshot = self.gateway.snapshot(&open, self.sandbox);
        snapshot.address = snapshot::address(&open, &addresses::here());
        snapshot.waiting = closed.iter().map(|(address, _)| address.to_string()).collect();
        snapshot.problems.extend(snapshot::door_problems(&closed));
        snapshot
    }

    /// Does what `command` says. Run it on the router's own runtime.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn command(self: Arc<Self>, command: Command) -> Reply {
        match command {
            Command::Status => reply(self.snapshot()),
            Command::Stop => {
                self.stop.notify_one();
                Ok(Value::Null)
            }
            Command::Stir => {
                self.gateway.driver().stir();
                Ok(Value::Null)
            }
            Command::Rescan => {
                self.gateway.driver.look_at_files().await;
                self.gateway.look_again().await;
                match self.gateway.settings.refused() {
                    Some(why) => Err(CommandError::new("settings", why)
                        .hint("the logins were looked at; the settings from before stay in force")),
                    None => Ok(Value::Null),
                }
            }
            Command::Test => reply(self.test().await),

            Command::Pause { seat: Some(seat) } => self.wish(&seat, [("enabled", false.into())]).await,
            Command::Resume { seat: Some(seat) } => {
                let neither = [("enabled", Value::Null), ("draining", Value::Null)];
                self.wish(&seat, neither).await
            }
            Command::Drain { seat } => self.wish(&seat, [("draining", true.into())]).await,
            Command::Reserve { seat, percent } => self.wish(&seat, [("reservePct", json!(percent))]).await,
            Command::Limit { seat, percent } => self.wish(&seat, [("limitPct", json!(percent))]).await,
            Command::ExtraUsage { seat, policy } => self.wish(&seat, [("extraUsage", json!(policy))]).await,
            Command::Rename { seat, name } => {
                let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
                self.wish(&seat, [("name", json!(name))]).await
            }
            Command::Order { seats } => self.order(&seats).await,
            Command::TryNow { seat } => {
                let id = self.seat(&seat)?;
                self.gateway.scheduler().observe(&id, Observation::TryNow);
                Ok(Value::Null)
            }

            Command::Pause { seat: None } => self.set("paused".into(), true.into()).await,
            Command::Resume { seat: None } => self.set("paused".into(), Value::Null).await,
            Command::Settings => self.settings().await,
            Command::Set { key, value } => self.set(key, value).await,

            Command::Requests {
                limit,
                before,
                seat,
                device,
                failed,
            } => {
                let wanted = Wanted {
                    limit: limit.min(MOST),
                    before,
                    seat: seat.map(|seat| self.seat(&seat)).transpose()?,
                    device: device
                        .map(|device| self.gateway.devices().named(&device).map(|device| device.id))
                        .transpose()?,
                    failed,
                };
                self.requests(wanted).await
            }
            Command::Switches { limit } => self.switches(limit.min(MOST)).await,
            Command::Why { request } => self.why(request).await,
            Command::UsageHistory { seat, hours } => self.usage(self.seat(&seat)?, hours).await,
            Command::Tokens { days } => self.tokens(days).await,

            Command::Devices => reply(self.gateway.devices().list()),
            Command::AddDevice { name, seats } => self.add_device(name, seats).await,
            Command::RevokeDevice { id } => {
                let gateway = self.gateway.clone();
                reply(blocking(move || Ok(gateway.revoke(&id)?)).await?)
            }
            Command::RenameDevice { id, name } => {
                let devices = Arc::clone(self.gateway.devices());
                reply(blocking(move || Ok(devices.rename(&id, &name)?)).await?)
            }
            Command::LimitDevice { id, seats } => {
                let (seats, devices) = (self.seats(seats)?, Arc::clone(self.gateway.devices()));
                reply(blocking(move || Ok(devices.limit(&id, seats.as_deref())?)).await?)
            }
            Command::Addresses => self.addresses(),
            Command::Connect {
                device,
                key,
                mode,
                form,
            } => self.connect(device.as_deref(), key, mode, form),
        }
    }

    /// Tries the way that a device's request takes.
    async fn test(&self) -> Vec<Step> {
        let at = self.doors.those(Door::Open);
        let config = self.gateway.settings.now();
        selftest::run(&at, &config.router_key, self.gateway.router()).await
    }
}

fn reply(value: impl Serialize) -> Reply {
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
