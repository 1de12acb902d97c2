//! Streams of legacy clients that break, pause, fall silent and end (2025-11-25 transports,
//! Resumability and Redelivery).

use fanlight_tests::slicer::member;

use crate::harness::{Gateway, within};
use crate::raw_client::{LegacySession, NEWEST_LEGACY, Response, legacy_request, listen};
use crate::scripted::{Backend, Era, Reply, Stream, Transport};

const CALL: &str = r#""name":"t","arguments":{},"_meta":{"progressToken":"p"}"#;

/// The ids and the data of the next events that have data; `seen` is the id to resume after.
async fn read(stream: &mut Response, count: usize, seen: &mut Seen) {
    within("enough messages", async {
        while seen.data.len() < count {
            let event = stream
                .whole_event()
                .await
                .expect("a whole stream")
                .expect("an event before the end");
            seen.last = event.id.or(seen.last.take());
            if !event.data.is_empty() {
                seen.data.push(event.data);
            }
        }
    })
    .await;
}

#[derive(Default)]
struct Seen {
    last: Option<String>,
    data: Vec<String>,
}

/// A session, and the server; the test writes the stream of the server's tool `t`.
async fn session(era: Era, back: Transport, more: &str) -> (Backend, Gateway, LegacySession) {
    session_as(NEWEST_LEGACY, era, back, more).await
}

async fn session_as(
    revision: &str,
    era: Era,
    back: Transport,
    more: &str,
) -> (Backend, Gateway, LegacySession) {
    let backend = Backend::start(era, back).await;
    backend.offers_tools(&["t"]);
    backend.on("tools/call", Reply::driven());
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}},"x-limits":"stream=100ms{more}"}}"#,
        backend.entry("only")
    ))
    .await;
    let session = LegacySession::open_as(gateway.mcp, revision).await;
    (backend, gateway, session)
}

async fn progress(call: &Stream, count: usize) {
    let token = call
        .request
        .member("params._meta.progressToken")
        .expect("a token");
    let params = format!(r#""progressToken":{token},"progress":{count}.0,"x":1E400"#);
    call.message(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#
    ))
    .await;
}

const EVENTS: usize = 3;

/// The messages of a call that the client must receive, in order.
fn whole(era: Era) -> Vec<String> {
    let progress = |count| {
        let params = format!(r#""progressToken":"p","progress":{count}.0,"x":1E400"#);
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#)
    };
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{}}}"#,
        era.complete(r#""content":[],"n":1.0"#)
    );
    (0..EVENTS).map(progress).chain([answer]).collect()
}

#[tokio::test]
async fn cut_call_stream_is_resumed_without_loss_or_duplicates() {
    for (era, back) in [
        (Era::Legacy, Transport::Http),
        (Era::Modern, Transport::Http),
        (Era::Legacy, Transport::Stdio),
    ] {
        let (backend, _gateway, session) = session(era, back, "").await;
        for cut in 0..=EVENTS {
            let mut stream = session.post(&legacy_request("1", "tools/call", CALL)).await;
            let call = backend.stream(cut).await;
            let mut seen = Seen::default();
            for count in 0..cut {
                progress(&call, count).await;
            }
            read(&mut stream, cut, &mut seen).await;
            if seen.last.is_none() {
                // The client has received only the priming event, after which it can resume.
                seen.last = stream
                    .whole_event()
                    .await
                    .unwrap()
                    .expect("a priming event")
                    .id;
            }
            drop(stream);
            // Half of the rest is sent while no stream is open.
            for count in cut..EVENTS {
                progress(&call, count).await;
                if count == EVENTS - 2 {
                    let mut resumed = session.stream(seen.last.as_deref()).await;
                    read(&mut resumed, count + 1, &mut seen).await;
                }
            }
            call.result(&era.complete(r#""content":[],"n":1.0"#)).await;
            if back == Transport::Http {
                call.end().await;
            }
            let mut resumed = session.stream(seen.last.as_deref()).await;
            assert_eq!(resumed.status, 200, "{cut}");
            read(&mut resumed, EVENTS + 1, &mut seen).await;
            assert_eq!(seen.data, whole(era), "{era:?} {back:?} {cut}");
            assert_eq!(
                resumed.event().await.unwrap(),
                None,
                "it ends with the answer"
            );
        }
        assert_eq!(
            backend.received("tools/call").len(),
            EVENTS + 1,
            "no call is made twice"
        );
    }
}

#[tokio::test]
async fn cut_get_stream_is_resumed_without_loss_or_duplicates() {
    const MESSAGES: usize = 4;
    let (backend, _gateway, session) = session(Era::Legacy, Transport::Http, "").await;
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    backend.serves_get();
    let mut stream = session.stream(None).await;
    session
        .post(&legacy_request("1", "tools/call", CALL))
        .await
        .messages()
        .await;
    let own = backend.received("tools/call")[0]
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    let from_server = backend.stream_of(&own).await;
    // The first event has only an id, so that a client can resume before the first message.
    let primed = stream.whole_event().await.unwrap().expect("an event");
    let mut seen = Seen {
        last: primed.id,
        ..Seen::default()
    };
    for cut in 0..MESSAGES {
        for part in 0..MESSAGES {
            let number = cut * MESSAGES + part;
            let params = format!(r#""level":"info","data":{number}.0"#);
            from_server
                .message(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{{params}}}}}"#
                ))
                .await;
            if part < cut {
                read(&mut stream, number + 1, &mut seen).await;
            }
            if part == cut {
                drop(stream);
                stream = session.stream(seen.last.as_deref()).await;
            }
        }
        read(&mut stream, (cut + 1) * MESSAGES, &mut seen).await;
    }
    let received: Vec<&str> = seen
        .data
        .iter()
        .map(|message| member(message, "params.data").unwrap())
        .collect();
    assert_eq!(
        received,
        (0..MESSAGES * MESSAGES)
            .map(|number| format!("{number}.0"))
            .collect::<Vec<_>>()
    );
}

