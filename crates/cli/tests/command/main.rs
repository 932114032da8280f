//! The command as its owner runs it: a process of its own, with a home of its own, before a pretended Anthropic.
//!
//! Time is real here, so no test asserts on it; the guards only end what hangs.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicUsize, Ordering};
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
#[cfg(target_os = "linux")]
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
#[cfg(target_os = "linux")]
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const KEY: &str = "rk-test-0001";
/// Ends what hangs; far more than anything here should take.
const GUARD: Duration = Duration::from_secs(60);
/// Between two looks at something that will be so soon.
const GLANCE: Duration = Duration::from_millis(20);
const MODEL: &str = "claude-opus-4-5";

/// An owner's home, and an Anthropic that knows the logins in it.
struct Home {
    dir: TempDir,
    sandbox: Sandbox,
    anthropic: SocketAddr,
}

/// What a command that ended had to say.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// A running router.
struct Running {
    address: SocketAddr,
    process: Child,
}

impl Home {
    /// One with seat A as the default login, 10 % used.
    async fn new() -> Self {
        let home = Self::empty().await;
        let claude = home.path(".claude");
        home.log_in(&claude, &home.path(".claude.json"), seat("A"));
        home
    }

    /// One where nobody has logged in.
    async fn empty() -> Self {
        let sandbox = Sandbox::new(Arc::new(|| SystemClock.now().as_millisecond()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let anthropic = listener.local_addr().unwrap();
        tokio::spawn(sandbox::serve(listener, sandbox.clone()));
        // A socket's path must be short, and the usual place for temporary files need not be.
        let dir = tempfile::Builder::new().prefix("cpr-").tempdir_in("/tmp").unwrap();
        Self {
            dir,
            sandbox,
            anthropic,
        }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// The settings file of these tests; the usual one lies elsewhere on each system.
    fn config(&self) -> PathBuf {
        self.path("config.json")
    }

    fn log_in(&self, dir: &Path, identity_file: &Path, seat: Seat) {
        fs::create_dir_all(dir).unwrap();
        let login = json!({"claudeAiOauth": {
            "accessToken": seat.access_token,
            "refreshToken": seat.refresh_token,
            "expiresAt": seat.expires_at_ms,
            "scopes": ["user:inference", "user:profile"],
            "subscriptionType": seat.plan,
        }});
        let identity = json!({"oauthAccount": {
            "accountUuid": seat.account_uuid,
            "organizationUuid": seat.organization_uuid,
            "emailAddress": seat.email,
        }});
        self.sandbox.add_seat(seat);
        fs::write(identity_file, identity.to_string()).unwrap();
        fs::write(dir.join(".credentials.json"), login.to_string()).unwrap();
    }

    /// The settings of a router on `port`.
    fn settings(&self, port: u16) -> Value {
        json!({
            "port": port,
            "routerKey": KEY,
            "upstream": format!("http://{}", self.anthropic),
            "tokenUrl": format!("http://{}/v1/oauth/token", self.anthropic),
        })
    }

    /// The command with these arguments, this home's settings, and nothing around it but HOME and USER.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
        command.args(arguments).arg("--config").arg(self.config());
        command
    }

    /// Some program, with nothing around it but HOME and USER.
    fn bare(&self, program: &str) -> Command {
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
    async fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments)).await
    }

    /// Starts a router, and waits until it says where it listens.
    async fn start(&self) -> Running {
        self.start_with(&json!({}), |_| {}).await
    }

    /// The same with further settings, and with `change`s to the command.
    async fn start_with(&self, settings: &Value, change: impl Fn(&mut Command)) -> Running {
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
    async fn standing(&self, mut command: Command, port: u16) -> Option<Child> {
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
                if said.contains(&format!(":{port}")) && said.contains("claude-proxy-router key") {
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
    fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("output")).unwrap_or_default()).into_owned()
    }

