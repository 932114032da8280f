//! The router over its sandbox, the genuine Claude Code, and a wire between the two that can be read afterwards.

#![allow(
    dead_code,
    clippy::print_stderr,
    reason = "each test program uses a part of it, and says what it skips"
)]

pub(crate) mod claude;
pub(crate) mod own;
pub(crate) mod port;
pub(crate) mod wire;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HeaderMap;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use port::free_port;

/// The sandbox's key.
pub(crate) const KEY: &str = "sandbox-key";
/// How long the router may take to stand.
const STARTING: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(20);

/// `start --sandbox` as a process of its own; it ends with this value.
pub(crate) struct Router {
    pub(crate) address: SocketAddr,
    /// The pretended Anthropic.
    anthropic: SocketAddr,
    /// Its settings file.
    pub(crate) settings: PathBuf,
    home: TempDir,
    _child: Child,
}

impl Router {
    /// Starts one and waits until it listens and knows how full its seats are.
    pub(crate) async fn start() -> Self {
        loop {
            // Between our look and its binding another test can take the port; then it ends, and we look again.
            if let Some(router) = timeout(STARTING, Self::start_on(free_port()))
                .await
                .expect("the router stands")
            {
                return router;
            }
        }
    }

    async fn start_on(port: u16) -> Option<Self> {
        let home = TempDir::new().unwrap();
        let output = File::create(home.path().join("output")).unwrap();
        let mut child = own_command(&home)
            .args(["start", "--sandbox", "--port", &port.to_string()])
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let said = loop {
            let said = read_output(&home);
            if said.contains("Ctrl-C ends it") {
                break said;
            }
            if child.try_wait().unwrap().is_some() {
                assert!(said.contains("taken by another program"), "{said}");
                return None;
            }
            sleep(GLANCE).await;
        };
        let router = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            anthropic: between(&said, "a pretended Anthropic (", ")").parse().unwrap(),
            settings: between(&said, "claude-proxy-router --config ", " status").into(),
            _child: child,
            home,
        };
        while !router.knows_its_seats().await {
            sleep(GLANCE).await;
        }
        Some(router)
    }

    async fn knows_its_seats(&self) -> bool {
        let status = self.status().await;
        let seats = status["seats"].as_array().map_or(&[][..], Vec::as_slice);
        seats.len() == 3
            && seats
                .iter()
                .all(|seat| seat["windows"].as_array().is_some_and(|windows| !windows.is_empty()))
    }

    /// `status --json`.
    pub(crate) async fn status(&self) -> Value {
        serde_json::from_slice(&self.command(&["status", "--json"]).await.stdout).unwrap_or_default()
    }

    /// A command to this router.
    pub(crate) async fn command(&self, arguments: &[&str]) -> Output {
        let mut command = own_command(&self.home);
        command.arg("--config").arg(&self.settings).args(arguments);
        timeout(STARTING, command.output())
            .await
            .expect("the command ends")
            .unwrap()
    }

    /// All that it printed and logged so far.
    pub(crate) fn output(&self) -> String {
        read_output(&self.home)
    }

    /// What the pretended Anthropic received at `/v1/messages`.
    pub(crate) async fn turns(&self) -> Vec<Value> {
        let all = self.requests().await;
        all.into_iter()
            .filter(|request| request["path"] == "/v1/messages")
            .collect()
    }

    /// All that the pretended Anthropic received, the router's own calls too.
    pub(crate) async fn requests(&self) -> Vec<Value> {
        let all = self.door("GET", "requests", &Value::Null).await;
        all.as_array().unwrap().clone()
    }

    /// The seats that were asked for a turn, in order.
    pub(crate) async fn seats_asked(&self) -> Vec<String> {
        let turns = self.turns().await;
        let seat = |turn: &Value| {
            turn["token"]
                .as_str()
                .unwrap()
                .trim_start_matches("sk-ant-oat01-sandbox-")
                .to_owned()
        };
        turns.iter().map(seat).collect()
    }

    /// Sends a turn with the sandbox's key; its status and headers.
    pub(crate) async fn turn(&self, text: &str) -> (u16, HeaderMap) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let turn =
            json!({"model": "claude-opus-5-5", "max_tokens": 50, "messages": [{"role": "user", "content": text}]});
        let request = Request::post("/v1/messages")
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("x-router-key", KEY)
            .body(Full::<Bytes>::from(turn.to_string()))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        body.collect().await.unwrap();
        connection.abort();
        (head.status.as_u16(), head.headers)
    }

    /// Lays an answer ready for the next turn of `seat`.
    pub(crate) async fn script(&self, seat: &str, answer: Value) {
        let token = format!("sk-ant-oat01-sandbox-{seat}");
        let script = json!({"token": token, "path": "/v1/messages", "answer": answer});
        self.door("POST", "script", &script).await;
    }

    /// Uses up the five hours of `seat`.
    pub(crate) async fn use_up(&self, seat: &str, reset_in_s: u32) {
        let all = json!({"seat": seat, "allowance": "five_hour", "fraction": 1.0, "reset_in_s": reset_in_s});
        self.door("POST", "use_up", &all).await;
    }

    /// Knocks at the sandbox's own door.
    async fn door(&self, method: &str, what: &str, body: &Value) -> Value {
        let stream = TcpStream::connect(self.anthropic).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(format!("/__sandbox/{what}"))
            .header("host", self.anthropic.to_string())
            .body(Full::<Bytes>::from(body.to_string()))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, 200, "{method} {what}: {body:?}");
        connection.abort();
        serde_json::from_slice(&body).unwrap()
    }
}

/// The router's executable, with nothing of this process's surroundings.
fn own_command(home: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claude-proxy-router"));
    command
        .env_clear()
        .envs([("HOME", home.path()), ("TMPDIR", home.path())])
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn read_output(home: &TempDir) -> String {
    String::from_utf8_lossy(&std::fs::read(home.path().join("output")).unwrap()).into_owned()
}

/// What stands between `before` and the next `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no `{before}` in: {text}"));
    rest.split_once(after)
        .unwrap_or_else(|| panic!("no `{after}` in: {rest}"))
        .0
}
