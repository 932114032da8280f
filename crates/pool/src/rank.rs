//! The strategies: which of the seats that come into question.
//!
//! The owner's groups come first, and a seat that is only a last resort comes after all others; within that the
//! strategy decides. One look at each seat, nothing kept but the best so far.

use jiff::Timestamp;

use crate::account::Account;
use crate::id::AccountId;
use crate::price::{self, Bill, Price, Tuning};
use crate::standing::Tier;
use crate::window::Utilization;

/// How much fuller a conversation's seat must be than the freest one before it moves, in basis points.
pub const MARGIN: f32 = 1_000.0;
/// What a request under way counts for until its own reading comes, in basis points of the seat's room.
pub const UNDER_WAY: f32 = 100.0;

/// How a seat is picked among those that can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The one with the most room; a conversation stays unless another is clearly freer.
    #[default]
    Headroom,
    /// The first in the owner's order, at every request: a seat that has reset takes over again by itself.
    Order,
    /// The fullest, so that one is used up before the next is opened; a conversation stays.
    FillFirst,
    /// The one whose turn is the longest ago; a conversation stays.
    RoundRobin,
    /// The one where the conversation costs least of what is scarce; see [`crate::price`].
    Price,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Price,
        Self::Headroom,
        Self::Order,
        Self::FillFirst,
        Self::RoundRobin,
    ];

    /// The name that its owner knows it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Price => "price",
            Self::Headroom => "headroom",
            Self::Order => "order",
            Self::FillFirst => "fill-first",
            Self::RoundRobin => "round-robin",
        }
    }
}

/// What the strategies go by beside the seats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) strategy: Strategy,
    pub(crate) tuning: Tuning,
    pub(crate) model: Option<&'a str>,
    /// The seat that the conversation last used.
    pub(crate) home: Option<&'a AccountId>,
    /// Whether its cache is still warm there.
    pub(crate) warm: bool,
    /// How much fuller it must be there than on the freest seat before it moves, in basis points.
    pub(crate) margin: f32,
    pub(crate) bill: Bill,
    /// What breaks ties: the same conversation falls to the same seat.
    pub(crate) key: u64,
    pub(crate) now: Timestamp,
}

/// What the strategy went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    Stays,
    MostRoom,
    FirstInOrder,
    Fullest,
    ItsTurn,
    RoomToSpare,
    LeastShort,
}

/// The pick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick<'a> {
    pub(crate) account: &'a Account,
    pub(crate) tier: Tier,
    pub(crate) ground: Ground,
    /// What its week is worth, where that was asked.
    pub(crate) price: Option<Price>,
}

/// A seat with its score; lower is better.
#[derive(Clone, Copy, Debug)]
struct Scored<'a> {
    account: &'a Account,
    score: f32,
    /// The score without what comes and goes by the second.
    steady: f32,
    tie: u64,
    price: Option<Price>,
}

impl Scored<'_> {
    fn beats(&self, other: &Self) -> bool {
        self.score < other.score || self.score == other.score && self.tie > other.tie
    }
}

/// Where a seat stands before any strategy, the owner's group within it: lower serves first.
type Place = (Tier, u32);

/// The best seat of those offered so far.
#[derive(Debug)]
pub(crate) struct Ranking<'a> {
    terms: Terms<'a>,
    place: Option<Place>,
    read: Option<Scored<'a>>,
    /// The best of those of which nothing was read: they count as the middle of the others.
    unread: Option<Scored<'a>>,
    home: Option<(Scored<'a>, bool)>,
    sum: f32,
    count: u32,
}

impl<'a> Ranking<'a> {
    pub(crate) fn new(terms: Terms<'a>) -> Self {
        Self {
            terms,
            place: None,
            read: None,
            unread: None,
            home: None,
            sum: 0.0,
            count: 0,
        }
    }

    /// Looks at one more seat.
    pub(crate) fn offer(&mut self, account: &'a Account, tier: Tier) {
        let place = (tier, account.wishes.group);
        match self.place {
            Some(best) if best < place => return,
            Some(best) if best == place => {}
            _ => {
                *self = Self {
                    place: Some(place),
                    ..Self::new(self.terms)
                }
            }
        }
        let at_home = self.terms.home == Some(&account.id);
        let (scored, is_read) = self.scored(account, at_home);
        if at_home {
            self.home = Some((scored, is_read));
        }
        if is_read {
            self.sum += scored.steady;
            self.count += 1;
        }
        let best = if is_read { &mut self.read } else { &mut self.unread };
        if best.as_ref().is_none_or(|best| scored.beats(best)) {
            *best = Some(scored);
        }
    }

