//! All seats exhausted (AX).

use sandbox::Answer;

use crate::support::{Bench, T};

const OPUS: &str = "claude-opus-5-5";
const MESSAGES: &str = "/v1/messages";

#[tokio::test(start_paused = true)]
async fn ax_01_the_answer_has_the_native_shape_and_asks_nobody() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    bench
        .sandbox
        .script("tok-B", MESSAGES, Answer::rejected_five_hour(T, T + 1_800));
    bench.turn(OPUS).await;
    bench.sandbox.take_requests();
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 429);
    let reset = (T + 1_800).to_string();
    let wait = (T + 1_800 - bench.now()).to_string();
    for (name, want) in [
        ("content-type", "application/json"),
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-reset", &reset),
        ("retry-after", &wait),
        ("x-should-retry", "false"),
        ("x-claude-proxy-router-error", "all_full"),
    ] {
        assert_eq!(reply.header(name), Some(want), "{name}");
    }
    assert_eq!(reply.json()["type"], "error");
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    assert!(
        reply.message().contains("5-hour limit at 2:44pm (UTC), in 30 min"),
        "{}",
        reply.message()
    );
    assert_eq!(bench.sandbox.requests().len(), 0);
}
