//! `ping URL KEY`: checks a router step by step, and names the step that failed.

use std::time::Duration;

use anyhow::{Context as _, bail};
use gateway::ports;
use http_body_util::BodyExt as _;
use hyper::{Request, StatusCode, Uri};

/// A router that answered and knows the key.
pub(crate) struct Pinged {
    pub(crate) url: String,
}

/// How long each step may take.
const STEP: Duration = Duration::from_secs(10);

/// Checks the router at `url` with `key`.
pub(crate) fn ping(url: &str, key: &str) -> anyhow::Result<Pinged> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check(url, key))
}

async fn check(url: &str, key: &str) -> anyhow::Result<Pinged> {
    let uri: Uri = url
        .parse()
        .ok()
        .filter(|uri: &Uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")))
        .with_context(|| format!("`{url}` is no address; it looks like `http://100.64.0.1:18787`"))?;
    let secure = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });

    let found = tokio::time::timeout(STEP, tokio::net::lookup_host((host, port))).await;
    let Ok(Ok(_)) = found else {
        bail!("name: `{host}` is not known here; is Tailscale running on both machines, and the name right?");
    };
    let tls = if secure { ports::system_tls()? } else { ports::no_tls() };
    let request = Request::get(format!("{}/_router/ping", url.trim_end_matches('/')))
        .header("x-router-key", key)
        .body(Default::default())
        .context("key: it holds characters that no key has")?;
    let calls = ports::own_calls(tls)?;
    let answer = match tokio::time::timeout(STEP, tower::ServiceExt::oneshot(calls, request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(ports::UpstreamError::Broken(_) | ports::UpstreamError::Stale(_))) => {
            bail!("service: something listens at {url}, but it does not speak HTTP")
        }
        Ok(Err(ports::UpstreamError::Connect(_))) | Err(_) => {
            bail!(
                "connect: nothing answers at {host}:{port}; is the router running there, listening on that address, and let through by the firewall?"
            );
        }
    };
    let ours = answer.headers().contains_key("x-claude-proxy-router-error");
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if ours => {
            bail!(
                "key: the router at {url} does not know this key; `claude-proxy-router key` on its machine shows the right one"
            );
        }
        status => bail!("service: what answers at {url} is not a Claude Proxy Router (it said {status})"),
    }
    let body = answer.into_body().collect().await?.to_bytes();
    if !body.starts_with(b"ok, and the key is good") {
        bail!("service: what answers at {url} is not a Claude Proxy Router");
    }
    Ok(Pinged { url: url.to_owned() })
}
