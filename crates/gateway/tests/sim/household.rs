//! The household: two seats, one or two routers, a Claude Code that comes and goes, devices, and what befalls them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use gateway::credential::{CredentialError, Document, Files, Mark, NotOurs, Place, Store, WriteError};
use gateway::items::Listing;
use gateway::keychain::Keychain;
use gateway::lock::WriteLock;
use gateway::paths::Paths;
use gateway::ports::{Clock as _, Network, UpstreamProxy};
use gateway::profile::Profile;
use gateway::reads::Asking;
use gateway::security::Tool;
use gateway::snapshot::SeatState;
use gateway::{Gateway, Ports};
use http::Response;
use http_body_util::BodyExt as _;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use sandbox::Sandbox;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::chance::Chance;
use crate::rival::Rival;
use crate::shelf::{Chain, Shelf, USER};
use crate::support::{KEY, T, VirtualClock, messages, network, seat, stream_body, turn_body, write_login};
use crate::wire::{Log, Sent, Who, sent_twice_by_us, wire};

/// How long a household is watched, and how long it then rests, in seconds of timers.
const LIFE: u64 = 3 * 3_600;
const CALM: u64 = 3_600;
/// How long an access token lives.
const TOKEN_LIFE_S: i64 = 1_800;
const SEATS: [&str; 2] = ["A", "B"];

/// What a history showed; sums over many.
#[derive(Debug, Default)]
pub struct Report {
    /// How many histories are summed up here.
    pub seeds: usize,
    pub requests: usize,
    pub served: usize,
    pub renewed_by_us: usize,
    pub renewed_by_rival: usize,
    pub kills: usize,
    pub lids: usize,
    pub full_disks: usize,
    /// Households whose logins lie in a Keychain.
    pub keychains: usize,
    /// Households with a forgotten copy of a login in another directory.
    pub copies: usize,
    /// Saves that failed after the token had been spent, so that the pair was kept in memory.
    pub kept_unsaved: usize,
    /// Logins anew where nothing was wrong.
    pub logins_meanwhile: usize,
    /// Refresh tokens that we sent although an earlier sending of ours may have spent them.
    pub sent_twice_by_us: usize,
    /// Logins lost although a live process or a store held the live pair.
    pub lost: usize,
    /// Logins lost because the server had rotated and its answer was lost.
    pub lost_with_the_answer: usize,
    /// Logins lost because the only holder of a new pair was killed before it was saved.
    pub lost_with_the_holder: usize,
    /// Logins lost because the rival, seeing the lock of one of us who slept, sent the same refresh token.
    pub lost_to_the_rival: usize,
    /// The longest time, by timers, between a rotation at the server and our saving of the new pair.
    pub longest_window_ms: u128,
    /// What must not happen and did, with the seed.
    pub broken: Vec<String>,
}

impl Report {
    pub fn add(&mut self, seed: u64, other: Self) {
        self.seeds += 1;
        self.requests += other.requests;
        self.served += other.served;
        self.renewed_by_us += other.renewed_by_us;
        self.renewed_by_rival += other.renewed_by_rival;
        self.kills += other.kills;
        self.lids += other.lids;
        self.full_disks += other.full_disks;
        self.keychains += other.keychains;
        self.copies += other.copies;
        self.kept_unsaved += other.kept_unsaved;
        self.logins_meanwhile += other.logins_meanwhile;
        self.sent_twice_by_us += other.sent_twice_by_us;
        self.lost += other.lost;
        self.lost_with_the_answer += other.lost_with_the_answer;
        self.lost_with_the_holder += other.lost_with_the_holder;
        self.lost_to_the_rival += other.lost_to_the_rival;
        self.longest_window_ms = self.longest_window_ms.max(other.longest_window_ms);
        self.broken
            .extend(other.broken.into_iter().map(|what| format!("SEED={seed}: {what}")));
    }
}

