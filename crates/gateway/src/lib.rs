//! The router: it lets the owner's devices in, gives each request to the seat with the most room, and hands on what
//! comes back as it came.
//!
//! [`Gateway`] is the whole of it on whatever runtime it is given; [`start`] runs one on a thread of its own, with real
//! sockets. A test gives it other [`ports`] and no sockets at all.
//!
//! The order of the modules is the order of the layers: a module uses only those above it.

#![deny(unsafe_code)]

pub mod ports;
pub mod paths;
pub mod config;
pub mod settings;
pub mod anthropic;
pub mod decode;
pub mod peek;
pub mod file;
pub mod profile;
pub mod lock;
pub mod reads;
pub mod items;
pub mod credential;
pub mod security;
pub mod keychain;
pub mod ledger;
pub mod scheduler;
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
pub mod body;
pub mod error;
pub mod gate;
pub mod owners;
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
use std::sync::{Arc, Mutex};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use pool::{Policy, Pool};

pub use start::{Handle, StartError, start};

use crate::config::{Config, TokenRefresh};
use crate::connections::Connections;
use crate::credential::Store;
use crate::delegate::Claude;
use crate::devices::{DeviceError, DeviceView, Devices};
use crate::driver::Driver;
use crate::gate::Names;
use crate::ledger::Ledger;
use crate::paths::Paths;
use crate::ports::{Clock, Network, Upstream};
use crate::proxy::Proxy;
use crate::reads::Reads;
use crate::refresh::Renewer;
use crate::roster::Roster;
use crate::scheduler::Scheduler;
use crate::settings::Settings;
use crate::snapshot::{Read, Snapshot};

/// What the gateway needs of the outside.
#[derive(Clone)]
pub struct Ports {
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The network of the request path.
    pub network: Arc<Network>,
    /// The network of our own calls.
    pub calls: Upstream,
    /// Where logins are kept.
    pub store: Arc<dyn Store>,
    /// The zone of the times that people read.
    pub zone: TimeZone,
    /// Decides ties and jitter.
    pub seed: u64,
}

/// The router without its sockets.
#[derive(Clone)]
pub struct Gateway {
    proxy: Arc<Proxy>,
    driver: Driver,
    started_at: Timestamp,
    connections: Connections,
    settings: Arc<Settings>,
}

impl Gateway {
    /// A router with those settings. It knows no seats until [`Gateway::scan`] or its driver has looked.
    pub fn new(config: Config, paths: &Paths, ports: Ports) -> Self {
        let started_at = ports.clock.now();
        let policy = Policy {
            usage_interval: SignedDuration::from_secs(config.usage_poll_s.into()),
            renews: config.token_refresh != TokenRefresh::Nobody,
        };
        let scheduler = Arc::new(Scheduler::new(Pool::new(policy, ports.seed), Arc::clone(&ports.clock)));
        let devices = Arc::new(Devices::load(&paths.devices(), &config.router_key));
        let settings = Arc::new(Settings::new(config, paths.config.clone()));
        let config = settings.now();
        let (ledger, reads) = (Ledger::new(paths.renewals()), Arc::<Reads>::default());
        let roster = Roster::new(
            Arc::clone(&settings),
            paths.clone(),
            Arc::clone(&scheduler),
            Arc::clone(&ports.store),
            ledger.clone(),
            Arc::clone(&reads),
        );
        let roster = Arc::new(roster);
        let driver = Driver {
            scheduler: Arc::clone(&scheduler),
            roster: Arc::clone(&roster),
            network: Arc::clone(&ports.network),
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
            who: config.token_refresh,
            claude: Claude::find(config.claude_path.as_deref(), &paths.home),
            shared: Arc::default(),
        };
        let proxy = Proxy {
            scheduler,
            roster,
            network: ports.network,
            origin: config.upstream.clone(),
            devices,
            names: Names::new(machine_names()),
            zone: ports.zone,
            budget: Arc::default(),
            owners: Arc::new(Mutex::default()),
            settings: Arc::clone(&settings),
        };
        Self {
            proxy: Arc::new(proxy),
            driver,
            started_at,
            connections: Connections::default(),
            settings,
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

    /// The pool, for those who watch it.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.proxy.scheduler
    }

    /// The router as it is now. `listening` and `sandbox` are told by whoever opened the sockets.
    pub fn snapshot(&self, listening: &[SocketAddr], sandbox: bool) -> Snapshot {
        let seats = self.proxy.roster.seats();
        self.proxy.scheduler.look(|pool, now| {
            let mut snapshot = snapshot::of(pool, &seats, now);
            snapshot.started_at = Some(self.started_at.as_second());
            snapshot.listening = listening.iter().map(ToString::to_string).collect();
            snapshot.address = snapshot::address(listening);
            snapshot.sandbox = sandbox;
            snapshot.routing.paused = self.settings.now().paused;
            snapshot.devices = self.proxy.devices.list();
            snapshot.reads = self.driver.renewer.reads.all().into_iter().map(Read::from).collect();
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
