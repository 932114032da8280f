//! What is known of one seat: its login's state, its windows, its rests, what runs on it.

use alloc::{borrow::ToOwned, collections::BTreeMap, string::String};

use jiff::{SignedDuration, Timestamp};
use smallvec::SmallVec;

use crate::bench::{Bench, Cause, Scope};
use crate::id::AccountId;
use crate::meter::Meter;
use crate::request::Request;
use crate::starts::Starts;
use crate::window::{Window, WindowKind};
use crate::windows::Windows;
use crate::wishes::Wishes;

/// What is known of a seat's access token; never its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// It may be used until then; `None` where the login does not say.
    Valid {
        /// When it ends.
        expires_at: Option<Timestamp>,
    },
    /// Anthropic refused it. It waits for another token, from the store or from a renewal.
    Refused {
        /// When that was.
        since: Timestamp,
        /// When it would have ended.
        expires_at: Option<Timestamp>,
    },
    /// There is no login, or one that cannot be read.
    Missing,
}

impl Token {
    /// Whether a request may be sent with it at `now`.
    pub fn is_usable(self, now: Timestamp) -> bool {
        match self {
            Self::Valid { expires_at } => expires_at.is_none_or(|end| now < end),
            Self::Refused { .. } | Self::Missing => false,
        }
    }

    /// Whether it ends within `margin` of `now`, or has ended.
    pub fn ends_within(self, margin: SignedDuration, now: Timestamp) -> bool {
        match self {
            Self::Valid { expires_at: Some(end) } => end.duration_since(now) < margin,
            _ => false,
        }
    }
}

/// One seat as the pool knows it.
#[derive(Clone, Debug)]
pub struct Account {
    /// Which seat.
    pub id: AccountId,
    /// Its access token's state.
    pub token: Token,
    /// What its owner wants.
    pub wishes: Wishes,
    /// Its allowances as last seen.
    pub windows: Windows,
    /// What of it rests, or has rested and is not proven again. Where something does, it is mostly one thing.
    pub benches: SmallVec<[Bench; 1]>,
    /// Requests that were given to it and have not been settled.
    pub in_flight: u32,
    /// Those of them that have no answer yet.
    pub starting: u32,
    /// How many may start together for now.
    pub brake: Option<Brake>,
    /// What is known of single models on it.
    pub models: Models,
    /// What its requests cost and its windows hold.
    pub meter: Meter,
    /// Its latest starts, and how many it takes.
    pub starts: Starts,
    /// The number of the last lease that began something new on it; 0 before the first.
    pub(crate) last_begun: u64,
    /// Failures in a row.
    pub(crate) faults: u32,
    /// When its login last changed: what an older one was told says nothing.
    pub(crate) login_since: Option<Timestamp>,
}

/// The longest that a brake holds.
pub(crate) const LONGEST_BRAKE: SignedDuration = SignedDuration::from_secs(30);

/// A limit on how many requests start together on a seat. It never keeps the seat from serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brake {
    /// So many.
    pub limit: u32,
    /// Until then.
    pub until: Timestamp,
}

impl Brake {
    /// The same after the machine's clock was set: it lasts no longer than any does.
    pub(crate) fn woke(self, now: Timestamp) -> Self {
        Self {
            until: self.until.min(now + LONGEST_BRAKE),
            ..self
        }
    }
}

impl Account {
    /// A seat of which nothing is known yet.
    pub fn new(id: AccountId) -> Self {
        Self {
            id,
            token: Token::Missing,
            wishes: Wishes::default(),
            windows: Windows::default(),
            benches: SmallVec::new(),
            in_flight: 0,
            starting: 0,
            brake: None,
            models: Models::default(),
            meter: Meter::default(),
            starts: Starts::default(),
            last_begun: 0,
            faults: 0,
            login_since: None,
        }
    }

    /// The rests that run at `now`, and mean something to its owner.
    pub fn rests(&self, now: Timestamp) -> impl Iterator<Item = &Bench> {
        let wish = self.wishes.extra_usage;
        self.benches
            .iter()
            .filter(move |bench| bench.runs(now) && !bench.is_moot(wish))
    }

    /// The rest that keeps all of it from serving for longest.
    pub fn resting(&self, now: Timestamp) -> Option<&Bench> {
        self.rests(now)
            .filter(|bench| bench.keeps_the_seat())
            .max_by_key(|bench| bench.until)
    }

    /// Whether its plan is thought to lack what `request` asks for.
    pub(crate) fn lacks(&self, request: &Request, now: Timestamp) -> bool {
        self.rests(now)
            .any(|bench| bench.cause == Cause::NotInPlan && bench.scope.covers(request))
    }

    /// Whether more requests start on it together than it took well.
    pub(crate) fn is_braked(&self, now: Timestamp) -> bool {
        self.brake
            .is_some_and(|brake| now < brake.until && self.starting >= brake.limit)
    }

    /// Puts `bench` in the place of the one of that scope; but a limit that runs is ended by nothing else.
    pub(crate) fn rest(&mut self, bench: Bench) {
        let stays =
            |known: &Bench| known.scope == bench.scope && known.cause == Cause::Limit && known.runs(bench.since);
        if !bench.cause.is_limit() && self.benches.iter().any(stays) {
            return;
        }
        self.benches.retain(|known| known.scope != bench.scope);
        self.benches.push(bench);
        let is_of_a_model = |bench: &Bench| matches!(bench.scope, Scope::Model(_));
        if self.benches.iter().filter(|bench| is_of_a_model(bench)).count() > MODELS {
            // The oldest stands in front.
            self.benches
                .remove(self.benches.iter().position(is_of_a_model).unwrap_or_default());
        }
    }

