//! Writes down what should outlast the process, off the request path: notes are put into a mailbox, and one thread
//! carries them to the store.
//!
//! Nobody waits for the disk. What is known of seats and conversations replaces what was noted before, so the mailbox
//! cannot grow by it; history has a bound, and what comes beyond it is dropped and counted.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Conversation, Memory, SeatMemory};

use crate::ports::Clock;
use crate::record::{RequestRecord, SwitchRecord};
use crate::store::{Aside, Batch, History, Store, StoreError};

/// How many requests and switches, owners, and conversations may wait.
const HISTORY_WAITS: usize = 4_096;
const OWNERS_WAIT: usize = 1_024;
const CONVERSATIONS_WAIT: usize = 10_000;
/// How long notes gather before they are written as one; a rest does not wait.
const GATHER: Duration = Duration::from_millis(250);
/// How long the store is left alone after it took nothing.
const RETRY: Duration = Duration::from_secs(10);
/// How much of the history is at hand without asking the disk.
const SWITCHES_SHOWN: usize = 10;
const REQUESTS_SHOWN: usize = 10_000;
/// In seconds.
const HOUR: i64 = 3_600;
/// How long one who wants to read waits for what was noted before.
const FLUSH: Duration = Duration::from_secs(2);

/// What is the matter with the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The file that was there would not do, and a new one was begun.
    MovedAside(Aside),
    /// It takes nothing now; it is tried again.
    TakesNothing(String),
    /// There is none in this run.
    None(String),
}

/// What the last run knew.
#[derive(Debug, Default)]
pub struct Remembered {
    /// The pool's.
    pub memory: Memory,
    /// Who issued which id, the oldest first.
    pub owners: Vec<(String, AccountId)>,
}

/// Takes notes.
pub struct Recorder {
    mailbox: Arc<Mailbox>,
    path: PathBuf,
    last_number: AtomicI64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Mailbox {
    inside: Mutex<Inside>,
    /// Told when there is something to write.
    filled: Condvar,
    /// Told when something was written, or could not be.
    emptied: Condvar,
}

#[derive(Default)]
struct Inside {
    batch: Batch,
    /// Whether it is not to wait for more.
    urgent: bool,
    closing: bool,
    /// Whether nobody will ever write.
    closed: bool,
    keeps_history: bool,
    /// How many batches were taken out, and how many of them are done with.
    taken: u64,
    done: u64,
    /// Notes of the history that were dropped.
    dropped: u64,
    /// Whether the store is new, and wants all that is known.
    wants_all: bool,
    trouble: Option<Trouble>,
    /// The last switches, the newest first, and when the requests of the last hour came: what a screen shows all the time.
    switches: VecDeque<SwitchRecord>,
    /// In seconds since the epoch, like what follows.
    requests: VecDeque<i64>,
    refused_at: Option<i64>,
}

impl Recorder {
    /// Opens the store at `path`, and reads what the last run knew. Where there can be no store, notes go nowhere.
    pub fn open(path: PathBuf, keeps_history: bool, clock: Arc<dyn Clock>) -> (Self, Remembered) {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.lock().keeps_history = keeps_history;
        let mut recorder = Self {
            mailbox,
            path,
            last_number: AtomicI64::new(0),
            thread: Mutex::new(None),
        };
        let remembered = match recorder.begin(clock) {
            Ok(remembered) => remembered,
            Err(error) => {
                tracing::warn!("there is no store in this run, so nothing outlasts it: {error}");
                let mut inside = recorder.mailbox.lock();
                inside.closed = true;
                inside.trouble = Some(Trouble::None(error.to_string()));
                drop(inside);
                Remembered::default()
            }
        };
        (recorder, remembered)
    }

    /// Takes notes, and keeps none.
    pub fn nowhere() -> Self {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.lock().closed = true;
        Self {
            mailbox,
            path: PathBuf::new(),
            last_number: AtomicI64::new(0),
            thread: Mutex::new(None),
        }
    }

    fn begin(&mut self, clock: Arc<dyn Clock>) -> Result<Remembered, StoreError> {
        let (store, aside) = Store::open(&self.path, clock.now())?;
        if let Some(aside) = aside {
            told_aside(&self.path, &aside);
            self.mailbox.lock().trouble = Some(Trouble::MovedAside(aside));
        }
        let remembered = Remembered {
            memory: store.memory()?,
            owners: store.owners()?,
        };
        self.last_number = AtomicI64::new(store.last_number()?);
        // Of the run before, as far as there was one.
        if let Ok(switches) = History::open(&self.path).and_then(|history| history.switches(SWITCHES_SHOWN as u32)) {
            self.mailbox.lock().switches = switches.into();
        }
        let mailbox = Arc::clone(&self.mailbox);
        let thread = thread::Builder::new()
            .name("store".into())
            .spawn(move || mailbox.carry(store, &*clock))
            .map_err(|source| StoreError::File {
                path: self.path.clone(),
                source,
            })?;
        self.thread = Mutex::new(Some(thread));
        Ok(remembered)
    }

