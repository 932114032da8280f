//! One request's life: let in, given to a seat, tried elsewhere where that helps, and handed on as it came.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Conversation, Next, Observation, Outcome, Reason, Refusal};
use tower::ServiceExt as _;
use xxhash_rust::xxh3::xxh3_64;

use crate::answer::{Answer, Reading};
use crate::body::{self, Budget, Sent, Tap, Upload, UploadError};
use crate::connections::{Busy, Connection};
use crate::credential::Secret;
use crate::decode::SideCopy;
use crate::devices::{Device, Devices};
use crate::error::{self, ProxyError};
use crate::forward;
use crate::gate::{self, Names, Route};
use crate::owners::{self, Owners};
use crate::peek::Found;
use crate::ping;
use crate::ports::{Network, UpstreamError};
use crate::roster::Roster;
use crate::scheduler::{LeaseGuard, Scheduler};

/// How long a request may go from seat to seat before it is answered.
const MOVING_FOR: SignedDuration = SignedDuration::from_secs(30);
/// How long a request waits for a login to be renewed.
const RENEWAL_WAIT: Duration = Duration::from_secs(35);
/// The wait before the same seat is tried once more, in milliseconds: at least, and at most.
const RETRY_AFTER_MS: (u64, u64) = (750, 3_000);
/// How much of an answer is read for the ids it issues.
const ISSUED_LIMIT: usize = 64 << 10;

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
    /// Who issued which id.
    pub owners: Arc<Mutex<Owners>>,
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
        Err(refused) => return refuse(&proxy, &refused, &head, body, body::DRAIN_STRANGER),
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
    proxy.devices.count(&device, proxy.scheduler.now().as_second());
    let upload = Upload::new(body, length, limit, has_json(&head.headers), Arc::clone(&proxy.budget));
    let exchange = Exchange {
        moving_since: None,
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
    kept: Option<Response>,
    busy: Option<Busy>,
}

/// What became of an attempt.
enum Attempt {
    Answered(Box<Answer>),
    /// The whole body says that it belongs elsewhere.
    Misdirected,
    Failed(LeaseGuard, UpstreamError),
}

impl Exchange {
    async fn run(mut self) -> Response {
        let mut response = self.respond().await;
        if let Some(kind) = response.headers().get(error::KIND).and_then(|kind| kind.to_str().ok()) {
            let served_by = forward::served_by("nobody", kind);
            response.headers_mut().insert(forward::SERVED_BY, served_by);
        }
        // An answer may come before the upload's end; what is still on its way is taken in, within bounds.
        self.upload.finish_behind();
        response
    }

    async fn respond(&mut self) -> Response {
        let agent = self.agent().is_some();
        let enough = move |found: &Found| found.model.is_some() && (agent || found.first_turn.is_some());
        if let Err(error) = self.upload.take_in_until(enough).await {
            return self.broken_upload(&error);
        }
        loop {
            let (wanted, leased) = self.acquire().await;
            let (lease, reason) = match leased {
                Ok(leased) => leased,
                Err(refusal) => return self.refused(refusal),
            };
            let Some(access) = self.proxy.roster.access(lease.account()) else {
                self.tried.push(lease.account().clone());
                lease.settle(&Outcome::Withdrawn);
                continue;
            };
            let answer = match self.attempt(lease, reason, access, &wanted).await {
                Ok(Attempt::Answered(answer)) => *answer,
                Ok(Attempt::Misdirected) => continue,
                Ok(Attempt::Failed(lease, UpstreamError::Stale(_))) if !self.resent && self.upload.is_replayable() => {
                    self.resend(lease);
                    continue;
                }
                Ok(Attempt::Failed(lease, error)) => return self.failed(lease, &error),
                Err(error) => return self.broken_upload(&error),
            };
            if let Some(response) = self.next(answer).await {
                return response;
            }
        }
    }

    /// Claims a seat. Where only a renewal stands in the way, waits for it: the driver renews, requests never do.
    async fn acquire(&mut self) -> (pool::Request, Result<(LeaseGuard, Reason), Refusal>) {
        let scheduler = Arc::clone(&self.proxy.scheduler);
        let mut changed = scheduler.subscribe();
        let mut patience = std::pin::pin!(tokio::time::sleep(RENEWAL_WAIT));
        let mut waiting = false;
        loop {
            let wanted = self.wanted();
            match scheduler.acquire(&wanted) {
                Err(Refusal::Renewing) => {
                    if !waiting {
                        scheduler.hurry();
                    }
                    waiting = true;
                    tokio::select! {
                        _ = changed.changed() => {}
                        () = &mut patience => return (wanted, Err(Refusal::Renewing)),
                    }
                }
                leased => return (wanted, leased),
            }
        }
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
        let owners = self.proxy.owners.lock().unwrap_or_else(PoisonError::into_inner);
        pool::Request {
            conversation: self.conversation(found),
            model: found.model.clone(),
            allowed: self.device.seats.clone(),
            owner: owners.of(own.into_iter().chain(&found.ids)),
            again: self.again.clone(),
            tried: self.tried.clone(),
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
            let owners = proxy.owners.lock().unwrap_or_else(PoisonError::into_inner);
            let owner = owners.of(&found.ids);
            found.model == wanted.model && (owner.is_none() || owner == wanted.owner || wanted.owner.is_some())
        };
        let response = match self.upload.alongside(sending, still_right).await? {
            Sent::Ended(Ok(response)) => response,
            Sent::Ended(Err(error)) => return Ok(Attempt::Failed(lease, error)),
            Sent::Misdirected => {
                lease.settle(&Outcome::Withdrawn);
                return Ok(Attempt::Misdirected);
            }
        };
        let scheduler = &self.proxy.scheduler;
        let mut answer = Answer::new(response, lease, reason, access);
        let Reading { windows, allowed } = answer.understand(scheduler.now()).await;
        if !windows.is_empty() {
            scheduler.observe(&answer.account, Observation::Reading { windows, allowed });
        }
        Ok(Attempt::Answered(Box::new(answer)))
    }

