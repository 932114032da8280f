//! The panel: under its icon, above all else, gone at the next click elsewhere.
//!
//! A closed panel stays for half a minute, hidden and told nothing, so that a second look is quick; then its web view
//! is ended, which is most of the app's memory.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gateway::ports::{Clock as _, SystemClock};
use jiff::{SignedDuration, Timestamp};
use tauri::{AppHandle, LogicalPosition, LogicalSize, Manager as _, WebviewWindow, WebviewWindowBuilder, WindowEvent};

use crate::placement::{self, Anchor, IconRect, Screen, Size};
use crate::platform;
use crate::shell::Shell;
use crate::windows::{self, Page};

/// Its width, in points.
pub const WIDTH: f64 = 360.0;
/// Its greatest height, in points.
pub const TALLEST: f64 = 620.0;
/// What it has until its page says how much it needs.
const AT_FIRST: f64 = 480.0;
/// How long a closed panel is kept.
pub const GRACE: Duration = Duration::from_secs(30);
/// A click on the icon takes the focus from the panel first; so short after, it means that the panel is to stay shut.
const SAME_CLICK: SignedDuration = SignedDuration::from_millis(250);

/// What is known of the panel between calls.
#[derive(Default)]
pub struct Panel(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    icon: Option<IconRect>,
    /// Since when it is hidden, while it is.
    hidden_at: Option<Timestamp>,
    /// Whether it has had the focus since it was shown: what it never had it cannot lose.
    focused: bool,
}

