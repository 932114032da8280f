//! Whether the app starts when its owner logs in: asked of the system each time, never remembered.

use serde::Serialize;

/// The state, as the system tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum LoginItem {
    /// It starts.
    On,
    /// It does not.
    Off,
    /// The system waits for its owner to allow it.
    NeedsApproval,
    /// It cannot be had from where the app is.
    Unavailable {
        /// Why.
        why: Unavailable,
    },
}

/// Why the app cannot start by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unavailable {
    /// It runs from a disk image, or from where the system put it aside.
    Moved,
    /// It is no bundle.
    Bundle,
}

#[cfg(target_os = "linux")]
pub use linux::{set, state};
#[cfg(target_os = "macos")]
pub use macos::{set, state};

/// A file in the desktop's folder for this.
#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io;
    use std::path::{Path, PathBuf};

    use super::LoginItem;

    const FILE: &str = "autostart/io.github.choiyounggi.claude-proxy-router.desktop";

    /// Whether the app starts by itself.
    pub fn state() -> LoginItem {
        match place().and_then(|path| fs::read_to_string(path).ok()) {
            Some(entry) if starts(&entry) => LoginItem::On,
            _ => LoginItem::Off,
        }
    }

    /// Switches it.
    ///
    /// # Errors
    /// If the file cannot be written or removed.
    pub fn set(enabled: bool) -> io::Result<()> {
        let path = place().ok_or(io::ErrorKind::NotFound)?;
        if !enabled {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, entry(&std::env::current_exe()?))
    }

    fn place() -> Option<PathBuf> {
        let set = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let folder = set.filter(|path| path.is_absolute());
        Some(
            folder
                .or_else(|| Some(std::env::home_dir()?.join(".config")))?
                .join(FILE),
        )
    }

    fn entry(program: &Path) -> String {
        // Quotes, backslashes, dollars and backticks are escaped once for the value and once for the quotes.
        let mut quoted = String::new();
        for letter in program.display().to_string().chars() {
            match letter {
                '"' | '`' | '$' => quoted.push_str("\\\\"),
                '\\' => quoted.push_str("\\\\\\"),
                '%' => quoted.push('%'),
                _ => {}
            }
            quoted.push(letter);
        }
        format!(
            "[Desktop Entry]\nType=Application\nName=Claude Proxy Router\nExec=\"{quoted}\" --background\n\
             X-GNOME-Autostart-enabled=true\n"
        )
    }

    /// A desktop's own settings switch an entry off without removing it.
    fn starts(entry: &str) -> bool {
        let off = ["Hidden=true", "X-GNOME-Autostart-enabled=false"];
        !entry.lines().any(|line| off.contains(&line.trim()))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_entry_that_the_desktop_switched_off_is_off() {
            let whole = entry(Path::new("/opt/router/app"));
            assert!(starts(&whole));
            assert!(!starts(&format!("{whole}Hidden=true\n")));
            assert!(!starts(&whole.replace("enabled=true", "enabled=false")));
        }

        #[test]
        fn a_path_with_odd_letters_stays_one_argument() {
            let odd = entry(Path::new("/opt/my $apps/a\"b\\c%d"));
            assert!(
                odd.contains(r#"Exec="/opt/my \\$apps/a\\"b\\\\c%%d" --background"#),
                "{odd}"
            );
        }
    }
}

/// The system's own login item for an app.
#[cfg(target_os = "macos")]
#[expect(unsafe_code, reason = "the login item is reached by Objective-C messages")]
mod macos {
    use std::io;

    use objc2_foundation::NSBundle;
    use objc2_service_management::{SMAppService, SMAppServiceStatus};

    use super::{LoginItem, Unavailable};

    /// Whether the app starts by itself.
    pub fn state() -> LoginItem {
        if let Some(why) = unavailable() {
            return LoginItem::Unavailable { why };
        }
        // SAFETY: the call takes nothing and only asks.
        let status = unsafe { SMAppService::mainAppService().status() };
        match status {
            SMAppServiceStatus::Enabled => LoginItem::On,
            SMAppServiceStatus::RequiresApproval => LoginItem::NeedsApproval,
            _ => LoginItem::Off,
        }
    }

    /// Switches it.
    ///
    /// # Errors
    /// What the system says.
    pub fn set(enabled: bool) -> io::Result<()> {
        // SAFETY: both calls take nothing; what is registered is this bundle.
        let done = unsafe {
            let service = SMAppService::mainAppService();
            if enabled {
                service.registerAndReturnError()
            } else {
                service.unregisterAndReturnError()
            }
        };
        done.map_err(|error| io::Error::other(error.localizedDescription().to_string()))
    }

    /// An app that is started from a disk image, or that the system runs from a copy, is somewhere else tomorrow.
    fn unavailable() -> Option<Unavailable> {
        let path = NSBundle::mainBundle().bundlePath().to_string();
        if !path.ends_with(".app") {
            return Some(Unavailable::Bundle);
        }
        let moved = path.starts_with("/Volumes/") || path.contains("/AppTranslocation/");
        moved.then_some(Unavailable::Moved)
    }
}
