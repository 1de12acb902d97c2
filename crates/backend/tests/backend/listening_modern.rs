//! Listening at a modern HTTP server: one subscription for all.

use std::sync::Arc;
use std::time::Duration;

use fanlight_backend::Backend;
use fanlight_canonical::Interest;
use fanlight_protocol::Json;
use fanlight_protocol::subscription::Change;

use crate::support::server::{Feed, Feeds, Seen, Server, feeds, modern};
use crate::support::{
    MessageReceiver, call, listen, listening, of_session, send, settings, start, without_session,
};

const TOOLS: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn updated(uri: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
    )
}

fn tools() -> Interest {
    Interest {
        lists: Change::Tools.into(),
        ..Interest::default()
    }
}

fn prompts() -> Interest {
    Interest {
        lists: Change::Prompts.into(),
        ..Interest::default()
    }
}

fn resource(uri: &str) -> Interest {
    Interest {
        uris: [uri.into()].into(),
        ..Interest::default()
    }
}

/// A server whose subscriptions the test answers.
async fn subscribing() -> (Server, Feeds, Arc<Backend>) {
    let (open, feeds) = feeds();
    let server = Server::start(move |seen| match seen.method().as_str() {
        "subscriptions/listen" => open(seen),
        _ => modern(seen).unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    (server, feeds, backend)
}

fn filter(feed: &Feed) -> Json {
    feed.seen.params().get("notifications").unwrap()
}

/// Acknowledges the whole filter.
fn agree(feed: &Feed) {
    feed.acknowledge(filter(feed).as_text());
}

async fn heard(inbox: &mut MessageReceiver) -> String {
    inbox.text().await
}

#[tokio::test]
async fn listeners_share_one_subscription_that_grows_without_loss() {
    let (_server, mut feeds, backend) = subscribing().await;
    let first = async { listen(&backend, tools(), without_session).await.unwrap() };
    let ((first, mut first_inbox), old) = tokio::join!(first, async {
        let feed = feeds.next().await;
        assert_eq!(filter(&feed).as_text(), r#"{"toolsListChanged":true}"#);
        assert_eq!(feed.seen.header("mcp-method"), Some("subscriptions/listen"));
        agree(&feed);
        feed
    });
    assert_eq!(first.honoured, tools());
    // The same interest again needs nothing from the server.
    let (second, mut second_inbox) = listen(&backend, tools(), without_session).await.unwrap();
    assert!(feeds.is_empty() && second.honoured == tools());
    let third = async {
        listen(&backend, resource("a:1"), without_session)
            .await
            .unwrap()
    };
    let ((_third, mut third_inbox), new) = tokio::join!(third, async {
        let feed = feeds.next().await;
        let expected = r#"{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}"#;
        assert_eq!(filter(&feed).as_text(), expected);
        // The old subscription stays open until the new one is acknowledged.
        old.send(TOOLS);
        assert_eq!(heard(&mut first_inbox).await, TOOLS);
        assert!(old.is_open());
        agree(&feed);
        feed
    });
    old.closed().await;
    assert_eq!(heard(&mut second_inbox).await, TOOLS);
    new.send(
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":4,"x":1.0}, "uri":"a:1"}}"#,
    );
    let expected = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"x":1.0}, "uri":"a:1"}}"#;
    assert_eq!(heard(&mut third_inbox).await, expected);
    assert!(first_inbox.is_empty() && second_inbox.is_empty());
    backend.stop().await;
    assert!(first_inbox.recv().await.is_none());
}

