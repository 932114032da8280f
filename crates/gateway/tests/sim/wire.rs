//! The wire to the token endpoint: it is slow, refuses, breaks before or after the server acted; and it keeps a record
//! of who sent which refresh token and what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use gateway::ports::{Upstream, UpstreamError};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use sandbox::{Sandbox, Verdict};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use crate::chance::Chance;
use crate::support::network;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    Us,
    Rival,
}

/// A refresh token that left its owner.
#[derive(Clone, Debug)]
pub struct Sent {
    #[expect(dead_code, reason = "it is there for those who read a history")]
    pub at_ms: i64,
    pub who: Who,
    pub token: String,
    /// Whether the server surely did not take it.
    pub refused: bool,
}

/// What the wire saw.
#[derive(Default)]
pub struct Log {
    pub sent: Vec<Sent>,
    /// Seats whose newest pair was lost on the way back.
    pub lost_seats: BTreeSet<String>,
    /// Folders whose rival was killed with a new pair in hand.
    pub rival_killed: BTreeSet<PathBuf>,
    pub renewed_by_rival: usize,
    /// When each access token ends, in milliseconds.
    pub ends: BTreeMap<String, i64>,
    /// Seats whose spent refresh token was sent once more, by the rival or by one of us who had slept meanwhile.
    pub replayed: BTreeSet<String>,
    /// Whose each refresh token is.
    pub seat_of: BTreeMap<String, String>,
    pub calm: bool,
    pub longest_window_ms: u128,
    /// Pairs of ours that could not be saved at once, by their refresh token.
    pub kept_unsaved: BTreeSet<String>,
    /// Told of seats whose owner logs in anew while a pair is on its way to us.
    pub logins: Option<UnboundedSender<String>>,
    granted_to_us: usize,
    /// When the server made the pairs that are on their way to us, by their refresh token.
    made_for_us: BTreeMap<String, Instant>,
}

impl Log {
    /// Notes that we saved the pair with that refresh token.
    pub fn saved(&mut self, refresh: &str) {
        if let Some(made) = self.made_for_us.remove(refresh) {
            self.longest_window_ms = self.longest_window_ms.max(made.elapsed().as_millis());
        }
    }

    /// Notes that we could not save the pair with that refresh token.
    pub fn not_saved(&mut self, refresh: &str) {
        if self.made_for_us.contains_key(refresh) {
            self.kept_unsaved.insert(refresh.to_owned());
        }
    }

    /// Pairs that reached us.
    pub fn renewed_by_us(&self) -> usize {
        self.granted_to_us
    }
}

/// A refresh token that we sent although an earlier sending of ours may have spent it.
pub fn sent_twice_by_us(log: &Log) -> Vec<String> {
    let mut spent: Vec<&str> = Vec::new();
    let mut twice = Vec::new();
    for sent in log.sent.iter().filter(|sent| sent.who == Who::Us) {
        if spent.contains(&sent.token.as_str()) {
            twice.push(sent.token.clone());
        }
        if !sent.refused {
            spent.push(&sent.token);
        }
    }
    twice
}

/// How long the router's own calls may take (`gateway::ports`); what arrives later is lost.
const LIMIT: Duration = Duration::from_secs(30);

