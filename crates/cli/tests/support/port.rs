//! A port to start on.

use std::net::{Ipv4Addr, TcpListener};

/// One that nobody listens on at this moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}
