//! Which banners are shown, and when: a reducer over snapshots.
//!
//! Silence is the rule. A banner tells of an episode, once; a reading that failed, or says nothing, neither begins an
//! episode nor ends one; between two banners ten minutes pass, and what came meanwhile and still holds becomes one.

use gateway::snapshot::{ForecastState, Next, Nobody, SeatState, Snapshot};

use crate::preferences::Notify;

/// The least time between two banners, in seconds.
const PAUSE: i64 = 600;
/// Two readings of one reset differ by a second or so; two resets by hours. In seconds.
const SAME_RESET: i64 = 120;

/// What a banner tells. Seats and devices are told by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A seat wants a person, and no other can stand in.
    Attention {
        /// Which one.
        seat: String,
    },
    /// Every seat is at its limit.
    AllResting {
        /// Which one is back first.
        seat: Option<String>,
        /// When.
        until: Option<i64>,
    },
    /// At this pace the seats are used up before they reset.
    RunsDry {
        /// When.
        at: i64,
    },
    /// A seat serves again after all were at their limits.
    Back {
        /// Which one.
        seat: String,
    },
    /// A device asked for something for the first time.
    NewDevice {
        /// Which one.
        device: String,
    },
    /// A device was refused.
    Refused,
}

/// What was told already.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    last_banner: Option<i64>,
    waiting: Vec<Notice>,
    /// Whether all rest, as far as was last known.
    resting: bool,
    /// The seat and reset of the last exhaustion that was told: it is not told again within that window.
    told_resting: Option<(Option<String>, Option<i64>)>,
    /// The seats that want a person, and were told of.
    told_attention: Vec<String>,
    running_dry: bool,
    /// The devices that were seen; `None` before the first look.
    devices: Option<Vec<String>>,
    /// The last refusal, likewise.
    refused: Option<Option<i64>>,
}

impl Notices {
    /// Looks at a snapshot. Returns what one banner is to tell now; most times, nothing.
    pub fn look(&mut self, snapshot: &Snapshot, wanted: &Notify) -> Vec<Notice> {
        let before = self.waiting.len();
        self.attention(snapshot, wanted);
        self.resting(snapshot, wanted);
        self.forecast(snapshot, wanted);
        self.devices(snapshot, wanted);
        debug_assert!(self.waiting.len() >= before, "only a banner takes notices away");
        let quiet = self
            .last_banner
            .is_some_and(|last| (0..PAUSE).contains(&(snapshot.now - last)));
        if quiet {
            return Vec::new();
        }
        let told: Vec<Notice> = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|notice| still_holds(notice, snapshot))
            .collect();
        if !told.is_empty() {
            self.last_banner = Some(snapshot.now);
        }
        told
    }

    fn attention(&mut self, snapshot: &Snapshot, wanted: &Notify) {
        self.told_attention.retain(|told| {
            snapshot
                .seats
                .iter()
                .any(|seat| seat.id == *told && !is_well(&seat.state))
        });
        if !nobody_serves(snapshot) {
            return;
        }
        for seat in &snapshot.seats {
            if wants_a_person(&seat.state) && !self.told_attention.contains(&seat.id) {
                self.told_attention.push(seat.id.clone());
                if wanted.attention {
                    self.waiting.push(Notice::Attention { seat: seat.id.clone() });
                }
            }
        }
    }

    fn resting(&mut self, snapshot: &Snapshot, wanted: &Notify) {
        match &snapshot.next {
            Next::Nobody {
                why: Nobody::Resting,
                returns_at,
                seat,
            } if !self.resting => {
                self.resting = true;
                let again = self
                    .told_resting
                    .as_ref()
                    .is_some_and(|(told_seat, told_until)| told_seat == seat && same_reset(*told_until, *returns_at));
                if !again {
                    self.told_resting = Some((seat.clone(), *returns_at));
                    if wanted.all_resting {
                        self.waiting.push(Notice::AllResting {
                            seat: seat.clone(),
                            until: *returns_at,
                        });
                    }
                }
            }
            Next::Seat { seat, .. } if self.resting => {
                self.resting = false;
                if wanted.back {
                    self.waiting.push(Notice::Back { seat: seat.clone() });
                }
            }
            Next::Nobody { .. } | Next::Seat { .. } => {}
        }
    }

    fn forecast(&mut self, snapshot: &Snapshot, wanted: &Notify) {
        match (snapshot.forecast.state, snapshot.forecast.lasts_until) {
            (ForecastState::RunsOut, Some(at)) if !self.running_dry => {
                self.running_dry = true;
                if wanted.runs_dry {
                    self.waiting.push(Notice::RunsDry { at });
                }
            }
            (ForecastState::Enough, _) => self.running_dry = false,
            (ForecastState::RunsOut | ForecastState::Unknown | ForecastState::Resting, _) => {}
        }
    }

    fn devices(&mut self, snapshot: &Snapshot, wanted: &Notify) {
        let called = snapshot.devices.iter().filter(|device| device.last_seen_at.is_some());
        let called: Vec<String> = called.map(|device| device.id.clone()).collect();
        if let Some(known) = &self.devices
            && wanted.new_device
        {
            let new = called.iter().filter(|device| !known.contains(device)).cloned();
            self.waiting.extend(new.map(|device| Notice::NewDevice { device }));
        }
        self.devices = Some(called);
        let refused = snapshot
            .activity
            .as_ref()
            .and_then(|activity| activity.refused.as_ref());
        let at = refused.map(|refused| refused.at);
        if let (Some(known), Some(_)) = (self.refused, refused)
            && known != at
            && wanted.refused_device
            && !self.waiting.contains(&Notice::Refused)
        {
            self.waiting.push(Notice::Refused);
        }
        self.refused = Some(at);
    }
}

