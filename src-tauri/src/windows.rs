//! The ordinary windows: made when they are wanted, gone when they are closed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tauri::{
    AppHandle, Emitter as _, EventTarget, Manager as _, WebviewUrl, WebviewWindow, WebviewWindowBuilder, WindowEvent,
};

use crate::panel;
use crate::platform;
use crate::shell::Shell;

/// A page, and the window it is shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Page {
    /// Under the icon: who serves next, and what is left.
    Panel,
    /// The settings.
    Settings,
    /// The introduction.
    Onboarding,
    /// Connecting a device.
    Connect,
    /// What went on.
    Activity,
}

impl Page {
    /// Its window's label, and its file's name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Panel => "panel",
            Self::Settings => "settings",
            Self::Onboarding => "onboarding",
            Self::Connect => "connect",
            Self::Activity => "activity",
        }
    }

    /// Its width and height, in points.
    const fn size(self) -> (f64, f64) {
        match self {
            Self::Panel => (panel::WIDTH, panel::TALLEST),
            Self::Settings => (720.0, 530.0),
            Self::Onboarding => (640.0, 488.0),
            Self::Connect => (920.0, 488.0),
            Self::Activity => (860.0, 508.0),
        }
    }

    /// Where its page lies.
    pub fn url(self, section: Option<&str>) -> WebviewUrl {
        let section = section.map_or_else(String::new, |section| format!("#{section}"));
        WebviewUrl::App(format!("{}.html{section}", self.label()).into())
    }
}

/// Which windows can be seen: only those are told of changes.
#[derive(Default)]
pub struct Visible(Mutex<BTreeSet<String>>);

impl Visible {
    /// A window came, or went.
    pub fn set(&self, label: &str, visible: bool) {
        let mut labels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if visible {
            labels.insert(label.to_owned());
        } else {
            labels.remove(label);
        }
    }

    /// Their labels.
    pub fn labels(&self) -> BTreeSet<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where an open window is to go.
#[derive(Clone, Serialize)]
struct Navigate<'a> {
    section: &'a str,
}

/// Shows `page`, at that section. A window that is open already comes to the front.
///
/// # Errors
/// If the system gives no window.
pub fn open(app: &AppHandle, page: Page, section: Option<&str>) -> tauri::Result<()> {
    if page == Page::Panel {
        return panel::open(app, section);
    }
    if let Some(window) = app.get_webview_window(page.label()) {
        navigate(&window, section)?;
        window.unminimize()?;
        return window.set_focus();
    }
    let (width, height) = page.size();
    let builder = WebviewWindowBuilder::new(app, page.label(), page.url(section))
        .title("Claude Proxy Router")
        .inner_size(width, height)
        .min_inner_size(width.min(640.0), height.min(420.0))
        .resizable(matches!(page, Page::Activity | Page::Settings))
        .center();
    let window = platform::title_bar(builder).build()?;
    come(app, page.label());
    let (app, label) = (app.clone(), page.label());
    window.on_window_event(move |event| {
        if matches!(event, WindowEvent::Destroyed) {
            go(&app, label);
        }
    });
    window.set_focus()
}

/// Tells an open window where to go.
pub fn navigate(window: &WebviewWindow, section: Option<&str>) -> tauri::Result<()> {
    match section {
        Some(section) => window.emit_to(
            EventTarget::webview_window(window.label()),
            "navigate",
            Navigate { section },
        ),
        None => Ok(()),
    }
}

/// A window can be seen from now on.
pub fn come(app: &AppHandle, label: &str) {
    app.state::<Visible>().set(label, true);
    ordinary_ones(app);
    Shell::of(app).hurry();
}

/// It no longer can.
pub fn go(app: &AppHandle, label: &str) {
    app.state::<Visible>().set(label, false);
    ordinary_ones(app);
    Shell::of(app).hurry();
}

/// With an ordinary window open, the app is an ordinary app.
fn ordinary_ones(app: &AppHandle) {
    let any = app
        .state::<Visible>()
        .labels()
        .iter()
        .any(|label| label != Page::Panel.label());
    platform::be_ordinary(app, any);
}
