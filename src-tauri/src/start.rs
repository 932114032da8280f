//! From the process's first moment to its last.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use gateway::instance::{Instance, InstanceError};
use gateway::log::Rotating;
use gateway::paths::Paths;
use tauri::{App, AppHandle, Manager as _, RunEvent};

use crate::crash::Traces;
use crate::panel::{self, Panel};
use crate::platform;
use crate::quit;
use crate::router::Router;
use crate::shell::Shell;
use crate::tray;
use crate::watch;
use crate::windows::{self, Page, Visible};
use crate::{commands, door};

/// How long a second copy looks for the first one, which may be on its way up or down.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// How the app was started.
#[derive(Default)]
struct Arguments {
    /// Another settings file is another router, and another app.
    config: Option<PathBuf>,
    /// Over made-up seats, in a folder that goes with them: nothing of its owner's is read.
    sandbox: bool,
    /// At login: nothing is opened.
    background: bool,
}

/// Runs the app to its end.
pub fn run() -> ExitCode {
    match begin() {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn begin() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::read(std::env::args_os().skip(1))?;
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let home = home.context("the home directory is not known: set HOME")?;
    let made_up = arguments.sandbox.then(tempfile::tempdir).transpose()?;
    let paths = match &made_up {
        Some(folder) => Paths::new(folder.path(), Some(folder.path().join("config.json")), |_| None),
        None => Paths::new(&home, arguments.config, |name| std::env::var(name).ok()),
    };
    begin_to_log(&paths);
    let Some(_alone) = be_the_only_one(&paths)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let traces = Traces::new(&paths.state);
    let crash = traces.begin();
    let (wake, woken) = mpsc::channel();
    let router = {
        let wake = wake.clone();
        Arc::new(Router::new(paths.clone(), arguments.sandbox, move || {
            let _ = wake.send(());
        }))
    };
    let app = quit::heed_signals(&router, &traces).context("signals cannot be heeded")?;
    router.start();
    listen_at_the_door(&paths, Arc::clone(&app))?;
    let shell = Shell::new(router, paths, traces, crash, wake);
    let background = arguments.background;
    let built = platform::prepare(tauri::Builder::default())
        .manage(shell)
        .manage(Panel::default())
        .manage(Visible::default())
        .invoke_handler(tauri::generate_handler![
            commands::command,
            commands::snapshot,
            commands::facts,
            commands::open_window,
            commands::close_window,
            commands::fit,
            commands::launch_at_login,
            commands::copy,
            commands::diagnostics,
            commands::open_link,
            commands::save_file,
            commands::quit_app,
            commands::take_over,
            commands::start_router,
            commands::finish_onboarding,
            commands::crash_report,
            commands::dismiss_crash,
        ])
        .setup(move |tauri| {
            set_up(tauri, background);
            watch::begin(tauri.handle(), woken);
            let _ = app.set(tauri.handle().clone());
            Ok(())
        })
        .build(tauri::generate_context!());
    let app = match built {
        Ok(app) => app,
        // No desktop. The router goes on without one.
        Err(error) => return Err(error).context("no window can be shown here; `claude-proxy-router start` needs none"),
    };
    app.run(|app, event| match event {
        // The last window is closed: the router goes on.
        RunEvent::ExitRequested { code: None, api, .. } => api.prevent_exit(),
        RunEvent::Exit => quit::last(app),
        #[cfg(target_os = "macos")]
        RunEvent::Reopen { .. } => show(app),
        _ => {}
    });
    Ok(ExitCode::SUCCESS)
}

fn set_up(tauri: &mut App, background: bool) {
    platform::settle(tauri);
    let app = tauri.handle();
    if let Some(tray) = tray::make(app) {
        app.manage(tray);
    }
    let first = Shell::of(app).facts().first_run;
    // Where icons are everywhere, the icon is all that a start shows.
    if first || !background && cfg!(not(target_os = "macos")) {
        show(app);
    }
}

/// Somebody wants to see the app: the introduction until it is done, then the panel.
fn show(app: &AppHandle) {
    let page = match Shell::of(app).facts().first_run {
        true => Page::Onboarding,
        false => Page::Panel,
    };
    let shown = match page {
        Page::Panel => panel::open(app, None),
        page => windows::open(app, page, None),
    };
    if let Err(error) = shown {
        tracing::error!("a window could not be opened: {error}");
    }
}

/// Takes the app's lock, or asks the copy that has it to show itself. `None` if that copy did.
///
/// The router has a lock of its own, which the command takes as well: a service that runs it is told of in a window,
/// and no reason to end.
fn be_the_only_one(paths: &Paths) -> anyhow::Result<Option<Instance>> {
    let (_never, wait) = mpsc::channel::<()>();
    for _ in 0..LOOKS {
        match Instance::take(&paths.app_lock()) {
            Ok(instance) => return Ok(Some(instance)),
            Err(InstanceError::Taken { .. }) if door::knock(&paths.door()) => return Ok(None),
            // It is on its way up, or down.
            Err(InstanceError::Taken { .. }) => drop(wait.recv_timeout(BETWEEN_LOOKS)),
            Err(error) => return Err(error.into()),
        }
    }
    tracing::warn!("another copy runs and does not answer");
    Ok(None)
}

/// Opens the door before there is an app to show: a copy that knocks earlier ends all the same, for the app is on its
/// way.
fn listen_at_the_door(paths: &Paths, app: Arc<OnceLock<AppHandle>>) -> anyhow::Result<()> {
    let asked = move || {
        if let Some(app) = app.get() {
            show(app);
        }
    };
    door::open(&paths.door(), asked).context("the app's own socket cannot be opened")
}

impl Arguments {
    fn read(mut given: impl Iterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut arguments = Self::default();
        while let Some(argument) = given.next() {
            match argument.to_str() {
                Some("--config") => {
                    let file = given.next().context("`--config` wants a file")?;
                    arguments.config = Some(std::path::absolute(file)?);
                }
                Some("--sandbox") => arguments.sandbox = true,
                Some("--background") => arguments.background = true,
                // The system gives its own to an app that it starts.
                _ => tracing::debug!("an argument was not understood"),
            }
        }
        Ok(arguments)
    }
}

/// Logs to the terminal it was started from, or where there is none to a file of bounded length.
fn begin_to_log(paths: &Paths) {
    let wanted = tracing_subscriber::EnvFilter::try_from_env("CLAUDE_PROXY_ROUTER_LOG");
    // Who asks for a log reads it where they asked.
    let here = io::stderr().is_terminal() || wanted.is_ok();
    let filter = wanted.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    match Rotating::open(&paths.app_log()) {
        Ok(file) if !here => log.with_ansi(false).with_writer(Mutex::new(file)).init(),
        _ => log.with_ansi(io::stderr().is_terminal()).with_writer(io::stderr).init(),
    }
}
