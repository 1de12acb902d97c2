//! The cost of 200 policies with 500 tools and 1,000 principals. The test prints figures and checks
//! nothing, so it runs only on request: `FANLIGHT_TEST_BINARY=target/dist/fanlight cargo test -p
//! fanlight-tests --test integration policy_cost -- --ignored --nocapture`

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use fanlight_testkit::usage::processor_time;

use crate::harness::{Gateway, TempFile};
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request};
use crate::scripted::{Backend, Era, Reply, Transport};

const TOOLS: usize = 500;
const PRINCIPALS: usize = 1000;
const GROUPS: usize = 50;
/// Repetitions of each principal's request.
const ROUNDS: usize = 5;
/// Requests sent before their answers are read, so that the figure measures work instead of
/// wake-ups.
const BATCH: usize = 20;

/// 200 policies: one permits everything, 100 restrict a tool to one group each, and 99 permit a
/// group its tools.
fn policies() -> String {
    let mut text = String::from("permit(principal in Group::\"all\", action, resource);\n");
    for group in 0..100 {
        let _ = writeln!(
            text,
            r#"forbid(principal, action, resource == Tool::"a/t{group}") unless {{ principal in Group::"g{group}" }};"#
        );
    }
    for group in 0..99 {
        let _ = writeln!(
            text,
            r#"permit(principal in Group::"g{group}", action, resource in Server::"a") when {{ resource.name like "t{group}*" }};"#
        );
    }
    text
}

/// Processor time per request if every principal sends the request of `body` `rounds` times in
/// turn.
async fn cost(gateway: &Gateway, rounds: usize, body: impl Fn(usize) -> String) -> Duration {
    let mut connection = Connection::open(gateway.mcp).await;
    let before = processor_time(gateway.pid());
    let principals: Vec<_> = (0..PRINCIPALS * rounds).map(|at| at % PRINCIPALS).collect();
    for batch in principals.chunks(BATCH) {
        for at in batch {
            let (user, groups) = (format!("u{at}"), format!("all,g{}", at % GROUPS));
            let body = body(*at);
            let own = modern_headers(&body);
            let mut headers = JSON_HEADERS.to_vec();
            headers.extend(
                own.iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            );
            headers.extend([("X-User", user.as_str()), ("X-Groups", groups.as_str())]);
            connection
                .request("POST", "/mcp", &headers, body.as_bytes())
                .await;
        }
        for _ in batch {
            let (answer, kept) = connection.response().await.finish().await;
            assert!(answer.contains("\"result\""), "{answer}");
            connection = kept;
        }
    }
    let requests = u32::try_from(principals.len()).unwrap();
    (processor_time(gateway.pid()) - before) / requests
}

const COSTS: [&str; 4] = [
    "first call",
    "further call",
    "first list of 500 tools",
    "further list",
];

/// The costs of each principal's first call and list, and of further ones.
async fn costs(backend: &Backend, policy: &str) -> [Duration; COSTS.len()] {
    let folder = TempFile::folder();
    fs::write(folder.path().join("p.cedar"), policies()).unwrap();
    let config = format!(
        r#"{{"auth":{{"proxy":{{"header":"X-User","groups":"X-Groups","from":["127.0.0.1"]}}}},{policy}"mcpServers":{{{}}}}}"#,
        backend.entry("a")
    );
    fs::write(folder.path().join("fanlight.json"), config).unwrap();
    let gateway = Gateway::start_at(folder.path().join("fanlight.json")).await;
    // The range excludes tools that only some groups may call.
    let call = |at: usize| {
        let tool = 100 + at * 7 % (TOOLS - 100);
        modern_request(
            "1",
            "tools/call",
            &format!(r#""name":"t{tool}","arguments":{{}}"#),
            "",
        )
    };
    let list = |_| modern_request("1", "tools/list", "", "");
    [
        cost(&gateway, 1, call).await,
        cost(&gateway, ROUNDS, call).await,
        cost(&gateway, 1, list).await,
        cost(&gateway, ROUNDS, list).await,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures, which is only for who reads the figures"]
async fn calls_and_lists_under_200_policies() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let tools: Vec<_> = (0..TOOLS)
        .map(|tool| format!(r#"{{"name":"t{tool}","inputSchema":{{"type":"object"}}}}"#))
        .collect();
    let list = format!(
        r#""tools":[{}],"ttlMs":3600000,"cacheScope":"public""#,
        tools.join(",")
    );
    backend.on("tools/list", Reply::result(Era::Modern.complete(&list)));
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let without = costs(&backend, "").await;
    let with = costs(&backend, r#""policy":{"files":["p.cedar"]},"#).await;
    for (at, what) in COSTS.into_iter().enumerate() {
        let ratio = with[at].as_secs_f64() / without[at].as_secs_f64();
        println!(
            "{what}: {:?} without policies, {:?} with 200, {ratio:.2} x",
            without[at], with[at]
        );
    }
}
