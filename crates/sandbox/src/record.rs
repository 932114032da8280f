//! What was received, as it was received.

use std::collections::VecDeque;

use axum::http::request::Parts;
use bytes::Bytes;

/// A demo runs for days: the oldest records go when there are more than this…
const MOST_RECORDS: usize = 20_000;
/// …or when their bodies add up to more than this, in bytes.
const MOST_BYTES: usize = 1 << 30;

/// One request that arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub method: String,
    /// Path and query, exactly as on the request line.
    pub target: String,
    pub path: String,
    /// In the order of arrival, names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    /// The bearer token, if there was one.
    pub token: Option<String>,
    /// When the head arrived, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Whether the body arrived to its end; until then `body` is empty.
    pub completed: bool,
}

impl Recorded {
    /// A request of which only the head is here.
    pub(crate) fn begin(head: &Parts, at_ms: i64) -> Self {
        let headers: Vec<(String, String)> = head
            .headers
            .iter()
            .map(|(name, value)| {
                (
                    name.as_str().to_owned(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        let target = head
            .uri
            .path_and_query()
            .map_or_else(|| head.uri.to_string(), ToString::to_string);
        let mut recorded = Self {
            method: head.method.to_string(),
            target,
            path: head.uri.path().to_owned(),
            headers,
            body: Bytes::new(),
            token: None,
            at_ms,
            completed: false,
        };
        recorded.token = recorded.header("authorization").and_then(bearer);
        recorded
    }

    /// The first header of that name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

fn bearer(authorization: &str) -> Option<String> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// Names a record for as long as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordId(u64);

/// All that was received and not taken.
#[derive(Default)]
pub(crate) struct Record {
    next: u64,
    bytes: usize,
    kept: VecDeque<(RecordId, Recorded)>,
}

impl Record {
    pub(crate) fn begin(&mut self, recorded: Recorded) -> RecordId {
        let id = RecordId(self.next);
        self.next += 1;
        self.kept.push_back((id, recorded));
        self.trim();
        id
    }

    /// Notes the whole body; a record that was taken meanwhile stays as it was taken.
    pub(crate) fn complete(&mut self, id: RecordId, body: Bytes) {
        if let Some((_, recorded)) = self.kept.iter_mut().rev().find(|(have, _)| *have == id) {
            self.bytes += body.len();
            recorded.body = body;
            recorded.completed = true;
        }
        self.trim();
    }

    pub(crate) fn all(&self) -> Vec<Recorded> {
        self.kept.iter().map(|(_, one)| one.clone()).collect()
    }

    pub(crate) fn take(&mut self) -> Vec<Recorded> {
        self.bytes = 0;
        self.kept.drain(..).map(|(_, one)| one).collect()
    }

    fn trim(&mut self) {
        while self.kept.len() > MOST_RECORDS || (self.bytes > MOST_BYTES && self.kept.len() > 1) {
            if let Some((_, oldest)) = self.kept.pop_front() {
                self.bytes -= oldest.body.len();
            }
        }
    }
}
