//! What a turn's answer says of its own cost, and of the container it ran in, read in passing.
//!
//! The bytes on their way are never touched and never wait: a copy is decoded and looked through line by line, and of
//! a line no more is kept than a bound. What cannot be read is not known; nothing is estimated.

mod said;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use memchr::{memchr, memmem};
use serde::Serialize;

use crate::decode::Decoder;
use said::take_in;

/// How many answers are read at once: a decoder's memory is the sender's to choose.
const AT_ONCE: usize = 64;
/// How much of one event is kept to read it.
const LONGEST_EVENT: usize = 64 << 10;
/// How much is kept of an answer that is not a stream.
const LONGEST_WHOLE: usize = 512 << 10;

/// How the events begin that carry content.
const CONTENT: &[u8] = b" {\"type\":\"content_block_";

/// What a turn cost, as its answer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// Read anew.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Put into the cache.
    pub cache_write: u64,
}

impl Tokens {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

impl From<Tokens> for pool::Tokens {
    fn from(tokens: Tokens) -> Self {
        Self {
            input: tokens.input,
            cache_write: tokens.cache_write,
            cache_read: tokens.cache_read,
            output: tokens.output,
        }
    }
}

/// What was read of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// Its cost; `None` where it said nothing.
    pub tokens: Option<Tokens>,
    /// The container that the turn ran in.
    pub container: Option<String>,
}

/// How many more answers may be read.
#[derive(Clone, Debug)]
pub struct Places(Arc<AtomicUsize>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(AT_ONCE)))
    }
}

impl Places {
    fn take(&self) -> Option<Place> {
        let less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        Some(Place(Arc::clone(&self.0)))
    }
}

struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads one answer as it passes.
pub struct Meter {
    decoder: Decoder<Reading>,
    _place: Place,
}

impl Meter {
    /// For an answer with those `headers`; `None` while as many as may be are being read.
    pub fn begin(places: &Places, headers: &HeaderMap, is_stream: bool) -> Option<Self> {
        let reading = Reading {
            is_stream,
            kept: Vec::new(),
            skipping: false,
            found: Metered::default(),
        };
        Some(Self {
            decoder: Decoder::new(headers, reading),
            _place: places.take()?,
        })
    }

    /// Looks at the next bytes as they were sent.
    pub fn see(&mut self, piece: &[u8]) {
        self.decoder.write(piece);
    }

    /// What was read.
    pub fn end(self) -> Metered {
        let Some(reading) = self.decoder.sink() else {
            return Metered::default();
        };
        let mut found = reading.found.clone();
        if !reading.is_stream {
            take_in(&mut found, &reading.kept);
        }
        found
    }
}

/// What is being read: the lines of a stream one by one, or a whole answer.
struct Reading {
    is_stream: bool,
    /// The line that has not ended, or the whole.
    kept: Vec<u8>,
    /// Whether the rest of the line is passed over, since it is too long.
    skipping: bool,
    found: Metered,
}

