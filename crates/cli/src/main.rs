//! The `claude-proxy-router` command: starts the router, and talks to a running one.

#![forbid(unsafe_code)]

mod client;
mod make_believe;
mod ping;
mod show;
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gateway::control;
use gateway::paths::Paths;
use serde_json::Value;

/// Long-lived streams fragment glibc's heap; jemalloc gives their memory back.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Routes Claude Code on your devices to whichever of your own seats has the most room.
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
    /// Run the router in the foreground.
    Start(start::Options),
    /// Show every seat: how full, what state, when it returns.
    Status {
        /// As JSON, in the documented form.
        #[arg(long)]
        json: bool,
    },
    /// Show the address and the key that another device needs.
    Key,
    /// Check a router from here: name, connection, service, key.
    Ping {
        /// The router's address, such as `http://100.64.0.1:18787`.
        url: String,
        /// The device's key.
        key: String,
    },
    /// Stop the running router; running answers have ten seconds to end.
    Stop,
    /// Give a seat nothing more, or the whole router; what runs goes on.
    Pause {
        /// The seat's name, e-mail address or id.
        seat: Option<String>,
    },
    /// Take back `pause`.
    Resume {
        /// The seat's name, e-mail address or id.
        seat: Option<String>,
    },
    /// Call a seat by another name; without one, by its own again.
    Rename {
        /// The seat's name, e-mail address or id.
        seat: String,
        /// What to call it.
        name: Option<String>,
    },
    /// Use a seat only when nothing else is left, from so many per cent on.
    Limit {
        /// The seat's name, e-mail address or id.
        seat: String,
        /// Per cent; without it, what holds for all seats.
        percent: Option<u8>,
    },
    /// Look for logins now.
    Rescan,
    /// Show every setting, but for the key.
    Settings {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change a setting, in force and in the file.
    Set {
        /// Its name.
        key: String,
        /// Its value, as JSON or as plain text; without one, the default.
        value: Option<String>,
    },
    /// Run the pretended Anthropic alone, for tests.
    #[command(hide = true)]
    Sandbox(make_believe::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let paths = places(arguments.config)?;
    match arguments.command {
        Command::Start(options) => start::run(&paths, &options),
        Command::Status { json } => show::status(&client::status(&paths)?, json),
        Command::Key => show::key(&gateway::config::Config::load(&paths.config)?),
        Command::Ping { url, key } => show::pinged(&ping::ping(&url, &key)?),
        Command::Stop => client::stop(&paths),
        Command::Pause { seat } => order(&paths, &control::Command::Pause { seat }),
        Command::Resume { seat } => order(&paths, &control::Command::Resume { seat }),
        Command::Rename { seat, name } => order(&paths, &control::Command::Rename { seat, name }),
        Command::Limit { seat, percent } => order(&paths, &control::Command::Limit { seat, percent }),
        Command::Rescan => order(&paths, &control::Command::Rescan),
        Command::Settings { json } => show::settings(&client::command(&paths, &control::Command::Settings)?, json),
        Command::Set { key, value } => {
            // What is no JSON is text.
            let value = value.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
            let value = value.unwrap_or_default();
            order(&paths, &control::Command::Set { key, value })
        }
        Command::Sandbox(options) => make_believe::run(&options),
    }
}

/// Has the running router do what says nothing but that it was done.
fn order(paths: &Paths, command: &control::Command) -> anyhow::Result<()> {
    client::command(paths, command).map(drop)
}

/// The places of this machine's owner.
fn places(config: Option<PathBuf>) -> anyhow::Result<Paths> {
    let home = std::env::home_dir()
        .filter(|home| home.is_absolute())
        .ok_or_else(|| anyhow::anyhow!("the home directory is not known: set HOME"))?;
    let config = config.map(std::path::absolute).transpose()?;
    Ok(Paths::new(&home, config, |name| std::env::var(name).ok()))
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CLAUDE_PROXY_ROUTER_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .init();
}
