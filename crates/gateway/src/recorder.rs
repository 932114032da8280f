//! Writes down what should outlast the process, off the request path: notes are put into a mailbox, and one thread
//! carries them to the store.
//!
//! Nobody waits for the disk. What is known of seats and conversations replaces what was noted before, so the mailbox
//! cannot grow by it; history has a bound, and what comes beyond it is dropped and counted.

mod at_hand;
mod mailbox;
mod carry;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Conversation, Memory, SeatMemory};

use crate::ports::Clock;
use crate::record::{RequestRecord, SwitchRecord};
use crate::store::{Aside, Batch, History, Recalled, Store, StoreError};
use at_hand::{AtHand, SWITCHES_SHOWN};
use carry::{Carrier, told_aside};
use mailbox::Mailbox;

/// How many requests and switches, owners, and conversations may wait.
const HISTORY_WAITS: usize = 4_096;
const OWNERS_WAIT: usize = 1_024;
const CONVERSATIONS_WAIT: usize = 10_000;

/// What is the matter with the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The file that was there would not do, and a new one was begun.
    MovedAside(Aside),
    /// It takes nothing now, or cannot be opened; it is tried again.
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
    /// The number of the last request; a store that is opened late may know a higher one.
    last_number: Arc<AtomicI64>,
    at_hand: Mutex<AtHand>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Opens the store at `path`, and reads what the last run knew. Where it cannot be opened now, as on a full disk,
    /// it is tried again; where there can be none, notes go nowhere.
    pub fn open(path: PathBuf, keeps_history: bool, clock: Arc<dyn Clock>) -> (Self, Remembered) {
        let recorder = Self::of(path, keeps_history);
        let remembered = recorder.begin(clock).unwrap_or_else(|error| {
            tracing::warn!("there is no store in this run, so nothing outlasts it: {error}");
            recorder.mailbox.lock().trouble = Some(Trouble::None(error.to_string()));
            recorder.mailbox.shut();
            Remembered::default()
        });
        (recorder, remembered)
    }

    /// Takes notes, and keeps none.
    pub fn nowhere() -> Self {
        let recorder = Self::of(PathBuf::new(), false);
        recorder.mailbox.shut();
        recorder
    }

    /// One whose notes nobody carries yet.
    fn of(path: PathBuf, keeps_history: bool) -> Self {
        let mailbox = Mailbox::default();
        mailbox.lock().keeps_history = keeps_history;
        Self {
            mailbox: Arc::new(mailbox),
            path,
            last_number: Arc::default(),
            at_hand: Mutex::default(),
            thread: Mutex::default(),
        }
    }

    fn begin(&self, clock: Arc<dyn Clock>) -> Result<Remembered, StoreError> {
        let (store, recalled) = match Store::open(&self.path, clock.now()) {
            Ok((store, aside)) => {
                if let Some(aside) = aside {
                    told_aside(&self.path, &aside);
                    self.mailbox.lock().trouble = Some(Trouble::MovedAside(aside));
                }
                (Some(store), Recalled::read(&self.path, SWITCHES_SHOWN)?)
            }
            Err(error) if error.is_of_the_file() => return Err(error),
            Err(error) => {
                self.mailbox.takes_nothing(&error);
                (None, self.recall())
            }
        };
        self.last_number.store(recalled.last_number, Ordering::Relaxed);
        // Of the run before, as far as there was one.
        self.at_hand().switches = recalled.switches.into();
        self.carry(store, clock).map_err(|source| StoreError::File {
            path: self.path.clone(),
            source,
        })?;
        Ok(Remembered {
            memory: recalled.memory,
            owners: recalled.owners,
        })
    }

    /// What the last run knew, as far as a store that cannot be opened tells it.
    fn recall(&self) -> Recalled {
        Recalled::read(&self.path, SWITCHES_SHOWN).unwrap_or_else(|error| {
            tracing::warn!("what the last run knew cannot be read either: {error}");
            Recalled::default()
        })
    }

    /// Begins to carry notes to `store`, once there is one.
    fn carry(&self, store: Option<Store>, clock: Arc<dyn Clock>) -> io::Result<()> {
        let carrier = Carrier {
            mailbox: Arc::clone(&self.mailbox),
            path: self.path.clone(),
            store,
            last_number: Arc::clone(&self.last_number),
            number_before: 0,
            clock,
        };
        let thread = thread::Builder::new()
            .name("store".into())
            .spawn(move || carrier.run())?;
        *self.thread() = Some(thread);
        Ok(())
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at_hand(&self) -> MutexGuard<'_, AtHand> {
        self.at_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for the next request.
    pub fn next_number(&self) -> i64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes what is known of seats now. It is written at once.
    pub fn seats(&self, seats: Vec<SeatMemory>) {
        self.mailbox.note(true, |inside| {
            let seats = seats.into_iter().map(|seat| (seat.id.clone(), seat));
            inside.batch.seats.extend(seats);
        });
    }

    /// Notes where a conversation runs.
    pub fn bound(&self, conversation: Conversation, seat: &AccountId, now: Timestamp) {
        self.mailbox.note(false, |inside| {
            let conversations = &mut inside.batch.conversations;
            if conversations.len() < CONVERSATIONS_WAIT || conversations.contains_key(&conversation) {
                conversations.insert(conversation, (seat.clone(), now));
            }
        });
    }

    /// Notes that a seat issued an id.
    pub fn owner(&self, id: String, seat: &AccountId, now: Timestamp) {
        self.mailbox.note(true, |inside| {
            if inside.batch.owners.len() < OWNERS_WAIT {
                inside.batch.owners.push((id, seat.clone(), now));
            }
        });
    }

    /// Notes a request that ended.
    pub fn request(&self, request: RequestRecord) {
        self.at_hand().request(request.at / 1_000);
        self.history(|batch| batch.requests.push(request));
    }

    /// Notes a conversation that moved.
    pub fn switch(&self, switch: SwitchRecord) {
        self.at_hand().switch(switch.clone());
        self.history(|batch| batch.switches.push(switch));
    }

    /// Notes that a key was turned away.
    pub fn refused(&self, now: Timestamp) {
        self.at_hand().refused_at = Some(now.as_second());
    }

    /// The last switches, the newest first. It is in memory: ask as often as you like.
    pub fn last_switches(&self) -> Vec<SwitchRecord> {
        self.at_hand().switches.iter().cloned().collect()
    }

    /// When a key was last turned away in this run, in seconds since the epoch.
    pub fn last_refused(&self) -> Option<i64> {
        self.at_hand().refused_at
    }

    /// How many requests came in the hour before `now`, in seconds since the epoch.
    pub fn last_hour(&self, now: i64) -> usize {
        self.at_hand().last_hour(now)
    }

    /// Drops history that is older than `kept_for`; with none kept, all of it.
    pub fn trim(&self, now: Timestamp, kept_for: SignedDuration) {
        self.mailbox.note(false, |inside| {
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
        self.mailbox.flush();
    }

    /// Writes what waits, and ends.
    pub fn close(&self) {
        self.mailbox.close();
        let thread = self.thread().take();
        if let Some(thread) = thread {
            // A panic has printed itself on that thread.
            let _ = thread.join();
        }
    }

    fn history(&self, put: impl FnOnce(&mut Batch)) {
        self.mailbox.note(false, |inside| {
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
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the tests beside these files begin with.
#[cfg(test)]
mod given {
    use super::*;
    use crate::record::End;
    use crate::store::Wanted;

    pub(super) struct Standing;

    impl Clock for Standing {
        fn now(&self) -> Timestamp {
            at(1_000)
        }
    }

    pub(super) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    pub(super) fn request(number: i64) -> RequestRecord {
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

    pub(super) fn numbers(recorder: &Recorder) -> Vec<i64> {
        let wanted = Wanted {
            limit: 10_000,
            ..Default::default()
        };
        let found = recorder.history_now().unwrap().requests(&wanted).unwrap();
        found.into_iter().map(|request| request.number).rev().collect()
    }

    pub(super) fn open(folder: &Path) -> Recorder {
        Recorder::open(folder.join("router.db"), true, Arc::new(Standing)).0
    }
}

#[cfg(test)]
mod tests {
    use super::given::{Standing, at, numbers, open, request};
    use super::*;

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
    fn without_a_place_for_a_store_the_router_goes_on_without() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("state"), "a file where the folder should be").unwrap();
        let (recorder, remembered) = Recorder::open(folder.path().join("state/router.db"), true, Arc::new(Standing));
        assert!(matches!(recorder.trouble(), Some(Trouble::TakesNothing(_))));
        assert!(remembered.memory.seats.is_empty());
        recorder.request(request(recorder.next_number()));
        recorder.flush();
    }

    /// Lets SQLite write nothing beside the file, as on a full disk, until what it gives is called.
    fn no_room(folder: &Path) -> impl FnOnce() {
        let blocked = folder.join("router.db-shm");
        std::os::unix::fs::symlink("nowhere/at/all", &blocked).unwrap();
        move || std::fs::remove_file(blocked).unwrap()
    }

    #[test]
    fn cf_02_a_start_on_a_full_disk_knows_what_the_last_run_knew_and_writes_once_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path());
        first.request(request(first.next_number()));
        first.bound(Conversation(1), &AccountId::new("a"), at(5));
        first.owner("file_1".into(), &AccountId::new("a"), at(5));
        drop(first);

        let make_room = no_room(folder.path());
        let (second, remembered) = Recorder::open(folder.path().join("router.db"), true, Arc::new(Standing));
        assert!(matches!(second.trouble(), Some(Trouble::TakesNothing(_))));
        assert_eq!(remembered.memory.conversations.len(), 1);
        assert_eq!(remembered.owners.len(), 1);
        assert_eq!(second.next_number(), 2);
        second.bound(Conversation(2), &AccountId::new("a"), at(6));
        second.request(request(2));
        second.flush();
        assert_eq!(second.dropped(), 1, "history is not kept until then");

        make_room();
        second.request(request(3));
        second.flush();
        assert_eq!(second.trouble(), None);
        assert!(second.wants_all());
        assert_eq!(numbers(&second), [1, 3]);
        drop(second);
        let (_, remembered) = Recorder::open(folder.path().join("router.db"), true, Arc::new(Standing));
        assert_eq!(
            remembered.memory.conversations.len(),
            2,
            "what was learnt meanwhile too"
        );
    }

    #[test]
    fn where_the_last_run_could_not_be_read_its_requests_are_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path());
        for number in 1..=3 {
            first.request(request(number));
        }
        drop(first);

        let make_room = no_room(folder.path());
        // As a killed process leaves it.
        std::fs::write(folder.path().join("router.db-wal"), "left").unwrap();
        let second = open(folder.path());
        let early = second.next_number();
        assert_eq!(early, 1, "nothing is known");
        make_room();
        let mut reused = request(early);
        reused.device = "phone".into();
        second.request(reused);
        second.flush();
        assert_eq!((second.trouble(), second.dropped()), (None, 1));
        assert_eq!(second.next_number(), 4);
        second.request(request(4));
        assert_eq!(numbers(&second), [1, 2, 3, 4]);
        let kept = second.history_now().unwrap().request(1).unwrap();
        assert_eq!(kept.map(|kept| kept.device).as_deref(), Some("laptop"));
    }

    #[test]
    fn a_store_that_cannot_be_opened_at_the_end_either_keeps_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let _make_room = no_room(folder.path());
        let recorder = open(folder.path());
        recorder.bound(Conversation(1), &AccountId::new("a"), at(5));
        recorder.close();
        assert!(matches!(recorder.trouble(), Some(Trouble::TakesNothing(_))));
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
