//! An owner's home, a pretended Anthropic that knows the logins in it, and the command as it runs there.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use gateway::ports::{Clock as _, SystemClock};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal};
use sandbox::{Answer, Sandbox, Seat, SseStep};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::port::free_port;

pub(crate) const KEY: &str = "rk-test-0001";
/// Ends what hangs; far more than anything here should take.
pub(crate) const GUARD: Duration = Duration::from_secs(60);
/// Between two looks at something that will be so soon.
pub(crate) const GLANCE: Duration = Duration::from_millis(20);
pub(crate) const MODEL: &str = "claude-opus-4-5";

/// An owner's home, and an Anthropic that knows the logins in it.
pub(crate) struct Home {
    pub(crate) dir: TempDir,
    pub(crate) sandbox: Sandbox,
    pub(crate) anthropic: SocketAddr,
}

/// What a command that ended had to say.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A running router.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) process: Child,
}

impl Home {
    /// One with seat A as the default login, 10 % used.
    pub(crate) async fn new() -> Self {
        let home = Self::empty().await;
        let claude = home.path(".claude");
        home.log_in(&claude, seat("A"));
        // Where nothing is set, Claude Code keeps it beside the directory.
        fs::rename(claude.join(".claude.json"), home.path(".claude.json")).unwrap();
        home
    }

    /// One where nobody has logged in.
    pub(crate) async fn empty() -> Self {
        let sandbox = Sandbox::new(Arc::new(|| SystemClock.now().as_millisecond()));
        let anthropic = sandbox::serve_here(sandbox.clone()).await.unwrap();
        // A socket's path must be short, and the usual place for temporary files need not be.
        let dir = tempfile::Builder::new().prefix("cpr-").tempdir_in("/tmp").unwrap();
        Self {
            dir,
            sandbox,
            anthropic,
        }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// The settings file of these tests; the usual one lies elsewhere on each system.
    pub(crate) fn config(&self) -> PathBuf {
        self.path("config.json")
    }

    /// Somebody logs in to `seat` in that directory.
    pub(crate) fn log_in(&self, dir: &Path, seat: Seat) {
        sandbox::write_login(&seat, dir).unwrap();
        self.sandbox.add_seat(seat);
    }

    /// The settings of a router on `port`.
    pub(crate) fn settings(&self, port: u16) -> Value {
        json!({
            "port": port,
            "routerKey": KEY,
            "upstream": format!("http://{}", self.anthropic),
            "tokenUrl": format!("http://{}/v1/oauth/token", self.anthropic),
        })
    }

    /// The command with these arguments, this home's settings, and nothing around it but HOME and USER.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
        command.args(arguments).arg("--config").arg(self.config());
        command
    }

    /// Some program, with nothing around it but HOME and USER.
    pub(crate) fn bare(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.dir.path())
            .env("USER", "first.last@example.test")
            .current_dir("/")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments)).await
    }

    /// Starts a router, and waits until it says where it listens.
    pub(crate) async fn start(&self) -> Running {
        self.start_with(&json!({}), |_| {}).await
    }

    /// The same with further settings, and with `change`s to the command.
    pub(crate) async fn start_with(&self, settings: &Value, change: impl Fn(&mut Command)) -> Running {
        loop {
            let port = free_port();
            let mut file = self.settings(port);
            for (key, value) in settings.as_object().unwrap() {
                file[key] = value.clone();
            }
            fs::write(self.config(), file.to_string()).unwrap();
            fs::set_permissions(self.config(), fs::Permissions::from_mode(0o600)).unwrap();
            let mut command = self.command(&["start"]);
            change(&mut command);
            // Between our look and its binding another test can take the port; then it ends, and we look again.
            if let Some(process) = self.standing(command, port).await {
                return Running {
                    address: (Ipv4Addr::LOCALHOST, port).into(),
                    process,
                };
            }
        }
    }

    /// Runs `command` until it says that it listens on `port`; `None` if that is taken.
    pub(crate) async fn standing(&self, mut command: Command, port: u16) -> Option<Child> {
        let output = File::options()
            .append(true)
            .create(true)
            .open(self.path("output"))
            .unwrap();
        let before = self.output().len();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let mut process = command.spawn().unwrap();
        let standing = async {
            loop {
                let said = self.output().split_off(before);
                if said.contains(&format!(":{port}")) && said.contains("claude-proxy-router devices add NAME") {
                    return true;
                }
                if let Some(status) = process.try_wait().unwrap() {
                    assert!(said.contains("taken by another program"), "{status}: {said}");
                    return false;
                }
                sleep(GLANCE).await;
            }
        };
        let stands = timeout(GUARD, standing).await.expect("it stands, or says why not");
        stands.then_some(process)
    }

    /// All that its routers printed and logged so far.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("output")).unwrap_or_default()).into_owned()
    }

    pub(crate) async fn status(&self) -> Value {
        let said = self.run(&["status", "--json"]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        serde_json::from_str(&said.out).unwrap()
    }

    /// The status once it `is` so.
    pub(crate) async fn status_where(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let waiting = async {
            loop {
                let status = self.status().await;
                if is(&status) {
                    return status;
                }
                sleep(GLANCE * 10).await;
            }
        };
        let Ok(status) = timeout(GUARD, waiting).await else {
            panic!("never: {what}; {:#}\n{}", self.status().await, self.output());
        };
        status
    }
}

