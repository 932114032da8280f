//! What became of refused tokens: each is left alone for a while, and for longer each time.

use jiff::{SignedDuration, Timestamp};

use crate::credential::Secret;

/// The first wait before a refused token is tried once more, and the longest.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(300);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(1_800);

/// The tokens of a seat that Anthropic refused.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Vec<Refusal>);

/// A token that Anthropic refused. It is not used again, but for a try after five minutes, then at growing gaps: a
/// refusal may have been the service's own trouble.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    token: Secret,
    pub(super) since: Timestamp,
    /// Until when it is not used.
    until: Timestamp,
    times: u32,
}

impl Refusals {
    /// The refusal of that token, while it lasts.
    pub(super) fn of(&self, token: &Secret, now: Timestamp) -> Option<&Refusal> {
        let lasts = |refusal: &&Refusal| refusal.token == *token && now < refusal.until;
        self.0.iter().find(lasts)
    }

    /// Notes that Anthropic refused that token, unless several requests met the same refusal.
    pub(super) fn note(&mut self, token: &Secret, now: Timestamp) {
        if self.of(token, now).is_some() {
            return;
        }
        let known = self.0.iter().position(|refusal| refusal.token == *token);
        let times = known.map_or(0, |at| self.0.swap_remove(at).times);
        let gap = (FIRST_RETRY * 2_i32.pow(times.min(8))).min(LONGEST_RETRY);
        self.0.push(Refusal {
            token: token.clone(),
            since: now,
            until: now + gap,
            times: times + 1,
        });
    }

    /// Forgets those of tokens that nobody has any more.
    pub(super) fn retain(&mut self, has: impl Fn(&Secret) -> bool) {
        self.0.retain(|refusal| has(&refusal.token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Secret {
        Secret::new(text)
    }

    #[test]
    fn a_refused_token_is_tried_again_at_growing_gaps() {
        let (token, mut refusals, mut now) = (token("at-test-1"), Refusals::default(), Timestamp::UNIX_EPOCH);
        for minutes in [5, 10, 20, 30, 30] {
            refusals.note(&token, now);
            // Another request met the same refusal.
            refusals.note(&token, now + SignedDuration::from_secs(1));
            now += SignedDuration::from_mins(minutes);
            let before = now - SignedDuration::from_secs(1);
            assert!(refusals.of(&token, before).is_some(), "{minutes} minutes");
            assert!(refusals.of(&token, now).is_none(), "{minutes} minutes");
        }
    }

    #[test]
    fn a_token_that_is_gone_is_forgotten_and_no_other() {
        let (gone, kept, now) = (token("at-test-1"), token("at-test-2"), Timestamp::UNIX_EPOCH);
        let mut refusals = Refusals::default();
        refusals.note(&gone, now);
        refusals.note(&kept, now);
        refusals.retain(|token| *token == kept);
        assert!(refusals.of(&gone, now).is_none());
        assert!(refusals.of(&kept, now).is_some());
    }
}
