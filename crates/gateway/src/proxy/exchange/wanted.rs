//! What the pool needs to know of a request, as far as it was seen.

use http::{HeaderMap, HeaderValue};
use pool::Conversation;
use xxhash_rust::xxh3::xxh3_64;

use super::Exchange;
use crate::anthropic;
use crate::gate::Route;
use crate::peek::Found;

impl Exchange {
    /// What the pool needs to know of this request, as far as it was seen.
    pub(super) fn wanted(&self) -> pool::Request {
        let nothing = Found::default();
        let found = self.upload.found().unwrap_or(&nothing);
        let own = match &self.route {
            Route::Owned(id) => Some(id),
            _ => None,
        };
        pool::Request {
            conversation: conversation(&self.head.headers, found),
            model: found.model.clone(),
            features: anthropic::features(&self.head.headers),
            allowed: self.device.seats.clone(),
            owner: self.proxy.books.owner_of(own.into_iter().chain(&found.ids)),
            again: self.again.clone(),
            tried: self.tried.seats(),
            lacking: self.lacking,
            impatient: self.impatient,
            size: self
                .length
                .map_or(0, |length| u32::try_from(length).unwrap_or(u32::MAX)),
            hour_cache: anthropic::asks_hour_cache(&self.head.headers),
            sub_agent: agent(&self.head.headers).is_some(),
            is_free: self.route != Route::Messages,
            device: Some(xxh3_64(self.device.id.as_bytes())),
        }
    }
}

/// The sub-agent that speaks, if one does.
pub(super) fn agent(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get("x-claude-code-agent-id")
}

/// The conversation: a sub-agent's own, else the session's with its first turn, else the first turn's alone.
fn conversation(headers: &HeaderMap, found: &Found) -> Option<Conversation> {
    if let Some(agent) = agent(headers) {
        return Some(Conversation(xxh3_64(agent.as_bytes())));
    }
    let header = headers.get("x-claude-code-session-id").map(HeaderValue::as_bytes);
    let session = header.or(found.user_id.as_deref().map(str::as_bytes)).map(xxh3_64);
    match (session, found.first_turn) {
        (None, None) => None,
        (session, turn) => Some(Conversation(
            session.unwrap_or_default().rotate_left(1) ^ turn.unwrap_or_default(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn a_conversation_is_a_sub_agents_or_a_sessions_first_turn() {
        const SESSION: (&str, &str) = ("x-claude-code-session-id", "s-1");
        const AGENT: (&str, &str) = ("x-claude-code-agent-id", "a-1");
        let of = |headers: &[(&'static str, &'static str)], user_id: Option<&str>, first_turn: Option<u64>| {
            let header = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let found = Found {
                user_id: user_id.map(str::to_owned),
                first_turn,
                ..Found::default()
            };
            conversation(&headers.iter().map(header).collect(), &found)
        };
        assert_eq!(of(&[], None, None), None, "nothing tells it from others");
        assert_eq!(of(&[AGENT], None, Some(1)), of(&[SESSION, AGENT], Some("u"), Some(2)));
        assert_ne!(
            of(&[SESSION], None, Some(1)),
            of(&[SESSION], None, Some(2)),
            "a new start"
        );
        assert_ne!(of(&[SESSION], None, Some(1)), of(&[], None, Some(1)));
        assert_eq!(of(&[SESSION], Some("u"), Some(1)), of(&[SESSION], None, Some(1)));
        assert_eq!(of(&[], Some("s-1"), Some(1)), of(&[SESSION], None, Some(1)));
    }
}
