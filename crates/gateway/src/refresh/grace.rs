//! The time after a wake in which no lock counts as left over: its holder slept too.

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::lock::Judgement;

/// How long it lasts.
const LENGTH: SignedDuration = SignedDuration::from_secs(60);

/// Until when it lasts, if there was a wake.
#[derive(Debug, Default)]
pub struct Grace(Mutex<Option<Timestamp>>);

impl Grace {
    /// Begins at `now`.
    pub fn begin(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + LENGTH);
    }

    /// How locks are judged at `now`.
    pub(super) fn judgement(&self, now: Timestamp) -> Judgement {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(until) if now < until => Judgement::Suspended,
            _ => Judgement::ByAge,
        }
    }
}
