//! Server requests (elicitation, sampling, roots) through the gateway, in every pair of eras over
//! every pair of transports (docs/eras.md, "Server requests during a call").

mod combinations;
mod late;
mod state;
mod suspended;

use fanlight_tests::slicer::member;

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// The capabilities that allow every server request.
pub(crate) const EVERYTHING: &str =
    r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;

/// A server request that any client with roots can answer. `{call}` makes the ids of different
/// calls differ.
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;

/// An answer of the client that a test can recognize.
fn roots(name: &str) -> String {
    format!(r#"{{"roots":[{{"uri":"file:///{name}"}}]}}"#)
}

/// The client may know a request that Fanlight does not, and declares no capability for it.
#[tokio::test]
async fn unknown_request_reaches_the_client_of_the_session() {
    for transport in [Transport::Http, Transport::Stdio] {
        let server = Backend::start(Era::Legacy, transport).await;
        server.offers_tools(&["t"]);
        let asked = r#"{"jsonrpc":"2.0","id":"q","method":"acme/lookup","params":{"k":1.0}}"#;
        let answer = Reply::result(Era::Legacy.complete(r#""content":[]"#));
        server.on("tools/call", answer.asking(&[asked]));
        let gateway = Gateway::start(&config(&[server.entry("a")])).await;
        let session = LegacySession::open(gateway.mcp).await;
        let call = legacy_request("1", "tools/call", r#""name":"t""#);
        let mut stream = session.post(&call).await;
        let asked = stream.event().await.unwrap().expect("a request");
        assert_eq!(member(&asked, "params"), Some(r#"{"k":1.0}"#), "{asked}");
        let id = member(&asked, "id").expect("an id");
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"v":1E2}}}}"#);
        session.post(&answer).await;
        let (_, last) = stream.messages().await;
        assert!(last.contains("content"), "{last}");
        let call = &server.received("tools/call")[0];
        let told = server.answer_to(r#""q""#, call).await;
        assert_eq!(told.member("result"), Some(r#"{"v":1E2}"#));
    }
}