/// The stored logins, on a disk that is full at times; above all when a renewal has just seen that it was not.
struct Disk {
    inner: Arc<dyn Store>,
    shelf: Shelf,
    full: Arc<AtomicBool>,
    log: Arc<Mutex<Log>>,
    chance: Mutex<Chance>,
}

impl Disk {
    /// Whether that write is a probe: the login that is there.
    fn is_probe(&self, profile: &Profile, refresh: &str) -> bool {
        let stored = self.shelf.read(&profile.dir);
        stored.is_some_and(|stored| stored["claudeAiOauth"]["refreshToken"] == refresh)
    }

    fn fill_for(&self, time: Duration) {
        let full = Arc::clone(&self.full);
        full.store(true, Ordering::Relaxed);
        tokio::runtime::Handle::current().spawn(async move {
            tokio::time::sleep(time).await;
            full.store(false, Ordering::Relaxed);
        });
    }
}

impl Store for Disk {
    fn mark(&self, profile: &Profile, now: Timestamp) -> Mark {
        self.inner.mark(profile, now)
    }

    fn read(&self, profile: &Profile, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        self.inner.read(profile, asking)
    }

    fn read_at(&self, profile: &Profile, place: &Place, asking: &Asking<'_>) -> Result<Document, CredentialError> {
        self.inner.read_at(profile, place, asking)
    }

    fn admits(&self, document: &Document) -> Result<(), NotOurs> {
        self.inner.admits(document)
    }

    fn write(
        &self,
        profile: &Profile,
        document: &Document,
        lock: &WriteLock<'_>,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let refresh = document.credential().and_then(|login| login.refresh);
        let refresh = refresh.as_ref().map_or("", |token| token.expose());
        let probe = self.is_probe(profile, refresh);
        let written = match self.full.load(Ordering::Relaxed) {
            true => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            false => self.inner.write(profile, document, lock, now),
        };
        let mut log = self.log.lock().unwrap();
        match &written {
            Ok(()) => log.saved(refresh),
            Err(_) => log.not_saved(refresh),
        }
        written?;
        let fills = {
            let mut chance = self.chance.lock().unwrap();
            (probe && !log.calm && chance.percent(12)).then(|| chance.seconds(5, 300))
        };
        if let Some(time) = fills {
            self.fill_for(time);
        }
        Ok(())
    }

    fn may_wait(&self) -> bool {
        self.inner.may_wait()
    }

    fn forget_refusals(&self) {
        self.inner.forget_refusals();
    }
}

/// A router that runs.
struct Router {
    gateway: Gateway,
    app: axum::Router,
    driving: tokio::task::JoinHandle<()>,
}

