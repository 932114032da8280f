//! Keeping the machine from falling asleep: only if its owner wants it, only while other devices are served, and only
//! on power.

use gateway::snapshot::Snapshot;

use crate::platform;

/// Whether the machine is kept awake by us.
#[derive(Default)]
pub struct Awake {
    held: Option<platform::Wakefulness>,
}

impl Awake {
    /// Holds the machine awake, or lets it go.
    pub fn keep(&mut self, running: Option<&Snapshot>, wanted: bool) {
        // Whether there is power is only asked where it matters.
        let due = is_due(wanted, running) && platform::is_on_power();
        match (due, self.held.is_some()) {
            (true, false) => self.held = platform::stay_awake(),
            (false, true) => self.held = None,
            _ => {}
        }
    }
}

/// Whether somebody is served who would miss this machine.
fn is_due(wanted: bool, running: Option<&Snapshot>) -> bool {
    let serves = |snapshot: &Snapshot| {
        let called_of_late = snapshot
            .activity
            .as_ref()
            .is_some_and(|activity| activity.devices_active > 0);
        called_of_late || snapshot.seats.iter().any(|seat| seat.in_flight > 0)
    };
    wanted && running.is_some_and(serves)
}
