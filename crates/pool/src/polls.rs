//! When a seat's usage wants asking for.
//!
//! The usage endpoint has a small budget per token, and answers bring the same figures for nothing. So a seat that
//! answers requests is asked seldom, an idle one now and then, and nobody before the endpoint allows it.

use jiff::{SignedDuration, Timestamp};

use crate::account::Account;

/// The least time between two polls of a seat, whatever the setting says: twenty an hour.
pub const LEAST_GAP: SignedDuration = SignedDuration::from_mins(3);
/// The wait after a refusal that gives no time, doubled with each further one.
pub const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
/// The longest such wait, and the wait for a login that may not read its usage.
pub const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_hours(1);
/// A window that answers leave out is asked for so many times less often than a seat that is silent.
const LEFT_OUT: i32 = 6;
/// How soon after a reset the window is read anew.
const AFTER_RESET: SignedDuration = SignedDuration::from_secs(5);

/// How a poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// It brought a reading.
    Read,
    /// The endpoint wants to be left alone; for how long, if it said so.
    Throttled(Option<SignedDuration>),
    /// The login may not read usage.
    Forbidden,
    /// No usable answer.
    Failed,
}

/// When a seat was asked for its usage, and when it may be asked again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsagePolls {
    asked_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    failures: u32,
    /// Whether an answer is awaited.
    under_way: bool,
    /// Whether a reading is wanted as soon as it may be asked for.
    wanted: bool,
    /// Whether the last question was one too many.
    throttled: bool,
}

impl UsagePolls {
    /// When `account` is to be asked next, given the owner's `interval`; `None` while an answer is awaited or
    /// nothing could be asked with.
    pub fn due_at(&self, account: &Account, interval: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        if self.under_way || !account.wishes.enabled || !account.token.is_usable(now) {
            return None;
        }
        let gap = interval.max(LEAST_GAP);
        let soonest = self.asked_at.map_or(now, |asked| asked + LEAST_GAP);
        // What answers bring counts as a reading, so silence makes a poll due; and what they leave out, a family's week
        // for one, by and by.
        let oldest = account.windows.iter().map(|(_, window)| window.observed_at).min();
        let silent = account.windows.observed_at().max(self.asked_at).map(|last| last + gap);
        let left_out = oldest.max(self.asked_at).map(|last| last + gap * LEFT_OUT);
        let wanted = match silent.into_iter().chain(left_out).min() {
            Some(at) if !self.wanted => at,
            _ => now,
        };
        let reset = account
            .windows
            .iter()
            .filter_map(|(_, window)| Some(window).zip(window.resets_at))
            .filter(|(window, reset)| *reset > window.observed_at && window.used.basis_points() > 0)
            .map(|(_, reset)| reset + AFTER_RESET)
            // Once asked after it, an answer that leaves the window out will not bring it.
            .filter(|&at| self.asked_at.is_none_or(|asked| asked < at))
            .min();
        let at = reset.map_or(wanted, |reset| wanted.min(reset)).max(soonest);
        Some(self.not_before.map_or(at, |limit| at.max(limit)))
    }

    /// When it was last asked for.
    pub fn asked_at(&self) -> Option<Timestamp> {
        self.asked_at
    }

    /// Before when it may not be asked for again.
    pub fn not_before(&self) -> Option<Timestamp> {
        self.not_before
    }

