//! The sandbox: a pretended Anthropic on loopback, and made-up logins in a folder that goes with the process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use gateway::config::{Config, PORT};
use gateway::paths::Paths;
use gateway::ports::{Clock as _, SystemClock};
use sandbox::{Identity, Sandbox, Seat};
use serde_json::json;
use tokio::net::TcpListener;

/// The key of the sandbox's router. It opens nothing real.
pub(crate) const SANDBOX_KEY: &str = "sandbox-key";

/// How to run the pretended Anthropic alone.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The port on loopback; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Speak TLS, with a certificate made now.
    #[arg(long)]
    tls: bool,
    /// Where to write that certificate (PEM), for those who are to trust it.
    #[arg(long, value_name = "FILE", requires = "tls")]
    cert_out: Option<PathBuf>,
    /// Names that the certificate is for.
    #[arg(long, value_name = "NAME", requires = "tls", default_values = ["localhost", "127.0.0.1"])]
    host: Vec<String>,
}

/// Runs the pretended Anthropic until it is ended.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let sandbox = sandbox::demo(Arc::new(now_ms));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
        let address = listener.local_addr()?;
        if options.tls {
            let hosts: Vec<&str> = options.host.iter().map(String::as_str).collect();
            let identity = Identity::generate(&hosts);
            if let Some(file) = &options.cert_out {
                fs::write(file, identity.certificate_pem())
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            crate::show::line(&format!("The sandbox pretends to be Anthropic at https://{address}"));
            sandbox::serve_tls(listener, sandbox, identity).await;
        } else {
            crate::show::line(&format!("The sandbox pretends to be Anthropic at http://{address}"));
            sandbox::serve(listener, sandbox).await;
        }
        Ok(())
    })
}

fn now_ms() -> i64 {
    SystemClock.now().as_millisecond()
}

/// Three made-up seats, with their logins in a temporary home.
pub(crate) struct MadeUp {
    /// Goes with its folder.
    _home: tempfile::TempDir,
    paths: Paths,
    dirs: Vec<PathBuf>,
    address: SocketAddr,
}

impl MadeUp {
    /// Starts the pretended Anthropic on a free port of loopback, and writes the logins.
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let sandbox = sandbox::demo(Arc::new(now_ms));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let home = tempfile::Builder::new().prefix("claude-proxy-router-").tempdir()?;
        let dirs = write_logins(&sandbox, &home)?;
        tokio::spawn(sandbox::serve(listener, sandbox));
        let paths = Paths::new(home.path(), Some(home.path().join("config.json")), |_| None);
        Ok(Self {
            _home: home,
            paths,
            dirs,
            address,
        })
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Where the pretended Anthropic listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The settings, on `port`, or the usual one if it is free, or another.
    pub(crate) fn config(&self, port: Option<u16>) -> anyhow::Result<Config> {
        let port = match port {
            Some(port) => port,
            None => free_port()?,
        };
        let settings = json!({
            "port": port,
            "routerKey": SANDBOX_KEY,
            "upstream": format!("http://{}", self.address),
            "tokenUrl": format!("http://{}/v1/oauth/token", self.address),
            "includeDefaultAccount": false,
            "configDirs": self.dirs,
        });
        // Saved, so that the other commands find this router by its settings.
        gateway::config::save(&self.paths.config, settings.to_string().as_bytes())?;
        Ok(Config::load(&self.paths.config)?)
    }
}

fn write_logins(sandbox: &Sandbox, home: &tempfile::TempDir) -> anyhow::Result<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for seat in sandbox.seats() {
        let dir = home.path().join(&seat.name);
        fs::create_dir(&dir)?;
        fs::write(dir.join(".credentials.json"), login(&seat).to_string())?;
        fs::write(dir.join(".claude.json"), identity(&seat).to_string())?;
        dirs.push(dir);
    }
    Ok(dirs)
}

fn login(seat: &Seat) -> serde_json::Value {
    json!({"claudeAiOauth": {
        "accessToken": seat.access_token,
        "refreshToken": seat.refresh_token,
        "expiresAt": seat.expires_at_ms,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": seat.plan,
        "accountUuid": seat.account_uuid,
        "organizationUuid": seat.organization_uuid,
    }})
}

fn identity(seat: &Seat) -> serde_json::Value {
    json!({"oauthAccount": {
        "accountUuid": seat.account_uuid,
        "organizationUuid": seat.organization_uuid,
        "emailAddress": seat.email,
        "organizationName": seat.name,
    }})
}

/// The usual port if nobody listens on it, else a free one.
fn free_port() -> anyhow::Result<u16> {
    let usual = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, PORT));
    let listener = usual.or_else(|_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(listener.local_addr()?.port())
}
