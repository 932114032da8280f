//! Renews one login, as a well-behaved second owner of it.
//!
//! Claude Code, other routers and we share one refresh token that works once. So: take Claude Code's locks; read again
//! under them, for another may have been quicker; make sure that the store takes a write; mark the token as sent; send
//! it; and save the new pair before anyone uses it. What may have been spent is never sent again.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use http::{Request, StatusCode, Uri, header};
use jiff::{SignedDuration, Timestamp};
use pool::renewals::RENEWED_BEFORE;
use tower::ServiceExt as _;

use crate::anthropic::{self, Grant, TokenAnswer};
use crate::credential::{Credential, CredentialError, Document, NotOurs, Pair, Place, Secret, Store, WriteError};
use crate::ledger::{Fate, Ledger};
use crate::lock::{self, Judgement, LockError, ProfileLock};
use crate::ports::{Clock, Upstream, UpstreamError};
use crate::profile::Profile;
use crate::reads::{Asking, Reads, Why};
use crate::usage::USER_AGENT;

/// A token answer is a few kilobytes.
const LIMIT: usize = 256 << 10;
/// How often the storage lock is tried for, and how long apart: its holders need milliseconds.
const STORAGE_TRIES: u32 = 20;
const STORAGE_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

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

/// A time after a wake in which no lock counts as left over: its holder slept too.
#[derive(Debug, Default)]
pub struct Grace(Mutex<Option<Timestamp>>);

impl Grace {
    /// Begins at `now`.
    pub fn begin(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + GRACE);
    }

    fn judgement(&self, now: Timestamp) -> Judgement {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(until) if now < until => Judgement::Suspended,
            _ => Judgement::ByAge,
        }
    }
}

/// How long it lasts.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// How a renewal went well.
#[derive(Debug)]
pub enum Renewed {
    /// Another had renewed it: the store holds a fresh login.
    Adopted,
    /// The new pair is in the store.
    Saved,
    /// The new pair is good and could not be saved; it lives in memory until it can.
    Unsaved(Box<Unsaved>),
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
}

impl Renewer {
    /// Renews the login of `profile`, unless it proves fresh under the locks. `refused` is an access token that
    /// Anthropic did not take, however long it claims to last.
    ///
    /// # Errors
    /// See [`RefreshError`]. Whatever it is, the store holds what it held, or another's work.
    pub async fn renew(&self, profile: &Profile, refused: Option<&Secret>) -> Result<Renewed, RefreshError> {
        let lock = {
            let (dir, now) = (profile.dir.clone(), self.clock.now());
            let judgement = self.grace.judgement(now);
            blocking(move || ProfileLock::take(&dir, judgement, now)).await?
        };
        let stored = self.read(profile, Why::Renewal).await?;
        let login = stored.credential().ok_or(CredentialError::LoggedOut)?;
        if self.is_fresh(&login) && Some(&login.access) != refused {
            return Ok(Renewed::Adopted);
        }
        if let Some(trouble) = stored.is_behind() {
            return Err(CredentialError::Keychain(trouble).into());
        }
        let refresh = login.refresh.clone().ok_or(RefreshError::NoRefreshToken)?;
        admits(&*self.store, &stored).map_err(RefreshError::NotOurs)?;
        let fate = {
            let (ledger, refresh) = (self.ledger.clone(), refresh.clone());
            blocking(move || ledger.fate(&refresh)).await
        };
        match fate {
            Some(Fate::Rejected) => return Err(RefreshError::Rejected),
            Some(Fate::Uncertain) => return Err(RefreshError::Uncertain),
            None => {}
        }
        let lock = self.probe(profile, lock, stored.place(), &login).await?;
        self.mark_sent(&refresh).await?;
        let (lock, grant) = self.exchange(profile, lock, &login, &refresh).await?;
        let pair = Pair {
            access: Secret::new(&grant.access),
            refresh: Some(grant.refresh.as_deref().map_or_else(|| refresh.clone(), Secret::new)),
            expires_at: grant.expires_at,
            refresh_expires_at: grant.refresh_expires_at,
        };
        match self.put(profile, lock, stored.place(), &refresh, &pair).await {
            Ok(Put::Written) => {
                self.clear(&refresh).await;
                Ok(Renewed::Saved)
            }
            Ok(Put::NotOurs) => Ok(Renewed::Adopted),
            Err(error) => {
                tracing::warn!(
                    "a renewed login could not be saved yet: {error}; it is kept in memory, and quitting now would lose it"
                );
                let credential = stored.with_pair(&pair).credential().ok_or(CredentialError::LoggedOut)?;
                Ok(Renewed::Unsaved(Box::new(Unsaved {
                    posted: refresh,
                    place: stored.place().clone(),
                    pair,
                    credential,
                })))
            }
        }
    }

