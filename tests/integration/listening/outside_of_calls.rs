//! Server requests and log messages of legacy servers that belong to no call, sent to legacy
//! clients.

use std::time::Duration;

use super::*;
use crate::harness::Gateway;
use crate::raw_client::LegacySession;
use crate::scripted::{Backend, Gate, Reply, Stream, config};

const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Stdio];

struct Connected {
    announcer: Announcer,
    /// A second server, so that lists and names are merged.
    _other: Announcer,
    listener: ListeningClient,
    stream: Stream,
}

/// A client with its own session at the server, and the server's stream to that client.
async fn connected(front: Transport, back: Transport, capabilities: &str) -> Connected {
    let announcer = Announcer::start((Era::Legacy, back), "alpha").await;
    let other = Announcer::start((Era::Modern, other_transport(back)), "beta").await;
    let config = config(&[announcer.entry(), other.entry()]);
    let mut listener =
        ListeningClient::open_with(capabilities, &config, (Era::Legacy, front), &[]).await;
    // The first call opens the session.
    listener
        .request("tools/call", r#""name":"alpha__t","arguments":{}"#)
        .await;
    let stream = match back {
        Transport::Http => {
            let call = announcer.backend.received("tools/call").remove(0);
            announcer
                .backend
                .stream_of(call.header("mcp-session-id").expect("a session"))
                .await
        }
        Transport::Stdio => announcer.streams().await.pop().expect("a process"),
    };
    Connected {
        announcer,
        _other: other,
        listener,
        stream,
    }
}

async fn send(listener: &mut ListeningClient, message: &str) {
    match &listener.stream {
        Some(_) => assert_eq!(listener.client.session().post(message).await.status, 202),
        None => listener.client.stdio().send(message).await,
    }
}

/// Some servers request the roots as soon as the client has connected.
#[tokio::test]
async fn server_may_request_roots_after_initialized() {
    for front in TRANSPORTS {
        for back in TRANSPORTS {
            let Connected {
                announcer,
                _other,
                mut listener,
                stream,
            } = connected(front, back, r#"{"roots":{"listChanged":true}}"#).await;
            let request =
                r#"{"jsonrpc":"2.0","id":"\u0071","method":"roots/list","params":{"x":1E400}}"#;
            stream.message(request).await;
            let relayed = listener.next_message().await;
            assert_eq!(
                member(&relayed, "method"),
                Some(r#""roots/list""#),
                "{front:?} {back:?}"
            );
            assert_eq!(member(&relayed, "params"), Some(r#"{"x":1E400}"#));
            let roots = r#"{"roots":[{"uri":"file:\/\/\/r"}],"y":-0}"#;
            let id = member(&relayed, "id").expect("an id");
            send(
                &mut listener,
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{roots}}}"#),
            )
            .await;
            let answer = announcer
                .backend
                .answer_to(r#""\u0071""#, &announcer.backend.received("tools/call")[0])
                .await;
            assert_eq!(answer.member("result"), Some(roots), "{front:?} {back:?}");
        }
    }
}

/// A server may ask as soon as a call arrives, but its stream may open late: the call waits for the
/// stream.
#[tokio::test]
async fn question_of_a_server_whose_stream_opens_late_reaches_the_client() {
    let server = Backend::start(Era::Legacy, Transport::Http).await;
    server.offers_tools(&["t"]);
    let gate = Gate::new();
    server.on("HTTP GET", Reply::driven().gated(&gate));
    server.on("tools/call", Reply::driven());
    let entry = server.entry("a");
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{entry}}},"x-limits":"streamOpening=60s"}}"#
    ))
    .await;
    let session = LegacySession::open_with(gateway.mcp, "2025-11-25", r#"{"roots":{}}"#).await;
    let call = async {
        let mut answer = session
            .post(&legacy_request("1", "tools/call", r#""name":"t""#))
            .await;
        let asked = answer.event().await.unwrap().expect("a question");
        let id = member(&asked, "id").expect("a question");
        session
            .post(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[]}}}}"#
            ))
            .await;
        answer.event().await.unwrap().expect("the answer")
    };
    let serve = async {
        gate.reached(1).await;
        // A call that did not wait would usually arrive within this time. On a busy machine it may
        // arrive later, and the test misses the fault.
        let early =
            tokio::time::timeout(Duration::from_millis(300), server.wait_for("tools/call", 1))
                .await;
        assert!(early.is_err(), "the call has not waited for the stream");
        gate.open();
        let call = server.wait_for("tools/call", 1).await.remove(0);
        let own = |stream: &&Stream| {
            stream.request.header("mcp-session-id") == call.header("mcp-session-id")
        };
        let streams = server.streams();
        let [outside, answer] = streams.iter().filter(own).collect::<Vec<_>>()[..] else {
            panic!("two streams")
        };
        assert_eq!(outside.request.method(), "HTTP GET");
        outside
            .message(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#)
            .await;
        server.answer_to(r#""q""#, &call).await;
        answer.result(r#"{"content":[]}"#).await;
    };
    let (answer, ()) = tokio::join!(call, serve);
    assert_eq!(
        answer,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#
    );
}

/// A server may send something as soon as a session is there, before its client listens.
#[tokio::test]
async fn first_messages_of_a_server_arrive_although_the_client_listens_after_its_first_call() {
    let announcer = Announcer::start((Era::Legacy, Transport::Stdio), "a").await;
    let gateway = Gateway::start(&config(&[announcer.entry()])).await;
    let mut arrived = 0;
    for number in 0..10 {
        let session = LegacySession::open(gateway.mcp).await;
        let request = legacy_request("1", "tools/call", r#""name":"t""#);
        let call = || session.post(&request);
        call().await.messages().await;
        let process = announcer.backend.stream(number + 1).await;
        for n in 0..3 {
            let params = format!(r#""n":{n}"#);
            announcer.send(&process, "notifications/x", &params).await;
        }
        // The process sends in order: the messages are there when this call is answered.
        call().await.messages().await;
        let mut stream = session.stream(None).await;
        for n in 0..3 {
            let message = stream.event().await.unwrap().expect("a message");
            arrived += usize::from(member(&message, "params.n") == Some(&*n.to_string()));
        }
    }
    assert_eq!(arrived, 30);
}

/// A client that cannot be asked, but listens, gets what the server sends during its first call.
#[tokio::test]
async fn first_call_of_a_listening_client_waits_for_the_stream_of_the_server() {
    let server = Backend::start(Era::Legacy, Transport::Http).await;
    server.offers_tools(&["t"]);
    let gate = Gate::new();
    server.on("HTTP GET", Reply::driven().gated(&gate));
    let answer = Reply::result(Era::Legacy.complete(r#""content":[]"#));
    server.on("tools/call", answer);
    let entry = server.entry("a");
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{entry}}},"x-limits":"streamOpening=60s"}}"#
    ))
    .await;
    let session = LegacySession::open(gateway.mcp).await;
    let mut outside = session.stream(None).await;
    let call = async {
        let request = legacy_request("1", "tools/call", r#""name":"t""#);
        session.post(&request).await.messages().await;
    };
    let serve = async {
        gate.reached(1).await;
        // A call that did not wait would usually arrive within this time.
        let early = server.wait_for("tools/call", 1);
        let early = tokio::time::timeout(Duration::from_millis(300), early).await;
        assert!(early.is_err(), "the call has not waited for the stream");
        gate.open();
        let call = server.wait_for("tools/call", 1).await.remove(0);
        let id = call.header("mcp-session-id").expect("a session");
        let stream = server.stream_of(id).await;
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"{LOGGED}","params":{{"level":"info","data":7}}}}"#
        );
        stream.message(&text).await;
    };
    tokio::join!(call, serve);
    let message = outside.event().await.unwrap().expect("a message");
    assert_eq!(member(&message, "params.data"), Some("7"), "{message}");
}

