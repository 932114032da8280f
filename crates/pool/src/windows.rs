//! The windows of one seat, and what else there is of each of them.

use alloc::vec::Vec;

use jiff::Timestamp;

use crate::window::{Utilization, Window, WindowKind};

/// A `T` of each window of which there is one.
///
/// What every seat has lies in the seat itself: each choice walks over those of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PerWindow<T> {
    five_hours: Option<T>,
    week: Option<T>,
    /// By name.
    families: Vec<(WindowKind, T)>,
}

impl<T> Default for PerWindow<T> {
    fn default() -> Self {
        Self {
            five_hours: None,
            week: None,
            families: Vec::new(),
        }
    }
}

impl<T> PerWindow<T> {
    /// That of the window of that kind.
    pub(crate) fn get(&self, kind: &WindowKind) -> Option<&T> {
        match kind {
            WindowKind::FiveHour => self.five_hours.as_ref(),
            WindowKind::Weekly => self.week.as_ref(),
            WindowKind::Model(_) => self.families.iter().find(|(known, _)| known == kind).map(|(_, it)| it),
        }
    }

    /// That of the window of that kind, made by `new` where there is none.
    pub(crate) fn or_insert_with(&mut self, kind: &WindowKind, new: impl FnOnce() -> T) -> &mut T {
        match kind {
            WindowKind::FiveHour => self.five_hours.get_or_insert_with(new),
            WindowKind::Weekly => self.week.get_or_insert_with(new),
            WindowKind::Model(_) => {
                let at = self.families.binary_search_by(|(known, _)| known.cmp(kind));
                let at = at.unwrap_or_else(|at| {
                    self.families.insert(at, (kind.clone(), new()));
                    at
                });
                &mut self.families[at].1
            }
        }
    }

    /// All of them, in the order five-hour, weekly, families by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&WindowKind, &T)> {
        let five_hours = self.five_hours.iter().map(|it| (&WindowKind::FiveHour, it));
        let week = self.week.iter().map(|it| (&WindowKind::Weekly, it));
        let families = self.families.iter().map(|(kind, it)| (kind, it));
        five_hours.chain(week).chain(families)
    }

    /// All of them, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&WindowKind, &mut T)> {
        let five_hours = self.five_hours.iter_mut().map(|it| (&WindowKind::FiveHour, it));
        let week = self.week.iter_mut().map(|it| (&WindowKind::Weekly, it));
        let families = self.families.iter_mut().map(|(kind, it)| (&*kind, it));
        five_hours.chain(week).chain(families)
    }
}

/// The windows of one seat, by kind. A window that was never seen is absent, which is not the same as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(PerWindow<Window>);

impl Windows {
    /// Keeps the later of what is known and `seen`.
    pub fn observe(&mut self, kind: &WindowKind, seen: Window) {
        let known = self.0.or_insert_with(kind, || seen);
        if known.observed_at <= seen.observed_at {
            *known = seen;
        }
    }

    /// The window of that kind, if it was ever seen.
    pub fn get(&self, kind: &WindowKind) -> Option<&Window> {
        self.0.get(kind)
    }

    /// All windows that were seen, in the order five-hour, weekly, families by name.
    pub fn iter(&self) -> impl Iterator<Item = (&WindowKind, &Window)> {
        self.0.iter()
    }

    /// The fullest of the windows that count `model`; `None` if none of them was ever seen.
    pub fn used_for(&self, model: Option<&str>, now: Timestamp) -> Option<Utilization> {
        self.iter()
            .filter(|(kind, _)| kind.governs(model))
            .map(|(_, window)| window.used_at(now))
            .max()
    }

    /// When any of them was last seen.
    pub fn observed_at(&self) -> Option<Timestamp> {
        self.iter().map(|(_, window)| window.observed_at).max()
    }

    /// Notes that the machine's clock was set: nothing was seen in the future.
    pub(crate) fn woke(&mut self, now: Timestamp) {
        for (_, window) in self.0.iter_mut() {
            window.observed_at = window.observed_at.min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Family;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn window(percent: f64, observed_at: i64) -> Window {
        Window {
            used: Utilization::from_percent(percent).unwrap(),
            resets_at: Some(at(1_000)),
            observed_at: at(observed_at),
        }
    }

    #[test]
    fn they_come_in_one_order_whatever_was_seen_first() {
        let kinds =
            ["weekly", "model:opus", "fiveHour", "model:fable"].map(|word| WindowKind::from_word(word).unwrap());
        let mut windows = Windows::default();
        for (kind, percent) in kinds.iter().zip([1.0, 2.0, 3.0, 4.0]) {
            windows.observe(kind, window(percent, 0));
            assert_eq!(windows.get(kind), Some(&window(percent, 0)));
        }
        let words = windows.iter().map(|(kind, _)| kind.word());
        assert!(words.eq(["fiveHour", "weekly", "model:fable", "model:opus"]));
        assert_eq!(windows.get(&WindowKind::Model(Family::new("sonnet"))), None);
    }

    #[test]
    fn the_later_reading_wins_whichever_comes_last() {
        for order in [[(10.0, 1), (20.0, 2)], [(20.0, 2), (10.0, 1)]] {
            let mut windows = Windows::default();
            for (percent, observed) in order {
                windows.observe(&WindowKind::Weekly, window(percent, observed));
            }
            assert_eq!(
                windows.used_for(None, at(3)),
                Utilization::from_percent(20.0),
                "{order:?}"
            );
        }
    }

    #[test]
    fn a_familys_window_counts_its_models_and_no_others() {
        let mut windows = Windows::default();
        windows.observe(&WindowKind::FiveHour, window(10.0, 0));
        windows.observe(&WindowKind::Model(Family::new("Fable")), window(95.0, 0));
        for (model, want) in [
            (Some("claude-fable-5"), 95),
            (Some("claude-FABLE-5[1m]"), 95),
            (Some("claude-opus-5"), 10),
            (None, 10),
        ] {
            let used = windows.used_for(model, at(1)).unwrap();
            assert_eq!(used.shown_percent(), want, "{model:?}");
        }
    }

    #[test]
    fn a_window_that_was_never_seen_is_unknown_and_not_empty() {
        assert_eq!(Windows::default().used_for(Some("claude-opus-5"), at(0)), None);
    }
}
