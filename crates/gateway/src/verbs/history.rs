//! What was written down of requests, told with the names that seats and devices go by now.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pool::{AccountId, Conversation, WindowKind};
use serde::Serialize;
use serde_json::json;

use super::{Running, blocking, reply};
use crate::control::{CommandError, Reply};
use crate::meter::Tokens;
use crate::record::{Attempt, Cause, End, RequestRecord, SwitchRecord};
use crate::store::{History, StoreError, Wanted};

impl Running {
    /// The requests that are `wanted`.
    pub(super) async fn requests(&self, wanted: Wanted) -> Reply {
        let requests = self.history(move |history| history.requests(&wanted)).await?;
        requests
            .iter()
            .map(|request| reply(self.request_view(request)))
            .collect()
    }

    /// The last switches.
    pub(super) async fn switches(&self, limit: u32) -> Reply {
        let switches = self.history(move |history| history.switches(limit)).await?;
        switches.iter().map(|switch| reply(self.switch_view(switch))).collect()
    }

    /// Why that request, or the last one, went where it went.
    pub(super) async fn why(&self, number: Option<i64>) -> Reply {
        let one = Wanted {
            limit: 1,
            ..Wanted::default()
        };
        let found = self
            .history(move |history| match number {
                Some(number) => history.request(number),
                None => Ok(history.requests(&one)?.pop()),
            })
            .await?;
        let Some(record) = found else {
            let error = CommandError::new("unknownRequest", "there is no such request in the history");
            return Err(error.hint("`requests` lists them; `historyDays` says how long they are kept"));
        };
        let (number, at) = (record.number, record.at);
        let switches = self.history(move |history| history.switches_of(number)).await?;
        let mut view = reply(self.request_view(&record))?;
        view["switches"] = switches.iter().map(|switch| json!(self.switch_view(switch))).collect();
        let model = record.model.clone();
        let request = pool::Request {
            conversation: record.conversation.map(Conversation),
            model,
            ..pool::Request::default()
        };
        view["now"] = self.gateway.standings(&request);
        view["secondsAgo"] = json!((self.gateway.scheduler().now().as_millisecond() - at) / 1_000);
        Ok(view)
    }

    /// How full a seat's windows were in the last `hours`.
    pub(super) async fn usage(&self, seat: AccountId, hours: u32) -> Reply {
        let since = self.ago(hours.into());
        let points = self.history(move |history| history.usage(&seat, since)).await?;
        let point =
            |(ms, kind, used): (i64, WindowKind, u16)| json!({"at": ms / 1_000, "window": kind.word(), "usedBp": used});
        Ok(points.into_iter().map(point).collect())
    }

    /// What requests cost, by day in the router's zone, device and model.
    pub(super) async fn tokens(&self, days: u32) -> Reply {
        let since = self.ago(24 * i64::from(days));
        let zone = self.gateway.proxy.zone.clone();
        let costs = self
            .history(move |history| {
                let mut costs: BTreeMap<(String, String, String), (u64, Tokens)> = BTreeMap::new();
                history.costs(since, |ms, device, model, tokens| {
                    let at = Timestamp::from_millisecond(ms).unwrap_or_default();
                    let day = zone.to_datetime(at).date().to_string();
                    let (requests, sum) = costs.entry((day, device, model)).or_default();
                    *requests += 1;
                    *sum = sum.and(tokens);
                })?;
                Ok(costs)
            })
            .await?;
        let line = |((day, device, model), (requests, tokens)): ((String, String, String), (u64, Tokens))| {
            json!({
                "day": day,
                "device": self.device_name(&device),
                "model": model,
                "requests": requests,
                "input": tokens.input,
                "output": tokens.output,
                "cacheRead": tokens.cache_read,
                "cacheWrite": tokens.cache_write,
            })
        };
        Ok(costs.into_iter().map(line).collect())
    }

    fn request_view(&self, record: &RequestRecord) -> RequestView {
        RequestView {
            number: record.number,
            at: record.at / 1_000,
            device: self.device_name(&record.device),
            path: record.path.clone(),
            model: record.model.clone(),
            seat: record.seat.as_ref().map(|seat| self.gateway.proxy.roster.label(seat)),
            status: record.status,
            reason: record.reason.clone(),
            tokens: record.tokens,
            head_ms: record.head_ms,
            whole_ms: record.whole_ms,
            end: record.end,
            retries: record.attempts.len(),
            attempts: record
                .attempts
                .iter()
                .map(|attempt| self.attempt_view(attempt))
                .collect(),
        }
    }

    fn attempt_view(&self, attempt: &Attempt) -> Attempt {
        Attempt {
            seat: self.gateway.proxy.roster.label(&AccountId::new(&attempt.seat)),
            ..attempt.clone()
        }
    }

    fn switch_view(&self, switch: &SwitchRecord) -> SwitchView {
        let label = |id| self.gateway.proxy.roster.label(id);
        SwitchView {
            at: switch.at / 1_000,
            request: switch.request,
            from: label(&switch.from),
            to: label(&switch.to),
            cause: switch.cause,
            words: switch.words.clone(),
        }
    }

    /// What its owner calls a device; its id where it is gone.
    fn device_name(&self, id: &str) -> String {
        self.gateway
            .devices()
            .named(id)
            .map_or_else(|_| id.to_owned(), |device| device.name)
    }

    /// Reads the history, with all that happened until now in it.
    async fn history<T: Send + 'static>(
        &self,
        read: impl FnOnce(History) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, CommandError> {
        let recorder = Arc::clone(&self.gateway.recorder);
        let read = move || {
            recorder
                .history_now()
                .and_then(read)
                .map_err(|error| CommandError::new("noHistory", format!("the history cannot be read: {error}")))
        };
        blocking(read).await
    }

    fn ago(&self, hours: i64) -> Timestamp {
        let now = self.gateway.scheduler().now();
        now.saturating_sub(SignedDuration::from_hours(hours))
            .unwrap_or_default()
    }
}

/// A request as its owner sees it. The time is seconds since the epoch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestView {
    number: i64,
    at: i64,
    device: String,
    path: String,
    model: Option<String>,
    seat: Option<String>,
    status: u16,
    reason: String,
    tokens: Option<Tokens>,
    head_ms: u64,
    whole_ms: u64,
    end: End,
    retries: usize,
    attempts: Vec<Attempt>,
}

/// A switch as its owner sees it. The time is seconds since the epoch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SwitchView {
    at: i64,
    request: i64,
    from: String,
    to: String,
    cause: Cause,
    words: String,
}
