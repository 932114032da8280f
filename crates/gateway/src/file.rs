//! Reads small files of other programs: bounded, without hanging on what is no file, and telling apart why not.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::de::DeserializeOwned;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not there.
    #[error("is not there")]
    Absent,
    /// A folder, a pipe or a socket stands in its place.
    #[error("is no file")]
    NotAFile,
    /// It is larger than such a file can be.
    #[error("is too large")]
    TooLarge,
    /// The system would not give it.
    #[error("cannot be read")]
    Denied(#[source] io::Error),
    /// It is not what it should be, perhaps half written.
    #[error("is damaged")]
    Damaged,
}

/// What tells one state of a file from another, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The mark of the file at `path`; `None` if it is not there.
pub fn mark(path: &Path) -> Option<Mark> {
    let about = std::fs::metadata(path).ok()?;
    Some(Mark {
        device: about.dev(),
        inode: about.ino(),
        size: about.size(),
        modified: (about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
    })
}

/// The bytes of the file at `path`, at most `limit`.
///
/// # Errors
/// See [`ReadError`]; never [`ReadError::Damaged`].
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ReadError> {
    // Without this flag the opening of a pipe waits for a writer.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock as i32)
        .open(path)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::Absent,
            _ => ReadError::Denied(error),
        })?;
    let about = file.metadata().map_err(ReadError::Denied)?;
    if !about.is_file() {
        return Err(ReadError::NotAFile);
    }
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(ReadError::Denied)?;
    match bytes.len() as u64 > limit {
        true => Err(ReadError::TooLarge),
        false => Ok(bytes),
    }
}

/// The value in the JSON file at `path`, of at most `limit` bytes.
///
/// # Errors
/// See [`ReadError`]. What the parser says is not kept: it may quote the file.
pub fn read_json<T: DeserializeOwned>(path: &Path, limit: u64) -> Result<T, ReadError> {
    serde_json::from_slice(&read(path, limit)?).map_err(|_| ReadError::Damaged)
}
