//! Whether a newer release exists: asked once a day, and only if the owner wants it. Homebrew installs it.

use axum::body::Body;
use gateway::ports::{self, Clock as _, SystemClock, UpstreamProxy};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tauri::AppHandle;
use tower::ServiceExt as _;

use crate::facts::Update;
use crate::shell::Shell;

const LATEST: &str = "https://api.github.com/repos/choiyounggi/claude-proxy-router/releases/latest";
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 256 << 10;

/// When it was last asked.
#[derive(Default)]
pub struct Look {
    asked_at: Option<Timestamp>,
}

/// The part of the answer that counts.
#[derive(Deserialize)]
struct Release {
    tag_name: String,
}

impl Look {
    /// Asks, if it is time. What comes of it is told to the shell.
    pub fn look(&mut self, app: &AppHandle, wanted: bool) {
        if !wanted {
            if self.asked_at.take().is_some() {
                Shell::of(app).set_update(None);
            }
            return;
        }
        let now = SystemClock.now();
        if self.asked_at.is_some_and(|at| now.duration_since(at) < DAY) {
            return;
        }
        self.asked_at = Some(now);
        let app = app.clone();
        tauri::async_runtime::spawn(async move {
            match latest(&Shell::of(&app).upstream_proxy()).await {
                Ok(version) => {
                    let newer = is_newer(&version, env!("CARGO_PKG_VERSION"));
                    Shell::of(&app).set_update(newer.then_some(Update { version }));
                    Shell::of(&app).hurry();
                }
                Err(error) => tracing::debug!("the newest release is not known: {error:#}"),
            }
        });
    }
}

async fn latest(proxy: &UpstreamProxy) -> anyhow::Result<String> {
    let calls = ports::own_calls(ports::system_tls()?, proxy)?;
    let request = Request::get(LATEST)
        .header("user-agent", "claude-proxy-router")
        .body(Body::empty())?;
    let answer = calls.oneshot(request).await?;
    anyhow::ensure!(answer.status() == StatusCode::OK, "the answer was {}", answer.status());
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
    let release: Release = serde_json::from_slice(&body)?;
    Ok(release.tag_name.trim_start_matches('v').to_owned())
}

/// Whether `other` is a later version than `ours`; what is no plain version is not.
fn is_newer(other: &str, ours: &str) -> bool {
    let numbers = |version: &str| -> Option<[u64; 3]> {
        let mut parts = version.splitn(3, '.').map(str::parse);
        Some([parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?])
    };
    matches!((numbers(other), numbers(ours)), (Some(other), Some(ours)) if other > ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_plain_version_is_newer() {
        for (other, ours, newer) in [
            ("1.0.1", "1.0.0", true),
            ("1.10.0", "1.9.9", true),
            ("2.0.0", "1.99.0", true),
            ("1.0.0", "1.0.0", false),
            ("0.9.9", "1.0.0", false),
            ("1.1.0-beta.1", "1.0.0", false),
            ("nightly", "1.0.0", false),
            ("", "1.0.0", false),
        ] {
            assert_eq!(is_newer(other, ours), newer, "{other} after {ours}");
        }
    }
}
