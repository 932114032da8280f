//! What is left of a crash: one line in the log and a report on disk, told of at the next start.
//!
//! A mark lies beside the report while the app runs. A run that ended as it should takes it away; found at a start
//! together with a younger report, it says that the run before crashed. A mark alone is a power cut, or an end by force.

use std::backtrace::Backtrace;
use std::fs;
use std::io;
use std::panic;
use std::path::{Path, PathBuf};

use gateway::ports::{Clock as _, SystemClock};

use crate::facts::Crash;

/// The longest report that is kept, in bytes.
const LONGEST: usize = 64 << 10;

/// Where the mark and the report lie.
#[derive(Clone, Debug)]
pub struct Traces {
    mark: PathBuf,
    report: PathBuf,
}

impl Traces {
    /// In `folder`, which is the app's own.
    pub fn new(folder: &Path) -> Self {
        Self {
            mark: folder.join("app.running"),
            report: folder.join("crash.log"),
        }
    }

    /// Begins a run: returns how the run before ended, and from here on a panic leaves a report.
    pub fn begin(&self) -> Option<Crash> {
        let crash = crashed(seconds(&self.mark), seconds(&self.report));
        let marked = self
            .mark
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&self.mark, ""));
        if let Err(error) = marked {
            tracing::warn!("{}: a crash would leave no trace: {error}", self.mark.display());
        }
        let (traces, before) = (self.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            traces.write(&report(panic, &Backtrace::force_capture()));
            before(panic);
        }));
        crash
    }

    /// Ends a run as it should end.
    pub fn end(&self) {
        let _ = fs::remove_file(&self.mark);
    }

    /// The last crash's report.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn report(&self) -> io::Result<String> {
        fs::read_to_string(&self.report)
    }

    /// The report is not asked for again.
    pub fn dismiss(&self) {
        let _ = fs::remove_file(&self.report);
    }

    fn write(&self, report: &str) {
        let mut end = LONGEST.min(report.len());
        while !report.is_char_boundary(end) {
            end -= 1;
        }
        if let Err(error) = fs::write(&self.report, &report[..end]) {
            tracing::error!("{}: {error}", self.report.display());
        }
    }
}

/// Whether the run before crashed, by when its mark and the last report were made.
fn crashed(mark: Option<i64>, report: Option<i64>) -> Option<Crash> {
    let (mark, report) = (mark?, report?);
    (report >= mark).then_some(Crash { at: report })
}

/// When a file was last written.
fn seconds(path: &Path) -> Option<i64> {
    let written = fs::metadata(path).ok()?.modified().ok()?;
    let since = written.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

fn report(panic: &panic::PanicHookInfo<'_>, trace: &Backtrace) -> String {
    let thread = std::thread::current();
    format!(
        "Claude Proxy Router {} ({} {}), {}\nthread {}: {}\n\n{trace}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        SystemClock.now(),
        thread.name().unwrap_or("without a name"),
        without_secrets(&panic.to_string()),
    )
}

/// A panic says what its writer put in. Whatever looks like a key or a token is taken out all the same.
fn without_secrets(text: &str) -> String {
    let is_secret = |word: &str| {
        let word = word.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric());
        ["sk-", "rk-", "eyJ"].iter().any(|start| word.starts_with(start))
    };
    let clean = |word: &str| {
        if is_secret(word) {
            "…".to_owned()
        } else {
            word.to_owned()
        }
    };
    let lines = text
        .lines()
        .map(|line| line.split(' ').map(clean).collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_a_mark_left_behind_and_a_report_made_since() {
        for (mark, report, expected) in [
            (None, None, None),
            (Some(100), None, None),
            (None, Some(100), None),
            (Some(100), Some(99), None),
            (Some(100), Some(100), Some(Crash { at: 100 })),
            (Some(100), Some(170), Some(Crash { at: 170 })),
        ] {
            assert_eq!(crashed(mark, report), expected, "{mark:?} {report:?}");
        }
    }

    #[test]
    fn a_run_that_ends_well_leaves_no_mark_and_one_that_does_not_is_told_of_once() {
        let folder = tempfile::tempdir().unwrap();
        let traces = Traces::new(&folder.path().join("state"));
        let before = panic::take_hook();
        assert_eq!(traces.begin(), None);
        traces.end();
        assert_eq!(traces.begin(), None);
        traces.write("it broke");
        let crash = traces.begin();
        panic::set_hook(before);
        assert!(crash.is_some());
        assert_eq!(traces.report().unwrap(), "it broke");
        traces.dismiss();
        assert!(traces.report().is_err());
    }

    #[test]
    fn sc_02_a_report_holds_no_key() {
        let text = without_secrets("left: \"sk-ant-oat01-secret\" right: (rk-secret)\nand eyJhbGci.x here");
        assert_eq!(text, "left: … right: …\nand … here");
    }
}