/// A banner that waited may have nothing left to tell.
fn still_holds(notice: &Notice, snapshot: &Snapshot) -> bool {
    match notice {
        Notice::Attention { seat } => {
            let wants = |view: &&gateway::snapshot::SeatView| view.id == *seat && wants_a_person(&view.state);
            nobody_serves(snapshot) && snapshot.seats.iter().any(|view| wants(&view))
        }
        Notice::AllResting { .. } => matches!(
            snapshot.next,
            Next::Nobody {
                why: Nobody::Resting,
                ..
            }
        ),
        Notice::RunsDry { .. } => snapshot.forecast.state == ForecastState::RunsOut,
        Notice::Back { .. } => matches!(snapshot.next, Next::Seat { .. }),
        Notice::NewDevice { .. } | Notice::Refused => true,
    }
}

/// Nobody serves, though somebody should.
fn nobody_serves(snapshot: &Snapshot) -> bool {
    match &snapshot.next {
        Next::Seat { .. } => false,
        Next::Nobody { why, .. } => match why {
            Nobody::Resting | Nobody::NeedLogin | Nobody::NotAllowed | Nobody::Exhausted => !snapshot.routing.paused,
            Nobody::NoSeat
            | Nobody::Paused
            | Nobody::Renewing
            | Nobody::LoginDelayed
            | Nobody::LoginsRefused
            | Nobody::Returning => false,
        },
    }
}

fn wants_a_person(state: &SeatState) -> bool {
    match state {
        SeatState::NeedsLogin { .. } | SeatState::Expired { .. } | SeatState::Refused | SeatState::NeedsPermission => {
            true
        }
        SeatState::Ready
        | SeatState::ReadyBut { .. }
        | SeatState::Resting { .. }
        | SeatState::Paused
        | SeatState::LoggedOut
        | SeatState::Renewing
        | SeatState::Unreadable => false,
    }
}

/// It can serve: what was the matter is over.
fn is_well(state: &SeatState) -> bool {
    matches!(
        state,
        SeatState::Ready | SeatState::ReadyBut { .. } | SeatState::Resting { .. }
    )
}

