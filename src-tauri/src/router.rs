//! The router in this process: when it runs, why it does not, and how it ends.
//!
//! It has a thread of its own, beside the gateway's, and needs no window: a web view that fails stops no request.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gateway::config::{Config, ConfigError};
use gateway::control::{Command, CommandError, Commander, Reply};
use gateway::credential::Files;
use gateway::holder;
use gateway::instance::{Instance, InstanceError};
use gateway::paths::Paths;
use gateway::ports::{Clock as _, SystemClock};
use gateway::settings::Settings;
use gateway::snapshot::Snapshot;
use gateway::{Handle, Ports, StartError};
use sandbox::MadeUp;
use serde_json::Value;
use tokio::sync::Notify;

use crate::facts::{Failure, RouterState};

/// How often a router that broke is begun anew, and after how long.
const RESTARTS: u32 = 3;
const BREATH: Duration = Duration::from_secs(1);

/// The router of this process.
pub struct Router {
    paths: Paths,
    /// Whether its seats are made up.
    sandbox: bool,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Called after every change of state, with no lock held.
    told: Box<dyn Fn() + Send + Sync>,
}

struct Inner {
    state: RouterState,
    running: Option<Running>,
    /// Whether a thread has it in hand.
    busy: bool,
    /// Whether it is to end, and not to begin again.
    ending: bool,
    /// Whether somebody else ended it, by the command.
    ended: bool,
}

#[derive(Clone)]
struct Running {
    look: Arc<dyn Fn() -> Snapshot + Send + Sync>,
    commander: Commander,
    stop: Arc<Notify>,
}

/// How a run of the router came to its end.
enum End {
    /// It was told to.
    Told,
    /// It broke.
    Broke,
}

