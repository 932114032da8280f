//! The Keychain as a store of logins, with the file beside it: Claude Code on a Mac keeps a login in one or the other.
//!
//! Looking whether something changed costs nothing and asks nobody; a secret is read only then, on a refusal, or when
//! its owner asks. Whoever was asked by macOS and did not say yes is left in peace, for half an hour and then for six.
//! What is too long for the system's tool, or overflows into a second item, only Claude Code writes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::credential::{
    Credential, CredentialError, Document, Files, KeychainError, Mark, NotOurs, Place, Store, WriteError,
};
use crate::file::{self, ReadError};
use crate::items::{self, Item, Listing, Name};
use crate::lock::WriteLock;
use crate::paths::Paths;
use crate::profile::Profile;
use crate::reads::Asking;
use crate::security::{self, Ended, Found, Tool};

/// How long an owner who did not say yes is left in peace: the first time, and from then on.
const PEACE: [SignedDuration; 2] = [SignedDuration::from_mins(30), SignedDuration::from_hours(6)];
/// What remembers that is a few hundred bytes.
const LIMIT: u64 = 64 << 10;

/// The Keychain and the files.
pub struct Keychain {
    tool: Arc<dyn Tool>,
    listing: Arc<dyn Listing>,
    account: String,
    refusals: Refusals,
}

impl Keychain {
    /// The items of the user of that name, read and written by `tool`. Who said no is remembered in the file `refusals`.
    pub fn new(tool: Arc<dyn Tool>, listing: Arc<dyn Listing>, user: Option<&str>, refusals: PathBuf) -> Self {
        Self {
            tool,
            listing,
            account: items::account(user),
            refusals: Refusals::load(refusals),
        }
    }

    /// The item of `profile`, if there is one: of the names that it may have, the first that exists.
    fn item(&self, profile: &Profile) -> Result<Option<(Name, Item)>, KeychainError> {
        let mut listed = self
            .listing
            .items(&self.account)
            .map_err(|error| KeychainError::Failed(error.raw_os_error()))?;
        listed.retain(|item| item.account == self.account);
        let named = |name: Name| {
            let item = listed.iter().find(|item| item.service == name.service)?;
            Some((name, item.clone()))
        };
        Ok(items::names(profile).into_iter().find_map(named))
    }

    /// The document in the item of that service, which is `profile`'s.
    fn secret(&self, profile: &Profile, service: &str, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        if self.refusals.last(service, asking.now) {
            return Err(KeychainError::Permission.into());
        }
        asking.note(format!("Keychain item {service}"), &profile.dir);
        let found = security::find(&*self.tool, service, &self.account);
        match found {
            Ok(Found::Value(text)) => {
                self.refusals.forget(service);
                Document::parse(text, Place::Item(service.to_owned()))
                    .ok_or(CredentialError::Unreadable(ReadError::Damaged))
            }
            Ok(Found::Absent) => Err(CredentialError::LoggedOut),
            Ok(Found::Locked) => Err(KeychainError::Locked.into()),
            Ok(Found::Refused) => {
                let until = self.refusals.note(service, asking.now);
                tracing::warn!(
                    "macOS asks for permission to read the Keychain item `{service}`, and nobody gave it; not tried again before {until}, unless you ask"
                );
                Err(KeychainError::Permission.into())
            }
            Ok(Found::Failed(status)) => Err(KeychainError::Failed(status).into()),
            Err(error) => Err(KeychainError::Failed(error.raw_os_error()).into()),
        }
    }
}

impl Store for Keychain {
    fn mark(&self, profile: &Profile, now: Timestamp) -> Mark {
        Mark {
            item: match self.item(profile) {
                Ok(item) => item.map(|(_, item)| Ok(item.mark(now))),
                Err(_) => Some(Err(())),
            },
            ..Files.mark(profile, now)
        }
    }

    fn read(&self, profile: &Profile, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        let item = match self.item(profile) {
            Ok(Some((name, _))) => self.secret(profile, &name.service, asking),
            Ok(None) => Err(CredentialError::LoggedOut),
            Err(error) => Err(error.into()),
        };
        let file = Files.read(profile, asking);
        match (item, file) {
            (Ok(item), Ok(file)) => Ok(longer(item, file)),
            (Ok(item), Err(_)) => Ok(item),
            // It may hold what the item has replaced long since.
            (Err(CredentialError::Keychain(trouble)), Ok(file)) if file.credential().is_some() => {
                Ok(file.behind(trouble))
            }
            (Err(CredentialError::LoggedOut), file) => file,
            (Err(error), _) => Err(error),
        }
    }

    fn read_at(&self, profile: &Profile, place: &Place, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        match place {
            Place::File => Files.read(profile, asking),
            Place::Item(service) => self.secret(profile, service, asking),
        }
    }

    fn admits(&self, document: &Document) -> Result<(), NotOurs> {
        let Place::Item(service) = document.place() else {
            return Ok(());
        };
        if document.overflows() {
            return Err(NotOurs::Overflows);
        }
        match security::line(service, &self.account, document.text()) {
            Some(_) => Ok(()),
            None => Err(NotOurs::TooLong),
        }
    }

