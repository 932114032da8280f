//! One seat as a screen may know it.

use jiff::Timestamp;
use pool::{Account, Burns, Cause, Renewal, Renewals, Token, UsagePolls, WindowKind, Wishes};
use serde::{Deserialize, Serialize};

use crate::roster::{Seat, Unread};

/// One seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SeatView {
    /// Its id: account and organisation, or its directory where those are not known.
    pub id: String,
    /// Its short name, for the screen.
    pub label: String,
    /// The name that its owner gave it.
    pub name: Option<String>,
    /// The owner's e-mail address.
    pub email: Option<String>,
    /// The organisation's name.
    pub organization: Option<String>,
    /// The plan.
    pub plan: Option<String>,
    /// What it can do now.
    pub state: SeatState,
    /// What is the matter with its login while it still serves; absent when nothing is.
    pub login: Option<LoginTrouble>,
    /// Its allowances as last seen; one that was never seen is missing.
    pub windows: Vec<WindowView>,
    /// Its place in the owner's order, the lowest first; absent where none was given.
    pub order: Option<u32>,
    /// Its priority group: a higher number serves only while no seat of a lower one can.
    pub group: u32,
    /// Whether it finishes what runs and takes nothing new.
    pub draining: bool,
    /// How much of it is kept back for its owner, in per cent.
    pub reserve_percent: u8,
    /// From how much on it is used only when nothing else is left, in per cent.
    pub limit_percent: u8,
    /// Whether usage that costs extra may be used.
    pub extra_usage: ExtraUsage,
    /// What it rests from, while it does.
    pub rest: Option<Rest>,
    /// Until when its usage is not asked for, because Anthropic asked for fewer questions.
    pub throttled_until: Option<i64>,
    /// Requests that run on it.
    pub in_flight: u32,
    /// When any allowance was last seen.
    pub read_at: Option<i64>,
    /// When its access token ends.
    pub token_ends_at: Option<i64>,
    /// The directories that hold its login.
    pub dirs: Vec<String>,
}

impl SeatView {
    /// When the oldest of its shares was seen. Answers bring some of them and not others, so the latest reading says
    /// nothing of how old the rest are.
    pub fn oldest_read_at(&self) -> Option<i64> {
        self.windows.iter().map(|window| window.observed_at).min()
    }
}

/// Whether usage beyond the plan, which costs extra, may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum ExtraUsage {
    /// Never.
    #[default]
    Never,
    /// Once no seat has anything else left.
    Last,
    /// Like the rest of the plan.
    Allowed,
}

/// What a seat rests from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Rest {
    /// The allowance, as it stands before the word *limit*; absent if it was not told, or if it is no limit.
    pub limit: Option<String>,
    /// Why.
    pub cause: RestCause,
    /// Since when.
    pub since: i64,
    /// When it returns.
    pub until: i64,
}

/// Why a seat rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum RestCause {
    /// A limit was reached.
    Limit,
    /// Its plan is used up, and what goes beyond would cost extra.
    ExtraUsage,
    /// Anthropic wants to be paid first.
    Payment,
    /// There are no credits for what goes beyond the plan.
    NoCredits,
    /// Its organisation does not allow it.
    Organization,
    /// Its login was refused.
    Login,
    /// Its plan lacks the model or the feature.
    NotInPlan,
    /// It failed several times in a row.
    Faults,
}

impl From<Cause> for RestCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Limit => Self::Limit,
            Cause::ExtraUsage => Self::ExtraUsage,
            Cause::Payment => Self::Payment,
            Cause::NoCredits => Self::NoCredits,
            Cause::Organization => Self::Organization,
            Cause::Login => Self::Login,
            Cause::NotInPlan => Self::NotInPlan,
            Cause::Faults => Self::Faults,
        }
    }
}

