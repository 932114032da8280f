//! One request's life: let in, given to a seat, tried elsewhere where that helps, and handed on as it came.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Chances, Conversation, End, Heard, Next, Outcome, Reason, Refusal, Switch};
use tower::ServiceExt as _;
use xxhash_rust::xxh3::xxh3_64;

use crate::answer::Answer;
use crate::anthropic;
use crate::body::{self, Budget, Sent, Upload, UploadError};
use crate::connections::{Busy, Connection};
use crate::credential::Secret;
use crate::devices::{Device, Devices};
use crate::error::{self, ProxyError};
use crate::forward;
use crate::gate::{self, Names, Route};
use crate::peek::Found;
use crate::ping;
use crate::ports::{Network, UpstreamError};
use crate::receipt::{Books, ReadFor, Receipt};
use crate::record;
use crate::roster::Roster;
use crate::scheduler::{Claim, LeaseGuard, Scheduler};
use crate::settings::Settings;

/// How long a request may go from seat to seat before it is answered.
const MOVING_FOR: SignedDuration = SignedDuration::from_secs(30);
/// How long a request waits for a login to be renewed.
const RENEWAL_WAIT: Duration = Duration::from_secs(35);
/// How long a request waits for another one to try a seat that comes back from a rest.
const TRIAL_WAIT: Duration = Duration::from_secs(5);
/// How long a request that waits looks away after it looked: others change the pool all the time.
const LOOK_AWAY: Duration = Duration::from_millis(50);
/// The longest nap of a request that waits: timers stand still while a laptop sleeps, and the clock decides.
const NAP: Duration = Duration::from_secs(10);

/// What all requests share.
pub struct Proxy {
    /// The pool.
    pub scheduler: Arc<Scheduler>,
    /// The seats and their tokens.
    pub roster: Arc<Roster>,
    /// The network.
    pub network: Arc<Network>,
    /// Where requests go.
    pub origin: Uri,
    /// The owner's devices.
    pub devices: Arc<Devices>,
    /// This machine's names.
    pub names: Names,
    /// The zone of the times in our answers.
    pub zone: TimeZone,
    /// The memory for uploads.
    pub budget: Arc<Budget>,
    /// What is written down of requests, and who issued which id.
    pub books: Arc<Books>,
    /// The settings.
    pub settings: Arc<Settings>,
}

/// The routes: ours under `/_router/`, all else is forwarded or refused.
pub fn router(proxy: Arc<Proxy>) -> axum::Router {
    axum::Router::new()
        .route("/_router/ping", axum::routing::get(ping))
        .fallback(forward)
        .with_state(proxy)
}

/// Says "ok" and nothing else; with a key, that the key is good.
async fn ping(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let headers = request.headers();
    if let Err(refused) = gate::no_web_page(headers) {
        return proxy.answer(&refused);
    }
    let shows_a_key = [gate::ROUTER_KEY, gate::API_KEY, header::AUTHORIZATION]
        .iter()
        .any(|name| headers.contains_key(name));
    match (shows_a_key, gate::device(headers, &proxy.devices)) {
        (false, _) if proxy.names.include(headers) => Response::new(Body::from("ok\n")),
        (false, _) => proxy.answer(&ProxyError::ForeignHost),
        (true, Ok(device)) => {
            let body = match proxy.has_a_seat_for(&device) {
                true => format!("{}\n", ping::GOOD),
                false => format!("{}, but there is {} for this device\n", ping::GOOD, ping::NO_SEAT),
            };
            Response::new(Body::from(body))
        }
        (true, Err(wrong)) => proxy.answer(&wrong),
    }
}

