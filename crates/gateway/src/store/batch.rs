//! What is written as one: a batch is in the file whole, or nothing of it is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pool::{AccountId, Conversation, SeatMemory};
use rusqlite::{Connection, TransactionBehavior};

use super::records::{write_request, write_switch};
use super::state::{write_conversation, write_owner, write_seat};
use super::usage::{Noted, write_usage};
use super::{Store, StoreError};
use crate::record::{RequestRecord, SwitchRecord};

/// How many owners of ids are kept.
const OWNERS: i64 = 10_000;
/// How long what is known of a seat, of its models and its windows is of use.
const STATE_KEPT_MS: i64 = 30 * 24 * 3_600 * 1_000;

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

impl Store {
    /// Writes the batch whole, or nothing of it.
    ///
    /// # Errors
    /// If the file takes nothing.
    pub fn write(&mut self, batch: &Batch, keeps_history: bool) -> Result<(), StoreError> {
        let begun = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut noted = Noted::new();
        for seat in batch.seats.values() {
            write_seat(&begun, seat)?;
            if keeps_history {
                write_usage(&begun, seat, &self.noted, &mut noted)?;
            }
        }
        for (conversation, (seat, used_at)) in &batch.conversations {
            write_conversation(&begun, *conversation, seat, *used_at)?;
        }
        for (id, seat, noted_at) in &batch.owners {
            write_owner(&begun, id, seat, *noted_at)?;
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

#[cfg(test)]
mod tests {
    use pool::Memory;

    use super::super::given::{at, memory_of, of_seats, opened};
    use super::*;

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
}