    /// A number for the next request.
    pub fn next_number(&self) -> i64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes what is known of seats now. It is written at once.
    pub fn seats(&self, seats: Vec<SeatMemory>) {
        self.note(true, |inside| {
            let seats = seats.into_iter().map(|seat| (seat.id.clone(), seat));
            inside.batch.seats.extend(seats);
        });
    }

    /// Notes where a conversation runs.
    pub fn bound(&self, conversation: Conversation, seat: &AccountId, now: Timestamp) {
        self.note(false, |inside| {
            let conversations = &mut inside.batch.conversations;
            if conversations.len() < CONVERSATIONS_WAIT || conversations.contains_key(&conversation) {
                conversations.insert(conversation, (seat.clone(), now));
            }
        });
    }

    /// Notes that a seat issued an id.
    pub fn owner(&self, id: String, seat: &AccountId, now: Timestamp) {
        self.note(true, |inside| {
            if inside.batch.owners.len() < OWNERS_WAIT {
                inside.batch.owners.push((id, seat.clone(), now));
            }
        });
    }

    /// Notes a request that ended.
    pub fn request(&self, request: RequestRecord) {
        {
            let mut inside = self.mailbox.lock();
            let at = request.at / 1_000;
            inside.requests.push_back(at);
            let ended = at - HOUR;
            while inside.requests.len() > REQUESTS_SHOWN || inside.requests.front().is_some_and(|at| *at < ended) {
                inside.requests.pop_front();
            }
        }
        self.history(|batch| batch.requests.push(request));
    }

    /// Notes a conversation that moved.
    pub fn switch(&self, switch: SwitchRecord) {
        {
            let mut inside = self.mailbox.lock();
            inside.switches.push_front(switch.clone());
            inside.switches.truncate(SWITCHES_SHOWN);
        }
        self.history(|batch| batch.switches.push(switch));
    }

    /// The last switches, the newest first. It is in memory: ask as often as you like.
    pub fn last_switches(&self) -> Vec<SwitchRecord> {
        self.mailbox.lock().switches.iter().cloned().collect()
    }

    /// Notes that a key was turned away.
    pub fn refused(&self, now: Timestamp) {
        self.mailbox.lock().refused_at = Some(now.as_second());
    }

    /// When a key was last turned away in this run, in seconds since the epoch.
    pub fn last_refused(&self) -> Option<i64> {
        self.mailbox.lock().refused_at
    }

    /// How many requests came in the hour before `now`, in seconds since the epoch.
    pub fn last_hour(&self, now: i64) -> usize {
        let inside = self.mailbox.lock();
        inside.requests.iter().filter(|at| **at >= now - HOUR).count()
    }

    /// Drops history that is older than `kept_for`; with none kept, all of it.
    pub fn trim(&self, now: Timestamp, kept_for: SignedDuration) {
        self.note(false, |inside| {
            inside.keeps_history = kept_for.is_positive();
            inside.batch.trim = Some((now, now - kept_for));
        });
    }

    /// Whether the store is new since this was last asked, and knows nothing.
    pub fn wants_all(&self) -> bool {
        std::mem::take(&mut self.mailbox.lock().wants_all)
    }

    /// What is the matter with the store, if something is.
    pub fn trouble(&self) -> Option<Trouble> {
        self.mailbox.lock().trouble.clone()
    }

    /// How many notes of the history were dropped.
    pub fn dropped(&self) -> u64 {
        self.mailbox.lock().dropped
    }

    /// The history with all that was noted until now, as far as it is written within two seconds. It waits for the
    /// disk.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn history_now(&self) -> Result<History, StoreError> {
        self.flush();
        History::open(&self.path)
    }

    /// Where the store lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until all that was noted is written, within two seconds.
    pub fn flush(&self) {
        let mut inside = self.mailbox.lock();
        let wanted = inside.taken + u64::from(!inside.batch.is_empty());
        inside.urgent = true;
        self.mailbox.filled.notify_one();
        let waits = |inside: &mut Inside| inside.done < wanted && !inside.closed;
        let _ = self.mailbox.emptied.wait_timeout_while(inside, FLUSH, waits);
    }

