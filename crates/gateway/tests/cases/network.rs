//! Network change (NW).

use sandbox::Answer;

use crate::support::{Bench, MESSAGES, OPUS};

#[tokio::test(start_paused = true)]
async fn nw_03_an_upstream_that_breaks_excludes_nobody() {
    let bench = Bench::new("AB").await;
    bench.sandbox.script("tok-A", MESSAGES, Answer::reset());
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 502);
    assert_eq!(reply.header("x-claude-proxy-router-error"), Some("broken"));
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-A"]);
}
