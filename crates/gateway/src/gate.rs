//! What may pass: the method, the path, the host, the key. Pure, and decided before a byte of the body is read.
//!
//! A device key opens inference, and nothing of the owner's account. The path is taken as it came; whatever could be
//! read in two ways is refused.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{Method, Uri};

use crate::devices::{Device, Devices};
use crate::error::ProxyError;

/// Our own header for the key.
pub const ROUTER_KEY: HeaderName = HeaderName::from_static("x-router-key");
/// The header of API keys.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a path is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Whether somebody is there; it is answered here.
    Hello,
    /// A conversation's turn.
    Messages,
    /// The counting of its tokens.
    CountTokens,
    /// The upload of a file.
    NewFile,
    /// The creation of a batch.
    NewBatch,
    /// Something that lives in one account, by its id.
    Owned(String),
    /// Anything else that is forwarded.
    Other,
}

/// The part of `/v1/` that is about the owner's account.
const OF_THE_ACCOUNT: [&str; 7] = [
    "oauth",
    "organizations",
    "mcp_servers",
    "privacy-consents",
    "sessions",
    "code",
    "environments",
];

/// What `method` on `uri` is for.
///
/// # Errors
/// If it is not forwarded.
pub fn route(method: &Method, uri: &Uri) -> Result<Route, ProxyError> {
    if !matches!(
        *method,
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    ) {
        return Err(ProxyError::Method);
    }
    let path = uri.path();
    if uri.scheme().is_some() || uri.authority().is_some() || is_ambiguous(path) {
        return Err(ProxyError::NotForDevices);
    }
    let reads = *method == Method::GET || *method == Method::HEAD;
    let steps: Vec<&str> = path.split('/').skip(1).collect();
    match steps.as_slice() {
        ["api", "hello"] | [""] if reads => Ok(Route::Hello),
        ["api", "event_logging", ..] => Ok(Route::Other),
        ["v1", first, ..] if OF_THE_ACCOUNT.contains(&first.to_ascii_lowercase().as_str()) => {
            Err(ProxyError::NotForDevices)
        }
        ["v1", "messages"] => Ok(Route::Messages),
        ["v1", "messages", "count_tokens"] => Ok(Route::CountTokens),
        ["v1", "messages", "batches"] if *method == Method::POST => Ok(Route::NewBatch),
        ["v1", "messages", "batches", id, ..] | ["v1", "files", id, ..] => Ok(Route::Owned((*id).to_owned())),
        ["v1", "files"] if *method == Method::POST => Ok(Route::NewFile),
        ["v1", _, ..] => Ok(Route::Other),
        _ => Err(ProxyError::NotForDevices),
    }
}

/// Whether two readers could take the path for two different ones.
fn is_ambiguous(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let escaped = ["%2e", "%2f", "%5c"].iter().any(|escape| lower.contains(escape));
    let odd = path
        .bytes()
        .any(|byte| byte == b'\\' || byte == b';' || byte.is_ascii_control());
    let climbs = path.split('/').any(|step| step == "." || step == "..");
    let masked = path.split('/').skip(1).take(2).any(|step| step.contains('%'));
    escaped || odd || climbs || masked || path.contains("//") || !path.starts_with('/')
}

/// The device that sends a request with these headers.
///
/// Every key that is shown must be the same device's. An `sk-ant-…` value is not a router key: a device that keeps its
/// own login sends it along, and it is replaced, never compared.
///
/// # Errors
/// If there is no key, a wrong one, or two that differ.
pub fn device(headers: &HeaderMap, devices: &Devices) -> Result<Arc<Device>, ProxyError> {
    let bearer = |value: &'_ http::HeaderValue| -> Option<Vec<u8>> {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.to_vec())
    };
    let bearers: Vec<Vec<u8>> = headers
        .get_all(header::AUTHORIZATION)
        .iter()
        .filter_map(bearer)
        .collect();
    let login_mode = bearers.iter().any(|key| key.starts_with(b"sk-ant-oat"));
    let own = headers
        .get_all(ROUTER_KEY)
        .iter()
        .map(|value| value.as_bytes().to_vec());
    let others = headers
        .get_all(API_KEY)
        .iter()
        .map(|value| value.as_bytes().to_vec())
        .chain(bearers);
    let shown: Vec<Vec<u8>> = own.chain(others.filter(|key| !key.starts_with(b"sk-ant-"))).collect();
    let wrong = ProxyError::WrongKey { login_mode };
    let mut holders = shown.iter().map(|key| devices.with_key(key));
    match holders.next() {
        Some(Some(first)) if holders.all(|other| other.is_some_and(|other| Arc::ptr_eq(&other, &first))) => Ok(first),
        _ => Err(wrong),
    }
}

