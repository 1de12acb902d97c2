//! One client address that takes everything of a resource, while another one wants its share.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fanlight_testkit::slicer::member;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Gateway, within};
use crate::raw_client::{
    INITIALIZED, LegacySession, initialize, legacy_request, modern_headers, modern_request_with,
    post_modern,
};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::target::{Bounds, Target};

pub(crate) const NOISY: [u8; 4] = [127, 0, 0, 2];
pub(crate) const OTHER: [u8; 4] = [127, 0, 0, 3];

pub(crate) async fn connect_from(peer: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // A small buffer lets a client that does not read block the gateway soon.
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(peer), 0)).unwrap();
    within("a connection", socket.connect(to)).await.unwrap()
}

/// Sends a request on its own connection from this address; returns the whole response.
pub(crate) async fn request_from(
    peer: [u8; 4],
    to: SocketAddr,
    method_and_path: &str,
    headers: &[(String, String)],
    body: &str,
) -> String {
    let mut connection = connect_from(peer, to).await;
    let more: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let text = format!(
        "{method_and_path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(text.as_bytes()).await.unwrap();
    let mut response = String::new();
    within("a response", connection.read_to_string(&mut response))
        .await
        .unwrap();
    response
}

/// Opens a legacy session from this address; returns its request headers.
pub(crate) async fn session_from(peer: [u8; 4], to: SocketAddr) -> Vec<(String, String)> {
    let opened = request_from(peer, to, "POST /mcp", &[], &initialize("2025-11-25", "{}")).await;
    let id = opened
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "))
        .unwrap_or_else(|| panic!("{opened}"));
    let headers = [
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Mcp-Session-Id", id.trim()),
    ];
    let headers = headers
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    request_from(peer, to, "POST /mcp", &headers, INITIALIZED).await;
    headers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_of_one_address_leave_others_served() {
    for from in [NOISY, [127, 0, 0, 1]] {
        let target = Target::with(r#""limits":{"connections":16}"#).await;
        let mut held = Vec::new();
        for number in 0..64 {
            let mut connection = connect_from(from, target.gateway.mcp).await;
            // Nothing, a part of a head, or a part of an HTTP/2 head.
            let begun: &[u8] = [
                &b""[..],
                b"POST /mcp HTTP/1.1\r\nHost: x",
                b"PRI * HTTP/2.0\r\n",
            ][number % 3];
            let _ = connection.write_all(begun).await;
            held.push(connection);
        }
        for _ in 0..8 {
            let call = crate::raw_client::modern_request("1", "tools/call", r#""name":"t""#, "");
            let headers = modern_headers(&call);
            let response =
                request_from(OTHER, target.gateway.mcp, "POST /mcp", &headers, &call).await;
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        }
        target.withstood(Bounds::SMALL).await;
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_of_connections_holds_for_each_address() {
    let target = Target::with(r#""x-limits":"peerConnections=4""#).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(connect_from(NOISY, target.gateway.mcp).await);
    }
    let mut open = 0;
    for connection in &mut held {
        let closed =
            tokio::time::timeout(Duration::from_millis(100), connection.read(&mut [0])).await;
        open += usize::from(closed.is_err());
    }
    assert!(open <= 4, "{open} are open");
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_sessions_of_one_address_end_none_of_another() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["t"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let text = format!(
        r#"{{"mcpServers":{{{}}},"limits":{{"sessions":8}},"x-limits":"backendSessions=4"}}"#,
        backend.entry("a")
    );
    let gateway = Gateway::start(&text).await;
    let victim = LegacySession::open(gateway.mcp).await;
    let call = legacy_request("1", "tools/call", r#""name":"t""#);
    assert_eq!(victim.post(&call).await.status, 200);
    for _ in 0..24 {
        let headers = session_from(NOISY, gateway.mcp).await;
        assert!(
            request_from(NOISY, gateway.mcp, "POST /mcp", &headers, &call)
                .await
                .starts_with("HTTP/1.1 200")
        );
    }
    assert_eq!(
        victim.post(&call).await.status,
        200,
        "its session has ended"
    );
    let calls = backend.received("tools/call");
    let session = |at: usize| calls[at].header("mcp-session-id").map(str::to_owned);
    assert!(session(0).is_some());
    assert_eq!(
        session(0),
        session(calls.len() - 1),
        "its session at the server has ended"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_calls_of_one_address_leave_some_to_others() {
    const CAPABILITIES: &str = r#"{"roots":{}}"#;
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["t", "ask"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let ask = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
    backend.on_target(
        "tools/call",
        "ask",
        Reply::conclude(|_, _| r#"{"content":[],"done":1}"#.to_owned()).asking(&[ask]),
    );
    let target = Target::serve(backend, r#""x-limits":"suspendedCalls=4""#).await;
    let request = |more: &str| {
        modern_request_with(
            CAPABILITIES,
            "1",
            "tools/call",
            &format!(r#""name":"ask"{more}"#),
            "",
        )
    };
    for _ in 0..12 {
        let call = request("");
        request_from(
            NOISY,
            target.gateway.mcp,
            "POST /mcp",
            &modern_headers(&call),
            &call,
        )
        .await;
    }
    let (_, suspended) = post_modern(target.gateway.mcp, &request(""))
        .await
        .messages()
        .await;
    let state = member(&suspended, "result.requestState").unwrap_or_else(|| panic!("{suspended}"));
    let inputs = member(&suspended, "result.inputRequests").unwrap();
    let key = inputs.split('"').nth(1).unwrap();
    let retry = format!(r#","requestState":{state},"inputResponses":{{"{key}":{{"roots":[]}}}}"#);
    let (_, done) = post_modern(target.gateway.mcp, &request(&retry))
        .await
        .messages()
        .await;
    assert_eq!(member(&done, "result.done"), Some("1"), "{done}");
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_told_whatever_is_connected_to_the_admin_listener() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let entries = config(&[backend.entry("a")]);
    let text = format!(
        r#"{},"x-limits":"adminConnections=6,adminFollowers=32"}}"#,
        entries.strip_suffix('}').unwrap()
    );
    let gateway = Gateway::start(&text).await;
    let get = async |path: &str| {
        request_from(OTHER, gateway.admin, &format!("GET {path}"), &[], "").await
    };
    let mut held = Vec::new();
    for number in 0..128 {
        let mut connection = connect_from(NOISY, gateway.admin).await;
        let begun: &[u8] = if number % 2 == 0 {
            b""
        } else {
            b"GET /healthz HTTP/1.1\r\n"
        };
        let _ = connection.write_all(begun).await;
        held.push(connection);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let response = get(path).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
    }
    // The gateway does not end connections with a request for others, but reserves some for health
    // checks.
    let mut streams = Vec::new();
    for last in 10..16 {
        let mut stream = connect_from([127, 0, 0, last], gateway.admin).await;
        let request = format!(
            "GET /api/events HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n",
            gateway.admin
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        within("a response", stream.read_exact(&mut status))
            .await
            .unwrap();
        assert_eq!(&status, b"HTTP/1.1 200", "{last}");
        streams.push(stream);
    }
    for _ in 0..12 {
        let response = get("/healthz").await;
        assert!(
            response.starts_with("HTTP/1.1 200") && response.ends_with("ok"),
            "{response}"
        );
    }
    assert!(get("/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get("/metrics").await.starts_with("HTTP/1.1 503"));
    drop(streams);
    drop(held);
}
