//! Requests of legacy servers to modern clients: the call is suspended until the client sends the
//! input in a new request.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;
use serde_json::{Value, json};

use crate::client::{Server, modern_headers, soon};
use crate::core::Happened;
use crate::streams::Stdio;

const ALL: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;
const FORM: &str = r#"{"method":"elicitation/create","params":{ "message":"\u0041","x":1.0}}"#;
const SAMPLING: &str = r#"{"method":"sampling/createMessage","params":{"maxTokens":1E1}}"#;
const ROOTS: &str = r#"{"method":"roots/list"}"#;

/// A call of `tool`; `added` are further members of its params, each preceded by a comma.
pub(crate) fn call(
    id: usize,
    tool: &str,
    arguments: &str,
    added: &str,
    capabilities: &str,
    meta: &str,
) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}{added},"_meta":{{{meta}"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
    )
}

/// A call of the tool that asks `rounds`.
fn ask(id: usize, rounds: &str, added: &str) -> String {
    call(id, "ask", &format!(r#"{{"ask":{rounds}}}"#), added, ALL, "")
}

/// The members of a retry with input.
pub(crate) fn input(state: &Value, responses: &str) -> String {
    format!(r#","inputResponses":{responses},"requestState":{state}"#)
}

pub(crate) fn state(answer: &Value) -> Value {
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    answer["result"]["requestState"].clone()
}

pub(crate) fn refusal(answer: &Value) -> String {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn server_requests_together_and_in_turn_suspend_a_call() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let headers = modern_headers("tools/call", Some("ask"));
    let rounds = format!("[[{FORM},{ROOTS}],[{SAMPLING}]]");
    let first = client.post(&headers, &ask(1, &rounds, "")).await;
    assert_eq!(
        (first.status, first.header("content-type")),
        (200, Some("application/json"))
    );
    let one = state(&first.json());
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"input_required","inputRequests":{{"input-1":{FORM},"input-2":{ROOTS}}},"requestState":{one}}}}}"#
    );
    assert_eq!(first.body, expected);

    // The retry uses another connection, without a stream.
    let mut other = server.connect().await;
    let mut only_json = headers.clone();
    only_json.push(("Accept", "application/json"));
    let brought = input(
        &one,
        r#"{"input-2":{"roots":[ ]},"input-1":{ "y":1E400},"unknown":{}}"#,
    );
    let second = other.post(&only_json, &ask(2, &rounds, &brought)).await;
    let two = state(&second.json());
    assert!(
        second
            .body
            .contains(&format!(r#""inputRequests":{{"input-3":{SAMPLING}}}"#)),
        "{}",
        second.body
    );

    let brought = input(&two, r#"{"input-3":{"z":-0}}"#);
    let last = call(
        3,
        "ask",
        &format!(r#"{{"ask":{rounds}}}"#),
        &brought,
        ALL,
        r#""progressToken":"t","#,
    );
    let events = client.post(&headers, &last).await.events();
    let result = r#"{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","answers":[{ "y":1E400},{"roots":[ ]},{"z":-0}]}}"#;
    // The progress belongs to the last round, with its own request's token.
    assert!(events[0].contains(r#""progressToken":"t""#), "{events:?}");
    assert_eq!((events.len(), events[1].as_str()), (2, result));
}

#[tokio::test]
async fn missing_input_is_requested_again() {
    let mut stdio = Stdio::start();
    let rounds = format!("[[{FORM},{ROOTS}]]");
    let one = state(&stdio.ask(&ask(1, &rounds, "")).await);
    let answer = stdio
        .ask(&ask(2, &rounds, &input(&one, r#"{"input-2":{"b":2}}"#)))
        .await;
    assert_eq!(
        answer["result"]["inputRequests"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["input-1"]
    );
    let two = state(&answer);
    assert!(
        refusal(
            &stdio
                .ask(&ask(3, &rounds, &input(&one, r#"{"input-1":{}}"#)))
                .await
        )
        .contains("used already")
    );
    let three = state(
        &stdio
            .ask(&ask(4, &rounds, &format!(r#","requestState":{two}"#)))
            .await,
    );
    let answer = stdio
        .ask(&ask(5, &rounds, &input(&three, r#"{"input-1":{"a":1}}"#)))
        .await;
    assert_eq!(answer["result"]["answers"], json!([{"a": 1}, {"b": 2}]));
    assert!(stdio.end().await.is_empty());
}

#[tokio::test]
async fn request_state_changed_used_or_of_another_request_is_refused() {
    let mut stdio = Stdio::start();
    let rounds = format!("[[{ROOTS}]]");
    let given = state(&stdio.ask(&ask(1, &rounds, "")).await);
    let text = given.as_str().unwrap();
    let forged = json!(format!("{}{}", &text[..text.len() - 8], "AAAAAAAA"));
    let good = r#"{"input-1":{}}"#;
    assert!(
        refusal(&stdio.ask(&ask(2, &rounds, &input(&forged, good))).await)
            .contains("has been changed")
    );
    let other = ask(3, &format!("[[{ROOTS},{ROOTS}]]"), &input(&given, good));
    assert!(refusal(&stdio.ask(&other).await).contains("another request"));
    for wrong in ["7", r#"{"input-1":7}"#] {
        assert!(
            refusal(&stdio.ask(&ask(4, &rounds, &input(&given, wrong))).await)
                .contains("inputResponses")
        );
    }
    // The state is still unused; this retry uses it.
    let retry = ask(5, &rounds, &input(&given, good));
    assert_eq!(stdio.ask(&retry).await["result"]["answers"], json!([{}]));
    assert!(refusal(&stdio.ask(&retry).await).contains("expired"));
    // A state of another process or a server passes unchanged.
    stdio.log.began().await;
    assert_eq!(
        stdio
            .ask(&call(
                6,
                "echo",
                "{}",
                r#","requestState":"\u0073""#,
                ALL,
                ""
            ))
            .await["id"],
        6
    );
    let passed = stdio.log.began().await.params.unwrap();
    assert!(
        passed.as_text().contains(r#""requestState":"\u0073""#),
        "{passed}"
    );
}

#[tokio::test]
async fn resumed_call_is_not_resumed_twice() {
    let mut stdio = Stdio::start();
    let arguments = "{}";
    let given = state(
        &stdio
            .ask(&call(1, "ask-and-wait", arguments, "", ALL, ""))
            .await,
    );
    let retry = |id| {
        call(
            id,
            "ask-and-wait",
            arguments,
            &input(&given, r#"{"input-1":{}}"#),
            ALL,
            "",
        )
    };
    stdio.send(&retry(2)).await;
    assert!(refusal(&stdio.ask(&retry(3)).await).contains("used already"));
    // The request that resumed it can cancel it.
    stdio
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)
        .await;
    assert!(matches!(stdio.log.ended().await, Happened::Dropped));
    assert!(refusal(&stdio.ask(&retry(4)).await).contains("expired"));
}

#[tokio::test]
async fn hundred_suspended_calls_are_told_apart() {
    let mut stdio = Stdio::start();
    let rounds = format!("[[{ROOTS}]]");
    let mut states = Vec::new();
    for id in 0..100 {
        states.push(state(&stdio.ask(&ask(id, &rounds, "")).await));
    }
    for (id, given) in states.iter().enumerate().rev() {
        let answer = stdio
            .ask(&ask(
                1000 + id,
                &rounds,
                &input(given, &format!(r#"{{"input-1":{{"n":{id}}}}}"#)),
            ))
            .await;
        assert_eq!(answer["result"]["answers"], json!([{"n": id}]));
    }
}

#[tokio::test]
async fn suspended_calls_are_bounded_and_freed() {
    let mut stdio = Stdio::with(FrontendSettings {
        max_suspended_calls: 1,
        ..FrontendSettings::default()
    });
    let rounds = format!("[[{ROOTS}]]");
    let given = state(&stdio.ask(&ask(1, &rounds, "")).await);
    assert_eq!(
        stdio.ask(&ask(2, &rounds, "")).await["result"]["answers"],
        json!([null])
    );
    let answer = stdio
        .ask(&ask(3, &rounds, &input(&given, r#"{"input-1":{}}"#)))
        .await;
    assert_eq!(answer["result"]["answers"], json!([{}]));
    state(&stdio.ask(&ask(4, &rounds, "")).await);
}

#[tokio::test]
async fn server_request_that_the_client_cannot_answer_is_refused() {
    let mut stdio = Stdio::start();
    let custom = r#"{"method":"x/y"}"#;
    let arguments = format!(r#"{{"ask":[[{FORM},{custom}]]}}"#);
    let answer = stdio
        .ask(&call(1, "ask", &arguments, "", r#"{"roots":{}}"#, ""))
        .await;
    let codes: Vec<_> = [0, 1]
        .map(|at| answer["result"]["answers"][at]["code"].as_i64())
        .into();
    assert_eq!(codes, [Some(-32601), Some(-32601)], "{answer}");
    // The capabilities of the resuming request apply to later server requests.
    let arguments = format!(r#"{{"ask":[[{ROOTS}],[{FORM}]]}}"#);
    let given = state(
        &stdio
            .ask(&call(2, "ask", &arguments, "", r#"{"roots":{}}"#, ""))
            .await,
    );
    let retry = call(
        3,
        "ask",
        &arguments,
        &input(&given, r#"{"input-1":{}}"#),
        r#"{"elicitation":{}}"#,
        "",
    );
    let answer = stdio.ask(&retry).await;
    assert_eq!(
        answer["result"]["inputRequests"]["input-2"]["method"], "elicitation/create",
        "{answer}"
    );
}

#[tokio::test]
async fn method_without_input_required_is_not_suspended() {
    let mut stdio = Stdio::start();
    let completion =
        ask(1, &format!("[[{ROOTS}]]"), "").replace("tools/call", "completion/complete");
    assert_eq!(
        stdio.ask(&completion).await["result"]["answers"],
        json!([null])
    );
}

#[tokio::test]
async fn resumed_call_ends_with_its_new_connection() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let headers = modern_headers("tools/call", Some("ask-then-wait"));
    let given = state(
        &client
            .post(&headers, &call(1, "ask-then-wait", "{}", "", ALL, ""))
            .await
            .json(),
    );
    // The connection that got the `input_required` result is not needed any more.
    drop(client);
    let mut client = server.connect().await;
    let brought = input(&given, r#"{"input-1":{}}"#);
    let retry = call(
        2,
        "ask-then-wait",
        "{}",
        &brought,
        ALL,
        r#""progressToken":1,"#,
    );
    client.send("POST", "/mcp", &headers, &retry).await;
    client.head().await;
    assert!(client.event().await.unwrap().contains("progress"));
    drop(client);
    assert!(matches!(server.log.ended().await, Happened::Dropped));
}

#[tokio::test]
async fn messages_during_suspension_are_delivered_on_resumption() {
    let mut stdio = Stdio::start();
    let given = state(&stdio.ask(&call(1, "ask-and-wait", "{}", "", ALL, "")).await);
    // The server stops waiting, and answers.
    stdio.core.release.add_permits(1);
    assert!(matches!(stdio.log.ended().await, Happened::Answered));
    let answer = stdio
        .ask(&call(
            2,
            "ask-and-wait",
            "{}",
            &input(&given, r#"{"input-1":{}}"#),
            ALL,
            "",
        ))
        .await;
    assert_eq!(
        (&answer["id"], &answer["result"]["resultType"]),
        (&2.into(), &"complete".into())
    );
}

#[tokio::test(start_paused = true)]
async fn suspended_call_is_cancelled_at_its_timeout() {
    let settings = FrontendSettings {
        input_timeout: Duration::from_secs(5),
        ..FrontendSettings::default()
    };
    let mut stdio = Stdio::with(settings);
    let rounds = format!("[[{ROOTS}]]");
    let given = state(&stdio.ask(&ask(1, &rounds, "")).await);
    let suspended = tokio::time::Instant::now();
    assert!(matches!(stdio.log.ended().await, Happened::Dropped));
    assert_eq!(suspended.elapsed().as_secs(), 5);
    assert!(
        refusal(
            &stdio
                .ask(&ask(2, &rounds, &input(&given, r#"{"input-1":{}}"#)))
                .await
        )
        .contains("expired")
    );
}

/// If the server gave up first, it would continue without an answer.
#[tokio::test(start_paused = true)]
async fn suspended_call_is_cancelled_before_its_server_requests_expire() {
    let settings = FrontendSettings {
        input_timeout: crate::core::GIVES_UP,
        ..FrontendSettings::default()
    };
    let mut stdio = Stdio::with(settings);
    state(&stdio.ask(&ask(1, &format!("[[{ROOTS}]]"), "")).await);
    let suspended = tokio::time::Instant::now();
    assert!(matches!(stdio.log.ended().await, Happened::Dropped));
    assert!(suspended.elapsed() < crate::core::GIVES_UP);
}

#[tokio::test]
async fn suspended_calls_end_with_the_front_end() {
    let mut stdio = Stdio::start();
    state(&stdio.ask(&ask(1, &format!("[[{ROOTS}]]"), "")).await);
    drop(stdio.input.take());
    assert!(matches!(stdio.log.ended().await, Happened::Dropped));
    soon(stdio.served).await.unwrap().unwrap();

    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let response = client
        .post(
            &modern_headers("tools/call", Some("ask")),
            &ask(1, &format!("[[{ROOTS}]]"), ""),
        )
        .await;
    state(&response.json());
    server.shutdown.cancel();
    assert!(matches!(server.log.ended().await, Happened::Dropped));
    soon(server.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn input_required_of_a_modern_server_passes_verbatim() {
    let mut stdio = Stdio::start();
    let required = r#"{"resultType":"input_required","inputRequests":{"\u0061":{"method":"x/y"}},"requestState":"\u0073"}"#;
    let arguments = format!(r#"{{"required":{required}}}"#);
    stdio
        .send(&call(1, "need-input", &arguments, "", "{}", ""))
        .await;
    assert_eq!(
        stdio.line().await.unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{required}}}"#)
    );
    stdio.log.began().await;
    let brought = r#","inputResponses":{"\u0061":{"x":1.0}},"requestState":"\u0073""#;
    let retry = call(2, "need-input", &arguments, brought, "{}", "");
    assert_eq!(stdio.ask(&retry).await["result"]["resultType"], "complete");
    let passed = stdio.log.began().await.params.unwrap();
    assert!(passed.as_text().contains(brought), "{passed}");
}
