//! What the headers of an answer say about the limits of the seat that gave it.

use http::header::{self, HeaderMap};
use jiff::{SignedDuration, Timestamp};
use pool::{Rejection, Utilization, Window, WindowKind};

use super::windows::{claimed, labelled};

/// How the names of the headers begin that tell limits.
pub(super) const PREFIX: &str = "anthropic-ratelimit-unified-";

/// Whether a limit lets requests through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Rejected,
}

/// What the headers of an answer say about the seat's limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    overall: Option<Verdict>,
    windows: Vec<HeaderWindow>,
    claim: Option<WindowKind>,
    /// Whether it is what goes beyond the plan that decided.
    claims_extra_usage: bool,
    resets_at: Option<Timestamp>,
    retry_after: Option<SignedDuration>,
    /// Whether nothing pays for what goes beyond the plan.
    pub(super) out_of_credits: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct HeaderWindow {
    kind: WindowKind,
    used: Option<Utilization>,
    resets_at: Option<Timestamp>,
    verdict: Option<Verdict>,
}

impl Limits {
    /// The limits that the `headers` of an answer name, which was to a request for `model`. What is missing or odd is
    /// left out.
    pub fn read(headers: &HeaderMap, model: Option<&str>) -> Self {
        let mut limits = Self {
            retry_after: retry_after(headers),
            ..Self::default()
        };
        for (name, value) in headers {
            let Some(field) = name.as_str().strip_prefix(PREFIX) else {
                continue;
            };
            let Ok(value) = value.to_str() else { continue };
            match field {
                "status" => limits.overall = verdict(value),
                "reset" => limits.resets_at = epoch(value),
                "representative-claim" => {
                    limits.claim = claimed(value, model);
                    limits.claims_extra_usage = value == "overage";
                }
                "overage-disabled-reason" => limits.out_of_credits = value == "out_of_credits",
                _ => limits.read_window(field, value, model),
            }
        }
        limits
    }

    fn read_window(&mut self, field: &str, value: &str, model: Option<&str>) {
        let Some((label, what)) = field.rsplit_once('-') else {
            return;
        };
        let Some(kind) = labelled(label, model) else { return };
        let known = self.windows.iter().position(|window| window.kind == kind);
        let index = known.unwrap_or_else(|| {
            self.windows.push(HeaderWindow {
                kind,
                used: None,
                resets_at: None,
                verdict: None,
            });
            self.windows.len() - 1
        });
        let window = &mut self.windows[index];
        match what {
            "utilization" => window.used = value.parse().ok().and_then(Utilization::from_fraction),
            "reset" => window.resets_at = epoch(value),
            "status" => window.verdict = verdict(value),
            _ => {}
        }
    }

    /// The windows whose use was told, as seen at `now`.
    pub fn readings(&self, now: Timestamp) -> Vec<(WindowKind, Window)> {
        let told = |window: &HeaderWindow| {
            let used = match (window.used, window.verdict) {
                (used, Some(Verdict::Rejected)) => used.max(Some(Utilization::FULL)),
                (used, _) => used,
            }?;
            let seen = Window {
                used,
                resets_at: window.resets_at,
                observed_at: now,
            };
            Some((window.kind.clone(), seen))
        };
        self.windows.iter().filter_map(told).collect()
    }

    /// Whether the answer was within every limit; an answer without limits says nothing, so it is not.
    pub fn allowed(&self) -> bool {
        self.overall == Some(Verdict::Allowed)
    }

    /// Whether it is what goes beyond the plan that was refused, while the plan's own windows let requests through.
    pub(super) fn is_about_extra_usage(&self) -> bool {
        let is_allowed = |window: &HeaderWindow| window.verdict == Some(Verdict::Allowed);
        self.claims_extra_usage && !self.windows.is_empty() && self.windows.iter().all(is_allowed)
    }

    /// Whether the answer as a whole was beyond a limit.
    pub(super) fn is_rejected(&self) -> bool {
        self.overall == Some(Verdict::Rejected)
    }

    /// What was rejected; `None` if the answer names no limit at all.
    ///
    /// A window's own status counts; without one the claim of an answer that was rejected as a whole; without
    /// either the answer as a whole.
    pub fn rejection(&self) -> Option<Rejection> {
        let rejected = self
            .windows
            .iter()
            .filter(|window| window.verdict == Some(Verdict::Rejected));
        let mut windows: Vec<_> = rejected.map(|window| (window.kind.clone(), window.resets_at)).collect();
        if windows.is_empty() {
            if !self.is_rejected() {
                return None;
            }
            windows.extend(self.claim.clone().map(|kind| {
                let own = self.windows.iter().find(|window| window.kind == kind);
                (kind, own.and_then(|window| window.resets_at))
            }));
        }
        Some(Rejection {
            windows,
            resets_at: self.resets_at,
            retry_after: self.retry_after,
        })
    }
}

