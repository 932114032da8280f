//! `doctor`: gathers what the report is made of.

use std::env::consts;
use std::fs;
use std::path::PathBuf;

use gateway::config::{self, Config};
use gateway::delegate::Claude;
use gateway::devices::{DeviceView, Devices};
use gateway::doctor::{self, Found};
use gateway::holder;
use gateway::log::Rotating;
use gateway::paths::Paths;
use gateway::ports::{Clock as _, SystemClock};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::client;
use crate::service::Service;
use crate::show;

/// How many of a log's troubles are told.
const TROUBLES: usize = 20;

pub(crate) fn run(paths: &Paths) {
    let (config, config_trouble) = match Config::read(&paths.config) {
        Ok(Some(config)) => (Some(config), None),
        Ok(None) => (None, Some("there is none yet".to_owned())),
        Err(error) => (None, Some(error.to_string())),
    };
    let snapshot = client::status(paths).ok();
    let port = config.as_ref().map(|config| config.port);
    let port_holder = port
        .filter(|_| snapshot.is_none())
        .and_then(holder::of)
        .map(|holder| format!("{} (process {})", holder.name, holder.pid));
    let devices = config
        .as_ref()
        .map(|config| Devices::load(&paths.devices(), &config.router_key).list());
    let devices: Vec<DeviceView> = devices.unwrap_or_default();
    let claude_path = config.as_ref().and_then(|config| config.claude_path.clone());
    let found = Found {
        system: format!("{} {}", consts::OS, consts::ARCH),
        home: paths.home.clone(),
        config: paths.config.clone(),
        config_trouble,
        changed: changed(paths),
        service: Service::here(paths).words(),
        port_holder,
        claude: Claude::find(claude_path.as_deref(), &paths.home).map(|claude| claude.path().to_owned()),
        claude_path,
        locks: config.map(|config| locks(&config, paths)).unwrap_or_default(),
        settings: config::defaults().keys().cloned().collect(),
        logs: [paths.app_log(), paths.log()].into_iter().filter_map(read).collect(),
        devices: (devices.len(), devices.iter().filter(|device| device.revoked).count()),
        snapshot,
    };
    show::line(doctor::report(&found).trim_end());
}

/// The log at that path and what was put aside of it, with their last troubles; `None` if nothing was ever logged there.
fn read(log: PathBuf) -> Option<(PathBuf, Vec<String>)> {
    let texts = [Rotating::older(&log), log.clone()].map(|path| fs::read(path).ok());
    texts.iter().any(Option::is_some).then(|| {
        let text = texts.into_iter().flatten().collect::<Vec<_>>().concat();
        let troubles = doctor::troubles(&String::from_utf8_lossy(&text), TROUBLES);
        (log, troubles)
    })
}

/// The settings that are not at their defaults, by name: some values are names of people.
fn changed(paths: &Paths) -> Vec<String> {
    let written = fs::read(&paths.config)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    let Some(Value::Object(written)) = written else {
        return Vec::new();
    };
    let defaults = config::defaults();
    let differs = |(key, value): &(&String, &Value)| defaults.get(*key).is_some_and(|usual| usual != *value);
    written.iter().filter(differs).map(|(key, _)| key.clone()).collect()
}

/// The lock directories of Claude Code's that are there, with their age.
fn locks(config: &Config, paths: &Paths) -> Vec<(PathBuf, SignedDuration)> {
    let now = SystemClock.now();
    let mut found = Vec::new();
    for profile in gateway::profile::discover(config, paths) {
        let mut beside = profile.dir.as_os_str().to_owned();
        beside.push(".lock");
        let inside = [".oauth_refresh.lock", ".storage-write.lock"].map(|name| profile.dir.join(name));
        for path in inside.into_iter().chain([PathBuf::from(beside)]) {
            let touched = fs::metadata(&path).and_then(|about| about.modified()).ok();
            let touched = touched.and_then(|at| Timestamp::try_from(at).ok());
            found.extend(touched.map(|at| (path, now.duration_since(at))));
        }
    }
    found
}