    async fn status(&self) -> Value {
        let said = self.run(&["status", "--json"]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        serde_json::from_str(&said.out).unwrap()
    }

    /// The status once it `is` so.
    async fn status_where(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
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
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn pid(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end, and returns its code.
    async fn ended(&mut self) -> Option<i32> {
        let status = timeout(GUARD, self.process.wait()).await;
        status.expect("it ends").unwrap().code()
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        send(self.address, request).await.unwrap()
    }

    /// A turn with the right key; its status.
    async fn turn(&self) -> u16 {
        self.send(turn(false)).await.status().as_u16()
    }
}

async fn said(mut command: Command) -> Said {
    let output = timeout(GUARD, command.output()).await.expect("it ends").unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    timeout(GUARD, sender.send_request(request)).await.expect("an answer")
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&body).into_owned()
}

/// A request without a key.
fn keyless(method: &str, target: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(target)
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

fn with(mut request: Request<Full<Bytes>>, name: &'static str, value: &str) -> Request<Full<Bytes>> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

/// A turn with the right key.
fn turn(stream: bool) -> Request<Full<Bytes>> {
    let body = json!({"model": MODEL, "max_tokens": 9, "stream": stream,
        "messages": [{"role": "user", "content": "hello"}]});
    let request = keyless("POST", "/v1/messages?beta=true", &body.to_string());
    with(request, "x-router-key", KEY)
}

/// A seat with tokens `tok-NAME` and `rt-NAME`, 10 % used.
fn seat(name: &str) -> Seat {
    let now = SystemClock.now().as_second();
    Seat::new(name)
        .tokens(&format!("tok-{name}"), &format!("rt-{name}"))
        .five_hour(0.1, now + 3_600)
        .weekly(0.1, now + 300_000)
}

/// A stream that pauses after its first event.
fn pausing(ms: u64) -> Answer {
    let delta = |text: &str| SseStep::event(json!({"type": "content_block_delta", "delta": {"text": text}}));
    let start = SseStep::event(json!({"type": "message_start"}));
    let stop = SseStep::event(json!({"type": "message_stop"}));
    Answer::sse(vec![start, delta("first"), SseStep::Wait(ms), delta("last"), stop])
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn labels(status: &Value) -> Vec<&str> {
    let seats = status["seats"].as_array().unwrap();
    seats.iter().map(|seat| seat["label"].as_str().unwrap()).collect()
}

fn are_read(status: &Value) -> bool {
    let seats = status["seats"].as_array().unwrap();
    seats.iter().all(|seat| !seat["windows"].as_array().unwrap().is_empty())
}

/// Fails if `text` shows a token or the key.
fn shows_no_secret(what: &str, text: &str) {
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

#[tokio::test]
async fn start_makes_settings_with_a_key_for_the_owners_eyes_alone_and_says_where_it_listens() {
    let home = Home::empty().await;
    let port = free_port();
    let mut command = home.command(&["start", "--port", &port.to_string()]);
    command.kill_on_drop(true);
    let Some(_process) = home.standing(command, port).await else {
        return; // another test was quicker; the next run will do
    };
    let said = home.output();
    assert!(said.contains(&format!("listens on 127.0.0.1:{port}")), "{said}");
    assert!(said.contains("No Claude login was found"), "{said}");
    shows_no_secret("start", &said);
    let file = fs::read(home.config()).unwrap();
    let settings: Value = serde_json::from_slice(&file).unwrap();
    let key = settings["routerKey"].as_str().unwrap();
    assert!(key.len() >= 32, "{key}");
    assert_eq!(mode(&home.config()), 0o600);

    let shown = home.run(&["key"]).await;
    assert_eq!(
        (shown.code, shown.out.lines().last()),
        (Some(0), Some(key)),
        "{shown:?}"
    );
    let pinged = home.run(&["ping", &format!("http://127.0.0.1:{port}"), key]).await;
    assert!(pinged.err.contains("seat: the key is good"), "{pinged:?}");
    assert_eq!(
        fs::read(home.config()).unwrap(),
        file,
        "nothing of this changes the settings"
    );
}

#[tokio::test]
async fn key_shows_the_address_and_the_key() {
    let home = Home::empty().await;
    fs::write(home.config(), home.settings(18_999).to_string()).unwrap();
    let said = home.run(&["key"]).await;
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(0), "http://127.0.0.1:18999\nrk-test-0001\n")
    );
}

#[tokio::test]
async fn gu_06_a_second_start_names_the_first_and_is_no_failure() {
    let home = Home::new().await;
    let running = home.start().await;
    let second = home.run(&["start"]).await;
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.out.contains(&running.pid().to_string()), "{second:?}");
    assert_eq!(running.turn().await, 200, "the first goes on");
    assert_eq!(home.run(&["status"]).await.code, Some(0), "and can still be asked");
}

#[tokio::test]
async fn gu_06_of_many_that_start_at_once_one_stays_and_its_key_is_the_one_in_the_settings() {
    for _ in 0..50 {
        let home = Home::empty().await;
        let port = free_port();
        let mut copies: Vec<Child> = (0..4)
            .map(|_| {
                let mut command = home.command(&["start", "--port", &port.to_string()]);
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            })
            .collect();
        let settling = async {
            loop {
                let codes: Vec<_> = copies.iter_mut().filter_map(|copy| copy.try_wait().unwrap()).collect();
                assert!(codes.iter().all(std::process::ExitStatus::success), "{codes:?}");
                if codes.len() >= 3 && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                    return;
                }
                sleep(GLANCE).await;
            }
        };
        timeout(GUARD, settling).await.expect("one stays");
        let key = home.run(&["key"]).await.out.lines().last().unwrap().to_owned();
        let pinged = home.run(&["ping", &format!("http://127.0.0.1:{port}"), &key]).await;
        assert!(pinged.err.contains("seat: the key is good"), "{pinged:?}");
        assert_eq!(copies.iter_mut().filter_map(|copy| copy.try_wait().unwrap()).count(), 3);
    }
}

#[tokio::test]
async fn status_shows_the_seats_as_a_table_and_as_json() {
    let home = Home::new().await;
    let running = home.start().await;
    let status = home.status_where("usage is known", are_read).await;
    assert_eq!(status["version"], 2);
    assert_eq!(status["listening"], json!([running.address.to_string()]));
    assert_eq!((&status["sandbox"], labels(&status)), (&json!(false), vec!["default"]));
    let seat = &status["seats"][0];
    assert_eq!(
        (&seat["plan"], &seat["state"]),
        (&json!("max"), &json!({"kind": "ready"}))
    );
    assert_eq!(seat["windows"][0]["used"], 1_000);
    assert_eq!(seat["dirs"], json!([home.path(".claude")]));

    let table = home.run(&["status"]).await;
    assert_eq!(table.code, Some(0));
    assert!(
        table.out.contains(&format!("listening on {}", running.address)),
        "{}",
        table.out
    );
    let row = table.out.lines().find(|line| line.contains("default")).unwrap();
    for cell in ["max", "10 %", "ready", "just now"] {
        assert!(row.contains(cell), "{row}");
    }
}

#[tokio::test]
async fn commands_without_a_router_say_so() {
    let home = Home::new().await;
    for arguments in [&["status"][..], &["status", "--json"], &["stop"]] {
        let said = home.run(arguments).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.err.contains("not running"), "{said:?}");
    }
    assert!(!home.config().exists(), "asking makes no settings");
}

#[tokio::test]
async fn ping_names_the_step_that_failed() {
    let home = Home::new().await;
    let running = home.start().await;
    let good = home.run(&["ping", &running.url(), KEY]).await;
    assert_eq!(good.code, Some(0), "{good:?}");
    assert!(good.out.contains("the key is good"), "{good:?}");
    let slash = home.run(&["ping", &format!("{}/", running.url()), KEY]).await;
    assert_eq!(slash.code, Some(0), "{slash:?}");

    let rude = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let rude_url = format!("http://{}", rude.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = rude.accept().await {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
        }
    });
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let anthropic = format!("http://{}", home.anthropic);
    for (url, key, step) in [
        (running.url().as_str(), "rk-wrong-0001", "key:"),
        (&running.url(), "rk-test-0001x", "key:"),
        (&running.url(), "two\nlines", "key:"),
        (&nobody, KEY, "connect:"),
        (&anthropic, KEY, "service:"),
        (&rude_url, KEY, "service:"),
        ("http://nobody.invalid:18787", KEY, "name:"),
        ("not an address", KEY, "is no address"),
        ("/v1", KEY, "is no address"),
        (&running.address.to_string(), KEY, "is no address"),
        ("ftp://127.0.0.1:18787", KEY, "is no address"),
    ] {
        let said = home.run(&["ping", url, key]).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{url}: {said:?}");
        assert!(said.err.contains(step), "{url}: {said:?}");
        assert!(!said.err.contains(key), "{url}: {said:?}");
    }
}

