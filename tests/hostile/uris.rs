//! URIs whose server is costly to find, and URIs that a server may read differently.

use std::time::Duration;

use fanlight_testkit::slicer::member;
use fanlight_testkit::usage;

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request, listen};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// Two servers; the first has 50 templates that must be tried at every position of a URI.
async fn gateway() -> (Gateway, [Backend; 2]) {
    let templates: Vec<String> = (0..50)
        .map(|number| {
            format!(r#"{{"name":"t{number}","uriTemplate":"a{{+x}}a{{+y}}{number}{{+z}}a{{+u}}"}}"#)
        })
        .collect();
    let servers = [
        Backend::start(Era::Modern, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    ];
    for server in &servers {
        server.declares(r#"{"resources":{}}"#);
        server.on("resources/list", server.list("resources", ""));
        server.on(
            "resources/read",
            Reply::error(r#"{"code":-32602,"message":"no such resource"}"#),
        );
        server.on(
            "resources/templates/list",
            server.list("resourceTemplates", ""),
        );
    }
    servers[0].on(
        "resources/templates/list",
        servers[0].list("resourceTemplates", &templates.join(",")),
    );
    let gateway = Gateway::start(&config(&[servers[0].entry("a"), servers[1].entry("b")])).await;
    (gateway, servers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_uri_is_not_compared_with_templates() {
    let (gateway, servers) = gateway().await;
    let session = LegacySession::open(gateway.mcp).await;
    // The gateway reads the lists before the cost is measured.
    session
        .post(&legacy_request("1", "resources/read", r#""uri":"a""#))
        .await
        .text()
        .await;
    let processor = usage::processor_time(gateway.pid());
    let long = "a".repeat(10_000_000);
    for (method, params) in [
        ("resources/read", format!(r#""uri":"{long}""#)),
        ("resources/subscribe", format!(r#""uri":"{long}""#)),
        (
            "completion/complete",
            format!(
                r#""ref":{{"type":"ref/resource","uri":"{long}"}},"argument":{{"name":"x","value":""}}"#
            ),
        ),
    ] {
        let answer = session
            .post(&legacy_request("1", method, &params))
            .await
            .text()
            .await;
        assert_eq!(
            member(&answer, "error.code"),
            Some("-32602"),
            "{method}: {}",
            &answer[..200.min(answer.len())]
        );
        assert!(answer.len() < 1000, "{method} repeats the URI");
    }
    let mut stream = listen(
        gateway.mcp,
        "1",
        &format!(r#"{{"resourceSubscriptions":["{long}"]}}"#),
    )
    .await;
    stream.event().await.unwrap();
    for server in &servers {
        assert!(
            server
                .received("resources/read")
                .iter()
                .all(|read| read.text.len() < 1000)
        );
    }
    let processor = usage::processor_time(gateway.pid()) - processor;
    assert!(processor < Duration::from_secs(4), "{processor:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uri_within_the_limit_costs_little_where_no_template_begins_like_it() {
    let (gateway, _servers) = gateway().await;
    let session = LegacySession::open(gateway.mcp).await;
    session
        .post(&legacy_request("1", "resources/read", r#""uri":"b""#))
        .await
        .text()
        .await;
    let processor = usage::processor_time(gateway.pid());
    for _ in 0..20 {
        let params = format!(r#""uri":"b{}""#, "a".repeat(60_000));
        session
            .post(&legacy_request("1", "resources/read", &params))
            .await
            .text()
            .await;
    }
    let processor = usage::processor_time(gateway.pid()) - processor;
    assert!(processor < Duration::from_secs(1), "{processor:?}");
}

/// URIs that begin with the permitted path or differ from the denied one, and that some server
/// resolves to the hidden folder. `P` stands for `file:///pub`.
const TO_THE_HIDDEN_FOLDER: [&str; 26] = [
    "P/x?/../../priv/y",
    "P/x?a=b/../../../priv/y",
    "P/x?/..",
    "P/..;/priv/y",
    "P/..;a=b/priv/y",
    "P/.;/..;/priv/y",
    "P/x;/../../priv/y",
    "P/..%3b/priv/y",
    "P/..%3B%2fpriv/y",
    "P/%2e%2e;/priv/y",
    "P/x%3f/../../priv/y",
    "P/x#/../../priv/y",
    "P/x%23/..%2f../priv/y",
    "P/../priv/y",
    "P/%2e%2e/priv/y",
    "P/%252e%252e/priv/y",
    r"P/..\\priv/y",
    "P/..%5cpriv/y",
    "P//../priv/y",
    "P/.. /priv/y",
    "P/..%20/priv/y",
    "P/..%00/priv/y",
    r"P/..\u0009/priv/y",
    "P/%c0%ae%c0%ae/priv/y",
    "P/%EF%BC%8E%EF%BC%8E/priv/y",
    "P/\u{ff0e}\u{ff0e}/priv/y",
];

/// Spellings of the hidden file itself.
const OF_THE_HIDDEN_FILE: [&str; 12] = [
    "file:///priv/y",
    "file:///priv/y/",
    "file:///priv/y?z",
    "file:///priv;a/y",
    "file:///pri%76/y",
    "file:///PRIV/y",
    "file:/priv/y",
    "file:////priv/y",
    "file:///./priv/y",
    "file://localhost/priv/y",
    "file:///priv%2fy",
    "FILE:///priv/y",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uri_that_a_server_may_resolve_to_what_is_hidden_is_not_sent() {
    let endpoints = r#""endpoints":{"/mcp":{"resources":{"allow":["file:///pub/*"],"deny":["file:///priv/*"]}}}"#;
    for count in [1, 2] {
        let mut servers = Vec::new();
        for _ in 0..count {
            let server = Backend::start(Era::Legacy, Transport::Http).await;
            server.declares(r#"{"tools":{},"resources":{"subscribe":true}}"#);
            server.offers_tools(&["echo"]);
            server.on("resources/list", server.list("resources", ""));
            server.on(
                "resources/templates/list",
                server.list(
                    "resourceTemplates",
                    r#"{"name":"all","uriTemplate":"file:///{+path}"}"#,
                ),
            );
            server.on(
                "resources/read",
                Reply::result(r#"{"contents":[]}"#.to_owned()),
            );
            servers.push(server);
        }
        let entries: Vec<_> = servers
            .iter()
            .enumerate()
            .map(|(number, server)| server.entry(&format!("s{number}")))
            .collect();
        let text = config(&entries).replacen('{', &format!("{{{endpoints},"), 1);
        let gateway = Gateway::start(&text).await;
        let session = LegacySession::open(gateway.mcp).await;
        let tool = if count == 1 { "echo" } else { "s0__echo" };
        let escaping = TO_THE_HIDDEN_FOLDER
            .iter()
            .map(|uri| uri.replace('P', "file:///pub"));
        for uri in escaping.chain(OF_THE_HIDDEN_FILE.map(str::to_owned)) {
            // A link in a result may echo the client's own text, so it grants no access.
            let link =
                format!(r#"{{"content":[{{"type":"resource_link","name":"l","uri":"{uri}"}}]}}"#);
            servers[0].once("tools/call", Reply::result(link));
            let call = legacy_request(
                "1",
                "tools/call",
                &format!(r#""name":"{tool}","arguments":{{}}"#),
            );
            assert!(
                session
                    .post(&call)
                    .await
                    .text()
                    .await
                    .contains("resource_link")
            );
            for method in [
                "resources/read",
                "resources/subscribe",
                "resources/unsubscribe",
            ] {
                let answer = session
                    .post(&legacy_request("1", method, &format!(r#""uri":"{uri}""#)))
                    .await
                    .text()
                    .await;
                assert!(
                    member(&answer, "error").is_some(),
                    "{method} {uri}: {answer}"
                );
                assert!(
                    servers
                        .iter()
                        .all(|server| server.received(method).is_empty()),
                    "{method} {uri}"
                );
            }
        }
        for uri in [
            "file:///pub/x",
            "file:///pub/deep/a%20b.txt",
            "file:///pub/x?line=3&of=4",
        ] {
            let answer = session
                .post(&legacy_request(
                    "1",
                    "resources/read",
                    &format!(r#""uri":"{uri}""#),
                ))
                .await
                .text()
                .await;
            assert!(answer.contains("contents"), "{uri}: {answer}");
        }
    }
}
