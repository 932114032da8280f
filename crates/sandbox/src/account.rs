//! What an account may ask about itself: usage and profile.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::seat::{Meter, Seat};

/// `GET /api/oauth/usage` of a settled seat.
pub(crate) fn usage(seat: &Seat) -> Value {
    let mut limits = vec![
        limit("session", "session", &seat.five_hour, &Value::Null),
        limit("weekly_all", "weekly", &seat.weekly, &Value::Null),
    ];
    if let Some(fable) = &seat.fable {
        let scope = json!({"model": {"id": null, "display_name": "Fable"}, "surface": null});
        limits.push(limit("weekly_scoped", "weekly", fable, &scope));
    }
    json!({
        "five_hour": window(&seat.five_hour),
        "seven_day": window(&seat.weekly),
        "seven_day_oauth_apps": null,
        "seven_day_opus": null,
        "seven_day_sonnet": null,
        "extra_usage": {
            "is_enabled": false,
            "monthly_limit": null,
            "used_credits": null,
            "utilization": null,
        },
        "limits": limits,
    })
}

fn window(meter: &Meter) -> Value {
    json!({"utilization": percent(meter), "resets_at": resets_at(meter)})
}

fn limit(kind: &str, group: &str, meter: &Meter, scope: &Value) -> Value {
    let severity = if meter.used >= 0.8 { "warning" } else { "normal" };
    json!({
        "kind": kind,
        "group": group,
        "percent": percent(meter),
        "severity": severity,
        "resets_at": resets_at(meter),
        "scope": scope,
        "is_active": meter.used > 0.0,
    })
}

/// Of a hundred, with two decimals.
fn percent(meter: &Meter) -> f64 {
    (meter.used * 10_000.0).round() / 100.0
}

fn resets_at(meter: &Meter) -> Option<String> {
    let at = Timestamp::from_second(meter.resets_at_s?).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%S.000000+00:00").to_string())
}

/// `GET /api/oauth/profile`.
pub(crate) fn profile(seat: &Seat) -> Value {
    json!({
        "account": {
            "uuid": seat.account_uuid,
            "full_name": seat.name,
            "display_name": seat.name,
            "email": seat.email,
            "has_claude_max": seat.plan == "max",
            "has_claude_pro": seat.plan == "pro",
            "created_at": "2025-01-01T00:00:00Z",
        },
        "organization": {
            "uuid": seat.organization_uuid,
            "name": seat.organization_name,
            "organization_type": format!("claude_{}", seat.plan),
            "billing_type": "stripe_subscription",
            "rate_limit_tier": format!("default_claude_{}_5x", seat.plan),
            "has_extra_usage_enabled": false,
            "subscription_status": "active",
        },
        "application": {
            "uuid": "00000000-0000-4000-8000-00000000000c",
            "name": "Claude Code",
            "slug": "claude-code",
        },
    })
}
