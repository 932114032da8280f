//! `devices` and `connect`: the owner's devices and what to set on them. A running router is asked; where none runs, the
//! files are changed under its lock.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};
use gateway::addresses::{self, Candidate, Kind};
use gateway::config::Config;
use gateway::connect::{self, Form, Link, Mode};
use gateway::control;
use gateway::devices::{DeviceView, Devices};
use gateway::instance::{Instance, InstanceError};
use gateway::paths::Paths;
use gateway::ports::{Clock as _, SystemClock};
use serde_json::Value;

use crate::client;
use crate::show;

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Make a key for another device, and print what to set there. The key is shown this once.
    Add {
        /// What to call it.
        name: String,
        /// Only this seat may serve it; once for each.
        #[arg(long, value_name = "SEAT")]
        seat: Vec<String>,
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Show the devices.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shut a device out for good; its running answers are cut.
    Revoke {
        /// Its name or its id.
        device: String,
    },
    /// Call a device by another name.
    Rename {
        /// Its name or its id.
        device: String,
        /// What to call it.
        name: String,
    },
    /// Say which seats may serve a device; with none, all may.
    Limit {
        /// Its name or its id.
        device: String,
        /// Only this seat; once for each.
        #[arg(long, value_name = "SEAT")]
        seat: Vec<String>,
    },
}

/// How the block is wanted.
#[derive(Args)]
pub(crate) struct Wanted {
    /// Whether the device has a Claude login of its own, which it keeps.
    #[arg(long, value_enum, default_value = "token")]
    mode: ModeName,
    /// Where the block goes; without it, every form is printed.
    #[arg(long, value_enum)]
    form: Option<FormName>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ModeName {
    /// It has none; the key is all it needs.
    Token,
    /// It has one.
    Login,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormName {
    /// A shell, or its profile.
    Shell,
    /// Claude Code's settings.json.
    Settings,
    /// VS Code's settings.json.
    Vscode,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Token => Self::Token,
            ModeName::Login => Self::Login,
        }
    }
}

impl FormName {
    const ALL: [Self; 3] = [Self::Shell, Self::Settings, Self::Vscode];

    const fn form(self) -> Form {
        match self {
            Self::Shell => Form::Shell,
            Self::Settings => Form::Settings,
            Self::Vscode => Form::Vscode,
        }
    }

    const fn place(self) -> &'static str {
        match self {
            Self::Shell => "In a shell, or its profile:",
            Self::Settings => "Or in Claude Code's settings.json:",
            Self::Vscode => "Or in VS Code's settings.json:",
        }
    }
}

pub(crate) fn run(paths: &Paths, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Add { name, seat, wanted } => {
            let added = order(
                paths,
                control::Command::AddDevice {
                    name,
                    seats: some(seat),
                },
            )?;
            let name = added["name"].as_str().unwrap_or_default();
            let key = added["key"].as_str().context("the router's answer has no key")?;
            show::line(&format!("The key of `{name}`, shown this once: {key}\n"));
            block(paths, Some(key), &wanted)
        }
        Verb::List { json } => {
            let list = order(paths, control::Command::Devices)?;
            if json {
                show::line(&serde_json::to_string_pretty(&list)?);
                return Ok(());
            }
            let list: Vec<DeviceView> = serde_json::from_value(list)?;
            // A running router alone knows the seats' names.
            let seats = client::status(paths).map(|status| status.seats).unwrap_or_default();
            let labels = seats.into_iter().map(|seat| (seat.id, seat.label)).collect();
            show::devices(&list, &labels, SystemClock.now().as_second());
            Ok(())
        }
        Verb::Revoke { device } => {
            let revoked = order(paths, control::Command::RevokeDevice { id: device })?;
            let name = revoked["name"].as_str().unwrap_or_default();
            show::line(&format!("`{name}` is shut out. Its key opens nothing any more."));
            Ok(())
        }
        Verb::Rename { device, name } => order(paths, control::Command::RenameDevice { id: device, name }).map(drop),
        Verb::Limit { device, seat } => order(
            paths,
            control::Command::LimitDevice {
                id: device,
                seats: some(seat),
            },
        )
        .map(drop),
    }
}

fn some(seats: Vec<String>) -> Option<Vec<String>> {
    (!seats.is_empty()).then_some(seats)
}

