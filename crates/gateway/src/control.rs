//! The control: what the owner can ask of a running router and order it to do, and the socket that it is said through.
//! HTTP over a Unix socket that only its owner can open, so that `curl --unix-socket` can look too; whoever runs the
//! router in their own process calls [`Handle::command`](crate::Handle::command) with the same words.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use futures_util::future::BoxFuture;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream, unix};

use crate::connect;

/// What the owner says to a running router. A seat goes by its id, its label or its e-mail address, as long as that
/// names one. It does not print: it may hold a key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "verb",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Command {
    /// The snapshot.
    Status,
    /// End, as a signal would.
    Stop,
    /// The machine woke, or its network changed: connect anew, and look at everything again.
    Stir,
    /// Look for logins now.
    Rescan,
    /// Give nothing to the seat, or to any.
    Pause {
        /// Which one; none is the whole router.
        #[serde(default)]
        seat: Option<String>,
    },
    /// Take back a pause, or a drain.
    Resume {
        /// Which one; none is the whole router.
        #[serde(default)]
        seat: Option<String>,
    },
    /// Let the seat finish the conversations that run on it, and give it no new one.
    Drain {
        /// Which one.
        seat: String,
    },
    /// Say in which order seats are taken, where the routing goes by it.
    Order {
        /// The seats, the first one first; those left out come last.
        seats: Vec<String>,
    },
    /// Leave a share of the seat to its owner's direct use.
    Reserve {
        /// Which one.
        seat: String,
        /// Per cent, up to 100; none is nothing.
        #[serde(default)]
        percent: Option<u8>,
    },
    /// Say whether the seat may go on beyond its plan, at its owner's cost.
    ExtraUsage {
        /// Which one.
        seat: String,
        /// `never`, `last` or `allowed`; none is the default.
        #[serde(default)]
        policy: Option<String>,
    },
    /// End the seat's rests: the next request tries it.
    TryNow {
        /// Which one.
        seat: String,
    },
    /// Requests that ended, the newest first.
    Requests {
        /// So many at most.
        #[serde(default = "fifty")]
        limit: u32,
        /// Those before this number.
        #[serde(default)]
        before: Option<i64>,
        /// Those that this seat answered.
        #[serde(default)]
        seat: Option<String>,
        /// Those of this device.
        #[serde(default)]
        device: Option<String>,
        /// Those alone that failed.
        #[serde(default)]
        failed: bool,
    },
    /// Conversations that moved, the newest first.
    Switches {
        /// So many at most.
        #[serde(default = "fifty")]
        limit: u32,
    },
    /// Why a request went where it went.
    Why {
        /// Its number; none is the last one.
        #[serde(default)]
        request: Option<i64>,
    },
    /// How full a seat's windows were, over time.
    UsageHistory {
        /// Which one.
        seat: String,
        /// So many hours back.
        hours: u32,
    },
    /// What requests cost, by day, device and model.
    Tokens {
        /// So many days back.
        days: u32,
    },
    /// Call the seat by another name.
    Rename {
        /// Which one.
        seat: String,
        /// The name; none is the one that it has of itself.
        #[serde(default)]
        name: Option<String>,
    },
    /// Set from how much on the seat is used only when nothing else is left.
    Limit {
        /// Which one.
        seat: String,
        /// Per cent, from 1 to 100; none is what holds for all seats.
        #[serde(default)]
        percent: Option<u8>,
    },
    /// The devices, those shut out too.
    Devices,
    /// Make a key for another device; the answer has it, once.
    AddDevice {
        /// What to call it.
        name: String,
        /// The only seats that may serve it; none is all.
        #[serde(default)]
        seats: Option<Vec<String>>,
    },
    /// Shut a device out for good, and cut its running answers.
    RevokeDevice {
        /// Its id or its name.
        id: String,
    },
    /// Call a device by another name.
    RenameDevice {
        /// Its id or its name.
        id: String,
        /// What to call it.
        name: String,
    },
    /// Say which seats may serve a device.
    LimitDevice {
        /// Its id or its name.
        id: String,
        /// The only ones; none is all.
        #[serde(default)]
        seats: Option<Vec<String>>,
    },
    /// The addresses that the router may listen on, and the one to tell another device.
    Addresses,
    /// Ping the router through itself, then ask Anthropic for something free, step by step.
    Test,
    /// The block to copy on another device.
    Connect {
        /// The device's id or name; none is one that is yet to be added.
        #[serde(default)]
        device: Option<String>,
        /// Its key, where that is still known; else a placeholder stands for it.
        #[serde(default)]
        key: Option<String>,
        /// How it shows its key.
        mode: connect::Mode,
        /// Where the block goes.
        form: connect::Form,
    },
    /// Every setting with its value, but for the key.
    Settings,
    /// Change one setting, in force and in the file.
    Set {
        /// Its name; `app.` and a name for one of the app's own.
        key: String,
        /// Its value; null is the default.
        value: Value,
    },
}

const fn fifty() -> u32 {
    50
}

/// What a command gives: a value in the documented form, null where there is nothing to say.
pub type Reply = Result<Value, CommandError>;

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}{}", hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}")))]
pub struct CommandError {
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl CommandError {
    /// That word with that sentence.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: None,
        }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The code where the words are no command that this version knows.
pub const UNKNOWN_COMMAND: &str = "unknownCommand";

/// Does what a command says.
pub type Commander = Arc<dyn Fn(Command) -> BoxFuture<'static, Reply> + Send + Sync>;

/// Where a snapshot is to be had.
pub const STATUS: &str = "/v1/status";
/// Where the router is told to stop.
pub const STOP: &str = "/v1/stop";
/// Where any command is taken, as JSON.
pub const COMMAND: &str = "/v1/command";

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
pub async fn serve(listener: UnixListener, commander: Commander) {
    let run = async |State(commander): State<Commander>, command| answer(commander(command).await);
    let app = axum::Router::new()
        .route(STATUS, get(move |state| run(state, Command::Status)))
        .route(STOP, post(move |state| run(state, Command::Stop)))
        .route(COMMAND, post(command))
        .with_state(commander);
    let owner = OwnerOnly {
        listener,
        uid: rustix::process::getuid().as_raw(),
    };
    // It ends only with the task it runs in.
    let _ = axum::serve(owner, app).await;
}

/// The body is read as JSON whatever type it is said to be of.
async fn command(State(commander): State<Commander>, body: Bytes) -> Response {
    match serde_json::from_slice(&body) {
        Ok(command) => answer(commander(command).await),
        Err(error) => answer(Err(CommandError::new(
            UNKNOWN_COMMAND,
            format!("this is no command: {error}"),
        ))),
    }
}

fn answer(reply: Reply) -> Response {
    match reply {
        Ok(value) => Json(value).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response(),
    }
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
