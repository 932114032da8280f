//! The same answers on real sockets.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod bench;

use std::sync::Arc;
use std::time::Duration;

use bench::{ask, two_seats};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sandbox::{Answer, Identity, Sandbox, SseStep, serve, serve_tls};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

fn question(sandbox: &Sandbox) -> String {
    let body = ask("claude-opus-4-5").to_string();
    format!(
        "POST /v1/messages?beta=true HTTP/1.1\r\nhost: sandbox\r\nauthorization: Bearer {}\r\n\
         anthropic-beta: oauth-2025-04-20\r\ncontent-length: {}\r\n\r\n{body}",
        sandbox.access_token("work"),
        body.len(),
    )
}

async fn listening(sandbox: &Sandbox) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, sandbox.clone()));
    TcpStream::connect(address).await.unwrap()
}

/// Reads until `end` was seen or the connection is closed.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains(end) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => seen.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8(seen).unwrap()
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn one_connection_serves_several_requests() {
    let sandbox = two_seats();
    let mut stream = listening(&sandbox).await;
    for _ in 0..2 {
        write(&mut stream, &question(&sandbox)).await;
        let answer = read_until(&mut stream, "seat `work`").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    assert_eq!(sandbox.requests()[1].target, "/v1/messages?beta=true");
}

#[tokio::test]
async fn a_reset_closes_the_connection_without_a_word() {
    let sandbox = two_seats();
    sandbox.script("*", "*", Answer::reset());
    let mut stream = listening(&sandbox).await;
    write(&mut stream, &question(&sandbox)).await;
    assert_eq!(read_until(&mut stream, "never").await, "");
}

#[tokio::test]
async fn a_cut_stream_ends_after_its_events_and_before_its_end() {
    let sandbox = two_seats();
    let steps = vec![SseStep::event(json!({"type": "ping"})), SseStep::Cut];
    sandbox.script("*", "*", Answer::sse(steps));
    let mut stream = listening(&sandbox).await;
    write(&mut stream, &question(&sandbox)).await;
    let seen = read_until(&mut stream, "never").await;
    assert!(seen.contains("event: ping"), "{seen}");
    assert!(!seen.ends_with("0\r\n\r\n"), "{seen}");
}

#[tokio::test]
async fn a_client_that_hangs_up_closes_its_stream() {
    let sandbox = two_seats();
    let steps = vec![SseStep::event(json!({"type": "ping"})), SseStep::Wait(3_600_000)];
    sandbox.script("*", "*", Answer::sse(steps));
    let mut stream = listening(&sandbox).await;
    write(&mut stream, &question(&sandbox)).await;
    read_until(&mut stream, "ping").await;
    assert_eq!(sandbox.open_streams(), 1);
    drop(stream);
    while sandbox.open_streams() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn tls_serves_with_the_certificate_it_made() {
    let sandbox = two_seats();
    let identity = Identity::generate(&["localhost", "127.0.0.1"]);
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(identity.certificate_pem().as_bytes());
    roots.add(certificate.unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_tls(listener, sandbox.clone(), identity));

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    for host in ["localhost", "127.0.0.1"] {
        let socket = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(host).unwrap();
        let mut stream = connector.connect(name, socket).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        write(&mut stream, &question(&sandbox)).await;
        let answer = read_until(&mut stream, "seat `work`").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
}
