//! What to look at when something is wrong, as a text that can be shown to others: no key, no token, no name that its
//! owner gave stands in it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;

use crate::error::span;
use crate::snapshot::{LoginTrouble, SeatView, Snapshot};

/// What was found on the machine.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The system and its processor.
    pub system: String,
    /// The owner's home, which is left out of paths.
    pub home: PathBuf,
    /// The settings file.
    pub config: PathBuf,
    /// What is wrong with the settings, if something is.
    pub config_trouble: Option<String>,
    /// The settings that differ from their defaults, by name.
    pub changed: Vec<String>,
    /// The running router.
    pub snapshot: Option<Snapshot>,
    /// What the service manager knows.
    pub service: String,
    /// Who has the wanted port, where that is not this router.
    pub port_holder: Option<String>,
    /// The `claude` that renewals could be handed to.
    pub claude: Option<PathBuf>,
    /// Where the settings say that it is, if they do.
    pub claude_path: Option<PathBuf>,
    /// Lock directories of Claude Code's that are there, and how long they have been.
    pub locks: Vec<(PathBuf, SignedDuration)>,
    /// The logs that were read, each with its last warnings and errors.
    pub logs: Vec<(PathBuf, Vec<String>)>,
    /// What may stand in them between backquotes: the names of settings.
    pub settings: Vec<String>,
    /// How many devices there are, and how many of them are shut out.
    pub devices: (usize, usize),
}

/// The report.
pub fn report(found: &Found) -> String {
    let mut text = String::new();
    let mut line = |what: &str, said: &str| {
        let _ = writeln!(text, "{what:<10} {said}");
    };
    line("version", &format!("{} on {}", env!("CARGO_PKG_VERSION"), found.system));
    line("settings", &found.config.display().to_string());
    if let Some(trouble) = &found.config_trouble {
        line("", trouble);
    }
    if !found.changed.is_empty() {
        line(
            "",
            &format!("differs from the defaults in: {}", found.changed.join(", ")),
        );
    }
    line("service", &found.service);
    match &found.snapshot {
        None => line("router", "not running"),
        Some(snapshot) => {
            let sandbox = if snapshot.sandbox { ", over the sandbox" } else { "" };
            line("router", &format!("running, version {}{sandbox}", snapshot.program));
            line("listening", &or_none(&snapshot.listening));
            if !snapshot.waiting.is_empty() {
                line("waiting", &snapshot.waiting.join(" and "));
            }
            line("seats", &snapshot.seats.len().to_string());
            for (number, seat) in snapshot.seats.iter().enumerate() {
                line("", &seat_in_words(number + 1, seat, snapshot.now));
            }
            if snapshot.routing.paused {
                line("paused", "nothing is served until `claude-proxy-router resume`");
            }
            for problem in &snapshot.problems {
                line("problem", &problem.words);
            }
        }
    }
    if let Some(holder) = &found.port_holder {
        line("port", &format!("taken by {holder}"));
    }
    let (all, revoked) = found.devices;
    line("devices", &format!("{all}, of which {revoked} shut out"));
    match (&found.claude, &found.claude_path) {
        (Some(path), _) => line("claude", &path.display().to_string()),
        (None, Some(path)) => line(
            "claude",
            &format!(
                "not found: `claudePath` is {}, and no program is there; renewals cannot be handed to it",
                path.display()
            ),
        ),
        (None, None) => line("claude", "not found; renewals cannot be handed to it"),
    }
    match found.locks.is_empty() {
        true => line("locks", "none is held"),
        false => {
            for (path, age) in &found.locks {
                line("lock", &format!("{}, for {}", path.display(), span(*age)));
            }
        }
    }
    if found.logs.is_empty() {
        line("troubles", "there is no log");
    }
    for (log, troubles) in &found.logs {
        let of_it = match troubles.is_empty() {
            true => "none in",
            false => "the last ones in",
        };
        let _ = writeln!(text, "{:<10} {of_it} {}", "troubles", log.display());
        for trouble in troubles {
            let _ = writeln!(text, "  {}", unnamed(trouble, found));
        }
    }
    redacted(&text, &found.home)
}

/// A line of a log without the names of seats and devices: a seat that is known goes by its number here.
fn unnamed(line: &str, found: &Found) -> String {
    // A device's name stands last, and may have any letter in it.
    let (line, device) = match line.split_once(" device=") {
        Some((before, _)) => (before, " device=(a name)"),
        None => (line, ""),
    };
    let seats = found.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.seats);
    let quoted = |(index, text): (usize, &str)| {
        let is_named = index % 2 == 1 && !text.starts_with("claude") && !found.settings.iter().any(|name| name == text);
        match seats.iter().position(|seat| seat.label == text) {
            _ if !is_named => text.to_owned(),
            Some(number) => format!("seat {}", number + 1),
            None => "a name".to_owned(),
        }
    };
    let parts: Vec<String> = line.split('`').enumerate().map(quoted).collect();
    parts.join("`") + device
}

fn or_none(all: &[String]) -> String {
    match all.is_empty() {
        true => "nowhere".into(),
        false => all.join(" and "),
    }
}