impl Write for Reading {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if !self.is_stream {
            // What is not whole cannot be read.
            return match self.kept.len() + data.len() <= LONGEST_WHOLE {
                true => {
                    self.kept.extend_from_slice(data);
                    Ok(data.len())
                }
                false => {
                    self.kept = Vec::new();
                    Err(io::ErrorKind::WriteZero.into())
                }
            };
        }
        let mut rest = data;
        while let Some(end) = memchr(b'\n', rest) {
            self.line(&rest[..end]);
            rest = &rest[end + 1..];
        }
        self.keep(rest);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Reading {
    /// A line ends with `rest`.
    fn line(&mut self, rest: &[u8]) {
        if self.kept.is_empty() && !self.skipping {
            read_event(&mut self.found, rest);
            return;
        }
        self.keep(rest);
        if !self.skipping {
            read_event(&mut self.found, &self.kept);
        }
        self.kept.clear();
        self.skipping = false;
    }

    fn keep(&mut self, part: &[u8]) {
        if self.kept.len() + part.len() > LONGEST_EVENT {
            self.skipping = true;
        }
        if !self.skipping {
            self.kept.extend_from_slice(part);
        }
    }
}

/// Reads one line of an event stream. Nearly all carry content, as their beginning tells where it is written as usual,
/// and else what they lack: within a text, a quotation mark has a backslash before it.
fn read_event(found: &mut Metered, line: &[u8]) {
    let Some(data) = line.strip_prefix(b"data:") else {
        return;
    };
    if data.starts_with(CONTENT) {
        return;
    }
    let says = |key: &[u8]| memmem::find(data, key).is_some();
    if says(b"\"usage\"") || says(b"\"container\"") {
        take_in(found, data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::CONTENT_ENCODING;

    const STREAM: &str = concat!(
        "event: message_start\n",
        "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"usage\":{\"input_tokens\":12,",
        "\"cache_creation_input_tokens\":34,\"cache_read_input_tokens\":56,\"output_tokens\":1}}}\n\n",
        "event: content_block_delta\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",",
        "\"text\":\"\\\"usage\\\":{\\\"output_tokens\\\":9}\"}}\n\n",
        "event: message_delta\r\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",",
        "\"container\":{\"id\":\"container_1\",\"expires_at\":\"2026-01-01T00:00:00Z\"}},",
        "\"usage\":{\"output_tokens\":78,\"input_tokens\":null}}\r\n\r\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    fn want() -> Metered {
        Metered {
            tokens: Some(Tokens {
                input: 12,
                output: 78,
                cache_read: 56,
                cache_write: 34,
            }),
            container: Some("container_1".into()),
        }
    }

    fn headers(encoding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap());
        headers
    }

    fn metered(encoding: &str, is_stream: bool, body: &[u8], size: usize) -> Metered {
        let mut meter = Meter::begin(&Places::default(), &headers(encoding), is_stream).unwrap();
        body.chunks(size).for_each(|piece| meter.see(piece));
        meter.end()
    }

    #[test]
    fn a_streams_cost_and_container_are_read_in_whatever_pieces_it_comes() {
        let gzip = {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(STREAM.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = zstd::encode_all(STREAM.as_bytes(), 3).unwrap();
        let mut brotli = Vec::new();
        brotli::CompressorWriter::new(&mut brotli, 4_096, 5, 22)
            .write_all(STREAM.as_bytes())
            .unwrap();
        for (encoding, body) in [
            ("identity", STREAM.as_bytes()),
            ("gzip", &gzip),
            ("zstd", &zstd),
            ("br", &brotli),
        ] {
            for size in [1, 7, 100, 10_000] {
                assert_eq!(
                    metered(encoding, true, body, size),
                    want(),
                    "{encoding} in pieces of {size}"
                );
            }
        }
    }

    #[test]
    fn an_answer_that_is_no_stream_tells_the_same() {
        let body = br#"{"id":"msg_1","content":[{"type":"text","text":"hi"}],"container":{"id":"container_1"},
            "usage":{"input_tokens":12,"cache_creation_input_tokens":34,"cache_read_input_tokens":56,"output_tokens":78}}"#;
        assert_eq!(metered("identity", false, body, 10), want());
    }

    #[test]
    fn a_stream_that_breaks_off_tells_what_it_told_until_then() {
        let (start, _) = STREAM.split_once("event: message_delta").unwrap();
        let tokens = metered("identity", true, start.as_bytes(), 50).tokens.unwrap();
        assert_eq!((tokens.input, tokens.output), (12, 1));
    }

    #[test]
    fn st_07_a_line_without_an_end_is_not_kept() {
        let mut meter = Meter::begin(&Places::default(), &HeaderMap::new(), true).unwrap();
        for _ in 0..100 {
            meter.see(&[b'x'; 10_000]);
        }
        assert!(meter.decoder.sink().unwrap().kept.len() <= LONGEST_EVENT);
        meter.see(b"\n");
        meter.see(STREAM.as_bytes());
        assert_eq!(meter.end(), want(), "what follows is read");
    }

    #[test]
    fn a_whole_answer_beyond_its_bound_is_not_kept() {
        let mut meter = Meter::begin(&Places::default(), &HeaderMap::new(), false).unwrap();
        meter.see(&vec![b' '; LONGEST_WHOLE]);
        meter.see(b"{}");
        assert!(meter.decoder.sink().unwrap().kept.is_empty());
    }

    #[test]
    fn only_so_many_are_read_at_once() {
        let places = Places::default();
        let begin = || Meter::begin(&places, &HeaderMap::new(), true);
        let mut all: Vec<_> = (0..AT_ONCE).map(|_| begin().unwrap()).collect();
        assert!(begin().is_none());
        all.pop();
        assert!(begin().is_some());
    }

    #[test]
    fn what_makes_no_sense_tells_nothing() {
        for (encoding, body) in [
            ("gzip", &b"no gzip"[..]),
            ("rot13", b"x"),
            ("identity", b"data: {\"usage\":7}\n"),
        ] {
            assert_eq!(metered(encoding, true, body, 3), Metered::default(), "{encoding}");
        }
    }
}
