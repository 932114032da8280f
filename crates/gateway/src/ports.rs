//! The doors to the outside: the clock and the network. Tests put others in their place.

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use thread_local::ThreadLocal;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

/// A peer that says nothing for so long is asked whether it is there, then again so far apart; so many questions that
/// nobody answers end the connection.
const SILENCE: Duration = Duration::from_secs(30);
const QUESTIONS: Duration = Duration::from_secs(10);
const UNANSWERED: u32 = 3;
/// How long a connection may take to come about, the TLS handshake included.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The wall clock. Only wall time decides: on a Mac a monotonic clock stands still while the lid is closed.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection came about, so nothing was sent.
    #[error("could not connect")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// A kept connection turned out to be dead, soon after sending and before any byte of an answer: it was closed
    /// while idle, and the request has not run.
    #[error("a kept connection had been closed")]
    Stale(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke after sending had begun.
    #[error("the connection broke before an answer came")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

/// The network: one request in, one answer out.
pub type Upstream = BoxCloneSyncService<Request<Body>, Response<Body>, UpstreamError>;

/// The network of the request path, which can be made anew: a pool of connections does not survive a sleep. Each
/// thread has a pool of its own, for a connection is driven by the thread that opened it, and waking another one costs
/// more than all that the router does to a small request.
pub struct Network {
    make: Box<dyn Fn() -> Upstream + Send + Sync>,
    /// How often the connections were dropped.
    generation: AtomicUsize,
    here: ThreadLocal<RefCell<Pooled>>,
}

/// One thread's pool, and the generation it was made in.
struct Pooled {
    generation: usize,
    upstream: Upstream,
}

impl Network {
    /// The network that `make` makes.
    pub fn new(make: impl Fn() -> Upstream + Send + Sync + 'static) -> Self {
        Self {
            make: Box::new(make),
            generation: AtomicUsize::default(),
            here: ThreadLocal::new(),
        }
    }

    /// The network as it is now, for this thread.
    pub fn service(&self) -> Upstream {
        let generation = self.generation.load(Ordering::Relaxed);
        let make = || Pooled {
            generation,
            upstream: (self.make)(),
        };
        let mut pooled = self.here.get_or(|| RefCell::new(make())).borrow_mut();
        if pooled.generation != generation {
            *pooled = make();
        }
        pooled.upstream.clone()
    }

    /// Uses new connections from now on; what runs on the old ones goes on.
    pub fn drop_connections(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

/// The proxy to Anthropic that the owner set, if any, by HTTP or SOCKS 5. It is asked for a tunnel, so it sees where
/// connections go and how much passes, and nothing of what they carry.
#[derive(Clone, Debug, Default)]
pub struct UpstreamProxy(Arc<Mutex<Option<Uri>>>);

impl UpstreamProxy {
    /// The proxy that new connections go through.
    pub fn now(&self) -> Option<Uri> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets new connections go through `proxy`. Returns whether that is another than before.
    pub fn set(&self, proxy: Option<Uri>) -> bool {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = *now != proxy;
        *now = proxy;
        changes
    }
}

/// The network of the request path: one HTTP/1.1 pool for all seats, since a connection is not tied to a token.
pub fn pooled(tls: rustls::ClientConfig, proxy: &UpstreamProxy) -> Upstream {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    // An answer may be minutes away. That its connection leads nowhere any more, after a change of networks, would
    // otherwise show only when the client gives up.
    tcp.set_keepalive(Some(SILENCE));
    tcp.set_keepalive_interval(Some(QUESTIONS));
    tcp.set_keepalive_retries(Some(UNANSWERED));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(SILENCE + QUESTIONS * UNANSWERED));
    match proxy.now() {
        None => pooled_over(tcp, tls),
        Some(proxy) if proxy.scheme_str() == Some("socks5") => pooled_over(SocksV5::new(proxy, tcp), tls),
        Some(proxy) => pooled_over(Tunnel::new(proxy, tcp), tls),
    }
}

fn pooled_over<C>(connector: C, tls: rustls::ClientConfig) -> Upstream
where
    C: tower::Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Unpin + Send + 'static,
    C::Future: Send + 'static,
    C::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    let connector = tower::service_fn(move |uri: Uri| {
        let connecting = https.clone().oneshot(uri);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_LIMIT, connecting).await {
                Ok(connected) => connected.map(Counted::new),
                Err(late) => Err(Box::<dyn Error + Send + Sync>::from(late)),
            }
        })
    });
    let client: Client<_, Body> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .build(connector);
    BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
        let connection = capture_connection(&mut request);
        let asking = client.request(request);
        async move {
            let began = tokio::time::Instant::now();
            let answer = asking.await;
            let reused = connection.connection_metadata().as_ref().is_some_and(Counted::was_used);
            answer.map(|answer| answer.map(Body::new)).map_err(|error| {
                if error.is_connect() {
                    UpstreamError::Connect(error.into())
                } else if reused && began.elapsed() < IDLE_CLOSE_SHOWS_WITHIN {
                    UpstreamError::Stale(error.into())
                } else {
                    UpstreamError::Broken(error.into())
                }
            })
        }
    }))
}

