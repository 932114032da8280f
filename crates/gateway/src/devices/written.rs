//! `devices.json`: all that is kept of the devices, and no key.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::device::{Device, DeviceView};
use super::{Damage, FIRST};
use crate::file;
use crate::key::KeyHash;

#[derive(Serialize, Deserialize)]
struct Written {
    devices: Vec<Entry>,
}

/// One entry of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(flatten)]
    view: DeviceView,
    /// Gone once the device is revoked: there is no way back. The first one's place is the settings.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key_hash: Option<KeyHash>,
}

/// The devices in the file at `path`; `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Device>>, Damage> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Damage::Unreadable(Arc::new(error))),
    };
    let written: Written = serde_json::from_slice(&text).map_err(|error| Damage::Form { line: error.line() })?;
    let device = |entry: Entry| Device::new(entry.view, entry.key_hash);
    Ok(Some(written.devices.into_iter().map(device).collect()))
}

/// Replaces the file at `path`.
pub(super) fn save(path: &Path, all: &[Arc<Device>]) -> io::Result<()> {
    let entry = |device: &Arc<Device>| Entry {
        view: DeviceView {
            revoked: device.key.is_none(),
            ..device.view()
        },
        key_hash: device.key.filter(|_| device.id != FIRST),
    };
    let written = Written {
        devices: all.iter().map(entry).collect(),
    };
    file::save(path, &serde_json::to_vec_pretty(&written)?)
}
