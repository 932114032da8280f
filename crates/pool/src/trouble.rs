//! Trouble that is no single seat's, and what is done less while it lasts: a retry in the face of an overloaded service
//! is one more request that it cannot serve.

use alloc::{collections::VecDeque, vec::Vec};

use jiff::{SignedDuration, Timestamp};

use crate::id::AccountId;
use crate::outcome::Trouble;

/// How long it is noted that the service is overloaded, or throttles whoever comes.
const BRIEFLY: SignedDuration = SignedDuration::from_secs(10);
/// How close together two refused logins must be to be the service's trouble, and how long that is noted.
const REFUSALS_WITHIN: SignedDuration = SignedDuration::from_secs(60);
const REFUSALS_NOTED: SignedDuration = SignedDuration::from_mins(5);
/// How long trouble of the way is noted at most; the first answer that is served ends it.
const UNTIL_SERVED: SignedDuration = SignedDuration::from_hours(1);

impl Trouble {
    /// All of it.
    pub const ALL: [Self; 6] = [
        Self::Overloaded,
        Self::Throttled,
        Self::LoginsRefused,
        Self::Challenged,
        Self::WrongPlace,
        Self::Unreachable,
    ];

    /// How close together two seats must meet it before it counts as no seat's own; `None` where one is enough.
    const fn takes_two_within(self) -> Option<SignedDuration> {
        match self {
            Self::Overloaded | Self::Throttled => Some(BRIEFLY),
            Self::LoginsRefused => Some(REFUSALS_WITHIN),
            Self::Challenged | Self::WrongPlace | Self::Unreachable => None,
        }
    }

    const fn noted_for(self) -> SignedDuration {
        match self {
            Self::Overloaded | Self::Throttled => BRIEFLY,
            Self::LoginsRefused => REFUSALS_NOTED,
            Self::Challenged | Self::WrongPlace | Self::Unreachable => UNTIL_SERVED,
        }
    }

    /// Whether an answer that was served shows it to be over.
    const fn ends_when_served(self) -> bool {
        matches!(self, Self::Challenged | Self::WrongPlace | Self::Unreachable)
    }
}

/// The trouble that is noted.
#[derive(Clone, Debug, Default)]
pub struct Troubles([Noted; Trouble::ALL.len()]);

#[derive(Clone, Debug, Default)]
struct Noted {
    /// Who met it last, and when.
    met: Option<(AccountId, Timestamp)>,
    /// Since when it counts, and until when.
    span: Option<(Timestamp, Timestamp)>,
}

impl Troubles {
    /// Notes that `who` met `trouble`.
    pub fn meet(&mut self, trouble: Trouble, who: &AccountId, now: Timestamp) {
        let noted = &mut self.0[trouble as usize];
        let counts = match (trouble.takes_two_within(), &noted.met) {
            (None, _) => true,
            (Some(within), Some((other, at))) => other != who && now.duration_since(*at) < within,
            (Some(_), None) => false,
        };
        let runs = noted.span.is_some_and(|(_, until)| now < until);
        if counts || runs && trouble.takes_two_within().is_none() {
            let since = noted.span.filter(|_| runs).map_or(now, |(since, _)| since);
            noted.span = Some((since, now + trouble.noted_for()));
        }
        noted.met = Some((who.clone(), now));
    }

    /// Notes that an answer was served.
    pub fn served(&mut self) {
        for trouble in Trouble::ALL.into_iter().filter(|trouble| trouble.ends_when_served()) {
            self.0[trouble as usize] = Noted::default();
        }
    }

    /// Notes that the machine's clock was set: nothing was met in the future.
    pub fn woke(&mut self, now: Timestamp) {
        for trouble in Trouble::ALL {
            let noted = &mut self.0[trouble as usize];
            let is_ahead = |(since, _): (Timestamp, Timestamp)| since > now;
            if noted.span.is_some_and(is_ahead) || noted.met.as_ref().is_some_and(|(_, at)| *at > now) {
                *noted = Noted::default();
            }
        }
    }

