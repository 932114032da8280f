//! Requests as Claude Code sends them, and answers read to their end.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use sandbox::Encoding;
use serde_json::{Value, json};

/// The key of the test bench's device.
pub const KEY: &str = "rk-test-0001";
pub const OPUS: &str = "claude-opus-5-5";
pub const SONNET: &str = "claude-sonnet-5";
pub const FABLE: &str = "claude-fable-5";
pub const MESSAGES: &str = "/v1/messages";
pub const COUNT_TOKENS: &str = "/v1/messages/count_tokens";
pub const USAGE: &str = "/api/oauth/usage";

/// An answer, read to its end.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body ended as it should.
    pub whole: bool,
}

impl Reply {
    pub async fn read(response: Response<Body>) -> Self {
        let (head, mut body) = response.into_parts();
        let mut bytes = Vec::new();
        let mut whole = true;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => {
                    whole = false;
                    break;
                }
            }
        }
        Self {
            status: head.status,
            headers: head.headers,
            body: bytes.into(),
            whole,
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The sentence of an error.
    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A request with the test bench's key.
pub fn request(method: Method, target: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(target)
        .header("x-router-key", KEY)
        .body(body.into())
        .unwrap()
}

/// A messages request with that body, as Claude Code sends it.
pub fn messages(body: &str) -> Request<Body> {
    let mut request = request(Method::POST, "/v1/messages?beta=true", body.to_owned());
    let headers = request.headers_mut();
    headers.insert("content-type", "application/json".parse().unwrap());
    headers.insert("content-length", body.len().into());
    headers.insert("anthropic-version", "2023-06-01".parse().unwrap());
    request
}

/// The same as a sub-session of its own.
pub fn in_session(mut request: Request<Body>, session: &str) -> Request<Body> {
    let session = session.parse().unwrap();
    request.headers_mut().insert("x-claude-code-session-id", session);
    request
}

/// A messages request whose body comes in these pieces, so many milliseconds apart, its length not told ahead.
pub fn messages_in_pieces<P>(
    pieces: impl IntoIterator<Item = P, IntoIter: Send + 'static>,
    gap_ms: u64,
) -> Request<Body>
where
    P: Into<Bytes>,
{
    let pieces = pieces.into_iter();
    let pieces = stream::unfold((pieces, 0), move |(mut pieces, wait)| async move {
        let piece: Bytes = pieces.next()?.into();
        if wait > 0 {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        Some((Ok::<_, io::Error>(piece), (pieces, gap_ms)))
    });
    let mut request = messages("");
    request.headers_mut().remove("content-length");
    *request.body_mut() = Body::from_stream(pieces);
    request
}

/// `text` in pieces of so many bytes.
pub fn pieces(text: &str, size: usize) -> Vec<Bytes> {
    text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect()
}

/// `plain` as a server compresses it.
pub fn encoded(encoding: Encoding, plain: &[u8]) -> Bytes {
    use std::io::Write as _;
    match encoding {
        Encoding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap().into()
        }
        Encoding::Brotli => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4_096, 4, 20);
            encoder.write_all(plain).unwrap();
            encoder.into_inner().into()
        }
        Encoding::Zstd => zstd::encode_all(plain, 1).unwrap().into(),
    }
}

/// The codings that Claude Code offers.
pub const ENCODINGS: [Encoding; 3] = [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd];

/// The body of a first turn.
pub fn turn_body(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 100}).to_string()
}

/// The same, streamed.
pub fn stream_body(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 100, "stream": true})
        .to_string()
}
