//! Questions of legacy servers to legacy clients: asked on the stream of the call they belong to.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;

use crate::client::{Server, legacy_call};
use crate::core::Happened;
use crate::streams::Stdio;

const ALL: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;
const FORM: &str = r#"{"method":"elicitation/create","params":{ "message":"\u0041","x":1.0}}"#;
const ROOTS: &str = r#"{"method":"roots/list"}"#;

/// A call of the tool that asks `rounds`.
fn ask(id: &str, rounds: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"ask","arguments":{{"ask":{rounds}}}}}}}"#
    )
}

/// [`FORM`] as it reaches the client.
fn form(number: usize) -> String {
    let members = FORM.strip_prefix('{').unwrap();
    format!(r#"{{"jsonrpc":"2.0","id":"fanlight-{number}",{members}"#)
}

fn roots(number: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"fanlight-{number}","method":"roots/list"}}"#)
}

#[tokio::test]
async fn server_requests_and_answers_keep_their_bytes_and_session() {
    let server = Server::start().await;
    let (mut calling, mut answering) = (server.connect().await, server.connect().await);
    let id = server.session_with(&mut calling, ALL).await;
    let other = server.session_with(&mut answering, ALL).await;
    let session = [("Mcp-Session-Id", id.as_str())];
    let call = ask("7", &format!("[[{FORM},{ROOTS}]]"));
    calling.send("POST", "/mcp", &session, &call).await;
    assert_eq!(
        calling.head().await.header("content-type"),
        Some("text/event-stream")
    );
    assert_eq!(calling.event().await.unwrap(), form(1));
    assert_eq!(calling.event().await.unwrap(), roots(2));

    let answer = r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{ "action":"accept","x":1E400}}"#;
    let refusal =
        r#"{"jsonrpc":"2.0","id":"fanlight-2","error":{"code":-1,"message":"no","x":2.0}}"#;
    for wrong in [answer, refusal, r#"{"jsonrpc":"2.0","id":99,"result":{}}"#] {
        // In another session this id would name another request.
        assert_eq!(
            answering
                .post(&[("Mcp-Session-Id", &other)], &wrong.replace("1E400", "2"))
                .await
                .status,
            202
        );
    }
    assert_eq!(answering.post(&[], answer).await.status, 400);
    for right in [refusal, answer, answer] {
        assert_eq!(answering.post(&session, right).await.status, 202);
    }
    let expected = r#"{"jsonrpc":"2.0","id":7,"result":{"answers":[{ "action":"accept","x":1E400},{"code":-1,"message":"no","x":2.0}]}}"#;
    assert_eq!(calling.event().await.unwrap(), expected);
    assert_eq!(calling.event().await, None);
}

