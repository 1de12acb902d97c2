//! HTTP/1.1 clients that do not read, invalid targets and methods, and header values that are
//! costly to read.

use std::net::SocketAddr;
use std::time::Duration;

use fanlight_testkit::usage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::within;
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::scripted::{Era, Reply};
use crate::target::{Bounds, Target};

const MIB: usize = 1 << 20;

/// The gateway closes clients that read nothing after these times.
const IMPATIENT: &str = r#""x-limits":"header=3s,idleConnection=4s,write=3s""#;

/// A whole call of this tool.
fn call(tool: &str) -> String {
    let body = modern_request("1", "tools/call", &format!(r#""name":"{tool}""#), "");
    let own = modern_headers(&body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: String = JSON_HEADERS
        .into_iter()
        .chain(own)
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Offers a tool whose result has this many bytes.
fn offers_long_results(target: &Target, bytes: usize) {
    let text = "x".repeat(bytes);
    let result = Era::Modern.complete(&format!(r#""content":[{{"type":"text","text":"{text}"}}]"#));
    target
        .backend
        .on_target("tools/call", "long", Reply::result(result));
}

/// A connection with a small receive buffer.
async fn small_reader(gateway: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(gateway).await.unwrap()
}

/// Waits until all connections to the gateway are closed except the second client's.
async fn only_the_second_client_is_left(target: &Target) {
    let closed = async {
        let mut pace = tokio::time::interval(Duration::from_millis(50));
        while usage::connections(target.gateway.mcp.port()) > 1 {
            pace.tick().await;
        }
    };
    within("the gateway to close the connections", closed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_without_a_reader_are_bounded() {
    const CALLS: usize = 1000;
    let target = Target::with(IMPATIENT).await;
    offers_long_results(&target, 64 << 10);
    let mut client = small_reader(target.gateway.mcp).await;
    // The gateway stops reading, and finally closes the connection.
    let _ = within(
        "the gateway to close",
        client.write_all(call("long").repeat(CALLS).as_bytes()),
    )
    .await;
    only_the_second_client_is_left(&target).await;
    let served = target
        .backend
        .received("tools/call")
        .iter()
        .filter(|call| call.text.contains("long"))
        .count();
    assert!(
        served < CALLS / 2,
        "{served} calls were made for a client that reads nothing"
    );
    target
        .withstood(Bounds {
            time: Bounds::SMALL.time * 2,
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_results_without_readers_are_given_up() {
    const CLIENTS: usize = 8;
    // More than the socket buffers hold.
    const LENGTH: usize = 4 * MIB;
    let target = Target::with(IMPATIENT).await;
    offers_long_results(&target, LENGTH);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = small_reader(target.gateway.mcp).await;
        client.write_all(call("long").as_bytes()).await.unwrap();
        clients.push(client);
    }
    target.backend.wait_for("tools/call", CLIENTS).await;
    only_the_second_client_is_left(&target).await;
    drop(clients);
    // Each result is in memory once, until the gateway gives up its connection.
    let memory = (CLIENTS * LENGTH * 3 / 2) as u64;
    let Bounds {
        processor,
        time,
        slowest_call,
        ..
    } = Bounds::SMALL;
    let bounds = Bounds {
        memory,
        processor: processor * 3,
        time: time * 3,
        slowest_call: slowest_call * 3,
    };
    target.withstood(bounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_methods_and_targets_are_refused() {
    let target = Target::start().await;
    let mcp = target.gateway.mcp;
    for line in [
        "TRACE /mcp HTTP/1.1",
        "CONNECT 127.0.0.1:22 HTTP/1.1",
        "CONNECT /mcp HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "POST http://evil.example/mcp HTTP/1.1",
        "POST //evil.example/mcp HTTP/1.1",
        "POST /mcp/../mcp HTTP/1.1",
        "POST /mcp/ HTTP/1.1",
        "POST /%6dcp HTTP/1.1",
        "POST /MCP HTTP/1.1",
        "POST /mcp#x HTTP/1.1",
        "POST \\mcp HTTP/1.1",
        "POST mcp HTTP/1.1",
        "post /mcp HTTP/1.1",
        "POST  /mcp HTTP/1.1",
        "POST /mcp HTTP/3.0",
        "POST /mcp HTTP/0.9",
        "POST /mcp",
        "PRI * HTTP/2.0",
        "\u{16}\u{3}\u{1}\u{2}",
    ] {
        let text = format!("{line}\r\n{}", call("odd").split_once("\r\n").unwrap().1);
        let mut connection = TcpStream::connect(mcp).await.unwrap();
        connection.write_all(text.as_bytes()).await.unwrap();
        connection.shutdown().await.unwrap();
        let mut received = Vec::new();
        let _ = within(
            "the gateway to answer",
            connection.read_to_end(&mut received),
        )
        .await;
        let received = String::from_utf8_lossy(&received);
        assert!(!received.starts_with("HTTP/1.1 2"), "{line} → {received}");
    }
    for path in [
        "/ui/..%2f..%2fetc%2fpasswd",
        "/ui/../../etc/passwd",
        "/ui/%2e%2e/app.js",
        "/ui/app.js%00.html",
        "/ui//",
    ] {
        let mut connection = Connection::open(target.gateway.admin).await;
        connection.request("GET", path, &[], b"").await;
        let status = connection.response().await.status;
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    let calls = target.backend.received("tools/call");
    assert!(
        calls
            .iter()
            .all(|call| call.member("params.name") == Some(r#""t""#)),
        "an odd request was served"
    );
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costly_header_values_cost_little() {
    let target = Target::start().await;
    let repeated = |part: &str| part.repeat(50_000 / part.len());
    for (name, value) in [
        ("Accept", repeated("*/*;q=0.1,")),
        ("Accept", repeated(";,/")),
        (
            "Content-Type",
            format!("application/json;{}", repeated("a=b;")),
        ),
        ("Cookie", repeated("a=b; ")),
        (
            "traceparent",
            repeated("00-0af7651916cd43dd8448eb211c80319c-"),
        ),
        ("tracestate", repeated("a=b,")),
        ("baggage", repeated("a=b,")),
        ("Mcp-Session-Id", repeated("x")),
        ("Mcp-Name", format!("=?base64?{}?=", repeated("eHh4"))),
        ("Mcp-Name", repeated("%41")),
        ("MCP-Protocol-Version", repeated("2026-07-28,")),
        ("Last-Event-ID", repeated("9")),
        ("Origin", format!("http://localhost:{}", repeated("1"))),
        ("Host", format!("127.0.0.1:{}", repeated("1"))),
        ("Connection", repeated("close, x, ")),
        ("TE", repeated("trailers, ")),
        ("Expect", repeated("100-continue")),
        ("Upgrade", repeated("h2c, websocket, ")),
    ] {
        let own = format!("{name}: {value}\r\n");
        let request = call("t");
        let (line, rest) = request.split_once("\r\n").unwrap();
        // The header replaces the usual one, if there is one.
        let usual = |line: &&str| {
            !line
                .to_ascii_lowercase()
                .starts_with(&format!("{}:", name.to_ascii_lowercase()))
        };
        let (head, body) = rest.split_once("\r\n\r\n").unwrap();
        let head: String = head
            .lines()
            .filter(usual)
            .map(|line| format!("{line}\r\n"))
            .collect();
        let mut connection = Connection::open(target.gateway.mcp).await;
        connection
            .send(format!("{line}\r\n{own}{head}\r\n{body}").as_bytes())
            .await
            .unwrap();
        let status = connection.response().await.status;
        assert!(status < 500, "{name}: {status}");
    }
    target.withstood(Bounds::SMALL).await;
}
