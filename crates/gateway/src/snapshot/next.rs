//! Who serves next, and for how long there is enough.

use jiff::Timestamp;
use pool::{Pool, Reason, Refusal, Request};
use serde::{Deserialize, Serialize};

use super::seat::{SeatState, SeatView};

/// Who would serve a new conversation now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Next {
    /// This seat.
    Seat {
        /// Its id.
        seat: String,
        /// Why it.
        why: Why,
    },
    /// None.
    Nobody {
        /// Why none.
        why: Nobody,
        /// When the first one is back, where that is known.
        returns_at: Option<i64>,
        /// Which one that is, by id.
        seat: Option<String>,
    },
}

/// Why a seat is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// It has the most room.
    MostRoom,
    /// The conversation is there already.
    SameConversation,
    /// There is no other.
    OnlyOne,
    /// It made the file or batch that the request names.
    OwnsId,
    /// It is tried once more.
    Again,
    /// All are past their threshold, and it the least.
    LeastFull,
    /// The one before could not serve.
    Instead,
    /// No other is left, and its owner pays for what goes beyond its plan.
    BeyondPlan,
    /// It rests, and is back before all others.
    ReturnsFirst,
    /// It is the first in its owner's order.
    FirstInOrder,
    /// It is the fullest that still serves.
    Fullest,
    /// Its turn is the longest ago.
    ItsTurn,
    /// As things go its week ends with quota to spare.
    RoomToSpare,
    /// Every seat's week runs short, this one's least.
    LeastShort,
}

impl From<Reason> for Why {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::MostRoom => Self::MostRoom,
            Reason::SameConversation => Self::SameConversation,
            Reason::OnlyOne => Self::OnlyOne,
            Reason::OwnsId => Self::OwnsId,
            Reason::Again => Self::Again,
            Reason::LeastFull => Self::LeastFull,
            Reason::Instead => Self::Instead,
            Reason::BeyondPlan => Self::BeyondPlan,
            Reason::ReturnsFirst => Self::ReturnsFirst,
            Reason::FirstInOrder => Self::FirstInOrder,
            Reason::Fullest => Self::Fullest,
            Reason::ItsTurn => Self::ItsTurn,
            Reason::RoomToSpare => Self::RoomToSpare,
            Reason::LeastShort => Self::LeastShort,
        }
    }
}

/// Why nobody serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum Nobody {
    /// There is no seat.
    NoSeat,
    /// The owner has paused all there are, or the router.
    Paused,
    /// All wait for a person to log in.
    NeedLogin,
    /// All rest from limits.
    Resting,
    /// Logins are being renewed.
    Renewing,
    /// Logins could not be renewed yet.
    LoginDelayed,
    /// Several logins were refused at once, which is the service's trouble.
    LoginsRefused,
    /// A seat is just coming back, and is being tried.
    Returning,
    /// Their organisations do not allow it.
    NotAllowed,
    /// None can, for different reasons.
    Exhausted,
}

/// How long the seats last together, at the pace of late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// In a word.
    pub state: ForecastState,
    /// Until when there is enough, if it runs out.
    pub lasts_until: Option<i64>,
    /// When the first seat is back, if all rest.
    pub returns_at: Option<i64>,
}

/// How long the seats last, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum ForecastState {
    /// Nothing can be said yet.
    Unknown,
    /// At this pace there is always enough.
    Enough,
    /// At this pace there is none left at some moment.
    RunsOut,
    /// There is none left now.
    Resting,
}

/// Who would serve a new conversation at `now`. `seats` are the pool's, as views.
pub(super) fn next(pool: &Pool, seats: &[SeatView], now: Timestamp) -> Next {
    let refusal = match pool.preview(&Request::default(), now) {
        Ok((id, reason)) => {
            return Next::Seat {
                seat: id.to_string(),
                why: reason.into(),
            };
        }
        Err(refusal) => refusal,
    };
    let first = seats
        .iter()
        .filter_map(|seat| match seat.state {
            SeatState::Resting { until, .. } => Some((until, seat)),
            _ => None,
        })
        .min_by_key(|(until, _)| *until);
    let (why, returns_at) = match refusal {
        Refusal::NoSeat => (Nobody::NoSeat, None),
        Refusal::Paused => (Nobody::Paused, None),
        Refusal::NeedLogin(_) => (Nobody::NeedLogin, None),
        Refusal::Cooling { until, .. } => (Nobody::Resting, Some(until.as_second())),
        Refusal::Renewing => (Nobody::Renewing, None),
        Refusal::LoginDelayed { until } => (Nobody::LoginDelayed, Some(until.as_second())),
        Refusal::LoginsRefused { until, .. } => (Nobody::LoginsRefused, Some(until.as_second())),
        Refusal::Returning => (Nobody::Returning, None),
        Refusal::NotAllowed(_) => (Nobody::NotAllowed, None),
        Refusal::Exhausted => (Nobody::Exhausted, None),
    };
    Next::Nobody {
        why,
        returns_at,
        seat: first
            .filter(|_| why == Nobody::Resting)
            .map(|(_, seat)| seat.id.clone()),
    }
}

/// How long the seats last together, as of `now`.
pub(super) fn forecast(pool: &Pool, now: Timestamp) -> Forecast {
    use pool::Forecast as Told;
    let (state, lasts_until, returns_at) = match pool.forecast(now) {
        Told::Unknown => (ForecastState::Unknown, None, None),
        Told::Enough => (ForecastState::Enough, None, None),
        Told::RunsOut {
            lasts_until,
            returns_at,
        } => (ForecastState::RunsOut, Some(lasts_until), returns_at),
        Told::Resting { returns_at } => (ForecastState::Resting, None, Some(returns_at)),
    };
    Forecast {
        state,
        lasts_until: lasts_until.map(Timestamp::as_second),
        returns_at: returns_at.map(Timestamp::as_second),
    }
}