#[tokio::test]
async fn ld_04_a_running_stream_ends_as_it_should_when_the_router_is_told_to_stop() {
    for by_signal in [true, false] {
        let home = Home::new().await;
        let mut running = home.start().await;
        home.sandbox.script("tok-A", "/v1/messages", pausing(2_000));
        let mut body = running.send(turn(true)).await.into_body();
        let first = body.frame().await.unwrap().unwrap();
        assert!(first.is_data());
        match by_signal {
            true => running.signal(Signal::TERM),
            false => {
                let said = home.run(&["stop"]).await;
                assert_eq!(said.code, Some(0), "{said:?}");
            }
        }
        let rest = timeout(GUARD, body.collect())
            .await
            .expect("an end")
            .unwrap()
            .to_bytes();
        assert!(String::from_utf8_lossy(&rest).contains("message_stop"));
        assert_eq!(running.ended().await, Some(0), "{}", home.output());
        assert!(TcpStream::connect(running.address).await.is_err());

        let again = home.start().await;
        assert_eq!(again.turn().await, 200, "its lock and its socket are free");
    }
}

#[tokio::test]
async fn ld_04_a_stream_that_does_not_end_is_cut_in_the_end() {
    let home = Home::new().await;
    let mut running = home.start().await;
    home.sandbox.script("tok-A", "/v1/messages", pausing(600_000));
    let mut body = running.send(turn(true)).await.into_body();
    body.frame().await.unwrap().unwrap();
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0), "{}", home.output());
    let rest = timeout(GUARD, body.collect()).await.expect("an end");
    assert!(rest.is_err(), "a clean end would look like the whole of it");
}

