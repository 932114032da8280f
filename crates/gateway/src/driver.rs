//! What happens aside from requests: logins are read anew, usage is asked for. Nothing here is waited for by a request.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use jiff::SignedDuration;
use pool::{Action, Observation, Poll};

use crate::ports::Upstream;
use crate::roster::Roster;
use crate::scheduler::Scheduler;
use crate::usage;

/// The longest nap. Timers stand still while a laptop sleeps, so the clock is asked again this often.
const NAP: Duration = Duration::from_secs(10);
/// The nap while a login file cannot be read: it is perhaps being written.
const SHORT_NAP: Duration = Duration::from_millis(500);
/// The shortest nap.
const LEAST_NAP: Duration = Duration::from_millis(50);

/// Does what is due, for ever.
pub struct Driver {
    /// The pool.
    pub scheduler: Arc<Scheduler>,
    /// The seats.
    pub roster: Arc<Roster>,
    /// The network of our own calls.
    pub calls: Upstream,
    /// Where usage is asked for.
    pub origin: Uri,
}

impl Driver {
    /// Looks at the logins and does what is due, until it is dropped.
    pub async fn run(self) {
        loop {
            let unread = self.roster.scan().await;
            for action in self.scheduler.due() {
                match action {
                    Action::PollUsage(id) => self.poll_usage(id),
                }
            }
            tokio::time::sleep(self.nap(unread)).await;
        }
    }

    fn nap(&self, unread: bool) -> Duration {
        let longest = if unread { SHORT_NAP } else { NAP };
        let due = self
            .scheduler
            .next_wakeup()
            .map(|at| at.duration_since(self.scheduler.now()));
        match due {
            Some(wait) if wait > SignedDuration::ZERO => wait.unsigned_abs().clamp(LEAST_NAP, longest),
            Some(_) => LEAST_NAP,
            None => longest,
        }
    }

    fn poll_usage(&self, id: pool::AccountId) {
        let Some(access) = self.roster.access(&id) else {
            return self.scheduler.observe(&id, Observation::Polled(Poll::Failed));
        };
        let (scheduler, calls, origin) = (Arc::clone(&self.scheduler), self.calls.clone(), self.origin.clone());
        tokio::spawn(async move {
            let (poll, windows) = usage::poll(calls, &origin, &access, scheduler.now()).await;
            if !windows.is_empty() {
                scheduler.observe(
                    &id,
                    Observation::Reading {
                        windows,
                        allowed: false,
                    },
                );
            }
            scheduler.observe(&id, Observation::Polled(poll));
        });
    }
}
