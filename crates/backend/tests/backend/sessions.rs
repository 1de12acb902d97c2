//! Shared connections of clients to a server, and the lifetime of a client's own connection.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fanlight_backend::{Backend, SessionPolicy};
use fanlight_canonical::{BackendClient, BackendError, CallContext, Caller, Principal, SessionKey};
use fanlight_protocol::meta::LogLevel;
use fanlight_testkit::scripted::{self, Fault};

use crate::support::child::{Child, exists};
use crate::support::server::{Reply, Seen, Server, event, legacy, modern, status};
use crate::support::{
    PATIENCE, call, json, listening, of_session, revision, send, settings, start,
};

/// A legacy server whose sessions are `s0` (the base one), `s1` and so on.
pub(crate) async fn numbering(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Server {
    let sessions = AtomicUsize::new(0);
    Server::start(move |seen| {
        let is_initialize = seen.method() == "initialize";
        let number = if is_initialize {
            sessions.fetch_add(1, Ordering::Relaxed)
        } else {
            0
        };
        legacy(seen, &format!("s{number}")).unwrap_or_else(|| answer(seen))
    })
    .await
}

async fn ask_as(backend: &Backend, session: u64, method: &str) -> Result<String, BackendError> {
    send(
        backend,
        listening(call(method, ""), of_session(session, "{}")).0,
    )
    .await
}

#[tokio::test]
async fn each_client_session_is_initialized_with_its_own_capabilities() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let backend = start(settings(server.transport()));
    let capabilities = r#"{ "roots" : {"x":1.0} }"#;
    let (first, _inbox) = listening(call("x/y", ""), |context| {
        of_session(1, capabilities)(context);
        context.client_info = Some(json(r#"{"name":"\u0041"}"#));
    });
    send(&backend, first).await.unwrap();
    let base = server.next_of("initialize").await;
    assert_eq!(base.params().get("capabilities").unwrap().as_text(), "{}");
    let own = server.next_of("initialize").await;
    assert_eq!(
        own.params().get("capabilities").unwrap().as_text(),
        capabilities
    );
    assert_eq!(
        own.params().get("clientInfo").unwrap().as_text(),
        r#"{"name":"\u0041"}"#
    );
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some("s1")
    );
    // A session without capabilities still has its own session: state must not leak.
    ask_as(&backend, 2, "x/y").await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some("s2")
    );
    ask_as(&backend, 1, "x/y").await.unwrap();
    let again = server.next().await;
    assert_eq!(
        (again.method().as_str(), again.header("mcp-session-id")),
        ("x/y", Some("s1"))
    );
    assert_eq!(server.count("server/discover"), 0);
}

#[tokio::test]
async fn log_level_of_one_client_does_not_affect_another() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let backend = start(settings(server.transport()));
    for (session, level) in [
        (1, Some(LogLevel::Debug)),
        (2, None),
        (3, Some(LogLevel::Error)),
    ] {
        let (call, _inbox) = listening(call("x/y", ""), |context| {
            of_session(session, "{}")(context);
            context.log_level = level;
        });
        send(&backend, call).await.unwrap();
    }
    for (session, level) in [("s1", "debug"), ("s3", "error")] {
        let set = server.next_of("logging/setLevel").await;
        assert_eq!(set.header("mcp-session-id"), Some(session));
        assert_eq!(
            set.params().get("level").unwrap().as_str().as_deref(),
            Some(level)
        );
    }
}