/// How long an answer asks to be left alone, in whole seconds; none at all is no answer.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<SignedDuration> {
    let seconds: u32 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    (seconds > 0).then(|| SignedDuration::from_secs(seconds.into()))
}

fn verdict(value: &str) -> Option<Verdict> {
    match value {
        "allowed" | "allowed_warning" => Some(Verdict::Allowed),
        "rejected" => Some(Verdict::Rejected),
        _ => None,
    }
}

/// Seconds since the epoch; a value beyond the year 3000 is no such thing.
fn epoch(value: &str) -> Option<Timestamp> {
    let seconds: i64 = value.parse().ok()?;
    let is_time = (0..32_503_680_000).contains(&seconds);
    Timestamp::from_second(seconds).ok().filter(|_| is_time)
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;
    use pool::Family;

    use super::super::given::{at, headers};
    use super::*;

    fn unified(lines: &[(&str, &str)]) -> Limits {
        let mut headers = HeaderMap::new();
        for (field, value) in lines {
            let name = HeaderName::try_from(format!("{PREFIX}{field}")).unwrap();
            headers.insert(name, value.parse().unwrap());
        }
        Limits::read(&headers, Some("claude-fable-5"))
    }

    fn fable() -> WindowKind {
        WindowKind::Model(Family::new("fable"))
    }

    #[test]
    fn healthy_headers_give_readings_and_no_rejection() {
        let limits = unified(&[
            ("status", "allowed_warning"),
            ("5h-utilization", "0.05"),
            ("5h-reset", "1784607600"),
            ("7d-utilization", "0.14"),
            ("7d-reset", "1785031200"),
            ("7d_oi-utilization", "0.27"),
            ("7d_oi-reset", "1785031200"),
            ("fallback-percentage", "0.5"),
            ("overage-status", "rejected"),
            ("overage-utilization", "0.9"),
        ]);
        let readings: Vec<_> = limits
            .readings(at(1))
            .into_iter()
            .map(|(kind, window)| (kind.to_string(), window.used.basis_points()))
            .collect();
        assert_eq!(
            readings,
            [
                ("5-hour".into(), 500),
                ("weekly".into(), 1_400),
                ("Fable".into(), 2_700)
            ]
        );
        assert!(limits.allowed());
        assert_eq!(limits.rejection(), None);
    }

    #[test]
    fn what_is_rejected_is_told_by_the_window_then_the_claim_then_the_answer() {
        type Row<'a> = (
            &'a str,
            &'a [(&'a str, &'a str)],
            Option<Vec<(WindowKind, Option<i64>)>>,
        );
        let rows: &[Row<'_>] = &[
            (
                "two windows",
                &[
                    ("status", "rejected"),
                    ("5h-status", "rejected"),
                    ("5h-reset", "600"),
                    ("7d-status", "rejected"),
                    ("7d-reset", "200000"),
                ],
                Some(vec![
                    (WindowKind::FiveHour, Some(600)),
                    (WindowKind::Weekly, Some(200_000)),
                ]),
            ),
            (
                "a family alone",
                &[
                    ("status", "rejected"),
                    ("5h-status", "allowed"),
                    ("7d_oi-status", "rejected"),
                    ("7d_oi-reset", "9"),
                ],
                Some(vec![(fable(), Some(9))]),
            ),
            (
                "the claim",
                &[
                    ("status", "rejected"),
                    ("representative-claim", "seven_day"),
                    ("7d-reset", "77"),
                ],
                Some(vec![(WindowKind::Weekly, Some(77))]),
            ),
            (
                "the whole answer",
                &[("status", "rejected"), ("reset", "5")],
                Some(vec![]),
            ),
            ("no limit named", &[("overage-disabled-reason", "out_of_credits")], None),
            (
                "allowed",
                &[("status", "allowed"), ("representative-claim", "five_hour")],
                None,
            ),
        ];
        for (what, lines, want) in rows {
            let got = unified(lines).rejection().map(|rejection| rejection.windows);
            let want = want.as_ref().map(|windows| {
                windows
                    .iter()
                    .map(|(kind, reset)| (kind.clone(), reset.map(at)))
                    .collect::<Vec<_>>()
            });
            assert_eq!(got, want, "{what}");
        }
    }

    #[test]
    fn odd_header_values_are_left_out() {
        let limits = unified(&[
            ("5h-utilization", "NaN"),
            ("5h-reset", "-1"),
            ("7d-utilization", "lots"),
            ("7d-reset", "99999999999999"),
        ]);
        assert_eq!(limits.readings(at(0)), []);
    }

    #[test]
    fn lm_09_the_window_of_the_model_that_was_asked_for_is_its_familys() {
        let of = |model| {
            let headers = headers(&[("anthropic-ratelimit-unified-7d_oi-utilization", "0.5")]);
            Limits::read(&headers, model).readings(at(0)).len()
        };
        assert_eq!(
            (of(Some("claude-saga-6")), of(None)),
            (1, 0),
            "the window of the model that was asked for"
        );
    }
}
