//! The error that a modern client gets if a legacy server needs an undeclared capability, or
//! requires the user to visit a URL first.

use fanlight_tests::slicer::{member, member_at};

use crate::clients::Client;
use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request, modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Stdio];
const FAILED: &str = r#"{ "content":[],"isError" : true,"x":1E400}"#;
const ROOTS: &str = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
const URL: &str = r#"{"code":-32042,"message":"\u0041uthorise","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://example.com/","message":"m","x":1.0}]}}"#;

async fn server(transport: Transport) -> Backend {
    let server = Backend::start(Era::Legacy, transport).await;
    server.offers_tools(&["t"]);
    server
}

#[tokio::test]
async fn missing_capability_is_named_in_the_error() {
    for (near, far) in TRANSPORTS
        .iter()
        .flat_map(|near| TRANSPORTS.iter().map(move |far| (*near, *far)))
    {
        let only = server(far).await;
        only.on("tools/call", Reply::result(FAILED).after(&[ROOTS]));
        let mut client = Client::start(&config(&[only.entry("only")]), Era::Modern, near).await;
        let exchange = client.call("t").await;
        assert_eq!(exchange.member("error.code"), "-32021", "{near:?} {far:?}");
        assert_eq!(
            exchange.member("error.data.requiredCapabilities"),
            r#"{"roots":{}}"#
        );
        let answer = exchange.member_at(&["error", "data", "dev.fanlight/answer", "result"]);
        assert_eq!(answer, Some(FAILED));
        if near == Transport::Http {
            let again = post_modern(
                client.address(),
                &modern_request("2", "tools/call", r#""name":"t""#, ""),
            )
            .await;
            assert_eq!(again.status, 400);
        }
        // A call that succeeds without the capability keeps its result.
        only.on(
            "tools/call",
            Reply::result(r#"{"content":[],"n":1.0}"#).after(&[ROOTS]),
        );
        assert_eq!(client.call("t").await.member("result.n"), "1.0");
    }
}

#[tokio::test]
async fn legacy_client_gets_the_error_of_the_server() {
    for far in TRANSPORTS {
        let only = server(far).await;
        only.once("tools/call", Reply::result(FAILED).after(&[ROOTS]));
        only.on("tools/call", Reply::error(URL));
        let gateway = Gateway::start(&config(&[only.entry("only")])).await;
        let session = LegacySession::open(gateway.mcp).await;
        for (key, body) in [("result", FAILED), ("error", URL)] {
            let (_, answer) = session
                .post(&legacy_request("1", "tools/call", r#""name":"t""#))
                .await
                .messages()
                .await;
            assert_eq!(member(&answer, key), Some(body));
        }
    }
}

#[tokio::test]
async fn url_elicitation_error_leads_to_a_retry() {
    for far in TRANSPORTS {
        let only = server(far).await;
        only.once("tools/call", Reply::error(URL));
        only.on("tools/call", Reply::result(r#"{"content":[],"n":1.0}"#));
        let gateway = Gateway::start(&config(&[only.entry("only")])).await;
        let call = |params: &str| {
            let request = modern_request("1", "tools/call", params, "");
            request.replace(
                r#"clientCapabilities":{}"#,
                r#"clientCapabilities":{"elicitation":{"url":{}}}"#,
            )
        };
        let (_, answer) = post_modern(gateway.mcp, &call(r#""name":"t""#))
            .await
            .messages()
            .await;
        let elicitation = member_at(&answer, &["result", "inputRequests", "input-1"]);
        let params = member(URL, "data.elicitations")
            .unwrap()
            .trim_matches(['[', ']']);
        let expected = format!(r#"{{"method":"elicitation/create","params":{params}}}"#);
        assert_eq!(elicitation, Some(expected.as_str()));
        let state = member(&answer, "result.requestState").unwrap();
        let accepted = r#"{"input-1":{"action":"accept"}}"#;
        let retry = call(&format!(
            r#""name":"t","inputResponses":{accepted},"requestState":{state}"#
        ));
        let (_, answer) = post_modern(gateway.mcp, &retry).await.messages().await;
        assert_eq!(member(&answer, "result.n"), Some("1.0"));
        let calls = only.received("tools/call");
        assert_eq!(calls.len(), 2);
        assert_eq!(
            (
                calls[1].member("params.inputResponses"),
                calls[1].member("params.requestState")
            ),
            (None, None)
        );
    }
}
