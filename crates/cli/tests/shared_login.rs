//! The router and the genuine Claude Code over one configuration directory: both renew its login, and neither may cost
//! the other theirs.
//!
//! Claude Code speaks to fixed names over TLS. Each home here leads them to loopback addresses of its own, in a mount
//! namespace that only its Claude Code is in. Only where `GENUINE_CLAUDE` names one, and only where loopback is all
//! there is; `scripts/test` sees to both. `ROUNDS` asks for more rounds than everyday's, and for real waits.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "the helpers are tests, too")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use gateway::ports::{Clock as _, SystemClock};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use sandbox::{Identity, Sandbox, Seat, Verdict};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use support::claude::genuine;
use support::port::free_port;

const KEY: &str = "rk-test-0001";
const SEAT: &str = "work";
/// Ends what hangs; far more than anything here should take.
const GUARD: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(20);
/// How long Claude Code may take to come to its renewal, if it does.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many rounds of both at once. One in which the router finds Claude Code at it lasts ten seconds.
const EVERYDAY: u64 = 6;
/// Where Claude Code renews, and where it asks for all else.
const TOKENS: &str = "platform.claude.com";
const API: &str = "api.anthropic.com";
/// After so long all its locks count as left over.
const LEFT_OVER: Duration = Duration::from_secs(75);

/// Who sent a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Router,
    Claude,
}

/// A refresh token that the pretended Anthropic received.
#[derive(Clone, Debug)]
struct Post {
    by: Side,
    token: String,
    verdict: Verdict,
}

/// An owner's home with one login in it, an Anthropic that knows the login, and a Claude Code that knows no other.
struct Home {
    dir: TempDir,
    sandbox: Sandbox,
    anthropic: SocketAddr,
    /// The way of both to the token endpoint.
    tokens: SocketAddr,
    /// How long a byte is under way there, in milliseconds.
    under_way_ms: Arc<AtomicU64>,
}

/// A running router.
struct Router {
    address: SocketAddr,
    process: Child,
}

/// What `claude auth status` came to.
#[derive(Debug)]
struct AuthStatus {
    logged_in: bool,
    said: String,
    took: Duration,
}

/// What a request through the router came to.
struct Served {
    took: Duration,
    /// The answers before the one that was good: status and text.
    before: Vec<(u16, String)>,
}

impl Home {
    async fn new(claude: &Path) -> Self {
        let sandbox = Sandbox::new(Arc::new(|| SystemClock.now().as_millisecond()));
        sandbox.add_seat(Seat::new(SEAT));
        let plain = listen((Ipv4Addr::LOCALHOST, 0)).await;
        let anthropic = plain.local_addr().unwrap();
        tokio::spawn(sandbox::serve(plain, sandbox.clone()));

        let under_way_ms = Arc::new(AtomicU64::new(0));
        let wire = listen((Ipv4Addr::LOCALHOST, 0)).await;
        let tokens = wire.local_addr().unwrap();
        tokio::spawn(carry_slowly(wire, anthropic, Arc::clone(&under_way_ms)));

        let identity = Identity::generate(&[API, TOKENS]);
        let certificate = identity.certificate_pem().to_owned();
        let (api, slow) = (own_address(), own_address());
        let secure = listen((api, 443)).await;
        tokio::spawn(sandbox::serve_tls(secure, sandbox.clone(), identity));
        let wire = listen((slow, 443)).await;
        tokio::spawn(carry_slowly(wire, (api, 443).into(), Arc::clone(&under_way_ms)));

        // A socket's path must be short, and the usual place for temporary files need not be.
        let dir = tempfile::Builder::new().prefix("cpr-").tempdir_in("/tmp").unwrap();
        let home = Self {
            dir,
            sandbox,
            anthropic,
            tokens,
            under_way_ms,
        };
        for folder in ["work", "tmp", ".local/bin"] {
            fs::create_dir_all(home.path(folder)).unwrap();
        }
        fs::write(home.path("certificate.pem"), certificate).unwrap();
        fs::write(
            home.path("hosts"),
            format!("127.0.0.1 localhost\n{api} {API}\n{slow} {TOKENS}\n"),
        )
        .unwrap();
        home.install(claude);
        home
    }

