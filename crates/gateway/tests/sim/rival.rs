//! A Claude Code that shares the logins: it takes the same locks and renews on its own, as the genuine one was seen to.
//! Written from those observations and not from our own code, so that the two can disagree.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use gateway::ports::Upstream;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::chance::Chance;
use crate::shelf::Shelf;
use crate::wire::Log;

pub struct Rival {
    pub dir: PathBuf,
    pub shelf: Shelf,
    pub calls: Upstream,
    pub now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
    pub chance: Chance,
    pub log: Arc<Mutex<Log>>,
}

/// A lock directory; it stays when the rival is killed, as the genuine one's does.
struct Lock {
    path: PathBuf,
    armed: bool,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.armed {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

impl Rival {
    /// Starts up, as somebody who opens a terminal: renews the login if it is about to end. Returns whether it did.
    pub async fn start(&mut self) -> bool {
        let Some(seen) = self.read() else { return false };
        if self.lasts(&seen) {
            return false;
        }
        let killed = self.chance.percent(3);
        let Some(mut renewal) = self.lock(".oauth_refresh.lock", 60, 5).await else {
            return false;
        };
        let beside = format!("{}.lock", self.dir.display());
        let Some(mut legacy) = self.lock_at(PathBuf::from(beside), 60, 1).await else {
            return false;
        };
        let Some(stored) = self.read() else { return false };
        if text(&stored, "accessToken") != text(&seen, "accessToken") || self.lasts(&stored) {
            return false;
        }
        let posted = text(&stored, "refreshToken");
        if posted.is_empty() {
            return false;
        }
        let answer = {
            let mut asking = std::pin::pin!(ask(self.calls.clone(), posted.clone()));
            loop {
                tokio::select! {
                    answer = &mut asking => break answer,
                    () = tokio::time::sleep(Duration::from_secs(5)) => {
                        self.touch(&renewal.path);
                        self.touch(&legacy.path);
                    }
                }
            }
        };
        if killed {
            // Killed with the answer in hand: the locks stay, the pair is gone.
            renewal.armed = false;
            legacy.armed = false;
            if matches!(answer, Some((200, _))) {
                self.log.lock().unwrap().rival_killed.insert(self.dir.clone());
            }
            return false;
        }
        match answer {
            Some((200, granted)) => self.save(&posted, &granted).await,
            Some((400, error)) if error["error"] == "invalid_grant" => {
                self.blank(&posted).await;
                false
            }
            _ => false,
        }
    }

    async fn save(&mut self, posted: &str, granted: &Value) -> bool {
        for _ in 0..3 {
            let Some(_storage) = self.lock(".storage-write.lock", 10, 5).await else {
                continue;
            };
            let Some(mut document) = self.document() else {
                return false;
            };
            if document["claudeAiOauth"]["refreshToken"].as_str() != Some(posted) {
                return false;
            }
            let login = &mut document["claudeAiOauth"];
            login["accessToken"] = granted["access_token"].clone();
            if granted["refresh_token"].is_string() {
                login["refreshToken"] = granted["refresh_token"].clone();
            }
            login["expiresAt"] = ((self.now_ms)() + granted["expires_in"].as_i64().unwrap() * 1_000).into();
            self.write(&document);
            return true;
        }
        // It goes on with the pair in memory, and ends some day.
        self.log.lock().unwrap().rival_killed.insert(self.dir.clone());
        false
    }

    async fn blank(&mut self, posted: &str) {
        let Some(_storage) = self.lock(".storage-write.lock", 10, 5).await else {
            return;
        };
        let Some(mut document) = self.document() else { return };
        if document["claudeAiOauth"]["refreshToken"].as_str() == Some(posted) {
            let login = &mut document["claudeAiOauth"];
            (login["accessToken"], login["refreshToken"], login["expiresAt"]) = (json!(""), json!(""), json!(0));
            self.write(&document);
        }
    }

    async fn lock(&mut self, name: &str, stale_s: i64, tries: u32) -> Option<Lock> {
        self.lock_at(self.dir.join(name), stale_s, tries).await
    }

    async fn lock_at(&mut self, path: PathBuf, stale_s: i64, tries: u32) -> Option<Lock> {
        for tried in 0..=tries {
            if fs::create_dir(&path).is_ok() {
                self.touch(&path);
                return Some(Lock { path, armed: true });
            }
            let age = fs::metadata(&path)
                .ok()
                .and_then(|about| about.modified().ok())
                .map(|at| {
                    (self.now_ms)()
                        - i64::try_from(at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
                });
            if age.is_some_and(|age| age > stale_s * 1_000) {
                let _ = fs::remove_dir(&path);
                continue;
            }
            if tried < tries {
                tokio::time::sleep(self.chance.seconds(1, 2)).await;
            }
        }
        None
    }

    fn touch(&self, path: &Path) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from((self.now_ms)()).unwrap());
        if let Ok(folder) = fs::File::open(path) {
            let _ = folder.set_modified(now);
        }
    }

    fn lasts(&self, login: &Value) -> bool {
        login["expiresAt"]
            .as_i64()
            .is_some_and(|end| end - (self.now_ms)() >= 300_000)
    }

    fn document(&self) -> Option<Value> {
        self.shelf.read(&self.dir)
    }

    /// The login, unless somebody is logged out.
    fn read(&self) -> Option<Value> {
        let login = self.document()?["claudeAiOauth"].clone();
        (!text(&login, "accessToken").is_empty()).then_some(login)
    }

    fn write(&mut self, document: &Value) {
        let chance = self.chance.next() as u32;
        self.shelf.write(&self.dir, document, chance);
    }
}

fn text(login: &Value, key: &str) -> String {
    login[key].as_str().unwrap_or_default().to_owned()
}

async fn ask(calls: Upstream, refresh: String) -> Option<(u16, Value)> {
    let body = json!({"grant_type": "refresh_token", "refresh_token": refresh, "client_id": "rival", "scope": "user:inference"});
    let request = Request::post("http://platform.test/v1/oauth/token")
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = calls.oneshot(request).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}