/// The network of `who`'s own calls.
pub fn wire(
    who: Who,
    sandbox: &Sandbox,
    log: &Arc<Mutex<Log>>,
    chance: Chance,
    now_ms: Arc<dyn Fn() -> i64 + Send + Sync>,
) -> Upstream {
    let (inner, log, chance) = (network(sandbox), Arc::clone(log), Arc::new(Mutex::new(chance)));
    let sandbox = sandbox.clone();
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let (inner, log, now_ms, sandbox) = (inner.clone(), Arc::clone(&log), Arc::clone(&now_ms), sandbox.clone());
        let (fault, before, after, login) = {
            let mut chance = chance.lock().unwrap();
            let fault = chance.between(0, 100);
            let slow = chance.percent(15);
            let wait = |chance: &mut Chance| {
                if slow {
                    chance.seconds(1, 40)
                } else {
                    chance.seconds(0, 1)
                }
            };
            (fault, wait(&mut chance), wait(&mut chance), chance.percent(4))
        };
        async move {
            if request.uri().path() != "/v1/oauth/token" {
                return inner.oneshot(request).await;
            }
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let token = field(&body, "refresh_token");
            let calm = log.lock().unwrap().calm;
            let (fault, most) = if calm { (100, LIMIT / 3) } else { (fault, LIMIT) };
            let (before, after) = (before.min(most), after.min(most));
            if fault < 8 {
                return Err(UpstreamError::Connect("no route".into()));
            }
            let number = {
                let mut log = log.lock().unwrap();
                log.sent.push(Sent {
                    at_ms: now_ms(),
                    who,
                    token: token.clone(),
                    refused: false,
                });
                log.sent.len() - 1
            };
            tokio::time::sleep(before).await;
            match fault {
                8..12 => return Err(UpstreamError::Broken("cut before it arrived".into())),
                12..20 => {
                    log.lock().unwrap().sent[number].refused = true;
                    return Ok(answer(503, "{}"));
                }
                _ => {}
            }
            let response = inner.oneshot(Request::from_parts(head, Body::from(body))).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let reused = sandbox
                .token_posts()
                .last()
                .is_some_and(|post| post.verdict == Verdict::Reused);
            // Who sleeps keeps a lock that looks stale, and a question that may still arrive. Whoever of the two comes
            // second, it is the end; that we alone sent it twice is counted apart.
            if reused {
                tracing::debug!("a token that was used is sent by {who:?}");
                let mut log = log.lock().unwrap();
                let seat = log.seat_of.get(&token).cloned();
                log.replayed.extend(seat);
            }
            if head.status.is_success() {
                // A rival counts a token's life from the answer's arrival, and writes that down; nobody can know better.
                let life = serde_json::from_slice::<Value>(&body).unwrap()["expires_in"]
                    .as_i64()
                    .unwrap();
                let mut log = log.lock().unwrap();
                let seat = log.seat_of.get(&token).cloned().expect("a pair comes of a pair");
                log.seat_of.insert(field(&body, "refresh_token"), seat);
                if who == Who::Us {
                    log.ends.insert(field(&body, "access_token"), now_ms() + life * 1_000);
                }
            }
            // From here on the server has acted.
            let left = LIMIT.saturating_sub(before);
            let late = who == Who::Us && after >= left;
            let lost = late || matches!(fault, 20..23);
            if lost && head.status.is_success() {
                let mut log = log.lock().unwrap();
                let seat = log.seat_of.get(&token).cloned();
                log.lost_seats.extend(seat);
            }
            if !lost && head.status.is_success() && who == Who::Us {
                let meanwhile = {
                    let mut log = log.lock().unwrap();
                    log.granted_to_us += 1;
                    log.made_for_us.insert(field(&body, "refresh_token"), Instant::now());
                    let seat = log.seat_of.get(&token).cloned().filter(|_| login && !log.calm);
                    seat.zip(log.logins.clone())
                };
                if let Some((seat, logins)) = meanwhile {
                    logins.send(seat).unwrap();
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            }
            tokio::time::sleep(if late { left } else { after }).await;
            match lost {
                true if fault == 20 => Ok(answer(502, "<html>bad gateway</html>")),
                true => Err(UpstreamError::Broken("cut on the way back".into())),
                false => Ok(Response::from_parts(head, Body::from(body))),
            }
        }
    }))
}

fn field(body: &Bytes, key: &str) -> String {
    let body: Value = serde_json::from_slice(body).unwrap();
    body[key].as_str().unwrap_or_default().to_owned()
}

fn answer(status: u16, body: &'static str) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body)).unwrap()
}