#[tokio::test]
async fn what_was_known_is_known_after_a_kill_under_load() {
    let home = Home::new().await;
    let other = home.path(".claude-b");
    home.log_in(&other, &other.join(".claude.json"), seat("B"));
    let mut running = home.start().await;
    home.status_where("both are read", |status| labels(status).len() == 2 && are_read(status))
        .await;
    home.sandbox.use_up("A", sandbox::Allowance::FiveHour, 1.0);
    let address = running.address;
    let load = tokio::spawn(async move {
        loop {
            let together = (0..8).map(|_| send(address, turn(true)));
            for answer in futures_util::future::join_all(together).await.into_iter().flatten() {
                text(answer).await;
            }
        }
    });
    let asked = |token: &str| {
        let requests = home.sandbox.requests();
        let of_it =
            |request: &&sandbox::Recorded| request.path == "/v1/messages" && request.token.as_deref() == Some(token);
        requests.iter().filter(of_it).count()
    };
    let loaded = async {
        while asked("tok-A") == 0 || asked("tok-B") < 100 {
            sleep(GLANCE).await;
        }
    };
    timeout(GUARD, loaded).await.expect("A is full, and B serves");
    running.signal(Signal::KILL);
    running.ended().await;
    load.abort();
    let before = asked("tok-A");

    let again = home.start().await;
    for _ in 0..30 {
        assert_eq!(again.turn().await, 200);
    }
    assert_eq!(asked("tok-A"), before, "A is not asked again before its reset");
    let status = home.status().await;
    let seats = status["seats"].as_array().unwrap();
    assert!(
        seats.iter().any(|seat| seat["state"]["kind"] == "resting"),
        "{status:#}"
    );
    let said = home.run(&["requests", "--json", "--limit", "10000"]).await;
    let requests: Value = serde_json::from_str(&said.out).unwrap();
    let mut numbers: Vec<_> = requests
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["number"].as_i64())
        .collect();
    let all = numbers.len();
    numbers.dedup();
    assert!(
        all > 30 && numbers.len() == all,
        "{all} requests, {} numbers",
        numbers.len()
    );
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let home = Home::new().await;
    let mut running = home.start().await;
    home.sandbox.script("tok-A", "/v1/messages", pausing(600_000));
    let mut body = running.send(turn(true)).await.into_body();
    body.frame().await.unwrap().unwrap();
    running.signal(Signal::INT);
    let stopping = async {
        while !home.output().contains("stopping") {
            sleep(GLANCE).await;
        }
    };
    timeout(GUARD, stopping).await.expect("it says that it stops");
    running.signal(Signal::INT);
    assert_eq!(running.ended().await, Some(0));
    assert!(!home.output().contains("were cut"), "{}", home.output());
}

