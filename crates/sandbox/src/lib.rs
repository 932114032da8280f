//! A pretended Anthropic to practise on, with its own idea of the rules.
//!
//! It shares no code with the router, so that a misunderstanding cannot be on both sides of a test.
//! The same [`Sandbox`] answers in memory ([`Sandbox::router`] is a tower service, and all waiting
//! is tokio's, so virtual time works), on sockets ([`serve`], [`serve_tls`]) and in the [`demo`].
//!
//! A tour: [`Seat`] is one subscription and what is left of it; `world` holds the seats and gives
//! the natural answer to a request; an [`Answer`] is an answer as a value, natural or scripted, and
//! `render` turns it into bytes; [`Recorded`] is what arrived. `oauth` rotates tokens, `messages`,
//! `account` and `objects` know the wire formats, `control` is the door for other processes.
#![forbid(unsafe_code)]

mod account;
mod answer;
mod control;
mod demo;
mod encode;
mod limits;
mod login;
mod made_up;
mod messages;
mod oauth;
mod objects;
mod record;
mod render;
mod router;
mod script;
mod seat;
mod serve;
mod tls;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use answer::{Answer, SseStep};
pub use demo::demo;
pub use encode::Encoding;
pub use login::{write_login, write_logins};
pub use made_up::MadeUp;
pub use oauth::{TokenPost, Verdict};
pub use record::Recorded;
pub use render::Cut;
pub use seat::{Allowance, Meter, Seat};
pub use serve::{serve, serve_here, serve_tls};
pub use tls::Identity;

use world::World;

/// Milliseconds since the epoch. Injected, so that virtual time works.
pub type Now = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The pretended Anthropic. Clones share one world.
#[derive(Clone)]
pub struct Sandbox {
    now: Now,
    world: Arc<Mutex<World>>,
    open_streams: Arc<AtomicUsize>,
}

impl Sandbox {
    /// A sandbox without seats: every bearer is unknown to it.
    pub fn new(now: Now) -> Self {
        Self {
            now,
            world: Arc::default(),
            open_streams: Arc::default(),
        }
    }

    /// Adds a seat, or replaces the one of that name together with its tokens.
    pub fn add_seat(&self, seat: Seat) {
        self.world().add_seat(seat);
    }

    /// The seats as they stand now, in the order they were added.
    pub fn seats(&self) -> Vec<Seat> {
        let now_ms = self.now_ms();
        let mut world = self.world();
        world.settle(now_ms);
        world.seats.clone()
    }

    /// The service that answers everything. In memory, an answer that would have been a dropped
    /// connection carries [`Cut`] in its extensions.
    pub fn router(&self) -> axum::Router {
        router::router(self.clone())
    }

    /// Queues one answer for the next request with this bearer token and path (the query is not
    /// looked at). First in, first out; `"*"` stands for any token, also none, and any path.
    pub fn script(&self, token: &str, path: &str, answer: Answer) {
        self.world().scripts.once(token, path, answer);
    }

    /// As [`Self::script`], but the answer stays until cleared. Queued answers go first, and of two
    /// that stay the later one counts.
    pub fn script_always(&self, token: &str, path: &str, answer: Answer) {
        self.world().scripts.always(token, path, answer);
    }

    /// Back to natural answers.
    pub fn clear_scripts(&self) {
        self.world().scripts.clear();
    }

    /// What arrived, in order of arrival. Requests to `/__sandbox/` do not count.
    pub fn requests(&self) -> Vec<Recorded> {
        self.world().record.all()
    }

    /// As [`Self::requests`], and forgets them.
    pub fn take_requests(&self) -> Vec<Recorded> {
        self.world().record.take()
    }

    /// How many event streams are neither at their end nor dropped.
    pub fn open_streams(&self) -> usize {
        self.open_streams.load(Ordering::SeqCst)
    }

    /// Sets the used fraction of an allowance: 0.0 is none of it, 1.0 all of it.
    ///
    /// # Panics
    /// If there is no such seat, or it lacks that allowance.
    pub fn use_up(&self, seat: &str, allowance: Allowance, fraction: f64) {
        let now_ms = self.now_ms();
        self.with_seat(seat, |seat| {
            meter(seat, allowance).set_used(fraction, now_ms);
        });
    }

    /// Sets when an allowance is empty again, in seconds since the epoch.
    ///
    /// # Panics
    /// If there is no such seat, or it lacks that allowance.
    pub fn set_reset(&self, seat: &str, allowance: Allowance, epoch_s: i64) {
        self.with_seat(seat, |seat| {
            meter(seat, allowance).resets_at_s = Some(epoch_s);
        });
    }

    /// The access token that is live for the seat.
    ///
    /// # Panics
    /// If there is no such seat.
    pub fn access_token(&self, seat: &str) -> String {
        self.with_seat(seat, |seat| seat.access_token.clone())
    }

    /// The refresh token that is live for the seat.
    ///
    /// # Panics
    /// If there is no such seat.
    pub fn refresh_token(&self, seat: &str) -> String {
        self.with_seat(seat, |seat| seat.refresh_token.clone())
    }

    /// From now on the live access token is answered 401. The refresh token still works.
    ///
    /// # Panics
    /// If there is no such seat.
    pub fn revoke_access(&self, seat: &str) {
        let token = self.access_token(seat);
        self.world().tokens.revoke_access(&token);
    }

    /// As if the owner logged in anew: a new pair, also after the family was revoked.
    ///
    /// # Panics
    /// If there is no such seat.
    pub fn log_in_again(&self, seat: &str) {
        let now_ms = self.now_ms();
        let mut world = self.world();
        let index = world.seat_index(seat).unwrap_or_else(|| no_seat(seat));
        // The old family is forgotten: whoever replays its tokens must not harm the new one.
        world.tokens.forget(seat);
        world.mint(index, now_ms);
    }

    /// Each `POST /v1/oauth/token`, in order.
    pub fn token_posts(&self) -> Vec<TokenPost> {
        self.world().tokens.posts.clone()
    }

    /// Waits this long between the words of natural streams, so that people see them flow. 0 at first.
    pub fn set_pace(&self, pace_ms: u64) {
        self.world().pace_ms = pace_ms;
    }

    fn now_ms(&self) -> i64 {
        (self.now)()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // A test that panicked has said what is wrong; the others may still look.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_seat<T>(&self, name: &str, act: impl FnOnce(&mut Seat) -> T) -> T {
        let mut world = self.world();
        let index = world.seat_index(name).unwrap_or_else(|| no_seat(name));
        act(&mut world.seats[index])
    }
}

fn meter(seat: &mut Seat, allowance: Allowance) -> &mut Meter {
    let name = seat.name.clone();
    seat.meter_mut(allowance)
        .unwrap_or_else(|| panic!("seat `{name}` has no {allowance:?} allowance"))
}

fn no_seat(name: &str) -> ! {
    panic!("the sandbox has no seat `{name}`")
}
