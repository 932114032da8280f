//! What happens aside from requests: logins are read anew and renewed, usage is asked for. No request waits here, but
//! for a renewal that nothing else can stand in for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Action, Observation, Poll, Renewal};
use tokio::task::JoinSet;

use crate::config::TokenRefresh;
use crate::delegate::Claude;
use crate::lock::LockError;
use crate::ports::{Network, Upstream};
use crate::profile::Profile;
use crate::refresh::{RefreshError, Renewed, Renewer};
use crate::roster::Roster;
use crate::scheduler::Scheduler;
use crate::usage;

/// The longest nap. Timers stand still while a laptop sleeps, so the clock is asked again this often.
const NAP: Duration = Duration::from_secs(10);
/// The nap while a login file cannot be read: it is perhaps being written.
const SHORT_NAP: Duration = Duration::from_millis(500);
/// The shortest nap.
const LEAST_NAP: Duration = Duration::from_millis(50);
/// By so much must the clock be ahead of a nap before it was more than a nap.
const JUMP: SignedDuration = SignedDuration::from_secs(5);
/// How often Claude Code is asked to look after a login, and how far apart.
const ASKED: usize = 4;
const BETWEEN_ASKING: Duration = Duration::from_secs(1);
/// How often saving is tried before the router stops without it.
const LAST_SAVES: usize = 10;
/// How long a renewal under way may take to end when the router stops.
const LAST_RENEWAL: Duration = Duration::from_secs(40);

/// Does what is due, for ever.
#[derive(Clone)]
pub struct Driver {
    /// The pool.
    pub scheduler: Arc<Scheduler>,
    /// The seats.
    pub roster: Arc<Roster>,
    /// The network of the request path, whose connections do not survive a sleep.
    pub network: Arc<Network>,
    /// The network of our own calls.
    pub calls: Upstream,
    /// Where usage is asked for.
    pub origin: Uri,
    /// Renews logins.
    pub renewer: Renewer,
    /// Who renews.
    pub who: TokenRefresh,
    /// Claude Code, if it is on this machine.
    pub claude: Option<Claude>,
    /// What renewals share.
    pub shared: Arc<Shared>,
}

/// What renewals share.
#[derive(Default)]
pub struct Shared {
    /// The renewals under way. They outlive the driver, so that what was begun is saved.
    renewing: Mutex<JoinSet<()>>,
    /// Claude Code is asked for one login at a time.
    asking: Arc<tokio::sync::Mutex<()>>,
}

