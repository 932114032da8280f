//! The seats there are: their logins held in memory, read anew when their files change.
//!
//! A seat is an account within an organisation. Several directories may hold logins of one seat; it counts once, and
//! the login that lasts longest is used. A directory that does not prove whose it is stays a seat of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Observation, Token, Utilization, Wishes};

use crate::config::{self, Config, SeatWishes, TokenRefresh};
use crate::credential::{self, Credential, CredentialError, Secret, Store};
use crate::file::{self, Mark};
use crate::paths::Paths;
use crate::profile::{self, Identity, Profile};
use crate::refresh::Unsaved;
use crate::scheduler::Scheduler;
use crate::settings::Settings;

/// So many failed reads in a row are worth telling.
const FAILURES_TOLD: u32 = 3;

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
    /// Whether a login file of it cannot be read; the last good token is used while it lasts.
    pub unreadable: bool,
    /// Whether its login is renewed but could not be saved yet.
    pub unsaved: bool,
    /// Whether logins are renewed at all.
    pub renews: bool,
    /// The login that requests are sent with, and where it is kept.
    login: Option<(Profile, Credential)>,
    /// The tokens that Anthropic refused.
    refused: Vec<Refusal>,
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
#[derive(Debug)]
struct Reading {
    marks: [Option<Mark>; 2],
    identity: Option<Identity>,
    credential: Option<Credential>,
    failures: u32,
}

/// A seat as it was found, with the logins of its directories.
type Found = (Seat, Vec<(Profile, Credential)>);

/// The seats, and the reading of their directories.
pub struct Roster {
    settings: Arc<Settings>,
    paths: Paths,
    scheduler: Arc<Scheduler>,
    store: Arc<dyn Store>,
    /// New pairs that wait to be saved, by their profile.
    unsaved: Mutex<BTreeMap<Profile, Unsaved>>,
    readings: Arc<Mutex<BTreeMap<Profile, Reading>>>,
    seats: Mutex<BTreeMap<AccountId, Seat>>,
    /// One scan at a time.
    scanning: tokio::sync::Mutex<()>,
}

