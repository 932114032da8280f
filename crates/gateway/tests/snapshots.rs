//! Snapshots of the states that a screen can be in, as JSON: what the page is developed and tested with, and the
//! proof that its fields are spelt as the code spells them.
//!
//! `UPDATE=1` writes `tests/snapshots/*.json` instead of comparing.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

use gateway::snapshot::{
    Activity, Cause, DeviceView, ExtraUsage, Forecast, ForecastState, LoginTrouble, Next, Nobody, Problem, ProblemKind,
    Read, ReadWhy, RefusedKey, Rest, RestCause, Routing, SeatState, SeatView, Snapshot, Switch, VERSION, Why,
    WindowView,
};

/// Tuesday, 1 December 2026, 13:54 UTC.
const NOW: i64 = 1_796_133_240;
const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The Thursday after, 09:00.
const THURSDAY: i64 = NOW - 13 * HOUR - 54 * MINUTE + 2 * DAY + 9 * HOUR;

fn five_hour(percent: u16, resets_in: i64) -> WindowView {
    window("fiveHour", None, percent, NOW + resets_in, 5 * HOUR)
}

fn weekly(percent: u16) -> WindowView {
    window("weekly", None, percent, THURSDAY, 7 * DAY)
}

fn fable(percent: u16) -> WindowView {
    window("model", Some("Fable"), percent, THURSDAY, 7 * DAY)
}

fn window(kind: &str, family: Option<&str>, percent: u16, resets_at: i64, length: i64) -> WindowView {
    WindowView {
        kind: kind.into(),
        family: family.map(Into::into),
        used: percent * 100,
        resets_at: Some(resets_at),
        observed_at: NOW - 2 * MINUTE,
        pace: Some(((length - (resets_at - NOW)) * 10_000 / length) as u16),
        lasts_until: None,
    }
}

fn seat(order: u32, label: &str, organization: &str, plan: &str, windows: Vec<WindowView>) -> SeatView {
    let id = format!("acc-{order}/org-{order}");
    SeatView {
        email: Some(format!("owner{order}@example.test")),
        organization: Some(organization.into()),
        plan: Some(plan.into()),
        name: Some(label.into()),
        label: label.into(),
        state: SeatState::Ready,
        login: None,
        read_at: windows.first().map(|window| window.observed_at),
        windows,
        order: Some(order),
        group: 1,
        draining: false,
        reserve_percent: 0,
        limit_percent: 100,
        extra_usage: ExtraUsage::Never,
        rest: None,
        throttled_until: None,
        in_flight: 0,
        token_ends_at: Some(NOW + 4 * HOUR),
        dirs: vec![format!("/Users/owner/.claude-{order}")],
        id,
    }
}

fn resting(mut seat: SeatView, limit: &str, until: i64) -> SeatView {
    seat.state = SeatState::Resting {
        limit: Some(limit.into()),
        cause: RestCause::Limit,
        until,
    };
    seat.rest = Some(Rest {
        limit: Some(limit.into()),
        cause: RestCause::Limit,
        since: NOW - 2 * MINUTE,
        until,
    });
    seat
}

fn in_state(mut seat: SeatView, state: SeatState) -> SeatView {
    seat.state = state;
    seat.windows.clear();
    seat.read_at = None;
    seat
}

fn work() -> SeatView {
    let windows = vec![five_hour(41, 2 * HOUR + 10 * MINUTE), weekly(63), fable(18)];
    let mut work = seat(0, "Work", "Acme Studio", "Max 20x", windows);
    work.in_flight = 1;
    work.reserve_percent = 20;
    work
}

fn home() -> SeatView {
    let windows = vec![five_hour(44, HOUR + 2 * MINUTE), weekly(38), fable(9)];
    seat(1, "Home", "Personal", "Max 5x", windows)
}

fn side() -> SeatView {
    let back = NOW + 2 * HOUR + 26 * MINUTE;
    resting(
        seat(
            2,
            "Side",
            "Personal",
            "Pro",
            vec![five_hour(100, 2 * HOUR + 26 * MINUTE), weekly(57)],
        ),
        "5-hour",
        back,
    )
}

fn lab() -> SeatView {
    let lab = seat(3, "Lab", "Hanbit Lab", "Team", vec![five_hour(12, HOUR), weekly(30)]);
    SeatView {
        state: SeatState::Paused,
        ..lab
    }
}

fn old_laptop() -> SeatView {
    let mut seat = seat(4, "Old laptop", "Personal", "Pro", Vec::new());
    seat.plan = None;
    in_state(seat, SeatState::NeedsPermission)
}

