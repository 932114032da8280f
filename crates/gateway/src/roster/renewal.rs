//! What a renewal needs of the roster: which login it is, that it goes on, and a place for a pair that could not be saved.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pool::AccountId;

use super::group::{self, Candidate};
use super::reading::{Reading, Unread};
use super::{Roster, Seat, held};
use crate::credential::{Credential, Secret};
use crate::profile::Profile;
use crate::refresh::Unsaved;

/// How far apart a pair is offered to a store whose writes may ask a person.
const BETWEEN_OFFERS: SignedDuration = SignedDuration::from_secs(60);

/// A login to be renewed.
#[derive(Clone, Debug)]
pub struct Renewable {
    /// Where it is kept.
    pub profile: Profile,
    /// The other directories that hold it, as they were last read.
    pub copies: Vec<Profile>,
    /// Its access token, if Anthropic refused that.
    pub refused: Option<Secret>,
}

impl Renewable {
    /// All directories that hold it.
    pub fn homes(&self) -> impl Iterator<Item = &Profile> {
        [&self.profile].into_iter().chain(&self.copies)
    }
}

/// Why there is nothing to renew on a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRenewable {
    /// There is no login.
    Gone,
    /// A login of it cannot be seen for now. What is seen may be an old copy of that, or the same.
    Hidden,
    /// Whose login it is cannot be told, and another directory may hold a newer one of the same.
    Unproven,
}

/// A pair that waits to be saved, and when it was last offered to the store.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    unsaved: Unsaved,
    offered_at: Option<Timestamp>,
}

impl Roster {
    /// The login to renew on that seat: the router's own, if there is one, else the one that serves.
    ///
    /// # Errors
    /// Why it is not to be renewed.
    pub fn renewable(&self, id: &AccountId) -> Result<Renewable, NotRenewable> {
        self.to_renew(id, |seat| seat.own.as_ref().or(seat.login.as_ref()))
    }

    /// The login that serves that seat.
    ///
    /// # Errors
    /// Why it is not to be renewed.
    pub fn serving(&self, id: &AccountId) -> Result<Renewable, NotRenewable> {
        self.to_renew(id, |seat| seat.login.as_ref())
    }

    fn to_renew(
        &self,
        id: &AccountId,
        of: impl Fn(&Seat) -> Option<&(Profile, Credential)>,
    ) -> Result<Renewable, NotRenewable> {
        let (seat, alone) = {
            let seats = held(&self.seats);
            let others = seats.iter().filter(|(other, _)| *other != id);
            let alone = others
                .clone()
                .all(|(_, seat)| seat.login.is_none() && seat.unreadable.is_none());
            (seats.get(id).cloned().ok_or(NotRenewable::Gone)?, alone)
        };
        let (profile, login) = of(&seat).ok_or(NotRenewable::Gone)?;
        if !group::is_proven(id) && !alone {
            return Err(NotRenewable::Unproven);
        }
        // The router's own was logged in for it, and is nobody's copy.
        if !profile.is_ours && self.hides_another(&seat, profile) {
            return Err(NotRenewable::Hidden);
        }
        let refused = seat.refused.of(&login.access, self.scheduler.now());
        Ok(Renewable {
            profile: profile.clone(),
            copies: self.copies(profile, login),
            refused: refused.map(|_| login.access.clone()),
        })
    }

    /// Whether what another directory of the seat holds is not known, since its Keychain item cannot be read: it may be
    /// the same login, put there by somebody since it was last read.
    fn hides_another(&self, seat: &Seat, profile: &Profile) -> bool {
        let readings = held(&self.readings);
        let others = seat.profiles.iter().filter(|other| *other != profile);
        let mut troubles = others.filter_map(|other| readings.get(other)?.trouble);
        troubles.any(|trouble| matches!(trouble, Unread::Locked | Unread::Permission))
    }

    /// The other directories that hold `login`, or are to hold it once it can be saved, whichever seats they are taken
    /// for.
    fn copies(&self, profile: &Profile, login: &Credential) -> Vec<Profile> {
        // In this order, as a scan takes them.
        let (readings, unsaved) = (held(&self.readings), held(&self.unsaved));
        let is_it = |other: &Credential| other.refresh.is_some() && other.refresh == login.refresh;
        let holds = |(other, reading): &(&Profile, &Reading)| {
            let waits = unsaved.get(*other).map(|waiting| &waiting.unsaved.credential);
            *other != profile && (reading.credential.as_ref().is_some_and(is_it) || waits.is_some_and(is_it))
        };
        let copies = readings.iter().filter(holds);
        copies.map(|(other, _)| other.clone()).collect()
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
    pub(super) fn waits(&self, profile: &Profile) -> bool {
        held(&self.unsaved).contains_key(profile)
    }

    /// Notes that `saved` need not be kept any longer; a newer pair of that profile stays.
    pub fn saved(&self, profile: &Profile, saved: &Unsaved) {
        let mut unsaved = held(&self.unsaved);
        if unsaved
            .get(profile)
            .is_some_and(|waiting| waiting.unsaved.posted == saved.posted)
        {
            unsaved.remove(profile);
        }
    }

    /// The logins as they were read, but for pairs that wait to be saved: those stand in for the login they were
    /// exchanged for, blanked or not. A login that another has put there since is newer than either.
    pub(super) fn newest(&self, profiles: &[Profile], read: &[Candidate]) -> Vec<Candidate> {
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
