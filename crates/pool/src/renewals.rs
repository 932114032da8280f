//! When a seat's login wants renewing.

use jiff::{SignedDuration, Timestamp};

use crate::account::{Account, Token};

/// A token that ends sooner than this is renewed; Claude Code's own margin.
pub const RENEWED_BEFORE: SignedDuration = SignedDuration::from_secs(300);
/// When a renewal that is backing off is tried once more before the token ends.
const LAST_CHANCE: SignedDuration = SignedDuration::from_secs(45);
/// The first wait after a failed renewal while the token still lives, and once it has ended.
const RENEWAL_BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
const EXPIRED_BACK_OFF: SignedDuration = SignedDuration::from_secs(30);
/// The longest such wait.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_hours(1);
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
/// How often Claude Code is asked about an uncertain login whose token has ended, and how far apart at first.
const TRIES_AFTER_END: u8 = 3;
const BETWEEN_TRIES_AFTER_END: SignedDuration = SignedDuration::from_mins(10);
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
    /// Whose login it is cannot be told, so that it was left alone.
    Unproven,
    /// It may be an old copy of a login that cannot be seen for now, so that it was left alone.
    Hidden,
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
    /// How often an uncertain login was tried once more after its token had ended.
    tried_after_end: u8,
    /// Whether the login became another one while this was under way: what is told then is of the old one.
    changed: bool,
}

impl Renewals {
    /// When `account`'s login is to be renewed; `None` where that would not help or is under way.
    pub fn due_at(&self, account: &Account) -> Option<Timestamp> {
        if self.under_way || !account.wishes.enabled || self.last == Some(Renewal::Rejected) {
            return None;
        }
        if self.last == Some(Renewal::Uncertain) {
            // Not ours to send again; once its token has ended, Claude Code is asked. It hears nothing without a
            // network, so that it is asked more than once.
            return match account.token {
                Token::Valid { expires_at } => expires_at
                    .filter(|_| self.tried_after_end < TRIES_AFTER_END)
                    .map(|end| self.not_before.map_or(end, |limit| end.max(limit))),
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
            && !matches!(self.last, Some(Renewal::Unproven | Renewal::Hidden))
            && !account.token.is_usable(now)
            && (self.under_way || self.due_at(account).is_some_and(|at| at <= now + WORTH_WAITING))
    }

    /// When the next try is, for a login whose trouble is temporary.
    pub fn next_try(&self, account: &Account, now: Timestamp) -> Option<Timestamp> {
        let waits_for_a_person = matches!(
            self.last,
            Some(Renewal::Uncertain | Renewal::Unproven | Renewal::Hidden)
        );
        self.due_at(account)
            .filter(|_| !waits_for_a_person && !account.token.is_usable(now))
    }

    /// Notes that the machine woke, or its clock was set: what was put off is tried again.
    pub fn woke(&mut self, now: Timestamp) {
        self.not_before = None;
        self.failures = 0;
        self.tried_after_end = 0;
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
        self.changed = false;
        self.tried_at = Some(now);
    }

    /// Notes how it ended. `jitter` is 0 to 255.
    pub fn ended(&mut self, renewal: Renewal, account: &Account, jitter: u8, now: Timestamp) {
        self.under_way = false;
        let renewal = match renewal {
            Renewal::Rejected | Renewal::Uncertain if self.changed => Renewal::Busy,
            renewal => renewal,
        };
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
            Renewal::Uncertain if account.token.is_usable(now) => return,
            Renewal::Uncertain => {
                self.tried_after_end = self.tried_after_end.saturating_add(1);
                BETWEEN_TRIES_AFTER_END * i32::from(self.tried_after_end)
            }
            Renewal::Busy if account.token.is_usable(now) => BUSY_PAUSE,
            Renewal::Busy => BUSY_PAUSE_EXPIRED,
            Renewal::Unreachable | Renewal::Hidden => UNREACHABLE_PAUSE,
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
            // What may tell lies on the disk: it costs nothing to look again.
            Renewal::Unproven => RENEWAL_BACK_OFF,
        };
        self.not_before = Some(now + wait + wait / 10 * i32::from(jitter) / 255);
    }

    /// Notes that the stored login is another one: what was known of the old one no longer counts.
    pub fn login_changed(&mut self) {
        *self = Self {
            under_way: self.under_way,
            changed: self.under_way,
            renewed_at: self.renewed_at,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::AccountId;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seat() -> Account {
        let mut account = Account::new(AccountId::new("a"));
        account.token = Token::Valid { expires_at: None };
        account
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
            if renewal == Renewal::Uncertain {
                for once_more in [100, 700, 1_900] {
                    assert_eq!(renewal_due(&renewals, &account), Some(once_more));
                    renewals.began(at(once_more));
                    renewals.ended(renewal, &account, 0, at(once_more));
                }
            }
            assert_eq!(renewal_due(&renewals, &account), None, "{renewal:?}");
            renewals.login_changed();
            assert_eq!(renewal_due(&renewals, &account), Some(-200), "{renewal:?}");
        }
    }

    #[test]
    fn an_uncertain_login_is_tried_anew_after_a_wake() {
        let account = expiring(100);
        let mut renewals = Renewals::default();
        for _ in 0..3 {
            renewals.began(at(100));
            renewals.ended(Renewal::Uncertain, &account, 0, at(100));
        }
        assert_eq!(renewal_due(&renewals, &account), None);
        renewals.woke(at(5_000));
        assert_eq!(renewal_due(&renewals, &account), Some(100));
    }

    #[test]
    fn rt_06_a_verdict_on_the_old_login_does_not_count_for_the_one_that_took_its_place() {
        for renewal in [Renewal::Rejected, Renewal::Uncertain] {
            let account = expiring(100);
            let mut renewals = Renewals::default();
            renewals.began(at(200));
            renewals.login_changed();
            renewals.ended(renewal, &account, 0, at(200));
            let due = renewal_due(&renewals, &account);
            assert!(due.is_some_and(|at| at <= 201), "{renewal:?}: {due:?}");
            renewals.began(at(201));
            renewals.ended(Renewal::Rejected, &account, 0, at(201));
            assert_eq!(renewal_due(&renewals, &account), None, "one of its own does");
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
