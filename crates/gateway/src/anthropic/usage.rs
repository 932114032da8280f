//! The usage answer: how full each of a seat's windows is, asked for apart from any request.

use jiff::Timestamp;
use pool::{Utilization, Window, WindowKind};
use serde_json::Value;

use super::windows::{claimed, family_of};

/// Where a seat's usage is asked for.
pub const USAGE_PATH: &str = "/api/oauth/usage";

#[derive(Debug, thiserror::Error)]
#[error("the usage answer is not of the form we know")]
pub struct UsageUnreadable(#[source] serde_json::Error);

/// The windows of a usage answer, as seen at `now`. A window that is absent, null or odd is left out and spoils
/// no other.
///
/// # Errors
/// If it is not a JSON object.
pub fn parse_usage(body: &[u8], now: Timestamp) -> Result<Vec<(WindowKind, Window)>, UsageUnreadable> {
    let answer: serde_json::Map<String, Value> = serde_json::from_slice(body).map_err(UsageUnreadable)?;
    let mut windows = Vec::new();
    for (key, value) in &answer {
        let kind = match key.as_str() {
            // Others of that form are about surfaces, not models; a model's own window stands in the list below.
            "five_hour" | "seven_day" | "seven_day_opus" | "seven_day_sonnet" => claimed(key, None),
            _ => None,
        };
        windows.extend(kind.zip(usage_window(value, "utilization", now)));
    }
    let limits = answer.get("limits").and_then(Value::as_array);
    for limit in limits.into_iter().flatten() {
        windows.extend(limit_kind(limit).zip(usage_window(limit, "percent", now)));
    }
    Ok(windows)
}

/// The window that an entry of `limits[]` is about. It is told by its kind; a scope that is not a model's is not ours.
fn limit_kind(limit: &Value) -> Option<WindowKind> {
    match limit.get("kind")?.as_str()? {
        "session" => Some(WindowKind::FiveHour),
        "weekly_all" => Some(WindowKind::Weekly),
        "weekly_scoped" => family_of(limit.pointer("/scope/model/display_name")?.as_str()?),
        _ => None,
    }
}

fn usage_window(value: &Value, share: &str, now: Timestamp) -> Option<Window> {
    Some(Window {
        used: Utilization::from_percent(value.get(share)?.as_f64()?)?,
        resets_at: match value.get("resets_at") {
            None | Some(Value::Null) => None,
            Some(reset) => Some(reset.as_str()?.parse().ok()?),
        },
        observed_at: now,
    })
}

#[cfg(test)]
mod tests {
    use super::super::given::at;
    use super::*;

    #[test]
    fn lm_08_null_and_absent_windows_spoil_no_others() {
        let read = |body: &str| {
            let windows = parse_usage(body.as_bytes(), at(0)).unwrap();
            windows
                .into_iter()
                .map(|(kind, window)| (kind.to_string(), window.used.basis_points(), window.resets_at.is_some()))
                .collect::<Vec<_>>()
        };
        let body = r#"{"five_hour":{"utilization":0,"resets_at":null},"seven_day":{"utilization":12.0,"resets_at":"2026-12-03T07:00:00.528743+00:00"},"seven_day_opus":null}"#;
        assert_eq!(
            read(body),
            [("5-hour".into(), 0, false), ("weekly".into(), 1_200, true)]
        );
        assert_eq!(
            read(r#"{"five_hour":null,"seven_day":{"utilization":1,"resets_at":null}}"#),
            [("weekly".into(), 100, false)]
        );
        assert_eq!(
            read(r#"{"five_hour":{"utilization":"x"},"seven_day":{"utilization":1}}"#),
            [("weekly".into(), 100, false)]
        );
        assert_eq!(read(r#"{"five_hour":{"utilization":5,"resets_at":"soon"}}"#), []);
        assert_eq!(read("{}"), []);
        assert!(parse_usage(b"<html>", at(0)).is_err());
    }

    #[test]
    fn lm_09_a_models_weekly_limit_is_read_from_the_limits_list() {
        let body = r#"{"seven_day_opus":null,"limits":[
            {"kind":"session","percent":10,"resets_at":null,"scope":null},
            {"kind":"weekly_all","percent":38,"resets_at":"2026-08-04T14:00:00Z","scope":null},
            {"kind":"weekly_scoped","percent":100,"resets_at":"2026-08-04T14:00:00Z","scope":{"model":{"id":null,"display_name":"Fable"},"surface":null}},
            {"kind":"weekly_scoped","percent":12,"resets_at":null,"scope":{"model":null,"surface":"cowork"}},
            {"kind":"monthly_mystery","percent":99,"resets_at":null}]}"#;
        let windows = parse_usage(body.as_bytes(), at(0)).unwrap();
        let kinds: Vec<_> = windows
            .iter()
            .map(|(kind, window)| (kind.to_string(), window.used.shown_percent()))
            .collect();
        assert_eq!(
            kinds,
            [("5-hour".into(), 10), ("weekly".into(), 38), ("Fable".into(), 100)]
        );
    }
}
