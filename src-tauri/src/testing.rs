//! Made-up snapshots for the tests of what is decided from them.

use gateway::snapshot::{ExtraUsage, Next, Nobody, RestCause, SeatState, SeatView, Snapshot, Why, WindowView, nothing};
use jiff::Timestamp;

/// When all of them were taken.
pub(crate) const NOW: i64 = 1_800_000_000;

/// A router that listens, with those seats, of which the first able one is next.
pub(crate) fn snapshot(seats: Vec<SeatView>) -> Snapshot {
    let able = seats
        .iter()
        .find(|seat| matches!(seat.state, SeatState::Ready | SeatState::ReadyBut { .. }));
    let resting = seats.iter().filter_map(|seat| match seat.state {
        SeatState::Resting { until, .. } => Some((until, seat.id.clone())),
        _ => None,
    });
    let next = match (able, resting.min()) {
        (Some(seat), _) => Next::Seat {
            seat: seat.id.clone(),
            why: Why::MostRoom,
        },
        (None, Some((until, seat))) => Next::Nobody {
            why: Nobody::Resting,
            returns_at: Some(until),
            seat: Some(seat),
        },
        (None, None) => Next::Nobody {
            why: Nobody::NeedLogin,
            returns_at: None,
            seat: None,
        },
    };
    Snapshot {
        listening: vec!["127.0.0.1:18787".into()],
        next,
        seats,
        ..nothing(Timestamp::from_second(NOW).unwrap())
    }
}

/// A seat of that name in that state, its five hours used so far, back in two hours.
pub(crate) fn seat(label: &str, state: SeatState, used: Option<u16>) -> SeatView {
    let window = |used| WindowView {
        kind: "fiveHour".into(),
        family: None,
        used,
        resets_at: Some(NOW + 7_800),
        observed_at: NOW - 60,
        pace: None,
        lasts_until: None,
    };
    SeatView {
        id: format!("id-{label}"),
        label: label.into(),
        name: None,
        email: Some(format!("{label}@example.com")),
        organization: None,
        plan: None,
        state,
        login: None,
        windows: used.map(window).into_iter().collect(),
        order: None,
        group: 0,
        draining: false,
        reserve_percent: 0,
        limit_percent: 100,
        extra_usage: ExtraUsage::Never,
        rest: None,
        throttled_until: None,
        in_flight: 0,
        read_at: used.map(|_| NOW - 60),
        token_ends_at: None,
        dirs: Vec::new(),
    }
}

/// It rests for so many seconds more.
pub(crate) fn resting(seconds: i64) -> SeatState {
    SeatState::Resting {
        limit: Some("5-hour".into()),
        cause: RestCause::Limit,
        until: NOW + seconds,
    }
}
