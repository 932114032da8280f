//! Linux: a desktop that may have a tray or none, and windows like any other's.

use tauri::tray::TrayIcon;
use tauri::{App, AppHandle, Builder, WebviewWindow, WebviewWindowBuilder, Wry};

/// What the frame needs to know before it is built.
pub fn prepare(builder: Builder<Wry>) -> Builder<Wry> {
    builder
}

/// Nothing needs settling. The router itself notices that the machine has slept, by its clock.
pub fn settle(_app: &mut App) {}

/// An app without windows is no other kind of app here.
pub fn be_ordinary(_app: &AppHandle, _ordinary: bool) {}

/// The desktop draws the title bar.
pub fn title_bar<'a>(builder: WebviewWindowBuilder<'a, Wry, AppHandle>) -> WebviewWindowBuilder<'a, Wry, AppHandle> {
    builder
}

/// The panel is a window without a frame.
///
/// # Errors
/// Never.
pub fn make_panel(_window: &WebviewWindow) -> tauri::Result<()> {
    Ok(())
}

/// Shows the panel in front of all else.
///
/// # Errors
/// If the system refuses.
pub fn show_panel(window: &WebviewWindow) -> tauri::Result<()> {
    window.show()?;
    window.set_focus()
}

/// Hides the panel.
///
/// # Errors
/// If the system refuses.
pub fn hide_panel(window: &WebviewWindow) -> tauri::Result<()> {
    window.hide()
}

/// Ends the panel.
///
/// # Errors
/// If the system refuses.
pub fn end_panel(window: &WebviewWindow) -> tauri::Result<()> {
    window.destroy()
}

/// Whether banners may be shown. Nobody is asked here.
pub const fn may_notify() -> bool {
    true
}

/// An icon here has no description; its menu begins with the same words.
///
/// # Errors
/// Never.
pub fn describe_icon(_icon: &TrayIcon, _sentence: &str) -> tauri::Result<()> {
    Ok(())
}

/// What a desktop shows cannot be asked, and none has a switch for it.
pub fn is_icon_hidden(_app: &AppHandle) -> bool {
    false
}

/// The owner's language, as the environment tells it.
pub fn system_language() -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(set)
}

/// Keeping awake is offered on a Mac.
pub struct Wakefulness;

/// Not offered here.
pub fn stay_awake() -> Option<Wakefulness> {
    None
}

/// Not asked here.
pub fn is_on_power() -> bool {
    false
}
