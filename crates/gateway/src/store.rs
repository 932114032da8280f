//! The store: one SQLite file with what outlasts the process. State first (readings, rests, conversations, owners of
//! ids), so that a start knows what the last run knew; and the history of requests and switches.
//!
//! A file that cannot be read, or that a newer version wrote, is moved aside and a new one begun: a start is never
//! refused for it. No body, header, token or key is ever in it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use pool::bench::{Bench, Cause as BenchCause, Scope, Source};
use pool::{AccountId, Bound, Conversation, Memory, SeatMemory, Utilization, Window, WindowKind};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, params};

use crate::meter::Tokens;
use crate::record::{Attempt, Cause, End, RequestRecord, SwitchRecord};

/// The form of the file that this version writes.
const VERSION: i64 = 1;
/// How long another process may keep the file.
const PATIENCE: Duration = Duration::from_secs(5);
/// A reading is written down again when it differs by so many basis points, or is so many milliseconds old.
const NOTABLE_BP: u16 = 10;
const NOTABLE_MS: i64 = 15 * 60 * 1_000;
/// How many owners of ids are kept.
const OWNERS: i64 = 10_000;
/// How long what is known of a seat, of its models and its windows is of use.
const STATE_KEPT_MS: i64 = 30 * 24 * 3_600 * 1_000;

const SCHEMA: &str = "
    CREATE TABLE readings (seat TEXT NOT NULL, window TEXT NOT NULL, used INTEGER NOT NULL, resets_at INTEGER,
        observed_at INTEGER NOT NULL, PRIMARY KEY (seat, window)) STRICT, WITHOUT ROWID;
    CREATE TABLE benches (seat TEXT NOT NULL, scope TEXT NOT NULL, cause TEXT NOT NULL, source TEXT NOT NULL,
        since INTEGER NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (seat, scope)) STRICT, WITHOUT ROWID;
    CREATE TABLE served (seat TEXT NOT NULL, model TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (seat, model))
        STRICT, WITHOUT ROWID;
    CREATE TABLE polls (seat TEXT PRIMARY KEY, asked_at INTEGER, not_before INTEGER) STRICT, WITHOUT ROWID;
    CREATE TABLE conversations (conversation INTEGER PRIMARY KEY, seat TEXT NOT NULL, used_at INTEGER NOT NULL) STRICT;
    CREATE TABLE owners (id TEXT PRIMARY KEY, seat TEXT NOT NULL, noted_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE requests (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, device TEXT NOT NULL, path TEXT NOT NULL,
        model TEXT, conversation INTEGER, seat TEXT, status INTEGER NOT NULL, reason TEXT NOT NULL, input INTEGER,
        output INTEGER, cache_read INTEGER, cache_write INTEGER, head_ms INTEGER NOT NULL, whole_ms INTEGER NOT NULL,
        ending TEXT NOT NULL, attempts TEXT NOT NULL) STRICT;
    CREATE INDEX requests_at ON requests (at);
    CREATE TABLE switches (at INTEGER NOT NULL, request INTEGER NOT NULL, origin TEXT NOT NULL, target TEXT NOT NULL,
        cause TEXT NOT NULL, words TEXT NOT NULL) STRICT;
    CREATE INDEX switches_at ON switches (at);
    CREATE INDEX switches_request ON switches (request);
    CREATE TABLE usage (seat TEXT NOT NULL, window TEXT NOT NULL, at INTEGER NOT NULL, used INTEGER NOT NULL,
        PRIMARY KEY (seat, at, window)) STRICT, WITHOUT ROWID;
    CREATE INDEX usage_at ON usage (at);
";

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

/// A file that was moved aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Where it lies now.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// What is to be written, as one.
#[derive(Debug, Default)]
pub struct Batch {
    /// What is known of seats now, each in place of what was.
    pub seats: BTreeMap<AccountId, SeatMemory>,
    /// Where conversations run, and when their last turn was.
    pub conversations: BTreeMap<Conversation, (AccountId, Timestamp)>,
    /// Who issued which id, and when.
    pub owners: Vec<(String, AccountId, Timestamp)>,
    /// Requests that ended.
    pub requests: Vec<RequestRecord>,
    /// Conversations that moved.
    pub switches: Vec<SwitchRecord>,
    /// The time of a trim, and from when on history is kept.
    pub trim: Option<(Timestamp, Timestamp)>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let Self {
            seats,
            conversations,
            owners,
            requests,
            switches,
            trim,
        } = self;
        seats.is_empty()
            && conversations.is_empty()
            && owners.is_empty()
            && requests.is_empty()
            && switches.is_empty()
            && trim.is_none()
    }
}

