//! How a query's rows are read, and the columns that several tables have.

use jiff::Timestamp;
use pool::AccountId;
use rusqlite::{Connection, Params, Row};

use super::StoreError;

/// What `read` makes of each row.
pub(super) fn all<T>(
    db: &Connection,
    query: &str,
    asked: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let rows = db.prepare(query)?.query_map(asked, read)?.collect::<Result<_, _>>()?;
    Ok(rows)
}

/// Shows each row to `look`, one at a time.
pub(super) fn each(
    db: &Connection,
    query: &str,
    asked: impl Params,
    look: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let () = db.prepare(query)?.query_map(asked, look)?.collect::<Result<_, _>>()?;
    Ok(())
}

/// The seat that a column names.
pub(super) fn seat(row: &Row<'_>, column: usize) -> rusqlite::Result<AccountId> {
    Ok(AccountId::new(&row.get::<_, String>(column)?))
}

/// A time in milliseconds; `None` also for one that no calendar has.
pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let at: Option<i64> = row.get(column)?;
    Ok(at.and_then(|at| Timestamp::from_millisecond(at).ok()))
}