impl Roster {
    /// An empty roster; [`Roster::scan`] fills it.
    pub fn new(settings: Arc<Settings>, paths: Paths, scheduler: Arc<Scheduler>, store: Arc<dyn Store>) -> Self {
        Self {
            settings,
            paths,
            scheduler,
            store,
            unsaved: Mutex::default(),
            readings: Arc::default(),
            seats: Mutex::default(),
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

    /// The login to renew on that seat, where it is kept, and the access token that Anthropic refused.
    pub fn renewable(&self, id: &AccountId) -> Option<(Profile, Option<Secret>)> {
        let seats = self.lock();
        let seat = seats.get(id)?;
        let (profile, login) = seat.login.as_ref()?;
        let refused = seat.refusal(&login.access, self.scheduler.now());
        Some((profile.clone(), refused.map(|refusal| refusal.token.clone())))
    }

    /// Keeps a pair that could not be saved, and uses it meanwhile.
    pub fn keep(&self, profile: Profile, unsaved: Unsaved) {
        self.unsaved().insert(profile, unsaved);
    }

    /// The pairs that wait to be saved.
    pub fn waiting(&self) -> Vec<(Profile, Unsaved)> {
        self.unsaved().clone().into_iter().collect()
    }

    /// Notes that a pair need not be kept any longer.
    pub fn saved(&self, profile: &Profile) {
        self.unsaved().remove(profile);
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

    /// Reads what changed on disk and tells the pool. Returns whether a file could not be read, so that another
    /// look is wanted soon.
    pub async fn scan(&self) -> bool {
        let _one = self.scanning.lock().await;
        let (config, paths, readings) = (self.settings.now(), self.paths.clone(), Arc::clone(&self.readings));
        let store = Arc::clone(&self.store);
        let scanned = tokio::task::spawn_blocking(move || {
            let profiles = profile::discover(&config, &paths);
            let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
            read_changed(&*store, profiles, &mut readings);
            (
                group(&config.accounts, &readings),
                readings.values().any(|reading| reading.failures > 0),
            )
        });
        let Ok((seats, unread)) = scanned.await else {
            return true; // the runtime is stopping
        };
        self.take(seats);
        unread
    }

    /// Notes that Anthropic refused `token` on that seat, and looks for another one in the store. Returns whether
    /// there is one.
    pub async fn refused(&self, id: &AccountId, token: &Secret) -> bool {
        let now = self.scheduler.now();
        if let Some(seat) = self.lock().get_mut(id) {
            seat.refuse(token, now);
        }
        self.scan().await;
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
                .retain(|refusal| logins.iter().any(|(_, login)| login.access == refusal.token));
            // The one that lasts longest; a refused one only to be renewed.
            let rank =
                |(_, login): &(Profile, Credential)| (seat.refusal(&login.access, now).is_none(), login.expires_at);
            let best = logins.into_iter().max_by_key(rank);
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
            seat.unsaved = seat
                .login
                .as_ref()
                .is_some_and(|(profile, _)| self.unsaved().contains_key(profile));
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
    fn newest(&self, profiles: &[Profile], read: &[(Profile, Credential)]) -> Vec<(Profile, Credential)> {
        let unsaved = self.unsaved();
        let newest = |profile: &Profile| {
            let login = read.iter().find(|(of, _)| of == profile).map(|(_, login)| login);
            let kept = unsaved
                .get(profile)
                .filter(|kept| login.is_none_or(|login| login.refresh.as_ref() == Some(&kept.posted)));
            let login = kept.map(|kept| &kept.credential).or(login)?;
            Some((profile.clone(), login.clone()))
        };
        profiles.iter().filter_map(newest).collect()
    }

    fn unsaved(&self) -> MutexGuard<'_, BTreeMap<Profile, Unsaved>> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AccountId, Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the profiles whose files changed, or could not be read the last time.
fn read_changed(store: &dyn Store, profiles: Vec<Profile>, readings: &mut BTreeMap<Profile, Reading>) {
    readings.retain(|profile, _| profiles.contains(profile));
    for profile in profiles {
        let marks = profile.marks();
        if readings
            .get(&profile)
            .is_some_and(|known| known.marks == marks && known.failures == 0)
        {
            continue;
        }
        let known = readings.remove(&profile);
        let identity = match profile.identity() {
            Ok(identity) => identity,
            // It is rewritten often; a half-read name does not change whose seat it is.
            Err(_) => known.as_ref().and_then(|known| known.identity.clone()),
        };
        let (credential, failures) = match credential::read(store, &profile) {
            Ok(login) => (Some(login), 0),
            Err(CredentialError::LoggedOut) => (None, 0),
            Err(error @ CredentialError::Unreadable(_)) => {
                let failures = known.as_ref().map_or(0, |known| known.failures) + 1;
                if failures == FAILURES_TOLD {
                    tracing::warn!(
                        "{}: {error}; the last good login is used while it lasts",
                        profile.credentials().display()
                    );
                }
                (known.and_then(|known| known.credential), failures)
            }
        };
        let reading = Reading {
            marks,
            identity,
            credential,
            failures,
        };
        readings.insert(profile, reading);
    }
}

impl Profile {
    fn marks(&self) -> [Option<Mark>; 2] {
        [file::mark(&self.credentials()), file::mark(self.identity_file())]
    }
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

/// The seats that the readings give, each with its logins.
fn group(wishes: &[SeatWishes], readings: &BTreeMap<Profile, Reading>) -> BTreeMap<AccountId, Found> {
    let mut seats: BTreeMap<AccountId, Found> = BTreeMap::new();
    for (profile, reading) in readings {
        let id = seat_of(profile, reading);
        let named = reading.identity.clone().unwrap_or_default();
        let (seat, logins) = seats.entry(id).or_insert_with(|| {
            let seat = Seat {
                label: profile.name.clone(),
                named: None,
                email: None,
                organization: None,
                plan: None,
                dirs: Vec::new(),
                profiles: Vec::new(),
                unreadable: false,
                unsaved: false,
                renews: false,
                login: None,
                refused: Vec::new(),
            };
            (seat, Vec::new())
        });
        seat.email = seat.email.take().or(named.email_address);
        seat.organization = seat.organization.take().or(named.organization_name);
        seat.dirs.push(profile.dir.clone());
        seat.profiles.push(profile.clone());
        logins.extend(reading.credential.clone().map(|login| (profile.clone(), login)));
        // With no login to go on with, the first failure is worth telling.
        if reading.failures >= FAILURES_TOLD || (reading.failures > 0 && reading.credential.is_none()) {
            seat.unreadable = true;
        }
    }
    name(wishes, &mut seats);
    seats
}

/// Gives each seat its short name: what its owner calls it, else its organisation, else its directory. An
/// organisation that is named after an e-mail address is a personal one.
fn name(wishes: &[SeatWishes], seats: &mut BTreeMap<AccountId, Found>) {
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
            seat.label = format!("{} ({})", seat.label, folder.to_string_lossy().trim_start_matches('.'));
        }
    }
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
        ..usual
    }
}