#[tokio::test]
async fn cf_01_an_unknown_setting_is_named_and_the_file_stays() {
    let home = Home::new().await;
    let text = format!(r#"{{"routerKey":"{KEY}","prot":18787}}"#);
    fs::write(home.config(), &text).unwrap();
    for arguments in [&["start"][..], &["key"]] {
        let said = home.run(arguments).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.err.contains("`prot`") && !said.err.contains(KEY), "{said:?}");
        assert_eq!(fs::read_to_string(home.config()).unwrap(), text);
    }
}

#[tokio::test]
async fn cf_02_a_damaged_settings_file_is_never_replaced() {
    let home = Home::new().await;
    for text in ["", "{\"host\":", "\u{0}\u{0}\u{0}", "{} {}", "[]", "{\"routerKey\":7}"] {
        fs::write(home.config(), text).unwrap();
        for arguments in [&["start"][..], &["key"]] {
            let said = home.run(arguments).await;
            assert_eq!(said.code, Some(1), "{text:?}: {said:?}");
            assert!(said.err.contains("config.json"), "{text:?}: {said:?}");
            assert_eq!(fs::read_to_string(home.config()).unwrap(), text);
        }
    }
}

#[tokio::test]
async fn cf_02_a_full_disk_leaves_the_old_settings() {
    let home = Home::new().await;
    let text = r#"{"usagePollS": 60}"#; // no key yet: one is to be saved
    fs::write(home.config(), text).unwrap();
    let mut command = home.bare("/bin/sh");
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .args([env!("CARGO_BIN_EXE_claude-proxy-router"), "start", "--config"])
        .arg(home.config());
    let said = said(command).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.err.contains("config.json"), "{said:?}");
    assert_eq!(fs::read_to_string(home.config()).unwrap(), text);
    let left: Vec<_> = fs::read_dir(home.dir.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| [".claude", ".claude.json", "config.json", "config.lock"]
                .iter()
                .any(|known| name == known)),
        "{left:?}"
    );
}

#[tokio::test]
async fn cf_03_settings_that_others_can_read_are_closed_to_them() {
    let home = Home::new().await;
    fs::write(home.config(), home.settings(18_999).to_string()).unwrap();
    fs::set_permissions(home.config(), fs::Permissions::from_mode(0o644)).unwrap();
    let said = home.run(&["key"]).await;
    assert_eq!((said.code, mode(&home.config())), (Some(0), 0o600), "{said:?}");
    assert!(said.err.contains("readable by others"), "{said:?}");
}

#[tokio::test]
async fn sc_03_without_a_key_nothing_listens() {
    let home = Home::new().await;
    for host in ["127.0.0.1", "0.0.0.0"] {
        let port = free_port();
        let mut settings = home.settings(port);
        (settings["routerKey"], settings["host"]) = ("".into(), host.into());
        fs::write(home.config(), settings.to_string()).unwrap();
        let said = home.run(&["start"]).await;
        assert_eq!(said.code, Some(1), "{host}: {said:?}");
        assert!(said.err.contains("`routerKey`"), "{host}: {said:?}");
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err());
    }
}

#[tokio::test]
async fn on_01_a_port_that_is_taken_is_left_to_its_holder() {
    let home = Home::new().await;
    let foreign = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = foreign.local_addr().unwrap();
    fs::write(home.config(), home.settings(address.port()).to_string()).unwrap();
    let said = home.run(&["start"]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.err.contains(&address.port().to_string()), "{said:?}");
    assert!(said.err.contains("`--port"), "{said:?}");
    let this = format!("(process {})", std::process::id());
    assert!(said.err.contains(&this) && said.err.contains(" is free"), "{said:?}");
    let (greeting, accepted) = tokio::join!(TcpStream::connect(address), foreign.accept());
    assert!(
        greeting.is_ok() && accepted.is_ok(),
        "the foreign listener still listens"
    );
}

