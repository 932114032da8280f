//! A seat as the pool keeps it: what is known of it, and when it wants asking for usage and renewing.

use alloc::boxed::Box;

use jiff::{SignedDuration, Timestamp};

use crate::account::Account;
use crate::forecast::Burns;
use crate::id::AccountId;
use crate::polls::UsagePolls;
use crate::renewals::Renewals;
use crate::window::{Window, WindowKind};

/// An account with its upkeep, which lies aside: no choice among the seats asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) account: Account,
    pub(crate) polls: Box<UsagePolls>,
    pub(crate) renewals: Box<Renewals>,
    /// How fast its allowances are being used up.
    pub(crate) burns: Box<Burns>,
}

impl Seat {
    /// A seat of which nothing is known yet.
    pub(crate) fn new(id: AccountId) -> Self {
        Self {
            account: Account::new(id),
            polls: Box::default(),
            renewals: Box::default(),
            burns: Box::default(),
        }
    }

    /// Takes in a window as it was seen by a request or a poll that began at `began`.
    pub(crate) fn see(&mut self, kind: &WindowKind, window: Window, began: Timestamp, now: Timestamp) {
        self.burns.see(kind, self.account.windows.get(kind), &window);
        self.account.see(kind, window, began, now);
    }

    /// When it is to be asked for its usage next.
    pub(crate) fn poll_due_at(&self, interval: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        self.polls.due_at(&self.account, interval, now)
    }

    /// When its login is to be renewed.
    pub(crate) fn renewal_due_at(&self) -> Option<Timestamp> {
        self.renewals.due_at(&self.account)
    }
}
