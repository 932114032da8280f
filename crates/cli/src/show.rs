//! What the command prints. Nothing else here writes to the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process;

use comfy_table::{ContentArrangement, Table, presets};
use gateway::config::Config;
use gateway::devices::DeviceView;
use gateway::error;
use gateway::snapshot::{LoginTrouble, SeatView, Snapshot, WindowView};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Prints one line. Where nobody reads any more, as after `| head -1`, it goes unsaid and the command does the rest of
/// its work: an `uninstall` that ended here would leave half of it.
pub(crate) fn line(text: &str) {
    must_print(writeln!(io::stdout(), "{text}"));
}

/// Ends the command where it can say nothing for another reason than that nobody reads, such as a full disk.
fn must_print(printed: io::Result<()>) {
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            notice(&format!("it cannot be printed: {error}"));
            process::exit(1);
        }
        _ => {}
    }
}

/// Prints what went wrong, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    notice(&format!("{error:#}"));
}

/// Prints that the router runs, and over what.
pub(crate) fn started(snapshot: &Snapshot, config: &Path) {
    line(&format!(
        "Claude Proxy Router {} listens on {}",
        snapshot.program,
        listening(snapshot)
    ));
    line(&format!("Settings: {}", config.display()));
    match snapshot.seats.is_empty() {
        true => line(
            "No Claude login was found on this machine yet; log in with `claude`, it is noticed within ten seconds.",
        ),
        false => line(&table(snapshot, &TimeZone::system()).to_string()),
    }
    line("For another device: claude-proxy-router devices add NAME");
}

/// Prints what the sandbox is, and what to try.
pub(crate) fn started_sandbox(snapshot: &Snapshot, key: &str, anthropic: SocketAddr, config: &Path) {
    let url = snapshot
        .listening
        .first()
        .map_or_else(String::new, |address| format!("http://{address}"));
    line(&format!(
        "SANDBOX: three made-up seats and a pretended Anthropic ({anthropic}). Nothing leaves this machine, no login is read."
    ));
    line(&table(snapshot, &TimeZone::system()).to_string());
    line("Try it in another terminal; each request shows below, with its seat and why:");
    line(&format!(
        "  curl -s {url}/v1/messages -H 'x-router-key: {key}' -H 'content-type: application/json' \\"
    ));
    line(r#"    -d '{"model":"claude-opus-5-5","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}'"#);
    line(&format!(
        "  ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key} claude -p hello"
    ));
    line(&format!("  claude-proxy-router --config {} status", config.display()));
    line("About twenty requests fill all three seats; a seat returns within two minutes. Ctrl-C ends it.");
}

/// Prints the seats.
pub(crate) fn status(snapshot: &Snapshot, json: bool) -> anyhow::Result<()> {
    if json {
        line(&serde_json::to_string_pretty(snapshot)?);
        return Ok(());
    }
    let sandbox = if snapshot.sandbox { "SANDBOX · " } else { "" };
    let paused = match snapshot.routing.paused {
        true => "; paused: nothing is served until `claude-proxy-router resume`",
        false => "",
    };
    line(&format!("{sandbox}listening on {}{paused}", listening(snapshot)));
    for problem in &snapshot.problems {
        line(&format!("problem: {}", problem.words));
    }
    match snapshot.seats.is_empty() {
        true => line("No Claude login was found on this machine; log in with `claude`."),
        false => line(&table(snapshot, &TimeZone::system()).to_string()),
    }
    Ok(())
}

/// Prints what another device needs of a router on that port.
pub(crate) fn key(config: &Config, port: u16) {
    for host in &config.hosts {
        let address = SocketAddr::new(*host, port);
        match host {
            any if any.is_unspecified() => line(&format!("http://<an address of this machine>:{port}")),
            _ => line(&format!("http://{address}")),
        }
    }
    line(&config.router_key);
}

/// Prints the devices, their seats by the names in `labels`, as far as those are known.
pub(crate) fn devices(devices: &[DeviceView], labels: &BTreeMap<String, String>, now: i64) {
    let name = |id: &String| labels.get(id).unwrap_or(id).clone();
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["DEVICE", "SEATS", "REQUESTS", "LAST SEEN", "ID"]);
    for device in devices {
        let seats = device.seats.as_ref().map_or_else(
            || "all".into(),
            |seats| seats.iter().map(name).collect::<Vec<_>>().join(", "),
        );
        let seen = device.last_seen_at.map_or_else(dash, |seen| match now - seen {
            ..60 => "just now".into(),
            seconds => format!("{} ago", error::span(SignedDuration::from_secs(seconds))),
        });
        let name = match device.revoked {
            true => format!("{} (shut out)", device.name),
            false => device.name.clone(),
        };
        table.add_row([name, seats, device.requests.to_string(), seen, device.id.clone()]);
    }
    line(&table.to_string());
}