fn same_reset(one: Option<i64>, other: Option<i64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= SAME_RESET,
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use gateway::snapshot::{Activity, DeviceView, LoginTrouble, RefusedKey};

    use super::*;
    use crate::testing::{NOW, resting, seat, snapshot};

    const ALL: Notify = Notify {
        all_resting: true,
        attention: true,
        runs_dry: true,
        back: true,
        new_device: true,
        refused_device: true,
    };

    /// The snapshot, so many seconds after the first.
    fn after(seconds: i64, mut snapshot: Snapshot) -> Snapshot {
        snapshot.now = NOW + seconds;
        snapshot
    }

    fn well() -> Snapshot {
        snapshot(vec![seat("work", SeatState::Ready, Some(100))])
    }

    fn all_rest(until: i64) -> Snapshot {
        snapshot(vec![seat("work", resting(until), Some(10_000))])
    }

    fn told_of_rest(notices: &[Notice]) -> bool {
        matches!(notices, [Notice::AllResting { .. }])
    }

    #[test]
    fn exhaustion_is_told_once_for_each_window() {
        let mut notices = Notices::default();
        assert!(told_of_rest(&notices.look(&all_rest(7_200), &ALL)));
        assert_eq!(notices.look(&after(5, all_rest(7_200)), &ALL), []);
        // Back for a moment, and again at the limit of the same window: known.
        assert_eq!(notices.look(&after(700, well()), &Notify::default()), []);
        assert_eq!(notices.look(&after(1_400, all_rest(7_200)), &Notify::default()), []);
        // GU-01: the reset told a second later is the same reset.
        assert_eq!(notices.look(&after(2_000, well()), &Notify::default()), []);
        assert_eq!(notices.look(&after(2_100, all_rest(7_201)), &Notify::default()), []);
        // The next window is another one.
        assert_eq!(notices.look(&after(8_000, well()), &Notify::default()), []);
        assert!(told_of_rest(
            &notices.look(&after(9_000, all_rest(26_000)), &Notify::default())
        ));
    }

    #[test]
    fn a_single_seat_at_its_limit_is_ordinary_and_a_pause_is_wanted() {
        let one = snapshot(vec![
            seat("work", SeatState::Ready, Some(1)),
            seat("home", resting(60), Some(10_000)),
        ]);
        assert_eq!(Notices::default().look(&one, &ALL), []);
        let mut paused = snapshot(vec![seat("work", SeatState::Refused, None)]);
        paused.routing.paused = true;
        assert_eq!(Notices::default().look(&paused, &ALL), []);
    }

    #[test]
    fn a_seat_that_wants_a_person_is_told_of_only_where_no_other_stands_in() {
        let trouble = || {
            seat(
                "home",
                SeatState::NeedsLogin {
                    trouble: LoginTrouble::Rejected,
                },
                None,
            )
        };
        let mut notices = Notices::default();
        let covered = snapshot(vec![seat("work", SeatState::Ready, Some(1)), trouble()]);
        assert_eq!(notices.look(&covered, &ALL), []);
        let alone = after(60, snapshot(vec![seat("work", resting(60), Some(10_000)), trouble()]));
        let told = notices.look(
            &alone,
            &Notify {
                all_resting: false,
                ..ALL
            },
        );
        assert_eq!(told, [Notice::Attention { seat: "id-home".into() }]);
        let later = after(
            3_600,
            snapshot(vec![seat("work", resting(60), Some(10_000)), trouble()]),
        );
        assert_eq!(
            notices.look(
                &later,
                &Notify {
                    all_resting: false,
                    ..ALL
                }
            ),
            [],
            "once"
        );
    }

    #[test]
    fn what_says_nothing_neither_tells_nor_arms_again() {
        let outlook = |seconds, state, lasts_until| {
            let mut snapshot = after(seconds, well());
            snapshot.forecast.state = state;
            snapshot.forecast.lasts_until = lasts_until;
            snapshot
        };
        let mut notices = Notices::default();
        let dry = |seconds| outlook(seconds, ForecastState::RunsOut, Some(NOW + 9_000));
        let unknown = |seconds| outlook(seconds, ForecastState::Unknown, None);
        assert_eq!(notices.look(&unknown(0), &ALL), []);
        assert_eq!(notices.look(&dry(5), &ALL), [Notice::RunsDry { at: NOW + 9_000 }]);
        assert_eq!(notices.look(&unknown(700), &ALL), []);
        assert_eq!(
            notices.look(&dry(1_400), &ALL),
            [],
            "a failed reading does not end an episode"
        );
        assert_eq!(notices.look(&outlook(2_100, ForecastState::Enough, None), &ALL), []);
        assert_eq!(notices.look(&dry(2_800), &ALL), [Notice::RunsDry { at: NOW + 9_000 }]);
    }

    #[test]
    fn ten_minutes_pass_between_banners_and_what_came_meanwhile_is_one() {
        let device = |id: &str| DeviceView {
            id: id.into(),
            name: id.into(),
            created_at: None,
            last_seen_at: Some(NOW),
            requests: 1,
            seats: None,
            revoked: false,
        };
        let with = |seconds, ids: &[&str]| {
            let mut snapshot = after(seconds, well());
            snapshot.devices = ids.iter().map(|id| device(id)).collect();
            snapshot
        };
        let new = |id: &str| Notice::NewDevice { device: id.into() };
        let mut notices = Notices::default();
        assert_eq!(
            notices.look(&with(0, &["old"]), &ALL),
            [],
            "those of before are not new"
        );
        assert_eq!(notices.look(&with(1, &["old", "a"]), &ALL), [new("a")]);
        assert_eq!(notices.look(&with(2, &["old", "a", "b"]), &ALL), []);
        assert_eq!(notices.look(&with(3, &["old", "a", "b", "c"]), &ALL), []);
        assert_eq!(notices.look(&with(600, &["old", "a", "b", "c"]), &ALL), []);
        assert_eq!(
            notices.look(&with(601, &["old", "a", "b", "c"]), &ALL),
            [new("b"), new("c")]
        );
    }

    #[test]
    fn what_waited_and_is_over_is_not_told() {
        let mut notices = Notices::default();
        assert!(told_of_rest(&notices.look(&all_rest(300), &ALL)));
        assert_eq!(
            notices.look(&after(310, well()), &ALL),
            [],
            "back, but the last banner is young"
        );
        assert_eq!(notices.look(&after(320, all_rest(30_000)), &ALL), []);
        // Ten minutes on all rest again: that they were back is old, and that they rest is not.
        assert!(told_of_rest(&notices.look(&after(700, all_rest(30_000)), &ALL)));
    }

    #[test]
    fn a_refused_key_is_told_of_where_its_owner_wants_it() {
        let refused = |seconds, at| {
            let mut snapshot = after(seconds, well());
            snapshot.activity = Some(Activity {
                requests_last_hour: 0,
                devices_active: 0,
                refused: Some(RefusedKey { at, from: None }),
            });
            snapshot
        };
        let mut notices = Notices::default();
        assert_eq!(notices.look(&refused(0, NOW), &ALL), [], "before the app looked");
        let told = Notice::Refused;
        assert_eq!(notices.look(&refused(5, NOW + 5), &ALL), [told]);
        assert_eq!(
            notices.look(&refused(1_000, NOW + 900), &Notify::default()),
            [],
            "off unless wanted"
        );
    }
}