fn device(id: &str, name: &str, requests: u64, seen_ago: Option<i64>) -> DeviceView {
    DeviceView {
        id: id.into(),
        name: name.into(),
        created_at: Some(NOW - 9 * DAY),
        last_seen_at: seen_ago.map(|ago| NOW - ago),
        requests,
        seats: None,
        revoked: false,
    }
}

/// A router that serves `seats`, as on any afternoon.
fn serving(seats: Vec<SeatView>) -> Snapshot {
    let id = |at: usize| seats.get(at).map(|seat| seat.id.clone());
    Snapshot {
        version: VERSION,
        program: "0.1.0".into(),
        now: NOW,
        started_at: Some(NOW - 3 * DAY),
        listening: vec!["127.0.0.1:18787".into(), "100.84.12.1:18787".into()],
        waiting: Vec::new(),
        address: Some("100.84.12.1:18787".into()),
        sandbox: false,
        routing: Routing {
            strategy: "price".into(),
            paused: false,
        },
        next: match id(0) {
            Some(seat) => Next::Seat {
                seat,
                why: if seats.len() == 1 {
                    Why::OnlyOne
                } else {
                    Why::RoomToSpare
                },
            },
            None => nobody(Nobody::NoSeat),
        },
        forecast: Forecast {
            state: ForecastState::RunsOut,
            lasts_until: Some(THURSDAY + 5 * HOUR),
            returns_at: None,
        },
        devices: vec![
            device("d1", "MacBook Pro", 2_112, Some(12)),
            device("d2", "This Mac", 640, Some(29)),
            device("d3", "dev-box", 180, Some(164)),
        ],
        switches: match (id(2), id(0)) {
            (from @ Some(_), to) => vec![Switch {
                at: NOW - 2 * MINUTE,
                from,
                to,
                cause: Cause::Limit,
                limit: Some("5-hour".into()),
            }],
            _ => Vec::new(),
        },
        activity: Some(Activity {
            requests_last_hour: 38,
            devices_active: 2,
            refused: None,
        }),
        problems: Vec::new(),
        reads: vec![Read {
            what: "Keychain item Claude Code-credentials".into(),
            seat: seats.first().map(|seat| seat.label.clone()),
            when: NOW - 4 * HOUR,
            why: ReadWhy::Renewal,
        }],
        seats,
    }
}

fn nobody(why: Nobody) -> Next {
    Next::Nobody {
        why,
        returns_at: None,
        seat: None,
    }
}

fn five() -> Snapshot {
    serving(vec![work(), home(), side(), lab(), old_laptop()])
}

fn first_load() -> Snapshot {
    let mut seats = five().seats;
    for seat in &mut seats {
        *seat = in_state(seat.clone(), SeatState::Ready);
        seat.rest = None;
    }
    Snapshot {
        started_at: Some(NOW - 4),
        switches: Vec::new(),
        forecast: unknown(),
        activity: Some(Activity {
            requests_last_hour: 0,
            devices_active: 0,
            refused: None,
        }),
        ..serving(seats)
    }
}

const fn unknown() -> Forecast {
    Forecast {
        state: ForecastState::Unknown,
        lasts_until: None,
        returns_at: None,
    }
}

fn none() -> Snapshot {
    Snapshot {
        forecast: unknown(),
        devices: Vec::new(),
        activity: Some(Activity {
            requests_last_hour: 0,
            devices_active: 0,
            refused: None,
        }),
        ..serving(Vec::new())
    }
}

fn one() -> Snapshot {
    Snapshot {
        forecast: Forecast {
            state: ForecastState::Enough,
            ..unknown()
        },
        ..serving(vec![work()])
    }
}

fn three() -> Snapshot {
    serving(vec![work(), home(), side()])
}

fn six() -> Snapshot {
    let ready = |order, label, plan, used| {
        seat(
            order,
            label,
            "Personal",
            plan,
            vec![five_hour(used, 3 * HOUR), weekly(used + 20)],
        )
    };
    let mut over_limit = ready(5, "Spare", "Pro", 52);
    over_limit.reserve_percent = 30;
    let seats = vec![
        work(),
        home(),
        ready(2, "Studio", "Max 5x", 12),
        ready(3, "Night shift", "Max 5x", 20),
        ready(4, "Travel", "Pro", 31),
        over_limit,
    ];
    Snapshot {
        switches: vec![switch(&seats[2], &seats[0], Cause::Room, NOW - 2 * MINUTE)],
        ..serving(seats)
    }
}

fn switch(from: &SeatView, to: &SeatView, cause: Cause, at: i64) -> Switch {
    Switch {
        at,
        from: Some(from.id.clone()),
        to: Some(to.id.clone()),
        cause,
        limit: None,
    }
}