impl Panel {
    fn with<T>(app: &AppHandle, what: impl FnOnce(&mut Inner) -> T) -> T {
        what(&mut app.state::<Self>().0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The icon was clicked, and is there: shows the panel, or hides it.
///
/// # Errors
/// If the system gives no window.
pub fn toggle(app: &AppHandle, icon: Option<IconRect>) -> tauri::Result<()> {
    let now = SystemClock.now();
    let just_hidden = Panel::with(app, |panel| {
        panel.icon = icon.or(panel.icon);
        panel.hidden_at.is_some_and(|at| now.duration_since(at) < SAME_CLICK)
    });
    if just_hidden {
        return Ok(());
    }
    match is_open(app) {
        true => hide(app),
        false => open(app, None),
    }
}

/// Shows the panel, at that section.
///
/// # Errors
/// If the system gives no window.
pub fn open(app: &AppHandle, section: Option<&str>) -> tauri::Result<()> {
    Panel::with(app, |panel| {
        panel.hidden_at = None;
        panel.focused = false;
    });
    let window = match app.get_webview_window(Page::Panel.label()) {
        Some(window) => {
            windows::navigate(&window, Some(section.unwrap_or_default()))?;
            window
        }
        None => make(app, section)?,
    };
    put(app, &window, None)?;
    platform::show_panel(&window)?;
    // Some systems only take a place for a window that is shown.
    put(app, &window, None)?;
    windows::come(app, Page::Panel.label());
    Ok(())
}

/// Hides the panel, and ends it later.
///
/// # Errors
/// If the system refuses.
pub fn hide(app: &AppHandle) -> tauri::Result<()> {
    let Some(window) = app.get_webview_window(Page::Panel.label()) else {
        return Ok(());
    };
    if !is_open(app) {
        return Ok(());
    }
    Panel::with(app, |panel| panel.hidden_at = Some(SystemClock.now()));
    windows::go(app, Page::Panel.label());
    platform::hide_panel(&window)
}

/// Ends a panel that was hidden long enough. Returns when to look again, if one is hidden.
pub fn end_hidden(app: &AppHandle) -> Option<Duration> {
    let hidden = Panel::with(app, |panel| panel.hidden_at)?;
    let since = SystemClock.now().duration_since(hidden).unsigned_abs();
    if since < GRACE {
        return Some(GRACE - since);
    }
    end(app);
    None
}

/// Ends the panel now; the next one is made anew.
pub fn end(app: &AppHandle) {
    Panel::with(app, |panel| panel.hidden_at = None);
    windows::go(app, Page::Panel.label());
    if let Some(window) = app.get_webview_window(Page::Panel.label())
        && let Err(error) = platform::end_panel(&window)
    {
        tracing::warn!("the panel could not be closed: {error}");
    }
}

/// The page needs that height.
///
/// # Errors
/// If the system refuses.
pub fn fit(app: &AppHandle, height: f64) -> tauri::Result<()> {
    match app.get_webview_window(Page::Panel.label()) {
        Some(window) => put(app, &window, Some(height)),
        None => Ok(()),
    }
}

fn is_open(app: &AppHandle) -> bool {
    let visible = app.state::<windows::Visible>().labels();
    visible.contains(Page::Panel.label())
}

fn make(app: &AppHandle, section: Option<&str>) -> tauri::Result<WebviewWindow> {
    let window = WebviewWindowBuilder::new(app, Page::Panel.label(), Page::Panel.url(section))
        .title("Claude Proxy Router")
        .inner_size(WIDTH, AT_FIRST)
        .decorations(false)
        // GTK gives a window that its owner cannot resize the size that its content asks for, and heeds nobody else.
        .resizable(cfg!(target_os = "linux"))
        .skip_taskbar(true)
        .always_on_top(true)
        .visible(false)
        .build()?;
    platform::make_panel(&window)?;
    let app = app.clone();
    window.on_window_event(move |event| {
        let done = match event {
            WindowEvent::Focused(true) => {
                Panel::with(&app, |panel| panel.focused = true);
                Ok(())
            }
            WindowEvent::Focused(false) if Panel::with(&app, |panel| panel.focused) => hide(&app),
            WindowEvent::Destroyed => {
                windows::go(&app, Page::Panel.label());
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!("the panel could not be hidden: {error}");
        }
    });
    Ok(window)
}

/// Puts the panel where it belongs, with that height or the one it has.
fn put(app: &AppHandle, window: &WebviewWindow, height: Option<f64>) -> tauri::Result<()> {
    let wanted = match height {
        Some(height) => height.clamp(120.0, TALLEST),
        None => {
            let scale = window.scale_factor()?;
            let now = window.inner_size()?.to_logical::<f64>(scale).height;
            if now > 1.0 { now } else { AT_FIRST }
        }
    };
    let anchor = match Panel::with(app, |panel| panel.icon) {
        _ if cfg!(target_os = "macos") && Shell::of(app).is_icon_hidden() => Anchor::Middle,
        Some(icon) => Anchor::Icon(icon),
        None => Anchor::Corner,
    };
    let size = Size {
        width: WIDTH,
        height: wanted,
    };
    let (place, height) = placement::place(anchor, &screens(window)?, size);
    window.set_size(LogicalSize::new(WIDTH, height))?;
    window.set_position(LogicalPosition::new(place.x, place.y))
}

/// The screens, the main one first.
fn screens(window: &WebviewWindow) -> tauri::Result<Vec<Screen>> {
    let main = window.primary_monitor()?;
    let others = window.available_monitors()?;
    let others = others
        .into_iter()
        .filter(|monitor| main.as_ref().is_none_or(|main| monitor.position() != main.position()));
    Ok(main
        .clone()
        .into_iter()
        .chain(others)
        .map(|monitor| {
            let scale = monitor.scale_factor();
            let (at, size) = (
                monitor.position().to_logical::<f64>(scale),
                monitor.size().to_logical::<f64>(scale),
            );
            let area = monitor.work_area();
            let (free_at, free) = (
                area.position.to_logical::<f64>(scale),
                area.size.to_logical::<f64>(scale),
            );
            Screen {
                x: at.x,
                y: at.y,
                width: size.width,
                height: size.height,
                scale,
                top: (free_at.y - at.y).max(0.0),
                bottom: (at.y + size.height - free_at.y - free.height).max(0.0),
            }
        })
        .collect())
}
