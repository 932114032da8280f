//! Running by itself: as a LaunchAgent on a Mac, as a systemd user unit on Linux. What is written is decided here, as
//! text; [`launchd`] and [`systemd`] put it in place.

pub mod launchd;
pub mod systemd;

use std::io;
use std::path::{Path, PathBuf};

use plist::{Dictionary, Value};

/// The LaunchAgent's label, which the earlier Node tool used, too.
pub const LABEL: &str = "io.github.choiyounggi.claude-proxy-router";
/// The unit's name.
pub const UNIT: &str = "claude-proxy-router.service";
/// The service that `brew services` makes of the formula, on a Mac and on Linux.
const BREW: [&str; 2] = [
    "homebrew.mxcl.claude-proxy-router.plist",
    "homebrew.claude-proxy-router.service",
];
/// How long the system waits before it starts a router again that failed, in seconds.
const THROTTLE: u32 = 10;
/// How long a router may take to end: ten seconds for answers and forty for a renewal.
const PATIENCE: u32 = 60;

/// What the service runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The command's executable, absolute: a service has no search path.
    pub program: PathBuf,
    /// The settings, if they are not the usual ones.
    pub config: Option<PathBuf>,
    /// The log.
    pub log: PathBuf,
    /// Where the output of a router goes that ends before it has a log.
    pub output: PathBuf,
}

/// Why the service could not be put in place or taken away.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// `brew services` runs it already.
    #[error("`brew services` starts the router already ({}); only one of the two may: `brew services stop claude-proxy-router` first", .0.display())]
    Brew(PathBuf),
    /// The system's service manager is not there.
    #[error("{0} is not there, so nothing can be started by itself")]
    NoManager(&'static str),
    /// It does not run what it was given.
    #[error("{manager} did not start the router: {said}")]
    Refused {
        /// Which manager.
        manager: &'static str,
        /// What it said.
        said: String,
    },
    /// A file could not be written or removed.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ServiceError {
    fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The service's own file.
    pub file: PathBuf,
    /// The copy of the earlier tool's file, where that was replaced.
    pub earlier: Option<PathBuf>,
}

impl Plan {
    fn arguments(&self) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut all = vec![text(&self.program), "start".into(), "--log".into(), text(&self.log)];
        if let Some(config) = &self.config {
            all.extend(["--config".into(), text(config)]);
        }
        all
    }

    /// The LaunchAgent. It starts with the owner's session, where the Keychain can be read, and again after a failure
    /// only: one that was told to end, or found another running, ends with success and stays ended.
    pub fn launch_agent(&self) -> Value {
        let text = |path: &Path| Value::from(path.to_string_lossy().into_owned());
        let mut keep_alive = Dictionary::new();
        keep_alive.insert("SuccessfulExit".into(), false.into());
        let mut agent = Dictionary::new();
        agent.insert("Label".into(), LABEL.into());
        let arguments = self.arguments().into_iter().map(Value::from).collect();
        agent.insert("ProgramArguments".into(), Value::Array(arguments));
        agent.insert("RunAtLoad".into(), true.into());
        agent.insert("KeepAlive".into(), Value::Dictionary(keep_alive));
        agent.insert("ThrottleInterval".into(), THROTTLE.into());
        agent.insert("ExitTimeOut".into(), PATIENCE.into());
        agent.insert("LimitLoadToSessionType".into(), "Aqua".into());
        // Devices wait for it: it is no background chore to be slowed down.
        agent.insert("ProcessType".into(), "Interactive".into());
        agent.insert("StandardOutPath".into(), text(&self.output));
        agent.insert("StandardErrorPath".into(), text(&self.output));
        Value::Dictionary(agent)
    }

    /// The systemd user unit, which restarts on the same terms.
    pub fn systemd_unit(&self) -> String {
        let arguments: Vec<String> = self.arguments().iter().map(|word| systemd_word(word)).collect();
        format!(
            "[Unit]\n\
             Description=Claude Proxy Router\n\
             StartLimitIntervalSec=300\n\
             StartLimitBurst=10\n\
             \n\
             [Service]\n\
             ExecStart={}\n\
             Restart=on-failure\n\
             RestartSec={THROTTLE}\n\
             TimeoutStopSec={PATIENCE}\n\
             # A renewal that Claude Code was asked for is not ended half-way.\n\
             KillMode=mixed\n\
             UMask=0077\n\
             \n\
             [Install]\n\
             WantedBy=default.target\n",
            arguments.join(" ")
        )
    }
}

/// A word of a command line as systemd reads it.
fn systemd_word(word: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '%' | '$' => quoted.extend([letter, letter]),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// The name of the copy that is kept of an agent which was replaced.
pub fn kept_agent() -> String {
    format!("{LABEL}.plist")
}

/// The words of a command line that is written so.
fn systemd_words(line: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, &mut word) {
            ('"', None) => word = Some(String::new()),
            ('"', Some(_)) => words.extend(word.take()),
            ('\\' | '%' | '$', Some(word)) => word.extend(letters.next()),
            (_, Some(word)) => word.push(letter),
            (_, None) => {}
        }
    }
    words
}

/// The settings that the service with that text, an agent's or a unit's, runs with; `None` for the usual ones.
pub fn settings_of(service: &[u8]) -> Option<PathBuf> {
    let agents = arguments(service);
    let unit = String::from_utf8_lossy(service);
    let units = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .map(systemd_words);
    let words = agents.or(units)?;
    let at = words.iter().position(|word| word == "--config")?;
    words.get(at + 1).map(PathBuf::from)
}

/// The command line of a LaunchAgent with that text.
fn arguments(agent: &[u8]) -> Option<Vec<String>> {
    let agent = Value::from_reader(io::Cursor::new(agent)).ok()?;
    let words = agent.as_dictionary()?.get("ProgramArguments")?.as_array()?;
    Some(words.iter().filter_map(Value::as_string).map(str::to_owned).collect())
}