impl Driver {
    /// Looks at the logins and does what is due, until it is dropped. Renewals that it began go on without it.
    pub async fn run(self) {
        self.renewer.ledger.prune(self.scheduler.now());
        loop {
            let (wall, timer) = (self.scheduler.now(), tokio::time::Instant::now());
            self.save_waiting().await;
            let unread = self.roster.scan().await;
            for action in self.scheduler.due() {
                match action {
                    Action::PollUsage(id) => self.poll_usage(id),
                    Action::Renew(id) => {
                        let mut renewing = self.renewing();
                        while renewing.try_join_next().is_some() {}
                        renewing.spawn(self.clone().renew(id));
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.nap(unread)) => {}
                () = self.scheduler.hurried() => {}
            }
            self.notice_a_wake(wall, timer.elapsed());
        }
    }

    /// Waits for renewals under way and their saves, when the router stops.
    pub async fn finish(&self) {
        let mut renewing = std::mem::take(&mut *self.renewing());
        let ended = async { while renewing.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_RENEWAL, ended).await.is_err() {
            tracing::warn!("a renewal did not end within {} s and was left", LAST_RENEWAL.as_secs());
        }
        for _ in 0..LAST_SAVES {
            if self.save_waiting().await.is_empty() {
                return;
            }
            tokio::time::sleep(SHORT_NAP).await;
        }
        for profile in self.save_waiting().await {
            tracing::error!(
                "{}: the renewed login could not be saved, and ends with this process; log in again with `claude`",
                profile.credentials().display()
            );
        }
    }

    /// Ends renewals where they stand, as the end of the process would.
    pub fn abort(&self) {
        self.renewing().abort_all();
    }

    fn renewing(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.shared.renewing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nap(&self, unread: bool) -> Duration {
        let longest = if unread { SHORT_NAP } else { NAP };
        let due = self
            .scheduler
            .next_wakeup()
            .map(|at| at.duration_since(self.scheduler.now()));
        match due {
            Some(wait) if wait > SignedDuration::ZERO => wait.unsigned_abs().clamp(LEAST_NAP, longest),
            Some(_) => LEAST_NAP,
            None => longest,
        }
    }

    /// A nap in which the clock went on much longer than the timer was a sleep of the machine, or the clock was set.
    fn notice_a_wake(&self, since: Timestamp, timer: Duration) {
        let now = self.scheduler.now();
        let timer = SignedDuration::try_from(timer).unwrap_or(SignedDuration::MAX);
        let jump = now.duration_since(since) - timer;
        if jump.abs() > JUMP {
            tracing::info!(
                "the clock jumped by {} s, as it does when the machine slept; connections are made anew",
                jump.as_secs()
            );
            self.stir();
        }
    }

    /// The machine woke, or its network is another one: connections are made anew, and everything is looked at again.
    pub fn stir(&self) {
        self.renewer.grace.begin(self.scheduler.now());
        self.network.drop_connections();
        self.scheduler.woke();
    }

    fn poll_usage(&self, id: AccountId) {
        let Some(access) = self.roster.access(&id) else {
            return self.scheduler.observe(&id, Observation::Polled(Poll::Failed));
        };
        let (scheduler, calls, origin) = (Arc::clone(&self.scheduler), self.calls.clone(), self.origin.clone());
        tokio::spawn(async move {
            let (poll, windows) = usage::poll(calls, &origin, &access, scheduler.now()).await;
            if !windows.is_empty() {
                scheduler.observe(&id, Observation::Reading(windows));
            }
            scheduler.observe(&id, Observation::Polled(poll));
        });
    }

    /// Renews one seat's login, and tells the pool how it went.
    async fn renew(self, id: AccountId) {
        let label = self.roster.label(&id);
        let renewal = match self.roster.renewable(&id) {
            None => Renewal::Busy, // it went away this moment
            Some((profile, refused)) => match self.who {
                TokenRefresh::Router => self.renew_ourselves(&label, profile, refused).await,
                TokenRefresh::Delegate => self.hand_over(&id, &profile).await,
                TokenRefresh::Nobody => Renewal::Busy, // the pool asks for none
            },
        };
        // The new login must be known before those who wait are told.
        self.roster.scan().await;
        self.scheduler.observe(&id, Observation::Renewed(renewal));
    }

    async fn renew_ourselves(
        &self,
        label: &str,
        profile: Profile,
        refused: Option<crate::credential::Secret>,
    ) -> Renewal {
        // A pair that waits to be saved comes first: the store's old one is spent.
        if self.save_waiting().await.contains(&profile) {
            return Renewal::CannotSave;
        }
        match self.renewer.renew(&profile, refused.as_ref()).await {
            Ok(Renewed::Adopted) => Renewal::Done,
            Ok(Renewed::Saved) => {
                tracing::info!("`{label}`: the login was renewed");
                Renewal::Done
            }
            Ok(Renewed::Unsaved(unsaved)) => {
                self.roster.keep(profile, *unsaved);
                Renewal::Done
            }
            Err(RefreshError::Lock(error @ (LockError::Denied { .. } | LockError::Foreign(_)))) => {
                tracing::warn!("`{label}`: {error}");
                Renewal::CannotLock
            }
            Err(RefreshError::Lock(error)) => {
                tracing::debug!("`{label}`: {error}");
                Renewal::Busy
            }
            Err(error) => {
                tracing::warn!("`{label}`: {error}");
                match error {
                    RefreshError::Unreachable(_) => Renewal::Unreachable,
                    RefreshError::CannotSave(_) => Renewal::CannotSave,
                    RefreshError::Failed { retry_after, .. } => Renewal::Failed(retry_after),
                    RefreshError::Rejected | RefreshError::NoRefreshToken => Renewal::Rejected,
                    RefreshError::Uncertain => self.ask_once_expired(&profile).await,
                    RefreshError::Unreadable(_) | RefreshError::Lock(_) => Renewal::Busy,
                }
            }
        }
    }

    /// A login that may be dead is Claude Code's to try, once its access token has ended.
    async fn ask_once_expired(&self, profile: &Profile) -> Renewal {
        let expired = |login: crate::credential::Credential| !login.token().is_usable(self.scheduler.now());
        if self.read(profile).await.is_some_and(expired) && self.ask_claude(profile).await {
            return Renewal::Done;
        }
        Renewal::Uncertain
    }

    async fn hand_over(&self, id: &AccountId, profile: &Profile) -> Renewal {
        let before = self.roster.access(id);
        match self.ask_claude(profile).await && self.read(profile).await.map(|login| login.access) != before {
            true => Renewal::Done,
            false => Renewal::Failed(None),
        }
    }

    /// Asks Claude Code to look after `profile`'s login. Returns whether the login is usable afterwards.
    async fn ask_claude(&self, profile: &Profile) -> bool {
        let Some(claude) = &self.claude else {
            tracing::warn!(
                "Claude Code was not found on this machine, so no login can be handed over to it; `claudePath` names it"
            );
            return false;
        };
        // It often ends before it renews: one run in four was seen to look and leave.
        for _ in 0..ASKED {
            let turn = Arc::clone(&self.shared.asking).lock_owned().await;
            claude.ask(profile, turn).await;
            let login = self.read(profile).await;
            if login.is_some_and(|login| login.token().is_usable(self.scheduler.now())) {
                return true;
            }
            tokio::time::sleep(BETWEEN_ASKING).await;
        }
        false
    }

    async fn read(&self, profile: &Profile) -> Option<crate::credential::Credential> {
        let (store, profile) = (Arc::clone(&self.renewer.store), profile.clone());
        let read = move || crate::credential::read(&*store, &profile).ok();
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// Tries again to save pairs that could not be saved. Returns the profiles whose pairs still wait.
    async fn save_waiting(&self) -> Vec<Profile> {
        let mut still = Vec::new();
        for (profile, unsaved) in self.roster.waiting() {
            match self.renewer.save(&profile, &unsaved).await {
                Ok(()) => {
                    tracing::info!("{}: the renewed login is saved now", profile.credentials().display());
                    self.roster.saved(&profile);
                }
                Err(error) => {
                    tracing::debug!("{}: {error}", profile.credentials().display());
                    still.push(profile);
                }
            }
        }
        still
    }
}
