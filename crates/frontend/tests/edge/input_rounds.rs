//! `input_required` results of modern servers, made into server requests to legacy clients.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;

use crate::client::Server;
use crate::streams::Stdio;

const ALL: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;
const TWO: &str = r#"{"resultType":"input_required","inputRequests":{"\u0061":{"method":"elicitation/create","params":{"x":1.0}},"b":{"method":"roots/list"}},"requestState":"\u0073 1"}"#;
const STATE_ONLY: &str = r#"{"resultType":"input_required","requestState":"s"}"#;

/// A call that needs input until it has the member `until`; its answer until then is `required`.
fn call(required: &str, until: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"need-input","arguments":{{"required":{required},"until":"{until}"}},"inputResponses":7}}}}"#
    )
    .replace(r#","inputResponses":7"#, if until == "inputResponses" { "" } else { r#","inputResponses":7"# })
}

#[tokio::test]
async fn input_is_requested_and_the_call_repeated_with_the_answers() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(ALL).await;
    stdio.send(&call(TWO, "inputResponses")).await;
    let first = stdio.log.began().await.params.unwrap();
    let asked =
        r#"{"jsonrpc":"2.0","id":"fanlight-1","method":"elicitation/create","params":{"x":1.0}}"#;
    assert_eq!(stdio.line().await.unwrap(), asked);
    assert_eq!(stdio.message().await["method"], "roots/list");
    stdio
        .send(r#"{"jsonrpc":"2.0","id":"fanlight-2","result":{"roots":[ ]}}"#)
        .await;
    stdio
        .send(r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{ "y":1E400}}"#)
        .await;
    let second = stdio.log.began().await.params.unwrap();
    let added =
        r#","inputResponses":{"\u0061":{ "y":1E400},"b":{"roots":[ ]}},"requestState":"\u0073 1"}"#;
    assert_eq!(
        second.as_text(),
        format!("{}{added}", first.as_text().strip_suffix('}').unwrap())
    );
    assert_eq!(stdio.message().await["id"], 1);
    assert!(stdio.end().await.is_empty());
}

#[tokio::test]
async fn input_required_with_a_state_alone_is_repeated_at_once() {
    let mut stdio = Stdio::start();
    stdio.initialize_with("{}").await;
    stdio.send(&call(STATE_ONLY, "requestState")).await;
    stdio.log.began().await;
    let second = stdio.log.began().await.params.unwrap();
    assert!(
        second.as_text().ends_with(r#"},"requestState":"s"}"#),
        "{second}"
    );
    assert!(stdio.message().await.get("result").is_some());
}

#[tokio::test]
async fn input_rounds_are_bounded() {
    let mut stdio = Stdio::with(FrontendSettings {
        max_input_rounds: 3,
        ..FrontendSettings::default()
    });
    stdio.initialize_with("{}").await;
    let answer = stdio.ask(&call(STATE_ONLY, "never")).await;
    assert_eq!(answer["error"]["code"], -32603);
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("more than 3 times"),
        "{answer}"
    );
    for _ in 0..4 {
        stdio.log.began().await;
    }
    assert!(stdio.end().await.is_empty());
}

#[tokio::test]
async fn refused_input_ends_the_call() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(r#"{"elicitation":{}}"#).await;
    let message = |answer: &serde_json::Value| {
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    // The client lacks one of two capabilities, so neither request is sent.
    let lacking = message(&stdio.ask(&call(TWO, "inputResponses")).await);
    assert!(
        lacking.contains(r#""b" ("roots/list")"#) && lacking.contains(r#""roots""#),
        "{lacking}"
    );
    // The client answers with an error. Only elicitation has an equivalent for it.
    let one = r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}"#;
    stdio.initialize_with(ALL).await;
    stdio.send(&call(one, "inputResponses")).await;
    assert_eq!(stdio.message().await["method"], "roots/list");
    let refusal = stdio
        .ask(r#"{"jsonrpc":"2.0","id":"fanlight-1","error":{"code":-1,"message":"no"}}"#)
        .await;
    assert!(
        message(&refusal).contains(r#""a" ("roots/list")"#),
        "{refusal}"
    );
    assert_eq!(
        refusal["error"]["data"],
        serde_json::json!({"input": "a", "error": {"code": -1, "message": "no"}})
    );
    // Malformed requests for input.
    for broken in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":7}}"#,
    ] {
        let broken = message(&stdio.ask(&call(broken, "inputResponses")).await);
        assert!(broken.contains("cannot be used"), "{broken}");
    }
    assert!(stdio.end().await.is_empty());

    // There is no stream to ask on.
    let server = Server::start().await;
    let mut client = server.connect().await;
    let id = server.session_with(&mut client, ALL).await;
    let headers = [
        ("Mcp-Session-Id", id.as_str()),
        ("Accept", "application/json"),
    ];
    let unasked = message(
        &client
            .post(&headers, &call(TWO, "inputResponses"))
            .await
            .json(),
    );
    assert!(unasked.contains("cannot be asked"), "{unasked}");
}

#[tokio::test(start_paused = true)]
async fn input_round_expires() {
    let input_timeout = Duration::from_secs(5);
    let mut stdio = Stdio::with(FrontendSettings {
        input_timeout,
        ..FrontendSettings::default()
    });
    stdio.initialize_with(ALL).await;
    stdio.send(&call(TWO, "inputResponses")).await;
    let methods = [
        stdio.message().await,
        stdio.message().await,
        stdio.message().await,
        stdio.message().await,
    ];
    assert_eq!(
        (&methods[2]["method"], &methods[3]["method"]),
        (
            &"notifications/cancelled".into(),
            &"notifications/cancelled".into()
        )
    );
    let answer = stdio.message().await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("within 5s"),
        "{answer}"
    );
}

#[tokio::test]
async fn elicitation_that_a_client_fails_is_cancelled() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(ALL).await;
    let one = r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}"#;
    stdio.send(&call(one, "inputResponses")).await;
    stdio.log.began().await;
    assert_eq!(stdio.message().await["method"], "elicitation/create");
    stdio
        .send(
            r#"{"jsonrpc":"2.0","id":"fanlight-1","error":{"code":-32603,"message":"no dialog"}}"#,
        )
        .await;
    let second = stdio.log.began().await.params.unwrap();
    assert!(
        second
            .as_text()
            .ends_with(r#""inputResponses":{"a":{"action":"cancel"}}}"#),
        "{second}"
    );
    assert_eq!(stdio.message().await["id"], 1);
}

#[tokio::test]
async fn url_elicitation_of_a_modern_server_has_an_id_and_is_completed() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(r#"{"elicitation":{"url":{}}}"#).await;
    let one = r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{ "mode":"url","url":"https://a/","message":"m"}}}}"#;
    for (action, is_completed) in [("accept", true), ("decline", false)] {
        stdio.send(&call(one, "inputResponses")).await;
        stdio.log.began().await;
        let asked = stdio.message().await;
        let id = asked["params"]["elicitationId"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(id.len() >= 32, "guessable: {id}");
        assert_eq!(asked["params"]["url"], "https://a/");
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"{action}"}}}}"#,
            asked["id"]
        );
        stdio.send(&answer).await;
        stdio.log.began().await;
        if is_completed {
            let complete = stdio.message().await;
            assert_eq!(complete["method"], "notifications/elicitation/complete");
            assert_eq!(complete["params"], serde_json::json!({"elicitationId": id}));
        }
        assert_eq!(stdio.message().await["id"], 1);
    }
}