    /// What follows from the answer: a response for the client, or another attempt.
    async fn next(&mut self, mut answer: Answer) -> Option<Response> {
        if matches!(answer.outcome, Outcome::Served | Outcome::PassedOn) {
            return Some(self.deliver(answer));
        }
        let account = answer.account.clone();
        let label = self.proxy.roster.label(&account);
        if let Outcome::Limited(rejection) = &answer.outcome {
            let limits: Vec<String> = rejection.windows.iter().map(|(kind, _)| kind.to_string()).collect();
            tracing::info!(account.id = %account, "`{label}` has reached its {} limit; the request moves on", limits.join(" and "));
        }
        let next = answer.settle();
        let now = self.proxy.scheduler.now();
        let since = *self.moving_since.get_or_insert(now);
        let movable = self.upload.is_replayable() && now.duration_since(since) < MOVING_FOR;
        self.again = None;
        match next {
            Next::Deliver if answer.outcome == Outcome::OauthUnsupported => {
                let message = answer.error.map(|error| error.message).unwrap_or_default();
                return Some(self.own_answer(&label, &ProxyError::OauthUnsupported { message }));
            }
            // One seat's limit is not the pool's.
            Next::TryAnother if !movable => return Some(self.own_answer(&label, &ProxyError::NotMovable)),
            Next::TryAnother => {
                self.tried.push(account);
                answer.read_to_end().await;
            }
            Next::RereadAndRetry => {
                let another = self.proxy.roster.refused(&account, &answer.access).await;
                if !movable {
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
            Next::TryOneOther if movable && !self.moved => {
                self.moved = true;
                self.tried.push(account);
                self.kept = Some(answer.into_response(&label, None, None));
            }
            Next::RetryHere if movable && !self.retried => {
                self.retried = true;
                self.again = Some(account);
                tokio::time::sleep(retry_after()).await;
            }
            Next::Deliver | Next::TryOneOther | Next::RetryHere => {
                self.log(answer.head.status, &label, answer.reason);
                return Some(answer.into_response(&label, None, None));
            }
        }
        None
    }

    /// Hands the answer on as it came; its lease is settled at its last byte.
    fn deliver(&mut self, answer: Answer) -> Response {
        let names: Option<owners::Names> = match self.route {
            Route::NewFile | Route::NewBatch => Some(owners::issued),
            Route::Messages if !answer.is_stream() => Some(owners::container),
            _ => None,
        };
        let tap = names.filter(|_| answer.head.status.is_success()).map(|names| {
            let copy = SideCopy::new(&answer.head.headers, ISSUED_LIMIT);
            let (owners, account) = (Arc::clone(&self.proxy.owners), answer.account.clone());
            Tap::new(copy, move |body| {
                let mut owners = owners.lock().unwrap_or_else(PoisonError::into_inner);
                for id in names(body) {
                    owners.note(id, account.clone());
                }
            })
        });
        let label = self.proxy.roster.label(&answer.account);
        self.log(answer.head.status, &label, answer.reason);
        answer.into_response(&label, tap, self.busy.take())
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
            Refusal::Renewing => ProxyError::Renewing,
            Refusal::Exhausted => ProxyError::Exhausted,
        };
        if let Some(kept) = self.kept.take() {
            self.log(kept.status(), "nobody else", "handed on");
            return kept;
        }
        let response = self.own_answer("nobody", &error);
        self.close_after(response)
    }

    /// The one resend that we allow ourselves: a kept connection was closed while idle. Those beside it are not
    /// trusted either.
    fn resend(&mut self, lease: LeaseGuard) {
        self.resent = true;
        self.again = Some(lease.account().clone());
        lease.settle(&Outcome::Withdrawn);
        self.proxy.network.drop_connections();
    }

    /// No answer came.
    fn failed(&mut self, lease: LeaseGuard, error: &UpstreamError) -> Response {
        let label = self.proxy.roster.label(lease.account());
        lease.settle(&Outcome::Unreachable);
        let said = match error {
            UpstreamError::Connect(_) => ProxyError::Unreachable,
            UpstreamError::Broken(_) | UpstreamError::Stale(_) => ProxyError::Broken,
        };
        let response = self.proxy.answer(&said);
        self.log(response.status(), &label, chain(error));
        self.close_after(response)
    }

    /// An answer of ours after `seat` was asked.
    fn own_answer(&self, seat: &str, error: &ProxyError) -> Response {
        let response = self.proxy.answer(error);
        self.log(response.status(), seat, error.kind());
        response
    }

    /// The client's body did not become whole.
    fn broken_upload(&mut self, error: &UploadError) -> Response {
        match error {
            UploadError::TooLong => {
                log_too_long(&self.device.name, self.head.uri.path());
                self.close_after(self.proxy.answer(&ProxyError::TooLong))
            }
            // Nobody is there to read it.
            UploadError::ClientLeft => self.proxy.answer(&ProxyError::Broken),
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

/// A wait with full jitter.
fn retry_after() -> Duration {
    let (least, most) = RETRY_AFTER_MS;
    let chance = getrandom::u32().map_or(0, u64::from);
    Duration::from_millis(least + chance % (most - least))
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
