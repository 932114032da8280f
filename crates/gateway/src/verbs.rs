//! What each command does to a running router. Wishes of the owner's go into the settings file, where a person would
//! write them, and count from then on.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Conversation, Observation, WindowKind};
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
use crate::meter::Tokens;
use crate::record::{Attempt, Cause, End, RequestRecord, SwitchRecord};
use crate::roster::{NotOne, Roster};
use crate::selftest::{self, Step};
use crate::settings::{Settings, Written};
use crate::snapshot::{Problem, ProblemKind, Snapshot};
use crate::store::{History, StoreError, Wanted};

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
        let mut snapshot = self.gateway.snapshot(&self.doors.those(Door::Open), self.sandbox);
        let words = |door| self.doors.those(door).into_iter().map(|address| address.to_string());
        snapshot.waiting = words(Door::Waiting).chain(words(Door::Taken)).collect();
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
                self.gateway.driver.look_at_settings().await;
                self.gateway.look_again().await;
                Ok(Value::Null)
            }
            Command::Pause { seat: Some(seat) } => self.wish(&seat, [("enabled", false.into())]).await,
            Command::Resume { seat: Some(seat) } => {
                let neither = [("enabled", Value::Null), ("draining", Value::Null)];
                self.wish(&seat, neither).await
            }
            Command::Drain { seat } => self.wish(&seat, [("draining", true.into())]).await,
            Command::Order { seats } => self.order(&seats).await,
            Command::Reserve { seat, percent } => self.wish(&seat, [("reservePct", json!(percent))]).await,
            Command::ExtraUsage { seat, policy } => self.wish(&seat, [("extraUsage", json!(policy))]).await,
            Command::TryNow { seat } => {
                let id = self.seat(&seat)?;
                self.gateway.scheduler().observe(&id, Observation::TryNow);
                Ok(Value::Null)
            }
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
                let requests = self.history(move |history| history.requests(&wanted)).await?;
                json(
                    requests
                        .iter()
                        .map(|request| self.request_view(request))
                        .collect::<Vec<_>>(),
                )
            }
            Command::Switches { limit } => {
                let switches = self.history(move |history| history.switches(limit.min(MOST))).await?;
                json(
                    switches
                        .iter()
                        .map(|switch| self.switch_view(switch))
                        .collect::<Vec<_>>(),
                )
            }
            Command::Why { request } => self.why(request).await,
            Command::UsageHistory { seat, hours } => {
                let since = self.ago(SignedDuration::from_hours(hours.into()));
                let id = self.seat(&seat)?;
                let points = self.history(move |history| history.usage(&id, since)).await?;
                let point = |(ms, kind, used): (i64, WindowKind, u16)| json!({"at": ms / 1_000, "window": kind.word(), "usedBp": used});
                Ok(points.into_iter().map(point).collect())
            }
            Command::Tokens { days } => self.tokens(days).await,
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
                json(blocking(move || Ok(devices.limit(&id, seats.as_deref())?)).await?)
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
        let moves = matches!(key.as_str(), "host" | "port");
        let addresses = blocking(move || {
            set(&settings, &key, value)?;
            settings.addresses().map_err(CommandError::from)
        });
        let addresses = addresses.await?;
        if moves {
            self.doors.follow(addresses);
        }
        self.gateway.driver.apply_settings();
        self.gateway.scan().await;
        Ok(Value::Null)
    }

    /// Writes what the owner wants of one seat; null is what holds for all seats.
    async fn wish<const N: usize>(&self, seat: &str, wishes: [(&'static str, Value); N]) -> Reply {
        let id = self.seat(seat)?;
        let roster = Arc::clone(&self.gateway.proxy.roster);
        self.change(move |written| {
            let entry = entry_of(accounts(written)?, &id, &roster);
            for (key, value) in wishes {
                put(entry, key, value);
            }
            Ok(())
        })
        .await
    }

    /// Writes the owner's order of the seats.
    async fn order(&self, seats: &[String]) -> Reply {
        let ids = seats
            .iter()
            .map(|seat| self.seat(seat))
            .collect::<Result<Vec<_>, _>>()?;
        let roster = Arc::clone(&self.gateway.proxy.roster);
        self.change(move |written| {
            let accounts = accounts(written)?;
            for entry in accounts.iter_mut().filter_map(Value::as_object_mut) {
                put(entry, "order", Value::Null);
            }
            for (place, id) in (1..).zip(&ids) {
                put(entry_of(accounts, id, &roster), "order", Value::from(place));
            }
            Ok(())
        })
        .await
    }

    /// Reads the history, with all that happened until now in it.
    async fn history<T: Send + 'static>(
        &self,
        read: impl FnOnce(History) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, CommandError> {
        let recorder = Arc::clone(&self.gateway.recorder);
        let read = move || {
            recorder
                .history_now()
                .and_then(read)
                .map_err(|error| CommandError::new("noHistory", format!("the history cannot be read: {error}")))
        };
        blocking(read).await
    }

    /// Why that request, or the last one, went where it went.
    async fn why(&self, number: Option<i64>) -> Reply {
        let one = Wanted {
            limit: 1,
            ..Wanted::default()
        };
        let found = self
            .history(move |history| match number {
                Some(number) => history.request(number),
                None => Ok(history.requests(&one)?.pop()),
            })
            .await?;
        let Some(record) = found else {
            let error = CommandError::new("unknownRequest", "there is no such request in the history");
            return Err(error.hint("`requests` lists them; `historyDays` says how long they are kept"));
        };
        let (number, at) = (record.number, record.at);
        let switches = self.history(move |history| history.switches_of(number)).await?;
        let mut view = json(self.request_view(&record))?;
        view["switches"] = switches.iter().map(|switch| json!(self.switch_view(switch))).collect();
        let model = record.model.clone();
        let request = pool::Request {
            conversation: record.conversation.map(Conversation),
            model,
            ..pool::Request::default()
        };
        view["now"] = self.gateway.standings(&request);
        view["secondsAgo"] = json!((self.gateway.scheduler().now().as_millisecond() - at) / 1_000);
        Ok(view)
    }

    /// What requests cost, by day in the router's zone, device and model.
    async fn tokens(&self, days: u32) -> Reply {
        let since = self.ago(SignedDuration::from_hours(24 * i64::from(days)));
        let zone = self.gateway.proxy.zone.clone();
        let costs = self
            .history(move |history| {
                let mut costs: BTreeMap<(String, String, String), (u64, Tokens)> = BTreeMap::new();
                history.costs(since, |ms, device, model, tokens| {
                    let at = Timestamp::from_millisecond(ms).unwrap_or_default();
                    let day = zone.to_datetime(at).date().to_string();
                    let (requests, sum) = costs.entry((day, device, model)).or_default();
                    *requests += 1;
                    *sum = sum.and(tokens);
                })?;
                Ok(costs)
            })
            .await?;
        let line = |((day, device, model), (requests, tokens)): ((String, String, String), (u64, Tokens))| {
            json!({
                "day": day,
                "device": self.device_name(&device),
                "model": model,
                "requests": requests,
                "input": tokens.input,
                "output": tokens.output,
                "cacheRead": tokens.cache_read,
                "cacheWrite": tokens.cache_write,
            })
        };
        Ok(costs.into_iter().map(line).collect())
    }

    fn request_view(&self, record: &RequestRecord) -> RequestView {
        RequestView {
            number: record.number,
            at: record.at / 1_000,
            device: self.device_name(&record.device),
            path: record.path.clone(),
            model: record.model.clone(),
            seat: record.seat.as_ref().map(|seat| self.gateway.proxy.roster.label(seat)),
            status: record.status,
            reason: record.reason.clone(),
            tokens: record.tokens,
            head_ms: record.head_ms,
            whole_ms: record.whole_ms,
            end: record.end,
            retries: record.attempts.len(),
            attempts: record
                .attempts
                .iter()
                .map(|attempt| self.attempt_view(attempt))
                .collect(),
        }
    }

    fn attempt_view(&self, attempt: &Attempt) -> Attempt {
        Attempt {
            seat: self.gateway.proxy.roster.label(&AccountId::new(&attempt.seat)),
            ..attempt.clone()
        }
    }

    fn switch_view(&self, switch: &SwitchRecord) -> SwitchView {
        let label = |id| self.gateway.proxy.roster.label(id);
        SwitchView {
            at: switch.at / 1_000,
            request: switch.request,
            from: label(&switch.from),
            to: label(&switch.to),
            cause: switch.cause,
            words: switch.words.clone(),
        }
    }

    /// What its owner calls a device; its id where it is gone.
    fn device_name(&self, id: &str) -> String {
        self.gateway
            .devices()
            .named(id)
            .map_or_else(|_| id.to_owned(), |device| device.name)
    }

    fn ago(&self, time: SignedDuration) -> Timestamp {
        self.gateway.scheduler().now().saturating_sub(time).unwrap_or_default()
    }

    /// Changes the settings, and looks at the seats again with the new ones.
    async fn change(&self, change: impl FnOnce(&mut Written) -> Result<(), CommandError> + Send + 'static) -> Reply {
        let settings = Arc::clone(&self.gateway.settings);
        blocking(move || settings.change(change)).await?;
        self.gateway.driver.apply_settings();
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

/// A request as its owner sees it. The time is seconds since the epoch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestView {
    number: i64,
    at: i64,
    device: String,
    path: String,
    model: Option<String>,
    seat: Option<String>,
    status: u16,
    reason: String,
    tokens: Option<Tokens>,
    head_ms: u64,
    whole_ms: u64,
    end: End,
    retries: usize,
    attempts: Vec<Attempt>,
}

/// A switch as its owner sees it. The time is seconds since the epoch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SwitchView {
    at: i64,
    request: i64,
    from: String,
    to: String,
    cause: Cause,
    words: String,
}

/// The settings' `accounts`, made if there are none.
fn accounts(written: &mut Written) -> Result<&mut Vec<Value>, CommandError> {
    match written.entry("accounts").or_insert_with(|| json!([])) {
        Value::Array(accounts) => Ok(accounts),
        _ => Err(CommandError::new("badValue", "`accounts` is not a list")),
    }
}

/// The entry of that seat, made if there is none.
fn entry_of<'a>(accounts: &'a mut Vec<Value>, id: &AccountId, roster: &Roster) -> &'a mut Written {
    let known = accounts
        .iter()
        .position(|entry| entry.is_object() && roster.is_meant(id, entry));
    let place = known.unwrap_or(accounts.len());
    if known.is_none() {
        accounts.push(json!({"seat": id.as_str()}));
    }
    match &mut accounts[place] {
        Value::Object(entry) => entry,
        _ => unreachable!("it is an object, or was made one"),
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
