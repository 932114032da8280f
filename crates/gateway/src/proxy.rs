//! The routes that devices see, and what all requests share: who is let in goes on as an [`Exchange`].

mod exchange;
mod words;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::Uri;
use http::header::{self, AsHeaderName, HeaderMap, HeaderValue};
use http::request::Parts;
use jiff::tz::TimeZone;

use crate::body::{self, Budget, Upload};
use crate::connections::Connection;
use crate::devices::{Device, Devices};
use crate::error::ProxyError;
use crate::gate::{self, Names, Route};
use crate::ping;
use crate::ports::Network;
use crate::receipt::Books;
use crate::roster::Roster;
use crate::scheduler::Scheduler;
use crate::settings::Settings;

use exchange::Exchange;

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
    let length = number(&head.headers, header::CONTENT_LENGTH);
    let limit = matches!(route, Route::Messages | Route::CountTokens).then_some(body::REPLAY_LIMIT);
    if limit.zip(length).is_some_and(|(limit, length)| length > limit) {
        words::too_long(&device.name, head.uri.path());
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
    let upload = Upload::new(body, length, limit, has_json(&head.headers), Arc::clone(&proxy.budget));
    Exchange::new(proxy, device, route, head, length, upload, busy)
        .run()
        .await
}

/// A refusal before the body was read. What comes of the body is dropped, and the connection closed after it.
fn refuse(proxy: &Proxy, error: &ProxyError, head: &Parts, body: Body, bounds: body::Drain) -> Response {
    let mut response = proxy.answer(error);
    if !http_body::Body::is_end_stream(&body) {
        close(&mut response);
        // A client that waits for leave to send is told no, and sends nothing.
        if !head.headers.contains_key(header::EXPECT) {
            body::drain(body, bounds);
        }
    }
    response
}

/// Has the connection closed after the answer.
fn close(response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// A header that is a number.
fn number(headers: &HeaderMap, name: impl AsHeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
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
