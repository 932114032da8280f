//! What a page may know beside the router's snapshot: the state of the app itself.

use serde::Serialize;

use crate::preferences::Preferences;

/// The app as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// `macos` or `linux`.
    pub platform: &'static str,
    /// The app's version.
    pub version: &'static str,
    /// The language spoken, `en` or `ko`.
    pub language: &'static str,
    /// Whether the introduction is still to come.
    pub first_run: bool,
    /// How the router does.
    pub router: RouterState,
    /// The last run's end, if it was a crash.
    pub crash: Option<Crash>,
    /// Whether the system shows no icon of ours.
    pub icon_hidden: bool,
    /// A newer release, if the owner asked to look.
    pub update: Option<Update>,
    /// Whether the app ends once no answer is under way.
    pub quitting: bool,
    /// What the owner wants of the app.
    pub preferences: Preferences,
    /// Whether the seats are made up.
    pub sandbox: bool,
}

/// How the router in this process does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RouterState {
    /// It is about to run.
    Starting,
    /// It runs.
    Running,
    /// It does not, for the command runs it as a service.
    HeldByService {
        /// The service's process.
        pid: Option<u32>,
    },
    /// It does not, for a reason that somebody can mend.
    Failed {
        /// Which.
        code: Failure,
        /// In a sentence.
        words: String,
        /// The port, if it is about one.
        port: Option<u16>,
        /// The program that has it, if that is known.
        holder: Option<String>,
    },
}

/// Why the router does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Failure {
    /// Another program listens on its port.
    PortBusy,
    /// An address to listen on is not this machine's.
    AddressGone,
    /// Its settings are not valid.
    SettingsRefused,
    /// Something else.
    Other,
}

/// A crash of the run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// When, in seconds since the epoch.
    pub at: i64,
}

/// A newer release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Update {
    /// Its version.
    pub version: String,
}
