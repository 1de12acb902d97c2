//! HTTP servers that do not answer as they should.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanlight_backend::RetryDelays;
use fanlight_canonical::{BackendClient, BackendError, BackendState};
use futures_util::FutureExt as _;

use crate::support::log::Log;
use crate::support::server::{Reply, Seen, Server, event, modern, ok, status};
use crate::support::{ask, call, revision, settings, start};

async fn error_of(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> BackendError {
    let server = Server::start(move |seen| modern(seen).unwrap_or_else(|| answer(seen))).await;
    let mut settings = settings(server.transport());
    settings.limits.message_bytes = 4096;
    ask(&start(settings), "x/y", "").await.unwrap_err()
}

fn answer(seen: &Seen, result: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        seen.id()
    )
}

#[tokio::test]
async fn incomplete_answer_is_an_error() {
    let half = |seen: &Seen| event(&answer(seen, "{}")).trim_end().to_owned();
    assert_eq!(
        error_of(move |seen| Reply::Stream(half(seen))).await,
        BackendError::ClosedEarly
    );
    assert_eq!(
        error_of(|_| Reply::Stream(String::from(": nothing\n\n"))).await,
        BackendError::ClosedEarly
    );
    assert_eq!(error_of(|_| Reply::Close).await, BackendError::ClosedEarly);
}

