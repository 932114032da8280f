//! The owner's devices and how they reach the router: keys, limits, revocation, addresses, the commands for a device.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use support::own::{FIRST_KEY, GLANCE, GUARD, Own};

const LOCAL: std::net::IpAddr = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Sends a turn with that key.
async fn turn(address: SocketAddr, key: &str, stream: bool) -> Response<Incoming> {
    let tcp = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await.unwrap();
    tokio::spawn(connection);
    let body = json!({"model": "claude-opus-5-5", "max_tokens": 9, "stream": stream,
        "messages": [{"role": "user", "content": "hello"}]});
    let request = Request::post("/v1/messages")
        .header("host", "127.0.0.1")
        .header("content-type", "application/json")
        .header("x-router-key", key)
        .body(Full::<Bytes>::from(body.to_string()))
        .unwrap();
    timeout(GUARD, sender.send_request(request))
        .await
        .expect("an answer")
        .unwrap()
}

fn served_by(answer: &Response<Incoming>) -> &str {
    let word = answer.headers()["x-claude-proxy-router"].to_str().unwrap();
    word.split(';').next().unwrap()
}

/// The key that `devices add` printed.
fn key_in(said: &str) -> String {
    let start = said.find("rk-").unwrap_or_else(|| panic!("no key in: {said}"));
    said[start..].split_whitespace().next().unwrap().to_owned()
}