/// Rows that no other state has: over an even pace, in reserve, the week the tightest, resting for another reason.
fn rows() -> Snapshot {
    let mut kept = seat(
        2,
        "In reserve",
        "Personal",
        "Pro",
        vec![five_hour(22, HOUR), weekly(81)],
    );
    kept.reserve_percent = 20;
    let mut failing = seat(4, "Unsteady", "Personal", "Pro", vec![five_hour(8, HOUR), weekly(12)]);
    failing.state = SeatState::Resting {
        limit: None,
        cause: RestCause::Faults,
        until: NOW + 4 * MINUTE,
    };
    let seats = vec![
        work(),
        seat(
            1,
            "Over pace",
            "Personal",
            "Max 5x",
            vec![five_hour(88, 2 * HOUR), weekly(40)],
        ),
        kept,
        seat(
            3,
            "Week first",
            "Personal",
            "Max 5x",
            vec![five_hour(5, 3 * HOUR), weekly(72)],
        ),
        failing,
    ];
    Snapshot {
        switches: vec![switch(&seats[4], &seats[0], Cause::Unreachable, NOW - 9 * MINUTE)],
        ..serving(seats)
    }
}

fn all_paused() -> Snapshot {
    let pause = |seat: SeatView| SeatView {
        state: SeatState::Paused,
        ..seat
    };
    let seats = vec![pause(work()), pause(home()), lab()];
    Snapshot {
        next: nobody(Nobody::Paused),
        forecast: unknown(),
        switches: Vec::new(),
        ..serving(seats)
    }
}

fn all_resting() -> Snapshot {
    let full = |order, label, plan, limit: &str, until: i64| {
        let five = five_hour(if limit == "5-hour" { 100 } else { 74 }, until - NOW);
        let windows = match limit {
            "5-hour" => vec![five, weekly(81)],
            _ => vec![five_hour(74, HOUR), window("weekly", None, 100, until, 7 * DAY)],
        };
        resting(seat(order, label, "Personal", plan, windows), limit, until)
    };
    let first_back = NOW + 2 * HOUR + 26 * MINUTE;
    let mut work = full(0, "Work", "Max 20x", "5-hour", first_back);
    work.windows.push(fable(100));
    let seats = vec![
        work,
        full(1, "Home", "Max 5x", "5-hour", NOW + 3 * HOUR + 8 * MINUTE),
        full(2, "Side", "Pro", "5-hour", NOW + 4 * HOUR + 51 * MINUTE),
        full(4, "Old laptop", "Pro", "weekly", NOW + 21 * HOUR + 6 * MINUTE),
        full(3, "Lab", "Team", "weekly", THURSDAY),
    ];
    let work = seats[0].id.clone();
    Snapshot {
        next: Next::Nobody {
            why: Nobody::Resting,
            returns_at: Some(first_back),
            seat: Some(work.clone()),
        },
        forecast: Forecast {
            state: ForecastState::Resting,
            lasts_until: None,
            returns_at: Some(first_back),
        },
        switches: vec![Switch {
            at: NOW - 2 * MINUTE,
            from: Some(work),
            to: None,
            cause: Cause::Limit,
            limit: Some("5-hour".into()),
        }],
        ..serving(seats)
    }
}

fn paused() -> Snapshot {
    let snapshot = three();
    Snapshot {
        routing: Routing {
            paused: true,
            ..snapshot.routing
        },
        next: nobody(Nobody::Paused),
        ..snapshot
    }
}

fn needs_login() -> Snapshot {
    let mut retrying = home();
    retrying.login = Some(LoginTrouble::Retrying);
    let seats = vec![
        work(),
        retrying,
        in_state(side(), SeatState::Expired { since: NOW - HOUR }),
        in_state(lab(), SeatState::LoggedOut),
        in_state(
            old_laptop(),
            SeatState::NeedsLogin {
                trouble: LoginTrouble::Rejected,
            },
        ),
        in_state(seat(5, "Studio", "Personal", "Pro", Vec::new()), SeatState::Renewing),
    ];
    Snapshot {
        switches: vec![switch(&seats[2], &seats[0], Cause::Token, NOW - HOUR)],
        ..serving(seats)
    }
}

fn needs_permission() -> Snapshot {
    let mut seats = vec![old_laptop()];
    seats[0].order = Some(0);
    Snapshot {
        next: nobody(Nobody::NeedLogin),
        forecast: unknown(),
        switches: Vec::new(),
        ..serving(seats)
    }
}

