//! A thousand calls that wait for their clients.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fanlight_testkit::slicer::{member, plain_string};
use fanlight_testkit::usage;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::harness::PATIENCE;
use crate::raw_client::{Connection, JSON_HEADERS, modern_headers, modern_request_with};
use crate::scripted::{Backend, Era, Gate, Reply, Transport};
use crate::target::{Bounds, Target};

const CAN_BE_ASKED: &str = r#"{"roots":{}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
/// The limit of suspended calls and of sessions with a server.
const CALLS: usize = 1000;
/// Bytes of memory per call in a debug build, whose futures are larger than a release's. Hyper's
/// connection buffers would take 32 KiB more.
const MOST: u64 = 24 << 10;
/// Bytes that the gateway may keep after all calls have ended: 7 MB, and 4 more for the code of an
/// unoptimized program.
const KEPT: u64 = 12 << 20;
/// Connections that the clients share.
const CLIENTS: usize = 8;

/// Sends a request on an open connection; returns the response and the connection.
async fn exchange(connection: Connection, body: &str) -> (String, Connection) {
    let mut connection = connection;
    let own = modern_headers(body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<(&str, &str)> = JSON_HEADERS.into_iter().chain(own).collect();
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    let mut response = connection.response().await;
    (response.text().await, response.finish().await.1)
}

/// Sends these requests from this address over a few connections; returns the responses.
async fn exchange_all(gateway: SocketAddr, requests: Vec<String>) -> Vec<String> {
    let shared = Arc::new(std::sync::Mutex::new(VecDeque::from(requests)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let requests = Arc::clone(&shared);
        clients.spawn(async move {
            let mut connection =
                Connection::open_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), gateway).await;
            let mut responses = Vec::new();
            loop {
                let Some(request) = requests.lock().unwrap().pop_front() else {
                    return responses;
                };
                let (text, kept) = exchange(connection, &request).await;
                responses.push(text);
                connection = kept;
            }
        });
    }
    clients.join_all().await.into_iter().flatten().collect()
}

fn call(more: &str) -> String {
    modern_request_with(
        CAN_BE_ASKED,
        "1",
        "tools/call",
        &format!(r#""name":"ask"{more}"#),
        "",
    )
}

/// The members that a retry adds to its call, given the response that requires input.
fn input_for(suspended: &str) -> String {
    let state = member(suspended, "result.requestState")
        .unwrap_or_else(|| panic!("not suspended: {suspended}"));
    let key = member(suspended, "result.inputRequests")
        .and_then(|inputs| inputs.split('"').nth(1))
        .unwrap();
    assert!(plain_string(state).is_some());
    format!(r#","requestState":{state},"inputResponses":{{"{key}":{{"roots":[]}}}}"#)
}

/// Waits until the process has little more memory than before.
async fn assert_given_back(pid: u32, before: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let kept = usage::resident_memory(pid).saturating_sub(before);
        if kept <= KEPT {
            println!("{kept} bytes are kept");
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{kept} bytes of memory are not given back"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly"]
async fn as_many_calls_as_allowed_are_suspended_in_little_memory_that_is_given_back() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["t", "ask"]);
    backend.serves_get();
    let gate = Gate::new();
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    backend.on_target(
        "tools/call",
        "ask",
        Reply::result(r#"{"content":[],"done":1}"#)
            .after(&[ASK])
            .gated(&gate),
    );
    // Traces stay in memory by design, up to their limit.
    let options = r#""x-limits":"backendIdleConnection=1s,traceBytes=1MiB""#;
    let target = Target::serve(backend, options).await;
    let (gateway, pid) = (target.gateway.mcp, target.gateway.pid());
    // Memory that the first calls leave for later ones does not count.
    let before = usage::resident_memory(pid);
    let suspended = exchange_all(gateway, vec![call(""); CALLS]).await;
    let retries: Vec<String> = suspended
        .iter()
        .map(|response| call(&input_for(response)))
        .collect();
    let held = usage::resident_memory(pid).saturating_sub(before);
    println!("{} bytes for each suspended call", held / CALLS as u64);
    gate.open();
    for done in exchange_all(gateway, retries).await {
        assert_eq!(member(&done, "result.done"), Some("1"), "{done}");
    }
    assert!(
        held / CALLS as u64 <= MOST,
        "{} bytes for each suspended call",
        held / CALLS as u64
    );
    assert_given_back(pid, before).await;
    let bounds = Bounds {
        memory: 64 << 20,
        processor: Duration::from_secs(60),
        time: Duration::from_secs(120),
        slowest_call: Duration::from_secs(5),
    };
    target.withstood(bounds).await;
}
