//! Files: those of other programs are read within bounds, without hanging on what is no file; ours are replaced whole,
//! or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
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
    let about = fs::metadata(path).ok()?;
    Some(Mark {
        device: about.dev(),
        inode: about.ino(),
        size: about.size(),
        modified: (about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
    })
}

/// What tells one file from another, however it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl From<&fs::Metadata> for Identity {
    fn from(about: &fs::Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
        }
    }
}

/// Which file `path` leads to; `None` if there is none, or it cannot be told.
pub fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().as_ref().map(Identity::from)
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

/// Replaces the file whole, readable by its owner alone. On failure the old file is intact.
///
/// # Errors
/// If the new file cannot be written or put in place.
pub fn save(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?; // mode 0600
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cf_02_a_save_that_fails_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        save(&path, b"old").unwrap();
        // A folder in the file's place makes the last step fail, as a full disk makes an earlier one.
        let blocked = folder.path().join("folder");
        fs::create_dir_all(blocked.join("x")).unwrap();
        assert!(save(&blocked, b"new").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "no temporary file stays"
        );
    }
}
