//! The lock directories that Claude Code honours, and we with it.
//!
//! Two are held during a renewal: one inside the configuration directory, then the older one beside it, named after
//! the directory's real path. A third is held for the milliseconds of a write. A lock is a directory made with `mkdir`;
//! its holder touches it every few seconds, and one that nobody touched for long is left over from a crash.
//!
//! Everything here blocks for moments only and never waits for a holder: a busy lock means another round.

mod held;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use held::{Held, with_suffix};

/// After this long without a touch the two renewal locks are left over.
const RENEWAL_STALE: SignedDuration = SignedDuration::from_secs(60);
/// The same for the storage lock, which nobody holds for long.
const STORAGE_STALE: SignedDuration = SignedDuration::from_secs(10);
/// How often a held lock is touched at least.
pub const HEARTBEAT: Duration = Duration::from_secs(4);

/// Why a lock is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody holds it, or may do so.
    #[error("{} is held by another program", .0.display())]
    Busy(PathBuf),
    /// Something that is no lock stands in its place.
    #[error("{} is in the way: it is not a lock of Claude Code's", .0.display())]
    Foreign(PathBuf),
    /// It cannot be made.
    #[error("{} cannot be made: {source}", path.display())]
    Denied {
        /// Which lock.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It was ours, and is no longer.
    #[error("{} was taken from us", .0.display())]
    Lost(PathBuf),
}

/// Whether a lock may be judged left over: not for a minute after a wake, since its holder slept too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// By its age.
    ByAge,
    /// Never, for now.
    Suspended,
}

/// Proof of holding a profile's locks. They are let go of, the later one first, when it is dropped.
#[derive(Debug)]
pub struct ProfileLock {
    // Dropped in this order.
    legacy: Held,
    renewal: Held,
    dir: PathBuf,
}

impl ProfileLock {
    /// Takes both locks of the configuration directory `dir`, or neither.
    ///
    /// # Errors
    /// If one is busy, in the way, or cannot be made.
    pub fn take(dir: &Path, judgement: Judgement, now: Timestamp) -> Result<Self, LockError> {
        let renewal = Held::take(dir.join(".oauth_refresh.lock"), RENEWAL_STALE, judgement, now)?;
        let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        let legacy = Held::take(with_suffix(&real, ".lock"), RENEWAL_STALE, judgement, now)?;
        // Claude Code notes here who holds the lock, and takes one within ten seconds whose holder is dead. Both locks are
        // ours now, so that a note is a dead one's.
        let _ = fs::remove_file(dir.join(".oauth_refresh.lock.owner"));
        Ok(Self {
            legacy,
            renewal,
            dir: dir.to_owned(),
        })
    }

    /// Says that their holder lives; call it at least every [`HEARTBEAT`].
    ///
    /// # Errors
    /// If one was taken from us.
    pub fn touch(&mut self, now: Timestamp) -> Result<(), LockError> {
        self.renewal.touch(now)?;
        self.legacy.touch(now)
    }

    /// Whether both still are ours.
    ///
    /// # Errors
    /// If one was taken from us, or we slept so long that it may have been.
    pub fn check(&self, now: Timestamp) -> Result<(), LockError> {
        self.renewal.check(now)?;
        self.legacy.check(now)
    }

    /// Takes the storage lock as well, for the moment of a write.
    ///
    /// # Errors
    /// If it is busy, in the way, or cannot be made; or if the others were taken from us.
    pub fn for_writing(&self, judgement: Judgement, now: Timestamp) -> Result<WriteLock<'_>, LockError> {
        self.check(now)?;
        let storage = Held::take(self.dir.join(".storage-write.lock"), STORAGE_STALE, judgement, now)?;
        Ok(WriteLock {
            _storage: storage,
            _profile: self,
        })
    }
}