    /// Writes what waits, and ends.
    pub fn close(&self) {
        self.mailbox.lock().closing = true;
        self.mailbox.filled.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic has printed itself on that thread.
            let _ = thread.join();
        }
    }

    fn history(&self, put: impl FnOnce(&mut Batch)) {
        self.note(false, |inside| {
            if !inside.keeps_history {
                return;
            }
            if inside.batch.requests.len() + inside.batch.switches.len() >= HISTORY_WAITS {
                inside.dropped += 1;
                return;
            }
            put(&mut inside.batch);
        });
    }

    fn note(&self, urgent: bool, put: impl FnOnce(&mut Inside)) {
        let mut inside = self.mailbox.lock();
        if inside.closed {
            return;
        }
        // Whoever carries waits only while there is nothing, or nothing urgent.
        let wakes = inside.batch.is_empty() || (urgent && !inside.urgent);
        put(&mut inside);
        inside.urgent |= urgent;
        drop(inside);
        if wakes {
            self.mailbox.filled.notify_one();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries batches to the store until the recorder closes.
    fn carry(&self, mut store: Store, clock: &dyn Clock) {
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
            self.lock().done += 1;
            self.emptied.notify_all();
        }
        self.lock().closed = true;
        self.emptied.notify_all();
    }

    /// Waits for notes; with some `left` from before, not for ever. `None` at the end.
    fn take(&self, left: bool) -> Option<(Batch, bool)> {
        let mut inside = self.lock();
        let empty = |inside: &mut Inside| inside.batch.is_empty() && !inside.closing;
        if left {
            let waits = |inside: &mut Inside| !inside.urgent && !inside.closing;
            let waited = self.filled.wait_timeout_while(inside, RETRY, waits);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        } else {
            inside = self
                .filled
                .wait_while(inside, empty)
                .unwrap_or_else(PoisonError::into_inner);
            let waits = |inside: &mut Inside| !inside.urgent && !inside.closing;
            let waited = self.filled.wait_timeout_while(inside, GATHER, waits);
            inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if inside.closing && inside.batch.is_empty() && (!left || inside.closed) {
            return None;
        }
        inside.urgent = false;
        inside.taken += 1;
        Some((std::mem::take(&mut inside.batch), inside.keeps_history))
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

fn told_aside(path: &Path, aside: &Aside) {
    tracing::warn!(
        "{} could not be used ({}) and is now {}; a new one was begun",
        path.display(),
        aside.why,
        aside.path.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::End;

    struct Standing;

    impl Clock for Standing {
        fn now(&self) -> Timestamp {
            at(1_000)
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(number: i64) -> RequestRecord {
        RequestRecord {
            number,
            at: 1_000_000 + number,
            device: "laptop".into(),
            path: "/v1/messages".into(),
            model: None,
            conversation: None,
            seat: None,
            status: 200,
            reason: "most room".into(),
            tokens: None,
            head_ms: 1,
            whole_ms: 2,
            end: End::Whole,
            attempts: Vec::new(),
        }
    }

    fn numbers(recorder: &Recorder) -> Vec<i64> {
        let wanted = crate::store::Wanted {
            limit: 10_000,
            ..Default::default()
        };
        let found = recorder.history_now().unwrap().requests(&wanted).unwrap();
        found.into_iter().map(|request| request.number).rev().collect()
    }

    fn open(folder: &Path) -> Recorder {
        Recorder::open(folder.join("router.db"), true, Arc::new(Standing)).0
    }

    /// A recorder over that store.
    fn over(store: Store) -> Recorder {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.lock().keeps_history = true;
        let path = store.path().to_owned();
        let carrying = Arc::clone(&mailbox);
        let thread = thread::spawn(move || carrying.carry(store, &Standing));
        Recorder {
            mailbox,
            path,
            last_number: AtomicI64::new(0),
            thread: Mutex::new(Some(thread)),
        }
    }

    #[test]
    fn what_was_noted_is_there_for_the_next_run_and_numbers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path());
        let number = first.next_number();
        first.request(request(number));
        first.bound(Conversation(u64::MAX), &AccountId::new("a"), at(5));
        first.owner("file_1".into(), &AccountId::new("a"), at(5));
        drop(first);
        let (second, remembered) = Recorder::open(folder.path().join("router.db"), true, Arc::new(Standing));
        assert_eq!(second.next_number(), 2);
        assert_eq!(numbers(&second), [1]);
        assert_eq!(remembered.owners, [("file_1".to_owned(), AccountId::new("a"))]);
        let bound = &remembered.memory.conversations[0];
        assert_eq!((bound.conversation, bound.used_at), (Conversation(u64::MAX), at(5)));
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

    #[test]
    fn without_a_place_for_a_store_the_router_goes_on_without() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("state"), "a file where the folder should be").unwrap();
        let (recorder, remembered) = Recorder::open(folder.path().join("state/router.db"), true, Arc::new(Standing));
        assert!(matches!(recorder.trouble(), Some(Trouble::None(_))));
        assert!(remembered.memory.seats.is_empty());
        recorder.request(request(recorder.next_number()));
        recorder.flush();
    }

    #[test]
    fn without_history_the_state_alone_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = open(folder.path());
        recorder.request(request(1));
        recorder.flush();
        recorder.trim(at(10_000), SignedDuration::ZERO);
        recorder.request(request(2));
        recorder.bound(Conversation(1), &AccountId::new("a"), at(9_999));
        assert_eq!(numbers(&recorder), [0_i64; 0]);
        drop(recorder);
        let (_, remembered) = Recorder::open(folder.path().join("router.db"), false, Arc::new(Standing));
        assert_eq!(remembered.memory.conversations.len(), 1);
    }
}
