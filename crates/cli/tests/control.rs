//! The owner's commands to a running router, as a terminal has them.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod support;

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use support::Router;

fn state<'a>(status: &'a Value, label: &str) -> &'a str {
    let seats = status["seats"].as_array().unwrap();
    let seat = seats.iter().find(|seat| seat["label"] == label);
    seat.unwrap_or_else(|| panic!("no `{label}` in {status}"))["state"]["kind"]
        .as_str()
        .unwrap()
}

/// Runs a command that is done, and gives what it printed.
async fn done(router: &Router, arguments: &[&str]) -> String {
    let output = router.command(arguments).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that is refused, and gives why.
async fn refused(router: &Router, arguments: &[&str]) -> String {
    let output = router.command(arguments).await;
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn settings(router: &Router) -> Value {
    serde_json::from_slice(&fs::read(&router.settings).unwrap()).unwrap()
}

#[tokio::test]
async fn a_seat_and_the_router_are_paused_and_resumed() {
    let router = Router::start().await;
    let before = settings(&router);
    done(&router, &["pause", "work"]).await;
    let status = router.status().await;
    assert_eq!((state(&status, "work"), state(&status, "spare")), ("paused", "ready"));
    assert_eq!(settings(&router)["accounts"][0]["enabled"], false);
    done(&router, &["resume", "work"]).await;
    assert_eq!(state(&router.status().await, "work"), "ready");

    done(&router, &["drain", "work"]).await;
    done(&router, &["pause"]).await;
    let told = done(&router, &["status"]).await;
    assert!(
        told.contains("paused: nothing is served") && told.contains("takes no new conversation"),
        "{told}"
    );
    done(&router, &["resume", "work"]).await;
    let status = router.status().await;
    for label in ["personal", "spare", "work"] {
        assert_eq!(state(&status, label), "paused");
    }
    done(&router, &["resume"]).await;
    assert_eq!(state(&router.status().await, "spare"), "ready");

    // What was not spoken of stands as it stood.
    for (key, value) in before.as_object().unwrap() {
        assert_eq!(&settings(&router)[key], value, "{key}");
    }
}

#[tokio::test]
async fn a_seat_is_renamed_and_found_by_its_new_name() {
    let router = Router::start().await;
    done(&router, &["rename", "work", "Day job"]).await;
    done(&router, &["limit", "Day job", "80"]).await;
    let entry = &settings(&router)["accounts"][0];
    assert_eq!((&entry["name"], &entry["limitPct"]), (&json!("Day job"), &json!(80)));
    assert_eq!(settings(&router)["accounts"].as_array().unwrap().len(), 1);
    let said = refused(&router, &["pause", "work-and-more"]).await;
    assert!(said.contains("`work-and-more`"), "{said}");
    done(&router, &["rename", "Day job"]).await;
    assert_eq!(state(&router.status().await, "work"), "ready");
}

#[tokio::test]
async fn settings_are_shown_and_set_and_a_wrong_value_changes_nothing() {
    let router = Router::start().await;
    done(&router, &["set", "limitPct", "90"]).await;
    done(&router, &["set", "language", "ko"]).await;
    done(&router, &["set", "app.shortcut", "Cmd+K"]).await;
    let shown: Value = serde_json::from_str(&done(&router, &["settings", "--json"]).await).unwrap();
    assert_eq!((&shown["limitPct"], &shown["language"]), (&json!(90), &json!("ko")));
    assert_eq!(shown["app"], json!({"shortcut": "Cmd+K"}));
    assert_eq!(shown["usagePollS"], 300);
    assert!(!shown.to_string().contains(support::KEY), "{shown}");
    assert!(!done(&router, &["settings"]).await.contains(support::KEY));

    let before = settings(&router);
    for (key, value) in [
        ("limitPct", "101"),
        ("limitPct", "much"),
        ("prot", "1"),
        ("routerKey", "rk-other-0001"),
    ] {
        let said = refused(&router, &["set", key, value]).await;
        assert!(said.contains(&format!("`{key}`")), "{said}");
        assert!(!said.contains(support::KEY), "{said}");
    }
    assert_eq!(settings(&router), before);
    done(&router, &["set", "limitPct"]).await;
    assert_eq!(settings(&router).get("limitPct"), None);
}

#[tokio::test]
async fn an_address_that_cannot_be_listened_on_is_refused_and_the_open_one_stays() {
    let router = Router::start().await;
    let (before, own) = (settings(&router), router.address.to_string());
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().port().to_string();
    let said = refused(&router, &["set", "port", &taken]).await;
    for words in [format!("port {taken} is taken by"), std::process::id().to_string()] {
        assert!(said.contains(&words), "{said}");
    }
    assert_eq!(settings(&router), before);
    assert_eq!(router.status().await["listening"], json!([own]));
    drop(other);
    done(&router, &["set", "port", &taken]).await;
    becomes(&router, &json!([format!("127.0.0.1:{taken}")])).await;
}

#[tokio::test]
async fn an_address_that_is_not_there_yet_is_taken_and_told_to_be_waited_for() {
    let router = Router::start().await;
    // One of those kept for documentation, which no machine has.
    let output = router.command(&["set", "host", "192.0.2.1"]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("192.0.2.1"), "{said}");
    becomes(&router, &json!([])).await;
    let table = done(&router, &["status"]).await;
    assert!(
        table.contains("problem: 192.0.2.1 is not an address of this machine now"),
        "{table}"
    );
    done(&router, &["set", "host", "127.0.0.1"]).await;
    becomes(&router, &json!([router.address.to_string()])).await;
}

/// Waits until the router listens there and nowhere else.
async fn becomes(router: &Router, listening: &Value) {
    let follows = async {
        while router.status().await["listening"] != *listening {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), follows)
        .await
        .expect("the router follows");
}

#[tokio::test]
async fn requests_and_switches_are_listed_and_explained() {
    let router = Router::start().await;
    let (status, headers) = router.turn("hello").await;
    assert_eq!(status, 200);
    let number = headers["x-claude-proxy-router-request"].to_str().unwrap().to_owned();
    // Its seat is full by the next turn of the same conversation.
    let seat = router.seats_asked().await[0].clone();
    router.use_up(&seat, 600).await;
    assert_eq!(router.turn("hello").await.0, 200);

    let requests: Value = serde_json::from_str(&done(&router, &["requests", "--json"]).await).unwrap();
    assert_eq!(requests.as_array().unwrap().len(), 2);
    assert_eq!(requests[1]["number"].to_string(), number);
    assert_eq!(requests[1]["seat"], seat.as_str());
    assert!(
        requests[1]["tokens"]["output"]
            .as_u64()
            .is_some_and(|tokens| tokens > 0),
        "{requests}"
    );
    assert_eq!(requests[0]["retries"], 1);
    let table = done(&router, &["requests", "--seat", &seat]).await;
    assert!(table.contains("first device") && table.lines().count() == 2, "{table}");
    assert_eq!(done(&router, &["requests", "--failed"]).await.lines().count(), 1);

    let switches: Value = serde_json::from_str(&done(&router, &["switches", "--json"]).await).unwrap();
    assert_eq!(
        (&switches[0]["from"], &switches[0]["cause"]),
        (&json!(seat), &json!("limit")),
        "{switches}"
    );
    assert!(done(&router, &["switches"]).await.contains(&seat));

    let why = done(&router, &["why"]).await;
    assert!(why.contains("429") || why.contains("5-hour limit reached"), "{why}");
    assert!(why.contains(&format!("its conversation went from `{seat}`")), "{why}");
    let first = done(&router, &["why", &number]).await;
    assert!(
        first.starts_with(&format!("Request {number} of first device")),
        "{first}"
    );
    let said = refused(&router, &["why", "999999"]).await;
    assert!(said.contains("no such request"), "{said}");
}

#[tokio::test]
async fn what_the_owner_wants_of_a_seat_is_written_where_a_person_would_write_it() {
    let router = Router::start().await;
    done(&router, &["order", "work", "personal"]).await;
    done(&router, &["order", "spare", "work"]).await;
    done(&router, &["reserve", "work", "20"]).await;
    done(&router, &["extra-usage", "work", "never"]).await;
    done(&router, &["drain", "work"]).await;
    let entries = settings(&router)["accounts"].clone();
    let orders: Vec<_> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["order"].clone())
        .collect();
    assert_eq!(orders, [json!(2), json!(null), json!(1)]);
    let work = &entries[0];
    assert_eq!(
        (&work["reservePct"], &work["extraUsage"], &work["draining"]),
        (&json!(20), &json!("never"), &json!(true))
    );
    done(&router, &["resume", "work"]).await;
    done(&router, &["reserve", "work"]).await;
    let work = settings(&router)["accounts"][0].clone();
    assert_eq!((work.get("draining"), work.get("reservePct")), (None, None));
    done(&router, &["try-now", "work"]).await;
    let said = refused(&router, &["reserve", "work", "120"]).await;
    assert!(said.contains("reservePct"), "{said}");
}

#[tokio::test]
async fn settings_that_another_hand_changes_count_at_once_and_damaged_ones_are_told() {
    let router = Router::start().await;
    let mut file = settings(&router);
    file["paused"] = true.into();
    fs::write(&router.settings, file.to_string()).unwrap();
    done(&router, &["rescan"]).await;
    let (status, headers) = router.turn("hello").await;
    assert_eq!(
        (status, &headers["x-claude-proxy-router-error"]),
        (503, &"paused".parse().unwrap())
    );
    fs::write(&router.settings, "{\"paused\":").unwrap();
    let said = refused(&router, &["rescan"]).await;
    assert!(said.contains("settings from before stay in force"), "{said}");
    assert!(router.output().contains("settings from before stay in force"));
    for verb in ["status", "doctor"] {
        let told = done(&router, &[verb]).await;
        let is_told = |line: &str| line.starts_with(['!', 'p']) && line.contains("is not complete JSON");
        assert!(told.lines().any(is_told), "{verb}: {told}");
    }
    assert_eq!(router.turn("hello").await.0, 503);
}

#[tokio::test]
async fn a_key_that_is_made_while_the_sandbox_runs_opens_it() {
    let router = Router::start().await;
    let said = done(&router, &["devices", "add", "laptop"]).await;
    let key = said.split("shown this once: ").nth(1).unwrap().lines().next().unwrap();
    done(&router, &["ping", &format!("http://{}", router.address), key]).await;
}
