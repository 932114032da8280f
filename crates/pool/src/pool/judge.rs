//! What an answer leaves on its seat: readings, rests, and what is noted beside them.

use alloc::vec::Vec;

use jiff::{SignedDuration, Timestamp};

use super::{Lease, Pool};
use crate::account::{Account, Brake};
use crate::bench::{Bench, Cause, Scope, Source};
use crate::id::AccountId;
use crate::outcome::{self, Length, NOT_IN_PLAN, Next, Note, Outcome, Rest, Trouble};
use crate::request::{Chances, Request};
use crate::seat::Seat;
use crate::window::{Window, WindowKind};

/// So many failures in a row are a reason to rest.
const FAULTS: u32 = 5;
/// So many windowless refusals of one model in a row, where another seat serves it, mean that the plan lacks it.
const THROTTLED: u32 = 3;
/// How long a brake holds at most.
const BRAKED_FOR_S: u64 = 30;

/// What an answer's head told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// What it is.
    pub outcome: Outcome,
    /// The allowances that it told of.
    pub windows: Vec<(WindowKind, Window)>,
    /// Whether it was within every limit.
    pub allowed: bool,
}

impl From<Outcome> for Heard {
    /// An answer that told of no allowance.
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            windows: Vec::new(),
            allowed: false,
        }
    }
}

impl Pool {
    /// Takes in what an answer's head told, while its body is still to come, and says what to do with the request.
    pub fn judge(&mut self, lease: &Lease, request: &Request, heard: Heard, chances: Chances, now: Timestamp) -> Next {
        let since = self.answered(lease);
        let Heard {
            outcome,
            windows,
            allowed,
        } = heard;
        let consequence = outcome::consequence(&outcome, request.model.as_deref(), now);
        if let Some((since, seat)) = since.zip(self.seats.get_mut(lease.account())) {
            for (kind, window) in windows {
                seat.see(kind, window, since, now);
            }
            let Seat { account, polls, .. } = seat;
            if consequence.note == Note::Good {
                served(account, request, since, allowed, now);
            }
            for rest in consequence.rests {
                let Some(bench) = rest.of(account, now) else { continue };
                if (bench.cause, bench.source) == (Cause::Limit, Source::Rule) {
                    polls.want();
                }
                let outdated = bench.cause == Cause::Login && account.login_since.is_some_and(|login| since < login);
                if !outdated {
                    account.rest(bench);
                }
            }
            self.note(lease.account(), consequence.note, request.model.as_deref(), now);
        }
        self.refine(consequence.next, &outcome, lease.account(), request, chances, now)
    }

    /// Keeps what is noted beside rests.
    pub(super) fn note(&mut self, id: &AccountId, note: Note, model: Option<&str>, now: Timestamp) {
        match note {
            Note::Nothing => {}
            Note::Good => self.troubles.served(),
            Note::Fault => {
                let Some(Seat { account, .. }) = self.seats.get_mut(id) else {
                    return;
                };
                account.faults += 1;
                let is_on_trial = account.benches.iter().any(|bench| bench.cause == Cause::Faults);
                let rest = Rest::Ruled(Scope::Seat, Cause::Faults, outcome::FAILING);
                if (is_on_trial || account.faults >= FAULTS)
                    && let Some(bench) = rest.of(account, now)
                {
                    account.rest(bench);
                }
            }
            Note::Trouble(trouble) => {
                self.troubles.meet(trouble, id, now);
                if trouble == Trouble::Throttled {
                    self.throttled(id, model, now);
                }
            }
        }
    }

    /// A refusal that names no limit: fewer may start together for a while; and a model that is refused so again and
    /// again is perhaps not in the plan.
    fn throttled(&mut self, id: &AccountId, model: Option<&str>, now: Timestamp) {
        let wait = 1 + self.draw() % BRAKED_FOR_S;
        let served_elsewhere = model.is_some_and(|model| self.another_has_served(id, model));
        let Some(Seat { account, .. }) = self.seats.get_mut(id) else {
            return;
        };
        account.starts.refused(now);
        // This one has its answer already.
        let together = account.starting + 1;
        let before = account.brake.filter(|brake| now < brake.until).map(|brake| brake.limit);
        account.brake = Some(Brake {
            limit: (before.unwrap_or(together).min(together) / 2).max(1),
            until: now + SignedDuration::from_secs(wait as i64),
        });
        if let Some(model) = model
            && account.models.note_throttled(model) >= THROTTLED
            && served_elsewhere
        {
            let scope = Scope::Model(model.into());
            if let Some(bench) = Rest::Ruled(scope, Cause::NotInPlan, NOT_IN_PLAN).of(account, now) {
                account.rest(bench);
            }
        }
    }
}

/// Notes that `account` served `request`, which was given to it at `since`: what rested is proven well, step by step.
fn served(account: &mut Account, request: &Request, since: Timestamp, allowed: bool, now: Timestamp) {
    account.faults = 0;
    account.benches.retain_mut(|bench| {
        if !bench.scope.covers(request) {
            return true;
        }
        match bench.runs(now) {
            false => !bench.proven(),
            // An answer that began before the rest says nothing against it; nor does one that told of no limit, where
            // a limit is the reason. What its owner pays for is ended by a reading, or by its time.
            true => match bench.cause {
                Cause::ExtraUsage => true,
                Cause::Limit => !allowed || since < bench.since,
                _ => since < bench.since,
            },
        }
    });
    if let Some(model) = &request.model {
        account.models.note_served(model, now);
    }
}

impl Rest {
    /// The rest as it is set now. One of our own rules that runs is not made longer by those who had nowhere else to
    /// go: `None`.
    fn of(self, account: &Account, now: Timestamp) -> Option<Bench> {
        let (scope, cause, length) = match self {
            Self::Told(bench) => return Some(bench),
            Self::Ruled(scope, cause, length) => (scope, cause, length),
        };
        let mut before = account.benches.iter();
        let before = before.find(|bench| bench.cause == cause && bench.scope == scope);
        if before.is_some_and(|bench| bench.runs(now)) {
            return None;
        }
        let length = match length {
            Length::Fixed(length) => length,
            Length::Growing(first, most) => before.map_or(first, |bench| bench.grown(first, most)),
        };
        Some(Bench::new(scope, cause, Source::Rule, now, now + length))
    }
}