    /// Scores a seat, and says whether its windows were ever read.
    fn scored(&self, account: &'a Account, at_home: bool) -> (Scored<'a>, bool) {
        let Terms {
            strategy, model, now, ..
        } = self.terms;
        let used = || {
            account
                .windows
                .used_for(model, now)
                .map(|used| used.min(Utilization::FULL))
        };
        let basis_points = |used: Utilization| f32::from(used.basis_points());
        let mut price = None;
        let (score, steady, is_read) = match strategy {
            Strategy::Headroom => {
                let used = used();
                let steady = used.map_or(0.0, basis_points);
                let under_way = account.in_flight.min(1_000) as f32;
                (steady + UNDER_WAY * under_way, steady, used.is_some())
            }
            Strategy::Order => (account.wishes.order as f32, 0.0, true),
            Strategy::FillFirst => (used().map_or(0.0, |used| -basis_points(used)), 0.0, true),
            Strategy::RoundRobin => (account.last_begun as f32, 0.0, true),
            Strategy::Price => {
                let bill = &self.terms.bill;
                let cost = bill.turn(at_home && self.terms.warm) + bill.later();
                price = price::price(account, model, bill, at_home, &self.terms.tuning, now);
                let steady = price.map_or(1.0, |price| price.now) * cost;
                // Who is at home already waits a moment rather than lose the cache.
                let crowding = if at_home && self.terms.warm {
                    1.0
                } else {
                    price::crowding(account, now)
                };
                (steady * crowding, steady, price.is_some())
            }
        };
        let tie = match strategy {
            // Without a place of its own a seat keeps that of its name.
            Strategy::Order | Strategy::FillFirst | Strategy::RoundRobin => 0,
            Strategy::Headroom | Strategy::Price => mix(account.id.hash() ^ self.terms.key),
        };
        (
            Scored {
                account,
                score,
                steady,
                tie,
                price,
            },
            is_read,
        )
    }

    /// The pick, if any seat was offered.
    pub(crate) fn pick(self) -> Option<Pick<'a>> {
        let middle = match self.count {
            0 => 0.0,
            count => self.sum / count as f32,
        };
        let as_read = |scored: Scored<'a>| match self.terms.strategy {
            Strategy::Price if self.count == 0 => scored,
            // An unread seat's own score is what the requests under way and its starts add.
            Strategy::Price => Scored {
                score: middle * scored.score / scored.steady,
                steady: middle,
                ..scored
            },
            _ => Scored {
                score: middle + scored.score,
                steady: middle,
                ..scored
            },
        };
        let unread = self.unread.map(as_read);
        let best = match (self.read, unread) {
            (Some(read), Some(unread)) if unread.beats(&read) => unread,
            (Some(read), _) => read,
            (None, unread) => unread?,
        };
        let home = self
            .home
            .map(|(home, is_read)| if is_read { home } else { as_read(home) });
        let stays = home.filter(|home| match self.terms.strategy {
            Strategy::Headroom => home.steady - best.steady < self.terms.margin,
            Strategy::Order => false,
            Strategy::FillFirst | Strategy::RoundRobin => true,
            Strategy::Price => self.terms.warm && home.steady <= self.terms.tuning.hysteresis * best.score,
        });
        let picked = stays.unwrap_or(best);
        let is_home = self.terms.home == Some(&picked.account.id);
        let ground = match self.terms.strategy {
            _ if stays.is_some() || is_home && self.terms.strategy != Strategy::Order => Ground::Stays,
            Strategy::Headroom => Ground::MostRoom,
            Strategy::Order => Ground::FirstInOrder,
            Strategy::FillFirst => Ground::Fullest,
            Strategy::RoundRobin => Ground::ItsTurn,
            Strategy::Price if picked.price.is_none_or(|price| price.week > 1.0) => Ground::LeastShort,
            Strategy::Price => Ground::RoomToSpare,
        };
        Some(Pick {
            account: picked.account,
            tier: self.place?.0,
            ground,
            price: picked.price,
        })
    }
}

/// Spreads `value` over all bits (the finaliser of splitmix64).
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
