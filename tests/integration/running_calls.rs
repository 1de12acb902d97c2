//! Operators' view of running calls: the client of each call, and a way to cancel it.

use std::net::SocketAddr;

use fanlight_tests::slicer::member;

use crate::clients::Client;
use crate::faults::backend;
use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{Connection, Response, modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Reply, Transport, config};

async fn send(admin: SocketAddr, method: &str, path: &str) -> Response {
    let mut connection = Connection::open(admin).await;
    connection
        .request(method, path, &[("Origin", &format!("http://{admin}"))], b"")
        .await;
    connection.response().await
}

async fn json(admin: SocketAddr, path: &str) -> String {
    send(admin, "GET", path).await.text().await
}

/// The span of the only running call, once the call has reached the server.
async fn running(admin: SocketAddr, backend: &Backend) -> String {
    backend.wait_for("tools/call", 1).await;
    let listed = json(admin, "/api/calls").await;
    assert_eq!(member(&listed, "callCount"), Some("1"), "{listed}");
    assert!(
        listed.contains(r#""name":"tools/call t""#) && listed.contains(r#""cancelled":false"#),
        "{listed}"
    );
    let (_, rest) = listed.split_once(r#""spanId":""#).expect("a span");
    rest[..16].to_owned()
}

/// Waits until the server is told, in the form of its transport.
async fn assert_cancelled(backend: &Backend, transport: Transport) {
    match transport {
        Transport::Http => backend.wait_abandoned("tools/call").await,
        Transport::Stdio => drop(backend.wait_for("notifications/cancelled", 1).await),
    }
}

#[tokio::test]
async fn operator_cancels_a_running_call_of_any_client() {
    for (client_era, era, transport) in [
        (Era::Modern, Era::Modern, Transport::Http),
        (Era::Legacy, Era::Modern, Transport::Stdio),
        (Era::Modern, Era::Legacy, Transport::Stdio),
    ] {
        let only = backend(era, transport).await;
        only.on("tools/call", Reply::fault(Fault::Hang));
        let mut client =
            Client::start(&config(&[only.entry("only")]), client_era, Transport::Http).await;
        let admin = client.gateway().admin;
        let (answer, ()) = tokio::join!(
            client.request("7", "tools/call", r#""name":"t""#, ""),
            async {
                let span = running(admin, &only).await;
                let done = send(admin, "POST", &format!("/api/calls/{span}/cancel")).await;
                assert_eq!(done.status, 200, "{client_era:?} {era:?}");
            }
        );
        let text = &answer.answer;
        assert!(
            text.contains("-31006") && text.contains("mayHaveRun") && text.contains("an operator"),
            "{text}"
        );
        assert_cancelled(&only, transport).await;
        assert_eq!(
            member(&json(admin, "/api/calls").await, "callCount"),
            Some("0")
        );
        let traces = json(admin, "/api/traces?outcome=cancelled&method=tools/call").await;
        assert!(traces.contains(r#""name":"tools/call t""#), "{traces}");
        assert_eq!(
            send(admin, "POST", "/api/calls/0123456789abcdef/cancel")
                .await
                .status,
            404
        );
        let audit = client.gateway().log.line_with("/cancel").await;
        assert!(
            audit.contains(r#""target":"audit""#) && audit.contains(r#""about":"tools/call t""#),
            "{audit}"
        );
    }
}

#[tokio::test]
async fn call_from_the_page_can_be_cancelled() {
    let only = backend(Era::Modern, Transport::Http).await;
    only.on("tools/call", Reply::fault(Fault::Hang));
    let gateway = Gateway::start(&config(&[only.entry("only")])).await;
    let admin = gateway.admin;
    let call = tokio::spawn(async move {
        let mut connection = Connection::open(admin).await;
        let body = br#"{"method":"tools/call","params":{"name":"t"}}"#;
        connection
            .request(
                "POST",
                "/api/call",
                &[("Content-Type", "application/json")],
                body,
            )
            .await;
        connection.response().await.text().await
    });
    let span = running(admin, &only).await;
    assert!(json(admin, "/api/calls").await.contains("fanlight-admin"));
    assert_eq!(
        send(admin, "POST", &format!("/api/calls/{span}/cancel"))
            .await
            .status,
        200
    );
    let answer = within("the answer", call).await.unwrap();
    assert!(answer.contains(r#""error":{"code":-31006"#), "{answer}");
    only.wait_abandoned("tools/call").await;
}

#[tokio::test]
async fn traces_name_the_client_and_what_a_tool_said_of_its_failure() {
    let only = backend(Era::Modern, Transport::Http).await;
    let text = r#""isError":true,"content":[{"type":"text","text":"cannot open: password=hunter2\nsecond line"}]"#;
    only.on("tools/call", Reply::result(Era::Modern.complete(text)));
    let gateway = Gateway::start(&config(&[only.entry("only")])).await;
    post_modern(
        gateway.mcp,
        &modern_request("1", "tools/call", r#""name":"t""#, ""),
    )
    .await
    .text()
    .await;
    let traces = json(gateway.admin, "/api/traces?outcome=tool_error").await;
    let client = traces
        .split_once(r#""client":""#)
        .expect("a client")
        .1
        .split('"')
        .next()
        .expect("a name");
    let name = client.split(' ').next().expect("a word");
    assert!(
        traces.contains(r#""message":"cannot open: password=[redacted]""#),
        "{traces}"
    );
    assert!(
        !traces.contains("hunter2") && !traces.contains("second line"),
        "{traces}"
    );
    let id = member(
        &json(gateway.admin, &format!("/api/traces?client={name}")).await,
        "traces",
    )
    .map(str::len);
    assert!(id.expect("traces") > 10, "{traces}");
    assert!(
        json(gateway.admin, "/api/traces?client=nobody")
            .await
            .contains(r#""traces":[]"#)
    );
}

/// Spans that a server returns (SEP-2448) reach the client unchanged. Operators see them if results
/// are recorded; no file has them.
#[tokio::test]
async fn spans_of_a_server_are_shown_and_not_exported() {
    let only = backend(Era::Modern, Transport::Http).await;
    let span = r#"{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00f067aa0ba902b7","name":"read table","attributes":[{"key":"password","value":"hunter2"}]}"#;
    let meta = format!(
        r#""_meta":{{"otel":{{"traces":{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}}}}}"#
    );
    only.on(
        "tools/call",
        Reply::result(Era::Modern.complete(&format!(r#""content":[],{meta}"#))),
    );
    let folder = TempFile::folder();
    for (index, is_recorded) in [true, false].into_iter().enumerate() {
        let exported = folder.path().join(format!("traces-{index}"));
        let entry = only.entry_with("only", &format!(r#""content":{is_recorded}"#));
        let gateway = Gateway::start_with(
            &config(&[entry]),
            &["--trace-file", exported.to_str().unwrap()],
        )
        .await;
        let request = modern_request("1", "tools/call", r#""name":"t""#, "");
        let answer = post_modern(gateway.mcp, &request).await.text().await;
        assert!(answer.contains(&meta), "{answer}");
        let traces = json(gateway.admin, "/api/traces?tool=t").await;
        let id = &traces.split_once(r#""traceId":""#).expect("a trace").1[..32];
        let trace = json(gateway.admin, &format!("/api/traces/{id}")).await;
        assert_eq!(
            trace.contains(r#""serverSpans":[{"backend":"only","spanId":""#),
            is_recorded,
            "{trace}"
        );
        assert_eq!(trace.contains("read table"), is_recorded, "{trace}");
        assert!(gateway.terminate().await.success());
        let exported = std::fs::read_to_string(exported).unwrap();
        assert!(
            exported.contains("tools/call t") && !exported.contains("serverSpans"),
            "{exported}"
        );
    }
}

/// A server that is down for long does not push clients' traces out of the ring.
#[tokio::test]
async fn attempts_to_connect_are_one_trace() {
    let entry = r#""gone":{"url":"http://127.0.0.1:9/mcp"}"#;
    let settings = format!(
        r#"{{"mcpServers":{{{entry}}},"limits":{{"traces":3}},"x-limits":"reconnect=10ms,reconnectMax=20ms"}}"#
    );
    let gateway = Gateway::start(&settings).await;
    let attempts = async {
        loop {
            let traces = json(gateway.admin, "/api/traces?method=connect").await;
            let count = traces
                .split_once(r#""attempts":"#)
                .and_then(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok());
            assert!(traces.matches(r#""traceId""#).count() <= 1, "{traces}");
            if count.is_some_and(|count| count > 3) {
                return traces;
            }
            tokio::task::yield_now().await;
        }
    };
    let traces = within("some attempts", attempts).await;
    assert!(
        traces.contains(r#""firstMs":"#) && traces.contains(r#""outcome":"failed""#),
        "{traces}"
    );
    let overview = json(gateway.admin, "/api/overview").await;
    assert!(
        !overview.contains(r#""failedConnections":0"#) && overview.contains(r#""medianMs":null"#),
        "{overview}"
    );
}