#[tokio::test]
async fn client_without_event_stream_cannot_be_asked() {
    let settings = FrontendSettings {
        resume: Duration::from_millis(1),
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let mut client = server.connect().await;
    let id = server.session_with(&mut client, ALL).await;
    server.log.began().await;
    assert!(matches!(server.log.ended().await, Happened::Answered));
    let (session, json) = (
        ("Mcp-Session-Id", id.as_str()),
        ("Accept", "application/json"),
    );
    let response = client
        .post(&[session, json], &ask("1", &format!("[[{FORM}]]")))
        .await;
    assert_eq!(
        response.body,
        r#"{"jsonrpc":"2.0","id":1,"result":{"answers":[null]}}"#
    );
    assert!(matches!(server.log.ended().await, Happened::Answered));
    // A stream that breaks and is not resumed ends its server requests, not its call.
    client
        .send(
            "POST",
            "/mcp",
            &[session],
            &ask("2", &format!("[[{FORM}]]")),
        )
        .await;
    client.head().await;
    client.event().await.unwrap();
    drop(client);
    assert!(matches!(server.log.ended().await, Happened::Answered));
}

#[tokio::test]
async fn undeclared_server_request_is_refused() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(r#"{"elicitation":{}}"#).await;
    let url = r#"{"method":"elicitation/create","params":{"mode":"url"}}"#;
    let answers = stdio.ask(&ask("1", &format!("[[{url},{ROOTS}]]"))).await;
    let codes: Vec<_> = [0, 1]
        .map(|at| answers["result"]["answers"][at]["code"].as_i64())
        .into();
    assert_eq!(codes, [Some(-32602), Some(-32601)]);
    assert_eq!(
        stdio.log.began().await.context.capabilities.as_text(),
        r#"{"elicitation":{}}"#
    );
}

#[tokio::test]
async fn stdio_carries_server_requests_and_answers() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(ALL).await;
    stdio
        .send(&ask("1", &format!("[[{FORM}],[{ROOTS}]]")))
        .await;
    assert_eq!(stdio.line().await.unwrap(), form(1));
    stdio
        .send(r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{"a":1.0}}"#)
        .await;
    assert_eq!(stdio.line().await.unwrap(), roots(2));
    stdio
        .send(r#"{"jsonrpc":"2.0","id":"fanlight-2","result":{"b":1.0}}"#)
        .await;
    let expected = r#"{"jsonrpc":"2.0","id":1,"result":{"answers":[{"a":1.0},{"b":1.0}]}}"#;
    assert_eq!(stdio.line().await.unwrap(), expected);
    assert!(stdio.end().await.is_empty());
}

#[tokio::test]
async fn withdrawn_server_request_is_cancelled_at_the_client() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(ALL).await;
    let cancelled = |message: &serde_json::Value, id: &str| {
        assert_eq!(message["method"], "notifications/cancelled", "{message}");
        assert_eq!(message["params"]["requestId"], id, "{message}");
    };
    // The server withdraws while the call runs.
    stdio.send(&legacy_call("1", "ask-and-withdraw", "")).await;
    assert_eq!(stdio.line().await.unwrap(), roots(1));
    cancelled(&stdio.message().await, "fanlight-1");
    stdio
        .send(r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{}}"#)
        .await;
    stdio.core.release.add_permits(1);
    assert_eq!(stdio.message().await["id"], 1);
    // The server request ends with its call.
    stdio.send(&legacy_call("2", "ask-and-wait", "")).await;
    assert_eq!(stdio.line().await.unwrap(), roots(2));
    stdio.core.release.add_permits(1);
    cancelled(&stdio.message().await, "fanlight-2");
    assert_eq!(stdio.message().await["id"], 2);
    // The client cancels the call.
    stdio.send(&legacy_call("3", "ask-and-wait", "")).await;
    assert_eq!(stdio.line().await.unwrap(), roots(3));
    stdio
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#)
        .await;
    cancelled(&stdio.message().await, "fanlight-3");
    assert!(stdio.end().await.is_empty());
}

#[tokio::test]
async fn open_server_requests_are_bounded_per_client() {
    let mut stdio = Stdio::with(FrontendSettings {
        max_server_requests: 2,
        ..FrontendSettings::default()
    });
    stdio.initialize_with(ALL).await;
    stdio
        .send(&ask("1", &format!("[[{ROOTS},{ROOTS},{ROOTS}]]")))
        .await;
    for number in [1, 2] {
        assert_eq!(stdio.line().await.unwrap(), roots(number));
        stdio
            .send(&format!(
                r#"{{"jsonrpc":"2.0","id":"fanlight-{number}","result":{{}}}}"#
            ))
            .await;
    }
    assert_eq!(
        stdio.message().await["result"]["answers"],
        serde_json::json!([{}, {}, null])
    );
}

#[tokio::test]
async fn session_end_is_reported_to_the_core() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let first = server.session(&mut client).await;
    let deleted = server.log.began().await.context.session().unwrap();
    server.session(&mut client).await;
    let left = server.log.began().await.context.session().unwrap();
    assert_eq!(
        client
            .call("DELETE", "/mcp", &[("Mcp-Session-Id", &first)])
            .await
            .status,
        204
    );
    assert_eq!(server.log.session_ended().await, deleted);
    // The end of the listener ends the other session.
    drop(client);
    server.shutdown.cancel();
    assert_eq!(server.log.session_ended().await, left);

    let mut stdio = Stdio::start();
    stdio.initialize().await;
    let first = stdio.log.began().await.context.session().unwrap();
    stdio.initialize().await;
    assert_eq!(stdio.log.session_ended().await, first);
    drop(stdio.input.take());
    assert_ne!(stdio.log.session_ended().await, first);
}
