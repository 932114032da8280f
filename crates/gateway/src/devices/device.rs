//! One device: what it may use, what its requests change of it, and what its owner sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use pool::AccountId;
use serde::{Deserialize, Serialize};

use crate::key::KeyHash;

/// A device that has shown its key.
#[derive(Clone, Debug)]
pub struct Device {
    /// What its owner calls it.
    pub name: String,
    /// Its id.
    pub id: String,
    /// The only seats that may serve it.
    pub seats: Option<Vec<AccountId>>,
    created_at: Option<i64>,
    /// None once it has been shut out.
    pub(super) key: Option<KeyHash>,
    seen: Arc<Seen>,
}

/// What changes of a device while it is in use; it stays when the device is renamed.
#[derive(Debug, Default)]
struct Seen {
    /// 0 where it was never seen.
    last_at: AtomicI64,
    requests: AtomicU64,
    revoked: AtomicBool,
}

impl Device {
    /// The device of that view, with that key unless it has been shut out.
    pub(super) fn new(view: DeviceView, key: Option<KeyHash>) -> Self {
        let seen = Seen {
            last_at: AtomicI64::new(view.last_seen_at.unwrap_or_default()),
            requests: AtomicU64::new(view.requests),
            revoked: AtomicBool::new(view.revoked),
        };
        Self {
            name: view.name,
            id: view.id,
            seats: view.seats.as_deref().map(ids),
            created_at: view.created_at,
            key: key.filter(|_| !view.revoked),
            seen: Arc::new(seen),
        }
    }

    /// Counts a request at `now`, in seconds since the epoch.
    pub(super) fn count(&self, now: i64) {
        self.seen.last_at.store(now, Ordering::Relaxed);
        self.seen.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what was counted of it as another one.
    pub(super) fn add(&self, other: &Self) {
        let (ours, others) = (&self.seen, &other.seen);
        ours.last_at
            .fetch_max(others.last_at.load(Ordering::Relaxed), Ordering::Relaxed);
        ours.requests
            .fetch_add(others.requests.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes that it has been shut out, also for requests of its that were let in before.
    pub(super) fn shut_out(&self) {
        self.seen.revoked.store(true, Ordering::Release);
    }

    /// Whether it has been shut out, even since it showed its key.
    pub fn is_revoked(&self) -> bool {
        self.seen.revoked.load(Ordering::Acquire)
    }

    /// As its owner sees it.
    pub fn view(&self) -> DeviceView {
        let last_seen_at = self.seen.last_at.load(Ordering::Relaxed);
        DeviceView {
            id: self.id.clone(),
            name: self.name.clone(),
            created_at: self.created_at,
            last_seen_at: (last_seen_at != 0).then_some(last_seen_at),
            requests: self.seen.requests.load(Ordering::Relaxed),
            seats: self
                .seats
                .as_ref()
                .map(|seats| seats.iter().map(ToString::to_string).collect()),
            revoked: self.is_revoked(),
        }
    }
}

/// A device as its owner sees it, and, but for `revoked`, as the file has it. Times are seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct DeviceView {
    /// Stable, and safe to show.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// When its key was made; `None` for the first device, whose key came with the settings.
    #[serde(default)]
    pub created_at: Option<i64>,
    /// When it last sent a request.
    #[serde(default)]
    pub last_seen_at: Option<i64>,
    /// How many requests it has sent.
    #[serde(default)]
    pub requests: u64,
    /// The ids of the only seats that may serve it; `None` is all of them.
    #[serde(default)]
    pub seats: Option<Vec<String>>,
    /// Whether its key opens nothing any more.
    #[serde(default)]
    pub revoked: bool,
}

impl DeviceView {
    /// One of that name that was never seen, with all seats.
    pub(super) fn new(id: String, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            created_at: None,
            last_seen_at: None,
            requests: 0,
            seats: None,
            revoked: false,
        }
    }
}

pub(super) fn ids(seats: &[String]) -> Vec<AccountId> {
    seats.iter().map(|seat| AccountId::new(seat)).collect()
}
