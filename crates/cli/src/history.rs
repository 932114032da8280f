//! The history as a terminal has it: requests, switches, and why.

use comfy_table::{ContentArrangement, Table, presets};
use gateway::error;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// What a table shows where nothing is known.
const NOTHING: &str = "–";

/// The requests, the newest first.
pub(crate) fn requests(requests: &Value) -> String {
    let head = [
        "REQUEST",
        "TIME",
        "DEVICE",
        "MODEL",
        "SEAT",
        "STATUS",
        "TOKENS",
        "TIME TAKEN",
        "WHY",
    ];
    let rows = requests.as_array().into_iter().flatten().map(|request| {
        let tried = request["retries"].as_u64().unwrap_or(0);
        let why = match tried {
            0 => text(&request["reason"]),
            tried => format!("{}, attempt {}", text(&request["reason"]), tried + 1),
        };
        [
            text(&request["number"]),
            moment(&request["at"]),
            text(&request["device"]),
            text(&request["model"]),
            text(&request["seat"]),
            status(request),
            tokens(&request["tokens"]),
            seconds(&request["wholeMs"]),
            why,
        ]
    });
    table(head, rows)
}

/// The switches, the newest first.
pub(crate) fn switches(switches: &Value) -> String {
    let head = ["TIME", "FROM", "TO", "CAUSE", "WHY", "REQUEST"];
    let rows = switches.as_array().into_iter().flatten().map(|switch| {
        [
            moment(&switch["at"]),
            text(&switch["from"]),
            text(&switch["to"]),
            text(&switch["cause"]),
            text(&switch["words"]),
            text(&switch["request"]),
        ]
    });
    table(head, rows)
}

/// Why a request went where it went, step by step.
pub(crate) fn why(request: &Value) -> String {
    let mut lines = Vec::new();
    let ago = SignedDuration::from_secs(request["secondsAgo"].as_i64().unwrap_or(0));
    lines.push(format!(
        "Request {} of {}, {} ago: {} {}",
        text(&request["number"]),
        text(&request["device"]),
        error::span(ago),
        text(&request["path"]),
        text(&request["model"]),
    ));
    for switch in request["switches"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  its conversation went from `{}` to `{}`: {}",
            text(&switch["from"]),
            text(&switch["to"]),
            text(&switch["words"]),
        ));
    }
    for attempt in request["attempts"].as_array().into_iter().flatten() {
        lines.push(format!(
            "  `{}` ({}): {}",
            text(&attempt["seat"]),
            text(&attempt["reason"]),
            text(&attempt["cameOfIt"]),
        ));
    }
    let answered = match request["seat"].as_str() {
        Some(seat) => format!("  `{seat}` ({}): {}", text(&request["reason"]), status(request)),
        None => format!("  no seat ({}): {}", text(&request["reason"]), status(request)),
    };
    lines.push(format!(
        "{answered}, head after {}, end after {}",
        seconds(&request["headMs"]),
        seconds(&request["wholeMs"])
    ));
    lines.push(format!("  tokens: {}", tokens(&request["tokens"])));
    lines.push("Now it would find".to_owned());
    for seat in request["now"].as_array().into_iter().flatten() {
        lines.push(format!("  `{}`: {}", text(&seat["seat"]), text(&seat["words"])));
    }
    lines.join("\n")
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => NOTHING.into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A date and a time of day.
fn moment(seconds: &Value) -> String {
    let Some(at) = seconds.as_i64().and_then(|at| Timestamp::from_second(at).ok()) else {
        return NOTHING.into();
    };
    TimeZone::system()
        .to_datetime(at)
        .strftime("%Y-%m-%d %H:%M:%S")
        .to_string()
}

fn seconds(ms: &Value) -> String {
    let ms = ms.as_u64().unwrap_or(0);
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}

fn status(request: &Value) -> String {
    let status = text(&request["status"]);
    match request["end"].as_str() {
        Some("broken") => format!("{status}, broke off"),
        Some("left") => format!("{status}, client left"),
        _ => status,
    }
}

fn tokens(tokens: &Value) -> String {
    if tokens.is_null() {
        return NOTHING.into();
    }
    let figure = |name: &str| tokens[name].as_u64().unwrap_or(0);
    format!(
        "{} in, {} out, {} from the cache, {} into it",
        figure("input"),
        figure("output"),
        figure("cacheRead"),
        figure("cacheWrite")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_that_was_tried_elsewhere_tells_its_way() {
        let request = json!({
            "number": 7, "at": 0, "secondsAgo": 60, "device": "laptop", "path": "/v1/messages", "model": "claude-opus-5-5",
            "seat": "personal", "status": 200, "reason": "took over", "end": "whole", "headMs": 1_234, "wholeMs": 5_000,
            "tokens": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4},
            "switches": [{"from": "work", "to": "personal", "words": "5-hour limit reached"}],
            "attempts": [{"seat": "work", "reason": "same conversation", "status": 429, "cameOfIt": "429, 5-hour limit"}],
            "now": [{"seat": "personal", "words": "can serve"}],
        });
        let want = "Request 7 of laptop, 1 min ago: /v1/messages claude-opus-5-5
  its conversation went from `work` to `personal`: 5-hour limit reached
  `work` (same conversation): 429, 5-hour limit
  `personal` (took over): 200, head after 1.234 s, end after 5.000 s
  tokens: 1 in, 2 out, 3 from the cache, 4 into it
Now it would find
  `personal`: can serve";
        assert_eq!(why(&request), want);
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let shown =
            requests(&json!([{"number": 1, "status": 429, "reason": "all_full", "end": "whole", "wholeMs": 3}]));
        let row = shown.lines().nth(1).unwrap();
        assert!(
            row.contains("429") && row.contains("0.003 s") && row.matches(NOTHING).count() >= 4,
            "{row}"
        );
    }
}
