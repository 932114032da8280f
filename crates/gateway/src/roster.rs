//! The seats there are: their logins held in memory, read anew when their files change.
//!
//! A seat is an account within an organisation. Several directories may hold logins of one seat; it counts once, and
//! the login that lasts longest is used. A directory that does not prove whose it is stays a seat of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pool::{AccountId, Observation, Token, Utilization, Wishes};

use crate::config::{Config, SeatWishes};
use crate::credential::{self, Credential, CredentialError, Secret};
use crate::file::{self, Mark};
use crate::paths::Paths;
use crate::profile::{self, Identity, Profile};
use crate::scheduler::Scheduler;

/// So many failed reads in a row are worth telling.
const FAILURES_TOLD: u32 = 3;

/// A seat as people know it, with what requests are sent with.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Its short name: from the settings, else the organisation, else the directory. Never an e-mail address.
    pub label: String,
    /// The owner's e-mail address, for the owner's own screens.
    pub email: Option<String>,
    /// The organisation's name.
    pub organization: Option<String>,
    /// The plan.
    pub plan: Option<String>,
    /// The directories that hold a login of this seat.
    pub dirs: Vec<PathBuf>,
    /// The state of its login, where it is not well.
    pub trouble: Option<Trouble>,
    access: Option<Secret>,
    /// The token that Anthropic refused; it is not used again.
    refused: Option<Secret>,
}

/// What is wrong with a seat's login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is none.
    LoggedOut,
    /// Its file cannot be read; the last good token is used while it lasts.
    Unreadable,
    /// Anthropic refused its token.
    Refused,
}

/// A directory as it was last read.
#[derive(Debug)]
struct Reading {
    marks: [Option<Mark>; 2],
    identity: Option<Identity>,
    credential: Option<Credential>,
    failures: u32,
}

/// The seats, and the reading of their directories.
pub struct Roster {
    config: Arc<Config>,
    paths: Paths,
    scheduler: Arc<Scheduler>,
    readings: Arc<Mutex<BTreeMap<Profile, Reading>>>,
    seats: Mutex<BTreeMap<AccountId, Seat>>,
    /// One scan at a time.
    scanning: tokio::sync::Mutex<()>,
}

impl Roster {
    /// An empty roster; [`Roster::scan`] fills it.
    pub fn new(config: Arc<Config>, paths: Paths, scheduler: Arc<Scheduler>) -> Self {
        Self {
            config,
            paths,
            scheduler,
            readings: Arc::default(),
            seats: Mutex::default(),
            scanning: tokio::sync::Mutex::default(),
        }
    }

    /// The token to send a request on that seat with, if it has one.
    pub fn access(&self, id: &AccountId) -> Option<Secret> {
        self.lock().get(id)?.access.clone()
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

    /// Reads what changed on disk and tells the pool. Returns whether a file could not be read, so that another
    /// look is wanted soon.
    pub async fn scan(&self) -> bool {
        let _one = self.scanning.lock().await;
        let (config, paths, readings) = (Arc::clone(&self.config), self.paths.clone(), Arc::clone(&self.readings));
        let scanned = tokio::task::spawn_blocking(move || {
            let profiles = profile::discover(&config, &paths);
            let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
            read_changed(profiles, &mut readings);
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
        if let Some(seat) = self.lock().get_mut(id) {
            seat.refused = Some(token.clone());
        }
        self.scan().await;
        self.access(id).is_some_and(|now| now != *token)
    }

    /// Puts the seats found in the place of those known, and tells the pool what changed.
    fn take(&self, found: BTreeMap<AccountId, (Seat, Vec<Credential>)>) {
        let now = self.scheduler.now();
        let mut observations = Vec::new();
        let mut seats = self.lock();
        for id in seats.keys().filter(|id| !found.contains_key(id)) {
            observations.push((id.clone(), Observation::Gone));
        }
        let mut next = BTreeMap::new();
        for (id, (mut seat, logins)) in found {
            let known = seats.get(&id);
            seat.refused = known.and_then(|known| known.refused.clone());
            let chosen = logins
                .iter()
                .filter(|login| Some(&login.access) != seat.refused.as_ref())
                .max_by_key(|login| login.expires_at);
            let token = match chosen {
                Some(login) => {
                    seat.access = Some(login.access.clone());
                    seat.plan = login.plan.clone();
                    login.token()
                }
                None if logins.is_empty() => Token::Missing,
                None => {
                    seat.trouble = Some(Trouble::Refused);
                    Token::Refused { since: now }
                }
            };
            if known.is_none() {
                tracing::info!(account.id = %id, "found the seat `{}`", seat.label);
            }
            let wishes = wishes(&self.config, &id, &seat);
            observations.push((id.clone(), Observation::Discovered(wishes)));
            observations.push((id.clone(), Observation::Token(token)));
            next.insert(id, seat);
        }
        *seats = next;
        drop(seats);
        for (id, observation) in observations {
            if matches!(observation, Observation::Gone) {
                tracing::info!(account.id = %id, "a seat's login is gone from this machine");
            }
            self.scheduler.observe(&id, observation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AccountId, Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the profiles whose files changed, or could not be read the last time.
fn read_changed(profiles: Vec<Profile>, readings: &mut BTreeMap<Profile, Reading>) {
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
        let (credential, failures) = match credential::read(&profile) {
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
fn group(wishes: &[SeatWishes], readings: &BTreeMap<Profile, Reading>) -> BTreeMap<AccountId, (Seat, Vec<Credential>)> {
    let mut seats: BTreeMap<AccountId, (Seat, Vec<Credential>)> = BTreeMap::new();
    for (profile, reading) in readings {
        let id = seat_of(profile, reading);
        let named = reading.identity.clone().unwrap_or_default();
        let (seat, logins) = seats.entry(id).or_insert_with(|| {
            let seat = Seat {
                label: profile.name.clone(),
                email: None,
                organization: None,
                plan: None,
                dirs: Vec::new(),
                trouble: None,
                access: None,
                refused: None,
            };
            (seat, Vec::new())
        });
        seat.email = seat.email.take().or(named.email_address);
        seat.organization = seat.organization.take().or(named.organization_name);
        seat.dirs.push(profile.dir.clone());
        logins.extend(reading.credential.clone());
        if reading.failures >= FAILURES_TOLD {
            seat.trouble = Some(Trouble::Unreadable);
        }
    }
    for (seat, logins) in seats.values_mut() {
        if logins.is_empty() && seat.trouble.is_none() {
            seat.trouble = Some(Trouble::LoggedOut);
        }
    }
    name(wishes, &mut seats);
    seats
}

/// Gives each seat its short name: what its owner calls it, else its organisation, else its directory. An
/// organisation that is named after an e-mail address is a personal one.
fn name(wishes: &[SeatWishes], seats: &mut BTreeMap<AccountId, (Seat, Vec<Credential>)>) {
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
        self.seat == id.as_str()
            || seat
                .email
                .as_ref()
                .is_some_and(|email| self.seat.eq_ignore_ascii_case(email))
            || seat.organization.as_ref() == Some(&self.seat)
    }
}

/// What the settings want of a seat.
fn wishes(config: &Config, id: &AccountId, seat: &Seat) -> Wishes {
    let own = config.accounts.iter().find(|wish| wish.names(id, seat));
    let percent = own.and_then(|wish| wish.limit_pct).unwrap_or(config.limit_pct);
    Wishes {
        enabled: own.is_none_or(|wish| wish.enabled),
        threshold: Utilization::from_basis_points(u16::from(percent) * 100),
    }
}
