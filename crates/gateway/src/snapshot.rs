//! All that a screen may know: plain data, without a secret. One snapshot is enough to draw everything.
//!
//! The page's TypeScript types are made from these (`ui/src/lib/bindings`), and a test keeps the two alike.

mod next;
mod seat;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use jiff::Timestamp;
use pool::{Account, AccountId, Policy, Pool, Trouble};
use serde::{Deserialize, Serialize};

use crate::addresses::{self, Candidate};
use crate::listen::Door;
use crate::reads;
use crate::record::SwitchRecord;
use crate::recorder;
use crate::roster::Seat;

pub use crate::devices::DeviceView;
pub use crate::reads::Why as ReadWhy;
pub use crate::record::Cause;
pub use next::{Forecast, ForecastState, Next, Nobody, Why};
use next::{forecast, next};
pub use seat::{ExtraUsage, LoginTrouble, Rest, RestCause, SeatState, SeatView, WindowView};
use seat::{Known, seat_view};

/// The shape's version; a reader that knows a lower one may go by the fields it knows.
pub const VERSION: u32 = 2;

/// The router as it is at one moment. Times are seconds since the epoch, shares are basis points (10 000 is all).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The shape's version.
    pub version: u32,
    /// The program's version.
    pub program: String,
    /// When it was taken.
    pub now: i64,
    /// When the router started; absent while it does not run.
    pub started_at: Option<i64>,
    /// Where the router listens.
    pub listening: Vec<String>,
    /// Where it is to listen and cannot now: the address is not there, another program has the port, or the system
    /// refuses it.
    pub waiting: Vec<String>,
    /// The address to give to devices: `host:port`; absent while nothing is listened on.
    pub address: Option<String>,
    /// Whether the seats are made up and Anthropic is pretended.
    pub sandbox: bool,
    /// How seats are chosen.
    pub routing: Routing,
    /// Who would serve a new conversation.
    pub next: Next,
    /// How long the seats last together.
    pub forecast: Forecast,
    /// The seats, in their owner's order, then by label.
    pub seats: Vec<SeatView>,
    /// The devices that have a key, revoked ones included.
    pub devices: Vec<DeviceView>,
    /// The last times that the work moved from one seat to another, newest first.
    pub switches: Vec<Switch>,
    /// What goes on; absent where it is not counted.
    pub activity: Option<Activity>,
    /// What is the matter, the gravest first.
    pub problems: Vec<Problem>,
    /// The logins that were read since the start, by name, each one's last reading.
    pub reads: Vec<Read>,
}

/// What the pool and the roster know at `now`; the rest is empty.
pub fn of(pool: &Pool, seats: &BTreeMap<AccountId, Seat>, now: Timestamp) -> Snapshot {
    let view = |account: &Account| {
        let known = Known {
            renewals: pool.renewals(&account.id)?,
            polls: pool.polls(&account.id),
            burns: pool.burns(&account.id),
        };
        Some(seat_view(account, &known, seats.get(&account.id)?, now))
    };
    let mut seats: Vec<SeatView> = pool.accounts().filter_map(view).collect();
    let place = |seat: &SeatView| seat.order.unwrap_or(u32::MAX);
    seats.sort_by(|one, other| (place(one), &one.label).cmp(&(place(other), &other.label)));
    Snapshot {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").into(),
        now: now.as_second(),
        started_at: None,
        listening: Vec::new(),
        waiting: Vec::new(),
        address: None,
        sandbox: false,
        routing: Routing {
            strategy: pool.policy().strategy.name().into(),
            paused: false,
        },
        next: next(pool, &seats, now),
        forecast: forecast(pool, now),
        seats,
        devices: Vec::new(),
        switches: Vec::new(),
        activity: None,
        problems: pool.troubles(now).into_iter().map(pool_problem).collect(),
        reads: Vec::new(),
    }
}

/// What there is to show while no router runs.
pub fn nothing(now: Timestamp) -> Snapshot {
    of(&Pool::new(Policy::default(), 0), &BTreeMap::new(), now)
}

/// The address to give to devices, of a machine that has the addresses in `candidates`.
pub fn address(listening: &[SocketAddr], candidates: &[Candidate]) -> Option<String> {
    let ips: Vec<IpAddr> = listening.iter().map(SocketAddr::ip).collect();
    let best = addresses::best(&ips, candidates);
    let own = listening.iter().find(|address| address.ip() == best);
    // Where all addresses are listened on, each has the same port.
    let port = own.or(listening.first())?.port();
    Some(SocketAddr::new(best, port).to_string())
}

/// How seats are chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Routing {
    /// The way, as the settings name it.
    pub strategy: String,
    /// Whether the owner has paused the whole router.
    pub paused: bool,
}

/// The work moved from one seat to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Switch {
    /// When.
    pub at: i64,
    /// From which seat, by id.
    pub from: Option<String>,
    /// To which seat, by id; absent if there was none.
    pub to: Option<String>,
    /// Why.
    pub cause: Cause,
    /// The allowance that was reached, as it stands before the word *limit*.
    pub limit: Option<String>,
}

