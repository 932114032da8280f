//! The log: what repeats is folded, and a file of it never grows beyond a bound.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

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

/// A file that is put aside when it is long, for its owner's eyes alone.
pub struct Rotating {
    path: PathBuf,
    file: File,
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
        let length = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
        })
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
        if self.length > 0 && self.length + text.len() as u64 > FILE_LIMIT {
            fs::rename(&self.path, Self::older(&self.path))?;
            *self = Self::open(&self.path)?;
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
}
