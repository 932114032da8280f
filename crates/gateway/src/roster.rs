//! The seats there are: their logins held in memory, read anew when their files change.
//!
//! A seat is an account within an organisation. Several directories may hold logins of one seat; it counts once, one
//! login is used and the others stand by. A directory that does not prove whose it is stays a seat of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Observation, Token, Utilization, Wishes};

use crate::config::{self, Config, SeatWishes, TokenRefresh};
use crate::credential::{Credential, CredentialError, Document, KeychainError, Mark, NotOurs, Secret, Store};
use crate::file;
use crate::ledger::Ledger;
use crate::paths::Paths;
use crate::profile::{self, Identity, Profile};
use crate::reads::{Asking, Reads, Why};
use crate::refresh::{self, Unsaved};
use crate::scheduler::Scheduler;
use crate::settings::Settings;

/// So many failed reads in a row are worth telling.
const FAILURES_TOLD: u32 = 3;
/// How soon a login that could not be read is tried again, and so many times: it is perhaps being written.
const SOON: SignedDuration = SignedDuration::from_millis(500);
const QUICK_LOOKS: u32 = 30;
/// From then on the wait doubles, from here to there; so it does at once where a look costs more.
const LATER: SignedDuration = SignedDuration::from_secs(10);
const MUCH_LATER: SignedDuration = SignedDuration::from_mins(5);
/// How far apart a pair is offered to a store whose writes may ask a person.
const BETWEEN_OFFERS: SignedDuration = SignedDuration::from_secs(60);

/// A seat as people know it, with what requests are sent with.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Its short name: from the settings, else the organisation, else the directory. Never an e-mail address.
    pub label: String,
    /// The name that its owner gave it.
    pub named: Option<String>,
    /// The owner's e-mail address, for the owner's own screens.
    pub email: Option<String>,
    /// The organisation's name.
    pub organization: Option<String>,
    /// The plan.
    pub plan: Option<String>,
    /// The directories that hold a login of this seat.
    pub dirs: Vec<PathBuf>,
    profiles: Vec<Profile>,
    /// Why a stored login of it cannot be read; the last good token is used while it lasts.
    pub unreadable: Option<Unread>,
    /// Why only Claude Code can save its login.
    pub not_ours: Option<NotOurs>,
    /// Whether its login is renewed but could not be saved yet.
    pub unsaved: bool,
    /// Whether logins are renewed at all.
    pub renews: bool,
    /// The login that requests are sent with, and where it is kept.
    login: Option<(Profile, Credential)>,
    /// The router's own login where another one serves: it ended unnoticed, while no router ran.
    own: Option<(Profile, Credential)>,
    /// The tokens that Anthropic refused.
    refused: Vec<Refusal>,
}

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

/// A token that Anthropic refused. It is not used again, but for a try after five minutes, then at growing gaps: a
/// refusal may have been the service's own trouble.
#[derive(Clone, Debug)]
struct Refusal {
    token: Secret,
    since: Timestamp,
    /// Until when it is not used.
    until: Timestamp,
    times: u32,
}

/// The first wait before a refused token is tried once more, and the longest.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(300);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(1_800);

/// Why a name does not lead to one seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOne {
    /// No seat goes by it.
    None,
    /// More than one does.
    Several,
}

impl Seat {
    /// Whether `name` is its id, its e-mail address or its organisation.
    fn is_called(&self, id: &AccountId, name: &str) -> bool {
        name == id.as_str()
            || self
                .email
                .as_ref()
                .is_some_and(|email| name.eq_ignore_ascii_case(email))
            || self.organization.as_deref() == Some(name)
    }

    /// The refusal of that token, while it lasts.
    fn refusal(&self, access: &Secret, now: Timestamp) -> Option<&Refusal> {
        self.refused
            .iter()
            .find(|refusal| refusal.token == *access && now < refusal.until)
    }

    /// Notes that Anthropic refused that token, unless several requests met the same refusal.
    fn refuse(&mut self, access: &Secret, now: Timestamp) {
        if self.refusal(access, now).is_some() {
            return;
        }
        let times = self
            .refused
            .iter()
            .find(|refusal| refusal.token == *access)
            .map_or(0, |known| known.times);
        self.refused.retain(|refusal| refusal.token != *access);
        let gap = (FIRST_RETRY * 2_i32.pow(times.min(8))).min(LONGEST_RETRY);
        self.refused.push(Refusal {
            token: access.clone(),
            since: now,
            until: now + gap,
            times: times + 1,
        });
    }
}