/// Whose a LaunchAgent of our label is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// This program's.
    Ours,
    /// The earlier Node tool's, or one that nobody knows: it is replaced, and a copy kept.
    Earlier,
}

/// Whose the LaunchAgent with that text is: this program always says where its log goes, and no other does.
pub fn whose(agent: &[u8]) -> Agent {
    let words = arguments(agent).unwrap_or_default();
    match matches!(words.as_slice(), [_, start, log, ..] if start == "start" && log == "--log") {
        true => Agent::Ours,
        false => Agent::Earlier,
    }
}

/// The file by which `brew services` would start the router, if it is in `folder`.
fn brews(folder: &Path) -> Option<PathBuf> {
    BREW.iter().map(|name| folder.join(name)).find(|file| file.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            program: "/opt/my tools/claude-proxy-router".into(),
            config: None,
            log: "/Users/me/Library/Logs/claude-proxy-router/router.log".into(),
            output: "/Users/me/Library/Logs/claude-proxy-router/launchd.log".into(),
        }
    }

    fn written(agent: &Value) -> Vec<u8> {
        let mut text = Vec::new();
        agent.to_writer_xml(&mut text).unwrap();
        text
    }

    #[test]
    fn ld_01_the_launch_agent_is_restarted_after_a_failure_only() {
        let text = written(&plan().launch_agent());
        let read = Value::from_reader(io::Cursor::new(&text)).unwrap();
        let agent = read.as_dictionary().unwrap();
        let keep_alive = agent["KeepAlive"].as_dictionary().unwrap();
        assert_eq!(keep_alive.len(), 1);
        assert_eq!(keep_alive["SuccessfulExit"], Value::Boolean(false));
        assert_eq!(agent["ThrottleInterval"], Value::from(10_u32));
        let words: Vec<&str> = agent["ProgramArguments"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_string)
            .collect();
        assert_eq!(words[..2], ["/opt/my tools/claude-proxy-router", "start"]);
        assert!(
            words
                .iter()
                .filter(|word| word.contains('/'))
                .all(|path| path.starts_with('/'))
        );
        assert_eq!(whose(&text), Agent::Ours);
    }

    #[test]
    fn ld_01_the_unit_is_restarted_after_a_failure_only() {
        let unit = Plan {
            config: Some("/home/me/50% $HOME \"x\".json".into()),
            ..plan()
        }
        .systemd_unit();
        for line in [
            "Restart=on-failure",
            "RestartSec=10",
            "TimeoutStopSec=60",
            "WantedBy=default.target",
        ] {
            assert!(unit.lines().any(|there| there == line), "{line} is not in {unit}");
        }
        let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        assert!(
            start.starts_with("ExecStart=\"/opt/my tools/claude-proxy-router\" \"start\" \"--log\""),
            "{start}"
        );
        assert!(
            start.ends_with(r#""--config" "/home/me/50%% $$HOME \"x\".json""#),
            "{start}"
        );
    }

    /// Runs a checker on a file with that text, where it is to be had.
    fn passes(name: &str, text: &[u8], check: impl Fn(&Path) -> std::process::Command) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        match check(&file).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success() && said.is_empty(), "{said}");
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
        }
    }

    #[test]
    fn ld_01_pythons_plistlib_reads_the_agent_and_systemd_finds_no_fault_in_the_unit() {
        let plan = Plan {
            program: "/bin/true".into(),
            ..plan()
        };
        passes("agent.plist", &written(&plan.launch_agent()), |file| {
            let script = "import plistlib, sys; a = plistlib.load(open(sys.argv[1], 'rb')); \
                          assert a['KeepAlive'] == {'SuccessfulExit': False} and a['RunAtLoad'] is True; \
                          assert a['ProgramArguments'][:3] == ['/bin/true', 'start', '--log'], a";
            let mut command = std::process::Command::new("python3");
            command.args(["-c", script]).arg(file);
            command
        });
        passes(UNIT, plan.systemd_unit().as_bytes(), |file| {
            let mut command = std::process::Command::new("systemd-analyze");
            command
                .args(["--user", "--man=no", "--recursive-errors=no", "verify"])
                .arg(file);
            // It wants a place for a manager of its own.
            command.env("XDG_RUNTIME_DIR", file.parent().unwrap());
            command
        });
    }

    #[test]
    fn a_service_tells_which_settings_it_runs_with() {
        for config in [
            None,
            Some(r#"/home/me/50% $HOME "x" 설정.json"#),
            Some(r"/a\b\\c/%d.json"),
        ] {
            let plan = Plan {
                config: config.map(PathBuf::from),
                ..plan()
            };
            assert_eq!(settings_of(&written(&plan.launch_agent())), plan.config);
            assert_eq!(settings_of(plan.systemd_unit().as_bytes()), plan.config);
        }
        assert_eq!(settings_of(b"no service"), None);
    }

    #[test]
    fn the_earlier_tools_agent_is_known() {
        for words in [
            &[
                "/opt/homebrew/bin/node",
                "/opt/homebrew/lib/node_modules/claude-proxy-router/bin/cli.js",
                "start",
            ][..],
            &["/opt/homebrew/bin/claude-proxy-router", "start"],
            &[],
        ] {
            let mut agent = Dictionary::new();
            agent.insert("Label".into(), LABEL.into());
            let words = words.iter().map(|word| Value::from(*word)).collect();
            agent.insert("ProgramArguments".into(), Value::Array(words));
            assert_eq!(whose(&written(&Value::Dictionary(agent))), Agent::Earlier);
        }
        assert_eq!(whose(b"no property list"), Agent::Earlier);
    }
}
