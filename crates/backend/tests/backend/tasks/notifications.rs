//! Notifications about tasks, in the dialect of the listener.

use std::sync::atomic::{AtomicUsize, Ordering};

use fanlight_backend::SessionPolicy;
use fanlight_canonical::Interest;

use super::servers::{EXTENSION, Tasks, initialized};
use super::{extension, get, requested};
use crate::support::server::{Feed, Feeds, Reply, Seen, feeds};
use crate::support::{listen, of_session, settings, start};

const DONE: &str = r#"{"taskId":"t1","status":"completed","ttl":6e4,"x":1.0}"#;

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0", "method":"{method}","params":{params} ,"y":2.0}}"#)
}

fn status(params: &str) -> String {
    notification("notifications/tasks/status", params)
}

fn changed(params: &str) -> String {
    notification("notifications/tasks", params)
}

fn task(id: &str) -> Interest {
    Interest {
        tasks: [id.into()].into(),
        ..Interest::default()
    }
}

fn session() -> Interest {
    Interest {
        session: true,
        ..Interest::default()
    }
}

/// A legacy server whose streams the test writes to, with a session for each `initialize`.
async fn legacy() -> (Tasks, Feeds) {
    let ((open, feeds), sessions) = (feeds(), AtomicUsize::new(0));
    let tasks = Tasks::legacy(&[DONE], move |seen: &Seen| match seen.method().as_str() {
        _ if seen.verb == "GET" => Some(open(seen)),
        "initialize" => Some(initialized(
            seen,
            &format!("s{}", sessions.fetch_add(1, Ordering::Relaxed)),
        )),
        "tasks/result" => Some(seen.result(r#"{ "n" : 1.0 }"#)),
        _ => None,
    })
    .await;
    (tasks, feeds)
}

/// A modern server whose subscriptions the test answers.
async fn modern() -> (Tasks, Feeds) {
    let (open, feeds) = feeds();
    let working = r#"{"resultType":"complete","taskId":"t1","status":"working","ttlMs":6e4}"#;
    let tasks = Tasks::modern_with(&[working], "{}", move |seen: &Seen| -> Option<Reply> {
        (seen.method() == "subscriptions/listen").then(|| open(seen))
    })
    .await;
    (tasks, feeds)
}

fn task_ids(feed: &Feed) -> Option<String> {
    Some(
        feed.seen
            .params()
            .get("notifications")?
            .get("taskIds")?
            .as_text()
            .to_owned(),
    )
}

fn agree(feed: &Feed) {
    feed.acknowledge(feed.seen.params().get("notifications").unwrap().as_text());
}

async fn stream_of(feeds: &mut Feeds, session: &str) -> Feed {
    loop {
        let feed = feeds.next().await;
        if feed.seen.header("mcp-session-id") == Some(session) {
            return feed;
        }
    }
}

#[tokio::test]
async fn legacy_status_is_translated_for_the_extension() {
    let (tasks, mut feeds) = legacy().await;
    let backend = start(settings(tasks.server.transport()));
    let client = || extension(&format!(r#"{{"extensions":{{"{EXTENSION}":{{}}}}}}"#));
    // The task is in the session of clients with these capabilities.
    get(&backend, client(), "tools/call", r#"{"name":"needs"}"#).await;
    let (listening, mut inbox) = listen(&backend, task("t1"), client()).await.unwrap();
    assert_eq!(listening.honoured, task("t1"));
    let (other, mut deaf) = listen(&backend, task("t2"), client()).await.unwrap();
    let feed = stream_of(&mut feeds, "s1").await;
    feed.send(&status(
        r#"{ "taskId":"\u0074\u0031","status":"working","ttl":6e4}"#,
    ));
    assert_eq!(
        inbox.text().await,
        changed(r#"{ "taskId":"\u0074\u0031","status":"working","ttlMs":6e4}"#)
    );
    feed.send(&status(DONE));
    // Fanlight reads the outcome from the server.
    let told = r#"{"taskId":"t1","status":"completed","ttlMs":6e4,"x":1.0,"result":{ "n" : 1.0 }}"#;
    assert_eq!(inbox.text().await, changed(told));
    feed.send(&status(
        r#"{"taskId":"t2","status":"cancelled","ttl":null}"#,
    ));
    assert_eq!(
        deaf.text().await,
        changed(r#"{"taskId":"t2","status":"cancelled","ttlMs":null}"#)
    );
    assert!(inbox.is_empty());
    drop((listening, other));
    feed.closed().await;
}

#[tokio::test]
async fn modern_status_is_translated_for_the_session_that_has_the_task() {
    let (tasks, mut feeds) = modern().await;
    let backend = start(settings(tasks.server.transport()));
    let (listening, mut inbox) = listen(&backend, session(), requested(1)).await.unwrap();
    let (_older, mut older_inbox) = listen(&backend, session(), of_session(2, "{}"))
        .await
        .unwrap();
    assert!(feeds.is_empty(), "there is nothing to be told yet");
    get(
        &backend,
        requested(1),
        "tools/call",
        r#"{"name":"may","task":{}}"#,
    )
    .await;
    let feed = feeds.next().await;
    assert_eq!(task_ids(&feed).as_deref(), Some(r#"["t1"]"#));
    let declared = feed.seen.params().as_text().contains(EXTENSION);
    assert!(declared, "{}", feed.seen.params().as_text());
    agree(&feed);
    feed.send(&changed(
        r#"{ "taskId":"t\u0031","status":"working","ttlMs":6e4,"x":1.0}"#,
    ));
    assert_eq!(
        inbox.text().await,
        status(r#"{ "taskId":"t\u0031","status":"working","ttl":6e4,"x":1.0}"#)
    );
    feed.send(&changed(
        r#"{"taskId":"t1","status":"completed","ttlMs":6e4,"result":{"isError":true}}"#,
    ));
    assert_eq!(
        inbox.text().await,
        status(r#"{"taskId":"t1","status":"failed","ttl":6e4}"#)
    );
    // The task has ended.
    feed.closed().await;
    assert!(older_inbox.is_empty());
    drop(listening);
    assert!(feeds.is_empty());
    backend.stop().await;
    assert!(older_inbox.recv().await.is_none());
}

#[tokio::test]
async fn tasks_are_subscribed_to_only_while_their_session_listens() {
    let (tasks, mut feeds) = modern().await;
    let backend = start(settings(tasks.server.transport()));
    get(
        &backend,
        requested(1),
        "tools/call",
        r#"{"name":"may","task":{}}"#,
    )
    .await;
    assert!(feeds.is_empty());
    // The subscription names tasks that were made before it.
    let (heard, feed) = tokio::join!(listen(&backend, session(), requested(1)), async {
        let feed = feeds.next().await;
        assert_eq!(task_ids(&feed).as_deref(), Some(r#"["t1"]"#));
        agree(&feed);
        feed
    });
    drop(heard.unwrap());
    feed.closed().await;
}

#[tokio::test]
async fn notification_in_the_same_dialect_is_unchanged() {
    let text = changed(r#"{ "taskId":"t1","status":"working","ttlMs":6E4}"#);
    let (tasks, mut feeds) = modern().await;
    let backend = start(settings(tasks.server.transport()));
    let listener = listen(&backend, task("t1"), extension("{}"));
    let (heard, feed) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        agree(&feed);
        feed
    });
    let (_listening, mut inbox) = heard.unwrap();
    feed.send(&text);
    assert_eq!(inbox.text().await, text);

    let text = status(r#"{ "taskId":"t1","status":"working","ttl":6E4}"#);
    let (tasks, mut feeds) = legacy().await;
    let mut settings = settings(tasks.server.transport());
    settings.sessions = SessionPolicy::Shared;
    let backend = start(settings);
    let (_listening, mut inbox) = listen(&backend, session(), requested(1)).await.unwrap();
    get(
        &backend,
        requested(1),
        "tools/call",
        r#"{"name":"may","task":{}}"#,
    )
    .await;
    let feed = feeds.next().await;
    feed.send(&text);
    assert_eq!(inbox.text().await, text);
}
