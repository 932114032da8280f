//! Where things lie on this machine.

use std::path::{Path, PathBuf};

/// The folder that all of ours are named after.
const NAME: &str = "claude-proxy-router";

/// The places the router reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The owner's home directory.
    pub home: PathBuf,
    /// The settings.
    pub config: PathBuf,
    /// Where Orca keeps its profiles, unless the settings say otherwise.
    pub orca_profiles: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// What the router remembers across restarts. All routers of one user share it.
    pub state: PathBuf,
    /// The folder of logs.
    pub logs: PathBuf,
    /// The folder that the owner's settings of all programs lie in; on a Mac, of this one.
    pub config_home: PathBuf,
    /// Whether the settings are the usual ones.
    pub is_usual: bool,
    /// The store. Each settings file has its own; none is for those who only look.
    pub store: Option<PathBuf>,
}

impl Paths {
    /// The places for that `home`, with the environment read through `var`. `config` stands in for the usual file.
    pub fn new(home: &Path, config: Option<PathBuf>, var: impl Fn(&str) -> Option<String>) -> Self {
        let folder = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let (usual, orca, state, run, logs, config_home) = if cfg!(target_os = "macos") {
            let support = home.join("Library/Application Support");
            (
                support.join(NAME),
                support.join("orca"),
                support.join(NAME).join("state"),
                None,
                home.join("Library/Logs").join(NAME),
                support.clone(),
            )
        } else {
            let config = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
            let data = folder("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
            let state = folder("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"));
            (
                config.join(NAME),
                data.join("orca"),
                state.join(NAME),
                folder("XDG_RUNTIME_DIR"),
                state.join(NAME).join("log"),
                config.clone(),
            )
        };
        // Another settings file is another router: its socket lies beside it.
        let socket = match (&config, run) {
            (None, Some(run)) => run.join(NAME).join("control.sock"),
            (None, None) => usual.join("run/control.sock"),
            (Some(file), _) => beside(file, "run").join("control.sock"),
        };
        let store = match &config {
            None => state.join("router.db"),
            Some(file) => beside(file, "db"),
        };
        Self {
            home: home.to_owned(),
            is_usual: config.is_none(),
            store: Some(store),
            config: config.unwrap_or_else(|| usual.join("config.json")),
            orca_profiles: orca.join("claude-profiles"),
            socket,
            state,
            logs,
            config_home,
        }
    }

    /// The same places, with nothing to be remembered: for a look without a running router.
    #[must_use]
    pub fn for_a_look(mut self) -> Self {
        self.store = None;
        self
    }

    /// The marks of refresh tokens that were sent.
    pub fn renewals(&self) -> PathBuf {
        self.state.join("renewals")
    }

    /// The app's lock, which keeps it to one copy, whoever runs the router.
    pub fn app_lock(&self) -> PathBuf {
        beside(&self.config, "app.lock")
    }

    /// The app's own socket, where a second copy asks the first to show itself.
    pub fn door(&self) -> PathBuf {
        self.socket.with_file_name("app.sock")
    }

    /// Whom macOS asked in vain for a Keychain item.
    pub fn keychain(&self) -> PathBuf {
        self.state.join("keychain.json")
    }

    /// Configuration directories that nobody but the router uses: each folder in it is one.
    pub fn own_logins(&self) -> PathBuf {
        self.neighbour("logins")
    }

    /// The log of a router that runs by itself.
    pub fn log(&self) -> PathBuf {
        self.logs.join("router.log")
    }

    /// The log of the app.
    pub fn app_log(&self) -> PathBuf {
        self.logs.join("app.log")
    }

    /// The router that this machine's own `exec` goes to.
    pub fn joined(&self) -> PathBuf {
        self.neighbour("router.json")
    }

    /// The folder of what was the earlier tool's.
    pub fn earlier(&self) -> PathBuf {
        self.neighbour("earlier")
    }

    /// The devices and their keys' hashes.
    pub fn devices(&self) -> PathBuf {
        self.neighbour("devices.json")
    }

    /// What lies in the folder of settings of the usual name; beside others it carries theirs.
    fn neighbour(&self, name: &str) -> PathBuf {
        match self.config.file_name().is_some_and(|own| own == "config.json") {
            true => self.config.with_file_name(name),
            false => beside(&self.config, name),
        }
    }

    /// The instance lock: a file of its own, since the settings are replaced on each save.
    pub fn lock(&self) -> PathBuf {
        beside(&self.config, "lock")
    }
}

/// `config.json` gives `config.lock`; a file of another name keeps it whole, so that no two share what lies beside them.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    match file.extension().is_some_and(|extension| extension == "json") {
        true => file.with_extension(suffix),
        false => {
            let mut name = file.as_os_str().to_owned();
            name.push(".");
            name.push(suffix);
            name.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "macos")]
    fn the_places_are_a_macs() {
        let paths = Paths::new(Path::new("/Users/me"), None, |_| None);
        let support = Path::new("/Users/me/Library/Application Support");
        assert_eq!(paths.config, support.join("claude-proxy-router/config.json"));
        assert_eq!(paths.orca_profiles, support.join("orca/claude-profiles"));
        assert_eq!(paths.socket, support.join("claude-proxy-router/run/control.sock"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_places_follow_the_xdg_variables() {
        let home = Path::new("/home/me");
        let plain = Paths::new(home, None, |_| None);
        assert_eq!(
            plain.config,
            Path::new("/home/me/.config/claude-proxy-router/config.json")
        );
        assert_eq!(
            plain.lock(),
            Path::new("/home/me/.config/claude-proxy-router/config.lock")
        );
        assert_eq!(
            plain.devices(),
            Path::new("/home/me/.config/claude-proxy-router/devices.json")
        );
        assert_eq!(
            plain.socket,
            Path::new("/home/me/.config/claude-proxy-router/run/control.sock")
        );
        assert_eq!(
            plain.orca_profiles,
            Path::new("/home/me/.local/share/orca/claude-profiles")
        );

        assert_eq!(
            plain.renewals(),
            Path::new("/home/me/.local/state/claude-proxy-router/renewals")
        );

        let set = Paths::new(home, None, |name| Some(format!("/x/{name}")));
        assert_eq!(
            set.config,
            Path::new("/x/XDG_CONFIG_HOME/claude-proxy-router/config.json")
        );
        assert_eq!(
            set.socket,
            Path::new("/x/XDG_RUNTIME_DIR/claude-proxy-router/control.sock")
        );

        let other = Paths::new(home, Some("/tmp/a/other.json".into()), |name| {
            Some(format!("/x/{name}"))
        });
        assert_eq!(other.store.as_deref(), Some(Path::new("/tmp/a/other.db")));
        let usual = Path::new("/x/XDG_STATE_HOME/claude-proxy-router/router.db");
        assert_eq!(set.store.as_deref(), Some(usual));
        assert_eq!(other.lock(), Path::new("/tmp/a/other.lock"));
        assert_eq!(other.devices(), Path::new("/tmp/a/other.devices.json"));
        assert_eq!(other.earlier(), Path::new("/tmp/a/other.earlier"));
        assert_eq!(other.socket, Path::new("/tmp/a/other.run/control.sock"));
    }
}
