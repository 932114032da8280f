//! Talks to the running router over its control socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use gateway::config::Config;
use gateway::control::{self, Command, CommandError};
use gateway::instance::{Instance, InstanceError};
use gateway::paths::Paths;
use gateway::snapshot::Snapshot;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

/// The running router's snapshot.
pub(crate) fn status(paths: &Paths) -> anyhow::Result<Snapshot> {
    let status = command(paths, &Command::Status)?;
    serde_json::from_value(status).context("the running router is another version: its answer cannot be read")
}

/// The port that the router listens on: a running one may have been started with another than that of the settings.
pub(crate) fn port(paths: &Paths, config: &Config) -> u16 {
    let listening = status(paths).map(|status| status.listening).unwrap_or_default();
    let running = listening.iter().find_map(|address| address.parse::<SocketAddr>().ok());
    running.map_or(config.port, |address| address.port())
}

/// Has the running router do something, and gives its answer.
pub(crate) fn command(paths: &Paths, command: &Command) -> anyhow::Result<Value> {
    let (status, body) = ask(paths, control::COMMAND, serde_json::to_vec(command)?)?;
    if status.is_success() {
        return serde_json::from_slice(&body).context("the running router's answer cannot be read");
    }
    match serde_json::from_slice::<CommandError>(&body) {
        Ok(error) if error.code == control::UNKNOWN_COMMAND => bail!("the running router is another version: {error}"),
        Ok(error) => Err(error.into()),
        Err(_) => bail!("the running router is another version and knows no commands"),
    }
}

/// Tells the running router to stop, and waits until it has ended, so that it can be started again.
pub(crate) fn stop(paths: &Paths) -> anyhow::Result<()> {
    // Every version knows this address.
    let (status, _) = ask(paths, control::STOP, Vec::new())?;
    if !status.is_success() {
        bail!("the running router would not stop: {status}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        for _ in 0..STOP_LOOKS {
            if Instance::take(&paths.lock()).is_ok() {
                return Ok(());
            }
            tokio::time::sleep(STOP_PAUSE).await;
        }
        bail!("the router was told to stop and has not ended yet; a renewal may be under way")
    })
}

/// How often it is looked whether the router has ended, and how long apart: ten seconds for answers, forty for a
/// renewal.
const STOP_LOOKS: u32 = 600;
const STOP_PAUSE: Duration = Duration::from_millis(100);

fn ask(paths: &Paths, path: &str, body: Vec<u8>) -> anyhow::Result<(StatusCode, Bytes)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = match UnixStream::connect(&paths.socket).await {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Err(unreachable(paths));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot open {}", paths.socket.display())),
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("host", "router")
            .body(Full::<Bytes>::from(body))?;
        let answer = sender.send_request(request).await?;
        Ok((answer.status(), answer.into_body().collect().await?.to_bytes()))
    })
}

/// Why nobody answers: the lock knows whether a router runs, though its socket may be gone.
fn unreachable(paths: &Paths) -> anyhow::Error {
    let lock = paths.lock();
    // Taking it would make it, and asking should leave nothing behind.
    let Some(Err(InstanceError::Taken { holder })) = lock.exists().then(|| Instance::take(&lock)) else {
        return anyhow!("the router is not running; start it with `claude-proxy-router start`");
    };
    let (process, kill) = match holder {
        Some(pid) => (format!(" (process {pid})"), format!("`kill {pid}`")),
        None => (String::new(), "the signal TERM to its process".into()),
    };
    anyhow!(
        "the router is running{process}, but cannot be reached over its socket now: {}; if that is gone, the router \
         makes it anew within seconds: try again; {kill} stops it",
        paths.socket.display()
    )
}
