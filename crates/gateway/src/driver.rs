//! What happens aside from requests: logins are read anew and renewed, usage is asked for. No request waits here, but
//! for a renewal that nothing else can stand in for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Action, Observation, Policy, Poll, Renewal};
use tokio::task::JoinSet;

use crate::config::{Config, TokenRefresh};
use crate::credential::{Credential, CredentialError};
use crate::delegate::{Claude, PATIENCE};
use crate::devices::{self, Devices};
use crate::keeper::Keeper;
use crate::lock::LockError;
use crate::ports::{Network, Upstream, UpstreamProxy};
use crate::profile::Profile;
use crate::reads::Why;
use crate::refresh::{Owned, RefreshError, Renewed, Renewer};
use crate::roster::{NotRenewable, Renewable, Roster};
use crate::scheduler::Scheduler;
use crate::settings::{Look, Settings};
use crate::usage;

/// The longest nap. Timers stand still while a laptop sleeps, so the clock is asked again this often.
const NAP: Duration = Duration::from_secs(10);
/// The shortest nap.
const LEAST_NAP: Duration = Duration::from_millis(50);
/// By so much must the clock be ahead of a nap before it was more than a nap.
const JUMP: SignedDuration = SignedDuration::from_secs(5);
/// How often Claude Code is asked to look after a login, and how far apart.
const ASKED: usize = 4;
const BETWEEN_ASKING: Duration = Duration::from_secs(1);
/// How often saving is tried before the router stops without it.
const LAST_SAVES: usize = 10;
const BETWEEN_LAST_SAVES: Duration = Duration::from_millis(500);
/// How soon a driver that failed begins anew.
const AFTER_A_FAILURE: Duration = Duration::from_secs(5);
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
    /// The proxy that both go through.
    pub upstream_proxy: UpstreamProxy,
    /// The settings.
    pub settings: Arc<Settings>,
    /// The owner's devices, the first of which has the settings' key.
    pub devices: Arc<Devices>,
    /// Has the store know what the pool knows.
    pub keeper: Keeper,
    /// The owner's home directory.
    pub home: PathBuf,
    /// Where usage is asked for.
    pub origin: Uri,
    /// Renews logins.
    pub renewer: Renewer,
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

/// What the settings want of the pool as a whole.
pub fn policy(config: &Config) -> Policy {
    Policy {
        usage_interval: SignedDuration::from_secs(config.usage_poll_s.into()),
        renews: config.token_refresh != TokenRefresh::Nobody,
        strategy: config.routing,
        ..Policy::default()
    }
}

impl Driver {
    /// Looks at the logins and does what is due, until it is dropped. Renewals that it began go on without it. A fault
    /// of ours in it is told once, and does not end it.
    pub async fn run(self) {
        self.renewer.ledger.prune(self.scheduler.now());
        tokio::join!(self.keeper.clone().run(), self.drive());
    }

    /// Puts in force what does not follow from the settings by itself.
    pub fn apply_settings(&self) {
        let config = self.settings.now();
        self.devices.rekey_first(&config.router_key);
        self.scheduler.change(|pool, _| pool.set_policy(policy(&config)));
        if self.upstream_proxy.set(config.proxy.clone()) {
            self.network.drop_connections();
        }
    }

    /// Looks whether another hand changed the settings, or mended the list of devices.
    pub async fn look_at_files(&self) {
        let (settings, devices) = (Arc::clone(&self.settings), Arc::clone(&self.devices));
        // Together: a limit hurries the driver, and each thread that wakes takes time from the request that moves on.
        let look = move || (settings.look(), devices.look());
        let Ok((settings, devices)) = tokio::task::spawn_blocking(look).await else {
            return;
        };
        match settings {
            Look::Changed => {
                tracing::info!("the settings have changed, and are in force");
                self.apply_settings();
            }
            Look::Refused(why) => tracing::warn!("{why}; the settings from before stay in force"),
            Look::Same => {}
        }
        match devices {
            devices::Look::Mended => tracing::info!("the list of devices was mended; they are let in again"),
            devices::Look::Damaged(why) => tracing::error!("{why}"),
            devices::Look::Same => {}
        }
    }

    async fn drive(&self) {
        let mut told = false;
        loop {
            // Dropped with this future, as an abort drops it.
            let mut rounds = JoinSet::new();
            rounds.spawn(self.clone().rounds());
            rounds.join_next().await;
            if !std::mem::replace(&mut told, true) {
                tracing::error!(
                    "a fault in the upkeep of logins; it begins anew, please report what was printed before"
                );
            }
            tokio::time::sleep(AFTER_A_FAILURE).await;
        }
    }

