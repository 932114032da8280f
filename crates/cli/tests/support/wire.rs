//! A wire between a client and the router: it carries bytes as they are, and remembers them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What was carried on one connection.
#[derive(Clone, Default)]
pub(crate) struct Carried {
    asked: Arc<Mutex<Vec<u8>>>,
    answered: Arc<Mutex<Vec<u8>>>,
}

/// A request as the client wrote it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The request line and the header lines.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// How the answers on its connection begin.
    pub(crate) answered: String,
}

/// The wire.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<Carried>>>,
}

impl Wire {
    /// One that leads to `to`.
    pub(crate) async fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<Mutex<Vec<Carried>>>::default();
        let all = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let carried = Carried::default();
                all.lock().unwrap().push(carried.clone());
                tokio::spawn(carry(client, to, carried));
            }
        });
        Self { address, connections }
    }

    /// The requests that the client made, connection by connection.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.connections
            .lock()
            .unwrap()
            .iter()
            .flat_map(Carried::requests)
            .collect()
    }
}

impl Carried {
    fn requests(&self) -> Vec<Asked> {
        const END: &[u8] = b"\r\n\r\n";
        let answered = self.answered.lock().unwrap();
        let answered = String::from_utf8_lossy(&answered[..answered.len().min(4096)]).into_owned();
        let asked = self.asked.lock().unwrap();
        let mut rest = &asked[..];
        let mut requests = Vec::new();
        while let Some(end) = rest.windows(END.len()).position(|window| window == END) {
            let head = String::from_utf8(rest[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse().unwrap())
            });
            rest = &rest[end + END.len()..];
            let (body, next) = rest.split_at(length.unwrap_or(0_usize).min(rest.len()));
            rest = next;
            requests.push(Asked {
                head,
                body: body.to_vec(),
                answered: answered.clone(),
            });
        }
        requests
    }
}

async fn carry(client: TcpStream, to: SocketAddr, carried: Carried) {
    // No router, no connection: the client sees the same.
    let Ok(router) = TcpStream::connect(to).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_router, to_router) = router.into_split();
    tokio::join!(
        one_way(from_client, to_router, carried.asked),
        one_way(from_router, to_client, carried.answered),
    );
}

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, seen: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        seen.lock().unwrap().extend_from_slice(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    // Both ends are gone, or one has no more to say.
    to.shutdown().await.ok();
}
