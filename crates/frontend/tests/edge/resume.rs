//! Resumed streams lose and repeat nothing.

use std::time::Duration;

use fanlight_canonical::ServerMessage;
use fanlight_frontend::FrontendSettings;

use crate::client::{Client, Server, legacy_call, modern_call, modern_headers};
use crate::core::{Happened, notification};

/// The number of events in a call of the tool `count`.
const EVENTS: usize = 6;

/// The texts of the events in a call of the tool `count`, in order.
fn whole() -> Vec<String> {
    let progress = |count| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":7,"progress":{count}}}}}"#
        )
    };
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{ "content":[],"structuredContent":{"a":1.0}, "n": 1.0 }}"#;
    (1..=5).map(progress).chain([answer.to_owned()]).collect()
}

/// Calls `tool`; the head of the answer is still unread.
async fn call(server: &Server, session: &str, tool: &str) -> Client {
    let mut client = server.connect().await;
    client
        .send(
            "POST",
            "/mcp",
            &[("Mcp-Session-Id", session)],
            &legacy_call("1", tool, "7"),
        )
        .await;
    client
}

/// The remaining events of a stream.
async fn rest(client: &mut Client) -> Vec<String> {
    let mut rest = Vec::new();
    while let Some(event) = client.event().await {
        rest.push(event);
    }
    rest
}

#[tokio::test]
async fn call_cut_after_any_event_is_resumed_exactly() {
    let mut server = Server::start().await;
    let id = server.connect().await.open("2025-11-25").await;
    server.log.began().await;
    for cut in 0..=EVENTS {
        for ends_first in [true, false] {
            let mut client = call(&server, &id, "count").await;
            server.log.began().await;
            server.core.release.add_permits(cut.clamp(1, 5));
            client.head().await;
            // A stream can be resumed after the priming event, too.
            let mut last = client.block().await.unwrap().id.unwrap();
            let mut seen = Vec::new();
            for _ in 0..cut {
                let event = client.sse().await.unwrap();
                last = event.id.unwrap();
                seen.push(event.data);
            }
            drop(client);
            let left = 5 - cut.clamp(1, 5);
            if ends_first {
                server.core.release.add_permits(left);
                while !matches!(server.log.ended().await, Happened::Answered) {}
            }
            let mut client = server.connect().await;
            assert_eq!(client.listen(&id, Some(&last)).await.status, 200, "{cut}");
            if !ends_first {
                server.core.release.add_permits(left);
            }
            seen.extend(rest(&mut client).await);
            assert_eq!(seen, whole(), "{cut} {ends_first}");
            if !ends_first {
                while !matches!(server.log.ended().await, Happened::Answered) {}
            }
        }
    }
}

#[tokio::test]
async fn newer_reader_takes_over_the_stream() {
    let server = Server::start().await;
    let id = server.connect().await.open("2025-06-18").await;
    let mut first = call(&server, &id, "count").await;
    server.core.release.add_permits(2);
    first.head().await;
    let events = [first.sse().await.unwrap(), first.sse().await.unwrap()];
    let mut second = server.connect().await;
    second.listen(&id, events[0].id.as_deref()).await;
    // The second reader gets everything not acknowledged, and the first one ends.
    assert_eq!(second.event().await.unwrap(), events[1].data);
    assert_eq!(first.event().await, None);
    server.core.release.add_permits(3);
    assert_eq!(rest(&mut second).await, whole()[2..]);
    // The stream can be read again for a while, but not past its end.
    let mut third = server.connect().await;
    third.listen(&id, events[1].id.as_deref()).await;
    assert_eq!(rest(&mut third).await, whole()[2..]);
}