impl Running {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end, and returns its code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        let status = timeout(GUARD, self.process.wait()).await;
        status.expect("it ends").unwrap().code()
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        send(self.address, request).await.unwrap()
    }

    /// A turn with the right key; its status.
    pub(crate) async fn turn(&self) -> u16 {
        self.send(turn(false)).await.status().as_u16()
    }
}

pub(crate) async fn said(mut command: Command) -> Said {
    let output = timeout(GUARD, command.output()).await.expect("it ends").unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    timeout(GUARD, sender.send_request(request)).await.expect("an answer")
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&body).into_owned()
}

/// A request without a key.
pub(crate) fn keyless(method: &str, target: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(target)
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

pub(crate) fn with(mut request: Request<Full<Bytes>>, name: &'static str, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

/// A turn with the right key.
pub(crate) fn turn(stream: bool) -> Request<Full<Bytes>> {
    let body = json!({"model": MODEL, "max_tokens": 9, "stream": stream,
        "messages": [{"role": "user", "content": "hello"}]});
    let request = keyless("POST", "/v1/messages?beta=true", &body.to_string());
    with(request, "x-router-key", KEY)
}

/// A seat with tokens `tok-NAME` and `rt-NAME`, 10 % used. Its organisation is its owner's own, so that it goes by its
/// directory's name.
pub(crate) fn seat(name: &str) -> Seat {
    let now = SystemClock.now().as_second();
    let seat = Seat::new(name);
    let (organization, personal) = (seat.organization_uuid.clone(), format!("{}'s Organization", seat.email));
    seat.organization(&organization, &personal)
        .tokens(&format!("tok-{name}"), &format!("rt-{name}"))
        .five_hour(0.1, now + 3_600)
        .weekly(0.1, now + 300_000)
}

/// A stream that pauses after its first event.
pub(crate) fn pausing(ms: u64) -> Answer {
    let delta = |text: &str| SseStep::event(json!({"type": "content_block_delta", "delta": {"text": text}}));
    let start = SseStep::event(json!({"type": "message_start"}));
    let stop = SseStep::event(json!({"type": "message_stop"}));
    Answer::sse(vec![start, delta("first"), SseStep::Wait(ms), delta("last"), stop])
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(crate) fn labels(status: &Value) -> Vec<&str> {
    let seats = status["seats"].as_array().unwrap();
    seats.iter().map(|seat| seat["label"].as_str().unwrap()).collect()
}

pub(crate) fn are_read(status: &Value) -> bool {
    let seats = status["seats"].as_array().unwrap();
    seats.iter().all(|seat| !seat["windows"].as_array().unwrap().is_empty())
}

/// Fails if `text` shows a token or the key.
pub(crate) fn shows_no_secret(what: &str, text: &str) {
    for secret in ["tok-", "rt-", "rk-", "sk-ant-"] {
        // A word may end in those letters; a secret begins with them.
        let shown = text.match_indices(secret).find(|(at, _)| {
            let before = text[..*at].chars().next_back();
            before.is_none_or(|before| !before.is_alphanumeric())
        });
        if let Some((at, _)) = shown {
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
            panic!(
                "{what} shows a secret: {}",
                &text[text[..at].rfind('\n').unwrap_or(0)..end]
            );
        }
    }
}