pub struct Household {
    chance: Chance,
    clock: Arc<VirtualClock>,
    sandbox: Sandbox,
    home: tempfile::TempDir,
    /// A directory that nobody works in, with a copy of the first seat's login as it was in the beginning.
    copy: Option<PathBuf>,
    shelf: Shelf,
    disk_full: Arc<AtomicBool>,
    log: Arc<Mutex<Log>>,
    routers: Vec<Option<Router>>,
    report: Report,
    /// Whether somebody set the clock: from then on nobody here knows when a token ends at the server.
    clock_was_set: bool,
    /// Seats whose newest pair somebody took to the grave, or the wire swallowed, since their last login.
    excused: BTreeMap<String, Excuse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excuse {
    Answer,
    Holder,
}

impl Household {
    pub async fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let clock = VirtualClock::new();
        let sandbox = Sandbox::new({
            let clock = Arc::clone(&clock);
            Arc::new(move || clock.true_ms())
        });
        let home = tempfile::tempdir().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let shelf = match chance.percent(40) {
            false => Shelf::Files,
            true => {
                let clock = Arc::clone(&clock);
                let now_ms = Arc::new(move || clock.now().as_millisecond());
                Shelf::Chain(Arc::new(Chain::new(now_ms, chance.fork())))
            }
        };
        // It may come before or after the directory that it was copied from.
        let copy = chance
            .percent(30)
            .then(|| chance.percent(50))
            .map(|before| home.path().join(if before { "0" } else { "Z" }));
        for name in SEATS {
            let first_end = T + i64::try_from(chance.between(0, 2_000)).unwrap();
            let seat = seat(name, 0.1, 0.1)
                .expires_at_ms(first_end * 1_000)
                .token_lifetime_s(TOKEN_LIFE_S);
            log.lock()
                .unwrap()
                .ends
                .insert(seat.access_token.clone(), first_end * 1_000);
            let copied = copy.clone().filter(|_| name == SEATS[0]);
            for dir in copied.iter().chain([&home.path().join(name)]) {
                write_login(dir, &seat);
                shelf.take_in(dir);
            }
            // Often nothing in it says whose it is.
            if let Some(dir) = copied.filter(|_| chance.percent(50)) {
                fs::remove_file(dir.join(".claude.json")).unwrap();
            }
            log.lock()
                .unwrap()
                .seat_of
                .insert(seat.refresh_token.clone(), name.to_owned());
            sandbox.add_seat(seat);
        }
        let mut household = Self {
            chance,
            clock,
            sandbox,
            home,
            report: Report {
                keychains: usize::from(matches!(shelf, Shelf::Chain(_))),
                copies: usize::from(copy.is_some()),
                ..Report::default()
            },
            copy,
            shelf,
            disk_full: Arc::default(),
            log,
            routers: Vec::new(),
            clock_was_set: false,
            excused: BTreeMap::new(),
        };
        let routers = if household.chance.percent(50) { 2 } else { 1 };
        for _ in 0..routers {
            let router = household.start_router().await;
            household.routers.push(Some(router));
        }
        household
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn now_ms(&self) -> Arc<dyn Fn() -> i64 + Send + Sync> {
        let clock = Arc::clone(&self.clock);
        Arc::new(move || clock.now().as_millisecond())
    }

    async fn start_router(&mut self) -> Router {
        let dirs: Vec<PathBuf> = SEATS
            .iter()
            .map(|name| self.dir(name))
            .chain(self.copy.clone())
            .collect();
        let settings = json!({
            "routerKey": KEY, "includeDefaultAccount": false, "configDirs": dirs, "claudePath": "/nonexistent/claude",
            "tokenUrl": "https://platform.test/v1/oauth/token",
        });
        let config = gateway::config::Config::parse(settings.to_string().as_bytes())
            .unwrap()
            .unwrap();
        let paths = Paths::new(self.home.path(), None, |_| None);
        let sandbox = self.sandbox.clone();
        let ports = Ports {
            clock: self.clock.clone(),
            network: Arc::new(Network::new(move || network(&sandbox))),
            upstream_proxy: UpstreamProxy::default(),
            calls: wire(Who::Us, &self.sandbox, &self.log, self.chance.fork(), self.now_ms()),
            store: Arc::new(Disk {
                inner: match &self.shelf {
                    Shelf::Files => Arc::new(Files),
                    Shelf::Chain(chain) => Arc::new(Keychain::new(
                        Arc::clone(chain) as Arc<dyn Tool>,
                        Arc::clone(chain) as Arc<dyn Listing>,
                        Some(USER),
                        paths.keychain(),
                    )),
                },
                shelf: self.shelf.clone(),
                full: Arc::clone(&self.disk_full),
                log: Arc::clone(&self.log),
                chance: Mutex::new(self.chance.fork()),
            }),
            zone: TimeZone::UTC,
            seed: self.chance.next(),
        };
        let gateway = Gateway::new(config, &paths, ports);
        gateway.scan().await;
        let driving = tokio::spawn(gateway.driver().run());
        Router {
            app: gateway.router(),
            gateway,
            driving,
        }
    }

