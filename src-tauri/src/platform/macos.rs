//! A Mac: an app without a Dock icon, a panel above full-screen apps, and a system that would rather put us to sleep.
//!
//! Type-checked elsewhere and run on a Mac by hand (`packaging/macos-checklist.md`).

#![expect(unsafe_code, reason = "AppKit is reached by Objective-C messages")]

use std::ptr::NonNull;

use block2::RcBlock;
use gateway::control::Command;
use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2_app_kit::{
    NSAccessibility as _, NSWindowCollectionBehavior, NSWindowStyleMask, NSWorkspace, NSWorkspaceDidWakeNotification,
};
use objc2_foundation::{MainThreadMarker, NSActivityOptions, NSLocale, NSNotification, NSProcessInfo, NSString};
use objc2_io_kit::{IOPSCopyPowerSourcesInfo, IOPSGetProvidingPowerSourceType};
use system_configuration::core_foundation::array::CFArray;
use system_configuration::core_foundation::runloop::{CFRunLoop, kCFRunLoopCommonModes};
use system_configuration::core_foundation::string::CFString;
use system_configuration::dynamic_store::{SCDynamicStore, SCDynamicStoreBuilder, SCDynamicStoreCallBackContext};
use tauri::tray::TrayIcon;
use tauri::{
    ActivationPolicy, App, AppHandle, Builder, Manager as _, TitleBarStyle, WebviewWindow, WebviewWindowBuilder, Wry,
};
use tauri_nspanel::{ManagerExt as _, PanelLevel, WebviewWindowExt as _};

use crate::shell::Shell;
use crate::tray::Tray;

/// The panel's class. The macro brings imports of its own.
mod class {
    use tauri_nspanel::tauri_panel;

    tauri_panel! {
        panel!(RouterPanel {
            config: {
                can_become_key_window: true,
                is_floating_panel: true
            }
        })
    }
}
use class::RouterPanel;

/// The panel's corners, in points.
const CORNER: f64 = 12.0;

/// What the frame needs to know before it is built.
pub fn prepare(builder: Builder<Wry>) -> Builder<Wry> {
    builder.plugin(tauri_nspanel::init())
}

/// Makes the process one that the system leaves alone, and has it told of sleep and of the network.
pub fn settle(app: &mut App) {
    // Said in Info.plist too: said only here, the system would take us for an app without windows, and end it.
    app.set_activation_policy(ActivationPolicy::Accessory);
    let process = NSProcessInfo::processInfo();
    let reason = NSString::from_str("Claude Code on other devices is served");
    process.disableAutomaticTermination(&reason);
    process.disableSuddenTermination();
    // No nap, and no hindrance to sleep. For as long as the process lives.
    let options = NSActivityOptions::UserInitiatedAllowingIdleSystemSleep
        | NSActivityOptions::AutomaticTerminationDisabled
        | NSActivityOptions::SuddenTerminationDisabled;
    std::mem::forget(process.beginActivityWithOptions_reason(options, &reason));
    hear_of_wakes(app.handle());
    hear_of_networks(app.handle());
}

/// The machine woke: what was connected before is not any more.
fn hear_of_wakes(app: &AppHandle) {
    let app = app.clone();
    let woke = RcBlock::new(move |_: NonNull<NSNotification>| stir(&app));
    // The workspace's own centre: the usual one never says so.
    let centre = NSWorkspace::sharedWorkspace().notificationCenter();
    // SAFETY: the block may be called on any thread, and is kept by the centre.
    let observer = unsafe {
        centre.addObserverForName_object_queue_usingBlock(Some(NSWorkspaceDidWakeNotification), None, None, &woke)
    };
    std::mem::forget(observer);
}

/// An address came or went.
fn hear_of_networks(app: &AppHandle) {
    fn changed(_store: SCDynamicStore, _keys: CFArray<CFString>, app: &mut AppHandle) {
        stir(app);
    }
    let context = SCDynamicStoreCallBackContext {
        callout: changed,
        info: app.clone(),
    };
    let store = SCDynamicStoreBuilder::new("claude-proxy-router")
        .callback_context(context)
        .build();
    let patterns = CFArray::from_CFTypes(&[CFString::from("State:/Network/Interface/[^/]+/IPv[46]")]);
    let source = store.and_then(|store| {
        let none: CFArray<CFString> = CFArray::from_CFTypes(&[]);
        store
            .set_notification_keys(&none, &patterns)
            .then_some(store)?
            .create_run_loop_source()
    });
    match source {
        // SAFETY: the constant is the system's own and never changes.
        Some(source) => CFRunLoop::get_main().add_source(&source, unsafe { kCFRunLoopCommonModes }),
        None => tracing::warn!("changes of the network are noticed late"),
    }
}

/// Old connections are dropped, and logins and usage are looked at anew.
fn stir(app: &AppHandle) {
    let app = app.clone();
    tauri::async_runtime::spawn(async move {
        if let Err(error) = Shell::of(&app).router.command(Command::Stir).await {
            tracing::debug!("{error}");
        }
        Shell::of(&app).hurry();
    });
}

/// With an ordinary window open it stands in the Dock and among those that ⌘-Tab goes through; else in neither.
pub fn be_ordinary(app: &AppHandle, ordinary: bool) {
    let policy = match ordinary {
        true => ActivationPolicy::Regular,
        false => ActivationPolicy::Accessory,
    };
    if let Err(error) = app.set_activation_policy(policy) {
        tracing::warn!("{error}");
    }
}

