//! The thread that carries notes to the store, and what it does when the store does not take them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::mailbox::Mailbox;
use super::{OWNERS_WAIT, Trouble};
use crate::ports::Clock;
use crate::store::{Aside, Batch, Store, StoreError};

/// Carries batches from the mailbox to the store.
pub(super) struct Carrier {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) path: PathBuf,
    /// `None` as long as it cannot be opened.
    pub(super) store: Option<Store>,
    /// The number of the last request, for whoever gives the next one.
    pub(super) last_number: Arc<AtomicI64>,
    /// The last number that a store had when it was opened late.
    pub(super) number_before: i64,
    pub(super) clock: Arc<dyn Clock>,
}

impl Carrier {
    /// Carries until the recorder closes.
    pub(super) fn run(mut self) {
        // What the store would not take.
        let mut left = Batch::default();
        while let Some((batch, keeps_history)) = self.mailbox.take(!left.is_empty() || self.store.is_none()) {
            let mut batch = newest(std::mem::take(&mut left), batch);
            match self.write(&mut batch, keeps_history) {
                Ok(()) => self.mailbox.written(),
                // Even of one that was begun anew.
                Err(error) if error.is_of_the_file() => {
                    tracing::error!("there is no store from here on, so nothing more outlasts this run: {error}");
                    self.mailbox.lock().trouble = Some(Trouble::None(error.to_string()));
                    break;
                }
                Err(error) => left = self.mailbox.refused(batch, &error),
            }
            self.mailbox.done();
        }
        self.mailbox.shut();
    }

    /// Writes the batch to the store, to one that is opened only now, or to one that is begun anew.
    fn write(&mut self, batch: &mut Batch, keeps_history: bool) -> Result<(), StoreError> {
        let mut store = match self.store.take() {
            Some(store) => store,
            None => self.open_late()?,
        };
        self.drop_reused_numbers(batch);
        let mut written = store.write(batch, keeps_history);
        if let Err(error) = &written
            && error.is_of_the_file()
        {
            let (new, aside) = store.begin_anew(error, self.clock.now())?;
            told_aside(new.path(), &aside);
            self.mailbox.begun_anew(Some(aside));
            store = new;
            written = store.write(batch, keeps_history);
        }
        self.store = Some(store);
        written
    }

    fn open_late(&mut self) -> Result<Store, StoreError> {
        let (store, aside) = Store::open(&self.path, self.clock.now())?;
        self.number_before = store.last_number()?;
        self.last_number.fetch_max(self.number_before, Ordering::Relaxed);
        if let Some(aside) = &aside {
            told_aside(&self.path, aside);
        }
        self.mailbox.begun_anew(aside);
        Ok(store)
    }

    /// Where the last run could not be read, numbers began at one: those that it gave are its own.
    fn drop_reused_numbers(&self, batch: &mut Batch) {
        let all = batch.requests.len() + batch.switches.len();
        batch.requests.retain(|request| request.number > self.number_before);
        batch.switches.retain(|switch| switch.request > self.number_before);
        self.mailbox.lock().dropped += (all - batch.requests.len() - batch.switches.len()) as u64;
    }
}

impl Mailbox {
    fn written(&self) {
        let mut inside = self.lock();
        if matches!(inside.trouble, Some(Trouble::TakesNothing(_))) {
            tracing::info!("the store takes notes again");
            inside.trouble = None;
        }
    }

    /// The store is another one from here on, perhaps in place of one that was moved aside.
    fn begun_anew(&self, aside: Option<Aside>) {
        let mut inside = self.lock();
        inside.wants_all = true;
        if let Some(aside) = aside {
            inside.trouble = Some(Trouble::MovedAside(aside));
        }
    }

    /// Says so, once.
    pub(super) fn takes_nothing(&self, error: &StoreError) {
        let mut inside = self.lock();
        if !matches!(inside.trouble, Some(Trouble::TakesNothing(_))) {
            tracing::warn!("the store takes nothing, so history is dropped until it does: {error}");
        }
        inside.trouble = Some(Trouble::TakesNothing(error.to_string()));
    }

    /// The store takes nothing now. State waits; history does not.
    fn refused(&self, batch: Batch, error: &StoreError) -> Batch {
        self.takes_nothing(error);
        let mut inside = self.lock();
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
    use pool::{AccountId, Conversation};

    use super::super::given::{Standing, at, numbers, open, request};
    use super::super::{HISTORY_WAITS, Recorder};
    use super::*;

    /// A recorder over that store.
    fn over(store: Store) -> Recorder {
        let recorder = Recorder::of(store.path().to_owned(), true);
        recorder.carry(Some(store), Arc::new(Standing)).unwrap();
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