    /// Puts Claude Code where the router looks for it, too.
    fn install(&self, claude: &Path) {
        let script = format!(
            "#!/bin/sh\n\
             export NODE_EXTRA_CA_CERTS={certificate} CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\n\
             exec unshare --mount sh -c 'mount --bind {hosts} /etc/hosts && exec \"$@\"' sh {claude} \"$@\"\n",
            certificate = self.path("certificate.pem").display(),
            hosts = self.path("hosts").display(),
            claude = claude.display(),
        );
        let path = self.claude();
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn claude(&self) -> PathBuf {
        self.path(".local/bin/claude")
    }

    /// The locks, in the order in which they are taken.
    fn locks(&self) -> [PathBuf; 3] {
        ["work/.oauth_refresh.lock", "work.lock", "work/.storage-write.lock"].map(|lock| self.path(lock))
    }

    fn locks_there(&self) -> Vec<PathBuf> {
        self.locks().into_iter().filter(|lock| lock.exists()).collect()
    }

    /// Makes the locks that are there look as if nobody had touched them for long.
    fn age_locks(&self) {
        let then = SystemClock.now().as_millisecond().unsigned_abs() - LEFT_OVER.as_millis() as u64;
        for lock in self.locks_there() {
            let then = SystemTime::UNIX_EPOCH + Duration::from_millis(then);
            File::open(lock).unwrap().set_modified(then).unwrap();
        }
    }

    fn delay(&self, one_way: Duration) {
        let ms = u64::try_from(one_way.as_millis()).unwrap();
        self.under_way_ms.store(ms, Ordering::Relaxed);
    }

    /// The owner logs in anew, and comes back when the access token has ended.
    fn log_in_long_ago(&self) {
        self.sandbox.log_in_again(SEAT);
        let seats = self.sandbox.seats();
        let [seat] = seats.as_slice() else { panic!("{seats:?}") };
        let ended = seat.clone().expires_at_ms(SystemClock.now().as_millisecond() - 60_000);
        if !self.path("work/.claude.json").exists() {
            fs::write(self.path("work/.claude.json"), seat.identity().to_string()).unwrap();
        }
        let new = self.path("work/.credentials.json.new");
        fs::write(&new, ended.credentials().to_string()).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.path("work/.credentials.json")).unwrap();
    }

