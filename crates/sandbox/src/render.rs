//! From an [`Answer`] to a response: waiting, streaming, compressing.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use bytes::{Bytes, BytesMut};
use futures_util::stream;

use crate::answer::{Answer, Payload, SseStep};
use crate::encode::{Encoder, Encoding};

/// In the extensions of a response: there is no response, the connection was dropped instead.
#[derive(Clone, Copy, Debug)]
pub struct Cut;

/// Waits as long as the answer says, then gives its head and body.
pub(crate) async fn respond(answer: Answer, request_id: &str, open_streams: &Arc<AtomicUsize>) -> Response<Body> {
    if answer.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(answer.delay_ms)).await;
    }
    let body = match answer.payload {
        Payload::Never => std::future::pending().await,
        Payload::Cut => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response.extensions_mut().insert(Cut);
            return response;
        }
        Payload::Whole(bytes) => match encoded(bytes, answer.encoding) {
            Ok(bytes) => Body::from(bytes),
            Err(error) => return unsendable(&error.to_string()),
        },
        Payload::Stream(steps) => match stream_body(steps, answer.encoding, open_streams) {
            Ok(body) => body,
            Err(error) => return unsendable(&error.to_string()),
        },
    };
    let mut response = Response::new(body);
    let Ok(status) = StatusCode::from_u16(answer.status) else {
        return unsendable("a scripted status is no HTTP status");
    };
    *response.status_mut() = status;
    for (name, value) in &answer.headers {
        let (Ok(name), Ok(value)) = (
            HeaderName::try_from(name.as_str()),
            HeaderValue::try_from(value.as_str()),
        ) else {
            return unsendable("a scripted header is no HTTP header");
        };
        response.headers_mut().append(name, value);
    }
    let wants_id = !answer.omitted.iter().any(|name| name == "request-id");
    if wants_id && let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().entry("request-id").or_insert(id);
    }
    response
}

/// A script that cannot be sent is an error of the test; it says so where the test looks.
fn unsendable(why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("sandbox: {why}")));
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    response
}

fn encoded(bytes: Bytes, encoding: Option<Encoding>) -> io::Result<Bytes> {
    let mut encoder = Encoder::new(encoding)?;
    let mut out = BytesMut::from(encoder.push(bytes)?);
    out.extend_from_slice(&encoder.finish()?);
    Ok(out.freeze())
}

/// Counts a stream from its head until its body ended or was dropped.
struct OpenStream(Arc<AtomicUsize>);

impl OpenStream {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What is left to send of a stream.
struct Streaming {
    steps: VecDeque<SseStep>,
    /// `None` once the trailer is out.
    encoder: Option<Encoder>,
    _open: OpenStream,
}

fn stream_body(steps: Vec<SseStep>, encoding: Option<Encoding>, open_streams: &Arc<AtomicUsize>) -> io::Result<Body> {
    let streaming = Streaming {
        steps: steps.into(),
        encoder: Some(Encoder::new(encoding)?),
        _open: OpenStream::new(open_streams),
    };
    Ok(Body::from_stream(stream::unfold(streaming, next_frame)))
}

async fn next_frame(mut left: Streaming) -> Option<(io::Result<Bytes>, Streaming)> {
    while let Some(step) = left.steps.pop_front() {
        let piece = match step {
            SseStep::Event { event, data } => Bytes::from(format!("event: {event}\ndata: {data}\n\n")),
            SseStep::Raw(bytes) => bytes,
            SseStep::Wait(ms) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                continue;
            }
            SseStep::Cut => {
                // Let the connection flush what was sent before, as a network would have.
                tokio::task::yield_now().await;
                left.steps.clear();
                left.encoder = None;
                let error = io::Error::from(io::ErrorKind::ConnectionReset);
                return Some((Err(error), left));
            }
        };
        let frame = left.encoder.as_mut()?.push(piece);
        return Some((frame, left));
    }
    match left.encoder.take()?.finish() {
        Ok(trailer) if trailer.is_empty() => None,
        trailer => Some((trailer, left)),
    }
}
