//! `start`: the router in the foreground, over the logins found or over made-up ones.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gateway::config::Config;
use gateway::connect;
use gateway::credential::Files;
use gateway::holder;
use gateway::instance::{Instance, InstanceError};
use gateway::paths::Paths;
use gateway::ping::{self, PingError, Step};
use gateway::ports::{Clock as _, SystemClock};
use gateway::reads::{Asking, Reads, Why};
use gateway::{Handle, Ports};
use tokio::signal::unix::{SignalKind, signal};

use crate::make_believe::{MadeUp, SANDBOX_KEY};
use crate::show;

/// How to start.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Over three made-up seats and a pretended Anthropic: nothing leaves this machine, nothing of yours is read.
    #[arg(long)]
    sandbox: bool,
    /// The same, if no login is found on this machine.
    #[arg(long)]
    sandbox_if_empty: bool,
    /// Listen on this port instead of the one in the settings.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Log to this file instead of standard error; it is put aside when it is long.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

impl Options {
    /// The file to log to.
    pub(crate) fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }
}

pub(crate) fn run(paths: &Paths, options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if options.sandbox || (options.sandbox_if_empty && has_no_login(paths)?) {
            return start_sandbox(options).await;
        }
        // The lock comes first: of many that start at once, one makes the settings.
        let _instance = match Instance::take_to_run(&paths.lock()).await {
            Ok(instance) => instance,
            Err(taken @ InstanceError::Taken { .. }) => {
                show::line(&format!("Nothing to do: {taken}."));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let mut config = Config::load(&paths.config)?;
        config.port = options.port.unwrap_or(config.port);
        let ports = Ports::of_this_machine(&config, gateway::keychain::on_this_machine(paths))?;
        let key = config.router_key.clone();
        let handle = match gateway::start(config, paths, ports, false) {
            Ok(handle) => handle,
            Err(error) => {
                let router = router_at(&error, &key).await;
                let explained = explain(error);
                return Err(match router {
                    Some(router) => explained.context(router),
                    None => explained,
                });
            }
        };
        show::started(&handle.snapshot(), &paths.config);
        until_stopped(handle).await
    })
}

/// The router over the sandbox, in one process, on folders that go with it.
async fn start_sandbox(options: &Options) -> anyhow::Result<()> {
    let made_up = MadeUp::new().await?;
    // By it the other commands know that one runs.
    let _instance = Instance::take(&made_up.paths().lock())?;
    let config = made_up.config(options.port)?;
    let ports = Ports::of_this_machine(&config, Arc::new(Files))?;
    let handle = gateway::start(config, made_up.paths(), ports, true).map_err(explain)?;
    show::started_sandbox(
        &handle.snapshot(),
        SANDBOX_KEY,
        made_up.address(),
        &made_up.paths().config,
    );
    until_stopped(handle).await
}

/// Whether the settings lead to no login at all. The settings are not made by asking.
fn has_no_login(paths: &Paths) -> anyhow::Result<bool> {
    let config = match paths.config.exists() {
        true => Config::load(&paths.config)?,
        false => Config::parse(br#"{"routerKey":"not-used-yet"}"#)?.context("built-in settings")?,
    };
    let (store, reads) = (gateway::keychain::on_this_machine(paths), Reads::default());
    let asking = Asking {
        why: Why::First,
        now: SystemClock.now(),
        reads: &reads,
    };
    let profiles = gateway::profile::discover(&config, paths);
    Ok(!profiles
        .iter()
        .any(|profile| gateway::credential::read(&*store, profile, &asking).is_ok()))
}

/// A port that is taken has a way out; its holder is told and left alone.
fn explain(error: gateway::StartError) -> anyhow::Error {
    let hint = match &error {
        gateway::StartError::Listen { address, source } if source.kind() == std::io::ErrorKind::AddrInUse => {
            taken(*address)
        }
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(hint)
}

fn taken(address: SocketAddr) -> String {
    let port = address.port();
    let holder = holder::of(port).map_or_else(String::new, |holder| format!(", {holder}"));
    let free = holder::free_port(&[address]).map_or_else(
        || "choose another with `--port`, or `port` in the settings".into(),
        |free| format!("{free} is free: `--port {free}`, or `port` in the settings"),
    );
    format!("port {port} is taken by another program{holder}; {free}")
}

/// Whether what holds the port is a router: then it can be used instead of starting another.
async fn router_at(error: &gateway::StartError, key: &str) -> Option<String> {
    let gateway::StartError::Listen { address, .. } = error else {
        return None;
    };
    let url = connect::url(address.ip(), address.port());
    match ping::ping(&url, key, Duration::from_secs(2)).await {
        Ok(()) | Err(PingError { step: Step::Seat, .. }) => Some(
            "a router that knows this key answers there already: use it, or stop it before you start another".into(),
        ),
        Err(PingError { step: Step::Key, .. }) => {
            Some("another router answers there already, with another key: stop it, or choose another port".into())
        }
        Err(_) => None,
    }
}

/// Waits until the router ends, by a signal or by the `stop` command. A second signal ends it at once.
async fn until_stopped(handle: Handle) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A closed terminal asks to stop, like the others: a renewal under way is finished first.
    let mut hangup = signal(SignalKind::hangup())?;
    let stopper = handle.stopper();
    let mut ended = tokio::task::spawn_blocking(move || handle.join());
    tokio::select! {
        _ = &mut ended => return Ok(()),
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
    tracing::info!("stopping; running answers have ten seconds to end");
    stopper.notify_one();
    tokio::select! {
        _ = &mut ended => Ok(()),
        _ = terminate.recv() => std::process::exit(0),
        _ = interrupt.recv() => std::process::exit(0),
    }
}
