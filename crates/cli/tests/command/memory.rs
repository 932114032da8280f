//! How much memory it takes, as the kernel counts it.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::home::{GUARD, Home, KEY, turn};

/// A memory figure of a process, in KiB.
fn memory(pid: u32, figure: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Reads to the end of a head.
async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Reads a head. What is not a turn is answered with 404; returns whether it is one.
async fn is_turn(stream: &mut TcpStream) -> bool {
    let is_turn = head_of(stream).await.starts_with("POST /v1/messages");
    if !is_turn {
        let _ = stream
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            .await;
    }
    is_turn
}

#[tokio::test]
async fn st_07_a_stream_without_a_line_end_takes_no_memory() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 200;
    let home = Home::new().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if !is_turn(&mut stream).await {
                    return;
                }
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                let piece = vec![b'x'; PIECE];
                for _ in 0..PIECES {
                    stream.write_all(format!("{PIECE:x}\r\n").as_bytes()).await.unwrap();
                    stream.write_all(&piece).await.unwrap();
                    stream.write_all(b"\r\n").await.unwrap();
                }
                stream.write_all(b"0\r\n\r\n").await.unwrap();
                // What it did not read would break the connection if it left now.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    let running = home.start_with(&json!({"upstream": upstream}), |_| {}).await;
    let before = memory(running.pid(), "VmRSS");
    let mut body = running.send(turn(true)).await.into_body();
    let mut received = 0;
    while let Some(frame) = timeout(GUARD, body.frame()).await.expect("it goes on") {
        received += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(received, PIECE * PIECES);
    let grown = memory(running.pid(), "VmHWM") - before;
    assert!(grown < 16 << 10, "it grew by {grown} KiB");
}

#[tokio::test]
async fn sc_08_many_long_bodies_at_once_are_kept_only_as_far_as_memory_is_set_aside() {
    const CLIENTS: usize = 12;
    const LENGTH: usize = 32 << 20;
    let home = Home::new().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let (go, going) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut going = going.clone();
            tokio::spawn(async move {
                if !is_turn(&mut stream).await {
                    return;
                }
                // It takes nothing in for a while.
                going.wait_for(|going| *going).await.unwrap();
                let mut body = (&mut stream).take(LENGTH as u64);
                let taken = tokio::io::copy(&mut body, &mut tokio::io::sink()).await.unwrap();
                assert_eq!(taken, LENGTH as u64);
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .await;
            });
        }
    });
    let running = home.start_with(&json!({"upstream": upstream}), |_| {}).await;
    let before = memory(running.pid(), "VmRSS");
    let sent = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, sent) = (running.address, Arc::clone(&sent));
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let head = format!(
                    "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-router-key: {KEY}\r\n\
                     content-type: text/plain\r\ncontent-length: {LENGTH}\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                let piece = vec![b'x'; 64 << 10];
                for _ in 0..LENGTH / piece.len() {
                    stream.write_all(&piece).await.unwrap();
                    sent.fetch_add(piece.len(), Ordering::Relaxed);
                }
                head_of(&mut stream).await
            })
        })
        .collect();
    let standstill = async {
        let mut last = 0;
        loop {
            sleep(Duration::from_secs(1)).await;
            match sent.load(Ordering::Relaxed) {
                now if now == last && now > 0 => return,
                now => last = now,
            }
        }
    };
    timeout(GUARD, standstill).await.expect("nobody can send more");
    assert!(sent.load(Ordering::Relaxed) < CLIENTS * LENGTH, "some have to wait");
    let grown = memory(running.pid(), "VmHWM") - before;
    assert!(grown < (256 + 64) << 10, "it grew by {} MiB", grown >> 10);

    go.send(true).unwrap();
    for client in clients {
        let answer = timeout(GUARD, client).await.expect("an answer").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn sc_08_a_body_in_tiny_pieces_takes_little_more_than_its_length() {
    const LENGTH: usize = 256 << 10;
    let home = Home::new().await;
    let running = home.start().await;
    assert_eq!(running.turn().await, 200);
    let before = memory(running.pid(), "VmRSS");
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-router-key: {KEY}\r\n\
         content-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let pieces = "1\r\nx\r\n".repeat(1 << 10);
    for _ in 0..LENGTH >> 10 {
        stream.write_all(pieces.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = timeout(GUARD, head_of(&mut stream)).await.expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 400"),
        "this Anthropic wants JSON: {answer}"
    );
    let grown = memory(running.pid(), "VmHWM") - before;
    assert!(grown < 4 << 10, "it grew by {grown} KiB");
}
