//! The new pair's way into the store: whether there is room for it, and how it gets there.

use std::time::Duration;

use jiff::Timestamp;

use super::home::Home;
use super::{RefreshError, Renewer, blocking};
use crate::credential::{Credential, CredentialError, Document, NotOurs, Pair, Place, Secret, Store, WriteError};
use crate::lock::LockError;
use crate::profile::Profile;
use crate::reads::Why;

/// How often the storage lock is tried for, and how long apart: its holders need milliseconds.
const STORAGE_TRIES: u32 = 20;
const STORAGE_PAUSE: Duration = Duration::from_millis(100);
/// By so much may a new token be longer than the old one.
const ROOM: usize = 16;

/// What became of a pair that was to be put into the store.
pub(super) enum Put {
    /// It is there.
    Written,
    /// The store holds another login by now, and keeps it.
    NotOurs,
}

impl Renewer {
    /// Writes what is there once more, byte for byte: a store that takes that will take a new pair.
    pub(super) async fn probe(&self, mut homes: Vec<Home>, refresh: &Secret) -> Result<Vec<Home>, RefreshError> {
        let (renewer, refresh) = (self.clone(), refresh.clone());
        let write = move || {
            for index in 0..homes.len() {
                let probed = renewer.probe_one(&homes[index], &refresh);
                probed.map_err(|error| match index {
                    0 => error,
                    _ => error.of(&homes[index].profile),
                })?;
                // A Keychain may take its time, and Claude Code waits for no holder that shows no life.
                for home in &mut homes {
                    home.lock.touch(renewer.clock.now())?;
                }
            }
            Ok(homes)
        };
        blocking(write).await
    }

    fn probe_one(&self, Home { profile, place, lock }: &Home, refresh: &Secret) -> Result<(), RefreshError> {
        let now = self.clock.now();
        let storage = lock.for_writing(self.grace.judgement(now), now)?;
        let stored = self.read_at(profile, place)?;
        // Another wrote without the locks: next round.
        if !stored.holds(refresh) {
            return Err(RefreshError::Lock(LockError::Busy(profile.credentials())));
        }
        let written = self.store.write(profile, &stored, &storage, now);
        drop(storage);
        written?;
        // A store that says yes and keeps something else is no place for a new pair.
        match self.read_at(profile, place)?.holds(refresh) {
            true => Ok(()),
            false => Err(RefreshError::CannotSave(
                "the store does not keep what it is given".into(),
            )),
        }
    }

    /// Puts the new pair in the place of the login that it was exchanged for, and of no other.
    pub(super) async fn put(&self, mut home: Home, posted: &Secret, pair: &Pair) -> Result<Put, RefreshError> {
        for _ in 0..STORAGE_TRIES {
            let (renewer, posted, pair) = (self.clone(), posted.clone(), pair.clone());
            let put;
            (home, put) = blocking(move || {
                let put = renewer.put_once(&home, &posted, &pair);
                (home, put)
            })
            .await;
            match put {
                Err(RefreshError::Lock(LockError::Busy(_))) => tokio::time::sleep(STORAGE_PAUSE).await,
                put => return put,
            }
        }
        Err(LockError::Busy(home.profile.dir.join(".storage-write.lock")).into())
    }

    fn put_once(
        &self,
        Home { profile, place, lock }: &Home,
        posted: &Secret,
        pair: &Pair,
    ) -> Result<Put, RefreshError> {
        let now = self.clock.now();
        let storage = lock.for_writing(self.grace.judgement(now), now)?;
        let stored = self.read_at(profile, place)?;
        // A write that was given up as lost may have arrived after all.
        if stored.credential().is_some_and(|login| pair.is_in(&login)) {
            return Ok(Put::Written);
        }
        // A blanked login was the posted one: Claude Code blanks what it found refused, and that was spent by us.
        if !stored.is_blanked() && !stored.holds(posted) {
            return Ok(Put::NotOurs);
        }
        let written = self.store.write(profile, &stored.with_pair(pair), &storage, now);
        drop(storage);
        match written {
            Ok(()) | Err(WriteError::Unknown) => {}
            Err(error) => return Err(error.into()),
        }
        let kept = self.read_at(profile, place)?;
        match kept.credential() {
            Some(kept) if pair.is_in(&kept) => Ok(Put::Written),
            Some(kept) if kept.refresh.as_ref() != Some(posted) => Ok(Put::NotOurs),
            _ => Err(RefreshError::CannotSave("it did not arrive in the store".into())),
        }
    }

    fn read_at(&self, profile: &Profile, place: &Place) -> Result<Document, CredentialError> {
        self.store.read_at(profile, place, &self.asking(Why::Write))
    }
}

/// Whether we could save what would come in the place of `document`'s login.
///
/// # Errors
/// If only Claude Code can.
pub fn admits(store: &dyn Store, document: &Document) -> Result<(), NotOurs> {
    match document.credential() {
        Some(login) => store.admits(&document.with_pair(&roomy(&login))),
        None => Ok(()),
    }
}

/// A pair as long as one that may come instead of that login, and a little longer: what has no room for it must not
/// spend the old one.
fn roomy(login: &Credential) -> Pair {
    let longer = |secret: &Secret| Secret::new(&"x".repeat(secret.expose().len() + ROOM));
    Pair {
        access: longer(&login.access),
        refresh: login.refresh.as_ref().map(longer),
        expires_at: Timestamp::MAX,
        refresh_expires_at: Some(Timestamp::MAX),
    }
}

impl From<WriteError> for RefreshError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotOurs(why) => Self::NotOurs(why),
            WriteError::Failed(_) | WriteError::Unknown => Self::CannotSave(error.to_string()),
        }
    }
}
