//! The router: it lets the owner's devices in, gives each request to the seat with room to spare, and hands on what
//! comes back as it came.
//!
//! [`Gateway`] is the whole of it on whatever runtime it is given; [`start`] runs one on a thread of its own, with real
//! sockets. A test gives it other [`ports`] and no sockets at all.
//!
//! The order of the modules is the order of the layers: a module uses only those above it.

#![deny(unsafe_code)]

pub mod ports;
pub mod paths;
pub mod file;
mod key;
pub mod config;
pub mod decode;
pub mod meter;
pub mod peek;
pub mod settings;
pub mod record;
pub mod store;
pub mod recorder;
pub mod profile;
pub mod lock;
pub mod reads;
pub mod items;
pub mod credential;
pub mod anthropic;
pub mod security;
pub mod keychain;
pub mod ledger;
pub mod scheduler;
pub mod keeper;
pub mod usage;
pub mod refresh;
pub mod roster;
pub mod addresses;
pub mod connect;
pub mod listen;
pub mod holder;
pub mod ping;
pub mod devices;
pub mod connections;
pub mod owners;
pub mod receipt;
pub mod body;
pub mod error;
pub mod gate;
pub mod forward;
pub mod answer;
pub mod proxy;
pub mod snapshot;
pub mod control;
pub mod instance;
pub mod log;
pub mod doctor;
pub mod service;
pub mod serve;
pub mod delegate;
pub mod driver;
pub mod selftest;
pub mod verbs;
pub mod workers;
mod start;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pool::Pool;
use pool::standing::{Out, Tier};

pub use start::{Handle, StartError, start};

use crate::config::Config;
use crate::connections::Connections;
use crate::credential::Store;
use crate::devices::{DeviceError, DeviceView, Devices};
use crate::driver::Driver;
use crate::gate::Names;
use crate::keeper::Keeper;
use crate::ledger::Ledger;
use crate::paths::Paths;
use crate::ports::{Clock, Network, SystemClock, Upstream, UpstreamProxy};
use crate::proxy::Proxy;
use crate::reads::Reads;
use crate::receipt::Books;
use crate::recorder::{Recorder, Remembered};
use crate::refresh::Renewer;
use crate::roster::Roster;
use crate::scheduler::Scheduler;
use crate::settings::Settings;
use crate::snapshot::Snapshot;

/// What the gateway needs of the outside.
#[derive(Clone)]
pub struct Ports {
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The network of the request path.
    pub network: Arc<Network>,
    /// The network of our own calls.
    pub calls: Upstream,
    /// The proxy that both go through, if the settings name one.
    pub upstream_proxy: UpstreamProxy,
    /// Where logins are kept.
    pub store: Arc<dyn Store>,
    /// The zone of the times that people read.
    pub zone: TimeZone,
    /// Decides ties and jitter.
    pub seed: u64,
}

