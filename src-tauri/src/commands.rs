//! What a page may ask for. Each does one thing; what the router does is [`command`], and the control socket's words.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use gateway::control::{Command, CommandError, Reply};
use gateway::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tauri::{AppHandle, Manager as _, WebviewWindow};

use crate::diagnostics;
use crate::facts::Facts;
use crate::login_item::{self, LoginItem};
use crate::panel;
use crate::quit;
use crate::shell::Shell;
use crate::windows::{self, Page};

/// What a page is told when something was not done.
type Failed = CommandError;

fn failed(code: &str) -> impl Fn(&dyn std::fmt::Display) -> Failed {
    move |error| CommandError::new(code, error.to_string())
}

/// Does what `command` says, and looks at once at what came of it.
///
/// # Errors
/// Why it was not done.
pub async fn run(app: &AppHandle, command: Command) -> Reply {
    let reply = Shell::of(app).router.command(command).await;
    Shell::of(app).hurry();
    reply
}

/// The router's commands.
#[tauri::command]
pub async fn command(app: AppHandle, command: Value) -> Reply {
    match serde_json::from_value(command) {
        Ok(command) => run(&app, command).await,
        Err(error) => Err(CommandError::new(
            "unknownCommand",
            format!("this is no command: {error}"),
        )),
    }
}

/// The router as it is now.
#[tauri::command]
pub async fn snapshot(app: AppHandle) -> Snapshot {
    Shell::of(&app).snapshot()
}

/// The app as it is now.
#[tauri::command]
pub async fn facts(app: AppHandle) -> Facts {
    Shell::of(&app).facts()
}

/// Shows another page, in its window.
#[tauri::command]
pub async fn open_window(app: AppHandle, name: Page, section: Option<String>) -> Result<(), Failed> {
    windows::open(&app, name, section.as_deref()).map_err(|error| failed("noWindow")(&error))
}

/// Closes the window that asks.
#[tauri::command]
pub async fn close_window(app: AppHandle, window: WebviewWindow) -> Result<(), Failed> {
    let closed = match window.label() == Page::Panel.label() {
        true => panel::hide(&app),
        false => window.destroy(),
    };
    closed.map_err(|error| failed("noWindow")(&error))
}

/// The panel's page needs that height.
#[tauri::command]
pub async fn fit(app: AppHandle, height: f64) -> Result<(), Failed> {
    panel::fit(&app, height).map_err(|error| failed("noWindow")(&error))
}

/// Switches the start at login, if told to, and says how it stands.
#[tauri::command]
pub async fn launch_at_login(enabled: Option<bool>) -> Result<LoginItem, Failed> {
    if let Some(enabled) = enabled {
        login_item::set(enabled).map_err(|error| failed("loginItem")(&error))?;
    }
    Ok(login_item::state())
}

/// Puts text on the clipboard; what is concealed is kept out of the histories that clipboard managers keep.
#[tauri::command]
pub async fn copy(text: String, concealed: Option<bool>) {
    put_on_clipboard(text, concealed.unwrap_or(false));
}

/// Copies what a report needs, and answers it.
#[tauri::command(rename = "copy_diagnostics")]
pub async fn diagnostics(app: AppHandle) -> String {
    copy_diagnostics(&app)
}

/// Puts what a report needs on the clipboard.
pub fn copy_diagnostics(app: &AppHandle) -> String {
    let shell = Shell::of(app);
    let text = diagnostics::text(&shell.facts(), &shell.snapshot());
    put_on_clipboard(text.clone(), false);
    text
}

/// A place outside the app that a page may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Link {
    /// Anthropic's terms.
    Terms,
    /// The releases.
    Releases,
    /// The project.
    Project,
    /// The system's list of login items.
    LoginItems,
    /// The system's list of menu-bar icons.
    MenuBarSettings,
    /// Tailscale.
    Tailscale,
    /// The folder of our own files.
    Logs,
}

impl Link {
    fn target(self, logs: &Path) -> String {
        match self {
            Self::Terms => "https://www.anthropic.com/legal/consumer-terms".into(),
            Self::Releases => "https://github.com/choiyounggi/claude-proxy-router/releases".into(),
            Self::Project => "https://github.com/choiyounggi/claude-proxy-router".into(),
            Self::LoginItems => "x-apple.systempreferences:com.apple.LoginItems-Settings.extension".into(),
            Self::MenuBarSettings => "x-apple.systempreferences:com.apple.ControlCenter-Settings.extension".into(),
            Self::Tailscale if cfg!(target_os = "macos") => "tailscale://".into(),
            Self::Tailscale => "https://tailscale.com/download".into(),
            Self::Logs => logs.display().to_string(),
        }
    }
}

/// Leads to a place outside the app. A page names it and cannot choose another.
#[tauri::command]
pub async fn open_link(app: AppHandle, link: Link) -> Result<(), Failed> {
    let target = link.target(&Shell::of(&app).paths.logs);
    // The system's opener may take its time, and what it opens lives on.
    open::that_detached(target).map_err(|error| failed("cannotOpen")(&error))
}

