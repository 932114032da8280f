//! Starting and stopping a gateway: its thread, its runtime, its sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::config::Config;
use crate::control::{self, Command, CommandError, Commander, Reply, Socket};
use crate::devices::Devices;
use crate::listen::{Door, Doors};
use crate::paths::Paths;
use crate::serve;
use crate::snapshot::Snapshot;
use crate::verbs::Running;
use crate::workers::{self, Helpers};
use crate::{Gateway, Ports};

/// Why the router did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The control socket cannot be made.
    #[error("cannot open the control socket")]
    Control(#[source] io::Error),
    /// The thread or its runtime cannot be had.
    #[error("cannot start")]
    Thread(#[source] io::Error),
}

/// A running router.
pub struct Handle {
    /// Where it listens.
    pub listening: Vec<SocketAddr>,
    running: Arc<Running>,
    commander: Commander,
    thread: JoinHandle<()>,
}

impl Handle {
    /// The router as it is now.
    pub fn snapshot(&self) -> Snapshot {
        self.running.snapshot()
    }

    /// Does what `command` says, on the router's own runtime; it may be awaited on any.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn command(&self, command: Command) -> Reply {
        (self.commander)(command).await
    }

    /// The same for those who outlive this handle.
    pub fn commander(&self) -> Commander {
        Arc::clone(&self.commander)
    }

    /// Its snapshots, for those who outlive this handle.
    pub fn view(&self) -> Arc<dyn Fn() -> Snapshot + Send + Sync> {
        let running = Arc::clone(&self.running);
        Arc::new(move || running.snapshot())
    }

    /// Stops it when told: it accepts nothing more, and running answers have ten seconds to end.
    pub fn stopper(&self) -> Arc<Notify> {
        Arc::clone(&self.running.stop)
    }

    /// Waits for its end. A panic has printed itself on the router's thread.
    ///
    /// # Errors
    /// If it ended by a panic.
    pub fn join(self) -> thread::Result<()> {
        self.thread.join()
    }
}

/// Starts a router with those settings on a thread of its own, and returns once it listens and has looked for logins.
/// `sandbox` marks its snapshots. Hold the instance lock.
///
/// # Errors
/// If it cannot listen, or has no control socket or thread.
pub fn start(config: Config, paths: &Paths, ports: Ports, sandbox: bool) -> Result<Handle, StartError> {
    raise_descriptor_limit();
    let runtime = workers::runtime().map_err(StartError::Thread)?;
    let opened = {
        let _inside = runtime.enter();
        open(&config, paths)
    };
    let (doors, opened, control) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // Whoever starts a router may run on a runtime of their own, where this one must not be waited for.
            runtime.shutdown_background();
            return Err(error);
        }
    };
    let listening = doors.those(Door::Open);
    let running = Arc::new(Running {
        gateway: Gateway::new(config, paths, ports),
        doors: doors.clone(),
        sandbox,
        stop: Arc::new(Notify::new()),
    });
    let commander = commander(&running, runtime.handle().clone());
    let (ready, is_ready) = mpsc::channel();
    let (inside, commanded) = (Arc::clone(&running), Arc::clone(&commander));
    let helpers = Helpers::start().map_err(StartError::Thread)?;
    let thread = thread::Builder::new()
        .name("gateway".into())
        .spawn(move || {
            let mut workers = vec![runtime.handle().clone()];
            workers.extend(helpers.runtimes());
            runtime.block_on(async move {
                let gateway = &inside.gateway;
                gateway.scan().await;
                let _ = ready.send(());
                let driving = tokio::spawn(gateway.driver().run());
                tokio::spawn(control::serve(control, commanded));
                let keeping = tokio::spawn(keep_counts(Arc::clone(gateway.devices())));
                let connections = gateway.connections().clone();
                let app = gateway.router();
                serve::serve(doors, opened, app, workers, connections, Arc::clone(&inside.stop)).await;
                keeping.abort();
                flush(gateway.devices());
                // No new renewal begins; one under way is finished and saved.
                driving.abort();
                let _ = driving.await;
                gateway.driver().finish().await;
                gateway.close_books().await;
            });
            helpers.stop();
        })
        .map_err(StartError::Thread)?;
    // It fails only if the thread has panicked, which joining shows.
    let _ = is_ready.recv();
    Ok(Handle {
        listening,
        running,
        commander,
        thread,
    })
}

/// Runs commands on the router's runtime, whoever awaits them.
fn commander(running: &Arc<Running>, runtime: tokio::runtime::Handle) -> Commander {
    let running = Arc::clone(running);
    Arc::new(move |command| {
        let done = runtime.spawn(Arc::clone(&running).command(command));
        Box::pin(async move {
            done.await
                .unwrap_or_else(|_| Err(CommandError::new("stopping", "the router is stopping")))
        })
    })
}

/// Opens the ports whose addresses are there, and the control socket.
fn open(config: &Config, paths: &Paths) -> Result<(Doors, Vec<TcpListener>, Socket), StartError> {
    let (doors, opened) =
        Doors::open(config.addresses()).map_err(|(address, source)| StartError::Listen { address, source })?;
    let control = Socket::open(&paths.socket).map_err(StartError::Control)?;
    Ok((doors, opened, control))
}

/// Saves the devices' counts now and then: a crash costs a few minutes of them.
async fn keep_counts(devices: Arc<Devices>) {
    loop {
        tokio::time::sleep(SAVED_EVERY).await;
        let devices = Arc::clone(&devices);
        let _ = tokio::task::spawn_blocking(move || flush(&devices)).await;
    }
}

fn flush(devices: &Devices) {
    if let Err(error) = devices.flush() {
        tracing::warn!("the devices' counts could not be saved: {error}");
    }
}

/// How often the devices' counts are saved.
const SAVED_EVERY: Duration = Duration::from_secs(300);

/// A thousand streams want two thousand descriptors; macOS starts with 256.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// More is refused by macOS, whatever it says its limit is.
    const MOST: u64 = if cfg!(target_os = "macos") { 10_240 } else { 65_536 };
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.map_or(MOST, |maximum| maximum.min(MOST));
    if now.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: now.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!("could not raise the limit on open connections: {error}");
        }
    }
}
