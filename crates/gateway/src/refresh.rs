//! Renews one login, as a well-behaved second owner of it.
//!
//! Claude Code, other routers and we share one refresh token that works once. So: take Claude Code's locks; read again
//! under them, for another may have been quicker; make sure that the store takes a write; mark the token as sent; send
//! it; and save the new pair before anyone uses it. What may have been spent is never sent again.
//!
//! A directory that was copied holds the same login, and somebody may work in either: a login is renewed for all its
//! homes at once, under the locks of each.

mod grace;
mod exchange;
mod home;
mod put;

use std::io;
use std::sync::Arc;

use http::Uri;
use jiff::SignedDuration;
use pool::renewals::RENEWED_BEFORE;

pub use grace::Grace;
pub use put::admits;

use crate::credential::{Credential, CredentialError, Document, NotOurs, Pair, Place, Secret, Store};
use crate::ledger::{Fate, Ledger};
use crate::lock::LockError;
use crate::ports::{Clock, Upstream};
use crate::profile::Profile;
use crate::reads::{Asking, Reads, Why};
use home::Home;
pub use home::Owned;
use put::Put;

/// What a renewal needs.
#[derive(Clone)]
pub struct Renewer {
    /// Where logins are kept.
    pub store: Arc<dyn Store>,
    /// What became of tokens that were sent.
    pub ledger: Ledger,
    /// The network of our own calls.
    pub calls: Upstream,
    /// The token endpoint.
    pub token_url: Uri,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Until when no lock counts as left over.
    pub grace: Arc<Grace>,
    /// What was read.
    pub reads: Arc<Reads>,
}

/// How a renewal went well.
#[derive(Debug)]
pub enum Renewed {
    /// Another had renewed it: the store holds a fresh login.
    Adopted,
    /// The new pair is in the store.
    Saved,
    /// The new pair is good and could not be saved everywhere; it lives in memory until it can.
    Unsaved(Vec<(Profile, Unsaved)>),
}

/// A pair that waits to be saved.
#[derive(Clone, Debug)]
pub struct Unsaved {
    /// The refresh token that it was exchanged for: it may be put in the place of that one only.
    pub posted: Secret,
    /// Where that one was read.
    pub place: Place,
    /// The pair.
    pub pair: Pair,
    /// The login with the pair in it, to be used meanwhile.
    pub credential: Credential,
}

/// Why a login was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// The locks are another's at the moment, or cannot be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The login cannot be read, or there is none.
    #[error(transparent)]
    Unreadable(#[from] CredentialError),
    /// Only Claude Code can save this login, so only it renews it.
    #[error("Claude Code renews this login itself: {0}")]
    NotOurs(NotOurs),
    /// The login holds no refresh token.
    #[error("the login cannot be renewed: it holds no refresh token")]
    NoRefreshToken,
    /// The store would not take the new pair, so the old one was not spent.
    #[error("the login cannot be saved, so it was not renewed: {0}")]
    CannotSave(String),
    /// No connection came about; the refresh token was not spent.
    #[error("the token endpoint cannot be reached: {0}")]
    Unreachable(String),
    /// Temporary trouble; the refresh token was not spent.
    #[error("the token endpoint could not be used: {what}")]
    Failed {
        /// What happened.
        what: String,
        /// When to come back, if it was said.
        retry_after: Option<SignedDuration>,
    },
    /// The refresh token is dead.
    #[error("Anthropic no longer accepts this login")]
    Rejected,
    /// The refresh token was sent and may have been spent; it is not sent again.
    #[error("the renewal's answer was lost, and the login may have ended with it")]
    Uncertain,
    /// The login lies in another directory too, and that is in the way.
    #[error("{}: {source}", copy.dir.display())]
    Copy {
        /// Which one.
        copy: Profile,
        /// How.
        source: Box<Self>,
    },
}

impl RefreshError {
    /// The same, of that copy.
    fn of(self, copy: &Profile) -> Self {
        Self::Copy {
            copy: copy.clone(),
            source: Box::new(self),
        }
    }
}

impl Renewer {
    /// Renews the login of `profile`, unless it proves fresh under the locks, and with it that of the `copies` that hold
    /// the same. `refused` is an access token that Anthropic did not take, however long it claims to last.
    ///
    /// # Errors
    /// See [`RefreshError`]. Whatever it is, the store holds what it held, or another's work.
    pub async fn renew(
        &self,
        profile: &Profile,
        copies: &[Profile],
        refused: Option<&Secret>,
    ) -> Result<Renewed, RefreshError> {
        let lock = self.lock(profile).await?;
        let stored = self.read(profile).await?;
        let login = stored.credential().ok_or(CredentialError::LoggedOut)?;
        if self.is_fresh(&login) && Some(&login.access) != refused {
            return Ok(Renewed::Adopted);
        }
        if let Some(trouble) = stored.is_behind() {
            return Err(CredentialError::Keychain(trouble).into());
        }
        let refresh = login.refresh.clone().ok_or(RefreshError::NoRefreshToken)?;
        admits(&*self.store, &stored).map_err(RefreshError::NotOurs)?;
        match self.fate(&refresh).await {
            Some(Fate::Rejected | Fate::Spent) => return Err(RefreshError::Rejected),
            Some(Fate::Uncertain) => return Err(RefreshError::Uncertain),
            None => {}
        }
        let home = Home {
            profile: profile.clone(),
            place: stored.place().clone(),
            lock,
        };
        let homes = self.with_copies(home, copies, &refresh).await?;
        let homes = self.probe(homes, &refresh).await?;
        self.mark(&refresh, Fate::Uncertain)
            .await
            .map_err(|error| RefreshError::CannotSave(error.to_string()))?;
        let (homes, mut pair) = self.exchange(homes, &login, &refresh).await?;
        pair.refresh.get_or_insert_with(|| refresh.clone());
        let credential = stored.with_pair(&pair).credential().unwrap_or(login);
        Ok(self.put_everywhere(homes, &refresh, &pair, &credential).await)
    }

