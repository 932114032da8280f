//! Things that live in one account only: files and batches.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::answer::Answer;

/// Ids and who owns them.
#[derive(Default)]
pub(crate) struct Objects {
    owner: BTreeMap<String, String>,
    count: u64,
}

impl Objects {
    pub(crate) fn upload(&mut self, seat: &str, size: usize) -> Answer {
        let id = self.create("file", seat);
        Answer::json(200, file(&id, size))
    }

    pub(crate) fn start_batch(&mut self, seat: &str) -> Answer {
        let id = self.create("msgbatch", seat);
        Answer::json(200, batch(&id))
    }

    /// `GET /v1/files`: the seat's own.
    pub(crate) fn files(&self, seat: &str) -> Answer {
        let mine: Vec<Value> = self
            .owner
            .iter()
            .filter(|(id, owner)| id.starts_with("file_") && *owner == seat)
            .map(|(id, _)| file(id, 0))
            .collect();
        Answer::json(200, json!({"data": mine, "has_more": false}))
    }

    pub(crate) fn file(&self, seat: &str, id: &str) -> Option<Answer> {
        self.is_owner(seat, id).then(|| Answer::json(200, file(id, 0)))
    }

    pub(crate) fn delete_file(&mut self, seat: &str, id: &str) -> Option<Answer> {
        if !self.is_owner(seat, id) {
            return None;
        }
        self.owner.remove(id);
        Some(Answer::json(200, json!({"id": id, "type": "file_deleted"})))
    }

    pub(crate) fn batch(&self, seat: &str, id: &str) -> Option<Answer> {
        self.is_owner(seat, id).then(|| Answer::json(200, batch(id)))
    }

    /// A `file_id` anywhere in `body` that belongs to somebody else.
    pub(crate) fn foreign_file<'a>(&self, seat: &str, body: &'a Value) -> Option<&'a str> {
        match body {
            Value::Object(fields) => fields.iter().find_map(|(key, value)| match value {
                Value::String(id) if key == "file_id" => {
                    let foreign = self.owner.get(id).is_some_and(|owner| owner != seat);
                    foreign.then_some(id.as_str())
                }
                value => self.foreign_file(seat, value),
            }),
            Value::Array(items) => items.iter().find_map(|item| self.foreign_file(seat, item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn create(&mut self, kind: &str, seat: &str) -> String {
        self.count += 1;
        let id = format!("{kind}_{}", self.count);
        self.owner.insert(id.clone(), seat.to_owned());
        id
    }

    fn is_owner(&self, seat: &str, id: &str) -> bool {
        self.owner.get(id).is_some_and(|owner| owner == seat)
    }
}

fn file(id: &str, size: usize) -> Value {
    json!({
        "id": id,
        "type": "file",
        "filename": "upload",
        "mime_type": "application/octet-stream",
        "size_bytes": size,
        "created_at": "2026-01-01T00:00:00Z",
        "downloadable": false,
    })
}

fn batch(id: &str) -> Value {
    json!({
        "id": id,
        "type": "message_batch",
        "processing_status": "in_progress",
        "request_counts": {
            "processing": 1, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0,
        },
        "created_at": "2026-01-01T00:00:00Z",
        "expires_at": "2026-01-02T00:00:00Z",
        "ended_at": null,
        "results_url": null,
    })
}
