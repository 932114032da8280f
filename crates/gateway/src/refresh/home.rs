//! The directories that hold a login, and their locks.

use super::{RefreshError, Renewer, admits, blocking};
use crate::credential::{CredentialError, Place, Secret};
use crate::lock::{LockError, ProfileLock};
use crate::profile::Profile;

/// A directory that holds the login, its locks taken.
pub(super) struct Home {
    pub(super) profile: Profile,
    /// Where the login lies in it.
    pub(super) place: Place,
    pub(super) lock: ProfileLock,
}

impl Renewer {
    pub(super) async fn lock(&self, profile: &Profile) -> Result<ProfileLock, LockError> {
        let (dir, now) = (profile.dir.clone(), self.clock.now());
        let judgement = self.grace.judgement(now);
        blocking(move || ProfileLock::take(&dir, judgement, now)).await
    }

    /// `home`, and those of the `copies` that hold the login too. One where no login could be saved is left out: nobody
    /// works there.
    ///
    /// # Errors
    /// If one is busy: the login may be on its way to another there. If one cannot be seen for now: whoever works there
    /// may see it.
    pub(super) async fn with_copies(
        &self,
        home: Home,
        copies: &[Profile],
        refresh: &Secret,
    ) -> Result<Vec<Home>, RefreshError> {
        let mut homes = vec![home];
        for profile in copies {
            let lock = match self.lock(profile).await {
                Ok(lock) => lock,
                Err(LockError::Denied { .. } | LockError::Foreign(_)) => continue,
                Err(busy) => return Err(busy.into()),
            };
            let stored = match self.read(profile).await {
                Ok(stored) => stored,
                Err(hidden @ CredentialError::Keychain(_)) => return Err(hidden.into()),
                Err(CredentialError::LoggedOut | CredentialError::Unreadable(_)) => continue,
            };
            if let Some(trouble) = stored.is_behind() {
                return Err(CredentialError::Keychain(trouble).into());
            }
            if stored.holds(refresh) && admits(&*self.store, &stored).is_ok() {
                homes.push(Home {
                    profile: profile.clone(),
                    place: stored.place().clone(),
                    lock,
                });
            }
        }
        Ok(homes)
    }

    /// Says that the locks' holder lives.
    pub(super) async fn touched(&self, mut homes: Vec<Home>) -> Vec<Home> {
        let now = self.clock.now();
        blocking(move || {
            for home in &mut homes {
                // A lock that was taken from us shows when it is checked.
                let _ = home.lock.touch(now);
            }
            homes
        })
        .await
    }
}
