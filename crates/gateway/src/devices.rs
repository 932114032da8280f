//! The owner's devices: each has a key of its own, may be limited to seats, and can be shut out for good.
//!
//! A key is 256 bits of chance, shown once and kept as a hash. The settings' `routerKey` is the first device's; what is
//! known of that one, but for its key, stands in `devices.json` with the others.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use pool::AccountId;
use serde::{Deserialize, Serialize};

use crate::file;
use crate::key::{self, KeyHash};

/// The id of the device that holds the settings' `routerKey`.
pub const FIRST: &str = "first";
/// The longest name of a device, in characters.
const LONGEST_NAME: usize = 60;

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

/// One entry of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(flatten)]
    view: DeviceView,
    /// Gone once the device is revoked: there is no way back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key_hash: Option<KeyHash>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    devices: Vec<Entry>,
}

/// Why a device cannot be added, changed or shut out.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No device goes by that.
    #[error("no device is called `{0}`")]
    Unknown(String),
    /// Another device has that name.
    #[error("there is a device called `{0}` already")]
    NameTaken(String),
    /// The name is empty, long, or not one line of text.
    #[error("a device's name is 1 to {LONGEST_NAME} printable characters")]
    BadName,
    /// The first device's key is the settings'.
    #[error("the first device's key is `routerKey` in the settings: change it there")]
    First,
    /// The file could not be read when the router started, and is not written over.
    #[error("{}: {what}; nothing was changed", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is the matter with it.
        what: String,
    },
    /// The file could not be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A device that has shown its key.
#[derive(Debug)]
pub struct Device {
    /// What its owner calls it.
    pub name: String,
    /// Its id.
    pub id: String,
    /// The only seats that may serve it.
    pub seats: Option<Vec<AccountId>>,
    created_at: Option<i64>,
    key: Option<KeyHash>,
    seen: Arc<Seen>,
}

/// What requests change of a device; it stays when the device is renamed.
#[derive(Debug, Default)]
struct Seen {
    /// 0 where it was never seen.
    last_at: AtomicI64,
    requests: AtomicU64,
    revoked: AtomicBool,
}

impl Device {
    fn of(entry: Entry) -> Self {
        let view = entry.view;
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
            key: entry.key_hash.filter(|_| !view.revoked),
            seen: Arc::new(seen),
        }
    }

    /// It again, with something changed.
    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut copy = Self {
            name: self.name.clone(),
            id: self.id.clone(),
            seats: self.seats.clone(),
            created_at: self.created_at,
            key: self.key,
            seen: Arc::clone(&self.seen),
        };
        change(&mut copy);
        copy
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

/// All devices, and their file.
pub struct Devices {
    path: PathBuf,
    table: RwLock<Table>,
    /// One change at a time, up to its place on disk. Holds what is wrong with a file that must not be written over.
    changing: Mutex<Option<String>>,
    /// Whether a request was counted since the last save.
    stale: AtomicBool,
}

#[derive(Default)]
struct Table {
    all: Vec<Arc<Device>>,
    by_key: HashMap<KeyHash, Arc<Device>>,
}

impl Table {
    fn new(all: Vec<Arc<Device>>) -> Self {
        let by_key = all
            .iter()
            .filter_map(|device| Some((device.key?, Arc::clone(device))))
            .collect();
        Self { all, by_key }
    }
}

