//! All that a screen may know: plain data, without a secret. One snapshot is enough to draw everything.

use jiff::Timestamp;
use pool::{Account, Cause, Renewal, Renewals, Token, WindowKind};
use serde::{Deserialize, Serialize};

use crate::reads::{Read, Why};
use crate::roster::{Seat, Unread};

/// The shape's version; a reader that knows a lower one may go by the fields it knows.
pub const VERSION: u32 = 1;

/// The router as it is at one moment. Times are seconds since the epoch, shares are basis points (10 000 is all).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The shape's version.
    pub version: u32,
    /// The program's version.
    pub program: String,
    /// When it was taken.
    pub now: i64,
    /// Where the router listens.
    pub listening: Vec<String>,
    /// Where it is to listen and cannot now: the address is not there, or another program has the port.
    #[serde(default)]
    pub waiting: Vec<String>,
    /// Whether the seats are made up and Anthropic is pretended.
    pub sandbox: bool,
    /// The seats, by label.
    pub seats: Vec<SeatView>,
    /// The stored logins that were read since the start, by name: each one's last reading.
    #[serde(default)]
    pub reads: Vec<ReadView>,
}

/// What was read of the owner's logins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadView {
    /// `Keychain item NAME`, or a file's path.
    pub what: String,
    /// When it was last read.
    pub when: i64,
    /// Why.
    pub why: Why,
}

/// The views of what was read.
pub fn read_views(reads: Vec<Read>) -> Vec<ReadView> {
    let view = |read: Read| ReadView {
        what: read.what,
        when: read.when.as_second(),
        why: read.why,
    };
    reads.into_iter().map(view).collect()
}

/// One seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeatView {
    /// Its id: account and organisation, or its directory where those are not known.
    pub id: String,
    /// Its short name.
    pub label: String,
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
    /// Requests that run on it.
    pub in_flight: u32,
    /// When any allowance was last seen.
    pub read_at: Option<i64>,
    /// When its access token ends.
    pub token_ends_at: Option<i64>,
    /// The directories that hold its login.
    pub dirs: Vec<String>,
}

/// What a seat can do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        /// Why: `limit`, `extraUsage`, `payment`, `organization`, `login` or `faults`.
        cause: String,
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
}

impl SeatState {
    /// The state in words, with what to do where there is something to do. Times are told by `when`.
    pub fn words(&self, when: impl Fn(i64) -> String) -> String {
        match self {
            Self::Ready => "ready".into(),
            Self::ReadyBut { family, until } => format!("ready; {family} limit reached, back {}", when(*until)),
            Self::Resting { limit, cause, until } => resting_words(limit.as_deref(), cause, &when(*until)),
            Self::Paused => "switched off".into(),
            Self::LoggedOut => "not logged in; log in with `claude`".into(),
            Self::Expired { .. } => "login expired; start `claude` once, and it renews it".into(),
            Self::Renewing => "login is being renewed".into(),
            Self::NeedsLogin { trouble } => trouble.words().into(),
            Self::Refused => "Anthropic refused this login; it is tried again by itself, and if that does not help, log in with `claude`".into(),
            Self::Unreadable => "its login file cannot be read".into(),
        }
    }
}

fn resting_words(limit: Option<&str>, cause: &str, when: &str) -> String {
    match (Cause::from_word(cause), limit) {
        (Some(Cause::Limit) | None, Some(limit)) => format!("{limit} limit reached, back {when}"),
        (Some(Cause::ExtraUsage), Some(limit)) => {
            format!("{limit} limit reached, beyond it only if need be, back {when}")
        }
        (Some(Cause::ExtraUsage), None) => format!("limit reached, beyond it only if need be, back {when}"),
        (Some(Cause::Payment), _) => format!("wants to be paid for; looked at again {when}"),
        (Some(Cause::Organization), _) => format!("its organisation does not allow this; looked at again {when}"),
        (Some(Cause::Login), _) => format!("Anthropic refused this login; tried again {when}"),
        (Some(Cause::Faults), _) => format!("failed several times; tried again {when}"),
        _ => format!("limit reached, back {when}"),
    }
}

/// What is the matter with a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
            Self::ClaudeCodes => "only Claude Code can save this login, so it must renew it; start `claude` once",
            Self::Uncertain => {
                "a renewal's answer was lost, and this login may have ended with it; log in again with `claude`"
            }
        }
    }
}

/// One allowance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// The view of one seat at `now`.
pub fn seat_view(account: &Account, renewals: &Renewals, seat: &Seat, now: Timestamp) -> SeatView {
    let trouble = login_trouble(renewals, seat);
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
    });
    SeatView {
        id: account.id.to_string(),
        label: seat.label.clone(),
        email: seat.email.clone(),
        organization: seat.organization.clone(),
        plan: seat.plan.clone(),
        state: state(account, renewals, seat, now),
        login: trouble,
        windows: windows.collect(),
        in_flight: account.in_flight,
        read_at: account.windows.observed_at().map(Timestamp::as_second),
        token_ends_at: match account.token {
            Token::Valid { expires_at } => expires_at.map(Timestamp::as_second),
            Token::Refused { .. } | Token::Missing => None,
        },
        dirs: seat.dirs.iter().map(|dir| dir.display().to_string()).collect(),
    }
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
        Some(Renewal::Failed(_) | Renewal::CannotSave) if seat.not_ours.is_some() => Some(LoginTrouble::ClaudeCodes),
        Some(Renewal::CannotSave) => Some(LoginTrouble::CannotSave),
        Some(Renewal::CannotLock) => Some(LoginTrouble::CannotLock),
        Some(Renewal::Failed(_) | Renewal::Unreachable) => unreadable.or(Some(LoginTrouble::Retrying)),
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
            cause: rest.cause.word().into(),
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
