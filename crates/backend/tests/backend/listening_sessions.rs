//! Listening of client sessions that have their own connection to a legacy HTTP server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_backend::Backend;
use fanlight_canonical::{BackendClient, Interest, SessionKey};
use fanlight_protocol::subscription::Change;
use fanlight_protocol::{Json, Response};

use crate::listening_legacy::telling;
use crate::support::server::{Feeds, Reply, Seen, Server, feeds, status};
use crate::support::{call, listen, listening, of_session, send, settings, start};

const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const CAPABILITIES: &str = r#"{"roots":{}}"#;

/// A server whose streams the test writes to.
async fn streaming(
    answer: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
) -> (Server, Feeds) {
    let ((open, feeds), sessions) = (feeds(), AtomicUsize::new(0));
    let server = Server::start(move |seen| {
        let is_answer = seen.verb == "POST" && seen.method().is_empty();
        let accepted = || Reply::Whole(202, String::new(), "text/plain", String::new());
        let stream = || (seen.verb == "GET").then(|| open(seen));
        let other = || telling(seen, &sessions).unwrap_or_else(|| seen.result("{}"));
        answer(seen)
            .or_else(stream)
            .unwrap_or_else(|| if is_answer { accepted() } else { other() })
    })
    .await;
    (server, feeds)
}

fn session() -> Interest {
    Interest {
        session: true,
        ..Interest::default()
    }
}

async fn ask(backend: &Backend, method: &str, params: &str) -> String {
    send(
        backend,
        listening(call(method, params), of_session(1, CAPABILITIES)).0,
    )
    .await
    .unwrap()
}

/// The next answer that the server received.
async fn answered(server: &mut Server) -> Seen {
    loop {
        let seen = server.next().await;
        if seen.method().is_empty() && seen.verb == "POST" {
            return seen;
        }
    }
}

#[tokio::test]
async fn listening_session_receives_from_a_server_that_starts_later() {
    let there = Arc::new(AtomicBool::new(false));
    let is_there = Arc::clone(&there);
    let absent = move |_: &Seen| (!is_there.load(Ordering::Relaxed)).then(|| status(503));
    let (server, mut feeds) = streaming(absent).await;
    let backend = start(settings(server.transport()));
    let interest = Interest {
        lists: Change::Tools.into(),
        ..session()
    };
    let (all, mut inbox) = listen(&backend, interest, of_session(1, CAPABILITIES))
        .await
        .unwrap();
    let (own, mut other) = listen(&backend, session(), of_session(2, CAPABILITIES))
        .await
        .unwrap();
    assert_eq!((&all.honoured, &own.honoured), (&session(), &session()));
    there.store(true, Ordering::Relaxed);
    let base = feeds.next().await;
    base.send(TOOLS);
    assert_eq!(inbox.text().await, TOOLS);
    let own = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    base.send(own);
    assert_eq!(
        (inbox.text().await, other.text().await),
        (own.to_owned(), own.to_owned())
    );
}

