//! The icon in the menu bar and its menu: shown what `glance` says, and drawn anew only when that changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gateway::control::Command;
use tauri::image::Image;
use tauri::menu::{Menu, MenuItem, PredefinedMenuItem};
use tauri::tray::{MouseButton, MouseButtonState, TrayIcon, TrayIconBuilder, TrayIconEvent};
use tauri::{AppHandle, Manager as _, Wry};

use crate::commands;
use crate::glance::Glance;
use crate::icon;
use crate::panel;
use crate::placement::IconRect;
use crate::quit;
use crate::shell::Shell;
use crate::windows::{self, Page};
use crate::words::{Key, Words};

/// A template is black; where the system knows none, a grey that is seen on light and dark.
const INK: [u8; 3] = if cfg!(target_os = "macos") {
    [0, 0, 0]
} else {
    [0x8b, 0x8c, 0x92]
};
/// Pixels to the point.
const SCALE: u32 = 2;

/// The icon and its menu.
pub struct Tray {
    icon: TrayIcon,
    /// What it all says, for those who cannot see the icon.
    sentence: MenuItem<Wry>,
    pause: MenuItem<Wry>,
    quit: MenuItem<Wry>,
    /// Those whose words never change but with the language.
    plain: Vec<(MenuItem<Wry>, Key)>,
    shown: Mutex<Option<Shown>>,
}

#[derive(Clone, PartialEq)]
struct Shown {
    glance: Glance,
    language: &'static str,
    paused: bool,
    quitting: bool,
}

/// Puts the icon in the menu bar. `None` where there is none to be had: the app is then reached by starting it again.
pub fn make(app: &AppHandle) -> Option<Tray> {
    // The library that draws it on Linux is looked for when it is first used, and panics where it is missing.
    match catch_unwind(AssertUnwindSafe(|| build(app))) {
        Ok(Ok(tray)) => Some(tray),
        Ok(Err(error)) => {
            tracing::warn!("there is no icon: {error}");
            None
        }
        Err(_) => {
            tracing::warn!("there is no icon: this desktop has no tray library");
            None
        }
    }
}

fn build(app: &AppHandle) -> tauri::Result<Tray> {
    let words = Shell::of(app).words();
    let item = |id: &str, key: Key| MenuItem::with_id(app, id, words.say(key, &[]), true, None::<&str>);
    let sentence = MenuItem::with_id(app, "sentence", words.say(Key::Starting, &[]), false, None::<&str>)?;
    let pause = item("pause", Key::Pause)?;
    let quit = item("quit", Key::Quit)?;
    let open = item("open", Key::Open)?;
    let address = item("address", Key::CopyAddress)?;
    let test = item("test", Key::Test)?;
    let diagnostics = item("diagnostics", Key::CopyDiagnostics)?;
    let reload = item("reload", Key::Reload)?;
    let settings = item("settings", Key::Settings)?;
    let line = || PredefinedMenuItem::separator(app);
    let menu = Menu::with_items(
        app,
        &[
            &sentence,
            &line()?,
            &open,
            &pause,
            &line()?,
            &address,
            &test,
            &diagnostics,
            &reload,
            &line()?,
            &settings,
            &quit,
        ],
    )?;
    let icon = TrayIconBuilder::with_id("router")
        .menu(&menu)
        .show_menu_on_left_click(false)
        .icon_as_template(true)
        .icon(picture(icon::Look::Routing { level: 0, low: false }))
        .on_menu_event(|app, event| chosen(app, event.id().as_ref()))
        .on_tray_icon_event(|tray, event| clicked(tray.app_handle(), &event))
        .build(app)?;
    Ok(Tray {
        icon,
        sentence,
        pause,
        quit,
        plain: vec![
            (open, Key::Open),
            (address, Key::CopyAddress),
            (test, Key::Test),
            (diagnostics, Key::CopyDiagnostics),
            (reload, Key::Reload),
            (settings, Key::Settings),
        ],
        shown: Mutex::default(),
    })
}