    fn write(
        &self,
        profile: &Profile,
        document: &Document,
        lock: &WriteLock<'_>,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let Place::Item(service) = document.place() else {
            return Files.write(profile, document, lock, now);
        };
        self.admits(document).map_err(WriteError::NotOurs)?;
        let line = security::line(service, &self.account, document.text());
        let line = line.ok_or(WriteError::NotOurs(NotOurs::TooLong))?;
        // Apart from the memory of reads: what a write left must be read.
        let writing = format!("{service} (writing)");
        if self.refusals.last(&writing, now) {
            return Err(WriteError::Failed(io::Error::other(
                "macOS asks for permission to write the Keychain item",
            )));
        }
        match security::write(&*self.tool, &line)? {
            refused if refused.is_a_refusal() => {
                let until = self.refusals.note(&writing, now);
                tracing::warn!(
                    "the Keychain item `{service}` could not be written, for its owner was asked in vain; not tried again \
                     before {until}"
                );
                Err(WriteError::Unknown)
            }
            // What it says of itself is not to be relied on, either way.
            Ended::With(Some(0)) => {
                self.refusals.forget(&writing);
                Ok(())
            }
            Ended::Late | Ended::With(_) => Err(WriteError::Unknown),
        }
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn forget_refusals(&self) {
        self.refusals.forget_all();
    }

    fn config_dir(&self, profile: &Profile) -> Option<OsString> {
        match self.item(profile) {
            Ok(Some((name, _))) => name.config_dir.map(OsString::from),
            _ => Files.config_dir(profile),
        }
    }
}

/// The one whose login lasts longer; the Keychain's where they are alike, as Claude Code looks there first.
fn longer(item: Document, file: Document) -> Document {
    let lasts = |login: Option<Credential>| login.map(|login| login.expires_at);
    match lasts(file.credential()) > lasts(item.credential()) {
        true => file,
        false => item,
    }
}

/// Who did not say yes, by item: kept across restarts.
struct Refusals {
    file: PathBuf,
    known: Mutex<BTreeMap<String, Refusal>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Refusal {
    times: u32,
    /// Seconds since the epoch.
    at: i64,
}

impl Refusal {
    fn ends(&self) -> Option<Timestamp> {
        let peace = if self.times > 1 { PEACE[1] } else { PEACE[0] };
        Timestamp::from_second(self.at).ok()?.checked_add(peace).ok()
    }
}

impl Refusals {
    fn load(file: PathBuf) -> Self {
        let known = file::read_json(&file, LIMIT).unwrap_or_default();
        Self {
            file,
            known: Mutex::new(known),
        }
    }

    /// Whether the item's owner is left in peace at `now`. One that lies in the future was noted before the clock was set.
    fn last(&self, service: &str, now: Timestamp) -> bool {
        let known = self.lock();
        let refusal = known.get(service);
        refusal.is_some_and(|refusal| refusal.at <= now.as_second() && refusal.ends().is_some_and(|end| now < end))
    }

    fn note(&self, service: &str, now: Timestamp) -> Timestamp {
        let mut known = self.lock();
        let times = known.get(service).map_or(0, |refusal| refusal.times) + 1;
        let refusal = Refusal {
            times,
            at: now.as_second(),
        };
        let until = refusal.ends().unwrap_or(now);
        known.insert(service.to_owned(), refusal);
        self.save(&known);
        until
    }

    fn forget(&self, service: &str) {
        let mut known = self.lock();
        if known.remove(service).is_some() {
            self.save(&known);
        }
    }

    fn forget_all(&self) {
        let mut known = self.lock();
        known.clear();
        self.save(&known);
    }

    fn save(&self, known: &BTreeMap<String, Refusal>) {
        let saved = serde_json::to_vec(known).map_err(io::Error::from);
        if let Err(error) = saved.and_then(|text| file::save(&self.file, &text)) {
            tracing::warn!("{} cannot be written: {error}", self.file.display());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Refusal>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where Claude Code keeps its logins on this machine.
pub fn on_this_machine(paths: &Paths) -> Arc<dyn Store> {
    #[cfg(target_os = "macos")]
    {
        let tool = Arc::new(security::Security::new("/usr/bin/security"));
        let user = ["USER", "LOGNAME"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok());
        let listing = Arc::new(items::ThisMac);
        Arc::new(Keychain::new(tool, listing, user.as_deref(), paths.keychain()))
    }
    #[cfg(not(target_os = "macos"))]
    {
        let _ = paths;
        Arc::new(Files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kc_02_who_said_no_is_left_in_peace_for_half_an_hour_then_for_six() {
        let home = tempfile::tempdir().unwrap();
        let load = || Refusals::load(home.path().join("keychain.json"));
        let at = |second| Timestamp::from_second(second).unwrap();
        let refusals = load();
        assert!(!refusals.last("item", at(1_000)));
        assert_eq!(refusals.note("item", at(1_000)), at(1_000 + 1_800));
        for known in [refusals, load()] {
            assert!(known.last("item", at(2_799)), "across a restart");
            assert!(!known.last("item", at(2_800)));
            assert!(!known.last("another", at(1_000)));
            assert!(!known.last("item", at(900)), "the clock was set back");
        }
        assert_eq!(load().note("item", at(3_000)), at(3_000 + 6 * 3_600));
        assert_eq!(load().note("item", at(30_000)), at(30_000 + 6 * 3_600));
        load().forget("item");
        assert_eq!(load().note("item", at(60_000)), at(60_000 + 1_800), "a yes begins anew");
        load().forget_all();
        assert!(!load().last("item", at(60_001)));
    }
}