    /// Puts the new pair into every home of the login; where that has to wait, `credential` is used meanwhile.
    async fn put_everywhere(&self, homes: Vec<Home>, posted: &Secret, pair: &Pair, credential: &Credential) -> Renewed {
        let (mut saved, mut unsaved) = (false, Vec::new());
        for home in homes {
            let (profile, place) = (home.profile.clone(), home.place.clone());
            match self.put(home, posted, pair).await {
                Ok(Put::Written) => saved = true,
                Ok(Put::NotOurs) => {}
                Err(error) => {
                    tracing::warn!(
                        "{}: a renewed login could not be saved yet: {error}; it is kept in memory, and quitting now would \
                         lose it",
                        profile.dir.display()
                    );
                    let waits = Unsaved {
                        posted: posted.clone(),
                        place,
                        pair: pair.clone(),
                        credential: credential.clone(),
                    };
                    unsaved.push((profile, waits));
                }
            }
        }
        if saved {
            self.succeeded(posted, pair).await;
        }
        match saved {
            _ if !unsaved.is_empty() => Renewed::Unsaved(unsaved),
            true => Renewed::Saved,
            false => Renewed::Adopted,
        }
    }

    /// Tries to save a pair that could not be saved before. Once it returns, the pair need not be kept any longer: it is
    /// in the store, or the store holds a newer login.
    ///
    /// # Errors
    /// If it still cannot be saved.
    pub async fn save(&self, profile: &Profile, unsaved: &Unsaved) -> Result<(), RefreshError> {
        let home = Home {
            profile: profile.clone(),
            place: unsaved.place.clone(),
            lock: self.lock(profile).await?,
        };
        self.put(home, &unsaved.posted, &unsaved.pair).await?;
        self.succeeded(&unsaved.posted, &unsaved.pair).await;
        Ok(())
    }

    fn is_fresh(&self, login: &Credential) -> bool {
        let now = self.clock.now();
        login
            .expires_at
            .is_none_or(|end| end.duration_since(now) > RENEWED_BEFORE)
    }

    async fn read(&self, profile: &Profile) -> Result<Document, CredentialError> {
        let (renewer, profile) = (self.clone(), profile.clone());
        blocking(move || renewer.store.read(&profile, &renewer.asking(Why::Renewal))).await
    }

    /// Asks a store on our behalf.
    pub fn asking(&self, why: Why) -> Asking<'_> {
        Asking {
            why,
            now: self.clock.now(),
            reads: &self.reads,
        }
    }

    async fn fate(&self, refresh: &Secret) -> Option<Fate> {
        let (ledger, refresh) = (self.ledger.clone(), refresh.clone());
        blocking(move || ledger.fate(&refresh)).await
    }

    async fn mark(&self, refresh: &Secret, fate: Fate) -> io::Result<()> {
        let (ledger, refresh, now) = (self.ledger.clone(), refresh.clone(), self.clock.now());
        blocking(move || ledger.mark(&refresh, fate, now)).await
    }

    /// Notes that the pair that `posted` was exchanged for is in a store. A backup of the login may be laid there again,
    /// and what it holds is spent.
    async fn succeeded(&self, posted: &Secret, pair: &Pair) {
        if pair.refresh.as_ref() == Some(posted) {
            return self.clear(posted).await;
        }
        if let Err(error) = self.mark(posted, Fate::Spent).await {
            tracing::debug!("a spent token stays marked as uncertain: {error}");
        }
        // They would become many in a router that runs for months.
        let (ledger, now) = (self.ledger.clone(), self.clock.now());
        blocking(move || ledger.prune(now)).await;
    }

    async fn clear(&self, refresh: &Secret) {
        let (ledger, refresh) = (self.ledger.clone(), refresh.clone());
        blocking(move || ledger.clear(&refresh)).await;
    }
}

/// Runs file work where it does not hold up requests.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) if panicked.is_panic() => std::panic::resume_unwind(panicked.into_panic()),
        // The runtime is ending, and this task with it.
        Err(_) => std::future::pending().await,
    }
}
