//! The owner's devices: each has a key of its own, may be limited to seats, and can be shut out for good.
//!
//! A key is 256 bits of chance, shown once and kept as a hash. The settings' `routerKey` is the first device's; what is
//! known of that one, but for its key, stands in `devices.json` with the others.

mod device;
mod table;
mod written;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::file::{self, Mark};
use crate::key::{self, KeyHash};

use device::ids;
pub use device::{Device, DeviceView};
use table::{LONGEST_NAME, Table, check_name, find};

/// The id of the device that holds the settings' `routerKey`.
pub const FIRST: &str = "first";

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
    /// The file cannot be read, and is not written over.
    #[error("{}: {what}; nothing was changed", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is the matter with it.
        what: Damage,
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

/// What is the matter with a file that cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Damage {
    /// It is not of the right form.
    #[error("cannot be understood (line {line})")]
    Form {
        /// Where that shows.
        line: usize,
    },
    /// It was so, and is gone: an editor may be about to put it back.
    #[error("is gone")]
    Gone,
    /// The system does not give it.
    #[error(transparent)]
    Unreadable(Arc<io::Error>),
}

/// What came of a look at the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing new.
    Same,
    /// It was damaged, and its devices are let in again.
    Mended,
    /// It changed, and is damaged all the same: what is the matter, in words.
    Damaged(String),
}

/// All devices, and their file.
pub struct Devices {
    path: PathBuf,
    table: RwLock<Table>,
    /// One change at a time, up to its place on disk.
    changing: Mutex<AsRead>,
    /// Whether a request was counted since the last save.
    stale: AtomicBool,
}

/// The file as it was last read.
struct AsRead {
    mark: Option<Mark>,
    /// What is wrong with it: then it must not be written over.
    damage: Option<Damage>,
}

impl Devices {
    /// The devices in the file at `path`, and the first one with `router_key`. A damaged file leaves the first alone,
    /// and is not touched.
    pub fn load(path: &Path, router_key: &str) -> Self {
        // Marked before it is read: what is written meanwhile is another change.
        let mark = file::mark(path);
        let (written, damage) = match written::read(path) {
            Ok(written) => (written.unwrap_or_default(), None),
            Err(damage) => (Vec::new(), Some(damage)),
        };
        let key = KeyHash::of(router_key.as_bytes());
        let devices = Self {
            path: path.to_owned(),
            table: RwLock::new(Table::new(first_before(written, Some(key)))),
            changing: Mutex::new(AsRead { mark, damage }),
            stale: AtomicBool::new(false),
        };
        if let Some(what) = devices.damage() {
            tracing::error!("{what}");
        }
        devices
    }

    /// Looks whether the owner mended a damaged file, and lets in the devices that it names. It reads from the disk.
    ///
    /// One that is whole is left alone: it is the router that writes it.
    pub fn look(&self) -> Look {
        let mut file = self.changing();
        let Some(before) = &file.damage else {
            return Look::Same;
        };
        let mark = file::mark(&self.path);
        let has_changed = mark != file.mark;
        // What the system does not give, it may give by now.
        if !has_changed && !matches!(before, Damage::Unreadable(_)) {
            return Look::Same;
        }
        file.mark = mark;
        match written::read(&self.path).and_then(|written| written.ok_or(Damage::Gone)) {
            Ok(written) => {
                file.damage = None;
                self.let_in(written);
                Look::Mended
            }
            Err(damage) => {
                let told = self.told(&damage);
                file.damage = Some(damage);
                match has_changed {
                    true => Look::Damaged(told),
                    false => Look::Same,
                }
            }
        }
    }

    /// What is the matter with the file, if it is damaged.
    pub fn damage(&self) -> Option<String> {
        self.changing().damage.as_ref().map(|damage| self.told(damage))
    }

    fn told(&self, damage: &Damage) -> String {
        format!(
            "{}: {damage}; only the settings' key is good until it is mended",
            self.path.display()
        )
    }

