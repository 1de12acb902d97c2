//! A legacy HTTP server asks a call's client on the call's stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_backend::Backend;
use fanlight_canonical::{BackendError, ServerMessage, ServerRequest};
use fanlight_protocol::capability::ClientCapability;
use fanlight_protocol::{Json, Response};
use tokio::sync::Notify;

use crate::support::server::{Reply, Seen, Server, event, legacy, modern};
use crate::support::{
    MessageReceiver, PATIENCE, ask, call, listening, of_session, revision, send, settings, start,
};

const ALL: &str = r#"{"elicitation":{"form":{}},"sampling":{},"roots":{}}"#;

/// A server that sends these messages on the stream of `tools/call`. Its answer follows once it has
/// received `answers` answers.
async fn asking(messages: &'static [&'static str], answers: usize) -> Server {
    let (gate, got) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    Server::start(move |seen| {
        if seen.method().is_empty() && seen.verb == "POST" {
            if got.fetch_add(1, Ordering::Relaxed) + 1 == answers {
                gate.notify_one();
            }
            return Reply::Whole(202, String::new(), "text/plain", String::new());
        }
        legacy(seen, "s").unwrap_or_else(|| match seen.method().as_str() {
            "tools/call" => {
                let first = messages
                    .iter()
                    .map(|message| event(&message.replace("$ID", &seen.id())))
                    .collect();
                let answer = event(&format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"n":1.0}}}}"#,
                    seen.id()
                ));
                Reply::Gated(first, Arc::clone(&gate), answer)
            }
            _ => seen.result("{}"),
        })
    })
    .await
}

fn asker(capabilities: &str) -> (fanlight_canonical::Call, MessageReceiver) {
    listening(call("tools/call", r#"{"name":"a"}"#), |context| {
        of_session(1, capabilities)(context);
        context.wants_progress = true;
    })
}

fn answer(question: ServerRequest, result: &'static str) {
    question
        .answer
        .send(Response::from_result(&Json::literal(result)))
        .unwrap();
}

/// The next answer that the server received.
async fn answered(server: &mut Server) -> Seen {
    loop {
        let seen = server.next().await;
        if seen.method().is_empty() && seen.verb == "POST" {
            return seen;
        }
    }
}

