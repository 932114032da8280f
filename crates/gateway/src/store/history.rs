//! The history, read by whoever asks what was: requests, switches, usage and cost.

use std::path::Path;

use jiff::Timestamp;
use pool::{AccountId, WindowKind};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::records::{read_request, read_switch, tokens};
use super::rows::{all, each};
use super::{StoreError, open};
use crate::meter::Tokens;
use crate::record::{RequestRecord, SwitchRecord};

/// What is asked of the history.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// So many at most, the newest first.
    pub limit: u32,
    /// Those before this number.
    pub before: Option<i64>,
    /// Those that this seat answered.
    pub seat: Option<AccountId>,
    /// Those of this device.
    pub device: Option<String>,
    /// Those alone that failed.
    pub failed: bool,
}

/// The history, for reading alone.
pub struct History(pub(super) Connection);

impl History {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self(open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?))
    }

    /// Requests that ended, the newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn requests(&self, wanted: &Wanted) -> Result<Vec<RequestRecord>, StoreError> {
        let query = "SELECT * FROM requests WHERE number < ?1 AND (?2 IS NULL OR seat = ?2)
            AND (?3 IS NULL OR device = ?3) AND (NOT ?4 OR status >= 400 OR ending = 'broken')
            ORDER BY number DESC LIMIT ?5";
        let asked = params![
            wanted.before.unwrap_or(i64::MAX),
            wanted.seat.as_ref().map(AccountId::as_str),
            wanted.device,
            wanted.failed,
            wanted.limit,
        ];
        all(&self.0, query, asked, read_request)
    }

    /// The request of that number.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn request(&self, number: i64) -> Result<Option<RequestRecord>, StoreError> {
        let mut query = self.0.prepare("SELECT * FROM requests WHERE number = ?")?;
        Ok(query.query_row([number], read_request).optional()?)
    }

    /// Conversations that moved, the newest first, at most so many.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn switches(&self, limit: u32) -> Result<Vec<SwitchRecord>, StoreError> {
        self.switches_where("ORDER BY at DESC, rowid DESC LIMIT ?", limit.into())
    }

    /// Conversations that moved with that request.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn switches_of(&self, request: i64) -> Result<Vec<SwitchRecord>, StoreError> {
        self.switches_where("WHERE request = ? ORDER BY rowid", request)
    }

    fn switches_where(&self, which: &str, asked: i64) -> Result<Vec<SwitchRecord>, StoreError> {
        let query = format!("SELECT at, request, origin, target, cause, words FROM switches {which}");
        all(&self.0, &query, [asked], read_switch)
    }

    /// How full a seat's windows were since a moment: time in milliseconds, window, basis points; the oldest first.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn usage(&self, seat: &AccountId, since: Timestamp) -> Result<Vec<(i64, WindowKind, u16)>, StoreError> {
        let query = "SELECT at, window, used FROM usage WHERE seat = ? AND at >= ? ORDER BY at, window";
        let asked = params![seat.as_str(), since.as_millisecond()];
        let points = all(&self.0, query, asked, |row| {
            let kind = WindowKind::from_word(&row.get::<_, String>(1)?);
            kind.map(|kind| Ok((row.get(0)?, kind, row.get(2)?))).transpose()
        })?;
        Ok(points.into_iter().flatten().collect())
    }

    /// What requests cost since a moment, by time in milliseconds, device and model.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn costs(
        &self,
        since: Timestamp,
        mut each_one: impl FnMut(i64, String, String, Tokens),
    ) -> Result<(), StoreError> {
        let query = "SELECT at, device, model, input, output, cache_read, cache_write FROM requests
            WHERE at >= ? AND input IS NOT NULL";
        each(&self.0, query, [since.as_millisecond()], |row| {
            let model = row.get::<_, Option<String>>(2)?.unwrap_or_default();
            each_one(row.get(0)?, row.get(1)?, model, tokens(row, 3)?);
            Ok(())
        })
    }
}