/// A directory as it was last read.
#[derive(Clone, Debug)]
struct Reading {
    mark: Mark,
    identity_mark: Option<file::Mark>,
    identity: Option<Identity>,
    credential: Option<Credential>,
    /// Whether its refresh token was sent, and is dead or may be.
    spent: bool,
    not_ours: Option<NotOurs>,
    trouble: Option<Unread>,
    failures: u32,
    /// When a failed read is tried again.
    again_at: Option<Timestamp>,
}

impl Reading {
    fn is_due(&self, now: Timestamp) -> bool {
        // One far ahead was set before the clock was.
        self.again_at.is_some_and(|at| at <= now || at > now + MUCH_LATER)
    }
}

/// A login that may be used.
#[derive(Clone, Debug)]
struct Candidate {
    profile: Profile,
    credential: Credential,
    spent: bool,
    not_ours: Option<NotOurs>,
}

/// A login to be renewed.
#[derive(Clone, Debug)]
pub struct Renewable {
    /// Where it is kept.
    pub profile: Profile,
    /// Its access token, if Anthropic refused that.
    pub refused: Option<Secret>,
    /// Whether it is the one that serves its seat.
    pub serves: bool,
}

/// A pair that waits to be saved, and when it was last offered to the store.
#[derive(Clone, Debug)]
struct Waiting {
    unsaved: Unsaved,
    offered_at: Option<Timestamp>,
}

