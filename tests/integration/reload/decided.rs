//! Requests in progress while the configuration changes. Only calls run that were allowed when they
//! were resolved, on the server that was meant, as the servers' own ledgers show.

use std::collections::BTreeMap;

use fanlight_tests::slicer::{elements, member};
use tokio::task::JoinHandle;

use super::*;
use crate::harness::within;
use crate::raw_client::{LegacySession, legacy_request, listen, modern_request_with};
use crate::scripted::{Gate, config};

const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;

/// How the configuration changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// `a` and `b` exchange their prefixes.
    Rename,
    /// The tools of `a` are denied.
    Deny,
    /// `a` and `b` are removed.
    Remove,
    /// `a` becomes another server.
    Swap,
}

/// The servers: `a` holds its answers, `b` asks its client, and `c` is added later.
struct Servers {
    a: Backend,
    b: Backend,
    c: Backend,
    /// Holds the calls of `a`.
    calls: Gate,
    /// Holds the lists of `a`, once `a` has another tool.
    lists: Gate,
}

impl Servers {
    async fn start() -> Self {
        let [a, c] = [
            Backend::start(Era::Modern, Transport::Http).await,
            Backend::start(Era::Modern, Transport::Http).await,
        ];
        let b = Backend::start(Era::Legacy, Transport::Http).await;
        let (calls, lists) = (Gate::new(), Gate::new());
        a.declares(r#"{"tools":{"listChanged":true}}"#);
        a.on("subscriptions/listen", Reply::listening());
        for backend in [&a, &b, &c] {
            backend.offers_tools(&["held", "ask"]);
        }
        // This tool makes the list differ when the names are exchanged.
        b.offers_tools(&["held", "ask", "own"]);
        a.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[],"by":"a""#)).gated(&calls),
        );
        b.on("tools/call", Reply::result(r#"{"content":[],"by":"b"}"#));
        b.on_target(
            "tools/call",
            "ask",
            Reply::result(r#"{"content":[],"by":"b"}"#).asking(&[ASK]),
        );
        c.on(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[],"by":"c""#)),
        );
        Self {
            a,
            b,
            c,
            calls,
            lists,
        }
    }

    fn before(&self) -> String {
        config(&[self.a.entry("a"), self.b.entry("b"), self.c.entry("c")])
    }

    fn after(&self, change: Change) -> String {
        let (b, c) = (self.b.entry("b"), self.c.entry("c"));
        config(&match change {
            Change::Rename => {
                let [a, b] =
                    [("a", &self.a, "b__"), ("b", &self.b, "a__")].map(|(name, server, prefix)| {
                        server.entry_with(name, &format!(r#""prefix":"{prefix}""#))
                    });
                vec![a, b, c]
            }
            Change::Deny => vec![self.a.entry_with("a", r#""tools":{"deny":["*"]}"#), b, c],
            Change::Remove => vec![c, self.c.entry("d")],
            Change::Swap => vec![self.c.entry("a"), b],
        })
    }

    /// The number of calls that each server has received, by tool.
    fn ledger(&self) -> BTreeMap<String, usize> {
        let mut ledger = BTreeMap::new();
        for (name, server) in [("a", &self.a), ("b", &self.b), ("c", &self.c)] {
            for call in server.received("tools/call") {
                let tool = call
                    .member("params.name")
                    .unwrap_or("?")
                    .trim_matches('"')
                    .to_owned();
                *ledger.entry(format!("{name}/{tool}")).or_default() += 1;
            }
        }
        ledger
    }
}

fn request(tool: &str, more: &str) -> String {
    modern_request_with(
        r#"{"roots":{}}"#,
        "1",
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{{}}{more}"#),
        "",
    )
}

/// Sends a call without waiting for the answer.
fn begin(gateway: &Gateway, tool: &str) -> JoinHandle<String> {
    let (mcp, body) = (gateway.mcp, request(tool, ""));
    tokio::spawn(async move { post_modern(mcp, &body).await.messages().await.1 })
}

/// The requests in progress when the configuration changes.
struct UnderWay {
    held: JoinHandle<String>,
    /// A call whose tool is in no list yet: the gateway reads lists to resolve it.
    unresolved: JoinHandle<String>,
    batch: JoinHandle<String>,
    /// The `requestState` of a suspended call.
    suspended: String,
    listening: crate::raw_client::Response,
}

impl UnderWay {
    async fn begin(servers: &Servers, gateway: &Gateway) -> Self {
        assert!(tools(gateway).await.contains("a__held"));
        let mut listening = listen(gateway.mcp, "9", r#"{"toolsListChanged":true}"#).await;
        assert!(
            listening
                .event()
                .await
                .unwrap()
                .unwrap()
                .contains("acknowledged")
        );
        let held = begin(gateway, "a__held");
        servers.calls.reached(1).await;
        let mcp = gateway.mcp;
        let batch = tokio::spawn(async move {
            let session = LegacySession::open_as(mcp, "2025-03-26").await;
            let call = |id: &str, tool: &str| {
                legacy_request(
                    id,
                    "tools/call",
                    &format!(r#""name":"{tool}","arguments":{{}}"#),
                )
            };
            let batch = format!("[{},{}]", call("1", "a__held"), call("2", "b__held"));
            let mut response = session.post(&batch).await;
            if response.is_event_stream() {
                let (before, last) = response.messages().await;
                return before.into_iter().chain([last]).collect();
            }
            response.text().await
        });
        servers.calls.reached(2).await;
        servers.b.wait_for_target("tools/call", "held", 1).await;
        let asked = post_modern(gateway.mcp, &request("b__ask", ""))
            .await
            .messages()
            .await
            .1;
        let suspended = member(&asked, "result.requestState")
            .unwrap_or_else(|| panic!("not suspended: {asked}"));
        let listed = servers
            .a
            .list("tools", r#"{"name":"held"},{"name":"ask"},{"name":"late"}"#);
        servers.a.on("tools/list", listed.gated(&servers.lists));
        let unresolved = begin(gateway, "a__late");
        servers.lists.reached(1).await;
        Self {
            held,
            unresolved,
            batch,
            suspended: suspended.to_owned(),
            listening,
        }
    }
}

async fn nothing_runs_but_what_was_allowed(change: Change) {
    let servers = Servers::start().await;
    let gateway = Gateway::start_with(&servers.before(), &["--no-watch"]).await;
    let UnderWay {
        held,
        unresolved,
        batch,
        suspended,
        mut listening,
    } = UnderWay::begin(&servers, &gateway).await;
    let mut ran = BTreeMap::from(
        [("a/held", 2), ("b/held", 1), ("b/ask", 1)].map(|(tool, n)| (tool.to_owned(), n)),
    );
    assert_eq!(servers.ledger(), ran, "{change:?}");
    reload(&gateway, &servers.after(change)).await;
    assert_eq!(
        servers.ledger(),
        ran,
        "{change:?}: the change itself runs nothing"
    );
    servers.lists.open();
    servers.calls.open();

    // Running calls end at their server; the call that was being resolved keeps the meaning that it
    // had then.
    let by = |answer: &str| member(answer, "result.by").map(|by| by.trim_matches('"').to_owned());
    assert_eq!(
        by(&within("the held call", held).await.unwrap()).as_deref(),
        Some("a"),
        "{change:?}"
    );
    assert_eq!(
        by(&within("the resolved call", unresolved).await.unwrap()).as_deref(),
        Some("a"),
        "{change:?}"
    );
    ran.insert("a/late".into(), 1);
    let answers = within("the batch", batch).await.unwrap();
    let answers: Vec<&str> = elements(&answers).unwrap_or_else(|| vec![answers.as_str()]);
    assert!(
        answers.iter().all(|answer| !answer.contains("\"error\"")),
        "{change:?}: {answers:?}"
    );
    let retry =
        format!(r#","inputResponses":{{"input-1":{{"roots":[]}}}},"requestState":{suspended}"#);
    let resumed = post_modern(gateway.mcp, &request("b__ask", &retry))
        .await
        .messages()
        .await
        .1;
    assert_eq!(by(&resumed).as_deref(), Some("b"), "{change:?}: {resumed}");
    assert_eq!(servers.ledger(), ran, "{change:?}");

    // From now on, names have the meaning of the new configuration.
    let told = within("the changed list", listening.event())
        .await
        .unwrap()
        .unwrap();
    assert!(told.contains("tools/list_changed"), "{change:?}: {told}");
    let answer = call(&gateway, "a__held").await;
    match change {
        Change::Rename => assert_eq!(by(&answer).as_deref(), Some("b"), "{answer}"),
        Change::Deny | Change::Remove => {
            assert!(member(&answer, "error.code").is_some(), "{answer}");
        }
        Change::Swap => assert_eq!(by(&answer).as_deref(), Some("c"), "{answer}"),
    }
    match change {
        Change::Rename => *ran.entry("b/held".into()).or_default() += 1,
        Change::Swap => drop(ran.insert("c/held".into(), 1)),
        Change::Deny | Change::Remove => {}
    }
    assert_eq!(servers.ledger(), ran, "{change:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_requests_keep_their_resolution_while_servers_are_renamed() {
    nothing_runs_but_what_was_allowed(Change::Rename).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_requests_keep_their_resolution_while_tools_are_denied() {
    nothing_runs_but_what_was_allowed(Change::Deny).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_requests_keep_their_resolution_while_servers_are_removed() {
    nothing_runs_but_what_was_allowed(Change::Remove).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_requests_keep_their_resolution_while_a_server_is_swapped() {
    nothing_runs_but_what_was_allowed(Change::Swap).await;
}
