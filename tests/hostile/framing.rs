//! HTTP/1.1 requests with an ambiguous end, and heads that are too long or never end.

use std::net::SocketAddr;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::within;
use crate::raw_client::{modern_headers, modern_request};
use crate::target::{Bounds, Target};

const MIB: usize = 1 << 20;

/// A request line, the headers that every request needs, `framing`, and the end of the head.
fn head(version: &str, framing: &str) -> String {
    let own = modern_headers(&modern_request(
        "1",
        "tools/call",
        r#""name":"smuggled""#,
        "",
    ));
    let own: String = own
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!(
        "POST /mcp HTTP/{version}\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{own}{framing}\r\n\r\n"
    )
}

/// A whole, valid request for the tool `smuggled`.
fn hidden() -> String {
    let body = modern_request("2", "tools/call", r#""name":"smuggled""#, "");
    head("1.1", &format!("Content-Length: {}", body.len())) + &body
}

/// Sends these bytes and returns everything received until the gateway closes the connection.
async fn until_closed(gateway: SocketAddr, bytes: &[u8]) -> String {
    let mut connection = TcpStream::connect(gateway).await.unwrap();
    // The gateway may close the connection before it has read everything.
    let _ = connection.write_all(bytes).await;
    let mut received = Vec::new();
    let _ = within(
        "the gateway to close the connection",
        connection.read_to_end(&mut received),
    )
    .await;
    String::from_utf8_lossy(&received).into_owned()
}

/// Checks that the gateway refused the request, closed the connection, and did not serve the
/// request hidden in the body.
async fn assert_refused(target: &Target, request: &str) {
    let received = until_closed(target.gateway.mcp, request.as_bytes()).await;
    let shown = request.split("\r\n\r\n").next().unwrap();
    let statuses: Vec<&str> = received
        .match_indices("HTTP/1.")
        .map(|(at, _)| &received[at + 9..at + 12])
        .collect();
    assert!(
        matches!(statuses[..], [] | ["400"]),
        "{shown}\n→ {received}"
    );
    let served = target.backend.received("tools/call");
    assert!(
        served
            .iter()
            .all(|call| call.member("params.name") == Some(r#""t""#)),
        "served what was hidden:\n{shown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_lengths_are_refused_and_close_the_connection() {
    let target = Target::start().await;
    let hidden = hidden();
    let chunked = format!("0\r\n\r\n{hidden}");
    let all = chunked.len();
    let framings = [
        format!("Content-Length: {all}\r\nContent-Length: 5"),
        format!("Content-Length: 5\r\nContent-Length: {all}"),
        format!("Content-Length: 5, {all}"),
        format!("Content-Length: +{all}"),
        format!("Content-Length: 0x{all:x}"),
        "Content-Length: -1".to_owned(),
        "Content-Length: ".to_owned(),
        "Content-Length: 5 5".to_owned(),
        "Content-Length: 18446744073709551621".to_owned(),
        format!("Content-Length : {all}"),
        format!("Content-Length:\r\n {all}"),
        "Transfer-Encoding : chunked".to_owned(),
        "Transfer-Encoding:\r\n chunked".to_owned(),
        "Transfer-Encoding: chunked, identity".to_owned(),
        "Transfer-Encoding: identity".to_owned(),
        "Transfer-Encoding: xchunked".to_owned(),
        "Transfer-Encoding: \"chunked\"".to_owned(),
        "Transfer-Encoding: \x0bchunked".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned(),
        format!("Content-Length: {all}\r\nTransfer-Encoding: identity"),
        format!("Content-Length: {all}\r\nTransfer-Encoding: chunked"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {all}"),
        format!(
            "Transfer-Encoding: chunked\r\nContent-Length: {all}\r\nTransfer-Encoding: chunked"
        ),
        format!("Content-Length: {all}\r\nTransfer-Encoding: xchunked"),
    ];
    for framing in &framings {
        assert_refused(&target, &(head("1.1", framing) + &chunked)).await;
    }
    assert_refused(
        &target,
        &(head("1.0", "Transfer-Encoding: chunked") + &chunked),
    )
    .await;
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_chunks_are_refused_and_close_the_connection() {
    let target = Target::start().await;
    let hidden = hidden();
    for chunks in [
        format!("-5\r\n{hidden}"),
        format!("0x5\r\n{hidden}"),
        format!("fffffffffffffffff\r\n{hidden}"),
        format!("2\r\n{{}}{hidden}0\r\n\r\n"),
        format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(MIB)),
        format!("\r\n{hidden}"),
        format!("0\r\n{}\r\n", "X-Trailer: x\r\n".repeat(100_000)),
    ] {
        assert_refused(
            &target,
            &(head("1.1", "Transfer-Encoding: chunked") + &chunks),
        )
        .await;
    }
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_heads_are_refused() {
    let target = Target::start().await;
    let address = target.gateway.mcp;
    for head in [
        format!("POST /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(4 * MIB)),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
            "x".repeat(4 * MIB)
        ),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: x\r\n{}\r\n",
            "X: x\r\n".repeat(500_000)
        ),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: x\r\n{}: x\r\n\r\n",
            "x".repeat(4 * MIB)
        ),
        "x".repeat(4 * MIB),
        "\r\n".repeat(MIB),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: x\r\n{}",
            "X: x\r\n".repeat(500_000)
        ),
    ] {
        let attempts = (0..8).map(|_| until_closed(address, head.as_bytes()));
        for received in join_all(attempts).await {
            // The gateway closes with unread input, so TCP may drop the response.
            let refused = ["", "HTTP/1.1 400", "HTTP/1.1 414", "HTTP/1.1 431"];
            assert!(
                refused.iter().any(|start| received.starts_with(start)),
                "{received}"
            );
            assert!(!received.starts_with("HTTP/1.1 2"), "{received}");
        }
    }
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_heads_are_closed_after_the_header_timeout() {
    let target = Target::with(r#""x-limits":"header=1s""#).await;
    let address = target.gateway.mcp;
    let slow = |index: usize| async move {
        let mut connection = TcpStream::connect(address).await.unwrap();
        let begun = format!("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Number: {index}\r\n");
        connection
            .write_all(&begun.as_bytes()[..begun.len() * (index % 10 + 1) / 10])
            .await
            .unwrap();
        let (mut reader, mut writer) = connection.split();
        let mut received = Vec::new();
        let drip = async {
            let mut pace = tokio::time::interval(std::time::Duration::from_millis(100));
            while writer.write_all(b"X").await.is_ok() {
                pace.tick().await;
            }
        };
        tokio::select! {
            _ = within("the gateway to close the connection", reader.read_to_end(&mut received)) => {}
            () = drip => {}
        }
    };
    join_all((0..300).map(slow)).await;
    target
        .withstood(Bounds {
            memory: 32 << 20,
            ..Bounds::SMALL
        })
        .await;
}
