//! The directories that hold a login, and their locks.

use super::{RefreshError, Renewed, Renewer, Unsaved, admits, blocking};
use crate::credential::{Credential, CredentialError, Document, Pair, Place, Secret};
use crate::lock::{LockError, ProfileLock};
use crate::profile::{Identity, Profile};

/// A login, and whose its directory says it is.
pub type Owned = (Credential, Option<Identity>);

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

    /// `home`, and those of the `copies` that hold the login too.
    ///
    /// # Errors
    /// See [`Renewer::copy`]; it names the copy.
    pub(super) async fn with_copies(
        &self,
        home: Home,
        copies: &[Profile],
        refresh: &Secret,
    ) -> Result<Vec<Home>, RefreshError> {
        let mut homes = vec![home];
        for profile in copies {
            homes.extend(self.copy(profile, refresh).await.map_err(|error| error.of(profile))?);
        }
        Ok(homes)
    }

    /// The home of the login in `profile`; `None` where nobody could save or read one, so that nobody works there.
    ///
    /// # Errors
    /// If it is busy, or holds another login by now: this one may be on its way to another there. If it cannot be seen
    /// for now, or is Claude Code's alone to write: whoever works there may see and write it.
    async fn copy(&self, profile: &Profile, refresh: &Secret) -> Result<Option<Home>, RefreshError> {
        let lock = match self.lock(profile).await {
            Ok(lock) => lock,
            Err(LockError::Denied { .. } | LockError::Foreign(_)) => return Ok(None),
            Err(busy) => return Err(busy.into()),
        };
        let stored = match self.read(profile).await {
            Ok(stored) => stored,
            Err(hidden @ CredentialError::Keychain(_)) => return Err(hidden.into()),
            Err(CredentialError::LoggedOut | CredentialError::Unreadable(_)) => return Ok(None),
        };
        if let Some(trouble) = stored.is_behind() {
            return Err(CredentialError::Keychain(trouble).into());
        }
        if !stored.holds(refresh) {
            return Err(LockError::Busy(profile.credentials()).into());
        }
        admits(&*self.store, &stored).map_err(RefreshError::NotOurs)?;
        Ok(Some(Home {
            profile: profile.clone(),
            place: stored.place().clone(),
            lock,
        }))
    }

    /// The login in `profile`, and whose it says it is; `None` where there is none.
    pub async fn owned(&self, profile: &Profile) -> Option<Owned> {
        let login = self.read(profile).await.ok()?.credential()?;
        let asked = profile.clone();
        let owner = blocking(move || asked.identity()).await.ok()?;
        Some((login, owner))
    }

    /// Puts the login that Claude Code has renewed in `from` into the `copies` that still hold the one that was there
    /// `before`, and says where that has to wait. Nothing is passed on where somebody logged in as another meanwhile.
    pub async fn pass_on(&self, from: &Profile, copies: &[Profile], before: &Owned) -> Renewed {
        let (old, owner) = before;
        let same = |(new, now): &Owned| *now == *owner && new.ids == old.ids;
        let new = self.owned(from).await.filter(same).map(|(new, _)| new);
        let (Some(login), Some(spent)) = (new, &old.refresh) else {
            return Renewed::Adopted;
        };
        let Some(pair) = Pair::of(&login) else {
            return Renewed::Adopted;
        };
        let (mut homes, mut waiting) = (Vec::new(), Vec::new());
        for profile in copies.iter().filter(|copy| *copy != from) {
            match self.copy(profile, spent).await {
                Ok(home) => homes.extend(home),
                // Its holder looks again under its own lock, and adopts what is there by then.
                Err(RefreshError::Lock(LockError::Busy(_) | LockError::Lost(_))) => {
                    let stored = self.read(profile).await.ok().filter(|stored| stored.holds(spent));
                    let unsaved = |stored: Document| Unsaved {
                        posted: spent.clone(),
                        place: stored.place().clone(),
                        pair: pair.clone(),
                        credential: login.clone(),
                    };
                    waiting.extend(stored.map(|stored| (profile.clone(), unsaved(stored))));
                }
                Err(error) => tracing::warn!(
                    "{}: the renewed login could not be put there: {error}",
                    profile.dir.display()
                ),
            }
        }
        self.succeeded(spent, &pair).await;
        if let Renewed::Unsaved(unsaved) = self.put_everywhere(homes, spent, &pair, &login).await {
            waiting.extend(unsaved);
        }
        match waiting.is_empty() {
            true => Renewed::Saved,
            false => Renewed::Unsaved(waiting),
        }
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