/// A server request for which the client has not declared the capability is refused without sending
/// it to the client.
#[tokio::test]
async fn client_without_the_capability_gets_no_request() {
    for back in TRANSPORTS {
        let Connected {
            announcer,
            _other,
            mut listener,
            stream,
        } = connected(Transport::Http, back, "{}").await;
        stream
            .message(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#)
            .await;
        let answer = announcer
            .backend
            .answer_to("7", &announcer.backend.received("tools/call")[0])
            .await;
        assert!(answer.member("error.code").is_some(), "{}", answer.text);
        listener.request("tools/list", "").await;
        announcer.backend.offers_tools(&["t", "new"]);
        announcer.announce_tools_changed().await;
        listener.expect_tools_changed().await;
    }
}

#[tokio::test]
async fn log_messages_below_the_requested_level_are_dropped() {
    for front in TRANSPORTS {
        for back in TRANSPORTS {
            let Connected {
                announcer,
                _other,
                mut listener,
                stream,
            } = connected(front, back, "{}").await;
            let log = |level: &str| {
                format!(r#""level":"{level}","logger":"l","data":{{"n":1.0,"level":"{level}"}}"#)
            };
            announcer.send(&stream, LOGGED, &log("debug")).await;
            let message = listener.next_message().await;
            assert_eq!(
                member(&message, "params").map(str::to_owned),
                Some(format!("{{{}}}", log("debug")))
            );
            listener
                .request("logging/setLevel", r#""level":"warning""#)
                .await;
            let received = announcer.backend.wait_for("logging/setLevel", 1).await;
            assert_eq!(received[0].member("params.level"), Some(r#""warning""#));
            // This server ignores log levels.
            for level in ["info", "notice", "warning", "debug", "emergency"] {
                announcer.send(&stream, LOGGED, &log(level)).await;
            }
            for level in ["warning", "emergency"] {
                let message = listener.next_message().await;
                assert_eq!(
                    member(&message, "params.data.level"),
                    Some(format!("\"{level}\"").as_str())
                );
            }
        }
    }
}

/// No message is lost while a client has no stream for a moment.
#[tokio::test]
async fn messages_wait_while_the_client_has_no_stream() {
    let Connected {
        announcer,
        _other,
        mut listener,
        stream,
    } = connected(Transport::Http, Transport::Http, "{}").await;
    // The server may send before the gateway notices that the stream is closed, so the client
    // resumes after this id.
    let primed = listener
        .stream
        .take()
        .expect("a stream")
        .whole_event()
        .await
        .expect("a whole stream");
    announcer
        .send(&stream, LOGGED, r#""level":"info","data":1.0"#)
        .await;
    let last = primed.expect("an event").id;
    listener.stream = Some(listener.client.session().stream(last.as_deref()).await);
    let message = listener.next_message().await;
    assert_eq!(member(&message, "params.data"), Some("1.0"), "{message}");
}

/// Output of a modern server outside of requests and subscriptions is for legacy clients, and for
/// modern ones whose filter has something unknown.
#[tokio::test]
async fn unknown_notification_of_a_modern_process_reaches_all_that_may_have_asked_for_it() {
    for several in [false, true] {
        let announcer = Announcer::start((Era::Modern, Transport::Stdio), "alpha").await;
        let other = Announcer::start((Era::Legacy, Transport::Http), "beta").await;
        let entries = if several {
            vec![announcer.entry(), other.entry()]
        } else {
            vec![announcer.entry()]
        };
        let gateway = Gateway::start(&config(&entries)).await;
        let session = LegacySession::open(gateway.mcp).await;
        let legacy = session.stream(None).await;
        session
            .post(&legacy_request("1", "tools/list", ""))
            .await
            .messages()
            .await;
        let mut streams = vec![legacy];
        let mut others = Vec::new();
        let resource = filter(&[announcer.uri()]);
        for wanted in [
            r#"{"toolsListChanged":true}"#,
            r#"{"promptsListChanged":true,"newThings":{}}"#,
            &resource,
        ] {
            let mut stream = listen(gateway.mcp, ID, wanted).await;
            stream.event().await.unwrap().expect("an acknowledgement");
            match wanted.contains("newThings") {
                true => streams.push(stream),
                false => others.push(stream),
            }
        }
        let process = announcer.backend.stream(0).await;
        for number in 0..2 {
            let params = format!(r#""k":1E400,"n":{number}"#);
            process
                .message(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{{params}}}}}"#
                ))
                .await;
            for (listener, stream) in streams.iter_mut().enumerate() {
                let message = stream.event().await.unwrap().expect("a message");
                assert_eq!(
                    member(&message, "method"),
                    Some(r#""notifications/x""#),
                    "{several} {listener}: {message}"
                );
                assert_eq!(
                    member(&message, "params.n"),
                    Some(number.to_string().as_str()),
                    "{several} {listener}"
                );
                let id = member_at(&message, &["params", "_meta", SUBSCRIPTION_ID]);
                assert_eq!(
                    id,
                    (listener > 0).then_some(ID),
                    "{several} {listener}: {message}"
                );
            }
        }
        for stream in &mut others {
            let more = tokio::time::timeout(Duration::from_millis(100), stream.event()).await;
            assert!(more.is_err(), "{several}: {more:?}");
        }
    }
}
