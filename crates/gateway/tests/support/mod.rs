//! The test bench: a gateway over the sandbox, in one process, in virtual time, on real files in a temporary home.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use gateway::config::Config;
use gateway::credential::{Files, Store};
use gateway::paths::Paths;
use gateway::ports::{Clock, Network, Upstream, UpstreamError};
use gateway::record::RequestRecord;
use gateway::snapshot::{SeatView, Snapshot};
use gateway::store::Wanted;
use gateway::{Gateway, Ports};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use sandbox::{Cut, Encoding, Recorded, Sandbox, Seat};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

/// When every test begins, in seconds since the epoch: 2026-09-21 14:13:20 UTC.
pub const T: i64 = 1_790_000_000;
/// The key of the test bench's device.
pub const KEY: &str = "rk-test-0001";
pub const OPUS: &str = "claude-opus-5-5";
pub const SONNET: &str = "claude-sonnet-5";
pub const FABLE: &str = "claude-fable-5";
pub const MESSAGES: &str = "/v1/messages";
pub const COUNT_TOKENS: &str = "/v1/messages/count_tokens";
pub const USAGE: &str = "/api/oauth/usage";

/// The wall clock of a test: tokio's paused time, and what the lid's closing added.
pub struct VirtualClock {
    began: tokio::time::Instant,
    skew_ms: AtomicI64,
    set_ms: AtomicI64,
}

impl VirtualClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            began: tokio::time::Instant::now(),
            skew_ms: AtomicI64::new(0),
            set_ms: AtomicI64::new(0),
        })
    }

    /// Moves the wall clock while every timer stands still.
    pub fn skew(&self, by: SignedDuration) {
        self.skew_ms
            .fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Sets this machine's clock wrong, by so much; the rest of the world goes by the true time.
    pub fn set(&self, wrong_by: SignedDuration) {
        self.set_ms
            .store(i64::try_from(wrong_by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// The true time, in milliseconds since the epoch.
    pub fn true_ms(&self) -> i64 {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap();
        T * 1_000 + elapsed + self.skew_ms.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> i64 {
        self.true_ms() + self.set_ms.load(Ordering::Relaxed)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms()).unwrap()
    }
}

/// The sandbox as the network.
pub fn network(sandbox: &Sandbox) -> Upstream {
    let router = sandbox.router();
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let router = router.clone();
        async move {
            let Ok(response) = router.oneshot(request).await;
            match response.extensions().get::<Cut>() {
                Some(_) => Err(UpstreamError::Broken("the connection was reset".into())),
                None => Ok(response),
            }
        }
    }))
}

/// The network, with a token endpoint that is reached after so many milliseconds.
fn slow(network: Upstream, delay_ms: u64) -> Upstream {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let network = network.clone();
        async move {
            if request.uri().path() == "/v1/oauth/token" {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            }
            network.oneshot(request).await
        }
    }))
}

/// A gateway over the sandbox.
pub struct Bench {
    pub sandbox: Sandbox,
    pub clock: Arc<VirtualClock>,
    pub gateway: Gateway,
    pub home: Arc<tempfile::TempDir>,
    app: axum::Router,
    driver: tokio::task::JoinHandle<()>,
    conversations: AtomicUsize,
    world: World,
}

/// What stays when a router ends.
#[derive(Clone)]
struct World {
    sandbox: Sandbox,
    clock: Arc<VirtualClock>,
    home: Arc<tempfile::TempDir>,
    settings: Value,
    store: Arc<dyn Store>,
    delay_ms: u64,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A seat with tokens `tok-NAME` and `rt-NAME` in an organisation named NAME, that much of its five hours and its
/// week used.
pub fn seat(name: &str, five_hour: f64, weekly: f64) -> Seat {
    let seat = Seat::new(name);
    let organization = seat.organization_uuid.clone();
    seat.organization(&organization, name)
        .tokens(&format!("tok-{name}"), &format!("rt-{name}"))
        .expires_at_ms((T + 8 * 3_600) * 1_000)
        .five_hour(five_hour, T + 3_600)
        .weekly(weekly, T + 300_000)
}

/// The same seat with an allowance for Fable of its own, that much of it used.
pub fn with_fable(seat: Seat, used: f64) -> Seat {
    let mut seat = seat.with_fable();
    let fable = seat.fable.as_mut().unwrap();
    (fable.used, fable.resets_at_s) = (used, Some(T + 300_000));
    seat
}

impl Bench {
    /// Seats A (10 % used), B (30 %) and so on, as many as `names` has letters.
    pub async fn new(names: &str) -> Self {
        let used = [0.10, 0.30, 0.50, 0.70];
        let seats = names
            .chars()
            .zip(used)
            .map(|(name, used)| seat(&name.to_string(), used, used));
        Self::with(seats.collect(), json!({})).await
    }

