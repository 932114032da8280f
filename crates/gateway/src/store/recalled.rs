//! What a start wants to know of the last run, to be had also where nothing can be written.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use pool::{AccountId, Memory};
use rusqlite::{Connection, OpenFlags};

use super::file::beside;
use super::{History, Store, StoreError, open, usage};
use crate::record::SwitchRecord;

/// What the last run knew.
#[derive(Debug, Default)]
pub struct Recalled {
    /// The pool's.
    pub memory: Memory,
    /// Who issued which id, the oldest first.
    pub owners: Vec<(String, AccountId)>,
    /// The number of the last request.
    pub last_number: i64,
    /// The last switches, the newest first.
    pub switches: Vec<SwitchRecord>,
}

impl Recalled {
    /// What the file at `path` says, with so many switches. Nothing is written; a file that is yet to be begun says
    /// nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path, switches: u32) -> Result<Self, StoreError> {
        if is_empty(path) {
            return Ok(Self::default());
        }
        let usual = || Self::of(open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?, path, switches);
        match usual() {
            // SQLite wants room beside the file even to read it, unless it is told that nobody writes to it. What a
            // killed process left beside it would be overlooked then.
            Err(_) if is_empty(&beside(path, "-wal")) => Self::of(open_unchanging(path)?, path, switches),
            read => read,
        }
    }

    fn of(db: Connection, path: &Path, switches: u32) -> Result<Self, StoreError> {
        let store = Store {
            db,
            path: path.to_owned(),
            noted: usage::Noted::new(),
        };
        Ok(Self {
            memory: store.memory()?,
            owners: store.owners()?,
            last_number: store.last_number()?,
            // They are for show.
            switches: History(store.db).switches(switches).unwrap_or_default(),
        })
    }
}

/// The file at `path`, which nobody changes now.
fn open_unchanging(path: &Path) -> rusqlite::Result<Connection> {
    let how = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    open(Path::new(&unchanging(path)), how)
}

/// Those words to SQLite.
fn unchanging(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(char::from(*byte)),
            _ => drop(write!(uri, "%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

fn is_empty(path: &Path) -> bool {
    fs::metadata(path).map_or_else(
        |error| error.kind() == io::ErrorKind::NotFound,
        |about| about.len() == 0,
    )
}

#[cfg(test)]
mod tests {
    use super::super::given::{at, memory_of, of_seats, opened};
    use super::*;

    /// Lets nothing be written beside the file, as on a full disk.
    fn no_room(path: &Path) {
        std::os::unix::fs::symlink("nowhere/at/all", beside(path, "-shm")).unwrap();
    }

    #[test]
    fn a_file_is_read_where_there_is_no_room_to_open_it_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("50% of a #1 state? \u{fc}");
        let path = below.join("router.db");
        let mut store = opened(&below);
        store.write(&of_seats(&[memory_of("a", 1, 1)]), true).unwrap();
        drop(store);
        no_room(&path);
        assert!(Store::open(&path, at(0)).is_err());
        let recalled = Recalled::read(&path, 10).unwrap();
        let seats: Vec<_> = recalled.memory.seats.iter().map(|seat| seat.id.as_str()).collect();
        assert_eq!(seats, ["a"]);
    }

    #[test]
    fn what_a_killed_process_left_beside_the_file_is_never_overlooked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router.db");
        drop(opened(folder.path()));
        no_room(&path);
        fs::write(beside(&path, "-wal"), "left").unwrap();
        assert!(Recalled::read(&path, 10).is_err());
    }

    #[test]
    fn a_file_that_is_yet_to_be_begun_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router.db");
        assert_eq!(Recalled::read(&path, 10).unwrap().memory, Memory::default());
        fs::write(&path, "").unwrap();
        assert_eq!(Recalled::read(&path, 10).unwrap().last_number, 0);
    }
}
