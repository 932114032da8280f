//! What is said of a request: its line in the log, what an answer means for the owner, and why nobody serves it.

use http::StatusCode;
use http::request::Parts;
use pool::{AccountId, Outcome, Refusal};

use crate::error::ProxyError;
use crate::gate::Route;

/// Logs that a device's body is longer than what is forwarded.
pub(super) fn too_long(device: &str, path: &str) {
    tracing::warn!(device, "{path}: 413, longer than 32 MB; it was not sent");
}

/// Logs an answer's head: who gave it, and why that seat.
pub(super) fn answered(
    device: &str,
    head: &Parts,
    route: &Route,
    model: Option<&str>,
    status: StatusCode,
    seat: &str,
    reason: &str,
) {
    // The query is left out: somebody might put a key there.
    let (path, model) = (head.uri.path(), model.unwrap_or("-"));
    let line = format!(
        "{} {path} {model}: {} from `{seat}` ({reason})",
        head.method,
        status.as_u16()
    );
    match status.as_u16() {
        // Side calls come in bursts, and say nothing that a person would look for.
        ..400 if *route != Route::Messages => tracing::debug!(device = %device, "{line}"),
        ..400 => tracing::info!(device = %device, "{line}"),
        _ => tracing::warn!(device = %device, "{line}"),
    }
}

/// Logs what an answer means, where somebody may want to do something about it.
pub(super) fn meant(label: &str, account: &AccountId, outcome: &Outcome) {
    match outcome {
        Outcome::Limited(rejection) => {
            let limits: Vec<String> = rejection.windows.iter().map(|(kind, _)| kind.to_string()).collect();
            let limits = limits.join(" and ");
            tracing::info!(account.id = %account, "`{label}` has reached its {limits} limit; the request moves on");
        }
        Outcome::Beyond(_) => {
            tracing::info!(account.id = %account, "`{label}` would go beyond its plan; the request moves on");
        }
        Outcome::NotAllowed => {
            tracing::warn!(account.id = %account, "`{label}`: its organisation does not allow this; the request moves on");
        }
        Outcome::Unpaid => {
            tracing::warn!(account.id = %account, "`{label}` wants to be paid for; the request moves on");
        }
        Outcome::WrongPlace => tracing::warn!(
            "Anthropic does not serve requests from this place or network; look at the machine's network, region or VPN"
        ),
        Outcome::Challenged => tracing::warn!(
            "the network in front of Anthropic wants to see a person; look at the machine's network or VPN"
        ),
        _ => {}
    }
}

/// Why nobody serves a request, with the seats called as `label` says.
pub(super) fn refusal(refusal: Refusal, label: impl Fn(&AccountId) -> String) -> ProxyError {
    let labels = |seats: &[AccountId]| seats.iter().map(&label).collect();
    match refusal {
        Refusal::Cooling { until, window, seats } => ProxyError::AllFull { until, window, seats },
        Refusal::NoSeat => ProxyError::NoSeat,
        Refusal::Paused => ProxyError::Paused,
        Refusal::NeedLogin(seats) => ProxyError::NeedLogin { seats: labels(&seats) },
        Refusal::LoginDelayed { until } => ProxyError::LoginDelayed { until },
        Refusal::LoginsRefused { seats, until } => ProxyError::LoginsRefused {
            seats: labels(&seats),
            until,
        },
        Refusal::Renewing => ProxyError::Renewing,
        Refusal::NotAllowed(seats) => ProxyError::NotAllowed { seats: labels(&seats) },
        Refusal::Returning | Refusal::Exhausted => ProxyError::Exhausted,
    }
}

/// An error with what caused it, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        line = format!("{line}: {next}");
        cause = next.source();
    }
    line
}
