//! One lock directory: how it is made, touched and let go of, and when one that another left over is cleared away.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};

use super::{Judgement, LockError};

/// One lock directory that is ours.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    inode: u64,
    /// When we last touched it.
    touched: Timestamp,
    /// The time that gave it, as the file system keeps it.
    mark: Option<(i64, i64)>,
    stale_after: SignedDuration,
}

impl Held {
    /// Makes the lock at `path`, over one that is left over if need be.
    pub(super) fn take(
        path: PathBuf,
        stale_after: SignedDuration,
        judgement: Judgement,
        now: Timestamp,
    ) -> Result<Self, LockError> {
        if let Err(error) = fs::create_dir(&path) {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(LockError::Denied { path, source: error });
            }
            clear_away(&path, stale_after, judgement, now)?;
            fs::create_dir(&path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => LockError::Busy(path.clone()),
                _ => LockError::Denied {
                    path: path.clone(),
                    source: error,
                },
            })?;
        }
        let inode = fs::symlink_metadata(&path)
            .map(|about| about.ino())
            .map_err(|source| LockError::Denied {
                path: path.clone(),
                source,
            })?;
        let mut held = Self {
            path,
            inode,
            touched: now,
            mark: None,
            stale_after,
        };
        held.touch(now)?;
        Ok(held)
    }

    /// Says that its holder lives. What is not ours any more is not touched.
    pub(super) fn touch(&mut self, now: Timestamp) -> Result<(), LockError> {
        let lost = || LockError::Lost(self.path.clone());
        let folder = File::open(&self.path).map_err(|_| lost())?;
        // The number alone may come back; the time we gave it does not.
        let about = folder.metadata().map_err(|_| lost())?;
        if about.ino() != self.inode || self.mark.is_some_and(|mark| mark != modified(&about)) {
            return Err(lost());
        }
        folder.set_modified(system_time(now)).map_err(|_| lost())?;
        self.mark = Some(folder.metadata().map(|about| modified(&about)).map_err(|_| lost())?);
        self.touched = now;
        Ok(())
    }

    /// Whether it still is ours, and young enough that nobody may have judged it left over.
    pub(super) fn check(&self, now: Timestamp) -> Result<(), LockError> {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|about| about.is_dir() && about.ino() == self.inode && Some(modified(&about)) == self.mark);
        let young = now.duration_since(self.touched) < self.stale_after / 2;
        match ours && young {
            true => Ok(()),
            false => Err(LockError::Lost(self.path.clone())),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Another's lock in its place stays.
        let ours =
            |about: fs::Metadata| about.ino() == self.inode && self.mark.is_none_or(|mark| mark == modified(&about));
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

pub(super) fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(at.as_nanosecond()).unwrap_or(0))
}

pub(super) fn modified(about: &fs::Metadata) -> (i64, i64) {
    (about.mtime(), about.mtime_nsec())
}

/// Moves a lock that is left over out of the way, and makes sure that what was moved is what was judged: between the
/// look and the move its holder may have let go of it and another taken it.
fn clear_away(path: &Path, stale_after: SignedDuration, judgement: Judgement, now: Timestamp) -> Result<(), LockError> {
    let busy = || LockError::Busy(path.to_owned());
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()), // let go just now
        Err(_) => return Err(busy()),
    };
    let empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if !about.is_dir() || !empty() {
        return Err(LockError::Foreign(path.to_owned()));
    }
    let touched = Timestamp::new(about.mtime(), about.mtime_nsec() as i32).map_err(|_| busy())?;
    // A lock from the future is somebody's whose clock is ahead, or was before ours went back.
    let stale = now.duration_since(touched) > stale_after;
    if !stale || judgement == Judgement::Suspended {
        return Err(busy());
    }
    let aside = aside(path);
    fs::rename(path, &aside).map_err(|_| busy())?;
    let moved = fs::symlink_metadata(&aside).map_err(|_| busy())?;
    if moved.ino() != about.ino() || modified(&moved) != modified(&about) {
        let _ = fs::rename(&aside, path);
        return Err(busy());
    }
    let _ = fs::remove_dir(&aside);
    tracing::info!(
        "{} was left over from a program that ended; it was cleared away",
        path.display()
    );
    Ok(())
}

fn aside(path: &Path) -> PathBuf {
    let chance = getrandom::u64().unwrap_or_default();
    with_suffix(path, &format!(".left-over-{chance:016x}"))
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