/// Prints a question and stays on its line.
pub(crate) fn question(text: &str) {
    must_print(write!(io::stdout(), "{text}"));
}

/// Says something beside what a command prints.
pub(crate) fn notice(text: &str) {
    // Nobody is there to be told that this cannot be told.
    let _ = writeln!(io::stderr(), "claude-proxy-router: {text}");
}

/// Where it listens, and where it cannot yet.
fn listening(snapshot: &Snapshot) -> String {
    let mut words = match snapshot.listening.is_empty() {
        true => "no address".into(),
        false => snapshot.listening.join(" and "),
    };
    if !snapshot.waiting.is_empty() {
        words += &format!(", waiting for {}", snapshot.waiting.join(" and "));
    }
    words
}

fn table(snapshot: &Snapshot, zone: &TimeZone) -> Table {
    let families: BTreeSet<&String> = snapshot
        .seats
        .iter()
        .flat_map(|seat| &seat.windows)
        .filter_map(|window| window.family.as_ref())
        .collect();
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    let mut head = vec!["SEAT", "PLAN", "5-HOUR", "WEEK"];
    head.extend(families.iter().map(|family| family.as_str()));
    head.extend(["NEXT RESET", "STATE", "READ"]);
    table.set_header(head.iter().map(|name| name.to_uppercase()));
    for seat in &snapshot.seats {
        let find = |kind: &str, family: Option<&String>| {
            seat.windows
                .iter()
                .find(|window| window.kind == kind && window.family.as_ref() == family)
        };
        let mut row = vec![
            seat.label.clone(),
            seat.plan.clone().unwrap_or_else(dash),
            share(find("fiveHour", None)),
            share(find("weekly", None)),
        ];
        row.extend(families.iter().map(|family| share(find("model", Some(family)))));
        row.extend([
            next_reset(seat, snapshot.now),
            state(seat, snapshot.now, zone),
            age(seat, snapshot.now),
        ]);
        table.add_row(row);
    }
    table
}

fn dash() -> String {
    "–".into()
}

/// A share in whole per cent; unknown is a dash, never 0.
fn share(window: Option<&WindowView>) -> String {
    window.map_or_else(dash, |window| format!("{} %", (window.used / 100).min(100)))
}

fn next_reset(seat: &SeatView, now: i64) -> String {
    let next = seat
        .windows
        .iter()
        .filter_map(|window| Some((window.resets_at?, window)))
        .min_by_key(|(at, _)| *at);
    next.map_or_else(dash, |(at, window)| {
        let name = match (window.kind.as_str(), &window.family) {
            ("fiveHour", _) => "5-hour",
            (_, Some(family)) => family,
            _ => "week",
        };
        format!("{name} in {}", error::span(SignedDuration::from_secs(at - now)))
    })
}

fn state(seat: &SeatView, now: i64, zone: &TimeZone) -> String {
    let words = seat.state.words(|at| {
        let moment = |second| Timestamp::from_second(second).unwrap_or_default();
        error::clock_time(moment(at), moment(now), zone)
    });
    // A login's trouble is told while its seat still serves, too.
    let trouble = seat.login.map(LoginTrouble::words).filter(|trouble| *trouble != words);
    let draining = seat.draining.then_some("takes no new conversation");
    let all = [Some(words.as_str()), trouble, draining];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// How old what stands in its row is, at most.
fn age(seat: &SeatView, now: i64) -> String {
    seat.oldest_read_at().map_or_else(dash, |read| match now - read {
        ..60 => "just now".into(),
        seconds => format!("{} ago", error::span(SignedDuration::from_secs(seconds))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_in_a_row_is_that_of_the_oldest_share_in_it() {
        let kept = include_str!("../../gateway/tests/snapshots/one.json");
        let mut snapshot: Snapshot = serde_json::from_str(kept).unwrap();
        let (now, seat) = (snapshot.now, &mut snapshot.seats[0]);
        seat.read_at = Some(now);
        for window in &mut seat.windows {
            window.observed_at = now;
        }
        let row = |snapshot: &Snapshot| {
            let table = table(snapshot, &TimeZone::UTC).to_string();
            table.lines().last().unwrap_or_default().trim_end().to_owned()
        };
        assert!(row(&snapshot).ends_with("just now"), "{}", row(&snapshot));
        snapshot.seats[0].windows.last_mut().unwrap().observed_at = now - 2 * 3_600;
        assert!(row(&snapshot).ends_with("2 h ago"), "{}", row(&snapshot));
    }
}