#[tokio::test]
async fn sc_02_neither_keys_nor_tokens_are_shown_anywhere() {
    let home = Home::new().await;
    let broken = home.path(".claude-broken");
    home.log_in(&broken, &broken.join(".claude.json"), seat("B"));
    let logging = |command: &mut Command| {
        command.env("CLAUDE_PROXY_ROUTER_LOG", "trace");
    };
    let running = home.start_with(&json!({}), logging).await;
    home.status_where("usage is known", are_read).await;

    // Keys in every place where somebody might put one.
    let in_query = |name: &str| keyless("POST", &format!("/v1/messages?{name}={KEY}"), "{}");
    for name in ["key", "api_key", "x-router-key", "beta=true&token"] {
        let answer = running.send(in_query(name)).await;
        assert_eq!(answer.status(), 401, "{name}");
        shows_no_secret("the answer", &text(answer).await);
        let answer = running.send(with(in_query(name), "x-api-key", KEY)).await;
        shows_no_secret("the answer", &text(answer).await);
    }
    let ping = keyless("GET", &format!("/_router/ping?key={KEY}"), "");
    assert_eq!(text(running.send(ping).await).await, "ok\n");
    for (name, value) in [
        ("x-router-key", "rk-wrong-0001"),
        ("authorization", "Bearer rk-wrong-0001"),
        ("authorization", "Basic cmstdGVzdC0wMDAx"),
        ("x-api-key", "sk-ant-api03-device"),
    ] {
        let answer = running
            .send(with(keyless("POST", "/v1/messages", "{}"), name, value))
            .await;
        assert_eq!(answer.status(), 401, "{name}: {value}");
        shows_no_secret("the answer", &text(answer).await);
    }
    let device = with(turn(false), "authorization", "Bearer sk-ant-oat01-device");
    assert_eq!(running.send(device).await.status(), 200);

    // Anthropic in every mood, for both seats.
    let oauth = "OAuth authentication is currently not supported.";
    for answer in [
        Answer::error(400, "invalid_request_error", "no"),
        Answer::error(401, "authentication_error", oauth),
        Answer::error(500, "api_error", "no"),
        Answer::error(529, "overloaded_error", "no"),
        Answer::reset(),
        Answer::text(502, "text/html", "<html>"),
        Answer::error(401, "authentication_error", "invalid bearer token"),
    ] {
        home.sandbox.script_always("*", "/v1/messages", answer);
        let answer = running.send(turn(false)).await;
        shows_no_secret("the headers", &format!("{:?}", answer.headers()));
        shows_no_secret("the answer", &text(answer).await);
        home.sandbox.clear_scripts();
    }
    // A login that cannot be read, and one without an end.
    fs::write(
        broken.join(".credentials.json"),
        r#"{"claudeAiOauth":{"accessToken":"tok-C","refreshToken":"rt-C""#,
    )
    .unwrap();
    let unread = async {
        while !home.output().contains("cannot be read") && !home.output().contains("last good login") {
            sleep(GLANCE).await;
        }
    };
    timeout(GUARD, unread)
        .await
        .expect("it says that a login cannot be read");

    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["start"],
        &["ping", &running.url(), KEY],
        &["ping", &running.url(), "rk-wrong-0001"],
        &["ping", &format!("http://{}", home.anthropic), KEY],
    ] {
        let mut command = home.command(arguments);
        logging(&mut command);
        let said = said(command).await;
        shows_no_secret(arguments[0], &said.out);
        shows_no_secret(arguments[0], &said.err);
    }
    running.signal(Signal::TERM);
    let mut running = running;
    running.ended().await;
    let said = home.output();
    assert!(said.contains("/v1/messages"), "it does log: {said}");
    shows_no_secret("the log", &said);
}

