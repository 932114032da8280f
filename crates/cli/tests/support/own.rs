//! A router over settings of the test's own, and over a pretended Anthropic in the test's own process.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use gateway::ports::{Clock as _, SystemClock};
use sandbox::Sandbox;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::port::free_port;

/// The first device's key.
pub(crate) const FIRST_KEY: &str = "rk-test-0001";
/// Ends what hangs; far more than anything here should take.
pub(crate) const GUARD: Duration = Duration::from_secs(90);
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

pub(crate) struct Own {
    dir: TempDir,
    pub(crate) sandbox: Sandbox,
    pub(crate) anthropic: SocketAddr,
}

impl Own {
    /// One with the sandbox's three seats.
    pub(crate) async fn new() -> Self {
        let own = Self::empty().await;
        sandbox::write_logins(&own.sandbox, own.home()).unwrap();
        own
    }

    /// One where nobody has logged in.
    pub(crate) async fn empty() -> Self {
        let sandbox = sandbox::demo(Arc::new(|| SystemClock.now().as_millisecond()));
        let anthropic = sandbox::serve_here(sandbox.clone()).await.unwrap();
        // A socket's path must be short.
        let dir = tempfile::Builder::new().prefix("cpr-").tempdir_in("/tmp").unwrap();
        Self {
            dir,
            sandbox,
            anthropic,
        }
    }

    pub(crate) fn home(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// The usual settings file.
    pub(crate) fn config(&self) -> PathBuf {
        self.path(".config/claude-proxy-router/config.json")
    }

    /// Writes the settings, with these on top of what leads to the pretended Anthropic.
    pub(crate) fn set(&self, settings: &Value) {
        let mut written = json!({
            "routerKey": FIRST_KEY,
            "upstream": format!("http://{}", self.anthropic),
            "tokenUrl": format!("http://{}/v1/oauth/token", self.anthropic),
        });
        for (key, value) in settings.as_object().unwrap() {
            written[key] = value.clone();
        }
        gateway::file::save(&self.config(), written.to_string().as_bytes()).unwrap();
    }

    /// The command with these arguments, and nothing around it but this home.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.bare(env!("CARGO_BIN_EXE_claude-proxy-router"), arguments)
    }

    /// Some program, with nothing around it but this home.
    pub(crate) fn bare(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.home())
            .env("USER", "me")
            .env("TZ", "UTC")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        timeout(GUARD, self.command(arguments).output())
            .await
            .expect("it ends")
            .unwrap()
    }

    /// Runs a command that does what it should, and gives what it printed.
    pub(crate) async fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that is refused, and gives why.
    pub(crate) async fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts a router with these settings, and waits until it answers at `host`.
    pub(crate) async fn start(&self, settings: &Value, host: IpAddr) -> (Child, SocketAddr) {
        loop {
            let port = free_port();
            let mut all = settings.clone();
            all["port"] = port.into();
            self.set(&all);
            let output = File::options()
                .append(true)
                .create(true)
                .open(self.path("output"))
                .unwrap();
            let mut command = self.command(&["start"]);
            let mut child = command
                .stdout(output.try_clone().unwrap())
                .stderr(output)
                .spawn()
                .unwrap();
            let address = SocketAddr::new(host, port);
            let standing = async {
                while TcpStream::connect(address).await.is_err() {
                    if child.try_wait().unwrap().is_some() {
                        assert!(self.output().contains("is taken"), "{}", self.output());
                        return false;
                    }
                    sleep(GLANCE).await;
                }
                true
            };
            // Between our look and its binding another test can take the port; then it ends, and we look again.
            if timeout(GUARD, standing).await.expect("it stands") {
                return (child, address);
            }
        }
    }

    /// All that its routers printed and logged so far.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("output")).unwrap_or_default()).into_owned()
    }

    pub(crate) async fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["status", "--json"]).await).unwrap()
    }

    /// Every file below this home, with its length.
    pub(crate) fn files(&self) -> Vec<String> {
        fn below(folder: &Path, all: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                all.push(path.display().to_string());
                if path.is_dir() && !path.is_symlink() {
                    below(&path, all);
                }
            }
        }
        let mut all = Vec::new();
        below(self.home(), &mut all);
        all.sort();
        all
    }
}

/// Runs the test of that name once more, alone, in a world with a `private` network or files of its own, which `sh` has
/// prepared by `first`. Returns whether this is the run inside, where the test is to go on.
#[cfg(target_os = "linux")]
pub(crate) fn is_inside(name: &str, private: &str, first: &str) -> bool {
    const INSIDE: &str = "CLAUDE_PROXY_ROUTER_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    // A plain user is root in a user namespace of their own; root needs none, and could have none inside a chroot.
    let as_root: &[&str] = match rustix::process::getuid().is_root() {
        true => &[],
        false => &["--user", "--map-root-user"],
    };
    let behind_a_wall = || {
        let mut command = std::process::Command::new("unshare");
        let prepared = format!("{first} exec \"$@\"");
        command.args(as_root).args([private, "sh", "-c", &prepared, "sh"]);
        command
    };
    let possible = behind_a_wall().arg("/bin/true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("GENUINE_CLAUDE").is_none(),
            "where the client runs, namespaces are to be had"
        );
        return false;
    }
    let output = behind_a_wall()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}