/// The last reading of each window that was written down: how full it was, in basis points, and when that was, in
/// milliseconds since the epoch.
type Noted = BTreeMap<(AccountId, WindowKind), (u16, i64)>;

/// The open file.
pub struct Store {
    db: Connection,
    path: PathBuf,
    noted: Noted,
}

impl Store {
    /// Opens the file at `path`, made if it is not there. One that will never do is moved aside, which is told.
    ///
    /// # Errors
    /// If there can be no file there now.
    pub fn open(path: &Path, now: Timestamp) -> Result<(Self, Option<Aside>), StoreError> {
        match Self::open_as_it_is(path) {
            Err(error) if error.is_of_the_file() => {
                let aside = move_aside(path, &error, now)?;
                Ok((Self::open_as_it_is(path)?, Some(aside)))
            }
            opened => Ok((opened?, None)),
        }
    }

    fn open_as_it_is(path: &Path) -> Result<Self, StoreError> {
        close_to_others(path).map_err(|source| StoreError::File {
            path: path.to_owned(),
            source,
        })?;
        let db = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        db.busy_timeout(PATIENCE)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        // A killed process loses nothing; a machine without power may lose the last moments, and stays whole.
        db.pragma_update(None, "synchronous", "NORMAL")?;
        let mut store = Self {
            db,
            path: path.to_owned(),
            noted: BTreeMap::new(),
        };
        store.take_form()?;
        // What cannot be read now would fail when it is needed.
        store.memory()?;
        store.last_number()?;
        Ok(store)
    }

    /// Lays out a new file; refuses a newer one.
    fn take_form(&mut self) -> Result<(), StoreError> {
        let form = |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
        match form(&self.db)? {
            VERSION => return Ok(()),
            newer @ VERSION.. => return Err(StoreError::Newer(newer)),
            _ => {}
        }
        let begun = self
            .db
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // Another process may have been quicker.
        if form(&begun)? < VERSION {
            begun.execute_batch(SCHEMA)?;
            begun.pragma_update(None, "user_version", VERSION)?;
        }
        Ok(begun.commit()?)
    }

    /// Writes the batch whole, or nothing of it.
    ///
    /// # Errors
    /// If the file takes nothing.
    pub fn write(&mut self, batch: &Batch, keeps_history: bool) -> Result<(), StoreError> {
        let begun = self
            .db
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let mut noted = Noted::new();
        for seat in batch.seats.values() {
            write_seat(&begun, seat)?;
            if keeps_history {
                write_usage(&begun, seat, &self.noted, &mut noted)?;
            }
        }
        for (conversation, (seat, used_at)) in &batch.conversations {
            begun
                .prepare_cached("INSERT OR REPLACE INTO conversations VALUES (?, ?, ?)")?
                .execute(params![
                    conversation.0.cast_signed(),
                    seat.as_str(),
                    used_at.as_millisecond()
                ])?;
        }
        for (id, seat, noted_at) in &batch.owners {
            begun
                .prepare_cached("INSERT OR REPLACE INTO owners VALUES (?, ?, ?)")?
                .execute(params![id, seat.as_str(), noted_at.as_millisecond()])?;
        }
        if keeps_history {
            for request in &batch.requests {
                write_request(&begun, request)?;
            }
            for switch in &batch.switches {
                write_switch(&begun, switch)?;
            }
        }
        if let Some((now, since)) = batch.trim {
            trim(&begun, now.as_millisecond(), since.as_millisecond())?;
        }
        begun.commit()?;
        self.noted.extend(noted);
        Ok(())
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
        let aside = move_aside(&path, error, now)?;
        Ok((Self::open_as_it_is(&path)?, aside))
    }

