//! Batches from clients of 2025-03-26, the only revision that has them.

use fanlight_tests::slicer::{elements, member};

use crate::faults::backend;
use crate::harness::Gateway;
use crate::raw_client::{LegacySession, StdioClient, legacy_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const REVISION: &str = "2025-03-26";
const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

fn batch(messages: &[&str]) -> String {
    format!("[{}]", messages.join(" ,\n"))
}

/// A batch of calls, a notification, an unknown tool and a ping; each is handled as if sent alone.
fn mixed() -> String {
    let call = |id: &str, tool: &str| {
        legacy_request(
            id,
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
        )
    };
    let (first, second, unknown) = (
        call(r#""\u0061""#, "a__t"),
        call("2", "b__t"),
        call("3", "a__none"),
    );
    batch(&[
        &first,
        NOTIFICATION,
        &second,
        &unknown,
        &legacy_request("4", "ping", ""),
    ])
}

fn assert_mixed(answers: &[String]) {
    let of = |id: &str| {
        let mut all = answers
            .iter()
            .filter(|answer| member(answer, "id") == Some(id));
        let answer = all
            .next()
            .unwrap_or_else(|| panic!("no answer to {id} in {answers:?}"));
        assert!(all.next().is_none(), "{answers:?}");
        answer
    };
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(
        member(of(r#""\u0061""#), "result"),
        Some(r#"{"content":[],"n":1.0}"#)
    );
    assert_eq!(member(of("2"), "result"), Some(r#"{"content":[],"n":2.0}"#));
    assert!(member(of("3"), "error.code").is_some());
    assert_eq!(member(of("4"), "result"), Some("{}"));
}

async fn servers() -> [Backend; 2] {
    let (a, b) = (
        backend(Era::Legacy, Transport::Http).await,
        backend(Era::Legacy, Transport::Stdio).await,
    );
    a.on(
        "tools/call",
        Reply::error(r#"{"code":-32602,"message":"no such tool"}"#),
    );
    a.on_target(
        "tools/call",
        "t",
        Reply::result(r#"{"content":[],"n":1.0}"#),
    );
    b.on_target(
        "tools/call",
        "t",
        Reply::result(r#"{"content":[],"n":2.0}"#),
    );
    [a, b]
}

#[tokio::test]
async fn batch_messages_are_answered_individually() {
    let [a, b] = servers().await;
    let config = config(&[a.entry("a"), b.entry("b")]);
    let gateway = Gateway::start(&config).await;
    let session = LegacySession::open_as(gateway.mcp, REVISION).await;
    let mut response = session.post(&mixed()).await;
    let answers = match response.is_event_stream() {
        true => {
            let (mut before, last) = response.messages().await;
            before.push(last);
            before
        }
        false => elements(&response.text().await)
            .unwrap()
            .into_iter()
            .map(str::to_owned)
            .collect(),
    };
    assert_mixed(&answers);
    assert_eq!(
        session
            .post(&batch(&[NOTIFICATION, NOTIFICATION]))
            .await
            .status,
        202
    );
    assert_eq!(session.post("[]").await.status, 400);

    let mut gateway = Gateway::stdio(&config);
    let mut client = StdioClient::new(&mut gateway);
    client.initialize(REVISION).await;
    client.send(&mixed()).await;
    let mut answers = Vec::new();
    while answers.len() < 4 {
        answers.push(client.receive().await.expect("an answer"));
    }
    assert_mixed(&answers);
}

#[tokio::test]
async fn batches_are_refused_in_other_revisions() {
    let [a, b] = servers().await;
    let gateway = Gateway::start(&config(&[a.entry("a"), b.entry("b")])).await;
    for revision in ["2025-06-18", "2025-11-25"] {
        let session = LegacySession::open_as(gateway.mcp, revision).await;
        assert_eq!(session.post(&mixed()).await.status, 400, "{revision}");
    }
    assert!(a.received("tools/call").is_empty() && b.received("tools/call").is_empty());
}
