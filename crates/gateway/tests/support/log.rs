//! What a test's program logs.

use std::io;
use std::sync::{Arc, Mutex};

/// What is logged, down to the finest level.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// What this test logs from here on, until the guard is dropped: all of it but the reading of files.
    pub fn of_this_test() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.subscriber());
        (log, guard)
    }

    /// What the whole program logs from here on. One test may ask for it.
    pub fn of_everything() -> Self {
        let log = Self::default();
        tracing::subscriber::set_global_default(log.subscriber()).unwrap();
        log
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let log = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::level_filters::LevelFilter::TRACE)
            .with_ansi(false)
            .without_time()
            .with_writer(move || log.clone())
            .finish()
    }
}
