//! Leases: a seat is claimed for one attempt, and given back with how that ended.

use alloc::vec::Vec;

use jiff::{SignedDuration, Timestamp};

use super::Pool;
use crate::bench::Scope;
use crate::id::AccountId;
use crate::outcome::{self, Note, Outcome};
use crate::rank::Strategy;
use crate::request::Request;
use crate::seat::Seat;
use crate::select::{Reason, Refusal};
use crate::standing::{Out, Tier, standing};
use crate::switch::{Switch, Why};

/// The longest that a request is asked to wait before it is sent.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// A claim on a seat for one attempt. It must be settled, exactly once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lease that is not settled keeps its seat busy for ever"]
pub struct Lease {
    number: u64,
    account: AccountId,
    wait: SignedDuration,
}

impl Lease {
    /// The seat it is for.
    pub fn account(&self) -> &AccountId {
        &self.account
    }

    /// How long the request should wait before it is sent; mostly nothing.
    pub fn wait(&self) -> SignedDuration {
        self.wait
    }
}

/// A seat that was found.
#[derive(Debug)]
pub struct Granted {
    /// The claim on it.
    pub lease: Lease,
    /// Why that one.
    pub reason: Reason,
    /// The switch, if the conversation was elsewhere before.
    pub switch: Option<Switch>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With the answer's last byte, or with nothing more to come.
    Whole,
    /// The answer broke off.
    Interrupted,
    /// The answer ended with an error in its stream, of this kind.
    Failed(Outcome),
    /// The client left.
    Abandoned,
    /// Taken back before the request was complete upstream: nothing has run.
    Withdrawn,
}

/// A lease that was not settled.
#[derive(Debug)]
pub(super) struct Open {
    account: AccountId,
    /// Whether its seat went away meanwhile.
    orphaned: bool,
    since: Timestamp,
    /// The scopes that it tries, after their rest.
    tries: Vec<Scope>,
    /// What was noted when its answer was judged; `None` before.
    noted: Option<Note>,
    /// What it is expected to cost, in input tokens.
    cost: f32,
}

impl Pool {
    /// Claims a seat for one attempt at `request`, and says why that one.
    ///
    /// # Errors
    /// Why none serves it.
    pub fn acquire(&mut self, request: &Request, now: Timestamp) -> Result<Granted, Refusal> {
        let salt = self.draw();
        let terms = self.terms(request, salt, now);
        let (pick, reason) = self.choose(request, terms)?;
        let id = pick.account.id.clone();
        let at_home = terms.home == Some(&id);
        let cost = if request.is_free {
            0.0
        } else {
            terms.bill.turn(at_home && terms.warm)
        };
        let context = terms.bill.context;
        // Weeks that run ahead of their time, and five hours that fill up: what one device takes now, another lacks soon.
        let is_short = pick
            .price
            .is_some_and(|price| price.week > 1.0 && price.now > price.week);
        let switch = self.moves(request, &id, now);
        if let Some(conversation) = request.conversation
            && !switch.as_ref().is_some_and(|switch| switch.for_one_turn)
            // What is free warms no cache.
            && !(request.is_free && at_home)
        {
            self.affinity.bind(conversation, &id, context, now);
        }
        let shares = request.tried.is_empty() && !request.is_free;
        let fair = match request.device.filter(|_| shares) {
            Some(device) => self.shares.take(device, cost, now),
            None => SignedDuration::ZERO,
        };
        let mut wait = if is_short { fair } else { SignedDuration::ZERO };
        if request.tried.is_empty() && request.again.is_none() {
            self.retries.request(now);
        }
        self.next_lease += 1;
        let mut tries = Vec::new();
        if let Some(Seat { account, .. }) = self.seats.get_mut(&id) {
            if !request.is_free {
                if self.policy.strategy == Strategy::Price {
                    wait = wait.max(account.starts.wait(now)).min(LONGEST_PAUSE);
                }
                account.starts.began(now + wait, now);
            }
            account.meter.reserve(cost);
            if !at_home {
                account.last_begun = self.next_lease;
            }
            account.in_flight += 1;
            account.starting += 1;
            for bench in &mut account.benches {
                if !bench.runs(now) && bench.scope.covers(request) {
                    bench.trying += 1;
                    tries.push(bench.scope.clone());
                }
            }
        }
        let open = Open {
            account: id.clone(),
            orphaned: false,
            since: now,
            tries,
            noted: None,
            cost,
        };
        self.leases.insert(self.next_lease, open);
        let lease = Lease {
            number: self.next_lease,
            account: id,
            wait,
        };
        Ok(Granted { lease, reason, switch })
    }