    /// What the pool knew.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn memory(&self) -> Result<Memory, StoreError> {
        let mut seats: BTreeMap<String, SeatMemory> = BTreeMap::new();
        self.each("SELECT seat, asked_at, not_before FROM polls", |row| {
            let seat = seat_in(&mut seats, row)?;
            (seat.asked_at, seat.not_before) = (time(row, 1)?, time(row, 2)?);
            Ok(())
        })?;
        self.each(
            "SELECT seat, window, used, resets_at, observed_at FROM readings",
            |row| {
                let (kind, observed_at): (String, _) = (row.get(1)?, time(row, 4)?);
                if let Some((kind, observed_at)) = WindowKind::from_word(&kind).zip(observed_at) {
                    let window = Window {
                        used: Utilization::from_basis_points(row.get(2)?),
                        resets_at: time(row, 3)?,
                        observed_at,
                    };
                    seat_in(&mut seats, row)?.windows.push((kind, window));
                }
                Ok(())
            },
        )?;
        self.each("SELECT seat, scope, cause, source, since, until FROM benches", |row| {
            let (scope, cause, source): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let words = Scope::from_word(&scope)
                .zip(BenchCause::from_word(&cause))
                .zip(Source::from_word(&source));
            let times = time(row, 4)?.zip(time(row, 5)?);
            if let Some((((scope, cause), source), (since, until))) = words.zip(times) {
                let bench = Bench::new(scope, cause, source, since, until);
                seat_in(&mut seats, row)?.benches.push(bench);
            }
            Ok(())
        })?;
        self.each("SELECT seat, model, at FROM served", |row| {
            if let Some(at) = time(row, 2)? {
                let model = row.get(1)?;
                seat_in(&mut seats, row)?.served.push((model, at));
            }
            Ok(())
        })?;
        let mut conversations = Vec::new();
        self.each("SELECT conversation, seat, used_at FROM conversations", |row| {
            if let Some(used_at) = time(row, 2)? {
                conversations.push(Bound {
                    conversation: Conversation(row.get::<_, i64>(0)?.cast_unsigned()),
                    account: AccountId::new(&row.get::<_, String>(1)?),
                    used_at,
                });
            }
            Ok(())
        })?;
        Ok(Memory {
            seats: seats.into_values().collect(),
            conversations,
        })
    }

    /// Who issued which id, the oldest first.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn owners(&self) -> Result<Vec<(String, AccountId)>, StoreError> {
        let mut owners = Vec::new();
        self.each("SELECT id, seat FROM owners ORDER BY noted_at", |row| {
            owners.push((row.get(0)?, AccountId::new(&row.get::<_, String>(1)?)));
            Ok(())
        })?;
        Ok(owners)
    }

    /// The number of the last request; 0 where there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn last_number(&self) -> Result<i64, StoreError> {
        let last = self.db.query_row("SELECT max(number) FROM requests", [], |row| {
            row.get::<_, Option<i64>>(0)
        })?;
        Ok(last.unwrap_or(0))
    }

    fn each(&self, query: &str, mut row: impl FnMut(&Row<'_>) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        Ok(each(&self.db, query, [], &mut row)?)
    }
}

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
pub struct History(Connection);