#[tokio::test]
async fn each_device_has_a_key_of_its_own_and_a_revoked_one_is_cut_off_in_the_middle() {
    let own = Own::new().await;
    let (_router, address) = own.start(&json!({}), LOCAL).await;
    let laptop = key_in(&own.done(&["devices", "add", "laptop"]).await);
    let phone = key_in(&own.done(&["devices", "add", "phone"]).await);
    assert_ne!(laptop, phone);
    for key in [&*laptop, &*phone, FIRST_KEY] {
        assert_eq!(turn(address, key, false).await.status(), 200);
    }

    own.sandbox
        .script_always("*", "/v1/messages", sandbox::Answer::sse(stalling()));
    let mut running = turn(address, &laptop, true).await;
    let mut other = turn(address, &phone, true).await;
    assert_eq!(
        (running.status(), other.status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    assert!(
        timeout(GUARD, running.body_mut().frame())
            .await
            .unwrap()
            .unwrap()
            .is_ok()
    );
    assert!(timeout(GUARD, other.body_mut().frame()).await.unwrap().unwrap().is_ok());

    let began = tokio::time::Instant::now();
    let said = own.done(&["devices", "revoke", "laptop"]).await;
    assert!(said.contains("shut out"), "{said}");
    // The pretended Anthropic is silent for ten minutes yet: what ends the answer is the revocation.
    let end = timeout(GUARD, async {
        loop {
            match running.body_mut().frame().await {
                Some(Ok(_)) => {}
                end => return end.map(|frame| frame.map(drop)),
            }
        }
    });
    assert!(
        matches!(end.await.expect("it is cut"), Some(Err(_))),
        "cut, and not ended as if it were whole"
    );
    println!("cut {} ms after the command was begun", began.elapsed().as_millis());
    assert_eq!(
        turn(address, &laptop, false).await.status(),
        401,
        "what follows is refused"
    );
    while let Ok(more) = timeout(GLANCE * 10, other.body_mut().frame()).await {
        assert!(matches!(more, Some(Ok(_))), "the other device's answer goes on");
    }

    let list: Vec<Value> = serde_json::from_str(&own.done(&["devices", "list", "--json"]).await).unwrap();
    let told: Vec<_> = list
        .iter()
        .map(|device| (device["name"].as_str().unwrap(), device["revoked"] == true))
        .collect();
    assert_eq!(told, [("first device", false), ("laptop", true), ("phone", false)]);
    assert_eq!(list[1]["requests"], 2);
    let table = own.done(&["devices", "list"]).await;
    assert!(table.contains("laptop (shut out)"), "{table}");
    for place in [
        own.output(),
        table,
        std::fs::read_to_string(own.path(".config/claude-proxy-router/devices.json")).unwrap(),
    ] {
        assert!(!place.contains(&laptop[3..]) && !place.contains(&phone[3..]), "{place}");
    }
}

#[tokio::test]
async fn a_device_that_is_added_while_only_this_machine_is_listened_on_comes_with_a_warning() {
    let own = Own::new().await;
    own.set(&json!({}));
    let said = own.run(&["devices", "add", "laptop"]).await;
    assert!(said.status.success(), "{said:?}");
    assert!(
        String::from_utf8_lossy(&said.stdout).contains("http://127.0.0.1:18787"),
        "{said:?}"
    );
    assert!(
        String::from_utf8_lossy(&said.stderr).contains("other devices cannot reach 127.0.0.1"),
        "{said:?}"
    );

    own.set(&json!({"host": ["127.0.0.1", "100.64.0.9"]}));
    let said = own.run(&["devices", "add", "phone"]).await;
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
}

/// Some text, then ten minutes of silence.
fn stalling() -> Vec<sandbox::SseStep> {
    use sandbox::SseStep;
    let delta = json!({"type": "content_block_delta", "delta": {"text": "first"}});
    vec![
        SseStep::event(json!({"type": "message_start"})),
        SseStep::event(delta),
        SseStep::Wait(600_000),
        SseStep::event(json!({"type": "message_stop"})),
    ]
}

#[tokio::test]
async fn a_device_that_is_limited_to_a_seat_is_served_by_no_other() {
    let own = Own::new().await;
    let (_router, address) = own.start(&json!({}), LOCAL).await;
    let key = key_in(&own.done(&["devices", "add", "office", "--seat", "spare"]).await);
    let table = own.done(&["devices", "list"]).await;
    let row = table.lines().find(|line| line.contains("office")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("spare"), "by its name: {row}");
    for _ in 0..3 {
        assert_eq!(served_by(&turn(address, &key, false).await), "spare");
    }
    assert_ne!(
        served_by(&turn(address, FIRST_KEY, false).await),
        "spare",
        "the fullest of the three"
    );
    own.sandbox
        .script_always("sk-ant-oat01-sandbox-spare", "/v1/messages", {
            sandbox::Answer::rejected_five_hour(far() - 3_600, far())
        });
    let refused = turn(address, &key, false).await;
    assert_eq!(refused.status(), 429, "and where that one is full, by nobody");
    own.done(&["devices", "limit", "office"]).await;
    assert_eq!(
        turn(address, &key, false).await.status(),
        200,
        "until the limit is lifted"
    );
    let said = own.refused(&["devices", "limit", "office", "--seat", "nobody"]).await;
    assert!(said.contains("`nobody`"), "{said}");
}

/// An hour from now, in seconds since the epoch.
fn far() -> i64 {
    use gateway::ports::{Clock as _, SystemClock};
    SystemClock.now().as_second() + 3_600
}

#[tokio::test]
async fn devices_are_added_and_shut_out_while_no_router_runs() {
    let own = Own::new().await;
    own.set(&json!({"port": 18_999}));
    let said = own.done(&["devices", "add", "laptop", "--mode", "login"]).await;
    let key = key_in(&said);
    assert!(
        said.contains(&format!("export ANTHROPIC_CUSTOM_HEADERS='x-router-key: {key}'")),
        "{said}"
    );
    assert!(
        said.contains("\"claudeCode.environmentVariables\"") && said.contains("sees the device's key"),
        "{said}"
    );
    assert!(own.refused(&["devices", "add", "Laptop"]).await.contains("already"));
    assert!(
        own.refused(&["devices", "add", "x", "--seat", "work"])
            .await
            .contains("not running")
    );
    let said = own.refused(&["connect", "--mode", "login", "--key", FIRST_KEY]).await;
    assert!(said.contains("never the settings' own"), "{said}");

    let (_router, address) = own.start(&json!({}), LOCAL).await;
    assert_eq!(turn(address, &key, false).await.status(), 200);
    let said = own.done(&["connect", "--key", &key, "--form", "shell"]).await;
    assert!(said.contains(&format!("export ANTHROPIC_AUTH_TOKEN={key}")), "{said}");
    assert!(
        said.contains("ENABLE_PROMPT_CACHING_1H=1") && said.contains("ENABLE_TOOL_SEARCH=true"),
        "{said}"
    );
}

#[tokio::test]
async fn exec_goes_through_the_router_or_says_why_it_goes_with_the_devices_own_login() {
    let own = Own::new().await;
    let (router, address) = own.start(&json!({}), LOCAL).await;
    let said = own.done(&["devices", "add", "laptop"]).await;
    let key = key_in(&said);
    let link = said
        .split('\'')
        .find(|part| part.starts_with("claude-proxy-router://"))
        .unwrap();

    let device = Own::empty().await;
    assert!(device.refused(&["exec", "--", "env"]).await.contains("join"));
    device.done(&["join", link]).await;
    let inside = device.done(&["exec", "--", "env"]).await;
    for line in [
        format!("ANTHROPIC_BASE_URL=http://{address}"),
        format!("ANTHROPIC_AUTH_TOKEN={key}"),
        "ENABLE_TOOL_SEARCH=true".into(),
    ] {
        assert!(inside.lines().any(|there| there == line), "{line} is not in {inside}");
    }
    let output = device.run(&["exec", "--", "sh", "-c", "exit 7"]).await;
    assert_eq!(output.status.code(), Some(7), "the child's end is the command's");

    own.done(&["devices", "revoke", "laptop"]).await;
    let refused = device.refused(&["exec", "--", "env"]).await;
    assert!(refused.contains("key:") && !refused.contains(&key), "{refused}");

    own.done(&["stop"]).await;
    drop(router);
    let mut command = device.command(&["exec", "--", "env"]);
    command
        .env("ANTHROPIC_BASE_URL", format!("http://{address}"))
        .env("ANTHROPIC_AUTH_TOKEN", &key);
    let output = timeout(GUARD, command.output()).await.unwrap().unwrap();
    assert!(output.status.success());
    let (inside, told) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(told.contains("does not answer") && told.contains("own login"), "{told}");
    assert!(!inside.contains("ANTHROPIC"), "{inside}");
}

#[tokio::test]
async fn ping_names_the_step_that_failed() {
    let own = Own::empty().await;
    let (_router, address) = own.start(&json!({}), LOCAL).await;
    let silent = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let nobody = silent.local_addr().unwrap();
    drop(silent);
    let other = format!("http://{}", own.anthropic);
    for (url, key, step) in [
        (
            format!("http://no-such-name.invalid:{}", address.port()),
            FIRST_KEY,
            "name:",
        ),
        (format!("http://{nobody}"), FIRST_KEY, "connect:"),
        (other, FIRST_KEY, "service:"),
        (format!("http://{address}"), "rk-not-this-one", "key:"),
        (format!("http://{address}"), FIRST_KEY, "seat:"),
    ] {
        let said = own.refused(&["ping", &url, key]).await;
        assert!(said.contains(step), "{url}: {said}");
        assert!(!said.contains(key), "{said}");
    }
}

#[tokio::test]
async fn sc_02_what_doctor_says_holds_no_secret_and_nobodys_name() {
    let own = Own::new().await;
    own.set(&json!({"port": support::port::free_port()}));
    let nothing = own.done(&["doctor"]).await;
    assert!(nothing.contains("not running"), "{nothing}");
    let mut command = own.command(&["start", "--log", ".local/state/claude-proxy-router/log/router.log"]);
    let _router = command
        .current_dir(own.home())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    timeout(GUARD, async {
        while !own.run(&["status"]).await.status.success() {
            sleep(GLANCE).await;
        }
    })
    .await
    .expect("it starts");
    let key = key_in(&own.done(&["devices", "add", "laptop"]).await);
    let address = own.status().await["listening"][0].as_str().unwrap().parse().unwrap();
    own.sandbox.script_always("*", "/v1/messages", sandbox::Answer::reset());
    assert_eq!(turn(address, &key, false).await.status(), 502);
    let said = own.done(&["doctor"]).await;
    assert!(
        said.contains("WARN") && said.contains(": 502"),
        "the last troubles are in it: {said}"
    );
    if cfg!(target_os = "linux") {
        assert!(
            said.contains("~/.local/state/claude-proxy-router/log/router.log"),
            "{said}"
        );
        assert!(
            !said.contains("app.log"),
            "a log that is not there was not read: {said}"
        );
        let app = own.path(".local/state/claude-proxy-router/log/app.log");
        std::fs::write(app, "2026-11-30T00:00:00Z  WARN the app stumbled\n").unwrap();
        let both = own.done(&["doctor"]).await;
        for words in ["/app.log\n", "WARN the app stumbled", "/router.log\n", ": 502"] {
            assert!(both.contains(words), "{words}: {both}");
        }
    }
    assert!(said.contains("3. ") && said.contains("listening"), "{said}");
    for seat in own.sandbox.seats() {
        for secret in [
            &seat.access_token,
            &seat.refresh_token,
            &seat.email,
            &seat.account_uuid,
            &seat.organization_uuid,
        ] {
            assert!(
                !secret.is_empty() && !said.contains(secret.as_str()),
                "{secret} is in {said}"
            );
        }
    }
    for secret in [FIRST_KEY, &key, "sk-ant-", own.home().to_str().unwrap()] {
        assert!(!said.contains(secret), "{secret} is in {said}");
    }
}

#[tokio::test]
async fn on_01_a_router_that_knows_the_key_and_has_the_port_is_offered() {
    let own = Own::new().await;
    let (_router, address) = own.start(&json!({}), LOCAL).await;
    let other = own.path("other.json");
    std::fs::copy(own.config(), &other).unwrap();
    let said = own.refused(&["--config", other.to_str().unwrap(), "start"]).await;
    assert!(said.contains("answers there already"), "{said}");
    assert!(
        said.contains("claude-proxy") && said.contains("is free"),
        "its holder and another port: {said}"
    );
    assert_eq!(turn(address, FIRST_KEY, false).await.status(), 200, "it goes on");
}

#[tokio::test]
async fn ld_03_ten_thousand_failures_are_a_short_log() {
    let own = Own::new().await;
    let nobody = support::port::free_port();
    let port = support::port::free_port();
    own.set(&json!({"port": port, "upstream": format!("http://127.0.0.1:{nobody}")}));
    let log = own.path("log/router.log");
    let mut command = own.command(&["start", "--log", log.to_str().unwrap()]);
    let _router = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let address = SocketAddr::new(LOCAL, port);
    timeout(GUARD, async {
        while TcpStream::connect(address).await.is_err() {
            sleep(GLANCE).await;
        }
    })
    .await
    .unwrap();
    let client = || async move {
        let tcp = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tcp)).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..1_250 {
            let request = Request::post("/v1/messages")
                .header("host", "127.0.0.1")
                .header("x-router-key", FIRST_KEY)
                .body(Full::<Bytes>::from("{\"model\":\"claude-opus-5-5\"}"))
                .unwrap();
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 502);
            answer.into_body().collect().await.unwrap();
            sender.ready().await.unwrap();
        }
    };
    let clients: Vec<_> = (0..8).map(|_| tokio::spawn(client())).collect();
    for client in clients {
        client.await.unwrap();
    }
    let length = std::fs::metadata(&log).unwrap().len();
    assert!(
        length < 100_000,
        "{length}: {:.2000}",
        std::fs::read_to_string(&log).unwrap()
    );
    assert!(length > 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nw_01_an_address_is_waited_for_and_followed() {
    if !support::own::is_inside(
        "nw_01_an_address_is_waited_for_and_followed",
        "--net",
        "ip link set lo up &&",
    ) {
        return;
    }
    const LATER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
    let ip = |change: &str| {
        let output = std::process::Command::new("ip")
            .args(["address", change, "10.99.0.1/32", "dev", "lo"])
            .output();
        assert!(output.unwrap().status.success(), "{change}");
    };
    let own = Own::new().await;
    let (_router, local) = own
        .start(&json!({"host": ["127.0.0.1", LATER.to_string()]}), LOCAL)
        .await;
    let later = SocketAddr::new(LATER.into(), local.port());
    for _ in 0..2 {
        let waiting = own.status().await;
        assert_eq!(waiting["listening"], json!([local.to_string()]));
        assert_eq!(waiting["waiting"], json!([later.to_string()]));
        assert_eq!(turn(local, FIRST_KEY, false).await.status(), 200, "it serves meanwhile");
        ip("add");
        becomes(&own, |status| status["waiting"] == json!([])).await;
        assert_eq!(turn(later, FIRST_KEY, false).await.status(), 200);
        ip("del");
        becomes(&own, |status| status["waiting"] == json!([later.to_string()])).await;
    }
}

/// Waits until the status is so.
async fn becomes(own: &Own, so: impl Fn(&Value) -> bool) {
    timeout(GUARD, async {
        while !so(&own.status().await) {
            sleep(GLANCE * 5).await;
        }
    })
    .await
    .expect("the router follows");
}

/// A proxy that tunnels, by HTTP or SOCKS 5, and keeps where it was asked to go.
struct Tunnels {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tunnels {
    async fn open() -> Self {
        let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let keep = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let keep = Arc::clone(&keep);
                tokio::spawn(async move {
                    let mut client = BufStream::new(client);
                    let (target, said) = match client.fill_buf().await.unwrap().first() {
                        Some(5) => (by_socks(&mut client).await, String::new()),
                        _ => by_http(&mut client).await,
                    };
                    keep.lock().unwrap().push(target.clone());
                    let mut far = TcpStream::connect(target).await.unwrap();
                    far.write_all(said.as_bytes()).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut far).await;
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// Where a request for a tunnel leads; or a request for a page without TLS, which is passed on.
async fn by_http(client: &mut BufStream<TcpStream>) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(client.read_line(&mut head).await.unwrap() > 0, "{head}");
    }
    let target = head.split(' ').nth(1).unwrap();
    if let Some((_, page)) = target.split_once("://") {
        return (page.split('/').next().unwrap().to_owned(), head);
    }
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    client.flush().await.unwrap();
    (target.to_owned(), String::new())
}

async fn by_socks(client: &mut BufStream<TcpStream>) -> String {
    // Version 5 and the methods that are offered: none is wanted.
    assert_eq!(client.read_u8().await.unwrap(), 5);
    let mut methods = vec![0; client.read_u8().await.unwrap().into()];
    client.read_exact(&mut methods).await.unwrap();
    client.write_all(&[5, 0]).await.unwrap();
    client.flush().await.unwrap();
    // Connect to an IPv4 address, as the pretended Anthropic has one.
    let mut request = [0; 10];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request[..4], [5, 1, 0, 1]);
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    client.flush().await.unwrap();
    let [.., a, b, c, d, high, low] = request;
    format!("{a}.{b}.{c}.{d}:{}", u16::from_be_bytes([high, low]))
}

#[tokio::test]
async fn nw_05_a_proxy_that_its_owner_set_is_gone_through_from_then_on() {
    let own = Own::new().await;
    let proxy = Tunnels::open().await;
    let anthropic = own.anthropic.to_string();
    let (_router, address) = own
        .start(&json!({"proxy": format!("http://{}", proxy.address)}), LOCAL)
        .await;
    assert_eq!(turn(address, FIRST_KEY, false).await.status(), 200);
    becomes(&own, |status| {
        status["seats"]
            .as_array()
            .unwrap()
            .iter()
            .all(|seat| seat["windows"] != json!([]))
    })
    .await;
    let asked = proxy.asked();
    assert!(asked.len() >= 4, "three polls and a turn: {asked:?}");
    assert!(asked.iter().all(|target| *target == anthropic), "{asked:?}");
    let pinged = own.done(&["ping", &format!("http://{address}"), FIRST_KEY]).await;
    assert_eq!(
        proxy.asked(),
        [""; 0],
        "what stays on this machine does not go through it: {pinged}"
    );

    own.done(&["set", "proxy", &format!("socks5://{}", proxy.address)])
        .await;
    assert_eq!(turn(address, FIRST_KEY, false).await.status(), 200);
    assert_eq!(
        proxy.asked(),
        [anthropic],
        "the kept connection, which went another way, is not used"
    );

    own.done(&["set", "proxy", "null"]).await;
    assert_eq!(turn(address, FIRST_KEY, false).await.status(), 200);
    assert_eq!(proxy.asked(), [""; 0]);

    for wrong in [
        "proxy.example:3128",
        "https://proxy.example",
        "http://me:secret@proxy.example",
        "socks4://a",
        "http://a/b",
    ] {
        let said = own.refused(&["set", "proxy", wrong]).await;
        assert!(said.contains("`proxy`") && !said.contains("secret"), "{wrong}: {said}");
    }
    own.done(&["set", "proxy", "http://127.0.0.1:1"]).await;
    let mut answer = turn(address, FIRST_KEY, false).await;
    assert_eq!(answer.status(), 502);
    let said = String::from_utf8(answer.body_mut().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(said.contains("proxy"), "it says what stands between: {said}");
}
