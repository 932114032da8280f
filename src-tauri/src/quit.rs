//! The end of the app. Asked once, it waits for a moment without an answer under way; asked again, it does not wait.
//! Whatever else, a renewal under way is finished and saved.

use std::thread;

use gateway::snapshot::Snapshot;
use tauri::AppHandle;
use tokio::signal::unix::{SignalKind, signal};

use crate::shell::Shell;

/// How an app ends that was told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Running answers have ten seconds.
    Some,
    /// They have none.
    None,
}

/// The owner asks the app to end.
pub fn ask(app: &AppHandle) {
    let shell = Shell::of(app);
    if shell.begin_quitting() {
        shell.begin_ending();
        end(app, Patience::None);
    }
    // The watch ends it once nothing is under way.
    shell.hurry();
}

/// Whether nothing is being answered.
pub fn is_quiet(snapshot: &Snapshot) -> bool {
    snapshot.seats.iter().all(|seat| seat.in_flight == 0)
}

/// Ends the app. Called again with no patience, it cuts short what is still waited for.
pub fn end(app: &AppHandle, patience: Patience) {
    let ending = app.clone();
    // The windows stay alive meanwhile.
    let begun = thread::Builder::new().name("end".into()).spawn(move || {
        if patience == Patience::None {
            Shell::of(&ending).router.cut();
        }
        last(&ending);
        ending.exit(0);
    });
    if let Err(error) = begun {
        tracing::warn!("the end cannot be waited for: {error}");
        app.exit(0);
    }
}

/// What must be done before the process ends, however it ends.
pub fn last(app: &AppHandle) {
    let shell = Shell::of(app);
    shell.router.stop();
    shell.router.wait();
    shell.traces.end();
}

/// The system's own ways to end a process: the first signal leaves ten seconds, the second none.
pub fn heed_signals(app: &AppHandle) {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let app = app.clone();
        tauri::async_runtime::spawn(async move {
            let mut signal = match signal(kind) {
                Ok(signal) => signal,
                Err(error) => return tracing::warn!("a signal cannot be heeded: {error}"),
            };
            while signal.recv().await.is_some() {
                let before = Shell::of(&app).begin_ending();
                end(&app, if before { Patience::None } else { Patience::Some });
            }
        });
    }
}
