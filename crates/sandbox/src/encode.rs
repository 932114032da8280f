//! Compression of bodies, whole or event by event.

use std::io::{self, Write as _};
use std::mem;

use bytes::Bytes;
use serde::Deserialize;

/// A content coding that clients of Anthropic offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    Gzip,
    Brotli,
    Zstd,
}

impl Encoding {
    /// As in `content-encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// A compressor that gives out what it has after each piece.
pub(crate) enum Encoder {
    Plain,
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    pub(crate) fn new(encoding: Option<Encoding>) -> io::Result<Self> {
        Ok(match encoding {
            None => Self::Plain,
            Some(Encoding::Gzip) => Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast())),
            Some(Encoding::Brotli) => Self::Brotli(Box::new(brotli::CompressorWriter::new(Vec::new(), 4096, 4, 20))),
            Some(Encoding::Zstd) => Self::Zstd(zstd::stream::write::Encoder::new(Vec::new(), 1)?),
        })
    }

    /// The bytes on the wire from which everything up to `piece` can be decoded.
    pub(crate) fn push(&mut self, piece: Bytes) -> io::Result<Bytes> {
        let out = match self {
            Self::Plain => return Ok(piece),
            Self::Gzip(to) => {
                to.write_all(&piece)?;
                to.flush()?;
                mem::take(to.get_mut())
            }
            Self::Brotli(to) => {
                to.write_all(&piece)?;
                to.flush()?;
                mem::take(to.get_mut())
            }
            Self::Zstd(to) => {
                to.write_all(&piece)?;
                to.flush()?;
                mem::take(to.get_mut())
            }
        };
        Ok(Bytes::from(out))
    }

    /// The trailer.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        Ok(Bytes::from(match self {
            Self::Plain => Vec::new(),
            Self::Gzip(to) => to.finish()?,
            Self::Brotli(to) => to.into_inner(),
            Self::Zstd(to) => to.finish()?,
        }))
    }
}
