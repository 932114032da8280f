//! What changes on the way, and it is little: the credential, the OAuth beta value, the headers that belong to one
//! connection. Bodies pass as they came.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Uri, uri};

use crate::anthropic;
use crate::credential::Secret;
use crate::gate::{API_KEY, ROUTER_KEY};

/// Says which seat answered, and why that one.
pub const SERVED_BY: HeaderName = HeaderName::from_static("x-claude-proxy-router");

/// The request's number, for `why`.
pub const REQUEST: HeaderName = HeaderName::from_static("x-claude-proxy-router-request");

/// Headers that concern one connection only.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Takes out what belongs to the connection the message came by.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// The headers to send upstream for a request that came with `headers`: one credential, the seat's.
pub fn request_headers(mut headers: HeaderMap, access: &Secret, length: Option<u64>) -> HeaderMap {
    remove_hop_by_hop(&mut headers);
    for name in [
        header::HOST,
        header::EXPECT,
        header::CONTENT_LENGTH,
        ROUTER_KEY,
        API_KEY,
    ] {
        headers.remove(name);
    }
    // A token is visible ASCII; one that is not would be refused upstream anyway.
    let mut bearer =
        HeaderValue::try_from(format!("Bearer {}", access.expose())).unwrap_or(HeaderValue::from_static("Bearer"));
    bearer.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, bearer);
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    anthropic::add_oauth_beta(&mut headers);
    headers
}

/// The headers to give the client for an answer that came with `headers`.
pub fn answer_headers(headers: &mut HeaderMap, served_by: HeaderValue) {
    let chunked = headers.contains_key(header::TRANSFER_ENCODING);
    remove_hop_by_hop(headers);
    headers.remove(header::ALT_SVC);
    if chunked {
        headers.remove(header::CONTENT_LENGTH);
    }
    headers.insert(SERVED_BY, served_by);
}

/// The same target at `origin`; the host never comes from the request.
pub fn target(origin: &Uri, target: &Uri) -> Uri {
    let mut parts = uri::Parts::default();
    parts.scheme = origin.scheme().cloned();
    parts.authority = origin.authority().cloned();
    parts.path_and_query = target.path_and_query().cloned();
    Uri::from_parts(parts).unwrap_or_else(|_| origin.clone())
}

/// Whether an answer is an event stream.
pub fn is_event_stream(status: StatusCode, headers: &HeaderMap) -> bool {
    status.is_success()
        && headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// `<seat>; <reason>`: printable ASCII, at most 80 bytes, other bytes percent-encoded.
pub fn served_by(seat: &str, reason: &str) -> HeaderValue {
    const MOST: usize = 80;
    let room = MOST - reason.len().min(40) - 2;
    let mut text = String::new();
    for byte in seat.bytes() {
        let piece = match byte {
            b' '..=b'~' if byte != b'%' && byte != b';' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        if text.len() + piece.len() > room {
            break;
        }
        text.push_str(&piece);
    }
    text.push_str("; ");
    text.push_str(reason);
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn sent(lines: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let headers = request_headers(headers(lines), &Secret::new("tok-A"), None);
        let line = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
        headers.iter().map(line).collect()
    }

    #[test]
    fn hd_05_exactly_one_credential_goes_upstream() {
        let got = sent(&[
            ("x-api-key", "rk-test-0001"),
            ("authorization", "Bearer rk-test-0001"),
            ("x-router-key", "rk-test-0001"),
        ]);
        let want = [
            ("authorization".into(), "Bearer tok-A".into()),
            ("anthropic-beta".into(), "oauth-2025-04-20".into()),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn hd_06_what_belongs_to_the_connection_stays_behind() {
        let got = sent(&[
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("host", "127.0.0.1:18787"),
            ("x-app", "cli"),
        ]);
        let names: Vec<_> = got.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x-app", "authorization", "anthropic-beta"]);

        let mut answer = headers(&[
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("alt-svc", "h3=\":443\""),
            ("anthropic-foo", "bar"),
        ]);
        answer_headers(&mut answer, HeaderValue::from_static("work; most room"));
        let names: Vec<_> = answer.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["anthropic-foo", "x-claude-proxy-router"]);
    }

    #[test]
    fn sc_07_the_host_never_comes_from_the_request() {
        let origin: Uri = "https://api.anthropic.com".parse().unwrap();
        let asked: Uri = "/v1/messages?beta=true&x=a%2Fb%20c&x=".parse().unwrap();
        assert_eq!(
            target(&origin, &asked),
            "https://api.anthropic.com/v1/messages?beta=true&x=a%2Fb%20c&x="
        );
    }

    #[test]
    fn the_seats_name_is_short_printable_ascii() {
        for (seat, want) in [
            ("work", "work; most room"),
            ("日本", "%E6%97%A5%E6%9C%AC; most room"),
            ("a;b%\n", "a%3Bb%25%0A; most room"),
        ] {
            assert_eq!(served_by(seat, "most room"), want);
        }
        assert!(served_by(&"é".repeat(100), "most room").len() <= 80);
    }
}
