//! Listeners whose addresses and settings change.

use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;

use fanlight_testkit::ports::free;
use tokio::net::TcpStream;

use super::*;
use crate::harness::{fanlight, within};
use crate::raw_client::{LegacySession, legacy_request, listen, post};
use crate::scripted::{Gate, config};

const ANY: &str = "127.0.0.1:0";

/// A configuration with these addresses and servers; `more` are options, each followed by a comma.
fn at(clients: &str, operators: &str, more: &str, entries: &[String]) -> String {
    let servers = config(entries);
    format!(
        r#"{{"listen":"{clients}","admin":{{"listen":"{operators}"}},{more}{}"#,
        &servers[1..]
    )
}

async fn is_refused(address: SocketAddr) -> bool {
    let connected = within("an answer of the system", TcpStream::connect(address)).await;
    connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

async fn status(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut connection = Connection::open(address).await;
    connection.request("GET", path, headers, b"").await;
    connection.response().await.status
}

async fn ping(address: SocketAddr, session: &LegacySession) -> u16 {
    let headers = [
        ("Mcp-Session-Id", session.session.as_deref().unwrap()),
        ("MCP-Protocol-Version", &session.revision),
    ];
    post(address, &headers, &legacy_request("7", "ping", ""))
        .await
        .status
}

#[tokio::test]
async fn listeners_move_and_their_connections_end_as_at_a_stop() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let entries = [only.entry("only")];
    let mut gateway = Gateway::start_at_configured_addresses(&at(ANY, ANY, "", &entries)).await;
    let session = LegacySession::open(gateway.mcp).await;
    let mut get = session.stream(None).await;
    let mut listening = listen(gateway.mcp, "1", r#"{"toolsListChanged":true}"#).await;
    assert!(
        listening
            .event()
            .await
            .unwrap()
            .unwrap()
            .contains("acknowledged")
    );
    let gate = Gate::new();
    only.once(
        "tools/call",
        Reply::result(r#"{"content":[],"x":"finished"}"#).gated(&gate),
    );
    let running = tokio::spawn({
        let (mcp, request) = (
            gateway.mcp,
            modern_request("2", "tools/call", r#""name":"t""#, ""),
        );
        async move { post_modern(mcp, &request).await.messages().await.1 }
    });
    gate.reached(1).await;

    let (old_mcp, old_admin, mcp, operators) = (gateway.mcp, gateway.admin, free(), free());
    let report = reload(
        &gateway,
        &at(&mcp.to_string(), &operators.to_string(), "", &entries),
    )
    .await;
    assert!(
        report.contains(&format!(r#""listen": "{mcp}""#)),
        "{report}"
    );
    assert!(
        report.contains(&format!(r#""admin.listen": "{operators}""#)),
        "{report}"
    );
    assert!(report.contains(r#""needsRestart": []"#), "{report}");
    assert!(is_refused(old_mcp).await && is_refused(old_admin).await);
    (gateway.mcp, gateway.admin) = (mcp, operators);
    assert!(call(&gateway, "t").await.contains("only"));
    assert_eq!(ping(mcp, &session).await, 200, "sessions stay");
    let last = within("the end of the subscription", listening.event())
        .await
        .unwrap()
        .unwrap();
    assert!(last.contains(r#""resultType":"complete""#), "{last}");
    assert_eq!(
        within("the end of the GET stream", get.event())
            .await
            .unwrap(),
        None
    );
    gate.open();
    assert!(running.await.unwrap().contains("finished"));
    let shown = admin(&gateway, "/api/config").await;
    assert!(shown.contains(&format!(r#""listen": "{mcp}""#)), "{shown}");
    let overview = admin(&gateway, "/api/overview").await;
    assert!(
        overview.contains(&format!("http://{mcp}/mcp")),
        "{overview}"
    );

    // The admin listener moves to any port; the client listener keeps its socket and connections.
    let mut kept = Connection::open(mcp).await;
    kept.request("GET", "/nothing", &[], b"").await;
    let (_, mut kept) = kept.response().await.finish().await;
    let report = reload(&gateway, &at(&mcp.to_string(), ANY, "", &entries)).await;
    assert!(is_refused(operators).await, "{report}");
    let (_, address) = report
        .split_once(r#""admin.listen": ""#)
        .expect("the new address");
    gateway.admin = address.split('"').next().unwrap().parse().unwrap();
    kept.request("GET", "/nothing", &[], b"").await;
    assert_eq!(kept.response().await.status, 404);
    // The configuration now names the port that the listener already has.
    let report = reload(
        &gateway,
        &at(&mcp.to_string(), &gateway.admin.to_string(), "", &entries),
    )
    .await;
    assert!(report.contains(r#""listeners": {}"#), "{report}");
    assert!(gateway.terminate().await.success());
    assert!(is_refused(mcp).await);
}

#[tokio::test]
async fn address_that_cannot_be_bound_changes_nothing() {
    let (a, b) = (
        server(Era::Modern, Transport::Http, "a").await,
        server(Era::Legacy, Transport::Stdio, "b").await,
    );
    let gateway = Gateway::start_at_configured_addresses(&at(ANY, ANY, "", &[a.entry("a")])).await;
    let taken = TcpListener::bind(ANY).unwrap();
    let (occupied, unused) = (taken.local_addr().unwrap().to_string(), free());
    let more = r#""allowedHosts":["other.example"],"x-limits":"adminConnections=1","#;
    let own = gateway.mcp.to_string();
    for (clients, operators) in [
        (&*occupied, ANY),
        (&unused.to_string(), &occupied),
        (&own, &own),
    ] {
        gateway.configure(&at(clients, operators, more, &[b.entry("b")]));
        let (status, report) = gateway.reload().await;
        assert_eq!(status, 422, "{report}");
        assert!(report.contains(r#""result": "failed""#), "{report}");
        if operators != own {
            let named = report.contains(&occupied)
                && report.contains("listen")
                && report.contains("choose another");
            assert!(named, "{report}");
        }
        assert!(is_refused(unused).await);
        let shown = admin(&gateway, "/api/config").await;
        for same in [
            r#""generation": 1"#,
            &format!(r#""listen": "{own}""#),
            r#""allowedHosts": []"#,
        ] {
            assert!(shown.contains(same), "{same}: {shown}");
        }
        assert!(call(&gateway, "t").await.contains(r#""a""#));
        assert_eq!(status_with_host(gateway.mcp, "other.example").await, 403);
    }
    assert_eq!(
        metric(&gateway, "fanlight_config_last_reload_successful").await,
        0.0
    );
    assert!(b.started().is_empty());
    let url = format!("http://{}", gateway.admin);
    let output = fanlight()
        .args(["reload", "--admin", &url])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
}

async fn status_with_host(address: SocketAddr, host: &str) -> u16 {
    status_of(
        address,
        &format!("GET /nothing HTTP/1.1\r\nHost: {host}\r\n\r\n"),
    )
    .await
}

async fn status_of(address: SocketAddr, request: &str) -> u16 {
    let mut connection = Connection::open(address).await;
    connection.send(request.as_bytes()).await.unwrap();
    connection.response().await.status
}

#[tokio::test]
async fn public_url_names_the_host_and_the_endpoint() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let (entries, listen) = ([only.entry("only")], free().to_string());
    let gateway = Gateway::start_at_configured_addresses(&at(&listen, ANY, "", &entries)).await;
    let page = "Host: mcp.example.com\r\nOrigin: https://mcp.example.com";
    let status = async || {
        status_of(
            gateway.mcp,
            &format!("GET /nothing HTTP/1.1\r\n{page}\r\n\r\n"),
        )
        .await
    };
    assert_eq!(status().await, 403);
    assert!(
        admin(&gateway, "/api/overview")
            .await
            .contains(&format!("http://{}/mcp", gateway.mcp))
    );
    let report = reload(
        &gateway,
        &at(
            &listen,
            ANY,
            r#""publicUrl":"https://mcp.example.com/","#,
            &entries,
        ),
    )
    .await;
    assert!(report.contains(r#""needsRestart": []"#), "{report}");
    assert_eq!(status().await, 404);
    let overview = admin(&gateway, "/api/overview").await;
    assert!(
        overview.contains(r#""https://mcp.example.com/mcp""#),
        "{overview}"
    );
}

#[tokio::test]
async fn listeners_exchange_their_addresses() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let entries = [only.entry("only")];
    let mut gateway = Gateway::start_at_configured_addresses(&at(ANY, ANY, "", &entries)).await;
    for _ in 0..3 {
        let (mcp, operators) = (gateway.admin, gateway.mcp);
        reload(
            &gateway,
            &at(&mcp.to_string(), &operators.to_string(), "", &entries),
        )
        .await;
        (gateway.mcp, gateway.admin) = (mcp, operators);
        assert!(call(&gateway, "t").await.contains("only"));
        assert_eq!(status(operators, "/healthz", &[]).await, 200);
        assert_eq!(status(mcp, "/healthz", &[]).await, 404);
    }
}

#[tokio::test]
async fn address_that_overlaps_the_earlier_one_needs_a_restart() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let entries = [only.entry("only")];
    let port = free().port();
    let (all, own) = (format!("0.0.0.0:{port}"), format!("127.0.0.1:{port}"));
    let mut gateway =
        Gateway::start_at_configured_addresses(&at(&all, ANY, r#""auth":"none","#, &entries)).await;
    gateway.mcp = own.parse().unwrap();
    gateway.configure(&at(&own, ANY, "", &entries));
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 422, "{report}");
    assert!(
        report.contains("overlaps") && report.contains("restart"),
        "{report}"
    );
    assert!(
        TcpListener::bind(&own).is_err(),
        "no other process can listen there meanwhile"
    );
    assert!(call(&gateway, "t").await.contains("only"));
}

#[tokio::test]
async fn address_of_the_command_line_stays() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let entries = [only.entry("only")];
    let gateway = Gateway::start_with(&at(ANY, ANY, "", &entries), &["--no-watch"]).await;
    let (mcp, operators) = (free(), free());
    let report = reload(
        &gateway,
        &at(&mcp.to_string(), &operators.to_string(), "", &entries),
    )
    .await;
    assert!(report.contains(r#""listeners": {}"#), "{report}");
    assert!(is_refused(mcp).await && is_refused(operators).await);
    assert!(call(&gateway, "t").await.contains("only"));
}

#[tokio::test]
async fn settings_of_the_admin_listener_take_effect_at_once() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let entries = [only.entry("only")];
    let with = |listen: SocketAddr, token: &str, more: &str| {
        let admin = format!(r#""admin":{{"listen":"{listen}"{token}}}"#);
        at(ANY, "X", more, &entries).replace(r#""admin":{"listen":"X"}"#, &admin)
    };
    let (first, second) = (free(), free());
    let token = |text: &str| format!(r#","token":"{text}""#);
    let gateway =
        Gateway::start_at_configured_addresses(&with(first, &token("first-first-first-"), ""))
            .await;
    let bearer = |text: &str| format!("Bearer {text}");
    let reload_with = async |address: SocketAddr, token: &str| {
        let mut connection = Connection::open(address).await;
        connection
            .request(
                "POST",
                "/api/reload",
                &[("Authorization", &bearer(token))],
                b"",
            )
            .await;
        let mut answer = connection.response().await;
        let (status, report) = (answer.status, answer.text().await);
        assert_eq!(status, 200, "{report}");
    };
    // The first token has opened a connection and a stream.
    let old = bearer("first-first-first-");
    let old = [("Authorization", &*old)];
    let mut kept = Connection::open(first).await;
    kept.request("GET", "/api/config", &old, b"").await;
    let answer = kept.response().await;
    assert_eq!(answer.status, 200);
    let (_, mut kept) = answer.finish().await;
    let mut events = Connection::open(first).await;
    events.request("GET", "/api/events", &old, b"").await;
    let mut events = events.response().await;
    assert!(events.event().await.unwrap().is_some());

    gateway.configure(&with(
        first,
        &token("second-second-second"),
        r#""allowedHosts":["ops.example"],"#,
    ));
    reload_with(first, "first-first-first-").await;
    within("the end of the events", async {
        while let Ok(Some(_)) = events.event().await {}
    })
    .await;
    kept.request("GET", "/api/config", &old, b"").await;
    assert_eq!(kept.response().await.status, 401);
    let new = bearer("second-second-second");
    assert_eq!(
        status(first, "/api/config", &[("Authorization", &new)]).await,
        200
    );
    assert_eq!(status_with_host(first, "ops.example").await, 404);
    assert_eq!(status_with_host(first, "evil.example").await, 403);

    // The new configuration has another address and no token. This early connection to the first
    // address has not shown a token yet.
    let mut early = Connection::open(first).await;
    assert_eq!(
        status(first, "/healthz", &[]).await,
        200,
        "it has been accepted"
    );
    gateway.configure(&with(second, "", ""));
    reload_with(first, "second-second-second").await;
    let _ = early
        .send(b"GET /api/config HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await;
    assert!(matches!(
        first_bytes(early).await.as_deref(),
        None | Some("HTTP/1.1 503")
    ));
    assert_eq!(status(second, "/api/config", &[]).await, 200);
    assert!(is_refused(first).await);

    // The listener is switched off and on again.
    let off = with(second, "", "").replace(&format!(r#""{second}""#), r#""off""#);
    gateway.configure(&off);
    gateway.hang_up();
    within("it to be closed", async {
        while !is_refused(second).await {}
    })
    .await;
    gateway.configure(&with(first, "", ""));
    gateway.hang_up();
    within("it to be open", async { while is_refused(first).await {} }).await;
    assert_eq!(status(first, "/healthz", &[]).await, 200);
}

/// The version and status of an answer; `None` if the connection ends without one.
async fn first_bytes(connection: Connection) -> Option<String> {
    let text = connection.rest().await;
    text.get(..12).map(str::to_owned)
}

#[tokio::test]
async fn limits_of_connections_take_effect_at_once() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let entries = [only.entry("only")];
    let bounded = r#""limits":{"connections":1},"#;
    let gateway = Gateway::start_at_configured_addresses(&at(ANY, ANY, bounded, &entries)).await;
    let gate = Gate::new();
    only.once(
        "tools/call",
        Reply::result(r#"{"content":[]}"#).gated(&gate),
    );
    let running = tokio::spawn({
        let (mcp, request) = (
            gateway.mcp,
            modern_request("2", "tools/call", r#""name":"t""#, ""),
        );
        async move { post_modern(mcp, &request).await.messages().await.1 }
    });
    gate.reached(1).await;
    let second = async || {
        let mut connection = Connection::open(gateway.mcp).await;
        let _ = connection
            .send(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await;
        first_bytes(connection).await
    };
    // The second connection waits until it may be open, too.
    let unbounded = at(ANY, ANY, "", &entries);
    let (answer, report) = tokio::join!(second(), reload(&gateway, &unbounded));
    assert!(report.contains(r#""needsRestart": []"#), "{report}");
    assert_eq!(answer.as_deref(), Some("HTTP/1.1 404"));
    gate.open();
    assert!(running.await.unwrap().contains("result"));
}