#[tokio::test]
async fn clients_without_a_session_share_one_by_capabilities() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let backend = start(settings(server.transport()));
    for (capabilities, session) in [
        ("{}", "s0"),
        (r#"{"roots":{}}"#, "s1"),
        (r#"{"roots":{}}"#, "s1"),
        (r#"{"sampling":{}}"#, "s2"),
    ] {
        let (call, _inbox) = listening(call("x/y", ""), |context| {
            context.capabilities = json(capabilities);
            context.client_info = Some(json(r#"{"name":"one of them"}"#));
        });
        send(&backend, call).await.unwrap();
        assert_eq!(
            server.next_of("x/y").await.header("mcp-session-id"),
            Some(session),
            "{capabilities}"
        );
    }
}

#[tokio::test]
async fn pooled_sessions_name_no_single_client() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let backend = start(settings(server.transport()));
    let (call, _inbox) = listening(call("x/y", ""), |context| {
        context.capabilities = json(r#"{"roots":{}}"#);
        context.client_info = Some(json(r#"{"name":"one of them"}"#));
    });
    send(&backend, call).await.unwrap();
    server.next_of("initialize").await;
    let pooled = server.next_of("initialize").await;
    assert_eq!(
        pooled.params().get("clientInfo").unwrap().as_text(),
        fanlight_protocol::implementation().as_text()
    );
}

#[tokio::test]
async fn modern_server_and_shared_session_have_one_connection_for_all() {
    let mut server = Server::start(|seen| modern(seen).unwrap_or_else(|| seen.result("{}"))).await;
    let backend = start(settings(server.transport()));
    for session in 1..=3 {
        ask_as(&backend, session, "x/y").await.unwrap();
    }
    assert_eq!(server.count("server/discover"), 1);

    let mut server = numbering(|seen| seen.result("{}")).await;
    let mut settings = settings(server.transport());
    settings.sessions = SessionPolicy::Shared;
    let backend = start(settings);
    for session in 1..=3 {
        ask_as(&backend, session, "x/y").await.unwrap();
        assert_eq!(
            server.next_of("x/y").await.header("mcp-session-id"),
            Some("s0")
        );
    }
}

#[tokio::test]
async fn end_of_a_client_session_ends_its_server_session_only() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let backend = start(settings(server.transport()));
    ask_as(&backend, 1, "x/y").await.unwrap();
    ask_as(&backend, 2, "x/y").await.unwrap();
    backend.end_session(SessionKey(1));
    backend.end_session(SessionKey(7));
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some("s1")
    );
    ask_as(&backend, 2, "x/y").await.unwrap();
    assert_eq!(server.next().await.header("mcp-session-id"), Some("s2"));
    ask_as(&backend, 1, "x/y").await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some("s3")
    );
    backend.stop().await;
    let mut ended = Vec::new();
    while ended.len() < 3 {
        ended.push(
            server
                .next_of("DELETE")
                .await
                .header("mcp-session-id")
                .unwrap()
                .to_owned(),
        );
    }
    ended.sort();
    assert_eq!(ended, ["s0", "s2", "s3"]);
}

#[tokio::test]
async fn idle_sessions_expire() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let mut settings = settings(server.transport());
    settings.timeouts.session_idle = Duration::from_millis(50);
    let backend = start(settings);
    ask_as(&backend, 1, "x/y").await.unwrap();
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some("s1")
    );
    ask_as(&backend, 1, "x/y").await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some("s2")
    );
}

#[tokio::test]
async fn longest_idle_session_is_closed_at_the_limit() {
    let mut server = numbering(|seen| {
        if seen.method() == "x/wait" {
            Reply::Hang
        } else {
            seen.result("{}")
        }
    })
    .await;
    let mut settings = settings(server.transport());
    settings.limits.sessions = 2;
    let backend = start(settings);
    ask_as(&backend, 1, "x/y").await.unwrap();
    ask_as(&backend, 2, "x/y").await.unwrap();
    ask_as(&backend, 1, "x/y").await.unwrap();
    ask_as(&backend, 3, "x/y").await.unwrap();
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some("s2")
    );
    let busy = async { tokio::join!(ask_as(&backend, 1, "x/wait"), ask_as(&backend, 3, "x/wait")) };
    let refused = async {
        server.next_of("x/wait").await;
        server.next_of("x/wait").await;
        ask_as(&backend, 4, "x/y").await
    };
    tokio::select! {
        outcome = busy => panic!("{outcome:?}"),
        refused = refused => assert_eq!(refused, Err(BackendError::TooManySessions { limit: 2 })),
    }
}

