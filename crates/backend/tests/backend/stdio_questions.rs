//! Questions that a legacy child process asks. They name no call: they go to the one client that
//! can be meant.

use std::time::Duration;

use fanlight_canonical::{Call, ServerRequest};
use fanlight_protocol::capability::ClientCapability;
use fanlight_protocol::{Json, Response};

use crate::support::child::Child;
use crate::support::{MessageReceiver, PATIENCE, call, json, listening, of_session, send, settings, start};

const ROOTS: &str = r#"{"roots":{}}"#;

/// `test/ask` asks for the roots and gives back the line that answered.
const ASKING: &str = r#"*'"method":"test/ask"'*) asked=$id
      say '{"jsonrpc":"2.0","id":"q\u0041","method":"roots/list","params":{ "n":1.0}}';;
    *'"id":"q\u0041"'*) id=$asked; result "$line";;
    *'"method":"test/wait"'*) waiting=$id; : > "$STATE/waiting";;
    *'"method":"test/go"'*) result '{}'; id=$waiting; result '{}';;"#;

fn as_client(method: &str, key: u64) -> (Call, MessageReceiver) {
    listening(call(method, ""), |context| {
        context.caller = crate::support::client(key);
        context.capabilities = json(ROOTS);
    })
}

fn answer(question: ServerRequest, result: &'static str) {
    question.answer.send(Response::from_result(&Json::literal(result))).unwrap();
}

#[tokio::test]
async fn server_requests_and_replies_keep_their_bytes() {
    let child = Child::legacy(ASKING);
    let backend = start(settings(child.transport()));
    let (call, mut inbox) = listening(call("test/ask", ""), of_session(1, ROOTS));
    let client = async {
        let question = inbox.question().await;
        assert_eq!(question.method.as_str(), "roots/list");
        assert_eq!(question.params.as_ref().unwrap().as_text(), r#"{ "n":1.0}"#);
        answer(question, "{ \"roots\" :\n[1.0]}");
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(outcome.unwrap(), r#"{"jsonrpc":"2.0","id":"q\u0041","result":{ "roots" :[1.0]}}"#);
    backend.stop().await;
}

#[tokio::test]
async fn server_requests_are_answered_in_any_order() {
    let child = Child::legacy(
        r#"*'"method":"test/ask"'*) asked=$id
          say '{"jsonrpc":"2.0","id":91,"method":"roots/list"}'
          say '{"jsonrpc":"2.0","id":92,"method":"elicitation/create","params":{}}';;
        *'"id":92,"result":'*) second=yes; say '{"jsonrpc":"2.0","id":93,"method":"roots/list"}';;
        *'"id":91,"result":'*) id=$asked; result "{\"second\":\"$second\"}";;"#,
    );
    let backend = start(settings(child.transport()));
    let (call, mut inbox) = listening(call("test/ask", ""), of_session(1, r#"{"roots":{},"elicitation":{}}"#));
    let client = async {
        let (first, second) = (inbox.question().await, inbox.question().await);
        answer(second, "{}");
        // The server asks again once it has the second answer.
        let _third = inbox.question().await;
        answer(first, "{}");
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(outcome.unwrap(), r#"{"second":"yes"}"#);
    backend.stop().await;
}

#[tokio::test]
async fn server_request_without_capability_is_refused() {
    let child = Child::legacy(ASKING);
    let backend = start(settings(child.transport()));
    for capabilities in ["{}", r#"{"sampling":{}}"#] {
        let (call, mut inbox) = listening(call("test/ask", ""), of_session(1, capabilities));
        let told = send(&backend, call).await.unwrap();
        assert!(told.starts_with(r#"{"jsonrpc":"2.0","id":"q\u0041","error":{"code":-32601,"#), "{told}");
        assert_eq!(inbox.refused().await, ClientCapability::Roots);
        assert!(inbox.recv().await.is_none());
    }
    backend.stop().await;
}

/// Two calls run, of clients with the same capabilities and no session; what comes of a question?
async fn ask_beside(waiting: u64, asking: u64) -> (String, bool) {
    let child = Child::legacy(ASKING);
    let backend = start(settings(child.transport()));
    let (first, mut first_inbox) = as_client("test/wait", waiting);
    let (second, mut second_inbox) = as_client("test/ask", asking);
    let asked = async {
        let begun = async {
            while !child.has("waiting") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, begun).await.unwrap();
        let told = tokio::select! {
            told = send(&backend, second) => (told.unwrap(), false),
            question = first_inbox.question() => {
                drop(question);
                (String::new(), true)
            }
            question = second_inbox.question() => panic!("{question:?}"),
        };
        send(&backend, as_client("test/go", asking).0).await.unwrap();
        told
    };
    let (first, told) = tokio::join!(send(&backend, first), asked);
    first.unwrap();
    backend.stop().await;
    told
}

#[tokio::test]
async fn server_request_is_not_delivered_to_another_client() {
    let (told, _) = ask_beside(1, 2).await;
    assert!(told.contains("-32603") && told.contains("several clients"), "{told}");
    // Of the same client: the oldest call.
    assert_eq!(ask_beside(1, 1).await, (String::new(), true));
}

#[tokio::test]
async fn server_request_ends_with_its_call_or_when_cancelled() {
    let child = Child::legacy(
        r#"*'"method":"test/withdraw"'*) withdraw=$id
          say '{"jsonrpc":"2.0","id":91,"method":"roots/list"}'
          say '{"jsonrpc":"2.0","id":92,"method":"roots/list"}'
          say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":91}}';;
        *'"method":"test/ask"'*) say '{"jsonrpc":"2.0","id":93,"method":"roots/list"}';;
        *'"id":92,'*) id=$withdraw; result '{}';;"#,
    );
    let backend = start(settings(child.transport()));
    let (withdrawing, mut inbox) = listening(call("test/withdraw", ""), of_session(1, ROOTS));
    let client = async {
        let (mut withdrawn, other) = (inbox.question().await, inbox.question().await);
        tokio::time::timeout(PATIENCE, withdrawn.answer.closed()).await.unwrap();
        answer(other, "{}");
    };
    let (outcome, ()) = tokio::join!(send(&backend, withdrawing), client);
    outcome.unwrap();

    let (asking, mut inbox) = listening(call("test/ask", ""), of_session(1, ROOTS));
    let mut question = tokio::select! {
        outcome = send(&backend, asking) => panic!("{outcome:?}"),
        question = inbox.question() => question,
    };
    tokio::time::timeout(PATIENCE, question.answer.closed()).await.unwrap();
    backend.stop().await;
}

#[tokio::test]
async fn deadline_is_paused_while_the_client_answers() {
    let child = Child::legacy(&format!("{ASKING}\n*'\"method\":\"test/x\"'*) result '{{}}';;"));
    let mut settings = settings(child.transport());
    settings.timeouts.call = Duration::from_secs(1);
    let backend = start(settings);
    crate::support::revision(&backend).await;
    send(&backend, listening(call("test/x", ""), of_session(1, ROOTS)).0).await.unwrap();
    let (call, mut inbox) = listening(call("test/ask", ""), of_session(1, ROOTS));
    let client = async {
        let question = inbox.question().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        answer(question, "{}");
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    outcome.unwrap();
    backend.stop().await;
}
