//! The end of the app. Asked once, it waits for a moment without an answer under way; asked again, it does not wait.
//! Whatever else, a renewal under way is finished and saved.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread;

use gateway::snapshot::Snapshot;
use tauri::AppHandle;
use tokio::signal::unix::{SignalKind, signal};

use crate::crash::Traces;
use crate::router::Router;
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
    last_of(&shell.router, &shell.traces);
}

fn last_of(router: &Router, traces: &Traces) {
    router.stop();
    router.wait();
    traces.end();
}

/// The system's own ways to end a process: the first signal leaves ten seconds, the second none. They are heeded from
/// the first moment on, when there is a router and not yet an app.
///
/// # Errors
/// If a signal cannot be heeded.
pub fn heed_signals(router: &Arc<Router>, traces: &Traces) -> io::Result<Arc<OnceLock<AppHandle>>> {
    let made: Arc<OnceLock<AppHandle>> = Arc::default();
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signal = tauri::async_runtime::block_on(async { signal(kind) })?;
        let (made, router, traces) = (Arc::clone(&made), Arc::clone(router), traces.clone());
        tauri::async_runtime::spawn(async move {
            while signal.recv().await.is_some() {
                match made.get() {
                    Some(app) => {
                        let before = Shell::of(app).begin_ending();
                        end(app, if before { Patience::None } else { Patience::Some });
                    }
                    None => {
                        let (router, traces) = (Arc::clone(&router), traces.clone());
                        tauri::async_runtime::spawn_blocking(move || {
                            last_of(&router, &traces);
                            std::process::exit(0)
                        });
                    }
                }
            }
        });
    }
    Ok(made)
}
