//! The test bench: a gateway over the sandbox, which can be stopped, killed and started again over the same home.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use gateway::config::Config;
use gateway::credential::{Files, Store};
use gateway::paths::Paths;
use gateway::ports::{Clock as _, Network, Upstream, UpstreamError, UpstreamProxy};
use gateway::record::RequestRecord;
use gateway::snapshot::{SeatView, Snapshot};
use gateway::store::Wanted;
use gateway::{Gateway, Ports};
use http::{Request, Response};
use jiff::tz::TimeZone;
use sandbox::{Cut, Recorded, Sandbox, Seat};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::clock::VirtualClock;
use super::seats::{no_claude, seat, write_login};
use super::wire::{KEY, MESSAGES, Reply, messages, turn_body};

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
        let settings = no_claude();
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
            upstream_proxy: UpstreamProxy::default(),
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

    /// The login that is stored in that folder.
    pub fn stored(&self, name: &str) -> Value {
        let text = std::fs::read(self.dir(name).join(".credentials.json")).unwrap();
        serde_json::from_slice::<Value>(&text).unwrap()["claudeAiOauth"].clone()
    }

    /// The refresh tokens that were sent, in their order.
    pub fn posted(&self) -> Vec<String> {
        let posts = self.sandbox.token_posts();
        posts.into_iter().map(|post| post.refresh_token).collect()
    }

    /// Now, in seconds since the epoch.
    pub fn now(&self) -> i64 {
        self.clock.now().as_second()
    }
}