#[tokio::test]
async fn listener_does_not_wait_for_the_acknowledgement_of_another() {
    let (_server, mut feeds, backend) = subscribing().await;
    let first = async { listen(&backend, tools(), without_session).await.unwrap() };
    let others = async {
        let unanswered = feeds.next().await;
        let second = async { listen(&backend, prompts(), without_session).await.unwrap() };
        let ((second, _inbox), both) = tokio::join!(second, async {
            let feed = feeds.next().await;
            agree(&feed);
            feed
        });
        assert_eq!(second.honoured, prompts());
        unanswered.closed().await;
        (second, both)
    };
    let ((first, mut inbox), (_second, both)) = tokio::join!(first, others);
    assert_eq!(first.honoured, tools());
    both.send(TOOLS);
    assert_eq!(heard(&mut inbox).await, TOOLS);
    backend.stop().await;
}

#[tokio::test]
async fn acknowledgement_decides_and_the_last_listener_ends_the_subscription() {
    let (_server, mut feeds, backend) = subscribing().await;
    let interest = Interest {
        lists: [Change::Tools, Change::Prompts].into_iter().collect(),
        uris: ["a:1".into(), "a:2".into()].into(),
        ..resource("")
    };
    let listener = async {
        listen(&backend, interest.clone(), without_session)
            .await
            .unwrap()
    };
    let ((listening, _inbox), feed) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        feed.acknowledge(r#"{"promptsListChanged":true,"resourceSubscriptions":["a:2"]}"#);
        feed
    });
    let honoured = Interest {
        lists: Change::Prompts.into(),
        uris: ["a:2".into()].into(),
        ..interest
    };
    assert_eq!(listening.honoured, honoured);
    drop(listening);
    feed.closed().await;
}

#[tokio::test]
async fn subscription_shrinks_after_a_delay() {
    let (_server, mut feeds, backend) = subscribing().await;
    let both = async {
        (
            listen(&backend, tools(), without_session).await.unwrap(),
            listen(&backend, prompts(), without_session).await.unwrap(),
        )
    };
    let ((first, _second), feed) = tokio::join!(both, async {
        agree(&feeds.next().await);
        let feed = feeds.next().await;
        agree(&feed);
        feed
    });
    drop(first);
    let smaller = feeds.next().await;
    assert_eq!(filter(&smaller).as_text(), r#"{"promptsListChanged":true}"#);
    assert!(feed.is_open());
    agree(&smaller);
    feed.closed().await;
}

#[tokio::test]
async fn ended_subscription_is_renewed_and_changes_are_announced() {
    let (_server, mut feeds, backend) = subscribing().await;
    let interest = Interest {
        lists: Change::Tools.into(),
        ..resource("a:1")
    };
    let listener = async { listen(&backend, interest, without_session).await.unwrap() };
    let ((_listening, mut inbox), feed) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        agree(&feed);
        feed
    });
    // First gracefully, then by the end of the stream alone.
    feed.send(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"complete"}}}}"#,
        feed.seen.id()
    ));
    let mut ended = feed;
    for _ in 0..2 {
        drop(ended);
        let feed = feeds.next().await;
        assert!(inbox.is_empty());
        agree(&feed);
        assert_eq!(heard(&mut inbox).await, TOOLS);
        assert_eq!(heard(&mut inbox).await, updated("a:1"));
        ended = feed;
    }
}

