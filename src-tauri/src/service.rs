//! The router that runs as a service, outside the app: how it is ended, so that the app can take its place.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use gateway::instance::{Instance, InstanceError};
use gateway::paths::Paths;

/// How long the service may take to end: its answers have ten seconds, a renewal thirty.
const PATIENCE: u32 = 60;
const BREATH: Duration = Duration::from_secs(1);

/// Removes the service, and waits until it is gone.
///
/// # Errors
/// If the command is not beside the app, or the service stays.
pub fn end(paths: &Paths) -> io::Result<()> {
    // A service that is only stopped comes back at the next login, and then both are there.
    if let Err(error) = run(paths, "uninstall") {
        tracing::warn!("the service could not be removed: {error}");
    }
    if is_there(paths) {
        // It was started by hand, or this system has no services.
        run(paths, "stop")?;
    }
    let (_never, wait) = mpsc::channel::<()>();
    for _ in 0..PATIENCE {
        if !is_there(paths) {
            return Ok(());
        }
        let _ = wait.recv_timeout(BREATH);
    }
    Err(io::Error::other("the service did not end within a minute"))
}

fn is_there(paths: &Paths) -> bool {
    matches!(Instance::take(&paths.lock()), Err(InstanceError::Taken { .. }))
}

/// Runs the command that ships beside the app.
fn run(paths: &Paths, verb: &str) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let command = program.parent().unwrap_or(Path::new("/")).join("claude-proxy-router");
    let done = Command::new(command)
        .arg("--config")
        .arg(&paths.config)
        .arg(verb)
        .stdin(Stdio::null())
        .output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&done.stderr).trim().to_owned(),
        )),
    }
}