/// A seat as it was found, with the logins of its directories.
type Found = (Seat, Vec<Candidate>);

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
        self.lock()
            .get(id)?
            .login
            .as_ref()
            .map(|(_, login)| login.access.clone())
    }

    /// The login to renew on that seat: the router's own, if there is one, else the one that serves.
    pub fn renewable(&self, id: &AccountId) -> Option<Renewable> {
        let seats = self.lock();
        let seat = seats.get(id)?;
        let (profile, login) = seat.own.as_ref().or(seat.login.as_ref())?;
        let refused = seat.refusal(&login.access, self.scheduler.now());
        Some(Renewable {
            profile: profile.clone(),
            refused: refused.map(|refusal| refusal.token.clone()),
            serves: seat.own.is_none(),
        })
    }

    /// Notes that the login of `profile` is being renewed, until the guard is dropped.
    pub fn renewing(self: &Arc<Self>, profile: &Profile) -> Renewing {
        held(&self.renewing).insert(profile.clone());
        Renewing {
            roster: Arc::clone(self),
            profile: profile.clone(),
        }
    }

    /// Keeps a pair that could not be saved, and uses it meanwhile.
    pub fn keep(&self, profile: Profile, unsaved: Unsaved) {
        let waiting = Waiting {
            unsaved,
            offered_at: None,
        };
        held(&self.unsaved).insert(profile, waiting);
    }

    /// The pairs that wait to be saved.
    pub fn waiting(&self) -> Vec<(Profile, Unsaved)> {
        let unsaved = held(&self.unsaved);
        let pair = |(profile, waiting): (&Profile, &Waiting)| (profile.clone(), waiting.unsaved.clone());
        unsaved.iter().map(pair).collect()
    }

    /// The pairs that the store may be offered now; all of them, if it is the `last` time.
    pub fn to_offer(&self, last: bool) -> Vec<(Profile, Unsaved)> {
        let now = self.scheduler.now();
        let gap = match self.store.may_wait() && !last {
            true => BETWEEN_OFFERS,
            false => SignedDuration::ZERO,
        };
        let mut offers = Vec::new();
        for (profile, waiting) in held(&self.unsaved).iter_mut() {
            if waiting.offered_at.is_none_or(|at| now.duration_since(at).abs() >= gap) {
                waiting.offered_at = Some(now);
                offers.push((profile.clone(), waiting.unsaved.clone()));
            }
        }
        offers
    }

    /// Whether a pair of that profile waits to be saved.
    pub fn waits(&self, profile: &Profile) -> bool {
        held(&self.unsaved).contains_key(profile)
    }

    /// Notes that a pair need not be kept any longer.
    pub fn saved(&self, profile: &Profile) {
        held(&self.unsaved).remove(profile);
    }

    /// The seat's short name; its id if it is gone.
    pub fn label(&self, id: &AccountId) -> String {
        self.lock()
            .get(id)
            .map_or_else(|| id.to_string(), |seat| seat.label.clone())
    }

    /// The seats as they are now.
    pub fn seats(&self) -> BTreeMap<AccountId, Seat> {
        self.lock().clone()
    }

    /// The seat that goes by `name`: its id, its label, its e-mail address or its organisation.
    ///
    /// # Errors
    /// If none does, or several do.
    pub fn named(&self, name: &str) -> Result<AccountId, NotOne> {
        let seats = self.lock();
        let goes_by = |(id, seat): &(&AccountId, &Seat)| seat.label == name || seat.is_called(id, name);
        let mut found = seats.iter().filter(goes_by).map(|(id, _)| id);
        match (found.next(), found.next()) {
            (Some(id), None) => Ok(id.clone()),
            (None, _) => Err(NotOne::None),
            (Some(_), Some(_)) => Err(NotOne::Several),
        }
    }

    /// Whether an entry of the settings' `accounts` is for that seat.
    pub fn is_meant(&self, id: &AccountId, entry: &serde_json::Value) -> bool {
        let name = entry.get("seat").and_then(serde_json::Value::as_str);
        let seats = self.lock();
        name.zip(seats.get(id))
            .is_some_and(|(name, seat)| seat.is_called(id, name))
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
        if let Some(seat) = self.lock().get_mut(id) {
            seat.refuse(token, now);
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
        let seats = self.lock();
        let login = seats.get(id).and_then(|seat| Some((seat, &seat.login.as_ref()?.1)));
        login.is_some_and(|(seat, login)| seat.refusal(&login.access, now).is_none())
    }

    /// Puts the seats found in the place of those known, and tells the pool what changed.
    fn take(&self, found: BTreeMap<AccountId, Found>) {
        let (now, config) = (self.scheduler.now(), self.settings.now());
        let mut observations = Vec::new();
        let mut seats = self.lock();
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
            let logins = self.newest(&seat.profiles, &logins);
            seat.refused
                .retain(|refusal| logins.iter().any(|login| login.credential.access == refusal.token));
            let best = logins.iter().max_by_key(|login| rank(&seat, login, now));
            let own = logins
                .iter()
                .filter(|login| login.profile.is_ours && !login.spent && login.credential.refresh.is_some())
                .max_by_key(|login| rank(&seat, login, now));
            seat.own = own
                .filter(|_| best.is_some_and(|best| !best.profile.is_ours))
                .map(|login| (login.profile.clone(), login.credential.clone()));
            seat.not_ours = best.and_then(|login| login.not_ours);
            let best = best.map(|login| (login.profile.clone(), login.credential.clone()));
            let token = best
                .as_ref()
                .map_or(Token::Missing, |(_, login)| match seat.refusal(&login.access, now) {
                    Some(refusal) => Token::Refused {
                        since: refusal.since,
                        expires_at: login.expires_at,
                    },
                    None => login.token(),
                });
            seat.login = best;
            seat.renews = config.token_refresh != TokenRefresh::Nobody;
            seat.unsaved = seat.login.as_ref().is_some_and(|(profile, _)| self.waits(profile));
            seat.plan = seat.login.as_ref().and_then(|(_, login)| login.plan.clone());
            observations.push((id.clone(), Observation::Discovered(wishes(&config, &id, &seat))));
            let before = known
                .and_then(|known| known.login.as_ref())
                .map(|(_, login)| (&login.access, &login.refresh));
            let after = seat.login.as_ref().map(|(_, login)| (&login.access, &login.refresh));
            if before != after {
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

    /// The logins as they were read, but for pairs that wait to be saved: those stand in for the login they were
    /// exchanged for, blanked or not. A login that another has put there since is newer than either.
    fn newest(&self, profiles: &[Profile], read: &[Candidate]) -> Vec<Candidate> {
        let unsaved = held(&self.unsaved);
        let newest = |profile: &Profile| {
            let login = read.iter().find(|login| login.profile == *profile);
            let kept = unsaved.get(profile).map(|waiting| &waiting.unsaved);
            let kept = kept
                .filter(|kept| login.is_none_or(|login| login.credential.refresh.as_ref() == Some(&kept.posted)))
                .map(|kept| Candidate {
                    profile: profile.clone(),
                    credential: kept.credential.clone(),
                    spent: false,
                    not_ours: None,
                });
            kept.or_else(|| login.cloned())
        };
        profiles.iter().filter_map(newest).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AccountId, Seat>> {
        held(&self.seats)
    }

    /// Reads the profiles that changed, could not be read the last time, or are wanted anew.
    fn read_changed(&self, mut known: BTreeMap<Profile, Reading>) -> BTreeMap<Profile, Reading> {
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
        let behind = |document: &Document| document.is_behind().map(CredentialError::Keychain);
        let (document, error) = match read {
            Ok(document) => {
                let error = behind(&document);
                (Some(document), error)
            }
            Err(CredentialError::LoggedOut) => (None, None),
            Err(error) => (None, Some(error)),
        };
        let login = document.as_ref().and_then(Document::credential);
        let not_ours = document.and_then(|document| refresh::admits(&*self.store, &document).err());
        let Some(error) = error else {
            return Reading {
                mark,
                identity_mark,
                identity,
                credential: login,
                spent: false,
                not_ours,
                trouble: None,
                failures: 0,
                again_at: None,
            };
        };
        if failures == FAILURES_TOLD {
            tracing::warn!(
                "{}: {error}; the last good login is used while it lasts",
                profile.dir.display()
            );
        }
        // What lies beside an item that cannot be read may be older than what is known of the item.
        let lasts = |login: &Option<Credential>| login.as_ref().map(|login| login.expires_at);
        let credential = if lasts(&login) > lasts(&known) { login } else { known };
        let quick = if self.store.may_wait() { 0 } else { QUICK_LOOKS };
        let wait = match failures.checked_sub(quick + 1) {
            None => SOON,
            Some(slow) => (LATER * 2_i32.pow(slow.min(8))).min(MUCH_LATER),
        };
        Reading {
            mark,
            identity_mark,
            identity,
            credential,
            spent: false,
            not_ours,
            trouble: Some(Unread::from(&error)),
            failures,
            again_at: Some(asking.now + wait),
        }
    }

    /// The seats that the readings give, each with its logins.
    fn group(&self, readings: &BTreeMap<Profile, Reading>) -> BTreeMap<AccountId, Found> {
        let mut seats: BTreeMap<AccountId, Found> = BTreeMap::new();
        for (profile, reading) in readings {
            let id = seat_of(profile, reading);
            let named = reading.identity.clone().unwrap_or_default();
            let (seat, logins) = seats.entry(id).or_insert_with(|| (Seat::new(profile), Vec::new()));
            seat.email = seat.email.take().or(named.email_address);
            seat.organization = seat.organization.take().or(named.organization_name);
            seat.dirs.push(profile.dir.clone());
            seat.profiles.push(profile.clone());
            logins.extend(reading.credential.clone().map(|credential| Candidate {
                profile: profile.clone(),
                credential,
                spent: reading.spent,
                not_ours: reading.not_ours,
            }));
            // With no login to go on with, the first failure is worth telling; and so is what a person must do.
            let told = reading.failures >= FAILURES_TOLD
                || reading.credential.is_none()
                || reading.trouble != Some(Unread::Damaged);
            seat.unreadable = seat.unreadable.max(reading.trouble.filter(|_| told));
        }
        for (index, names) in name(&self.settings.now().accounts, &mut seats) {
            if held(&self.told).insert(index) {
                let names = names.join("`, `");
                tracing::warn!("`accounts[{index}].seat` names several seats (`{names}`) and counts for each of them");
            }
        }
        seats
    }
}

/// A login that is being renewed, until this is dropped.
pub struct Renewing {
    roster: Arc<Roster>,
    profile: Profile,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        held(&self.roster.renewing).remove(&self.profile);
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of a seat's logins is used, the highest: one that works now, one that can be renewed, one that is the
/// router's alone, the one that lasts longest. A refused one is used only to be renewed.
fn rank(seat: &Seat, login: &Candidate, now: Timestamp) -> impl Ord + use<> {
    let refused = seat.refusal(&login.credential.access, now).is_some();
    let works = !refused && login.credential.token().is_usable(now);
    (
        works,
        !refused,
        !login.spent,
        login.profile.is_ours,
        login.credential.expires_at,
    )
}

/// Which seat a directory's login belongs to: account and organisation, from the login's own ids where it has them,
/// else from the directory's file. What neither proves stays apart under its path.
fn seat_of(profile: &Profile, reading: &Reading) -> AccountId {
    let ids = reading.credential.as_ref().map(|login| &login.ids);
    let named = reading.identity.as_ref();
    let own_account = ids.and_then(|ids| ids.account_uuid.clone());
    let own_organization = ids.and_then(|ids| ids.organization_uuid.clone());
    let told_account = named.and_then(|named| named.account_uuid.clone());
    let told_organization = named.and_then(|named| named.organization_uuid.clone());
    // The file speaks for the login only where it does not contradict it.
    let agree = own_account.is_none() || own_account == told_account;
    let account = own_account.or(told_account);
    let organization = own_organization.or(told_organization.filter(|_| agree));
    match (account, organization) {
        (Some(account), Some(organization)) => AccountId::new(&format!("{account}/{organization}")),
        _ => AccountId::new(&format!("dir:{}", profile.dir.display())),
    }
}

impl Seat {
    fn new(profile: &Profile) -> Self {
        Self {
            label: profile.name.clone(),
            named: None,
            email: None,
            organization: None,
            plan: None,
            dirs: Vec::new(),
            profiles: Vec::new(),
            unreadable: None,
            not_ours: None,
            unsaved: false,
            renews: false,
            login: None,
            own: None,
            refused: Vec::new(),
        }
    }
}

/// Gives each seat its short name: what its owner calls it, else its organisation, else its directory. An
/// organisation that is named after an e-mail address is a personal one. Returns which wishes name several seats, and
/// which seats.
fn name(wishes: &[SeatWishes], seats: &mut BTreeMap<AccountId, Found>) -> Vec<(usize, Vec<String>)> {
    for (id, (seat, _)) in seats.iter_mut() {
        let wished = wishes
            .iter()
            .filter(|wish| wish.names(id, seat))
            .find_map(|wish| wish.name.clone());
        let organization = seat
            .organization
            .clone()
            .filter(|name| !name.contains('@') && !name.trim().is_empty());
        let directory = seat.label.clone();
        seat.named.clone_from(&wished);
        seat.label = wished.or(organization).unwrap_or(directory);
    }
    let labels: Vec<String> = seats.values().map(|(seat, _)| seat.label.clone()).collect();
    for (seat, _) in seats.values_mut() {
        if labels.iter().filter(|label| **label == seat.label).count() > 1 {
            let folder = seat.dirs.first().and_then(|dir| dir.file_name()).unwrap_or_default();
            let folder = folder.to_string_lossy().trim_start_matches('.').to_owned();
            seat.label = format!("{} ({})", seat.label, profile::without_address(folder));
        }
    }
    let named = |wish: &SeatWishes| -> Vec<String> {
        let named = seats.iter().filter(|(id, (seat, _))| wish.names(id, seat));
        named.map(|(_, (seat, _))| seat.label.clone()).collect()
    };
    let several = wishes.iter().map(named).enumerate();
    several.filter(|(_, named)| named.len() > 1).collect()
}

impl SeatWishes {
    /// Whether these wishes are for that seat.
    fn names(&self, id: &AccountId, seat: &Seat) -> bool {
        seat.is_called(id, &self.seat)
    }
}

/// What the settings want of a seat.
fn wishes(config: &Config, id: &AccountId, seat: &Seat) -> Wishes {
    let share = |percent: u8| Utilization::from_basis_points(u16::from(percent) * 100);
    let usual = Wishes {
        enabled: !config.paused,
        threshold: share(config.limit_pct),
        ..Wishes::default()
    };
    let Some(own) = config.accounts.iter().find(|wish| wish.names(id, seat)) else {
        return usual;
    };
    Wishes {
        enabled: usual.enabled && own.enabled,
        draining: own.draining,
        threshold: own.limit_pct.map_or(usual.threshold, share),
        reserve: own.reserve_pct.map_or(usual.reserve, share),
        order: own.order.unwrap_or(usual.order),
        group: own.group.unwrap_or(usual.group),
        extra_usage: match own.extra_usage {
            None => usual.extra_usage,
            Some(config::ExtraUsage::Never) => pool::ExtraUsage::Never,
            Some(config::ExtraUsage::Last) => pool::ExtraUsage::Last,
            Some(config::ExtraUsage::Allowed) => pool::ExtraUsage::Allowed,
        },
    }
}