    /// These seats, with those settings on top of the usual ones.
    pub async fn with(seats: Vec<Seat>, settings: Value) -> Self {
        Self::prepared(seats, settings, |_| ()).await
    }

    /// The same, after `prepare` has laid out what the sandbox answers from the very first poll on.
    pub async fn prepared(seats: Vec<Seat>, settings: Value, prepare: impl FnOnce(&Sandbox)) -> Self {
        Self::begun(seats, settings, Arc::new(Files), 0, |_| (), prepare).await
    }

    /// The same, with the logins in that store.
    pub async fn on(seats: Vec<Seat>, settings: Value, store: Arc<dyn Store>) -> Self {
        Self::laid_out(seats, settings, store, |_| ()).await
    }

    /// The same, after `lay` has changed what lies in the home directory.
    pub async fn laid_out(seats: Vec<Seat>, settings: Value, store: Arc<dyn Store>, lay: impl FnOnce(&Path)) -> Self {
        Self::begun(seats, settings, store, 0, lay, |_| ()).await
    }

    /// These seats, and a token endpoint that is reached after so many milliseconds.
    pub async fn slow_tokens(seats: Vec<Seat>, delay_ms: u64) -> Self {
        let settings = json!({"claudePath": "/nonexistent/claude"});
        Self::begun(seats, settings, Arc::new(Files), delay_ms, |_| (), |_| ()).await
    }

    async fn begun(
        seats: Vec<Seat>,
        settings: Value,
        store: Arc<dyn Store>,
        delay_ms: u64,
        lay: impl FnOnce(&Path),
        prepare: impl FnOnce(&Sandbox),
    ) -> Self {
        let home = Arc::new(tempfile::tempdir().unwrap());
        let clock = VirtualClock::new();
        let sandbox = Sandbox::new({
            let clock = Arc::clone(&clock);
            Arc::new(move || clock.now_ms())
        });
        for seat in &seats {
            write_login(&home.path().join(&seat.name), seat);
        }
        let dirs: Vec<PathBuf> = seats.iter().map(|seat| home.path().join(&seat.name)).collect();
        lay(home.path());
        for seat in seats {
            sandbox.add_seat(seat);
        }
        prepare(&sandbox);
        let mut file = json!({
            "routerKey": KEY, "includeDefaultAccount": false, "configDirs": dirs,
            // The strategy whose choice a reader of a test can tell beforehand.
            "routing": "headroom",
        });
        for (key, value) in settings.as_object().unwrap() {
            file[key] = value.clone();
        }
        let world = World {
            sandbox,
            clock,
            home,
            settings: file,
            store,
            delay_ms,
        };
        let bench = Self::boot(world).await;
        bench.sandbox.take_requests();
        bench
    }

    /// Starts a router in that world.
    async fn boot(world: World) -> Self {
        let config = Config::parse(world.settings.to_string().as_bytes()).unwrap().unwrap();
        let paths = Paths::new(world.home.path(), None, |_| None);
        let ports = Ports {
            clock: world.clock.clone(),
            network: Arc::new(Network::new({
                let sandbox = world.sandbox.clone();
                move || network(&sandbox)
            })),
            calls: slow(network(&world.sandbox), world.delay_ms),
            store: Arc::clone(&world.store),
            zone: TimeZone::UTC,
            seed: 7,
        };
        let gateway = Gateway::new(config, &paths, ports);
        gateway.scan().await;
        let app = gateway.router();
        let driver = tokio::spawn(gateway.driver().run());
        let bench = Self {
            sandbox: world.sandbox.clone(),
            clock: Arc::clone(&world.clock),
            home: Arc::clone(&world.home),
            gateway,
            app,
            driver,
            conversations: AtomicUsize::new(0),
            world,
        };
        bench.settle().await;
        bench
    }

    /// The router ends as it should, and another starts in its place.
    pub async fn restarted(self) -> Self {
        self.driver.abort();
        self.gateway.driver().finish().await;
        self.gateway.close_books().await;
        Self::boot(self.world.clone()).await
    }