/// The names by which this router may be addressed without a key.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeSet<String>);

impl Names {
    /// The names of this machine.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Whether `headers` address this router: by an IP address, as `localhost`, or by a name of this machine. A web
    /// page that rebinds its own name to a loopback address does not.
    pub fn include(&self, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(header::HOST) else {
            return true;
        };
        let Ok(host) = host.to_str() else { return false };
        let host = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        host.parse::<IpAddr>().is_ok() || host == "localhost" || self.0.contains(&host)
    }
}

/// Refuses web pages, whatever they ask and whatever key they show: a browser sends `Origin`, Claude Code does not.
///
/// # Errors
/// If a web page asks.
pub fn no_web_page(headers: &HeaderMap) -> Result<(), ProxyError> {
    match headers.contains_key(header::ORIGIN) {
        true => Err(ProxyError::FromWebPage),
        false => Ok(()),
    }
}

/// The device and what it asks for.
///
/// # Errors
/// If it may not pass.
pub fn admit(head: &Parts, devices: &Devices, names: &Names) -> Result<(Arc<Device>, Route), ProxyError> {
    no_web_page(&head.headers)?;
    if head.headers.contains_key(header::TRANSFER_ENCODING) && head.headers.contains_key(header::CONTENT_LENGTH) {
        return Err(ProxyError::Framing);
    }
    let route = route(&head.method, &head.uri)?;
    let device = device(&head.headers, devices).map_err(|wrong| match names.include(&head.headers) {
        true => wrong,
        false => ProxyError::ForeignHost,
    })?;
    Ok((device, route))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    fn asked(method: &str, target: &str) -> Result<Route, ProxyError> {
        route(
            &Method::from_bytes(method.as_bytes()).unwrap(),
            &target.parse().unwrap(),
        )
    }

    #[test]
    fn rt_10_what_is_forwarded_and_what_is_the_owners_alone() {
        for (method, target, want) in [
            ("HEAD", "/api/hello", Ok(Route::Hello)),
            ("HEAD", "/", Ok(Route::Hello)),
            ("POST", "/v1/messages?beta=true", Ok(Route::Messages)),
            ("POST", "/v1/messages/count_tokens?beta=true", Ok(Route::CountTokens)),
            ("GET", "/v1/models?limit=1000", Ok(Route::Other)),
            ("GET", "/v1/some-new-thing", Ok(Route::Other)),
            ("POST", "/api/event_logging/v2/batch", Ok(Route::Other)),
            ("POST", "/v1/files", Ok(Route::NewFile)),
            ("GET", "/v1/files", Ok(Route::Other)),
            ("GET", "/v1/files/file_1/content", Ok(Route::Owned("file_1".into()))),
            ("POST", "/v1/messages/batches", Ok(Route::NewBatch)),
            (
                "GET",
                "/v1/messages/batches/msgbatch_1",
                Ok(Route::Owned("msgbatch_1".into())),
            ),
            ("GET", "/api/oauth/usage", Err(ProxyError::NotForDevices)),
            ("POST", "/v1/oauth/token", Err(ProxyError::NotForDevices)),
            ("GET", "/v1/organizations/o", Err(ProxyError::NotForDevices)),
            ("GET", "/v1/mcp_servers?limit=1000", Err(ProxyError::NotForDevices)),
            ("POST", "/v1/privacy-consents/checkup", Err(ProxyError::NotForDevices)),
            ("GET", "/v1/sessions/s", Err(ProxyError::NotForDevices)),
            ("GET", "/v1/code/x", Err(ProxyError::NotForDevices)),
            ("GET", "/v1/environments/e", Err(ProxyError::NotForDevices)),
            ("GET", "/", Ok(Route::Hello)),
            ("POST", "/", Err(ProxyError::NotForDevices)),
            ("GET", "/metrics", Err(ProxyError::NotForDevices)),
        ] {
            assert_eq!(asked(method, target), want, "{method} {target}");
        }
    }

    #[test]
    fn sc_07_a_path_that_can_be_read_in_two_ways_is_refused() {
        for (method, target) in [
            ("GET", "/v1/../api/oauth/usage"),
            ("GET", "/v1/%2e%2e/api/oauth/profile"),
            ("POST", "//evil.test/v1/messages"),
            ("GET", "http://evil.test/v1/messages"),
            ("GET", "/v1/%6frganizations/o"),
            ("POST", "/v1//oauth/token"),
            ("POST", "/v1/oauth%2ftoken"),
            ("POST", "/V1/OAuth/token"),
            ("POST", "/v1/OAuth/token"),
            ("POST", "/v1/messages;x=1"),
            ("POST", "/v1/files/%5c"),
            ("POST", "/v1/files/a%2Fb"),
            ("POST", "/v1/./messages"),
        ] {
            assert_eq!(
                asked(method, target),
                Err(ProxyError::NotForDevices),
                "{method} {target}"
            );
        }
        for method in ["CONNECT", "TRACE", "OPTIONS", "BREW"] {
            let target = if method == "CONNECT" {
                "evil.test:443"
            } else {
                "/v1/messages"
            };
            assert_eq!(asked(method, target), Err(ProxyError::Method), "{method}");
        }
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    const KEY: &str = "rk-test-0001";

    /// Two devices, and the second one's key.
    fn devices() -> (Devices, String) {
        let folder = tempfile::tempdir().unwrap();
        let devices = Devices::load(&folder.path().join("devices.json"), KEY);
        let (_, key) = devices.add("second", None, 0).unwrap();
        (devices, key)
    }

    fn named(admitted: Result<Arc<Device>, ProxyError>) -> Result<String, ProxyError> {
        admitted.map(|device| device.name.clone())
    }

    #[test]
    fn sc_05_a_key_matches_exactly_or_not_at_all() {
        let long = "k".repeat(1 << 20);
        let (devices, second) = devices();
        let wrong = || Err(ProxyError::WrongKey { login_mode: false });
        for (lines, want) in [
            (&[("x-router-key", KEY)][..], Ok("first device")),
            (&[("x-api-key", KEY)], Ok("first device")),
            (&[("authorization", "Bearer rk-test-0001")], Ok("first device")),
            (&[("authorization", &format!("bearer {second}"))], Ok("second")),
            (
                &[("x-api-key", KEY), ("authorization", "Bearer rk-test-0001")],
                Ok("first device"),
            ),
            (&[("x-api-key", "rk-test-0001 x")], wrong()),
            (&[("authorization", "Bearer rk-test-0001 ")], wrong()),
            (&[("x-api-key", "rk-test-000")], wrong()),
            (&[("x-api-key", "RK-TEST-0001")], wrong()),
            (&[("x-api-key", "")], wrong()),
            (&[("x-api-key", &long)], wrong()),
            (&[("authorization", "Basic rk-test-0001")], wrong()),
            (&[], wrong()),
            (&[("x-router-key", KEY), ("x-api-key", &second)], wrong()),
            (&[("x-router-key", KEY), ("x-router-key", "other")], wrong()),
        ] {
            let found = named(device(&headers(lines), &devices));
            assert_eq!(found, want.map(str::to_owned), "{lines:.40?}");
        }
    }

    #[test]
    fn hd_11_a_devices_own_login_is_neither_a_key_nor_a_reason_to_refuse() {
        const LOGIN: (&str, &str) = ("authorization", "Bearer sk-ant-oat01-device");
        let (devices, _) = devices();
        for (lines, want) in [
            (&[("x-router-key", KEY), LOGIN][..], Ok("first device")),
            (
                &[("x-router-key", KEY), LOGIN, ("x-api-key", "sk-ant-api03-x")],
                Ok("first device"),
            ),
            (
                &[("x-router-key", "wrong"), LOGIN],
                Err(ProxyError::WrongKey { login_mode: true }),
            ),
            (&[LOGIN], Err(ProxyError::WrongKey { login_mode: true })),
            (
                &[("x-api-key", "sk-ant-api03-x")],
                Err(ProxyError::WrongKey { login_mode: false }),
            ),
        ] {
            let found = named(device(&headers(lines), &devices));
            assert_eq!(found, want.map(str::to_owned), "{lines:?}");
        }
    }

    #[test]
    fn sc_01_a_foreign_host_needs_a_key_and_a_web_page_never_passes() {
        let names = Names::new(["MyMac.local".into()]);
        let (devices, _) = devices();
        let admitted = |lines: &[(&'static str, &str)]| {
            let mut request = Request::new(());
            *request.uri_mut() = "/v1/messages".parse().unwrap();
            *request.method_mut() = Method::POST;
            *request.headers_mut() = headers(lines);
            named(admit(&request.into_parts().0, &devices, &names).map(|(device, _)| device))
        };
        let key = ("x-router-key", KEY);
        assert_eq!(admitted(&[("host", "evil.test:1"), key]), Ok("first device".into()));
        assert_eq!(admitted(&[("host", "evil.test:1")]), Err(ProxyError::ForeignHost));
        assert_eq!(
            admitted(&[("origin", "https://evil.test"), key]),
            Err(ProxyError::FromWebPage)
        );
        for host in [
            "127.0.0.1:18787",
            "[::1]:18787",
            "localhost:1",
            "LOCALHOST",
            "mymac.local:18787",
            "100.64.0.1",
        ] {
            assert_eq!(
                admitted(&[("host", host)]),
                Err(ProxyError::WrongKey { login_mode: false }),
                "{host}"
            );
        }
    }
}
