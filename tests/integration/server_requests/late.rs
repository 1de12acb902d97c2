//! Server requests that are still open when their call ends.

use fanlight_tests::slicer::member;

use super::{EVERYTHING, roots};
use crate::clients::Client;
use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};

/// A server that asks during its call and does not wait for the answer.
async fn server(transport: Transport) -> Backend {
    let server = Backend::start(Era::Legacy, transport).await;
    server.offers_tools(&["t"]);
    let ask = r#"{"jsonrpc":"2.0","id":"as\u006b","method":"roots/list"}"#;
    server.on(
        "tools/call",
        Reply::result(Era::Legacy.complete(r#""content":[]"#)).after(&[ask]),
    );
    server
}

/// The answer that the server received for its request.
async fn reply(server: &Backend) -> std::sync::Arc<Received> {
    server
        .answer_to(r#""as\u006b""#, &server.received("tools/call")[0])
        .await
}

/// Makes a call, and returns the id of the server request that the client received during it.
async fn call(session: &LegacySession, tool: &str) -> String {
    let request = legacy_request("1", "tools/call", &format!(r#""name":"{tool}""#));
    let (before, answer) = session.post(&request).await.messages().await;
    assert!(answer.contains("content"), "{answer}");
    let asked = before
        .iter()
        .find(|message| message.contains("roots/list"))
        .expect("a server request");
    member(asked, "id").unwrap().to_owned()
}

#[tokio::test]
async fn late_answer_reaches_a_server_whose_call_has_ended() {
    for transport in [Transport::Http, Transport::Stdio] {
        let other = server(Transport::Http).await;
        for several in [false, true] {
            let server = &server(transport).await;
            let (entries, tool) = match several {
                false => (vec![server.entry("a")], "t"),
                true => (vec![other.entry("b"), server.entry("a")], "a__t"),
            };
            let gateway = Gateway::start(&config(&entries)).await;
            let session = LegacySession::open_with(gateway.mcp, "2025-11-25", EVERYTHING).await;
            let id = call(&session, tool).await;
            // In another session, the id names nothing.
            let stranger = LegacySession::open_with(gateway.mcp, "2025-11-25", EVERYTHING).await;
            let answer =
                |name: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, roots(name));
            assert_eq!(stranger.post(&answer("stranger")).await.status, 202);
            assert_eq!(session.post(&answer("late")).await.status, 202);
            assert_eq!(session.post(&answer("second")).await.status, 202);
            assert_eq!(
                reply(server).await.member("result"),
                Some(roots("late").as_str())
            );
            // The server works as before in the next call.
            server.on(
                "tools/call",
                Reply::result(Era::Legacy.complete(r#""content":[]"#)),
            );
            let request = legacy_request("2", "tools/call", &format!(r#""name":"{tool}""#));
            let (_, answer) = session.post(&request).await.messages().await;
            assert!(answer.contains("content"), "{answer}");
            let replies = server.received("");
            assert_eq!(replies.len(), 1, "one reply to one request: {replies:?}");
        }
    }
}

#[tokio::test]
async fn malformed_answer_ends_the_wait_of_the_server() {
    let malformed = [
        r#""jsonrpc":"2.0","result":null"#,
        r#""jsonrpc":"2.0","result":{},"error":{}"#,
        r#""result":{}"#,
    ];
    for members in malformed {
        let server = server(Transport::Http).await;
        let gateway = Gateway::start(&config(&[server.entry("a")])).await;
        let session = LegacySession::open_with(gateway.mcp, "2025-11-25", EVERYTHING).await;
        let id = call(&session, "t").await;
        let answer = format!(r#"{{"id":{id},{members}}}"#);
        assert_eq!(session.post(&answer).await.status, 400, "{answer}");
        assert_eq!(reply(&server).await.member("error.code"), Some("-32603"));
    }
}

#[tokio::test]
async fn open_request_of_an_ended_call_gets_an_error_with_the_end_of_the_session() {
    let server = server(Transport::Http).await;
    let gateway = Gateway::start(&config(&[server.entry("a")])).await;
    let session = LegacySession::open_with(gateway.mcp, "2025-11-25", EVERYTHING).await;
    let id = call(&session, "t").await;
    assert_eq!(session.delete().await.status, 204);
    assert_eq!(reply(&server).await.member("error.code"), Some("-32603"));
    let late = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#,
        roots("late")
    );
    assert_eq!(session.post(&late).await.status, 404);
}

/// A modern client answers by a retry if its call was suspended when it ended, and otherwise not at
/// all.
#[tokio::test]
async fn open_request_of_a_modern_clients_ended_call_gets_a_reply() {
    for transport in [Transport::Http, Transport::Stdio] {
        let server = server(transport).await;
        let config = config(&[server.entry("a")]);
        let mut client =
            Client::start_with(EVERYTHING, &config, Era::Modern, Transport::Http).await;
        let exchange = client
            .converse("1", "tools/call", r#""name":"t""#, |_, _| roots("late"))
            .await;
        assert!(exchange.answer.contains("content"), "{}", exchange.answer);
        let reply = reply(&server).await;
        let is_known = reply.member("result") == Some(roots("late").as_str())
            || reply.member("error.code") == Some("-32603");
        assert!(is_known, "{transport:?} {}", reply.text);
        assert_eq!(
            (
                server.received("").len(),
                server.received("tools/call").len()
            ),
            (1, 1)
        );
    }
}