    /// Lives through its history, calms down, and is looked over.
    pub async fn live(mut self) -> Report {
        let mut rivals = self.rivals();
        let (send, mut logins) = tokio::sync::mpsc::unbounded_channel();
        self.log.lock().unwrap().logins = Some(send);
        let mut left = LIFE;
        let mut devices = tokio::task::JoinSet::new();
        while left > 0 {
            tracing::debug!("it is {}", self.clock.now());
            let pause = self.chance.between(5, 240).min(left);
            let next = tokio::time::Instant::now() + Duration::from_secs(pause);
            while let Ok(Some(name)) = tokio::time::timeout_at(next, logins.recv()).await {
                self.log_in_meanwhile(&name).await;
            }
            left -= pause;
            match self.chance.between(0, 100) {
                0..55 => {
                    for _ in 0..self.chance.between(1, 5) {
                        self.ask(&mut devices);
                    }
                }
                55..63 => {
                    let lid = i64::try_from(self.chance.between(30, 4 * 3_600)).unwrap();
                    self.clock.skew(SignedDuration::from_secs(lid));
                    self.report.lids += 1;
                }
                63..66 => {
                    // The clock is set, an hour at most either way.
                    let by = i64::try_from(self.chance.between(0, 7_200)).unwrap() - 3_600;
                    self.clock.set(SignedDuration::from_secs(by));
                    self.clock_was_set = true;
                }
                66..74 => {
                    self.disk_full.store(true, Ordering::Relaxed);
                    self.report.full_disks += 1;
                    let full = Arc::clone(&self.disk_full);
                    let until = self.chance.seconds(5, 600);
                    tokio::spawn(async move {
                        tokio::time::sleep(until).await;
                        full.store(false, Ordering::Relaxed);
                    });
                }
                74..82 => self.kill_one().await,
                82..86 => self.log_in_where_lost().await,
                86..88 => {
                    let name = SEATS[usize::from(self.chance.percent(50))];
                    self.log_in_meanwhile(name).await;
                }
                88..91 => self.lock_for_a_while(),
                _ => {}
            }
        }
        self.log.lock().unwrap().calm = true;
        self.disk_full.store(false, Ordering::Relaxed);
        if let Shelf::Chain(chain) = &self.shelf {
            chain.locked.store(false, Ordering::Relaxed);
            chain.calm.store(true, Ordering::Relaxed);
        }
        tracing::debug!("it is {}, and all is calm", self.clock.now());
        // A Keychain that kept a write waiting is left alone for hours, unless its owner asks.
        for router in self.routers.iter().flatten() {
            router.gateway.look_again().await;
        }
        tokio::time::sleep(Duration::from_secs(CALM)).await;
        rivals.abort_all();
        for router in self.routers.iter().flatten() {
            router.driving.abort();
            router.gateway.driver().finish().await;
            router.gateway.scan().await;
        }
        while let Some(done) = devices.join_next().await {
            self.heard(done.unwrap());
        }
        self.look_over().await;
        for router in self.routers.iter_mut().flat_map(Option::take) {
            router.driving.abort();
        }
        self.report
    }

    /// A Claude Code on each login, that starts now and then.
    fn rivals(&mut self) -> tokio::task::JoinSet<()> {
        let mut rivals = tokio::task::JoinSet::new();
        for name in SEATS {
            let mut chance = self.chance.fork();
            let mut rival = Rival {
                dir: self.dir(name),
                shelf: self.shelf.clone(),
                calls: wire(Who::Rival, &self.sandbox, &self.log, chance.fork(), self.now_ms()),
                now_ms: self.now_ms(),
                chance: chance.fork(),
                log: Arc::clone(&self.log),
            };
            let renewed = Arc::clone(&self.log);
            rivals.spawn(async move {
                loop {
                    tokio::time::sleep(chance.seconds(20, 1_500)).await;
                    if rival.start().await {
                        renewed.lock().unwrap().renewed_by_rival += 1;
                    }
                }
            });
        }
        rivals
    }

