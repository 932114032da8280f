//! One subscription: who it is and how much of it is left.

use serde::Deserialize;

/// 2100-01-01, for tokens whose expiry is not the point of a test.
const FAR_FUTURE_MS: i64 = 4_102_444_800_000;
const FIVE_HOURS_S: i64 = 5 * 3600;
const WEEK_S: i64 = 7 * 24 * 3600;
/// Sums of 0.1 stop short of 1.0; that is not an allowance left.
const FULL: f64 = 1.0 - 1e-9;

/// Which of a seat's allowances is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allowance {
    FiveHour,
    Weekly,
    /// The weekly allowance of one model only.
    Fable,
}

/// An allowance and its window. The window opens at first use and is empty again from its reset.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    /// The used fraction; 1.0 is all of it.
    pub used: f64,
    /// Seconds since the epoch; `None` while the window is not open.
    pub resets_at_s: Option<i64>,
    /// How long a window lasts from its first use, in seconds.
    pub length_s: i64,
}

impl Meter {
    /// An unused allowance with windows of `length_s` seconds.
    pub fn new(length_s: i64) -> Self {
        Self {
            used: 0.0,
            resets_at_s: None,
            length_s,
        }
    }

    /// Empties the window if its reset has come.
    pub(crate) fn settle(&mut self, now_ms: i64) {
        if self.resets_at_s.is_some_and(|at| at * 1000 <= now_ms) {
            self.used = 0.0;
            self.resets_at_s = None;
        }
    }

    pub(crate) fn set_used(&mut self, fraction: f64, now_ms: i64) {
        self.settle(now_ms);
        self.open(now_ms);
        self.used = fraction;
    }

    pub(crate) fn spend(&mut self, fraction: f64, now_ms: i64) {
        self.set_used(self.used + fraction, now_ms);
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.used >= FULL
    }

    /// When the window resets, or would if it opened now. Seconds since the epoch.
    pub(crate) fn reset_s(&self, now_ms: i64) -> i64 {
        self.resets_at_s.unwrap_or(now_ms.div_euclid(1000) + self.length_s)
    }

    fn open(&mut self, now_ms: i64) {
        self.resets_at_s = Some(self.reset_s(now_ms));
    }
}

/// One subscription, with the tokens that are live for it.
#[derive(Clone, Debug)]
pub struct Seat {
    pub name: String,
    pub access_token: String,
    pub refresh_token: String,
    /// When the access token expires, in milliseconds since the epoch.
    pub expires_at_ms: i64,
    /// How long the tokens of a renewal last, in seconds.
    pub token_lifetime_s: i64,
    pub account_uuid: String,
    pub organization_uuid: String,
    pub email: String,
    pub organization_name: String,
    /// `"max"` or `"pro"`.
    pub plan: String,
    pub five_hour: Meter,
    pub weekly: Meter,
    /// `None`: the seat has no separate allowance for Fable.
    pub fable: Option<Meter>,
    /// The fraction of the five-hour allowance that each messages request spends.
    pub cost_per_request: f64,
    /// How much of that cost the weekly allowance feels.
    pub weekly_share: f64,
}

impl Seat {
    /// A seat with made-up ids and tokens named after it, nothing used and nothing spent.
    pub fn new(name: &str) -> Self {
        // Ids differ by name and are the same in every run.
        let id = name
            .bytes()
            .fold(0u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000_000_000);
        Self {
            name: name.to_owned(),
            access_token: format!("sk-ant-oat01-sandbox-{name}"),
            refresh_token: format!("sk-ant-ort01-sandbox-{name}"),
            expires_at_ms: FAR_FUTURE_MS,
            token_lifetime_s: 8 * 3600,
            account_uuid: format!("00000000-0000-4000-8000-{id:012}"),
            organization_uuid: format!("00000000-0000-4000-9000-{id:012}"),
            email: format!("{name}@example.com"),
            organization_name: format!("{name}'s organization"),
            plan: "max".to_owned(),
            five_hour: Meter::new(FIVE_HOURS_S),
            weekly: Meter::new(WEEK_S),
            fable: None,
            cost_per_request: 0.0,
            weekly_share: 1.0 / 8.0,
        }
    }

