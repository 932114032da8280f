//! One request's way: given to a seat, sent, tried elsewhere where that helps, and answered.

mod acquire;
mod follow;
mod tried;
mod wanted;

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use http::Method;
use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Chances, End, Heard, Outcome, Reason, Switch};
use tower::ServiceExt as _;

use super::Proxy;
use crate::answer::Answer;
use crate::body::{Sent, Upload, UploadError};
use crate::connections::Busy;
use crate::credential::Secret;
use crate::devices::Device;
use crate::error;
use crate::forward;
use crate::gate::Route;
use crate::peek::Found;
use crate::ports::UpstreamError;
use crate::receipt::Receipt;
use crate::scheduler::{Claim, LeaseGuard};
use tried::Tried;

/// How long a request may go from seat to seat before it is answered.
const MOVING_FOR: SignedDuration = SignedDuration::from_secs(30);

/// A request on its way.
pub(super) struct Exchange {
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
    tried: Tried,
    /// Whether the plan of one of them seemed to lack what it asks for.
    lacking: bool,
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
    /// A request of `device` that was let in; it is counted and gets its number. `length` is its body's, if it says so.
    pub(super) fn new(
        proxy: Arc<Proxy>,
        device: Arc<Device>,
        route: Route,
        head: Parts,
        length: Option<u64>,
        upload: Upload,
        busy: Option<Busy>,
    ) -> Self {
        let now = proxy.scheduler.now();
        proxy.devices.count(&device, now.as_second());
        Self {
            moving_since: None,
            held_until: None,
            impatient: false,
            receipt: proxy.books.begin(&device.id, head.uri.path(), now),
            device,
            proxy,
            head,
            route,
            length,
            upload,
            tried: Tried::default(),
            lacking: false,
            again: None,
            reread: Vec::new(),
            retried: false,
            resent: false,
            moved: false,
            kept: None,
            busy,
        }
    }

    /// Goes all the way: the answer, ours or a seat's, with what is written down of it going along.
    pub(super) async fn run(mut self) -> Response {
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
        let agent = wanted::agent(&self.head.headers).is_some();
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
                self.tried.passed_over(lease.account());
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
            let (from, to) = (self.label(&switch.from), self.label(&switch.to));
            tracing::info!(device = %self.device.name, "a conversation goes from `{from}` to `{to}`: {}", switch.why);
            self.receipt.switched(switch, self.proxy.scheduler.now());
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

    /// What people call a seat.
    fn label(&self, seat: &AccountId) -> String {
        self.proxy.roster.label(seat)
    }
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
