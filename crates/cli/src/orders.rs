//! What the owner orders a running router to do, and asks of it: a command on the control socket each.

use clap::{Subcommand, ValueEnum};
use gateway::control::Command;
use gateway::paths::Paths;
use serde_json::Value;

use crate::{client, history, show};

/// A seat goes by its name, its e-mail address, its organisation or its id.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Give a seat nothing more, or the whole router; what runs goes on.
    Pause {
        /// The seat; without one, the whole router.
        seat: Option<String>,
    },
    /// Take back `pause` or `drain`.
    Resume {
        /// The seat; without one, the whole router.
        seat: Option<String>,
    },
    /// Let a seat finish the conversations that run on it, and give it no new one.
    Drain {
        /// The seat.
        seat: String,
    },
    /// Say in which order seats are taken, for a routing that goes by it.
    Order {
        /// The seats, the first one first; those left out come last.
        #[arg(required = true)]
        seats: Vec<String>,
    },
    /// Leave a share of a seat to your own direct use.
    Reserve {
        /// The seat.
        seat: String,
        /// Per cent; without it, nothing is left.
        percent: Option<u8>,
    },
    /// Use a seat only when nothing else is left, from so many per cent on.
    Limit {
        /// The seat.
        seat: String,
        /// Per cent; without it, what holds for all seats.
        percent: Option<u8>,
    },
    /// Say whether a seat may go on beyond its plan, at your cost.
    ExtraUsage {
        /// The seat.
        seat: String,
        /// Without it, the default, which is `last`.
        policy: Option<Policy>,
    },
    /// End a seat's rests: the next request tries it.
    TryNow {
        /// The seat.
        seat: String,
    },
    /// Call a seat by another name; without one, by its own again.
    Rename {
        /// The seat.
        seat: String,
        /// What to call it.
        name: Option<String>,
    },
    /// Look for logins, and at the settings, now.
    Rescan,
    /// Show requests that ended: when, from which device, which seat, at what cost.
    Requests {
        /// So many at most, the newest first.
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: u32,
        /// Those before this number.
        #[arg(long, value_name = "NUMBER")]
        before: Option<i64>,
        /// Those that this seat answered.
        #[arg(long)]
        seat: Option<String>,
        /// Those of this device.
        #[arg(long)]
        device: Option<String>,
        /// Those alone that failed.
        #[arg(long)]
        failed: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show conversations that moved from one seat to another, and why.
    Switches {
        /// So many at most, the newest first.
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: u32,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Tell why a request went where it went.
    Why {
        /// Its number, as in `requests` and in its answer's headers; without it, the last one.
        request: Option<i64>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
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
}

/// Whether a seat may go on beyond its plan.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Policy {
    /// It rests until its plan has room again.
    Never,
    /// When no other seat is left.
    Last,
    /// Like any other.
    Allowed,
}

impl Policy {
    const fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Last => "last",
            Self::Allowed => "allowed",
        }
    }
}

/// Has the running router do it, and prints what it tells.
pub(crate) fn run(paths: &Paths, verb: Verb) -> anyhow::Result<()> {
    let order_to = |command| client::command(paths, &command).map(drop);
    let told = |command, json, words: fn(&Value) -> String| {
        let reply = client::command(paths, &command)?;
        match json {
            true => show::line(&serde_json::to_string_pretty(&reply)?),
            false => show::line(&words(&reply)),
        }
        Ok(())
    };
    match verb {
        Verb::Pause { seat } => order_to(Command::Pause { seat }),
        Verb::Resume { seat } => order_to(Command::Resume { seat }),
        Verb::Drain { seat } => order_to(Command::Drain { seat }),
        Verb::Order { seats } => order_to(Command::Order { seats }),
        Verb::Reserve { seat, percent } => order_to(Command::Reserve { seat, percent }),
        Verb::Limit { seat, percent } => order_to(Command::Limit { seat, percent }),
        Verb::ExtraUsage { seat, policy } => order_to(Command::ExtraUsage {
            seat,
            policy: policy.map(|policy| policy.word().to_owned()),
        }),
        Verb::TryNow { seat } => order_to(Command::TryNow { seat }),
        Verb::Rename { seat, name } => order_to(Command::Rename { seat, name }),
        Verb::Rescan => order_to(Command::Rescan),
        Verb::Requests {
            limit,
            before,
            seat,
            device,
            failed,
            json,
        } => {
            let command = Command::Requests {
                limit,
                before,
                seat,
                device,
                failed,
            };
            told(command, json, history::requests)
        }
        Verb::Switches { limit, json } => told(Command::Switches { limit }, json, history::switches),
        Verb::Why { request, json } => told(Command::Why { request }, json, history::why),
        Verb::Settings { json } => told(Command::Settings, json, settings),
        Verb::Set { key, value } => {
            // What is no JSON is text.
            let value = value.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
            let value = value.unwrap_or_default();
            let reply = client::command(paths, &Command::Set { key, value })?;
            for address in reply["waiting"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                show::notice(&format!(
                    "this machine has no address for {address} now; it is waited for"
                ));
            }
            Ok(())
        }
    }
}

fn settings(settings: &Value) -> String {
    let line = |(key, value): (&String, &Value)| format!("{key}: {value}");
    let lines = settings.as_object().into_iter().flatten().map(line);
    lines.collect::<Vec<_>>().join("\n")
}
