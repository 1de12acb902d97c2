//! Resources of a legacy stdio server with a modern listener. The listener's calls run in another
//! process than its subscription, and change resources there.

use fanlight_tests::slicer::member;

use super::UPDATED;
use crate::harness::Gateway;
use crate::raw_client::{listen, modern_request_with, post_modern};
use crate::scripted::{Backend, Era, Gate, Reply, Transport, config};

const RESOURCE: &str = "test://r";
const ASKABLE: &str = r#"{"roots":{}}"#;
/// The capabilities of another client.
const ALSO_ASKABLE: &str = r#"{"roots":{},"sampling":{}}"#;

/// A server whose processes each announce a change of [`RESOURCE`] during a call.
async fn server() -> Backend {
    let server = Backend::start(Era::Legacy, Transport::Stdio).await;
    server.declares(r#"{"tools":{},"resources":{"subscribe":true}}"#);
    server.offers_tools(&["t"]);
    server.on(
        "resources/list",
        server.list(
            "resources",
            &format!(r#"{{"uri":"{RESOURCE}","name":"r"}}"#),
        ),
    );
    let updated =
        format!(r#"{{"jsonrpc":"2.0","method":"{UPDATED}","params":{{"uri":"{RESOURCE}"}}}}"#);
    server.on(
        "tools/call",
        Reply::result(Era::Legacy.complete(r#""content":[]"#)).after(&[&updated]),
    );
    server
}

async fn call(gateway: &Gateway, capabilities: &str, tool: &str) {
    let request = modern_request_with(
        capabilities,
        "1",
        "tools/call",
        &format!(r#""name":"{tool}""#),
        "",
    );
    let (_, answer) = post_modern(gateway.mcp, &request).await.messages().await;
    assert!(answer.contains("content"), "{answer}");
}

#[tokio::test]
async fn modern_listener_receives_changes_made_in_the_processes_of_its_calls() {
    let other = Backend::start(Era::Legacy, Transport::Http).await;
    other.offers_tools(&["u"]);
    for (several, capabilities) in [
        (false, r#"{"roots":{}}"#),
        (true, r#"{"roots":{}}"#),
        (true, "{}"),
    ] {
        let server = server().await;
        let (entries, tool) = match several {
            false => (vec![server.entry("a")], "t"),
            true => (vec![other.entry("b"), server.entry("a")], "a__t"),
        };
        let gateway = Gateway::start(&config(&entries)).await;
        let mut stream = listen(
            gateway.mcp,
            "9",
            &format!(r#"{{"resourceSubscriptions":["{RESOURCE}"]}}"#),
        )
        .await;
        let acknowledged = stream.event().await.unwrap().unwrap();
        assert!(acknowledged.contains(RESOURCE), "{acknowledged}");
        assert_eq!(
            server.received("resources/subscribe").len(),
            1,
            "on the process that is listened to"
        );
        for _ in 0..2 {
            call(&gateway, capabilities, tool).await;
            assert_eq!(
                server.received("resources/subscribe").len(),
                2,
                "before the first call, and only then"
            );
            let update = stream.event().await.unwrap().unwrap();
            assert_eq!(
                member(&update, "params.uri"),
                Some(r#""test://r""#),
                "{several} {capabilities}: {update}"
            );
        }
        drop(stream);
        server.wait_for("resources/unsubscribe", 2).await;
        // Without listeners the gateway subscribes to nothing.
        call(&gateway, r#"{"sampling":{}}"#, tool).await;
        assert_eq!(server.received("resources/subscribe").len(), 2);
    }
}

/// Every process announces a change that happened outside of all of them.
#[tokio::test]
async fn change_that_every_process_announces_is_told_once() {
    let other = Backend::start(Era::Legacy, Transport::Http).await;
    other.offers_tools(&["u"]);
    for several in [false, true] {
        let (server, gate) = (server().await, Gate::new());
        server.on(
            "tools/call",
            Reply::result(Era::Legacy.complete(r#""content":[]"#)).gated(&gate),
        );
        server.on("notifications/initialized", Reply::driven());
        let (entries, tool) = match several {
            false => (vec![server.entry("a")], "t"),
            true => (vec![other.entry("b"), server.entry("a")], "a__t"),
        };
        // The time is longer than the test may take, so the client is notified because every
        // process has announced the change.
        let text = format!(
            r#"{{"mcpServers":{{{}}},"x-limits":"listSettle=60s"}}"#,
            entries.join(",")
        );
        let gateway = Gateway::start(&text).await;
        let mut stream = listen(
            gateway.mcp,
            "9",
            &format!(r#"{{"resourceSubscriptions":["{RESOURCE}"]}}"#),
        )
        .await;
        stream.event().await.unwrap().unwrap();
        let calls = async {
            tokio::join!(
                call(&gateway, ASKABLE, tool),
                call(&gateway, ALSO_ASKABLE, tool)
            )
        };
        tokio::join!(calls, async {
            gate.reached(2).await;
            gate.open();
        });
        server.wait_for("resources/subscribe", 3).await;
        for number in 0..3 {
            for process in server.streams() {
                let params = format!(r#""uri":"{RESOURCE}","n":{number}"#);
                process
                    .message(&format!(
                        r#"{{"jsonrpc":"2.0","method":"{UPDATED}","params":{{{params}}}}}"#
                    ))
                    .await;
            }
            let update = stream.event().await.unwrap().unwrap();
            assert_eq!(
                member(&update, "params.n"),
                Some(number.to_string().as_str()),
                "{several}: {update}"
            );
        }
    }
}

/// A server that does not answer a subscription delays only the first call.
#[tokio::test]
async fn call_does_not_wait_for_ever_for_a_subscription_in_its_process() {
    let server = server().await;
    let gateway = Gateway::start(&config(&[server.entry("a")])).await;
    let mut stream = listen(
        gateway.mcp,
        "9",
        &format!(r#"{{"resourceSubscriptions":["{RESOURCE}"]}}"#),
    )
    .await;
    stream.event().await.unwrap().unwrap();
    server.on("resources/subscribe", Reply::driven());
    call(&gateway, r#"{"roots":{}}"#, "t").await;
    call(&gateway, r#"{"roots":{}}"#, "t").await;
}
