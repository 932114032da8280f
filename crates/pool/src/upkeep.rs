//! When a seat's usage wants asking for, and its login renewing.
//!
//! The usage endpoint has a small budget per token, and answers bring the same figures for nothing. So a seat that
//! answers requests is asked seldom, an idle one now and then, and nobody before the endpoint allows it.

use jiff::{SignedDuration, Timestamp};

use crate::account::{Account, Token};

/// The least time between two polls of a seat, whatever the setting says: twenty an hour.
pub const LEAST_GAP: SignedDuration = SignedDuration::from_mins(3);
/// The wait after a refusal that gives no time, doubled with each further one.
pub const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
/// The longest such wait, and the wait for a login that may not read its usage.
pub const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_hours(1);
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
        // What answers bring counts as a reading, so only silence makes a poll due.
        let read = account.windows.observed_at();
        let wanted = match (read, self.asked_at) {
            _ if self.wanted => now,
            (None, None) => now,
            (read, asked) => read.max(asked).map_or(now, |last| last + gap),
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

/// A token that ends sooner than this is renewed; Claude Code's own margin.
pub const RENEWED_BEFORE: SignedDuration = SignedDuration::from_secs(300);
/// When a renewal that is backing off is tried once more before the token ends.
const LAST_CHANCE: SignedDuration = SignedDuration::from_secs(45);
/// The first wait after a failed renewal while the token still lives, and once it has ended.
const RENEWAL_BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
const EXPIRED_BACK_OFF: SignedDuration = SignedDuration::from_secs(30);
/// How soon a renewal is tried again when another held the locks.
const BUSY_PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// The same once the token has ended: whoever holds them is about to bring a new one.
const BUSY_PAUSE_EXPIRED: SignedDuration = SignedDuration::from_secs(1);
/// How soon a renewal is tried again where there is no network: it costs nothing, and comes back by itself.
const UNREACHABLE_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// A renewal that is due within this time is worth waiting for.
pub const WORTH_WAITING: SignedDuration = SignedDuration::from_secs(35);
/// The least time between two renewals of a login.
const LEAST_RENEWAL_GAP: SignedDuration = SignedDuration::from_secs(60);
/// A token that is refused this soon after its own renewal is not renewed again.
const JUST_RENEWED: SignedDuration = SignedDuration::from_secs(60);

/// How a renewal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// There is a fresh login.
    Done,
    /// Another holds the locks.
    Busy,
    /// No connection.
    Unreachable,
    /// Temporary trouble; when to come back, if that was said.
    Failed(Option<SignedDuration>),
    /// The new pair could not be saved, so it was not asked for.
    CannotSave,
    /// A lock cannot be made, or something else is in its place.
    CannotLock,
    /// The login is dead.
    Rejected,
    /// The login may be dead; it is not tried again.
    Uncertain,
}

/// When a seat's login was renewed, and when it may be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewals {
    under_way: bool,
    renewed_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    failures: u32,
    /// How the last one ended.
    last: Option<Renewal>,
    /// Whether an uncertain login was tried once more after its token had ended.
    tried_after_end: bool,
}

impl Renewals {
    /// When `account`'s login is to be renewed; `None` where that would not help or is under way.
    pub fn due_at(&self, account: &Account) -> Option<Timestamp> {
        if self.under_way || !account.wishes.enabled || self.last == Some(Renewal::Rejected) {
            return None;
        }
        if self.last == Some(Renewal::Uncertain) {
            // Not ours to send again; once its token has ended, Claude Code is asked, once.
            return match account.token {
                Token::Valid { expires_at } => expires_at.filter(|_| !self.tried_after_end),
                Token::Refused { .. } | Token::Missing => None,
            };
        }
        let due = self.wanted_at(account)?;
        Some(
            self.renewed_at
                .map_or(due, |renewed| due.max(renewed + LEAST_RENEWAL_GAP)),
        )
    }

