//! The client's address behind trusted proxies: in traces and in shares of limits.

use crate::harness::Gateway;
use crate::raw_client::{Connection, JSON_HEADERS, initialize, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const TRUSTED: &str = r#""trustedProxies":["127.0.0.0/8"],"x-limits":"peerSessions=2","#;

async fn gateway(options: &str) -> (Gateway, Backend) {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let text = format!("{{{options}{}", &config(&[backend.entry("only")])[1..]);
    (Gateway::start(&text).await, backend)
}

async fn call(gateway: &Gateway, headers: &[(&str, &str)]) -> u16 {
    let body = modern_request("1", "tools/call", r#""name":"t""#, "");
    let own = modern_headers(&body);
    let mut all = JSON_HEADERS.to_vec();
    all.extend(
        own.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    all.extend_from_slice(headers);
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/mcp", &all, body.as_bytes())
        .await;
    let mut response = connection.response().await;
    response.text().await;
    response.status
}

/// The newest trace with a call, as OTLP-JSON.
async fn newest_call(gateway: &Gateway) -> String {
    let get = async |path: &str| {
        let mut connection = Connection::open(gateway.admin).await;
        connection.request("GET", path, &[], b"").await;
        connection.response().await.text().await
    };
    let traces = get("/api/traces?tool=t&limit=1").await;
    let (_, id) = traces
        .split_once(r#""traceId":"#)
        .unwrap_or_else(|| panic!("no trace in {traces}"));
    let id = id.trim_start().trim_start_matches('"');
    get(&format!("/api/traces/{}", &id[..32])).await
}

#[tokio::test]
async fn address_in_traces_is_the_clients() {
    let (gateway, _backend) = gateway(TRUSTED).await;
    for (headers, address) in [
        (
            &[("X-Forwarded-For", "1.1.1.1, 192.0.2.7, 127.0.0.9")][..],
            "192.0.2.7",
        ),
        (
            &[(
                "Forwarded",
                "for=1.1.1.1;proto=https, for=\"[2001:db8::7]:99\"",
            )],
            "2001:db8::7",
        ),
        (&[("X-Forwarded-For", "garbage")], "127.0.0.1"),
        (
            &[
                ("X-Forwarded-For", "192.0.2.7"),
                ("Forwarded", "for=192.0.2.8"),
            ],
            "127.0.0.1",
        ),
    ] {
        assert_eq!(call(&gateway, headers).await, 200);
        let trace = newest_call(&gateway).await;
        assert!(
            trace.contains(&format!(r#""{address}""#)),
            "{address}: {trace}"
        );
        assert!(!trace.contains("1.1.1.1"), "{trace}");
    }
}

#[tokio::test]
async fn headers_of_others_are_not_read() {
    let (gateway, _backend) = gateway("").await;
    assert_eq!(
        call(
            &gateway,
            &[
                ("X-Forwarded-For", "192.0.2.7"),
                ("Forwarded", "for=192.0.2.7")
            ]
        )
        .await,
        200
    );
    let trace = newest_call(&gateway).await;
    assert!(
        !trace.contains("192.0.2.7") && trace.contains(r#""127.0.0.1""#),
        "{trace}"
    );
}

/// A proxy's statements about scheme and host never count.
#[tokio::test]
async fn host_and_origin_are_those_of_the_request() {
    let (gateway, _backend) = gateway(TRUSTED).await;
    let forwarded = ("Forwarded", "for=192.0.2.7;host=localhost;proto=https");
    let x = ("X-Forwarded-Host", "localhost");
    assert_eq!(
        call(&gateway, &[("Host", "evil.example.com"), forwarded, x]).await,
        403
    );
    assert_eq!(
        call(
            &gateway,
            &[("Origin", "https://evil.example.com"), forwarded, x]
        )
        .await,
        403
    );
}

/// The limit is two sessions per address; a client that invents addresses gets no more.
#[tokio::test]
async fn sessions_are_shared_by_the_clients_address() {
    let (gateway, _backend) = gateway(TRUSTED).await;
    let open = async |forwarded: &str| {
        let mut all = JSON_HEADERS.to_vec();
        all.push(("X-Forwarded-For", forwarded));
        let mut connection = Connection::open(gateway.mcp).await;
        connection
            .request(
                "POST",
                "/mcp",
                &all,
                initialize("2025-11-25", "{}").as_bytes(),
            )
            .await;
        let mut response = connection.response().await;
        response.text().await;
        response.header("mcp-session-id").unwrap().to_owned()
    };
    let is_open = async |session: &str| {
        let mut all = JSON_HEADERS.to_vec();
        all.extend([
            ("Mcp-Session-Id", session),
            ("MCP-Protocol-Version", "2025-11-25"),
        ]);
        let mut connection = Connection::open(gateway.mcp).await;
        connection
            .request(
                "POST",
                "/mcp",
                &all,
                br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            )
            .await;
        connection.response().await.status == 200
    };
    let other = open("192.0.2.8").await;
    let mut own = Vec::new();
    for invented in 1..=4 {
        own.push(open(&format!("198.51.100.{invented}, 192.0.2.7")).await);
    }
    let mut alive = Vec::new();
    for session in &own {
        alive.push(is_open(session).await);
    }
    assert_eq!(alive, [false, false, true, true]);
    assert!(is_open(&other).await, "another address loses nothing");
}
