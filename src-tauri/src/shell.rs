//! What all parts of the app share: the router, the owner's preferences, and what is going on.

use std::fs;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use gateway::config::Config;
use gateway::paths::Paths;
use gateway::ports::{Clock as _, SystemClock, UpstreamProxy};
use gateway::snapshot::Snapshot;
use serde_json::Value;
use tauri::{AppHandle, Manager as _, State};

use crate::crash::Traces;
use crate::facts::{Crash, Facts, Update};
use crate::platform;
use crate::preferences::Preferences;
use crate::router::Router;
use crate::words::{Language, Words};

/// What all parts of the app share.
pub struct Shell {
    /// The router.
    pub router: Arc<Router>,
    /// Where things lie.
    pub paths: Paths,
    /// What a crash leaves.
    pub traces: Traces,
    /// Wakes the watch.
    pub wake: Sender<()>,
    inner: Mutex<Inner>,
}

struct Inner {
    settings: Settings,
    crash: Option<Crash>,
    icon_hidden: bool,
    update: Option<Update>,
    quitting: bool,
    ending: bool,
}

/// The part of the settings that is the app's, as last read.
#[derive(Clone)]
struct Settings {
    written: Option<SystemTime>,
    preferences: Preferences,
    words: Arc<Words>,
}

impl Shell {
    /// Everything before anything has happened.
    pub fn new(router: Arc<Router>, paths: Paths, traces: Traces, crash: Option<Crash>, wake: Sender<()>) -> Self {
        let settings = Settings::read(&paths);
        Self {
            router,
            paths,
            traces,
            wake,
            inner: Mutex::new(Inner {
                settings,
                crash,
                icon_hidden: false,
                update: None,
                quitting: false,
                ending: false,
            }),
        }
    }

    /// The shell of a running app.
    pub fn of(app: &AppHandle) -> State<'_, Self> {
        app.state()
    }

    /// Has the watch look now.
    pub fn hurry(&self) {
        // It fails only once the watch has ended with the app.
        let _ = self.wake.send(());
    }

    /// Reads the settings again if their file has changed.
    pub fn read_settings(&self) {
        let known = self.inner().settings.written;
        if written(&self.paths) != known {
            let settings = Settings::read(&self.paths);
            self.inner().settings = settings;
        }
    }

    /// What the owner wants of the app.
    pub fn preferences(&self) -> Preferences {
        self.inner().settings.preferences.clone()
    }

    /// The proxy that the settings name, for a call of the app's own.
    pub fn upstream_proxy(&self) -> UpstreamProxy {
        let proxy = UpstreamProxy::default();
        // Settings that cannot be read are told of elsewhere.
        let text = fs::read(&self.paths.config).unwrap_or_default();
        proxy.set(Config::parse(&text).ok().flatten().and_then(|config| config.proxy));
        proxy
    }

    /// The words of the owner's language.
    pub fn words(&self) -> Arc<Words> {
        Arc::clone(&self.inner().settings.words)
    }

    /// Whether the app ends once no answer is under way.
    pub fn is_quitting(&self) -> bool {
        self.inner().quitting
    }

    /// Begins to end. Returns whether that had begun before.
    pub fn begin_quitting(&self) -> bool {
        std::mem::replace(&mut self.inner().quitting, true)
    }

    /// Ends, whatever is under way. Returns whether that had begun before.
    pub fn begin_ending(&self) -> bool {
        let mut inner = self.inner();
        inner.quitting = true;
        std::mem::replace(&mut inner.ending, true)
    }

    /// The crash was told of.
    pub fn dismiss_crash(&self) {
        self.traces.dismiss();
        self.inner().crash = None;
    }

    /// Whether the system shows no icon of ours.
    pub fn is_icon_hidden(&self) -> bool {
        self.inner().icon_hidden
    }

    /// Whether the system hides the icon.
    pub fn set_icon_hidden(&self, hidden: bool) {
        self.inner().icon_hidden = hidden;
    }

    /// The newer release that was found.
    pub fn set_update(&self, update: Option<Update>) {
        self.inner().update = update;
    }

    /// The app as it is now.
    pub fn facts(&self) -> Facts {
        let router = self.router.state();
        let inner = self.inner();
        Facts {
            platform: std::env::consts::OS,
            version: env!("CARGO_PKG_VERSION"),
            language: inner.settings.words.language().code(),
            first_run: !inner.settings.preferences.onboarded,
            router,
            crash: inner.crash,
            icon_hidden: inner.icon_hidden,
            update: inner.update.clone(),
            quitting: inner.quitting,
            preferences: inner.settings.preferences.clone(),
            sandbox: self.router.is_sandbox(),
        }
    }

    /// The router as it is now, with nothing in it while it does not run.
    pub fn snapshot(&self) -> Snapshot {
        let running = self.router.snapshot();
        running.unwrap_or_else(|| gateway::snapshot::nothing(SystemClock.now()))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    /// A file that cannot be read, or holds something odd, is the router's to complain about.
    fn read(paths: &Paths) -> Self {
        let text = fs::read(&paths.config).unwrap_or_default();
        let all: Value = serde_json::from_slice(&text).unwrap_or_default();
        let system = platform::system_language();
        let language = Language::choose(all["language"].as_str(), system.as_deref());
        Self {
            written: written(paths),
            preferences: Preferences::read(&all["app"]),
            words: Arc::new(Words::new(language)),
        }
    }
}

fn written(paths: &Paths) -> Option<SystemTime> {
    fs::metadata(&paths.config).ok()?.modified().ok()
}
