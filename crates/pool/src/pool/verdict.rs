//! What becomes of the request after an answer, given what it has left and how things stand elsewhere.

use jiff::{SignedDuration, Timestamp};

use super::Pool;
use crate::id::AccountId;
use crate::outcome::{LEAST_WAIT, LONGEST_WAIT, Next, Outcome, Trouble};
use crate::request::{Chances, Request};
use crate::standing::{Out, Tier, standing};
use crate::wishes::ExtraUsage;

impl Pool {
    /// What is really done, given what the request has left and how things stand elsewhere.
    pub(super) fn refine(
        &mut self,
        next: Next,
        outcome: &Outcome,
        id: &AccountId,
        request: &Request,
        chances: Chances,
        now: Timestamp,
    ) -> Next {
        let there_is = |trouble| self.troubles.since(trouble, now).is_some();
        match next {
            Next::TryAnother if matches!(outcome, Outcome::Beyond(_)) => {
                let wish = self
                    .account(id)
                    .map_or(ExtraUsage::Last, |account| account.wishes.extra_usage);
                let moves = match wish {
                    ExtraUsage::Never => true,
                    ExtraUsage::Last => chances.movable && self.is_left(id, outcome, request, now),
                    ExtraUsage::Allowed => false,
                };
                if moves { next } else { Next::Deliver }
            }
            Next::TryOneOther => {
                let may = chances.movable && chances.spare && !there_is(Trouble::Throttled);
                let helps = match outcome {
                    Outcome::UnknownModel => request
                        .model
                        .as_deref()
                        .is_some_and(|model| self.another_has_served(id, model)),
                    _ => true,
                };
                let moves = may && helps && self.is_left(id, outcome, request, now) && self.retries.take(now);
                if moves { next } else { Next::Deliver }
            }
            Next::RetryHere { .. } => {
                let may = chances.movable && chances.retry && !there_is(Trouble::Overloaded);
                if !may || !self.retries.take(now) {
                    return Next::Deliver;
                }
                // Full jitter: those who failed together must not come back together.
                let spread = (LONGEST_WAIT - LEAST_WAIT).as_millis() as u64;
                Next::RetryHere {
                    after: LEAST_WAIT + SignedDuration::from_millis((self.draw() % spread) as i64),
                }
            }
            Next::Reconnect => match chances.movable && chances.retry && self.retries.take(now) {
                true => next,
                false => Next::Deliver,
            },
            Next::TryAnother | Next::TryAnotherOrDeliver | Next::RereadAndRetry | Next::Deliver => next,
        }
    }

    /// Whether a seat other than `id`, which gave `outcome`, is left to try for `request`: not one that is paid for, nor a
    /// last resort.
    fn is_left(&self, id: &AccountId, outcome: &Outcome, request: &Request, now: Timestamp) -> bool {
        let moved = Request {
            tried: request.tried.iter().chain([id]).cloned().collect(),
            lacking: request.lacking || outcome.is_of_the_plan(),
            ..request.clone()
        };
        self.accounts().any(|account| {
            let may = request.may_use(&account.id) && !moved.tried.contains(&account.id);
            may && match standing(account, &moved, false, now) {
                Ok(tier) => tier <= Tier::Marked,
                // What another request finds there right now is worth a moment.
                Err(out) => out == Out::Trying,
            }
        })
    }

    pub(super) fn another_has_served(&self, id: &AccountId, model: &str) -> bool {
        self.accounts()
            .any(|account| account.id != *id && account.models.has_served(model))
    }
}