#[tokio::test]
async fn answer_over_the_limit_is_not_read() {
    let large = || format!(r#"{{"a":"{}"}}"#, "x".repeat(8192));
    let too_large = BackendError::ResponseTooLarge { limit: 4096 };
    assert_eq!(
        error_of(move |seen| ok(answer(seen, &large()))).await,
        too_large
    );
    assert_eq!(
        error_of(move |seen| Reply::Open(event(&answer(seen, &large())))).await,
        too_large
    );
    let chunked = move |seen: &Seen| {
        Reply::Chunked(answer(seen, &format!(r#"{{"a":"{}"}}"#, "x".repeat(8192))))
    };
    assert_eq!(error_of(chunked).await, too_large);
    // An event without an end.
    let endless = |seen: &Seen| {
        let text = format!(
            "{}{}",
            answer(seen, "{}").trim_end_matches('}'),
            " ".repeat(8192)
        );
        Reply::Open(text)
    };
    assert_eq!(error_of(endless).await, too_large);
}

#[tokio::test]
async fn invalid_answer_is_an_error() {
    let reason = |error: BackendError| match error {
        BackendError::Malformed { reason } => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(error_of(|_| ok("{".into())).await).contains("not JSON"));
    assert!(
        reason(error_of(|_| ok(r#"{"jsonrpc":"2.0","id":"x","result":{}}"#.into())).await)
            .contains("answer")
    );
    assert!(reason(error_of(|_| Reply::Stream(event("{"))).await).contains("event"));
    assert!(
        reason(error_of(|_| Reply::Whole(202, String::new(), "", String::new())).await)
            .contains("202")
    );
    let html =
        |_: &Seen| Reply::Whole(200, String::new(), "text/html; charset=utf-8", "<p>".into());
    assert!(reason(error_of(html).await).contains("\"text/html\""));
    let deep = |seen: &Seen| {
        ok(answer(
            seen,
            &format!("{{\"a\":{}{}}}", "[".repeat(199), "]".repeat(199)),
        ))
    };
    assert!(reason(error_of(deep).await).contains("deep"));
}

#[tokio::test]
async fn error_without_an_id_answers_the_only_request() {
    const ERROR: &str = r#"{"code":-32000,"message":"boom","data":1.0}"#;
    for (is_event, id) in [
        (false, r#""id":null,"#),
        (false, ""),
        (false, r#""id":"server-error","#),
        (true, r#""id":null,"#),
    ] {
        let reply = move || {
            let text = format!(r#"{{"jsonrpc":"2.0",{id}"error":{ERROR}}}"#);
            if is_event {
                Reply::Open(event(&text))
            } else {
                ok(text)
            }
        };
        let server = Server::start(move |seen| modern(seen).unwrap_or_else(reply)).await;
        let answered = start(settings(server.transport()))
            .request(call("x/y", ""))
            .await;
        assert_eq!(answered.unwrap().error().unwrap().as_text(), ERROR);
    }
}

#[tokio::test]
async fn invalid_event_is_skipped_unless_it_was_the_answer() {
    let log = Log::catch();
    let then_answered = |seen: &Seen| {
        let noise = [
            "{",
            "plain text",
            r#"{"jsonrpc":"2.0","id":"other","result":7}"#,
            &format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"x","params":[1]}}"#,
                seen.id()
            ),
        ]
        .map(event)
        .concat();
        Reply::Stream(format!("{noise}{}", event(&answer(seen, r#"{"n":1.0}"#))))
    };
    let server =
        Server::start(move |seen| modern(seen).unwrap_or_else(|| then_answered(seen))).await;
    assert_eq!(
        ask(&start(settings(server.transport())), "x/y", "")
            .await
            .unwrap(),
        r#"{"n":1.0}"#
    );
    assert!(
        log.text().contains("an event that is no message"),
        "{}",
        log.text()
    );
    for broken in [
        r#"{"jsonrpc":"2.0","id":ID,"result":7}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"a":}}"#,
    ] {
        // The stream stays open, but nothing follows.
        let open = move |seen: &Seen| Reply::Open(event(&broken.replace("ID", &seen.id())));
        let error = error_of(open).await;
        assert!(matches!(error, BackendError::Malformed { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn id_may_be_returned_in_another_form() {
    let body = |seen: &Seen, id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":{}}}}}"#,
            seen.id()
        )
    };
    for form in ["\"ID\"", "ID.0"] {
        let id = move |seen: &Seen| form.replace("ID", &seen.id());
        let whole = move |seen: &Seen| match seen.method().as_str() {
            "x/whole" => ok(body(seen, &id(seen))),
            _ => Reply::Stream(event(&body(seen, &id(seen)))),
        };
        let server = Server::start(move |seen| modern(seen).unwrap_or_else(|| whole(seen))).await;
        let backend = start(settings(server.transport()));
        for method in ["x/whole", "x/stream"] {
            assert!(
                ask(&backend, method, "")
                    .await
                    .unwrap()
                    .starts_with(r#"{"n":"#),
                "{form} {method}"
            );
        }
    }
}

#[tokio::test]
async fn statuses_without_an_answer_are_errors() {
    assert_eq!(
        error_of(|_| status(401)).await,
        BackendError::Unauthorized { status: 401 }
    );
    assert_eq!(
        error_of(|_| status(403)).await,
        BackendError::Unauthorized { status: 403 }
    );
    assert_eq!(
        error_of(|_| status(500)).await,
        BackendError::Status { status: 500 }
    );
    let moved = |_: &Seen| {
        Reply::Whole(
            307,
            "Location: http://127.0.0.1:1/\r\n".into(),
            "text/plain",
            String::new(),
        )
    };
    assert_eq!(error_of(moved).await, BackendError::Status { status: 307 });
    for rejected in [400, 404, 405] {
        assert_eq!(
            error_of(move |_| status(rejected)).await,
            BackendError::Status { status: rejected }
        );
    }
}

#[tokio::test]
async fn pause_that_the_server_asks_for_is_in_the_error() {
    let later = |code, value: &str| {
        let head = format!("Retry-After: {value}\r\n");
        move |_: &Seen| Reply::Whole(code, head.clone(), "text/plain", String::new())
    };
    let pause = Duration::from_secs(7);
    for code in [429, 503] {
        assert_eq!(
            error_of(later(code, "7")).await,
            BackendError::Overloaded {
                status: code,
                pause
            }
        );
        let none = BackendError::Status { status: code };
        for value in ["", "soon", "-1", "7.5"] {
            assert_eq!(error_of(later(code, value)).await, none, "{value}");
        }
        let past = error_of(later(code, "Sun, 06 Nov 1994 08:49:37 GMT")).await;
        assert_eq!(
            past,
            BackendError::Overloaded {
                status: code,
                pause: Duration::ZERO
            }
        );
        let far = error_of(later(code, "99999999999999")).await;
        assert_eq!(
            far,
            BackendError::Overloaded {
                status: code,
                pause: Duration::from_secs(86_400)
            }
        );
    }
    assert_eq!(
        error_of(later(500, "7")).await,
        BackendError::Status { status: 500 }
    );
}

#[tokio::test]
async fn request_that_may_have_run_is_not_repeated() {
    for reply in [
        || Reply::Close,
        || status(500),
        || status(502),
        || ok("{".into()),
    ] {
        let mut server = Server::start(move |seen| modern(seen).unwrap_or_else(reply)).await;
        let backend = start(settings(server.transport()));
        assert!(ask(&backend, "x/y", "").await.unwrap_err().may_have_run());
        assert_eq!(server.count("x/y"), 1);
    }
}

#[tokio::test]
async fn call_has_a_deadline() {
    let mut server = Server::start(|seen| modern(seen).unwrap_or(Reply::Hang)).await;
    let mut settings = settings(server.transport());
    settings.timeouts.call = Duration::from_millis(200);
    let after = settings.timeouts.call;
    let backend = start(settings);
    revision(&backend).await;
    assert_eq!(
        ask(&backend, "x/y", "").await,
        Err(BackendError::Timeout { after, sent: true })
    );
    assert_eq!(server.next_of("closed").await.method(), "x/y");
}

#[tokio::test]
async fn connecting_has_a_deadline() {
    let server = Server::start(|_| Reply::Hang).await;
    let mut settings = settings(server.transport());
    settings.timeouts.connect = Duration::from_millis(100);
    settings.timeouts.start = settings.timeouts.connect;
    let after = settings.timeouts.connect;
    let backend = start(settings);
    let error = ask(&backend, "x/y", "").await.unwrap_err();
    assert_eq!(error, BackendError::Timeout { after, sent: false });
    assert!(!error.may_have_run());
}

#[tokio::test]
async fn calls_to_a_backend_that_is_down_fail_at_once_until_it_recovers() {
    let works = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&works);
    let mut server = Server::start(move |seen| match now.load(Ordering::SeqCst) {
        true => modern(seen).unwrap_or_else(|| seen.result("{}")),
        false => status(503),
    })
    .await;
    let backend = start(settings(server.transport()));
    let error = BackendError::Status { status: 503 }.while_connecting();
    assert_eq!(ask(&backend, "x/y", "").await, Err(error.clone()));
    assert!(!error.may_have_run());
    assert!(
        matches!(backend.status().state, BackendState::Down { error: found, .. } if found == error)
    );
    assert_eq!(server.count("x/y"), 0);
    works.store(true, Ordering::SeqCst);
    server.next_of("server/discover").await;
    assert_eq!(ask(&backend, "x/y", "").await.unwrap(), "{}");
}

/// Growing pauses between attempts apply only in the background; calls must not wait for them.
#[tokio::test]
async fn server_that_is_back_is_used_again_by_the_next_call() {
    let works = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&works);
    let mut server = Server::start(move |seen| match now.load(Ordering::SeqCst) {
        true => modern(seen).unwrap_or_else(|| seen.result("{}")),
        false => status(503),
    })
    .await;
    let mut settings = settings(server.transport());
    let hour = Duration::from_secs(3600);
    settings.timeouts.reconnect = RetryDelays {
        shortest: hour,
        longest: hour,
    };
    settings.timeouts.reconnect_on_demand = Duration::from_millis(200);
    let backend = start(settings);
    ask(&backend, "x/y", "").await.unwrap_err();
    // Too soon after the last attempt.
    server.count("server/discover");
    ask(&backend, "x/y", "").await.unwrap_err();
    assert_eq!(server.count("server/discover"), 0);
    works.store(true, Ordering::SeqCst);
    let served = async {
        while ask(&backend, "x/y", "").await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), served)
        .await
        .expect("the server was not tried again");
}

#[tokio::test]
async fn closed_server_is_reconnected_before_anything_is_sent() {
    let server = Server::start(|seen| modern(seen).unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    ask(&backend, "x/y", "").await.unwrap();
    drop(server);
    // The first request may meet the connection while it is being closed.
    let mut error = ask(&backend, "x/y", "").await.unwrap_err();
    if error == BackendError::ClosedEarly {
        error = ask(&backend, "x/y", "").await.unwrap_err();
    }
    assert!(error.is_unreachable(), "{error:?}");
    assert!(matches!(backend.status().state, BackendState::Down { .. }));
}

#[tokio::test]
async fn requests_beyond_running_and_waiting_are_refused() {
    let mut server = Server::start(|seen| modern(seen).unwrap_or(Reply::Hang)).await;
    let mut settings = settings(server.transport());
    settings.limits.concurrency = 2;
    let backend = start(settings);
    revision(&backend).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let backend = Arc::clone(&backend);
        calls.spawn(async move { backend.request(call("x/y", "")).await });
        server.next_of("x/y").await;
    }
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut request = backend.request(call("x/y", ""));
        assert!((&mut request).now_or_never().is_none());
        waiting.push(request);
    }
    assert_eq!(
        ask(&backend, "x/y", "").await,
        Err(BackendError::Busy { limit: 2 })
    );
    assert_eq!(server.count("x/y"), 0);
    // A call that ends makes room for a waiting one.
    calls.shutdown().await;
    let next = waiting.swap_remove(0);
    tokio::select! {
        outcome = next => panic!("{outcome:?}"),
        _ = server.next_of("x/y") => {}
    }
}