#[tokio::test]
async fn logins_are_found_wherever_they_lie_and_whenever_they_come() {
    let home = Home::new().await;
    let data = home.path("data");
    let work = home.path(".claude-work");
    home.log_in(&work, &work.join(".claude.json"), seat("B"));
    let orca = data.join("orca/claude-profiles/0a1b2c3d-4e5f-6789/home");
    home.log_in(&orca, &orca.join(".claude.json"), seat("C"));
    let with_data = |command: &mut Command| {
        command.env("XDG_DATA_HOME", &data);
    };
    let settings = match cfg!(target_os = "macos") {
        true => json!({"profilesRoot": data.join("orca/claude-profiles")}),
        false => json!({}),
    };
    let running = home.start_with(&settings, with_data).await;
    assert_eq!(labels(&home.status().await), ["default", "orca-0a1b2c3d", "work"]);

    let late = home.path(".claude-late");
    home.log_in(&late, &late.join(".claude.json"), seat("D"));
    let status = home
        .status_where("the new login is found", |status| labels(status).contains(&"late"))
        .await;
    assert_eq!(labels(&status), ["default", "late", "orca-0a1b2c3d", "work"]);

    home.status_where("usage is known", are_read).await;
    for name in ["A", "B", "C"] {
        home.sandbox.use_up(name, sandbox::Allowance::FiveHour, 1.0);
    }
    home.sandbox.take_requests();
    assert_eq!(running.turn().await, 200);
    let served = home
        .sandbox
        .requests()
        .into_iter()
        .rfind(|request| request.path == "/v1/messages");
    assert_eq!(served.unwrap().token.as_deref(), Some("tok-D"), "the new one serves");
}

#[tokio::test]
async fn ld_02_home_and_user_are_all_it_needs() {
    let home = Home::new().await;
    let usual = match cfg!(target_os = "macos") {
        true => home.path("Library/Application Support/claude-proxy-router"),
        false => home.path(".config/claude-proxy-router"),
    };
    fs::create_dir_all(&usual).unwrap();
    let process = loop {
        let port = free_port();
        fs::write(usual.join("config.json"), home.settings(port).to_string()).unwrap();
        let mut command = home.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
        command.arg("start");
        if let Some(process) = home.standing(command, port).await {
            break Running {
                address: (Ipv4Addr::LOCALHOST, port).into(),
                process,
            };
        }
    };
    assert_eq!(process.turn().await, 200);
    let mut command = home.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
    command.args(["status", "--json"]);
    let status = said(command).await;
    assert!(status.out.contains("\"default\""), "{status:?}");
    assert_eq!(mode(&usual.join("run")), 0o700);
    assert_eq!(mode(&usual.join("run/control.sock")), 0o600);
}

#[tokio::test]
async fn the_control_socket_is_the_owners_alone_and_a_dead_one_is_replaced() {
    let home = Home::new().await;
    let (folder, socket) = (home.path("config.run"), home.path("config.run/control.sock"));
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut running = home.start().await;
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    assert_eq!(mode(&home.path("config.lock")), 0o600);

    running.signal(Signal::KILL);
    running.ended().await;
    assert!(socket.exists(), "a killed process leaves it");
    let said = home.run(&["status"]).await;
    assert!(said.code == Some(1) && said.err.contains("not running"), "{said:?}");
    let again = home.start().await;
    assert_eq!(home.status().await["listening"], json!([again.address.to_string()]));
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
}

