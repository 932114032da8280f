//! Listening: one HTTP/1.1 connection at a time, with the limits that hold before a key is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::Notify;
use tower::ServiceExt as _;

use crate::connections::{Connection, Connections};
use crate::listen::Doors;

/// How long the first request's head may take.
const FIRST_HEAD: Duration = Duration::from_secs(15);
/// How long a connection may be kept without a request, and how long a later head may take.
const KEPT: Duration = Duration::from_secs(300);
/// The longest head, and the most of a body that is read at once: below it, large uploads cost half as much again.
const HEAD_LIMIT: usize = 256 << 10;
/// A device that went to sleep or lost its network is found out: the first question after so long a silence, then the
/// next ones so far apart.
const SILENCE: Duration = Duration::from_secs(60);
const QUESTIONS: Duration = Duration::from_secs(15);
/// How long running requests may take to end when the router stops.
pub const LAST_WORDS: Duration = Duration::from_secs(10);

/// Serves `app` on the `doors`, of which those are `opened`, until `stop` is told; then accepts nothing more, and waits
/// for what runs, unless it is told once more. Connections go to `workers` in turn, and each stays where it is.
pub async fn serve(
    doors: Doors,
    opened: Vec<TcpListener>,
    app: axum::Router,
    workers: Vec<runtime::Handle>,
    connections: Connections,
    stop: Arc<Notify>,
) {
    let workers = Arc::new(Turns::new(workers));
    let graceful = Arc::new(GracefulShutdown::new());
    let accept = |listener| {
        accept(
            listener,
            app.clone(),
            Arc::clone(&workers),
            connections.clone(),
            Arc::clone(&graceful),
        )
    };
    doors.tend(opened, accept, stop.notified()).await;
    let Some(graceful) = Arc::into_inner(graceful) else {
        return;
    };
    tokio::select! {
        ended = tokio::time::timeout(LAST_WORDS, graceful.shutdown()) => if ended.is_err() {
            tracing::warn!(
                "some answers did not end within {} s and were cut",
                LAST_WORDS.as_secs()
            );
        },
        () = stop.notified() => tracing::info!("told again to stop; running answers are cut"),
    }
}

/// The threads that serve, each in its turn.
struct Turns {
    workers: Vec<runtime::Handle>,
    next: AtomicUsize,
}

impl Turns {
    const fn new(workers: Vec<runtime::Handle>) -> Self {
        Self {
            workers,
            next: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> &runtime::Handle {
        &self.workers[self.next.fetch_add(1, Ordering::Relaxed) % self.workers.len()]
    }
}

async fn accept(
    listener: TcpListener,
    app: axum::Router,
    workers: Arc<Turns>,
    connections: Connections,
    graceful: Arc<GracefulShutdown>,
) {
    loop {
        // A socket is watched by the runtime it was registered with: it is taken from this one's list.
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => {
                // Without it the kernel holds small events back until the last one is acknowledged.
                let _ = stream.set_nodelay(true);
                let asking = TcpKeepalive::new().with_time(SILENCE).with_interval(QUESTIONS);
                let _ = SockRef::from(&stream).set_tcp_keepalive(&asking);
                let (app, connection, watcher) = (app.clone(), connections.open(), graceful.watcher());
                workers.next().spawn(async move {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => converse(stream, app, connection, watcher).await,
                        Err(error) => tracing::warn!("could not serve a connection: {error}"),
                    }
                });
            }
            Err(error) => {
                // Out of descriptors, or a client that left at once: wait for one to come back.
                tracing::warn!("could not accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, app: axum::Router, connection: Connection, watcher: Watcher) {
    let first = Arc::new(Notify::new());
    let service = {
        let (first, connection) = (Arc::clone(&first), connection.clone());
        hyper::service::service_fn(move |request: Request<Incoming>| {
            first.notify_one();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection.clone());
            app.clone().oneshot(request)
        })
    };
    let talking = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(KEPT)
        // Each waiting connection may fill it before it has shown a key.
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let talking = watcher.watch(talking);
    let silent = async {
        if tokio::time::timeout(FIRST_HEAD, first.notified()).await.is_ok() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = talking => if let Err(error) = ended {
            tracing::debug!("a connection ended: {error}");
        },
        () = connection.closed() => tracing::debug!("a waiting connection gave way to a newer one"),
        () = silent => {}
    }
}