#[tokio::test]
async fn session_receives_everything_on_its_own_stream() {
    let (server, mut feeds) = streaming(|_| None).await;
    let backend = start(settings(server.transport()));
    let interest = Interest {
        lists: Change::Tools.into(),
        ..session()
    };
    let (listening, mut inbox) = listen(&backend, interest.clone(), of_session(1, CAPABILITIES))
        .await
        .unwrap();
    assert_eq!(listening.honoured, interest);
    // The session has no own connection yet. List changes come on the base connection, and none is
    // opened.
    let base = feeds.next().await;
    assert_eq!(base.seen.header("mcp-session-id"), Some("s0"));
    base.send(TOOLS);
    assert_eq!(inbox.text().await, TOOLS);
    ask(&backend, "x/y", "").await;
    let own = feeds.next().await;
    assert_eq!(own.seen.header("mcp-session-id"), Some("s1"));
    base.closed().await;
    for text in [
        TOOLS,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{ "level":"debug","data":1.0}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/x\u0041"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}"#,
    ] {
        own.send(text);
        assert_eq!(inbox.text().await, text);
    }
    own.send(r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#);
    own.send(TOOLS);
    assert_eq!(inbox.text().await, TOOLS);
    // A server may ask at any time, so the stream stays without listeners if the client can be
    // asked.
    drop(listening);
    let (_again, mut inbox) = listen(&backend, interest, of_session(1, CAPABILITIES))
        .await
        .unwrap();
    own.send(TOOLS);
    assert_eq!(inbox.text().await, TOOLS);
}

#[tokio::test]
async fn stream_of_a_session_that_cannot_be_asked_ends_with_its_last_listener() {
    let (server, mut feeds) = streaming(|_| None).await;
    let backend = start(settings(server.transport()));
    send(&backend, listening(call("x/y", ""), of_session(1, "{}")).0)
        .await
        .unwrap();
    let (listener, _inbox) = listen(&backend, session(), of_session(1, "{}"))
        .await
        .unwrap();
    let own = feeds.next().await;
    assert_eq!(own.seen.header("mcp-session-id"), Some("s1"));
    drop(listener);
    own.closed().await;
}

#[tokio::test]
async fn server_requests_outside_of_calls_are_answered() {
    let (mut server, mut feeds) = streaming(|_| None).await;
    let backend = start(settings(server.transport()));
    ask(&backend, "x/y", "").await;
    let (_listening, mut inbox) = listen(&backend, session(), of_session(1, CAPABILITIES))
        .await
        .unwrap();
    let feed = feeds.next().await;
    feed.send(r#"{"jsonrpc":"2.0","id":"q\u0041","method":"roots/list","params":{ "n":1.0}}"#);
    let question = inbox.question().await;
    assert_eq!(question.params.as_ref().unwrap().as_text(), r#"{ "n":1.0}"#);
    question
        .answer
        .send(Response::from_result(&Json::literal(r#"{ "roots":[]}"#)))
        .unwrap();
    let answer = answered(&mut server).await;
    assert_eq!(
        answer.body,
        r#"{"jsonrpc":"2.0","id":"q\u0041","result":{ "roots":[]}}"#
    );
    assert_eq!(answer.header("mcp-session-id"), Some("s1"));
    // An undeclared request is refused and a ping is answered; neither reaches the client.
    feed.send(r#"{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}"#);
    assert!(
        answered(&mut server)
            .await
            .body
            .contains(r#""id":2,"error":{"code":-32601"#)
    );
    feed.send(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!(
        answered(&mut server).await.body,
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#
    );
    // The server withdraws a request.
    feed.send(r#"{"jsonrpc":"2.0","id":4,"method":"roots/list"}"#);
    let mut question = inbox.question().await;
    feed.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#);
    question.answer.closed().await;
    // The client cannot be asked.
    feed.send(r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#);
    drop(inbox.question().await);
    assert!(
        answered(&mut server)
            .await
            .body
            .contains(r#""id":5,"error":{"code":-32603"#)
    );
    assert!(inbox.is_empty());
}

#[tokio::test]
async fn server_request_is_refused_when_the_client_is_late() {
    let (mut server, mut feeds) = streaming(|_| None).await;
    let mut settings = settings(server.transport());
    settings.timeouts.question = Duration::from_millis(50);
    let backend = start(settings);
    ask(&backend, "x/y", "").await;
    let (_listening, mut inbox) = listen(&backend, session(), of_session(1, CAPABILITIES))
        .await
        .unwrap();
    feeds
        .next()
        .await
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
    let question = inbox.question().await;
    assert!(
        answered(&mut server)
            .await
            .body
            .contains("did not answer within")
    );
    assert!(question.answer.is_closed());
}

#[tokio::test]
async fn session_subscriptions_are_unchanged_and_renewed_in_the_next_session() {
    let (mut server, mut feeds) = streaming(|seen| {
        let gone = seen.verb == "GET" && seen.header("last-event-id").is_some();
        gone.then(|| status(404))
    })
    .await;
    let backend = start(settings(server.transport()));
    let (_listening, mut inbox) = listen(&backend, session(), of_session(1, CAPABILITIES))
        .await
        .unwrap();
    let params = r#"{ "uri":"a:1","x":1.0}"#;
    for uri in ["a:1", "a:2"] {
        ask(&backend, "resources/subscribe", &params.replace("a:1", uri)).await;
    }
    ask(&backend, "resources/unsubscribe", r#"{"uri":"a:2"}"#).await;
    let seen = server.next_of("resources/subscribe").await;
    assert_eq!(
        (seen.params().as_text(), seen.header("mcp-session-id")),
        (params, Some("s1"))
    );
    server.next_of("resources/unsubscribe").await;
    let feed = feeds.next().await;
    feed.raw("id: 1\nretry: 100\ndata:\n\n");
    drop(feed);
    let feed = feeds.next().await;
    assert_eq!(feed.seen.header("mcp-session-id"), Some("s2"));
    let again = server.next_of("resources/subscribe").await;
    assert_eq!(
        (again.params().as_text(), again.header("mcp-session-id")),
        (r#"{"uri":"a:1"}"#, Some("s2"))
    );
    let updated =
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}"#;
    assert_eq!(inbox.text().await, updated);
    assert_eq!(server.count("resources/subscribe"), 0);
}

#[tokio::test]
async fn session_subscriptions_are_bounded() {
    let (mut server, _feeds) = streaming(|_| None).await;
    let mut settings = settings(server.transport());
    settings.limits.subscriptions = 1;
    let backend = start(settings);
    let uri = |uri: &str| format!(r#"{{"uri":"{uri}"}}"#);
    assert_eq!(
        ask(&backend, "resources/subscribe", &uri("a:1")).await,
        "{}"
    );
    assert_eq!(
        ask(&backend, "resources/subscribe", &uri("a:1")).await,
        "{}"
    );
    let refused = ask(&backend, "resources/subscribe", &uri("a:2")).await;
    assert!(
        refused.contains("-32602")
            && refused.contains("as many resources of this server as are allowed"),
        "{refused}"
    );
    assert_eq!(
        ask(&backend, "resources/unsubscribe", &uri("a:1")).await,
        "{}"
    );
    assert_eq!(
        ask(&backend, "resources/subscribe", &uri("a:2")).await,
        "{}"
    );
    assert_eq!(server.count("resources/subscribe"), 3);
}

#[tokio::test]
async fn listening_session_is_not_idle() {
    let (mut server, mut feeds) = streaming(|_| None).await;
    let mut settings = settings(server.transport());
    settings.timeouts.session_idle = Duration::from_millis(50);
    let backend = start(settings);
    let (listening, _inbox) = listen(&backend, session(), of_session(1, CAPABILITIES))
        .await
        .unwrap();
    ask(&backend, "x/y", "").await;
    let feed = feeds.next().await;
    // Another session's connection opens and closes meanwhile.
    send(
        &backend,
        crate::support::listening(call("x/y", ""), of_session(2, "{}")).0,
    )
    .await
    .unwrap();
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some("s2")
    );
    assert!(feed.is_open());
    drop(listening);
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some("s1")
    );
}

#[tokio::test]
async fn end_of_a_session_ends_its_listening() {
    let (server, mut feeds) = streaming(|_| None).await;
    let backend = start(settings(server.transport()));
    ask(&backend, "x/y", "").await;
    let (_listening, mut inbox) = listen(&backend, session(), of_session(1, CAPABILITIES))
        .await
        .unwrap();
    let feed = feeds.next().await;
    backend.end_session(SessionKey(1));
    feed.closed().await;
    assert!(inbox.recv().await.is_none());
}