impl Tray {
    /// Shows `glance`, and the menu that goes with it. Does nothing if all of it is shown already.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn show(&self, glance: Glance, words: &Words, paused: bool, quitting: bool) -> tauri::Result<()> {
        let shown = Shown {
            glance,
            language: words.language().code(),
            paused,
            quitting,
        };
        // Not held over what follows: that waits for the main thread, which asks here whether routing is paused.
        let before = self.shown().clone();
        if before.as_ref() == Some(&shown) {
            return Ok(());
        }
        let is_new = |part: fn(&Shown) -> String| before.as_ref().map(part) != Some(part(&shown));
        if before.as_ref().map(|before| before.glance.look) != Some(shown.glance.look) {
            // Picture and kind in one step, or the icon flickers.
            self.icon
                .set_icon_with_as_template(Some(picture(shown.glance.look)), true)?;
        }
        if is_new(|shown| format!("{:?}", shown.glance.title)) {
            self.icon.set_title(shown.glance.title.as_deref())?;
        }
        if is_new(|shown| shown.glance.sentence.clone()) {
            self.sentence.set_text(&shown.glance.sentence)?;
            crate::platform::describe_icon(&self.icon, &shown.glance.sentence)?;
        }
        if is_new(|shown| format!("{}{}{}", shown.language, shown.paused, shown.quitting)) {
            let (pause, quit) = (
                if paused { Key::Resume } else { Key::Pause },
                if quitting { Key::QuitNow } else { Key::Quit },
            );
            self.pause.set_text(words.say(pause, &[]))?;
            self.quit.set_text(words.say(quit, &[]))?;
            for (item, key) in &self.plain {
                item.set_text(words.say(*key, &[]))?;
            }
        }
        *self.shown() = Some(shown);
        Ok(())
    }

    /// The icon itself, for what only the system can say of it.
    pub fn icon(&self) -> &TrayIcon {
        &self.icon
    }

    fn is_paused(&self) -> bool {
        self.shown().as_ref().is_some_and(|shown| shown.paused)
    }

    fn shown(&self) -> MutexGuard<'_, Option<Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn picture(look: icon::Look) -> Image<'static> {
    let picture = icon::draw(look, SCALE, INK);
    Image::new_owned(picture.rgba, picture.side, picture.side)
}

fn clicked(app: &AppHandle, event: &TrayIconEvent) {
    if let TrayIconEvent::Click {
        button: MouseButton::Left,
        button_state: MouseButtonState::Up,
        rect,
        ..
    } = event
    {
        // In pixels already, whatever scale is given.
        let (at, size) = (rect.position.to_physical::<f64>(1.0), rect.size.to_physical::<f64>(1.0));
        let icon = IconRect {
            x: at.x,
            y: at.y,
            width: size.width,
            height: size.height,
        };
        told(panel::toggle(app, Some(icon)));
    }
}

fn chosen(app: &AppHandle, what: &str) {
    match what {
        "open" => told(panel::open(app, None)),
        "settings" => told(windows::open(app, Page::Settings, Some("general"))),
        "test" => told(windows::open(app, Page::Settings, Some("network/test"))),
        "reload" => {
            // It is ended later than it says, so that a new one could not be made in its place at once.
            if let Some(window) = app.get_webview_window(Page::Panel.label()) {
                told(window.reload());
            }
            told(panel::open(app, None));
        }
        "pause" => {
            let paused = app.try_state::<Tray>().is_some_and(|tray| tray.is_paused());
            let command = match paused {
                true => Command::Resume { seat: None },
                false => Command::Pause { seat: None },
            };
            let app = app.clone();
            tauri::async_runtime::spawn(async move {
                if let Err(error) = commands::run(&app, command).await {
                    tracing::warn!("{error}");
                }
            });
        }
        "address" => {
            if let Some(address) = Shell::of(app).snapshot().address {
                commands::put_on_clipboard(format!("http://{address}"), false);
            }
        }
        "diagnostics" => {
            commands::copy_diagnostics(app);
        }
        "quit" => quit::ask(app),
        _ => {}
    }
}

fn told(done: tauri::Result<()>) {
    if let Err(error) = done {
        tracing::error!("a window could not be opened: {error}");
    }
}
