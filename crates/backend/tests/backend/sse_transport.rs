//! Servers with the deprecated HTTP+SSE transport: recognition and use.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fanlight_backend::{EraChoice, TransportSettings};
use fanlight_canonical::{BackendClient as _, BackendError, BackendState, CallContext, Interest};
use fanlight_protocol::result::ResultView as _;
use fanlight_protocol::subscription::Change;
use fanlight_protocol::{Json, Response};
use tokio::sync::mpsc;

use crate::support::server::{Reply, Seen, Server, event, legacy, status};
use crate::support::{
    PATIENCE, ask, call, listen, listening, of_session, revision, send, settings, start,
    without_session,
};

const ALL: &str = r#"{"elicitation":{"form":{}},"sampling":{},"roots":{}}"#;
const TAKEN: fn() -> Reply = || Reply::Whole(202, String::new(), "text/plain", "Accepted".into());

/// The streams that were opened, in order.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<Vec<Option<mpsc::UnboundedSender<String>>>>>);

impl Streams {
    fn open(&self) -> (usize, mpsc::UnboundedReceiver<String>) {
        let (events, feed) = mpsc::unbounded_channel();
        let mut streams = self.0.lock().unwrap();
        streams.push(Some(events));
        (streams.len() - 1, feed)
    }

    fn raw(&self, number: usize, text: String) {
        self.0.lock().unwrap()[number]
            .as_ref()
            .expect("the stream is open")
            .send(text)
            .unwrap();
    }

    fn say(&self, number: usize, data: &str) {
        self.raw(number, event(data));
    }

    fn close(&self, number: usize) {
        self.0.lock().unwrap()[number] = None;
    }

    /// The stream that a message belongs to.
    fn number(seen: &Seen) -> usize {
        seen.target.rsplit('=').next().unwrap().parse().unwrap()
    }
}

/// A server of the first revision. It names `endpoint` with the number of its stream, and gives the
/// answers that `answer` does not.
async fn old(
    endpoint: &'static str,
    answer: impl Fn(&Seen, &dyn Fn(&str)) -> Option<Reply> + Send + Sync + 'static,
) -> (Server, Streams) {
    let streams = Streams::default();
    let opened = streams.clone();
    let server = Server::start(move |seen| {
        if seen.verb == "GET" {
            let (number, feed) = opened.open();
            opened.raw(number, format!(": hello\n\nretry: 5\n\nevent: ping\ndata: 1\n\nevent: endpoint\ndata: {endpoint}?s=a%20b&n={number}\n\n"));
            return Reply::Feed(feed);
        }
        if seen.target == "/mcp" {
            return status(405);
        }
        let say = |data: &str| opened.say(Streams::number(seen), data);
        if let Some(reply) = answer(seen, &say) {
            return reply;
        }
        let result = match seen.method().as_str() {
            "initialize" => r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":true}},"x":1.0}"#,
            "" | "notifications/initialized" | "notifications/cancelled" => return TAKEN(),
            _ => r#"{ "n":1.0}"#,
        };
        say(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.id()));
        TAKEN()
    })
    .await;
    (server, streams)
}