/// Where a file was saved.
#[derive(Serialize)]
pub struct Saved {
    path: PathBuf,
}

/// Saves text among the owner's downloads, beside what is there already.
#[tauri::command]
pub async fn save_file(app: AppHandle, name: String, text: String) -> Result<Saved, Failed> {
    let folder = app.path().download_dir().or_else(|_| app.path().home_dir());
    let folder = folder.map_err(|error| failed("cannotSave")(&error))?;
    save_new(&folder, &name, &text)
        .map(|path| Saved { path })
        .map_err(|error| failed("cannotSave")(&error))
}

/// Writes a file of that name, or of the next free one, and never over another.
fn save_new(folder: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    /// So many files of one name are more than anybody looks through.
    const MOST: u32 = 1000;
    // A name alone: a page cannot lead out of the folder.
    let name = Path::new(name).file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let (stem, end) = match (Path::new(name).file_stem(), Path::new(name).extension()) {
        (Some(stem), Some(end)) => (stem.to_string_lossy(), format!(".{}", end.to_string_lossy())),
        _ => (name.to_string_lossy(), String::new()),
    };
    fs::create_dir_all(folder)?;
    for number in 1..MOST {
        let path = match number {
            1 => folder.join(name),
            number => folder.join(format!("{stem} {number}{end}")),
        };
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Ends the app, once nothing is under way; asked again, at once.
#[tauri::command(rename = "quit")]
pub async fn quit_app(app: AppHandle) {
    quit::ask(&app);
}

/// Ends the service that has the router, and starts it here.
#[tauri::command]
pub async fn take_over(app: AppHandle) -> Result<(), Failed> {
    let paths = Shell::of(&app).paths.clone();
    let taken = tauri::async_runtime::spawn_blocking(move || crate::service::end(&paths)).await;
    taken
        .map_err(|error| failed("cannotTakeOver")(&error))?
        .map_err(|error| failed("cannotTakeOver")(&error))?;
    Shell::of(&app).router.start();
    Ok(())
}

/// Tries again what did not start.
#[tauri::command]
pub async fn start_router(app: AppHandle) {
    Shell::of(&app).router.start();
}

/// The introduction is done: it does not come again.
#[tauri::command]
pub async fn finish_onboarding(app: AppHandle) -> Reply {
    let command = Command::Set {
        key: "app.onboarded".into(),
        value: true.into(),
    };
    let reply = run(&app, command).await?;
    Shell::of(&app).read_settings();
    panel::open(&app, None).map_err(|error| failed("noWindow")(&error))?;
    if let Some(window) = app.get_webview_window(Page::Onboarding.label()) {
        window.destroy().map_err(|error| failed("noWindow")(&error))?;
    }
    Ok(reply)
}

/// The last crash's report.
#[tauri::command]
pub async fn crash_report(app: AppHandle) -> Result<String, Failed> {
    Shell::of(&app)
        .traces
        .report()
        .map_err(|error| failed("noReport")(&error))
}

/// The crash was told of.
#[tauri::command]
pub async fn dismiss_crash(app: AppHandle) {
    Shell::of(&app).dismiss_crash();
    Shell::of(&app).hurry();
}

/// Puts text on the clipboard, on a thread: some systems ask its owner for it each time it is pasted.
pub fn put_on_clipboard(text: String, concealed: bool) {
    static CLIPBOARD: Mutex<Option<arboard::Clipboard>> = Mutex::new(None);
    let put = move || {
        let Ok(mut clipboard) = CLIPBOARD.lock() else { return };
        let done = clipboard
            .take()
            .map_or_else(arboard::Clipboard::new, Ok)
            .and_then(|mut system| set_text(&mut system, text, concealed).map(|()| system));
        match done {
            // Kept: on X11 what was copied goes with its owner.
            Ok(system) => *clipboard = Some(system),
            Err(error) => tracing::warn!("nothing could be copied: {error}"),
        }
    };
    if let Err(error) = thread::Builder::new().name("clipboard".into()).spawn(put) {
        tracing::warn!("nothing could be copied: {error}");
    }
}

fn set_text(system: &mut arboard::Clipboard, text: String, concealed: bool) -> Result<(), arboard::Error> {
    #[cfg(target_os = "macos")]
    use arboard::SetExtApple as _;
    #[cfg(target_os = "linux")]
    use arboard::SetExtLinux as _;
    let set = system.set();
    match concealed {
        true => set.exclude_from_history().text(text),
        false => set.text(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_never_written_over_and_never_outside_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let save = |name: &str| save_new(&folder.path().join("Downloads"), name, "a,b\n").unwrap();
        let names = ["tokens.csv", "tokens.csv", "../../tokens.csv", "plain", "plain"].map(|name| {
            let path = save(name);
            assert_eq!(path.parent().unwrap(), folder.path().join("Downloads"));
            path.file_name().unwrap().to_string_lossy().into_owned()
        });
        assert_eq!(
            names,
            ["tokens.csv", "tokens 2.csv", "tokens 3.csv", "plain", "plain 2"]
        );
        assert!(save_new(folder.path(), "..", "").is_err());
    }
}
