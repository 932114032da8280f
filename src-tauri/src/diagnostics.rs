//! What is copied for a report: how the router does, without a name, an address of a person or a key.

use std::fmt::Write as _;

use gateway::snapshot::{SeatView, Snapshot};

use crate::facts::{Facts, RouterState};

/// The app and the router in plain lines.
pub fn text(facts: &Facts, snapshot: &Snapshot) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Claude Proxy Router {} on {}, {}",
        facts.version,
        facts.platform,
        std::env::consts::ARCH
    );
    let router = match &facts.router {
        RouterState::Starting => "starting".to_owned(),
        RouterState::Running => "running".to_owned(),
        RouterState::HeldByService { .. } => "runs as a service".to_owned(),
        // Its words may name a folder, and with it a person.
        RouterState::Failed { code, port, .. } => format!("{code:?}, port {port:?}"),
    };
    let _ = writeln!(text, "router: {router}");
    let _ = writeln!(text, "listening: {}", snapshot.listening.join(", "));
    let _ = writeln!(
        text,
        "routing: {}, paused: {}",
        snapshot.routing.strategy, snapshot.routing.paused
    );
    let _ = writeln!(text, "crashed last time: {}", facts.crash.is_some());
    for (index, seat) in snapshot.seats.iter().enumerate() {
        let _ = writeln!(text, "seat {}: {}", index + 1, seat_line(seat, snapshot.now));
    }
    let _ = writeln!(
        text,
        "devices: {}",
        snapshot.devices.iter().filter(|device| !device.revoked).count()
    );
    for problem in &snapshot.problems {
        let _ = writeln!(text, "problem: {:?}", problem.kind);
    }
    text
}

fn seat_line(seat: &SeatView, now: i64) -> String {
    let windows = seat.windows.iter().map(|window| {
        let name = window.family.as_deref().unwrap_or(&window.kind);
        format!("{name} {} bp, read {} s ago", window.used, now - window.observed_at)
    });
    let windows: Vec<String> = windows.collect();
    format!(
        "{}, {:?}, login {:?}, {} running; {}",
        seat.plan.as_deref().unwrap_or("no plan"),
        seat.state,
        seat.login,
        seat.in_flight,
        windows.join("; ")
    )
}
