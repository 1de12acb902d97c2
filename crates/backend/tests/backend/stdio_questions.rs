//! Questions of a legacy child process. They name no call, so they go to the only possible client.

use std::time::Duration;

use fanlight_canonical::{BackendClient as _, Call, Caller, Principal, SameClient, ServerRequest};
use fanlight_protocol::capability::ClientCapability;
use fanlight_protocol::{Json, Response};
use fanlight_testkit::scripted::{Fault, Gate, Reply};

use crate::support::child::Child;
use crate::support::{
    MessageReceiver, PATIENCE, call, json, listening, of_session, send, settings, start,
};

const ROOTS: &str = r#"{"roots":{}}"#;

const NO_ROOTS: &str = r#"{"roots":[]}"#;

const ASK: &str = r#"{"jsonrpc":"2.0","id":"q\u0041","method":"roots/list","params":{ "n":1.0}}"#;

/// A server whose `test/ask` asks for the roots and returns the client's whole response.
async fn asking() -> Child {
    let child = Child::legacy().await;
    child.on(
        "test/ask",
        Reply::conclude(|_, answers| answers[0].text.clone()).asking(&[ASK]),
    );
    child
}

fn as_client(method: &str, key: u64) -> (Call, MessageReceiver) {
    listening(call(method, ""), |context| {
        context.caller = crate::support::client(key);
        context.capabilities = json(ROOTS);
    })
}

fn answer(question: ServerRequest, result: &'static str) {
    question
        .answer
        .send(Response::from_result(&Json::literal(result)))
        .unwrap();
}

