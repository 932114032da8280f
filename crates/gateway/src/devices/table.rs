//! Which device goes by a key, an id or a name, and which name is free.

use std::collections::HashMap;
use std::sync::Arc;

use super::DeviceError;
use super::device::Device;
use crate::key::KeyHash;

/// The longest name of a device, in characters.
pub(super) const LONGEST_NAME: usize = 60;

/// All devices, and who holds which key.
pub(super) struct Table {
    pub(super) all: Vec<Arc<Device>>,
    pub(super) by_key: HashMap<KeyHash, Arc<Device>>,
}

impl Table {
    pub(super) fn new(all: Vec<Arc<Device>>) -> Self {
        let by_key = all
            .iter()
            .filter_map(|device| Some((device.key?, Arc::clone(device))))
            .collect();
        Self { all, by_key }
    }
}

/// The place of the device that goes by that id or, among those not revoked, by that name.
pub(super) fn find(all: &[Arc<Device>], named: &str) -> Result<usize, DeviceError> {
    let by_name = |device: &Arc<Device>| !device.is_revoked() && same_name(&device.name, named);
    all.iter()
        .position(|device| device.id == named)
        .or_else(|| all.iter().position(by_name))
        .ok_or_else(|| DeviceError::Unknown(named.to_owned()))
}

fn same_name(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.trim().to_lowercase()
}

/// Whether `device`, new or renamed, may have its name.
pub(super) fn check_name(all: &[Arc<Device>], device: &Device) -> Result<(), DeviceError> {
    let name = &device.name;
    let length = name.chars().count();
    if length == 0 || length > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(DeviceError::BadName);
    }
    let taken = |other: &Arc<Device>| {
        other.id != device.id && !other.is_revoked() && (same_name(&other.name, name) || other.id == *name)
    };
    match all.iter().any(taken) {
        true => Err(DeviceError::NameTaken(name.clone())),
        false => Ok(()),
    }
}
