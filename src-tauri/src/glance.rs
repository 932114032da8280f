//! What the menu bar says, as a function of what is known: the picture, the text beside it, and a sentence for those
//! who cannot see it.

use gateway::snapshot::{Next, Nobody, SeatState, SeatView, Snapshot, WindowView};

use crate::facts::RouterState;
use crate::icon::{Look, STEPS};
use crate::preferences::{MenuBar, Percent, Preferences};
use crate::words::{Key, Words};

/// All of a seat, in basis points.
const ALL: u32 = 10_000;
/// Less than this of all seats together is little.
const LOW: u32 = 1_500;
/// As wide as a digit.
const FIGURE_SPACE: char = '\u{2007}';

/// What the menu bar says. Two equal ones need no new drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// The picture.
    pub look: Look,
    /// The text beside it, if the owner wants one.
    pub title: Option<String>,
    /// All of it in words.
    pub sentence: String,
}

/// Looks at the router. `snapshot` is `None` while there is nothing to know.
pub fn glance(router: &RouterState, snapshot: Option<&Snapshot>, wanted: &Preferences, words: &Words) -> Glance {
    let down = |listening, key| Glance {
        look: Look::Problem { listening },
        title: None,
        sentence: words.say(key, &[]),
    };
    let snapshot = match (router, snapshot) {
        (RouterState::Running, Some(snapshot)) => snapshot,
        (RouterState::Starting | RouterState::Running, _) => {
            return Glance {
                look: Look::Routing { level: 0, low: false },
                title: None,
                sentence: words.say(Key::Starting, &[]),
            };
        }
        (RouterState::HeldByService { .. }, _) => return down(false, Key::HeldByService),
        (RouterState::Failed { .. }, _) => return down(false, Key::NotListening),
    };
    if snapshot.listening.is_empty() {
        return down(false, Key::NotListening);
    }
    let room = room(snapshot);
    let level = room.map_or(0, steps);
    if snapshot.routing.paused {
        return Glance {
            look: Look::Paused { level },
            title: None,
            sentence: words.say(Key::Paused, &[]),
        };
    }
    let name = |id: &str| name(snapshot, id, wanted, words);
    match &snapshot.next {
        Next::Seat { seat, .. } => {
            let low = room.is_some_and(|room| room < LOW);
            let tightest = snapshot.seats.iter().find(|view| view.id == *seat).and_then(tightest);
            Glance {
                look: Look::Routing { level, low },
                title: tightest.and_then(|window| title(window, snapshot.now, wanted)),
                sentence: routing(&name(seat), tightest, low, snapshot.now, words),
            }
        }
        Next::Nobody { why: Nobody::Resting, returns_at, seat } => Glance {
            look: Look::Resting,
            title: None,
            sentence: match (seat, returns_at) {
                (Some(seat), Some(at)) => {
                    let time = span(at - snapshot.now, words);
                    words.say(Key::RestingUntil, &[("seat", &name(seat)), ("time", &time)])
                }
                _ => words.say(Key::Resting, &[]),
            },
        },
        Next::Nobody { why: Nobody::Paused, .. } => Glance {
            look: Look::Paused { level },
            title: None,
            sentence: words.say(Key::Paused, &[]),
        },
        Next::Nobody { why: Nobody::Renewing, .. } => Glance {
            look: Look::Routing { level, low: false },
            title: None,
            sentence: words.say(Key::Starting, &[]),
        },
        Next::Nobody { why: Nobody::NoSeat, .. } => down(true, Key::NoSeat),
        Next::Nobody { .. } => down(true, Key::NeedsYou),
    }
}

/// How a seat is called on the screen. With names hidden, by its place.
pub fn name(snapshot: &Snapshot, id: &str, wanted: &Preferences, words: &Words) -> String {
    let place = snapshot.seats.iter().position(|seat| seat.id == id);
    match place.map(|place| (place, &snapshot.seats[place])) {
        Some((_, seat)) if !wanted.hide_names => seat.label.clone(),
        Some((_, SeatView { name: Some(name), .. })) => name.clone(),
        Some((place, _)) => words.say(Key::Seat, &[("n", &(place + 1).to_string())]),
        None => words.say(Key::Seat, &[("n", "–")]),
    }
}

