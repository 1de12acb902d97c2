//! Mirrored tool parameters, as a modern HTTP server sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanlight_backend::{BackendSettings, Repeats};
use fanlight_testkit::scripted;

use crate::support::child::Child;
use crate::support::server::{Reply, Seen, Server, legacy, modern, status};
use crate::support::{ask, settings, start};

const BAD: &str =
    r#"{"name":"bad","inputSchema":{"properties":{"r":{"type":"number","x-mcp-header":"R"}}}}"#;

fn tool(name: &str, header: &str) -> String {
    format!(
        r#"{{"name":"{name}","inputSchema":{{"properties":{{"r":{{"type":"string","x-mcp-header":"{header}"}}}}}}}}"#
    )
}

fn cursor(seen: &Seen) -> Option<String> {
    Some(seen.params().get("cursor")?.as_str()?.into_owned())
}

#[tokio::test]
async fn tool_list_is_read_once_for_the_headers_of_a_call() {
    let mut server = Server::start(|seen| {
        modern(seen).unwrap_or_else(|| match (seen.method().as_str(), cursor(seen).as_deref()) {
            ("tools/list", None) => seen.result(&format!(
                r#"{{"tools":[{}],"nextCursor":"2"}}"#,
                tool("one", "One")
            )),
            ("tools/list", Some("2")) => seen.result(&format!(
                r#"{{"tools":[{}],"nextCursor":"2"}}"#,
                tool("two", "Two")
            )),
            ("tools/call", _) => seen.result("{}"),
            _ => status(500),
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    for name in ["two", "one", "unknown", "unknown"] {
        ask(
            &backend,
            "tools/call",
            &format!(r#"{{"name":"{name}","arguments":{{"r":"é"}}}}"#),
        )
        .await
        .unwrap();
    }
    let called = server.next_of("tools/call").await;
    assert_eq!(
        (called.header("mcp-name"), called.header("mcp-param-two")),
        (Some("two"), Some("=?base64?w6k=?="))
    );
    assert_eq!(
        server.next_of("tools/call").await.header("mcp-param-one"),
        Some("=?base64?w6k=?=")
    );
    assert_eq!(server.count("tools/list"), 0);
}

#[tokio::test]
async fn tool_list_is_learned_from_and_loses_invalid_tools() {
    let mut server = Server::start(|seen| {
        modern(seen).unwrap_or_else(|| match seen.method().as_str() {
            "tools/list" => seen.result(&format!(
                r#"{{ "tools":[{BAD}, {}],"ttlMs":1.0}}"#,
                tool("a", "A")
            )),
            _ => seen.result("{}"),
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    let list = ask(&backend, "tools/list", "").await.unwrap();
    assert_eq!(
        list,
        format!(r#"{{ "tools":[{}],"ttlMs":1.0}}"#, tool("a", "A"))
    );
    ask(
        &backend,
        "tools/call",
        r#"{"name":"a","arguments":{"r":"x"}}"#,
    )
    .await
    .unwrap();
    assert_eq!(
        server.next_of("tools/call").await.header("mcp-param-a"),
        Some("x")
    );
    assert_eq!(server.count("tools/list"), 0);
}

#[tokio::test]
async fn header_mismatch_is_corrected_once() {
    let changed = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&changed);
    let mut server = Server::start(move |seen| {
        let header = if now.load(Ordering::SeqCst) {
            "New"
        } else {
            "Old"
        };
        modern(seen).unwrap_or_else(|| match seen.method().as_str() {
            "tools/list" => seen.result(&format!(r#"{{"tools":[{}]}}"#, tool("a", header))),
            _ if seen
                .header(&format!("mcp-param-{}", header.to_lowercase()))
                .is_none() =>
            {
                seen.error(400, r#"{"code":-32020,"message":"header missing"}"#)
            }
            _ => seen.result("{}"),
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    let params = r#"{"name":"a","arguments":{"r":"x"}}"#;
    assert_eq!(ask(&backend, "tools/call", params).await.unwrap(), "{}");
    changed.store(true, Ordering::SeqCst);
    server.count("");
    assert_eq!(ask(&backend, "tools/call", params).await.unwrap(), "{}");
    assert_eq!(server.count("tools/call"), 2);
    // Without a value to mirror in the arguments, the error is the answer.
    let answer = ask(&backend, "tools/call", r#"{"name":"a","arguments":{}}"#)
        .await
        .unwrap();
    assert_eq!(answer, r#"{"code":-32020,"message":"header missing"}"#);
    assert_eq!(server.count("tools/call"), 2);
}

#[tokio::test]
async fn annotations_are_ignored_over_stdio() {
    let child = Child::modern().await;
    child.on(
        "tools/list",
        scripted::Reply::result(format!(r#"{{"tools":[{BAD}]}}"#)),
    );
    let backend = start(settings(child.transport()));
    assert_eq!(
        ask(&backend, "tools/list", "").await.unwrap(),
        format!(r#"{{"tools":[{BAD}]}}"#)
    );
    backend.stop().await;
}

#[tokio::test]
async fn list_that_never_comes_holds_no_call_but_the_first() {
    let mut server = Server::start(|seen| match seen.method().as_str() {
        "tools/list" => Reply::Hang,
        _ => legacy(seen, "s").unwrap_or_else(|| seen.result(r#"{"content":[]}"#)),
    })
    .await;
    let mut settings = BackendSettings {
        repeats: Some(Repeats::default()),
        ..settings(server.transport())
    };
    settings.timeouts.own_message = Duration::from_millis(50);
    let backend = start(settings);
    for _ in 0..3 {
        ask(&backend, "tools/call", r#"{"name":"t"}"#)
            .await
            .unwrap();
    }
    let lists =
        std::iter::from_fn(|| server.try_next()).filter(|seen| seen.method() == "tools/list");
    assert_eq!(lists.filter(|seen| seen.verb == "POST").count(), 1);
}
