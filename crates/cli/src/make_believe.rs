//! The sandbox: a pretended Anthropic on loopback, and made-up logins in a folder that goes with the process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use gateway::config::Config;
use gateway::holder;
use gateway::paths::Paths;
use gateway::ports::{Clock as _, SystemClock};
use sandbox::Identity;
use tokio::net::TcpListener;

/// The key of the sandbox's router.
pub(crate) const SANDBOX_KEY: &str = sandbox::MadeUp::KEY;

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
    /// Write a login for each of its seats into this folder.
    #[arg(long, value_name = "FOLDER")]
    logins: Option<PathBuf>,
}

/// Runs the pretended Anthropic until it is ended.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let sandbox = sandbox::demo(Arc::new(now_ms));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
        let address = listener.local_addr()?;
        if let Some(folder) = &options.logins {
            sandbox::write_logins(&sandbox, folder)?;
        }
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

/// Three made-up seats, and where the router over them keeps its things.
pub(crate) struct MadeUp {
    seats: sandbox::MadeUp,
    paths: Paths,
}

impl MadeUp {
    /// Starts the pretended Anthropic on a free port of loopback, and writes the logins.
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let seats = sandbox::MadeUp::start(Arc::new(now_ms)).await?;
        let paths = Paths::new(seats.home(), Some(seats.home().join("config.json")), |_| None);
        Ok(Self { seats, paths })
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Where the pretended Anthropic listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.seats.address()
    }

    /// The settings, on `port`, or the usual one if it is free, or another.
    pub(crate) fn config(&self, port: Option<u16>) -> anyhow::Result<Config> {
        let port = match port {
            Some(port) => port,
            None => holder::usual_port()?,
        };
        // Saved, so that the other commands find this router by its settings.
        gateway::file::save(&self.paths.config, self.seats.settings(port).to_string().as_bytes())?;
        Ok(Config::load(&self.paths.config)?)
    }
}