    /// Takes what a mended file says. What the first device sent meanwhile counts.
    fn let_in(&self, written: Vec<Device>) {
        let first = self.table().all.iter().find(|device| device.id == FIRST).cloned();
        let all = first_before(written, first.as_ref().and_then(|first| first.key));
        if let (Some(now), Some(meanwhile)) = (all.first(), first) {
            now.add(&meanwhile);
        }
        self.put(all);
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
            Arc::make_mut(first).key = key;
            self.put(all);
        }
    }

    /// Counts a request of `device` at `now`, in seconds since the epoch.
    pub fn count(&self, device: &Device, now: i64) {
        device.count(now);
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
        let view = DeviceView {
            created_at: Some(now),
            seats,
            ..DeviceView::new(format!("device-{}", &key::new_key()[3..11]), name.trim())
        };
        let device = Device::new(view.clone(), Some(KeyHash::of(key.as_bytes())));
        self.change(|all| {
            check_name(all, &device)?;
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
        let device = self.replace(named, |_, device| {
            if device.id == FIRST {
                return Err(DeviceError::First);
            }
            device.key = None;
            Ok(())
        })?;
        device.shut_out();
        Ok(device.view())
    }

    /// Gives a device another name.
    ///
    /// # Errors
    /// If there is no such device, the name cannot be had, or nothing can be saved.
    pub fn rename(&self, named: &str, name: &str) -> Result<DeviceView, DeviceError> {
        let device = self.replace(named, |all, device| {
            device.name = name.trim().to_owned();
            check_name(all, device)
        })?;
        Ok(device.view())
    }

    /// Limits a device to those seats; `None` lifts the limit. It holds from its next request on.
    ///
    /// # Errors
    /// If there is no such device, or nothing can be saved.
    pub fn limit(&self, named: &str, seats: Option<&[String]>) -> Result<DeviceView, DeviceError> {
        let device = self.replace(named, |_, device| {
            device.seats = seats.map(ids);
            Ok(())
        })?;
        Ok(device.view())
    }

    /// Saves the counts, if any changed. Not for the request path.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&self) -> Result<(), DeviceError> {
        let changing = self.changing();
        if changing.damage.is_some() || !self.stale.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let all = self.table().all.clone();
        self.save(&all)
    }

    /// Changes one device, on disk first. `change` sees all of them as they were, and the one to change.
    fn replace(
        &self,
        named: &str,
        change: impl FnOnce(&[Arc<Device>], &mut Device) -> Result<(), DeviceError>,
    ) -> Result<Arc<Device>, DeviceError> {
        self.change(|all| {
            let at = find(all, named)?;
            let mut device = Device::clone(&all[at]);
            change(all, &mut device)?;
            all[at] = Arc::new(device);
            Ok(Arc::clone(&all[at]))
        })
    }

    /// Changes the list, on disk first.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Arc<Device>>) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let changing = self.changing();
        if let Some(what) = &changing.damage {
            return Err(DeviceError::Damaged {
                path: self.path.clone(),
                what: what.clone(),
            });
        }
        let mut all = self.table().all.clone();
        let changed = change(&mut all)?;
        self.save(&all)?;
        self.put(all);
        Ok(changed)
    }

    fn save(&self, all: &[Arc<Device>]) -> Result<(), DeviceError> {
        written::save(&self.path, all).map_err(|source| DeviceError::File {
            path: self.path.clone(),
            source,
        })
    }

    fn put(&self, all: Vec<Arc<Device>>) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Table::new(all);
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, AsRead> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices of a file, the first of them with that key and before the others, though the file may not have it.
fn first_before(mut written: Vec<Device>, key: Option<KeyHash>) -> Vec<Arc<Device>> {
    let first = written.iter().find(|device| device.id == FIRST).map(Device::view);
    let first = first.unwrap_or_else(|| DeviceView::new(FIRST.into(), "first device"));
    written.retain(|device| device.id != FIRST);
    std::iter::once(Device::new(first, key))
        .chain(written)
        .map(Arc::new)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
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
    fn a_damaged_file_lets_its_devices_in_once_it_is_mended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("devices.json");
        let before = devices(&folder);
        let (_, key) = before.add("laptop", None, NOW).unwrap();
        before.rename(FIRST, "desk").unwrap();
        let whole = fs::read(&file).unwrap();
        assert_eq!((before.look(), before.damage()), (Look::Same, None));

        fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        let devices = devices(&folder);
        let told = devices.damage().unwrap();
        assert!(told.contains("devices.json: cannot be understood (line "), "{told}");
        assert_eq!(devices.look(), Look::Same, "it is as it was at the start");
        let first = devices.with_key(b"rk-test-0001").unwrap();
        devices.count(&first, NOW + 60);
        devices.rekey_first("rk-test-0002");

        // An editor may take it away before it puts it back.
        fs::remove_file(&file).unwrap();
        assert!(matches!(devices.look(), Look::Damaged(told) if told.contains("is gone")));
        fs::write(&file, "{\"devices\": {").unwrap();
        assert!(matches!(devices.look(), Look::Damaged(told) if told.contains("understood")));
        assert_eq!(name_of(&devices, &key), None);

        fs::write(&file, &whole).unwrap();
        assert_eq!((devices.look(), devices.damage()), (Look::Mended, None));
        assert_eq!(name_of(&devices, &key).as_deref(), Some("laptop"));
        assert_eq!(name_of(&devices, "rk-test-0002").as_deref(), Some("desk"));
        assert_eq!(name_of(&devices, "rk-test-0001"), None);
        let first = devices.named(FIRST).unwrap();
        assert_eq!((first.requests, first.last_seen_at), (1, Some(NOW + 60)));
        devices.add("phone", None, NOW).unwrap();
        assert_eq!(self::devices(&folder).list().len(), 3, "and it is written again");
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
