//! The test bench: a gateway over the sandbox, in one process, in virtual time, on real files in a temporary home.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use gateway::config::Config;
use gateway::paths::Paths;
use gateway::credential::Files;
use gateway::ports::{Clock, Network, Upstream, UpstreamError};
use gateway::snapshot::{SeatView, Snapshot};
use gateway::{Gateway, Ports};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use sandbox::{Cut, Sandbox, Seat};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

/// When every test begins, in seconds since the epoch: 2026-09-21 14:13:20 UTC.
pub const T: i64 = 1_790_000_000;
/// The key of the test bench's device.
pub const KEY: &str = "rk-test-0001";

/// The wall clock of a test: tokio's paused time, and what the lid's closing added.
pub struct VirtualClock {
    began: tokio::time::Instant,
    skew_ms: AtomicI64,
}

impl VirtualClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            began: tokio::time::Instant::now(),
            skew_ms: AtomicI64::new(0),
        })
    }

    /// Moves the wall clock while every timer stands still.
    pub fn skew(&self, by: SignedDuration) {
        self.skew_ms
            .fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }

    fn now_ms(&self) -> i64 {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap();
        T * 1_000 + elapsed + self.skew_ms.load(Ordering::Relaxed)
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

/// A gateway over the sandbox.
pub struct Bench {
    pub sandbox: Sandbox,
    pub clock: Arc<VirtualClock>,
    pub gateway: Gateway,
    pub home: tempfile::TempDir,
    app: axum::Router,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A seat with tokens `tok-NAME` and `rt-NAME`, that much of its five hours and its week used.
pub fn seat(name: &str, five_hour: f64, weekly: f64) -> Seat {
    Seat::new(name)
        .tokens(&format!("tok-{name}"), &format!("rt-{name}"))
        .expires_at_ms((T + 8 * 3_600) * 1_000)
        .five_hour(five_hour, T + 3_600)
        .weekly(weekly, T + 300_000)
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
        let home = tempfile::tempdir().unwrap();
        let clock = VirtualClock::new();
        let sandbox = Sandbox::new({
            let clock = Arc::clone(&clock);
            Arc::new(move || clock.now_ms())
        });
        for seat in &seats {
            write_login(&home.path().join(&seat.name), seat);
        }
        let dirs: Vec<PathBuf> = seats.iter().map(|seat| home.path().join(&seat.name)).collect();
        for seat in seats {
            sandbox.add_seat(seat);
        }
        let mut file = json!({"routerKey": KEY, "includeDefaultAccount": false, "configDirs": dirs});
        for (key, value) in settings.as_object().unwrap() {
            file[key] = value.clone();
        }
        let config = Config::parse(file.to_string().as_bytes()).unwrap().unwrap();
        let paths = Paths::new(home.path(), None, |_| None);
        let ports = Ports {
            clock: clock.clone(),
            network: Arc::new(Network::new({
                let sandbox = sandbox.clone();
                move || network(&sandbox)
            })),
            calls: network(&sandbox),
            store: Arc::new(Files),
            zone: TimeZone::UTC,
            seed: 7,
        };
        let gateway = Gateway::new(config, &paths, ports);
        gateway.scan().await;
        let app = gateway.router();
        let driver = tokio::spawn(gateway.driver().run());
        let bench = Self {
            sandbox,
            clock,
            gateway,
            home,
            app,
            driver,
        };
        bench.settle().await;
        bench.sandbox.take_requests();
        bench
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

    /// A turn of a conversation of its own, for that model.
    pub async fn turn(&self, model: &str) -> Reply {
        self.send(messages(&turn_body(model, "hello"))).await
    }

    /// The seats whose tokens were used, in order, for requests to `path`.
    pub fn tokens(&self, path: &str) -> Vec<String> {
        let requests = self.sandbox.requests();
        let to_path = requests.iter().filter(|request| request.path == path);
        to_path
            .map(|request| request.token.clone().unwrap_or_default())
            .collect()
    }

    /// The router's status.
    pub fn status(&self) -> Snapshot {
        self.gateway.snapshot(&[], true)
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
        "organizationName": seat.name,
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

/// The body of a first turn.
pub fn turn_body(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 100}).to_string()
}

/// The same, streamed.
pub fn stream_body(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 100, "stream": true})
        .to_string()
}
