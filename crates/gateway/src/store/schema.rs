//! The form of the file: its tables, and which version of them it has.

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// The form of the file that this version writes.
const VERSION: i64 = 1;

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

/// Lays out a new file; refuses a newer one.
pub(super) fn lay_out(db: &mut Connection) -> Result<(), StoreError> {
    let form = |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    match form(db)? {
        VERSION => return Ok(()),
        newer @ VERSION.. => return Err(StoreError::Newer(newer)),
        _ => {}
    }
    let begun = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been quicker.
    if form(&begun)? < VERSION {
        begun.execute_batch(SCHEMA)?;
        begun.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(begun.commit()?)
}
