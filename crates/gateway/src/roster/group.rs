//! Which directories are one seat, and which of their logins is used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pool::AccountId;

use super::reading::{FAILURES_TOLD, Reading, Unread};
use super::seat::{self, Seat};
use super::{Roster, held};
use crate::credential::{Credential, NotOurs};
use crate::profile::Profile;

/// A login that may be used.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) profile: Profile,
    pub(super) credential: Credential,
    pub(super) spent: bool,
    pub(super) not_ours: Option<NotOurs>,
}

/// A seat as it was found, with the logins of its directories.
pub(super) type Found = (Seat, Vec<Candidate>);

impl Roster {
    /// The seats that the readings give, each with its logins.
    pub(super) fn group(&self, readings: &BTreeMap<Profile, Reading>) -> BTreeMap<AccountId, Found> {
        let mut seats: BTreeMap<AccountId, Found> = BTreeMap::new();
        for (profile, reading) in readings {
            let id = seat_of(profile, reading);
            let named = reading.identity.clone().unwrap_or_default();
            let (seat, logins) = seats.entry(id).or_insert_with(|| {
                let seat = Seat {
                    label: profile.name.clone(),
                    ..Seat::default()
                };
                (seat, Vec::new())
            });
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
        for (index, names) in seat::name(&self.settings.now().accounts, &mut seats) {
            if held(&self.told).insert(index) {
                let names = names.join("`, `");
                tracing::warn!("`accounts[{index}].seat` names several seats (`{names}`) and counts for each of them");
            }
        }
        seats
    }
}

/// Which of a seat's logins is used, the highest: one that works now, one that can be renewed, one that is the
/// router's alone, the one that lasts longest. A refused one does not work, but can be renewed: an older copy of it is
/// no better.
pub(super) fn rank(seat: &Seat, login: &Candidate, now: Timestamp) -> impl Ord + use<> {
    let refused = seat.refused.of(&login.credential.access, now).is_some();
    let works = !refused && login.credential.token().is_usable(now);
    (works, !login.spent, login.profile.is_ours, login.credential.expires_at)
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
        _ => AccountId::new(&format!("{UNPROVEN}{}", profile.dir.display())),
    }
}

/// How the id of a seat begins of which nothing proves whose it is.
const UNPROVEN: &str = "dir:";

/// Whether it is known whose seat that is.
pub(super) fn is_proven(id: &AccountId) -> bool {
    !id.as_str().starts_with(UNPROVEN)
}
