//! One client address occupies all connections, streams and sessions, each with something in
//! progress. Examples are an unfinished body, an idle stream, an unread answer, and a call that
//! hangs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::within;
use crate::peers::{NOISY, OTHER, connect_from, request_from, session_from};
use crate::raw_client::{initialize, legacy_request, modern_headers, modern_request};
use crate::scripted::{Era, Fault, Reply};
use crate::target::{Bounds, Target};

const THIRD: [u8; 4] = [127, 0, 0, 4];

/// The longest that another client may wait for an answer, apart from its wait for a processor.
const SOON: Duration = Duration::from_secs(5);

fn head(method_and_path: &str, to: SocketAddr, headers: &[(String, String)], rest: &str) -> String {
    let more: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!(
        "{method_and_path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{more}{rest}\r\n\r\n"
    )
}

fn whole(to: SocketAddr, body: &str) -> String {
    head(
        "POST /mcp",
        to,
        &modern_headers(body),
        &format!("Content-Length: {}", body.len()),
    ) + body
}

fn call(tool: &str) -> String {
    modern_request("1", "tools/call", &format!(r#""name":"{tool}""#), "")
}

fn modern_listen(to: SocketAddr) -> String {
    whole(
        to,
        &modern_request(
            "7",
            "subscriptions/listen",
            r#""notifications":{"toolsListChanged":true}"#,
            "",
        ),
    )
}

fn sse(to: SocketAddr) -> String {
    format!("GET /sse HTTP/1.1\r\nHost: {to}\r\nAccept: text/event-stream\r\n\r\n")
}

fn get(to: SocketAddr, session: &[(String, String)]) -> String {
    let more: String = session
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!("GET /mcp HTTP/1.1\r\nHost: {to}\r\nAccept: text/event-stream\r\n{more}\r\n")
}

/// Sends this text from an address; returns the connection.
async fn send(from: [u8; 4], to: SocketAddr, text: &str) -> TcpStream {
    let mut connection = connect_from(from, to).await;
    // The gateway may have closed the connection, since this peer has the most.
    let _ = connection.write_all(text.as_bytes()).await;
    connection
}

/// Sends this text from an address; returns the connection and the status once the response has
/// begun.
async fn begin(from: [u8; 4], to: SocketAddr, text: &str) -> (TcpStream, String) {
    let mut connection = send(from, to, text).await;
    let mut status = [0; 12];
    within("a response", connection.read_exact(&mut status))
        .await
        .unwrap();
    (connection, String::from_utf8_lossy(&status).into_owned())
}

/// Calls from another address, with one connection per call; then several calls at once.
async fn others_are_served(target: &Target) {
    let to = target.gateway.mcp;
    let body = call("t");
    for number in 0..6 {
        let begun = Instant::now();
        let response = request_from(OTHER, to, "POST /mcp", &modern_headers(&body), &body).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{number}: {response}");
        assert!(begun.elapsed() < SOON, "{number}: {:?}", begun.elapsed());
    }
    let mut held = Vec::new();
    for number in 0..4 {
        let (connection, status) = begin(OTHER, to, &whole(to, &body)).await;
        assert_eq!(status, "HTTP/1.1 200", "{number}");
        held.push(connection);
    }
}

/// A request whose body does not end. The interim response shows that the gateway waits for the
/// body.
fn unfinished(to: SocketAddr, number: usize) -> String {
    match number % 3 {
        0 => {
            head(
                "POST /mcp",
                to,
                &[],
                "Expect: 100-continue\r\nContent-Length: 100000",
            ) + "{"
        }
        1 => {
            head(
                "POST /mcp",
                to,
                &[],
                "Expect: 100-continue\r\nTransfer-Encoding: chunked",
            ) + "1\r\n{\r\n"
        }
        _ => head(
            "POST /mcp",
            to,
            &[],
            "Expect: 100-continue\r\nContent-Length: 10",
        ),
    }
}

/// The sign that the gateway is busy with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The response or an interim one begins.
    Response,
    /// The server has received the request.
    Hangs,
}

/// Sends this text on many connections from one address, while another address calls.
async fn withstands(text: impl Fn(SocketAddr, usize) -> String, sign: Sign, bounds: Bounds) {
    let target = Target::with(r#""limits":{"connections":16}"#).await;
    target
        .backend
        .on_target("tools/call", "hang", Reply::fault(Fault::Hang));
    let long = format!(
        r#""content":[{{"type":"text","text":"{}"}}]"#,
        "x".repeat(2 << 20)
    );
    target.backend.on_target(
        "tools/call",
        "long",
        Reply::result(Era::Modern.complete(&long)),
    );
    let mut held = Vec::new();
    let to = target.gateway.mcp;
    for number in 0..12 {
        held.push(match sign {
            Sign::Response => begin(NOISY, to, &text(to, number)).await.0,
            Sign::Hangs => send(NOISY, to, &text(to, number)).await,
        });
    }
    if sign == Sign::Hangs {
        target
            .backend
            .wait_for_target("tools/call", "hang", 12)
            .await;
    }
    // With the second client's connection, all 16 are in use; streams may have 12 of them.
    for number in 0..3 {
        held.push(begin(NOISY, to, &unfinished(to, number)).await.0);
    }
    for number in 0..33 {
        held.push(send(NOISY, to, &text(to, number)).await);
    }
    others_are_served(&target).await;
    target.withstood(bounds).await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_of_one_address_leave_connections_to_others() {
    withstands(unfinished, Sign::Response, Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listening_streams_of_one_address_leave_connections_to_others() {
    let listening = |to, number| {
        if number % 2 == 0 {
            modern_listen(to)
        } else {
            sse(to)
        }
    };
    withstands(listening, Sign::Response, Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_of_one_address_leave_connections_to_others() {
    // The answers exceed the buffers of the sockets.
    let bounds = Bounds {
        memory: 160 << 20,
        processor: Duration::from_secs(8),
        ..Bounds::SMALL
    };
    withstands(
        |to, _| whole(to, &call("long")).repeat(4),
        Sign::Response,
        bounds,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_calls_of_one_address_leave_connections_to_others() {
    withstands(|to, _| whole(to, &call("hang")), Sign::Hangs, Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_one_address_leave_streams_to_others() {
    let target = Target::with(r#""limits":{"connections":256},"x-limits":"streams=8""#).await;
    let to = target.gateway.mcp;
    let mut held = Vec::new();
    for number in 0..24 {
        let text = match number % 3 {
            0 => modern_listen(to),
            1 => sse(to),
            _ => get(to, &session_from(NOISY, to).await),
        };
        held.push(send(NOISY, to, &text).await);
    }
    // The gateway refuses this peer's next stream, since it has the most itself.
    let (_refused, status) = begin(NOISY, to, &modern_listen(to)).await;
    assert_eq!(status, "HTTP/1.1 503");
    let session = session_from(OTHER, to).await;
    for text in [
        modern_listen(to),
        sse(to),
        get(to, &session),
        modern_listen(to),
    ] {
        let (connection, status) = begin(OTHER, to, &text).await;
        assert_eq!(status, "HTTP/1.1 200", "{text}");
        held.push(connection);
    }
    let (_refused, status) = begin(OTHER, to, &modern_listen(to)).await;
    assert_eq!(status, "HTTP/1.1 503", "both have four");
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_in_use_of_one_address_leave_sessions_to_others() {
    let target = Target::with(r#""limits":{"sessions":8}"#).await;
    let to = target.gateway.mcp;
    let first = session_from(OTHER, to).await;
    let mut held = Vec::new();
    for _ in 0..7 {
        // A session with a stream is never idle.
        held.push(begin(NOISY, to, &get(to, &session_from(NOISY, to).await)).await);
    }
    let refused = request_from(NOISY, to, "POST /mcp", &[], &initialize("2025-11-25", "{}")).await;
    assert!(
        refused.starts_with("HTTP/1.1 503") || refused.contains("mcp-session-id"),
        "{refused}"
    );
    let second = session_from(THIRD, to).await;
    let list = legacy_request("1", "tools/list", "");
    for session in [first, second] {
        let listed = request_from(OTHER, to, "POST /mcp", &session, &list).await;
        assert!(listed.starts_with("HTTP/1.1 200"), "{listed}");
    }
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_the_sse_transport_of_one_address_leave_some_to_others() {
    let target = Target::with(r#""limits":{"sessions":8,"connections":256}"#).await;
    let to = target.gateway.mcp;
    let mut held = Vec::new();
    for number in 0..24 {
        let (connection, status) = begin(NOISY, to, &sse(to)).await;
        assert_eq!(
            status,
            if number < 8 {
                "HTTP/1.1 200"
            } else {
                "HTTP/1.1 503"
            },
            "{number}"
        );
        held.push(connection);
    }
    for number in 0..4 {
        let (mut connection, status) = begin(OTHER, to, &sse(to)).await;
        assert_eq!(status, "HTTP/1.1 200", "{number}");
        let mut text = String::new();
        while !text.contains("sessionId=") || !text.ends_with("\n\n\r\n") {
            let mut buf = [0; 1024];
            let read = within("the endpoint event", connection.read(&mut buf))
                .await
                .unwrap();
            assert!(read > 0, "{text}");
            text += &String::from_utf8_lossy(&buf[..read]);
        }
        let path = text
            .lines()
            .find_map(|line| line.strip_prefix("data: "))
            .unwrap();
        let (post, body) = (format!("POST {path}"), initialize("2024-11-05", "{}"));
        let opened = request_from(OTHER, to, &post, &[], &body).await;
        assert!(opened.starts_with("HTTP/1.1 202"), "{opened}");
        held.push(connection);
    }
    let (_refused, status) = begin(OTHER, to, &sse(to)).await;
    assert_eq!(status, "HTTP/1.1 503", "both have four");
    target.withstood(Bounds::SMALL).await;
}
