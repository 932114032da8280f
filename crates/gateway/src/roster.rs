//! The seats there are: their logins held in memory, read anew when their files change.
//!
//! A seat is an account within an organisation. Several directories may hold logins of one seat; it counts once, one
//! login is used and the others stand by. A directory that does not prove whose it is stays a seat of its own.

mod group;
mod reading;
mod refusals;
mod renewal;
mod seat;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use pool::{AccountId, Observation, Token};

use crate::config::TokenRefresh;
use crate::credential::{CredentialError, Secret, Store};
use crate::ledger::Ledger;
use crate::paths::Paths;
use crate::profile::Profile;
use crate::reads::{Reads, Why};
use crate::scheduler::Scheduler;
use crate::settings::Settings;

use group::{Candidate, Found, rank};
pub use reading::Unread;
use reading::{LATER, Reading};
use renewal::Waiting;
pub use renewal::{NotRenewable, Renewable, Renewing};
pub use seat::{NotOne, Seat};

/// The seats, and the reading of their directories.
pub struct Roster {
    settings: Arc<Settings>,
    paths: Paths,
    scheduler: Arc<Scheduler>,
    store: Arc<dyn Store>,
    ledger: Ledger,
    reads: Arc<Reads>,
    /// New pairs that wait to be saved, by their profile.
    unsaved: Mutex<BTreeMap<Profile, Waiting>>,
    readings: Mutex<BTreeMap<Profile, Reading>>,
    seats: Mutex<BTreeMap<AccountId, Seat>>,
    /// Profiles that are read again whether they changed or not, and why.
    wanted: Mutex<BTreeMap<Profile, Why>>,
    /// Profiles whose login is being renewed: that its token was sent means nothing yet.
    renewing: Mutex<BTreeSet<Profile>>,
    /// Settings of which it was told that they name several seats.
    told: Mutex<BTreeSet<usize>>,
    /// One scan at a time.
    scanning: tokio::sync::Mutex<()>,
}

impl Roster {
    /// An empty roster; [`Roster::scan`] fills it.
    pub fn new(
        settings: Arc<Settings>,
        paths: Paths,
        scheduler: Arc<Scheduler>,
        store: Arc<dyn Store>,
        ledger: Ledger,
        reads: Arc<Reads>,
    ) -> Self {
        Self {
            settings,
            paths,
            scheduler,
            store,
            ledger,
            reads,
            unsaved: Mutex::default(),
            readings: Mutex::default(),
            seats: Mutex::default(),
            wanted: Mutex::default(),
            renewing: Mutex::default(),
            told: Mutex::default(),
            scanning: tokio::sync::Mutex::default(),
        }
    }

    /// The token to send a request on that seat with, if it has one.
    pub fn access(&self, id: &AccountId) -> Option<Secret> {
        held(&self.seats)
            .get(id)?
            .login
            .as_ref()
            .map(|(_, login)| login.access.clone())
    }

    /// The seat's short name; its id if it is gone.
    pub fn label(&self, id: &AccountId) -> String {
        held(&self.seats)
            .get(id)
            .map_or_else(|| id.to_string(), |seat| seat.label.clone())
    }

    /// The seats as they are now.
    pub fn seats(&self) -> BTreeMap<AccountId, Seat> {
        held(&self.seats).clone()
    }

    /// The seat that goes by `name`: its id, its label, its e-mail address or its organisation.
    ///
    /// # Errors
    /// If none does, or several do.
    pub fn named(&self, name: &str) -> Result<AccountId, NotOne> {
        let seats = held(&self.seats);
        let goes_by = |(id, seat): &(&AccountId, &Seat)| seat.label == name || seat.is_called(id, name);
        let mut found = seats.iter().filter(goes_by).map(|(id, _)| id);
        match (found.next(), found.next()) {
            (Some(id), None) => Ok(id.clone()),
            (None, _) => Err(NotOne::None),
            (Some(_), Some(_)) => Err(NotOne::Several),
        }
    }

    /// The seats that an entry of the settings' `accounts` is for.
    pub fn meant_by(&self, entry: &serde_json::Value) -> Vec<AccountId> {
        let Some(name) = entry.get("seat").and_then(serde_json::Value::as_str) else {
            return Vec::new();
        };
        let seats = held(&self.seats);
        let meant = seats.iter().filter(|(id, seat)| seat.is_called(id, name));
        meant.map(|(id, _)| id.clone()).collect()
    }