/// What a seat can do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SeatState {
    /// It serves.
    Ready,
    /// It serves, but not these families of models until then.
    ReadyBut {
        /// The family's name.
        family: String,
        /// When it serves them again.
        until: i64,
    },
    /// It rests from a limit.
    Resting {
        /// The allowance, as it stands before the word *limit*; absent if it was not told.
        limit: Option<String>,
        /// Why.
        cause: RestCause,
        /// When it returns.
        until: i64,
    },
    /// Its owner switched it off.
    Paused,
    /// Nobody is logged in.
    LoggedOut,
    /// Its access token has expired.
    Expired {
        /// When that was.
        since: i64,
    },
    /// Its access token has ended, and a new one is being asked for, or will be soon.
    Renewing,
    /// Its access token has ended, and its login has trouble.
    NeedsLogin {
        /// What is the matter.
        trouble: LoginTrouble,
    },
    /// Anthropic refused its token.
    Refused,
    /// Its login file cannot be read, and there is no token left.
    Unreadable,
    /// The system wants its owner's leave before the login is read.
    NeedsPermission,
}

impl SeatState {
    /// The state in words, with what to do where there is something to do. Times are told by `when`.
    pub fn words(&self, when: impl Fn(i64) -> String) -> String {
        match self {
            Self::Ready => "ready".into(),
            Self::ReadyBut { family, until } => format!("ready; {family} limit reached, back {}", when(*until)),
            Self::Resting { limit, cause, until } => cause.words(limit.as_deref(), &when(*until)),
            Self::Paused => "switched off".into(),
            Self::LoggedOut => "not logged in; log in with `claude`".into(),
            Self::Expired { .. } => "login expired; start `claude` once, and it renews it".into(),
            Self::Renewing => "login is being renewed".into(),
            Self::NeedsLogin { trouble } => trouble.words().into(),
            Self::Refused => "Anthropic refused this login; it is tried again by itself, and if that does not help, log in with `claude`".into(),
            Self::Unreadable => "its login file cannot be read".into(),
            Self::NeedsPermission => "the system wants to ask you before this login is read".into(),
        }
    }
}

impl RestCause {
    fn words(self, limit: Option<&str>, when: &str) -> String {
        let limit = limit.map_or_else(|| "limit".to_owned(), |limit| format!("{limit} limit"));
        match self {
            Self::Limit => format!("{limit} reached, back {when}"),
            Self::ExtraUsage => format!("{limit} reached, beyond it only if need be, back {when}"),
            Self::Payment => format!("wants to be paid for; looked at again {when}"),
            Self::NoCredits => format!("has no credits for what goes beyond its plan; looked at again {when}"),
            Self::Organization => format!("its organisation does not allow this; looked at again {when}"),
            Self::Login => format!("Anthropic refused this login; tried again {when}"),
            Self::NotInPlan => format!("its plan lacks what was asked for; tried again {when}"),
            Self::Faults => format!("failed several times; tried again {when}"),
        }
    }
}

/// What is the matter with a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum LoginTrouble {
    /// The token endpoint could not be used; it is tried again.
    Retrying,
    /// The store takes no write, so nothing was renewed.
    CannotSave,
    /// Claude Code's locks cannot be taken, so nothing was renewed.
    CannotLock,
    /// The new login is in memory only, until the store takes it.
    Unsaved,
    /// Anthropic no longer accepts it.
    Rejected,
    /// The answer to its renewal was lost.
    Uncertain,
    /// Its file cannot be read; the last good login is used while it lasts.
    Unreadable,
    /// The Keychain is locked; the last good login is used while it lasts.
    KeychainLocked,
    /// macOS asks for permission to read it, and nobody gave it yet.
    KeychainAsks,
    /// Only Claude Code can save it, and it could not be asked to.
    ClaudeCodes,
    /// Whose it is cannot be told, and it may be an old copy of another, so that it is not renewed.
    Unproven,
}

