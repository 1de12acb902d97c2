//! Failures of servers that exit, hang, break off or send invalid messages affect only the calls to
//! them.

use std::path::Path;
use std::time::Duration;

use fanlight_testkit::ports::Refusing;
use fanlight_tests::slicer::{self, elements};

use crate::clients::{Client, Exchange};
use crate::harness::{Gateway, within};
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Fault, Gate, Reply, Transport, config};

const OK: &str = r#"{"content":[]}"#;

/// A server with one tool `t` that responds with [`OK`].
pub(crate) async fn backend(era: Era, transport: Transport) -> Backend {
    let backend = Backend::start(era, transport).await;
    backend.offers_tools(&["t"]);
    backend.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
    backend
}

/// A client of `bad` and `good`, in this order.
async fn client_of(bad: &str, good: &Backend) -> Client {
    start(bad, good, r#""x-limits":"message=1048576""#).await
}

/// [`client_of`] with short deadlines, for servers that do not respond.
async fn impatient_client_of(bad: &str, good: &Backend) -> Client {
    start(bad, good, r#""x-limits":"connect=1s,list=1s,probe=500ms""#).await
}

async fn start(bad: &str, good: &Backend, more: &str) -> Client {
    let config = format!(
        r#"{{"mcpServers":{{{bad},{}}},{more}}}"#,
        good.entry("good")
    );
    Client::start(&config, Era::Modern, Transport::Http).await
}

/// Checks that the call fails with an error that names its server, and that the other server still
/// responds.
async fn assert_fails_alone(client: &mut Client) -> Exchange {
    let failed = client.call("bad__t").await;
    let message = failed.member("error.message").to_owned();
    assert!(
        message.contains("bad"),
        "the error does not name its backend: {message}"
    );
    assert_good_serves(client).await;
    failed
}

async fn assert_good_serves(client: &mut Client) {
    client.call("good__t").await.member("result.content");
}

#[tokio::test]
async fn killed_child_fails_its_call_and_is_restarted_for_the_next() {
    for era in [Era::Legacy, Era::Modern] {
        let (bad, good) = (
            backend(era, Transport::Stdio).await,
            backend(Era::Modern, Transport::Http).await,
        );
        let mut client = client_of(&bad.entry("bad"), &good).await;
        client.call("bad__t").await.member("result");
        // Fanlight has one more process of a legacy server, for reading lists.
        let own = usize::from(era == Era::Legacy);
        let first = bad.children(1 + own).await[own];
        bad.once("tools/call", Reply::fault(Fault::Die(1)));
        assert_fails_alone(&mut client).await;
        assert_eq!(
            bad.received("tools/call").len(),
            2,
            "a call that may have run is not sent again"
        );
        client.call("bad__t").await.member("result");
        assert_eq!(bad.children(2 + own).await.len(), 2 + own);
        assert_gone(first).await;
    }
}

#[tokio::test]
async fn child_that_exits_at_start_is_restarted_with_backoff() {
    let (bad, good) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Legacy, Transport::Http).await,
    );
    for method in ["server/discover", "initialize"] {
        bad.on(method, Reply::fault(Fault::Die(1)));
    }
    let mut client = impatient_client_of(&bad.entry("bad"), &good).await;
    for _ in 0..10 {
        assert_eq!(client.tool_names().await, ["good__t"]);
    }
    // Probe and fallback may take a child each; later attempts wait for the backoff.
    assert!(
        bad.children(1).await.len() < 8,
        "{} children",
        bad.children(1).await.len()
    );
}

#[tokio::test]
async fn shutdown_ends_stubborn_children() {
    let stubborn = backend(Era::Legacy, Transport::Stdio).await;
    let config = format!(
        r#"{{"mcpServers":{{{}}},"timeouts":{{"drain":"1s"}},"x-limits":"probe=500ms"}}"#,
        stubborn.stubborn_entry("bad")
    );
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    client.call("t").await.member("result");
    let children = stubborn.children(1).await;
    let status = client.into_gateway().terminate().await;
    assert_eq!(status.code(), Some(0));
    for pid in children {
        assert_gone(pid).await;
    }
}

