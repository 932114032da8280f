//! The threads that serve, each with a runtime of its own.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// Threads that serve beside the gateway's own. With none, a thousand streams wait for each other (measured: an event
/// came four times as late); with one, twice as late as with two. Runtimes of their own rather than one with three
/// workers, which hand each other their wake-ups: a small request among 64 connections gained a quarter.
const HELPERS: usize = 2;

/// The threads that serve beside the gateway's own.
pub struct Helpers(Vec<Helper>);

impl Helpers {
    /// Starts them.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be had.
    pub fn start() -> io::Result<Self> {
        (0..HELPERS)
            .map(|_| Helper::start())
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Their runtimes.
    pub fn runtimes(&self) -> impl Iterator<Item = Handle> {
        self.0.iter().map(|helper| helper.runtime.clone())
    }

    /// Ends them, with whatever still runs there.
    pub fn stop(self) {
        self.0.into_iter().for_each(Helper::stop);
    }
}

struct Helper {
    runtime: Handle,
    thread: JoinHandle<()>,
    end: oneshot::Sender<()>,
}

impl Helper {
    fn start() -> io::Result<Self> {
        let runtime = runtime()?;
        let (end, ended) = oneshot::channel::<()>();
        Ok(Self {
            runtime: runtime.handle().clone(),
            end,
            thread: thread::Builder::new().name("gateway-helper".into()).spawn(move || {
                let _ = runtime.block_on(ended);
            })?,
        })
    }

    fn stop(self) {
        drop(self.end);
        // A panic has printed itself on that thread.
        let _ = self.thread.join();
    }
}

/// A runtime for one thread; what blocks goes to threads of its own.
///
/// # Errors
/// If the system gives none.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()
}
