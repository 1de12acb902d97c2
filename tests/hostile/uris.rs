//! URIs that are costly to find the server of.

use std::time::{Duration, Instant};

use fanlight_testkit::slicer::member;
use fanlight_testkit::usage;

use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request, listen};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// Two servers, the first with 50 templates that need every position of a URI to be tried.
async fn gateway() -> (Gateway, [Backend; 2]) {
    let templates: Vec<String> = (0..50)
        .map(|number| format!(r#"{{"name":"t{number}","uriTemplate":"a{{+x}}a{{+y}}{number}{{+z}}a{{+u}}"}}"#))
        .collect();
    let servers =
        [Backend::start(Era::Modern, Transport::Http).await, Backend::start(Era::Modern, Transport::Http).await];
    for server in &servers {
        server.declares(r#"{"resources":{}}"#);
        server.on("resources/list", server.list("resources", ""));
        server.on("resources/read", Reply::error(r#"{"code":-32602,"message":"no such resource"}"#));
        server.on("resources/templates/list", server.list("resourceTemplates", ""));
    }
    servers[0].on("resources/templates/list", servers[0].list("resourceTemplates", &templates.join(",")));
    let gateway = Gateway::start(&config(&[servers[0].entry("a"), servers[1].entry("b")])).await;
    (gateway, servers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_uri_is_not_compared_with_templates() {
    let (gateway, servers) = gateway().await;
    let session = LegacySession::open(gateway.mcp).await;
    // The lists are read before the cost is measured.
    session.post(&legacy_request("1", "resources/read", r#""uri":"a""#)).await.text().await;
    let (began, processor) = (Instant::now(), usage::processor_time(gateway.pid()));
    let long = "a".repeat(10_000_000);
    for (method, params) in [
        ("resources/read", format!(r#""uri":"{long}""#)),
        ("resources/subscribe", format!(r#""uri":"{long}""#)),
        (
            "completion/complete",
            format!(r#""ref":{{"type":"ref/resource","uri":"{long}"}},"argument":{{"name":"x","value":""}}"#),
        ),
    ] {
        let answer = session.post(&legacy_request("1", method, &params)).await.text().await;
        assert_eq!(member(&answer, "error.code"), Some("-32602"), "{method}: {}", &answer[..200.min(answer.len())]);
        assert!(answer.len() < 1000, "{method} repeats the URI");
    }
    let mut stream = listen(gateway.mcp, "1", &format!(r#"{{"resourceSubscriptions":["{long}"]}}"#)).await;
    stream.event().await.unwrap();
    for server in &servers {
        assert!(server.received("resources/read").iter().all(|read| read.text.len() < 1000));
    }
    let processor = usage::processor_time(gateway.pid()) - processor;
    assert!(processor < Duration::from_secs(4), "{processor:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uri_within_the_limit_costs_little_where_no_template_begins_like_it() {
    let (gateway, _servers) = gateway().await;
    let session = LegacySession::open(gateway.mcp).await;
    session.post(&legacy_request("1", "resources/read", r#""uri":"b""#)).await.text().await;
    let processor = usage::processor_time(gateway.pid());
    for _ in 0..20 {
        let params = format!(r#""uri":"b{}""#, "a".repeat(60_000));
        session.post(&legacy_request("1", "resources/read", &params)).await.text().await;
    }
    let processor = usage::processor_time(gateway.pid()) - processor;
    assert!(processor < Duration::from_secs(1), "{processor:?}");
}