    /// Reads what changed and tells the pool. Returns when another look is wanted, because something could not be read.
    pub async fn scan(self: &Arc<Self>) -> Option<Timestamp> {
        let _one = self.scanning.lock().await;
        let roster = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let known = held(&roster.readings).clone();
            roster.read_changed(known)
        });
        // If it does not end well, the runtime is stopping.
        let readings = read.await.ok()?;
        let again = readings.values().filter_map(|reading| reading.again_at).min();
        let mut known = held(&self.readings);
        *known = readings;
        self.take(self.group(&known));
        again
    }

    /// Notes that somebody else could not read the login of `profile`.
    pub fn unread(&self, profile: &Profile, error: &CredentialError) {
        let mut known = held(&self.readings);
        if let Some(reading) = known.get_mut(profile) {
            reading.trouble = Some(Unread::from(error));
            reading.failures = reading.failures.max(1);
            reading.again_at = reading.again_at.or(Some(self.scheduler.now() + LATER));
        }
        self.take(self.group(&known));
    }

    /// Looks at every login anew: its owner asks.
    pub async fn look_again(self: &Arc<Self>) {
        self.store.forget_refusals();
        let profiles: Vec<Profile> = held(&self.readings).keys().cloned().collect();
        held(&self.wanted).extend(profiles.into_iter().map(|profile| (profile, Why::Asked)));
        self.scan().await;
    }

    /// Notes that Anthropic refused `token` on that seat, and looks for another one. Returns whether there is one.
    /// A request waits for this, so a store that may keep it waiting is left to the next scan, which begins at once.
    pub async fn refused(self: &Arc<Self>, id: &AccountId, token: &Secret) -> bool {
        let now = self.scheduler.now();
        if let Some(seat) = held(&self.seats).get_mut(id) {
            seat.refused.note(token, now);
            let profiles = seat.profiles.iter().cloned();
            held(&self.wanted).extend(profiles.map(|profile| (profile, Why::Refused)));
        }
        if self.store.may_wait() {
            let known = held(&self.readings);
            self.take(self.group(&known));
            drop(known);
            self.scheduler.hurry();
        } else {
            self.scan().await;
        }
        let seats = held(&self.seats);
        let login = seats.get(id).and_then(|seat| Some((seat, &seat.login.as_ref()?.1)));
        login.is_some_and(|(seat, login)| seat.refused.of(&login.access, now).is_none())
    }

    /// Puts the seats found in the place of those known, and tells the pool what changed.
    fn take(&self, found: BTreeMap<AccountId, Found>) {
        let (now, config) = (self.scheduler.now(), self.settings.now());
        let mut observations = Vec::new();
        let mut seats = held(&self.seats);
        for id in seats.keys().filter(|id| !found.contains_key(id)) {
            tracing::info!(account.id = %id, "a seat's login is gone from this machine");
            observations.push((id.clone(), Observation::Gone));
        }
        let mut next = BTreeMap::new();
        for (id, (mut seat, logins)) in found {
            let known = seats.get(&id);
            if known.is_none() {
                tracing::info!(account.id = %id, "found the seat `{}`", seat.label);
            }
            seat.refused = known.map(|known| known.refused.clone()).unwrap_or_default();
            let token = self.take_logins(&mut seat, &logins, now);
            seat.renews = config.token_refresh != TokenRefresh::Nobody;
            observations.push((id.clone(), Observation::Discovered(seat::wishes(&config, &id, &seat))));
            if known.and_then(Seat::tokens) != seat.tokens() {
                observations.push((id.clone(), Observation::LoginChanged));
            }
            observations.push((id.clone(), Observation::Token(token)));
            next.insert(id, seat);
        }
        *seats = next;
        drop(seats);
        for (id, observation) in observations {
            self.scheduler.observe(&id, observation);
        }
    }

    /// Takes the best of the logins that were read, and says what its token is to the pool.
    fn take_logins(&self, seat: &mut Seat, read: &[Candidate], now: Timestamp) -> Token {
        let logins = self.newest(&seat.profiles, read);
        seat.refused
            .retain(|token| logins.iter().any(|login| login.credential.access == *token));
        let best = logins.iter().max_by_key(|login| rank(seat, login, now));
        let own = logins
            .iter()
            .filter(|login| login.profile.is_ours && !login.spent && login.credential.refresh.is_some())
            .max_by_key(|login| rank(seat, login, now));
        let pair = |login: &Candidate| (login.profile.clone(), login.credential.clone());
        seat.own = own.filter(|_| best.is_some_and(|best| !best.profile.is_ours)).map(pair);
        seat.not_ours = best.and_then(|login| login.not_ours);
        seat.login = best.map(pair);
        let Some((profile, login)) = &seat.login else {
            return Token::Missing;
        };
        seat.unsaved = self.waits(profile);
        seat.plan.clone_from(&login.plan);
        match seat.refused.of(&login.access, now) {
            Some(refusal) => Token::Refused {
                since: refusal.since,
                expires_at: login.expires_at,
            },
            None => login.token(),
        }
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
