//! `install` and `uninstall`: the router runs by itself, or no longer.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gateway::addresses;
use gateway::config::Config;
use gateway::connect;
use gateway::instance::{Instance, InstanceError};
use gateway::paths::Paths;
use gateway::ping;
use gateway::service::launchd::Launchd;
use gateway::service::systemd::Systemd;
use gateway::service::{self, Agent, Done, Plan};

use crate::client;
use crate::show;

/// How the router runs by itself on this system.
pub(crate) enum Service {
    Launchd(Launchd),
    Systemd(Systemd),
}

impl Service {
    pub(crate) fn here(paths: &Paths) -> Self {
        // What the machine has decides, and not what this was built for: so the tests can put one there.
        match Launchd::is_here() {
            true => Self::Launchd(Launchd::new(&paths.home, rustix::process::getuid().as_raw())),
            false => Self::Systemd(Systemd::new(&paths.config_home)),
        }
    }

    fn file(&self) -> PathBuf {
        match self {
            Self::Launchd(launchd) => launchd.file(),
            Self::Systemd(systemd) => systemd.file(),
        }
    }

    /// The service, where it runs a router with other settings: there is one for each user.
    fn of_another(&self, paths: &Paths) -> Option<PathBuf> {
        let file = self.file();
        let text = fs::read(&file).ok()?;
        let own = (!paths.is_usual).then(|| paths.config.clone());
        (service::settings_of(&text) != own).then_some(file)
    }

    /// What the report says of it.
    pub(crate) fn words(&self) -> String {
        let (file, runs) = (self.file(), self.runs());
        match (file.exists(), runs) {
            (true, true) => format!("installed and running ({})", file.display()),
            (true, false) => format!("installed, not running ({})", file.display()),
            (false, _) => "not installed".into(),
        }
    }

    /// Takes it away. Returns whether it was there.
    fn uninstall(&self) -> anyhow::Result<bool> {
        Ok(match self {
            Self::Launchd(launchd) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(launchd.uninstall())?
            }
            Self::Systemd(systemd) => systemd.uninstall()?,
        })
    }

    /// Whether it runs now.
    pub(crate) fn runs(&self) -> bool {
        match self {
            Self::Launchd(launchd) => launchd.is_loaded(),
            Self::Systemd(systemd) => systemd.is_active(),
        }
    }

    /// The earlier Node tool's agent, if it is what would run.
    pub(crate) fn earlier(&self) -> Option<PathBuf> {
        let Self::Launchd(launchd) = self else { return None };
        let file = launchd.file();
        let text = fs::read(&file).ok()?;
        (service::whose(&text) == Agent::Earlier).then_some(file)
    }
}

/// `install`.
pub(crate) fn install(paths: &Paths) -> anyhow::Result<()> {
    let service = Service::here(paths);
    if let Some(file) = service.of_another(paths) {
        bail!(
            "the system runs a router with other settings by itself, and one alone can be run so ({}): `uninstall` that one first",
            file.display()
        );
    }
    if !service.runs() && another_runs(paths)? {
        bail!("a router is running that the system did not start: `claude-proxy-router stop` first");
    }
    // What the router would refuse is told here, and not in a log.
    let config = Config::load(&paths.config)?;
    if service.earlier().is_some() {
        keep_settings(paths)?;
    }
    let plan = Plan {
        program: program()?,
        config: (!paths.is_usual).then(|| paths.config.clone()),
        log: paths.log(),
        output: paths.logs.join("launchd.log"),
    };
    let done = match &service {
        Service::Launchd(launchd) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(launchd.install(&plan, &paths.earlier()))?
        }
        Service::Systemd(systemd) => systemd.install(&plan)?,
    };
    tell(&done, &plan, &service);
    wait_until_it_answers(&config)
}