    /// Since when there is `trouble`; `None` if there is none at `now`.
    pub fn since(&self, trouble: Trouble, now: Timestamp) -> Option<Timestamp> {
        let (since, until) = self.0[trouble as usize].span?;
        (now < until).then_some(since)
    }

    /// The trouble that there is at `now`, and since when.
    pub fn at(&self, now: Timestamp) -> Vec<(Trouble, Timestamp)> {
        let noted = |trouble| Some((trouble, self.since(trouble, now)?));
        Trouble::ALL.into_iter().filter_map(noted).collect()
    }
}

/// How often the pool may try again what no seat's own fault asks for: a tenth of the last minute's requests, and three.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget {
    /// Requests in each of the last minute's parts, by the part's number.
    requests: [(i64, u32); PARTS],
    /// When the last minute's retries were.
    retries: VecDeque<Timestamp>,
}

const PARTS: usize = 6;
const PART_S: i64 = 10;
const LEAST: usize = 3;

impl RetryBudget {
    /// Notes a request.
    pub fn request(&mut self, now: Timestamp) {
        let part = now.as_second().div_euclid(PART_S);
        let slot = &mut self.requests[part.rem_euclid(PARTS as i64) as usize];
        match slot.0 == part {
            true => slot.1 += 1,
            false => *slot = (part, 1),
        }
    }

    /// Takes a retry, if there is one left.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let minute = SignedDuration::from_secs(PART_S * PARTS as i64);
        self.retries.retain(|at| now.duration_since(*at).abs() < minute);
        let part = now.as_second().div_euclid(PART_S);
        let recent = self.requests.iter().filter(|(number, _)| part - number < PARTS as i64);
        let requests: u32 = recent.map(|(_, count)| count).sum();
        let left = self.retries.len() < LEAST.max(requests as usize / 10);
        if left {
            self.retries.push_back(now);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn trouble_that_two_seats_meet_is_no_seats_own() {
        let (a, b) = (AccountId::new("a"), AccountId::new("b"));
        for (what, trouble, second, gap, want) in [
            ("one seat twice", Trouble::Overloaded, &a, 1, false),
            ("two seats", Trouble::Overloaded, &b, 9, true),
            ("two seats, long apart", Trouble::Overloaded, &b, 10, false),
            ("two logins", Trouble::LoginsRefused, &b, 59, true),
            ("two logins, long apart", Trouble::LoginsRefused, &b, 60, false),
            ("a challenge to one", Trouble::Challenged, &a, 1, true),
        ] {
            let mut troubles = Troubles::default();
            troubles.meet(trouble, &a, at(0));
            troubles.meet(trouble, second, at(gap));
            assert_eq!(troubles.since(trouble, at(gap)).is_some(), want, "{what}");
        }
    }

    #[test]
    fn trouble_passes_by_itself_and_that_of_the_way_with_the_first_answer() {
        let (a, b) = (AccountId::new("a"), AccountId::new("b"));
        let mut troubles = Troubles::default();
        troubles.meet(Trouble::Overloaded, &a, at(0));
        troubles.meet(Trouble::Overloaded, &b, at(1));
        assert_eq!(troubles.at(at(10)), [(Trouble::Overloaded, at(1))]);
        assert_eq!(troubles.at(at(11)), []);
        troubles.meet(Trouble::Unreachable, &a, at(20));
        troubles.meet(Trouble::Unreachable, &a, at(30));
        assert_eq!(troubles.at(at(40)), [(Trouble::Unreachable, at(20))]);
        troubles.served();
        assert_eq!(troubles.at(at(40)), []);
    }

    #[test]
    fn retries_are_a_tenth_of_the_last_minutes_requests_and_three() {
        for (requests, want) in [(0, 3), (30, 3), (49, 4), (200, 20)] {
            let mut budget = RetryBudget::default();
            (0..requests).for_each(|n| budget.request(at(1_000 + n % 50)));
            let taken = (0..100).filter(|_| budget.take(at(1_050))).count();
            assert_eq!(taken, want, "{requests}");
            assert!(!budget.take(at(1_109)), "a minute is not over");
            assert!(budget.take(at(1_110)), "three in the next minute");
        }
    }
}