    /// Until when it is not asked for because Anthropic wished for fewer questions.
    pub fn throttled_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_before.filter(|&at| self.throttled && now < at)
    }

    /// Takes back what was remembered elsewhere.
    pub(crate) fn recall(&mut self, asked_at: Option<Timestamp>, not_before: Option<Timestamp>, now: Timestamp) {
        self.asked_at = self.asked_at.max(asked_at);
        self.not_before = self.not_before.max(not_before);
        self.woke(now);
    }

    /// Notes that the machine's clock was set: nothing here lies in the future.
    pub fn woke(&mut self, now: Timestamp) {
        self.asked_at = self.asked_at.map(|at| at.min(now));
        self.not_before = self.not_before.map(|at| at.min(now + LONGEST_BACK_OFF));
    }

    /// Notes that a limit was met of which nobody said when it ends.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// Notes that the question went out.
    pub fn asked(&mut self, now: Timestamp) {
        self.asked_at = Some(now);
        self.wanted = false;
        self.under_way = true;
    }

    /// Notes how it ended. `jitter` is 0 to 255 and keeps seats from asking in step.
    pub fn ended(&mut self, poll: Poll, jitter: u8, now: Timestamp) {
        self.under_way = false;
        self.throttled = matches!(poll, Poll::Throttled(_));
        let wait = match poll {
            Poll::Read => {
                self.failures = 0;
                self.not_before = None;
                return;
            }
            // A hint of nothing means that the endpoint does not know.
            Poll::Throttled(Some(hint)) if hint > SignedDuration::ZERO => hint,
            Poll::Forbidden => LONGEST_BACK_OFF,
            Poll::Throttled(_) | Poll::Failed => {
                self.failures = (self.failures + 1).min(8);
                (FIRST_BACK_OFF * 2_i32.pow(self.failures - 1)).min(LONGEST_BACK_OFF)
            }
        };
        let spread = wait / 10 * i32::from(jitter) / 255;
        self.not_before = Some(now + wait + spread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Token;
    use crate::id::AccountId;
    use crate::window::{Family, Utilization, Window, WindowKind};

    const INTERVAL: SignedDuration = SignedDuration::from_secs(300);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seat() -> Account {
        let mut account = Account::new(AccountId::new("a"));
        account.token = Token::Valid { expires_at: None };
        account
    }

    fn due(polls: &UsagePolls, account: &Account, interval: i64, now: i64) -> Option<i64> {
        polls
            .due_at(account, SignedDuration::from_secs(interval), at(now))
            .map(Timestamp::as_second)
    }

    #[test]
    fn a_seat_that_was_never_read_is_asked_at_once() {
        assert_eq!(due(&UsagePolls::default(), &seat(), 300, 10), Some(10));
    }

    #[test]
    fn the_setting_cannot_exceed_twenty_polls_an_hour() {
        let mut polls = UsagePolls::default();
        polls.asked(at(0));
        polls.ended(Poll::Read, 0, at(0));
        for (interval, want) in [(15, 180), (60, 180), (300, 300), (900, 900)] {
            assert_eq!(due(&polls, &seat(), interval, 1), Some(want), "usagePollS = {interval}");
        }
    }

    #[test]
    fn what_answers_bring_puts_the_poll_off() {
        let mut account = seat();
        let used = Utilization::from_basis_points(10);
        account.windows.observe(
            &WindowKind::FiveHour,
            Window {
                used,
                resets_at: None,
                observed_at: at(1_000),
            },
        );
        assert_eq!(due(&UsagePolls::default(), &account, 300, 1_001), Some(1_300));
    }

    #[test]
    fn what_answers_leave_out_is_asked_for_by_and_by() {
        let mut account = seat();
        let seen = |second| Window {
            used: Utilization::from_basis_points(10),
            resets_at: None,
            observed_at: at(second),
        };
        account
            .windows
            .observe(&WindowKind::Model(Family::new("fable")), seen(0));
        let mut polls = UsagePolls::default();
        for now in (0..1_800).step_by(100) {
            account.windows.observe(&WindowKind::FiveHour, seen(now));
            assert_eq!(due(&polls, &account, 300, now), Some((now + 300).min(1_800)), "{now}");
        }
        // It may be left out there too.
        polls.asked(at(1_800));
        polls.ended(Poll::Read, 0, at(1_801));
        account.windows.observe(&WindowKind::FiveHour, seen(2_000));
        assert_eq!(due(&polls, &account, 300, 2_000), Some(2_300));
        account.windows.observe(&WindowKind::FiveHour, seen(3_500));
        assert_eq!(due(&polls, &account, 300, 3_500), Some(3_600));
    }

    #[test]
    fn a_used_window_is_read_soon_after_its_reset() {
        let mut account = seat();
        let used = Utilization::FULL;
        account.windows.observe(
            &WindowKind::FiveHour,
            Window {
                used,
                resets_at: Some(at(1_060)),
                observed_at: at(1_000),
            },
        );
        assert_eq!(due(&UsagePolls::default(), &account, 300, 1_001), Some(1_065));
    }

    #[test]
    fn lm_05_no_poll_before_the_endpoint_allows_it() {
        for (poll, want) in [
            (Poll::Throttled(Some(SignedDuration::from_secs(1_800))), 1_800),
            (Poll::Throttled(Some(SignedDuration::ZERO)), 300),
            (Poll::Throttled(None), 300),
            (Poll::Forbidden, 3_600),
            (Poll::Failed, 300),
        ] {
            let mut polls = UsagePolls::default();
            polls.asked(at(0));
            polls.ended(poll, 0, at(0));
            assert_eq!(due(&polls, &seat(), 60, 1), Some(want), "{poll:?}");
        }
    }

    #[test]
    fn the_back_off_doubles_up_to_an_hour_and_ends_with_a_reading() {
        let mut polls = UsagePolls::default();
        let mut waits = alloc::vec::Vec::new();
        for _ in 0..6 {
            polls.ended(Poll::Throttled(None), 0, at(0));
            waits.push(polls.not_before.unwrap().as_second());
        }
        assert_eq!(waits, [300, 600, 1_200, 2_400, 3_600, 3_600]);
        polls.ended(Poll::Read, 0, at(0));
        assert_eq!(polls.not_before, None);
    }

    #[test]
    fn nobody_is_asked_twice_at_once_nor_without_a_token() {
        let mut polls = UsagePolls::default();
        polls.asked(at(0));
        assert_eq!(due(&polls, &seat(), 300, 5_000), None);
        let mut signed_out = seat();
        signed_out.token = Token::Missing;
        assert_eq!(UsagePolls::default().due_at(&signed_out, INTERVAL, at(0)), None);
    }
}
