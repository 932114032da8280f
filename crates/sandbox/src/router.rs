//! The way of one request: record it, choose the answer, send it.
//!
//! One handler instead of a route per path: scripts and the record come before any path, and
//! `world` decides on values.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::answer::Answer;
use crate::record::Recorded;
use crate::{Sandbox, control, render};

/// Bodies up to this many bytes are taken; Anthropic itself stops earlier.
const MOST_BODY: usize = 64 << 20;

pub(crate) fn router(sandbox: Sandbox) -> Router {
    Router::new().fallback(handle).with_state(sandbox)
}

async fn handle(State(sandbox): State<Sandbox>, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut recorded = Recorded::begin(&head, sandbox.now_ms());
    let is_control = recorded.path.starts_with(control::PREFIX);
    let record_id = (!is_control).then(|| sandbox.world().record.begin(recorded.clone()));

    let body = match Limited::new(body, MOST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let answer = if error.is::<LengthLimitError>() {
                Answer::error(413, "request_too_large", "Request exceeds the maximum size")
            } else {
                // The sender is gone; nobody reads this.
                Answer::reset()
            };
            return send(&sandbox, answer).await;
        }
    };
    recorded.body = body.clone();
    recorded.completed = true;
    if is_control {
        let answer = control::answer(&sandbox, &recorded);
        return send(&sandbox, answer).await;
    }

    let now_ms = sandbox.now_ms();
    let (answer, id) = {
        let mut world = sandbox.world();
        if let Some(record_id) = record_id {
            world.record.complete(record_id, body);
        }
        let id = world.next_request_id();
        (world.answer(&recorded, &id, now_ms), id)
    };
    render::respond(answer, &id, &sandbox.open_streams).await
}

async fn send(sandbox: &Sandbox, answer: Answer) -> Response<Body> {
    render::respond(answer, "req_sandbox", &sandbox.open_streams).await
}
