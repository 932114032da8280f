//! Reading the directories: which ones changed, what they hold, and when one that cannot be read is tried again.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Roster, held};
use crate::credential::{Credential, CredentialError, Document, KeychainError, Mark, NotOurs};
use crate::file;
use crate::profile::{self, Identity, Profile};
use crate::reads::{Asking, Why};
use crate::refresh;

/// So many failed reads in a row are worth telling.
pub(super) const FAILURES_TOLD: u32 = 3;
/// How soon a login that could not be read is tried again, and so many times: it is perhaps being written.
const SOON: SignedDuration = SignedDuration::from_millis(500);
const QUICK_LOOKS: u32 = 30;
/// From then on the wait doubles, from here to there; so it does at once where a look costs more.
pub(super) const LATER: SignedDuration = SignedDuration::from_secs(10);
const MUCH_LATER: SignedDuration = SignedDuration::from_mins(5);

/// Why a stored login cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// The file, or what the Keychain gave.
    Damaged,
    /// The Keychain is locked.
    Locked,
    /// macOS asks its owner.
    Permission,
}

impl From<&CredentialError> for Unread {
    fn from(error: &CredentialError) -> Self {
        match error {
            CredentialError::Keychain(KeychainError::Locked) => Self::Locked,
            CredentialError::Keychain(KeychainError::Permission) => Self::Permission,
            CredentialError::Keychain(KeychainError::Failed(_))
            | CredentialError::Unreadable(_)
            | CredentialError::LoggedOut => Self::Damaged,
        }
    }
}

/// A directory as it was last read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    mark: Mark,
    identity_mark: Option<file::Mark>,
    pub(super) identity: Option<Identity>,
    pub(super) credential: Option<Credential>,
    /// Whether its refresh token was sent, and is dead or may be.
    pub(super) spent: bool,
    pub(super) not_ours: Option<NotOurs>,
    pub(super) trouble: Option<Unread>,
    pub(super) failures: u32,
    /// When a failed read is tried again.
    pub(super) again_at: Option<Timestamp>,
}

impl Reading {
    fn is_due(&self, now: Timestamp) -> bool {
        // One far ahead was set before the clock was.
        self.again_at.is_some_and(|at| at <= now || at > now + MUCH_LATER)
    }
}

impl Roster {
    /// Reads the profiles that changed, could not be read the last time, or are wanted anew.
    pub(super) fn read_changed(&self, mut known: BTreeMap<Profile, Reading>) -> BTreeMap<Profile, Reading> {
        let now = self.scheduler.now();
        let mut readings = BTreeMap::new();
        for profile in profile::discover(&self.settings.now(), &self.paths) {
            let before = known.remove(&profile);
            let mark = self.store.mark(&profile, now);
            let identity_mark = file::mark(profile.identity_file());
            let wanted = held(&self.wanted).remove(&profile);
            let why = match &before {
                None => Some(Why::First),
                Some(before) if before.mark != mark => Some(Why::Changed),
                Some(before) => wanted.or(before.is_due(now).then_some(Why::Again)),
            };
            let mut reading = match (before, why) {
                (Some(before), None) => before,
                (before, why) => self.read(&profile, before, mark, why.unwrap_or(Why::First)),
            };
            if reading.identity_mark != identity_mark {
                // It is rewritten often; a half-read name does not change whose seat it is.
                if let Ok(identity) = profile.identity() {
                    reading.identity = identity;
                    reading.identity_mark = identity_mark;
                }
            }
            let refresh = reading.credential.as_ref().and_then(|login| login.refresh.as_ref());
            reading.spent = refresh.is_some_and(|token| self.ledger.fate(token).is_some())
                && !held(&self.renewing).contains(&profile);
            readings.insert(profile, reading);
        }
        readings
    }

    fn read(&self, profile: &Profile, before: Option<Reading>, mark: Mark, why: Why) -> Reading {
        let asking = Asking {
            why,
            now: self.scheduler.now(),
            reads: &self.reads,
        };
        let read = self.store.read(profile, &asking);
        let failures = before.as_ref().map_or(0, |before| before.failures) + 1;
        let (known, identity, identity_mark) = match before {
            Some(before) => (before.credential, before.identity, before.identity_mark),
            None => (None, None, None),
        };
        let (document, error) = match read {
            Ok(document) => {
                let behind = document.is_behind().map(CredentialError::Keychain);
                (Some(document), behind)
            }
            Err(CredentialError::LoggedOut) => (None, None),
            Err(error) => (None, Some(error)),
        };
        let login = document.as_ref().and_then(Document::credential);
        let reading = Reading {
            mark,
            identity_mark,
            identity,
            credential: login.clone(),
            spent: false,
            not_ours: document.and_then(|document| refresh::admits(&*self.store, &document).err()),
            trouble: None,
            failures: 0,
            again_at: None,
        };
        let Some(error) = error else { return reading };
        if failures == FAILURES_TOLD {
            tracing::warn!(
                "{}: {error}; the last good login is used while it lasts",
                profile.dir.display()
            );
        }
        // What lies beside an item that cannot be read may be older than what is known of the item.
        let lasts = |login: &Option<Credential>| login.as_ref().map(|login| login.expires_at);
        let quick = if self.store.may_wait() { 0 } else { QUICK_LOOKS };
        let wait = match failures.checked_sub(quick + 1) {
            None => SOON,
            Some(slow) => (LATER * 2_i32.pow(slow.min(8))).min(MUCH_LATER),
        };
        Reading {
            credential: if lasts(&login) > lasts(&known) { login } else { known },
            trouble: Some(Unread::from(&error)),
            failures,
            again_at: Some(asking.now + wait),
            ..reading
        }
    }
}