    /// The router is killed where it stands, and another starts in its place. Its locks stay.
    pub async fn killed(self) -> Self {
        let folders = std::fs::read_dir(self.home.path())
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let inside = |folder: PathBuf| {
            [
                folder.join(".oauth_refresh.lock"),
                folder.join(".storage-write.lock"),
                folder,
            ]
        };
        let touched = |path: &PathBuf| std::fs::metadata(path).and_then(|about| about.modified()).ok();
        let is_lock = |path: &PathBuf| path.extension().is_some_and(|end| end == "lock") && path.is_dir();
        let locks: Vec<_> = folders
            .flat_map(inside)
            .filter(is_lock)
            .map(|path| (touched(&path), path))
            .collect();
        self.driver.abort();
        self.gateway.driver().abort();
        let world = self.world.clone();
        drop(self);
        for _ in 0..20 {
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            tokio::task::yield_now().await;
        }
        for (touched, path) in locks.into_iter().filter(|(_, path)| !path.exists()) {
            std::fs::create_dir(&path).unwrap();
            std::fs::File::open(&path)
                .unwrap()
                .set_modified(touched.unwrap())
                .unwrap();
        }
        Self::boot(world).await
    }

    /// Lets the driver do what is due, such as the first polls.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    /// Lets time pass.
    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Sends a request as it is.
    pub async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.open(request).await;
        Reply::read(response).await
    }

    /// Sends a request and returns with its answer's head.
    pub async fn open(&self, request: Request<Body>) -> Response<Body> {
        let Ok(response) = self.app.clone().oneshot(request).await;
        response
    }

    /// A turn of the one conversation that begins with "hello", for that model.
    pub async fn turn(&self, model: &str) -> Reply {
        self.send(messages(&turn_body(model, "hello"))).await
    }

    /// A first turn that can be sent from another task.
    pub fn later_turn(&self, model: &str, text: &str) -> impl Future<Output = Reply> + Send + 'static {
        let (app, request) = (self.app.clone(), messages(&turn_body(model, text)));
        async move {
            let Ok(response) = app.oneshot(request).await;
            Reply::read(response).await
        }
    }

    /// The first turn of a conversation that nobody has seen, for that model.
    pub async fn new_turn(&self, model: &str) -> Reply {
        let number = self.conversations.fetch_add(1, Ordering::Relaxed);
        self.send(messages(&turn_body(model, &format!("conversation {number}"))))
            .await
    }

    /// The seat that a new conversation's first turn goes to, by its token. It must be served there.
    pub async fn next_seat(&self, model: &str) -> String {
        let before = self.tokens(MESSAGES).len();
        assert_eq!(self.new_turn(model).await.status, 200);
        let tokens = self.tokens(MESSAGES);
        assert_eq!(tokens.len(), before + 1, "one attempt: {tokens:?}");
        tokens[before].clone()
    }

    /// The seats whose tokens were used, in order, for requests to `path`.
    pub fn tokens(&self, path: &str) -> Vec<String> {
        let requests = self.sandbox.requests();
        let to_path = requests.iter().filter(|request| request.path == path);
        to_path
            .map(|request| request.token.clone().unwrap_or_default())
            .collect()
    }

    /// The requests that arrived at `path`.
    pub fn arrived(&self, path: &str) -> Vec<Recorded> {
        let requests = self.sandbox.requests();
        requests.into_iter().filter(|request| request.path == path).collect()
    }

    /// The router's status, without the pace of an even use, which moves with the clock alone.
    pub fn status(&self) -> Snapshot {
        let mut snapshot = self.gateway.snapshot(&[], true);
        for seat in &mut snapshot.seats {
            seat.windows.iter_mut().for_each(|window| window.pace = None);
        }
        snapshot
    }

    /// One seat's status.
    pub fn seat(&self, label: &str) -> SeatView {
        let status = self.status();
        status
            .seats
            .into_iter()
            .find(|seat| seat.label == label)
            .expect("a seat of that label")
    }

    /// Requests that ended, as they were written down, the oldest first.
    pub async fn records(&self) -> Vec<RequestRecord> {
        let recorder = Arc::clone(self.gateway.recorder());
        let wanted = Wanted {
            limit: 10_000,
            ..Wanted::default()
        };
        let read = move || recorder.history_now().unwrap().requests(&wanted).unwrap();
        let mut records = tokio::task::spawn_blocking(read).await.unwrap();
        records.reverse();
        records
    }

    /// The router's settings file.
    pub fn settings_file(&self) -> PathBuf {
        Paths::new(self.home.path(), None, |_| None).config
    }

    /// The folder of that seat's login.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Now, in seconds since the epoch.
    pub fn now(&self) -> i64 {
        self.clock.now().as_second()
    }
}