    /// Takes in a window as it was seen by a request or a poll that began at `began`. A reading with room ends the rest
    /// that the window was the reason of, and one with a sooner reset shortens it, unless they are older than it.
    pub(crate) fn see(&mut self, kind: &WindowKind, window: Window, began: Timestamp, now: Timestamp) {
        for bench in &mut self.benches {
            if bench.window() != Some(kind) || bench.since >= began {
                continue;
            }
            match window.resets_at {
                _ if !window.used.is_full() => bench.end(now),
                Some(reset) if reset > now => bench.until = bench.until.min(reset),
                _ => {}
            }
        }
        self.meter.saw(kind, self.windows.get(kind), &window);
        self.windows.observe(kind, window);
    }

    /// Notes that at `seen_at` there was room in its five hours and its week: no limit of the whole seat is left that was
    /// told before.
    pub(crate) fn has_room(&mut self, seen_at: Timestamp, now: Timestamp) {
        let is_over =
            |bench: &&mut Bench| bench.cause.is_limit() && bench.scope == Scope::Seat && bench.since < seen_at;
        self.benches.iter_mut().filter(is_over).for_each(|bench| bench.end(now));
    }

    /// Ends the rests of these causes; what rested is tried before it counts as back.
    pub(crate) fn end_rests(&mut self, ends: impl Fn(Cause) -> bool, now: Timestamp) {
        self.benches
            .iter_mut()
            .filter(|bench| ends(bench.cause))
            .for_each(|bench| bench.end(now));
    }
}

/// What is known of single models on a seat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Models(BTreeMap<String, ModelHealth>);

/// How many models are remembered for a seat, and how long their names may be: clients write them as they like.
const MODELS: usize = 32;
const LONGEST_NAME: usize = 128;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ModelHealth {
    served_at: Option<Timestamp>,
    /// Windowless refusals in a row.
    throttled: u32,
}

impl Models {
    /// When the seat last served each model that it has served.
    pub fn served(&self) -> impl Iterator<Item = (&str, Timestamp)> {
        self.0
            .iter()
            .filter_map(|(name, health)| Some((name.as_str(), health.served_at?)))
    }

    /// Whether the seat has served `model`.
    pub fn has_served(&self, model: &str) -> bool {
        self.0.get(model).is_some_and(|health| health.served_at.is_some())
    }

    /// Notes that the seat served `model`.
    pub(crate) fn note_served(&mut self, model: &str, at: Timestamp) {
        if let Some(health) = self.of(model) {
            *health = ModelHealth {
                served_at: Some(at),
                throttled: 0,
            };
        }
    }

    /// Notes that a request for `model` was throttled. Returns how often in a row.
    pub(crate) fn note_throttled(&mut self, model: &str) -> u32 {
        self.of(model).map_or(0, |health| {
            health.throttled += 1;
            health.throttled
        })
    }

    /// Whether `model` can be remembered without another being forgotten.
    pub(crate) fn has_room_for(&self, model: &str) -> bool {
        self.0.len() < MODELS || self.0.contains_key(model) || model.len() > LONGEST_NAME
    }

    fn of(&mut self, model: &str) -> Option<&mut ModelHealth> {
        if model.len() > LONGEST_NAME {
            return None;
        }
        if !self.0.contains_key(model) {
            if !self.has_room_for(model) {
                let oldest = self.0.iter().min_by_key(|(_, health)| health.served_at);
                let oldest = oldest.map(|(name, _)| name.clone());
                self.0.remove(&oldest?);
            }
            self.0.insert(model.to_owned(), ModelHealth::default());
        }
        self.0.get_mut(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Source;

    #[test]
    fn a_token_is_usable_until_the_instant_it_expires() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let token = Token::Valid {
            expires_at: Some(at(100)),
        };
        for (now, want) in [(99, true), (100, false), (101, false)] {
            assert_eq!(token.is_usable(at(now)), want, "now = {now}");
        }
        assert!(Token::Valid { expires_at: None }.is_usable(at(0)));
        assert!(!Token::Missing.is_usable(at(0)));
        assert!(
            !Token::Refused {
                since: at(0),
                expires_at: None
            }
            .is_usable(at(1))
        );
    }

    #[test]
    fn only_so_many_models_are_remembered() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut models = Models::default();
        for n in 0..100 {
            models.note_served(&alloc::format!("claude-{n}"), at(n));
        }
        models.note_served(&"x".repeat(1_000), at(100));
        assert_eq!(models.served().count(), MODELS);
        let mut account = Account::new(AccountId::new("a"));
        for n in 0..100 {
            let scope = Scope::Model(alloc::format!("claude-{n}"));
            account.rest(Bench::new(scope, Cause::NotInPlan, Source::Rule, at(n), at(n + 10)));
        }
        assert_eq!(account.benches.len(), MODELS);
        assert_eq!(account.benches[0].since, at(100 - MODELS as i64));
        assert!(models.has_served("claude-99") && !models.has_served("claude-0"));
    }
}
