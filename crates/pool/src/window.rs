//! How much of an allowance is used, and when it returns.
//!
//! Anthropic tells the same thing in three ways: a percentage in the usage answer, a fraction in response headers,
//! and a status. Here it is one number with a type, so that per cent and fraction cannot be mixed up.

use alloc::{format, string::String, sync::Arc};
use core::fmt;

use jiff::Timestamp;

/// The used share of a window, in basis points: 10 000 is all of it.
///
/// It may exceed 10 000, since Anthropic reports shares above one hundred per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utilization(u16);

impl Utilization {
    /// All of the window.
    pub const FULL: Self = Self(10_000);

    /// Returns `None` unless `percent` is finite and not negative; the usage answer speaks in per cent.
    pub fn from_percent(percent: f64) -> Option<Self> {
        Self::from_fraction(percent / 100.0)
    }

    /// Returns `None` unless `fraction` is finite and not negative; the response headers speak in fractions.
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        if !fraction.is_finite() || fraction < 0.0 {
            return None;
        }
        // Rounded by hand, since `f64::round` lives in std; a float-to-int cast saturates.
        Some(Self((fraction * 10_000.0 + 0.5) as u16))
    }

    /// The share from basis points.
    pub const fn from_basis_points(basis_points: u16) -> Self {
        Self(basis_points)
    }

    /// The share in basis points.
    pub const fn basis_points(self) -> u16 {
        self.0
    }

    /// The share in whole per cent, at most 100, as a person should see it.
    pub const fn shown_percent(self) -> u16 {
        let percent = self.0 / 100;
        if percent > 100 { 100 } else { percent }
    }

    /// Whether nothing is left.
    pub const fn is_full(self) -> bool {
        self.0 >= Self::FULL.0
    }

    /// What is left, in basis points; 0 when it is full.
    pub const fn left(self) -> u16 {
        Self::FULL.0.saturating_sub(self.0)
    }
}

/// The name of a family of models with an allowance of its own, in lower case: `fable`.
///
/// Families are learnt from what Anthropic says, not from a list of ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family(Arc<str>);

impl Family {
    /// The family of that name, in whatever case it was written.
    pub fn new(name: &str) -> Self {
        Self(name.to_lowercase().into())
    }

    /// The name in lower case.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether `model` (an id such as `claude-fable-5`) belongs to this family.
    pub fn governs(&self, model: &str) -> bool {
        // Asked for every seat with every request, so nothing is allocated, and most places are left at their first letter.
        let (model, name) = (model.as_bytes(), self.0.as_bytes());
        let Some(first) = name.first() else { return false };
        model
            .windows(name.len())
            .any(|part| part[0].eq_ignore_ascii_case(first) && part.eq_ignore_ascii_case(name))
    }
}

/// Which allowance: one for five hours, one for the week, and one a week for some families of models.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WindowKind {
    /// All models, five hours from the first use.
    FiveHour,
    /// All models, a week.
    Weekly,
    /// One family of models, a week.
    Model(Family),
}

impl WindowKind {
    /// Whether this window counts the use of `model`. A request whose model is not known is counted by the
    /// general windows alone.
    pub fn governs(&self, model: Option<&str>) -> bool {
        match self {
            Self::FiveHour | Self::Weekly => true,
            Self::Model(family) => model.is_some_and(|model| family.governs(model)),
        }
    }
}

impl WindowKind {
    /// A word that stands for it where it is kept.
    pub fn word(&self) -> String {
        match self {
            Self::FiveHour => "fiveHour".into(),
            Self::Weekly => "weekly".into(),
            Self::Model(family) => format!("model:{}", family.name()),
        }
    }

    /// The window that `word` stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "fiveHour" => Some(Self::FiveHour),
            "weekly" => Some(Self::Weekly),
            _ => word.strip_prefix("model:").map(|name| Self::Model(Family::new(name))),
        }
    }
}

/// "5-hour", "weekly" or the family's name with a capital, as it stands in front of the word *limit*.
impl fmt::Display for WindowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FiveHour => f.write_str("5-hour"),
            Self::Weekly => f.write_str("weekly"),
            Self::Model(family) => {
                let mut letters = family.name().chars();
                let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
                write!(f, "{first}{}", letters.as_str())
            }
        }
    }
}

/// One allowance as it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The share that was used when it was seen.
    pub used: Utilization,
    /// When it is empty again; `None` while it has not been opened.
    pub resets_at: Option<Timestamp>,
    /// When it was seen.
    pub observed_at: Timestamp,
}

impl Window {
    /// The used share as of `now`: nothing, once the window has reset.
    pub fn used_at(&self, now: Timestamp) -> Utilization {
        match self.resets_at {
            Some(reset) if reset <= now => Utilization::default(),
            _ => self.used,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn window(percent: f64, resets_at: Option<i64>, observed_at: i64) -> Window {
        Window {
            used: Utilization::from_percent(percent).unwrap(),
            resets_at: resets_at.map(at),
            observed_at: at(observed_at),
        }
    }

    #[test]
    fn a_window_is_empty_from_the_instant_it_resets() {
        let seen = window(90.0, Some(100), 0);
        for (now, want) in [(99, 9_000), (100, 0), (101, 0)] {
            assert_eq!(seen.used_at(at(now)).basis_points(), want, "now = {now}");
        }
    }

    #[test]
    fn lm_10_a_share_over_one_hundred_per_cent_is_full_and_shown_as_one_hundred() {
        for share in [
            Utilization::from_fraction(1.02),
            Utilization::from_percent(104.3),
            Utilization::from_percent(1e9),
        ] {
            let share = share.unwrap();
            assert!(
                share.is_full() && share.left() == 0 && share.shown_percent() == 100,
                "{share:?}"
            );
        }
    }

    #[test]
    fn a_share_that_is_no_number_is_refused() {
        for odd in [f64::NAN, f64::INFINITY, -0.1] {
            assert_eq!(Utilization::from_percent(odd), None, "{odd}");
        }
    }

    #[test]
    fn kinds_read_well_in_front_of_the_word_limit() {
        for (kind, want) in [
            (WindowKind::FiveHour, "5-hour"),
            (WindowKind::Weekly, "weekly"),
            (WindowKind::Model(Family::new("fable")), "Fable"),
        ] {
            assert_eq!(kind.to_string(), want);
            assert_eq!(WindowKind::from_word(&kind.word()), Some(kind));
        }
    }
}
