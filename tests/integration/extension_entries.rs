//! Merged lists with an entry that the server lists only for clients with a certain extension.

use fanlight_tests::slicer::{elements, member, plain_string};

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request, modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};

const WITH: &str = r#"{"extensions":{"com.example/x":{"setting":1}}}"#;

/// A server that announces changes, and lists the tool `x` only for clients with the extension.
async fn server() -> Backend {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    server.declares(r#"{"tools":{"listChanged":true}}"#);
    server.on("subscriptions/listen", Reply::listening());
    let list = |request: &Received| {
        let tool = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let is_known = request.text.contains("com.example/x");
        let tools = if is_known {
            format!("{},{}", tool("t"), tool("x"))
        } else {
            tool("t")
        };
        Era::Modern.cacheable(&format!(r#""tools":[{tools}]"#))
    };
    server.on("tools/list", Reply::compute(list));
    server
}

fn names(list: &str) -> Vec<String> {
    let tools = elements(member(list, "result.tools").unwrap()).unwrap();
    tools
        .iter()
        .map(|tool| {
            member(tool, "name")
                .and_then(plain_string)
                .unwrap()
                .to_owned()
        })
        .collect()
}

/// The names of the tools that a client with these capabilities lists.
async fn list(gateway: &Gateway, capabilities: &str) -> Vec<String> {
    let request = modern_request_with(capabilities, "1", "tools/list", "", "");
    let (_, answer) = post_modern(gateway.mcp, &request).await.messages().await;
    names(&answer)
}

/// Requests the list until it comes from the cache: from then on the gateway listens for changes.
async fn settled(gateway: &Gateway, server: &Backend) {
    list(gateway, "{}").await;
    server.wait_for("subscriptions/listen", 1).await;
    loop {
        let before = server.received("tools/list").len();
        list(gateway, "{}").await;
        if server.received("tools/list").len() == before {
            return;
        }
    }
}

#[tokio::test]
async fn entry_for_an_extension_is_shown_to_clients_with_it_alone() {
    let (server, other) = (
        server().await,
        Backend::start(Era::Legacy, Transport::Http).await,
    );
    other.offers_tools(&["u"]);
    let gateway = Gateway::start(&config(&[server.entry("a"), other.entry("b")])).await;
    settled(&gateway, &server).await;
    let (all, plain) = (["a__t", "a__x", "b__u"], ["a__t", "b__u"]);
    for _ in 0..2 {
        assert_eq!(list(&gateway, WITH).await, all);
        assert_eq!(list(&gateway, "{}").await, plain);
        assert_eq!(
            list(&gateway, r#"{"extensions":{"com.example/x":null}}"#).await,
            plain,
            "null declares nothing"
        );
    }
    let session = LegacySession::open(gateway.mcp).await;
    let (_, answer) = session
        .post(&legacy_request("1", "tools/list", ""))
        .await
        .messages()
        .await;
    assert_eq!(names(&answer), plain);
    // The server lists nothing more for this other extension.
    assert_eq!(
        list(&gateway, r#"{"extensions":{"com.example/y":{}}}"#).await,
        plain
    );
    assert_eq!(list(&gateway, WITH).await, all);
}

/// The change may have any reason, so the gateway no longer knows what an entry depends on.
#[tokio::test]
async fn entry_is_shown_to_all_clients_after_an_announced_change() {
    let (server, other) = (
        server().await,
        Backend::start(Era::Legacy, Transport::Http).await,
    );
    other.offers_tools(&["u"]);
    let gateway = Gateway::start(&config(&[server.entry("a"), other.entry("b")])).await;
    settled(&gateway, &server).await;
    assert_eq!(list(&gateway, WITH).await, ["a__t", "a__x", "b__u"]);
    assert_eq!(list(&gateway, "{}").await, ["a__t", "b__u"]);
    let read = server.received("tools/list").len();
    server
        .stream(0)
        .await
        .notify("notifications/tools/list_changed", "")
        .await;
    server.wait_for("tools/list", read + 1).await;
    settled(&gateway, &server).await;
    assert_eq!(list(&gateway, "{}").await, ["a__t", "a__x", "b__u"]);
}
