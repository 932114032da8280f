//! A bounded, decoded copy of a body that passes by compressed. The bytes on their way are never touched; what cannot
//! be decoded decides nothing.

use std::io::{self, Write};

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// A sink that stops at its bound, which also stops the decoder in front of it.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = self.most - self.bytes.len();
        self.bytes.extend_from_slice(&data[..data.len().min(room)]);
        match data.len() <= room {
            true => Ok(data.len()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Coding<W: Write> {
    Plain(W),
    Gzip(flate2::write::MultiGzDecoder<W>),
    Deflate(flate2::write::ZlibDecoder<W>),
    Brotli(Box<brotli::DecompressorWriter<W>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, W>>),
}

/// Decodes a body that is seen piece by piece into a sink, until either takes no more.
pub struct Decoder<W: Write> {
    /// `None` for an encoding we do not know.
    coding: Option<Coding<W>>,
    /// Whether nothing more is taken in: the sink took no more, or the bytes made no sense.
    closed: bool,
}

impl<W: Write> Decoder<W> {
    /// For a body with those `headers`, into `sink`.
    pub fn new(headers: &HeaderMap, sink: W) -> Self {
        let encoding = headers.get(CONTENT_ENCODING).map_or(Ok(""), |value| value.to_str());
        let coding = match encoding.map(str::trim) {
            Ok("" | "identity") => Some(Coding::Plain(sink)),
            Ok("gzip" | "x-gzip") => Some(Coding::Gzip(flate2::write::MultiGzDecoder::new(sink))),
            Ok("deflate") => Some(Coding::Deflate(flate2::write::ZlibDecoder::new(sink))),
            Ok("br") => Some(Coding::Brotli(Box::new(brotli::DecompressorWriter::new(sink, 4_096)))),
            Ok("zstd") => zstd_decoder(sink).ok(),
            _ => None,
        };
        Self { coding, closed: false }
    }

    /// Takes in the next bytes as they were sent.
    pub fn write(&mut self, data: &[u8]) {
        if self.closed {
            return;
        }
        let taken = match &mut self.coding {
            None => return,
            Some(Coding::Plain(sink)) => sink.write_all(data),
            Some(Coding::Gzip(decoder)) => decoder.write_all(data).and_then(|()| decoder.flush()),
            Some(Coding::Deflate(decoder)) => decoder.write_all(data).and_then(|()| decoder.flush()),
            Some(Coding::Brotli(decoder)) => decoder.write_all(data).and_then(|()| decoder.flush()),
            Some(Coding::Zstd(decoder)) => decoder.write_all(data).and_then(|()| decoder.flush()),
        };
        self.closed = taken.is_err();
    }

    /// The sink, unless the encoding is not known.
    pub fn sink(&self) -> Option<&W> {
        match self.coding.as_ref()? {
            Coding::Plain(sink) => Some(sink),
            Coding::Gzip(decoder) => Some(decoder.get_ref()),
            Coding::Deflate(decoder) => Some(decoder.get_ref()),
            Coding::Brotli(decoder) => Some(decoder.get_ref()),
            Coding::Zstd(decoder) => Some(decoder.get_ref()),
        }
    }

    /// Whether nothing more will be decoded.
    pub fn is_closed(&self) -> bool {
        self.closed || self.coding.is_none()
    }
}

/// A frame may ask for a window of up to 2 GiB; 8 MiB is what servers use.
fn zstd_decoder<W: Write>(sink: W) -> io::Result<Coding<W>> {
    let mut decoder = zstd::stream::write::Decoder::new(sink)?;
    decoder.window_log_max(23)?;
    Ok(Coding::Zstd(Box::new(decoder)))
}

/// A decoded copy of at most so many bytes.
pub struct SideCopy(Decoder<Bounded>);

impl SideCopy {
    /// A copy of at most `most` decoded bytes of a body with those `headers`.
    pub fn new(headers: &HeaderMap, most: usize) -> Self {
        let sink = Bounded {
            bytes: Vec::new(),
            most,
        };
        Self(Decoder::new(headers, sink))
    }

    /// Takes in the next bytes as they were sent.
    pub fn write(&mut self, data: &[u8]) {
        self.0.write(data);
    }

    /// What was decoded so far.
    pub fn bytes(&self) -> &[u8] {
        self.0.sink().map_or(&[], |sink| &sink.bytes)
    }

    /// Whether nothing more will be decoded.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn encoded(encoding: &str, text: &[u8]) -> Vec<u8> {
        match encoding {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "deflate" => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "br" => {
                let mut out = Vec::new();
                brotli::CompressorWriter::new(&mut out, 4_096, 5, 22)
                    .write_all(text)
                    .unwrap();
                out
            }
            "zstd" => zstd::encode_all(text, 3).unwrap(),
            _ => text.to_vec(),
        }
    }

    fn headers(encoding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap());
        headers
    }

    const ENCODINGS: [&str; 5] = ["identity", "gzip", "deflate", "br", "zstd"];

    #[test]
    fn hd_12_every_encoding_is_read_in_whatever_pieces_it_comes() {
        let text = br#"{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}"#;
        for encoding in ENCODINGS {
            for size in [1, 7, 1_000] {
                let mut copy = SideCopy::new(&headers(encoding), 1_000);
                for piece in encoded(encoding, text).chunks(size) {
                    copy.write(piece);
                }
                assert_eq!(copy.bytes(), text, "{encoding} in pieces of {size}");
            }
        }
    }

    #[test]
    fn hd_12_a_bomb_stops_at_the_bound() {
        let bomb = vec![b' '; 64 << 20];
        for encoding in ENCODINGS {
            let mut copy = SideCopy::new(&headers(encoding), 64 << 10);
            for piece in encoded(encoding, &bomb).chunks(16 << 10) {
                copy.write(piece);
            }
            assert!(copy.bytes().len() <= 64 << 10, "{encoding}");
            assert!(copy.is_closed(), "{encoding}");
        }
    }

    #[test]
    fn hd_12_what_cannot_be_decoded_gives_nothing() {
        for encoding in ["gzip", "deflate", "br", "zstd", "rot13"] {
            let mut copy = SideCopy::new(&headers(encoding), 1_000);
            copy.write(b"this is no such thing");
            assert_eq!(copy.bytes(), b"", "{encoding}");
        }
    }
}