    /// Tries to save a pair that could not be saved before. Once it returns, the pair need not be kept any longer: it is
    /// in the store, or the store holds a newer login.
    ///
    /// # Errors
    /// If it still cannot be saved.
    pub async fn save(&self, profile: &Profile, unsaved: &Unsaved) -> Result<(), RefreshError> {
        let (dir, now) = (profile.dir.clone(), self.clock.now());
        let judgement = self.grace.judgement(now);
        let lock = blocking(move || ProfileLock::take(&dir, judgement, now)).await?;
        self.put(profile, lock, &unsaved.place, &unsaved.posted, &unsaved.pair)
            .await?;
        self.clear(&unsaved.posted).await;
        Ok(())
    }

    fn is_fresh(&self, login: &Credential) -> bool {
        let now = self.clock.now();
        login
            .expires_at
            .is_none_or(|end| end.duration_since(now) > RENEWED_BEFORE)
    }

    async fn read(&self, profile: &Profile, why: Why) -> Result<Document, CredentialError> {
        let (renewer, profile) = (self.clone(), profile.clone());
        blocking(move || renewer.store.read(&profile, &renewer.asking(why))).await
    }

    /// Asks a store on our behalf.
    pub fn asking(&self, why: Why) -> Asking<'_> {
        Asking {
            why,
            now: self.clock.now(),
            reads: &self.reads,
        }
    }

    fn read_at(&self, profile: &Profile, place: &Place) -> Result<Document, CredentialError> {
        self.store.read_at(profile, place, &self.asking(Why::Write))
    }

    /// Writes what is there once more, byte for byte: a store that takes that will take a new pair.
    async fn probe(
        &self,
        profile: &Profile,
        mut lock: ProfileLock,
        place: &Place,
        login: &Credential,
    ) -> Result<ProfileLock, RefreshError> {
        let (renewer, profile, place, login) = (self.clone(), profile.clone(), place.clone(), login.clone());
        let write = move || {
            let now = renewer.clock.now();
            let storage = lock.for_writing(renewer.grace.judgement(now), now)?;
            let stored = renewer.read_at(&profile, &place)?;
            // Another wrote without the locks: next round.
            if stored.credential().and_then(|stored| stored.refresh) != login.refresh {
                return Err(RefreshError::Lock(LockError::Busy(profile.credentials())));
            }
            let written = renewer.store.write(&profile, &stored, &storage, now);
            drop(storage);
            written.map_err(|error| refused(&error))?;
            // A store that says yes and keeps something else is no place for a new pair.
            let kept = renewer.read_at(&profile, &place)?;
            if kept.credential().and_then(|kept| kept.refresh) != login.refresh {
                return Err(RefreshError::CannotSave(
                    "the store does not keep what it is given".into(),
                ));
            }
            lock.touch(renewer.clock.now())?;
            Ok(lock)
        };
        blocking(write).await
    }

    async fn mark_sent(&self, refresh: &Secret) -> Result<(), RefreshError> {
        let (ledger, refresh, now) = (self.ledger.clone(), refresh.clone(), self.clock.now());
        blocking(move || ledger.mark(&refresh, Fate::Uncertain, now))
            .await
            .map_err(|error| RefreshError::CannotSave(error.to_string()))
    }

    async fn clear(&self, refresh: &Secret) {
        let (ledger, refresh) = (self.ledger.clone(), refresh.clone());
        blocking(move || ledger.clear(&refresh)).await;
    }

    /// Sends the refresh token, and says that we live while the answer is awaited.
    async fn exchange(
        &self,
        profile: &Profile,
        mut lock: ProfileLock,
        login: &Credential,
        refresh: &Secret,
    ) -> Result<(ProfileLock, Grant), RefreshError> {
        let mut scopes = None;
        loop {
            if let Err(lost) = lock.check(self.clock.now()) {
                self.clear(refresh).await;
                return Err(lost.into());
            }
            let answer = {
                let mut asking = std::pin::pin!(self.ask(refresh, scopes.as_deref()));
                loop {
                    tokio::select! {
                        biased;
                        answer = &mut asking => break answer,
                        () = tokio::time::sleep(lock::HEARTBEAT) => {
                            let now = self.clock.now();
                            lock = blocking(move || {
                                // A lock that was taken from us shows when it is checked.
                                let _ = lock.touch(now);
                                lock
                            })
                            .await;
                        }
                    }
                }
            };
            match answer {
                Ok(TokenAnswer::Granted(grant)) => {
                    let now = self.clock.now();
                    lock = blocking(move || {
                        let _ = lock.touch(now);
                        lock
                    })
                    .await;
                    return Ok((lock, grant));
                }
                Ok(TokenAnswer::InvalidScope) if scopes.is_none() && !login.scopes.is_empty() => {
                    scopes = Some(login.scopes.join(" "));
                }
                Ok(TokenAnswer::InvalidScope) => {
                    self.clear(refresh).await;
                    return Err(failed("it did not like the login's scopes".into(), None));
                }
                Ok(TokenAnswer::Refused { status, retry_after }) => {
                    self.clear(refresh).await;
                    return Err(failed(format!("it answered {status}"), retry_after));
                }
                Ok(TokenAnswer::Rejected) => return Err(self.rejected(profile, refresh).await),
                Ok(TokenAnswer::Uncertain) | Err(UpstreamError::Broken(_) | UpstreamError::Stale(_)) => {
                    return Err(RefreshError::Uncertain);
                }
                Err(UpstreamError::Connect(error)) => {
                    self.clear(refresh).await;
                    return Err(RefreshError::Unreachable(error.to_string()));
                }
            }
        }
    }

    /// The token is dead, unless another has put a new one into the store meanwhile.
    async fn rejected(&self, profile: &Profile, refresh: &Secret) -> RefreshError {
        if let Ok(now) = self.read(profile, Why::Renewal).await
            && now.credential().and_then(|login| login.refresh).as_ref() != Some(refresh)
        {
            return RefreshError::Lock(LockError::Busy(profile.credentials()));
        }
        let (ledger, refresh, now) = (self.ledger.clone(), refresh.clone(), self.clock.now());
        // If this cannot be written, the token stays marked as sent, which keeps it from being sent again too.
        let _ = blocking(move || ledger.mark(&refresh, Fate::Rejected, now)).await;
        RefreshError::Rejected
    }

    async fn ask(&self, refresh: &Secret, scopes: Option<&str>) -> Result<TokenAnswer, UpstreamError> {
        let body = anthropic::refresh_request(refresh.expose(), scopes).to_string();
        let request = Request::builder()
            .method("POST")
            .uri(&self.token_url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Body::from(body))
            .map_err(|error| UpstreamError::Connect(error.into()))?;
        // The new token's life is counted from before the question: at the latest then it began.
        let asked = self.clock.now();
        let answer = self.calls.clone().oneshot(request).await?;
        let (head, body) = answer.into_parts();
        // A body that breaks off is an answer that was lost.
        let Ok(body) = axum::body::to_bytes(body, LIMIT).await else {
            return Ok(match head.status {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::INTERNAL_SERVER_ERROR => {
                    anthropic::read_token_answer(head.status, &head.headers, &[], asked)
                }
                _ => TokenAnswer::Uncertain,
            });
        };
        Ok(anthropic::read_token_answer(head.status, &head.headers, &body, asked))
    }

    /// Puts the new pair in the place of the login that it was exchanged for, and of no other.
    async fn put(
        &self,
        profile: &Profile,
        mut lock: ProfileLock,
        place: &Place,
        posted: &Secret,
        pair: &Pair,
    ) -> Result<Put, RefreshError> {
        for _ in 1..STORAGE_TRIES {
            let (renewer, profile, place) = (self.clone(), profile.clone(), place.clone());
            let (posted, pair) = (posted.clone(), pair.clone());
            let put;
            (lock, put) = blocking(move || {
                let put = renewer.put_once(&profile, &lock, &place, &posted, &pair);
                (lock, put)
            })
            .await;
            match put {
                Err(RefreshError::Lock(LockError::Busy(_))) => tokio::time::sleep(STORAGE_PAUSE).await,
                put => return put,
            }
        }
        Err(LockError::Busy(profile.dir.join(".storage-write.lock")).into())
    }

    fn put_once(
        &self,
        profile: &Profile,
        lock: &ProfileLock,
        place: &Place,
        posted: &Secret,
        pair: &Pair,
    ) -> Result<Put, RefreshError> {
        let now = self.clock.now();
        let storage = lock.for_writing(self.grace.judgement(now), now)?;
        let stored = self.read_at(profile, place)?;
        let login = stored.credential();
        // A write that was given up as lost may have arrived after all.
        if login.as_ref().is_some_and(|login| pair.is_in(login)) {
            return Ok(Put::Written);
        }
        // A blanked login was the posted one: Claude Code blanks what it found refused, and that was spent by us.
        let ours = stored.is_blanked() || login.and_then(|login| login.refresh).as_ref() == Some(posted);
        if !ours {
            return Ok(Put::NotOurs);
        }
        let written = self.store.write(profile, &stored.with_pair(pair), &storage, now);
        drop(storage);
        match written {
            Ok(()) | Err(WriteError::Unknown) => {}
            Err(error) => return Err(refused(&error)),
        }
        let kept = self.read_at(profile, place)?;
        match kept.credential() {
            Some(kept) if pair.is_in(&kept) => Ok(Put::Written),
            Some(kept) if kept.refresh.as_ref() != Some(posted) => Ok(Put::NotOurs),
            _ => Err(RefreshError::CannotSave("it did not arrive in the store".into())),
        }
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

/// By so much may a new token be longer than the old one.
const ROOM: usize = 16;

fn refused(error: &WriteError) -> RefreshError {
    match error {
        WriteError::NotOurs(why) => RefreshError::NotOurs(*why),
        WriteError::Failed(_) | WriteError::Unknown => RefreshError::CannotSave(error.to_string()),
    }
}

/// What became of a pair that was to be put into the store.
enum Put {
    /// It is there.
    Written,
    /// The store holds another login by now, and keeps it.
    NotOurs,
}

fn failed(what: String, retry_after: Option<SignedDuration>) -> RefreshError {
    RefreshError::Failed { what, retry_after }
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
