//! A seat as people know it: its names, and what its owner wants of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pool::{AccountId, Utilization, Wishes};

use super::group::Found;
use super::reading::Unread;
use super::refusals::Refusals;
use crate::config::{Config, ExtraUsage, SeatWishes};
use crate::credential::{Credential, NotOurs, Secret};
use crate::profile::{self, Profile};

/// A seat as people know it, with what requests are sent with.
#[derive(Clone, Debug, Default)]
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
    pub(super) profiles: Vec<Profile>,
    /// Why a stored login of it cannot be read; the last good token is used while it lasts.
    pub unreadable: Option<Unread>,
    /// Why only Claude Code can save its login.
    pub not_ours: Option<NotOurs>,
    /// Whether its login is renewed but could not be saved yet.
    pub unsaved: bool,
    /// Whether logins are renewed at all.
    pub renews: bool,
    /// The login that requests are sent with, and where it is kept.
    pub(super) login: Option<(Profile, Credential)>,
    /// The router's own login where another one serves: it ended unnoticed, while no router ran.
    pub(super) own: Option<(Profile, Credential)>,
    /// The tokens that Anthropic refused.
    pub(super) refused: Refusals,
}

/// Why a name does not lead to one seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOne {
    /// No seat goes by it.
    None,
    /// More than one does.
    Several,
}

impl Seat {
    /// The pair that requests are sent with.
    pub(super) fn tokens(&self) -> Option<(&Secret, Option<&Secret>)> {
        let (_, login) = self.login.as_ref()?;
        Some((&login.access, login.refresh.as_ref()))
    }

    /// Whether `name` is its id, its e-mail address or its organisation.
    pub(super) fn is_called(&self, id: &AccountId, name: &str) -> bool {
        name == id.as_str()
            || self
                .email
                .as_ref()
                .is_some_and(|email| name.eq_ignore_ascii_case(email))
            || self.organization.as_deref() == Some(name)
    }
}

/// Gives each seat its short name: what its owner calls it, else its organisation, else its directory. An
/// organisation that is named after an e-mail address is a personal one. Returns which wishes name several seats, and
/// which seats.
pub(super) fn name(wishes: &[SeatWishes], seats: &mut BTreeMap<AccountId, Found>) -> Vec<(usize, Vec<String>)> {
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
pub(super) fn wishes(config: &Config, id: &AccountId, seat: &Seat) -> Wishes {
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
            Some(ExtraUsage::Never) => pool::ExtraUsage::Never,
            Some(ExtraUsage::Last) => pool::ExtraUsage::Last,
            Some(ExtraUsage::Allowed) => pool::ExtraUsage::Allowed,
        },
    }
}