fn throttled() -> Snapshot {
    let mut snapshot = five();
    for seat in snapshot.seats.iter_mut().take(2) {
        let read = NOW - 74 * MINUTE;
        seat.read_at = Some(read);
        seat.throttled_until = Some(NOW + 26 * MINUTE);
        for window in &mut seat.windows {
            window.observed_at = read;
        }
    }
    snapshot
}

fn draining() -> Snapshot {
    let mut snapshot = five();
    snapshot.seats[1].draining = true;
    snapshot.seats[1].in_flight = 2;
    snapshot
}

fn problem(kind: ProblemKind, words: &str, address: Option<&str>, holder: Option<&str>) -> Problem {
    Problem {
        kind,
        words: words.into(),
        address: address.map(Into::into),
        holder: holder.map(Into::into),
        since: Some(NOW - 3 * MINUTE),
    }
}

fn offline() -> Snapshot {
    let mut snapshot = three();
    snapshot.problems = vec![problem(ProblemKind::Offline, "no network", None, None)];
    snapshot
}

fn port_busy() -> Snapshot {
    Snapshot {
        started_at: None,
        listening: Vec::new(),
        address: None,
        forecast: unknown(),
        problems: vec![problem(
            ProblemKind::PortBusy,
            "port 18787 is used by node",
            Some("127.0.0.1:18787"),
            Some("node"),
        )],
        ..three()
    }
}

fn address_gone() -> Snapshot {
    Snapshot {
        listening: vec!["127.0.0.1:18787".into()],
        address: Some("127.0.0.1:18787".into()),
        problems: vec![problem(
            ProblemKind::AddressGone,
            "100.84.12.1 is not this machine's now",
            Some("100.84.12.1:18787"),
            None,
        )],
        ..three()
    }
}

fn settings_refused() -> Snapshot {
    let mut snapshot = three();
    snapshot.problems = vec![problem(
        ProblemKind::SettingsRefused,
        "`limitPct` must be a number from 1 to 100",
        None,
        None,
    )];
    snapshot
}

fn key_refused() -> Snapshot {
    let mut snapshot = three();
    snapshot.devices.push(device("d4", "MacBook Air", 0, None));
    snapshot.activity = Some(Activity {
        requests_last_hour: 38,
        devices_active: 2,
        refused: Some(RefusedKey {
            at: NOW + MINUTE,
            from: Some("100.84.12.7".into()),
        }),
    });
    snapshot
}

fn connected() -> Snapshot {
    let mut snapshot = five();
    snapshot.devices.push(device("d4", "MacBook Air", 1, Some(0)));
    snapshot.devices[0].seats = Some(vec!["acc-0/org-0".into()]);
    snapshot.devices.push(DeviceView {
        revoked: true,
        ..device("d5", "Sold laptop", 12, Some(40 * DAY))
    });
    snapshot
}

fn unnamed() -> Snapshot {
    let mut snapshot = five();
    for seat in &mut snapshot.seats[..3] {
        seat.name = None;
    }
    snapshot
}

fn korean_long_names() -> Snapshot {
    let mut snapshot = five();
    let names = [
        "연구개발본부 공용 계정",
        "집에서 쓰는 개인 계정",
        "사이드 프로젝트",
        "한빛연구소 인공지능팀",
        "예전에 쓰던 노트북",
    ];
    for (seat, name) in snapshot.seats.iter_mut().zip(names) {
        seat.label = name.into();
        seat.name = Some(name.into());
    }
    snapshot.address = Some("[fd7a:115c:a1e0:ab12:4843:cd96:6254:c01]:18787".into());
    snapshot
}

#[test]
fn each_state_is_written_as_it_was() {
    let states: [(&str, Snapshot); 22] = [
        ("first-load", first_load()),
        ("none", none()),
        ("one", one()),
        ("three", three()),
        ("five", five()),
        ("six", six()),
        ("all-resting", all_resting()),
        ("all-paused", all_paused()),
        ("rows", rows()),
        ("unnamed", unnamed()),
        ("paused", paused()),
        ("draining", draining()),
        ("needs-login", needs_login()),
        ("needs-permission", needs_permission()),
        ("throttled", throttled()),
        ("offline", offline()),
        ("port-busy", port_busy()),
        ("address-gone", address_gone()),
        ("settings-refused", settings_refused()),
        ("key-refused", key_refused()),
        ("connected", connected()),
        ("korean-long-names", korean_long_names()),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    for (name, snapshot) in &states {
        let path = folder.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(snapshot).unwrap() + "\n";
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(kept, text, "{name} is not what the code writes; run this with UPDATE=1");
        assert_eq!(
            &serde_json::from_str::<Snapshot>(&kept).unwrap(),
            snapshot,
            "{name} is not read as it was written"
        );
    }
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        states.len(),
        "a file belongs to no state"
    );
}
