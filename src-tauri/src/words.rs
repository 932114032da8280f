//! What the app itself says: the tray, its menu, banners. The sentences stand with the pages' own, in both languages,
//! and are put in at compile time.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A language that the app speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    En,
    /// Korean.
    Ko,
}

impl Language {
    /// The language that the settings name, or else the system's, as its variables or its preferred list tell it.
    pub fn choose(setting: Option<&str>, system: Option<&str>) -> Self {
        let named = setting.filter(|setting| *setting != "system").or(system);
        match named {
            Some(name) if name.starts_with("ko") => Self::Ko,
            _ => Self::En,
        }
    }

    /// Its code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Ko => "ko",
        }
    }
}

macro_rules! keys {
    ($($name:ident = $key:literal,)*) => {
        /// A sentence of the app's own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Key { $($name,)* }

        impl Key {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its key in the files.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }
        }
    };
}

keys! {
    Open = "tray.open",
    Pause = "tray.pause",
    Resume = "tray.resume",
    CopyAddress = "tray.copyAddress",
    Test = "tray.test",
    CopyDiagnostics = "tray.copyDiagnostics",
    Reload = "tray.reload",
    Settings = "tray.settings",
    Quit = "tray.quit",
    QuitNow = "tray.quitNow",
    Routing = "tray.routing",
    RoutingUnread = "tray.routingUnread",
    Low = "tray.low",
    Resting = "tray.resting",
    RestingUntil = "tray.restingUntil",
    Paused = "tray.paused",
    Starting = "tray.starting",
    NoSeat = "tray.noSeat",
    NeedsYou = "tray.needsYou",
    NotListening = "tray.notListening",
    HeldByService = "tray.heldByService",
    Resets = "tray.resets",
    DaysHours = "tray.daysHours",
    HoursMinutes = "tray.hoursMinutes",
    Minutes = "tray.minutes",
    Seat = "tray.seat",
    AllRestingTitle = "notify.allRestingTitle",
    AllResting = "notify.allResting",
    AllRestingUntil = "notify.allRestingUntil",
    AttentionTitle = "notify.attentionTitle",
    Attention = "notify.attention",
    RunsDryTitle = "notify.runsDryTitle",
    RunsDry = "notify.runsDry",
    BackTitle = "notify.backTitle",
    Back = "notify.back",
    NewDeviceTitle = "notify.newDeviceTitle",
    NewDevice = "notify.newDevice",
    RefusedTitle = "notify.refusedTitle",
    Refused = "notify.refused",
    SeveralTitle = "notify.severalTitle",
}

/// The sentences of one language.
#[derive(Clone, Debug)]
pub struct Words {
    language: Language,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    Plain(String),
    Counted {
        #[serde(default)]
        one: Option<String>,
        other: String,
    },
}

impl Words {
    /// The sentences of `language`.
    pub fn new(language: Language) -> Self {
        let text = match language {
            Language::En => include_str!("../../ui/src/locales/en.json"),
            Language::Ko => include_str!("../../ui/src/locales/ko.json"),
        };
        Self {
            language,
            entries: serde_json::from_str(text).expect("a test reads both files"),
        }
    }

    /// Which language they are in.
    pub const fn language(&self) -> Language {
        self.language
    }

    /// The sentence `key`, with its `{names}` filled in.
    pub fn say(&self, key: Key, with: &[(&str, &str)]) -> String {
        match self.entries.get(key.text()) {
            Some(Entry::Plain(text) | Entry::Counted { other: text, .. }) => fill(text, with),
            None => key.text().into(),
        }
    }

    /// The sentence `key` about `count` things, which it calls `{n}`.
    pub fn count(&self, key: Key, count: u64, with: &[(&str, &str)]) -> String {
        let text = match self.entries.get(key.text()) {
            Some(Entry::Counted { one: Some(one), .. }) if count == 1 => one,
            Some(Entry::Plain(text) | Entry::Counted { other: text, .. }) => text,
            None => return key.text().into(),
        };
        let count = count.to_string();
        fill(text, &[with, &[("n", &count)]].concat())
    }
}

fn fill(text: &str, with: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (name, value) in with {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Language; 2] = [Language::En, Language::Ko];

    #[test]
    fn both_languages_have_exactly_the_sentences_that_are_used() {
        for language in BOTH {
            let words = Words::new(language);
            let ours = |key: &&String| key.starts_with("tray.") || key.starts_with("notify.");
            let there: Vec<&str> = words.entries.keys().filter(ours).map(String::as_str).collect();
            let mut used: Vec<&str> = Key::ALL.iter().map(|key| key.text()).collect();
            used.sort_unstable();
            assert_eq!(there, used, "{language:?}");
        }
    }

    #[test]
    fn both_languages_fill_in_the_same_names() {
        let names = |words: &Words, key: Key| {
            let text = match &words.entries[key.text()] {
                Entry::Plain(text) | Entry::Counted { other: text, .. } => text.clone(),
            };
            let mut names: Vec<String> = text
                .split('{')
                .skip(1)
                .filter_map(|part| part.split_once('}').map(|(name, _)| name.to_owned()))
                .collect();
            names.sort();
            names
        };
        let (en, ko) = (Words::new(Language::En), Words::new(Language::Ko));
        for key in Key::ALL {
            assert_eq!(names(&en, *key), names(&ko, *key), "{}", key.text());
        }
    }

    #[test]
    fn the_settings_go_before_the_system() {
        for (setting, system, language) in [
            (None, None, Language::En),
            (None, Some("ko_KR.UTF-8"), Language::Ko),
            (Some("system"), Some("ko-KR"), Language::Ko),
            (Some("en"), Some("ko_KR"), Language::En),
            (Some("ko"), Some("de_DE"), Language::Ko),
            (Some("system"), Some("de_DE"), Language::En),
        ] {
            assert_eq!(Language::choose(setting, system), language, "{setting:?} {system:?}");
        }
    }

    #[test]
    fn a_count_of_one_has_its_own_words_where_the_language_has_them() {
        let words = Words::new(Language::En);
        assert_eq!(words.count(Key::Minutes, 1, &[]), "1 minute");
        assert_eq!(words.count(Key::Minutes, 2, &[]), "2 minutes");
        assert_eq!(Words::new(Language::Ko).count(Key::Minutes, 1, &[]), "1분");
    }
}
