//! The control socket: how the command talks to a running router. HTTP over a Unix socket that only its owner can
//! open, so that `curl --unix-socket` can look too.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::routing::{get, post};
use axum::serve::Listener;
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::Notify;

use crate::snapshot::Snapshot;

/// What the control socket can ask and order.
#[derive(Clone)]
pub struct Control {
    /// Takes a snapshot.
    pub snapshot: Arc<dyn Fn() -> Snapshot + Send + Sync>,
    /// Told when the router is to stop.
    pub stop: Arc<Notify>,
}

/// Where a snapshot is to be had.
pub const STATUS: &str = "/v1/status";
/// Where the router is told to stop.
pub const STOP: &str = "/v1/stop";

/// Opens the socket at `path`, in a directory that is its owner's alone. Call it under the instance lock: a socket
/// that is there already is a dead one.
///
/// # Errors
/// If it cannot be made.
pub fn open(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers on the socket until it is dropped.
pub async fn serve(listener: UnixListener, control: Control) {
    let app = axum::Router::new()
        .route(
            STATUS,
            get(async |State(control): State<Control>| Json((control.snapshot)())),
        )
        .route(
            STOP,
            post(async |State(control): State<Control>| {
                control.stop.notify_one();
            }),
        )
        .with_state(control);
    let owner = OwnerOnly {
        listener,
        uid: rustix::process::getuid().as_raw(),
    };
    // It ends only with the task it runs in.
    let _ = axum::serve(owner, app).await;
}

/// Lets in the processes of the router's own user.
struct OwnerOnly {
    listener: UnixListener,
    uid: u32,
}

impl Listener for OwnerOnly {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (UnixStream, unix::SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == self.uid => return (stream, address),
                _ => tracing::warn!("another user's process was turned away from the control socket"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        self.listener.local_addr()
    }
}
