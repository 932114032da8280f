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
    Refused {
        /// From which address.
        address: String,
    },
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
        let quiet = self.last_banner.is_some_and(|last| (0..PAUSE).contains(&(snapshot.now - last)));
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
        self.told_attention
            .retain(|told| snapshot.seats.iter().any(|seat| seat.id == *told && !is_well(&seat.state)));
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
                let again = self.told_resting.as_ref().is_some_and(|(told_seat, told_until)| {
                    told_seat == seat && same_reset(*told_until, *returns_at)
                });
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
        let refused = snapshot.activity.as_ref().and_then(|activity| activity.refused.as_ref());
        let at = refused.map(|refused| refused.at);
        if let (Some(known), Some(refused)) = (self.refused, refused)
            && known != at
            && wanted.refused_device
        {
            let notice = Notice::Refused {
                address: refused.from.clone(),
            };
            if !self.waiting.contains(&notice) {
                self.waiting.push(notice);
            }
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
        Notice::AllResting { .. } => matches!(snapshot.next, Next::Nobody { why: Nobody::Resting, .. }),
        Notice::RunsDry { .. } => snapshot.forecast.state == ForecastState::RunsOut,
        Notice::Back { .. } => matches!(snapshot.next, Next::Seat { .. }),
        Notice::NewDevice { .. } | Notice::Refused { .. } => true,
    }
}

/// Nobody serves, though somebody should.
fn nobody_serves(snapshot: &Snapshot) -> bool {
    match &snapshot.next {
        Next::Seat { .. } => false,
        Next::Nobody { why, .. } => match why {
            Nobody::Resting | Nobody::NeedLogin | Nobody::Exhausted => !snapshot.routing.paused,
            Nobody::NoSeat | Nobody::Paused | Nobody::Renewing | Nobody::LoginDelayed => false,
        },
    }
}

fn wants_a_person(state: &SeatState) -> bool {
    match state {
        SeatState::NeedsLogin { .. } | SeatState::Expired { .. } | SeatState::Refused | SeatState::NeedsPermission => true,
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
    matches!(state, SeatState::Ready | SeatState::ReadyBut { .. } | SeatState::Resting { .. })
}

fn same_reset(one: Option<i64>, other: Option<i64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= SAME_RESET,
        (one, other) => one == other,
    }
}