    /// A device asks one of the routers; some hang up.
    fn ask(&mut self, devices: &mut tokio::task::JoinSet<Heard>) {
        let running: Vec<&Router> = self.routers.iter().flatten().collect();
        if running.is_empty() {
            return;
        }
        let router = running[usize::try_from(self.chance.next() % running.len() as u64).unwrap()];
        let app = router.app.clone();
        let text = format!("conversation {}", self.chance.between(0, 12));
        let body = match self.chance.percent(50) {
            true => stream_body("claude-opus-5-5", &text),
            false => turn_body("claude-opus-5-5", &text),
        };
        let hangs_up = self.chance.percent(15).then(|| self.chance.seconds(0, 3));
        self.report.requests += 1;
        devices.spawn(async move {
            let asking = async {
                let Ok(response) = app.oneshot(messages(&body)).await;
                let status = response.status().as_u16();
                let whole = read(response).await;
                Heard::Answer { status, whole }
            };
            match hangs_up {
                Some(patience) => tokio::time::timeout(patience, asking).await.unwrap_or(Heard::HungUp),
                None => tokio::time::timeout(Duration::from_secs(200), asking)
                    .await
                    .unwrap_or(Heard::Nothing),
            }
        });
    }

    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::HungUp => {}
            Heard::Nothing => self.broken("a device waited for more than 200 s"),
            Heard::Answer {
                status: 200,
                whole: true,
            } => self.report.served += 1,
            // Our own: no login is usable, or a renewal takes long. A router that is killed answers nobody.
            Heard::Answer { status: 503, .. } => {}
            Heard::Answer { status, whole } => self.broken(&format!("a device was answered {status}, whole: {whole}")),
        }
    }

    /// Kills a router where it stands, as `kill -9` would, and starts another a little later.
    async fn kill_one(&mut self) {
        let index = usize::try_from(self.chance.next() % self.routers.len() as u64).unwrap();
        let Some(router) = self.routers[index].take() else {
            return;
        };
        self.report.kills += 1;
        let before = self.locks();
        let held = self.held_in_memory(&router);
        let on_its_way: Vec<&str> = SEATS.into_iter().filter(|name| self.renewing(name)).collect();
        router.driving.abort();
        router.gateway.driver().abort();
        drop(router);
        // What was on its way to the disk gets there.
        for _ in 0..20 {
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            tokio::task::yield_now().await;
        }
        // A killed process leaves its locks.
        let after = self.locks();
        for (path, touched) in before.into_iter().filter(|(path, _)| !after.contains_key(path)) {
            fs::create_dir(&path).unwrap();
            fs::File::open(&path).unwrap().set_modified(touched).unwrap();
        }
        for name in held {
            self.excused.insert(name, Excuse::Holder);
        }
        self.note_orphans(&on_its_way);
        tokio::time::sleep(self.chance.seconds(1, 120)).await;
        let router = self.start_router().await;
        self.routers[index] = Some(router);
    }

    /// Seats whose live pair is in that router's memory only.
    fn held_in_memory(&self, router: &Router) -> BTreeSet<String> {
        let waiting = router.gateway.unsaved_dirs();
        let names = SEATS.iter().filter(|name| waiting.contains(&self.dir(name)));
        names.map(|name| (*name).to_owned()).collect()
    }

    /// Seats whose live pair nobody has, since its receiver was killed while it was on its way.
    fn note_orphans(&mut self, on_its_way: &[&str]) {
        for name in on_its_way {
            if self.sandbox.refresh_token(name) != self.stored(name, "refreshToken") {
                self.excused.entry((*name).to_owned()).or_insert(Excuse::Holder);
            }
        }
    }

    fn locks(&self) -> BTreeMap<PathBuf, SystemTime> {
        let mut locks = BTreeMap::new();
        for dir in SEATS.iter().map(|name| self.dir(name)).chain(self.copy.clone()) {
            for path in [
                dir.join(".oauth_refresh.lock"),
                dir.join(".storage-write.lock"),
                PathBuf::from(format!("{}.lock", fs::canonicalize(&dir).unwrap().display())),
            ] {
                if let Ok(about) = fs::metadata(&path) {
                    locks.insert(path, about.modified().unwrap());
                }
            }
        }
        locks
    }

    fn stored(&self, name: &str, key: &str) -> String {
        let document: Value = self.shelf.read(&self.dir(name)).unwrap();
        document["claudeAiOauth"][key].as_str().unwrap_or_default().to_owned()
    }

    /// Whether the live pair is in the store, or waits in a router's memory.
    fn is_safe(&self, name: &str) -> bool {
        let live = self.sandbox.refresh_token(name);
        let waits = self
            .routers
            .iter()
            .flatten()
            .any(|router| router.gateway.unsaved_dirs().contains(&self.dir(name)));
        !live.is_empty() && (self.stored(name, "refreshToken") == live || waits)
    }

    /// The owner logs in again where a login is gone for good.
    async fn log_in_where_lost(&mut self) {
        for name in SEATS {
            let dead = self.dead(name);
            if dead && !self.renewing(name) {
                self.count_loss(name);
                self.log_in(name).await;
            }
        }
    }

    /// The owner logs in anew although nothing is wrong, perhaps in the middle of a renewal.
    async fn log_in_meanwhile(&mut self, name: &str) {
        match self.dead(name) && !self.renewing(name) {
            true => self.count_loss(name),
            false => self.forget_troubles(name),
        }
        self.report.logins_meanwhile += 1;
        self.log_in(name).await;
    }

    /// The Keychain locks itself, where there is one.
    fn lock_for_a_while(&mut self) {
        let time = self.chance.seconds(5, 900);
        if let Shelf::Chain(chain) = &self.shelf {
            let chain = Arc::clone(chain);
            chain.locked.store(true, Ordering::Relaxed);
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                chain.locked.store(false, Ordering::Relaxed);
            });
        }
    }

    /// Claude Code stores a new login under the storage lock, and takes no other.
    async fn log_in(&mut self, name: &str) {
        let lock = self.dir(name).join(".storage-write.lock");
        let mut ours = false;
        for _ in 0..200 {
            ours = fs::create_dir(&lock).is_ok();
            if ours {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.sandbox.log_in_again(name);
        self.excused.remove(name);
        let seat = self.sandbox.seats().into_iter().find(|seat| seat.name == name).unwrap();
        self.log
            .lock()
            .unwrap()
            .ends
            .insert(seat.access_token.clone(), seat.expires_at_ms);
        self.log
            .lock()
            .unwrap()
            .seat_of
            .insert(seat.refresh_token.clone(), name.to_owned());
        write_login(&self.dir(name), &seat);
        self.shelf.take_in(&self.dir(name));
        if ours {
            fs::remove_dir(lock).unwrap();
        }
    }

    /// Whether the store's refresh token is not the live one, and no router holds that.
    fn dead(&self, name: &str) -> bool {
        !self.is_safe(name)
    }

    /// Whether somebody is in the middle of a renewal, so that the pair may be on its way.
    fn renewing(&self, name: &str) -> bool {
        self.locks().keys().any(|path| {
            path.starts_with(self.dir(name)) || path == &PathBuf::from(format!("{}.lock", self.dir(name).display()))
        })
    }

    fn count_loss(&mut self, name: &str) {
        let lost_answer = self.log.lock().unwrap().lost_seats.contains(name);
        let excuse = if lost_answer {
            Some(Excuse::Answer)
        } else {
            self.excused.get(name).copied()
        };
        let rival_killed = self.log.lock().unwrap().rival_killed.contains(&self.dir(name));
        match excuse {
            Some(Excuse::Answer) => self.report.lost_with_the_answer += 1,
            Some(Excuse::Holder) => self.report.lost_with_the_holder += 1,
            None if rival_killed => self.report.lost_with_the_holder += 1,
            None if self.log.lock().unwrap().replayed.contains(name) => self.report.lost_to_the_rival += 1,
            None => {
                self.report.lost += 1;
                let history = self.history(name);
                self.broken(&format!(
                    "the login of {name} was lost although somebody held its live pair: {history:#?}"
                ));
            }
        }
        self.forget_troubles(name);
    }

    /// What befell the login that was there before.
    fn forget_troubles(&self, name: &str) {
        let mut log = self.log.lock().unwrap();
        log.lost_seats.remove(name);
        log.replayed.remove(name);
        log.rival_killed.remove(&self.dir(name));
    }

    /// The last that is known of a login's tokens.
    fn history(&self, name: &str) -> Vec<String> {
        let log = self.log.lock().unwrap();
        let mine = |sent: &&Sent| log.seat_of.get(&sent.token).is_some_and(|seat| seat == name);
        let mut lines: Vec<String> = log.sent.iter().filter(mine).map(|sent| format!("{sent:?}")).collect();
        let posts = self.sandbox.token_posts().into_iter().map(|post| format!("{post:?}"));
        let posts: Vec<String> = posts.filter(|line| line.contains(&format!("-{name}"))).collect();
        lines.drain(..lines.len().saturating_sub(6));
        lines.extend(posts.into_iter().rev().take(6).rev());
        lines.push(format!(
            "live {}, stored {}, now {}",
            self.sandbox.refresh_token(name),
            self.stored(name, "refreshToken"),
            (self.now_ms())()
        ));
        lines
    }

    /// What must hold of every history.
    async fn look_over(&mut self) {
        for name in SEATS {
            if self.dead(name) {
                self.count_loss(name);
            }
        }
        let (twice, ends) = {
            let log = self.log.lock().unwrap();
            self.report.renewed_by_us = log.renewed_by_us();
            self.report.renewed_by_rival = log.renewed_by_rival;
            self.report.longest_window_ms = log.longest_window_ms;
            self.report.kept_unsaved = log.kept_unsaved.len();
            (sent_twice_by_us(&log), log.ends.clone())
        };
        self.report.sent_twice_by_us = twice.len();
        for token in twice {
            self.broken(&format!("{token} was sent twice by us"));
        }
        for request in self
            .sandbox
            .requests()
            .into_iter()
            .filter(|request| request.path == "/v1/messages")
        {
            let token = request.token.unwrap_or_default();
            if !self.clock_was_set && ends.get(&token).is_some_and(|end| *end <= request.at_ms) {
                self.broken(&format!("a request was sent with {token}, which had expired"));
            }
        }
        let mut problems = Vec::new();
        for router in self.routers.iter().flatten() {
            let leases = router.gateway.scheduler().look(|pool, _| pool.open_leases());
            if leases != 0 {
                problems.push(format!("{leases} leases were never settled"));
            }
            for seat in router.gateway.snapshot(&[], false).seats {
                let is_one = |name: &&&str| seat.dirs.iter().any(|dir| dir.rsplit('/').next() == Some(**name));
                // The copy of which nothing says whose it is, is a seat that nobody minds.
                let Some(name) = SEATS.iter().find(is_one) else {
                    continue;
                };
                let name = (*name).to_owned();
                // What nobody has asked for since it died may still look well; what is well must not look dead.
                let well = matches!(seat.state, SeatState::Ready) || seat.login.is_some();
                if self.is_safe(&name) && !well {
                    let words = seat.state.words(|at| at.to_string());
                    let history = self.history(&name);
                    problems.push(format!("{name} is well, and its router says: {words}: {history:#?}"));
                }
            }
        }
        // A lock that a killed process left is old by now; one that somebody touches is held for ever.
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from((self.now_ms())()).unwrap());
        let held = |touched: &SystemTime| {
            now.duration_since(*touched)
                .is_ok_and(|age| age < Duration::from_secs(60))
        };
        for (path, _) in self.locks().into_iter().filter(|(_, touched)| held(touched)) {
            problems.push(format!("{} is still held", path.display()));
        }
        for problem in problems {
            self.broken(&problem);
        }
    }

    fn broken(&mut self, what: &str) {
        self.report.broken.push(what.to_owned());
    }
}

/// What a device heard.
#[derive(Clone, Copy)]
enum Heard {
    Answer { status: u16, whole: bool },
    HungUp,
    Nothing,
}

async fn read(response: Response<Body>) -> bool {
    response.into_body().collect().await.is_ok()
}
