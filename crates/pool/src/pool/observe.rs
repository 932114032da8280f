//! What is learnt of seats aside from requests.

use alloc::{string::String, vec::Vec};

use jiff::Timestamp;

use super::Pool;
use crate::account::Token;
use crate::bench::Cause;
use crate::id::AccountId;
use crate::meter::Tokens;
use crate::polls::Poll;
use crate::renewals::Renewal;
use crate::seat::Seat;
use crate::window::{Window, WindowKind};
use crate::wishes::Wishes;

/// What was learnt aside from a request.
#[derive(Clone, Debug)]
pub enum Observation {
    /// The seat exists, and its owner wants this of it.
    Discovered(Wishes),
    /// Its login is gone from this machine.
    Gone,
    /// Its access token is now of that state.
    Token(Token),
    /// Windows were read.
    Reading(Vec<(WindowKind, Window)>),
    /// An answer used so much.
    Metered {
        /// The model's id as the client wrote it.
        model: Option<String>,
        /// What it used.
        tokens: Tokens,
    },
    /// A usage poll ended.
    Polled(Poll),
    /// The store holds another login than before.
    LoginChanged,
    /// A renewal ended.
    Renewed(Renewal),
    /// Its owner wants it tried now, whatever it rests from.
    TryNow,
}

impl Observation {
    /// Whether it changes what of a known seat outlasts the process.
    const fn outlasts(&self) -> bool {
        match self {
            Self::Reading(_) | Self::Polled(_) | Self::LoginChanged | Self::TryNow => true,
            Self::Discovered(_) | Self::Gone | Self::Token(_) | Self::Metered { .. } | Self::Renewed(_) => false,
        }
    }
}

impl Pool {
    /// Notes what was learnt of a seat.
    pub fn observe(&mut self, id: &AccountId, observation: Observation, now: Timestamp) {
        if let Observation::Discovered(wishes) = observation {
            return self.discovered(id, wishes, now);
        }
        let jitter = self.draw() as u8;
        let seat = match observation.outlasts() {
            true => self.seats.change(id),
            false => self.seats.get_mut(id),
        };
        let Some(seat) = seat else { return };
        let account = &mut seat.account;
        match observation {
            Observation::Discovered(_) => {}
            Observation::Gone => {
                self.seats.remove(id);
                self.orphan(id);
            }
            Observation::Token(token) => account.token = token,
            Observation::Reading(windows) => {
                if let Some(seen_at) = room_in_all(&windows) {
                    account.has_room(seen_at, now);
                }
                for (kind, window) in windows {
                    let seen_at = window.observed_at;
                    seat.see(&kind, window, seen_at, now);
                }
                seat.account.end_rests(Cause::ends_with_a_reading, now);
            }
            Observation::Metered { model, tokens } => account.meter.spent(tokens.cost(), model.as_deref()),
            Observation::Polled(poll) => seat.polls.ended(poll, jitter, now),
            Observation::LoginChanged => {
                account.benches.retain(|bench| !bench.cause.ends_with_the_login());
                account.login_since = Some(now);
                seat.renewals.login_changed();
            }
            Observation::Renewed(renewal) => seat.renewals.ended(renewal, account, jitter, now),
            Observation::TryNow => account.end_rests(|_| true, now),
        }
    }

    fn discovered(&mut self, id: &AccountId, wishes: Wishes, now: Timestamp) {
        if let Some(seat) = self.seats.get_mut(id) {
            seat.account.wishes = wishes;
            return;
        }
        let mut seat = Seat::new(id.clone());
        seat.account.wishes = wishes;
        if let Some(memory) = self.remembered.remove(id) {
            memory.restore(&mut seat, now);
        }
        self.seats.insert(seat);
    }

    /// Notes that the machine woke, or its clock was set.
    pub fn woke(&mut self, now: Timestamp) {
        self.troubles.woke(now);
        for seat in self.seats.change_all() {
            seat.polls.woke(now);
            seat.renewals.woke(now);
            let account = &mut seat.account;
            account.windows.woke(now);
            account.starts.woke(now);
            account.brake = account.brake.map(|brake| brake.woke(now));
            account.benches.iter_mut().for_each(|bench| bench.woke(now));
        }
    }
}

/// When a reading was taken that shows room in five hours and the week alike; `None` if it shows less.
fn room_in_all(windows: &[(WindowKind, Window)]) -> Option<Timestamp> {
    let seen = |wanted: &WindowKind| {
        let (_, window) = windows.iter().find(|(kind, _)| kind == wanted)?;
        (!window.used.is_full()).then_some(window.observed_at)
    };
    Some(seen(&WindowKind::FiveHour)?.min(seen(&WindowKind::Weekly)?))
}
