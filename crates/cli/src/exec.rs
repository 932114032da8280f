//! `join` and `exec`: on a device that has this command, Claude Code is started through the router, or with the
//! device's own login where the router cannot be reached.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gateway::addresses;
use gateway::config::Config;
use gateway::connect::{self, Link, Mode};
use gateway::file;
use gateway::paths::Paths;
use gateway::ping::Step;

use crate::client;
use crate::ping;
use crate::show;

/// How long a sleeping machine is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Remembers the router of that link, once it has answered.
pub(crate) fn join(paths: &Paths, link: &str) -> anyhow::Result<()> {
    let link: Link = link.parse()?;
    ping::ping(&link.url, &link.key)?;
    let path = paths.joined();
    file::save(&path, &serde_json::to_vec_pretty(&link)?).with_context(|| path.display().to_string())?;
    show::line(&format!(
        "The router at {} answers. `claude-proxy-router exec -- claude` goes through it from now on.",
        link.url
    ));
    Ok(())
}

/// Runs a command with the environment of a device, in the place of this process.
pub(crate) fn exec(paths: &Paths, command: &[OsString]) -> anyhow::Result<()> {
    let link = router(paths)?;
    let (program, arguments) = command.split_first().context("there is no command to run")?;
    let mut child = Command::new(program);
    child.args(arguments);
    match ping::within(&link.url, &link.key, PATIENCE)? {
        Err(error) if matches!(error.step, Step::Name | Step::Connect) => {
            show::notice(&format!(
                "the router at {} does not answer ({}); this goes with the device's own login",
                link.url, error.what
            ));
            leave(&mut child, &link);
        }
        // What has no seat is told by the router, in words for the person at the client.
        Ok(()) | Err(gateway::ping::PingError { step: Step::Seat, .. }) => enter(&mut child, &link),
        Err(error) => return Err(error.into()),
    }
    let error = child.exec();
    bail!("cannot run {}: {error}", program.display())
}

/// The router that was joined, else this machine's own.
fn router(paths: &Paths) -> anyhow::Result<Link> {
    let path = paths.joined();
    match fs::read(&path) {
        Ok(text) => {
            return serde_json::from_slice(&text).with_context(|| format!("{} cannot be understood", path.display()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    }
    let Some(config) = Config::read(&paths.config)? else {
        bail!("no router is known here: `claude-proxy-router join LINK`, with a link that `devices add` printed");
    };
    let host = addresses::from_here(&config.hosts).context("no address is listened on")?;
    Ok(Link {
        url: connect::url(host, client::port(paths, &config)),
        key: config.router_key,
        mode: Mode::Token,
    })
}

/// Sets what leads to the router, and nothing else that would.
fn enter(child: &mut Command, link: &Link) {
    leave(child, link);
    if link.mode == Mode::Login {
        // It would stand in for the login that this mode keeps.
        child.env_remove("ANTHROPIC_AUTH_TOKEN");
    }
    for (name, value) in connect::environment(&link.url, &link.key, link.mode) {
        child.env(name, value);
    }
}

/// Takes out of the child's environment what leads to a router.
fn leave(child: &mut Command, link: &Link) {
    let points_there = std::env::var("ANTHROPIC_BASE_URL").is_ok_and(|url| url.trim_end_matches('/') == link.url);
    if points_there {
        child
            .env_remove("ANTHROPIC_BASE_URL")
            .env_remove("ANTHROPIC_AUTH_TOKEN");
    }
    for name in ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"] {
        if std::env::var(name).is_ok_and(|value| value.contains(&link.key)) {
            child.env_remove(name);
        }
    }
}
