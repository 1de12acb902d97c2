//! Calls that end before their response: cancelled by either kind of client, or by the end of the
//! gateway.

use crate::clients::Client;
use crate::faults::{assert_gone, backend};
use crate::harness::{Gateway, within};
use crate::raw_client::{StdioClient, legacy_request, modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Gate, Reply, Transport, config};

/// 2026-07-28 streamable-http, Cancellation: a closed response stream cancels the call at servers
/// of both eras.
#[tokio::test]
async fn modern_client_cancels_by_closing_its_stream() {
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Modern, Transport::Stdio),
        (Era::Legacy, Transport::Stdio),
    ] {
        let only = backend(era, transport).await;
        only.on("tools/call", Reply::fault(Fault::Hang).after(&[PROGRESS]));
        let gateway = Gateway::start(&config(&[only.entry("only")])).await;
        let request = modern_request("7", "tools/call", r#""name":"t""#, r#""progressToken":1"#);
        let mut response = post_modern(gateway.mcp, &request).await;
        response.event().await.unwrap().expect("progress first");
        drop(response);
        assert_cancelled(&only, transport).await;
    }
}

const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":1}}"#;

/// Waits until the server is notified in the form of its transport, with the id that the gateway
/// gave the call.
async fn assert_cancelled(backend: &Backend, transport: Transport) {
    match transport {
        Transport::Http => backend.wait_abandoned("tools/call").await,
        Transport::Stdio => {
            let cancelled = backend.wait_for("notifications/cancelled", 1).await;
            let call = &backend.received("tools/call")[0];
            assert_eq!(cancelled[0].member("params.requestId"), call.member("id"));
        }
    }
}

#[tokio::test]
async fn legacy_client_cancels_by_notification_and_not_by_closing() {
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c\u0041ll","reason":"w\u0068y","_meta":{"k":1.0},"x":[1E400]}}"#;
    for (era, transport) in [
        (Era::Modern, Transport::Http),
        (Era::Modern, Transport::Stdio),
        (Era::Legacy, Transport::Stdio),
    ] {
        let only = backend(era, transport).await;
        let gate = Gate::new();
        only.on(
            "tools/call",
            Reply::result(era.complete(r#""content":[]"#))
                .after(&[PROGRESS])
                .gated(&gate),
        );
        let client =
            Client::start(&config(&[only.entry("only")]), Era::Legacy, Transport::Http).await;
        let request = legacy_request(
            r#""c\u0041ll""#,
            "tools/call",
            r#""name":"t","_meta":{"progressToken":1}"#,
        );
        let mut left = client.session().post(&request).await;
        left.event().await.unwrap().expect("progress first");
        drop(left);
        gate.reached(1).await;
        // The closed connection has not cancelled the call: the notification still cancels it.
        assert_eq!(client.session().post(cancel).await.status, 202);
        assert_cancelled(&only, transport).await;
        let told = only.received("notifications/cancelled");
        assert_eq!(told.len(), usize::from(transport == Transport::Stdio));
        for told in told {
            assert_eq!(told.member("params.reason"), Some(r#""w\u0068y""#));
            assert_eq!(told.member("params._meta"), Some(r#"{"k":1.0}"#));
            assert_eq!(told.member("params.x"), Some("[1E400]"));
        }
    }
}

#[tokio::test]
async fn stdio_client_cancels_by_notification() {
    for era in [Era::Legacy, Era::Modern] {
        let only = backend(Era::Legacy, Transport::Stdio).await;
        only.once("tools/call", Reply::fault(Fault::Hang));
        let mut client = Client::start(&config(&[only.entry("only")]), era, Transport::Stdio).await;
        let request = client.request_text("1", "tools/call", r#""name":"t""#, "");
        client.stdio().send(&request).await;
        only.wait_for("tools/call", 1).await;
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        client.stdio().send(cancel).await;
        assert_cancelled(&only, Transport::Stdio).await;
        let next = client.request("2", "tools/call", r#""name":"t""#, "").await;
        assert!(
            next.before.is_empty(),
            "a cancelled call is not answered: {:?}",
            next.before
        );
    }
}

#[tokio::test]
async fn shutdown_finishes_running_calls_and_exits_cleanly() {
    let only = backend(Era::Modern, Transport::Http).await;
    let gate = Gate::new();
    only.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
    );
    let gateway = Gateway::start(&config(&[only.entry("only")])).await;
    let address = gateway.mcp;
    let call = tokio::spawn(async move {
        let request = modern_request("1", "tools/call", r#""name":"t""#, "");
        post_modern(address, &request).await.messages().await.1
    });
    gate.reached(1).await;
    let stopping = tokio::spawn(gateway.terminate());
    gate.open();
    assert!(
        within("the call", call)
            .await
            .unwrap()
            .contains(r#""content":[]"#)
    );
    assert_eq!(within("the end", stopping).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn stdio_gateway_ends_with_its_input() {
    let only = backend(Era::Legacy, Transport::Stdio).await;
    let mut gateway = Gateway::stdio(&config(&[only.entry("only")]));
    let children = {
        let mut client = StdioClient::new(&mut gateway);
        client.initialize("2025-11-25").await;
        client
            .call(&legacy_request("1", "tools/call", r#""name":"t""#))
            .await;
        client.close_input();
        assert_eq!(client.receive().await, None);
        only.children(1).await
    };
    assert_eq!(gateway.ended().await.code(), Some(0));
    for pid in children {
        assert_gone(pid).await;
    }
}