async fn forward(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if gate::no_web_page(&head.headers).is_ok() && gate::route(&head.method, &head.uri) == Ok(Route::Hello) {
        return Response::new(Body::empty());
    }
    let (device, route) = match gate::admit(&head, &proxy.devices, &proxy.names) {
        Ok(admitted) => admitted,
        Err(refused) => {
            if matches!(refused, ProxyError::WrongKey { .. }) {
                proxy.books.refused(proxy.scheduler.now());
            }
            return refuse(&proxy, &refused, &head, body, body::DRAIN_STRANGER);
        }
    };
    let length = head
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let limit = matches!(route, Route::Messages | Route::CountTokens).then_some(body::REPLAY_LIMIT);
    if limit.zip(length).is_some_and(|(limit, length)| length > limit) {
        log_too_long(&device.name, head.uri.path());
        return refuse(&proxy, &ProxyError::TooLong, &head, body, body::DRAIN_KNOWN);
    }
    let busy = head
        .extensions
        .get::<Connection>()
        .map(|connection| connection.busy(&device));
    // It may have been shut out between its key and its place among those that run, where it would not be cut.
    if device.is_revoked() {
        let wrong = ProxyError::WrongKey { login_mode: false };
        return refuse(&proxy, &wrong, &head, body, body::DRAIN_STRANGER);
    }
    let now = proxy.scheduler.now();
    proxy.devices.count(&device, now.as_second());
    let upload = Upload::new(body, length, limit, has_json(&head.headers), Arc::clone(&proxy.budget));
    let exchange = Exchange {
        moving_since: None,
        held_until: None,
        impatient: false,
        receipt: proxy.books.begin(&device.id, head.uri.path(), now),
        device,
        proxy: Arc::clone(&proxy),
        head,
        route,
        length,
        upload,
        tried: Vec::new(),
        again: None,
        reread: Vec::new(),
        retried: false,
        resent: false,
        moved: false,
        kept: None,
        busy,
    };
    exchange.run().await
}

fn log_too_long(device: &str, path: &str) {
    tracing::warn!(device, "{path}: 413, longer than 32 MB; it was not sent");
}

/// A refusal before the body was read. What comes of the body is dropped, and the connection closed after it.
fn refuse(proxy: &Proxy, error: &ProxyError, head: &Parts, body: Body, bounds: body::Drain) -> Response {
    let mut response = proxy.answer(error);
    if !http_body::Body::is_end_stream(&body) {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
        // A client that waits for leave to send is told no, and sends nothing.
        if !head.headers.contains_key(header::EXPECT) {
            body::drain(body, bounds);
        }
    }
    response
}

/// Whether the body is JSON that can be looked at.
fn has_json(headers: &HeaderMap) -> bool {
    let encoded = headers.contains_key(header::CONTENT_ENCODING);
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    !encoded && kind.is_none_or(|kind| kind.to_ascii_lowercase().starts_with(b"application/json"))
}

impl Proxy {
    /// Whether a seat with a login may serve that device, full or not.
    fn has_a_seat_for(&self, device: &Device) -> bool {
        let may = |account: &pool::Account| {
            let allowed = device.seats.as_ref().is_none_or(|seats| seats.contains(&account.id));
            allowed && account.wishes.enabled && account.token != pool::Token::Missing
        };
        self.scheduler.look(|pool, _| pool.accounts().any(may))
    }

    fn answer(&self, error: &ProxyError) -> Response {
        error.response(self.scheduler.now(), &self.zone)
    }
}

/// A request on its way.
struct Exchange {
    proxy: Arc<Proxy>,
    /// When the first attempt asked for another.
    moving_since: Option<Timestamp>,
    /// Until when it is held open for a seat to return, once it was found that none serves.
    held_until: Option<Timestamp>,
    /// Whether it has waited long enough for another request to try a seat.
    impatient: bool,
    /// What is written down of it.
    receipt: Receipt,
    device: Arc<Device>,
    head: Parts,
    route: Route,
    length: Option<u64>,
    upload: Upload,
    /// Seats that are not tried again.
    tried: Vec<AccountId>,
    /// The seat that the next attempt goes to, if it still can serve.
    again: Option<AccountId>,
    /// Seats whose login was read anew for this request.
    reread: Vec<AccountId>,
    /// Whether the one retry on the same seat was used.
    retried: bool,
    /// Whether it was sent again because a kept connection was dead.
    resent: bool,
    /// Whether the one spare move was used.
    moved: bool,
    /// An answer that is handed on if nobody has a better one.
    kept: Option<Kept>,
    busy: Option<Busy>,
}

