//! The devices, and what to set on one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde_json::json;

use super::{Running, blocking, reply};
use crate::addresses::{self, Candidate};
use crate::config;
use crate::connect::{self, Form, Link, Mode};
use crate::control::{CommandError, Reply};
use crate::devices::{DeviceError, FIRST};

/// The answer to `addresses`: those worth offering, and the one to tell another device, empty where nothing listens.
///
/// # Errors
/// Never, as these can be written down.
pub fn addresses_answer(candidates: Vec<Candidate>, url: &str) -> Reply {
    Ok(json!({"candidates": reply(candidates)?, "url": url}))
}

impl Running {
    /// Makes a key for another device; the answer has it, once.
    pub(super) async fn add_device(&self, name: String, seats: Option<Vec<String>>) -> Reply {
        let (seats, now) = (self.seats(seats)?, self.gateway.scheduler().now().as_second());
        let devices = Arc::clone(self.gateway.devices());
        let (device, key) = blocking(move || Ok(devices.add(&name, seats, now)?)).await?;
        tracing::info!("the device `{}` was added", device.name);
        let mut added = reply(device)?;
        added["key"] = key.into();
        Ok(added)
    }

    /// The addresses worth offering, and the one to tell another device.
    pub(super) fn addresses(&self) -> Reply {
        let candidates = addresses::here();
        let url = self.url(&candidates);
        addresses_answer(candidates, &url)
    }

    /// The block to copy on that device.
    pub(super) fn connect(&self, device: Option<&str>, key: Option<String>, mode: Mode, form: Form) -> Reply {
        let devices = self.gateway.devices();
        let holder = match (&key, device) {
            (Some(key), _) => devices.with_key(key.as_bytes()).map(|device| device.view()),
            (None, Some(named)) => Some(devices.named(named)?),
            (None, None) => None,
        };
        // In login mode Anthropic sees the key, and the settings' own cannot be revoked alone.
        if mode == Mode::Login && holder.is_some_and(|device| device.id == FIRST) {
            let error = CommandError::new(
                "firstDevice",
                "Anthropic sees the key of a device in login mode, so it is never the settings' own",
            );
            return Err(error.hint("add a device for it"));
        }
        let url = self.url(&addresses::here());
        let link = key.clone().map(|key| {
            Link {
                url: url.clone(),
                key,
                mode,
            }
            .to_string()
        });
        let key = key.unwrap_or_else(|| "<the device's key>".into());
        Ok(json!({
            "url": url,
            "block": connect::block(&url, &key, mode, form),
            "notes": connect::notes(mode),
            "link": link,
        }))
    }

    /// The address to tell another device.
    fn url(&self, candidates: &[Candidate]) -> String {
        let asked = self.doors.asked();
        let ips: Vec<IpAddr> = asked.iter().map(SocketAddr::ip).collect();
        let port = asked.first().map_or(config::PORT, SocketAddr::port);
        connect::url(addresses::best(&ips, candidates), port)
    }
}

impl From<DeviceError> for CommandError {
    fn from(error: DeviceError) -> Self {
        let code = match &error {
            DeviceError::Unknown(_) => "unknownDevice",
            DeviceError::NameTaken(_) => "nameTaken",
            DeviceError::BadName => "badName",
            DeviceError::First => "firstDevice",
            DeviceError::Damaged { .. } | DeviceError::File { .. } => "file",
        };
        Self::new(code, error.to_string())
    }
}
