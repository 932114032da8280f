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
    /// The system refuses it for that reason.
    Refused(ErrorKind),
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

/// What keeps an address closed whose port could not be opened.
fn closed_by(error: &io::Error) -> Door {
    match error.kind() {
        _ if is_absent(error) => Door::Waiting,
        ErrorKind::AddrInUse => Door::Taken,
        kind => Door::Refused(kind),
    }
}

/// Whether who listens on `open` keeps itself from listening on `wanted`, too.
fn is_in_the_way(open: SocketAddr, wanted: SocketAddr) -> bool {
    let meet = open.ip() == wanted.ip() || open.ip().is_unspecified() || wanted.ip().is_unspecified();
    open.port() == wanted.port() && meet
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

    /// Tries whether those addresses can be listened on, and returns the ones that this machine does not have now. What
    /// the open ports are in the way of is left to the change itself. Call it on a runtime.
    ///
    /// # Errors
    /// If one cannot be had for another reason than that its address is not there, with that address.
    pub fn try_out(&self, wanted: &[SocketAddr]) -> Result<Vec<SocketAddr>, (SocketAddr, io::Error)> {
        let open = self.those(Door::Open);
        let mut absent = Vec::new();
        for &address in wanted {
            if open.iter().any(|&open| is_in_the_way(open, address)) {
                continue;
            }
            match listen(address) {
                Ok(_) => {}
                Err(error) if is_absent(&error) => absent.push(address),
                Err(error) => return Err((address, error)),
            }
        }
        Ok(absent)
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

    /// What became of each address, in the order they were asked for.
    pub fn states(&self) -> Vec<(SocketAddr, Door)> {
        let states = self.lock();
        let wanted = self.wanted.borrow();
        wanted
            .iter()
            .filter_map(|address| Some((*address, *states.get(address)?)))
            .collect()
    }

    /// The addresses in that state, in the order they were asked for.
    pub fn those(&self, state: Door) -> Vec<SocketAddr> {
        let states = self.states().into_iter();
        states
            .filter(|(_, door)| *door == state)
            .map(|(address, _)| address)
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
            close(&now, &mut serving).await;
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
        close(&[], &mut serving).await;
    }

    /// Opens what is not open.
    fn look<A: Future<Output = ()> + Send + 'static>(
        &self,
        wanted: &[SocketAddr],
        serving: &mut BTreeMap<SocketAddr, Serving>,
        accept: &impl Fn(TcpListener) -> A,
    ) {
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
                Err(error) => {
                    let door = closed_by(&error);
                    match door {
                        _ if before == Some(door) => {}
                        Door::Waiting => tell_absent(address),
                        _ => tracing::warn!("cannot listen on {address}: {error}; it is tried again"),
                    }
                    door
                }
            };
            states.insert(address, door);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Door>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what went or is not wanted any more. A port is free for another address once its task has ended, so that is
/// waited for.
async fn close(wanted: &[SocketAddr], serving: &mut BTreeMap<SocketAddr, Serving>) {
    // Where the system does not say, what is open stays open.
    let here = addresses::list().ok();
    let mut closed = Vec::new();
    for (address, serving) in serving.iter_mut() {
        let listed = here
            .as_ref()
            .map_or(serving.listed, |here| addresses::is_here(address.ip(), here));
        let gone = serving.listed && !listed;
        serving.listed |= listed;
        if gone || !wanted.contains(address) {
            serving.task.abort();
            closed.push(*address);
        }
    }
    for address in closed {
        if let Some(mut door) = serving.remove(&address) {
            let _ = (&mut door.task).await;
        }
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

    #[test]
    fn what_keeps_a_port_closed_is_told_apart() {
        for (kind, want) in [
            (ErrorKind::AddrNotAvailable, Door::Waiting),
            (ErrorKind::AddrInUse, Door::Taken),
            (ErrorKind::PermissionDenied, Door::Refused(ErrorKind::PermissionDenied)),
        ] {
            assert_eq!(closed_by(&kind.into()), want);
        }
    }

    #[tokio::test]
    async fn addresses_are_tried_out_beside_those_that_are_open() {
        let (doors, opened) = Doors::open(vec![(LOCAL, 0).into()]).unwrap();
        let own = opened[0].local_addr().unwrap();
        let other = listen((LOCAL, 0).into()).unwrap();
        let taken = other.local_addr().unwrap();
        let (refused, why) = doors.try_out(&[own, taken]).unwrap_err();
        assert_eq!((refused, why.kind()), (taken, ErrorKind::AddrInUse));
        drop(other);
        // No machine has an address of those kept for documentation.
        let absent = SocketAddr::new([192, 0, 2, 1].into(), taken.port());
        let wanted = [own, SocketAddr::new([0, 0, 0, 0].into(), own.port()), taken, absent];
        assert_eq!(doors.try_out(&wanted).unwrap(), [absent]);
        assert_eq!(doors.asked(), [own], "nothing was changed");
    }

    #[tokio::test]
    async fn a_port_is_free_for_another_address_as_soon_as_its_own_is_left() {
        let (doors, opened) = Doors::open(vec![(LOCAL, 0).into()]).unwrap();
        let port = opened[0].local_addr().unwrap().port();
        let everywhere = SocketAddr::new([0, 0, 0, 0].into(), port);
        let accept = |listener| async move {
            let _kept: TcpListener = listener;
            std::future::pending::<()>().await;
        };
        let follow = async {
            doors.follow(vec![everywhere]);
            while doors.those(Door::Open) != [everywhere] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let followed = tokio::time::timeout(LOOK / 2, follow);
        tokio::select! {
            () = doors.tend(opened, accept, std::future::pending()) => unreachable!("it is not stopped"),
            followed = followed => followed.expect("it is open before the next look"),
        }
    }
}
