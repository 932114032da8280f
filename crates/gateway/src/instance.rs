//! One running router for each settings file, by a lock that the system lets go of when the process ends.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The lock, as long as it is held.
#[derive(Debug)]
pub struct Instance(#[expect(dead_code, reason = "holding the file holds the lock")] File);

/// Why the lock is not ours.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// Another router runs with these settings.
    #[error("another router with these settings is running{}", holder.map_or_else(String::new, |pid| format!(" (process {pid})")))]
    Taken {
        /// Its process, if it said so.
        holder: Option<u32>,
    },
    /// The lock's file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// How often a lock that is held is asked for again, and how long apart.
const BRIEFLY_HELD: u32 = 8;
const MOMENT: Duration = Duration::from_millis(50);

impl Instance {
    /// Takes the lock at `path` for a router. A command that looks, or changes the devices, holds it for a moment and is
    /// no router: it is waited for.
    ///
    /// # Errors
    /// If another router holds it, or its file cannot be used.
    pub async fn take_to_run(path: &Path) -> Result<Self, InstanceError> {
        for _ in 0..BRIEFLY_HELD {
            match Self::take(path) {
                Err(InstanceError::Taken { .. }) => tokio::time::sleep(MOMENT).await,
                taken => return taken,
            }
        }
        Self::take(path)
    }

    /// Takes the lock at `path`.
    ///
    /// # Errors
    /// If another process holds it, or its file cannot be used.
    pub fn take(path: &Path) -> Result<Self, InstanceError> {
        let failed = |source| InstanceError::File {
            path: path.to_owned(),
            source,
        };
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(failed)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match fs4::FileExt::try_lock(&file) {
            Ok(()) => {}
            Err(fs4::TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(InstanceError::Taken {
                    holder: text.trim().parse().ok(),
                });
            }
            Err(fs4::TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Who holds it is a courtesy to the next one; the lock holds without.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gu_06_the_second_is_told_who_is_first_and_a_stale_file_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.lock");
        std::fs::write(&path, "12345\n").unwrap();
        let first = Instance::take(&path).unwrap();
        match Instance::take(&path) {
            Err(InstanceError::Taken { holder }) => assert_eq!(holder, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(first);
        Instance::take(&path).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_to_run_waits_for_a_command_that_holds_the_lock_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.lock");
        let command = Instance::take(&path).unwrap();
        let ends = async {
            tokio::time::sleep(MOMENT * 3).await;
            drop(command);
        };
        let (taken, ()) = tokio::join!(Instance::take_to_run(&path), ends);
        assert!(matches!(
            Instance::take_to_run(&path).await,
            Err(InstanceError::Taken { .. })
        ));
        drop(taken.unwrap());
    }
}
