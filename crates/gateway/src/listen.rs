//! The ports that are listened on, one for each address: an address that is not there yet is waited for, and one that
//! goes and returns is followed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::addresses;

/// A burst of devices that reconnect waits here.
const BACKLOG: u32 = 1_024;
/// How often it is looked whether an address came or went.
const LOOK: Duration = Duration::from_secs(5);

/// What became of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// It is listened on.
    Open,
    /// This machine does not have it now.
    Waiting,
    /// Another program has the port there.
    Taken,
}

/// The addresses to listen on, and what became of each.
#[derive(Clone)]
pub struct Doors {
    wanted: watch::Sender<Vec<SocketAddr>>,
    state: Arc<Mutex<BTreeMap<SocketAddr, Door>>>,
}

/// Opens the port at `address`.
///
/// # Errors
/// If it cannot be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether the address is not there, as one of a network that is off, or of IPv6 where that is.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

impl Doors {
    /// Opens the ports that can be opened now.
    ///
    /// # Errors
    /// If one cannot be had for another reason than that its address is not there, with that address.
    pub fn open(mut wanted: Vec<SocketAddr>) -> Result<(Self, Vec<TcpListener>), (SocketAddr, io::Error)> {
        let (mut state, mut opened) = (BTreeMap::new(), Vec::new());
        for address in &mut wanted {
            match listen(*address).and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((own, listener)) => {
                    // Port 0 has become a real one.
                    *address = own;
                    state.insert(own, Door::Open);
                    opened.push(listener);
                }
                Err(error) if is_absent(&error) => {
                    tell_absent(*address);
                    state.insert(*address, Door::Waiting);
                }
                Err(error) => return Err((*address, error)),
            }
        }
        let doors = Self {
            wanted: watch::Sender::new(wanted),
            state: Arc::new(Mutex::new(state)),
        };
        Ok((doors, opened))
    }

    /// Listens on other addresses from now on. Connections that are open stay.
    pub fn follow(&self, wanted: Vec<SocketAddr>) {
        self.wanted.send_if_modified(|now| {
            let changed = *now != wanted;
            *now = wanted;
            changed
        });
    }

    /// The addresses that were asked for.
    pub fn asked(&self) -> Vec<SocketAddr> {
        self.wanted.borrow().clone()
    }

    /// The addresses in that state, in the order they were asked for.
    pub fn those(&self, state: Door) -> Vec<SocketAddr> {
        let states = self.lock();
        let wanted = self.wanted.borrow();
        wanted
            .iter()
            .copied()
            .filter(|address| states.get(address) == Some(&state))
            .collect()
    }

    /// Serves what is `opened`, and what comes to be, with `accept`, until `stopped`. Every port is closed then.
    pub async fn tend<A: Future<Output = ()> + Send + 'static>(
        &self,
        opened: Vec<TcpListener>,
        accept: impl Fn(TcpListener) -> A,
        stopped: impl Future<Output = ()>,
    ) {
        let mut stopped = std::pin::pin!(stopped);
        let mut serving: BTreeMap<SocketAddr, Serving> = BTreeMap::new();
        for listener in opened {
            if let Ok(address) = listener.local_addr() {
                serving.insert(address, Serving::new(address, accept(listener)));
            }
        }
        let mut wanted = self.wanted.subscribe();
        loop {
            let now = wanted.borrow_and_update().clone();
            self.look(&now, &mut serving, &accept);
            // Nothing can come or go where all is open and none of it belongs to a network.
            let settled = now.iter().all(|address| {
                serving.contains_key(address) && (address.ip().is_loopback() || address.ip().is_unspecified())
            });
            let pause = async {
                match settled {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(LOOK).await,
                }
            };
            tokio::select! {
                () = pause => {}
                _ = wanted.changed() => {}
                () = &mut stopped => break,
            }
        }
        for door in serving.values_mut() {
            door.task.abort();
            let _ = (&mut door.task).await;
        }
    }

    /// Closes what went or is not wanted any more, and opens what came.
    fn look<A: Future<Output = ()> + Send + 'static>(
        &self,
        wanted: &[SocketAddr],
        serving: &mut BTreeMap<SocketAddr, Serving>,
        accept: &impl Fn(TcpListener) -> A,
    ) {
        // Where the system does not say, what is open stays open.
        let here = addresses::list().ok();
        serving.retain(|address, serving| {
            let listed = here
                .as_ref()
                .map_or(serving.listed, |here| addresses::is_here(address.ip(), here));
            let gone = serving.listed && !listed;
            serving.listed |= listed;
            wanted.contains(address) && !gone
        });
        let mut states = self.lock();
        states.retain(|address, _| wanted.contains(address));
        for &address in wanted {
            if serving.contains_key(&address) {
                continue;
            }
            let before = states.get(&address).copied();
            let door = match listen(address) {
                Ok(listener) => {
                    serving.insert(address, Serving::new(address, accept(listener)));
                    tracing::info!("listening on {address}");
                    Door::Open
                }
                Err(error) if is_absent(&error) => {
                    if before != Some(Door::Waiting) {
                        tell_absent(address);
                    }
                    Door::Waiting
                }
                Err(error) => {
                    if before != Some(Door::Taken) {
                        tracing::warn!("cannot listen on {address}: {error}; it is tried again");
                    }
                    Door::Taken
                }
            };
            states.insert(address, door);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Door>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell_absent(address: SocketAddr) {
    match address.ip().is_loopback() && address.is_ipv6() {
        true => tracing::info!("this machine has IPv6 switched off, so {address} is left out"),
        false => tracing::warn!(
            "{} is not an address of this machine now; it is waited for",
            address.ip()
        ),
    }
}

/// A port that is served; it closes with this.
struct Serving {
    task: JoinHandle<()>,
    /// Whether its address was ever among the machine's: one that never was is not missed.
    listed: bool,
}

impl Serving {
    fn new(address: SocketAddr, accepting: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            task: tokio::spawn(accepting),
            // Looked at anew: an address may have come since the last look, and be gone at the next.
            listed: addresses::list().is_ok_and(|here| addresses::is_here(address.ip(), &here)),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}
