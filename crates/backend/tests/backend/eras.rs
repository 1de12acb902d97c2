//! Servers of both eras: the era for each client, and the requests that determine it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanlight_canonical::{BackendClient, CallContext};
use fanlight_protocol::result::ResultView as _;
use fanlight_protocol::subscription::Change;
use fanlight_protocol::{Json, Response};
use fanlight_testkit::scripted;
use tokio::sync::Notify;

use crate::support::child::Child;
use crate::support::server::{Reply, Seen, Server, feeds, legacy, modern, status};
use crate::support::{call, client, listen, listening, of_session, send, settings, start};

const ROOTS: &str = r#"{"roots":{}}"#;
const REFUSAL: &str = r#"{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}"#;
const LEGACY: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;

/// The answer to a handshake of a server with both eras.
fn both(seen: &Seen) -> Option<Reply> {
    modern(seen).or_else(|| legacy(seen, "s"))
}

/// The session of a request at the server, and its revision.
fn place(seen: &Seen) -> (Option<&str>, Option<&str>) {
    (
        seen.header("mcp-session-id"),
        seen.header("mcp-protocol-version"),
    )
}

fn described_to(capabilities: &str) -> CallContext {
    let mut context = (*CallContext::internal()).clone();
    of_session(1, capabilities)(&mut context);
    context
}

#[tokio::test]
async fn client_is_served_in_its_own_era_where_the_server_has_both() {
    let mut server = Server::start(|seen| both(seen).unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    send(&backend, listening(call("x/y", ""), of_session(1, "{}")).0)
        .await
        .unwrap();
    assert_eq!(
        place(&server.next_of("x/y").await),
        (Some("s"), Some("2025-11-25"))
    );
    send(
        &backend,
        listening(call("x/y", ""), |context| context.caller = client(1)).0,
    )
    .await
    .unwrap();
    assert_eq!(
        place(&server.next_of("x/y").await),
        (None, Some("2026-07-28"))
    );
    assert_eq!(server.count("server/discover"), 0);
    backend.end_session(fanlight_canonical::SessionKey(1));
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some("s")
    );
}