    /// Takes the lease back.
    #[expect(clippy::needless_pass_by_value, reason = "a settled lease must be gone")]
    pub fn settle(&mut self, lease: Lease, end: &End, now: Timestamp) {
        let lives = self.answered(&lease, Note::Nothing).is_some();
        let open = self.leases.remove(&lease.number);
        let Some(Seat { account, .. }) = self.seats.get_mut(&lease.account).filter(|_| lives) else {
            return;
        };
        account.meter.release(open.as_ref().map_or(0.0, |open| open.cost));
        account.in_flight = account.in_flight.saturating_sub(1);
        let head = open.and_then(|open| open.noted).unwrap_or(Note::Nothing);
        let note = match end {
            // A good head is no good answer yet.
            End::Whole if head == Note::Good => {
                account.faults = 0;
                return;
            }
            End::Whole | End::Abandoned | End::Withdrawn => return,
            // It was noted already.
            End::Interrupted | End::Failed(_) if !matches!(head, Note::Good | Note::Nothing) => return,
            End::Interrupted => Note::Fault,
            // What it would rest from is left to the next answer's head: this one has no headers of its own.
            End::Failed(outcome) => outcome::consequence(outcome, None, now).note,
        };
        if note != Note::Good {
            self.note(&lease.account, note, None, now);
        }
    }

    /// Notes that the seat `id` went away: the leases that are open answer for none that is found again.
    pub(super) fn orphan(&mut self, id: &AccountId) {
        for open in self.leases.values_mut().filter(|open| open.account == *id) {
            open.orphaned = true;
        }
    }

    /// Notes that a lease has its answer, of which `note` is made, or needs none. Returns when it was given; `None` if its
    /// seat is gone.
    pub(super) fn answered(&mut self, lease: &Lease, note: Note) -> Option<Timestamp> {
        let open = self.leases.get_mut(&lease.number).filter(|open| !open.orphaned)?;
        let Seat { account, .. } = self.seats.get_mut(&lease.account)?;
        if open.noted.is_none() {
            open.noted = Some(note);
            account.starting = account.starting.saturating_sub(1);
            for bench in &mut account.benches {
                if open.tries.contains(&bench.scope) {
                    bench.trying = bench.trying.saturating_sub(1);
                }
            }
        }
        Some(open.since)
    }

    /// The switch that giving the request to `id` is, if its conversation was elsewhere. A seat that is only passed
    /// over keeps its conversation: it is borrowed for a turn.
    fn moves(&self, request: &Request, id: &AccountId, now: Timestamp) -> Option<Switch> {
        let from = self.home(request, now).filter(|home| *home != id)?;
        let home = self.account(from);
        let stands = home.map(|home| standing(home, request, true, now));
        let was_tried = request.tried.contains(from);
        let (why, for_one_turn) = match stands {
            None => (Why::Gone, false),
            Some(_) if !request.may_use(from) => (Why::Pinned, false),
            Some(Err(out)) => (Why::Out(out), false),
            // It will lack it with the next turn too.
            Some(Ok(_)) if home.is_some_and(|home| home.lacks(request, now)) => (Why::Out(Out::NotInPlan), false),
            Some(Ok(tier @ (Tier::Ready | Tier::Braked | Tier::Marked))) if was_tried || tier != Tier::Ready => {
                (Why::Passing, true)
            }
            Some(Ok(Tier::Ready)) => {
                let group = |id| self.account(id).map(|account| account.wishes.group);
                match group(id) < group(from) || self.policy.strategy == Strategy::Order {
                    true => (Why::Group, false),
                    false => (Why::MoreRoom, false),
                }
            }
            Some(Ok(Tier::NearlyFull)) => (Why::NearlyFull, false),
            Some(Ok(_)) => (Why::Passing, false),
        };
        Some(Switch {
            from: from.clone(),
            to: id.clone(),
            why,
            for_one_turn,
        })
    }
}
