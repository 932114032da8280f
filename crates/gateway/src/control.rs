//! The control: what the owner can ask of a running router and order it to do, and the socket that it is said through.
//! HTTP over a Unix socket that only its owner can open, so that `curl --unix-socket` can look too; whoever runs the
//! router in their own process calls [`Handle::command`](crate::Handle::command) with the same words.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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
use tokio::time::{Interval, interval};

use crate::connect;
use crate::file::{self, Identity};

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

/// How often it is looked whether the socket still stands where commands look for it.
const LOOK: Duration = Duration::from_secs(3);

/// A socket at `path` that only its owner can open, in a directory that is its owner's alone. What is there already is
/// taken for a dead one's.
///
/// # Errors
/// If it cannot be made.
pub fn bind(path: &Path) -> io::Result<net::UnixListener> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = net::UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The open socket, and the place where commands look for it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// What was at the place when it was bound.
    own: Option<Identity>,
}

impl Socket {
    /// Opens the socket at `path`, in a directory that is its owner's alone. Call it under the instance lock: a socket
    /// that is there already is a dead one.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        let listener = bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            path: path.to_owned(),
            own: file::identity(path),
        })
    }

    /// Opens it anew where it is gone: at logout the system takes the folder with it, while the router may go on.
    fn look(&mut self) {
        // While it is open its number is not given to another file.
        if self.own.is_some() && file::identity(&self.path) == self.own {
            return;
        }
        match Self::open(&self.path) {
            Ok(anew) => {
                *self = anew;
                tracing::warn!("{} was gone, and is open again", self.path.display());
            }
            // The folder may have to wait for its owner's next login.
            Err(error) => tracing::debug!("cannot open {} anew yet: {error}", self.path.display()),
        }
    }
}

/// Answers on the socket until it is dropped, and has it stand where it is looked for. What is said on a connection
/// that is open goes on whatever becomes of the socket.
pub async fn serve(socket: Socket, commander: Commander) {
    let run = async |State(commander): State<Commander>, command| answer(commander(command).await);
    let app = axum::Router::new()
        .route(STATUS, get(move |state| run(state, Command::Status)))
        .route(STOP, post(move |state| run(state, Command::Stop)))
        .route(COMMAND, post(command))
        .with_state(commander);
    let owner = OwnerOnly {
        socket,
        uid: rustix::process::getuid().as_raw(),
        looks: interval(LOOK),
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
    socket: Socket,
    uid: u32,
    looks: Interval,
}

impl Listener for OwnerOnly {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (UnixStream, unix::SocketAddr) {
        loop {
            let (stream, address) = tokio::select! {
                accepted = Listener::accept(&mut self.socket.listener) => accepted,
                _ = self.looks.tick() => {
                    self.socket.look();
                    continue;
                }
            };
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == self.uid => return (stream, address),
                _ => tracing::warn!("another user's process was turned away from the control socket"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        self.socket.listener.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn is_answered(stream: &mut UnixStream) -> bool {
        let asked = format!("GET {STATUS} HTTP/1.1\r\nhost: router\r\n\r\n");
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = [0; 1_024];
        let read = stream.read(&mut answer).await.unwrap();
        answer[..read].starts_with(b"HTTP/1.1 200")
    }

    /// Waits, in virtual time, until the socket at `path` takes a connection.
    async fn connected(path: &Path) -> UnixStream {
        for _ in 0..4 {
            if let Ok(stream) = UnixStream::connect(path).await {
                return stream;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("no socket at {}", path.display());
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_was_taken_away_is_opened_anew_and_open_connections_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let path = run.join("control.sock");
        let commander: Commander = Arc::new(|_| Box::pin(async { Ok(Value::Null) }));
        tokio::spawn(serve(Socket::open(&path).unwrap(), commander));
        let mut open = connected(&path).await;
        assert!(is_answered(&mut open).await);

        // As at logout: the folder is gone, and cannot be made for a while.
        fs::remove_dir_all(&run).unwrap();
        fs::write(&run, "in the folder's place").unwrap();
        tokio::time::sleep(3 * LOOK).await;
        assert!(is_answered(&mut open).await);
        fs::remove_file(&run).unwrap();
        assert!(is_answered(&mut connected(&path).await).await);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&run), mode(&path)), (0o700, 0o600));

        // Another file in its place is not its own.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(is_answered(&mut connected(&path).await).await);
        assert!(is_answered(&mut open).await);

        // What stands where it should is left alone.
        let before = file::identity(&path);
        tokio::time::sleep(3 * LOOK).await;
        assert_eq!(file::identity(&path), before);
    }
}
