//! The connections that are open, and which of them are worth keeping when there are too many.
//!
//! Before a request has shown a key, a connection is anybody's. At most so many of those are kept; the one that has
//! waited longest gives way to the newcomer. A connection with a running request is never counted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::devices::Device;

/// How many connections may be open without a running request of a known device.
pub const MOST_WAITING: usize = 512;

/// All open connections.
#[derive(Clone, Default)]
pub struct Connections(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    /// A number that grows with each change of state, so that the smallest has waited longest.
    last_turn: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
    /// The devices whose requests run, with their connections.
    running: BTreeMap<u64, (Arc<Device>, Arc<Notify>)>,
}

/// One open connection, from its acceptance to its end.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

struct Inner {
    all: Connections,
    close: Arc<Notify>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// Requests of known devices that run on it.
    requests: usize,
    /// Its place among those that wait.
    turn: u64,
}

/// A known device's request runs on the connection as long as this lives.
pub struct Busy {
    connection: Connection,
    turn: u64,
}

impl Connections {
    /// Notes a new connection, and closes the one that waits longest if there are too many.
    pub fn open(&self) -> Connection {
        let mut open = self.lock();
        if open.waiting.len() >= MOST_WAITING
            && let Some((_, close)) = open.waiting.pop_first()
        {
            close.notify_one();
        }
        let close = Arc::default();
        let turn = open.wait(&close);
        let running = Mutex::new(Running { requests: 0, turn });
        Connection(Arc::new(Inner {
            all: self.clone(),
            close,
            running,
        }))
    }

    /// Closes every connection on which a request of a device with that id runs.
    pub fn cut(&self, id: &str) {
        for (device, close) in self.lock().running.values() {
            if device.id == id {
                close.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn turn(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    fn wait(&mut self, close: &Arc<Notify>) -> u64 {
        let turn = self.turn();
        self.waiting.insert(turn, Arc::clone(close));
        turn
    }
}

impl Connection {
    /// Ends when the connection must give way.
    pub async fn closed(&self) {
        self.0.close.notified().await;
    }

    /// Notes that a request of that device runs on it.
    pub fn busy(&self, device: &Arc<Device>) -> Busy {
        let mut open = self.0.all.lock();
        let mut running = self.running();
        running.requests += 1;
        open.waiting.remove(&running.turn);
        let turn = open.turn();
        open.running
            .insert(turn, (Arc::clone(device), Arc::clone(&self.0.close)));
        drop((running, open));
        Busy {
            connection: self.clone(),
            turn,
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let inner = &self.connection.0;
        let mut open = inner.all.lock();
        let mut running = self.connection.running();
        open.running.remove(&self.turn);
        running.requests -= 1;
        if running.requests == 0 {
            running.turn = open.wait(&inner.close);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let turn = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).turn;
        self.all.lock().waiting.remove(&turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::Devices;
    use futures_util::FutureExt as _;

    fn device(name: &str) -> Arc<Device> {
        let folder = tempfile::tempdir().unwrap();
        let devices = Devices::load(&folder.path().join("devices.json"), "rk-test-0001");
        let (_, key) = devices.add(name, None, 0).unwrap();
        devices.with_key(key.as_bytes()).unwrap()
    }

    #[test]
    fn a_device_that_is_shut_out_loses_the_connections_its_requests_run_on_and_no_others() {
        let all = Connections::default();
        let (laptop, phone) = (device("laptop"), device("phone"));
        let (one, two, idle) = (all.open(), all.open(), all.open());
        let (_running, _other) = (one.busy(&laptop), two.busy(&phone));
        drop(idle.busy(&laptop));
        all.cut(&laptop.id);
        assert!(one.closed().now_or_never().is_some());
        assert!(two.closed().now_or_never().is_none());
        assert!(
            idle.closed().now_or_never().is_none(),
            "its next request will be refused"
        );
    }

    #[test]
    fn sc_08_the_longest_waiting_gives_way_and_a_busy_one_never_does() {
        let all = Connections::default();
        let busy = all.open();
        let running = busy.busy(&device("laptop"));
        let first = all.open();
        let others: Vec<_> = (1..MOST_WAITING).map(|_| all.open()).collect();
        assert!(first.closed().now_or_never().is_none());
        let newcomer = all.open();
        assert!(first.closed().now_or_never().is_some());
        assert!(others[0].closed().now_or_never().is_none());
        drop(running);
        let _next = all.open();
        assert!(
            others[0].closed().now_or_never().is_some(),
            "a request that ended counts as waiting from then on"
        );
        assert!(busy.closed().now_or_never().is_none());
        assert!(newcomer.closed().now_or_never().is_none());
    }

    #[test]
    fn a_connection_that_ends_makes_room() {
        let all = Connections::default();
        let kept: Vec<_> = (0..MOST_WAITING).map(|_| all.open()).collect();
        for _ in 0..10 {
            drop(all.open());
        }
        assert!(
            kept[0].closed().now_or_never().is_some(),
            "it gave way to the first newcomer"
        );
        assert!(
            kept[1].closed().now_or_never().is_none(),
            "the others came when one had left"
        );
    }
}