    #[must_use]
    pub fn tokens(mut self, access: &str, refresh: &str) -> Self {
        access.clone_into(&mut self.access_token);
        refresh.clone_into(&mut self.refresh_token);
        self
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub fn expires_at_ms(mut self, at: i64) -> Self {
        self.expires_at_ms = at;
        self
    }

    /// Seconds.
    #[must_use]
    pub fn token_lifetime_s(mut self, lifetime: i64) -> Self {
        self.token_lifetime_s = lifetime;
        self
    }

    #[must_use]
    pub fn account(mut self, uuid: &str, email: &str) -> Self {
        uuid.clone_into(&mut self.account_uuid);
        email.clone_into(&mut self.email);
        self
    }

    #[must_use]
    pub fn organization(mut self, uuid: &str, name: &str) -> Self {
        uuid.clone_into(&mut self.organization_uuid);
        name.clone_into(&mut self.organization_name);
        self
    }

    #[must_use]
    pub fn plan(mut self, plan: &str) -> Self {
        plan.clone_into(&mut self.plan);
        self
    }

    /// The used fraction of the five-hour window and its reset, in seconds since the epoch.
    #[must_use]
    pub fn five_hour(mut self, used: f64, resets_at_s: i64) -> Self {
        (self.five_hour.used, self.five_hour.resets_at_s) = (used, Some(resets_at_s));
        self
    }

    /// As [`Self::five_hour`], for the weekly window.
    #[must_use]
    pub fn weekly(mut self, used: f64, resets_at_s: i64) -> Self {
        (self.weekly.used, self.weekly.resets_at_s) = (used, Some(resets_at_s));
        self
    }

    /// Gives the seat a weekly Fable allowance of its own, not yet used.
    #[must_use]
    pub fn with_fable(mut self) -> Self {
        self.fable = Some(Meter::new(WEEK_S));
        self
    }

    /// The fraction of the five-hour allowance that each messages request spends.
    #[must_use]
    pub fn cost(mut self, fraction: f64) -> Self {
        self.cost_per_request = fraction;
        self
    }

    pub(crate) fn meter_mut(&mut self, allowance: Allowance) -> Option<&mut Meter> {
        match allowance {
            Allowance::FiveHour => Some(&mut self.five_hour),
            Allowance::Weekly => Some(&mut self.weekly),
            Allowance::Fable => self.fable.as_mut(),
        }
    }

    pub(crate) fn settle(&mut self, now_ms: i64) {
        self.five_hour.settle(now_ms);
        self.weekly.settle(now_ms);
        if let Some(fable) = &mut self.fable {
            fable.settle(now_ms);
        }
    }

    /// Spends one request; it opens the windows it touches even when it costs nothing.
    pub(crate) fn spend_request(&mut self, is_fable: bool, now_ms: i64) {
        self.five_hour.spend(self.cost_per_request, now_ms);
        self.weekly.spend(self.cost_per_request * self.weekly_share, now_ms);
        if is_fable && let Some(fable) = &mut self.fable {
            fable.spend(self.cost_per_request / 4.0, now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_opens_at_first_use_and_is_empty_from_its_reset() {
        let mut meter = Meter::new(100);
        meter.settle(0);
        assert_eq!(meter.resets_at_s, None);
        meter.spend(0.5, 5_000);
        assert_eq!((meter.used, meter.resets_at_s), (0.5, Some(105)));
        for (now_ms, used) in [(104_999, 0.5), (105_000, 0.0), (105_001, 0.0)] {
            meter.settle(now_ms);
            assert_eq!(meter.used, used, "at {now_ms} ms");
        }
    }

    #[test]
    fn ten_tenths_are_all_of_it() {
        let mut meter = Meter::new(100);
        for _ in 0..10 {
            assert!(!meter.is_exhausted());
            meter.spend(0.1, 0);
        }
        assert!(meter.is_exhausted());
    }
}
