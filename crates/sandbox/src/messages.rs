//! A message of the assistant, whole or as a stream.

use serde_json::{Value, json};

use crate::answer::SseStep;

/// One answer of the pretended model.
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) text: String,
    pub(crate) input_tokens: usize,
}

impl Message {
    /// For scripts, which do not know the request.
    pub(crate) fn sample() -> Self {
        Self {
            id: "msg_sandbox".to_owned(),
            model: "claude-opus-4-5".to_owned(),
            text: "Hello from the sandbox.".to_owned(),
            input_tokens: 10,
        }
    }

    pub(crate) fn whole(&self) -> Value {
        let mut message = self.envelope();
        message["content"] = json!([{"type": "text", "text": self.text}]);
        message["stop_reason"] = json!("end_turn");
        message["usage"]["output_tokens"] = json!(self.output_tokens());
        message
    }

    /// The events, with `pace_ms` of silence before each word.
    pub(crate) fn steps(&self, pace_ms: u64) -> Vec<SseStep> {
        let mut steps = vec![
            SseStep::event(json!({"type": "message_start", "message": self.envelope()})),
            SseStep::event(json!({
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            })),
            SseStep::event(json!({"type": "ping"})),
        ];
        for word in self.text.split_inclusive(' ') {
            if pace_ms > 0 {
                steps.push(SseStep::Wait(pace_ms));
            }
            steps.push(SseStep::event(json!({
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            })));
        }
        steps.extend([
            SseStep::event(json!({"type": "content_block_stop", "index": 0})),
            SseStep::event(json!({
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                "usage": {"output_tokens": self.output_tokens()},
            })),
            SseStep::event(json!({"type": "message_stop"})),
        ]);
        steps
    }

    /// A message of which nothing is written yet.
    fn envelope(&self) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": {
                "input_tokens": self.input_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 1,
            },
        })
    }

    fn output_tokens(&self) -> usize {
        self.text.split_whitespace().count()
    }
}

/// A guess that is good enough to see numbers move: four bytes a token.
pub(crate) fn tokens_in(body: &[u8]) -> usize {
    body.len() / 4 + 1
}

/// `GET /v1/models`.
pub(crate) fn models() -> Value {
    let models = [
        ("claude-opus-4-5", "Claude Opus 4.5"),
        ("claude-sonnet-4-5", "Claude Sonnet 4.5"),
        ("claude-haiku-4-5", "Claude Haiku 4.5"),
        ("claude-fable-5", "Claude Fable 5"),
    ];
    let data: Vec<Value> = models
        .iter()
        .map(|(id, name)| {
            json!({
                "type": "model",
                "id": id,
                "display_name": name,
                "created_at": "2025-09-29T00:00:00Z",
            })
        })
        .collect();
    json!({
        "data": data,
        "has_more": false,
        "first_id": models[0].0,
        "last_id": models[models.len() - 1].0,
    })
}
