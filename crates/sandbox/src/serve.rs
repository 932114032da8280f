//! The sandbox on real sockets: HTTP/1.1, plain or TLS.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::{Cut, Identity, Sandbox};

/// After an accept that failed, most likely for want of descriptors.
const BREATH: Duration = Duration::from_millis(50);

/// Answers on `listener` until dropped; its connections go with it.
pub async fn serve(listener: TcpListener, sandbox: Sandbox) {
    let mut connections = JoinSet::new();
    loop {
        let socket = accept(&listener, &mut connections).await;
        connections.spawn(converse(socket, sandbox.clone()));
    }
}

/// Answers on a free port of loopback for as long as the runtime lives that this is called in. Returns where.
///
/// # Errors
/// If there is no port.
pub async fn serve_here(sandbox: Sandbox) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, sandbox));
    Ok(address)
}

/// As [`serve`], over TLS with ALPN `http/1.1`.
#[allow(clippy::needless_pass_by_value)] // served for ever: there is nothing left to do with it
pub async fn serve_tls(listener: TcpListener, sandbox: Sandbox, identity: Identity) {
    let acceptor = TlsAcceptor::from(identity.server_config());
    let mut connections = JoinSet::new();
    loop {
        let socket = accept(&listener, &mut connections).await;
        let (acceptor, sandbox) = (acceptor.clone(), sandbox.clone());
        connections.spawn(async move {
            // A client that does not trust us leaves during the handshake; that is its right.
            if let Ok(stream) = acceptor.accept(socket).await {
                converse(stream, sandbox).await;
            }
        });
    }
}

/// The next connection; meanwhile, those that ended are cleared away.
async fn accept(listener: &TcpListener, connections: &mut JoinSet<()>) -> TcpStream {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    // Small events must not wait for each other. Without it they only come later.
                    let _ = socket.set_nodelay(true);
                    return socket;
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection from its first request to its last.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, sandbox: Sandbox) {
    let router = TowerToHyperService::new(sandbox.router());
    let service = service_fn(|request: Request<Incoming>| {
        let answer = router.call(request);
        async move { or_cut(answer.await) }
    });
    // An error here is a client that left or an answer that was to be cut; both are recorded.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// An error makes hyper close the connection without a word.
fn or_cut(answer: Result<Response<Body>, Infallible>) -> io::Result<Response<Body>> {
    let response = match answer {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if response.extensions().get::<Cut>().is_some() {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    Ok(response)
}