#[tokio::test]
async fn stream_that_cannot_be_resumed_is_refused_or_begins_anew() {
    let settings = FrontendSettings {
        replay_events: 2,
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let (id, other) = (
        server.connect().await.open("2025-06-18").await,
        server.connect().await.open("2025-06-18").await,
    );
    let mut client = call(&server, &id, "count").await;
    server.core.release.add_permits(5);
    client.head().await;
    let mut ids = Vec::new();
    while let Some(event) = client.sse().await {
        ids.push(event.id.unwrap());
    }
    assert_eq!(
        ids.iter().collect::<std::collections::BTreeSet<_>>().len(),
        EVENTS
    );
    let status = async |session: &str, last: &str| {
        server
            .connect()
            .await
            .listen(session, Some(last))
            .await
            .status
    };
    assert_eq!(
        (status(&id, &ids[2]).await, status(&id, &ids[3]).await),
        (400, 200)
    );
    let tag = ids[0].splitn(3, '-').nth(2).unwrap();
    let unknown = |stream: &str| format!("{stream}-{tag}");
    for wrong in [
        &unknown("post99-1"),
        "post1-1",
        "garbage",
        &ids[0].replace("post", "get").replace('-', "--"),
    ] {
        assert_eq!(status(&id, wrong).await, 400, "{wrong}");
    }
    // An id of another session.
    assert_eq!(status(&other, &ids[5]).await, 400);
    // A listening stream is accepted, since messages may still come.
    let mut stream = server.connect().await;
    assert_eq!(
        stream.listen(&id, Some(&unknown("get99-1"))).await.status,
        200
    );
    let listen = server.log.listens().await;
    let note = notification("notifications/tools/list_changed", "{}");
    listen
        .messages
        .send(ServerMessage::Notification(note))
        .await;
    let event = stream.sse().await.unwrap();
    // It is resumed like any other, without the events of a call.
    drop(stream);
    let mut stream = server.connect().await;
    assert_eq!(stream.listen(&id, event.id.as_deref()).await.status, 200);
    let note = notification("notifications/prompts/list_changed", "{}");
    listen
        .messages
        .send(ServerMessage::Notification(note))
        .await;
    let next = stream.sse().await.unwrap();
    assert!(next.data.contains("prompts"), "{}", next.data);
    let stream_of =
        |id: &Option<String>| id.as_deref().unwrap().split_once('-').unwrap().0.to_owned();
    assert_eq!(stream_of(&event.id), stream_of(&next.id));
    // An empty id names no event.
    let mut stream = server.connect().await;
    assert_eq!(stream.listen(&id, Some("")).await.status, 200);
}

#[tokio::test]
async fn server_request_waits_until_the_stream_is_resumed() {
    let server = Server::start().await;
    let id = server.connect().await.open("2025-06-18").await;
    let mut client = call(&server, &id, "ask-then-wait").await;
    client.head().await;
    let question = client.sse().await.unwrap();
    assert!(question.data.contains("roots/list"));
    drop(client);
    let mut client = server.connect().await;
    let answer = r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{}}"#;
    assert_eq!(
        client.post(&[("Mcp-Session-Id", &id)], answer).await.status,
        202
    );
    client.listen(&id, question.id.as_deref()).await;
    assert!(
        client
            .event()
            .await
            .unwrap()
            .contains("notifications/progress")
    );
    server.core.release.add_permits(1);
    assert!(client.event().await.unwrap().contains("result"));
    assert_eq!(client.event().await, None);
}

