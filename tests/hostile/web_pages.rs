//! Web pages that reach a local gateway, and duplicate headers.

use std::sync::Arc;

use fanlight_testkit::slicer::member;

use crate::harness::Gateway;
use crate::raw_client::{
    Connection, JSON_HEADERS, LegacySession, NEWEST_LEGACY, legacy_request, modern_request, post,
};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};
use crate::target::{Bounds, Target};

type Headers<'a> = &'a [(&'a str, &'a str)];

async fn get(gateway: &Gateway, path: &str, headers: Headers<'_>) -> u16 {
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request(
            "GET",
            path,
            &[&[("Accept", "text/event-stream")], headers].concat(),
            b"",
        )
        .await;
    connection.response().await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_origins_open_no_stream_and_call_no_tool() {
    let target =
        Target::with(r#""allowedOrigins":["https://app.example","http://localhost:5173"]"#).await;
    let port = target.gateway.mcp.port();
    let own = format!("http://localhost:{port}");
    let foreign: [Headers<'_>; 12] = [
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "no-cors"),
            ("Sec-Fetch-Dest", "image"),
        ],
        &[("sec-fetch-site", "Cross-Site")],
        &[("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "cross-site")],
        &[("Origin", "https://evil.example")],
        &[("Origin", "http://localhost:3000")],
        &[
            ("Origin", "http://127.0.0.1:3000"),
            ("Sec-Fetch-Site", "same-site"),
        ],
        &[("Origin", "http://[::1]:1")],
        &[("Origin", "https://localhost:5173")],
        &[("Origin", "null")],
        &[
            ("Origin", "https://app.example"),
            ("Origin", "https://evil.example"),
        ],
    ];
    let call = modern_request("1", "tools/call", r#""name":"t""#, "");
    let own_headers = crate::raw_client::modern_headers(&call);
    let own_headers: Vec<(&str, &str)> = own_headers
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    for headers in foreign {
        assert_eq!(
            get(&target.gateway, "/sse", headers).await,
            403,
            "{headers:?}"
        );
        assert_eq!(
            get(&target.gateway, "/mcp", headers).await,
            403,
            "{headers:?}"
        );
        let response = post(target.gateway.mcp, &[&own_headers, headers].concat(), &call).await;
        assert_eq!(response.status, 403, "{headers:?}");
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
    let served: [Headers<'_>; 6] = [
        &[],
        &[("Sec-Fetch-Site", "none")],
        &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")],
        &[
            ("Origin", "https://app.example"),
            ("Sec-Fetch-Site", "cross-site"),
        ],
        &[
            ("Origin", "http://localhost:5173"),
            ("Sec-Fetch-Site", "same-site"),
        ],
        &[
            ("Origin", "http://127.0.0.1:5173"),
            ("Sec-Fetch-Site", "cross-site"),
        ],
    ];
    for headers in served {
        assert_eq!(
            get(&target.gateway, "/sse", headers).await,
            200,
            "{headers:?}"
        );
        assert_eq!(
            post(target.gateway.mcp, &[&own_headers, headers].concat(), &call)
                .await
                .status,
            200,
            "{headers:?}"
        );
    }
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn header_that_says_who_or_what_is_refused_if_it_is_there_twice() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let gateway = Gateway::start(&config(&[backend.entry("a")])).await;
    let (ann, bob) = (
        LegacySession::open(gateway.mcp).await,
        LegacySession::open(gateway.mcp).await,
    );
    let (ann, bob) = (
        ann.session.as_deref().unwrap(),
        bob.session.as_deref().unwrap(),
    );
    let version = ("MCP-Protocol-Version", NEWEST_LEGACY);
    let twice: [Headers<'_>; 6] = [
        &[version, ("Mcp-Session-Id", ann), ("Mcp-Session-Id", bob)],
        &[version, ("Mcp-Session-Id", ann), ("mcp-session-id", ann)],
        &[
            version,
            ("Mcp-Session-Id", ann),
            ("MCP-Protocol-Version", "2025-06-18"),
        ],
        &[version, version, ("Mcp-Session-Id", ann)],
        &[
            version,
            ("Mcp-Session-Id", ann),
            ("Authorization", "Bearer a"),
            ("Authorization", "Bearer b"),
        ],
        &[
            version,
            ("Mcp-Session-Id", ann),
            ("Last-Event-ID", "1"),
            ("Last-Event-ID", "2"),
        ],
    ];
    let list = legacy_request("1", "tools/list", "");
    let before = backend.received("tools/list").len();
    for headers in twice {
        let response = post(gateway.mcp, headers, &list).await;
        assert_eq!(response.status, 400, "POST {headers:?}");
        assert_eq!(get(&gateway, "/mcp", headers).await, 400, "GET {headers:?}");
        let mut connection = Connection::open(gateway.mcp).await;
        connection.request("DELETE", "/mcp", headers, b"").await;
        let status = connection.response().await.status;
        // DELETE reads neither a revision nor an event id.
        assert!(
            status == 400
                || headers
                    .iter()
                    .filter(|header| header.0.eq_ignore_ascii_case("mcp-protocol-version"))
                    .count()
                    > 1
        );
    }
    assert_eq!(backend.received("tools/list").len(), before);
    let modern = modern_request("1", "tools/call", r#""name":"t""#, "");
    let standard = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "t"),
    ];
    for doubled in standard {
        let answer = post(gateway.mcp, &[&standard[..], &[doubled]].concat(), &modern)
            .await
            .text()
            .await;
        assert!(member(&answer, "error").is_some(), "{doubled:?}: {answer}");
    }
    assert!(backend.received("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_context_of_untrusted_clients_reaches_no_server() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (trust, passes) in [("link", false), ("ignore", false), ("true", true)] {
        for transport in [Transport::Http, Transport::Stdio] {
            let backend = Backend::start(Era::Modern, transport).await;
            backend.offers_tools(&["t"]);
            backend.on(
                "tools/call",
                Reply::result(Era::Modern.complete(r#""content":[]"#)),
            );
            let entry = backend.entry("a");
            let config = format!(
                r#"{{"mcpServers":{{{entry}}},"telemetry":{{"trustInbound":{}}}}}"#,
                match trust {
                    "true" => "true".to_owned(),
                    other => format!("{other:?}"),
                }
            );
            let gateway = Gateway::start(&config).await;
            let meta = format!(
                r#""traceparent":"{PARENT}","tracestate":"vendor=secret","bagg\u0061ge":"user=root","k":1"#
            );
            let call = modern_request("1", "tools/call", r#""name":"t""#, &meta);
            let mut headers = JSON_HEADERS[..0].to_vec();
            headers.extend([
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", "t"),
            ]);
            headers.extend([
                ("traceparent", PARENT),
                ("tracestate", "vendor=secret"),
                ("baggage", "user=root"),
            ]);
            assert_eq!(post(gateway.mcp, &headers, &call).await.status, 200);
            let received = &backend.received("tools/call")[0];
            let sent = |name: &str| {
                received.header(name).is_some()
                    || received.member_at(&["params", "_meta", name]).is_some()
            };
            assert_eq!(
                sent("baggage") || received.text.contains("user=root"),
                passes,
                "{trust}: {}",
                received.text
            );
            assert_eq!(
                sent("tracestate") && received.text.contains("secret"),
                passes,
                "{trust}: {}",
                received.text
            );
            assert_eq!(
                received.text.contains(PARENT),
                passes,
                "{trust}: {}",
                received.text
            );
            assert_eq!(received.member_at(&["params", "_meta", "k"]), Some("1"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_context_in_notifications_and_answers_of_untrusted_clients_reaches_no_server() {
    const META: &str = r#""_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","baggage":"user=root","k":1}"#;
    for (trust, passes) in [("\"ignore\"", false), ("true", true)] {
        let backend = Backend::start(Era::Legacy, Transport::Http).await;
        backend.offers_tools(&["t"]);
        let question = r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#;
        let conclude = |_: &Received, answers: &[Arc<Received>]| {
            format!(r#"{{"content":[],"answer":{}}}"#, answers[0].text)
        };
        backend.on("tools/call", Reply::conclude(conclude).asking(&[question]));
        let entry = backend.entry("a");
        let gateway = Gateway::start(&format!(
            r#"{{"mcpServers":{{{entry}}},"telemetry":{{"trustInbound":{trust}}}}}"#
        ))
        .await;
        let session = LegacySession::open_with(gateway.mcp, NEWEST_LEGACY, r#"{"roots":{}}"#).await;
        let mut call = session
            .post(&legacy_request("1", "tools/call", r#""name":"t""#))
            .await;
        let asked = call.event().await.unwrap().expect("a question");
        let id = member(&asked, "id").unwrap();
        session
            .post(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[],{META}}}}}"#
            ))
            .await;
        let answer = call.text().await;
        session
            .post(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/acme","params":{{{META}}}}}"#
            ))
            .await;
        let noted = backend.wait_for("notifications/acme", 1).await;
        for text in [&answer, &noted[0].text] {
            assert_eq!(text.contains("user=root"), passes, "{text}");
            assert_eq!(text.contains("4bf92f3577b34da6"), passes, "{text}");
            assert!(text.contains(r#""k":1"#), "{text}");
        }
    }
}
