//! Requests and switches as rows: how they are written, and how they are read back.

use pool::AccountId;
use rusqlite::{Connection, Row, params};

use super::rows::seat;
use super::{Store, StoreError};
use crate::meter::Tokens;
use crate::record::{Attempt, Cause, End, RequestRecord, SwitchRecord};

impl Store {
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
}

pub(super) fn write_request(db: &Connection, request: &RequestRecord) -> rusqlite::Result<()> {
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

pub(super) fn read_request(row: &Row<'_>) -> rusqlite::Result<RequestRecord> {
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
pub(super) fn tokens(row: &Row<'_>, first: usize) -> rusqlite::Result<Tokens> {
    let figure =
        |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.unwrap_or(0).cast_unsigned());
    Ok(Tokens {
        input: figure(first)?,
        output: figure(first + 1)?,
        cache_read: figure(first + 2)?,
        cache_write: figure(first + 3)?,
    })
}

pub(super) fn write_switch(db: &Connection, switch: &SwitchRecord) -> rusqlite::Result<()> {
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

pub(super) fn read_switch(row: &Row<'_>) -> rusqlite::Result<SwitchRecord> {
    Ok(SwitchRecord {
        at: row.get(0)?,
        request: row.get(1)?,
        from: seat(row, 2)?,
        to: seat(row, 3)?,
        cause: Cause::from_word(&row.get::<_, String>(4)?).unwrap_or(Cause::Room),
        words: row.get(5)?,
    })
}
