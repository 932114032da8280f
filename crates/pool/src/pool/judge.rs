//! What an answer leaves on its seat: readings, rests, and what is noted beside them.

use alloc::vec::Vec;

use jiff::{SignedDuration, Timestamp};

use super::{Lease, Pool};
use crate::account::{Account, Brake, LONGEST_BRAKE};
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
        let Heard {
            outcome,
            windows,
            allowed,
        } = heard;
        let consequence = outcome::consequence(&outcome, request.model.as_deref(), now);
        let id = lease.account();
        if let Some(since) = self.answered(lease, consequence.note) {
            let is_good = consequence.note == Note::Good;
            if (is_good || !windows.is_empty())
                && let Some(seat) = self.seats.change(id)
            {
                for (kind, window) in windows {
                    seat.see(&kind, window, since, now);
                }
                if is_good {
                    served(&mut seat.account, request, since, allowed, now);
                }
            }
            for rest in consequence.rests {
                self.rest(id, rest, since, now);
            }
            self.note(id, consequence.note, request.model.as_deref(), now);
        }
        self.refine(consequence.next, &outcome, id, request, chances, now)
    }

    /// Has the seat rest, unless the answer that says so, to a request given to it at `since`, is of an older login.
    fn rest(&mut self, id: &AccountId, rest: Rest, since: Timestamp, now: Timestamp) {
        let Some(Seat { account, polls, .. }) = self.seats.get_mut(id) else {
            return;
        };
        let Some(bench) = rest.of(account, now) else { return };
        if (bench.cause, bench.source) == (Cause::Limit, Source::Rule) {
            polls.want();
        }
        let outdated = bench.cause == Cause::Login && account.login_since.is_some_and(|login| since < login);
        if !outdated && let Some(seat) = self.seats.change(id) {
            seat.account.rest(bench);
        }
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
                if is_on_trial || account.faults >= FAULTS {
                    let rest = Rest::Ruled(Scope::Seat, Cause::Faults, outcome::FAILING);
                    self.rest(id, rest, now, now);
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
        let wait = 1 + self.draw() % LONGEST_BRAKE.as_secs() as u64;
        let served_here = |account: &Account| model.is_some_and(|model| account.models.has_served(model));
        let served_elsewhere = model.is_some_and(|model| self.another_has_served(id, model));
        // Room for the model's name is made by forgetting another, perhaps one that was served.
        let lacks_room = |seat: &Seat| model.is_some_and(|model| !seat.account.models.has_room_for(model));
        let seat = match self.seats.get(id).is_some_and(lacks_room) {
            true => self.seats.change(id),
            false => self.seats.get_mut(id),
        };
        let Some(Seat { account, .. }) = seat else { return };
        // Of what it never served the burst says nothing: its plan may lack it.
        let is_in_plan = served_here(account);
        if is_in_plan {
            account.starts.refused(now);
        }
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
            && !is_in_plan
        {
            let rest = Rest::Ruled(Scope::Model(model.into()), Cause::NotInPlan, NOT_IN_PLAN);
            self.rest(id, rest, now, now);
        }
    }
}

/// Notes that `account` served `request`, which was given to it at `since`: what rested is proven well, step by step.
fn served(account: &mut Account, request: &Request, since: Timestamp, allowed: bool, now: Timestamp) {
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
