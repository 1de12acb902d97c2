//! A server with several endpoints: the choice of an endpoint, and the failure of one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{LegacySession, legacy_request, modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Gate, Reply, Transport};
use crate::server_lives::text_at;

/// The configuration of a gateway whose only server has these URLs.
fn config(urls: &[String], more: &str) -> String {
    let urls: Vec<_> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    let timeouts = r#""x-limits":"connect=5s,healthTimeouts=2,reconnect=100ms,reconnectMax=200ms""#;
    format!(
        r#"{{"mcpServers":{{"pay":{{"urls":[{}]{more}}}}},{timeouts}}}"#,
        urls.join(",")
    )
}

fn urls(servers: &[&Backend]) -> Vec<String> {
    servers.iter().map(|server| server.url()).collect()
}

/// The answer to a call with this number.
async fn call(gateway: &Gateway, tool: &str, number: usize) -> String {
    let params = format!(r#""name":"{tool}","arguments":{{"number":{number}}}"#);
    post_modern(gateway.mcp, &modern_request("1", "tools/call", &params, ""))
        .await
        .messages()
        .await
        .1
}

fn is_result(answer: &str) -> bool {
    answer.contains("\"result\"")
}

/// Waits until the endpoints of the server in the overview have these states.
async fn endpoints_when(gateway: &Gateway, states: &[&str]) -> Value {
    within("the states of the endpoints", async {
        loop {
            let server: Value =
                serde_json::from_str(&text_at(gateway, "/api/overview").await).unwrap();
            let server = server["backends"][0].clone();
            let found = server["endpoints"].as_array().into_iter().flatten();
            if found
                .map(|endpoint| endpoint["state"].as_str().unwrap())
                .eq(states.iter().copied())
            {
                return server;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
}

/// The number of calls with each number at these servers.
fn ledger(servers: &[&Backend]) -> BTreeMap<usize, usize> {
    let mut ledger = BTreeMap::new();
    for received in servers
        .iter()
        .flat_map(|server| server.received("tools/call"))
    {
        *ledger
            .entry(
                received
                    .member("params.arguments.number")
                    .unwrap()
                    .parse()
                    .unwrap(),
            )
            .or_default() += 1;
    }
    ledger
}

#[tokio::test]
async fn calls_without_a_session_go_to_the_endpoint_with_fewer_running_ones() {
    let (one, two) = (
        backend(Era::Modern, Transport::Http).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let gate = Gate::new();
    for server in [&one, &two] {
        server.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
        );
    }
    let gateway = Arc::new(Gateway::start(&config(&urls(&[&one, &two]), "")).await);
    endpoints_when(&gateway, &["ready", "ready"]).await;
    let mut calls = JoinSet::new();
    for number in 0..10 {
        let gateway = Arc::clone(&gateway);
        calls.spawn(async move { call(&gateway, "t", number).await });
        gate.reached(number + 1).await;
    }
    assert_eq!(
        [
            one.received("tools/call").len(),
            two.received("tools/call").len()
        ],
        [5, 5]
    );
    let server: Value = serde_json::from_str(&text_at(&gateway, "/api/overview").await).unwrap();
    assert_eq!(server["backends"][0]["endpoints"][1]["running"], 5);
    gate.open();
    while let Some(answer) = calls.join_next().await {
        assert!(is_result(&answer.unwrap()));
    }
    let metrics = text_at(&gateway, "/metrics").await;
    let counted = r#"fanlight_backend_endpoints{fanlight_backend_name="pay",state="up"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");
    // Spans name the endpoint.
    let traces: Value =
        serde_json::from_str(&text_at(&gateway, "/api/traces?limit=10").await).unwrap();
    let mut spans = String::new();
    for trace in traces["traces"].as_array().unwrap() {
        spans += &text_at(
            &gateway,
            &format!("/api/traces/{}", trace["traceId"].as_str().unwrap()),
        )
        .await;
    }
    for server in [&one, &two] {
        let port = server
            .url()
            .trim_end_matches("/mcp")
            .rsplit(':')
            .next()
            .unwrap()
            .to_owned();
        assert!(spans.contains(&port), "no span names {port}");
    }
}

#[tokio::test]
async fn killed_endpoint_fails_no_call_but_those_in_flight_and_none_runs_twice() {
    let (failed, ledger) = kill_one_under_load("{}", "").await;
    assert!(failed.len() <= CLIENTS, "{failed:?}");
    assert!(ledger.values().all(|runs| *runs == 1), "{ledger:?}");
    let is_accounted_for = |number: &usize| ledger.contains_key(number) || failed.contains(number);
    assert!((0..CLIENTS * CALLS).all(|number| is_accounted_for(&number)));
}

#[tokio::test]
async fn killed_endpoint_fails_no_safe_call_that_may_be_sent_again() {
    let (failed, ledger) =
        kill_one_under_load(r#"{"readOnlyHint":true}"#, r#","retry":"safe""#).await;
    assert!(failed.is_empty(), "{failed:?}");
    assert!((0..CLIENTS * CALLS).all(|number| ledger.contains_key(&number)));
}

const CLIENTS: usize = 6;
const CALLS: usize = 40;

/// Kills one of two endpoints while clients call a tool with these annotations. Both endpoints are
/// processes, each in front of a ledger that counts executed calls. Returns the failed calls and
/// the ledger.
async fn kill_one_under_load(
    annotations: &str,
    more: &str,
) -> (BTreeSet<usize>, BTreeMap<usize, usize>) {
    let (one, two) = (
        backend(Era::Modern, Transport::Http).await,
        backend(Era::Modern, Transport::Http).await,
    );
    for server in [&one, &two] {
        let tool = format!(
            r#"{{"name":"t","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#
        );
        server.on("tools/list", server.list("tools", &tool));
    }
    let alone = |server: &Backend| format!(r#"{{"mcpServers":{{{}}}}}"#, server.entry("s"));
    let mut first = Gateway::start(&alone(&one)).await;
    let second = Gateway::start(&alone(&two)).await;
    let gateway = Arc::new(Gateway::start(&config(&[first.url(), second.url()], more)).await);
    endpoints_when(&gateway, &["ready", "ready"]).await;
    let (next, gate) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(tokio::sync::Notify::new()),
    );
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (gateway, next, gate) = (Arc::clone(&gateway), Arc::clone(&next), Arc::clone(&gate));
        clients.spawn(async move {
            let mut failed = Vec::new();
            for _ in 0..CALLS {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number == CLIENTS * CALLS / 3 {
                    gate.notify_one();
                }
                let answer = call(&gateway, "t", number).await;
                if !is_result(&answer) {
                    assert!(answer.contains("\"mayHaveRun\":true"), "{answer}");
                    failed.push(number);
                }
            }
            failed
        });
    }
    gate.notified().await;
    first.kill().await;
    let failed = clients.join_all().await.into_iter().flatten().collect();
    endpoints_when(&gateway, &["down", "ready"]).await;
    assert!(second.terminate().await.success());
    (failed, ledger(&[&one, &two]))
}

#[tokio::test]
async fn endpoint_that_refuses_connections_costs_no_call() {
    let server = backend(Era::Modern, Transport::Http).await;
    let gone = backend(Era::Modern, Transport::Http).await;
    let both = urls(&[&gone, &server]);
    let gateway = Gateway::start(&config(&both, "")).await;
    endpoints_when(&gateway, &["ready", "ready"]).await;
    drop(gone);
    for number in 0..20 {
        let answer = call(&gateway, "t", number).await;
        assert!(
            is_result(&answer) || answer.contains("\"mayHaveRun\":true"),
            "{answer}"
        );
    }
    endpoints_when(&gateway, &["down", "ready"]).await;
    assert!(is_result(&call(&gateway, "t", 20).await));
    let server_state = endpoints_when(&gateway, &["down", "ready"]).await;
    assert_eq!(server_state["state"], "ready");
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn all_endpoints_down_are_a_server_that_is_down() {
    let (one, two) = (
        backend(Era::Modern, Transport::Http).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let both = urls(&[&one, &two]);
    drop((one, two));
    let gateway = Gateway::start(&config(&both, "")).await;
    let server = endpoints_when(&gateway, &["down", "down"]).await;
    assert_eq!(server["state"], "down");
    let answer = call(&gateway, "t", 0).await;
    assert!(
        answer.contains("cannot be reached") && answer.contains("\"mayHaveRun\":false"),
        "{answer}"
    );
    assert!(!answer.contains("127.0.0.1"), "{answer}");
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn session_stays_at_its_endpoint_and_is_reopened_after_its_loss() {
    let (one, two) = (
        backend(Era::Legacy, Transport::Http).await,
        backend(Era::Legacy, Transport::Http).await,
    );
    let gateway = Gateway::start(&config(&urls(&[&one, &two]), "")).await;
    endpoints_when(&gateway, &["ready", "ready"]).await;
    let mut sessions = Vec::new();
    for _ in 0..12 {
        sessions.push(LegacySession::open(gateway.mcp).await);
    }
    let call = async |session: usize, number: usize| {
        let params = format!(r#""name":"t","arguments":{{"number":{number},"session":{session}}}"#);
        let request = legacy_request("7", "tools/call", &params);
        sessions[session].post(&request).await.messages().await.1
    };
    for number in 0..36 {
        let answer = call(number % 12, number).await;
        assert!(is_result(&answer), "{answer}");
    }
    let sessions_at = |server: &Backend| -> BTreeSet<usize> {
        let calls = server.received("tools/call");
        calls
            .iter()
            .map(|call| {
                call.member("params.arguments.session")
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect()
    };
    let (at_one, at_two) = (sessions_at(&one), sessions_at(&two));
    assert!(
        at_one.is_disjoint(&at_two) && !at_one.is_empty() && !at_two.is_empty(),
        "{at_one:?} {at_two:?}"
    );
    drop(one);
    for session in 0..12 {
        // A connection that breaks during a call does not show whether the call ran. The next call
        // goes to the other endpoint.
        let answer = call(session, 100 + session).await;
        assert!(
            is_result(&answer) || answer.contains("\"mayHaveRun\":true"),
            "{answer}"
        );
        let answer = call(session, 200 + session).await;
        assert!(is_result(&answer), "{answer}");
    }
    assert_eq!(sessions_at(&two).len(), 12);
    assert!(ledger(&[&two]).values().all(|runs| *runs == 1));
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn endpoint_whose_calls_fail_is_left_alone_and_used_again_once_one_is_answered() {
    let (bad, good) = (
        backend(Era::Modern, Transport::Http).await,
        backend(Era::Modern, Transport::Http).await,
    );
    bad.on(
        "tools/call",
        Reply::fault(Fault::Status(500, "text/plain", "broken")),
    );
    let gateway = Gateway::start(&config(&urls(&[&bad, &good]), "")).await;
    endpoints_when(&gateway, &["ready", "ready"]).await;
    // A session at the bad endpoint stays there, even if its calls fail.
    let ask = async |session: &LegacySession, tool: &str| {
        let params = format!(r#""name":"{tool}","arguments":{{"number":0}}"#);
        session
            .post(&legacy_request("7", "tools/call", &params))
            .await
            .messages()
            .await
            .1
    };
    let unlucky = loop {
        let session = LegacySession::open(gateway.mcp).await;
        if !is_result(&ask(&session, "t").await) {
            break session;
        }
    };
    assert!(ask(&unlucky, "u").await.contains("\"mayHaveRun\":true"));
    endpoints_when(&gateway, &["ejected", "ready"]).await;
    // While the endpoint is ejected, the gateway sometimes tries it with a single call.
    let failures = bad.received("tools/call").len();
    let mut failed = 0;
    for number in 0..20 {
        failed += usize::from(!is_result(&call(&gateway, "t", number).await));
    }
    assert_eq!(failed, bad.received("tools/call").len() - failures);
    // A request that cannot end a trial is no trial, even if one is due.
    let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
    while std::time::Instant::now() < until {
        let complete =
            r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}"#;
        post_modern(
            gateway.mcp,
            &modern_request("1", "completion/complete", complete, ""),
        )
        .await
        .messages()
        .await;
    }
    assert_eq!(bad.received("completion/complete").len(), 0);
    bad.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    within("the return", async {
        while text_at(&gateway, "/api/overview")
            .await
            .contains("\"ejected\"")
        {
            call(&gateway, "t", 0).await;
        }
    })
    .await;
    endpoints_when(&gateway, &["ready", "ready"]).await;
    assert!(is_result(&ask(&unlucky, "t").await));
    assert!(gateway.terminate().await.success());
}