impl Devices {
    /// The devices in the file at `path`, and the first one with `router_key`. A damaged file leaves the first alone,
    /// and is not touched.
    pub fn load(path: &Path, router_key: &str) -> Self {
        let (entries, damage) = match fs::read(path) {
            Ok(text) => match serde_json::from_slice::<Written>(&text) {
                Ok(written) => (written.devices, None),
                Err(error) => (
                    Vec::new(),
                    Some(format!("cannot be understood (line {})", error.line())),
                ),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        if let Some(what) = &damage {
            tracing::error!(
                "{}: {what}; only the settings' key is good until it is mended",
                path.display()
            );
        }
        let (first, others): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.view.id == FIRST);
        let first = first.into_iter().next().map_or_else(
            || DeviceView {
                id: FIRST.into(),
                name: "first device".into(),
                created_at: None,
                last_seen_at: None,
                requests: 0,
                seats: None,
                revoked: false,
            },
            |entry| entry.view,
        );
        let first = Entry {
            view: first,
            key_hash: Some(KeyHash::of(router_key.as_bytes())),
        };
        let all = std::iter::once(first)
            .chain(others)
            .map(|entry| Arc::new(Device::of(entry)));
        Self {
            path: path.to_owned(),
            table: RwLock::new(Table::new(all.collect())),
            changing: Mutex::new(damage),
            stale: AtomicBool::new(false),
        }
    }

    /// The device with exactly that key.
    pub fn with_key(&self, key: &[u8]) -> Option<Arc<Device>> {
        self.table().by_key.get(&KeyHash::of(key)).cloned()
    }

    /// Gives the first device the key that the settings hold by now.
    pub fn rekey_first(&self, router_key: &str) {
        let key = Some(KeyHash::of(router_key.as_bytes()));
        let _changing = self.changing();
        let mut all = self.table().all.clone();
        if let Some(first) = all.first_mut().filter(|first| first.key != key) {
            *first = Arc::new(first.with(|device| device.key = key));
            *self.table.write().unwrap_or_else(PoisonError::into_inner) = Table::new(all);
        }
    }

    /// Counts a request of `device` at `now`, in seconds since the epoch.
    pub fn count(&self, device: &Device, now: i64) {
        device.seen.last_at.store(now, Ordering::Relaxed);
        device.seen.requests.fetch_add(1, Ordering::Relaxed);
        // Looked at first: a store would take the line from every other worker.
        if !self.stale.load(Ordering::Relaxed) {
            self.stale.store(true, Ordering::Relaxed);
        }
    }

    /// All of them, the first one first, then in the order they were added.
    pub fn list(&self) -> Vec<DeviceView> {
        self.table().all.iter().map(|device| device.view()).collect()
    }

    /// The device that goes by that id or name.
    ///
    /// # Errors
    /// If none does.
    pub fn named(&self, named: &str) -> Result<DeviceView, DeviceError> {
        let all = &self.table().all;
        find(all, named).map(|at| all[at].view())
    }

    /// Adds a device, and returns it with its key, which is not to be had again.
    ///
    /// # Errors
    /// If the name cannot be had, or nothing can be saved.
    pub fn add(&self, name: &str, seats: Option<Vec<String>>, now: i64) -> Result<(DeviceView, String), DeviceError> {
        let key = key::new_key();
        let device = Device::of(Entry {
            view: DeviceView {
                id: format!("device-{}", &key::new_key()[3..11]),
                name: name.trim().to_owned(),
                created_at: Some(now),
                last_seen_at: None,
                requests: 0,
                seats,
                revoked: false,
            },
            key_hash: Some(KeyHash::of(key.as_bytes())),
        });
        let view = device.view();
        self.change(|all| {
            check_name(all, &view.name, None)?;
            all.push(Arc::new(device));
            Ok(())
        })?;
        Ok((view, key))
    }

    /// Shuts a device out: its key opens nothing from now on. Its running answers are for the caller to cut.
    ///
    /// # Errors
    /// If there is no such device, it is the first, or nothing can be saved.
    pub fn revoke(&self, named: &str) -> Result<DeviceView, DeviceError> {
        self.replace(named, |device| {
            if device.id == FIRST {
                return Err(DeviceError::First);
            }
            device.key = None;
            Ok(())
        })
        .map(|device| {
            device.seen.revoked.store(true, Ordering::Release);
            device.view()
        })
    }

    /// Gives a device another name.
    ///
    /// # Errors
    /// If there is no such device, the name cannot be had, or nothing can be saved.
    pub fn rename(&self, named: &str, name: &str) -> Result<DeviceView, DeviceError> {
        let name = name.trim().to_owned();
        let mut renamed = None;
        self.change(|all| {
            let at = find(all, named)?;
            check_name(all, &name, Some(at))?;
            all[at] = Arc::new(all[at].with(|device| device.name = name));
            renamed = Some(all[at].view());
            Ok(())
        })?;
        renamed.ok_or_else(|| DeviceError::Unknown(named.to_owned()))
    }

    /// Limits a device to those seats; `None` lifts the limit. It holds from its next request on.
    ///
    /// # Errors
    /// If there is no such device, or nothing can be saved.
    pub fn limit(&self, named: &str, seats: Option<&[String]>) -> Result<DeviceView, DeviceError> {
        self.replace(named, |device| {
            device.seats = seats.map(ids);
            Ok(())
        })
        .map(|device| device.view())
    }

    /// Saves the counts, if any changed. Not for the request path.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&self) -> Result<(), DeviceError> {
        let changing = self.changing();
        if changing.is_some() || !self.stale.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let all = self.table().all.clone();
        self.save(&all)
    }

