//! Where a household keeps its logins: files, or a Keychain with the limits of the real one's tool.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway::items::{Item, Listing};
use gateway::security::{Ended, Tool};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::chance::Chance;

/// The user whose Keychain it is.
pub const USER: &str = "me";

/// A Keychain: secrets by service.
pub struct Chain {
    items: Mutex<BTreeMap<String, (Vec<u8>, i64)>>,
    now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
    chance: Mutex<Chance>,
    pub locked: AtomicBool,
    /// Whether nothing goes wrong any more.
    pub calm: AtomicBool,
}

impl Chain {
    pub fn new(now_ms: Arc<dyn Fn() -> i64 + Send + Sync>, chance: Chance) -> Self {
        Self {
            items: Mutex::default(),
            now_ms,
            chance: Mutex::new(chance),
            locked: AtomicBool::new(false),
            calm: AtomicBool::new(false),
        }
    }

    fn put(&self, service: &str, secret: Vec<u8>) {
        let now_s = (self.now_ms)().div_euclid(1_000);
        self.items.lock().unwrap().insert(service.to_owned(), (secret, now_s));
    }

    fn percent(&self, percent: u64) -> bool {
        !self.calm.load(Ordering::Relaxed) && self.chance.lock().unwrap().percent(percent)
    }
}

impl Listing for Chain {
    fn items(&self, account: &str) -> io::Result<Vec<Item>> {
        assert_eq!(account, USER);
        let items = self.items.lock().unwrap();
        let item = |(service, (_, modified)): (&String, &(Vec<u8>, i64))| Item {
            service: service.clone(),
            account: USER.into(),
            modified: Timestamp::from_second(*modified).unwrap(),
        };
        Ok(items.iter().map(item).collect())
    }
}

impl Tool for Chain {
    fn run(&self, arguments: &[&str], input: &[u8], _limit: Duration) -> io::Result<(Ended, Vec<u8>)> {
        let status = |status| Ok((Ended::With(Some(status)), Vec::new()));
        if self.locked.load(Ordering::Relaxed) {
            return status(36);
        }
        if let ["find-generic-password", "-a", USER, "-w", "-s", service] = arguments {
            if self.percent(1) {
                return Ok((Ended::Late, Vec::new()));
            }
            return match self.items.lock().unwrap().get(*service) {
                None => status(44),
                Some((secret, _)) => {
                    let printable = secret.iter().all(|byte| (0x20..0x7f).contains(byte));
                    let mut printed = match printable {
                        true => secret.clone(),
                        false => secret
                            .iter()
                            .flat_map(|byte| format!("{byte:02x}").into_bytes())
                            .collect(),
                    };
                    printed.push(b'\n');
                    Ok((Ended::With(Some(0)), printed))
                }
            };
        }
        assert_eq!(arguments, ["-i"]);
        if self.percent(4) {
            return Ok((Ended::Late, Vec::new()));
        }
        // It reads no more than its buffer holds, and carries that out.
        let line = std::str::from_utf8(&input[..input.len().min(4_095)]).unwrap();
        let part = |before: &str| line.split_once(before).unwrap().1.split('"').next().unwrap().to_owned();
        assert!(line.starts_with("add-generic-password -U "), "not a command of ours");
        let (account, service, hex) = (part("-a \""), part("-s \""), part("-X \""));
        assert_eq!(account, USER);
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        self.put(&service, (0..hex.len() / 2).map(|index| byte(index * 2)).collect());
        if self.percent(4) {
            return Ok((Ended::Late, Vec::new()));
        }
        status(0)
    }
}

/// Where the logins lie, for those who are not the router.
#[derive(Clone)]
pub enum Shelf {
    Files,
    Chain(Arc<Chain>),
}

impl Shelf {
    pub fn read(&self, dir: &Path) -> Option<Value> {
        match self {
            Self::Files => serde_json::from_slice(&fs::read(dir.join(".credentials.json")).ok()?).ok(),
            Self::Chain(chain) => {
                let items = chain.items.lock().unwrap();
                serde_json::from_slice(&items.get(&service(dir))?.0).ok()
            }
        }
    }

    /// Replaces the document whole. `chance` names the file that it is written to first.
    pub fn write(&self, dir: &Path, document: &Value, chance: u32) {
        match self {
            Self::Files => {
                let new = dir.join(format!(".credentials.json.tmp.{chance:08x}"));
                fs::write(&new, document.to_string()).unwrap();
                fs::rename(&new, dir.join(".credentials.json")).unwrap();
            }
            Self::Chain(chain) => chain.put(&service(dir), document.to_string().into_bytes()),
        }
    }

    /// Takes the login that was just laid into `dir` as a file to where it belongs.
    pub fn take_in(&self, dir: &Path) {
        if let Self::Chain(chain) = self {
            let file = dir.join(".credentials.json");
            chain.put(&service(dir), fs::read(&file).unwrap());
            fs::remove_file(file).unwrap();
        }
    }
}

fn service(dir: &Path) -> String {
    let hash = Sha256::digest(dir.display().to_string().as_bytes());
    let hash: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("Claude Code-credentials-{hash}")
}
