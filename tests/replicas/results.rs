//! Large results that another replica keeps than the one that gets the request.

use fanlight_testkit::signing_in::{ANN, BOB};

use crate::group::{members, until};
use crate::linked::{Client, LinkedGroup, error_code, modern};
use crate::raw_client::{legacy_request, modern_request};
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::valkey::Valkey;

#[tokio::test]
async fn kept_result_is_read_through_any_replica_until_its_own_ends() {
    let (valkey, backend) = (
        Valkey::start().await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    backend.offers_tools(&["t"]);
    let text = "some text ".repeat(10_000);
    let content = format!(r#""content":[{{"type":"text","text":"{text}"}}]"#);
    backend.on("tools/call", Reply::result(Era::Modern.complete(&content)));
    let entry = backend
        .entry("only")
        .replacen(":{", r#":{"results":{},"#, 1);
    let group = LinkedGroup::new(entry, "");
    let (one, mut two) = group.start_two(&valkey.url()).await;
    let three = group.start(&valkey.url()).await;
    for replica in [&one, &two, &three] {
        until("three replicas", async || {
            members(&replica.gateway).await == 3
        })
        .await;
    }
    let uri_in = |answer: &str| {
        let (_, rest) = answer.split_once("fanlight-result:").expect(answer);
        let handle = rest.split(' ').next().unwrap_or_default();
        format!("fanlight-result:{handle}")
    };
    let call = modern_request("1", "tools/call", r#""name":"t""#, "");
    let uri = uri_in(&modern(&two, ANN, &call).await);
    let params = format!(r#""uri":"{uri}?bytes=5-8""#);
    let read = modern_request("2", "resources/read", &params, "");
    let arguments = format!(r#""name":"read_result","arguments":{{"uri":"{uri}","bytes":"5-8"}}"#);
    let with_tool = modern_request("3", "tools/call", &arguments, "");
    for replica in [&one, &two, &three] {
        for request in [&read, &with_tool] {
            let answer = modern(replica, ANN, request).await;
            assert!(answer.contains(r#""text":"text""#), "{answer}");
        }
        let answer = modern(replica, BOB, &read).await;
        assert_eq!(error_code(&answer), Some("-32602"), "{answer}");
        // The session lives at another replica than the result.
        let client = Client::open(replica, ANN).await;
        let read = legacy_request("4", "resources/read", &params);
        let answer = client.post(replica, &read).await.text().await;
        assert!(answer.contains(r#""text":"text""#), "{answer}");
    }
    two.gateway.kill().await;
    for replica in [&one, &three] {
        let answer = modern(replica, ANN, &read).await;
        assert_eq!(error_code(&answer), Some("-32602"), "{answer}");
        assert!(answer.contains("that kept it has ended"), "{answer}");
    }
}
