//! `ping URL KEY`: checks a router step by step, and names the step that failed.

use std::time::Duration;

use gateway::ping::{self, PingError};

/// How long each step may take.
const STEP: Duration = Duration::from_secs(10);

/// Checks the router at `url` with `key`.
pub(crate) fn ping(url: &str, key: &str) -> anyhow::Result<()> {
    Ok(within(url, key, STEP)??)
}

/// The same, with that long for each step.
pub(crate) fn within(url: &str, key: &str, limit: Duration) -> anyhow::Result<Result<(), PingError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(ping::ping(url, key, limit)))
}
