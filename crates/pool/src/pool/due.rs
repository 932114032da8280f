//! What should be done: usage to ask for, logins to renew.

use alloc::vec::Vec;

use jiff::Timestamp;

use super::Pool;
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
        let mut actions = Vec::new();
        self.scarce = matches!(self.forecast(now), Forecast::RunsOut { .. });
        for (id, seat) in &mut self.seats {
            let due = seat.poll_due_at(self.policy.usage_interval, now);
            if due.is_some_and(|at| at <= now) {
                seat.polls.asked(now);
                actions.push(Action::PollUsage(id.clone()));
            }
        }
        for (id, seat) in self.seats.iter_mut().filter(|_| self.policy.renews) {
            if seat.renewal_due_at().is_some_and(|at| at <= now) {
                seat.renewals.began(now);
                actions.push(Action::Renew(id.clone()));
            }
        }
        actions
    }

    /// When something will be due next.
    pub fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let seats = || self.seats.values();
        let polls = seats().filter_map(|seat| seat.poll_due_at(self.policy.usage_interval, now));
        let renewals = seats().filter(|_| self.policy.renews).filter_map(Seat::renewal_due_at);
        polls.chain(renewals).min()
    }
}
