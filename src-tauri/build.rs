//! Prepares what the app carries in itself: its pages and what each of them may call.

use std::fs;
use std::path::Path;

/// The pages, as `ui` builds them.
const PAGES: [&str; 5] = ["panel", "settings", "onboarding", "connect", "activity"];

/// What a page may ask of the app; `commands.rs` has them.
const COMMANDS: &[&str] = &[
    "command",
    "snapshot",
    "facts",
    "open_window",
    "close_window",
    "fit",
    "launch_at_login",
    "copy",
    "copy_diagnostics",
    "open_link",
    "save_file",
    "quit",
    "take_over",
    "start_router",
    "finish_onboarding",
    "crash_report",
    "dismiss_crash",
];

fn main() {
    // Without the pages the app does not compile; a check of the code alone needs no page that works.
    let dist = Path::new("../ui/dist");
    for page in PAGES {
        let file = dist.join(page).with_extension("html");
        if !file.exists() {
            fs::create_dir_all(dist).expect("ui/dist can be made");
            fs::write(
                &file,
                "<!doctype html><title>Not built</title><p>The pages are built by scripts/ui.",
            )
            .expect("ui/dist can be written");
        }
    }
    println!("cargo:rerun-if-changed={}", dist.display());
    let manifest = tauri_build::AppManifest::new().commands(COMMANDS);
    tauri_build::try_build(tauri_build::Attributes::new().app_manifest(manifest)).expect("tauri.conf.json is right");
}