/// `connect`: prints what to set on a device with that key, or with one that is yet to be made.
pub(crate) fn block(paths: &Paths, key: Option<&str>, wanted: &Wanted) -> anyhow::Result<()> {
    let config =
        Config::read(&paths.config)?.context("there are no settings yet: run `claude-proxy-router onboard`")?;
    let mode = Mode::from(wanted.mode);
    if mode == Mode::Login && key == Some(&config.router_key) {
        bail!(
            "Anthropic sees the key of a device in login mode, so it is never the settings' own: `devices add NAME --mode login`"
        );
    }
    let candidates = addresses::here();
    let best = addresses::best(&config.hosts, &candidates);
    let url = connect::url(best, client::port(paths, &config));
    let shown = key.unwrap_or("<the device's key>");
    for form in FormName::ALL
        .into_iter()
        .filter(|form| wanted.form.is_none_or(|one| one == *form))
    {
        if wanted.form.is_none() {
            show::line(form.place());
        }
        show::line(&connect::block(&url, shown, mode, form.form()));
    }
    if let Some(key) = key {
        let link = Link {
            url,
            key: key.to_owned(),
            mode,
        };
        show::line("Or, where this command is on that device, once, and then `claude-proxy-router exec -- claude`:");
        show::line(&format!("claude-proxy-router join '{link}'\n"));
    }
    for note in connect::notes(mode) {
        show::line(&format!("- {note}"));
    }
    if best.is_loopback() {
        show::notice(&shut_in(best, &candidates));
    }
    Ok(())
}

/// That other devices cannot reach this machine at `only`, and how to let them.
fn shut_in(only: IpAddr, candidates: &[Candidate]) -> String {
    let found = |kind| candidates.iter().find(|candidate| candidate.kind == kind);
    let let_in = |ip: IpAddr, whom: &str| {
        format!(
            "To let {whom} in while the router runs: claude-proxy-router set host '[\"{only}\",\"{ip}\"]'. Then \
             `claude-proxy-router connect --key KEY` shows what to set."
        )
    };
    let way = match (found(Kind::Tailscale), found(Kind::Lan)) {
        (Some(tailscale), _) => let_in(tailscale.ip, "your Tailscale devices"),
        (None, Some(lan)) => let_in(lan.ip, "whoever is on the local network, unencrypted,"),
        (None, None) => "This machine has no other address to offer now; with Tailscale running here: \
                         claude-proxy-router onboard --host tailscale"
            .into(),
    };
    format!("other devices cannot reach {only}, the only address that is listened on. {way}")
}

/// Has the running router do it, or does it where none runs.
fn order(paths: &Paths, command: control::Command) -> anyhow::Result<Value> {
    match Instance::take(&paths.lock()) {
        Err(InstanceError::Taken { .. }) => client::command(paths, &command),
        Err(error) => Err(error.into()),
        Ok(_none_runs) => {
            let config = Config::load(&paths.config)?;
            let devices = Devices::load(&paths.devices(), &config.router_key);
            offline(&devices, command)
        }
    }
}

fn offline(devices: &Devices, command: control::Command) -> anyhow::Result<Value> {
    let no_seats = |seats: &Option<Vec<String>>| match seats {
        None => Ok(()),
        Some(_) => bail!("the router is not running, and it alone knows the seats: start it first"),
    };
    Ok(match command {
        control::Command::AddDevice { name, seats } => {
            no_seats(&seats)?;
            let (device, key) = devices.add(&name, None, SystemClock.now().as_second())?;
            let mut added = serde_json::to_value(device)?;
            added["key"] = key.into();
            added
        }
        control::Command::RevokeDevice { id } => serde_json::to_value(devices.revoke(&id)?)?,
        control::Command::RenameDevice { id, name } => serde_json::to_value(devices.rename(&id, &name)?)?,
        control::Command::LimitDevice { id, seats } => {
            no_seats(&seats)?;
            serde_json::to_value(devices.limit(&id, None)?)?
        }
        _ => serde_json::to_value(devices.list())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_only_this_machine_is_listened_on_the_way_out_is_an_address_that_it_has() {
        let candidate = |kind, ip: &str| Candidate {
            kind,
            ip: ip.parse().unwrap(),
            interface: "x".into(),
        };
        let loopback = candidate(Kind::Loopback, "127.0.0.1");
        let lan = candidate(Kind::Lan, "192.168.1.20");
        let tailscale = candidate(Kind::Tailscale, "100.64.0.9");
        for (here, want) in [
            (vec![&loopback], "onboard --host tailscale"),
            (vec![&loopback, &lan], r#"set host '["127.0.0.1","192.168.1.20"]'"#),
            (
                vec![&loopback, &tailscale, &lan],
                r#"set host '["127.0.0.1","100.64.0.9"]'"#,
            ),
        ] {
            let here: Vec<Candidate> = here.into_iter().cloned().collect();
            let said = shut_in(loopback.ip, &here);
            assert!(said.contains("cannot reach 127.0.0.1"), "{said}");
            assert!(said.contains(&format!("claude-proxy-router {want}")), "{said}");
        }
    }
}
