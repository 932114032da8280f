//! Limits and utilisation (LM).

use sandbox::Answer;

use crate::support::{Bench, T};

const OPUS: &str = "claude-opus-5-5";
const MESSAGES: &str = "/v1/messages";

#[tokio::test(start_paused = true)]
async fn lm_01_a_quota_429_moves_the_same_request_and_rests_the_seat() {
    let bench = Bench::new("AB").await;
    bench
        .sandbox
        .script("tok-A", MESSAGES, Answer::rejected_five_hour(T, T + 3_600));
    let reply = bench.turn(OPUS).await;
    assert_eq!(reply.status, 200);
    assert_eq!(bench.tokens(MESSAGES), ["tok-A", "tok-B"]);
    assert_eq!(bench.turn(OPUS).await.status, 200);
    assert_eq!(
        bench.tokens(MESSAGES),
        ["tok-A", "tok-B", "tok-B"],
        "A is not asked again"
    );
    assert_eq!(
        bench.seat("A").state.words(|at| (at - T).to_string()),
        "5-hour limit reached, back 3600"
    );
}

#[tokio::test(start_paused = true)]
async fn lm_02_a_known_reset_counts_and_not_a_blind_back_off() {
    let bench = Bench::new("AB").await;
    bench.sandbox.script(
        "tok-A",
        MESSAGES,
        Answer::rejected_weekly(T, T + 300_000).without_header("retry-after"),
    );
    bench.turn(OPUS).await;
    bench.sandbox.use_up("A", sandbox::Allowance::Weekly, 1.0);
    bench.pass(7_200).await;
    bench.sandbox.take_requests();
    bench.turn(OPUS).await;
    assert_eq!(bench.tokens(MESSAGES), ["tok-B"]);
}
