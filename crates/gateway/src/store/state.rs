//! The state: what is known of seats, conversations and ids, each in place of what was.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pool::bench::{Bench, Cause, Scope, Source};
use pool::{AccountId, Bound, Conversation, Memory, SeatMemory, Utilization, Window, WindowKind};
use rusqlite::{Connection, Row, params};

use super::rows::{all, each, seat, time};
use super::{Store, StoreError};

impl Store {
    /// What the pool knew.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn memory(&self) -> Result<Memory, StoreError> {
        let mut seats: BTreeMap<String, SeatMemory> = BTreeMap::new();
        let query = "SELECT seat, asked_at, not_before FROM polls";
        each(&self.db, query, [], |row| {
            let seat = seat_in(&mut seats, row)?;
            (seat.asked_at, seat.not_before) = (time(row, 1)?, time(row, 2)?);
            Ok(())
        })?;
        let query = "SELECT seat, window, used, resets_at, observed_at FROM readings";
        each(&self.db, query, [], |row| {
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
        })?;
        let query = "SELECT seat, scope, cause, source, since, until FROM benches";
        each(&self.db, query, [], |row| {
            let (scope, cause, source): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
            let words = Scope::from_word(&scope)
                .zip(Cause::from_word(&cause))
                .zip(Source::from_word(&source));
            let times = time(row, 4)?.zip(time(row, 5)?);
            if let Some((((scope, cause), source), (since, until))) = words.zip(times) {
                let bench = Bench::new(scope, cause, source, since, until);
                seat_in(&mut seats, row)?.benches.push(bench);
            }
            Ok(())
        })?;
        let query = "SELECT seat, model, at FROM served";
        each(&self.db, query, [], |row| {
            if let Some(at) = time(row, 2)? {
                let model = row.get(1)?;
                seat_in(&mut seats, row)?.served.push((model, at));
            }
            Ok(())
        })?;
        let mut conversations = Vec::new();
        let query = "SELECT conversation, seat, used_at FROM conversations";
        each(&self.db, query, [], |row| {
            if let Some(used_at) = time(row, 2)? {
                conversations.push(Bound {
                    conversation: Conversation(row.get::<_, i64>(0)?.cast_unsigned()),
                    account: seat(row, 1)?,
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
        let query = "SELECT id, seat FROM owners ORDER BY noted_at";
        all(&self.db, query, [], |row| Ok((row.get(0)?, seat(row, 1)?)))
    }
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

pub(super) fn write_seat(db: &Connection, seat: &SeatMemory) -> rusqlite::Result<()> {
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

pub(super) fn write_conversation(
    db: &Connection,
    conversation: Conversation,
    seat: &AccountId,
    used_at: Timestamp,
) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO conversations VALUES (?, ?, ?)")?
        .execute(params![
            conversation.0.cast_signed(),
            seat.as_str(),
            used_at.as_millisecond()
        ])?;
    Ok(())
}

pub(super) fn write_owner(db: &Connection, id: &str, seat: &AccountId, noted_at: Timestamp) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO owners VALUES (?, ?, ?)")?
        .execute(params![id, seat.as_str(), noted_at.as_millisecond()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::given::{at, memory_of, of_seats, opened};
    use super::*;

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
}
