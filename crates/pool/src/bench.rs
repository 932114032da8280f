//! A rest: what is not chosen, why, on whose word, and until when.
//!
//! A rest that has run out is not forgotten at once. What rested comes back with one request that tries it, then two,
//! four, eight together: that holds a herd, which no spread of times would.

use alloc::{format, string::String};

use jiff::{SignedDuration, Timestamp};

use crate::request::{Feature, Request};
use crate::window::WindowKind;
use crate::wishes::ExtraUsage;

/// How many may try together before what rested counts as back.
const BACK: u32 = 16;

/// How much of a seat rests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All of it.
    Seat,
    /// One of its allowances: a family's rests that family, any other the whole seat.
    Window(WindowKind),
    /// One model.
    Model(String),
    /// What asks for a feature.
    Feature(Feature),
    /// What goes beyond its plan.
    ExtraUsage,
}

impl Scope {
    /// Whether `request` falls into it.
    pub fn covers(&self, request: &Request) -> bool {
        let model = request.model.as_deref();
        match self {
            Self::Seat => true,
            Self::Window(kind) => kind.governs(model),
            Self::Model(name) => model == Some(name),
            Self::Feature(feature) => request.features.has(*feature),
            // What goes beyond the plan is a question of the windows that are used up.
            Self::ExtraUsage => false,
        }
    }
}

impl Scope {
    /// A word that stands for it where it is kept.
    pub fn word(&self) -> String {
        match self {
            Self::Seat => "seat".into(),
            Self::Window(kind) => format!("window:{}", kind.word()),
            Self::Model(name) => format!("model:{name}"),
            Self::Feature(feature) => format!("feature:{}", feature.word()),
            Self::ExtraUsage => "extraUsage".into(),
        }
    }

    /// The scope that `word` stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        match word.split_once(':') {
            None if word == "seat" => Some(Self::Seat),
            None if word == "extraUsage" => Some(Self::ExtraUsage),
            Some(("window", kind)) => WindowKind::from_word(kind).map(Self::Window),
            Some(("model", name)) => Some(Self::Model(name.into())),
            Some(("feature", feature)) => Feature::from_word(feature).map(Self::Feature),
            _ => None,
        }
    }
}

/// Why it rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Anthropic refused for a limit.
    Limit,
    /// Anthropic served beyond the plan, at the owner's cost.
    ExtraUsage,
    /// Anthropic wants to be paid first.
    Payment,
    /// There are no credits for what goes beyond the plan.
    NoCredits,
    /// The organisation does not allow it.
    Organization,
    /// The login was refused.
    Login,
    /// The plan lacks the model or the feature.
    NotInPlan,
    /// It failed several times in a row.
    Faults,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Limit,
        Self::ExtraUsage,
        Self::Payment,
        Self::NoCredits,
        Self::Organization,
        Self::Login,
        Self::NotInPlan,
        Self::Faults,
    ];

    /// A word that stands for it where it is kept or shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::ExtraUsage => "extraUsage",
            Self::Payment => "payment",
            Self::NoCredits => "noCredits",
            Self::Organization => "organization",
            Self::Login => "login",
            Self::NotInPlan => "notInPlan",
            Self::Faults => "faults",
        }
    }

    /// The cause that `word` stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.word() == word)
    }

    /// Whether another login may be free of it.
    pub(crate) const fn ends_with_the_login(self) -> bool {
        matches!(self, Self::Login | Self::Organization)
    }

    /// Whether it is about money, and any fresh reading is a reason to look again.
    pub(crate) const fn ends_with_a_reading(self) -> bool {
        matches!(self, Self::Payment | Self::NoCredits)
    }

    /// Whether an allowance is used up. What rested for that comes back by and by, rather than with its first success.
    pub(crate) const fn is_limit(self) -> bool {
        matches!(self, Self::Limit | Self::ExtraUsage)
    }
}

/// On whose word it rests for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The reset of the window that was rejected.
    Window,
    /// The reset of the answer as a whole.
    Answer,
    /// `retry-after`.
    RetryAfter,
    /// A rule of ours.
    Rule,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Window, Self::Answer, Self::RetryAfter, Self::Rule];

    /// A word that stands for it where it is kept or shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Answer => "answer",
            Self::RetryAfter => "retryAfter",
            Self::Rule => "rule",
        }
    }

    /// The source that `word` stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.word() == word)
    }
}

