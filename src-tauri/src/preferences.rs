//! The app's own settings: the object `app` of `config.json`, and the language beside it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the owner wants of the app. What is missing or cannot be understood counts as its default: a preference is no
/// reason to refuse a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preferences {
    /// Whether the introduction was gone through.
    pub onboarded: bool,
    /// What stands in the menu bar.
    pub menu_bar: MenuBar,
    /// Whether a per cent is what was used, or what is left.
    pub percent: Percent,
    /// Whether a reset is told as the time left or by the clock.
    pub resets: Resets,
    /// Whether names are hidden.
    pub hide_names: bool,
    /// Whether this machine stays awake while it serves, as long as it is on power.
    pub keep_awake: bool,
    /// Whether the app asks once a day for a newer release.
    pub check_updates: bool,
    /// What banners are shown for.
    pub notify: Notify,
}

impl Default for Preferences {
    fn default() -> Self {
        Self {
            onboarded: false,
            menu_bar: MenuBar::Icon,
            percent: Percent::Used,
            resets: Resets::Left,
            hide_names: false,
            keep_awake: false,
            check_updates: false,
            notify: Notify::default(),
        }
    }
}

/// What stands in the menu bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MenuBar {
    /// The icon alone.
    Icon,
    /// The icon and a per cent.
    Percent,
    /// The icon and the time to the next reset.
    Time,
}

/// What a per cent is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Percent {
    /// What was used.
    Used,
    /// What is left.
    Left,
}

/// How a reset is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resets {
    /// As the time left.
    Left,
    /// By the clock.
    Clock,
}

/// What banners are shown for. The first two want a person, and are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Notify {
    /// Every seat is at its limit.
    pub all_resting: bool,
    /// A seat wants a person, and no other can stand in.
    pub attention: bool,
    /// At this pace the seats will not last.
    pub runs_dry: bool,
    /// The first seat is back after all were at their limits.
    pub back: bool,
    /// A device asked for something for the first time.
    pub new_device: bool,
    /// A device was refused.
    pub refused_device: bool,
}

impl Notify {
    /// Whether one is wanted that was not wanted `before`: the moment to ask for leave, where that is needed.
    pub const fn wants_more_than(&self, before: &Self) -> bool {
        self.all_resting && !before.all_resting
            || self.attention && !before.attention
            || self.runs_dry && !before.runs_dry
            || self.back && !before.back
            || self.new_device && !before.new_device
            || self.refused_device && !before.refused_device
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self {
            all_resting: true,
            attention: true,
            runs_dry: false,
            back: false,
            new_device: false,
            refused_device: false,
        }
    }
}

impl Preferences {
    /// The preferences in the settings' `app`, each default where it has none.
    pub fn read(app: &Value) -> Self {
        let mut whole = serde_json::to_value(Self::default()).expect("preferences are plain data");
        overlay(&mut whole, app);
        serde_json::from_value(whole).expect("only values of the right form were laid over")
    }
}

/// Lays `over` on `under` field by field, where the field exists and the value has its form.
fn overlay(under: &mut Value, over: &Value) {
    let (Value::Object(under), Value::Object(over)) = (under, over) else {
        return;
    };
    for (name, value) in under {
        let Some(wanted) = over.get(name) else { continue };
        match value {
            Value::Object(_) => overlay(value, wanted),
            Value::Bool(_) if wanted.is_boolean() => *value = wanted.clone(),
            Value::String(_) if is_choice(name, wanted) => *value = wanted.clone(),
            _ => {}
        }
    }
}

fn is_choice(name: &str, value: &Value) -> bool {
    match name {
        "menuBar" => MenuBar::deserialize(value).is_ok(),
        "percent" => Percent::deserialize(value).is_ok(),
        "resets" => Resets::deserialize(value).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leave_is_asked_for_when_one_more_kind_of_banner_is_wanted() {
        let usual = Notify::default();
        let more = Notify {
            back: true,
            all_resting: false,
            ..usual
        };
        assert!(more.wants_more_than(&usual) && usual.wants_more_than(&more));
        assert!(!usual.wants_more_than(&usual));
        let fewer = Notify {
            attention: false,
            ..usual
        };
        assert!(!fewer.wants_more_than(&usual));
    }

    #[test]
    fn what_is_missing_or_odd_is_the_default_and_spoils_nothing_else() {
        let read = Preferences::read(&json!({
            "keepAwake": true, "menuBar": "everything", "percent": "left", "onboarded": "yes",
            "notify": {"allResting": false, "back": 1, "other": true}, "later": {},
        }));
        let expected = Preferences {
            keep_awake: true,
            percent: Percent::Left,
            notify: Notify {
                all_resting: false,
                ..Notify::default()
            },
            ..Preferences::default()
        };
        assert_eq!(read, expected);
        assert_eq!(Preferences::read(&Value::Null), Preferences::default());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mine = Preferences {
            onboarded: true,
            menu_bar: MenuBar::Time,
            resets: Resets::Clock,
            check_updates: true,
            ..Preferences::default()
        };
        assert_eq!(Preferences::read(&serde_json::to_value(&mine).unwrap()), mine);
    }
}
