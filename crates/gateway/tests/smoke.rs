//! The gateway on real sockets, spoken to byte by byte: framing, what comes before a key is known, who hangs up first.
//!
//! Time is real here, so no test asserts on it; the guards only end what hangs.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gateway::config::Config;
use gateway::listen::Doors;
use gateway::paths::Paths;
use gateway::ports::{self, Clock as _, SystemClock, UpstreamProxy};
use gateway::snapshot::SeatState;
use gateway::{Gateway, Ports};
use jiff::tz::TimeZone;
use sandbox::{Answer, Sandbox, Seat, SseStep};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use support::{KEY, stream_body, turn_body};

/// Ends what hangs; twenty times what anything here should take.
const GUARD: Duration = Duration::from_secs(40);
/// Between two looks at something that will be so soon.
const GLANCE: Duration = Duration::from_millis(10);
const MODEL: &str = "claude-opus-4-5";

/// A gateway on a port of loopback. It has no driver, so what arrives upstream is what clients sent.
struct Router {
    address: SocketAddr,
    gateway: Gateway,
    serving: JoinHandle<()>,
    stop: Arc<Notify>,
    _home: tempfile::TempDir,
}

impl Router {
    /// One that forwards to `upstream` for the seats of these names, whose tokens are `tok-NAME`.
    async fn new(upstream: SocketAddr, seats: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut dirs: Vec<PathBuf> = Vec::new();
        for name in seats {
            let dir = home.path().join(name);
            support::write_login(&dir, &seat(name));
            dirs.push(dir);
        }
        let settings = json!({
            "routerKey": KEY,
            "routing": "headroom",
            "includeDefaultAccount": false,
            "upstream": format!("http://{upstream}"),
            "configDirs": dirs,
        });
        let config = Config::parse(settings.to_string().as_bytes()).unwrap().unwrap();
        let ports = Ports {
            clock: Arc::new(SystemClock),
            network: Arc::new(ports::Network::new(|| {
                ports::pooled(ports::no_tls(), &UpstreamProxy::default())
            })),
            store: Arc::new(gateway::credential::Files),
            calls: ports::own_calls(ports::no_tls(), &UpstreamProxy::default()).unwrap(),
            upstream_proxy: UpstreamProxy::default(),
            zone: TimeZone::UTC,
            seed: 7,
        };
        let gateway = Gateway::new(config, &Paths::new(home.path(), None, |_| None), ports);
        gateway.scan().await;
        let (doors, opened) = Doors::open(vec![(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let address = opened[0].local_addr().unwrap();
        let stop = Arc::new(Notify::new());
        let serving = tokio::spawn(gateway::serve::serve(
            doors,
            opened,
            gateway.router(),
            vec![tokio::runtime::Handle::current()],
            gateway.connections().clone(),
            Arc::clone(&stop),
        ));
        Self {
            address,
            gateway,
            serving,
            stop,
            _home: home,
        }
    }

    async fn connect(&self) -> Wire {
        Wire::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Says `bytes` on a connection of their own, and reads the answer.
    async fn ask(&self, bytes: &str) -> Message {
        let mut client = self.connect().await;
        client.say(bytes).await;
        client.answer().await
    }

    fn in_flight(&self) -> u32 {
        self.gateway
            .snapshot(&[], false)
            .seats
            .iter()
            .map(|seat| seat.in_flight)
            .sum()
    }

    fn state(&self, label: &str) -> SeatState {
        let seats = self.gateway.snapshot(&[], false).seats;
        let seat = seats.into_iter().find(|seat| seat.label == label);
        seat.expect("a seat of that label").state
    }
}

fn seat(name: &str) -> Seat {
    Seat::new(name)
        .tokens(&format!("tok-{name}"), &format!("rt-{name}"))
        .organization("o", name)
}

/// The sandbox on a port of loopback, with seat A, and a router before it.
async fn over_sandbox() -> (Sandbox, Router) {
    let sandbox = Sandbox::new(Arc::new(|| SystemClock.now().as_millisecond()));
    sandbox.add_seat(seat("A"));
    let address = sandbox::serve_here(sandbox.clone()).await.unwrap();
    (sandbox, Router::new(address, &["A"]).await)
}

/// An upstream that is only bytes. It keeps what it receives and says the same to every request; it closes if it says
/// that it does.
struct Bytewise {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Message>>>,
    /// Told when a connection has ended that waited for an answer in vain.
    given_up: Arc<Notify>,
}

impl Bytewise {
    /// One that says `answer`, or never anything.
    async fn new(answer: Option<&'static str>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Message>>>::default();
        let given_up = Arc::new(Notify::new());
        let (kept, told) = (Arc::clone(&seen), Arc::clone(&given_up));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, told) = (Arc::clone(&kept), Arc::clone(&told));
                tokio::spawn(async move {
                    let mut wire = Wire::new(stream);
                    while let Some(request) = wire.message(Kind::Request).await {
                        kept.lock().unwrap().push(request);
                        match answer {
                            Some(answer) => {
                                wire.say(answer).await;
                                if answer.contains("connection: close") {
                                    return;
                                }
                            }
                            None => {
                                wire.ended().await;
                                told.notify_one();
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            seen,
            given_up,
        }
    }

    /// The only request that arrived.
    fn only(&self) -> Message {
        let mut seen = std::mem::take(&mut *self.seen.lock().unwrap());
        assert_eq!(seen.len(), 1, "{seen:#?}");
        seen.remove(0)
    }
}

/// A message as it was on the wire.
#[derive(Debug)]
struct Message {
    /// The start line and the header lines.
    head: String,
    body: Vec<u8>,
    end: End,
}

/// How a message ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Where it said it would: by its length, or with its last chunk.
    AsTold,
    /// With the connection, as it should where nothing was told.
    Closed,
    /// Before its end.
    CutOff,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Answer,
    AnswerToHead,
}

impl Message {
    fn start_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    fn status(&self) -> u16 {
        let code = self.start_line().split(' ').nth(1);
        code.and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    /// The values of that header, in order.
    fn values(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values(name).first().copied()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One end of a connection.
struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            unread: Vec::new(),
        }
    }

    async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let written = timeout(GUARD, self.stream.write_all(bytes.as_ref())).await;
        written.expect("it is taken in").unwrap();
    }

    /// Takes in some more; `false` at the connection's end, however it came.
    async fn more(&mut self) -> bool {
        let read = timeout(GUARD, self.stream.read_buf(&mut self.unread)).await;
        matches!(read.expect("something comes"), Ok(1..))
    }

    /// All up to and with `end`; `None` if the connection ends before.
    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.unread.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                let rest = self.unread.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.unread, rest));
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The next so many bytes; fewer if the connection ends before.
    async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length && self.more().await {}
        let rest = self.unread.split_off(length.min(self.unread.len()));
        std::mem::replace(&mut self.unread, rest)
    }

    /// The next head.
    async fn head(&mut self) -> Option<String> {
        let head = self.until(b"\r\n\r\n").await?;
        Some(String::from_utf8(head).unwrap())
    }

    /// The next message; `None` if the connection ends first.
    async fn message(&mut self, kind: Kind) -> Option<Message> {
        let mut message = Message {
            head: self.head().await?,
            body: Vec::new(),
            end: End::AsTold,
        };
        let length = message.value("content-length").map(|length| length.parse().unwrap());
        let chunked = message.value("transfer-encoding").is_some();
        if kind == Kind::AnswerToHead || (kind == Kind::Request && length.is_none() && !chunked) {
            return Some(message);
        }
        if chunked {
            loop {
                let Some(line) = self.until(b"\r\n").await else {
                    message.end = End::CutOff;
                    break;
                };
                let size = String::from_utf8_lossy(&line).trim().to_owned();
                let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
                let chunk = self.exactly(size + 2).await;
                let whole = chunk.len() == size + 2;
                message.body.extend_from_slice(&chunk[..size.min(chunk.len())]);
                if !whole {
                    message.end = End::CutOff;
                }
                if !whole || size == 0 {
                    break;
                }
            }
        } else if let Some(length) = length {
            message.body = self.exactly(length).await;
            if message.body.len() < length {
                message.end = End::CutOff;
            }
        } else {
            while self.more().await {}
            message.body = std::mem::take(&mut self.unread);
            message.end = End::Closed;
        }
        Some(message)
    }

    async fn answer(&mut self) -> Message {
        self.message(Kind::Answer).await.expect("an answer")
    }

    /// Waits for the other end to close.
    async fn ended(&mut self) {
        while self.more().await {}
    }
}

/// A request line with the key, and `lines` after it.
fn head(start: &str, lines: &str) -> String {
    format!("{start}\r\nhost: 127.0.0.1\r\nx-router-key: {KEY}\r\n{lines}\r\n")
}

/// A turn as Claude Code sends it.
fn turn(body: &str) -> String {
    let lines = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    head("POST /v1/messages?beta=true HTTP/1.1", &lines) + body
}

/// Waits until `so` is so.
async fn becomes(what: &str, so: impl Fn() -> bool) {
    let waiting = async {
        while !so() {
            sleep(GLANCE).await;
        }
    };
    assert!(timeout(GUARD, waiting).await.is_ok(), "never: {what}");
}

#[tokio::test]
async fn hd_06_what_belongs_to_one_connection_stays_on_it() {
    let upstream = Bytewise::new(Some(
        "HTTP/1.1 200 OK\r\nconnection: keep-alive, x-away\r\nx-away: 1\r\nkeep-alive: timeout=5\r\n\
         proxy-authenticate: Basic\r\nalt-svc: h3=\":443\"\r\nanthropic-foo: bar\r\n\
         transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ))
    .await;
    let router = Router::new(upstream.address, &["A"]).await;
    let body = turn_body(MODEL, "hello");
    let lines = "connection: keep-alive, x-hop\r\nx-hop: 1\r\nte: trailers\r\nkeep-alive: timeout=5\r\n\
         proxy-authorization: Basic x\r\ntransfer-encoding: chunked\r\nupgrade: h2c\r\nx-app: cli\r\n";
    let (first, second) = body.split_at(10);
    let chunks = format!(
        "{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    let answer = router.ask(&(head("POST /v1/messages HTTP/1.1", lines) + &chunks)).await;

    let sent = upstream.only();
    for name in [
        "connection",
        "x-hop",
        "te",
        "keep-alive",
        "proxy-authorization",
        "upgrade",
        "expect",
        "x-router-key",
    ] {
        assert_eq!(sent.value(name), None, "{}", sent.head);
    }
    assert_eq!(sent.value("x-app"), Some("cli"));
    assert_eq!(sent.values("host"), [upstream.address.to_string()]);
    assert_eq!(sent.values("authorization"), ["Bearer tok-A"]);
    assert_eq!((sent.text(), sent.end), (body, End::AsTold));

    assert_eq!((answer.status(), answer.text()), (200, "hello".into()));
    for name in [
        "connection",
        "x-away",
        "keep-alive",
        "proxy-authenticate",
        "alt-svc",
        "content-length",
    ] {
        assert_eq!(answer.value(name), None, "{}", answer.head);
    }
    assert_eq!(answer.values("transfer-encoding"), ["chunked"]);
    assert_eq!(answer.value("anthropic-foo"), Some("bar"));
    assert_eq!(answer.end, End::AsTold);
}

#[tokio::test]
async fn hd_07_the_start_line_arrives_as_it_was_sent() {
    let upstream = Bytewise::new(Some("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let router = Router::new(upstream.address, &["A"]).await;
    let body = turn_body(MODEL, "hello");
    for start in [
        "POST /v1/messages?beta=true&x=a%2Fb%20c&x= HTTP/1.1",
        "POST /v1/messages? HTTP/1.1",
        "POST /v1/Files/a%20b?Q HTTP/1.1",
        "DELETE /v1/messages?x=../y//z HTTP/1.1",
    ] {
        let lines = format!(
            "content-length: {}\r\nUser-Agent: claude-cli/9.9 (external, cli)\r\nX-Stainless-OS: Linux\r\n",
            body.len()
        );
        let answer = router.ask(&(head(start, &lines) + &body)).await;
        assert_eq!(answer.status(), 200, "{start}");
        let sent = upstream.only();
        assert_eq!(sent.start_line(), start);
        assert_eq!(sent.values("user-agent"), ["claude-cli/9.9 (external, cli)"]);
        assert_eq!(sent.values("x-stainless-os"), ["Linux"]);
        assert_eq!(sent.values("content-length"), [body.len().to_string()]);
        assert_eq!(sent.text(), body);
    }
}

#[tokio::test]
async fn hd_10_head_has_no_body_and_its_connection_goes_on() {
    let (sandbox, router) = over_sandbox().await;
    let mut client = router.connect().await;
    for path in ["/", "/api/hello"] {
        client
            .say(format!("HEAD {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"))
            .await;
        let answer = client.message(Kind::AnswerToHead).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        assert!(client.unread.is_empty());
    }
    client.say(head("HEAD /v1/models HTTP/1.1", "")).await;
    let answer = client.message(Kind::AnswerToHead).await.unwrap();
    assert_eq!(
        (answer.status(), client.unread.len()),
        (404, 0),
        "what the sandbox says"
    );
    client.say(turn(&turn_body(MODEL, "hello"))).await;
    assert_eq!(client.answer().await.status(), 200);
    let methods: Vec<_> = sandbox.requests().into_iter().map(|request| request.method).collect();
    assert_eq!(methods, ["HEAD", "POST"]);
}

#[tokio::test]
async fn hd_10_options_is_refused_and_opens_nothing_to_web_pages() {
    let (sandbox, router) = over_sandbox().await;
    for (lines, status) in [("", 405), ("origin: https://evil.test\r\n", 403)] {
        let answer = router.ask(&head("OPTIONS /v1/messages HTTP/1.1", lines)).await;
        assert_eq!(answer.status(), status, "{}", answer.head);
        assert!(
            !answer.head.to_ascii_lowercase().contains("access-control-"),
            "{}",
            answer.head
        );
    }
    assert!(sandbox.requests().is_empty());
}

#[tokio::test]
async fn hd_10_a_client_that_waits_for_leave_gets_it_only_with_the_right_key() {
    let (sandbox, router) = over_sandbox().await;
    let body = turn_body(MODEL, &"x".repeat(2 << 20));
    let mut client = router.connect().await;
    let lines = format!("expect: 100-continue\r\ncontent-length: {}\r\n", body.len());
    client.say(head("POST /v1/messages HTTP/1.1", &lines)).await;
    assert_eq!(client.head().await.unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.say(&body).await;
    assert_eq!(client.answer().await.status(), 200);
    let requests = sandbox.take_requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].body == body.as_bytes());
    assert_eq!(requests[0].header("expect"), None);

    let mut client = router.connect().await;
    let lines = format!(
        "host: 127.0.0.1\r\nx-router-key: wrong\r\nexpect: 100-continue\r\ncontent-length: {}\r\n",
        body.len()
    );
    client.say(format!("POST /v1/messages HTTP/1.1\r\n{lines}\r\n")).await;
    assert_eq!(client.answer().await.status(), 401);
    client.ended().await;
    assert!(sandbox.requests().is_empty());
}

#[tokio::test]
async fn hd_10_an_old_client_gets_no_chunks_and_the_connection_closes() {
    let (_sandbox, router) = over_sandbox().await;
    for (body, end) in [
        (turn_body(MODEL, "hello"), End::AsTold),
        (stream_body(MODEL, "hello"), End::Closed),
    ] {
        let mut client = router.connect().await;
        let lines = format!("content-length: {}\r\n", body.len());
        client.say(head("POST /v1/messages HTTP/1.0", &lines) + &body).await;
        let answer = client.answer().await;
        assert!(answer.start_line().starts_with("HTTP/1.0 200"), "{}", answer.head);
        assert_eq!(answer.value("transfer-encoding"), None);
        assert!(answer.text().contains("seat"), "{}", answer.text());
        assert_eq!(answer.end, end, "{}", answer.head);
        client.ended().await;
    }
}

#[tokio::test]
async fn sc_06_a_message_that_ends_in_two_places_is_one_request_at_most() {
    let (sandbox, router) = over_sandbox().await;
    let body = turn_body(MODEL, "hello");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (length, other) = (body.len(), body.len() + 7);
    let second = head("GET /v1/models HTTP/1.1", "");
    for (lines, body) in [
        (
            "content-length: 5\r\ntransfer-encoding: chunked\r\n".to_owned(),
            &chunked,
        ),
        (
            "transfer-encoding: chunked\r\ncontent-length: 5\r\n".to_owned(),
            &chunked,
        ),
        (
            format!("content-length: {}\r\ntransfer-encoding: chunked\r\n", chunked.len()),
            &chunked,
        ),
        (
            format!("content-length: {length}\r\ncontent-length: {other}\r\n"),
            &body,
        ),
        (
            format!("content-length: {other}\r\ncontent-length: {length}\r\n"),
            &body,
        ),
        (format!("content-length: {length}, {other}\r\n"), &body),
        (format!("content-length: +{length}\r\n"), &body),
        ("transfer-encoding: chunked, identity\r\n".to_owned(), &chunked),
        ("transfer-encoding: xchunked\r\n".to_owned(), &chunked),
        ("transfer-encoding : chunked\r\n".to_owned(), &chunked),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n".to_owned(),
            &chunked,
        ),
    ] {
        let mut client = router.connect().await;
        client
            .say(head("POST /v1/messages HTTP/1.1", &lines) + body + &second)
            .await;
        let answer = client.answer().await;
        assert!(matches!(answer.status(), 200 | 400), "{lines}: {}", answer.head);
        client.ended().await;
        assert!(client.unread.is_empty(), "{lines}: the second was answered");
        let requests = sandbox.take_requests();
        assert!(requests.len() <= usize::from(answer.status() == 200), "{lines}");
        for request in requests {
            assert_eq!(
                (request.path.as_str(), request.body),
                ("/v1/messages", body_of(&chunked))
            );
        }
    }

    // Not ambiguous, only odd: white space around a value is not part of it.
    let mut client = router.connect().await;
    let lines = "transfer-encoding: chunked\t\r\n";
    client
        .say(head("POST /v1/messages HTTP/1.1", lines) + &chunked + &second)
        .await;
    let status = client.answer().await.status();
    let requests = sandbox.take_requests();
    let messages = requests.iter().filter(|request| request.path == "/v1/messages");
    assert_eq!(messages.count(), usize::from(status == 200));
}

/// What is in the only chunk.
fn body_of(chunked: &str) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(chunked.split("\r\n").nth(1).unwrap().as_bytes())
}

#[tokio::test]
async fn sc_07_no_target_leads_anywhere_else() {
    let (sandbox, router) = over_sandbox().await;
    for start in [
        "GET http://evil.test/v1/messages HTTP/1.1",
        "POST http://127.0.0.1/v1/messages HTTP/1.1",
        "CONNECT evil.test:443 HTTP/1.1",
        "CONNECT /v1/messages HTTP/1.1",
        "TRACE /v1/messages HTTP/1.1",
        "PROPFIND /v1/messages HTTP/1.1",
        "GET /v1/messages\u{0} HTTP/1.1",
        "GET //evil.test/v1/messages HTTP/1.1",
        "GET /v1/../api/oauth/usage HTTP/1.1",
        "GET /v1/%2e%2e/api/oauth/profile HTTP/1.1",
        "GET /v1//oauth/token HTTP/1.1",
        "POST /v1/oauth%2ftoken HTTP/1.1",
        "POST /V1/OAuth/token HTTP/1.1",
        "GET /v1/%6frganizations/o HTTP/1.1",
        "GET /v1/files\\..\\oauth HTTP/1.1",
        "GET evil.test/v1/messages HTTP/1.1",
        "GET * HTTP/1.1",
    ] {
        let mut client = router.connect().await;
        client.say(head(start, "content-length: 0\r\n")).await;
        let answer = client.answer().await;
        assert!(
            matches!(answer.status(), 400 | 403 | 404 | 405),
            "{start}: {}",
            answer.head
        );
    }
    assert!(sandbox.requests().is_empty(), "{:?}", sandbox.requests());
}

#[tokio::test]
async fn sc_08_six_hundred_that_say_one_byte_keep_nobody_out() {
    raise_descriptor_limit();
    let (_sandbox, router) = over_sandbox().await;
    let mut kept = router.connect().await;
    let mut slow = Vec::new();
    for number in 0..600 {
        let mut client = router.connect().await;
        client.say("G").await;
        slow.push(client);
        if number % 50 == 0 {
            // One that stays, and uses its connection, and one that comes anew.
            kept.say(turn(&turn_body(MODEL, "hello"))).await;
            assert_eq!(kept.answer().await.status(), 200, "after {number}");
            let answer = router.ask(&turn(&turn_body(MODEL, "hello"))).await;
            assert_eq!(answer.status(), 200, "after {number}");
        }
    }
    assert_eq!(router.ask(&turn(&turn_body(MODEL, "hello"))).await.status(), 200);
    // Those that waited longest gave way.
    for mut client in slow.drain(..80) {
        client.ended().await;
    }
}

#[tokio::test]
async fn sc_08_a_first_head_that_does_not_come_is_not_waited_for() {
    let (_sandbox, router) = over_sandbox().await;
    let mut silent = router.connect().await;
    let mut slow = router.connect().await;
    let mut kept = router.connect().await;
    kept.say(turn(&turn_body(MODEL, "hello"))).await;
    assert_eq!(kept.answer().await.status(), 200);
    let dripping = async {
        // A byte now and then does not buy more time.
        for byte in head("GET /v1/models HTTP/1.1", "").bytes() {
            if slow.stream.write_all(&[byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
        panic!("it was let in");
    };
    tokio::join!(silent.ended(), dripping);
    kept.say(turn(&turn_body(MODEL, "hello"))).await;
    assert_eq!(kept.answer().await.status(), 200, "one that has spoken may rest");
}

#[tokio::test]
async fn sc_08_headers_without_end_are_refused() {
    let (sandbox, router) = over_sandbox().await;
    for lines in [
        format!("x-much: {}\r\n", "a".repeat(1 << 20)),
        "x-many: a\r\n".repeat(100_000),
    ] {
        let client = TcpStream::connect(router.address).await.unwrap();
        let (mut from, mut to) = client.into_split();
        let request = head("GET /v1/models HTTP/1.1", &lines);
        let sending = async {
            // It is refused before it has said all of it.
            let _ = to.write_all(request.as_bytes()).await;
        };
        let reading = async {
            let mut answer = Vec::new();
            let _ = from.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        let both = async { tokio::join!(sending, reading).1 };
        let answer = timeout(GUARD, both).await.expect("it ends");
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer:?}");
    }
    assert!(sandbox.requests().is_empty());
}

#[tokio::test]
async fn sc_08_a_stranger_with_a_long_body_reads_why_it_is_refused() {
    let (sandbox, router) = over_sandbox().await;
    let lines = format!(
        "host: 127.0.0.1\r\nx-router-key: wrong\r\ncontent-length: {}\r\n",
        32 << 20
    );
    let request = format!("POST /v1/messages HTTP/1.1\r\n{lines}\r\n");

    // One that looks while it sends, as most do.
    let mut client = router.connect().await;
    client.say(&request).await;
    let (from, mut to) = client.stream.split();
    let sending = async {
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..512 {
            if to.write_all(&piece).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = sending => {}
        ready = timeout(GUARD, from.readable()) => ready.expect("an answer while it sends").unwrap(),
    }
    let answer = client.answer().await;
    assert_eq!(answer.status(), 401, "{}", answer.head);
    assert!(
        answer.text().contains("does not know this key"),
        "{:?} {}",
        answer.end,
        answer.text()
    );
    assert_eq!(answer.value("connection"), Some("close"));
    client.ended().await;

    // One that sends until it cannot, and looks then.
    let mut client = router.connect().await;
    client.say(&request).await;
    let piece = vec![b'x'; 64 << 10];
    for _ in 0..512 {
        let written = timeout(GUARD, client.stream.write_all(&piece)).await;
        if written.expect("it is taken in, or not").is_err() {
            break;
        }
    }
    let answer = client.answer().await;
    assert_eq!((answer.status(), &answer.end), (401, &End::AsTold), "{}", answer.head);
    client.ended().await;
    assert!(sandbox.requests().is_empty());
}

#[tokio::test]
async fn sc_08_a_body_too_long_is_taken_in_so_that_the_answer_can_be_read() {
    let (sandbox, router) = over_sandbox().await;
    let piece = vec![b'x'; 1 << 20];
    for chunked in [false, true] {
        let mut client = router.connect().await;
        let lines = match chunked {
            true => "transfer-encoding: chunked\r\n".to_owned(),
            false => format!("content-length: {}\r\n", 33 << 20),
        };
        client.say(head("POST /v1/messages HTTP/1.1", &lines)).await;
        for _ in 0..33 {
            if chunked {
                client.say(format!("{:x}\r\n", piece.len())).await;
            }
            client.say(&piece).await;
            if chunked {
                client.say("\r\n").await;
            }
        }
        if chunked {
            client.say("0\r\n\r\n").await;
        }
        let answer = client.answer().await;
        assert_eq!(
            (answer.status(), &answer.end),
            (413, &End::AsTold),
            "chunked: {chunked}; {}",
            answer.head
        );
        assert!(answer.text().contains("request_too_large"), "{}", answer.text());
        client.ended().await;
        let whole = sandbox.take_requests().into_iter().any(|request| request.completed);
        assert!(!whole, "chunked: {chunked}: nothing that is too long is carried out");
        becomes("no request runs", || router.in_flight() == 0).await;
        assert_eq!(router.state("A"), SeatState::Ready);
    }
}

#[tokio::test]
async fn st_04_a_client_that_leaves_in_the_stream_ends_it_upstream() {
    let (sandbox, router) = over_sandbox().await;
    let delta = |text: &str| SseStep::event(json!({"type": "content_block_delta", "delta": {"text": text}}));
    sandbox.script(
        "tok-A",
        "/v1/messages",
        Answer::sse(vec![
            SseStep::event(json!({"type": "message_start"})),
            delta("first"),
            SseStep::Wait(600_000),
            delta("second"),
        ]),
    );
    let mut client = router.connect().await;
    client.say(turn(&stream_body(MODEL, "hello"))).await;
    client.until(b"first").await.expect("the first event");
    assert_eq!((sandbox.open_streams(), router.in_flight()), (1, 1));
    drop(client);
    becomes("the stream ends upstream", || sandbox.open_streams() == 0).await;
    becomes("the seat is free", || router.in_flight() == 0).await;
    assert_eq!(router.state("A"), SeatState::Ready);
    assert_eq!(sandbox.requests().len(), 1);
}

#[tokio::test]
async fn st_04_a_client_that_leaves_before_the_head_is_not_waited_for_upstream() {
    let upstream = Bytewise::new(None).await;
    let router = Router::new(upstream.address, &["A", "B"]).await;
    let mut client = router.connect().await;
    client.say(turn(&turn_body(MODEL, "hello"))).await;
    becomes("the request is upstream", || upstream.seen.lock().unwrap().len() == 1).await;
    drop(client);
    let given_up = timeout(GUARD, upstream.given_up.notified()).await;
    given_up.expect("the connection upstream ends");
    becomes("no seat is busy", || router.in_flight() == 0).await;
    assert_eq!(
        (router.state("A"), router.state("B")),
        (SeatState::Ready, SeatState::Ready)
    );
    upstream.only();
}

#[tokio::test]
async fn a_client_that_leaves_in_its_upload_leaves_nothing_whole_upstream() {
    let (sandbox, router) = over_sandbox().await;
    let body = turn_body(MODEL, &"x".repeat(1 << 20));
    let mut client = router.connect().await;
    let lines = format!("content-length: {}\r\n", body.len());
    client.say(head("POST /v1/messages HTTP/1.1", &lines)).await;
    client.say(&body[..body.len() - 1]).await;
    sleep(GLANCE * 10).await;
    drop(client);
    becomes("no seat is busy", || router.in_flight() == 0).await;
    let answer = router.ask(&turn(&turn_body(MODEL, "hello"))).await;
    assert_eq!(answer.status(), 200, "the next one is served");
    let whole = sandbox.requests().into_iter().filter(|request| request.completed);
    assert_eq!(whole.count(), 1);
}

#[tokio::test]
async fn a_stream_cut_upstream_is_cut_for_the_client_too() {
    let (sandbox, router) = over_sandbox().await;
    let delta = SseStep::event(json!({"type": "content_block_delta", "delta": {"text": "first"}}));
    let start = SseStep::event(json!({"type": "message_start"}));
    sandbox.script(
        "tok-A",
        "/v1/messages",
        // The wait lets what came before reach the client first, as it does when a network fails.
        Answer::sse(vec![start, delta, SseStep::Wait(300), SseStep::Cut]),
    );
    let mut client = router.connect().await;
    client.say(turn(&stream_body(MODEL, "hello"))).await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 200);
    assert!(answer.text().contains("first"));
    assert_eq!(answer.end, End::CutOff, "an end would look like the whole of it");
    assert_eq!(router.state("A"), SeatState::Ready);
}

#[tokio::test]
async fn an_answer_cut_upstream_is_cut_for_the_client_too() {
    for framing in [
        "content-length: 100\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n64\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{framing}half of it");
        let upstream = Bytewise::new(Some(answer.leak())).await;
        let router = Router::new(upstream.address, &["A"]).await;
        let answer = router.ask(&turn(&turn_body(MODEL, "hello"))).await;
        assert_eq!((answer.status(), &answer.end), (200, &End::CutOff), "{}", answer.head);
        assert_eq!(answer.text(), "half of it");
        becomes("no seat is busy", || router.in_flight() == 0).await;
        assert_eq!(router.state("A"), SeatState::Ready);
        upstream.only();
    }
}

#[tokio::test]
async fn nw_03_an_upstream_that_refuses_and_comes_back_is_used_again_at_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let router = Router::new(address, &["A"]).await;
    let body = turn_body(MODEL, "hello");
    let answer = router.ask(&turn(&body)).await;
    assert_eq!(answer.status(), 502, "{}", answer.head);
    assert!(answer.text().contains("cannot reach Anthropic"), "{}", answer.text());
    assert_eq!(router.state("A"), SeatState::Ready);

    let sandbox = Sandbox::new(Arc::new(|| SystemClock.now().as_millisecond()));
    sandbox.add_seat(seat("A"));
    let listener = gateway::listen::listen(address).unwrap();
    tokio::spawn(sandbox::serve(listener, sandbox.clone()));
    assert_eq!(router.ask(&turn(&body)).await.status(), 200);
}

#[tokio::test]
async fn nw_04_a_kept_connection_that_died_is_no_error_for_the_client() {
    // It closes after each answer without a word, as a server does with a connection that idled for too long.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let router = Router::new(listener.local_addr().unwrap(), &["A"]).await;
    let executed = Arc::<Mutex<usize>>::default();
    let count = Arc::clone(&executed);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut wire = Wire::new(stream);
                if wire.message(Kind::Request).await.is_some() {
                    *count.lock().unwrap() += 1;
                    wire.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    sleep(GLANCE).await;
                }
            });
        }
    });
    let mut client = router.connect().await;
    for round in 1..=100 {
        client.say(turn(&turn_body(MODEL, "hello"))).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text()), (200, "ok".into()), "round {round}");
        assert_eq!(*executed.lock().unwrap(), round);
        // Around the moment at which the connection dies.
        sleep(GLANCE.mul_f64(0.5 + f64::from(u32::try_from(round).unwrap() % 20) / 20.0)).await;
    }
}

