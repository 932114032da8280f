//! Starting and stopping a gateway: its thread, its runtime, its sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;

use crate::config::Config;
use crate::control::{self, Control};
use crate::paths::Paths;
use crate::serve;
use crate::snapshot::Snapshot;
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
    snapshot: Arc<dyn Fn() -> Snapshot + Send + Sync>,
    stop: Arc<Notify>,
    thread: JoinHandle<()>,
}

impl Handle {
    /// The router as it is now.
    pub fn snapshot(&self) -> Snapshot {
        (self.snapshot)()
    }

    /// Stops it when told: it accepts nothing more, and running answers have ten seconds to end.
    pub fn stopper(&self) -> Arc<Notify> {
        Arc::clone(&self.stop)
    }

    /// Waits for its end.
    pub fn join(self) {
        // A panic has printed itself on that thread.
        let _ = self.thread.join();
    }
}

/// Starts a router with those settings on a thread of its own, and returns once it listens and has looked for logins.
/// `sandbox` marks its snapshots. Hold the instance lock.
///
/// # Errors
/// If it cannot listen, or has no control socket or thread.
pub fn start(config: Config, paths: &Paths, ports: Ports, sandbox: bool) -> Result<Handle, StartError> {
    raise_descriptor_limit();
    // Two workers: with one, a thousand streams wait for each other (measured: twice the delay); more find nothing to do.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .max_blocking_threads(8)
        .build()
        .map_err(StartError::Thread)?;
    let opened = {
        let _inside = runtime.enter();
        open(&config, paths)
    };
    let (listeners, control) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            // Whoever starts a router may run on a runtime of their own, where this one must not be waited for.
            runtime.shutdown_background();
            return Err(error);
        }
    };
    let listening: Vec<SocketAddr> = listeners
        .iter()
        .filter_map(|listener| listener.local_addr().ok())
        .collect();
    let gateway = Arc::new(Gateway::new(config, paths, ports));
    let snapshot: Arc<dyn Fn() -> Snapshot + Send + Sync> = {
        let (gateway, listening) = (Arc::clone(&gateway), listening.clone());
        Arc::new(move || gateway.snapshot(&listening, sandbox))
    };
    let stop = Arc::new(Notify::new());
    let control_socket = ControlSocket {
        listener: control,
        control: Control {
            snapshot: Arc::clone(&snapshot),
            stop: Arc::clone(&stop),
        },
    };
    let (ready, is_ready) = mpsc::channel();
    let stopped = Arc::clone(&stop);
    let thread = thread::Builder::new()
        .name("gateway".into())
        .spawn(move || {
            runtime.block_on(async move {
                gateway.scan().await;
                let _ = ready.send(());
                let driving = tokio::spawn(gateway.driver().run());
                tokio::spawn(control::serve(control_socket.listener, control_socket.control));
                serve::serve(listeners, gateway.router(), stopped).await;
                // No new renewal begins; one under way is finished and saved.
                driving.abort();
                let _ = driving.await;
                gateway.driver().finish().await;
            });
        })
        .map_err(StartError::Thread)?;
    // It fails only if the thread has panicked, which joining shows.
    let _ = is_ready.recv();
    Ok(Handle {
        listening,
        snapshot,
        stop,
        thread,
    })
}

/// Opens every port and the control socket.
fn open(config: &Config, paths: &Paths) -> Result<(Vec<TcpListener>, UnixListener), StartError> {
    let listen = |host| {
        let address = SocketAddr::new(host, config.port);
        serve::listen(address).map_err(|source| StartError::Listen { address, source })
    };
    let listeners = config
        .hosts
        .iter()
        .copied()
        .map(listen)
        .collect::<Result<Vec<_>, _>>()?;
    let control = control::open(&paths.socket).map_err(StartError::Control)?;
    Ok((listeners, control))
}

struct ControlSocket {
    listener: UnixListener,
    control: Control,
}

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