    /// The refresh token in the file.
    fn stored(&self) -> String {
        let text = fs::read_to_string(self.path("work/.credentials.json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        document["claudeAiOauth"]["refreshToken"].as_str().unwrap().to_owned()
    }

    /// Whether the login in the file wants renewing.
    fn has_ended(&self) -> bool {
        let text = fs::read_to_string(self.path("work/.credentials.json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let ends_at = document["claudeAiOauth"]["expiresAt"].as_i64().unwrap();
        // Blanked, there is nothing to renew.
        ends_at != 0 && ends_at < SystemClock.now().as_millisecond()
    }

    /// Whether the file holds the pair that Anthropic knows as the live one.
    fn holds_the_live_pair(&self) -> bool {
        self.stored() == self.sandbox.refresh_token(SEAT)
    }

    /// All refresh tokens that were sent, and by whom.
    fn posts(&self) -> Vec<Post> {
        let mut verdicts = BTreeMap::<String, Vec<Verdict>>::new();
        for post in self.sandbox.token_posts() {
            verdicts.entry(post.refresh_token).or_default().push(post.verdict);
        }
        let requests = self.sandbox.requests();
        let posted = requests
            .iter()
            .filter(|request| request.path == "/v1/oauth/token" && request.completed);
        let post = |request: &sandbox::Recorded| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let token = body["refresh_token"].as_str().unwrap().to_owned();
            let ours = request
                .header("user-agent")
                .unwrap()
                .starts_with("claude-proxy-router/");
            Post {
                by: if ours { Side::Router } else { Side::Claude },
                verdict: verdicts.get_mut(&token).unwrap().remove(0),
                token,
            }
        };
        posted.map(post).collect()
    }

    /// Some program, with nothing around it.
    fn bare(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs([("HOME", self.path("")), ("TMPDIR", self.path("tmp"))])
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("TZ", "UTC")
            .current_dir("/")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    fn router_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bare(env!("CARGO_BIN_EXE_claude-proxy-router"));
        command.args(arguments).arg("--config").arg(self.path("config.json"));
        command
    }

    fn auth_status_command(&self) -> Command {
        let mut command = self.bare(self.claude());
        command
            .args(["auth", "status"])
            .env("CLAUDE_CONFIG_DIR", self.path("work"));
        command
    }

    /// Asks Claude Code for the state of the login; it renews one that has ended.
    async fn auth_status(&self) -> AuthStatus {
        let began = Instant::now();
        let output = timeout(GUARD, self.auth_status_command().output())
            .await
            .expect("Claude Code ends")
            .unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        let status: Value = serde_json::from_str(&out).unwrap_or_default();
        AuthStatus {
            logged_in: status["loggedIn"] == true,
            said: one_line(&format!("{out} {err}")),
            took: began.elapsed(),
        }
    }

    /// The same, once Claude Code has tried to renew a login that has ended. About one `auth status` in four ends
    /// before it comes to that; a turn does not.
    async fn auth_status_settled(&self) -> AuthStatus {
        let status = self.auth_status().await;
        if self.has_ended() {
            self.say_hello().await;
        }
        match self.has_ended() || self.stored().is_empty() || !status.logged_in {
            true => self.auth_status().await,
            false => status,
        }
    }

    /// What a person reads who says hello to Claude Code, without the router.
    async fn say_hello(&self) -> String {
        let mut command = self.bare(self.claude());
        command
            .args(["-p", "hello"])
            .env("CLAUDE_CONFIG_DIR", self.path("work"));
        let output = timeout(GUARD, command.output()).await.expect("it ends").unwrap();
        one_line(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
    }

    /// Begins a router, without waiting until it listens.
    fn begin_router(&self) -> Router {
        let port = free_port();
        let settings = json!({
            "port": port,
            "routerKey": KEY,
            "upstream": format!("http://{}", self.anthropic),
            "tokenUrl": format!("http://{}/v1/oauth/token", self.tokens),
            "includeDefaultAccount": false,
            "configDirs": [self.path("work")],
        });
        fs::write(self.path("config.json"), settings.to_string()).unwrap();
        fs::set_permissions(self.path("config.json"), fs::Permissions::from_mode(0o600)).unwrap();
        let output = File::options()
            .append(true)
            .create(true)
            .open(self.path("output"))
            .unwrap();
        let mut command = self.router_command(&["start"]);
        command
            .env("CLAUDE_PROXY_ROUTER_LOG", "debug,hyper=info,reqwest=info")
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        Router {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            process: command.spawn().unwrap(),
        }
    }

    async fn start_router(&self) -> Router {
        let router = self.begin_router();
        let listening = async {
            while TcpStream::connect(router.address).await.is_err() {
                sleep(GLANCE).await;
            }
        };
        if timeout(GUARD, listening).await.is_err() {
            panic!("the router does not listen: {}", self.output());
        }
        router
    }

    /// All that its routers printed and logged so far.
    fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("output")).unwrap_or_default()).into_owned()
    }

    /// What the running router's status shows of the seat.
    async fn router_status(&self) -> String {
        let output = self.router_command(&["status"]).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(SEAT))
            .unwrap_or(&text);
        one_line(line)
    }