impl From<SwitchRecord> for Switch {
    fn from(switch: SwitchRecord) -> Self {
        Self {
            at: switch.at / 1_000,
            from: Some(switch.from.to_string()),
            to: Some(switch.to.to_string()),
            cause: switch.cause,
            limit: switch.words.strip_suffix(" limit reached").map(Into::into),
        }
    }
}

/// What goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// Requests in the last sixty minutes.
    pub requests_last_hour: u32,
    /// Devices that asked for something in the last fifteen minutes.
    pub devices_active: u32,
    /// The last time that a wrong or revoked key was shown.
    pub refused: Option<RefusedKey>,
}

/// What goes on at `now`, with so many requests in the last hour, and a key turned away then.
pub fn activity(devices: &[DeviceView], requests: usize, refused_at: Option<i64>, now: i64) -> Activity {
    /// In seconds.
    const OF_LATE: i64 = 15 * 60;
    let called = devices
        .iter()
        .filter(|device| device.last_seen_at.is_some_and(|at| at > now - OF_LATE));
    Activity {
        requests_last_hour: u32::try_from(requests).unwrap_or(u32::MAX),
        devices_active: u32::try_from(called.count()).unwrap_or(u32::MAX),
        refused: refused_at.map(|at| RefusedKey { at, from: None }),
    }
}

/// A key that was turned away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct RefusedKey {
    /// When.
    pub at: i64,
    /// From which address, where that is known.
    pub from: Option<String>,
}

/// Something that the owner should know or mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Which.
    pub kind: ProblemKind,
    /// It in a sentence, for those who have none of their own.
    pub words: String,
    /// The address it is about.
    pub address: Option<String>,
    /// The program that holds that address.
    pub holder: Option<String>,
    /// Since when.
    pub since: Option<i64>,
}

impl Problem {
    fn new(kind: ProblemKind, words: String) -> Self {
        Self {
            kind,
            words,
            address: None,
            holder: None,
            since: None,
        }
    }
}

/// What keeps all seats alike from serving, as the pool knows it.
fn pool_problem((trouble, since): (Trouble, Timestamp)) -> Problem {
    let (kind, words) = match trouble {
        Trouble::Unreachable => (ProblemKind::Offline, "Anthropic cannot be reached"),
        Trouble::Overloaded => (ProblemKind::Overloaded, "Anthropic is overloaded"),
        Trouble::Throttled => (
            ProblemKind::Throttled,
            "requests are throttled, whichever seat they use",
        ),
        Trouble::LoginsRefused => (
            ProblemKind::LoginsRefused,
            "logins are refused, whichever seat they belong to",
        ),
        Trouble::Challenged => (ProblemKind::Challenged, "requests from here must pass a challenge"),
        Trouble::WrongPlace => (
            ProblemKind::WrongPlace,
            "requests from this place or network are not allowed",
        ),
    };
    Problem {
        since: Some(since.as_second()),
        ..Problem::new(kind, words.into())
    }
}

/// The problem that the list of devices is, if it is damaged in that way.
pub fn devices_problem(damage: Option<String>) -> Option<Problem> {
    damage.map(|words| Problem::new(ProblemKind::DevicesDamaged, words))
}

/// What keeps those addresses closed.
pub fn door_problems(doors: &[(SocketAddr, Door)]) -> Vec<Problem> {
    let problem = |&(address, door): &(SocketAddr, Door)| {
        let (kind, words) = match door {
            Door::Open => return None,
            Door::Taken => (ProblemKind::PortBusy, format!("another program listens on {address}")),
            Door::Refused(why) => (
                ProblemKind::PortRefused,
                format!("the system refuses to listen on {address}: {why}"),
            ),
            Door::Waiting => (
                ProblemKind::AddressGone,
                format!("{} is not an address of this machine now", address.ip()),
            ),
        };
        Some(Problem {
            address: Some(address.to_string()),
            ..Problem::new(kind, words)
        })
    };
    let mut problems: Vec<Problem> = doors.iter().filter_map(problem).collect();
    // An address may come back by itself; the others want a person.
    problems.sort_by_key(|problem| problem.kind == ProblemKind::AddressGone);
    problems
}

/// The problem that settings are, if they were refused for that reason.
pub fn settings_problem(refused: Option<String>) -> Option<Problem> {
    refused.map(|words| Problem::new(ProblemKind::SettingsRefused, words))
}

/// The problem that the store is.
pub fn store_problem(trouble: Option<recorder::Trouble>) -> Option<Problem> {
    use recorder::Trouble;
    Some(match trouble? {
        Trouble::MovedAside(aside) => Problem::new(
            ProblemKind::StoreMovedAside,
            format!(
                "the store was begun anew ({}); the old one is {}",
                aside.why,
                aside.path.display()
            ),
        ),
        Trouble::TakesNothing(why) => Problem::new(
            ProblemKind::StoreTakesNothing,
            format!("the store takes nothing now: {why}"),
        ),
        Trouble::None(why) => Problem::new(ProblemKind::NoStore, format!("there is no store in this run: {why}")),
    })
}