impl LoginTrouble {
    /// What is the matter and what to do, for the status and the log alike.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Retrying => "login could not be renewed yet; it is tried again by itself",
            Self::CannotSave => "login cannot be saved, so it was not renewed; make room, or its folder writable",
            Self::CannotLock => {
                "login cannot be renewed: Claude Code's lock beside its folder cannot be made; the log names it"
            }
            Self::Unsaved => "renewed login could not be saved yet; do not quit the router until it could",
            Self::Rejected => "Anthropic no longer accepts this login; log in again with `claude`",
            Self::Unreadable => "login file cannot be read; the last good login is used while it lasts",
            Self::KeychainLocked => "the Keychain is locked; log in at the Mac's own screen, and it is read by itself",
            Self::KeychainAsks => {
                "macOS asks for permission to read this login; say \"Always Allow\" when it asks again, or ask for a new look"
            }
            Self::Unproven => {
                "nothing says whose login this is, and it may be a copy of another, so it is not renewed; start `claude` in \
                 its folder once, or take the folder away"
            }
            Self::ClaudeCodes => "only Claude Code can save this login, so it must renew it; start `claude` once",
            Self::Uncertain => {
                "a renewal's answer was lost, and this login may have ended with it; log in again with `claude`"
            }
        }
    }
}

/// One allowance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct WindowView {
    /// `fiveHour`, `weekly` or `model`.
    pub kind: String,
    /// The family's name, for `model`.
    pub family: Option<String>,
    /// The used share as of the snapshot, in basis points; it may exceed 10 000.
    pub used: u16,
    /// When it is empty again; absent while it has not begun.
    pub resets_at: Option<i64>,
    /// When it was seen.
    pub observed_at: i64,
    /// The share that would be used now at an even pace, in basis points; absent while it has not begun.
    pub pace: Option<u16>,
    /// When it is used up at the pace of late; absent if it lasts until its reset, or nothing can be said.
    pub lasts_until: Option<i64>,
}

/// What the pool knows of a seat beside its account.
pub(super) struct Known<'a> {
    pub(super) renewals: &'a Renewals,
    pub(super) polls: Option<&'a UsagePolls>,
    pub(super) burns: Option<&'a Burns>,
}

/// The view of one seat at `now`.
pub(super) fn seat_view(account: &Account, known: &Known<'_>, seat: &Seat, now: Timestamp) -> SeatView {
    let renewals = known.renewals;
    let trouble = login_trouble(renewals, seat);
    let wishes = account.wishes;
    let burns = known.burns;
    let windows = account.windows.iter().map(|(kind, window)| WindowView {
        kind: match kind {
            WindowKind::FiveHour => "fiveHour".into(),
            WindowKind::Weekly => "weekly".into(),
            WindowKind::Model(_) => "model".into(),
        },
        family: match kind {
            WindowKind::Model(_) => Some(kind.to_string()),
            WindowKind::FiveHour | WindowKind::Weekly => None,
        },
        used: window.used_at(now).basis_points(),
        resets_at: window.resets_at.filter(|&reset| reset > now).map(Timestamp::as_second),
        observed_at: window.observed_at.as_second(),
        pace: even_pace(kind, window.resets_at, now),
        lasts_until: burns
            .and_then(|burns| burns.lasts_until(kind, window, now))
            .map(Timestamp::as_second),
    });
    let rest = account.resting(now).map(|rest| Rest {
        limit: rest.window().map(ToString::to_string),
        cause: rest.cause.into(),
        since: rest.since.as_second(),
        until: rest.until.as_second(),
    });
    SeatView {
        id: account.id.to_string(),
        label: seat.label.clone(),
        name: seat.named.clone(),
        email: seat.email.clone(),
        organization: seat.organization.clone(),
        plan: seat.plan.clone(),
        state: state(account, renewals, seat, now),
        login: trouble,
        windows: windows.collect(),
        order: (wishes.order != Wishes::LAST).then_some(wishes.order),
        group: wishes.group,
        draining: wishes.draining,
        reserve_percent: wishes.reserve.shown_percent() as u8,
        limit_percent: wishes.threshold.shown_percent() as u8,
        extra_usage: match wishes.extra_usage {
            pool::ExtraUsage::Never => ExtraUsage::Never,
            pool::ExtraUsage::Last => ExtraUsage::Last,
            pool::ExtraUsage::Allowed => ExtraUsage::Allowed,
        },
        rest,
        throttled_until: known
            .polls
            .and_then(|polls| polls.throttled_until(now))
            .map(Timestamp::as_second),
        in_flight: account.in_flight,
        read_at: account.windows.observed_at().map(Timestamp::as_second),
        token_ends_at: match account.token {
            Token::Valid { expires_at } => expires_at.map(Timestamp::as_second),
            Token::Refused { .. } | Token::Missing => None,
        },
        dirs: seat.dirs.iter().map(|dir| dir.display().to_string()).collect(),
    }
}

