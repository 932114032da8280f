//! The `claude-proxy-router` command: starts the router, and talks to a running one.

#![forbid(unsafe_code)]

mod client;
mod devices;
mod doctor;
mod exec;
mod history;
mod logging;
mod make_believe;
mod onboard;
mod orders;
mod ping;
mod service;
mod show;
mod start;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use gateway::paths::Paths;

/// Long-lived streams fragment glibc's heap; jemalloc gives their memory back.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Gives each request of Claude Code on your devices to the one of your own seats with room to spare.
#[derive(Parser)]
#[command(name = "claude-proxy-router", version)]
struct Arguments {
    /// The settings file, instead of the usual one.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set everything up: seats, address, port, key, service.
    Onboard(onboard::Options),
    /// Run the router in the foreground.
    Start(start::Options),
    /// Show every seat: how full, what state, when it returns.
    Status {
        /// As JSON, in the documented form.
        #[arg(long)]
        json: bool,
    },
    /// Have the router start by itself.
    Install,
    /// End the router that starts by itself, and have it do so no longer.
    Uninstall {
        /// Remove settings, keys and what was learnt, too.
        #[arg(long)]
        purge: bool,
    },
    /// The devices and their keys.
    Devices {
        #[command(subcommand)]
        verb: devices::Verb,
    },
    /// Show what to set on a device.
    Connect {
        /// The device's key.
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        wanted: devices::Wanted,
    },
    /// On another device: remember the router of a link that `devices add` printed.
    Join {
        /// The link.
        link: String,
    },
    /// Run a command through the router; with this device's own login where the router does not answer.
    Exec {
        /// The command and its arguments, after `--`.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
    /// Show what to look at when something is wrong, without a secret.
    Doctor,
    /// Show the address and the key of the first device.
    Key,
    /// Check a router from here: name, connection, service, key, seat.
    Ping {
        /// The router's address, such as `http://100.64.0.1:18787`.
        url: String,
        /// The device's key.
        key: String,
    },
    /// Stop the running router; running answers have ten seconds to end.
    Stop,
    #[command(flatten)]
    Verb(orders::Verb),
    /// Run the pretended Anthropic alone, for tests.
    #[command(hide = true)]
    Sandbox(make_believe::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let paths = places(arguments.config)?;
    let log = match &arguments.command {
        Command::Start(options) => options.log(),
        _ => None,
    };
    logging::begin(log).with_context(|| log.map_or_else(String::new, |path| path.display().to_string()))?;
    match arguments.command {
        Command::Start(options) => start::run(&paths, &options),
        Command::Status { json } => show::status(&client::status(&paths)?, json),
        Command::Onboard(options) => onboard::run(&paths, &options),
        Command::Install => service::install(&paths),
        Command::Uninstall { purge } => service::uninstall(&paths, purge),
        Command::Devices { verb } => devices::run(&paths, verb),
        Command::Connect { key, wanted } => devices::block(&paths, key.as_deref(), &wanted),
        Command::Join { link } => exec::join(&paths, &link),
        Command::Exec { command } => exec::exec(&paths, &command),
        Command::Doctor => {
            doctor::run(&paths);
            Ok(())
        }
        Command::Key => {
            let config = gateway::config::Config::read(&paths.config)?
                .context("there are no settings yet: run `claude-proxy-router onboard`, or start it")?;
            show::key(&config, client::port(&paths, &config));
            Ok(())
        }
        Command::Ping { url, key } => {
            ping::ping(&url, &key)?;
            show::line(&format!("The router at {url} answers, and the key is good."));
            Ok(())
        }
        Command::Stop => client::stop(&paths),
        Command::Verb(verb) => orders::run(&paths, verb),
        Command::Sandbox(options) => make_believe::run(&options),
    }
}

/// The places of this machine's owner.
fn places(config: Option<PathBuf>) -> anyhow::Result<Paths> {
    let home = std::env::home_dir()
        .filter(|home| home.is_absolute())
        .ok_or_else(|| anyhow::anyhow!("the home directory is not known: set HOME"))?;
    let config = config.map(std::path::absolute).transpose()?;
    Ok(Paths::new(&home, config, |name| std::env::var(name).ok()))
}