#[tokio::test]
async fn nw_04_a_new_connection_that_dies_is_not_asked_twice() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let router = Router::new(listener.local_addr().unwrap(), &["A", "B"]).await;
    let executed = Arc::<Mutex<usize>>::default();
    let count = Arc::clone(&executed);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // It carries the request out, and dies before it can say so.
            if Wire::new(stream).message(Kind::Request).await.is_some() {
                *count.lock().unwrap() += 1;
            }
        }
    });
    let answer = router.ask(&turn(&turn_body(MODEL, "hello"))).await;
    assert_eq!(answer.status(), 502, "{}", answer.head);
    assert!(answer.text().contains("may have been carried out"), "{}", answer.text());
    assert_eq!(*executed.lock().unwrap(), 1);
}

#[tokio::test]
async fn ld_04_stopping_waits_for_the_stream_and_takes_nobody_new() {
    let (sandbox, router) = over_sandbox().await;
    let delta = |text: &str| SseStep::event(json!({"type": "content_block_delta", "delta": {"text": text}}));
    sandbox.script(
        "tok-A",
        "/v1/messages",
        Answer::sse(vec![delta("first"), SseStep::Wait(1_500), delta("last")]),
    );
    let mut idle = router.connect().await;
    idle.say("HEAD / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await;
    idle.message(Kind::AnswerToHead).await.unwrap();
    let mut client = router.connect().await;
    client.say(turn(&stream_body(MODEL, "hello"))).await;
    let head = client.head().await.unwrap();
    router.stop.notify_one();
    idle.ended().await;
    assert!(TcpStream::connect(router.address).await.is_err(), "{head}");
    client.until(b"last").await.expect("the rest of the stream");
    client.until(b"0\r\n\r\n").await.expect("its proper end");
    timeout(GUARD, router.serving).await.expect("it stops").unwrap();
}

/// The connections of a test have two ends in this process.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let enough = now.maximum.map_or(4_096, |maximum| maximum.min(4_096));
    if now.current.is_some_and(|current| current < enough) {
        let raised = Rlimit {
            current: Some(enough),
            maximum: now.maximum,
        };
        setrlimit(Resource::Nofile, raised).unwrap();
    }
}
