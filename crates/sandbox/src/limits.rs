//! The `anthropic-ratelimit-unified-*` headers of a seat.

use crate::seat::{Meter, Seat};

const PREFIX: &str = "anthropic-ratelimit-unified-";
/// From here on an answer says `allowed_warning`.
const WARNING: f64 = 0.9;

/// The full name of a unified header, from its suffix.
pub(crate) fn name(suffix: &str) -> String {
    format!("{PREFIX}{suffix}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Allowed,
    Warning,
    Rejected,
}

impl Status {
    fn of(meter: &Meter) -> Self {
        if meter.is_exhausted() {
            Self::Rejected
        } else if meter.used >= WARNING {
            Self::Warning
        } else {
            Self::Allowed
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Warning => "allowed_warning",
            Self::Rejected => "rejected",
        }
    }
}

struct Window<'a> {
    suffix: &'static str,
    claim: &'static str,
    meter: &'a Meter,
}

/// The windows that a request for such a model is measured by.
fn windows(seat: &Seat, is_fable: bool) -> Vec<Window<'_>> {
    let mut windows = vec![
        Window {
            suffix: "5h",
            claim: "five_hour",
            meter: &seat.five_hour,
        },
        Window {
            suffix: "7d",
            claim: "seven_day",
            meter: &seat.weekly,
        },
    ];
    if is_fable && let Some(meter) = &seat.fable {
        windows.push(Window {
            suffix: "7d_oi",
            claim: "seven_day_overage_included",
            meter,
        });
    }
    windows
}

/// When the seat will take such a request again, in seconds since the epoch; `None`: it does now.
pub(crate) fn exhausted_until_s(seat: &Seat, is_fable: bool, now_ms: i64) -> Option<i64> {
    windows(seat, is_fable)
        .iter()
        .filter(|window| window.meter.is_exhausted())
        .map(|window| window.meter.reset_s(now_ms))
        .max()
}

/// The whole header set. Of a request that is `served` no window is rejected, not even one whose
/// last part it spent.
pub(crate) fn headers(seat: &Seat, is_fable: bool, now_ms: i64, served: bool) -> Vec<(String, String)> {
    let windows = windows(seat, is_fable);
    let status = |window: &Window<'_>| {
        let status = Status::of(window.meter);
        if served { status.min(Status::Warning) } else { status }
    };
    // The worst window speaks for the answer, of equals the one that lasts longest; a healthy
    // answer speaks of the five-hour window.
    let mut claim = &windows[0];
    for window in &windows[1..] {
        let worse = status(window) > status(claim);
        let longer = status(window) == status(claim)
            && status(window) == Status::Rejected
            && window.meter.reset_s(now_ms) > claim.meter.reset_s(now_ms);
        if worse || longer {
            claim = window;
        }
    }
    let mut headers = vec![
        (name("status"), status(claim).as_str().to_owned()),
        (name("reset"), claim.meter.reset_s(now_ms).to_string()),
        (name("representative-claim"), claim.claim.to_owned()),
        (name("fallback-percentage"), "0.5".to_owned()),
    ];
    for window in &windows {
        let suffix = window.suffix;
        headers.push((name(&format!("{suffix}-status")), status(window).as_str().to_owned()));
        headers.push((
            name(&format!("{suffix}-reset")),
            window.meter.reset_s(now_ms).to_string(),
        ));
        headers.push((name(&format!("{suffix}-utilization")), fraction(window.meter.used)));
        if status(window) == Status::Warning {
            headers.push((name(&format!("{suffix}-surpassed-threshold")), fraction(WARNING)));
        }
    }
    headers.push((name("overage-status"), "rejected".to_owned()));
    headers.push((name("overage-disabled-reason"), "org_level_disabled".to_owned()));
    headers
}

/// A fraction as the headers write it: `1.0`, `0.62`.
pub(crate) fn fraction(used: f64) -> String {
    format!("{:?}", (used * 1e4).round() / 1e4)
}
