//! A whole made-up machine: the demonstration's seats behind a port, and their logins in a folder that goes with it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Now, demo, serve_here, write_logins};

/// The demonstration's seats, running, and logged in to in a temporary home.
pub struct MadeUp {
    home: TempDir,
    dirs: Vec<PathBuf>,
    address: SocketAddr,
}

impl MadeUp {
    /// The key of a router over it. It opens nothing real.
    pub const KEY: &str = "sandbox-key";

    /// Starts the pretended Anthropic on a free port of loopback, on the runtime it is called in, and writes the logins.
    ///
    /// # Errors
    /// If there is no port, or no room on the disk.
    pub async fn start(now: Now) -> io::Result<Self> {
        let sandbox = demo(now);
        let home = tempfile::Builder::new().prefix("claude-proxy-router-").tempdir()?;
        let dirs = write_logins(&sandbox, home.path())?;
        let address = serve_here(sandbox).await?;
        Ok(Self { home, dirs, address })
    }

    /// The home, gone once this is dropped.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where the pretended Anthropic listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The settings of a router over it, on `port`.
    pub fn settings(&self, port: u16) -> Value {
        json!({
            "port": port,
            "routerKey": Self::KEY,
            "upstream": format!("http://{}", self.address),
            "tokenUrl": format!("http://{}/v1/oauth/token", self.address),
            "includeDefaultAccount": false,
            "configDirs": self.dirs,
        })
    }
}