impl Router {
    /// A router that has not begun, `sandbox` over made-up seats. `told` hears of every change.
    pub fn new(paths: Paths, sandbox: bool, told: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            paths,
            sandbox,
            inner: Mutex::new(Inner {
                state: RouterState::Starting,
                running: None,
                busy: false,
                ending: false,
                ended: false,
            }),
            changed: Condvar::new(),
            told: Box::new(told),
        }
    }

    /// Begins, or tries again. Does nothing while it runs or begins.
    pub fn start(self: &Arc<Self>) {
        {
            let mut inner = self.inner();
            if inner.busy || inner.ending {
                return;
            }
            inner.busy = true;
            inner.state = RouterState::Starting;
        }
        (self.told)();
        let router = Arc::clone(self);
        let begun = thread::Builder::new().name("router".into()).spawn(move || router.run());
        if let Err(error) = begun {
            self.rest(RouterState::Failed {
                code: Failure::Other,
                words: format!("no thread can be had: {error}"),
                port: None,
                holder: None,
            });
        }
    }

    /// How it does.
    pub fn state(&self) -> RouterState {
        self.inner().state.clone()
    }

    /// Whether it was ended by the command, which ends the app too.
    pub fn was_ended(&self) -> bool {
        self.inner().ended
    }

    /// Whether its seats are made up.
    pub fn is_sandbox(&self) -> bool {
        self.sandbox
    }

    /// The router as it is now; `None` while it does not run.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let running = self.inner().running.clone()?;
        Some((running.look)())
    }

    /// Does what `command` says.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn command(&self, command: Command) -> Reply {
        let running = self.inner().running.clone();
        match running {
            Some(running) => (running.commander)(command).await,
            None => match command {
                // What keeps it from running may be a setting, or an address.
                Command::Set { key, value } => self.set(&key, value),
                Command::Settings => Ok(Value::Object(self.settings()?.shown()?)),
                Command::Addresses => gateway::verbs::addresses_answer(gateway::addresses::here(), ""),
                _ => Err(CommandError::new("notRunning", "the router does not run")),
            },
        }
    }

    fn set(&self, key: &str, value: Value) -> Reply {
        gateway::verbs::set(&self.settings()?, key, value)?;
        Ok(Value::Null)
    }

    fn settings(&self) -> Result<Settings, CommandError> {
        Ok(Settings::new(
            Config::load(&self.paths.config)?,
            self.paths.config.clone(),
        ))
    }

    /// Tells it to end: it accepts nothing more, and running answers have ten seconds. Told again, they have none.
    pub fn stop(&self) {
        let running = {
            let mut inner = self.inner();
            inner.ending = true;
            inner.running.clone()
        };
        if let Some(running) = running {
            running.stop.notify_one();
        }
    }

    /// Waits until it has ended, with its last renewal saved.
    pub fn wait(&self) {
        let inner = self.inner();
        let ended = self.changed.wait_while(inner, |inner| inner.busy);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// The same, leaving running answers no time.
    pub fn cut(&self) {
        // Told twice before it has heard it once, it would have been told once.
        const BETWEEN: Duration = Duration::from_millis(50);
        loop {
            self.stop();
            let inner = self.inner();
            let waited = self.changed.wait_timeout_while(inner, BETWEEN, |inner| inner.busy);
            let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if !inner.busy {
                return;
            }
        }
    }

    fn run(&self) {
        let state = match self.sandbox {
            true => self.run_sandbox(),
            false => self.run_real(),
        };
        self.rest(state);
    }

    /// Nobody has it in hand any more.
    fn rest(&self, state: RouterState) {
        {
            let mut inner = self.inner();
            inner.state = state;
            inner.busy = false;
            inner.running = None;
        }
        self.changed.notify_all();
        (self.told)();
    }

    fn run_real(&self) -> RouterState {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(&error.into()),
        };
        let instance = match runtime.block_on(Instance::take_to_run(&self.paths.lock())) {
            Ok(instance) => instance,
            Err(InstanceError::Taken { holder }) => return RouterState::HeldByService { pid: holder },
            Err(error) => return failed(&error.into()),
        };
        let begin = || {
            let config = Config::load(&self.paths.config)?;
            let ports = Ports::of_this_machine(&config, gateway::keychain::on_this_machine(&self.paths))?;
            Ok(gateway::start(config, &self.paths, ports, false)?)
        };
        let state = self.keep_running(begin);
        drop(instance);
        state
    }

    fn run_sandbox(&self) -> RouterState {
        let seats = || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let seats = runtime.block_on(MadeUp::start(Arc::new(|| SystemClock.now().as_millisecond())))?;
            // The settings are a file, so that all else is as it is with real seats.
            let settings = seats.settings(holder::usual_port()?).to_string();
            gateway::file::save(&self.paths.config, settings.as_bytes())?;
            anyhow::Ok((runtime, seats))
        };
        let _running = match seats() {
            Ok(running) => running,
            Err(error) => return failed(&error),
        };
        let begin = || {
            let config = Config::load(&self.paths.config)?;
            let ports = Ports::of_this_machine(&config, Arc::new(Files))?;
            Ok(gateway::start(config, &self.paths, ports, true)?)
        };
        self.keep_running(begin)
    }

    /// Runs it until it is told to end. What breaks is begun anew, a few times.
    fn keep_running(&self, begin: impl Fn() -> anyhow::Result<Handle>) -> RouterState {
        for _ in 0..RESTARTS {
            if self.inner().ending {
                break;
            }
            let handle = match begin() {
                Ok(handle) => handle,
                Err(error) => return failed(&error),
            };
            match self.accompany(handle) {
                End::Told => {
                    let mut inner = self.inner();
                    inner.ended = !inner.ending;
                    return RouterState::Starting;
                }
                End::Broke => tracing::error!("the router broke; it is begun anew"),
            }
            let inner = self.inner();
            drop(self.changed.wait_timeout_while(inner, BREATH, |inner| !inner.ending));
        }
        failed(&anyhow::anyhow!(
            "the router broke {RESTARTS} times; the report of the last time tells more"
        ))
    }

    /// Goes with one run to its end.
    fn accompany(&self, handle: Handle) -> End {
        let running = Running {
            look: handle.view(),
            commander: handle.commander(),
            stop: handle.stopper(),
        };
        let ending = {
            let mut inner = self.inner();
            inner.state = RouterState::Running;
            inner.running = Some(running.clone());
            inner.ending
        };
        if ending {
            // Told to end while it began.
            running.stop.notify_one();
        }
        (self.told)();
        let end = match handle.join() {
            Ok(()) => End::Told,
            Err(_) => End::Broke,
        };
        let mut inner = self.inner();
        inner.running = None;
        inner.state = RouterState::Starting;
        end
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why it does not run, for a person.
fn failed(error: &anyhow::Error) -> RouterState {
    let (code, port) = match error.downcast_ref::<StartError>() {
        Some(StartError::Listen { address, source }) => match source.kind() {
            io::ErrorKind::AddrInUse => (Failure::PortBusy, Some(address.port())),
            io::ErrorKind::AddrNotAvailable => (Failure::AddressGone, None),
            _ => (Failure::Other, None),
        },
        Some(_) => (Failure::Other, None),
        None if error.downcast_ref::<ConfigError>().is_some() => (Failure::SettingsRefused, None),
        None => (Failure::Other, None),
    };
    tracing::error!("the router does not run: {error:#}");
    RouterState::Failed {
        code,
        words: format!("{error:#}"),
        port,
        holder: port.and_then(holder::of).map(|holder| holder.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_01_a_port_that_is_taken_is_told_as_such() {
        let taken = StartError::Listen {
            address: "127.0.0.1:18787".parse().unwrap(),
            source: io::ErrorKind::AddrInUse.into(),
        };
        let RouterState::Failed { code, port, .. } = failed(&taken.into()) else {
            panic!("it did not fail");
        };
        assert_eq!((code, port), (Failure::PortBusy, Some(18_787)));
    }
}