    fn replace(
        &self,
        named: &str,
        change: impl FnOnce(&mut Device) -> Result<(), DeviceError>,
    ) -> Result<Arc<Device>, DeviceError> {
        let mut changed = None;
        self.change(|all| {
            let at = find(all, named)?;
            let mut outcome = Ok(());
            let device = Arc::new(all[at].with(|device| outcome = change(device)));
            outcome?;
            all[at] = Arc::clone(&device);
            changed = Some(device);
            Ok(())
        })?;
        changed.ok_or_else(|| DeviceError::Unknown(named.to_owned()))
    }

    /// Changes the list, on disk first.
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Device>>) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let changing = self.changing();
        if let Some(what) = &*changing {
            return Err(DeviceError::Damaged {
                path: self.path.clone(),
                what: what.clone(),
            });
        }
        let mut all = self.table().all.clone();
        change(&mut all)?;
        self.save(&all)?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Table::new(all);
        Ok(())
    }

    fn save(&self, all: &[Arc<Device>]) -> Result<(), DeviceError> {
        let entry = |device: &Arc<Device>| {
            let mut view = device.view();
            view.revoked = device.key.is_none();
            // The first key's place is the settings.
            Entry {
                view,
                key_hash: device.key.filter(|_| device.id != FIRST),
            }
        };
        let written = Written {
            devices: all.iter().map(entry).collect(),
        };
        let failed = |source| DeviceError::File {
            path: self.path.clone(),
            source,
        };
        let text = serde_json::to_vec_pretty(&written).map_err(|error| failed(error.into()))?;
        file::save(&self.path, &text).map_err(failed)
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, Option<String>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ids(seats: &[String]) -> Vec<AccountId> {
    seats.iter().map(|seat| AccountId::new(seat)).collect()
}

/// The place of the device that goes by that id or, among those not revoked, by that name.
fn find(all: &[Arc<Device>], named: &str) -> Result<usize, DeviceError> {
    let by_name = |device: &Arc<Device>| !device.is_revoked() && same_name(&device.name, named);
    all.iter()
        .position(|device| device.id == named)
        .or_else(|| all.iter().position(by_name))
        .ok_or_else(|| DeviceError::Unknown(named.to_owned()))
}

fn same_name(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.trim().to_lowercase()
}

/// Whether the device at `own`, or a new one, may have that name.
fn check_name(all: &[Arc<Device>], name: &str, own: Option<usize>) -> Result<(), DeviceError> {
    let length = name.chars().count();
    if length == 0 || length > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(DeviceError::BadName);
    }
    let taken = |(at, device): (usize, &Arc<Device>)| {
        Some(at) != own && !device.is_revoked() && (same_name(&device.name, name) || device.id == name)
    };
    match all.iter().enumerate().any(taken) {
        true => Err(DeviceError::NameTaken(name.to_owned())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const NOW: i64 = 1_790_000_000;

    fn devices(folder: &tempfile::TempDir) -> Devices {
        Devices::load(&folder.path().join("devices.json"), "rk-test-0001")
    }

    fn name_of(devices: &Devices, key: &str) -> Option<String> {
        devices.with_key(key.as_bytes()).map(|device| device.name.clone())
    }

    #[test]
    fn a_key_is_shown_once_kept_as_a_hash_and_good_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let before = devices(&folder);
        let (laptop, key) = before.add("laptop", None, NOW).unwrap();
        assert_eq!(key.len(), 3 + 64, "256 bits");
        let file = folder.path().join("devices.json");
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains(&key[3..]) && !text.contains("rk-test"), "{text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        let device = before.with_key(key.as_bytes()).unwrap();
        before.count(&device, NOW + 60);
        before.flush().unwrap();
        let after = devices(&folder);
        assert_eq!(name_of(&after, &key).as_deref(), Some("laptop"));
        assert_eq!(name_of(&after, "rk-test-0001").as_deref(), Some("first device"));
        let view = after.list().into_iter().find(|device| device.id == laptop.id).unwrap();
        assert_eq!((view.requests, view.last_seen_at), (1, Some(NOW + 60)));
        assert!(text.contains(&String::from(KeyHash::of(key.as_bytes()))));
    }

    #[test]
    fn sc_05_only_the_whole_key_opens() {
        let folder = tempfile::tempdir().unwrap();
        let devices = devices(&folder);
        let (_, key) = devices.add("laptop", None, NOW).unwrap();
        for wrong in [
            &key[..key.len() - 1],
            &key.to_uppercase(),
            &format!("{key} "),
            "",
            &key[3..],
        ] {
            assert_eq!(name_of(&devices, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_revoked_device_stays_in_the_list_and_its_name_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let devices = devices(&folder);
        let (view, key) = devices.add("laptop", None, NOW).unwrap();
        let running = devices.with_key(key.as_bytes()).unwrap();
        assert!(devices.revoke("LAPTOP").unwrap().revoked);
        assert!(running.is_revoked(), "who was let in before learns of it");
        assert_eq!(name_of(&devices, &key), None);
        let (again, _) = devices.add("laptop", None, NOW).unwrap();
        assert_ne!(again.id, view.id);
        let reloaded = Devices::load(&folder.path().join("devices.json"), "rk-test-0001");
        assert_eq!(name_of(&reloaded, &key), None);
        let revoked: Vec<bool> = reloaded.list().iter().map(|device| device.revoked).collect();
        assert_eq!(revoked, [false, true, false]);
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let devices = devices(&folder);
        devices.add("laptop", None, NOW).unwrap();
        let before = fs::read(folder.path().join("devices.json")).unwrap();
        for name in ["", "  ", "Laptop", "two\nlines", &"x".repeat(61), FIRST] {
            assert!(devices.add(name, None, NOW).is_err(), "{name}");
        }
        assert!(matches!(devices.revoke(FIRST), Err(DeviceError::First)));
        assert!(matches!(devices.revoke("phone"), Err(DeviceError::Unknown(_))));
        assert!(devices.rename("laptop", "first device").is_err());
        assert_eq!(fs::read(folder.path().join("devices.json")).unwrap(), before);
        assert_eq!(devices.rename("laptop", "Laptop").unwrap().name, "Laptop");
        let limited = devices.limit("laptop", Some(&["a/o".into()])).unwrap();
        assert_eq!(limited.seats, Some(vec!["a/o".to_owned()]));
        assert_eq!(devices.limit(FIRST, None).unwrap().seats, None);
    }

    #[test]
    fn cf_02_a_damaged_file_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("devices.json");
        fs::write(&file, "{\"devices\": [").unwrap();
        let devices = devices(&folder);
        assert_eq!(name_of(&devices, "rk-test-0001").as_deref(), Some("first device"));
        assert!(matches!(
            devices.add("laptop", None, NOW),
            Err(DeviceError::Damaged { .. })
        ));
        let first = devices.with_key(b"rk-test-0001").unwrap();
        devices.count(&first, NOW);
        devices.flush().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"devices\": [");
    }

    #[test]
    fn a_change_that_cannot_be_saved_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let devices = Devices::load(&folder.path().join("file/devices.json"), "rk-test-0001");
        fs::write(folder.path().join("file"), "in the folder's place").unwrap();
        assert!(matches!(
            devices.add("laptop", None, NOW),
            Err(DeviceError::File { .. } | DeviceError::Damaged { .. })
        ));
        assert_eq!(devices.list().len(), 1);
    }
}