/// The page reaches to the window's upper edge.
pub fn title_bar<'a>(builder: WebviewWindowBuilder<'a, Wry, AppHandle>) -> WebviewWindowBuilder<'a, Wry, AppHandle> {
    builder.title_bar_style(TitleBarStyle::Overlay).hidden_title(true)
}

/// Makes the window a panel: it takes the keys without making the app the active one, on every space, above
/// full-screen apps.
///
/// # Errors
/// If the system refuses.
pub fn make_panel(window: &WebviewWindow) -> tauri::Result<()> {
    on_main(window, |window| {
        let panel = window.to_panel::<RouterPanel>()?;
        panel.set_level(PanelLevel::Status.value());
        if let Err(error) = panel.add_style_mask(NSWindowStyleMask::NonactivatingPanel) {
            tracing::warn!("the panel takes the focus: {error:?}");
        }
        panel.set_collection_behavior(
            NSWindowCollectionBehavior::CanJoinAllSpaces | NSWindowCollectionBehavior::FullScreenAuxiliary,
        );
        panel.set_hides_on_deactivate(false);
        panel.set_released_when_closed(false);
        panel.set_transparent(true);
        panel.set_corner_radius(CORNER);
        panel.set_has_shadow(true);
        Ok(())
    })
}

/// Shows the panel in front of all else.
///
/// # Errors
/// If the system refuses.
pub fn show_panel(window: &WebviewWindow) -> tauri::Result<()> {
    on_main(window, |window| {
        if let Ok(panel) = window.get_webview_panel(window.label()) {
            panel.show_and_make_key();
        }
        Ok(())
    })
}

/// Hides the panel.
///
/// # Errors
/// If the system refuses.
pub fn hide_panel(window: &WebviewWindow) -> tauri::Result<()> {
    on_main(window, |window| {
        if let Ok(panel) = window.get_webview_panel(window.label()) {
            panel.hide();
        }
        Ok(())
    })
}

/// Ends the panel: it must be a window again first.
///
/// # Errors
/// If the system refuses.
pub fn end_panel(window: &WebviewWindow) -> tauri::Result<()> {
    on_main(window, |window| {
        // It takes the panel out of its register itself, and gives nothing for one that is not there.
        let panel = window.get_webview_panel(window.label()).ok();
        panel.and_then(|panel| panel.to_window()).unwrap_or(window).destroy()
    })
}

/// AppKit wants the main thread. Whoever is on it already is served at once, the others in their order.
fn on_main(
    window: &WebviewWindow,
    what: impl FnOnce(WebviewWindow) -> tauri::Result<()> + Send + 'static,
) -> tauri::Result<()> {
    let inside = window.clone();
    if MainThreadMarker::new().is_some() {
        return what(inside);
    }
    window.run_on_main_thread(move || {
        if let Err(error) = what(inside) {
            tracing::warn!("the panel: {error}");
        }
    })
}

/// Whether banners may be shown; the system asks its owner the first time. It waits for the answer.
pub fn may_notify() -> bool {
    matches!(notify_rust::request_auth_blocking(), Ok(true))
}

/// Says to those who cannot see the icon what it shows.
///
/// # Errors
/// If the main thread is gone.
pub fn describe_icon(icon: &TrayIcon, sentence: &str) -> tauri::Result<()> {
    let sentence = sentence.to_owned();
    icon.with_inner_tray_icon(move |icon| {
        let button = icon
            .ns_status_item()
            .zip(MainThreadMarker::new())
            .and_then(|(item, main)| item.button(main));
        if let Some(button) = button {
            button.setAccessibilityTitle(Some(&NSString::from_str(&sentence)));
        }
    })
}

/// Whether the system shows no icon of ours: it has a switch for that, and keeps the item all the same.
pub fn is_icon_hidden(app: &AppHandle) -> bool {
    let Some(tray) = app.try_state::<Tray>() else {
        return true;
    };
    let hidden = tray.icon().with_inner_tray_icon(|icon| {
        let (Some(item), Some(main)) = (icon.ns_status_item(), MainThreadMarker::new()) else {
            return true;
        };
        let window = item.button(main).and_then(|button| button.window());
        // One that was merely moved out of sight is left alone.
        !item.isVisible() || window.is_none_or(|window| window.screen().is_none() || window.frame().size.width <= 0.0)
    });
    hidden.unwrap_or(true)
}

/// The owner's first language.
pub fn system_language() -> Option<String> {
    NSLocale::preferredLanguages()
        .firstObject()
        .map(|name| name.to_string())
}

/// While it is held, the machine does not fall asleep by itself.
pub struct Wakefulness(Retained<ProtocolObject<dyn NSObjectProtocol>>);

// SAFETY: an activity is only given back, which any thread may do.
unsafe impl Send for Wakefulness {}

impl Drop for Wakefulness {
    fn drop(&mut self) {
        // SAFETY: this is what beginning the activity gave us.
        unsafe { NSProcessInfo::processInfo().endActivity(&self.0) };
    }
}

/// Keeps the machine awake.
pub fn stay_awake() -> Option<Wakefulness> {
    let reason = NSString::from_str("Claude Code on another device is being served");
    let options = NSActivityOptions::IdleSystemSleepDisabled;
    let activity = NSProcessInfo::processInfo().beginActivityWithOptions_reason(options, &reason);
    Some(Wakefulness(activity))
}

/// Whether the machine draws from the mains.
pub fn is_on_power() -> bool {
    let sources = IOPSCopyPowerSourcesInfo();
    // SAFETY: what is asked about is what the call before gave.
    let source = unsafe { IOPSGetProvidingPowerSourceType(sources.as_deref()) };
    source.is_some_and(|source| source.to_string() == "AC Power")
}
