//! The thread that carries notes to the store, and what it does when the store does not take them.

use std::path::Path;

use super::mailbox::Mailbox;
use super::{OWNERS_WAIT, Trouble};
use crate::ports::Clock;
use crate::store::{Aside, Batch, Store, StoreError};

impl Mailbox {
    /// Carries batches to the store until the recorder closes.
    pub(super) fn carry(&self, mut store: Store, clock: &dyn Clock) {
        // What the store would not take.
        let mut left = Batch::default();
        while let Some((batch, keeps_history)) = self.take(!left.is_empty()) {
            let batch = newest(std::mem::take(&mut left), batch);
            let mut written = store.write(&batch, keeps_history);
            if let Err(error) = &written
                && error.is_of_the_file()
            {
                match store.begin_anew(error, clock.now()) {
                    Ok((new, aside)) => {
                        told_aside(new.path(), &aside);
                        store = new;
                        self.begun_anew(aside);
                        written = store.write(&batch, keeps_history);
                    }
                    Err(error) => {
                        tracing::error!("there is no store from here on, so nothing more outlasts this run: {error}");
                        self.lock().trouble = Some(Trouble::None(error.to_string()));
                        break;
                    }
                }
            }
            match written {
                Ok(()) => self.written(),
                Err(error) => left = self.refused(batch, &error),
            }
            self.done();
        }
        self.shut();
    }

    fn written(&self) {
        let mut inside = self.lock();
        if matches!(inside.trouble, Some(Trouble::TakesNothing(_))) {
            tracing::info!("the store takes notes again");
            inside.trouble = None;
        }
    }

    fn begun_anew(&self, aside: Aside) {
        let mut inside = self.lock();
        inside.wants_all = true;
        inside.trouble = Some(Trouble::MovedAside(aside));
    }

    /// The store takes nothing now. State waits; history does not.
    fn refused(&self, batch: Batch, error: &StoreError) -> Batch {
        let mut inside = self.lock();
        if !matches!(inside.trouble, Some(Trouble::TakesNothing(_))) {
            tracing::warn!("the store takes nothing, so history is dropped until it does: {error}");
        }
        inside.trouble = Some(Trouble::TakesNothing(error.to_string()));
        inside.dropped += (batch.requests.len() + batch.switches.len()) as u64;
        // Nothing is tried twice at the end.
        inside.closed |= inside.closing;
        Batch {
            requests: Vec::new(),
            switches: Vec::new(),
            ..batch
        }
    }
}

/// What `left` says and `batch` does not say anew, with all of `batch`.
fn newest(left: Batch, mut batch: Batch) -> Batch {
    for (id, seat) in left.seats {
        batch.seats.entry(id).or_insert(seat);
    }
    for (conversation, bound) in left.conversations {
        batch.conversations.entry(conversation).or_insert(bound);
    }
    batch.owners.splice(0..0, left.owners);
    batch.owners.truncate(OWNERS_WAIT);
    batch.requests.splice(0..0, left.requests);
    batch.switches.splice(0..0, left.switches);
    batch.trim = batch.trim.or(left.trim);
    batch
}

/// Says where a file lies now that would not do.
pub(super) fn told_aside(path: &Path, aside: &Aside) {
    tracing::warn!(
        "{} could not be used ({}) and is now {}; a new one was begun",
        path.display(),
        aside.why,
        aside.path.display()
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pool::{AccountId, Conversation};

    use super::super::given::{Standing, at, numbers, open, request};
    use super::super::{HISTORY_WAITS, Recorder};
    use super::*;

    /// A recorder over that store.
    fn over(store: Store) -> Recorder {
        let recorder = Recorder::of(store.path().to_owned(), true);
        recorder.carry(store, Arc::new(Standing)).unwrap();
        recorder
    }

    #[test]
    fn history_beyond_what_may_wait_is_dropped_and_counted_and_nobody_waits() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = open(folder.path());
        // Another process keeps the file; the writer waits for it, and nobody else.
        let other = rusqlite::Connection::open(recorder.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let sent = 3 * HISTORY_WAITS as i64;
        for number in 1..=sent {
            recorder.request(request(number));
        }
        assert!(recorder.dropped() > 0);
        other.execute_batch("COMMIT").unwrap();
        let dropped = recorder.dropped();
        assert_eq!(numbers(&recorder).len() as i64 + dropped as i64, sent);
    }

    #[test]
    fn cf_02_a_full_disk_costs_history_and_never_what_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router.db");
        let (store, _) = Store::open(&path, at(0)).unwrap();
        store.at_most_pages(40);
        let recorder = over(store);
        recorder.bound(Conversation(7), &AccountId::new("a"), at(5));
        for number in 1..=3_000 {
            recorder.request(request(number));
        }
        recorder.flush();
        assert!(
            matches!(recorder.trouble(), Some(Trouble::TakesNothing(_))),
            "{:?}",
            recorder.trouble()
        );
        assert_eq!(recorder.dropped(), 3_000);
        // What is known still fits.
        recorder.bound(Conversation(8), &AccountId::new("a"), at(5));
        recorder.flush();
        assert_eq!(recorder.trouble(), None);
        drop(recorder);
        let (store, aside) = Store::open(&path, at(0)).unwrap();
        assert_eq!(aside, None, "a full disk is no reason to begin anew");
        assert_eq!(store.memory().unwrap().conversations.len(), 2);
    }

    #[test]
    fn a_store_that_is_damaged_while_it_runs_is_begun_anew_and_wants_all() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = open(folder.path());
        recorder.request(request(1));
        recorder.flush();
        let other = rusqlite::Connection::open(recorder.path()).unwrap();
        other.execute_batch("DROP TABLE requests").unwrap();
        recorder.request(request(2));
        recorder.flush();
        assert_eq!(numbers(&recorder), [2], "what waited is in the new one");
        assert!(matches!(recorder.trouble(), Some(Trouble::MovedAside(aside)) if aside.path.exists()));
        assert!(recorder.wants_all() && !recorder.wants_all());
    }
}