impl History {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(PATIENCE)?;
        Ok(Self(db))
    }

    /// Requests that ended, the newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn requests(&self, wanted: &Wanted) -> Result<Vec<RequestRecord>, StoreError> {
        let query = "SELECT * FROM requests WHERE number < ?1 AND (?2 IS NULL OR seat = ?2)
            AND (?3 IS NULL OR device = ?3) AND (NOT ?4 OR status >= 400 OR ending = 'broken')
            ORDER BY number DESC LIMIT ?5";
        let mut found = Vec::new();
        let asked = params![
            wanted.before.unwrap_or(i64::MAX),
            wanted.seat.as_ref().map(AccountId::as_str),
            wanted.device,
            wanted.failed,
            wanted.limit,
        ];
        each(&self.0, query, asked, &mut |row| {
            found.push(read_request(row)?);
            Ok(())
        })?;
        Ok(found)
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
        let mut found = Vec::new();
        each(&self.0, &query, [asked], &mut |row| {
            found.push(SwitchRecord {
                at: row.get(0)?,
                request: row.get(1)?,
                from: AccountId::new(&row.get::<_, String>(2)?),
                to: AccountId::new(&row.get::<_, String>(3)?),
                cause: Cause::from_word(&row.get::<_, String>(4)?).unwrap_or(Cause::Room),
                words: row.get(5)?,
            });
            Ok(())
        })?;
        Ok(found)
    }

    /// How full a seat's windows were since a moment: time in milliseconds, window, basis points; the oldest first.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn usage(&self, seat: &AccountId, since: Timestamp) -> Result<Vec<(i64, WindowKind, u16)>, StoreError> {
        let query = "SELECT at, window, used FROM usage WHERE seat = ? AND at >= ? ORDER BY at, window";
        let mut found = Vec::new();
        each(
            &self.0,
            query,
            params![seat.as_str(), since.as_millisecond()],
            &mut |row| {
                if let Some(kind) = WindowKind::from_word(&row.get::<_, String>(1)?) {
                    found.push((row.get(0)?, kind, row.get(2)?));
                }
                Ok(())
            },
        )?;
        Ok(found)
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
        each(&self.0, query, [since.as_millisecond()], &mut |row| {
            let model = row.get::<_, Option<String>>(2)?.unwrap_or_default();
            each_one(row.get(0)?, row.get(1)?, model, tokens(row, 3)?);
            Ok(())
        })?;
        Ok(())
    }
}

fn each(
    db: &Connection,
    query: &str,
    asked: impl rusqlite::Params,
    row: &mut impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut query = db.prepare(query)?;
    let mut rows = query.query(asked)?;
    while let Some(next) = rows.next()? {
        row(next)?;
    }
    Ok(())
}

/// The seat that the row's first column names.
fn seat_in<'a>(seats: &'a mut BTreeMap<String, SeatMemory>, row: &Row<'_>) -> rusqlite::Result<&'a mut SeatMemory> {
    let name: String = row.get(0)?;
    let seat = SeatMemory {
        id: AccountId::new(&name),
        windows: Vec::new(),
        benches: Vec::new(),
        served: Vec::new(),
        asked_at: None,
        not_before: None,
    };
    Ok(seats.entry(name).or_insert(seat))
}

/// A time in milliseconds; `None` also for one that no calendar has.
fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let at: Option<i64> = row.get(column)?;
    Ok(at.and_then(|at| Timestamp::from_millisecond(at).ok()))
}

fn write_seat(db: &Connection, seat: &SeatMemory) -> rusqlite::Result<()> {
    let id = seat.id.as_str();
    for table in ["readings", "benches", "served"] {
        db.prepare_cached(&format!("DELETE FROM {table} WHERE seat = ?"))?
            .execute([id])?;
    }
    let ms = |at: Option<Timestamp>| at.map(Timestamp::as_millisecond);
    for (kind, window) in &seat.windows {
        db.prepare_cached("INSERT INTO readings VALUES (?, ?, ?, ?, ?)")?
            .execute(params![
                id,
                kind.word(),
                window.used.basis_points(),
                ms(window.resets_at),
                window.observed_at.as_millisecond(),
            ])?;
    }
    for bench in &seat.benches {
        db.prepare_cached("INSERT OR REPLACE INTO benches VALUES (?, ?, ?, ?, ?, ?)")?
            .execute(params![
                id,
                bench.scope.word(),
                bench.cause.word(),
                bench.source.word(),
                bench.since.as_millisecond(),
                // Up to the next whole millisecond: a rest that ends too soon asks too soon.
                bench.until.as_millisecond().saturating_add(1),
            ])?;
    }
    for (model, at) in &seat.served {
        db.prepare_cached("INSERT OR REPLACE INTO served VALUES (?, ?, ?)")?
            .execute(params![id, model, at.as_millisecond()])?;
    }
    db.prepare_cached("INSERT OR REPLACE INTO polls VALUES (?, ?, ?)")?
        .execute(params![id, ms(seat.asked_at), ms(seat.not_before)])?;
    Ok(())
}

