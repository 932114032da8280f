//! The LaunchAgent, put in place and taken away. The crate `launchctl` drops what the system answers, so what became of
//! it is asked for afterwards; and it does not wait, so that is done here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Agent, Done, LABEL, Plan, ServiceError, brews, kept_agent, whose};
use crate::file;

/// The system's tool; the crate calls it by this name, too.
const LAUNCHCTL: &str = "/bin/launchctl";
/// How often and how far apart it is looked whether the agent has come or gone: as long as a router may take to end.
const LOOKS: u32 = 350;
const PAUSE: Duration = Duration::from_millis(200);

/// The owner's LaunchAgent.
#[derive(Clone, Debug)]
pub struct Launchd {
    home: PathBuf,
    uid: u32,
}

impl Launchd {
    /// That of the owner of `home`, with that user id.
    pub fn new(home: &Path, uid: u32) -> Self {
        Self {
            home: home.to_owned(),
            uid,
        }
    }

    /// Whether this machine has launchd.
    pub fn is_here() -> bool {
        Path::new(LAUNCHCTL).exists()
    }

    /// Its file.
    pub fn file(&self) -> PathBuf {
        self.folder().join(format!("{LABEL}.plist"))
    }

    fn folder(&self) -> PathBuf {
        self.home.join("Library/LaunchAgents")
    }

    /// Puts the agent in place and starts it, in the place of one that is there. Of one that is not ours a copy goes
    /// into `keep`.
    ///
    /// # Errors
    /// If `brew services` has it, or the system does not run it.
    pub async fn install(&self, plan: &Plan, keep: &Path) -> Result<Done, ServiceError> {
        self.check()?;
        let file = self.file();
        let earlier = self.keep_earlier(keep)?;
        self.unload().await?;
        let mut text = Vec::new();
        let broken = |error: plist::Error| ServiceError::file(&file, io::Error::other(error));
        plan.launch_agent().to_writer_xml(&mut text).map_err(broken)?;
        for folder in [plan.log.parent(), plan.output.parent()].into_iter().flatten() {
            fs::create_dir_all(folder).map_err(|error| ServiceError::file(folder, error))?;
        }
        file::save(&file, &text).map_err(|error| ServiceError::file(&file, error))?;
        self.service(plan)
            .start()
            .map_err(|error| ServiceError::file(Path::new(LAUNCHCTL), error))?;
        match self.becomes(true).await {
            true => Ok(Done { file, earlier }),
            false => Err(ServiceError::Refused {
                manager: "launchd",
                said: format!("`launchctl print gui/{}/{LABEL}` does not know it", self.uid),
            }),
        }
    }

    /// Stops the agent and takes it away. Returns whether there was one.
    ///
    /// # Errors
    /// If its file cannot be removed.
    pub async fn uninstall(&self) -> Result<bool, ServiceError> {
        let file = self.file();
        let loaded = self.is_loaded();
        if loaded {
            self.unload().await?;
        }
        match fs::remove_file(&file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(loaded),
            Err(error) => Err(ServiceError::file(&file, error)),
        }
    }

    /// Whether the system runs it, or would.
    pub fn is_loaded(&self) -> bool {
        let asked = Command::new(LAUNCHCTL)
            .args(["print", &format!("gui/{}/{LABEL}", self.uid)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        asked.is_ok_and(|status| status.success())
    }

    fn check(&self) -> Result<(), ServiceError> {
        if let Some(brew) = brews(&self.folder()) {
            return Err(ServiceError::Brew(brew));
        }
        // The crate panics without it.
        match Self::is_here() {
            true => Ok(()),
            false => Err(ServiceError::NoManager("launchctl")),
        }
    }

    /// Copies an agent that is not ours into `keep`, once.
    fn keep_earlier(&self, keep: &Path) -> Result<Option<PathBuf>, ServiceError> {
        let file = self.file();
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ServiceError::file(&file, error)),
        };
        if whose(&text) == Agent::Ours {
            return Ok(None);
        }
        let copy = keep.join(kept_agent());
        file::save(&copy, &text).map_err(|error| ServiceError::file(&copy, error))?;
        Ok(Some(copy))
    }

    async fn unload(&self) -> Result<(), ServiceError> {
        if !self.is_loaded() {
            return Ok(());
        }
        let nowhere = Plan {
            program: PathBuf::new(),
            config: None,
            log: PathBuf::new(),
            output: PathBuf::new(),
        };
        self.service(&nowhere)
            .stop()
            .map_err(|error| ServiceError::file(Path::new(LAUNCHCTL), error))?;
        // It returns before the router has ended, and a new one would find the lock taken.
        self.becomes(false).await;
        Ok(())
    }

    async fn becomes(&self, loaded: bool) -> bool {
        for _ in 0..LOOKS {
            if self.is_loaded() == loaded {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }

    /// The crate's defaults are another's user id, paths that nobody expands, and logs for all to see.
    fn service(&self, plan: &Plan) -> launchctl::Service {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        launchctl::Service::builder()
            .name(LABEL)
            .uid(self.uid.to_string())
            .plist_path(text(&self.file()))
            .error_log_path(text(&plan.output))
            .out_log_path(text(&plan.output))
            .build()
    }
}