/// A rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bench {
    /// What rests.
    pub scope: Scope,
    /// Why.
    pub cause: Cause,
    /// On whose word it lasts so long.
    pub source: Source,
    /// When it was set.
    pub since: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// How many may try it together once it has ended.
    pub(crate) allowance: u32,
    /// How many are trying it, and have no answer yet.
    pub(crate) trying: u32,
}

impl Bench {
    /// A rest from `since` to `until`.
    pub const fn new(scope: Scope, cause: Cause, source: Source, since: Timestamp, until: Timestamp) -> Self {
        Self {
            scope,
            cause,
            source,
            since,
            until,
            allowance: 1,
            trying: 0,
        }
    }

    /// The same as if nobody had tried what rests: who does, ends with the process.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.scope.clone(), self.cause, self.source, self.since, self.until)
    }

    /// Whether it still runs.
    pub fn runs(&self, now: Timestamp) -> bool {
        now < self.until
    }

    /// The allowance that keeps the seat, if it is one.
    pub const fn window(&self) -> Option<&WindowKind> {
        match &self.scope {
            Scope::Window(kind) => Some(kind),
            _ => None,
        }
    }

    /// Whether its owner's wish makes nothing of it.
    pub fn is_moot(&self, extra_usage: ExtraUsage) -> bool {
        self.cause == Cause::ExtraUsage && extra_usage == ExtraUsage::Allowed
    }

    /// Whether nothing of the seat is chosen while it runs, as far as others can.
    pub fn keeps_the_seat(&self) -> bool {
        match &self.scope {
            Scope::Seat | Scope::Window(WindowKind::FiveHour | WindowKind::Weekly) => true,
            Scope::Window(WindowKind::Model(_)) | Scope::Model(_) | Scope::Feature(_) | Scope::ExtraUsage => false,
        }
    }

    /// Ends it early; what rested is tried before it counts as back.
    pub(crate) fn end(&mut self, now: Timestamp) {
        self.until = self.until.min(now);
    }

    /// Notes that the machine's clock was set: nothing was set in the future, and nothing lasts longer than it was to.
    pub(crate) fn woke(&mut self, now: Timestamp) {
        if self.since > now {
            let length = self.until.duration_since(self.since);
            self.until = now + length;
            self.since = now;
        }
    }

    /// How long it lasts when it is set again right after this one: twice as long, within bounds.
    pub(crate) fn grown(&self, first: SignedDuration, most: SignedDuration) -> SignedDuration {
        let length = self.until.duration_since(self.since);
        length.saturating_mul(2).clamp(first, most)
    }

    /// Notes that a request which it covers was served. Returns whether it is over for good.
    pub(crate) fn proven(&mut self) -> bool {
        self.allowance *= 2;
        !self.cause.is_limit() || self.allowance >= BACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_for_what_it_was_made_of() {
        for cause in Cause::ALL {
            assert_eq!(Cause::from_word(cause.word()), Some(cause));
        }
        for source in Source::ALL {
            assert_eq!(Source::from_word(source.word()), Some(source));
        }
        let fable = WindowKind::Model(crate::window::Family::new("fable"));
        for scope in [
            Scope::Seat,
            Scope::Window(WindowKind::FiveHour),
            Scope::Window(fable),
            Scope::Model("claude-opus-5-5[1m]".into()),
            Scope::Feature(Feature::LongContext),
            Scope::ExtraUsage,
        ] {
            assert_eq!(Scope::from_word(&scope.word()), Some(scope));
        }
    }

    #[test]
    fn a_rest_that_is_set_again_grows_within_its_bounds() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let secs = SignedDuration::from_secs;
        for (length, want) in [(30, 60), (240, 300), (300, 300), (5, 30)] {
            let bench = Bench::new(Scope::Seat, Cause::Faults, Source::Rule, at(0), at(length));
            assert_eq!(bench.grown(secs(30), secs(300)), secs(want), "{length}");
        }
    }
}
