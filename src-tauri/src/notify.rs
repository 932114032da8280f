//! Banners. Where there is nobody to show them, nothing happens.

use std::thread;

use gateway::snapshot::Snapshot;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::glance::name;
use crate::notices::Notice;
use crate::platform;
use crate::preferences::Preferences;
use crate::words::{Key, Words};

/// A banner's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Banner {
    /// In bold.
    pub title: String,
    /// Beneath.
    pub body: String,
}

/// What a banner says of `notices`: of one its own words, of several a line each. No address of a person stands in it.
pub fn word(notices: &[Notice], snapshot: &Snapshot, wanted: &Preferences, words: &Words, zone: &TimeZone) -> Banner {
    let lines: Vec<(String, String)> = notices
        .iter()
        .map(|notice| line(notice, snapshot, wanted, words, zone))
        .collect();
    match lines.as_slice() {
        [(title, body)] => Banner {
            title: title.clone(),
            body: body.clone(),
        },
        several => Banner {
            title: words.say(Key::SeveralTitle, &[]),
            body: several
                .iter()
                .map(|(_, body)| body.as_str())
                .collect::<Vec<_>>()
                .join("\n"),
        },
    }
}

fn line(
    notice: &Notice,
    snapshot: &Snapshot,
    wanted: &Preferences,
    words: &Words,
    zone: &TimeZone,
) -> (String, String) {
    let clock = |at: i64| clock(at, snapshot.now, zone);
    let name = |seat: &str| name(snapshot, seat, wanted, words);
    let (title, body) = match notice {
        Notice::Attention { seat } => (Key::AttentionTitle, words.say(Key::Attention, &[("seat", &name(seat))])),
        Notice::AllResting {
            seat: Some(seat),
            until: Some(until),
        } => {
            let with = [("seat", name(seat)), ("time", clock(*until))];
            let with = with.each_ref().map(|(key, value)| (*key, value.as_str()));
            (Key::AllRestingTitle, words.say(Key::AllRestingUntil, &with))
        }
        Notice::AllResting { .. } => (Key::AllRestingTitle, words.say(Key::AllResting, &[])),
        Notice::RunsDry { at } => (Key::RunsDryTitle, words.say(Key::RunsDry, &[("time", &clock(*at))])),
        Notice::Back { seat } => (Key::BackTitle, words.say(Key::Back, &[("seat", &name(seat))])),
        Notice::NewDevice { device } => {
            let view = snapshot.devices.iter().find(|view| view.id == *device);
            let device = view.map_or("–", |view| view.name.as_str());
            (Key::NewDeviceTitle, words.say(Key::NewDevice, &[("device", device)]))
        }
        Notice::Refused => (Key::RefusedTitle, words.say(Key::Refused, &[])),
    };
    (words.say(title, &[]), body)
}

/// A time of day, with the day where it is another one.
fn clock(at: i64, now: i64, zone: &TimeZone) -> String {
    let local = |at: i64| Timestamp::from_second(at).ok().map(|at| zone.to_datetime(at));
    match (local(at), local(now)) {
        (Some(at), Some(now)) if at.date() == now.date() => at.strftime("%H:%M").to_string(),
        (Some(at), _) => at.strftime("%m-%d %H:%M").to_string(),
        (None, _) => "–".into(),
    }
}

/// Asks for leave to show banners, where the system wants its owner asked.
pub fn ask() {
    aside(|| {
        is_allowed();
    });
}

/// Shows it.
pub fn show(banner: Banner) {
    aside(move || {
        if !is_allowed() {
            return;
        }
        let shown = notify_rust::Notification::new()
            .appname("Claude Proxy Router")
            .summary(&banner.title)
            .body(&banner.body)
            .show();
        if let Err(error) = shown {
            tracing::debug!("a banner was not shown: {error}");
        }
    });
}

fn is_allowed() -> bool {
    let allowed = platform::may_notify();
    if !allowed {
        tracing::info!("banners are not allowed");
    }
    allowed
}

/// On a thread that may wait for the desktop, or for a person.
fn aside(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::Builder::new().name("banner".into()).spawn(work) {
        tracing::debug!("a banner was not shown: {error}");
    }
}

#[cfg(test)]
mod tests {
    use gateway::snapshot::SeatState;

    use super::*;
    use crate::testing::{NOW, resting, seat, snapshot};
    use crate::words::Language;

    #[test]
    fn a_banner_has_names_and_times_but_no_e_mail_address() {
        let all = snapshot(vec![
            seat("work", resting(3_600), Some(10_000)),
            seat("home", SeatState::Refused, None),
        ]);
        let zone = TimeZone::fixed(jiff::tz::offset(9));
        let say =
            |notices: &[Notice], language| word(notices, &all, &Preferences::default(), &Words::new(language), &zone);
        let resting = Notice::AllResting {
            seat: Some("id-work".into()),
            until: Some(NOW + 3_600),
        };
        let attention = Notice::Attention { seat: "id-home".into() };
        let one = say(std::slice::from_ref(&resting), Language::En);
        assert_eq!(one.title, "Every account is at its limit");
        assert_eq!(one.body, "First back: work, at 18:00");
        let both = say(&[attention, resting], Language::Ko);
        assert_eq!(both.body.lines().count(), 2);
        assert!(!both.body.contains('@'));
    }

    #[test]
    fn gu_02_a_time_on_another_day_says_which() {
        let zone = TimeZone::fixed(jiff::tz::offset(9));
        assert_eq!(clock(NOW, NOW, &zone), "17:00");
        assert_eq!(clock(NOW + 86_400, NOW, &zone), "01-16 17:00");
        assert_eq!(clock(NOW, NOW, &TimeZone::UTC), "08:00");
    }
}
