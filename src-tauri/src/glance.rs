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
        Next::Nobody {
            why: Nobody::Resting,
            returns_at,
            seat,
        } => Glance {
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
        Next::Nobody {
            why: Nobody::Paused, ..
        } => Glance {
            look: Look::Paused { level },
            title: None,
            sentence: words.say(Key::Paused, &[]),
        },
        Next::Nobody {
            why: Nobody::Renewing | Nobody::LoginDelayed | Nobody::Returning,
            ..
        } => Glance {
            look: Look::Routing { level, low: false },
            title: None,
            sentence: words.say(Key::Starting, &[]),
        },
        Next::Nobody {
            why: Nobody::NoSeat, ..
        } => down(true, Key::NoSeat),
        Next::Nobody {
            why: Nobody::NeedLogin | Nobody::LoginsRefused | Nobody::NotAllowed | Nobody::Exhausted,
            ..
        } => down(true, Key::NeedsYou),
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
        sentence = format!(
            "{sentence}, {}",
            words.say(Key::Resets, &[("time", &span(at - now, words))])
        );
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
            let narrow = if percent < 10 {
                FIGURE_SPACE.to_string()
            } else {
                String::new()
            };
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
        words.say(
            Key::DaysHours,
            &[("days", &days.to_string()), ("hours", &hours.to_string())],
        )
    } else if hours > 0 {
        let minutes = (minutes % 60).to_string();
        words.say(
            Key::HoursMinutes,
            &[("hours", &hours.to_string()), ("minutes", &minutes)],
        )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Failure;
    use crate::testing::{NOW, resting, seat, snapshot};
    use crate::words::Language;

    fn look(snapshot: &Snapshot, wanted: &Preferences) -> Glance {
        glance(&RouterState::Running, Some(snapshot), wanted, &Words::new(Language::En))
    }

    #[test]
    fn every_state_has_its_look_and_its_sentence() {
        let usual = Preferences::default();
        let ready = |used| seat("work", SeatState::Ready, used);
        let mut paused = snapshot(vec![ready(Some(4_100))]);
        paused.routing.paused = true;
        let mut deaf = snapshot(vec![ready(Some(4_100))]);
        deaf.listening.clear();
        let mut nobody = snapshot(Vec::new());
        nobody.next = Next::Nobody {
            why: Nobody::NoSeat,
            returns_at: None,
            seat: None,
        };
        let expired = seat("work", SeatState::Expired { since: NOW - 60 }, None);
        let table = [
            (
                snapshot(vec![ready(Some(4_100))]),
                Look::Routing { level: 4, low: false },
                "Routing. work next, 41 percent used, resets in 2 h 10 min",
            ),
            (
                snapshot(vec![ready(Some(8_600)), seat("home", resting(600), Some(10_000))]),
                Look::Routing { level: 1, low: true },
                "Routing. work next, 86 percent used, resets in 2 h 10 min. Little is left",
            ),
            (
                snapshot(vec![ready(None)]),
                Look::Routing { level: 0, low: false },
                "Routing. work next, not read yet",
            ),
            (
                snapshot(vec![
                    seat("work", resting(3_600), Some(10_000)),
                    seat("home", resting(300), Some(10_000)),
                ]),
                Look::Resting,
                "Every account is resting. First back: home, in 5 minutes",
            ),
            (paused, Look::Paused { level: 4 }, "Routing is paused"),
            (
                deaf,
                Look::Problem { listening: false },
                "The router is not running. Open the panel to see why",
            ),
            (
                nobody,
                Look::Problem { listening: true },
                "No Claude login found on this machine",
            ),
            (
                snapshot(vec![expired]),
                Look::Problem { listening: true },
                "No account can serve. Open the panel to see why",
            ),
        ];
        for (snapshot, expected, sentence) in table {
            let seen = look(&snapshot, &usual);
            assert_eq!((seen.look, seen.sentence.as_str()), (expected, sentence));
            assert_eq!(seen.title, None, "no text unless it is wanted");
        }
    }

    #[test]
    fn a_router_that_does_not_run_is_a_problem_and_one_that_begins_is_none() {
        let words = Words::new(Language::En);
        let seen = |state| glance(&state, None, &Preferences::default(), &words).look;
        assert_eq!(seen(RouterState::Starting), Look::Routing { level: 0, low: false });
        assert_eq!(
            seen(RouterState::HeldByService { pid: None }),
            Look::Problem { listening: false }
        );
        let failed = RouterState::Failed {
            code: Failure::PortBusy,
            words: String::new(),
            port: Some(1),
            holder: None,
        };
        assert_eq!(seen(failed), Look::Problem { listening: false });
    }

    #[test]
    fn gu_03_a_seat_that_was_never_read_counts_for_nothing_and_not_as_empty() {
        let one = snapshot(vec![
            seat("work", SeatState::Ready, Some(5_000)),
            seat("new", SeatState::Ready, None),
        ]);
        assert_eq!(
            look(&one, &Preferences::default()).look,
            Look::Routing { level: 3, low: false }
        );
    }

    #[test]
    fn the_text_beside_the_icon_keeps_its_width() {
        let title = |menu_bar, percent, used| {
            let wanted = Preferences {
                menu_bar,
                percent,
                ..Preferences::default()
            };
            look(&snapshot(vec![seat("work", SeatState::Ready, Some(used))]), &wanted).title
        };
        assert_eq!(title(MenuBar::Percent, Percent::Used, 4_199).as_deref(), Some("41%"));
        assert_eq!(title(MenuBar::Percent, Percent::Used, 5).as_deref(), Some("\u{2007}1%"));
        assert_eq!(
            title(MenuBar::Percent, Percent::Left, 9_200).as_deref(),
            Some("\u{2007}8%")
        );
        assert_eq!(title(MenuBar::Time, Percent::Used, 100).as_deref(), Some("2h"));
    }

    #[test]
    fn gu_01_a_second_of_jitter_in_a_reset_draws_nothing_anew() {
        let early = snapshot(vec![seat("work", SeatState::Ready, Some(4_100))]);
        let mut late = early.clone();
        late.seats[0].windows[0].resets_at = Some(NOW + 7_799);
        assert_eq!(
            look(&early, &Preferences::default()),
            look(&late, &Preferences::default())
        );
    }

    #[test]
    fn hidden_names_are_places_but_for_those_the_owner_gave() {
        let mut both = snapshot(vec![
            seat("work", SeatState::Ready, Some(1)),
            seat("home", SeatState::Ready, Some(1)),
        ]);
        both.seats[1].name = Some("Evening".into());
        let hiding = Preferences {
            hide_names: true,
            ..Preferences::default()
        };
        let words = Words::new(Language::En);
        assert_eq!(name(&both, "id-work", &hiding, &words), "Account 1");
        assert_eq!(name(&both, "id-home", &hiding, &words), "Evening");
        assert_eq!(name(&both, "id-work", &Preferences::default(), &words), "work");
    }

    #[test]
    fn a_level_is_empty_only_when_nothing_is_left_and_full_only_when_all_is() {
        for (room, level) in [
            (0, 0),
            (1, 1),
            (1_667, 2),
            (5_000, 3),
            (8_333, 5),
            (8_334, 6),
            (10_000, 6),
        ] {
            assert_eq!(steps(room), level, "{room}");
        }
    }
}
