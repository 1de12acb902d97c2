//! Clients that make the gateway keep as many of their bytes as possible: unfinished bodies, bodies
//! of calls that hang, lines of stdio clients, descriptions in sessions.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_testkit::slicer::member;
use fanlight_testkit::usage;
use tokio::task::JoinSet;

use crate::harness::{Gateway, within};
use crate::peers::{NOISY, OTHER as OTHER_PEER, request_from, session_from};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, LISTEN, NEWEST_LEGACY, Response, StdioClient,
    initialize, legacy_request, modern_headers, modern_request, post_modern_on,
};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};
use crate::target::{Bounds, Target};

const MIB: usize = 1 << 20;
const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// A call of `tool` with this many bytes of arguments.
fn call_of(tool: &str, bytes: usize) -> String {
    let params = format!(
        r#""name":"{tool}","arguments":{{"x":"{}"}}"#,
        "x".repeat(bytes)
    );
    modern_request("1", "tools/call", &params, "")
}

/// Sends the head of a call of `tool` and a part of its body.
async fn begin(connection: &mut Connection, tool: &str, framing: (&str, &str), part: &[u8]) {
    // The headers come from a small call, since reading a long one takes time here.
    let own = modern_headers(&call_of(tool, 0));
    let mut headers = JSON_HEADERS.to_vec();
    headers.extend(
        own.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    headers.push(framing);
    let head = connection.head("POST", "/mcp", &headers);
    // The gateway may refuse it before it has read everything.
    let _ = connection.send(&head).await;
    let _ = connection.send(part).await;
}

/// Sends a whole call of `tool` with this many bytes of arguments.
async fn send_from(local: IpAddr, gateway: SocketAddr, tool: &str, bytes: usize) -> Connection {
    let mut connection = Connection::open_from(local, gateway).await;
    let body = call_of(tool, bytes);
    let length = body.len().to_string();
    begin(
        &mut connection,
        tool,
        ("Content-Length", &length),
        body.as_bytes(),
    )
    .await;
    connection
}

async fn assert_busy(mut response: Response) {
    assert_eq!(response.status, 503);
    assert_eq!(response.header("retry-after"), Some("1"));
    let text = response.text().await;
    assert_eq!(member(&text, "error.code"), Some("-32603"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_bodies_are_bounded_and_leave_memory_to_others() {
    const LENGTH: &str = "15000000";
    const SENT: usize = 2 * MIB;
    let target = Target::with(r#""x-limits":"requestMemory=32MiB""#).await;
    let gateway = target.gateway.mcp;
    let body = call_of("t", SENT);
    let part: Arc<[u8]> = body.as_bytes()[..SENT].into();
    let chunk: Arc<[u8]> = format!("{SENT:x}\r\n{}\r\n", &body[..SENT])
        .into_bytes()
        .into();
    let mut attempts = JoinSet::new();
    for attempt in 0..60 {
        let (part, chunk) = (Arc::clone(&part), Arc::clone(&chunk));
        attempts.spawn(async move {
            let mut connection = Connection::open_from(ATTACKER, gateway).await;
            match attempt % 2 {
                0 => begin(&mut connection, "t", ("Content-Length", LENGTH), &part).await,
                _ => {
                    begin(
                        &mut connection,
                        "t",
                        ("Transfer-Encoding", "chunked"),
                        &chunk,
                    )
                    .await;
                }
            }
            assert_busy(connection.response().await).await;
        });
    }
    for refused in 0..50 {
        within(&format!("refusal {refused}"), attempts.join_next())
            .await
            .unwrap()
            .unwrap();
    }
    let mut response = send_from(OTHER, gateway, "t", 3 * MIB)
        .await
        .response()
        .await;
    assert!(
        member(&response.text().await, "result.content").is_some(),
        "another client has its share"
    );
    attempts.shutdown().await;
    target
        .withstood(Bounds {
            memory: 64 << 20,
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_hanging_calls_count_until_the_calls_end() {
    let target = Target::with(r#""x-limits":"requestMemory=32MiB""#).await;
    target
        .backend
        .on_target("tools/call", "hang", Reply::fault(Fault::Hang));
    let gateway = target.gateway.mcp;
    let mut hanging = Vec::new();
    for count in 1..=3 {
        hanging.push(send_from(ATTACKER, gateway, "hang", 4 * MIB).await);
        target
            .backend
            .wait_for_target("tools/call", "hang", count)
            .await;
    }
    assert_busy(
        send_from(ATTACKER, gateway, "t", 5 * MIB)
            .await
            .response()
            .await,
    )
    .await;
    drop(hanging);
    // The gateway soon notices the end of the connections.
    for attempt in 0.. {
        let mut response = send_from(ATTACKER, gateway, "t", 5 * MIB)
            .await
            .response()
            .await;
        if response.status == 200 {
            assert!(member(&response.text().await, "result.content").is_some());
            break;
        }
        assert!(attempt < 100, "the memory was not given back");
    }
    target
        .withstood(Bounds {
            memory: 96 << 20,
            time: Duration::from_secs(20),
            processor: Duration::from_secs(10),
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_a_stdio_client_are_bounded_together() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend.on_target("tools/call", "hang", Reply::fault(Fault::Hang));
    let entry = backend.entry("only");
    let mut gateway = Gateway::stdio(&format!(
        r#"{{"mcpServers":{{{entry}}},"x-limits":"requestMemory=4MiB"}}"#
    ));
    let mut client = StdioClient::new(&mut gateway);
    let call = |id: u32, tool: &str, bytes: usize| {
        call_of(tool, bytes).replacen(r#""id":1"#, &format!(r#""id":{id}"#), 1)
    };
    client.send(&call(1, "hang", MIB)).await;
    backend.wait_for("tools/call", 1).await;
    for id in 2..6 {
        let (_, refused) = client.call(&call(id, "t", 2 * MIB)).await;
        assert_eq!(member(&refused, "error.code"), Some("-32603"), "{refused}");
        assert!(refused.contains("memory"), "{refused}");
    }
    let (_, answer) = client.call(&call(7, "t", 100)).await;
    assert!(member(&answer, "result.content").is_some(), "{answer}");
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    backend.wait_abandoned("tools/call").await;
    let (_, answer) = client.call(&call(8, "t", 2 * MIB)).await;
    assert!(member(&answer, "result.content").is_some(), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptions_of_clients_are_bounded_in_sum() {
    const SIZE: usize = 100 << 10;
    let target = Target::with(r#""x-limits":"clientDescriptions=2MiB""#).await;
    let gateway = target.gateway.mcp;
    let capabilities = |size: usize| {
        format!(
            r#"{{"experimental":{{"x":{{"x":"{}"}}}}}}"#,
            "x".repeat(size)
        )
    };
    let open = async |local: IpAddr, size: usize| {
        let mut connection = Connection::open_from(local, gateway).await;
        let body = initialize(NEWEST_LEGACY, &capabilities(size));
        connection
            .request("POST", "/mcp", &JSON_HEADERS, body.as_bytes())
            .await;
        let mut response = connection.response().await;
        (
            response.status,
            response.header("mcp-session-id").map(str::to_owned),
            response.text().await,
        )
    };
    let before = usage::resident_memory(target.gateway.pid());
    let mut opened = 0;
    for _ in 0..200 {
        match open(ATTACKER, SIZE).await {
            (200, Some(_), _) => opened += 1,
            (status, session, text) => {
                assert_eq!((status, session), (503, None), "{text}");
                assert_eq!(member(&text, "id"), Some("0"), "{text}");
            }
        }
    }
    assert!((5..=10).contains(&opened), "{opened} sessions");
    let (status, session, text) = open(OTHER, 64 << 10).await;
    assert!(status == 200 && session.is_some(), "{text}");
    let grown = usage::resident_memory(target.gateway.pid()).saturating_sub(before);
    assert!(grown < 24 << 20, "{grown} bytes");
    target
        .withstood(Bounds {
            processor: Duration::from_secs(10),
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_of_a_session_count_and_leave_memory_to_others() {
    const SIZE: usize = 40 << 10;
    let old = Backend::start(Era::Legacy, Transport::Http).await;
    old.declares(r#"{"resources":{"subscribe":true}}"#);
    old.on("resources/subscribe", Reply::result("{}"));
    old.on("resources/unsubscribe", Reply::result("{}"));
    let target = Target::beside_with(
        &old.entry_with("old", r#""session":"shared""#),
        r#""x-limits":"clientDescriptions=2MiB""#,
    )
    .await;
    let gateway = target.gateway.mcp;
    let change = |method: &str, number: usize, more: &str| {
        let uri = format!("file:///{number}/{}", "x".repeat(SIZE));
        let params = format!(r#""uri":"{uri}","more":"{more}""#);
        legacy_request("1", method, &params)
    };
    let noisy = session_from(NOISY, gateway).await;
    let mut accepted = Vec::new();
    for number in 0..30 {
        let body = change("resources/subscribe", number, &"x".repeat(SIZE));
        let answer = request_from(NOISY, gateway, "POST /mcp", &noisy, &body).await;
        match answer.contains(" 200 ") {
            true => accepted.push(number),
            false => assert!(
                answer.contains(" 503 ") && answer.contains("-32603"),
                "{answer}"
            ),
        }
    }
    assert!((3..=8).contains(&accepted.len()), "{accepted:?}");
    assert_eq!(old.received("resources/subscribe").len(), accepted.len());
    let other = session_from(OTHER_PEER, gateway).await;
    let body = change("resources/subscribe", 99, "");
    let answer = request_from(OTHER_PEER, gateway, "POST /mcp", &other, &body).await;
    assert!(
        answer.contains(" 200 "),
        "another client has its share: {answer}"
    );
    for number in &accepted[..2] {
        let body = change("resources/unsubscribe", *number, "");
        request_from(NOISY, gateway, "POST /mcp", &noisy, &body).await;
    }
    let body = change("resources/subscribe", 31, "");
    let answer = request_from(NOISY, gateway, "POST /mcp", &noisy, &body).await;
    assert!(answer.contains(" 200 "), "memory was given back: {answer}");
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_filters_of_subscriptions_count_until_they_end() {
    const URI: usize = 50_000;
    let server = Backend::start(Era::Modern, Transport::Http).await;
    server.declares(r#"{"resources":{"subscribe":true}}"#);
    server.on(LISTEN, Reply::listening());
    let target =
        Target::beside_with(&server.entry("new"), r#""x-limits":"requestMemory=16MiB""#).await;
    let gateway = target.gateway.mcp;
    let listen = async |local: IpAddr, number: usize| {
        let uris: Vec<String> = (0..40)
            .map(|part| format!(r#""file:///{number}/{part}/{}""#, "x".repeat(URI)))
            .collect();
        let params = format!(
            r#""notifications":{{"resourceSubscriptions":[{}]}}"#,
            uris.join(",")
        );
        let body = modern_request("1", LISTEN, &params, "");
        post_modern_on(Connection::open_from(local, gateway).await, &body).await
    };
    let mut open = Vec::new();
    for number in 0..12 {
        let response = listen(ATTACKER, number).await;
        match response.status {
            200 => open.push(response),
            _ => assert_busy(response).await,
        }
    }
    assert!(
        (2..=4).contains(&open.len()),
        "{} subscriptions",
        open.len()
    );
    assert_eq!(
        listen(OTHER, 99).await.status,
        200,
        "another client has its share"
    );
    target
        .withstood(Bounds {
            memory: 128 << 20,
            processor: Duration::from_secs(20),
            time: Duration::from_secs(30),
            slowest_call: Duration::from_secs(10),
        })
        .await;
}

/// Everything that clients and servers make the gateway keep, from 150 addresses: descriptions,
/// subscriptions, filters, answers kept for resumption, tasks, cached results, suspended calls,
/// invented names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly"]
async fn tables_at_their_bounds_fit_in_the_memory_of_the_configuration() {
    const CLIENTS: u8 = 150;
    let old = Backend::start(Era::Legacy, Transport::Http).await;
    let new = Backend::start(Era::Modern, Transport::Http).await;
    fill_from_servers(&old, &new);
    let entries = format!("{},{}", old.entry("old"), new.entry("new"));
    let target = Target::beside_with(&entries, r#""limits":{"memory":"128MiB"}"#).await;
    let gateway = target.gateway.mcp;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(fill_from(number, gateway));
    }
    let kept = clients.join_all().await;
    assert!((50..600).contains(&old.received("resources/subscribe").len()));
    assert!(new.received("resources/read").len() > 150);
    target
        .withstood(Bounds {
            memory: 128 << 20,
            time: Duration::from_secs(300),
            processor: Duration::from_secs(200),
            slowest_call: Duration::from_secs(10),
        })
        .await;
    drop(kept);
}

fn fill_from_servers(old: &Backend, new: &Backend) {
    old.declares(
        r#"{"tools":{},"resources":{"subscribe":true},"tasks":{"requests":{"tools":{"call":{}}}}}"#,
    );
    old.offers_tools(&["long", "task"]);
    old.on("resources/subscribe", Reply::result("{}"));
    let long = format!(
        r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#,
        "x".repeat(80 << 10)
    );
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}"#;
    old.on_target("tools/call", "long", Reply::result(long).after(&[progress]));
    let made = AtomicUsize::new(0);
    old.on_target(
        "tools/call",
        "task",
        Reply::compute(move |_| {
            let id = made.fetch_add(1, Ordering::Relaxed);
            format!(
                r#"{{"task":{{"taskId":"{id}{}","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000}}}}"#,
                "x".repeat(900)
            )
        }),
    );
    new.declares(r#"{"tools":{},"resources":{"subscribe":true}}"#);
    new.offers_tools(&["t"]);
    new.on(LISTEN, Reply::listening());
    let text = "x".repeat(100 << 10);
    new.on(
        "resources/read",
        Reply::compute(move |request| {
            let uri = request.member("params.uri").unwrap();
            format!(
                r#"{{"resultType":"complete","contents":[{{"uri":{uri},"text":"{text}"}}],"ttlMs":600000,"cacheScope":"public"}}"#
            )
        }),
    );
}

/// Makes the gateway keep what one client can, in moderation; returns what stays open.
async fn fill_from(number: u8, gateway: SocketAddr) -> Vec<Response> {
    let from = [127, 0, 1, number];
    let capabilities = format!(
        r#"{{"experimental":{{"x":{{"x":"{}"}}}}}}"#,
        "x".repeat(24 << 10)
    );
    let opened = request_from(
        from,
        gateway,
        "POST /mcp",
        &[],
        &initialize(NEWEST_LEGACY, &capabilities),
    )
    .await;
    let id = opened
        .lines()
        .find_map(|line| line.strip_prefix("mcp-session-id: "));
    if let Some(id) = id {
        let session = [
            ("MCP-Protocol-Version".to_owned(), NEWEST_LEGACY.to_owned()),
            ("Mcp-Session-Id".to_owned(), id.trim().to_owned()),
        ];
        let post =
            async |body: String| request_from(from, gateway, "POST /mcp", &session, &body).await;
        post(INITIALIZED.to_owned()).await;
        for part in 0..4 {
            let uri = format!("file:///{number}/{part}/{}", "x".repeat(8 << 10));
            post(legacy_request(
                "1",
                "resources/subscribe",
                &format!(r#""uri":"{uri}""#),
            ))
            .await;
            let task = r#""name":"old__task","task":{}"#;
            post(legacy_request("2", "tools/call", task)).await;
        }
        for _ in 0..2 {
            post(legacy_request("3", "tools/call", r#""name":"old__long""#)).await;
        }
    }
    let mut kept = Vec::new();
    let mut modern = async |method: &str, params: &str| {
        let body = modern_request("1", method, params, "");
        let connection = Connection::open_from(from.into(), gateway).await;
        let mut response = post_modern_on(connection, &body).await;
        match method {
            LISTEN => kept.push(response),
            _ => _ = response.bytes().await,
        }
    };
    for part in 0..2 {
        modern(
            "resources/read",
            &format!(r#""uri":"made://{number}/{part}""#),
        )
        .await;
        modern(
            "tools/call",
            &format!(r#""name":"{number}{part}{}""#, "x".repeat(2000)),
        )
        .await;
    }
    let uris = format!(r#""made://{number}/{}""#, "x".repeat(40 << 10));
    let filter = format!(r#""notifications":{{"resourceSubscriptions":[{uris}]}}"#);
    modern(LISTEN, &filter).await;
    kept
}
