//! The pool behind one lock, with the clock: the only owner of the pool. Never held over an await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use pool::{
    AccountId, Action, Chances, End, Granted, Heard, Lease, Next, Observation, Pool, Reason, Refusal, Request,
    SeatMemory, Switch, Token,
};
use tokio::sync::{Notify, watch};

use crate::ports::Clock;

/// The pool, its clock, and a signal that something changed.
pub struct Scheduler {
    pool: Mutex<Pool>,
    clock: Arc<dyn Clock>,
    changed: watch::Sender<()>,
    /// Told when something may be due before the driver's nap is over.
    hurry: Notify,
}

impl Scheduler {
    /// Puts `pool` behind its lock.
    pub fn new(pool: Pool, clock: Arc<dyn Clock>) -> Self {
        Self {
            pool: Mutex::new(pool),
            clock,
            changed: watch::Sender::new(()),
            hurry: Notify::new(),
        }
    }

    /// Wakes the driver: somebody waits for what it does.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Waits until something may be due.
    pub async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Tells of each change.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Claims a seat for one attempt, or says why there is none.
    ///
    /// # Errors
    /// The refusal, which is a decision and is rendered for the client.
    pub fn acquire(self: &Arc<Self>, request: &Request) -> Result<Claim, Refusal> {
        let Granted { lease, reason, switch } = self.lock().acquire(request, self.now())?;
        self.changed.send_replace(());
        let wait = lease.wait().unsigned_abs();
        let lease = LeaseGuard {
            scheduler: Arc::clone(self),
            account: lease.account().clone(),
            lease: Some(lease),
        };
        Ok(Claim {
            lease,
            reason,
            switch,
            wait,
        })
    }

    /// Notes what was learnt of a seat.
    pub fn observe(&self, id: &AccountId, observation: Observation) {
        let refused = |pool: &Pool| {
            matches!(
                pool.account(id).map(|account| account.token),
                Some(Token::Refused { .. })
            )
        };
        let newly_refused = {
            let mut pool = self.lock();
            let before = refused(&pool);
            pool.observe(id, observation, self.now());
            !before && refused(&pool)
        };
        self.changed.send_replace(());
        if newly_refused {
            self.hurry.notify_one();
        }
    }

    /// Notes that the machine woke, or its clock was set.
    pub fn woke(&self) {
        self.lock().woke(self.now());
        self.changed.send_replace(());
    }

    /// What should outlast the process of the seats that changed since this was last asked.
    pub fn news(&self) -> Vec<SeatMemory> {
        self.lock().news()
    }

    /// What should be done now.
    pub fn due(&self) -> Vec<Action> {
        self.lock().due(self.now())
    }

    /// When something will be due next.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.lock().next_wakeup(self.now())
    }

    /// Whether a request may be sent with that seat's token now.
    pub fn has_login(&self, id: &AccountId) -> bool {
        self.look(|pool, now| pool.account(id).is_some_and(|account| account.token.is_usable(now)))
    }

    /// Looks at the pool as it is now.
    pub fn look<T>(&self, at: impl FnOnce(&Pool, Timestamp) -> T) -> T {
        at(&self.lock(), self.now())
    }

    /// Changes the pool as a whole.
    pub fn change(&self, how: impl FnOnce(&mut Pool, Timestamp)) {
        how(&mut self.lock(), self.now());
        self.changed.send_replace(());
    }

    fn judge(&self, lease: &Lease, request: &Request, heard: Heard, chances: Chances) -> Next {
        let next = self.lock().judge(lease, request, heard, chances, self.now());
        self.changed.send_replace(());
        next
    }

    fn settle(&self, lease: Lease, end: &End) {
        self.lock().settle(lease, end, self.now());
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // A panic under the lock is a bug elsewhere; the pool's values are still whole.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A seat that was found for a request.
pub struct Claim {
    /// The claim on it.
    pub lease: LeaseGuard,
    /// Why that one.
    pub reason: Reason,
    /// The switch, if the conversation was elsewhere before.
    pub switch: Option<Switch>,
    /// How long the request waits before it is sent; mostly not at all.
    pub wait: Duration,
}

/// A lease that settles itself as abandoned if nobody does.
pub struct LeaseGuard {
    scheduler: Arc<Scheduler>,
    account: AccountId,
    lease: Option<Lease>,
}

impl LeaseGuard {
    /// The seat it is for.
    pub fn account(&self) -> &AccountId {
        &self.account
    }

    /// Lets the pool know what an answer's head told, and says what to do with the request.
    pub fn judge(&self, request: &Request, heard: Heard, chances: Chances) -> Next {
        self.lease.as_ref().map_or(Next::Deliver, |lease| {
            self.scheduler.judge(lease, request, heard, chances)
        })
    }

    /// Gives the seat back.
    pub fn settle(mut self, end: &End) {
        if let Some(lease) = self.lease.take() {
            self.scheduler.settle(lease, end);
        }
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.scheduler.settle(lease, &End::Abandoned);
        }
    }
}
