//! Server lists that are endless, huge or costly to read.

use std::time::Duration;

use fanlight_testkit::slicer::member;

use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::target::{Bounds, Target};

const T: &str = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
/// The limit on a list's bytes in these tests.
const LIST: usize = 8 << 20;

/// A server with a working tool `t`, and an endless list that has these further entries on each
/// page.
async fn endless(entries: String) -> Backend {
    with_list(|backend| {
        backend.on(
            "tools/list",
            Reply::compute(move |request| {
                let page: u64 = request
                    .member("params.cursor")
                    .map_or(0, |cursor| cursor.trim_matches('"').parse().unwrap());
                let next = page + 1;
                Era::Modern.cacheable(&format!(r#""tools":[{T}{entries}],"nextCursor":"{next}""#))
            }),
        );
    })
    .await
}

async fn with_list(list: impl FnOnce(&Backend)) -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    list(&backend);
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend
}

async fn asked(target: &Target, method: &str, params: &str) -> String {
    post_modern(target.gateway.mcp, &modern_request("1", method, params, ""))
        .await
        .text()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_list_is_read_up_to_its_limits() {
    let large = format!(
        r#",{{"name":"large","description":"{}"}}"#,
        "x".repeat(1 << 20)
    );
    for (entries, limits) in [
        (large, format!("listBytes={LIST}")),
        (String::new(), "listPages=50".to_owned()),
        (",{}".repeat(5000), "listEntries=20000".to_owned()),
    ] {
        let target =
            Target::serve(endless(entries).await, &format!(r#""x-limits":"{limits}""#)).await;
        // The rest of the list may still have this tool.
        let call = asked(&target, "tools/call", r#""name":"unknown""#).await;
        assert!(member(&call, "result").is_some(), "{call}");
        let pages = target.backend.received("tools/list").len();
        assert!(pages <= 200, "{pages} pages were read");
        let bounds = Bounds {
            memory: 8 * LIST as u64,
            processor: Duration::from_secs(20),
            time: Duration::from_secs(40),
            slowest_call: Duration::from_secs(10),
        };
        target.withstood(bounds).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_with_very_many_mirrored_parameters_is_left_out() {
    let parameters: Vec<_> = (0..60_000)
        .map(|n| format!(r#""p{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#))
        .collect();
    let schema = format!(
        r#"{{"type":"object","properties":{{{}}}}}"#,
        parameters.join(",")
    );
    let list = format!(r#"{T},{{"name":"many","inputSchema":{schema}}}"#);
    for transport in [Transport::Http, Transport::Stdio] {
        let backend = Backend::start(Era::Modern, transport).await;
        backend.on("tools/list", backend.list("tools", &list));
        backend.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)),
        );
        let target = Target::serve(backend, "").await;
        let tools = asked(&target, "tools/list", "").await;
        assert!(
            !tools.contains(r#""many""#) && tools.contains(r#""name":"t""#),
            "it is in the list"
        );
        for _ in 0..5 {
            let call = asked(
                &target,
                "tools/call",
                r#""name":"many","arguments":{"p1":"x"}"#,
            )
            .await;
            // A stdio server expects no headers, so only its clients could be misled by them.
            assert!(
                transport == Transport::Http || member(&call, "error.code") == Some("-32020"),
                "{call}"
            );
        }
        let bounds = Bounds {
            memory: 96 << 20,
            processor: Duration::from_secs(15),
            time: Duration::from_secs(30),
            slowest_call: Duration::from_secs(10),
        };
        target.withstood(bounds).await;
    }
}