/// The share of a window that would be used at `now` if it were used evenly, in basis points; `None` while it has not
/// begun.
fn even_pace(kind: &WindowKind, resets_at: Option<Timestamp>, now: Timestamp) -> Option<u16> {
    let length = match kind {
        WindowKind::FiveHour => 5 * 3_600,
        WindowKind::Weekly | WindowKind::Model(_) => 7 * 24 * 3_600,
    };
    let left = resets_at?.duration_since(now).as_secs();
    (0 < left && left <= length).then(|| ((length - left) * 10_000 / length) as u16)
}

/// What is the matter with a seat's login, as its renewals tell.
fn login_trouble(renewals: &Renewals, seat: &Seat) -> Option<LoginTrouble> {
    let unreadable = seat.unreadable.map(|trouble| match trouble {
        Unread::Damaged => LoginTrouble::Unreadable,
        Unread::Locked => LoginTrouble::KeychainLocked,
        Unread::Permission => LoginTrouble::KeychainAsks,
    });
    match renewals.last() {
        Some(Renewal::Rejected) => Some(LoginTrouble::Rejected),
        Some(Renewal::Uncertain) => Some(LoginTrouble::Uncertain),
        Some(Renewal::Unproven) => Some(LoginTrouble::Unproven),
        Some(Renewal::Failed(_) | Renewal::CannotSave) if seat.not_ours.is_some() => Some(LoginTrouble::ClaudeCodes),
        Some(Renewal::CannotSave) => Some(LoginTrouble::CannotSave),
        Some(Renewal::CannotLock) => Some(LoginTrouble::CannotLock),
        Some(Renewal::Failed(_) | Renewal::Unreachable | Renewal::Hidden) => {
            unreadable.or(Some(LoginTrouble::Retrying))
        }
        None | Some(Renewal::Done | Renewal::Busy) if seat.unsaved => Some(LoginTrouble::Unsaved),
        None | Some(Renewal::Done | Renewal::Busy) => unreadable,
    }
}

fn state(account: &Account, renewals: &Renewals, seat: &Seat, now: Timestamp) -> SeatState {
    if !account.wishes.enabled {
        return SeatState::Paused;
    }
    match account.token {
        Token::Missing if seat.unreadable == Some(Unread::Damaged) => return SeatState::Unreadable,
        Token::Missing if seat.unreadable == Some(Unread::Permission) => return SeatState::NeedsPermission,
        Token::Missing if seat.unreadable.is_some() => {
            return SeatState::NeedsLogin {
                trouble: login_trouble(renewals, seat).unwrap_or(LoginTrouble::Unreadable),
            };
        }
        Token::Missing => return SeatState::LoggedOut,
        token @ (Token::Refused { .. } | Token::Valid { .. }) if !token.is_usable(now) => {
            return match login_trouble(renewals, seat) {
                Some(trouble) => SeatState::NeedsLogin { trouble },
                None if renewals.is_under_way() || renewals.is_awaited(account, now) && seat.renews => {
                    SeatState::Renewing
                }
                None => match token {
                    Token::Valid { expires_at: Some(end) } => SeatState::Expired { since: end.as_second() },
                    _ => SeatState::Refused,
                },
            };
        }
        Token::Refused { .. } => return SeatState::Refused,
        Token::Valid { .. } => {}
    }
    if let Some(rest) = account.resting(now) {
        return SeatState::Resting {
            limit: rest.window().map(ToString::to_string),
            cause: rest.cause.into(),
            until: rest.until.as_second(),
        };
    }
    let families = account.rests(now).filter_map(|rest| Some((rest.until, rest.window()?)));
    match families.max_by_key(|(until, _)| *until) {
        Some((until, family)) => SeatState::ReadyBut {
            family: family.to_string(),
            until: until.as_second(),
        },
        None => SeatState::Ready,
    }
}
