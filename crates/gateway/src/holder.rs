//! Who has a port that the router wants. It is told by name, and never ended.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use serde::{Deserialize, Serialize};

use crate::config::PORT;
use crate::listen::listen;

/// A program that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// Its name, as the system shows it.
    pub name: String,
    /// Its process.
    pub pid: u32,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (process {})", self.name, self.pid)
    }
}

/// How many ports beyond the wanted one are looked at for a free one.
const NEAR: u16 = 100;

/// The program that listens on `port`, if the system tells: of other users' programs it does not.
pub fn of(port: u16) -> Option<Holder> {
    let process = listeners::get_process_by_port(port, listeners::Protocol::TCP).ok()?;
    Some(Holder {
        name: process.name,
        pid: process.pid,
    })
}

/// The first port after that of `addresses` which is free on all of them. Call it on a runtime.
pub fn free_port(addresses: &[SocketAddr]) -> Option<u16> {
    let wanted = addresses.first()?.port();
    let is_free = |port: &u16| {
        let at = |address: &SocketAddr| listen(SocketAddr::new(address.ip(), *port));
        addresses.iter().map(at).all(|opened| match opened {
            Ok(_) => true,
            // An address that is not there says nothing of a port.
            Err(error) => error.kind() == io::ErrorKind::AddrNotAvailable,
        })
    };
    (wanted.checked_add(1)?..=wanted.saturating_add(NEAR)).find(is_free)
}

/// The usual port if nobody listens on it on loopback, else a free one there.
///
/// # Errors
/// If there is no free port either.
pub fn usual_port() -> io::Result<u16> {
    let usual = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT));
    let listener = usual.or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn on_01_the_holder_of_a_port_is_told_and_another_port_proposed() {
        let held = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = held.local_addr().unwrap();
        let holder = of(address.port()).unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(!holder.name.is_empty());
        let free = free_port(&[address]).unwrap();
        assert!(free > address.port());
        listen((Ipv4Addr::LOCALHOST, free).into()).unwrap();
    }
}
