//! Clients that take all permits of a server: by calls that hang, and by suspended calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use fanlight_testkit::slicer::{member, plain_string};
use tokio::task::JoinSet;

use crate::harness::{Gateway, within};
use crate::raw_client::{
    Connection, JSON_HEADERS, LegacySession, Response, legacy_request, modern_headers,
    modern_request, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Fault, Gate, Reply, Transport};
use crate::target::{Bounds, Target, well_behaved};

const ATTACKER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const FEW: &str = r#""x-limits":"concurrency=4""#;
const CAN_BE_ASKED: &str = r#"{"roots":{}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;

/// Sends a modern request from this address; the caller reads the response later.
async fn send_from(local: IpAddr, gateway: SocketAddr, body: &str) -> Connection {
    let mut connection = Connection::open_from(local, gateway).await;
    let own = modern_headers(body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<(&str, &str)> = JSON_HEADERS.into_iter().chain(own).collect();
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_calls_of_a_modern_client_leave_permits_to_others() {
    let target = Target::with(FEW).await;
    target
        .backend
        .on_target("tools/call", "hang", Reply::fault(Fault::Hang));
    let gateway = target.gateway.mcp;
    let call = modern_request("1", "tools/call", r#""name":"hang""#, "");
    let mut hanging = Vec::new();
    for _ in 0..40 {
        hanging.push(send_from(ATTACKER, gateway, &call).await);
    }
    target
        .backend
        .wait_for_target("tools/call", "hang", 3)
        .await;
    // Another client in the attacker's network, under another client name.
    let own_name = modern_request("1", "tools/call", r#""name":"t""#, "")
        .replace(r#""name":"raw""#, r#""name":"other""#);
    let mut response = send_from(ATTACKER, gateway, &own_name)
        .await
        .response()
        .await;
    assert!(member(&response.text().await, "result.content").is_some());
    assert_eq!(
        target.backend.count_of_target("tools/call", "hang"),
        3,
        "a client has its share, and no more"
    );
    target.withstood(Bounds::SMALL).await;
    drop(hanging);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_calls_of_a_legacy_session_leave_permits_to_others() {
    let target = Target::with(FEW).await;
    target
        .backend
        .on_target("tools/call", "hang", Reply::fault(Fault::Hang));
    let session = std::sync::Arc::new(LegacySession::open(target.gateway.mcp).await);
    let mut hanging = JoinSet::new();
    for id in 1..=40 {
        let session = std::sync::Arc::clone(&session);
        let request = legacy_request(&id.to_string(), "tools/call", r#""name":"hang""#);
        hanging.spawn(async move { session.post(&request).await });
    }
    target
        .backend
        .wait_for_target("tools/call", "hang", 3)
        .await;
    let other = LegacySession::open(target.gateway.mcp).await;
    let mut response = other
        .post(&legacy_request("1", "tools/call", r#""name":"t""#))
        .await;
    let text = response.messages().await.1;
    assert!(member(&text, "result.content").is_some(), "{text}");
    hanging.shutdown().await;
    target.withstood(Bounds::SMALL).await;
}

/// A suspended call: the request, and the members that a retry must add.
struct Suspended {
    state: String,
}

async fn suspend(gateway: SocketAddr, local: IpAddr) -> Suspended {
    let call = modern_request_with(CAN_BE_ASKED, "1", "tools/call", r#""name":"ask""#, "");
    let mut response = send_from(local, gateway, &call).await.response().await;
    let (_, text) = response.messages().await;
    assert_eq!(
        member(&text, "result.resultType"),
        Some(r#""input_required""#),
        "{text}"
    );
    Suspended {
        state: member(&text, "result.requestState")
            .and_then(plain_string)
            .unwrap()
            .to_owned(),
    }
}

impl Suspended {
    async fn resume(self, gateway: SocketAddr, local: IpAddr) -> Response {
        let params = format!(
            r#""name":"ask","requestState":"{}","inputResponses":{{"input-1":{{"roots":[]}}}}"#,
            self.state
        );
        let retry = modern_request_with(CAN_BE_ASKED, "2", "tools/call", &params, "");
        send_from(local, gateway, &retry).await.response().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_calls_hold_no_permits_and_wait_for_one_to_continue() {
    // Over stdio a server request does not name its call, so only one call can be suspended at a
    // time.
    for (transport, calls) in [(Transport::Http, 10), (Transport::Stdio, 1)] {
        let backend = Backend::start(Era::Legacy, transport).await;
        backend.offers_tools(&["t", "ask", "hang"]);
        let gate = Gate::new();
        backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
        backend.on_target(
            "tools/call",
            "ask",
            Reply::conclude(|_, _| r#"{"content":[]}"#.to_owned()).asking(&[ASK]),
        );
        backend.on_target(
            "tools/call",
            "hang",
            Reply::result(r#"{"content":[]}"#).gated(&gate),
        );
        let gateway = Gateway::start(&format!(
            r#"{{"mcpServers":{{{}}},"x-limits":"concurrency=1"}}"#,
            backend.entry("only")
        ))
        .await;
        let mut suspended = Vec::new();
        for _ in 0..calls {
            suspended.push(suspend(gateway.mcp, ATTACKER).await);
        }
        let plain = modern_request("1", "tools/call", r#""name":"t""#, "");
        let answer = post_modern(gateway.mcp, &plain).await.messages().await.1;
        assert!(member(&answer, "result.content").is_some(), "{answer}");
        // Another call has the only permit, so the gateway does not pass the answers to the server.
        let hang = modern_request("1", "tools/call", r#""name":"hang""#, "");
        let holding =
            tokio::spawn(async move { post_modern(gateway.mcp, &hang).await.messages().await.1 });
        gate.reached(1).await;
        let mut resuming = JoinSet::new();
        for call in suspended {
            resuming.spawn(call.resume(gateway.mcp, ATTACKER));
        }
        assert_eq!(backend.count_of_target("tools/call", "ask"), calls);
        gate.open();
        let answer = within("the call with the permit", holding).await.unwrap();
        assert!(member(&answer, "result.content").is_some(), "{answer}");
        while let Some(response) = within("the resumed calls", resuming.join_next()).await {
            let answer = response.unwrap().messages().await.1;
            assert!(member(&answer, "result.content").is_some(), "{answer}");
        }
    }
}

/// A legacy stdio server, which has a process for each request of a client with capabilities.
async fn asking_process() -> Backend {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.offers_tools(&["t", "ask", "hang"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    backend.on_target(
        "tools/call",
        "ask",
        Reply::conclude(|_, _| r#"{"content":[]}"#.to_owned()).asking(&[ASK]),
    );
    backend.on_target("tools/call", "hang", Reply::fault(Fault::Hang));
    backend
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_calls_of_one_address_leave_processes_to_others() {
    let target = Target::serve(asking_process().await, r#""limits":{"processes":4}"#).await;
    let gateway = target.gateway.mcp;
    let ask = modern_request_with(CAN_BE_ASKED, "1", "tools/call", r#""name":"ask""#, "");
    let mut suspended = 0;
    for _ in 0..8 {
        let text = send_from(ATTACKER, gateway, &ask)
            .await
            .response()
            .await
            .messages()
            .await
            .1;
        suspended += usize::from(member(&text, "result.resultType") == Some(r#""input_required""#));
    }
    assert!(suspended >= 3, "{suspended}");
    for _ in 0..2 {
        let answer = suspend(gateway, OTHER)
            .await
            .resume(gateway, OTHER)
            .await
            .messages()
            .await
            .1;
        assert!(member(&answer, "result.content").is_some(), "{answer}");
    }
    target
        .withstood(Bounds {
            processor: Duration::from_secs(10),
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_of_one_address_leave_processes_to_others() {
    let target = Target::serve(asking_process().await, r#""limits":{"processes":4}"#).await;
    let gateway = target.gateway.mcp;
    let hang = modern_request_with(CAN_BE_ASKED, "1", "tools/call", r#""name":"hang""#, "");
    let mut hanging = Vec::new();
    for _ in 0..8 {
        hanging.push(send_from(ATTACKER, gateway, &hang).await);
    }
    target
        .backend
        .wait_for_target("tools/call", "hang", 3)
        .await;
    let answer = suspend(gateway, OTHER)
        .await
        .resume(gateway, OTHER)
        .await
        .messages()
        .await
        .1;
    assert!(member(&answer, "result.content").is_some(), "{answer}");
    target
        .withstood(Bounds {
            processor: Duration::from_secs(10),
            ..Bounds::SMALL
        })
        .await;
    drop(hanging);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_has_waited_until_its_deadline_is_not_sent() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t", "hang"]);
    backend.on("tools/call", Reply::fault(Fault::Hang));
    let text = format!(
        r#"{{"mcpServers":{{{}}},"x-limits":"concurrency=1","timeouts":{{"call":"1s"}}}}"#,
        backend.entry("only")
    );
    let gateway = Gateway::start(&text).await;
    // The first call connects, which must not count in the comparison.
    let warm = modern_request("1", "tools/list", "", "");
    post_modern(gateway.mcp, &warm).await.text().await;
    let call = modern_request("1", "tools/call", r#""name":"hang""#, "");
    let first = send_from(ATTACKER, gateway.mcp, &call).await;
    backend.wait_for("tools/call", 1).await;
    let second = send_from(ATTACKER, gateway.mcp, &call).await;
    let mut sent = 0;
    for connection in [first, second] {
        let text = connection.response().await.messages().await.1;
        assert!(member(&text, "error").is_some(), "{text}");
        sent += usize::from(text.contains("may have been carried out"));
    }
    // The second call may have had a few milliseconds left when the first one gave up its permit.
    // In this case it was partly sent, and its error says so.
    let received = backend.received("tools/call").len();
    assert!((1..=sent).contains(&received), "{received} of {sent}");
}

/// Calls without an answer eject a server only for the clients that made them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_time_out_do_not_keep_a_server_from_others() {
    let backend = well_behaved().await;
    let times = r#""timeouts":{"call":"300ms"},"x-limits":"reconnect=1h,reconnectMax=1h""#;
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}},{times}}}"#,
        backend.entry("only")
    ))
    .await;
    for tool in ["hang-1", "hang-2"] {
        backend.on_target("tools/call", tool, Reply::fault(Fault::Hang));
    }
    let call = async |from: IpAddr, tool: &str| {
        let body = modern_request("1", "tools/call", &format!(r#""name":"{tool}""#), "");
        send_from(from, gateway.mcp, &body)
            .await
            .response()
            .await
            .text()
            .await
    };
    for tool in ["hang-1", "hang-2", "hang-1"] {
        assert!(member(&call(ATTACKER, tool).await, "error").is_some());
    }
    let refused = call(ATTACKER, "t").await;
    assert!(refused.contains("got no answer"), "{refused}");
    let answer = call(OTHER, "t").await;
    assert!(member(&answer, "result.content").is_some(), "{answer}");
    // The attacker's call has shown that the server answers.
    let answer = call(ATTACKER, "t").await;
    assert!(member(&answer, "result.content").is_some(), "{answer}");
}
