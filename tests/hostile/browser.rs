//! A web page in the browser of somebody who runs a gateway locally. Foreign origins and DNS
//! rebinding make the browser send a foreign `Host` to a loopback address.

use std::net::SocketAddr;

use crate::raw_client::{Connection, MODERN, modern_request};
use crate::target::{Bounds, Target};

const ADMIN_DATA: [&str; 7] = [
    "/api/overview",
    "/api/traces",
    "/api/catalogue",
    "/api/sessions",
    "/api/config",
    "/api/events",
    "/metrics",
];

async fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Vec<(String, String)>) {
    let mut connection = Connection::open(address).await;
    connection
        .request(method, path, headers, body.as_bytes())
        .await;
    let response = connection.response().await;
    (response.status, response.headers)
}

fn call() -> String {
    modern_request("1", "tools/call", r#""name":"rebound""#, "")
}

/// The headers of a permitted call, and further ones.
fn call_headers<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "rebound"),
    ];
    headers.extend_from_slice(more);
    headers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebound_names_are_refused_everywhere() {
    let target = Target::start().await;
    let (mcp, admin) = (target.gateway.mcp, target.gateway.admin);
    let ports = [mcp.port(), admin.port()].map(|port| port.to_string());
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "0.0.0.0",
        "[::ffff:8.8.8.8]",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "",
    ] {
        for port in &ports {
            let host = format!("{host}:{port}");
            let refused = |status: u16| matches!(status, 400 | 403);
            let (status, _) = request(
                mcp,
                "POST",
                "/mcp",
                &call_headers(&[("Host", &host)]),
                &call(),
            )
            .await;
            assert!(refused(status), "POST /mcp with Host: {host}: {status}");
            for path in ["/mcp", "/sse"] {
                let headers = [("Host", host.as_str()), ("Accept", "text/event-stream")];
                let (status, _) = request(mcp, "GET", path, &headers, "").await;
                assert!(refused(status), "GET {path} with Host: {host}: {status}");
            }
            for path in ADMIN_DATA {
                let (status, _) = request(admin, "GET", path, &[("Host", &host)], "").await;
                assert!(refused(status), "GET {path} with Host: {host}: {status}");
            }
            let json = [
                ("Host", host.as_str()),
                ("Content-Type", "application/json"),
            ];
            let (status, _) =
                request(admin, "POST", "/api/call", &json, r#"{"method":"ping"}"#).await;
            assert!(
                refused(status),
                "POST /api/call with Host: {host}: {status}"
            );
        }
    }
    let calls = target.backend.received("tools/call");
    assert!(
        calls
            .iter()
            .all(|call| call.member("params.name") == Some(r#""t""#))
    );
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_pages_are_refused_everywhere() {
    let target = Target::start().await;
    let (mcp, admin) = (target.gateway.mcp, target.gateway.admin);
    for origin in [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://evil.example:8080",
        "http://127.0.0.1@evil.example",
        "null",
        "file://",
        "chrome-extension://abcdef",
        "",
    ] {
        let (status, headers) = request(
            mcp,
            "POST",
            "/mcp",
            &call_headers(&[("Origin", origin)]),
            &call(),
        )
        .await;
        assert_eq!(status, 403, "POST /mcp with Origin: {origin}");
        assert!(
            headers
                .iter()
                .all(|(name, _)| !name.starts_with("access-control-")),
            "{origin}: {headers:?}"
        );
        let preflight = [
            ("Origin", origin),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "content-type, mcp-method"),
        ];
        for (address, path) in [
            (mcp, "/mcp"),
            (mcp, "/sse"),
            (admin, "/api/call"),
            (admin, "/api/overview"),
        ] {
            let (status, headers) = request(address, "OPTIONS", path, &preflight, "").await;
            assert!(
                status >= 400,
                "OPTIONS {path} with Origin: {origin}: {status}"
            );
            assert!(
                headers
                    .iter()
                    .all(|(name, _)| !name.starts_with("access-control-")),
                "{origin}: {headers:?}"
            );
        }
        for path in ADMIN_DATA
            .into_iter()
            .filter(|path| path.starts_with("/api/"))
        {
            assert_eq!(
                request(admin, "GET", path, &[("Origin", origin)], "")
                    .await
                    .0,
                403,
                "{path} {origin}"
            );
        }
        let json = [("Origin", origin), ("Content-Type", "application/json")];
        let (status, _) = request(admin, "POST", "/api/call", &json, r#"{"method":"ping"}"#).await;
        assert_eq!(status, 403, "POST /api/call with Origin: {origin}");
    }
    // Requests that a page may send without a preflight; a GET has no `Origin`.
    for site in ["cross-site", "same-site"] {
        for path in ADMIN_DATA
            .into_iter()
            .filter(|path| path.starts_with("/api/"))
        {
            assert_eq!(
                request(admin, "GET", path, &[("Sec-Fetch-Site", site)], "")
                    .await
                    .0,
                403,
                "{path} {site}"
            );
        }
    }
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let (status, _) = request(
            admin,
            "POST",
            "/api/call",
            &[("Content-Type", content_type)],
            r#"{"method":"ping"}"#,
        )
        .await;
        assert!(
            matches!(status, 400 | 403 | 415),
            "POST /api/call with {content_type}: {status}"
        );
        let mut headers = call_headers(&[]);
        headers[0] = ("Content-Type", content_type);
        assert_eq!(
            request(mcp, "POST", "/mcp", &headers, &call()).await.0,
            415,
            "{content_type}"
        );
    }
    let calls = target.backend.received("tools/call");
    assert!(
        calls
            .iter()
            .all(|call| call.member("params.name") == Some(r#""t""#))
    );
    target.withstood(Bounds::SMALL).await;
}
