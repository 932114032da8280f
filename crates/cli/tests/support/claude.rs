//! The genuine Claude Code in print mode, in a home of its own.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use super::Router;
use super::wire::{Asked, Wire};

/// The bearer of a device that keeps its own login.
pub(crate) const DEVICE_TOKEN: &str = "sk-ant-oat01-device";
/// Ten retries take three minutes; nothing here may come to that.
const PATIENCE: Duration = Duration::from_secs(120);
/// The year 2100, in milliseconds.
const FAR_AHEAD_MS: i64 = 4_102_444_800_000;

/// How a device knows the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The key is its bearer.
    Token,
    /// It has a Claude login of its own, and sends the key beside it.
    Login,
}

/// A device with Claude Code on it.
pub(crate) struct Device {
    program: PathBuf,
    mode: Mode,
    key: String,
    quiet: bool,
    home: TempDir,
    wire: Wire,
}

/// What a run of Claude Code came to.
pub(crate) struct Ended {
    pub(crate) status: i32,
    /// The lines of its stream-json.
    pub(crate) lines: Vec<Value>,
    /// What it asked of the router.
    pub(crate) asked: Vec<Asked>,
}

/// The genuine Claude Code, where the tests are given one. They are only where nothing can leave the machine.
pub(crate) fn genuine() -> Option<PathBuf> {
    let Some(program) = std::env::var_os("GENUINE_CLAUDE") else {
        eprintln!("skipped: GENUINE_CLAUDE does not name a Claude Code; `scripts/test` does");
        return None;
    };
    let interfaces = fs::read_to_string("/proc/self/net/dev").expect("only Linux has private networks");
    let reachable: Vec<&str> = interfaces
        .lines()
        .skip(2)
        .filter_map(|line| line.trim().split(':').next())
        .collect();
    assert_eq!(
        reachable,
        ["lo"],
        "the genuine Claude Code runs only where loopback is all there is"
    );
    Some(program.into())
}

impl Device {
    /// One that goes through `router`, with the right key.
    pub(crate) async fn new(program: &Path, router: &Router, mode: Mode) -> Self {
        let device = Self {
            program: program.to_owned(),
            mode,
            key: super::KEY.to_owned(),
            quiet: true,
            home: TempDir::new().unwrap(),
            wire: Wire::new(router.address).await,
        };
        for folder in ["config", "desk", "tmp"] {
            fs::create_dir(device.home.path().join(folder)).unwrap();
        }
        if mode == Mode::Login {
            device.log_in();
        }
        device
    }

    /// Holds another key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// Is not told to leave out what is not essential.
    pub(crate) fn talkative(mut self) -> Self {
        self.quiet = false;
        self
    }

    /// Its own login as it stands on disk, if it has one.
    pub(crate) fn login(&self) -> Option<Vec<u8>> {
        fs::read(self.login_file()).ok()
    }

    fn login_file(&self) -> PathBuf {
        self.home.path().join("config/.credentials.json")
    }

    fn log_in(&self) {
        let login = json!({"claudeAiOauth": {
            "accessToken": DEVICE_TOKEN,
            "refreshToken": "sk-ant-ort01-device",
            "expiresAt": FAR_AHEAD_MS,
            "scopes": ["user:inference", "user:profile"],
            "subscriptionType": "max",
        }});
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.login_file());
        file.unwrap().write_all(login.to_string().as_bytes()).unwrap();
    }

    /// Says `prompt` to Claude Code in print mode.
    pub(crate) async fn say(&self, prompt: &str) -> Ended {
        let home = self.home.path();
        let mut command = Command::new(&self.program);
        command
            .args(["-p", prompt, "--output-format", "stream-json", "--verbose"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TZ", "UTC")
            .env("HOME", home)
            .env("TMPDIR", home.join("tmp"))
            .env("CLAUDE_CONFIG_DIR", home.join("config"))
            .env("ANTHROPIC_BASE_URL", format!("http://{}", self.wire.address))
            .current_dir(home.join("desk"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        match self.mode {
            Mode::Token => command.env("ANTHROPIC_AUTH_TOKEN", &self.key),
            Mode::Login => command.env("ANTHROPIC_CUSTOM_HEADERS", format!("x-router-key: {}", self.key)),
        };
        if self.quiet {
            command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        }
        let output = timeout(PATIENCE, command.output())
            .await
            .expect("Claude Code ends")
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")));
        let ended = Ended {
            status: output.status.code().expect("no signal ended it"),
            lines: lines.collect(),
            asked: self.wire.asked(),
        };
        assert!(
            !ended.lines.is_empty(),
            "it said nothing but: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        ended
    }
}

impl Ended {
    /// Its last line.
    pub(crate) fn result(&self) -> &Value {
        let last = self.lines.last().unwrap();
        assert_eq!(last["type"], "result", "{last}");
        last
    }

    /// What the person at the device reads.
    pub(crate) fn text(&self) -> &str {
        self.result()["result"]
            .as_str()
            .unwrap_or_else(|| panic!("no text: {}", self.result()))
    }

    /// How often it says that it tries again.
    pub(crate) fn retries(&self) -> usize {
        self.lines.iter().filter(|line| line["subtype"] == "api_retry").count()
    }

    /// The turns that it asked of the router.
    pub(crate) fn turns(&self) -> Vec<&Asked> {
        let of_a_turn = |asked: &&Asked| asked.head.starts_with("POST /v1/messages?beta=true ");
        self.asked.iter().filter(of_a_turn).collect()
    }
}