#[tokio::test]
async fn server_requests_and_replies_keep_their_bytes() {
    let child = asking().await;
    let backend = start(settings(child.transport()));
    let (call, mut inbox) = listening(call("test/ask", ""), of_session(1, ROOTS));
    let client = async {
        let question = inbox.question().await;
        assert_eq!(question.method.as_str(), "roots/list");
        assert_eq!(question.params.as_ref().unwrap().as_text(), r#"{ "n":1.0}"#);
        answer(
            question,
            "{ \"roots\" :\n[{\"uri\":\"file:///a\",\"n\":1.0}]}",
        );
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(
        outcome.unwrap(),
        r#"{"jsonrpc":"2.0","id":"q\u0041","result":{ "roots" :[{"uri":"file:///a","n":1.0}]}}"#
    );
    backend.stop().await;
}

#[tokio::test]
async fn server_requests_are_answered_in_any_order() {
    let child = Child::legacy().await;
    child.on("test/ask", Reply::driven());
    let backend = start(settings(child.transport()));
    let (call, mut inbox) = listening(
        call("test/ask", ""),
        of_session(1, r#"{"roots":{},"elicitation":{}}"#),
    );
    let client = async {
        let (first, second) = (inbox.question().await, inbox.question().await);
        answer(second, r#"{"action":"cancel"}"#);
        // The server asks again after the second answer.
        let _third = inbox.question().await;
        answer(first, NO_ROOTS);
    };
    let server = async {
        let call = child.stream(0).await;
        call.message(r#"{"jsonrpc":"2.0","id":91,"method":"roots/list"}"#)
            .await;
        call.message(r#"{"jsonrpc":"2.0","id":92,"method":"elicitation/create","params":{}}"#)
            .await;
        child.answer_to("92", &call.request).await;
        call.message(r#"{"jsonrpc":"2.0","id":93,"method":"roots/list"}"#)
            .await;
        child.answer_to("91", &call.request).await;
        call.result("{}").await;
    };
    let (outcome, (), ()) = tokio::join!(send(&backend, call), client, server);
    assert_eq!(outcome.unwrap(), "{}");
    backend.stop().await;
}

#[tokio::test]
async fn server_request_without_capability_is_refused() {
    let child = asking().await;
    let backend = start(settings(child.transport()));
    for capabilities in ["{}", r#"{"sampling":{}}"#] {
        let (call, mut inbox) = listening(call("test/ask", ""), of_session(1, capabilities));
        let told = send(&backend, call).await.unwrap();
        assert!(
            told.starts_with(r#"{"jsonrpc":"2.0","id":"q\u0041","error":{"code":-32601,"#),
            "{told}"
        );
        assert_eq!(inbox.refused().await, ClientCapability::Roots);
        assert!(inbox.recv().await.is_none());
    }
    backend.stop().await;
}

#[tokio::test]
async fn server_request_is_for_the_oldest_call_of_its_session() {
    let child = asking().await;
    let gate = Gate::new();
    child.on("test/wait", Reply::result("{}").gated(&gate));
    let backend = start(settings(child.transport()));
    let (first, mut first_inbox) = listening(call("test/wait", ""), of_session(1, ROOTS));
    let (second, mut second_inbox) = listening(call("test/ask", ""), of_session(1, ROOTS));
    let asked = async {
        child.wait_for("test/wait", 1).await;
        tokio::select! {
            told = send(&backend, second) => panic!("{told:?}"),
            question = first_inbox.question() => drop(question),
            question = second_inbox.question() => panic!("{question:?}"),
        }
        gate.open();
    };
    let (first, ()) = tokio::join!(send(&backend, first), asked);
    first.unwrap();
    backend.stop().await;
}

/// A client without a session has its own process while it can be asked. So its answers are not
/// used for another client: a server may keep them as long as it runs.
#[tokio::test]
async fn clients_without_session_get_no_process_that_another_was_asked_in() {
    let child = Child::legacy().await;
    let ask = ASK.replace("q\\u0041", "q-{call}");
    child.on(
        "test/ask",
        Reply::conclude(|_, answers| answers[0].text.clone()).asking(&[&ask]),
    );
    let backend = start(settings(child.transport()));
    for (key, roots) in [
        (1, r#"{"roots":[{"uri":"file:///1"}]}"#),
        (2, r#"{"roots":[{"uri":"file:///2"}]}"#),
    ] {
        let (asking, mut inbox) = as_client("test/ask", key);
        let client = async { answer(inbox.question().await, roots) };
        let (told, ()) = tokio::join!(send(&backend, asking), client);
        let told = told.unwrap();
        assert!(told.contains(roots), "{told}");
    }
    // The base process, and one for each client.
    assert_eq!(child.children(3).await.len(), 3);
    backend.stop().await;
}

/// As when the client is connected directly, answers and other state stay in its process.
#[tokio::test]
async fn client_without_session_keeps_its_process_if_something_tells_it() {
    let child = Child::legacy().await;
    let ask = ASK.replace("q\\u0041", "q-{call}");
    child.on("test/ask", Reply::result("{}").asking(&[&ask]));
    child.on("test/quick", Reply::result("{}"));
    const NAMED: &str = r#"{"name":"n","version":"1"}"#;
    let backend = start(settings(child.transport()));
    let of = |principal: &Principal, client, name: &'static str| {
        let caller = Caller::request_of(principal.clone()).with_client(Some(client));
        move |method| {
            let caller = Caller::request_of(caller.holder().clone()).with_client(caller.client());
            listening(call(method, ""), |context| {
                context.caller = caller;
                context.capabilities = json(ROOTS);
                context.client_info = Some(json(name));
            })
        }
    };
    let (anonymous, ann, bob) = (
        Principal::anonymous(),
        Principal::new("i", "ann"),
        Principal::new("i", "bob"),
    );
    let mut processes = Vec::new();
    for client in [
        of(&anonymous, SameClient::Connection, NAMED),
        of(
            &anonymous,
            SameClient::Machine(1),
            r#"{"name":"a","version":"1"}"#,
        ),
        of(
            &anonymous,
            SameClient::Machine(1),
            r#"{"name":"b","version":"1"}"#,
        ),
        of(
            &anonymous,
            SameClient::Machine(7),
            r#"{"name":"a","version":"1"}"#,
        ),
        of(&ann, SameClient::Principal, NAMED),
        of(&bob, SameClient::Principal, NAMED),
    ] {
        let (first, mut first_inbox) = client("test/ask");
        let (second, mut second_inbox) = client("test/ask");
        let asked = async {
            let question = first_inbox.question().await;
            // A second call beside one that waits for its client.
            let second = async {
                let client = async { answer(second_inbox.question().await, NO_ROOTS) };
                tokio::join!(send(&backend, second), client).0.unwrap();
            };
            second.await;
            answer(question, NO_ROOTS);
        };
        tokio::join!(send(&backend, first), asked).0.unwrap();
        send(&backend, client("test/quick").0).await.unwrap();
        let used: Vec<_> = ["test/ask", "test/quick"]
            .iter()
            .flat_map(|method| child.received(method))
            .filter_map(|received| received.process)
            .filter(|process| !processes.contains(process))
            .collect();
        assert_eq!((used.len(), used[0], used[1]), (3, used[1], used[2]));
        processes.push(used[0]);
    }
    let owners: Vec<_> = backend
        .parts()
        .processes
        .into_iter()
        .map(|one| one.owner)
        .collect();
    let expected = [
        "Fanlight", "a client", "a client", "a client", "a client", "i#ann", "i#bob",
    ];
    assert_eq!(owners, expected);
    backend.stop().await;
}

#[tokio::test]
async fn clients_without_session_share_a_process_in_which_no_client_was_asked_one_after_the_other()
{
    let child = Child::legacy().await;
    child.on("test/wait", Reply::fault(Fault::Hang));
    child.on("test/quick", Reply::result("{}"));
    let backend = start(settings(child.transport()));
    let (waiting, _inbox) = as_client("test/wait", 1);
    let meanwhile = async {
        child.wait_for("test/wait", 1).await;
        // The first call keeps its process while it runs; later calls share another.
        for key in 2..5 {
            send(&backend, as_client("test/quick", key).0)
                .await
                .unwrap();
        }
    };
    tokio::select! {
        told = send(&backend, waiting) => panic!("{told:?}"),
        done = tokio::time::timeout(PATIENCE, meanwhile) => done.unwrap(),
    }
    assert_eq!(child.children(3).await.len(), 3);
    backend.stop().await;
}

#[tokio::test]
async fn server_request_ends_with_its_call_or_when_cancelled() {
    let child = Child::legacy().await;
    child.on("test/withdraw", Reply::driven());
    child.on(
        "test/ask",
        Reply::fault(Fault::Hang).after(&[r#"{"jsonrpc":"2.0","id":93,"method":"roots/list"}"#]),
    );
    let backend = start(settings(child.transport()));
    let (withdrawing, mut inbox) = listening(call("test/withdraw", ""), of_session(1, ROOTS));
    let client = async {
        let (mut withdrawn, other) = (inbox.question().await, inbox.question().await);
        tokio::time::timeout(PATIENCE, withdrawn.answer.closed())
            .await
            .unwrap();
        answer(other, NO_ROOTS);
    };
    let server = async {
        let call = child.stream(0).await;
        for message in [
            r#"{"jsonrpc":"2.0","id":91,"method":"roots/list"}"#,
            r#"{"jsonrpc":"2.0","id":92,"method":"roots/list"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":91}}"#,
        ] {
            call.message(message).await;
        }
        child.answer_to("92", &call.request).await;
        call.result("{}").await;
    };
    let (outcome, (), ()) = tokio::join!(send(&backend, withdrawing), client, server);
    outcome.unwrap();

    let (asking, mut inbox) = listening(call("test/ask", ""), of_session(1, ROOTS));
    let mut question = tokio::select! {
        outcome = send(&backend, asking) => panic!("{outcome:?}"),
        question = inbox.question() => question,
    };
    tokio::time::timeout(PATIENCE, question.answer.closed())
        .await
        .unwrap();
    backend.stop().await;
}

#[tokio::test]
async fn deadline_is_paused_while_the_client_answers() {
    let child = asking().await;
    child.on("test/x", Reply::result("{}"));
    let mut settings = settings(child.transport());
    settings.timeouts.call = Duration::from_secs(1);
    let backend = start(settings);
    crate::support::revision(&backend).await;
    send(
        &backend,
        listening(call("test/x", ""), of_session(1, ROOTS)).0,
    )
    .await
    .unwrap();
    let (call, mut inbox) = listening(call("test/ask", ""), of_session(1, ROOTS));
    let client = async {
        let question = inbox.question().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        answer(question, NO_ROOTS);
    };
    let (outcome, ()) = tokio::join!(send(&backend, call), client);
    outcome.unwrap();
    backend.stop().await;
}