    /// When a renewal is wanted, by the token and by how earlier ones went.
    fn wanted_at(&self, account: &Account) -> Option<Timestamp> {
        match account.token {
            Token::Missing | Token::Valid { expires_at: None } => None,
            Token::Refused { since, expires_at } => {
                let just_renewed = self
                    .renewed_at
                    .is_some_and(|at| since.duration_since(at) < JUST_RENEWED);
                let wanted = match just_renewed {
                    true => expires_at?,
                    false => since,
                };
                Some(self.not_before.map_or(wanted, |limit| wanted.max(limit)))
            }
            Token::Valid { expires_at: Some(end) } => {
                let wanted = end - RENEWED_BEFORE;
                let chance = end - LAST_CHANCE;
                match self.not_before {
                    None => Some(wanted),
                    // Backing off beyond the last moment at which it could still help: use that moment once.
                    Some(limit) if limit > chance && self.tried_at.is_none_or(|tried| tried < chance) => {
                        Some(chance.max(wanted))
                    }
                    Some(limit) => Some(wanted.max(limit)),
                }
            }
        }
    }

    /// Whether a request for `account` may hope for a renewal within moments.
    pub fn is_awaited(&self, account: &Account, now: Timestamp) -> bool {
        account.wishes.enabled
            && !account.token.is_usable(now)
            && (self.under_way || self.due_at(account).is_some_and(|at| at <= now + WORTH_WAITING))
    }

    /// When the next try is, for a login whose trouble is temporary.
    pub fn next_try(&self, account: &Account, now: Timestamp) -> Option<Timestamp> {
        let temporary = self.last != Some(Renewal::Uncertain) && !account.token.is_usable(now);
        self.due_at(account).filter(|_| temporary)
    }

    /// Notes that the machine woke, or its clock was set: what was put off is tried again.
    pub fn woke(&mut self, now: Timestamp) {
        self.not_before = None;
        self.failures = 0;
        self.renewed_at = self.renewed_at.map(|at| at.min(now));
        self.tried_at = self.tried_at.map(|at| at.min(now));
    }

    /// How the last renewal ended, if one was tried since the login last changed.
    pub fn last(&self) -> Option<Renewal> {
        self.last
    }

    /// Whether one is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// Notes that one began.
    pub fn began(&mut self, now: Timestamp) {
        self.under_way = true;
        self.tried_at = Some(now);
    }

    /// Notes how it ended. `jitter` is 0 to 255.
    pub fn ended(&mut self, renewal: Renewal, account: &Account, jitter: u8, now: Timestamp) {
        self.under_way = false;
        self.last = Some(renewal);
        let wait = match renewal {
            Renewal::Done => {
                *self = Self {
                    renewed_at: Some(now),
                    ..Self::default()
                };
                return;
            }
            Renewal::Rejected => return,
            Renewal::Uncertain => {
                self.tried_after_end |= !account.token.is_usable(now);
                return;
            }
            Renewal::Busy if account.token.is_usable(now) => BUSY_PAUSE,
            Renewal::Busy => BUSY_PAUSE_EXPIRED,
            Renewal::Unreachable => UNREACHABLE_PAUSE,
            Renewal::Failed(hint) => {
                self.failures = (self.failures + 1).min(8);
                let first = match account.token.is_usable(now) {
                    true => RENEWAL_BACK_OFF,
                    false => EXPIRED_BACK_OFF,
                };
                let grown = (first * 2_i32.pow(self.failures - 1)).min(LONGEST_BACK_OFF);
                grown.max(hint.unwrap_or_default().min(LONGEST_BACK_OFF))
            }
            Renewal::CannotSave | Renewal::CannotLock => EXPIRED_BACK_OFF * 2,
        };
        self.not_before = Some(now + wait + wait / 10 * i32::from(jitter) / 255);
    }

    /// Notes that the stored login is another one: what was known of the old one no longer counts.
    pub fn login_changed(&mut self) {
        *self = Self {
            under_way: self.under_way,
            renewed_at: self.renewed_at,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::AccountId;
    use crate::window::{Utilization, Window, WindowKind};

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
            WindowKind::FiveHour,
            Window {
                used,
                resets_at: None,
                observed_at: at(1_000),
            },
        );
        assert_eq!(due(&UsagePolls::default(), &account, 300, 1_001), Some(1_300));
    }

