//! `onboard`: from nothing to a router that other devices reach, in three questions.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, bail};
use gateway::addresses::{self, Candidate, Kind};
use gateway::config::{Config, ConfigError};
use gateway::connect;
use gateway::holder;
use gateway::listen;
use gateway::paths::Paths;
use gateway::settings::Settings;
use gateway::{Gateway, Ports};
use serde_json::{Value, json};

use crate::client;
use crate::service::{self, Service};
use crate::show;

/// How to go about it.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to listen: `local`, `tailscale`, `lan`, `all`, or an address of this machine.
    #[arg(long)]
    host: Option<String>,
    /// The port; without it, the one in the settings, or a free one near it.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Have the router start by itself.
    #[arg(long, overrides_with = "no_install")]
    install: bool,
    /// Do not.
    #[arg(long)]
    no_install: bool,
    /// Take every proposal, and confirm that the accounts are your own.
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(paths: &Paths, options: &Options) -> anyhow::Result<()> {
    if !options.yes && !io::stdin().is_terminal() {
        bail!("there is nobody to ask: `--yes` takes every proposal");
    }
    let service = Service::here(paths);
    let by_itself = service.runs() && service.earlier().is_none();
    if !by_itself && service::another_runs(paths)? {
        bail!("a router is running: `claude-proxy-router stop` first, then this again");
    }
    introduce(paths);
    let before = Config::read(&paths.config)?;
    if !is_acknowledged(paths) {
        acknowledge(options.yes)?;
    }
    if let Some(agent) = service.earlier() {
        show::line(&format!(
            "The earlier tool runs here ({}). Its settings and key are kept, and copies of its files.\n",
            agent.display()
        ));
        service::keep_settings(paths)?;
    }
    // A first start makes the key; a later one keeps it.
    let config = Config::load(&paths.config)?;
    list_seats(paths, &config)?;

    let candidates = addresses::candidates(&addresses::list().context("this machine's addresses are not known")?);
    let hosts = match &options.host {
        Some(name) => hosts(name, &candidates)?,
        None => choose(&candidates, before.as_ref(), options.yes)?,
    };
    let taken_by_ours = (by_itself || service.earlier().is_some()).then_some(config.port);
    let port = choose_port(&hosts, options.port.unwrap_or(config.port), taken_by_ours, options.yes)?;
    save(paths, config, &hosts, port)?;

    let config = Config::load(&paths.config)?;
    let install = match (options.install, options.no_install) {
        (true, _) => true,
        (_, true) => false,
        _ => options.yes || confirm("Start the router by itself, now and with each login?", true)?,
    };
    let url = connect::url(addresses::best(&config.hosts, &candidates), config.port);
    if !install {
        show::line("Start it with: claude-proxy-router start");
        return next_steps(&url);
    }
    service::install(paths)?;
    next_steps(&url)
}

/// What it reads, and what it never does.
fn introduce(paths: &Paths) {
    show::line(
        "Claude Proxy Router gives each request of your own devices to the one of your own Claude seats with room to spare.",
    );
    show::line(
        "It reads the Claude logins on this machine, to send those requests with and to renew them as Claude Code does.",
    );
    show::line("It never logs anybody in, never edits Claude Code's settings, and keeps no word of what you write.");
    show::line(&format!("Its own settings and keys: {}\n", paths.config.display()));
}

/// The terms, once.
fn acknowledge(yes: bool) -> anyhow::Result<()> {
    show::line(
        "Anthropic's terms mean Claude logins for your own ordinary use of its own applications. Routing them, your own included,",
    );
    show::line(
        "may be judged against these terms, up to the loss of the account. It is for your own seats and your own devices only.",
    );
    if yes || confirm("These are my own accounts and my own devices.", false)? {
        show::line("");
        return Ok(());
    }
    bail!("then it is not for these accounts; nothing was changed")
}

/// Where it stands in the settings that the terms were read: the app's part, which asks the same.
const ACKNOWLEDGED: &str = "ownAccounts";

fn is_acknowledged(paths: &Paths) -> bool {
    let text = std::fs::read(&paths.config).unwrap_or_default();
    let written: Value = serde_json::from_slice(&text).unwrap_or_default();
    written["app"][ACKNOWLEDGED] == true
}

/// The seats that the settings lead to, or a running router knows. Nothing is asked of the network.
fn list_seats(paths: &Paths, config: &Config) -> anyhow::Result<()> {
    let seats = match client::status(paths) {
        Ok(running) => running.seats,
        Err(_) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let ports = Ports::of_this_machine(config, gateway::keychain::on_this_machine(paths))?;
            let gateway = Gateway::new(config.clone(), &paths.clone().for_a_look(), ports);
            runtime.block_on(gateway.scan());
            gateway.snapshot(&[], false).seats
        }
    };
    match seats.is_empty() {
        true => show::line(
            "No Claude login is on this machine yet. Log in with `claude`; the router notices within ten seconds.\n",
        ),
        false => {
            show::line("Seats found:");
            for seat in seats {
                show::line(&format!(
                    "  {} ({})",
                    seat.label,
                    seat.plan.as_deref().unwrap_or("plan not known")
                ));
            }
            show::line("");
        }
    }
    Ok(())
}

const fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Loopback => "only this machine",
        Kind::Tailscale => "your Tailscale devices (encrypted on the way)",
        Kind::Lan => "this local network (not encrypted; whoever is on it can try)",
    }
}