#[tokio::test]
async fn server_requests_and_replies_keep_their_bytes() {
    let mut server = asking(
        &[
            r#"{"jsonrpc":"2.0","id":"q\u0041","method":"elicitation/create","params":{ "message":"\u0042","n":1.0}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,"progress":1}}"#,
        ],
        1,
    )
    .await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = asker(ALL);
    let client = async {
        let question = inbox.question().await;
        assert_eq!(question.method.as_str(), "elicitation/create");
        assert_eq!(
            question.params.as_ref().unwrap().as_text(),
            r#"{ "message":"\u0042","n":1.0}"#
        );
        // Messages after the question arrive while it is open.
        assert_eq!(
            inbox.recv().await.unwrap().method.as_str(),
            "notifications/progress"
        );
        answer(question, r#"{ "action" : "accept","n":1E400}"#);
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(outcome.unwrap(), r#"{"n":1.0}"#);
    let seen = answered(&mut server).await;
    assert_eq!(
        seen.body,
        r#"{"jsonrpc":"2.0","id":"q\u0041","result":{ "action" : "accept","n":1E400}}"#
    );
    assert_eq!(seen.header("mcp-session-id"), Some("s"));
    assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"));
}

#[tokio::test]
async fn several_server_requests_can_be_pending() {
    let mut server = asking(
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}"#,
        ],
        2,
    )
    .await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = asker(ALL);
    let client = async {
        let (first, second) = (inbox.question().await, inbox.question().await);
        answer(second, r#"{"second":true}"#);
        assert_eq!(
            answered(&mut server).await.body,
            r#"{"jsonrpc":"2.0","id":2,"result":{"second":true}}"#
        );
        answer(first, r#"{"first":true}"#);
        assert_eq!(
            answered(&mut server).await.body,
            r#"{"jsonrpc":"2.0","id":1,"result":{"first":true}}"#
        );
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(outcome.unwrap(), r#"{"n":1.0}"#);
}

#[tokio::test]
async fn server_request_without_capability_is_refused() {
    let mut server = asking(
        &[
            r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{"mode":"url"}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"x/unknown"}"#,
        ],
        3,
    )
    .await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = asker(r#"{"elicitation":{}}"#);
    let client = async {
        // The client is told about refusals for lack of its capabilities; it judges unknown methods
        // itself.
        assert_eq!(inbox.refused().await, ClientCapability::Sampling);
        assert_eq!(inbox.refused().await, ClientCapability::ElicitationByUrl);
        for (id, code) in [(1, -32601), (2, -32602)] {
            let body = answered(&mut server).await.body;
            assert!(
                body.starts_with(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"#
                )),
                "{body}"
            );
        }
        answer(inbox.question().await, r#"{"known":true}"#);
        assert_eq!(
            answered(&mut server).await.body,
            r#"{"jsonrpc":"2.0","id":3,"result":{"known":true}}"#
        );
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(outcome.unwrap(), r#"{"n":1.0}"#);
}

#[tokio::test]
async fn client_without_an_answer_is_reported_to_the_server() {
    const ROOTS: &[&str] = &[r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#];
    let mut server = asking(ROOTS, 1).await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = asker(ALL);
    let (outcome, ()) = tokio::join!(send(&backend, call), async { drop(inbox.question().await) });
    outcome.unwrap();
    let body = answered(&mut server).await.body;
    assert!(
        body.starts_with(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"#),
        "{body}"
    );

    let mut server = asking(ROOTS, 1).await;
    let mut settings = settings(server.transport());
    settings.timeouts.question = Duration::from_millis(50);
    let backend = start(settings);
    let (call, mut inbox) = asker(ALL);
    let (outcome, question) = tokio::join!(send(&backend, call), inbox.question());
    outcome.unwrap();
    assert!(question.answer.is_closed());
    let body = answered(&mut server).await.body;
    assert!(
        body.contains("-32603") && body.contains("did not answer within"),
        "{body}"
    );
}

#[tokio::test]
async fn server_requests_beyond_the_limit_are_refused() {
    const MANY: &[&str] = &[r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#; 17];
    let mut server = asking(MANY, 17).await;
    let backend = start(settings(server.transport()));
    let (mut call, _) = asker(ALL);
    let (messages, mut inbox) = fanlight_canonical::ServerMessages::channel(32);
    call.messages = messages;
    let client = async {
        let body = answered(&mut server).await.body;
        assert!(
            body.contains("-32603") && body.contains("16 requests"),
            "{body}"
        );
        for _ in 0..16 {
            match inbox.recv().await {
                Some(ServerMessage::Request(question)) => answer(question, "{}"),
                other => panic!("{other:?}"),
            }
        }
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    outcome.unwrap();
}

#[tokio::test]
async fn server_request_ends_with_its_call() {
    let mut server = asking(&[r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#], 1).await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = asker(ALL);
    let mut question = tokio::select! {
        outcome = send(&backend, call) => panic!("{outcome:?}"),
        question = inbox.question() => question,
    };
    tokio::time::timeout(PATIENCE, question.answer.closed())
        .await
        .unwrap();
    server.next_of("notifications/cancelled").await;
}

#[tokio::test]
async fn server_can_cancel_its_request() {
    let server = asking(
        &[
            r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#,
            r#"{"jsonrpc":"2.0","id":6,"method":"roots/list"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#,
        ],
        1,
    )
    .await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = asker(ALL);
    let client = async {
        let (mut withdrawn, other) = (inbox.question().await, inbox.question().await);
        tokio::time::timeout(PATIENCE, withdrawn.answer.closed())
            .await
            .unwrap();
        answer(other, "{}");
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    outcome.unwrap();
}

/// A call whose time is short, with the connection made beforehand.
async fn in_a_hurry(server: &Server) -> Arc<Backend> {
    let mut settings = settings(server.transport());
    settings.timeouts.call = Duration::from_millis(500);
    let backend = start(settings);
    revision(&backend).await;
    send(&backend, listening(call("x/y", ""), of_session(1, ALL)).0)
        .await
        .unwrap();
    backend
}

#[tokio::test]
async fn deadline_is_paused_while_the_client_answers() {
    let server = asking(&[r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#], 1).await;
    let backend = in_a_hurry(&server).await;
    let (call, mut inbox) = asker(ALL);
    let client = async {
        let question = inbox.question().await;
        tokio::time::sleep(Duration::from_millis(1000)).await;
        answer(question, "{}");
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(outcome.unwrap(), r#"{"n":1.0}"#);

    // The deadline runs again afterwards.
    let server = asking(&[r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#], 2).await;
    let backend = in_a_hurry(&server).await;
    let (call, mut inbox) = asker(ALL);
    let (outcome, ()) = tokio::join!(send(&backend, call), async {
        answer(inbox.question().await, "{}");
    });
    assert!(
        matches!(outcome, Err(BackendError::Timeout { sent: true, .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn call_paused_for_the_client_ends_with_its_backend() {
    let server = asking(&[r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#], 1).await;
    let backend = start(settings(server.transport()));
    let (call, mut messages) = asker(ALL);
    let sending = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { send(&backend, call).await }
    });
    let question = messages.question().await;
    backend.stop().await;
    assert_eq!(sending.await.unwrap(), Err(BackendError::Interrupted));
    assert!(question.answer.is_closed());
}

/// A modern server that sends requests on the stream of `tools/call`. Its answer follows once each
/// has a reply.
async fn modern_asking(method: &'static str, continues: bool) -> Server {
    let gate = Arc::new(Notify::new());
    Server::start(move |seen| {
        if seen.method().is_empty() && seen.verb == "POST" {
            if continues {
                gate.notify_one();
            }
            return Reply::Whole(202, String::new(), "text/plain", String::new());
        }
        modern(seen).unwrap_or_else(|| match seen.method().as_str() {
            "tools/call" => {
                let asks =
                    format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{}}}}"#);
                let answer = format!(
                    r#"{{"jsonrpc":"2.0","id":{},"result":{{"n":1.0}}}}"#,
                    seen.id()
                );
                Reply::Gated(event(&asks), Arc::clone(&gate), event(&answer))
            }
            _ => seen.result("{}"),
        })
    })
    .await
}

#[tokio::test]
async fn request_of_a_modern_server_is_refused_at_once() {
    for (method, reply) in [
        ("elicitation/create", "error"),
        ("sampling/createMessage", "error"),
        ("ping", "result"),
    ] {
        let mut server = modern_asking(method, true).await;
        let backend = start(settings(server.transport()));
        assert_eq!(
            ask(&backend, "tools/call", r#"{"name":"a"}"#)
                .await
                .unwrap(),
            r#"{"n":1.0}"#
        );
        let body = crate::support::json(&answered(&mut server).await.body);
        assert_eq!(body.get("id").unwrap().as_text(), r#""q""#);
        assert!(body.get(reply).is_some(), "{body}");
    }
}

#[tokio::test]
async fn modern_server_that_waits_for_its_refused_request_fails_the_call_soon() {
    let mut server = modern_asking("elicitation/create", false).await;
    let backend = start(settings(server.transport()));
    let error = ask(&backend, "tools/call", r#"{"name":"a"}"#)
        .await
        .unwrap_err();
    assert!(
        matches!(error, BackendError::Malformed { .. }) && error.may_have_run(),
        "{error}"
    );
    assert!(answered(&mut server).await.body.contains("input_required"));
}