/// Whether a router with these settings runs.
pub(crate) fn another_runs(paths: &Paths) -> anyhow::Result<bool> {
    match Instance::take(&paths.lock()) {
        Ok(_) => Ok(false),
        Err(InstanceError::Taken { .. }) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// How long a service may take to answer.
const STANDING: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(250);

/// A system says that it started what ended at once: only an answer is one.
fn wait_until_it_answers(config: &Config) -> anyhow::Result<()> {
    let host = addresses::from_here(&config.hosts).context("no address is listened on")?;
    let url = connect::url(host, config.port);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answered = runtime.block_on(async {
        let asking = async {
            loop {
                match ping::ping(&url, &config.router_key, GLANCE * 8).await {
                    // A router without a login answers all the same.
                    Ok(())
                    | Err(ping::PingError {
                        step: ping::Step::Seat, ..
                    }) => return,
                    Err(_) => tokio::time::sleep(GLANCE).await,
                }
            }
        };
        tokio::time::timeout(STANDING, asking).await.is_ok()
    });
    match answered {
        true => show::line(&format!("It answers at {url}.")),
        false => bail!("it does not answer at {url} yet; `claude-proxy-router doctor` says more"),
    }
    Ok(())
}

fn tell(done: &Done, plan: &Plan, service: &Service) {
    if let Some(copy) = &done.earlier {
        show::line(&format!(
            "The earlier tool's LaunchAgent was replaced; a copy of it is {}.",
            copy.display()
        ));
    }
    show::line(&format!(
        "The router runs by itself from now on ({}).",
        done.file.display()
    ));
    show::line(&format!("Its log: {}", plan.log.display()));
    if matches!(service, Service::Systemd(_)) {
        show::line("To have it run while you are not logged in: loginctl enable-linger");
    }
}

/// Copies the settings as the earlier tool left them, once.
pub(crate) fn keep_settings(paths: &Paths) -> anyhow::Result<()> {
    let copy = paths.earlier().join("config.json");
    if copy.exists() || !paths.config.exists() {
        return Ok(());
    }
    let text = fs::read(&paths.config).with_context(|| paths.config.display().to_string())?;
    gateway::file::save(&copy, &text).with_context(|| copy.display().to_string())?;
    show::line(&format!(
        "The earlier tool's settings and key are taken over as they are; a copy of its file is {}.",
        copy.display()
    ));
    Ok(())
}

/// `uninstall`: with `purge` all that the router keeps goes, too.
pub(crate) fn uninstall(paths: &Paths, purge: bool) -> anyhow::Result<()> {
    let service = Service::here(paths);
    match service.of_another(paths) {
        Some(file) => show::line(&format!(
            "It did not run by itself; the router that does has other settings, and stays ({}).",
            file.display()
        )),
        None => {
            show::line(match service.uninstall()? {
                true => "The router no longer runs by itself.",
                false => "It did not run by itself.",
            });
            // They are those of all routers of one user.
            if paths.is_usual {
                remove(&paths.logs)?;
            }
        }
    }
    if !purge {
        show::line(&format!(
            "Settings, keys and what was learnt stay, beside {}; `uninstall --purge` removes them.",
            paths.config.display()
        ));
        return Ok(());
    }
    if another_runs(paths)? {
        client::stop(paths)?;
    }
    for path in kept(paths) {
        remove(&path)?;
    }
    for folder in folders(paths) {
        // Only where nothing else lies in it.
        let _ = fs::remove_dir(folder);
    }
    show::line("Settings, keys and what was learnt are gone. Claude's own logins were not touched.");
    Ok(())
}

/// All that the router keeps, its lock last. What all routers of one user share goes with the usual one.
fn kept(paths: &Paths) -> Vec<PathBuf> {
    let mut all = vec![
        paths.config.clone(),
        paths.devices(),
        paths.joined(),
        // Its folder goes where nothing of anybody else's lies in it.
        paths.earlier().join("config.json"),
        paths.earlier().join(service::kept_agent()),
        paths.socket.clone(),
        paths.door(),
        paths.app_lock(),
    ];
    for end in ["", "-wal", "-shm"] {
        all.extend(paths.store.as_ref().map(|store| {
            let mut name = store.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        }));
    }
    all.extend(paths.is_usual.then(|| paths.state.clone()));
    all.push(paths.lock());
    all
}

fn folders(paths: &Paths) -> Vec<PathBuf> {
    let of = |path: &Path| path.parent().map(Path::to_owned);
    [Some(paths.earlier()), of(&paths.socket), of(&paths.config)]
        .into_iter()
        .flatten()
        .collect()
}

fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(|| path.display().to_string()),
        _ => Ok(()),
    }
}

/// This command, by the path it was found under: what a package manager resolves it to goes with the next upgrade.
fn program() -> anyhow::Result<PathBuf> {
    let running = env::current_exe().context("this command's own path is not known")?;
    let called = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let found = match called.components().count() {
        0 => None,
        1 => env::var_os("PATH").and_then(|all| {
            env::split_paths(&all)
                .map(|folder| folder.join(&called))
                .find(|file| file.is_file())
        }),
        _ => std::path::absolute(&called).ok(),
    };
    let same = |path: &PathBuf| matches!((fs::canonicalize(path), fs::canonicalize(&running)), (Ok(one), Ok(other)) if one == other);
    Ok(found.filter(same).filter(|path| path.is_absolute()).unwrap_or(running))
}
