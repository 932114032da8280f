//! What should be done: usage to ask for, logins to renew.

use alloc::vec::Vec;

use jiff::Timestamp;

use super::{Policy, Pool};
use crate::forecast::Forecast;
use crate::id::AccountId;
use crate::seat::Seat;

/// What should be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for this seat's usage.
    PollUsage(AccountId),
    /// Renew this seat's login.
    Renew(AccountId),
}

impl Pool {
    /// What should be done now. Each action is handed out once, until its end is observed.
    pub fn due(&mut self, now: Timestamp) -> Vec<Action> {
        self.scarce = matches!(self.forecast(now), Forecast::RunsOut { .. });
        let Policy {
            usage_interval, renews, ..
        } = self.policy;
        let has_come = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let id = |seat: &Seat| seat.account.id.clone();
        let seats = || self.seats.iter();
        let polls = seats().filter(|seat| has_come(seat.poll_due_at(usage_interval, now)));
        let renewals = seats().filter(|seat| renews && has_come(seat.renewal_due_at()));
        let polls = polls.map(id).map(Action::PollUsage);
        let actions: Vec<Action> = polls.chain(renewals.map(id).map(Action::Renew)).collect();
        for action in &actions {
            match action {
                Action::PollUsage(id) => {
                    if let Some(seat) = self.seats.change(id) {
                        seat.polls.asked(now);
                    }
                }
                Action::Renew(id) => {
                    if let Some(seat) = self.seats.get_mut(id) {
                        seat.renewals.began(now);
                    }
                }
            }
        }
        actions
    }

    /// When something will be due next.
    pub fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let seats = || self.seats.iter();
        let polls = seats().filter_map(|seat| seat.poll_due_at(self.policy.usage_interval, now));
        let renewals = seats().filter(|_| self.policy.renews).filter_map(Seat::renewal_due_at);
        polls.chain(renewals).min()
    }
}