fn routing(name: &str, tightest: Option<&WindowView>, low: bool, now: i64, words: &Words) -> String {
    let mut sentence = match tightest {
        Some(window) => {
            let percent = percent_used(window).to_string();
            words.say(Key::Routing, &[("seat", name), ("percent", &percent)])
        }
        None => words.say(Key::RoutingUnread, &[("seat", name)]),
    };
    if let Some(at) = tightest.and_then(|window| window.resets_at) {
        sentence = format!("{sentence}, {}", words.say(Key::Resets, &[("time", &span(at - now, words))]));
    }
    if low {
        sentence = format!("{sentence}. {}", words.say(Key::Low, &[]));
    }
    sentence
}

/// The text beside the icon, always as wide.
fn title(window: &WindowView, now: i64, wanted: &Preferences) -> Option<String> {
    match wanted.menu_bar {
        MenuBar::Icon => None,
        MenuBar::Percent => {
            let percent = match wanted.percent {
                Percent::Used => percent_used(window),
                Percent::Left => 100_u16.saturating_sub(percent_used(window)),
            };
            let narrow = if percent < 10 { FIGURE_SPACE.to_string() } else { String::new() };
            Some(format!("{narrow}{percent}%"))
        }
        MenuBar::Time => {
            let left = (window.resets_at? - now).max(0);
            Some(match (left / 86_400, left / 3_600, left / 60) {
                (days @ 1.., ..) => format!("{days}d"),
                (_, hours @ 1.., _) => format!("{hours}h"),
                (_, _, minutes) => format!("{minutes}m"),
            })
        }
    }
}

/// A time to come, in words.
pub fn span(seconds: i64, words: &Words) -> String {
    let minutes = (seconds.max(0) + 59) / 60;
    let (days, hours) = (minutes / (24 * 60), minutes / 60 % 24);
    if days > 0 {
        words.say(Key::DaysHours, &[("days", &days.to_string()), ("hours", &hours.to_string())])
    } else if hours > 0 {
        let minutes = (minutes % 60).to_string();
        words.say(Key::HoursMinutes, &[("hours", &hours.to_string()), ("minutes", &minutes)])
    } else {
        words.count(Key::Minutes, minutes.unsigned_abs(), &[])
    }
}

/// The allowance that counts first: the fullest of those that every model uses.
fn tightest(seat: &SeatView) -> Option<&WindowView> {
    let common = seat.windows.iter().filter(|window| window.family.is_none());
    common.max_by_key(|window| window.used)
}

/// Full only when it is, and used as soon as it is.
fn percent_used(window: &WindowView) -> u16 {
    match window.used {
        0 => 0,
        used @ 1..=99 => used.div_ceil(100),
        used => used / 100,
    }
}

/// What is left of all seats together, in basis points; `None` if none was read.
fn room(snapshot: &Snapshot) -> Option<u32> {
    let rooms = snapshot.seats.iter().filter_map(|seat| match seat.state {
        SeatState::Ready | SeatState::ReadyBut { .. } | SeatState::Renewing => {
            Some(ALL.saturating_sub(tightest(seat)?.used.into()))
        }
        SeatState::Resting { .. } => Some(0),
        SeatState::Paused
        | SeatState::LoggedOut
        | SeatState::Expired { .. }
        | SeatState::NeedsLogin { .. }
        | SeatState::Refused
        | SeatState::Unreadable
        | SeatState::NeedsPermission => None,
    });
    let (sum, count) = rooms.fold((0, 0), |(sum, count), room| (sum + room, count + 1));
    (count > 0).then(|| sum / count)
}

/// Empty only when nothing is left.
fn steps(room: u32) -> u8 {
    let steps = (room * u32::from(STEPS)).div_ceil(ALL);
    u8::try_from(steps).unwrap_or(STEPS).min(STEPS)
}