/// An answer that is kept while others are tried.
struct Kept {
    /// Who gave it.
    seat: AccountId,
    response: Response,
    /// Whether it gives way to the news that the other seats are full.
    gives_way: bool,
}

/// What became of an attempt.
enum Attempt {
    Answered(Box<Answer>, Heard),
    /// The whole body says that it belongs elsewhere.
    Misdirected,
    Failed(LeaseGuard, UpstreamError),
}

impl Exchange {
    async fn run(mut self) -> Response {
        let mut response = self.respond().await;
        response
            .headers_mut()
            .insert(forward::REQUEST, self.receipt.number().into());
        if let Some(kind) = response.headers().get(error::KIND).and_then(|kind| kind.to_str().ok()) {
            let served_by = forward::served_by("nobody", kind);
            response.headers_mut().insert(forward::SERVED_BY, served_by);
        }
        // An answer may come before the upload's end; what is still on its way is taken in, within bounds.
        self.upload.finish_behind();
        self.receipt.go_along(response)
    }

    async fn respond(&mut self) -> Response {
        let agent = self.agent().is_some();
        let enough = move |found: &Found| found.model.is_some() && (agent || found.first_turn.is_some());
        if let Err(error) = self.upload.take_in_until(enough).await {
            return self.broken_upload(&error);
        }
        loop {
            let (wanted, claimed) = self.acquire().await;
            self.receipt.concerns(wanted.model.as_deref(), wanted.conversation);
            let Claim {
                lease,
                reason,
                switch,
                wait,
            } = match claimed {
                Ok(claim) => claim,
                Err(refusal) => return self.refused(refusal),
            };
            self.bound(&wanted, &lease, switch);
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
                // The lid may have been closed meanwhile, and the token ended.
                if !self.proxy.scheduler.has_login(lease.account()) {
                    lease.settle(&End::Withdrawn);
                    continue;
                }
            }
            let Some(access) = self.proxy.roster.access(lease.account()) else {
                self.tried.push(lease.account().clone());
                lease.settle(&End::Withdrawn);
                continue;
            };
            let (answer, heard) = match self.attempt(lease, reason, access, &wanted).await {
                Ok(Attempt::Answered(answer, heard)) => (*answer, heard),
                Ok(Attempt::Misdirected) => continue,
                Ok(Attempt::Failed(lease, error)) => match self.failed(lease, &error, &wanted) {
                    Some(response) => return response,
                    None => continue,
                },
                Err(error) => return self.broken_upload(&error),
            };
            if let Some(response) = self.next(answer, heard, &wanted).await {
                return response;
            }
        }
    }

    /// Writes down where the conversation runs now, and its move, if it moved.
    fn bound(&mut self, wanted: &pool::Request, lease: &LeaseGuard, switch: Option<Switch>) {
        let borrowed = switch.as_ref().is_some_and(|switch| switch.for_one_turn);
        if let Some(conversation) = wanted.conversation.filter(|_| !borrowed) {
            self.receipt.bound(conversation, lease.account());
        }
        if let Some(switch) = switch {
            let (from, to) = (
                self.proxy.roster.label(&switch.from),
                self.proxy.roster.label(&switch.to),
            );
            tracing::info!(device = %self.device.name, "a conversation goes from `{from}` to `{to}`: {}", switch.why);
            self.receipt.switched(switch, self.proxy.scheduler.now());
        }
    }

    /// Claims a seat. What passes by itself is waited for, within bounds: a renewal (the driver renews, requests never
    /// do), another request's trial of a seat that comes back, and a reset, where the owner wants requests held.
    async fn acquire(&mut self) -> (pool::Request, Result<Claim, Refusal>) {
        let scheduler = Arc::clone(&self.proxy.scheduler);
        let mut changed = scheduler.subscribe();
        let (mut renewal, mut trial) = (None, None);
        loop {
            let wanted = self.wanted();
            let refusal = match scheduler.acquire(&wanted) {
                Ok(claim) => return (wanted, Ok(claim)),
                Err(refusal) => refusal,
            };
            let wait = match &refusal {
                Refusal::Renewing => {
                    if renewal.is_none() {
                        scheduler.hurry();
                    }
                    left_of(RENEWAL_WAIT, &mut renewal)
                }
                Refusal::Returning => left_of(TRIAL_WAIT, &mut trial),
                Refusal::Cooling { until, .. } => self.hold(*until),
                _ => Duration::ZERO,
            };
            if wait.is_zero() {
                if refusal == Refusal::Returning {
                    self.impatient = true;
                    continue;
                }
                return (wanted, Err(refusal));
            }
            tokio::time::sleep(LOOK_AWAY.min(wait)).await;
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(wait.min(NAP)) => {}
            }
        }
    }

    /// How long it is still held for a seat that returns at `until`: not at all, unless its owner wants it, the seat
    /// returns in time, and there is nothing better to give the client.
    fn hold(&mut self, until: Timestamp) -> Duration {
        if self.kept.as_ref().is_some_and(|kept| !kept.gives_way) {
            return Duration::ZERO;
        }
        let now = self.proxy.scheduler.now();
        let wanted = u64::from(self.proxy.settings.now().hold_s);
        // The client must not give up before we do.
        let longest = self.timeout_s().map_or(wanted, |timeout| wanted.min(timeout / 2));
        let ends = *self
            .held_until
            .get_or_insert(now + SignedDuration::from_secs(longest as i64));
        if now >= ends || until > ends {
            return Duration::ZERO;
        }
        // Whoever returns may be tried anew.
        self.tried.clear();
        self.moving_since = None;
        let wait = until.duration_since(now).max(SignedDuration::from_millis(1));
        wait.unsigned_abs()
    }

    /// How long the client waits for an answer's head, in seconds, if it says so.
    fn timeout_s(&self) -> Option<u64> {
        self.head
            .headers
            .get("x-stainless-timeout")?
            .to_str()
            .ok()?
            .parse()
            .ok()
    }

    /// The sub-agent that speaks, if one does.
    fn agent(&self) -> Option<&HeaderValue> {
        self.head.headers.get("x-claude-code-agent-id")
    }

    /// What the pool needs to know of this request, as far as it was seen.
    fn wanted(&self) -> pool::Request {
        let nothing = Found::default();
        let found = self.upload.found().unwrap_or(&nothing);
        let own = match &self.route {
            Route::Owned(id) => Some(id),
            _ => None,
        };
        pool::Request {
            conversation: self.conversation(found),
            model: found.model.clone(),
            features: anthropic::features(&self.head.headers),
            allowed: self.device.seats.clone(),
            owner: self.proxy.books.owner_of(own.into_iter().chain(&found.ids)),
            again: self.again.clone(),
            tried: self.tried.clone(),
            impatient: self.impatient,
            size: self
                .length
                .map_or(0, |length| u32::try_from(length).unwrap_or(u32::MAX)),
            hour_cache: anthropic::asks_hour_cache(&self.head.headers),
            sub_agent: self.agent().is_some(),
            is_free: self.route != Route::Messages,
            device: Some(xxh3_64(self.device.id.as_bytes())),
        }
    }

    /// What is still open to it.
    fn chances(&mut self) -> Chances {
        let now = self.proxy.scheduler.now();
        let since = *self.moving_since.get_or_insert(now);
        Chances {
            movable: self.upload.is_replayable() && now.duration_since(since) < MOVING_FOR,
            spare: !self.moved,
            retry: !self.retried,
        }
    }

    /// The conversation: a sub-agent's own, else the session's with its first turn, else the first turn's alone.
    fn conversation(&self, found: &Found) -> Option<Conversation> {
        if let Some(agent) = self.agent() {
            return Some(Conversation(xxh3_64(agent.as_bytes())));
        }
        let header = self
            .head
            .headers
            .get("x-claude-code-session-id")
            .map(HeaderValue::as_bytes);
        let session = header.or(found.user_id.as_deref().map(str::as_bytes)).map(xxh3_64);
        match (session, found.first_turn) {
            (None, None) => None,
            (session, turn) => Some(Conversation(
                session.unwrap_or_default().rotate_left(1) ^ turn.unwrap_or_default(),
            )),
        }
    }

    /// Sends the request to the lease's seat, and reads as much of the answer as it takes to understand it.
    async fn attempt(
        &mut self,
        lease: LeaseGuard,
        reason: Reason,
        access: Secret,
        wanted: &pool::Request,
    ) -> Result<Attempt, UploadError> {
        let mut request = Request::new(self.upload.reader());
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = forward::target(&self.proxy.origin, &self.head.uri);
        let length = self
            .length
            .filter(|&length| length > 0 || self.head.method == Method::POST);
        *request.headers_mut() = forward::request_headers(self.head.headers.clone(), &access, length);
        let sending = self.proxy.network.service().oneshot(request);

        let proxy = Arc::clone(&self.proxy);
        let still_right = |found: &Found| {
            let owner = proxy.books.owner_of(&found.ids);
            found.model == wanted.model && (owner.is_none() || owner == wanted.owner || wanted.owner.is_some())
        };
        let response = match self.upload.alongside(sending, still_right).await? {
            Sent::Ended(Ok(response)) => response,
            Sent::Ended(Err(error)) => return Ok(Attempt::Failed(lease, error)),
            Sent::Misdirected => {
                lease.settle(&End::Withdrawn);
                return Ok(Attempt::Misdirected);
            }
        };
        let mut answer = Answer::new(response, lease, reason, access);
        let mut heard = answer
            .understand(wanted.model.as_deref(), self.proxy.scheduler.now())
            .await;
        if self.route != Route::Messages && !concerns_the_seat(&heard.outcome) {
            heard.outcome = Outcome::PassedOn;
        }
        Ok(Attempt::Answered(Box::new(answer), heard))
    }

    /// What follows from the answer: a response for the client, or another attempt.
    async fn next(&mut self, mut answer: Answer, heard: Heard, wanted: &pool::Request) -> Option<Response> {
        let account = answer.account.clone();
        let outcome = heard.outcome.clone();
        let chances = match outcome {
            // The usual case wants no clock.
            Outcome::Served | Outcome::PassedOn => Chances::NONE,
            _ => self.chances(),
        };
        let next = answer.judge(wanted, heard, chances);
        self.again = None;
        if next == Next::Deliver {
            if outcome == Outcome::OauthUnsupported {
                let message = answer.error.map(|error| error.message).unwrap_or_default();
                let label = self.proxy.roster.label(&account);
                return Some(self.own_answer(&label, &ProxyError::OauthUnsupported { message }));
            }
            if matches!(outcome, Outcome::WrongPlace | Outcome::Challenged) {
                self.tell(&self.proxy.roster.label(&account), &account, &outcome);
            }
            return Some(self.deliver(answer));
        }
        let label = self.proxy.roster.label(&account);
        self.tell(&label, &account, &outcome);
        self.receipt.attempted(record::Attempt {
            seat: account.to_string(),
            reason: answer.reason.to_string(),
            status: Some(answer.head.status.as_u16()),
            came_of_it: record::came_of(&outcome),
        });
        answer.release();
        match next {
            Next::Deliver | Next::Reconnect => {}
            // One seat's limit is not the pool's.
            Next::TryAnother if !chances.movable && matches!(outcome, Outcome::Limited(_) | Outcome::Beyond(_)) => {
                return Some(self.own_answer(&label, &ProxyError::NotMovable));
            }
            Next::TryAnother | Next::TryAnotherOrDeliver | Next::TryOneOther if !chances.movable => {
                return Some(self.deliver(answer));
            }
            Next::TryAnother => {
                self.tried.push(account);
                // What is paid for is not listened to.
                if !answer.head.status.is_success() {
                    answer.read_to_end().await;
                }
            }
            Next::TryAnotherOrDeliver | Next::TryOneOther => {
                self.moved |= next == Next::TryOneOther;
                self.tried.push(account);
                self.kept = Some(Kept {
                    seat: answer.account.clone(),
                    response: answer.into_response(&label, None),
                    gives_way: next == Next::TryAnotherOrDeliver,
                });
            }
            Next::RereadAndRetry => {
                let another = self.proxy.roster.refused(&account, &answer.access).await;
                if !chances.movable {
                    return Some(self.own_answer(&label, &ProxyError::Exhausted));
                }
                // A seat gets a second try with another token, from the store or from a renewal, and no third.
                match self.reread.contains(&account) {
                    true => self.tried.push(account),
                    false => {
                        self.reread.push(account.clone());
                        self.again = another.then_some(account);
                    }
                }
            }
            Next::RetryHere { after } => {
                self.retried = true;
                self.again = Some(account);
                drop(answer);
                tokio::time::sleep(after.unsigned_abs()).await;
            }
        }
        None
    }

    /// Logs what an answer means, where somebody may want to do something about it.
    fn tell(&self, label: &str, account: &AccountId, outcome: &Outcome) {
        match outcome {
            Outcome::Limited(rejection) => {
                let limits: Vec<String> = rejection.windows.iter().map(|(kind, _)| kind.to_string()).collect();
                let limits = limits.join(" and ");
                tracing::info!(account.id = %account, "`{label}` has reached its {limits} limit; the request moves on");
            }
            Outcome::Beyond(_) => {
                tracing::info!(account.id = %account, "`{label}` would go beyond its plan; the request moves on");
            }
            Outcome::NotAllowed => {
                tracing::warn!(account.id = %account, "`{label}`: its organisation does not allow this; the request moves on");
            }
            Outcome::Unpaid => {
                tracing::warn!(account.id = %account, "`{label}` wants to be paid for; the request moves on");
            }
            Outcome::WrongPlace => tracing::warn!(
                "Anthropic does not serve requests from this place or network; look at the machine's network, region or VPN"
            ),
            Outcome::Challenged => tracing::warn!(
                "the network in front of Anthropic wants to see a person; look at the machine's network or VPN"
            ),
            _ => {}
        }
    }

    /// Hands the answer on as it came; its lease is settled at its last byte.
    fn deliver(&mut self, answer: Answer) -> Response {
        let read_for = match self.route {
            Route::NewFile | Route::NewBatch => Some(ReadFor::Issued),
            Route::Messages => Some(ReadFor::Turn {
                is_stream: answer.is_stream(),
            }),
            _ => None,
        };
        if let Some(read_for) = read_for.filter(|_| answer.head.status.is_success()) {
            self.receipt.read(read_for, &answer.head.headers);
        }
        let (status, reason) = (answer.head.status, answer.reason.to_string());
        let label = self.proxy.roster.label(&answer.account);
        self.log(status, &label, &reason);
        self.receipt.answered(Some(&answer.account), status, &reason);
        answer.into_response(&label, self.busy.take())
    }

    /// Nobody serves it: what was kept from an earlier attempt, or why.
    fn refused(&mut self, refusal: Refusal) -> Response {
        let error = match refusal {
            Refusal::Cooling { until, window, seats } => ProxyError::AllFull { until, window, seats },
            Refusal::NoSeat => ProxyError::NoSeat,
            Refusal::Paused => ProxyError::Paused,
            Refusal::NeedLogin(seats) => ProxyError::NeedLogin {
                seats: seats.iter().map(|id| self.proxy.roster.label(id)).collect(),
            },
            Refusal::LoginDelayed { until } => ProxyError::LoginDelayed { until },
            Refusal::LoginsRefused { seats, until } => ProxyError::LoginsRefused {
                seats: seats.iter().map(|id| self.proxy.roster.label(id)).collect(),
                until,
            },
            Refusal::Renewing => ProxyError::Renewing,
            Refusal::NotAllowed(seats) => ProxyError::NotAllowed {
                seats: seats.iter().map(|id| self.proxy.roster.label(id)).collect(),
            },
            Refusal::Returning | Refusal::Exhausted => ProxyError::Exhausted,
        };
        let full = matches!(error, ProxyError::AllFull { .. });
        if let Some(kept) = self.kept.take().filter(|kept| !(full && kept.gives_way)) {
            self.log(kept.response.status(), "nobody else", "handed on");
            self.receipt
                .answered(Some(&kept.seat), kept.response.status(), "handed on");
            return kept.response;
        }
        let response = self.own_answer("nobody", &error);
        self.close_after(response)
    }

    /// No answer came: an answer of ours, unless the request may be sent once more over a new connection. It may where
    /// nothing was sent, and where a kept connection was closed while idle.
    fn failed(&mut self, lease: LeaseGuard, error: &UpstreamError, wanted: &pool::Request) -> Option<Response> {
        let label = self.proxy.roster.label(lease.account());
        let resend = !self.resent && self.upload.is_replayable();
        let chances = Chances {
            retry: resend,
            ..self.chances()
        };
        let (said, again) = match error {
            UpstreamError::Connect(_) => {
                let next = lease.judge(wanted, Outcome::Unreachable.into(), chances);
                (ProxyError::Unreachable, next == Next::Reconnect)
            }
            UpstreamError::Stale(_) => (ProxyError::Broken, resend),
            UpstreamError::Broken(_) => {
                lease.judge(wanted, Outcome::Broken.into(), chances);
                (ProxyError::Broken, false)
            }
        };
        if again {
            self.receipt.attempted(record::Attempt {
                seat: lease.account().to_string(),
                reason: String::new(),
                status: None,
                came_of_it: "no answer, over a connection that was closed".into(),
            });
            self.resent = true;
            self.again = Some(lease.account().clone());
            lease.settle(&End::Withdrawn);
            // Those beside it are not trusted either.
            self.proxy.network.drop_connections();
            return None;
        }
        let seat = lease.account().clone();
        lease.settle(&End::Whole);
        let response = self.proxy.answer(&said);
        self.log(response.status(), &label, chain(error));
        self.receipt.answered(Some(&seat), response.status(), said.kind());
        Some(self.close_after(response))
    }

    /// An answer of ours after `seat` was asked.
    fn own_answer(&mut self, seat: &str, error: &ProxyError) -> Response {
        let response = self.proxy.answer(error);
        self.log(response.status(), seat, error.kind());
        self.receipt.answered(None, response.status(), error.kind());
        response
    }

    /// The client's body did not become whole.
    fn broken_upload(&mut self, error: &UploadError) -> Response {
        match error {
            UploadError::TooLong => {
                log_too_long(&self.device.name, self.head.uri.path());
                let response = self.proxy.answer(&ProxyError::TooLong);
                self.receipt
                    .answered(None, response.status(), ProxyError::TooLong.kind());
                self.close_after(response)
            }
            // Nobody is there to read it.
            UploadError::ClientLeft => {
                self.receipt.left();
                self.proxy.answer(&ProxyError::Broken)
            }
        }
    }

    /// An answer of ours while the upload may still be on its way: the rest is dropped, the connection closed.
    fn close_after(&self, mut response: Response) -> Response {
        if !self.upload.is_complete() {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn log(&self, status: StatusCode, seat: &str, reason: impl std::fmt::Display) {
        let model = self
            .upload
            .found()
            .and_then(|found| found.model.as_deref())
            .unwrap_or("-");
        // The query is left out: somebody might put a key there.
        let path = self.head.uri.path();
        let line = format!(
            "{} {path} {model}: {} from `{seat}` ({reason})",
            self.head.method,
            status.as_u16()
        );
        match status.as_u16() {
            // Side calls come in bursts, and say nothing that a person would look for.
            ..400 if self.route != Route::Messages => tracing::debug!(device = %self.device.name, "{line}"),
            ..400 => tracing::info!(device = %self.device.name, "{line}"),
            _ => tracing::warn!(device = %self.device.name, "{line}"),
        }
    }
}

/// What is left of a wait of that length, which begins when it is first asked for.
fn left_of(wait: Duration, since: &mut Option<tokio::time::Instant>) -> Duration {
    let since = since.get_or_insert_with(tokio::time::Instant::now);
    wait.saturating_sub(since.elapsed())
}

/// Whether an answer to something other than a turn says what it says of the seat: its limit, its login, its
/// organisation. What else goes wrong with a side call says nothing about turns.
const fn concerns_the_seat(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Served
            | Outcome::Limited(_)
            | Outcome::Unauthorized
            | Outcome::OauthUnsupported
            | Outcome::NotAllowed
            | Outcome::Challenged
            | Outcome::WrongPlace
    )
}

/// An error with what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        line = format!("{line}: {next}");
        cause = next.source();
    }
    line
}
