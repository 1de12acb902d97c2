//! Listening to child processes of both eras.

use fanlight_backend::SessionPolicy;
use fanlight_canonical::{BackendClient, Interest};
use fanlight_protocol::{Json, Response};

use crate::support::child::Child;
use crate::support::{call, listen, listening, of_session, send, settings, start, without_session};

const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// `test/tools` and `test/updated` make the server send these notifications.
const SAYING: &str = r#"*'"method":"test/tools"'*) say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'; result '{}';;
    *'"method":"test/updated"'*) say '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}'; result '{}';;
    *'"method":"test/exit"'*) exit 0;;
    *'"method":"resources/'*) printf '%s\n' "$line" >> "$STATE/resources"; result '{}';;"#;

const TELLING: &str = r#"*'"method":"initialize"'*) result '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}}';;"#;

fn interest() -> Interest {
    Interest { tools: true, uris: vec!["a:1".into()], ..Interest::default() }
}

#[tokio::test]
async fn subscriptions_are_renewed_when_a_legacy_process_restarts() {
    let child = Child::legacy(&format!("{SAYING}{TELLING}"));
    let mut settings = settings(child.transport());
    settings.sessions = SessionPolicy::Shared;
    let backend = start(settings);
    let (listening, mut inbox) = listen(&backend, interest(), without_session).await.unwrap();
    assert_eq!(listening.honoured, interest());
    for method in ["test/tools", "test/updated"] {
        send(&backend, call(method, "")).await.unwrap();
    }
    let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}"#;
    assert_eq!((inbox.text().await.as_str(), inbox.text().await.as_str()), (TOOLS, updated));
    send(&backend, call("test/exit", "")).await.unwrap_err();
    assert_eq!((inbox.text().await.as_str(), inbox.text().await.as_str()), (TOOLS, updated));
    assert_eq!(child.file("resources").matches("resources/subscribe").count(), 2);
    drop(listening);
    // Requests are read in order: once this is answered, the other has been read.
    while !child.file("resources").contains("resources/unsubscribe") {
        send(&backend, call("test/tools", "")).await.unwrap();
    }
    backend.stop().await;
    assert!(inbox.recv().await.is_none());
}

#[tokio::test]
async fn session_receives_everything_of_its_own_process() {
    let child = Child::legacy(&format!(
        r#"*'"method":"test/ask"'*) result '{{}}'; say '{{"jsonrpc":"2.0","id":"q","method":"roots/list"}}';;
        *'"id":"q"'*) say '{{"jsonrpc":"2.0","method":"notifications/got","params":'"$line"'}}';;
        {SAYING}{TELLING}"#
    ));
    let backend = start(settings(child.transport()));
    let session = Interest { session: true, ..Interest::default() };
    let capabilities = r#"{"roots":{}}"#;
    let (_listening, mut inbox) = listen(&backend, session, of_session(1, capabilities)).await.unwrap();
    backend.describe().await.unwrap();
    assert_eq!(child.starts().len(), 1);
    let ask = async |method: &str| {
        let (call, inbox) = listening(call(method, ""), of_session(1, capabilities));
        (send(&backend, call).await.unwrap(), inbox)
    };
    ask("test/updated").await;
    assert_eq!(inbox.recv().await.unwrap().method.as_str(), "notifications/resources/updated");
    ask("test/ask").await;
    let question = inbox.question().await;
    question.answer.send(Response::from_result(&Json::literal(r#"{"roots":[]}"#))).unwrap();
    let got = inbox.text().await;
    assert!(got.contains(r#"{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}"#), "{got}");
    backend.stop().await;
}

/// Its subscriptions: the ids stand in `listens`, and those that were cancelled in `cancelled`.
const SUBSCRIBING: &str = r#"*'"method":"subscriptions/listen"'*)
      subscription=$id; printf '%s\n' "$line" >> "$STATE/listens"
      filter=${line#*\"notifications\":}; filter=${filter%%\}*}
      say '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":'"$id"'},"notifications":'"$filter"'}}}';;
    *'"method":"notifications/cancelled"'*) printf '%s\n' "$line" >> "$STATE/cancelled";;
    *'"method":"test/tools"'*)
      say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":'"$subscription"'},"n":1.0}}'
      say '{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":999}}}'
      say '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
      result '{}';;
    *'"method":"test/exit"'*) exit 0;;"#;

#[tokio::test]
async fn subscription_is_renewed_when_a_modern_process_restarts() {
    let child = Child::modern(SUBSCRIBING);
    let backend = start(settings(child.transport()));
    let interest = Interest { tools: true, ..Interest::default() };
    let (listening, mut inbox) = listen(&backend, interest.clone(), without_session).await.unwrap();
    assert_eq!(listening.honoured, interest);
    send(&backend, call("test/tools", "")).await.unwrap();
    let stripped = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"n":1.0}}"#;
    // One is routed by its subscription, the other by what it is: their order is not kept.
    let heard = [inbox.text().await, inbox.text().await];
    assert!(heard.iter().any(|text| text == stripped) && heard.iter().any(|text| text == TOOLS), "{heard:?}");
    send(&backend, call("test/exit", "")).await.unwrap_err();
    assert_eq!(inbox.text().await, TOOLS);
    assert_eq!(child.file("listens").lines().count(), 2);
    drop(listening);
    while !child.has("cancelled") {
        send(&backend, call("test/tools", "")).await.unwrap();
    }
    assert!(inbox.is_empty());
    backend.stop().await;
}
