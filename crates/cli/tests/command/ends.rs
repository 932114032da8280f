//! How it ends: told to, told twice, and killed.

use std::time::Duration;

use http_body_util::BodyExt as _;
use rustix::process::Signal;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::home::{GLANCE, GUARD, Home, are_read, labels, pausing, seat, send, text, turn};

#[tokio::test]
async fn ld_04_a_running_stream_ends_as_it_should_when_the_router_is_told_to_stop() {
    for by_signal in [true, false] {
        let home = Home::new().await;
        let mut running = home.start().await;
        home.sandbox.script("tok-A", "/v1/messages", pausing(2_000));
        let mut body = running.send(turn(true)).await.into_body();
        let first = body.frame().await.unwrap().unwrap();
        assert!(first.is_data());
        match by_signal {
            true => running.signal(Signal::TERM),
            false => {
                let said = home.run(&["stop"]).await;
                assert_eq!(said.code, Some(0), "{said:?}");
            }
        }
        let rest = timeout(GUARD, body.collect())
            .await
            .expect("an end")
            .unwrap()
            .to_bytes();
        assert!(String::from_utf8_lossy(&rest).contains("message_stop"));
        assert_eq!(running.ended().await, Some(0), "{}", home.output());
        assert!(TcpStream::connect(running.address).await.is_err());

        let again = home.start().await;
        assert_eq!(again.turn().await, 200, "its lock and its socket are free");
    }
}

#[tokio::test]
async fn ld_04_a_stream_that_does_not_end_is_cut_in_the_end() {
    let home = Home::new().await;
    let mut running = home.start().await;
    home.sandbox.script("tok-A", "/v1/messages", pausing(600_000));
    let mut body = running.send(turn(true)).await.into_body();
    body.frame().await.unwrap().unwrap();
    running.signal(Signal::TERM);
    assert_eq!(running.ended().await, Some(0), "{}", home.output());
    let rest = timeout(GUARD, body.collect()).await.expect("an end");
    assert!(rest.is_err(), "a clean end would look like the whole of it");
}

#[tokio::test]
async fn what_was_known_is_known_after_a_kill_under_load() {
    let home = Home::new().await;
    let other = home.path(".claude-b");
    home.log_in(&other, seat("B"));
    let mut running = home.start().await;
    home.status_where("both are read", |status| labels(status).len() == 2 && are_read(status))
        .await;
    home.sandbox.use_up("A", sandbox::Allowance::FiveHour, 1.0);
    let address = running.address;
    let load = tokio::spawn(async move {
        loop {
            let together = (0..8).map(|_| send(address, turn(true)));
            for answer in futures_util::future::join_all(together).await.into_iter().flatten() {
                text(answer).await;
            }
        }
    });
    let asked = |token: &str| {
        let requests = home.sandbox.requests();
        let of_it =
            |request: &&sandbox::Recorded| request.path == "/v1/messages" && request.token.as_deref() == Some(token);
        requests.iter().filter(of_it).count()
    };
    let loaded = async {
        while asked("tok-A") == 0 || asked("tok-B") < 100 {
            sleep(GLANCE).await;
        }
    };
    timeout(GUARD, loaded).await.expect("A is full, and B serves");
    // What is known is written beside the requests, and on a busy machine that takes its turn.
    sleep(Duration::from_secs(2)).await;
    running.signal(Signal::KILL);
    running.ended().await;
    load.abort();
    let before = asked("tok-A");

    let again = home.start().await;
    for _ in 0..30 {
        assert_eq!(again.turn().await, 200);
    }
    assert_eq!(asked("tok-A"), before, "A is not asked again before its reset");
    let status = home.status().await;
    let seats = status["seats"].as_array().unwrap();
    assert!(
        seats.iter().any(|seat| seat["state"]["kind"] == "resting"),
        "{status:#}"
    );
    let said = home.run(&["requests", "--json", "--limit", "10000"]).await;
    let requests: Value = serde_json::from_str(&said.out).unwrap();
    let mut numbers: Vec<_> = requests
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["number"].as_i64())
        .collect();
    let all = numbers.len();
    numbers.dedup();
    assert!(
        all > 30 && numbers.len() == all,
        "{all} requests, {} numbers",
        numbers.len()
    );
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let home = Home::new().await;
    let mut running = home.start().await;
    home.sandbox.script("tok-A", "/v1/messages", pausing(600_000));
    let mut body = running.send(turn(true)).await.into_body();
    body.frame().await.unwrap().unwrap();
    running.signal(Signal::INT);
    let stopping = async {
        while !home.output().contains("stopping") {
            sleep(GLANCE).await;
        }
    };
    timeout(GUARD, stopping).await.expect("it says that it stops");
    running.signal(Signal::INT);
    assert_eq!(running.ended().await, Some(0));
    assert!(!home.output().contains("were cut"), "{}", home.output());
}
