//! Determines the era of HTTP servers, and notices changes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_backend::EraChoice;
use fanlight_canonical::{BackendClient, BackendError, CallContext};
use fanlight_protocol::Era;

use crate::support::server::{Reply, Seen, Server, event, legacy, modern, ok, status};
use crate::support::{ask, call, revision, settings, start};

async fn revision_of(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> &'static str {
    let server = Server::start(answer).await;
    revision(&start(settings(server.transport()))).await
}

/// The answer to `initialize` with the next session: `s1`, `s2` and so on.
fn next_session(seen: &Seen, begun: &AtomicUsize) -> Reply {
    let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
    legacy(seen, &format!("s{number}")).unwrap()
}

#[tokio::test]
async fn server_with_a_discovery_is_modern() {
    let mut server = Server::start(|seen| modern(seen).unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    assert_eq!(revision(&backend).await, "2026-07-28");
    assert_eq!(backend.status().era, Some(Era::Modern));
    let probe = server.next().await;
    assert_eq!(probe.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(probe.header("mcp-method"), Some("server/discover"));
    assert_eq!(
        probe.header("accept"),
        Some("application/json, text/event-stream")
    );
    let meta = probe.params().get("_meta").unwrap();
    assert_eq!(
        meta.get("io.modelcontextprotocol/clientCapabilities")
            .unwrap()
            .as_text(),
        "{}"
    );
    assert_eq!(
        meta.get("io.modelcontextprotocol/clientInfo")
            .unwrap()
            .as_text(),
        fanlight_protocol::implementation().as_text()
    );
}

#[tokio::test]
async fn server_without_a_modern_answer_is_legacy() {
    for kind in 0..7 {
        let found = revision_of(move |seen| match (kind, seen.method().as_str()) {
            (0, "server/discover") => seen.error(200, r#"{"code":-32601,"message":"m"}"#),
            (1, "server/discover") => Reply::Whole(404, String::new(), "text/html", "<p>".into()),
            (2, "server/discover") => Reply::Whole(200, String::new(), "text/html", "<p>".into()),
            (3, "server/discover") => status(500),
            (4, "server/discover") => Reply::Whole(202, String::new(), "text/plain", String::new()),
            (5, "server/discover") => Reply::Whole(
                400,
                String::new(),
                "application/json",
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"no session"},"id":null}"#
                    .into(),
            ),
            (6, "server/discover") => Reply::Close,
            _ => legacy(seen, "s").unwrap(),
        })
        .await;
        assert_eq!(found, "2025-11-25", "kind {kind}");
    }
}

/// A server may close a kept connection just as the handshake arrives.
#[tokio::test]
async fn handshake_survives_a_connection_that_ends_before_the_answer() {
    for (lost, agreed, probes) in [
        ("server/discover", "2026-07-28", 2),
        ("initialize", "2025-11-25", 1),
    ] {
        let is_lost = AtomicBool::new(false);
        let mut server = Server::start(move |seen| match seen.method().as_str() {
            method if method == lost && !is_lost.swap(true, Ordering::Relaxed) => Reply::Close,
            _ if lost == "initialize" => legacy(seen, "s").unwrap_or_else(|| status(404)),
            _ => modern(seen).unwrap_or_else(|| status(404)),
        })
        .await;
        assert_eq!(revision(&start(settings(server.transport()))).await, agreed);
        // Another attempt to connect would have sent one more probe.
        assert_eq!(server.count("server/discover"), probes, "{lost}");
    }
}

#[tokio::test]
async fn server_that_does_not_answer_the_probe_is_legacy() {
    let server = Server::start(|seen| match seen.method().as_str() {
        "server/discover" => Reply::Hang,
        _ => legacy(seen, "s").unwrap(),
    })
    .await;
    let mut settings = settings(server.transport());
    settings.timeouts.probe = Duration::from_millis(50);
    assert_eq!(revision(&start(settings)).await, "2025-11-25");
}

#[tokio::test]
async fn modern_error_that_offers_legacy_revisions_leads_to_initialize() {
    let mut server = Server::start(|seen| match seen.method().as_str() {
        "server/discover" => seen.error(
            400,
            r#"{"code":-32022,"message":"m","data":{"supported":["2025-06-18"]}}"#,
        ),
        _ => legacy(seen, "s").unwrap(),
    })
    .await;
    let _backend = start(settings(server.transport()));
    let initialize = server.next_of("initialize").await;
    assert_eq!(
        initialize
            .params()
            .get("protocolVersion")
            .unwrap()
            .as_text(),
        r#""2025-06-18""#
    );
    assert_eq!(initialize.header("mcp-protocol-version"), None);
    let initialized = server.next().await;
    assert_eq!(initialized.method(), "notifications/initialized");
    assert_eq!(initialized.header("mcp-session-id"), Some("s"));
}

#[tokio::test]
async fn modern_error_without_revisions_is_an_error() {
    let server =
        Server::start(|seen| seen.error(400, r#"{"code":-32020,"message":"odd headers"}"#)).await;
    let error = start(settings(server.transport()))
        .describe(&CallContext::internal())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("odd headers (-32020)"),
        "{error}"
    );
    let server = Server::start(|seen| {
        seen.error(
            400,
            r#"{"code":-32022,"message":"m","data":{"supported":["3000-01-01"]}}"#,
        )
    })
    .await;
    let error = start(settings(server.transport()))
        .describe(&CallContext::internal())
        .await
        .unwrap_err();
    assert_eq!(
        error,
        BackendError::NoCommonRevision {
            offered: "3000-01-01".into()
        }
    );
}

#[tokio::test]
async fn refused_credentials_are_no_verdict_on_the_era() {
    for refused in [401, 403] {
        let server = Server::start(move |_| status(refused)).await;
        let error = start(settings(server.transport()))
            .describe(&CallContext::internal())
            .await
            .unwrap_err();
        let BackendError::NotConnected { cause, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(**cause, BackendError::Unauthorized { status: refused });
    }
}

#[tokio::test]
async fn unreachable_server_is_no_verdict_on_the_era() {
    let server = Server::start(|_| Reply::Close).await;
    let mut transport = server.transport();
    if let fanlight_backend::TransportSettings::Http { url, .. } = &mut transport {
        *url = url.replace("http://", "http://me:s3cret@") + "?key=s3cret";
    }
    drop(server);
    let error = start(settings(transport))
        .describe(&CallContext::internal())
        .await
        .unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    assert!(
        error.to_string().contains("127.0.0.1") && !error.to_string().contains("s3cret"),
        "{error}"
    );
}

#[tokio::test]
async fn era_can_be_configured() {
    let mut server = Server::start(|seen| legacy(seen, "s").unwrap()).await;
    let mut fixed = settings(server.transport());
    fixed.era = EraChoice::Legacy;
    assert_eq!(revision(&start(fixed.clone())).await, "2025-11-25");
    assert_eq!(server.count("server/discover"), 0);
    fixed.era = EraChoice::Modern;
    let error = start(fixed)
        .describe(&CallContext::internal())
        .await
        .unwrap_err();
    assert_eq!(
        error,
        BackendError::Status { status: 400 }.while_connecting()
    );
    assert_eq!(server.count("initialize"), 0);
}

#[tokio::test]
async fn unknown_revisions_are_not_used() {
    let server = Server::start(|seen| match seen.method().as_str() {
        "initialize" => seen.result(r#"{"protocolVersion":"2042-01-01"}"#),
        _ => legacy(seen, "s").unwrap(),
    })
    .await;
    let error = start(settings(server.transport()))
        .describe(&CallContext::internal())
        .await
        .unwrap_err();
    assert_eq!(
        error,
        BackendError::NoCommonRevision {
            offered: "2042-01-01".into()
        }
    );
}

#[tokio::test]
async fn old_revisions_have_no_version_header() {
    for (name, header) in [("2025-03-26", None), ("2025-06-18", Some("2025-06-18"))] {
        let mut server = Server::start(move |seen| match seen.method().as_str() {
            "initialize" => seen.result(&format!(r#"{{"protocolVersion":"{name}"}}"#)),
            "tools/list" => seen.result("{}"),
            _ => legacy(seen, "s").unwrap(),
        })
        .await;
        let backend = start(settings(server.transport()));
        ask(&backend, "tools/list", "").await.unwrap();
        let list = server.next_of("tools/list").await;
        assert_eq!(
            (
                list.header("mcp-protocol-version"),
                list.header("mcp-method")
            ),
            (header, None)
        );
        assert_eq!(list.header("mcp-session-id"), None);
    }
}

#[tokio::test]
async fn lost_session_is_replaced_and_the_request_repeated() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&sessions);
    let mut server = Server::start(move |seen| match seen.method().as_str() {
        "initialize" => next_session(seen, &begun),
        method
            if !method.starts_with("notifications/")
                && seen.header("mcp-session-id") == Some("s1") =>
        {
            status(404)
        }
        "tools/call" => seen.result(r#"{"n":1.0}"#),
        _ => legacy(seen, "").unwrap(),
    })
    .await;
    let backend = start(settings(server.transport()));
    assert_eq!(
        ask(&backend, "tools/call", r#"{"name":"a"}"#)
            .await
            .unwrap(),
        r#"{"n":1.0}"#
    );
    assert_eq!(sessions.load(Ordering::SeqCst), 2);
    assert_eq!(
        server.next_of("tools/call").await.header("mcp-session-id"),
        Some("s1")
    );
    // The server rejects requests that every session allows, so it did not read the call.
    assert_eq!(server.next().await.method(), "ping");
    assert_eq!(server.next().await.method(), "tools/list");
    // The era was not in doubt, so there is no new probe.
    assert_eq!(server.next().await.method(), "initialize");
    assert_eq!(
        server.next_of("tools/call").await.header("mcp-session-id"),
        Some("s2")
    );
    assert_eq!(server.count("tools/call"), 0);
}

#[tokio::test]
async fn list_answered_by_404_is_sent_at_most_twice() {
    let mut server = Server::start(|seen| modern(seen).unwrap_or_else(|| status(404))).await;
    let backend = start(settings(server.transport()));
    assert_eq!(
        ask(&backend, "prompts/list", "").await,
        Err(BackendError::Status { status: 404 })
    );
    assert_eq!(server.count("prompts/list"), 2);
    // The era has just been confirmed, so the rejection concerns the request.
    assert_eq!(
        ask(&backend, "prompts/list", "").await,
        Err(BackendError::Status { status: 404 })
    );
    assert_eq!(server.count("prompts/list"), 1);
}

/// Requests that the server carried out, and rejects as if it had not.
#[tokio::test]
async fn rejected_call_is_sent_once_if_the_server_serves_its_era() {
    let refused =
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"No such thing"},"id":null}"#;
    for is_modern in [true, false] {
        for code in [400, 404, 405] {
            for body in ["", r#"{"detail":"no"}"#, refused] {
                for method in ["tools/call", "x/y"] {
                    let mut server = Server::start(move |seen| match seen.method().as_str() {
                        called if called == method => {
                            Reply::Whole(code, String::new(), "application/json", body.to_owned())
                        }
                        "ping" | "tools/list" => seen.result(r#"{"tools":[]}"#),
                        _ if is_modern => modern(seen).unwrap(),
                        _ => legacy(seen, "s").unwrap(),
                    })
                    .await;
                    let backend = start(settings(server.transport()));
                    for _ in 0..2 {
                        let answer = ask(&backend, method, r#"{"name":"a"}"#).await;
                        let case = format!("{code} {body} to {method}, modern: {is_modern}");
                        // A JSON-RPC error is the call's own answer, even without a request id.
                        let own = (body == refused)
                            .then(|| r#"{"code":-32000,"message":"No such thing"}"#.to_owned());
                        assert_eq!(
                            answer,
                            own.ok_or(BackendError::Status { status: code }),
                            "{case}"
                        );
                        assert_eq!(server.count(method), 1, "{case}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn call_rejected_with_404_ends_its_session_even_if_it_is_not_repeated() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&sessions);
    let server = Server::start(move |seen| match seen.method().as_str() {
        "initialize" => next_session(seen, &begun),
        "tools/call" if seen.header("mcp-session-id") == Some("s1") => status(404),
        "tools/call" | "ping" => seen.result("{}"),
        _ => legacy(seen, "").unwrap(),
    })
    .await;
    let backend = start(settings(server.transport()));
    let rejected = ask(&backend, "tools/call", "").await.unwrap_err();
    assert!(rejected.may_have_run(), "{rejected}");
    assert_eq!(ask(&backend, "tools/call", "").await.unwrap(), "{}");
    assert_eq!(sessions.load(Ordering::SeqCst), 2);
}

/// An error without a request id, as from servers that do not know a session.
const FORGOTTEN: &str =
    r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#;

/// An error for the request itself.
const REFUSED: &str = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"},"id":ID}"#;

#[tokio::test]
async fn call_that_ran_is_not_repeated_whatever_its_answer_says_of_a_session() {
    for (code, kind, body, new_sessions) in [
        (400, "application/json", FORGOTTEN, 0),
        (404, "application/json", FORGOTTEN, 1),
        (200, "application/json", FORGOTTEN, 0),
        (
            400,
            "text/plain",
            "checkout failed: your shopping session has expired",
            0,
        ),
        (404, "text/plain", "No such SESSION", 1),
        (410, "text/plain", "session gone", 0),
        (500, "text/plain", "unknown session", 0),
    ] {
        let (sessions, ledger) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begun, ran) = (Arc::clone(&sessions), Arc::clone(&ledger));
        let server = Server::start(move |seen| match seen.method().as_str() {
            "initialize" => next_session(seen, &begun),
            "tools/call" => {
                ran.fetch_add(1, Ordering::SeqCst);
                Reply::Whole(code, String::new(), kind, body.to_owned())
            }
            "ping" | "prompts/list" => seen.result("{}"),
            _ => legacy(seen, "").unwrap(),
        })
        .await;
        let backend = start(settings(server.transport()));
        let outcome = backend.request(call("tools/call", "")).await;
        assert_eq!(
            ledger.load(Ordering::SeqCst),
            1,
            "{code} {body}: {outcome:?}"
        );
        match kind {
            "application/json" => {
                let error = outcome.unwrap().error().unwrap();
                assert_eq!(
                    error.as_text(),
                    r#"{"code":-32001,"message":"Session not found"}"#
                );
            }
            _ => assert!(outcome.unwrap_err().may_have_run()),
        }
        // 404 demands a new session for later calls.
        ask(&backend, "prompts/list", "").await.unwrap();
        assert_eq!(
            sessions.load(Ordering::SeqCst),
            1 + new_sessions,
            "{code} {body}"
        );
    }
}

#[tokio::test]
async fn call_of_a_server_that_forgot_the_session_is_repeated_whatever_the_status() {
    for (code, kind, body) in [
        (400, "text/plain", "Bad Request"),
        (404, "text/plain", ""),
        (400, "application/json", FORGOTTEN),
        (200, "application/json", FORGOTTEN),
        (404, "application/json", FORGOTTEN),
        (404, "application/json", REFUSED),
        (400, "application/json", REFUSED),
        (422, "application/json", REFUSED),
        (500, "application/json", FORGOTTEN),
        (401, "text/plain", "Unauthorized: Session not found"),
        (401, "text/plain", ""),
        (403, "application/json", FORGOTTEN),
        (404, "text/event-stream", "data: {}\n\n"),
        (410, "text/plain", "Gone"),
        (422, "text/plain", "expect initialize request"),
        (500, "text/html", "<p>Unknown session"),
        (
            503,
            "application/json",
            r#"{"detail":"Invalid session ID"}"#,
        ),
    ] {
        let (sessions, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begun, runs) = (Arc::clone(&sessions), Arc::clone(&ran));
        let mut server = Server::start(move |seen| match seen.method().as_str() {
            "initialize" => next_session(seen, &begun),
            method
                if !method.starts_with("notifications/")
                    && seen.header("mcp-session-id") == Some("s1") =>
            {
                let body = body.replace("ID", &seen.id());
                Reply::Whole(code, String::new(), kind, body)
            }
            "tools/call" => {
                runs.fetch_add(1, Ordering::SeqCst);
                seen.result("{}")
            }
            _ => legacy(seen, "").unwrap(),
        })
        .await;
        let backend = start(settings(server.transport()));
        let answer = ask(&backend, "tools/call", "").await;
        assert_eq!(answer.as_deref(), Ok("{}"), "{code} {body}");
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        // The probe used the session in question.
        let probe = server.next_of("ping").await;
        assert_eq!(probe.header("mcp-session-id"), Some("s1"));
    }
}

#[tokio::test]
async fn call_that_ended_with_its_session_is_not_repeated() {
    const ENDED: &str = r#""error":{"code":-32001,"message":"Session terminated"}"#;
    for is_stream in [false, true] {
        let (sessions, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begun, runs) = (Arc::clone(&sessions), Arc::clone(&ran));
        let server = Server::start(move |seen| match seen.method().as_str() {
            "initialize" => next_session(seen, &begun),
            "tools/call" => {
                runs.fetch_add(1, Ordering::SeqCst);
                let id = if is_stream {
                    "null".to_owned()
                } else {
                    seen.id()
                };
                let text = format!(r#"{{"jsonrpc":"2.0","id":{id},{ENDED}}}"#);
                if is_stream {
                    Reply::Open(event(&text))
                } else {
                    ok(text)
                }
            }
            method
                if !method.starts_with("notifications/")
                    && seen.header("mcp-session-id") == Some("s1") =>
            {
                Reply::Whole(404, String::new(), "text/plain", String::new())
            }
            _ => legacy(seen, "").unwrap_or_else(|| seen.result("{}")),
        })
        .await;
        let backend = start(settings(server.transport()));
        let answer = ask(&backend, "tools/call", "").await;
        assert!(answer.unwrap().contains("Session terminated"));
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        // Later requests get a new session.
        ask(&backend, "prompts/list", "").await.unwrap();
        assert_eq!(sessions.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn session_is_replaced_if_every_request_in_it_fails_in_any_way() {
    const UNKNOWN: &str = r#"{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid request parameters"},"id":ID}"#;
    for (code, body) in [(200, UNKNOWN), (200, ""), (202, ""), (204, "")] {
        let sessions = Arc::new(AtomicUsize::new(0));
        let ran = Arc::new(AtomicUsize::new(0));
        let (begun, runs) = (Arc::clone(&sessions), Arc::clone(&ran));
        let server = Server::start(move |seen| match seen.method().as_str() {
            "initialize" => next_session(seen, &begun),
            method
                if !method.starts_with("notifications/")
                    && seen.header("mcp-session-id") == Some("s1") =>
            {
                runs.fetch_add(usize::from(method == "tools/call"), Ordering::SeqCst);
                let body = body.replace("ID", &seen.id());
                Reply::Whole(code, String::new(), "application/json", body)
            }
            _ => legacy(seen, "").unwrap_or_else(|| seen.result("{}")),
        })
        .await;
        for methods in [
            &["prompts/list"][..],
            &["tools/call", "tools/call", "tools/call"],
        ] {
            sessions.store(0, Ordering::SeqCst);
            ran.store(0, Ordering::SeqCst);
            let backend = start(settings(server.transport()));
            let mut last = None;
            for method in methods {
                last = Some(ask(&backend, method, "").await);
            }
            assert_eq!(last.unwrap().as_deref(), Ok("{}"), "{code} {body}");
            assert_eq!(sessions.load(Ordering::SeqCst), 2, "{code} {body}");
            // No call is sent again.
            assert_eq!(ran.load(Ordering::SeqCst), methods.len() - 1);
        }
    }
}

#[tokio::test]
async fn session_is_kept_if_only_calls_fail_in_it() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&sessions);
    let server = Server::start(move |seen| match seen.method().as_str() {
        "initialize" => next_session(seen, &begun),
        "tools/call" => ok(REFUSED.replace("ID", &seen.id())),
        _ => legacy(seen, "").unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let backend = start(settings(server.transport()));
    for _ in 0..4 {
        let answer = backend.request(call("tools/call", "")).await.unwrap();
        assert_eq!(answer.error_code(), Some(-32600));
    }
    assert_eq!(sessions.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn failing_server_gets_a_new_session_but_no_call_twice() {
    let (failing, ran) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (fails, runs) = (Arc::clone(&failing), Arc::clone(&ran));
    let server = Server::start(move |seen| match seen.method().as_str() {
        "server/discover" | "initialize" | "notifications/initialized" => {
            legacy(seen, "s").unwrap()
        }
        "tools/call" if runs.fetch_add(1, Ordering::SeqCst) > 0 => seen.result("{}"),
        _ if fails.load(Ordering::SeqCst) => status(500),
        _ => legacy(seen, "s").unwrap(),
    })
    .await;
    let backend = start(settings(server.transport()));
    let failed = ask(&backend, "tools/call", "").await.unwrap_err();
    assert!(failed.may_have_run(), "{failed}");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    failing.store(false, Ordering::SeqCst);
    assert_eq!(ask(&backend, "tools/call", "").await.unwrap(), "{}");
}

#[tokio::test]
async fn redirect_within_the_origin_is_followed() {
    for code in [307, 308] {
        let mut server = Server::start(move |seen| match seen.target.as_str() {
            "/mcp" => {
                let to = "Location: /mcp/?k=1\r\n".to_owned();
                Reply::Whole(code, to, "text/plain", String::new())
            }
            "/mcp/?k=1" if seen.method() == "tools/call" => {
                let to = "Location: b\r\n".to_owned();
                Reply::Whole(code, to, "text/plain", String::new())
            }
            _ if seen.method() == "tools/call" => seen.result(r#"{"n":1}"#),
            _ => legacy(seen, "s").unwrap(),
        })
        .await;
        let backend = start(settings(server.transport()));
        let answer = ask(&backend, "tools/call", "").await;
        assert_eq!(answer.as_deref(), Ok(r#"{"n":1}"#), "{code}");
        let calls = [
            server.next_of("tools/call").await,
            server.next_of("tools/call").await,
        ];
        assert_eq!(calls.map(|call| call.target), ["/mcp/?k=1", "/mcp/b"]);
    }
    // Where the server redirects to may change.
    let moved = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&moved);
    let server = Server::start(move |seen| {
        let is_moved = now.load(Ordering::SeqCst);
        match seen.target.as_str() {
            "/mcp" => {
                let to = format!("Location: /{}\r\n", if is_moved { "new" } else { "old" });
                Reply::Whole(307, to, "text/plain", String::new())
            }
            "/old" if is_moved => status(502),
            _ if seen.method() == "tools/call" => seen.result("{}"),
            _ => modern(seen).unwrap(),
        }
    })
    .await;
    let backend = start(settings(server.transport()));
    assert_eq!(ask(&backend, "tools/call", "").await.as_deref(), Ok("{}"));
    moved.store(true, Ordering::SeqCst);
    assert!(ask(&backend, "tools/call", "").await.is_err());
    assert_eq!(ask(&backend, "tools/call", "").await.as_deref(), Ok("{}"));
    let server = Server::start(|_| {
        let to = "Location: /mcp\r\n".to_owned();
        Reply::Whole(307, to, "text/plain", String::new())
    })
    .await;
    let error = start(settings(server.transport()))
        .describe(&CallContext::internal())
        .await
        .unwrap_err();
    let shown = error.for_clients().to_string();
    assert!(shown.contains("redirects, perhaps in a circle"), "{shown}");
}

#[tokio::test]
async fn era_doubt_of_one_request_does_not_end_the_session_of_another() {
    let refused = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"},"id":null}"#;
    let mut server = Server::start(move |seen| match seen.method().as_str() {
        "tools/call" => Reply::Hang,
        "prompts/list" => Reply::Whole(400, String::new(), "application/json", refused.to_owned()),
        _ => legacy(seen, "s").unwrap(),
    })
    .await;
    let backend = start(settings(server.transport()));
    let running = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { ask(&backend, "tools/call", "").await }
    });
    server.next_of("tools/call").await;
    assert_eq!(
        ask(&backend, "prompts/list", "").await,
        Err(BackendError::Status { status: 400 })
    );
    running.abort();
    let mut closed = false;
    loop {
        match server.next().await.verb.as_str() {
            "closed" => closed = true,
            "DELETE" => break assert!(closed, "the session was ended under a running call"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn server_that_changes_its_era_is_probed_again() {
    let upgraded = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&upgraded);
    let mut server =
        Server::start(
            move |seen| match (now.load(Ordering::SeqCst), seen.method().as_str()) {
                (true, "tools/list") if seen.header("mcp-method").is_some() => {
                    seen.result(r#"{"tools":[]}"#)
                }
                (true, "tools/list" | "initialize") => status(400),
                (true, _) => modern(seen).unwrap_or_else(|| status(400)),
                (false, "tools/list") => seen.result(r#"{"old":true}"#),
                (false, _) => legacy(seen, "s").unwrap(),
            },
        )
        .await;
    let backend = start(settings(server.transport()));
    assert_eq!(
        ask(&backend, "tools/list", "").await.unwrap(),
        r#"{"old":true}"#
    );
    upgraded.store(true, Ordering::SeqCst);
    server.count("");
    assert_eq!(
        ask(&backend, "tools/list", "").await.unwrap(),
        r#"{"tools":[]}"#
    );
    assert_eq!(backend.status().revision, Some("2026-07-28"));
    assert_eq!(server.count("tools/list"), 2);
}

#[tokio::test]
async fn modern_server_that_drops_the_revision_is_probed_again() {
    let downgraded = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&downgraded);
    let server =
        Server::start(
            move |seen| match (now.load(Ordering::SeqCst), seen.method().as_str()) {
                (true, "tools/list") if seen.header("mcp-session-id").is_none() => seen.error(
                    400,
                    r#"{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}"#,
                ),
                (_, "tools/list") => seen.result("{}"),
                (true, _) => legacy(seen, "s").unwrap(),
                (false, _) => modern(seen).unwrap(),
            },
        )
        .await;
    let backend = start(settings(server.transport()));
    ask(&backend, "tools/list", "").await.unwrap();
    downgraded.store(true, Ordering::SeqCst);
    assert_eq!(ask(&backend, "tools/list", "").await.unwrap(), "{}");
    assert_eq!(backend.status().era, Some(Era::Legacy));
}
