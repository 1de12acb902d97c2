//! Listening to child processes of both eras.

use fanlight_backend::SessionPolicy;
use fanlight_canonical::{BackendClient, CallContext, Interest};
use fanlight_protocol::subscription::Change;
use fanlight_protocol::{Json, Response};
use fanlight_testkit::scripted::{Fault, Reply};

use crate::support::child::Child;
use crate::support::{call, listen, listening, of_session, send, settings, start, without_session};

const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

const UPDATED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}"#;
const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#;

/// A legacy server that sends notifications on `test/tools` and `test/updated`.
async fn notifying() -> Child {
    let child = Child::legacy().await;
    child.declares(CAPABILITIES);
    child.on("test/tools", Reply::result("{}").after(&[TOOLS]));
    child.on("test/updated", Reply::result("{}").after(&[UPDATED]));
    child.on("test/exit", Reply::fault(Fault::Die(0)));
    child
}

fn interest() -> Interest {
    Interest {
        lists: Change::Tools.into(),
        uris: ["a:1".into()].into(),
        ..Interest::default()
    }
}

#[tokio::test]
async fn subscriptions_are_renewed_when_a_legacy_process_restarts() {
    let child = notifying().await;
    let mut settings = settings(child.transport());
    settings.sessions = SessionPolicy::Shared;
    let backend = start(settings);
    let (listening, mut inbox) = listen(&backend, interest(), without_session).await.unwrap();
    assert_eq!(listening.honoured, interest());
    for method in ["test/tools", "test/updated"] {
        send(&backend, call(method, "")).await.unwrap();
    }
    assert_eq!(
        (inbox.text().await.as_str(), inbox.text().await.as_str()),
        (TOOLS, UPDATED)
    );
    send(&backend, call("test/exit", "")).await.unwrap_err();
    assert_eq!(
        (inbox.text().await.as_str(), inbox.text().await.as_str()),
        (TOOLS, UPDATED)
    );
    assert_eq!(child.count("resources/subscribe"), 2);
    drop(listening);
    child.wait_for("resources/unsubscribe", 1).await;
    backend.stop().await;
    assert!(inbox.recv().await.is_none());
}

#[tokio::test]
async fn session_receives_everything_of_its_own_process() {
    let child = notifying().await;
    child.on("test/ask", Reply::driven());
    let backend = start(settings(child.transport()));
    let session = Interest {
        session: true,
        ..Interest::default()
    };
    let capabilities = r#"{"roots":{}}"#;
    let (_listening, mut inbox) = listen(&backend, session, of_session(1, capabilities))
        .await
        .unwrap();
    backend.describe(&CallContext::internal()).await.unwrap();
    assert_eq!(child.started().len(), 1);
    let ask = async |method: &str| {
        let (call, inbox) = listening(call(method, ""), of_session(1, capabilities));
        (send(&backend, call).await.unwrap(), inbox)
    };
    ask("test/updated").await;
    assert_eq!(
        inbox.recv().await.unwrap().method.as_str(),
        "notifications/resources/updated"
    );
    let server = async {
        let call = child.stream(0).await;
        call.result("{}").await;
        call.message(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#)
            .await;
        call
    };
    let (_, call) = tokio::join!(ask("test/ask"), server);
    let question = inbox.question().await;
    question
        .answer
        .send(Response::from_result(&Json::literal(r#"{"roots":[]}"#)))
        .unwrap();
    let answer = child.answer_to(r#""q""#, &call.request).await;
    assert_eq!(
        answer.text,
        r#"{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}"#
    );
    backend.stop().await;
}

#[tokio::test]
async fn subscription_is_renewed_when_a_modern_process_cancels_it_or_restarts() {
    let child = Child::modern().await;
    child.on("subscriptions/listen", Reply::listening());
    child.on("test/exit", Reply::fault(Fault::Die(0)));
    let backend = start(settings(child.transport()));
    let interest = Interest {
        lists: Change::Tools.into(),
        ..Interest::default()
    };
    let (listening, mut inbox) = listen(&backend, interest.clone(), without_session)
        .await
        .unwrap();
    assert_eq!(listening.honoured, interest);
    let subscription = child.stream(0).await;
    subscription
        .notify("notifications/tools/list_changed", r#""n":1.0"#)
        .await;
    let other = TOOLS.replace("tools", "prompts").replace(
        "}",
        r#","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":999}}}"#,
    );
    subscription.message(&other).await;
    subscription.message(TOOLS).await;
    let stripped =
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"n":1.0}}"#;
    // One is routed by its subscription, the other by its kind, so their order may change.
    let heard = [inbox.text().await, inbox.text().await];
    assert!(
        heard.iter().any(|text| text == stripped) && heard.iter().any(|text| text == TOOLS),
        "{heard:?}"
    );
    let id = subscription.request.member("id").unwrap();
    let cancelled = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    );
    subscription.message(&cancelled).await;
    assert_eq!(inbox.text().await, TOOLS);
    assert_eq!(child.count("subscriptions/listen"), 2);
    send(&backend, call("test/exit", "")).await.unwrap_err();
    assert_eq!(inbox.text().await, TOOLS);
    assert_eq!(child.count("subscriptions/listen"), 3);
    drop(listening);
    child.wait_for("notifications/cancelled", 1).await;
    assert!(inbox.is_empty());
    backend.stop().await;
}
