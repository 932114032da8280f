//! The choice for one request: what it goes by, and what is said when nobody serves.

use jiff::{SignedDuration, Timestamp};

use super::Pool;
use crate::bench::Cause;
use crate::id::AccountId;
use crate::outcome::Trouble;
use crate::price::Bill;
use crate::rank::{self, Pick, Terms};
use crate::renewals::Renewal;
use crate::request::Request;
use crate::seat::Seat;
use crate::select::{self, Reason, Refusal};
use crate::standing::{Out, Tier, if_logged_in, standing};

/// How long a prompt cache lives after its last use, and one that is paid for an hour.
const CACHE: SignedDuration = SignedDuration::from_mins(5);
const HOUR_CACHE: SignedDuration = SignedDuration::from_hours(1);

impl Pool {
    /// The seat that `request` would get, and why; nothing is claimed.
    ///
    /// # Errors
    /// Why it would get none.
    pub fn preview(&self, request: &Request, now: Timestamp) -> Result<(AccountId, Reason), Refusal> {
        let (pick, reason) = self.choose(request, self.terms(request, self.chance, now))?;
        Ok((pick.account.id.clone(), reason))
    }

    /// What each seat is to `request`: how well it suits, or why it is not taken.
    pub fn standings(
        &self,
        request: &Request,
        now: Timestamp,
    ) -> impl Iterator<Item = (&AccountId, Result<Tier, Out>)> {
        let home = self.home(request, now).cloned();
        self.accounts().map(move |account| {
            let at_home = home.as_ref() == Some(&account.id);
            (&account.id, standing(account, request, at_home, now))
        })
    }

    /// The seat that the request's conversation last used.
    pub(super) fn home(&self, request: &Request, now: Timestamp) -> Option<&AccountId> {
        self.affinity.of(request.conversation?, now)
    }

    /// What the strategy goes by for `request`; `salt` breaks the ties of requests that belong to no conversation.
    pub(super) fn terms<'a>(&'a self, request: &'a Request, salt: u64, now: Timestamp) -> Terms<'a> {
        let bound = request
            .conversation
            .and_then(|conversation| self.affinity.binding(conversation, now));
        let known = bound.map(|bound| bound.context).filter(|&context| context > 0.0);
        let cache = if request.hour_cache { HOUR_CACHE } else { CACHE };
        Terms {
            strategy: self.policy.strategy,
            tuning: self.policy.tuning,
            model: request.model.as_deref(),
            home: bound.map(|bound| &bound.account),
            warm: bound.is_some_and(|bound| now.duration_since(bound.used_at) < cache),
            margin: if self.scarce { 2.0 * rank::MARGIN } else { rank::MARGIN },
            bill: Bill::of(request.size, known, request.hour_cache, request.sub_agent),
            key: rank::mix(request.conversation.map_or(salt, |conversation| conversation.0)),
            now,
        }
    }

    pub(super) fn choose<'a>(&'a self, request: &Request, terms: Terms<'a>) -> Result<(Pick<'a>, Reason), Refusal> {
        match select::select(&self.seats, request, terms) {
            Ok((pick, _))
                if pick.tier.is_last() && !request.impatient && self.renews_a_better(&pick, request, &terms) =>
            {
                Err(Refusal::Renewing)
            }
            Err(refusal) => Err(self.unless_it_passes(refusal, request, terms.now)),
            chosen => chosen,
        }
    }

    /// Whether the login of a seat that suits better than the `pick` is about to be renewed, as far as is known: what
    /// failed the last time is not waited for again, since somebody else can serve.
    fn renews_a_better(&self, pick: &Pick<'_>, request: &Request, terms: &Terms<'_>) -> bool {
        self.candidates(request, terms.now).any(|seat| {
            let account = &seat.account;
            let stands = if_logged_in(account, request, terms.home == Some(&account.id), terms.now);
            stands.is_ok_and(|tier| tier < pick.tier)
                && matches!(seat.renewals.last(), None | Some(Renewal::Done | Renewal::Busy))
                && seat.renewals.is_awaited(account, terms.now)
        })
    }

    /// The seats that could serve it, were their logins good.
    fn candidates(&self, request: &Request, now: Timestamp) -> impl Iterator<Item = &Seat> {
        let could_serve = move |seat: &&Seat| {
            let account = &seat.account;
            !request.tried.contains(&account.id)
                && request.may_use(&account.id)
                && if_logged_in(account, request, true, now).is_ok()
        };
        self.seats.iter().filter(|_| self.policy.renews).filter(could_serve)
    }

    /// Whether the login of a seat that could serve is being renewed, which is worth waiting for.
    fn is_renewing(&self, request: &Request, now: Timestamp) -> bool {
        self.candidates(request, now)
            .any(|seat| seat.renewals.is_awaited(&seat.account, now))
    }

    /// The refusal, unless what stands in the way passes by itself: that is worth waiting for.
    fn unless_it_passes(&self, refusal: Refusal, request: &Request, now: Timestamp) -> Refusal {
        if self.is_renewing(request, now) {
            return Refusal::Renewing;
        }
        // Trouble that passes is no reason to send anybody to log in.
        let Refusal::NeedLogin(seats) = refusal else {
            return refusal;
        };
        let renewal = self
            .candidates(request, now)
            .filter_map(|seat| seat.renewals.next_try(&seat.account, now))
            .min();
        let next_probe = |seat: &Seat| {
            let rejected = seat.renewals.last() == Some(Renewal::Rejected);
            let bench = seat.account.rests(now).find(|bench| bench.cause == Cause::Login)?;
            (!rejected).then_some(bench.until)
        };
        let of_the_service = self.troubles.since(Trouble::LoginsRefused, now).is_some();
        let probe = || {
            self.seats
                .iter()
                .filter(|_| of_the_service)
                .filter_map(next_probe)
                .min()
        };
        match (renewal, probe()) {
            (Some(until), _) => Refusal::LoginDelayed { until },
            (None, Some(until)) => Refusal::LoginsRefused { seats, until },
            (None, None) => Refusal::NeedLogin(seats),
        }
    }
}