/// Writes `seat`'s login into `dir`, as Claude Code would.
pub fn write_login(dir: &Path, seat: &Seat) {
    std::fs::create_dir_all(dir).unwrap();
    let login = json!({"claudeAiOauth": {
        "accessToken": seat.access_token,
        "refreshToken": seat.refresh_token,
        "expiresAt": seat.expires_at_ms,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": seat.plan,
    }});
    std::fs::write(dir.join(".credentials.json"), login.to_string()).unwrap();
    let identity = json!({"oauthAccount": {
        "accountUuid": seat.account_uuid,
        "organizationUuid": seat.organization_uuid,
        "emailAddress": seat.email,
        "organizationName": seat.organization_name,
    }});
    std::fs::write(dir.join(".claude.json"), identity.to_string()).unwrap();
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body ended as it should.
    pub whole: bool,
}

impl Reply {
    pub async fn read(response: Response<Body>) -> Self {
        let (head, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        let mut whole = true;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
        Self {
            status: head.status,
            headers: head.headers,
            body: bytes.into(),
            whole,
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The sentence of an error.
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A request with the test bench's key.
pub fn request(method: Method, target: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(target)
        .header("x-router-key", KEY)
        .body(body.into())
        .unwrap()
}

/// A messages request with that body, as Claude Code sends it.
pub fn messages(body: &str) -> Request<Body> {
    let mut request = request(Method::POST, "/v1/messages?beta=true", body.to_owned());
    let headers = request.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("content-length", body.len().into());
    headers.insert("anthropic-version", "2023-06-01".parse().unwrap());
    request
}

/// The same as a sub-session of its own.
pub fn in_session(mut request: Request<Body>, session: &str) -> Request<Body> {
    let session = session.parse().unwrap();
    request.headers_mut().insert("x-claude-code-session-id", session);
    request
}

/// A messages request whose body comes in these pieces, so many milliseconds apart, its length not told ahead.
pub fn messages_in_pieces<P>(
    pieces: impl IntoIterator<Item = P, IntoIter: Send + 'static>,
    gap_ms: u64,
) -> Request<Body>
where
    P: Into<Bytes>,
{
    let pieces = pieces.into_iter();
    let pieces = stream::unfold((pieces, 0), move |(mut pieces, wait)| async move {
        let piece: Bytes = pieces.next()?.into();
        if wait > 0 {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        Some((Ok::<_, io::Error>(piece), (pieces, gap_ms)))
    });
    let mut request = messages("");
    request.headers_mut().remove("content-length");
    *request.body_mut() = Body::from_stream(pieces);
    request
}

/// `text` in pieces of so many bytes.
pub fn pieces(text: &str, size: usize) -> Vec<Bytes> {
    text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect()
}

/// `plain` as a server compresses it.
pub fn encoded(encoding: Encoding, plain: &[u8]) -> Bytes {
    use std::io::Write as _;
    match encoding {
        Encoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap().into()
        }
        Encoding::Brotli => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4_096, 4, 20);
            encoder.write_all(plain).unwrap();
            encoder.into_inner().into()
        }
        Encoding::Zstd => zstd::encode_all(plain, 1).unwrap().into(),
    }
}

/// The codings that Claude Code offers.
pub const ENCODINGS: [Encoding; 3] = [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd];

/// What is logged, down to the finest level.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// What this test logs from here on, until the guard is dropped: all of it but the reading of files.
    pub fn of_this_test() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.subscriber());
        (log, guard)
    }

    /// What the whole program logs from here on. One test may ask for it.
    pub fn of_everything() -> Self {
        let log = Self::default();
        tracing::subscriber::set_global_default(log.subscriber()).unwrap();
        log
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let log = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::level_filters::LevelFilter::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(move || log.clone())
            .finish()
    }
}

/// The body of a first turn.
pub fn turn_body(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 100}).to_string()
}

/// The same, streamed.
pub fn stream_body(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 100, "stream": true})
        .to_string()
}
