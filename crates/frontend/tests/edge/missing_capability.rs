//! Modern clients that lack a capability for a legacy server's request, and errors that ask for
//! URLs.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;

use crate::client::{Server, modern_headers};
use crate::core::Happened;
use crate::streams::Stdio;
use crate::suspended::{call, input, refusal, state};

const FAILED: &str = r#"{ "isError" : true,"content":[ 1.0 ]}"#;
const URL: &str = r#"{"elicitation":{"url":{}}}"#;
const URLS: &str = r#"{ "code":-32042, "message":"\u0041uthorise","data":{"elicitations":[{"mode":"url","x":1.0,"url":"https://a/"},{"url":"https://b/","mode":"url"}],"y":1E400}}"#;

fn refuse(question: &str, end: &str) -> String {
    format!(r#"{{"question":{question},{end}}}"#)
}

#[tokio::test]
async fn failed_call_names_the_missing_capability() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let headers = modern_headers("tools/call", Some("refuse"));
    let (form, url) = (
        r#"{"method":"elicitation/create"}"#,
        r#"{"method":"elicitation/create","params":{"mode":"url"}}"#,
    );
    let tools = r#"{"method":"sampling/createMessage","params":{"tools":[]}}"#;
    for (capabilities, question, required) in [
        ("{}", form, r#"{"elicitation":{}}"#),
        (
            r#"{"elicitation":{}}"#,
            url,
            r#"{"elicitation":{"url":{}}}"#,
        ),
        (r#"{"sampling":{}}"#, tools, r#"{"sampling":{"tools":{}}}"#),
        ("{}", r#"{"method":"roots/list"}"#, r#"{"roots":{}}"#),
    ] {
        for (kind, body) in [
            ("result", FAILED),
            ("error", r#"{ "code":-32603,"message":"m","data":1.0}"#),
        ] {
            let arguments = refuse(question, &format!(r#""{kind}":{body}"#));
            let response = client
                .post(
                    &headers,
                    &call(7, "refuse", &arguments, "", capabilities, ""),
                )
                .await;
            let error = format!(
                r#"{{"code":-32021,"message":"Missing required client capability","data":{{"requiredCapabilities":{required},"dev.fanlight/answer":{{"{kind}":{body}}}}}}}"#
            );
            assert_eq!(
                response.body,
                format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#)
            );
            assert_eq!(response.status, 400);
        }
    }
}

#[tokio::test]
async fn answer_passes_if_no_capability_is_to_blame() {
    let mut stdio = Stdio::start();
    let roots = r#"{"method":"roots/list"}"#;
    let arguments = refuse(
        roots,
        r#""result":{"resultType":"complete","content":[1.0]}"#,
    );
    stdio
        .send(&call(1, "refuse", &arguments, "", "{}", ""))
        .await;
    let result = r#"{"resultType":"complete","content":[1.0]}"#;
    assert_eq!(
        stdio.line().await.unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)
    );
    // The gateway's own reason.
    let arguments = refuse(roots, r#""error":{"code":-31002,"message":"too late"}"#);
    assert_eq!(
        stdio
            .ask(&call(2, "refuse", &arguments, "", "{}", ""))
            .await["error"]["code"],
        -31002
    );
    // The client declared the capability, but Fanlight withheld it, as for a session that all
    // clients share.
    let arguments = refuse(roots, &format!(r#""declared":{{}},"result":{FAILED}"#));
    let answer = stdio
        .ask(&call(3, "refuse", &arguments, "", r#"{"roots":{}}"#, ""))
        .await;
    assert_eq!(answer["result"]["isError"], true);
    // No client can declare a mode that no revision has.
    let odd = r#"{"method":"elicitation/create","params":{"mode":"odd"}}"#;
    let arguments = refuse(odd, &format!(r#""result":{FAILED}"#));
    assert_eq!(
        stdio
            .ask(&call(4, "refuse", &arguments, "", "{}", ""))
            .await["result"]["isError"],
        true
    );
    // Legacy clients get the server's own answer.
    stdio.initialize_with("{}").await;
    let arguments = refuse(roots, &format!(r#""result":{FAILED}"#));
    let legacy = format!(
        r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{{"name":"refuse","arguments":{arguments}}}}}"#
    );
    stdio.send(&legacy).await;
    assert_eq!(
        stdio.line().await.unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":5,"result":{FAILED}}}"#)
    );
}

#[tokio::test]
async fn all_missing_capabilities_are_named_across_suspensions() {
    let mut stdio = Stdio::start();
    let rounds = r#"[[{"method":"sampling/createMessage"},{"method":"elicitation/create"}],[{"method":"roots/list"}]]"#;
    let arguments = format!(r#"{{"ask":{rounds},"isError":true}}"#);
    let given = state(
        &stdio
            .ask(&call(1, "ask", &arguments, "", r#"{"elicitation":{}}"#, ""))
            .await,
    );
    let retry = call(
        2,
        "ask",
        &arguments,
        &input(&given, r#"{"input-2":{},"input-1":{}}"#),
        r#"{"elicitation":{}}"#,
        "",
    );
    let answer = stdio.ask(&retry).await;
    assert_eq!(answer["error"]["code"], -32021, "{answer}");
    let required = &answer["error"]["data"]["requiredCapabilities"];
    assert_eq!(*required, serde_json::json!({"sampling": {}, "roots": {}}));
}

#[tokio::test]
async fn capability_missing_during_suspension_is_named() {
    let mut stdio = Stdio::start();
    let (arguments, declared) = (format!(r#"{{"result":{FAILED}}}"#), r#"{"roots":{}}"#);
    let given = state(
        &stdio
            .ask(&call(1, "ask-and-be-refused", &arguments, "", declared, ""))
            .await,
    );
    stdio.core.release.add_permits(1);
    assert!(matches!(stdio.log.ended().await, Happened::Answered));
    let retry = call(
        2,
        "ask-and-be-refused",
        &arguments,
        &input(&given, r#"{"input-1":{}}"#),
        declared,
        "",
    );
    let answer = stdio.ask(&retry).await;
    assert_eq!(
        answer["error"]["data"]["requiredCapabilities"],
        serde_json::json!({"sampling": {}}),
        "{answer}"
    );
}

#[tokio::test]
async fn url_elicitation_error_becomes_input_required_and_the_call_is_repeated() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    let headers = modern_headers("tools/call", Some("answer"));
    let arguments = format!(r#"{{"error":{URLS}}}"#);
    let response = client
        .post(&headers, &call(1, "answer", &arguments, "", URL, ""))
        .await;
    let given = state(&response.json());
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"input_required","inputRequests":{{"input-1":{{"method":"elicitation/create","params":{{"mode":"url","x":1.0,"url":"https://a/"}}}},"input-2":{{"method":"elicitation/create","params":{{"url":"https://b/","mode":"url"}}}}}},"requestState":{given}}}}}"#
    );
    assert_eq!((response.status, response.body), (200, expected));
    server.log.began().await;

    // Missing elicitations are asked again, without a call.
    let some = input(&given, r#"{"input-2":{"action":"accept"}}"#);
    let given = state(
        &client
            .post(&headers, &call(2, "answer", &arguments, &some, URL, ""))
            .await
            .json(),
    );
    let all = r#"{"input-1":{"action":"accept"},"input-2":{"action":"accept"}}"#;
    // The server may want more.
    let retry = call(3, "answer", &arguments, &input(&given, all), URL, "");
    let given = state(&client.post(&headers, &retry).await.json());
    let again = server.log.began().await.params.unwrap();
    assert!(
        again.get("inputResponses").is_none() && again.get("requestState").is_none(),
        "{again}"
    );

    server.core.release.add_permits(1);
    let retry = call(4, "answer", &arguments, &input(&given, all), URL, "");
    let response = client.post(&headers, &retry).await;
    assert!(
        response.status == 200 && response.body.contains(r#""resultType":"complete""#),
        "{response:?}"
    );
}

#[tokio::test]
async fn declined_url_elicitation_is_answered_with_the_servers_error() {
    let mut stdio = Stdio::start();
    let arguments = format!(r#"{{"error":{URLS}}}"#);
    for action in ["decline", "cancel"] {
        let given = state(&stdio.ask(&call(1, "answer", &arguments, "", URL, "")).await);
        stdio.log.began().await;
        let responses =
            format!(r#"{{"input-1":{{"action":"accept"}},"input-2":{{"action":"{action}"}}}}"#);
        stdio
            .send(&call(
                2,
                "answer",
                &arguments,
                &input(&given, &responses),
                URL,
                "",
            ))
            .await;
        // 2026-07-28 forbids the code; the rest is the server's.
        let told = URLS.replace("-32042", "-31003");
        assert_eq!(
            stdio.line().await.unwrap(),
            format!(r#"{{"jsonrpc":"2.0","id":2,"error":{told}}}"#)
        );
        let wrong = input(&given, r#"{"input-1":{"action":"perhaps"},"input-2":{}}"#);
        assert!(
            refusal(
                &stdio
                    .ask(&call(3, "answer", &arguments, &wrong, URL, ""))
                    .await
            )
            .contains("accept")
        );
        let other = call(
            4,
            "answer",
            r#"{"other":1}"#,
            &input(&given, &responses),
            URL,
            "",
        );
        assert!(refusal(&stdio.ask(&other).await).contains("another request"));
    }
}

#[tokio::test]
async fn client_without_url_elicitation_gets_an_error() {
    let mut stdio = Stdio::start();
    let arguments = format!(r#"{{"error":{URLS}}}"#);
    stdio
        .send(&call(
            1,
            "answer",
            &arguments,
            "",
            r#"{"elicitation":{}}"#,
            "",
        ))
        .await;
    let expected = format!(
        r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32021,"message":"Missing required client capability","data":{{"requiredCapabilities":{{"elicitation":{{"url":{{}}}}}},"dev.fanlight/answer":{{"error":{URLS}}}}}}}}}"#
    );
    assert_eq!(stdio.line().await.unwrap(), expected);
    stdio.initialize_with(URL).await;
    let legacy = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"answer","arguments":{arguments}}}}}"#
    );
    stdio.send(&legacy).await;
    assert_eq!(
        stdio.line().await.unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":2,"error":{URLS}}}"#)
    );
    // Too large for a client to carry.
    let large = format!(
        r#"{{"code":-32042,"message":"{}","data":{{"elicitations":[{{"mode":"url"}}]}}}}"#,
        "x".repeat(20_000)
    );
    let arguments = format!(r#"{{"error":{large}}}"#);
    stdio
        .send(&call(3, "answer", &arguments, "", URL, ""))
        .await;
    let told = large.replace("-32042", "-31003");
    assert_eq!(
        stdio.line().await.unwrap(),
        format!(r#"{{"jsonrpc":"2.0","id":3,"error":{told}}}"#)
    );
}

#[tokio::test(start_paused = true)]
async fn url_elicitation_state_expires() {
    let settings = FrontendSettings {
        input_timeout: Duration::from_secs(5),
        ..FrontendSettings::default()
    };
    let mut stdio = Stdio::with(settings);
    let arguments = format!(r#"{{"error":{URLS}}}"#);
    let given = state(&stdio.ask(&call(1, "answer", &arguments, "", URL, "")).await);
    tokio::time::advance(Duration::from_secs(6)).await;
    let accepted = input(
        &given,
        r#"{"input-1":{"action":"accept"},"input-2":{"action":"accept"}}"#,
    );
    assert!(
        refusal(
            &stdio
                .ask(&call(2, "answer", &arguments, &accepted, URL, ""))
                .await
        )
        .contains("expired")
    );
}
