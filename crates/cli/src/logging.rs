//! Where the log goes: to standard error, or to a file of bounded length; what repeats is folded either way.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use gateway::log::{Fold, Rotating};
use gateway::ports::{Clock as _, SystemClock};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Begins to log, to the file at `path` or else to standard error.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn begin(path: Option<&Path>) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CLAUDE_PROXY_ROUTER_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let (sink, colour): (Box<dyn Write + Send>, bool) = match path {
        Some(path) => (Box::new(Rotating::open(path)?), false),
        None => (Box::new(io::stderr()), io::IsTerminal::is_terminal(&io::stderr())),
    };
    let log = Log(Arc::new(Mutex::new(Inner {
        sink,
        fold: Fold::default(),
    })));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log)
        .with_ansi(colour)
        .with_target(false)
        .init();
    Ok(())
}

/// The log, shared by all who write to it.
#[derive(Clone)]
struct Log(Arc<Mutex<Inner>>);

struct Inner {
    sink: Box<dyn Write + Send>,
    fold: Fold,
}

/// Takes one line.
struct Line {
    log: Log,
    folds: bool,
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            log: self.clone(),
            folds: false,
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line {
        // What goes well is told each time: it is what a person follows, and the file's bound holds all the same.
        Line {
            log: self.clone(),
            folds: *about.level() <= Level::WARN,
        }
    }
}

impl Write for Line {
    /// The whole line comes at once.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemClock.now();
        let line = String::from_utf8_lossy(text);
        // Its first word is the time, which no two have in common.
        let (time, words) = line.split_once(char::is_whitespace).unwrap_or(("", &line));
        let printed = match self.folds {
            true => log.fold.take(words, now),
            false => {
                let mut printed = log.fold.over(now);
                printed.push(words.to_owned());
                printed
            }
        };
        for words in printed {
            let end = if words.ends_with('\n') { "" } else { "\n" };
            // In one piece, or a file that is put aside meanwhile would end within the line. Nobody is there to be told
            // that the log cannot be written.
            let _ = log.sink.write_all(format!("{time} {words}{end}").as_bytes());
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).sink.flush()
    }
}