/// What can be the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub enum ProblemKind {
    /// Another program listens on the port.
    PortBusy,
    /// The system refuses the port, as one that only an administrator may use.
    PortRefused,
    /// An address to listen on is not this machine's now.
    AddressGone,
    /// There is no network.
    Offline,
    /// The list of devices cannot be read; the settings' key alone is good.
    DevicesDamaged,
    /// The settings are not valid; those before them stay in force.
    SettingsRefused,
    /// Anthropic is overloaded.
    Overloaded,
    /// Anthropic throttles requests, whichever seat they use.
    Throttled,
    /// Anthropic refuses logins, whichever seat they belong to.
    LoginsRefused,
    /// Anthropic challenges requests from this network.
    Challenged,
    /// Anthropic does not serve this place or network.
    WrongPlace,
    /// The store was damaged and begun anew.
    StoreMovedAside,
    /// The store takes nothing for now; what is known is written once it does.
    StoreTakesNothing,
    /// There is no store in this run.
    NoStore,
}

/// Something that was read of the owner's logins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Read {
    /// `Keychain item NAME`, or a file's path.
    pub what: String,
    /// The label of the seat whose login it holds, where that is known.
    pub seat: Option<String>,
    /// When it was read last.
    pub when: i64,
    /// What for.
    pub why: ReadWhy,
}

/// A reading, told with the seat that its directory belongs to.
pub fn read(read: reads::Read, seats: &BTreeMap<AccountId, Seat>) -> Read {
    let seat = seats.values().find(|seat| seat.dirs.contains(&read.dir));
    Read {
        what: read.what,
        seat: seat.map(|seat| seat.label.clone()),
        when: read.when.as_second(),
        why: read.why,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::path::Path;

    use ts_rs::{Config, TS};

    use super::{ProblemKind, Snapshot, address, door_problems};
    use crate::addresses::{Candidate, Kind};
    use crate::listen::Door;

    #[test]
    fn the_address_to_give_to_devices_is_one_that_they_can_call() {
        let candidate = |kind, ip: &str| Candidate {
            kind,
            ip: ip.parse().unwrap(),
            interface: "x".into(),
        };
        let here = [
            candidate(Kind::Loopback, "127.0.0.1"),
            candidate(Kind::Tailscale, "100.64.0.9"),
            candidate(Kind::Lan, "192.168.1.20"),
        ];
        for (listening, want) in [
            (&[][..], None),
            (&["127.0.0.1:18787"], Some("127.0.0.1:18787")),
            (&["127.0.0.1:1", "192.168.1.20:2"], Some("192.168.1.20:2")),
            (&["0.0.0.0:18787"], Some("100.64.0.9:18787")),
            (&["[::]:18787"], Some("100.64.0.9:18787")),
            (&["[::1]:18787"], Some("[::1]:18787")),
        ] {
            let sockets: Vec<_> = listening.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(address(&sockets, &here).as_deref(), want, "{listening:?}");
        }
        let alone = ["0.0.0.0:18787".parse().unwrap()];
        assert_eq!(address(&alone, &[]).as_deref(), Some("127.0.0.1:18787"));
    }

    #[test]
    fn what_keeps_an_address_closed_is_told_by_its_kind_the_gravest_first() {
        let doors = [
            ("192.0.2.1:80", Door::Waiting),
            ("127.0.0.1:81", Door::Open),
            ("127.0.0.1:80", Door::Refused(ErrorKind::PermissionDenied)),
            ("127.0.0.2:80", Door::Taken),
        ];
        let problems = door_problems(&doors.map(|(address, door)| (address.parse().unwrap(), door)));
        let told: Vec<_> = problems
            .iter()
            .map(|problem| (problem.kind, problem.words.as_str()))
            .collect();
        let want = [
            (
                ProblemKind::PortRefused,
                "the system refuses to listen on 127.0.0.1:80: permission denied",
            ),
            (ProblemKind::PortBusy, "another program listens on 127.0.0.2:80"),
            (
                ProblemKind::AddressGone,
                "192.0.2.1 is not an address of this machine now",
            ),
        ];
        assert_eq!(told, want);
    }

    /// `UPDATE=1` writes what it would compare.
    #[test]
    fn the_pages_types_are_these() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui/src/lib/bindings");
        let fresh = tempfile::tempdir().unwrap();
        let config = Config::new().with_large_int("number").with_out_dir(fresh.path());
        Snapshot::export_all(&config).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
        }
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = entries.collect();
            names.sort();
            names
        };
        for name in names(fresh.path()) {
            let text = fs::read_to_string(fresh.path().join(&name)).unwrap();
            if std::env::var_os("UPDATE").is_some() {
                fs::write(folder.join(&name), &text).unwrap();
            }
            let kept = fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert_eq!(
                kept,
                text,
                "{} is not what the code says; run this with UPDATE=1",
                name.display()
            );
        }
        assert_eq!(names(&folder), names(fresh.path()));
    }
}