/// A seat by its number, plan and state; never by a name.
fn seat_in_words(number: usize, seat: &SeatView, now: i64) -> String {
    let state = seat
        .state
        .words(|at| format!("in {}", span(SignedDuration::from_secs(at - now))));
    let mut words = format!("{number}. {}: {state}", seat.plan.as_deref().unwrap_or("plan unknown"));
    if let Some(trouble) = seat.login.map(LoginTrouble::words).filter(|trouble| *trouble != state) {
        let _ = write!(words, "; {trouble}");
    }
    for window in &seat.windows {
        let name = window.family.as_deref().unwrap_or(&window.kind);
        let _ = write!(words, ", {name} {} %", window.used / 100);
    }
    match seat.oldest_read_at() {
        Some(read) => {
            let _ = write!(
                words,
                ", read {} ago",
                span(SignedDuration::from_secs((now - read).max(0)))
            );
        }
        None => words.push_str(", never read"),
    }
    words
}

/// The last `most` warnings and errors of a log.
pub fn troubles(log: &str, most: usize) -> Vec<String> {
    let is_one = |line: &&str| {
        line.split_whitespace()
            .take(2)
            .any(|word| word == "WARN" || word == "ERROR")
    };
    let all: Vec<&str> = log.lines().filter(is_one).collect();
    all[all.len().saturating_sub(most)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

/// The text without keys, tokens, e-mail addresses and the home directory's name.
pub fn redacted(text: &str, home: &Path) -> String {
    let home = home.to_string_lossy();
    let text = match home.len() > 1 {
        true => text.replace(&*home, "~"),
        false => text.to_owned(),
    };
    let mut safe = String::with_capacity(text.len());
    let mut word = String::new();
    for letter in text.chars().chain(['\n']) {
        // What stands between these belongs together: a token, an address, a path.
        if letter.is_whitespace() || "\"'`,;()<>[]{}=".contains(letter) {
            safe.push_str(redacted_word(&word));
            safe.push(letter);
            word.clear();
        } else {
            word.push(letter);
        }
    }
    safe.pop();
    safe
}

/// What begins like a secret of ours or of Anthropic's, or is as long and as random as one, is left out.
fn redacted_word(word: &str) -> &str {
    let core = word.trim_end_matches(['.', ':', '!', '?']);
    let secret = ["sk-ant-", "rk-", "rt-", "tok-"]
        .iter()
        .any(|start| core.starts_with(start));
    let digits = core.bytes().filter(u8::is_ascii_digit).count();
    let plain = core
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_+".contains(&byte));
    let random = plain && core.len() >= 32 && digits >= 4;
    let address = core
        .split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    match (secret || random, address) {
        (true, _) => "(left out)",
        (false, true) => "(an e-mail address)",
        (false, false) => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sc_02_nothing_secret_or_personal_is_left_in_a_text() {
        let home = Path::new("/home/first.last");
        for (text, want) in [
            ("Bearer sk-ant-oat01-abc.", "Bearer (left out)"),
            ("key=rk-0123456789abcdef", "key=(left out)"),
            ("\"refresh\":\"sk-ant-ort01-x\"", "\"refresh\":\"(left out)\""),
            ("/home/first.last/.claude is locked", "~/.claude is locked"),
            ("seat me@example.test, ready", "seat (an e-mail address), ready"),
            ("0123456789abcdef0123456789abcdef0123", "(left out)"),
            (
                "`work` has reached its 5-hour limit",
                "`work` has reached its 5-hour limit",
            ),
            ("listening on 127.0.0.1:18787\n", "listening on 127.0.0.1:18787\n"),
        ] {
            assert_eq!(redacted(text, home), want);
        }
    }

    #[test]
    fn no_name_of_a_seat_or_a_device_is_left_in_a_line_of_a_log() {
        let found = Found {
            settings: vec!["limitPct".into()],
            ..Found::default()
        };
        for (line, want) in [
            (
                "WARN POST /v1/messages m: 502 from `Gildong Hong` (broken) device=Hong Gildong's MacBook",
                "WARN POST /v1/messages m: 502 from `a name` (broken) device=(a name)",
            ),
            (
                "`limitPct` must be less; `claude-proxy-router stop`",
                "`limitPct` must be less; `claude-proxy-router stop`",
            ),
            ("WARN nothing is named", "WARN nothing is named"),
        ] {
            assert_eq!(unnamed(line, &found), want);
        }
    }

    #[test]
    fn the_last_troubles_of_a_log() {
        let log = "2026-11-30T00:00:00Z  INFO fine\n2026-11-30T00:00:01Z  WARN one\n2026-11-30T00:00:02Z ERROR two\n\
                   2026-11-30T00:00:03Z  INFO a WARN in the text\n2026-11-30T00:00:04Z  WARN three\n";
        let last = troubles(log, 2);
        assert_eq!(last.len(), 2);
        assert!(last[0].ends_with("two") && last[1].ends_with("three"), "{last:?}");
    }

    #[test]
    fn a_machine_where_nothing_runs_is_reported_too() {
        let text = report(&Found {
            service: "none".into(),
            system: "linux".into(),
            ..Found::default()
        });
        for words in ["not running", "none is held", "there is no log"] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_claude_that_is_not_where_the_settings_say_is_reported_with_that_path() {
        let text = report(&Found {
            home: "/home/me".into(),
            claude_path: Some("/home/me/bin/claude".into()),
            ..Found::default()
        });
        assert!(text.contains("not found: `claudePath` is ~/bin/claude"), "{text}");
    }

    #[test]
    fn each_log_is_named_with_the_troubles_that_it_has() {
        let text = report(&Found {
            home: "/home/me".into(),
            logs: vec![
                ("/home/me/log/app.log".into(), vec!["WARN one".into()]),
                ("/home/me/log/router.log".into(), Vec::new()),
            ],
            ..Found::default()
        });
        let want = "troubles   the last ones in ~/log/app.log\n  WARN one\ntroubles   none in ~/log/router.log\n";
        assert!(text.ends_with(want), "{text}");
    }
}