    /// Waits until the first lock of a renewal is there.
    async fn locked(&self) {
        while !self.locks()[0].exists() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// The same; `false` if `who` ended without one.
    async fn locked_by(&self, who: &mut Child) -> bool {
        let either = async {
            tokio::select! {
                () = self.locked() => true,
                _ = who.wait() => false,
            }
        };
        match timeout(GUARD, either).await {
            Ok(locked) => locked,
            Err(_) => panic!("nobody renews: {}", self.output()),
        }
    }
}

impl Router {
    /// One turn: its status and its text.
    async fn turn(&self) -> (u16, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let body = json!({
            "model": "claude-opus-4-5",
            "max_tokens": 50,
            "messages": [{"role": "user", "content": "hello"}],
        });
        let request = Request::builder()
            .method("POST")
            .uri("/v1/messages")
            .header("host", self.address.to_string())
            .header("x-router-key", KEY)
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .body(Full::<Bytes>::from(body.to_string()))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let again = answer.headers().get("x-should-retry").cloned();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        connection.abort();
        (
            status,
            format!("x-should-retry {again:?}: {}", String::from_utf8_lossy(&body)),
        )
    }

    /// Turns until one is answered well, as a client that tries again would do it.
    async fn serve(&self, home: &Home) -> Served {
        let began = Instant::now();
        let mut before = Vec::new();
        loop {
            let (status, text) = timeout(GUARD, self.turn()).await.expect("the router answers");
            if status == 200 {
                return Served {
                    took: began.elapsed(),
                    before,
                };
            }
            before.push((status, text));
            if began.elapsed() > GUARD {
                panic!("never served: {before:?}\n{}", home.output());
            }
            sleep(GLANCE * 10).await;
        }
    }

    /// SIGKILL.
    async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }
}

/// A loopback address that is nobody else's.
fn own_address() -> Ipv4Addr {
    static LAST: AtomicU8 = AtomicU8::new(10);
    Ipv4Addr::new(127, 0, 0, LAST.fetch_add(1, Ordering::Relaxed))
}

async fn listen(address: (Ipv4Addr, u16)) -> TcpListener {
    TcpListener::bind(address)
        .await
        .unwrap_or_else(|error| panic!("{address:?}: {error}"))
}

/// Leads to `to`; each byte, and each end, is under way for a while, whether or not its sender still lives.
async fn carry_slowly(wire: TcpListener, to: SocketAddr, under_way_ms: Arc<AtomicU64>) {
    while let Ok((client, _)) = wire.accept().await {
        let under_way_ms = Arc::clone(&under_way_ms);
        tokio::spawn(async move {
            let server = TcpStream::connect(to).await.unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::join!(
                one_way(from_client, to_server, &under_way_ms),
                one_way(from_server, to_client, &under_way_ms),
            );
        });
    }
}

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, under_way_ms: &AtomicU64) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = from.read(&mut buffer).await.unwrap_or(0);
        sleep(Duration::from_millis(under_way_ms.load(Ordering::Relaxed))).await;
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    to.shutdown().await.ok();
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How many rounds were asked for, if other than everyday's.
fn rounds() -> Option<u64> {
    std::env::var("ROUNDS").ok().map(|rounds| rounds.parse().unwrap())
}

/// Nobody sent a token that was sent before.
fn assert_none_sent_twice<'a>(posts: impl Iterator<Item = &'a Post>, context: &str) {
    let mut seen = Vec::new();
    for post in posts {
        assert!(!seen.contains(&&post.token), "{} twice, {context}", post.token);
        seen.push(&post.token);
    }
}