/// Proof of holding all three locks: a login may be written.
#[derive(Debug)]
pub struct WriteLock<'a> {
    _storage: Held,
    _profile: &'a ProfileLock,
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;

    use super::held::{modified, system_time};
    use super::*;

    const NOW: i64 = 1_790_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    struct Place {
        _home: tempfile::TempDir,
        dir: PathBuf,
    }

    fn place() -> Place {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join(".claude");
        fs::create_dir(&dir).unwrap();
        Place { _home: home, dir }
    }

    impl Place {
        fn renewal(&self) -> PathBuf {
            self.dir.join(".oauth_refresh.lock")
        }

        fn legacy(&self) -> PathBuf {
            with_suffix(&self.dir, ".lock")
        }

        fn take(&self) -> Result<ProfileLock, LockError> {
            ProfileLock::take(&self.dir, Judgement::ByAge, at(NOW))
        }
    }

    fn foreign(path: &Path, age: i64) -> u64 {
        fs::create_dir(path).unwrap();
        File::open(path)
            .unwrap()
            .set_modified(system_time(at(NOW - age)))
            .unwrap();
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn both_locks_are_held_and_let_go_of() {
        let place = place();
        let lock = place.take().unwrap();
        assert!(place.renewal().is_dir() && place.legacy().is_dir());
        assert!(matches!(place.take(), Err(LockError::Busy(_))));
        drop(lock);
        assert!(!place.renewal().exists() && !place.legacy().exists());
    }

    #[test]
    fn lk_01_either_lock_of_another_is_respected_and_untouched() {
        for which in [Place::renewal, Place::legacy] {
            let place = place();
            let path = which(&place);
            let inode = foreign(&path, 3);
            let before = fs::metadata(&path).unwrap();
            assert!(matches!(place.take(), Err(LockError::Busy(_))));
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.ino(), modified(&after)), (inode, modified(&before)));
            let other = if path == place.legacy() {
                place.renewal()
            } else {
                place.legacy()
            };
            assert!(!other.exists(), "the lock that was free is given back");
        }
    }

    #[test]
    fn lk_02_a_lock_is_left_over_after_sixty_seconds_and_not_before() {
        for (age, taken) in [
            (20, false),
            (59, false),
            (60, false),
            (61, true),
            (-30, false),
            (-3_600, false),
        ] {
            for which in [Place::renewal, Place::legacy] {
                let place = place();
                foreign(&which(&place), age);
                assert_eq!(place.take().is_ok(), taken, "age {age}");
            }
        }
    }

    #[test]
    fn lk_03_a_dead_holders_note_goes_with_its_lock_and_a_living_ones_stays() {
        for (age, taken) in [(61, true), (20, false)] {
            let place = place();
            foreign(&place.renewal(), age);
            let note = place.dir.join(".oauth_refresh.lock.owner");
            fs::write(&note, "{}").unwrap();
            let lock = place.take();
            assert_eq!((lock.is_ok(), note.exists()), (taken, !taken), "age {age}");
        }
    }

    #[test]
    fn after_a_wake_no_lock_is_left_over() {
        let place = place();
        foreign(&place.renewal(), 3_600);
        assert!(matches!(
            ProfileLock::take(&place.dir, Judgement::Suspended, at(NOW)),
            Err(LockError::Busy(_))
        ));
    }

    #[test]
    fn what_is_no_lock_is_left_alone() {
        let place = place();
        fs::write(place.renewal(), "x").unwrap();
        assert!(matches!(place.take(), Err(LockError::Foreign(_))));
        fs::remove_file(place.renewal()).unwrap();
        std::os::unix::fs::symlink(&place.dir, place.renewal()).unwrap();
        assert!(matches!(place.take(), Err(LockError::Foreign(_))));
        fs::remove_file(place.renewal()).unwrap();
        foreign(&place.renewal(), 3_600);
        fs::write(place.renewal().join("mine"), "x").unwrap();
        assert!(matches!(place.take(), Err(LockError::Foreign(_))));
        assert!(place.renewal().join("mine").exists());
    }

    #[test]
    fn lk_04_a_lock_that_another_put_in_its_place_is_noticed_and_stays() {
        let place = place();
        let mut lock = place.take().unwrap();
        fs::remove_dir(place.renewal()).unwrap();
        let spacer = place.dir.join("spacer"); // else the inode's number may come back
        fs::create_dir(&spacer).unwrap();
        let theirs = foreign(&place.renewal(), 0);
        assert!(matches!(lock.check(at(NOW)), Err(LockError::Lost(_))));
        assert!(matches!(lock.touch(at(NOW + 1)), Err(LockError::Lost(_))));
        assert!(lock.for_writing(Judgement::ByAge, at(NOW)).is_err());
        drop(lock);
        assert_eq!(fs::metadata(place.renewal()).unwrap().ino(), theirs);
    }

    #[test]
    fn a_lock_that_we_did_not_touch_for_long_counts_as_lost() {
        let place = place();
        let mut lock = place.take().unwrap();
        lock.check(at(NOW + 29)).unwrap();
        assert!(
            lock.check(at(NOW + 31)).is_err(),
            "we slept, and it may have been judged"
        );
        lock.touch(at(NOW + 31)).unwrap();
        lock.check(at(NOW + 31)).unwrap();
    }

    #[test]
    fn lk_05_a_lock_that_cannot_be_made_is_named() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("d".repeat(253)); // with `.lock` behind it, too long for a name
        fs::create_dir(&dir).unwrap();
        let error = ProfileLock::take(&dir, Judgement::ByAge, at(NOW)).unwrap_err();
        assert!(
            matches!(&error, LockError::Denied { path, .. } if path.to_string_lossy().ends_with(".lock")),
            "{error}"
        );
        assert!(!dir.join(".oauth_refresh.lock").exists());
    }

    #[test]
    fn through_a_linked_directory_the_older_lock_lies_beside_the_real_one() {
        let place = place();
        let link = place._home.path().join("link");
        std::os::unix::fs::symlink(&place.dir, &link).unwrap();
        let _lock = ProfileLock::take(&link, Judgement::ByAge, at(NOW)).unwrap();
        assert!(place.legacy().is_dir());
        assert!(!with_suffix(&link, ".lock").exists());
    }

    #[test]
    fn the_storage_lock_is_left_over_after_ten_seconds() {
        for (age, taken) in [(3, false), (11, true)] {
            let place = place();
            let lock = place.take().unwrap();
            foreign(&place.dir.join(".storage-write.lock"), age);
            assert_eq!(lock.for_writing(Judgement::ByAge, at(NOW)).is_ok(), taken, "age {age}");
        }
    }
}
