//! The store: one SQLite file with what outlasts the process. State first (readings, rests, conversations,
//! owners of ids), so that a start knows what the last run knew; and the [`History`] of requests and switches.
//!
//! A file that cannot be read, or that a newer version wrote, is moved aside and a new one begun: a start is never
//! refused for it. No body, header, token or key is ever in it.

mod schema;
mod file;
mod rows;
mod state;
mod records;
mod usage;
mod batch;
mod history;
mod recalled;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags};

pub use batch::Batch;
pub use file::Aside;
pub use history::{History, Wanted};
pub use recalled::Recalled;

/// How long another process may keep the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no store, or it takes nothing.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its folder cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What SQLite said.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A newer version wrote it.
    #[error("a newer version wrote it (form {0})")]
    Newer(i64),
}

impl StoreError {
    /// Whether the file as it is will never do.
    pub fn is_of_the_file(&self) -> bool {
        match self {
            Self::File { .. } => false,
            Self::Newer(_) => true,
            Self::Sqlite(rusqlite::Error::SqliteFailure(failure, _)) => matches!(
                failure.code,
                // What lacks a table is "unknown".
                ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown | ErrorCode::TypeMismatch
            ),
            // What is in it is of another form.
            Self::Sqlite(_) => true,
        }
    }
}

/// The open file.
pub struct Store {
    db: Connection,
    path: PathBuf,
    /// What was written down of usage since it was opened.
    noted: usage::Noted,
}

impl Store {
    /// Opens the file at `path`, made if it is not there. One that will never do is moved aside, which is told.
    ///
    /// # Errors
    /// If there can be no file there now.
    pub fn open(path: &Path, now: Timestamp) -> Result<(Self, Option<Aside>), StoreError> {
        match Self::open_as_it_is(path) {
            Err(error) if error.is_of_the_file() => {
                let aside = file::move_aside(path, &error, now)?;
                Ok((Self::open_as_it_is(path)?, Some(aside)))
            }
            opened => Ok((opened?, None)),
        }
    }

    fn open_as_it_is(path: &Path) -> Result<Self, StoreError> {
        file::close_to_others(path).map_err(|source| StoreError::File {
            path: path.to_owned(),
            source,
        })?;
        let mut db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A killed process loses nothing; a machine without power may lose the last moments, and stays whole.
        db.pragma_update(None, "synchronous", "NORMAL")?;
        schema::lay_out(&mut db)?;
        let store = Self {
            db,
            path: path.to_owned(),
            noted: usage::Noted::new(),
        };
        // What cannot be read now would fail when it is needed.
        store.memory()?;
        store.last_number()?;
        Ok(store)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the file aside, since of that error it will never do, and begins a new one.
    ///
    /// # Errors
    /// If there can be no new file now.
    pub fn begin_anew(self, error: &StoreError, now: Timestamp) -> Result<(Self, Aside), StoreError> {
        let path = self.path.clone();
        // Closed first: SQLite must not write to a file that has another name by now.
        drop(self);
        let aside = file::move_aside(&path, error, now)?;
        Ok((Self::open_as_it_is(&path)?, aside))
    }
}

/// The file at `path`, for one thread at a time.
fn open(path: &Path, how: OpenFlags) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, how | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(PATIENCE)?;
    Ok(db)
}

#[cfg(test)]
impl Store {
    /// Lets the file grow to so many pages, as a full disk would.
    pub(crate) fn at_most_pages(&self, pages: i64) {
        self.db
            .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
            .unwrap();
    }
}

/// What the tests beside these files begin with.
#[cfg(test)]
mod given {
    use pool::bench::{Bench, Cause, Scope, Source};
    use pool::{AccountId, SeatMemory, Utilization, Window, WindowKind};

    use super::*;

    pub(super) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    pub(super) fn opened(folder: &Path) -> Store {
        let (store, aside) = Store::open(&folder.join("router.db"), at(0)).unwrap();
        assert_eq!(aside, None);
        store
    }

    pub(super) fn memory_of(seat: &str, used: u16, second: i64) -> SeatMemory {
        let window = |resets_at| Window {
            used: Utilization::from_basis_points(used),
            resets_at,
            observed_at: at(second),
        };
        let fable = WindowKind::from_word("model:fable").unwrap();
        SeatMemory {
            id: AccountId::new(seat),
            windows: vec![
                (WindowKind::FiveHour, window(Some(at(second + 100)))),
                (WindowKind::Weekly, window(None)),
                (fable.clone(), window(Some(at(second + 1_000)))),
            ],
            benches: vec![
                Bench::new(
                    Scope::Window(WindowKind::FiveHour),
                    Cause::Limit,
                    Source::Window,
                    at(second),
                    at(second + 100),
                ),
                Bench::new(
                    Scope::Window(fable),
                    Cause::Limit,
                    Source::Answer,
                    at(second),
                    at(second + 1_000),
                ),
            ],
            served: vec![("claude-opus-5-5".into(), at(second))],
            asked_at: Some(at(second)),
            not_before: None,
        }
    }

    pub(super) fn of_seats(seats: &[SeatMemory]) -> Batch {
        Batch {
            seats: seats.iter().map(|seat| (seat.id.clone(), seat.clone())).collect(),
            ..Batch::default()
        }
    }
}