/// "If the server does close the connection prior to terminating the SSE stream": a client of
/// 2025-11-25 also polls after the server's `retry`; streams of older clients stay open.
#[tokio::test]
async fn stream_closed_for_polling_makes_the_client_poll() {
    for revision in [NEWEST_LEGACY, "2025-06-18"] {
        let (backend, _gateway, session) =
            session_as(revision, Era::Legacy, Transport::Http, "").await;
        backend.serves_get();
        let mut stream = session.post(&legacy_request("1", "tools/call", CALL)).await;
        let call = backend.stream(0).await;
        call.raw("id: \u{e9}-1\nretry: 130\ndata:\n\n").await;
        progress(&call, 0).await;
        let mut seen = Seen::default();
        read(&mut stream, 1, &mut seen).await;
        call.end().await;
        let mut retry = None;
        if revision == NEWEST_LEGACY {
            while let Some(event) = stream.whole_event().await.unwrap() {
                retry = event.retry.or(retry);
            }
            assert_eq!(retry, Some(130));
            stream = session.stream(seen.last.as_deref()).await;
        }
        let poll = backend.stream(1).await;
        assert_eq!(poll.resumes_after(), Some("\u{e9}-1"));
        poll.message(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[],"n":1.0}}}}"#,
            call.request.member("id").unwrap()
        ))
        .await;
        read(&mut stream, 2, &mut seen).await;
        assert_eq!(
            seen.data[1], r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"n":1.0}}"#,
            "{revision}"
        );
        assert_eq!(backend.received("tools/call").len(), 1);
    }
}

#[tokio::test]
async fn silent_streams_get_keep_alives_and_end_with_their_session() {
    let more = ",keepAlive=300ms";
    let (backend, gateway, session) = session(Era::Legacy, Transport::Http, more).await;
    backend.declares(r#"{"tools":{"listChanged":true}}"#);
    let mut outside = session.stream(None).await;
    let mut call = session.post(&legacy_request("1", "tools/call", CALL)).await;
    let mut subscription = listen(gateway.mcp, "1", r#"{"toolsListChanged":true}"#).await;
    for stream in [&mut outside, &mut call, &mut subscription] {
        for _ in 0..2 {
            while stream
                .whole_event()
                .await
                .unwrap()
                .expect("a keep-alive comment")
                .comments
                .is_empty()
            {}
        }
    }
    assert!(session.delete().await.status < 300);
    assert_eq!(outside.event().await.unwrap(), None);
    assert_eq!(session.stream(None).await.status, 404);
    // A subscription belongs to no session.
    while subscription
        .whole_event()
        .await
        .unwrap()
        .expect("a keep-alive comment")
        .comments
        .is_empty()
    {}
    assert!(gateway.terminate().await.success());
    let farewell = subscription.event().await.unwrap().expect("a farewell");
    assert_eq!(
        member(&farewell, "result.resultType"),
        Some(r#""complete""#),
        "{farewell}"
    );
}

/// An event id of one session is unknown in another.
#[tokio::test]
async fn stream_is_resumed_only_within_its_session() {
    let (backend, gateway, session) = session(Era::Legacy, Transport::Http, "").await;
    let mut stream = session.post(&legacy_request("1", "tools/call", CALL)).await;
    let call = backend.stream(0).await;
    progress(&call, 0).await;
    let mut seen = Seen::default();
    read(&mut stream, 1, &mut seen).await;
    let other = LegacySession::open(gateway.mcp).await;
    assert_eq!(other.stream(seen.last.as_deref()).await.status, 400);
    call.result(r#"{"content":[]}"#).await;
    read(&mut stream, 2, &mut seen).await;
}
