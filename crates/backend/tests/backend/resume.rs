//! A legacy HTTP server closes the streams of calls before the answer, and continues them later.

use std::time::Duration;

use fanlight_backend::Backend;
use fanlight_canonical::BackendError;

use crate::support::server::{Feeds, Reply, Seen, Server, event, feeds, legacy, modern, status};
use crate::support::{MessageReceiver, call, listening, of_session, send, settings, start};

const LOG: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}"#;

/// A server whose streams the test writes to: the stream of `tools/call`, and its continuations
/// unless `answer` answers them.
async fn closing(
    answer: impl Fn(&Seen) -> Option<Reply> + Send + Sync + 'static,
) -> (Server, Feeds) {
    let (open, feeds) = feeds();
    let server = Server::start(move |seen| {
        let stream = seen.verb == "GET" || seen.method() == "tools/call";
        answer(seen)
            .or_else(|| stream.then(|| open(seen)))
            .unwrap_or_else(|| legacy(seen, "s").unwrap_or_else(|| seen.result("{}")))
    })
    .await;
    (server, feeds)
}

fn calling(
    backend: &Backend,
) -> (
    impl Future<Output = Result<String, BackendError>>,
    MessageReceiver,
) {
    let (call, inbox) = listening(call("tools/call", r#"{"name":"a"}"#), of_session(1, "{}"));
    (send(backend, call), inbox)
}

fn answer(seen: &Seen) -> String {
    event(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"n":1.0}}}}"#,
        seen.id()
    ))
}

#[tokio::test]
async fn stream_is_resumed_after_the_delay_of_the_server() {
    let (mut server, mut feeds) = closing(|_| None).await;
    let backend = start(settings(server.transport()));
    let (called, mut inbox) = calling(&backend);
    let script = async {
        let post = feeds.next().await;
        // The priming event, and a message in which the stream breaks off.
        post.raw("id: e1\nretry: 150\ndata:\n\n");
        post.raw(&format!(
            "id: e2\ndata: {LOG}\n\nid: e3\ndata: {{\"jsonrpc\""
        ));
        assert_eq!(inbox.text().await, LOG);
        let seen = post.seen.clone();
        drop(post);
        assert_eq!(inbox.pause().await.0, Some(Duration::from_millis(150)));
        let get = feeds.next().await;
        assert_eq!(get.seen.header("last-event-id"), Some("e2"));
        assert_eq!(get.seen.header("mcp-session-id"), Some("s"));
        get.raw(&format!("id: e3\ndata: {LOG}\n\n"));
        assert_eq!(inbox.text().await, LOG);
        drop(get);
        // The server may repeat this as often as it likes.
        assert_eq!(inbox.pause().await.0, Some(Duration::from_millis(150)));
        let get = feeds.next().await;
        assert_eq!(get.seen.header("last-event-id"), Some("e3"));
        get.raw(&answer(&seen));
        get
    };
    let (outcome, _get) = tokio::join!(called, script);
    assert_eq!(outcome.unwrap(), r#"{"n":1.0}"#);
    assert_eq!(server.count("tools/call"), 1);
}

#[tokio::test]
async fn stream_is_resumed_at_once_for_a_client_that_is_back() {
    let (server, mut feeds) = closing(|_| None).await;
    let backend = start(settings(server.transport()));
    let (called, mut inbox) = calling(&backend);
    let script = async {
        let post = feeds.next().await;
        post.raw("id: e1\nretry: 3600000\ndata:\n\n");
        let seen = post.seen.clone();
        drop(post);
        inbox.pause().await.1.notify_one();
        let get = feeds.next().await;
        get.raw(&answer(&seen));
        get
    };
    let (outcome, _get) = tokio::join!(called, script);
    assert_eq!(outcome.unwrap(), r#"{"n":1.0}"#);
}

#[tokio::test]
async fn stream_without_event_ids_is_not_resumed() {
    let (_server, mut feeds) = closing(|_| None).await;
    let backend = start(settings(_server.transport()));
    let (called, _inbox) = calling(&backend);
    let (outcome, ()) = tokio::join!(called, async {
        feeds
            .next()
            .await
            .raw(&format!("retry: 100\n{}id: 1\ndata: cut", event(LOG)));
    });
    assert_eq!(outcome, Err(BackendError::ClosedEarly));
    assert!(feeds.is_empty());
}

#[tokio::test]
async fn refused_resumption_ends_the_call() {
    for refusal in [400, 404, 405] {
        let refuse = move |seen: &Seen| (seen.verb == "GET").then(|| status(refusal));
        let (mut server, mut feeds) = closing(refuse).await;
        let backend = start(settings(server.transport()));
        let (called, _inbox) = calling(&backend);
        let (outcome, ()) = tokio::join!(called, async {
            feeds.next().await.raw("id: 1\nretry: 100\n\n");
        });
        assert_eq!(outcome, Err(BackendError::ClosedEarly), "{refusal}");
        assert_eq!(server.count("tools/call"), 1);
    }
}

#[tokio::test]
async fn resumptions_without_events_are_limited() {
    let empty = |seen: &Seen| (seen.verb == "GET").then(|| Reply::Stream(String::new()));
    let (_server, mut feeds) = closing(empty).await;
    let backend = start(settings(_server.transport()));
    let (called, mut inbox) = calling(&backend);
    let (outcome, ()) = tokio::join!(called, async {
        feeds.next().await.raw("id: 1\nretry: 100\n\n");
    });
    assert_eq!(outcome, Err(BackendError::ClosedEarly));
    for _ in 0..5 {
        assert_eq!(inbox.pause().await.0, Some(Duration::from_millis(100)));
    }
    assert!(inbox.is_empty());
}

#[tokio::test]
async fn dropped_call_is_cancelled_during_a_pause() {
    let (mut server, mut feeds) = closing(|_| None).await;
    let backend = start(settings(server.transport()));
    let (called, mut inbox) = calling(&backend);
    let mut id = String::new();
    tokio::select! {
        outcome = called => panic!("{outcome:?}"),
        () = async {
            let post = feeds.next().await;
            id = post.seen.id();
            post.raw("id: 1\nretry: 60000\n\n");
            drop(post);
            inbox.pause().await;
        } => {}
    }
    let cancelled = server.next_of("notifications/cancelled").await;
    assert_eq!(cancelled.params().get("requestId").unwrap().as_text(), id);
}

#[tokio::test]
async fn modern_streams_are_not_resumed() {
    let (open, mut feeds) = feeds();
    let server = Server::start(move |seen| modern(seen).unwrap_or_else(|| open(seen))).await;
    let backend = start(settings(server.transport()));
    let (outcome, ()) = tokio::join!(send(&backend, call("x/y", "")), async {
        feeds.next().await.raw("id: 1\nretry: 100\n\n");
    });
    assert_eq!(outcome, Err(BackendError::ClosedEarly));
    assert!(feeds.is_empty());
}