#[tokio::test]
async fn server_describes_itself_to_clients_in_their_own_era() {
    let mut server = Server::start(|seen| both(seen).unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    let own = backend.describe(&CallContext::internal()).await.unwrap();
    assert!(own.json().get("supportedVersions").is_some());
    for _ in 0..2 {
        let described = backend.describe(&described_to("{}")).await.unwrap();
        assert_eq!(
            described.json().as_text(),
            r#"{"protocolVersion":"2025-11-25","capabilities":{"logging":{}}}"#
        );
    }
    assert_eq!(
        server.count("initialize"),
        1,
        "known after the first client"
    );
    let mut modern_client = (*CallContext::internal()).clone();
    modern_client.caller = client(1);
    assert_eq!(
        backend.describe(&modern_client).await.unwrap().json(),
        own.json()
    );
}

#[tokio::test]
async fn server_without_the_legacy_era_is_asked_for_it_once() {
    type Refusal = fn(&Seen) -> Reply;
    let refusals: [(Refusal, usize); 5] = [
        (|seen| seen.error(400, REFUSAL), 1),
        (
            |seen| seen.error(200, r#"{"code":-32601,"message":"no"}"#),
            1,
        ),
        (|_| status(404), 1),
        (|seen| seen.result("{}"), 1),
        // Repeated once, since a kept connection may end like this.
        (|_| Reply::Close, 2),
    ];
    for (refuse, times) in refusals {
        let mut server = Server::start(move |seen| match seen.method().as_str() {
            "initialize" => refuse(seen),
            _ => modern(seen).unwrap_or_else(|| seen.result("{}")),
        })
        .await;
        let backend = start(settings(server.transport()));
        for session in 1..=3 {
            send(
                &backend,
                listening(call("x/y", ""), of_session(session, ROOTS)).0,
            )
            .await
            .unwrap();
        }
        assert_eq!(server.count("initialize"), times);
        let described = backend.describe(&described_to(ROOTS)).await.unwrap();
        assert!(described.json().get("supportedVersions").is_some());
        assert_eq!(server.count("initialize"), 0);
    }
}

#[tokio::test]
async fn server_whose_legacy_era_fails_for_now_is_used_in_the_modern_one() {
    let fails = Arc::new(AtomicBool::new(true));
    let is_failing = Arc::clone(&fails);
    let mut server = Server::start(move |seen| match seen.method().as_str() {
        "initialize" if is_failing.load(Ordering::Relaxed) => status(503),
        _ => both(seen).unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    send(&backend, listening(call("x/y", ""), of_session(1, ROOTS)).0)
        .await
        .unwrap();
    assert_eq!(
        place(&server.next_of("x/y").await),
        (None, Some("2026-07-28"))
    );
    fails.store(false, Ordering::Relaxed);
    send(&backend, listening(call("x/y", ""), of_session(2, ROOTS)).0)
        .await
        .unwrap();
    assert_eq!(
        place(&server.next_of("x/y").await),
        (Some("s"), Some("2025-11-25"))
    );
}

#[tokio::test]
async fn stdio_clients_that_cannot_be_asked_share_the_modern_process() {
    let child = Child::modern().await;
    child.on("initialize", scripted::Reply::result(LEGACY));
    child.on("x/y", scripted::Reply::result("{}"));
    let backend = start(settings(child.transport()));
    let ask = async |session, capabilities: &str| {
        send(
            &backend,
            listening(call("x/y", ""), of_session(session, capabilities)).0,
        )
        .await
        .unwrap();
    };
    ask(1, "{}").await;
    ask(
        2,
        r#"{"experimental":{},"extensions":{"a/b":{}},"roots":null}"#,
    )
    .await;
    assert_eq!((child.started().len(), child.count("initialize")), (1, 0));
    ask(3, ROOTS).await;
    ask(4, r#"{"elicitation":{}}"#).await;
    ask(3, ROOTS).await;
    assert_eq!((child.started().len(), child.count("initialize")), (3, 2));
    backend.stop().await;
}

/// The server asks on the stream of a GET, which no client listens to.
#[tokio::test]
async fn server_request_outside_of_a_call_s_stream_reaches_the_client_of_the_call() {
    let (open, mut streams) = feeds();
    let gate = Arc::new(Notify::new());
    let answered = Arc::clone(&gate);
    let mut server = Server::start(move |seen| match seen.method().as_str() {
        "" if seen.verb == "GET" => open(seen),
        "" if seen.verb == "POST" => {
            answered.notify_one();
            Reply::Whole(202, String::new(), "text/plain", String::new())
        }
        "x/ask" => {
            let result = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, seen.id());
            Reply::Gated(
                ": asking\n\n".into(),
                Arc::clone(&gate),
                crate::support::server::event(&result),
            )
        }
        _ => legacy(seen, "s").unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    let as_session = of_session(1, ROOTS);
    let (asking, mut inbox) = listening(call("x/ask", ""), as_session);
    let client_side = async {
        // The stream is open before the call is sent.
        let stream = streams.next().await;
        server.next_of("x/ask").await;
        stream.send(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
        let question = inbox.question().await;
        question
            .answer
            .send(Response::from_result(&Json::literal(r#"{"roots":[]}"#)))
            .unwrap();
    };
    let (outcome, ()) = tokio::join!(send(&backend, asking), client_side);
    outcome.unwrap();
}

#[tokio::test]
async fn first_call_waits_for_the_stream_that_its_server_may_ask_on() {
    for (capabilities, refused, is_first) in [
        (ROOTS, false, true),
        (ROOTS, true, true),
        ("{}", false, false),
    ] {
        let (open, mut streams) = feeds();
        let server = Server::start(move |seen| match seen.verb.as_str() {
            "GET" if refused => status(405),
            "GET" => open(seen),
            _ => legacy(seen, "s").unwrap_or_else(|| seen.result("{}")),
        });
        let mut server = server.await;
        let backend = start(settings(server.transport()));
        send(
            &backend,
            listening(call("x/y", ""), of_session(1, capabilities)).0,
        )
        .await
        .unwrap();
        let next = server
            .next_where(|seen| seen.verb == "GET" || seen.method() == "x/y")
            .await;
        assert_eq!(next.verb == "GET", is_first, "{capabilities}");
        if !is_first {
            let interest = fanlight_canonical::Interest {
                session: true,
                ..Default::default()
            };
            let _listening = listen(&backend, interest, of_session(1, capabilities))
                .await
                .unwrap();
            streams.next().await;
        }
    }
}

const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// A server of both eras that announces changed tools on its legacy connections when `test/change`
/// is called.
async fn changing() -> (Child, fanlight_canonical::Interest) {
    let child = Child::modern().await;
    let legacy = LEGACY.replace(
        r#""capabilities":{}"#,
        r#""capabilities":{"tools":{"listChanged":true}}"#,
    );
    child.on("initialize", scripted::Reply::result(legacy));
    child.on("x/y", scripted::Reply::result("{}"));
    child.on(
        "test/change",
        scripted::Reply::result("{}").after(&[CHANGED]),
    );
    (
        child,
        fanlight_canonical::Interest {
            lists: Change::Tools.into(),
            session: true,
            ..Default::default()
        },
    )
}

#[tokio::test]
async fn client_served_in_the_legacy_era_receives_changes_that_the_modern_era_does_not_announce() {
    let (child, interest) = changing().await;
    child.on("subscriptions/listen", scripted::Reply::driven());
    let backend = start(settings(child.transport()));
    let acknowledging = async { child.stream(0).await.acknowledge("{}").await };
    let (listener, ()) = tokio::join!(
        listen(&backend, interest, of_session(1, ROOTS)),
        acknowledging
    );
    let (_listening, mut inbox) = listener.unwrap();
    send(
        &backend,
        listening(call("test/change", ""), of_session(1, ROOTS)).0,
    )
    .await
    .unwrap();
    assert_eq!(inbox.text().await, CHANGED);
    backend.stop().await;
}

#[tokio::test]
async fn client_whose_own_connection_opens_while_it_begins_to_listen_receives_changes_on_it() {
    let (child, interest) = changing().await;
    child.on("subscriptions/listen", scripted::Reply::driven());
    let backend = start(settings(child.transport()));
    let beginning = listen(&backend, interest, of_session(1, ROOTS));
    let opening = async {
        child.wait_for("subscriptions/listen", 1).await;
        // With the session's own stream, the demand on the base connection disappears.
        send(&backend, listening(call("x/y", ""), of_session(1, ROOTS)).0)
            .await
            .unwrap();
        child.wait_for("notifications/cancelled", 1).await;
    };
    let (listener, ()) = tokio::join!(beginning, opening);
    let (_listening, mut inbox) = listener.unwrap();
    send(
        &backend,
        listening(call("test/change", ""), of_session(1, ROOTS)).0,
    )
    .await
    .unwrap();
    assert_eq!(inbox.text().await, CHANGED);
    backend.stop().await;
}

#[tokio::test]
async fn process_of_a_client_may_take_longer_to_start_than_the_era_takes_to_find_out() {
    let child = Child::modern().await;
    let gate = scripted::Gate::new();
    child.on("initialize", scripted::Reply::result(LEGACY).gated(&gate));
    child.on("x/y", scripted::Reply::result("{}"));
    let mut settings = settings(child.transport());
    settings.timeouts.probe = Duration::from_millis(500);
    let probe = settings.timeouts.probe;
    let backend = start(settings);
    let starting = async {
        child.wait_for("initialize", 1).await;
        tokio::time::sleep(probe * 2).await;
        gate.open();
    };
    tokio::join!(
        send(&backend, listening(call("x/y", ""), of_session(1, ROOTS)).0),
        starting
    )
    .0
    .unwrap();
    assert_eq!(
        child.started().len(),
        2,
        "the client has a process of its own"
    );
    assert_eq!(
        child.received("x/y")[0].member("params._meta"),
        None,
        "which it is asked in its own era"
    );
    backend.stop().await;
}

/// Both eras are offered by a process that starts more slowly than the probe waits.
#[tokio::test]
async fn process_of_both_eras_that_starts_slowly_is_modern() {
    const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}"#;
    let child = Child::modern().await;
    let gate = scripted::Gate::new();
    child.on(
        "server/discover",
        scripted::Reply::result(DISCOVERED).gated(&gate),
    );
    child.on("initialize", scripted::Reply::result(LEGACY).gated(&gate));
    child.on("x/y", scripted::Reply::result("{}"));
    let mut settings = settings(child.transport());
    settings.timeouts.probe = Duration::from_millis(300);
    let backend = start(settings);
    let starting = async {
        child.wait_for("initialize", 1).await;
        gate.open();
    };
    tokio::join!(
        send(&backend, listening(call("x/y", ""), of_session(1, "{}")).0),
        starting
    )
    .0
    .unwrap();
    let asked = child.received("x/y");
    let meta = asked[0].member("params._meta");
    assert!(meta.is_some(), "in the modern era");
    assert_eq!((child.started().len(), child.count("initialize")), (2, 1));
    backend.stop().await;
}

#[tokio::test]
async fn modern_server_that_answers_the_probe_after_it_has_refused_initialize_is_modern() {
    let gate = Arc::new(Notify::new());
    let server = Server::start(move |seen| match (seen.method().as_str(), modern(seen)) {
        ("server/discover", Some(Reply::Whole(.., body))) => Reply::Gated(
            ":\n\n".to_owned(),
            Arc::clone(&gate),
            format!("data: {body}\n\n"),
        ),
        ("initialize", _) => {
            gate.notify_one();
            seen.error(400, REFUSAL)
        }
        _ => seen.result(r#"{"resultType":"complete"}"#),
    })
    .await;
    let mut settings = settings(server.transport());
    settings.timeouts.probe = Duration::from_secs(1);
    let backend = start(settings);
    send(&backend, call("x/y", "")).await.unwrap();
}