/// A connection that was closed while idle shows it this soon; what breaks later may have run.
const IDLE_CLOSE_SHOWS_WITHIN: Duration = Duration::from_secs(5);

/// A connection that counts the requests it was used for.
struct Counted<T> {
    inner: T,
    uses: Uses,
}

#[derive(Clone, Default)]
struct Uses(Arc<AtomicUsize>);

impl<T> Counted<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            uses: Uses::default(),
        }
    }
}

impl Counted<()> {
    /// Counts one more use, and says whether there was one before.
    fn was_used(connection: &Connected) -> bool {
        let mut extras = http::Extensions::new();
        connection.get_extras(&mut extras);
        extras
            .get::<Uses>()
            .is_some_and(|uses| uses.0.fetch_add(1, Ordering::Relaxed) > 0)
    }
}

impl<T: Connection> Connection for Counted<T> {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.uses.clone())
    }
}

impl<T: Read + Unpin> Read for Counted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: Write + Unpin> Write for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }
}

/// The network of our own calls (usage, token): seldom, small, and bounded in time.
///
/// # Errors
/// If the client cannot be built from the TLS configuration.
pub fn own_calls(tls: rustls::ClientConfig, proxy: &UpstreamProxy) -> Result<Upstream, reqwest::Error> {
    let proxy = proxy.clone();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        // The environment's proxies are not asked: nobody would see where requests go.
        .no_proxy()
        .proxy(reqwest::Proxy::custom(move |_| {
            proxy.now().map(|proxy| proxy.to_string())
        }))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        // Seldom, and a kept connection that died would leave a renewal uncertain.
        .pool_max_idle_per_host(0)
        .timeout(Duration::from_secs(30))
        .build()?;
    Ok(BoxCloneSyncService::new(tower::service_fn(
        move |request: Request<Body>| {
            let client = client.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX)
                    .await
                    .map_err(|error| UpstreamError::Connect(error.into()))?;
                let request = reqwest::Request::try_from(Request::from_parts(head, body)).map_err(classify)?;
                let answer: Response<reqwest::Body> = client.execute(request).await.map_err(classify)?.into();
                Ok(answer.map(Body::new))
            }
        },
    )))
}

fn classify(error: reqwest::Error) -> UpstreamError {
    match error.is_connect() || error.is_builder() {
        true => UpstreamError::Connect(error.into()),
        false => UpstreamError::Broken(error.into()),
    }
}

/// TLS that trusts what the system trusts.
///
/// # Errors
/// If the system's trust store cannot be used.
pub fn system_tls() -> Result<rustls::ClientConfig, rustls::Error> {
    use rustls_platform_verifier::ConfigVerifierExt as _;
    // A second installation of the same provider is refused, and harmless.
    let _ = rustls::crypto::ring::default_provider().install_default();
    rustls::ClientConfig::with_platform_verifier()
}

/// TLS that trusts nobody, for an upstream on loopback that speaks plain HTTP.
pub fn no_tls() -> rustls::ClientConfig {
    let _ = rustls::crypto::ring::default_provider().install_default();
    rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}
