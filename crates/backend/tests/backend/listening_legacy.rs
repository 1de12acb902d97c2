//! Listening at a legacy HTTP server: the stream of a GET, and a subscription per resource.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fanlight_backend::{Backend, BackendSettings, SessionPolicy};
use fanlight_canonical::{BackendClient, CallContext, Interest, SessionKey};

use fanlight_protocol::subscription::{Change, Lists};
use tokio::sync::Notify;

use crate::support::server::{Feed, Feeds, Reply, Seen, Server, event, feeds, legacy, status};
use crate::support::{call, listen, listening, of_session, send, settings, start, without_session};

const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const PROMPTS: &str = r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#;

/// The answers of a legacy server that sends all notifications. Its sessions are `s0` and so on.
pub(crate) fn telling(seen: &Seen, sessions: &AtomicUsize) -> Option<Reply> {
    if seen.method() != "initialize" {
        return legacy(seen, "");
    }
    let id = seen.id();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-11-25","capabilities":{{"logging":{{}},"tools":{{"listChanged":true}},"prompts":{{}},"resources":{{"listChanged":true,"subscribe":true}}}}}}}}"#
    );
    let session = sessions.fetch_add(1, Ordering::Relaxed);
    Some(Reply::Whole(
        200,
        format!("Mcp-Session-Id: s{session}\r\n"),
        "application/json",
        body,
    ))
}

/// A server whose streams the test writes to; `answer` gives all other answers.
async fn streaming(
    answer: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
) -> (Server, Feeds) {
    let ((open, feeds), sessions) = (feeds(), AtomicUsize::new(0));
    let server = Server::start(move |seen| {
        answer(seen)
            .or_else(|| (seen.verb == "GET").then(|| open(seen)))
            .unwrap_or_else(|| telling(seen, &sessions).unwrap_or_else(|| seen.result("{}")))
    })
    .await;
    (server, feeds)
}

fn shared(mut settings: BackendSettings) -> Arc<Backend> {
    settings.sessions = SessionPolicy::Shared;
    start(settings)
}

fn tools() -> Interest {
    Interest {
        lists: [Change::Tools, Change::Prompts].into_iter().collect(),
        ..Interest::default()
    }
}

fn resource(uri: &str) -> Interest {
    Interest {
        uris: [uri.into()].into(),
        ..Interest::default()
    }
}

fn updated(uri: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
    )
}