#[tokio::test]
async fn both_renew_one_login_at_the_same_moment_and_it_lives() {
    let Some(claude) = genuine() else { return };
    let home = Home::new(&claude).await;
    home.delay(Duration::from_millis(75));
    home.log_in_long_ago();
    let mut router = home.start_router().await;
    router.serve(&home).await;
    let begun = home.posts().len();

    let rounds = rounds().unwrap_or(EVERYDAY);
    let mut longest = BTreeMap::<Side, Duration>::new();
    let mut turned_away = BTreeMap::<String, usize>::new();
    let mut idle = 0;
    for round in 0..rounds {
        let before = home.posts().len();
        home.log_in_long_ago();
        // Most rounds begin with a router that begins, too: one that runs finds out from its request, and later.
        let begins = round % 5 != 0;
        if begins {
            router.kill().await;
        }
        // Claude Code takes a while to come to it, so the moments differ from round to round; every third round, the
        // router comes when Claude Code is at it.
        let head_start = Duration::from_millis(250 + round * 35 % 245);
        let (served, status) = tokio::join!(
            async {
                match round % 3 {
                    1 => _ = timeout(PATIENCE, home.locked()).await,
                    _ => sleep(head_start).await,
                }
                let began = Instant::now();
                if begins {
                    router = home.start_router().await;
                }
                let served = router.serve(&home).await;
                Served {
                    took: began.elapsed(),
                    ..served
                }
            },
            home.auth_status(),
        );
        assert!(status.logged_in, "round {round}: {status:?}");
        for (side, took) in [(Side::Router, served.took), (Side::Claude, status.took)] {
            let most = longest.entry(side).or_default();
            *most = took.max(*most);
        }
        let sent: Vec<_> = home.posts().split_off(before).iter().map(|post| post.by).collect();
        eprintln!(
            "round {round}: {} router; sent by {sent:?}; router {} ms, claude {} ms, turned away {}",
            if begins { "a new" } else { "the running" },
            served.took.as_millis(),
            status.took.as_millis(),
            served.before.len(),
        );
        for (status, text) in served.before {
            *turned_away.entry(format!("{status} {text}")).or_default() += 1;
        }
        idle += usize::from(sent.is_empty());

        assert!(home.holds_the_live_pair(), "round {round}: {:?}", home.posts());
        let again = home.auth_status().await;
        assert!(again.logged_in, "round {round}: {again:?}");
        router.serve(&home).await;
        let last = home
            .sandbox
            .requests()
            .into_iter()
            .rfind(|request| request.path == "/v1/messages");
        assert_eq!(
            last.unwrap().token,
            Some(home.sandbox.access_token(SEAT)),
            "round {round}"
        );
        assert_eq!(home.locks_there(), Vec::<PathBuf>::new(), "round {round}");
    }
    let posts = home.posts();
    assert_none_sent_twice(posts.iter(), "");
    assert!(posts.iter().all(|post| post.verdict == Verdict::Rotated), "{posts:?}");
    let by = |side| posts.iter().skip(begun).filter(|post| post.by == side).count();
    eprintln!(
        "{rounds} rounds: the router renewed {}, Claude Code {}, nobody {idle}; the longest wait for a request {} ms, for `claude auth status` {} ms",
        by(Side::Router),
        by(Side::Claude),
        longest[&Side::Router].as_millis(),
        longest[&Side::Claude].as_millis(),
    );
    for (answer, times) in turned_away {
        eprintln!("{times} times a request was answered {answer}");
    }
}

/// What a killed renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It had ended before the blow.
    NotHit,
    /// The login was renewed by whoever came after.
    Alive,
    /// Anthropic had given a new pair, and it died with the one that was to save it.
    Lost,
}