#[tokio::test]
async fn second_signal_stops_immediately() {
    let stubborn = backend(Era::Legacy, Transport::Stdio).await;
    let gate = Gate::new();
    stubborn.once("tools/call", Reply::result(OK).gated(&gate));
    // Neither the running call nor the child would end before the harness gives up.
    let config = format!(
        r#"{{"mcpServers":{{{}}},"timeouts":{{"drain":"60s"}},"x-limits":"probe=500ms"}}"#,
        stubborn.stubborn_entry("bad")
    );
    let gateway = Gateway::start(&config).await;
    let address = gateway.mcp;
    let running = tokio::spawn(async move {
        post_modern(
            address,
            &modern_request("1", "tools/call", r#""name":"t""#, ""),
        )
        .await
    });
    gate.reached(1).await;
    let children = stubborn.children(1).await;
    assert_eq!(gateway.terminate_twice().await.code(), Some(130));
    for pid in children {
        assert_gone(pid).await;
    }
    running.abort();
}

/// Waits until no process has this id, zombies included. Only the parent gets an event for that, so
/// this polls.
pub(crate) async fn assert_gone(pid: u32) {
    let folder = format!("/proc/{pid}");
    within(&format!("process {pid} to go"), async {
        while Path::new(&folder).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn merged_list_reports_a_hanging_backend() {
    for transport in [Transport::Http, Transport::Stdio] {
        let (bad, good) = (
            backend(Era::Modern, transport).await,
            backend(Era::Legacy, Transport::Stdio).await,
        );
        bad.on("tools/list", Reply::fault(Fault::Hang));
        let mut client = impatient_client_of(&bad.entry("bad"), &good).await;
        assert_outcome(&mut client, "timeout").await;
        assert_good_serves(&mut client).await;
    }
}

#[tokio::test]
async fn merged_list_reports_a_backend_that_hangs_in_its_handshake() {
    let (bad, good) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Modern, Transport::Http).await,
    );
    for method in ["server/discover", "initialize"] {
        bad.on(method, Reply::fault(Fault::Hang));
    }
    let mut client = impatient_client_of(&bad.entry("bad"), &good).await;
    assert_eq!(client.tool_names().await, ["good__t"]);
    assert_good_serves(&mut client).await;
}

#[tokio::test]
async fn merged_list_reports_unreachable_and_unauthorized_backends() {
    let good = backend(Era::Modern, Transport::Http).await;
    let unused = Refusing::any();
    let unreachable = format!(
        r#""bad":{{"type":"http","url":"http://{}/mcp"}}"#,
        unused.address
    );
    let mut client = client_of(&unreachable, &good).await;
    assert_outcome(&mut client, "unreachable").await;
    let missing = r#""bad":{"command":"/nonexistent/fanlight-test-server"}"#;
    let mut client = client_of(missing, &good).await;
    assert_outcome(&mut client, "unreachable").await;
    assert_fails_alone(&mut client).await;

    let bad = backend(Era::Modern, Transport::Http).await;
    for method in ["server/discover", "initialize", "tools/list", "tools/call"] {
        bad.on(
            method,
            Reply::fault(Fault::Status(401, "text/plain", "who are you?")),
        );
    }
    let mut client = client_of(&bad.entry("bad"), &good).await;
    assert_outcome(&mut client, "unauthorized").await;
}

/// Checks that the merged list has the entries of `good`, and that `_meta` has the outcome of each
/// server.
async fn assert_outcome(client: &mut Client, outcome: &str) {
    let exchange = client.request("1", "tools/list", "", "").await;
    let tools = elements(exchange.member("result.tools")).unwrap();
    assert_eq!(tools.len(), 1, "{}", exchange.answer);
    assert_eq!(slicer::member(tools[0], "name"), Some(r#""good__t""#));
    let backends = exchange.member_at(&["result", "_meta", "dev.fanlight/backends"]);
    let backends = backends.unwrap_or_else(|| panic!("no outcomes in {}", exchange.answer));
    assert!(
        slicer::member(backends, "bad").is_some_and(|bad| bad.contains(outcome)),
        "{backends}"
    );
    assert!(
        slicer::member(backends, "good").is_some_and(|good| good.contains("ok")),
        "{backends}"
    );
}

#[tokio::test]
async fn truncated_http_responses_are_errors_without_a_retry() {
    let faults = [
        Reply::fault(Fault::BreakOff),
        Reply::fault(Fault::BreakOff).streamed(),
        Reply::fault(Fault::HalfEvent).streamed(),
        Reply::fault(Fault::Die(0)),
        Reply::fault(Fault::Garbage(b"{not JSON".to_vec(), OK.to_owned())),
        Reply::fault(Fault::Status(200, "text/html", "<html>sign in</html>")),
        Reply::fault(Fault::Status(500, "text/plain", "oops")),
        Reply::fault(Fault::Status(401, "text/plain", "")),
        Reply::fault(Fault::Huge(2 << 20)),
        Reply::fault(Fault::Huge(2 << 20)).streamed(),
    ];
    for era in [Era::Legacy, Era::Modern] {
        let (bad, good) = (
            backend(era, Transport::Http).await,
            backend(Era::Modern, Transport::Stdio).await,
        );
        let mut client = client_of(&bad.entry("bad"), &good).await;
        for (index, fault) in faults.iter().enumerate() {
            let before = bad.received("tools/call").len();
            bad.once("tools/call", fault.clone());
            assert_fails_alone(&mut client).await;
            assert_eq!(
                bad.received("tools/call").len(),
                before + 1,
                "fault {index} was sent again"
            );
            client.call("bad__t").await.member("result");
        }
    }
}

#[tokio::test]
async fn handshake_survives_a_connection_that_the_server_closes_between_messages() {
    for method in ["server/discover", "initialize", "notifications/initialized"] {
        let server = backend(Era::Legacy, Transport::Http).await;
        server.once(method, Reply::fault(Fault::Die(0)));
        let good = backend(Era::Modern, Transport::Stdio).await;
        let mut client = client_of(&server.entry("closing"), &good).await;
        client.call("closing__t").await.member("result");
        assert!(server.received(method).len() >= 2, "{method}");
    }
}

#[tokio::test]
async fn lost_session_fails_at_most_one_call() {
    let (bad, good) = (
        backend(Era::Legacy, Transport::Http).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let mut client = client_of(&bad.entry("bad"), &good).await;
    client.call("bad__t").await.member("result");
    let sessions = bad.received("initialize").len();
    bad.once(
        "tools/call",
        Reply::fault(Fault::Status(404, "text/plain", "no such session")),
    );
    client.call("bad__t").await;
    client.call("bad__t").await.member("result");
    assert!(
        bad.received("initialize").len() > sessions,
        "a new session was opened"
    );
    let used = |call: usize| {
        bad.received("tools/call")[call]
            .header("mcp-session-id")
            .map(str::to_owned)
    };
    assert_ne!(used(0), used(2));
    assert_good_serves(&mut client).await;
}

#[tokio::test]
async fn garbage_on_stdout_is_skipped() {
    let (bad, good) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let mut client = client_of(&bad.entry("bad"), &good).await;
    for garbage in [
        "Server started!\n",
        "\n\n",
        "{\"half\":\n",
        "\u{1b}[31mred\n",
        "[1,2]\n",
    ] {
        bad.once(
            "tools/call",
            Reply::fault(Fault::Garbage(garbage.as_bytes().to_vec(), OK.to_owned())),
        );
        assert_eq!(
            client.call("bad__t").await.member("result.content"),
            "[]",
            "after {garbage:?}"
        );
    }
    bad.once(
        "tools/call",
        Reply::fault(Fault::Garbage(
            b"\xff\xfe\x00 not UTF-8\n".to_vec(),
            OK.to_owned(),
        )),
    );
    assert_eq!(client.call("bad__t").await.member("result.content"), "[]");
}

#[tokio::test]
async fn banner_without_a_line_break_hides_no_message() {
    let server = backend(Era::Modern, Transport::Stdio).await;
    let description = Era::Modern.cacheable(
        r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}"#,
    );
    server.once(
        "server/discover",
        Reply::fault(Fault::Garbage(b"Server ready> ".to_vec(), description)),
    );
    let good = backend(Era::Modern, Transport::Http).await;
    let mut client = client_of(&server.entry("greeting"), &good).await;
    assert_eq!(
        client.call("greeting__t").await.member("result.content"),
        "[]"
    );
    assert!(server.received("initialize").is_empty());
}

/// A line of 50 MiB is forwarded whole below the default limit; above a lower limit only its call
/// fails.
#[tokio::test]
async fn line_of_50_mib_passes_or_fails_alone() {
    const SIZE: usize = 50 << 20;
    let (bad, good) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Modern, Transport::Http).await,
    );
    bad.once("tools/call", Reply::fault(Fault::Huge(SIZE)));
    let mut limited = client_of(&bad.entry("bad"), &good).await;
    assert_fails_alone(&mut limited).await;
    limited.call("bad__t").await.member("result");

    bad.once("tools/call", Reply::fault(Fault::Huge(SIZE)));
    let default = config(&[bad.entry("bad"), good.entry("good")]);
    let mut client = Client::start(&default, Era::Legacy, Transport::Stdio).await;
    let passed = client.call("bad__t").await;
    assert_eq!(
        slicer::member(&passed.answer, "result.content.0.text")
            .unwrap()
            .len(),
        SIZE + 2
    );
    assert_good_serves(&mut client).await;
}

#[tokio::test]
async fn backend_that_repeats_a_cursor_is_stopped_with_a_warning() {
    let (bad, good) = (
        backend(Era::Legacy, Transport::Http).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let page = r#"{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"nextCursor":"again"}"#;
    bad.on("tools/list", Reply::result(page));
    let mut client = client_of(&bad.entry("bad"), &good).await;
    let names = client.tool_names().await;
    assert!(
        names.contains(&"bad__t".to_owned()) && names.contains(&"good__t".to_owned()),
        "{names:?}"
    );
    client.log().line_with("cursor").await;
    assert!(bad.received("tools/list").len() < 10);
}

#[tokio::test]
async fn pages_of_all_backends_reach_the_client() {
    let first = backend(Era::Legacy, Transport::Stdio).await;
    let second = backend(Era::Modern, Transport::Http).await;
    first.on(
        "tools/list",
        Reply::compute(|request| {
            let page: usize = request
                .member("params.cursor")
                .map_or(0, |cursor| cursor.trim_matches('"').parse().unwrap());
            let next = if page < 4 {
                format!(r#","nextCursor":"{}""#, page + 1)
            } else {
                String::new()
            };
            format!(r#"{{"tools":[{{"name":"t{page}","inputSchema":{{"type":"object"}}}}]{next}}}"#)
        }),
    );
    let servers = format!("{},{}", first.entry("first"), second.entry("second"));
    for size in [1, 2, 1000] {
        let config = format!(r#"{{"mcpServers":{{{servers}}},"x-limits":"pageSize={size}"}}"#);
        let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
        let mut names = Vec::new();
        let mut cursor = String::new();
        loop {
            let exchange = client.request("1", "tools/list", &cursor, "").await;
            let tools = elements(exchange.member("result.tools")).unwrap();
            names.extend(tools.iter().map(|tool| {
                slicer::member(tool, "name")
                    .unwrap()
                    .trim_matches('"')
                    .to_owned()
            }));
            match slicer::member(&exchange.answer, "result.nextCursor") {
                Some(next) => cursor = format!(r#""cursor":{next}"#),
                None => break,
            }
            assert!(names.len() < 100, "no end: {names:?}");
        }
        assert_eq!(
            names,
            [
                "first__t0",
                "first__t1",
                "first__t2",
                "first__t3",
                "first__t4",
                "second__t"
            ]
        );
    }
}

#[tokio::test]
async fn forged_cursor_is_refused() {
    let only = backend(Era::Modern, Transport::Http).await;
    let other = backend(Era::Modern, Transport::Http).await;
    let config = config(&[only.entry("a"), other.entry("b")]);
    let mut client = Client::start(&config, Era::Modern, Transport::Http).await;
    for cursor in [
        r#""abc""#,
        r#""AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA""#,
    ] {
        let exchange = client
            .request("1", "tools/list", &format!(r#""cursor":{cursor}"#), "")
            .await;
        assert_eq!(exchange.member("error.code"), "-32602");
    }
}

/// One slow call delays none of the others.
#[tokio::test]
async fn waiting_call_delays_no_other() {
    for transport in [Transport::Http, Transport::Stdio] {
        let only = backend(Era::Legacy, transport).await;
        let gate = Gate::new();
        only.once("tools/call", Reply::result(OK).gated(&gate));
        let gateway = Gateway::start(&config(&[only.entry("only")])).await;
        let address = gateway.mcp;
        let slow = tokio::spawn(async move {
            let request = modern_request("1", "tools/call", r#""name":"t""#, "");
            post_modern(address, &request).await.messages().await.1
        });
        gate.reached(1).await;
        for _ in 0..20 {
            let request = modern_request("1", "tools/call", r#""name":"t""#, "");
            assert!(
                post_modern(address, &request)
                    .await
                    .text()
                    .await
                    .contains(r#""content":[]"#)
            );
        }
        gate.open();
        assert!(
            within("the slow call", slow)
                .await
                .unwrap()
                .contains(r#""content":[]"#)
        );
    }
}