/// Why this machine's network cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// The system does not tell whom it trusts.
    #[error("cannot use the system's trust store")]
    Trust(#[from] rustls::Error),
    /// The client of our own calls cannot be made.
    #[error("cannot make a client of the network")]
    Client(#[from] reqwest::Error),
}

impl Ports {
    /// This machine's clock, zone and network, with TLS only where something is reached by it, and that `store`.
    ///
    /// # Errors
    /// If the network cannot be used.
    pub fn of_this_machine(config: &Config, store: Arc<dyn Store>) -> Result<Self, PortsError> {
        let secure = [&config.upstream, &config.token_url]
            .iter()
            .any(|url| url.scheme_str() == Some("https"));
        let tls = match secure {
            true => ports::system_tls()?,
            false => ports::no_tls(),
        };
        let upstream_proxy = UpstreamProxy::default();
        Ok(Self {
            clock: Arc::new(SystemClock),
            calls: ports::own_calls(tls.clone(), &upstream_proxy)?,
            network: Arc::new(Network::new({
                let proxy = upstream_proxy.clone();
                move || ports::pooled(tls.clone(), &proxy)
            })),
            upstream_proxy,
            store,
            zone: TimeZone::system(),
            seed: chance(),
        })
    }
}

/// The router without its sockets.
#[derive(Clone)]
pub struct Gateway {
    proxy: Arc<Proxy>,
    driver: Driver,
    started_at: Timestamp,
    connections: Connections,
    settings: Arc<Settings>,
    recorder: Arc<Recorder>,
}

impl Gateway {
    /// A router with those settings. It knows no seats until [`Gateway::scan`] or its driver has looked.
    pub fn new(config: Config, paths: &Paths, ports: Ports) -> Self {
        let started_at = ports.clock.now();
        let (recorder, remembered) = match paths.store.clone() {
            Some(path) => Recorder::open(path, config.history_days > 0, Arc::clone(&ports.clock)),
            None => (Recorder::nowhere(), Remembered::default()),
        };
        let recorder = Arc::new(recorder);
        let mut pool = Pool::new(driver::policy(&config), ports.seed);
        pool.recall(remembered.memory, ports.clock.now());
        let scheduler = Arc::new(Scheduler::new(pool, Arc::clone(&ports.clock)));
        let devices = Arc::new(Devices::load(&paths.devices(), &config.router_key));
        let settings = Arc::new(Settings::new(config, paths.config.clone()));
        let config = settings.now();
        ports.upstream_proxy.set(config.proxy.clone());
        let (ledger, reads) = (Ledger::new(paths.renewals()), Arc::<Reads>::default());
        let roster = Arc::new(Roster::new(
            Arc::clone(&settings),
            paths.clone(),
            Arc::clone(&scheduler),
            Arc::clone(&ports.store),
            ledger.clone(),
            Arc::clone(&reads),
        ));
        let keeper = Keeper {
            scheduler: Arc::clone(&scheduler),
            recorder: Arc::clone(&recorder),
            settings: Arc::clone(&settings),
        };
        let driver = Driver {
            scheduler: Arc::clone(&scheduler),
            roster: Arc::clone(&roster),
            settings: Arc::clone(&settings),
            devices: Arc::clone(&devices),
            keeper,
            home: paths.home.clone(),
            network: Arc::clone(&ports.network),
            upstream_proxy: ports.upstream_proxy,
            calls: ports.calls.clone(),
            origin: config.upstream.clone(),
            renewer: Renewer {
                store: ports.store,
                ledger,
                calls: ports.calls,
                token_url: config.token_url.clone(),
                clock: ports.clock,
                grace: Arc::default(),
                reads,
            },
            shared: Arc::default(),
        };
        let books = Books::new(Arc::clone(&recorder), Arc::clone(&scheduler), remembered.owners);
        let proxy = Proxy {
            scheduler,
            roster,
            network: ports.network,
            origin: config.upstream.clone(),
            devices,
            names: Names::new(machine_names()),
            zone: ports.zone,
            budget: Arc::default(),
            books: Arc::new(books),
            settings: Arc::clone(&settings),
        };
        Self {
            proxy: Arc::new(proxy),
            driver,
            started_at,
            connections: Connections::default(),
            settings,
            recorder,
        }
    }

    /// The routes that devices see.
    pub fn router(&self) -> axum::Router {
        proxy::router(Arc::clone(&self.proxy))
    }

    /// Looks for logins once.
    pub async fn scan(&self) {
        self.proxy.roster.scan().await;
    }

    /// Looks at every login anew, as its owner asks: whoever said no to macOS before is asked again.
    pub async fn look_again(&self) {
        self.proxy.roster.look_again().await;
    }

    /// What goes on aside from requests.
    pub fn driver(&self) -> Driver {
        self.driver.clone()
    }

    /// The directories whose renewed login is in memory only.
    pub fn unsaved_dirs(&self) -> Vec<PathBuf> {
        self.proxy
            .roster
            .waiting()
            .into_iter()
            .map(|(profile, _)| profile.dir)
            .collect()
    }

    /// The owner's devices.
    pub fn devices(&self) -> &Arc<Devices> {
        &self.proxy.devices
    }

    /// The connections that devices have open.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Shuts a device out: its key opens nothing more, and its running answers are cut.
    ///
    /// # Errors
    /// If there is no such device, it is the first, or nothing can be saved.
    pub fn revoke(&self, device: &str) -> Result<DeviceView, DeviceError> {
        let revoked = self.proxy.devices.revoke(device)?;
        self.connections.cut(&revoked.id);
        tracing::info!("the device `{}` was shut out", revoked.name);
        Ok(revoked)
    }

    /// Writes down what is known, when the router stops.
    pub async fn close_books(&self) {
        let keeper = self.driver.keeper.clone();
        let _ = tokio::task::spawn_blocking(move || keeper.close()).await;
    }

    /// Takes down what should outlast the process.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// The settings in force.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// The pool, for those who watch it.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.proxy.scheduler
    }

    /// What each seat would be to `request` now, for people.
    pub fn standings(&self, request: &pool::Request) -> serde_json::Value {
        let labels = self.proxy.roster.seats();
        let stand = |(id, stands): (&pool::AccountId, Result<Tier, Out>)| {
            let words = match stands {
                Ok(Tier::Ready) => "can serve".to_owned(),
                Ok(Tier::Braked) => "can serve; as many start on it as it may take".to_owned(),
                Ok(Tier::NearlyFull) => "can serve, but is nearly full or over its threshold".to_owned(),
                Ok(Tier::Marked) => "can serve, but failed lately, or its plan may lack this".to_owned(),
                Ok(Tier::SetAside) => "its plan is used up; it serves beyond it when nobody else is left".to_owned(),
                Ok(Tier::LastResort(_)) => "rests; it is tried when nobody else is left".to_owned(),
                Err(out) => out.to_string(),
            };
            let label = labels.get(id).map_or_else(|| id.to_string(), |seat| seat.label.clone());
            serde_json::json!({"id": id.as_str(), "seat": label, "words": words})
        };
        self.proxy
            .scheduler
            .look(|pool, now| pool.standings(request, now).map(stand).collect())
    }

    /// The router as it is now. `listening` and `sandbox` are told by whoever opened the sockets, who alone can add the
    /// address for devices and what keeps a socket closed.
    pub fn snapshot(&self, listening: &[SocketAddr], sandbox: bool) -> Snapshot {
        let (seats, reads) = (self.proxy.roster.seats(), self.driver.renewer.reads.all());
        // Before the pool is looked at: it may wait for a change that is being saved.
        let damage = self.proxy.devices.damage();
        self.proxy.scheduler.look(|pool, now| {
            let mut snapshot = snapshot::of(pool, &seats, now);
            snapshot.started_at = Some(self.started_at.as_second());
            snapshot.listening = listening.iter().map(ToString::to_string).collect();
            snapshot.sandbox = sandbox;
            snapshot.routing.paused = self.settings.now().paused;
            snapshot.devices = self.proxy.devices.list();
            snapshot.switches = self.recorder.last_switches().into_iter().map(Into::into).collect();
            let requests = self.recorder.last_hour(snapshot.now);
            let refused_at = self.recorder.last_refused();
            snapshot.activity = Some(snapshot::activity(
                &snapshot.devices,
                requests,
                refused_at,
                snapshot.now,
            ));
            snapshot.problems.extend(snapshot::devices_problem(damage));
            snapshot
                .problems
                .extend(snapshot::settings_problem(self.settings.refused()));
            snapshot
                .problems
                .extend(snapshot::store_problem(self.recorder.trouble()));
            snapshot.reads = reads.into_iter().map(|read| snapshot::read(read, &seats)).collect();
            snapshot
        })
    }
}

/// A seed from the system.
pub fn chance() -> u64 {
    getrandom::u64().unwrap_or_default()
}

/// The names this machine goes by.
fn machine_names() -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = host.split('.').next().unwrap_or_default().to_owned();
    vec![format!("{short}.local"), short, host]
}