/// Writes down how full the windows are, where that is news.
fn write_usage(db: &Connection, seat: &SeatMemory, known: &Noted, noted: &mut Noted) -> rusqlite::Result<()> {
    for (kind, window) in &seat.windows {
        let (used, at) = (window.used.basis_points(), window.observed_at.as_millisecond());
        let key = (seat.id.clone(), kind.clone());
        let is_news = known
            .get(&key)
            .is_none_or(|&(last, then)| at > then && (used.abs_diff(last) >= NOTABLE_BP || at - then >= NOTABLE_MS));
        if is_news {
            db.prepare_cached("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)")?
                .execute(params![seat.id.as_str(), kind.word(), at, used])?;
            noted.insert(key, (used, at));
        }
    }
    Ok(())
}

fn write_request(db: &Connection, request: &RequestRecord) -> rusqlite::Result<()> {
    let tokens = request.tokens.as_ref();
    let figure = |of: fn(&Tokens) -> u64| tokens.map(|tokens| of(tokens).min(i64::MAX as u64).cast_signed());
    let attempts = serde_json::to_string(&request.attempts).unwrap_or_default();
    db.prepare_cached("INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?
        .execute(params![
            request.number,
            request.at,
            request.device,
            request.path,
            request.model,
            request.conversation.map(u64::cast_signed),
            request.seat.as_ref().map(AccountId::as_str),
            request.status,
            request.reason,
            figure(|tokens| tokens.input),
            figure(|tokens| tokens.output),
            figure(|tokens| tokens.cache_read),
            figure(|tokens| tokens.cache_write),
            request.head_ms.cast_signed(),
            request.whole_ms.cast_signed(),
            request.end.word(),
            attempts,
        ])?;
    Ok(())
}

fn read_request(row: &Row<'_>) -> rusqlite::Result<RequestRecord> {
    let attempts: String = row.get(16)?;
    let attempts: Vec<Attempt> = serde_json::from_str(&attempts).unwrap_or_default();
    Ok(RequestRecord {
        number: row.get(0)?,
        at: row.get(1)?,
        device: row.get(2)?,
        path: row.get(3)?,
        model: row.get(4)?,
        conversation: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
        seat: row.get::<_, Option<String>>(6)?.map(|seat| AccountId::new(&seat)),
        status: row.get(7)?,
        reason: row.get(8)?,
        tokens: row.get::<_, Option<i64>>(9)?.map(|_| tokens(row, 9)).transpose()?,
        head_ms: row.get::<_, i64>(13)?.cast_unsigned(),
        whole_ms: row.get::<_, i64>(14)?.cast_unsigned(),
        end: End::from_word(&row.get::<_, String>(15)?),
        attempts,
    })
}

/// The four figures from that column on.
fn tokens(row: &Row<'_>, first: usize) -> rusqlite::Result<Tokens> {
    let figure =
        |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.unwrap_or(0).cast_unsigned());
    Ok(Tokens {
        input: figure(first)?,
        output: figure(first + 1)?,
        cache_read: figure(first + 2)?,
        cache_write: figure(first + 3)?,
    })
}

fn write_switch(db: &Connection, switch: &SwitchRecord) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO switches VALUES (?, ?, ?, ?, ?, ?)")?
        .execute(params![
            switch.at,
            switch.request,
            switch.from.as_str(),
            switch.to.as_str(),
            switch.cause.word(),
            switch.words,
        ])?;
    Ok(())
}