fn numbered(id: u32, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

fn last_event(feed: &Feed) -> Option<&str> {
    feed.seen.header("last-event-id")
}

#[tokio::test]
async fn stream_is_open_only_while_it_is_needed() {
    let (_server, mut feeds) = streaming(|_| None).await;
    let backend = start(settings(_server.transport()));
    backend.describe(&CallContext::internal()).await.unwrap();
    assert!(feeds.is_empty());
    let (listening, mut inbox) = listen(&backend, tools(), without_session).await.unwrap();
    // The server does not announce changed prompts.
    assert_eq!(
        listening.honoured,
        Interest::from(Lists::from(Change::Tools))
    );
    let feed = feeds.next().await;
    assert_eq!(feed.seen.header("mcp-session-id"), Some("s0"));
    assert_eq!(feed.seen.header("accept"), Some("text/event-stream"));
    assert_eq!(feed.seen.header("mcp-protocol-version"), Some("2025-11-25"));
    feed.raw(": comment\n\nid: 1\ndata:\n\n");
    feed.send(PROMPTS);
    feed.send(TOOLS);
    assert_eq!(inbox.text().await, TOOLS);
    let (second, _inbox) = listen(&backend, tools(), without_session).await.unwrap();
    drop(listening);
    assert!(feed.is_open() && feeds.is_empty());
    drop(second);
    feed.closed().await;
    // Interests that the server cannot serve need no stream.
    let (none, _inbox) = listen(
        &backend,
        Lists::from(Change::Prompts).into(),
        without_session,
    )
    .await
    .unwrap();
    assert!(none.honoured.is_empty() && feeds.is_empty());
}

#[tokio::test]
async fn broken_stream_is_resumed_after_the_last_whole_event() {
    let (server, mut feeds) = streaming(|_| None).await;
    let backend = start(settings(server.transport()));
    let (_listening, mut inbox) = listen(&backend, tools(), without_session).await.unwrap();
    let first = feeds.next().await;
    first.raw(&format!(
        "retry: 100\n{}id: 8\ndata: {{\"cut",
        numbered(7, TOOLS)
    ));
    assert_eq!(inbox.text().await, TOOLS);
    drop(first);
    let second = feeds.next().await;
    assert_eq!(last_event(&second), Some("7"));
    second.raw(&numbered(8, TOOLS));
    assert_eq!(inbox.text().await, TOOLS);
    drop(second);
    let third = feeds.next().await;
    assert_eq!(last_event(&third), Some("8"));
    third.raw(&numbered(9, TOOLS));
    assert_eq!(inbox.text().await, TOOLS);
    assert!(inbox.is_empty());
}

#[tokio::test]
async fn stream_that_cannot_be_resumed_is_reopened_and_changes_are_announced() {
    let (server, mut feeds) =
        streaming(|seen| seen.header("last-event-id").map(|_| status(400))).await;
    let backend = start(settings(server.transport()));
    let (_listening, mut inbox) = listen(&backend, tools(), without_session).await.unwrap();
    // The first stream has no event ids, the second has useless ones.
    drop(feeds.next().await);
    let numbering = feeds.next().await;
    assert_eq!(inbox.text().await, TOOLS);
    numbering.raw("id: 1\nretry: 100\n\n");
    drop(numbering);
    let anew = feeds.next().await;
    assert_eq!(last_event(&anew), None);
    assert_eq!(inbox.text().await, TOOLS);
}

#[tokio::test]
async fn server_without_a_stream_is_asked_once() {
    let sessions = AtomicUsize::new(0);
    let mut server = Server::start(move |seen| match seen.verb.as_str() {
        "GET" => status(405),
        _ => telling(seen, &sessions).unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    for _ in 0..3 {
        let (listening, _inbox) = listen(
            &backend,
            Interest {
                lists: Change::Tools.into(),
                ..resource("a:1")
            },
            without_session,
        )
        .await
        .unwrap();
        assert!(listening.honoured.is_empty());
    }
    let mut gets = 0;
    ask(&backend, 1, "x/last", "").await;
    loop {
        let seen = server.next().await;
        gets += usize::from(seen.verb == "GET");
        if seen.method() == "x/last" {
            break;
        }
    }
    assert_eq!(gets, 1);
}

#[tokio::test]
async fn resource_is_subscribed_to_once_for_all_listeners() {
    let (mut server, mut feeds) = streaming(|seen| {
        let refused = seen.method() == "resources/subscribe" && seen.body.contains("a:no");
        refused.then(|| seen.error(200, r#"{"code":-32002,"message":"no"}"#))
    })
    .await;
    let backend = start(settings(server.transport()));
    let interest = Interest {
        uris: ["a:1".into(), "a:no".into()].into(),
        ..Interest::default()
    };
    let (first, mut first_inbox) = listen(&backend, interest, without_session).await.unwrap();
    assert_eq!(first.honoured, resource("a:1"));
    let (second, mut second_inbox) = listen(&backend, resource("a:1"), without_session)
        .await
        .unwrap();
    let feed = feeds.next().await;
    feed.send(&updated("a:1"));
    feed.send(&updated("a:2"));
    feed.send(&updated("a:1/b"));
    for inbox in [&mut first_inbox, &mut second_inbox] {
        assert_eq!(inbox.text().await, updated("a:1"));
        assert_eq!(inbox.text().await, updated("a:1/b"));
    }
    drop(first);
    let (third, _inbox) = listen(&backend, tools(), without_session).await.unwrap();
    drop(second);
    assert_eq!(
        server
            .next_of("resources/unsubscribe")
            .await
            .params()
            .as_text(),
        r#"{"uri":"a:1"}"#
    );
    assert_eq!(server.count("resources/unsubscribe"), 0);
    assert!(feed.is_open());
    drop(third);
    feed.closed().await;
}

#[tokio::test]
async fn lost_session_is_replaced_with_its_subscriptions() {
    let (mut server, mut feeds) = streaming(|seen| {
        let gone = seen.verb == "GET" && seen.header("last-event-id").is_some();
        gone.then(|| status(404))
    })
    .await;
    let backend = start(settings(server.transport()));
    let interest = Interest {
        lists: Change::Tools.into(),
        ..resource("a:1")
    };
    let (_listening, mut inbox) = listen(&backend, interest, without_session).await.unwrap();
    assert_eq!(
        server
            .next_of("resources/subscribe")
            .await
            .header("mcp-session-id"),
        Some("s0")
    );
    let feed = feeds.next().await;
    feed.raw("id: 1\nretry: 100\ndata:\n\n");
    drop(feed);
    let feed = feeds.next().await;
    assert_eq!(
        (last_event(&feed), feed.seen.header("mcp-session-id")),
        (None, Some("s1"))
    );
    let again = server.next_of("resources/subscribe").await;
    assert_eq!(
        (again.params().as_text(), again.header("mcp-session-id")),
        (r#"{"uri":"a:1"}"#, Some("s1"))
    );
    assert_eq!(inbox.text().await, TOOLS);
    assert_eq!(inbox.text().await, updated("a:1"));
    feed.send(TOOLS);
    assert_eq!(inbox.text().await, TOOLS);
}

async fn ask(backend: &Backend, session: u64, method: &str, params: &str) -> String {
    send(
        backend,
        listening(call(method, params), of_session(session, "{}")).0,
    )
    .await
    .unwrap()
}

#[tokio::test]
async fn sessions_on_a_shared_connection_are_counted_per_resource() {
    let (mut server, mut feeds) = streaming(|seen| {
        let refused = seen.method() == "resources/subscribe" && seen.body.contains("a:no");
        refused.then(|| seen.error(200, r#"{"code":-7,"message":"n\u006f","data":1.0}"#))
    })
    .await;
    let backend = shared(settings(server.transport()));
    let session = Interest {
        session: true,
        ..Interest::default()
    };
    let (_first, mut first) = listen(&backend, session.clone(), of_session(1, "{}"))
        .await
        .unwrap();
    let (_second, mut second) = listen(&backend, session, of_session(2, "{}"))
        .await
        .unwrap();
    let feed = feeds.next().await;
    let params = r#"{ "uri":"a:1","x":1.0}"#;
    assert_eq!(ask(&backend, 1, "resources/subscribe", params).await, "{}");
    assert_eq!(
        server
            .next_of("resources/subscribe")
            .await
            .params()
            .as_text(),
        params
    );
    feed.send(&updated("a:1"));
    assert_eq!(first.text().await, updated("a:1"));
    assert_eq!(ask(&backend, 2, "resources/subscribe", params).await, "{}");
    feed.send(&updated("a:1"));
    assert_eq!(
        (first.text().await, second.text().await),
        (updated("a:1"), updated("a:1"))
    );
    let refused = ask(&backend, 1, "resources/subscribe", r#"{"uri":"a:no"}"#).await;
    assert_eq!(refused, r#"{"code":-7,"message":"n\u006f","data":1.0}"#);
    assert_eq!(
        ask(&backend, 1, "resources/unsubscribe", params).await,
        "{}"
    );
    feed.send(&updated("a:1"));
    assert_eq!(second.text().await, updated("a:1"));
    assert!(first.is_empty());
    backend.end_session(SessionKey(2));
    assert_eq!(
        server
            .next_of("resources/unsubscribe")
            .await
            .params()
            .as_text(),
        r#"{"uri":"a:1"}"#
    );
    assert_eq!(server.count("resources/subscribe"), 0);
}

/// The client edge drops messages below the level of a session.
#[tokio::test]
async fn log_messages_on_a_shared_connection_reach_all_sessions() {
    use fanlight_protocol::meta::LogLevel;
    let (server, mut feeds) = streaming(|_| None).await;
    let backend = shared(settings(server.transport()));
    let session = Interest {
        session: true,
        ..Interest::default()
    };
    let errors_only = |context: &mut CallContext| {
        of_session(1, "{}")(context);
        context.log_level = Some(LogLevel::Error);
    };
    let (_errors, mut errors) = listen(&backend, session.clone(), errors_only)
        .await
        .unwrap();
    let (_all, mut all) = listen(&backend, session, of_session(2, "{}"))
        .await
        .unwrap();
    let feed = feeds.next().await;
    let log = |level: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1.0}}}}"#
        )
    };
    feed.send(&log("info"));
    feed.send(&log("error"));
    feed.send(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    for inbox in [&mut errors, &mut all] {
        assert_eq!(
            (inbox.text().await, inbox.text().await),
            (log("info"), log("error"))
        );
        assert_eq!(
            inbox.recv().await.unwrap().method.as_str(),
            "notifications/x"
        );
    }
}

#[tokio::test]
async fn slow_subscription_delays_no_other() {
    let (mut server, mut feeds) = streaming(|seen| {
        let slow = seen.method() == "resources/subscribe" && seen.body.contains("a:slow");
        slow.then_some(Reply::Hang)
    })
    .await;
    let backend = shared(settings(server.transport()));
    let mut slow = pin!(listen(&backend, resource("a:slow"), without_session));
    tokio::select! {
        _ = &mut slow => panic!("nobody has answered it"),
        _ = server.next_of("resources/subscribe") => {}
    }
    let (quick, mut inbox) = tokio::select! {
        biased;
        _ = &mut slow => panic!("the other one waited for it"),
        quick = listen(&backend, resource("a:1"), without_session) => quick.unwrap(),
    };
    assert_eq!(quick.honoured, resource("a:1"));
    assert_eq!(
        ask(&backend, 1, "resources/subscribe", r#"{"uri":"a:2"}"#).await,
        "{}"
    );
    feeds.next().await.send(&updated("a:1"));
    assert_eq!(inbox.text().await, updated("a:1"));
}

#[tokio::test]
async fn subscription_is_sent_after_the_unsubscription_before_it() {
    let gate = Arc::new(Notify::new());
    let closed = Arc::clone(&gate);
    let (mut server, _feeds) = streaming(move |seen| {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, seen.id());
        let gated = Reply::Gated(": \n\n".into(), Arc::clone(&closed), event(&answer));
        (seen.method() == "resources/unsubscribe").then_some(gated)
    })
    .await;
    let backend = start(settings(server.transport()));
    let (_other, _inbox) = listen(&backend, resource("a:0"), without_session)
        .await
        .unwrap();
    drop(
        listen(&backend, resource("a:1"), without_session)
            .await
            .unwrap(),
    );
    server.next_of("resources/unsubscribe").await;
    let mut again = pin!(listen(&backend, resource("a:1"), without_session));
    tokio::select! {
        biased;
        _ = &mut again => panic!("its end is not answered"),
        _ = listen(&backend, resource("a:2"), without_session) => {}
    }
    assert!(
        server
            .next_of("resources/subscribe")
            .await
            .body
            .contains("a:2")
    );
    gate.notify_one();
    assert_eq!(again.await.unwrap().0.honoured, resource("a:1"));
    assert!(
        server
            .next_of("resources/subscribe")
            .await
            .body
            .contains("a:1")
    );
}

#[tokio::test]
async fn resources_are_subscribed_to_while_the_stream_cannot_be_opened() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let failing = move |seen: &Seen| {
        (seen.verb == "GET" && !is_well.load(Ordering::Relaxed)).then(|| status(503))
    };
    let (mut server, mut feeds) = streaming(failing).await;
    let backend = start(settings(server.transport()));
    let interest = Interest {
        lists: Change::Tools.into(),
        ..resource("a:1")
    };
    let (listening, mut inbox) = listen(&backend, interest.clone(), without_session)
        .await
        .unwrap();
    assert_eq!(listening.honoured, interest);
    assert_eq!(
        server
            .next_of("resources/subscribe")
            .await
            .params()
            .as_text(),
        r#"{"uri":"a:1"}"#
    );
    // Changes missed before the stream opened are announced.
    well.store(true, Ordering::Relaxed);
    let feed = feeds.next().await;
    assert_eq!(
        (inbox.text().await, inbox.text().await),
        (TOOLS.to_owned(), updated("a:1"))
    );
    feed.send(&updated("a:1"));
    assert_eq!(inbox.text().await, updated("a:1"));
}

#[tokio::test]
async fn refused_stream_is_requested_again_after_the_pause_that_the_server_asks_for() {
    let was_refused = AtomicBool::new(false);
    let busy = move |seen: &Seen| {
        let is_first = seen.verb == "GET" && !was_refused.swap(true, Ordering::Relaxed);
        let head = "Retry-After: 1\r\n".to_owned();
        is_first.then(|| Reply::Whole(503, head, "text/plain", String::new()))
    };
    let (server, mut feeds) = streaming(busy).await;
    let backend = start(settings(server.transport()));
    let began = Instant::now();
    let interest = Interest {
        lists: Change::Tools.into(),
        ..Interest::default()
    };
    let _listening = listen(&backend, interest, without_session).await.unwrap();
    feeds.next().await;
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn silent_stream_delays_no_subscription() {
    let (server, _feeds) = streaming(|seen| (seen.verb == "GET").then_some(Reply::Hang)).await;
    let backend = start(settings(server.transport()));
    let interest = Interest {
        lists: Change::Tools.into(),
        ..resource("a:1")
    };
    let (listening, _inbox) = listen(&backend, interest.clone(), without_session)
        .await
        .unwrap();
    assert_eq!(listening.honoured, interest);
}