/// Asks who may connect.
fn choose(candidates: &[Candidate], before: Option<&Config>, yes: bool) -> anyhow::Result<Vec<IpAddr>> {
    let current = before.map(|config| config.hosts.clone());
    let usual = candidates
        .iter()
        .position(|candidate| candidate.kind == Kind::Tailscale)
        .or_else(|| candidates.iter().position(|candidate| candidate.kind == Kind::Loopback));
    if yes {
        // What the owner chose once stays.
        let proposed = usual.map(|at| with_loopback(candidates[at].ip));
        return Ok(current
            .or(proposed)
            .unwrap_or_else(|| vec![IpAddr::from([127, 0, 0, 1])]));
    }
    show::line("Who may connect?");
    for (number, candidate) in candidates.iter().enumerate() {
        show::line(&format!(
            "  {}  {}: {}",
            number + 1,
            candidate.ip,
            words(candidate.kind)
        ));
    }
    let keep = current
        .as_ref()
        .map(|hosts| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let proposal = match &keep {
        Some(hosts) => format!("as it is: {hosts}"),
        None => usual.map_or_else(|| "1".into(), |at| (at + 1).to_string()),
    };
    loop {
        let answer = ask(&format!("Number or address [{proposal}]: "))?;
        if answer.is_empty() {
            let proposed = usual.map(|at| with_loopback(candidates[at].ip));
            return Ok(current
                .or(proposed)
                .unwrap_or_else(|| vec![IpAddr::from([127, 0, 0, 1])]));
        }
        let numbered = answer
            .parse::<usize>()
            .ok()
            .and_then(|number| candidates.get(number.checked_sub(1)?));
        match numbered.map_or_else(|| hosts(&answer, candidates), |one| Ok(with_loopback(one.ip))) {
            Ok(hosts) => return Ok(hosts),
            Err(error) => show::line(&error.to_string()),
        }
    }
}

/// An address and, so that this machine reaches it too, loopback.
fn with_loopback(ip: IpAddr) -> Vec<IpAddr> {
    let mut hosts = vec![IpAddr::from([127, 0, 0, 1])];
    if !hosts.contains(&ip) {
        hosts.push(ip);
    }
    hosts
}

/// The addresses that a word or an address means.
fn hosts(name: &str, candidates: &[Candidate]) -> anyhow::Result<Vec<IpAddr>> {
    let kind = match name {
        "local" | "localhost" => Kind::Loopback,
        "tailscale" => Kind::Tailscale,
        "lan" => Kind::Lan,
        "all" => return Ok(vec![IpAddr::from([0, 0, 0, 0])]),
        address => {
            let ip: IpAddr = address.parse().with_context(|| {
                format!("`{address}` is neither an address nor `local`, `tailscale`, `lan` or `all`")
            })?;
            return Ok(match ip.is_unspecified() || ip.is_loopback() {
                true => vec![ip],
                false => with_loopback(ip),
            });
        }
    };
    if kind == Kind::Loopback {
        return Ok(vec![IpAddr::from([127, 0, 0, 1])]);
    }
    let found = candidates.iter().find(|candidate| candidate.kind == kind);
    found
        .map(|candidate| with_loopback(candidate.ip))
        .with_context(|| match kind {
            Kind::Tailscale => "no Tailscale address was found: is Tailscale running here?",
            _ => "no address of a local network was found",
        })
}

/// The wanted port if it can be had, else another one that is free; its holder is told and left alone.
fn choose_port(hosts: &[IpAddr], wanted: u16, ours: Option<u16>, yes: bool) -> anyhow::Result<u16> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    let addresses: Vec<SocketAddr> = hosts.iter().map(|host| SocketAddr::new(*host, wanted)).collect();
    let is_taken =
        |address: &SocketAddr| listen::listen(*address).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
    if ours == Some(wanted) || !addresses.iter().any(is_taken) {
        return Ok(wanted);
    }
    let who = holder::of(wanted).map_or_else(|| "another program".into(), |holder| holder.to_string());
    let free = holder::free_port(&addresses)
        .with_context(|| format!("port {wanted} is used by {who}, and none near it is free"))?;
    show::line(&format!(
        "Port {wanted} is used by {who}, which is left alone; {free} is free."
    ));
    match yes || confirm(&format!("Use {free}?"), true)? {
        true => Ok(free),
        false => bail!("choose one with `--port`"),
    }
}

fn save(paths: &Paths, config: Config, hosts: &[IpAddr], port: u16) -> anyhow::Result<()> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let host = match hosts.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    let settings = Settings::new(config, paths.config.clone());
    settings.change::<ConfigError>(|written| {
        written.insert("host".into(), host);
        written.insert("port".into(), port.into());
        let app = written.entry("app").or_insert_with(|| json!({}));
        if let Value::Object(app) = app {
            app.insert(ACKNOWLEDGED.into(), true.into());
        }
        Ok(())
    })?;
    Ok(())
}

fn next_steps(url: &str) -> anyhow::Result<()> {
    show::line(&format!(
        "\nDevices reach it at {url}. For each: claude-proxy-router devices add NAME"
    ));
    show::line("which prints what to set there. On this machine: claude-proxy-router exec -- claude");
    Ok(())
}

fn confirm(question: &str, usual: bool) -> anyhow::Result<bool> {
    let answer = ask(&format!("{question} [{}] ", if usual { "Y/n" } else { "y/N" }))?;
    Ok(match answer.to_lowercase().as_str() {
        "" => usual,
        answer => matches!(answer, "y" | "yes"),
    })
}

/// What the person answers to `question`; the end of the input is an end of it all.
fn ask(question: &str) -> anyhow::Result<String> {
    show::question(question);
    io::stdout().flush()?;
    let mut answer = String::new();
    match io::stdin().lock().read_line(&mut answer)? {
        0 => bail!("there was no answer; nothing more was changed"),
        _ => Ok(answer.trim().to_owned()),
    }
}