#[tokio::test]
async fn nw_02_localhost_is_both_loopbacks() {
    if TcpListener::bind("[::1]:0").await.is_err() {
        return; // a machine without IPv6
    }
    let home = Home::new().await;
    let running = home.start_with(&json!({"host": "localhost"}), |_| {}).await;
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        let url = format!("http://{host}:{}", running.address.port());
        let said = home.run(&["ping", &url, KEY]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

#[tokio::test]
async fn nw_05_proxies_in_the_environment_are_not_asked() {
    let home = Home::new().await;
    let with_proxies = |command: &mut Command| {
        for name in [
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
        ] {
            command.env(name, "http://127.0.0.1:1");
        }
    };
    let running = home.start_with(&json!({}), with_proxies).await;
    assert_eq!(running.turn().await, 200);
    home.status_where("usage is asked for too", are_read).await;
    let mut command = home.command(&["ping", &running.url(), KEY]);
    with_proxies(&mut command);
    let said = said(command).await;
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// A memory figure of a process, in KiB.
#[cfg(target_os = "linux")]
fn memory(pid: u32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Reads to the end of a head.
#[cfg(target_os = "linux")]
async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn st_07_a_stream_without_a_line_end_takes_no_memory() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 200;
    let home = Home::new().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = head_of(&mut stream).await;
                if !head.starts_with("POST /v1/messages") {
                    let _ = stream
                        .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                        .await;
                    return;
                }
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                let piece = vec![b'x'; PIECE];
                for _ in 0..PIECES {
                    stream.write_all(format!("{PIECE:x}\r\n").as_bytes()).await.unwrap();
                    stream.write_all(&piece).await.unwrap();
                    stream.write_all(b"\r\n").await.unwrap();
                }
                stream.write_all(b"0\r\n\r\n").await.unwrap();
                // What it did not read would break the connection if it left now.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    let running = home.start_with(&json!({"upstream": upstream}), |_| {}).await;
    let before = memory(running.pid(), "VmRSS");
    let mut body = running.send(turn(true)).await.into_body();
    let mut received = 0;
    while let Some(frame) = timeout(GUARD, body.frame()).await.expect("it goes on") {
        received += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(received, PIECE * PIECES);
    let grown = memory(running.pid(), "VmHWM") - before;
    assert!(grown < 16 << 10, "it grew by {grown} KiB");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn sc_08_many_long_bodies_at_once_are_kept_only_as_far_as_memory_is_set_aside() {
    const CLIENTS: usize = 12;
    const LENGTH: usize = 32 << 20;
    let home = Home::new().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let (go, going) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut going = going.clone();
            tokio::spawn(async move {
                let head = head_of(&mut stream).await;
                if !head.starts_with("POST /v1/messages") {
                    let _ = stream
                        .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                        .await;
                    return;
                }
                // It takes nothing in for a while.
                going.wait_for(|going| *going).await.unwrap();
                let mut body = (&mut stream).take(LENGTH as u64);
                let taken = tokio::io::copy(&mut body, &mut tokio::io::sink()).await.unwrap();
                assert_eq!(taken, LENGTH as u64);
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .await;
            });
        }
    });
    let running = home.start_with(&json!({"upstream": upstream}), |_| {}).await;
    let before = memory(running.pid(), "VmRSS");
    let sent = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, sent) = (running.address, Arc::clone(&sent));
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let head = format!(
                    "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-router-key: {KEY}\r\n\
                     content-type: text/plain\r\ncontent-length: {LENGTH}\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                let piece = vec![b'x'; 64 << 10];
                for _ in 0..LENGTH / piece.len() {
                    stream.write_all(&piece).await.unwrap();
                    sent.fetch_add(piece.len(), Ordering::Relaxed);
                }
                head_of(&mut stream).await
            })
        })
        .collect();
    let standstill = async {
        let mut last = 0;
        loop {
            sleep(Duration::from_secs(1)).await;
            match sent.load(Ordering::Relaxed) {
                now if now == last && now > 0 => return,
                now => last = now,
            }
        }
    };
    timeout(GUARD, standstill).await.expect("nobody can send more");
    assert!(sent.load(Ordering::Relaxed) < CLIENTS * LENGTH, "some have to wait");
    let grown = memory(running.pid(), "VmHWM") - before;
    assert!(grown < (256 + 64) << 10, "it grew by {} MiB", grown >> 10);

    go.send(true).unwrap();
    for client in clients {
        let answer = timeout(GUARD, client).await.expect("an answer").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn sc_08_a_body_in_tiny_pieces_takes_little_more_than_its_length() {
    const LENGTH: usize = 256 << 10;
    let home = Home::new().await;
    let running = home.start().await;
    assert_eq!(running.turn().await, 200);
    let before = memory(running.pid(), "VmRSS");
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-router-key: {KEY}\r\n\
         content-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let pieces = "1\r\nx\r\n".repeat(1 << 10);
    for _ in 0..LENGTH >> 10 {
        stream.write_all(pieces.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = timeout(GUARD, head_of(&mut stream)).await.expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 400"),
        "this Anthropic wants JSON: {answer}"
    );
    let grown = memory(running.pid(), "VmHWM") - before;
    assert!(grown < 4 << 10, "it grew by {grown} KiB");
}
