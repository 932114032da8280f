//! What became of refresh tokens that were sent: one small file for each, named after the token's hash.
//!
//! A refresh token works once. Whoever sends one that may have been spent already can lose the whole login, so the
//! mark is on disk before the token leaves, and a restart, or a second router on this machine, finds it there. The
//! marks of one token are written under its profile's locks.

use std::fs;
use std::io;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::credential::Secret;
use crate::file;

/// A refresh token does not live longer than this unused.
const KEPT: SignedDuration = SignedDuration::from_hours(60 * 24);

/// What is known of a refresh token that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It was sent, and nothing is known since: we ended, or the answer was lost.
    Uncertain,
    /// The server said that it is dead.
    Rejected,
    /// It was exchanged for another, which is safe. A copy of it in another directory must not be sent.
    Spent,
}

#[derive(Serialize, Deserialize)]
struct Mark {
    fate: Fate,
    /// Seconds since the epoch.
    at: i64,
}

/// The marks.
#[derive(Clone, Debug)]
pub struct Ledger(PathBuf);

impl Ledger {
    /// The marks in `folder`, which is made when the first is written.
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// What became of that token, if it was ever sent.
    pub fn fate(&self, token: &Secret) -> Option<Fate> {
        // A mark that cannot be read is a mark: the token was sent.
        match fs::read(self.file(token)) {
            Ok(text) => Some(serde_json::from_slice(&text).map_or(Fate::Uncertain, |mark: Mark| mark.fate)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some(Fate::Uncertain),
        }
    }

    /// Marks the token, on disk before this returns.
    ///
    /// # Errors
    /// If it cannot be written; the token must then not be sent.
    pub fn mark(&self, token: &Secret, fate: Fate, now: Timestamp) -> io::Result<()> {
        let mark = Mark {
            fate,
            at: now.as_second(),
        };
        let text = serde_json::to_vec(&mark)?;
        file::save(&self.file(token), &text)?;
        fs::File::open(&self.0)?.sync_all()
    }

    /// Takes the mark away: the token was not spent.
    pub fn clear(&self, token: &Secret) {
        let _ = fs::remove_file(self.file(token));
    }

    /// Drops marks of tokens that have long ended.
    pub fn prune(&self, now: Timestamp) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let old = fs::read(entry.path())
                .ok()
                .and_then(|text| serde_json::from_slice::<Mark>(&text).ok())
                .and_then(|mark| Timestamp::from_second(mark.at).ok())
                .is_some_and(|at| now.duration_since(at) > KEPT);
            if old {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn file(&self, token: &Secret) -> PathBuf {
        let hash = Sha256::digest(token.expose().as_bytes());
        let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        self.0.join(name).with_extension("json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_there_after_a_restart_and_names_no_secret() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("renewals");
        let (token, now) = (Secret::new("rt-secret"), Timestamp::from_second(1_000).unwrap());
        assert_eq!(Ledger::new(folder.clone()).fate(&token), None);
        Ledger::new(folder.clone()).mark(&token, Fate::Uncertain, now).unwrap();
        assert_eq!(Ledger::new(folder.clone()).fate(&token), Some(Fate::Uncertain));
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let all = format!("{:?}{}", entry.path(), fs::read_to_string(entry.path()).unwrap());
            assert!(!all.contains("rt-secret"), "{all}");
            fs::write(entry.path(), "garbage").unwrap();
        }
        assert_eq!(
            Ledger::new(folder.clone()).fate(&token),
            Some(Fate::Uncertain),
            "a damaged mark is a mark"
        );
        Ledger::new(folder.clone()).clear(&token);
        assert_eq!(Ledger::new(folder.clone()).fate(&token), None);
        fs::create_dir(Ledger::new(folder.clone()).file(&token)).unwrap();
        let unread = Ledger::new(folder).fate(&token);
        assert_eq!(unread, Some(Fate::Uncertain), "one that cannot be read, too");
    }

    #[test]
    fn marks_of_long_dead_tokens_are_dropped() {
        let home = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(home.path().to_owned());
        let (token, then) = (Secret::new("rt"), Timestamp::from_second(1_000).unwrap());
        ledger.mark(&token, Fate::Rejected, then).unwrap();
        ledger.prune(then + SignedDuration::from_hours(24));
        assert_eq!(ledger.fate(&token), Some(Fate::Rejected));
        ledger.prune(then + SignedDuration::from_hours(61 * 24));
        assert_eq!(ledger.fate(&token), None);
    }
}
