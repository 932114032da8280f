//! Claiming a seat, and waiting for one where that passes by itself.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pool::Refusal;

use super::Exchange;
use crate::proxy::number;
use crate::scheduler::Claim;

/// How long a request waits for a login to be renewed.
const RENEWAL_WAIT: Duration = Duration::from_secs(35);
/// How long a request waits for another one to try a seat that comes back from a rest.
const TRIAL_WAIT: Duration = Duration::from_secs(5);
/// How long a request that waits looks away after it looked: others change the pool all the time.
const LOOK_AWAY: Duration = Duration::from_millis(50);
/// The longest nap of a request that waits: timers stand still while a laptop sleeps, and the clock decides.
const NAP: Duration = Duration::from_secs(10);

impl Exchange {
    /// Claims a seat. What passes by itself is waited for, within bounds: a renewal (the driver renews, requests never
    /// do), another request's trial of a seat that comes back, and a reset, where the owner wants requests held.
    pub(super) async fn acquire(&mut self) -> (pool::Request, Result<Claim, Refusal>) {
        let scheduler = Arc::clone(&self.proxy.scheduler);
        let mut changed = scheduler.subscribe();
        let (mut renewal, mut trial) = (None, None);
        loop {
            let wanted = self.wanted();
            let refusal = match scheduler.acquire(&wanted) {
                Ok(claim) => return (wanted, Ok(claim)),
                Err(refusal) => refusal,
            };
            let passes = matches!(refusal, Refusal::Renewing | Refusal::Returning);
            if (!passes || self.impatient) && self.tried.allow_paid() {
                continue;
            }
            let wait = match &refusal {
                Refusal::Renewing => {
                    if renewal.is_none() {
                        scheduler.hurry();
                    }
                    left_of(RENEWAL_WAIT, &mut renewal)
                }
                Refusal::Returning => left_of(TRIAL_WAIT, &mut trial),
                Refusal::Cooling { until, .. } => self.hold(*until),
                _ => Duration::ZERO,
            };
            if wait.is_zero() {
                if passes && !self.impatient {
                    self.impatient = true;
                    continue;
                }
                return (wanted, Err(refusal));
            }
            tokio::time::sleep(LOOK_AWAY.min(wait)).await;
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(wait.min(NAP)) => {}
            }
        }
    }

    /// How long it is still held for a seat that returns at `until`: not at all, unless its owner wants it, the seat
    /// returns in time, and there is nothing better to give the client.
    fn hold(&mut self, until: Timestamp) -> Duration {
        if self.kept.as_ref().is_some_and(|kept| !kept.gives_way) {
            return Duration::ZERO;
        }
        let now = self.proxy.scheduler.now();
        let wanted = u64::from(self.proxy.settings.now().hold_s);
        // The client must not give up before we do; it says after how many seconds it does.
        let longest =
            number(&self.head.headers, "x-stainless-timeout").map_or(wanted, |timeout| wanted.min(timeout / 2));
        let ends = *self
            .held_until
            .get_or_insert(now + SignedDuration::from_secs(longest as i64));
        if now >= ends || until > ends {
            return Duration::ZERO;
        }
        // Whoever returns may be tried anew; what another seat was refused for does not pass so soon.
        self.tried.allow_limited();
        self.moving_since = None;
        let wait = until.duration_since(now).max(SignedDuration::from_millis(1));
        wait.unsigned_abs()
    }
}

/// What is left of a wait of that length, which begins when it is first asked for.
fn left_of(wait: Duration, since: &mut Option<tokio::time::Instant>) -> Duration {
    let since = since.get_or_insert_with(tokio::time::Instant::now);
    wait.saturating_sub(since.elapsed())
}