#[tokio::test]
async fn server_without_subscriptions_is_asked_once() {
    let mut server = Server::start(|seen: &Seen| {
        modern(seen)
            .unwrap_or_else(|| seen.error(404, r#"{"code":-32601,"message":"no such method"}"#))
    })
    .await;
    let backend = start(settings(server.transport()));
    for _ in 0..3 {
        let (listening, _inbox) = listen(&backend, tools(), without_session).await.unwrap();
        assert!(listening.honoured.is_empty());
    }
    assert_eq!(server.count("subscriptions/listen"), 1);
}

#[tokio::test]
async fn refused_filter_leaves_other_listeners_unchanged() {
    let (open, mut feeds) = feeds();
    let server = Server::start(move |seen| match seen.method().as_str() {
        "subscriptions/listen" if seen.body.contains("bad:") => {
            seen.error(200, r#"{"code":-32602,"message":"no such resource"}"#)
        }
        "subscriptions/listen" => open(seen),
        _ => modern(seen).unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    let listener = async { listen(&backend, tools(), without_session).await.unwrap() };
    let ((_good, mut inbox), feed) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        agree(&feed);
        feed
    });
    let (bad, _inbox) = listen(
        &backend,
        Interest {
            lists: Change::Tools.into(),
            ..resource("bad:1")
        },
        without_session,
    )
    .await
    .unwrap();
    assert_eq!(bad.honoured, tools());
    feed.send(TOOLS);
    assert_eq!(heard(&mut inbox).await, TOOLS);
    // The refused part is not requested again with the next subscription.
    let next = async { listen(&backend, prompts(), without_session).await.unwrap() };
    let ((next, _inbox), ()) = tokio::join!(next, async { agree(&feeds.next().await) });
    assert_eq!(next.honoured, prompts());
}

#[tokio::test]
async fn tasks_are_declared_and_unknown_members_have_a_dedicated_subscription() {
    let (_server, mut feeds, backend) = subscribing().await;
    let interest = Interest {
        tasks: ["t1".into()].into(),
        unknown: Some(Json::literal(r#"{"newThings": {"n":1.0}}"#)),
        ..Interest::default()
    };
    let listener = async { listen(&backend, interest, without_session).await.unwrap() };
    let ((listening, mut inbox), feed) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        assert_eq!(
            filter(&feed).as_text(),
            r#"{"taskIds":["t1"],"newThings":{"n":1.0}}"#
        );
        let meta = feed.seen.params().get("_meta").unwrap();
        let capabilities = meta
            .get("io.modelcontextprotocol/clientCapabilities")
            .unwrap();
        assert_eq!(
            capabilities.as_text(),
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#
        );
        feed.acknowledge(r#"{"newThings":{"n":2}}"#);
        feed
    });
    assert!(listening.honoured.tasks.is_empty());
    assert_eq!(
        listening.honoured.unknown.as_ref().unwrap().as_text(),
        r#"{"newThings":{"n":2}}"#
    );
    feed.send(
        r#"{"jsonrpc":"2.0","method":"notifications/new","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":4}}}"#,
    );
    assert_eq!(
        heard(&mut inbox).await,
        r#"{"jsonrpc":"2.0","method":"notifications/new","params":{}}"#
    );
    drop(listening);
    feed.closed().await;
    // The server's end also ends such subscriptions.
    let interest = Interest {
        unknown: Some(Json::literal(r#"{"newThings":{}}"#)),
        ..Interest::default()
    };
    let listener = async { listen(&backend, interest, without_session).await.unwrap() };
    let ((_listening, mut inbox), feed) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        agree(&feed);
        feed
    });
    backend.stop().await;
    feed.closed().await;
    assert!(inbox.recv().await.is_none());
}

#[tokio::test]
async fn sessions_subscribe_by_requests_and_receive_their_updates() {
    let (_server, mut feeds, backend) = subscribing().await;
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
    let ask = async |session, method, uri: &str| {
        let call = call(method, &format!(r#"{{"uri":"{uri}"}}"#));
        send(&backend, listening(call, of_session(session, "{}")).0)
            .await
            .unwrap()
    };
    let (answer, feed) = tokio::join!(ask(1, "resources/subscribe", "a:1"), async {
        let feed = feeds.next().await;
        assert_eq!(
            filter(&feed).as_text(),
            r#"{"resourceSubscriptions":["a:1"]}"#
        );
        agree(&feed);
        feed
    });
    assert_eq!(answer, "{}");
    feed.send(&updated("a:1/part"));
    assert_eq!(heard(&mut first).await, updated("a:1/part"));
    let (refused, ()) = tokio::join!(ask(2, "resources/subscribe", "a:2"), async {
        feeds
            .next()
            .await
            .acknowledge(r#"{"resourceSubscriptions":["a:1"]}"#);
    });
    assert!(refused.contains("-32602"), "{refused}");
    let (_, third) = (ask(1, "resources/unsubscribe", "a:1").await, feed);
    third.closed().await;
    assert!(second.is_empty() && first.is_empty());
    backend.stop().await;
    assert!(second.recv().await.is_none());
}

#[tokio::test]
async fn session_does_not_wait_for_a_subscription_that_ends_unacknowledged() {
    let mut server = Server::start(|seen| match seen.method().as_str() {
        "subscriptions/listen" => seen.result(r#"{"resultType":"complete"}"#),
        _ => modern(seen).unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    for _ in 0..8 {
        let call = call("resources/subscribe", r#"{"uri":"a:1"}"#);
        let asked = send(&backend, listening(call, of_session(1, "{}")).0);
        let answer = tokio::time::timeout(Duration::from_secs(8), asked).await;
        let refused = answer.expect("not answered").unwrap();
        assert!(refused.contains("-32602"), "{refused}");
    }
    assert!(server.count("subscriptions/listen") > 0);
}

#[tokio::test]
async fn slow_listener_delays_no_other() {
    let (_server, mut feeds, backend) = subscribing().await;
    let both = async {
        (
            listen(&backend, tools(), without_session).await.unwrap(),
            listen(&backend, tools(), without_session).await.unwrap(),
        )
    };
    let (((_slow, mut slow), (_fast, mut fast)), feed) = tokio::join!(both, async {
        let feed = feeds.next().await;
        agree(&feed);
        feed
    });
    for _ in 0..100 {
        feed.send(TOOLS);
        assert_eq!(heard(&mut fast).await, TOOLS);
    }
    backend.stop().await;
    let mut kept = 0;
    while slow.recv().await.is_some() {
        kept += 1;
    }
    assert_eq!(kept, 16);
}

#[tokio::test]
async fn subscriptions_take_no_concurrency_permits() {
    let (open, mut feeds) = feeds();
    let server = Server::start(move |seen| match seen.method().as_str() {
        "subscriptions/listen" => open(seen),
        _ => modern(seen).unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let mut settings = settings(server.transport());
    settings.limits.concurrency = 1;
    let backend = start(settings);
    let listener = async { listen(&backend, tools(), without_session).await.unwrap() };
    let (_listening, _feed) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        agree(&feed);
        feed
    });
    assert_eq!(send(&backend, call("x/y", "")).await.unwrap(), "{}");
}

#[tokio::test]
async fn resource_refused_after_a_break_affects_only_resources() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let ((open, mut feeds), picky) = (feeds(), Arc::new(AtomicBool::new(false)));
    let refuses = Arc::clone(&picky);
    let server = Server::start(move |seen| match seen.method().as_str() {
        "subscriptions/listen" if refuses.load(Ordering::Relaxed) && seen.body.contains("a:1") => {
            seen.error(200, r#"{"code":-32602,"message":"no such resource"}"#)
        }
        "subscriptions/listen" => open(seen),
        _ => modern(seen).unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    let listener = async {
        listen(
            &backend,
            Interest {
                lists: Change::Tools.into(),
                ..resource("a:1")
            },
            without_session,
        )
        .await
        .unwrap()
    };
    let ((_listening, mut inbox), ()) = tokio::join!(listener, async {
        let feed = feeds.next().await;
        agree(&feed);
        picky.store(true, Ordering::Relaxed);
    });
    let feed = feeds.next().await;
    assert_eq!(filter(&feed).as_text(), r#"{"toolsListChanged":true}"#);
    agree(&feed);
    assert_eq!(heard(&mut inbox).await, TOOLS);
    // The resource may have changed, even if no more updates come.
    assert_eq!(heard(&mut inbox).await, updated("a:1"));
    feed.send(TOOLS);
    assert_eq!(heard(&mut inbox).await, TOOLS);
    assert!(inbox.is_empty());
}
