//! The `claude-proxy-router` command: starts the router, and talks to a running one.

#![forbid(unsafe_code)]

mod client;
mod history;
mod make_believe;
mod orders;
mod ping;
mod show;
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gateway::paths::Paths;

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
    #[command(flatten)]
    Order(orders::Order),
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
        Command::Order(order) => orders::run(&paths, order),
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
