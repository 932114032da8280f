//! The file itself: made for its owner alone, and moved aside when it will not do.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::StoreError;

/// A file that was moved aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Where it lies now.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// Makes the file and its folder, for their owner alone. SQLite gives the files beside it the same mode.
pub(super) fn close_to_others(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// The file of that name with `end`, as SQLite names what it keeps beside its own.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Gives the file, and what SQLite keeps beside it, another name.
pub(super) fn move_aside(path: &Path, error: &StoreError, now: Timestamp) -> Result<Aside, StoreError> {
    let why = match error {
        StoreError::Newer(_) => "newer",
        _ => "unreadable",
    };
    let named = |suffix: &str| beside(path, suffix);
    let base = format!(".{why}-{}", now.as_second());
    // Two within a second are two all the same.
    let aside = (1..)
        .map(|n| if n == 1 { base.clone() } else { format!("{base}-{n}") })
        .find(|suffix| !named(suffix).exists())
        .unwrap_or(base);
    fs::rename(path, named(&aside)).map_err(|source| StoreError::File {
        path: path.to_owned(),
        source,
    })?;
    for end in ["-wal", "-shm"] {
        // Often there is none; left where it is, it would belong to the new file.
        if fs::rename(named(end), named(&format!("{aside}{end}"))).is_err() {
            let _ = fs::remove_file(named(end));
        }
    }
    Ok(Aside {
        path: named(&aside),
        why: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use pool::Memory;
    use rusqlite::Connection;

    use super::super::Store;
    use super::super::given::{at, memory_of, of_seats, opened};
    use super::*;

    #[test]
    fn what_cannot_be_read_or_is_newer_is_moved_aside_and_never_in_the_way() {
        type Spoil = fn(&Path);
        let spoils: [(&str, Spoil); 5] = [
            ("unreadable", |path| fs::write(path, "this is no store").unwrap()),
            ("unreadable", |path| {
                let whole = fs::read(path).unwrap();
                fs::write(path, &whole[..whole.len() / 2]).unwrap();
            }),
            ("unreadable", |path| {
                let mut whole = fs::read(path).unwrap();
                whole[4_096..].fill(0x5a);
                fs::write(path, whole).unwrap();
            }),
            ("unreadable", |path| {
                Connection::open(path)
                    .unwrap()
                    .execute_batch("DROP TABLE benches")
                    .unwrap();
            }),
            ("newer", |path| {
                Connection::open(path)
                    .unwrap()
                    .pragma_update(None, "user_version", 2)
                    .unwrap();
            }),
        ];
        for (at_case, (why, spoil)) in spoils.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("router.db");
            let mut store = opened(folder.path());
            store.write(&of_seats(&[memory_of("a", 1, 1)]), true).unwrap();
            drop(store);
            spoil(&path);
            let spoilt = fs::read(&path).unwrap();
            let (store, aside) = Store::open(&path, at(1_790_000_000)).unwrap();
            let aside = aside.unwrap_or_else(|| panic!("case {at_case} was taken as it is"));
            assert_eq!(aside.path, folder.path().join(format!("router.db.{why}-1790000000")));
            assert!(
                fs::read(&aside.path).unwrap().len() >= spoilt.len().min(4_096),
                "it is kept"
            );
            assert_eq!(store.memory().unwrap(), Memory::default());
        }
    }

    #[test]
    fn the_files_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("state");
        let mut store = opened(&below);
        store.write(&of_seats(&[memory_of("a", 1, 1)]), true).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let files: Vec<_> = fs::read_dir(&below)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(files.len() >= 2, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        drop(store);
        fs::set_permissions(below.join("router.db"), fs::Permissions::from_mode(0o644)).unwrap();
        drop(opened(&below));
        assert_eq!(mode(&below.join("router.db")), 0o600);
    }
}