    #[test]
    fn a_used_window_is_read_soon_after_its_reset() {
        let mut account = seat();
        let used = Utilization::FULL;
        account.windows.observe(
            WindowKind::FiveHour,
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

    fn expiring(end: i64) -> Account {
        let mut account = seat();
        account.token = Token::Valid {
            expires_at: Some(at(end)),
        };
        account
    }

    fn renewal_due(renewals: &Renewals, account: &Account) -> Option<i64> {
        renewals.due_at(account).map(Timestamp::as_second)
    }

    #[test]
    fn a_login_is_renewed_five_minutes_before_it_ends_and_at_once_when_refused() {
        assert_eq!(renewal_due(&Renewals::default(), &expiring(10_000)), Some(9_700));
        let mut refused = seat();
        refused.token = Token::Refused {
            since: at(50),
            expires_at: None,
        };
        assert_eq!(renewal_due(&Renewals::default(), &refused), Some(50));
        assert_eq!(
            renewal_due(&Renewals::default(), &seat()),
            None,
            "an unknown end is renewed on a refusal alone"
        );
    }

    #[test]
    fn rf_04_temporary_trouble_backs_off_with_a_last_try_before_the_end() {
        let account = expiring(10_000);
        let mut renewals = Renewals::default();
        renewals.began(at(9_700));
        renewals.ended(Renewal::Failed(None), &account, 0, at(9_700));
        assert_eq!(
            renewal_due(&renewals, &account),
            Some(9_955),
            "five minutes would be after the end"
        );
        renewals.began(at(9_955));
        renewals.ended(Renewal::Failed(None), &account, 0, at(9_955));
        assert_eq!(renewal_due(&renewals, &account), Some(9_955 + 600));
        let mut waits = alloc::vec::Vec::new();
        let mut fresh = Renewals::default();
        for _ in 0..4 {
            fresh.began(at(20_000));
            fresh.ended(Renewal::Failed(None), &account, 0, at(20_000));
            waits.push(renewal_due(&fresh, &account).unwrap() - 20_000);
        }
        assert_eq!(waits, [30, 60, 120, 240], "from thirty seconds once it has ended");
    }

    #[test]
    fn rf_03_a_dead_login_is_left_alone_until_the_store_holds_another() {
        for renewal in [Renewal::Rejected, Renewal::Uncertain] {
            let account = expiring(100);
            let mut renewals = Renewals::default();
            renewals.began(at(0));
            renewals.ended(renewal, &account, 0, at(0));
            let once_more = (renewal == Renewal::Uncertain).then_some(100);
            assert_eq!(renewal_due(&renewals, &account), once_more, "{renewal:?}");
            renewals.began(at(100));
            renewals.ended(renewal, &account, 0, at(100));
            assert_eq!(renewal_due(&renewals, &account), None, "{renewal:?}");
            renewals.login_changed();
            assert_eq!(renewal_due(&renewals, &account), Some(-200), "{renewal:?}");
        }
    }

    #[test]
    fn rf_01_one_renewal_at_a_time() {
        let mut renewals = Renewals::default();
        renewals.began(at(0));
        assert_eq!(renewal_due(&renewals, &expiring(100)), None);
        assert!(renewals.is_awaited(&expiring(0), at(1)));
    }

    #[test]
    fn a_token_refused_right_after_its_renewal_is_not_renewed_again() {
        let mut renewals = Renewals::default();
        renewals.began(at(0));
        renewals.ended(Renewal::Done, &expiring(10_000), 0, at(0));
        let mut refused = seat();
        for (since, expires_at, want) in [
            (30, None, None),
            (30, Some(at(900)), Some(900)),
            (61, Some(at(900)), Some(61)),
        ] {
            refused.token = Token::Refused {
                since: at(since),
                expires_at,
            };
            assert_eq!(renewal_due(&renewals, &refused), want);
        }
    }
}
