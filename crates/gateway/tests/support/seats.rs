//! Seats whose tokens and use a test can name, and their logins.

use std::path::Path;

use sandbox::Seat;
use serde_json::json;

use super::clock::T;

/// A seat with tokens `tok-NAME` and `rt-NAME` in an organisation named NAME, that much of its five hours and its
/// week used.
pub fn seat(name: &str, five_hour: f64, weekly: f64) -> Seat {
    let seat = Seat::new(name);
    let organization = seat.organization_uuid.clone();
    seat.organization(&organization, name)
        .tokens(&format!("tok-{name}"), &format!("rt-{name}"))
        .expires_at_ms((T + 8 * 3_600) * 1_000)
        .five_hour(five_hour, T + 3_600)
        .weekly(weekly, T + 300_000)
}

/// The same seat with an allowance for Fable of its own, that much of it used.
pub fn with_fable(seat: Seat, used: f64) -> Seat {
    let mut seat = seat.with_fable();
    let fable = seat.fable.as_mut().unwrap();
    (fable.used, fable.resets_at_s) = (used, Some(T + 300_000));
    seat
}

/// Writes `seat`'s login into `dir`, as an earlier Claude Code did: it does not say itself whose it is.
pub fn write_login(dir: &Path, seat: &Seat) {
    std::fs::create_dir_all(dir).unwrap();
    let login = json!({"claudeAiOauth": {
        "accessToken": seat.access_token,
        "refreshToken": seat.refresh_token,
        "expiresAt": seat.expires_at_ms,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": seat.plan,
    }});
    std::fs::write(dir.join(".credentials.json"), login.to_string()).unwrap();
    std::fs::write(dir.join(".claude.json"), seat.identity().to_string()).unwrap();
}

/// Settings under which no Claude Code is found.
pub fn no_claude() -> serde_json::Value {
    json!({"claudePath": "/nonexistent/claude"})
}
