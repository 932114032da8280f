//! What was read of the owner's logins: which item or file, when last, and why. For the owner's eyes; names only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Why a login was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS), ts(rename = "ReadWhy"))]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// It was not known yet.
    First,
    /// It changed since the last look.
    Changed,
    /// The last look failed.
    Again,
    /// Anthropic refused its token.
    Refused,
    /// Its owner asked for a look.
    Asked,
    /// It is about to be renewed, or was just handed to Claude Code for that.
    Renewal,
    /// To compare before a write, or to see what a write left.
    Write,
}

/// One reading, the last of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The item's name, or the file's path.
    pub what: String,
    /// The configuration directory whose login it is.
    pub dir: PathBuf,
    /// When it was.
    pub when: Timestamp,
    /// Why.
    pub why: Why,
}

/// The last reading of each thing.
#[derive(Debug, Default)]
pub struct Reads(Mutex<BTreeMap<String, Read>>);

impl Reads {
    /// Notes that `what` was read, for the login of the directory `dir`.
    pub fn note(&self, what: String, dir: &Path, asking: &Asking<'_>) {
        let read = Read {
            what: what.clone(),
            dir: dir.to_owned(),
            when: asking.now,
            why: asking.why,
        };
        self.lock().insert(what, read);
    }

    /// The readings, by name.
    pub fn all(&self) -> Vec<Read> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Read>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who asks a store for a login: why, when, and where that is noted.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Why.
    pub why: Why,
    /// The time now.
    pub now: Timestamp,
    /// Where it is noted.
    pub reads: &'a Reads,
}

impl Asking<'_> {
    /// Notes that `what` is read, for the login of the directory `dir`.
    pub fn note(&self, what: String, dir: &Path) {
        self.reads.note(what, dir, self);
    }
}