#[tokio::test]
async fn sse_transport_is_tried_last() {
    let (mut server, _streams) = old("/message", |_, _| None).await;
    let backend = start(settings(server.transport()));
    assert_eq!(revision(&backend).await, "2024-11-05");
    assert_eq!(backend.status().transport, "sse");
    let order: Vec<_> = [
        server.next().await,
        server.next().await,
        server.next().await,
        server.next().await,
    ]
    .map(|seen| (seen.verb.clone(), seen.target.clone(), seen.method()))
    .into();
    let order: Vec<_> = order
        .iter()
        .map(|(verb, target, method)| [verb.as_str(), target, method])
        .collect();
    assert_eq!(
        order,
        [
            ["POST", "/mcp", "server/discover"],
            ["POST", "/mcp", "initialize"],
            ["GET", "/mcp", ""],
            ["POST", "/message?s=a%20b&n=0", "initialize"]
        ]
    );
    // The server's text keeps its bytes.
    assert_eq!(
        ask(&backend, "tools/list", "").await.unwrap(),
        r#"{ "n":1.0}"#
    );
    assert!(
        backend
            .describe(&CallContext::internal())
            .await
            .unwrap()
            .json()
            .as_text()
            .contains(r#""x":1.0"#)
    );
}

#[tokio::test]
async fn sse_transport_is_tried_first_if_remembered_or_configured() {
    for configured in [false, true] {
        let (mut server, streams) = old("message", |_, _| None).await;
        let transport = match configured {
            true => TransportSettings::Sse {
                url: server.url.clone(),
                headers: Vec::new(),
            },
            false => server.transport(),
        };
        let backend = start(settings(transport));
        assert_eq!(revision(&backend).await, "2024-11-05");
        let posts_before_get = server.count_until_get().await;
        assert_eq!(posts_before_get, if configured { 0 } else { 2 });
        // The end of the stream ends the connection; the next connection uses this transport at
        // once.
        let _ = server.next_of("notifications/initialized").await;
        streams.close(0);
        assert_eq!(server.count_until_get().await, 0);
        let _ = server.next_of("notifications/initialized").await;
        assert!(ask(&backend, "tools/list", "").await.is_ok());
    }
}

#[tokio::test]
async fn streamable_http_server_is_not_asked_for_the_sse_transport() {
    let mut server =
        Server::start(|seen| legacy(seen, "s").unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    assert_eq!(revision(&backend).await, "2025-11-25");
    ask(&backend, "tools/list", "").await.unwrap();
    assert_eq!(server.count_verb("GET"), 0);
    // An outdated configuration only costs one request.
    let mut server = Server::start(|seen| match seen.verb.as_str() {
        "GET" => status(405),
        _ => legacy(seen, "s").unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(TransportSettings::Sse {
        url: server.url.clone(),
        headers: Vec::new(),
    }));
    assert_eq!(
        (revision(&backend).await, backend.status().transport),
        ("2025-11-25", "http")
    );
    assert_eq!(server.count_verb("GET"), 1);
}

#[tokio::test]
async fn first_error_is_reported_if_there_is_no_sse_transport() {
    for get in [
        || status(404),
        || Reply::Open(event("{}")),
        || Reply::Open(String::new()),
        || Reply::Close,
    ] {
        let server = Server::start(move |seen| {
            if seen.verb == "GET" {
                get()
            } else {
                status(404)
            }
        })
        .await;
        let mut settings = settings(server.transport());
        settings.timeouts.probe = Duration::from_millis(500);
        let error = start(settings)
            .describe(&CallContext::internal())
            .await
            .unwrap_err();
        let BackendError::NotConnected { cause, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(**cause, BackendError::Status { status: 404 });
    }
    // A client that wants a modern server gets no other.
    let (mut server, _streams) = old("/message", |_, _| None).await;
    let mut settings = settings(server.transport());
    settings.era = EraChoice::Modern;
    assert!(
        start(settings)
            .describe(&CallContext::internal())
            .await
            .is_err()
    );
    assert_eq!(server.count_verb("GET"), 0);
}

#[tokio::test]
async fn messages_are_not_sent_to_another_origin() {
    for endpoint in [
        "http://127.0.0.1:1/message",
        "//evil.example/message",
        "https://127.0.0.1/message",
    ] {
        let (server, _streams) = old(endpoint, |_, _| None).await;
        let error = start(settings(server.transport()))
            .describe(&CallContext::internal())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("another origin"), "{error}");
    }
}

#[tokio::test]
async fn server_requests_progress_and_notifications_are_delivered() {
    let (mut server, streams) = old("/message", |seen, say| {
        (seen.method() == "tools/call").then(|| {
            let id = seen.id();
            say(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":1.0}}}}"#
            ));
            say(r#"{"jsonrpc":"2.0","id":"q\u0041","method":"roots/list","params":{ "x":1E400}}"#);
            TAKEN()
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    let (call, mut inbox) = listening(call("tools/call", r#"{"name":"a"}"#), |context| {
        of_session(1, ALL)(context);
        context.wants_progress = true;
    });
    let client = async {
        assert!(inbox.text().await.contains(r#""progress":1.0"#));
        let question = inbox.question().await;
        assert_eq!(question.params.unwrap().as_text(), r#"{ "x":1E400}"#);
        question
            .answer
            .send(Response::from_result(&Json::literal(
                r#"{"roots":[],"y":1.0}"#,
            )))
            .unwrap();
        let called = server.next_of("tools/call").await;
        let answer = server
            .next_where(|seen| seen.method().is_empty() && seen.verb == "POST")
            .await;
        assert_eq!(
            answer.body,
            r#"{"jsonrpc":"2.0","id":"q\u0041","result":{"roots":[],"y":1.0}}"#
        );
        let last = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"done":1.0}}}}"#,
            called.id()
        );
        streams.say(Streams::number(&called), &last);
    };
    let (answer, ()) = tokio::join!(send(&backend, call), client);
    assert_eq!(answer.unwrap(), r#"{"done":1.0}"#);
}

#[tokio::test]
async fn list_changes_are_delivered() {
    let (mut server, streams) = old("/message", |_, _| None).await;
    let backend = start(settings(server.transport()));
    let interest = Interest {
        lists: Change::Tools.into(),
        ..Interest::default()
    };
    let (_listening, mut inbox) = listen(&backend, interest, without_session).await.unwrap();
    let opened = server.next_of("notifications/initialized").await;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    streams.say(Streams::number(&opened), changed);
    assert!(inbox.text().await.contains("tools/list_changed"));
}

#[tokio::test]
async fn broken_stream_fails_calls_as_possibly_run() {
    let (mut server, streams) = old("/message", |seen, _| {
        (seen.method() == "tools/call").then(TAKEN)
    })
    .await;
    let backend = start(settings(server.transport()));
    revision(&backend).await;
    let running = send(&backend, call("tools/call", r#"{"name":"a"}"#));
    let breaking = async {
        streams.close(Streams::number(&server.next_of("tools/call").await));
    };
    let (outcome, ()) = tokio::join!(running, breaking);
    let error = outcome.unwrap_err();
    assert!(
        error == BackendError::ClosedEarly && error.may_have_run(),
        "{error:?}"
    );
    // The call is not repeated, and the next call is served.
    assert!(ask(&backend, "tools/list", "").await.is_ok());
    assert_eq!(server.count("tools/call"), 0);
}

#[tokio::test]
async fn server_whose_stream_ends_at_once_is_down() {
    let server = Server::start(|seen| match (seen.verb.as_str(), seen.method().as_str()) {
        ("GET", _) => Reply::Stream("event: endpoint\ndata: /message\n\n".to_owned()),
        _ if seen.target == "/mcp" => status(404),
        _ => TAKEN(),
    })
    .await;
    let backend = start(settings(server.transport()));
    assert!(backend.describe(&CallContext::internal()).await.is_err());
    assert!(matches!(backend.status().state, BackendState::Down { .. }));
}

#[tokio::test]
async fn refused_request_has_not_run() {
    let refusing = Arc::new(Mutex::new(3));
    let left = Arc::clone(&refusing);
    let (mut server, _streams) = old("/message", move |seen, _| {
        let mut left = left.lock().unwrap();
        let is_refused =
            matches!(seen.method().as_str(), "tools/call" | "ping" | "tools/list") && *left > 0;
        is_refused.then(|| {
            *left -= 1;
            status(404)
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    // The server no longer knows the session, so the call is repeated in a new one.
    assert_eq!(
        ask(&backend, "tools/call", r#"{"name":"a"}"#)
            .await
            .unwrap(),
        r#"{ "n":1.0}"#
    );
    assert_eq!(
        (server.count("tools/call"), *refusing.lock().unwrap()),
        (2, 0)
    );
}

#[tokio::test]
async fn dropped_call_is_cancelled() {
    let (mut server, _streams) = old("/message", |seen, _| {
        (seen.method() == "tools/call").then(TAKEN)
    })
    .await;
    let backend = start(settings(server.transport()));
    revision(&backend).await;
    let mut running = Box::pin(backend.request(call("tools/call", r#"{"name":"a"}"#)));
    let called = tokio::select! {
        _ = &mut running => panic!("answered"),
        called = server.next_of("tools/call") => called,
    };
    drop(running);
    let cancelled = server.next_of("notifications/cancelled").await;
    assert_eq!(
        cancelled.params().get("requestId").unwrap().as_text(),
        called.id()
    );
}

#[tokio::test]
async fn message_over_the_limit_ends_the_stream() {
    let (server, _streams) = old("/message", |seen, say| {
        (seen.method() == "tools/call").then(|| {
            say(&format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"x":"{}"}}}}"#,
                seen.id(),
                "x".repeat(1 << 20)
            ));
            TAKEN()
        })
    })
    .await;
    let backend = start(settings(server.transport()));
    let error = ask(&backend, "tools/call", r#"{"name":"a"}"#)
        .await
        .unwrap_err();
    assert_eq!(error, BackendError::ResponseTooLarge { limit: 1 << 20 });
    assert!(
        tokio::time::timeout(PATIENCE, ask(&backend, "tools/list", ""))
            .await
            .unwrap()
            .is_ok()
    );
}
