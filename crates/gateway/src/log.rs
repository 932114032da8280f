//! The log: what repeats is folded, and a file of it never grows beyond a bound.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::file::{self, Identity};

/// How long a line that was printed keeps others like it from being.
const FOLDED_FOR: SignedDuration = SignedDuration::from_secs(60);
/// How many different lines are remembered.
const REMEMBERED: usize = 256;
/// The length at which a file is put aside. One older one is kept, so all of it is at most twice that.
pub const FILE_LIMIT: u64 = 2 << 20;

/// Folds lines that repeat: of many like it within a minute the first is printed, and afterwards how many came.
#[derive(Default)]
pub struct Fold(HashMap<String, Seen>);

struct Seen {
    since: Timestamp,
    more: u64,
}

impl Fold {
    /// What to print when `line` comes at `now`: perhaps itself, and what was folded until now.
    pub fn take(&mut self, line: &str, now: Timestamp) -> Vec<String> {
        let mut printed = self.over(now);
        match self.0.get_mut(line) {
            Some(seen) => seen.more += 1,
            None => {
                // So many different ones are no repetition: they are printed as they come.
                if self.0.len() < REMEMBERED {
                    self.0.insert(line.to_owned(), Seen { since: now, more: 0 });
                }
                printed.push(line.to_owned());
            }
        }
        printed
    }

    /// What was folded and whose minute is over.
    pub fn over(&mut self, now: Timestamp) -> Vec<String> {
        let mut told = Vec::new();
        self.0.retain(|line, seen| {
            let age = now.duration_since(seen.since);
            // A clock that was set back ends it, too.
            let lasts = age < FOLDED_FOR && !age.is_negative();
            if !lasts && seen.more > 0 {
                told.push(format!(
                    "{} (and {} more like it within a minute)",
                    line.trim_end(),
                    seen.more
                ));
            }
            lasts
        });
        told.sort();
        told
    }
}

/// A file that is put aside when it is long and made anew when it is gone, for its owner's eyes alone.
pub struct Rotating {
    path: PathBuf,
    file: File,
    /// Which file is open.
    own: Identity,
    length: u64,
}

impl Rotating {
    /// Goes on with the file at `path`, and makes its folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let about = file.metadata()?;
        Ok(Self {
            path: path.to_owned(),
            file,
            own: Identity::from(&about),
            length: about.len(),
        })
    }

    /// Goes on where the file should be, if another hand removed or replaced it. Where it cannot be made, what is open
    /// takes the text: who moved it can still read it there.
    fn look(&mut self) {
        if file::identity(&self.path) != Some(self.own)
            && let Ok(anew) = Self::open(&self.path)
        {
            *self = anew;
        }
    }

    /// Puts the file aside, and begins another.
    fn turn(&mut self) -> io::Result<()> {
        match fs::rename(&self.path, Self::older(&self.path)) {
            // There is nothing to put aside.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        *self = Self::open(&self.path)?;
        Ok(())
    }

    /// Where the one goes that was put aside.
    pub fn older(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".1");
        name.into()
    }
}

impl Write for Rotating {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // At each line: a look costs less than the line, and one that is written to a removed file is lost.
        self.look();
        if self.length > 0 && self.length + text.len() as u64 > FILE_LIMIT {
            self.turn()?;
        }
        let written = self.file.write(text)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).unwrap()
    }

    #[test]
    fn ld_03_of_ten_thousand_alike_one_is_printed_and_then_their_number() {
        let mut fold = Fold::default();
        let printed: usize = (0..10_000).map(|_| fold.take("upstream is down", at(0)).len()).sum();
        assert_eq!(printed, 1);
        assert_eq!(
            fold.take("upstream is down", at(60)),
            [
                "upstream is down (and 9999 more like it within a minute)",
                "upstream is down"
            ]
        );
        assert_eq!(fold.over(at(200)), Vec::<String>::new(), "nothing was folded since");
    }

    #[test]
    fn what_differs_is_printed_each_time_and_memory_is_bounded() {
        let mut fold = Fold::default();
        for number in 0..1_000 {
            assert_eq!(fold.take(&format!("line {number}"), at(0)).len(), 1);
        }
        assert!(fold.0.len() <= REMEMBERED);
        assert_eq!(fold.take("line 3", at(-5)), ["line 3"], "the clock was set back");
    }

    #[test]
    fn ld_03_a_file_and_the_one_before_it_are_all_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/router.log");
        let mut log = Rotating::open(&path).unwrap();
        let line = [b'x'; 1_000];
        for _ in 0..10_000 {
            log.write_all(&line).unwrap();
        }
        let files: Vec<u64> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|length| *length <= FILE_LIMIT), "{files:?}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::metadata(&path).unwrap().len();
        Rotating::open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            before + 4,
            "a restart goes on with it"
        );
    }

    #[test]
    fn a_file_that_was_removed_or_moved_is_made_anew_with_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/router.log");
        let mut log = Rotating::open(&path).unwrap();
        log.write_all(b"first\n").unwrap();
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        log.write_all(b"second\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        log.write_all(b"third\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
        assert_eq!(fs::read_to_string(moved).unwrap(), "second\n");
    }

    #[test]
    fn a_link_is_followed_and_its_file_is_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("router.log"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut log = Rotating::open(&link).unwrap();
        log.write_all(b"first\n").unwrap();
        assert_eq!(file::identity(&link), Some(log.own), "or each line would open it anew");
        log.write_all(b"second\n").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "first\nsecond\n");
    }

    #[test]
    fn a_long_file_that_is_gone_is_nothing_to_put_aside_and_another_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/router.log");
        let mut log = Rotating::open(&path).unwrap();
        log.write_all(&vec![b'x'; FILE_LIMIT as usize]).unwrap();
        // Nor can another be made for now.
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path.parent().unwrap(), "in the folder's place").unwrap();
        assert!(log.write_all(b"lost\n").is_err());
        fs::remove_file(path.parent().unwrap()).unwrap();
        log.write_all(b"again\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "again\n");
        // It went between the look and the renaming.
        fs::remove_file(&path).unwrap();
        log.turn().unwrap();
        assert!(path.exists());
    }
}