#[tokio::test]
async fn server_request_expires_if_the_stream_is_not_resumed() {
    let settings = FrontendSettings {
        resume: Duration::from_millis(1),
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let id = server.connect().await.open("2025-06-18").await;
    let mut client = call(&server, &id, "ask-then-wait").await;
    client.head().await;
    let last = client.sse().await.unwrap().id;
    drop(client);
    // The server request ends, and the call continues.
    server.core.release.add_permits(1);
    for _ in 0..2 {
        assert!(matches!(server.log.ended().await, Happened::Answered));
    }
    let mut client = server.connect().await;
    assert_eq!(client.listen(&id, last.as_deref()).await.status, 400);
}

#[tokio::test]
async fn pause_of_a_server_ends_the_stream_with_a_retry_delay() {
    let server = Server::start().await;
    let (new, old) = (
        server.connect().await.open("2025-11-25").await,
        server.connect().await.open("2025-06-18").await,
    );
    let mut client = server.connect().await;
    let request = legacy_call("1", "pause", "7").replace(r#""a":1.0"#, r#""retry":250"#);
    client
        .send("POST", "/mcp", &[("Mcp-Session-Id", &new)], &request)
        .await;
    assert_eq!(
        client.head().await.header("content-type"),
        Some("text/event-stream")
    );
    let primed = client.block().await.unwrap();
    assert!(primed.id.is_some() && primed.retry.is_some() && primed.data.is_empty());
    assert_eq!(client.block().await.unwrap().retry, Some(250));
    assert_eq!(client.block().await, None);
    // The connection can be used again, and the stream resumed.
    client.listen(&new, primed.id.as_deref()).await;
    assert_eq!(client.block().await.unwrap().id, primed.id);
    server.core.release.add_permits(1);
    assert!(
        client
            .event()
            .await
            .unwrap()
            .contains("notifications/progress")
    );
    assert!(client.event().await.unwrap().contains("structuredContent"));
    assert_eq!(client.event().await, None);

    // Other clients never learn of it.
    server.core.release.add_permits(3);
    let response = server
        .connect()
        .await
        .post(&[("Mcp-Session-Id", &old)], &request)
        .await;
    assert_eq!(response.events().len(), 2);
    let json = [
        ("Mcp-Session-Id", new.as_str()),
        ("Accept", "application/json"),
    ];
    assert!(
        server
            .connect()
            .await
            .post(&json, &request)
            .await
            .json()
            .get("result")
            .is_some()
    );
    let modern = modern_call("1", "pause", "");
    let response = server
        .connect()
        .await
        .post(&modern_headers("tools/call", Some("pause")), &modern)
        .await;
    assert!(response.json().get("result").is_some());
}

#[tokio::test]
async fn slow_answer_begins_an_event_stream() {
    let settings = FrontendSettings {
        stream_after: Duration::from_millis(1),
        keep_alive: Duration::from_millis(5),
        ..FrontendSettings::default()
    };
    let server = Server::with(settings).await;
    let modern = modern_call("1", "wait", "");
    let mut client = server.connect().await;
    client
        .send(
            "POST",
            "/mcp",
            &modern_headers("tools/call", Some("wait")),
            &modern,
        )
        .await;
    client.head().await;
    for _ in 0..3 {
        assert!(client.block().await.unwrap().comment);
    }
    server.core.release.add_permits(1);
    assert!(client.event().await.unwrap().contains("resultType"));
    assert_eq!(client.block().await, None);

    for (revision, primed) in [
        ("2024-11-05", false),
        ("2025-03-26", false),
        ("2025-11-25", true),
    ] {
        let id = server.connect().await.open(revision).await;
        let mut client = call(&server, &id, "wait").await;
        client.head().await;
        let opening = client.block().await.unwrap();
        assert_eq!(
            (opening.comment, opening.id.is_some()),
            (!primed, primed),
            "{revision}"
        );
        assert!(client.block().await.unwrap().comment);
        server.core.release.add_permits(1);
        let answer = client.sse().await.unwrap();
        assert!(answer.data.contains("structuredContent"));
        assert_eq!(answer.id.is_some(), revision != "2024-11-05");
    }
    // A client that accepts no stream waits.
    let json = [("Accept", "application/json")];
    let mut headers = modern_headers("tools/call", Some("wait"));
    headers.extend(json);
    let mut client = server.connect().await;
    client.send("POST", "/mcp", &headers, &modern).await;
    server.core.release.add_permits(1);
    assert!(client.response().await.json().get("result").is_some());
}