/// Drops history from before `since`, and state that is of no use any longer at `now`.
fn trim(db: &Connection, now: i64, since: i64) -> rusqlite::Result<()> {
    for table in ["requests", "switches", "usage"] {
        db.execute(&format!("DELETE FROM {table} WHERE at < ?"), [since])?;
    }
    let kept_for = pool::affinity::KEPT_FOR.as_millis() as i64;
    db.execute("DELETE FROM conversations WHERE used_at < ?", [now - kept_for])?;
    db.execute("DELETE FROM benches WHERE until < ?", [now])?;
    db.execute("DELETE FROM readings WHERE observed_at < ?", [now - STATE_KEPT_MS])?;
    db.execute("DELETE FROM served WHERE at < ?", [now - STATE_KEPT_MS])?;
    db.execute(
        "DELETE FROM owners WHERE noted_at < (SELECT noted_at FROM owners ORDER BY noted_at DESC LIMIT 1 OFFSET ?)",
        [OWNERS],
    )?;
    Ok(())
}

/// Makes the file and its folder, for their owner alone. SQLite gives the files beside it the same mode.
fn close_to_others(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Gives the file, and what SQLite keeps beside it, another name.
fn move_aside(path: &Path, error: &StoreError, now: Timestamp) -> Result<Aside, StoreError> {
    let why = match error {
        StoreError::Newer(_) => "newer",
        _ => "unreadable",
    };
    let named = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let base = format!(".{why}-{}", now.as_second());
    // Two within a second are two all the same.
    let aside = (1..)
        .map(|n| if n == 1 { base.clone() } else { format!("{base}-{n}") })
        .find(|suffix| !named(suffix).exists())
        .unwrap_or(base);
    fs::rename(path, named(&aside)).map_err(|source| StoreError::File {
        path: path.to_owned(),
        source,
    })?;
    for beside in ["-wal", "-shm"] {
        // Often there is none; left where it is, it would belong to the new file.
        if fs::rename(named(beside), named(&format!("{aside}{beside}"))).is_err() {
            let _ = fs::remove_file(named(beside));
        }
    }
    Ok(Aside {
        path: named(&aside),
        why: error.to_string(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn opened(folder: &Path) -> Store {
        let (store, aside) = Store::open(&folder.join("router.db"), at(0)).unwrap();
        assert_eq!(aside, None);
        store
    }

    fn memory_of(seat: &str, used: u16, second: i64) -> SeatMemory {
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
                    BenchCause::Limit,
                    Source::Window,
                    at(second),
                    at(second + 100),
                ),
                Bench::new(
                    Scope::Window(fable),
                    BenchCause::Limit,
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

    fn of_seats(seats: &[SeatMemory]) -> Batch {
        Batch {
            seats: seats.iter().map(|seat| (seat.id.clone(), seat.clone())).collect(),
            ..Batch::default()
        }
    }

    #[test]
    fn what_is_known_comes_back_and_the_newest_replaces_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(folder.path());
        let (old, new) = (memory_of("a", 9_000, 10), memory_of("a", 200, 500));
        let other = memory_of("b", 5_000, 20);
        store.write(&of_seats(&[old, other.clone()]), true).unwrap();
        let mut last = of_seats(&[SeatMemory {
            benches: Vec::new(),
            ..new.clone()
        }]);
        last.conversations
            .insert(Conversation(u64::MAX - 1), (AccountId::new("a"), at(30)));
        last.owners.push(("file_1".into(), AccountId::new("b"), at(30)));
        store.write(&last, true).unwrap();
        drop(store);

        let store = opened(folder.path());
        let Memory { seats, conversations } = store.memory().unwrap();
        assert_eq!(seats[0].benches, []);
        let kept: BTreeMap<_, _> = seats[0].windows.iter().cloned().collect();
        assert_eq!(kept, new.windows.iter().cloned().collect());
        assert_eq!((&seats[0].served, seats[0].asked_at), (&new.served, new.asked_at));
        // A rest comes back no shorter than it was, and at most a millisecond longer.
        for (kept, was) in seats[1].benches.iter().zip(&other.benches) {
            assert_eq!(
                (&kept.scope, kept.cause, kept.source, kept.since),
                (&was.scope, was.cause, was.source, was.since)
            );
            let longer = kept.until.duration_since(was.until).as_millis();
            assert!((0..=1).contains(&longer), "{longer} ms");
        }
        assert_eq!(seats[1].benches.len(), 2);
        assert_eq!(conversations[0].conversation, Conversation(u64::MAX - 1));
        assert_eq!(store.owners().unwrap(), [("file_1".to_owned(), AccountId::new("b"))]);
    }

    #[test]
    fn what_cannot_be_read_or_is_newer_is_moved_aside_and_never_in_the_way() {
        type Spoil = fn(&Path);
        let spoils: [(&str, Spoil); 5] = [
            ("unreadable", |path| fs::write(path, "this is no store").unwrap()),
            ("unreadable", |path| {
                let whole = fs::read(path).unwrap();
                fs::write(path, &whole[..whole.len() / 2]).unwrap();
            }),
            ("unreadable", |path| {
                let mut whole = fs::read(path).unwrap();
                whole[4_096..].fill(0x5a);
                fs::write(path, whole).unwrap();
            }),
            ("unreadable", |path| {
                Connection::open(path)
                    .unwrap()
                    .execute_batch("DROP TABLE benches")
                    .unwrap();
            }),
            ("newer", |path| {
                Connection::open(path)
                    .unwrap()
                    .pragma_update(None, "user_version", 2)
                    .unwrap();
            }),
        ];
        for (at_case, (why, spoil)) in spoils.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("router.db");
            let mut store = opened(folder.path());
            store.write(&of_seats(&[memory_of("a", 1, 1)]), true).unwrap();
            drop(store);
            spoil(&path);
            let spoilt = fs::read(&path).unwrap();
            let (store, aside) = Store::open(&path, at(1_790_000_000)).unwrap();
            let aside = aside.unwrap_or_else(|| panic!("case {at_case} was taken as it is"));
            assert_eq!(aside.path, folder.path().join(format!("router.db.{why}-1790000000")));
            assert!(
                fs::read(&aside.path).unwrap().len() >= spoilt.len().min(4_096),
                "it is kept"
            );
            assert_eq!(store.memory().unwrap(), Memory::default());
        }
    }

    #[test]
    fn the_files_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("state");
        let mut store = opened(&below);
        store.write(&of_seats(&[memory_of("a", 1, 1)]), true).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let files: Vec<_> = fs::read_dir(&below)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(files.len() >= 2, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        drop(store);
        fs::set_permissions(below.join("router.db"), fs::Permissions::from_mode(0o644)).unwrap();
        drop(opened(&below));
        assert_eq!(mode(&below.join("router.db")), 0o600);
    }

    #[test]
    fn a_batch_that_a_full_disk_cuts_is_not_there_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(folder.path());
        store.at_most_pages(40);
        let mut batch = of_seats(&[memory_of("a", 1, 1)]);
        batch.owners = (0..10_000)
            .map(|n| (format!("file_{n:064}"), AccountId::new("a"), at(1)))
            .collect();
        let error = store.write(&batch, true).unwrap_err();
        assert!(!error.is_of_the_file(), "{error}");
        assert_eq!(store.memory().unwrap(), Memory::default());
        store.write(&of_seats(&[memory_of("a", 1, 1)]), true).unwrap();
    }

    #[test]
    fn two_processes_may_write_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (opened(folder.path()), opened(folder.path()));
        for n in 0..20 {
            one.write(&of_seats(&[memory_of("a", n, n.into())]), true).unwrap();
            other.write(&of_seats(&[memory_of("b", n, n.into())]), true).unwrap();
        }
        let ids: Vec<_> = one
            .memory()
            .unwrap()
            .seats
            .into_iter()
            .map(|seat| seat.id.to_string())
            .collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn usage_is_written_down_where_it_is_news() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = opened(folder.path());
        for (used, second) in [(100, 0), (105, 60), (110, 120), (110, 180), (110, 1_200)] {
            let mut seat = memory_of("a", used, second);
            seat.windows.truncate(1);
            store.write(&of_seats(&[seat]), true).unwrap();
        }
        let history = History::open(&folder.path().join("router.db")).unwrap();
        let points: Vec<_> = history
            .usage(&AccountId::new("a"), at(0))
            .unwrap()
            .into_iter()
            .map(|(ms, _, used)| (ms / 1_000, used))
            .collect();
        assert_eq!(points, [(0, 100), (120, 110), (1_200, 110)]);
    }
}