/// Begins a renewal by `side`, kills it that long after it took its first lock, and lets both sides come back.
///
/// Returns what it came to, and whether the router turned a request away though the login was alive.
async fn strike(home: &Home, side: Side, after: Duration, real_wait: bool, claude_first: bool) -> (End, bool) {
    let before = home.posts().len();
    home.log_in_long_ago();
    let mut victim = loop {
        let mut victim = match side {
            Side::Router => home.begin_router().process,
            Side::Claude => {
                let mut command = home.auth_status_command();
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().unwrap()
            }
        };
        if home.locked_by(&mut victim).await {
            break victim;
        }
    };
    sleep(after).await;
    victim.kill().await.unwrap();
    let held = home.locks_there().len();
    // What was under way arrives.
    sleep(Duration::from_millis(home.under_way_ms.load(Ordering::Relaxed) * 3)).await;
    let sent_by_the_dead = home.posts().split_off(before);
    if real_wait {
        sleep(LEFT_OVER).await;
    } else {
        home.age_locks();
    }
    if claude_first {
        home.auth_status_settled().await;
    }
    let mut router = home.start_router().await;
    let (turn, _) = router.turn().await;
    let status = home.auth_status_settled().await;
    let alive = home.holds_the_live_pair() && status.logged_in;
    let shown = home.router_status().await;
    let posts = home.posts().split_off(before);
    let came: Vec<_> = posts.iter().map(|post| (post.by, post.verdict)).collect();
    let end = match alive {
        true if held == 0 => End::NotHit,
        true => End::Alive,
        false => End::Lost,
    };
    eprintln!(
        "{side:?} killed after {} ms, {held} locks left; sent {came:?}; first turn {turn}; {end:?}; router: {shown}; \
         claude: {} ({} ms)",
        after.as_millis(),
        if status.logged_in { "logged in" } else { &status.said },
        status.took.as_millis(),
    );
    if alive {
        router.serve(home).await;
        // The dead had saved all: nobody needs its locks soon, and whoever does finds them left over.
        if posts.len() == sent_by_the_dead.len() {
            home.locks_there().iter().for_each(|lock| fs::remove_dir(lock).unwrap());
        }
        assert_eq!(home.locks_there(), Vec::<PathBuf>::new());
    } else {
        eprintln!("a person reads: {}", home.say_hello().await);
        let spent = sent_by_the_dead
            .iter()
            .any(|post| post.by == side && post.verdict == Verdict::Rotated);
        assert!(spent, "lost without need: {posts:?}\n{}", home.output());
    }
    assert_none_sent_twice(
        posts.iter().filter(|post| post.by == Side::Router),
        &format!("{posts:?}\n{}", home.output()),
    );
    router.kill().await;
    (end, alive && turn != 200)
}

/// Strikes `side` at growing delays, and counts the ends.
async fn strikes(side: Side, everyday: &[u64], step: u64, most: u64) {
    let Some(claude) = genuine() else { return };
    let home = Home::new(&claude).await;
    home.delay(Duration::from_millis(100));
    let moments: Vec<u64> = match rounds() {
        None => everyday.to_vec(),
        Some(rounds) => (0..rounds).map(|round| round * step % most).collect(),
    };
    let (mut ends, mut turned_away) = (BTreeMap::<End, usize>::new(), 0);
    for (round, after) in moments.iter().enumerate() {
        // Once for each of the two that may come first.
        let real_wait = rounds().is_some() && (1..=2).contains(&round);
        let (end, in_vain) = strike(&home, side, Duration::from_millis(*after), real_wait, round % 2 == 1).await;
        *ends.entry(end).or_default() += 1;
        turned_away += usize::from(in_vain);
    }
    let posts = home.posts();
    assert_none_sent_twice(posts.iter().filter(|post| post.by == Side::Router), "by the router");
    eprintln!(
        "{side:?} killed {} times: {ends:?}; turned away though the login was alive: {turned_away}",
        moments.len()
    );
}

#[tokio::test]
async fn a_router_killed_while_it_renews_costs_the_login_only_if_the_answer_dies_with_it() {
    strikes(Side::Router, &[0, 6, 60, 205, 230], 5, 250).await;
}

#[tokio::test]
async fn a_claude_code_killed_while_it_renews_costs_the_login_only_if_the_answer_dies_with_it() {
    strikes(Side::Claude, &[0, 100, 350, 420], 10, 500).await;
}