#[tokio::test]
async fn session_forgotten_by_the_server_is_opened_again() {
    let forgot = AtomicUsize::new(0);
    let mut server = numbering(move |seen| match seen.header("mcp-session-id") {
        Some("s1") if forgot.fetch_add(1, Ordering::Relaxed) >= 1 => status(404),
        _ => seen.result("{}"),
    })
    .await;
    let backend = start(settings(server.transport()));
    let ask = async || {
        send(
            &backend,
            listening(call("x/y", ""), of_session(1, r#"{"roots":{}}"#)).0,
        )
        .await
    };
    ask().await.unwrap();
    ask().await.unwrap();
    let mut initialized = Vec::new();
    while initialized.len() < 3 {
        let initialize = server.next_of("initialize").await;
        initialized.push(
            initialize
                .params()
                .get("capabilities")
                .unwrap()
                .as_text()
                .to_owned(),
        );
    }
    assert_eq!(initialized, ["{}", r#"{"roots":{}}"#, r#"{"roots":{}}"#]);
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some("s2")
    );
}

async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, holds).await.expect("never");
}

#[tokio::test]
async fn each_client_session_has_a_process_of_its_own() {
    let child = Child::legacy().await;
    let counts = Mutex::new(HashMap::<u32, u32>::new());
    let count = scripted::Reply::compute(move |request| {
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(request.process.unwrap()).or_default();
        *count += 1;
        format!(r#"{{"count":{count}}}"#)
    });
    child.on("test/count", count);
    child.on("test/exit", scripted::Reply::fault(Fault::Die(0)));
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let count = async |session| ask_as(&backend, session, "test/count").await.unwrap();
    assert_eq!(
        (count(1).await, count(1).await),
        (r#"{"count":1}"#.into(), r#"{"count":2}"#.into())
    );
    assert_eq!(count(2).await, r#"{"count":1}"#);
    let processes = child.started();
    assert_eq!(processes.len(), 3);
    backend.end_session(SessionKey(1));
    until(|| !exists(processes[1])).await;
    assert!(exists(processes[0]) && exists(processes[2]));
    // A process that has ended starts again when needed.
    ask_as(&backend, 2, "test/exit").await.unwrap_err();
    assert_eq!(count(2).await, r#"{"count":1}"#);
    assert_eq!(child.count("initialize"), 4);
    backend.stop().await;
    assert!(child.started().into_iter().all(|process| !exists(process)));
}

#[tokio::test]
async fn process_that_cannot_start_fails_its_client_only() {
    let child = Child::legacy().await;
    let handshake = r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;
    let unless_bad =
        scripted::Reply::chosen(
            move |request| match request.member("params.capabilities.bad") {
                Some(_) => scripted::Reply::fault(Fault::Die(1)),
                None => scripted::Reply::result(handshake),
            },
        );
    child.on("initialize", unless_bad);
    child.on("test/x", scripted::Reply::result("{}"));
    let backend = start(settings(child.transport()));
    let ask = async |session, capabilities| {
        send(
            &backend,
            listening(call("test/x", ""), of_session(session, capabilities)).0,
        )
        .await
    };
    let error = ask(1, r#"{"bad":{}}"#).await.unwrap_err();
    let BackendError::NotConnected { cause, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(**cause, BackendError::Exited { .. }), "{cause:?}");
    assert_eq!(ask(2, "{}").await.unwrap(), "{}");
    assert_eq!(ask(1, r#"{"bad":{}}"#).await.unwrap_err(), error);
    revision(&backend).await;
    backend.stop().await;
}

#[tokio::test]
async fn lists_are_read_with_all_capabilities() {
    let server = Server::start(|seen| {
        let session = if seen.params().as_text().contains("elicitation") {
            "asks"
        } else {
            "plain"
        };
        let of = || seen.header("mcp-session-id").unwrap_or_default().to_owned();
        legacy(seen, session).unwrap_or_else(|| seen.result(&format!(r#"{{"of":"{}"}}"#, of())))
    })
    .await;
    let mut settings = settings(server.transport());
    settings.catalogue = true;
    let backend = start(settings);
    let of = |call| send(&backend, call);
    let mut list = call("tools/list", "");
    list.context = CallContext::for_lists(&Default::default());
    assert_eq!(of(list).await.unwrap(), r#"{"of":"asks"}"#);
    // A client's call must not lead to requests that the client has not declared.
    let (plain, _inbox) = listening(call("tools/call", "{}"), |context| {
        context.caller = crate::support::client(7);
    });
    assert_eq!(of(plain).await.unwrap(), r#"{"of":"plain"}"#);
}

#[tokio::test]
async fn server_request_on_the_base_connection_is_refused() {
    let mut server = Server::start(|seen| {
        let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, seen.id());
        let stream = || Reply::Stream(format!("{}{}", event(question), event(&answer)));
        legacy(seen, "s").unwrap_or_else(|| {
            if seen.method().is_empty() {
                status(202)
            } else {
                stream()
            }
        })
    })
    .await;
    let mut settings = settings(server.transport());
    settings.catalogue = true;
    let backend = start(settings);
    let mut list = call("tools/list", "");
    list.context = CallContext::for_lists(&Default::default());
    assert_eq!(send(&backend, list).await.unwrap(), "{}");
    let refused = server.next_of("").await.body;
    assert!(
        refused.contains(r#""id":"q""#) && refused.contains("-32601"),
        "{refused}"
    );
}

/// Two principals, and a client of each, with this session or without one.
fn callers(session: Option<u64>) -> [Caller; 2] {
    ["ann", "bob"].map(|subject| {
        let principal = Principal::new("https://issuer.example", subject);
        match session {
            Some(session) => Caller::session_of(principal, SessionKey(session)),
            None => Caller::request_of(principal),
        }
    })
}

async fn ask_for(backend: &Backend, caller: &Caller, capabilities: &str) {
    let (call, _messages) = listening(call("x/y", ""), |context| {
        context.caller = caller.clone();
        context.capabilities = json(capabilities);
    });
    send(backend, call).await.unwrap();
}

#[tokio::test]
async fn principals_share_no_session_of_a_legacy_http_server() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let backend = start(settings(server.transport()));
    let mut sessions = vec!["s0".to_owned()];
    let anonymous = Caller::request_of(Principal::anonymous());
    ask_for(&backend, &anonymous, "{}").await;
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some("s0")
    );
    for session in [None, Some(7)] {
        for capabilities in ["{}", r#"{"roots":{}}"#] {
            for caller in callers(session) {
                let mut used = Vec::new();
                for _ in 0..2 {
                    ask_for(&backend, &caller, capabilities).await;
                    used.push(
                        server
                            .next_of("x/y")
                            .await
                            .header("mcp-session-id")
                            .unwrap()
                            .to_owned(),
                    );
                }
                assert_eq!(used[0], used[1], "a principal keeps its session");
                // A client with a session has its own one, whatever its capabilities.
                if session.is_none() || capabilities == "{}" {
                    assert!(!sessions.contains(&used[0]), "{used:?} of {sessions:?}");
                }
                sessions.push(used.remove(0));
            }
        }
    }
    backend.end_session(SessionKey(7));
    let ended = [
        server.next_of("DELETE").await,
        server.next_of("DELETE").await,
    ];
    let ended = ended.map(|seen| seen.header("mcp-session-id").unwrap().to_owned());
    assert!(ended.iter().all(|session| sessions.contains(session)) && ended[0] != ended[1]);
}

#[tokio::test]
async fn principals_share_no_child_process_of_a_legacy_server() {
    let child = Child::legacy().await;
    child.on("x/y", scripted::Reply::result("{}"));
    let backend = start(settings(child.transport()));
    for (session, processes) in [(None, 3), (Some(7), 5)] {
        for caller in callers(session).iter().chain(&callers(session)) {
            if session.is_some() {
                ask_for(&backend, caller, "{}").await;
            } else {
                // Capabilities decide for clients without a session, so both calls of a principal
                // use the same ones.
                ask_for(&backend, caller, r#"{"roots":{}}"#).await;
            }
        }
        assert_eq!(
            child.started().len(),
            processes,
            "the base process and one for each principal"
        );
    }
}