    async fn rounds(self) {
        loop {
            let (wall, timer) = (self.scheduler.now(), tokio::time::Instant::now());
            self.save_waiting(false).await;
            self.look_at_files().await;
            let again = self.roster.scan().await;
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
                () = tokio::time::sleep(self.nap(again)) => {}
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
        if !self.roster.waiting().is_empty() {
            // It ends with us otherwise, so its owner may be asked.
            self.renewer.store.forget_refusals();
        }
        for _ in 0..LAST_SAVES {
            if self.save_waiting(true).await.is_empty() {
                return;
            }
            tokio::time::sleep(BETWEEN_LAST_SAVES).await;
        }
        for profile in self.save_waiting(true).await {
            tracing::error!(
                "{}: the renewed login could not be saved, and ends with this process; log in again with `claude`",
                profile.dir.display()
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

    /// How long to nap; a login that could not be read is looked at `again` then.
    fn nap(&self, again: Option<Timestamp>) -> Duration {
        let due = [self.scheduler.next_wakeup(), again].into_iter().flatten().min();
        match due.map(|at| at.duration_since(self.scheduler.now())) {
            Some(wait) if wait > SignedDuration::ZERO => wait.unsigned_abs().clamp(LEAST_NAP, NAP),
            Some(_) => LEAST_NAP,
            None => NAP,
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
        let end = End::new(&self.scheduler, &id, Observation::Polled(Poll::Failed));
        tokio::spawn(async move {
            let (poll, windows) = usage::poll(calls, &origin, &access, scheduler.now()).await;
            if !windows.is_empty() {
                scheduler.observe(&id, Observation::Reading(windows));
            }
            end.with(Observation::Polled(poll));
        });
    }

    /// Renews one seat's login, and tells the pool how it went.
    async fn renew(self, id: AccountId) {
        let end = End::new(&self.scheduler, &id, Observation::Renewed(Renewal::Failed(None)));
        let label = self.roster.label(&id);
        let renewal = match self.roster.renewable(&id) {
            Err(NotRenewable::Gone) => Renewal::Busy,
            Err(NotRenewable::Hidden) => Renewal::Hidden,
            Err(NotRenewable::Unproven) => Renewal::Unproven,
            Ok(login) => {
                let profile = login.profile.clone();
                match self.renew_one(&label, login).await {
                    Renewal::Done => Renewal::Done,
                    // Whatever ails the router's own login, the one that serves does not wait for it.
                    ails => match self.roster.serving(&id) {
                        Ok(serving) if serving.profile != profile => self.renew_one(&label, serving).await,
                        _ => ails,
                    },
                }
            }
        };
        // The new login must be known before those who wait are told.
        self.roster.scan().await;
        end.with(Observation::Renewed(renewal));
    }

    async fn renew_one(&self, label: &str, login: Renewable) -> Renewal {
        let _renewing = self.roster.renewing(&login.profile);
        match self.settings.now().token_refresh {
            TokenRefresh::Router => self.renew_ourselves(label, login).await,
            TokenRefresh::Delegate => self.hand_over(&login.profile, &login).await,
            TokenRefresh::Nobody => Renewal::Busy, // the pool asks for none
        }
    }

    async fn renew_ourselves(&self, label: &str, login: Renewable) -> Renewal {
        // A pair that waits to be saved comes first: the store's old one is spent.
        let waiting = self.save_waiting(false).await;
        if login.homes().any(|home| waiting.contains(home)) {
            return Renewal::CannotSave;
        }
        let renewed = self
            .renewer
            .renew(&login.profile, &login.copies, login.refused.as_ref());
        match renewed.await {
            Ok(renewed) => {
                if matches!(renewed, Renewed::Saved) {
                    tracing::info!("`{label}`: the login was renewed");
                }
                self.keep_unsaved(renewed);
                Renewal::Done
            }
            Err(RefreshError::Copy { copy, source }) => {
                let label = format!("{label}` in `{}", copy.dir.display());
                self.not_renewed(&label, &copy, &login, *source).await
            }
            Err(error) => self.not_renewed(label, &login.profile, &login, error).await,
        }
    }

    /// What is done where `login` was not renewed for what was met in that `home` of it.
    async fn not_renewed(&self, label: &str, home: &Profile, login: &Renewable, error: RefreshError) -> Renewal {
        match error {
            RefreshError::Lock(error @ (LockError::Denied { .. } | LockError::Foreign(_))) => {
                tracing::warn!("`{label}`: {error}");
                Renewal::CannotLock
            }
            RefreshError::Lock(error) => {
                tracing::debug!("`{label}`: {error}");
                Renewal::Busy
            }
            RefreshError::NotOurs(why) => {
                tracing::info!("`{label}`: Claude Code is asked to renew its login: {why}");
                self.hand_over(home, login).await
            }
            RefreshError::Unreadable(error @ CredentialError::Keychain(_)) => {
                tracing::debug!("`{label}`: {error}");
                self.roster.unread(home, &error);
                Renewal::Unreachable
            }
            error => {
                tracing::warn!("`{label}`: {error}");
                match error {
                    RefreshError::Unreachable(_) => Renewal::Unreachable,
                    RefreshError::CannotSave(_) => Renewal::CannotSave,
                    RefreshError::Failed { retry_after, .. } => Renewal::Failed(retry_after),
                    RefreshError::Rejected | RefreshError::NoRefreshToken => Renewal::Rejected,
                    RefreshError::Uncertain => self.ask_once_expired(home, login).await,
                    RefreshError::Unreadable(CredentialError::Unreadable(_)) => Renewal::Failed(None),
                    RefreshError::Unreadable(_)
                    | RefreshError::Lock(_)
                    | RefreshError::NotOurs(_)
                    | RefreshError::Copy { .. } => Renewal::Busy,
                }
            }
        }
    }

    fn keep_unsaved(&self, renewed: Renewed) {
        if let Renewed::Unsaved(unsaved) = renewed {
            for (profile, unsaved) in unsaved {
                self.roster.keep(profile, unsaved);
            }
        }
    }

    /// A login that may be dead is Claude Code's to try, once its access token has ended.
    async fn ask_once_expired(&self, home: &Profile, login: &Renewable) -> Renewal {
        let usable = |login: &Credential| login.token().is_usable(self.scheduler.now());
        let before = self.renewer.owned(home).await;
        let expired = before.as_ref().is_some_and(|(login, _)| !usable(login));
        match expired && self.ask_claude(home, usable).await {
            true => {
                self.pass_on(home, login, before).await;
                Renewal::Done
            }
            false => Renewal::Uncertain,
        }
    }

    async fn hand_over(&self, home: &Profile, login: &Renewable) -> Renewal {
        let before = self.renewer.owned(home).await;
        let access = before.as_ref().map(|(login, _)| &login.access);
        if !self.ask_claude(home, |login| Some(&login.access) != access).await {
            return Renewal::Failed(None);
        }
        self.pass_on(home, login, before).await;
        Renewal::Done
    }

    /// Claude Code renews the login of the directory that it is started for, and of no copy.
    async fn pass_on(&self, home: &Profile, login: &Renewable, before: Option<Owned>) {
        if let Some(before) = before {
            let homes: Vec<Profile> = login.homes().cloned().collect();
            let passed = self.renewer.pass_on(home, &homes, &before).await;
            self.keep_unsaved(passed);
        }
    }

    /// Asks Claude Code to look after `profile`'s login, until that is as wanted. Returns whether it is.
    async fn ask_claude(&self, profile: &Profile, wanted: impl Fn(&Credential) -> bool) -> bool {
        let configured = self.settings.now().claude_path.clone();
        let Some(claude) = Claude::find(configured.as_deref(), &self.home) else {
            tracing::warn!(
                "Claude Code was not found on this machine, so no login can be handed over to it; `claudePath` names it"
            );
            return false;
        };
        // It often ends before it renews: one run in four was seen to look and leave.
        for _ in 0..ASKED {
            // One that waits for a person keeps its turn for as long as that takes.
            let Ok(turn) = tokio::time::timeout(PATIENCE, Arc::clone(&self.shared.asking).lock_owned()).await else {
                tracing::warn!("{}: Claude Code is busy with another login", profile.dir.display());
                return false;
            };
            let (store, asked) = (Arc::clone(&self.renewer.store), profile.clone());
            let config_dir = tokio::task::spawn_blocking(move || store.config_dir(&asked)).await;
            claude.ask(profile, config_dir.unwrap_or_default(), turn).await;
            let login = self.read(profile).await;
            if login.is_some_and(|login| wanted(&login)) {
                return true;
            }
            tokio::time::sleep(BETWEEN_ASKING).await;
        }
        false
    }

    async fn read(&self, profile: &Profile) -> Option<Credential> {
        let (renewer, profile) = (self.renewer.clone(), profile.clone());
        let read = move || crate::credential::read(&*renewer.store, &profile, &renewer.asking(Why::Renewal)).ok();
        tokio::task::spawn_blocking(read).await.ok().flatten()
    }

    /// Tries again to save pairs that could not be saved, the `last` time each of them. Returns the profiles whose
    /// pairs still wait.
    async fn save_waiting(&self, last: bool) -> Vec<Profile> {
        for (profile, unsaved) in self.roster.to_offer(last) {
            match self.renewer.save(&profile, &unsaved).await {
                Ok(()) => {
                    tracing::info!("{}: the renewed login is saved now", profile.dir.display());
                    self.roster.saved(&profile, &unsaved);
                }
                Err(error) => tracing::debug!("{}: {error}", profile.dir.display()),
            }
        }
        self.roster.waiting().into_iter().map(|(profile, _)| profile).collect()
    }
}

/// Tells the pool how something that it awaits ended, even where a fault of ours is the end.
struct End {
    scheduler: Arc<Scheduler>,
    id: AccountId,
    observation: Option<Observation>,
}

impl End {
    /// It ends with that `observation`, unless it is told otherwise.
    fn new(scheduler: &Arc<Scheduler>, id: &AccountId, observation: Observation) -> Self {
        Self {
            scheduler: Arc::clone(scheduler),
            id: id.clone(),
            observation: Some(observation),
        }
    }

    fn with(mut self, observation: Observation) {
        self.observation = Some(observation);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(observation) = self.observation.take() {
            self.scheduler.observe(&self.id, observation);
        }
    }
}
