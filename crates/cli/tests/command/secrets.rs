//! Keys and tokens, which nothing shows.

use std::fs;

use rustix::process::Signal;
use sandbox::Answer;
use serde_json::json;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::home::{GLANCE, GUARD, Home, KEY, are_read, keyless, said, seat, shows_no_secret, text, turn, with};

#[tokio::test]
async fn sc_02_neither_keys_nor_tokens_are_shown_anywhere() {
    let home = Home::new().await;
    let broken = home.path(".claude-broken");
    home.log_in(&broken, seat("B"));
    let logging = |command: &mut Command| {
        command.env("CLAUDE_PROXY_ROUTER_LOG", "trace");
    };
    let running = home.start_with(&json!({}), logging).await;
    home.status_where("usage is known", are_read).await;

    // Keys in every place where somebody might put one.
    let in_query = |name: &str| keyless("POST", &format!("/v1/messages?{name}={KEY}"), "{}");
    for name in ["key", "api_key", "x-router-key", "beta=true&token"] {
        let answer = running.send(in_query(name)).await;
        assert_eq!(answer.status(), 401, "{name}");
        shows_no_secret("the answer", &text(answer).await);
        let answer = running.send(with(in_query(name), "x-api-key", KEY)).await;
        shows_no_secret("the answer", &text(answer).await);
    }
    let ping = keyless("GET", &format!("/_router/ping?key={KEY}"), "");
    assert_eq!(text(running.send(ping).await).await, "ok\n");
    for (name, value) in [
        ("x-router-key", "rk-wrong-0001"),
        ("authorization", "Bearer rk-wrong-0001"),
        ("authorization", "Basic cmstdGVzdC0wMDAx"),
        ("x-api-key", "sk-ant-api03-device"),
    ] {
        let answer = running
            .send(with(keyless("POST", "/v1/messages", "{}"), name, value))
            .await;
        assert_eq!(answer.status(), 401, "{name}: {value}");
        shows_no_secret("the answer", &text(answer).await);
    }
    let device = with(turn(false), "authorization", "Bearer sk-ant-oat01-device");
    assert_eq!(running.send(device).await.status(), 200);

    // Anthropic in every mood, for both seats.
    let oauth = "OAuth authentication is currently not supported.";
    for answer in [
        Answer::error(400, "invalid_request_error", "no"),
        Answer::error(401, "authentication_error", oauth),
        Answer::error(500, "api_error", "no"),
        Answer::error(529, "overloaded_error", "no"),
        Answer::reset(),
        Answer::text(502, "text/html", "<html>"),
        Answer::error(401, "authentication_error", "invalid bearer token"),
    ] {
        home.sandbox.script_always("*", "/v1/messages", answer);
        let answer = running.send(turn(false)).await;
        shows_no_secret("the headers", &format!("{:?}", answer.headers()));
        shows_no_secret("the answer", &text(answer).await);
        home.sandbox.clear_scripts();
    }
    // A login that cannot be read, and one without an end.
    fs::write(
        broken.join(".credentials.json"),
        r#"{"claudeAiOauth":{"accessToken":"tok-C","refreshToken":"rt-C""#,
    )
    .unwrap();
    let unread = async {
        while !home.output().contains("cannot be read") && !home.output().contains("last good login") {
            sleep(GLANCE).await;
        }
    };
    timeout(GUARD, unread)
        .await
        .expect("it says that a login cannot be read");

    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["start"],
        &["ping", &running.url(), KEY],
        &["ping", &running.url(), "rk-wrong-0001"],
        &["ping", &format!("http://{}", home.anthropic), KEY],
    ] {
        let mut command = home.command(arguments);
        logging(&mut command);
        let said = said(command).await;
        shows_no_secret(arguments[0], &said.out);
        shows_no_secret(arguments[0], &said.err);
    }
    running.signal(Signal::TERM);
    let mut running = running;
    running.ended().await;
    let said = home.output();
    assert!(said.contains("/v1/messages"), "it does log: {said}");
    shows_no_secret("the log", &said);
}
