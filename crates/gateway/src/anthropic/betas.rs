//! The beta features that a request names: the one that a login needs, and those that decide where it may run.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use pool::{Feature, Features};

/// The header that lists the client's beta features.
pub const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// The beta value that names the scheme of an OAuth bearer; without it Anthropic refuses the token.
pub const OAUTH_BETA: &str = "oauth-2025-04-20";

/// The betas that a request names, over all its lines.
fn named(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(BETA).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Adds the OAuth beta value unless it is there; every other value keeps its place.
pub fn add_oauth_beta(headers: &mut HeaderMap) {
    if named(headers).any(|beta| beta == OAUTH_BETA) {
        return;
    }
    let alone = HeaderValue::from_static(OAUTH_BETA);
    match headers.get_mut(BETA) {
        None => {
            headers.insert(BETA, alone);
        }
        // `insert` would drop further lines of the same name.
        Some(first) => {
            let joined = [first.as_bytes(), OAUTH_BETA.as_bytes()].join(&b',');
            *first = HeaderValue::from_bytes(&joined).unwrap_or(alone);
        }
    }
}

/// What a request asks for, by its betas, that a plan may lack.
pub fn features(headers: &HeaderMap) -> Features {
    named(headers).fold(Features::default(), |features, beta| match beta {
        beta if beta.starts_with("context-1m") => features.with(Feature::LongContext),
        beta if beta.starts_with("fast-mode") => features.with(Feature::FastMode),
        _ => features,
    })
}

/// Whether the request asks for prompt caches of an hour: the client names that beta only then.
pub fn asks_hour_cache(headers: &HeaderMap) -> bool {
    named(headers).any(|beta| beta.starts_with("extended-cache-ttl"))
}

#[cfg(test)]
mod tests {
    use super::super::given::headers;
    use super::*;

    #[test]
    fn hd_03_the_oauth_beta_is_added_once_and_nothing_is_lost() {
        for (lines, want) in [
            (&[][..], vec![OAUTH_BETA]),
            (&[("anthropic-beta", "a,b")], vec!["a,b,oauth-2025-04-20"]),
            (
                &[("anthropic-beta", "a, oauth-2025-04-20,b")],
                vec!["a, oauth-2025-04-20,b"],
            ),
            (
                &[("anthropic-beta", "a"), ("anthropic-beta", "b")],
                vec!["a,oauth-2025-04-20", "b"],
            ),
            (
                &[("anthropic-beta", "a"), ("anthropic-beta", "oauth-2025-04-20")],
                vec!["a", OAUTH_BETA],
            ),
        ] {
            let mut map = headers(lines);
            add_oauth_beta(&mut map);
            let got: Vec<_> = map.get_all(BETA).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(got, want);
        }
    }
}
