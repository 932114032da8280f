//! Fair shares between devices, while there is not enough for all.
//!
//! Deficit round robin, without a queue: nobody is refused, since quota that nobody uses now may be lost. What one device
//! takes beyond an even share is a debt to the others that are busy, and while the weeks run ahead of their time and five
//! hours fill up, a device in debt starts its requests a little later. When there is enough, or nobody else asks, nobody
//! waits.

use alloc::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// A device that sent nothing for this long has no claim.
const BUSY_FOR: SignedDuration = SignedDuration::from_mins(30);
/// A debt of this much, in input tokens, is the largest that is remembered.
const LARGEST_DEBT: f32 = 2_000_000.0;
/// How long a request of a device with that debt waits, in seconds.
const LONGEST_WAIT: f32 = 10.0;
/// Devices beyond this many are forgotten, the longest silent first.
const REMEMBERED: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Share {
    /// What it took beyond its share; negative if the others took more.
    debt: f32,
    asked_at: Timestamp,
}

/// What the devices owe each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(BTreeMap<u64, Share>);

impl Shares {
    /// Notes that `device` takes about `cost` input tokens, and says how long it is to wait before.
    pub(crate) fn take(&mut self, device: u64, cost: f32, now: Timestamp) -> SignedDuration {
        self.0.retain(|_, share| now.duration_since(share.asked_at) < BUSY_FOR);
        if self.0.len() >= REMEMBERED && !self.0.contains_key(&device) {
            let silent = self
                .0
                .iter()
                .min_by_key(|(_, share)| share.asked_at)
                .map(|(device, _)| *device);
            silent.and_then(|device| self.0.remove(&device));
        }
        let own = self.0.entry(device).or_insert(Share {
            debt: 0.0,
            asked_at: now,
        });
        own.asked_at = now;
        own.debt += cost;
        let even = cost / self.0.len() as f32;
        let mut debt = 0.0;
        for (other, share) in &mut self.0 {
            share.debt = (share.debt - even).clamp(-LARGEST_DEBT, LARGEST_DEBT);
            if *other == device {
                debt = share.debt;
            }
        }
        match self.0.len() {
            1 => SignedDuration::ZERO,
            _ => SignedDuration::from_millis((1_000.0 * LONGEST_WAIT * (debt / LARGEST_DEBT).max(0.0)) as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn who_takes_more_than_an_even_share_waits_and_the_others_do_not() {
        let mut shares = Shares::default();
        let mut waits = [SignedDuration::ZERO; 2];
        for turn in 0..100 {
            for _ in 0..9 {
                waits[0] = shares.take(7, 20_000.0, at(turn));
            }
            waits[1] = shares.take(8, 20_000.0, at(turn));
        }
        assert!(
            waits[0] >= SignedDuration::from_secs(3) && waits[0] <= SignedDuration::from_secs(10),
            "{waits:?}"
        );
        assert_eq!(waits[1], SignedDuration::ZERO);
    }

    #[test]
    fn a_device_on_its_own_never_waits() {
        let mut shares = Shares::default();
        shares.take(8, 20_000.0, at(0));
        for turn in 1_800..1_900 {
            assert_eq!(shares.take(7, 1e6, at(turn)), SignedDuration::ZERO);
        }
    }

    #[test]
    fn even_use_makes_nobody_wait_long() {
        let mut shares = Shares::default();
        for turn in 0..1_000 {
            let wait = shares.take(turn % 4, 20_000.0, at(turn as i64));
            assert!(wait < SignedDuration::from_secs(1), "{wait}");
        }
    }
}
