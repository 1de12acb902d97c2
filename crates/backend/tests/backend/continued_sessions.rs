//! Sessions at a legacy server that another process opened for a client's session.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fanlight_backend::{Backend, BackendSettings, Secret, TransportSettings};
use fanlight_canonical::{
    BackendClient, Call, CallContext, Caller, Interest, Keeping, Principal, ServerSession,
    ServerSessions, SessionKeeper, SessionKey,
};
use tokio::sync::{Notify, watch};

use crate::sessions::numbering;
use crate::support::server::{Reply, Server, legacy, modern, status};
use crate::support::{call, json, listen, listening, send, settings, start};

/// A client's session from the view of one process.
fn client(key: u64, sessions: &Arc<ServerSessions>) -> impl FnOnce(&mut CallContext) + use<> {
    let sessions = Arc::clone(sessions);
    move |context| {
        let caller = Caller::session_of(Principal::new("issuer", "ann"), SessionKey(key));
        context.caller = caller.with_server_sessions(Some(sessions));
        context.capabilities = json("{}");
    }
}

fn request(key: u64, sessions: &Arc<ServerSessions>) -> Call {
    listening(call("x/y", ""), client(key, sessions)).0
}

/// The session of a client that can be asked, so that the server's stream outside of calls is read.
fn askable(key: u64, sessions: &Arc<ServerSessions>) -> impl FnOnce(&mut CallContext) + use<> {
    let client = client(key, sessions);
    move |context| {
        client(context);
        context.capabilities = json(r#"{"roots":{}}"#);
    }
}

/// The same sessions, as another process finds them in the record.
fn found(sessions: &ServerSessions) -> Arc<ServerSessions> {
    Arc::new(ServerSessions::continuing(sessions.entries()))
}

/// The session that one process opened with its first request.
async fn opened(backend: &Backend, server: &mut Server) -> (Arc<ServerSessions>, String) {
    let sessions = Arc::new(ServerSessions::default());
    send(backend, request(1, &sessions)).await.unwrap();
    let session = server
        .next_of("x/y")
        .await
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    assert_eq!(sessions.entries().len(), 1);
    (sessions, session)
}

#[tokio::test]
async fn session_of_another_process_goes_on_without_initialize_and_ends_with_the_clients() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let (first, second) = (
        start(settings(server.transport())),
        start(settings(server.transport())),
    );
    let (sessions, session) = opened(&first, &mut server).await;
    let (at_second, mut ids) = (found(&sessions), Vec::new());
    sessions.leave();
    first.stop().await;
    // Only the base connection's session ends.
    assert_ne!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some(&*session)
    );
    second.continue_session(&request(9, &at_second).context);
    for _ in 0..2 {
        send(&second, request(9, &at_second)).await.unwrap();
        let seen = server
            .next_where(|seen| seen.method() == "x/y" || seen.verb == "DELETE")
            .await;
        assert_eq!(seen.header("mcp-session-id"), Some(&*session));
        assert_eq!(seen.header("mcp-protocol-version"), Some("2025-11-25"));
        ids.push(seen.id());
    }
    // Some servers read ids as 32-bit numbers.
    assert_eq!(
        ids,
        [(1 << 24) + 1, (1 << 24) + 2].map(|id: i64| id.to_string())
    );
    second.end_session(SessionKey(9));
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some(&*session)
    );
    assert!(at_second.is_empty());
}

#[tokio::test]
async fn session_of_another_process_that_nothing_was_sent_in_ends_with_the_clients() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let (first, second) = (
        start(settings(server.transport())),
        start(settings(server.transport())),
    );
    let (sessions, session) = opened(&first, &mut server).await;
    let at_second = found(&sessions);
    second.continue_session(&request(9, &at_second).context);
    second.end_session(SessionKey(9));
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some(&*session)
    );
}

#[tokio::test]
async fn session_of_another_process_is_found_by_the_first_request_and_replaced_where_it_is_forgotten()
 {
    let mut server = numbering(|seen| match seen.header("mcp-session-id") {
        Some("forgotten") => status(404),
        _ => seen.result("{}"),
    })
    .await;
    let (first, second) = (
        start(settings(server.transport())),
        start(settings(server.transport())),
    );
    let (sessions, session) = opened(&first, &mut server).await;
    let renamed = sessions.entries().into_iter().map(|(place, session)| {
        (
            place,
            ServerSession {
                id: "forgotten".into(),
                ..session
            },
        )
    });
    let (known, forgotten) = (
        found(&sessions),
        Arc::new(ServerSessions::continuing(renamed)),
    );
    send(&second, request(7, &known)).await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some(&*session)
    );
    send(&second, request(8, &forgotten)).await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some("forgotten")
    );
    let next = server
        .next_of("x/y")
        .await
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    assert!(next != session && next != "forgotten");
    let on_record = forgotten.entries();
    assert_eq!((&*on_record[0].1.id, on_record.len()), (&*next, 1));
}

#[tokio::test]
async fn session_that_is_lost_again_is_not_continued() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let (first, second) = (
        start(settings(server.transport())),
        start(settings(server.transport())),
    );
    let (sessions, session) = opened(&first, &mut server).await;
    let at_second = found(&sessions);
    at_second.leave();
    second.continue_session(&request(9, &at_second).context);
    send(&second, request(9, &at_second)).await.unwrap();
    assert_ne!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some(&*session)
    );
    second.end_session(SessionKey(9));
    second.stop().await;
    while let Some(seen) = server.try_next() {
        assert_ne!(seen.header("mcp-session-id"), Some(&*session), "{seen:?}");
    }
}

/// A server may still count the ended process's stream for a while, and allow only one.
#[tokio::test]
async fn stream_of_a_continued_session_is_opened_once_the_server_has_noticed_the_end_of_the_last() {
    let refusals = AtomicUsize::new(0);
    let mut server = numbering(move |seen| match &*seen.verb {
        "GET" if refusals.fetch_add(1, Ordering::Relaxed) < 2 => status(409),
        "GET" => Reply::Open(String::new()),
        _ => seen.result("{}"),
    })
    .await;
    let (first, second) = (
        start(settings(server.transport())),
        start(settings(server.transport())),
    );
    let (sessions, session) = opened(&first, &mut server).await;
    second.continue_session(
        &listening(call("x/y", ""), askable(9, &found(&sessions)))
            .0
            .context,
    );
    for _ in 0..3 {
        assert_eq!(
            server.next_of("GET").await.header("mcp-session-id"),
            Some(&*session)
        );
    }
}

#[tokio::test]
async fn continued_session_whose_stream_the_server_does_not_know_is_replaced() {
    let forgotten = Arc::new(OnceLock::<String>::new());
    let is_forgotten = Arc::clone(&forgotten);
    let mut server = numbering(move |seen| match &*seen.verb {
        _ if is_forgotten
            .get()
            .is_some_and(|id| seen.header("mcp-session-id") == Some(id)) =>
        {
            status(404)
        }
        "GET" => Reply::Open(String::new()),
        _ => seen.result("{}"),
    })
    .await;
    let (first, second) = (
        start(settings(server.transport())),
        start(settings(server.transport())),
    );
    let (sessions, session) = opened(&first, &mut server).await;
    forgotten.set(session.clone()).unwrap();
    let at_second = found(&sessions);
    let interest = Interest {
        session: true,
        ..Interest::default()
    };
    let _listening = listen(&second, interest, askable(9, &at_second))
        .await
        .unwrap();
    second.continue_session(&listening(call("x/y", ""), askable(9, &at_second)).0.context);
    assert_eq!(
        server.next_of("GET").await.header("mcp-session-id"),
        Some(&*session)
    );
    let next = server
        .next_of("GET")
        .await
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    assert_ne!(next, session);
    assert_eq!(&*at_second.entries()[0].1.id, next);
}

/// Only actual messages show which eras a server has.
#[tokio::test]
async fn session_that_is_continued_says_nothing_of_the_eras_that_its_server_serves_now() {
    let is_modern = Arc::new(AtomicBool::new(false));
    let serves_one = Arc::clone(&is_modern);
    let mut server = Server::start(move |seen| match seen.method().as_str() {
        "initialize" if serves_one.load(Ordering::Relaxed) => status(400),
        _ => modern(seen)
            .or_else(|| legacy(seen, "s"))
            .unwrap_or_else(|| seen.result("{}")),
    })
    .await;
    let (first, second) = (
        start(settings(server.transport())),
        start(settings(server.transport())),
    );
    let (sessions, session) = opened(&first, &mut server).await;
    is_modern.store(true, Ordering::Relaxed);
    let at_second = found(&sessions);
    send(&second, request(9, &at_second)).await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some(&*session)
    );
    send(&second, request(9, &at_second)).await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-session-id"),
        Some(&*session)
    );
    // Another client is served in the other era, as if the server never had this one.
    send(&second, request(10, &Arc::default())).await.unwrap();
    assert_eq!(
        server.next_of("x/y").await.header("mcp-protocol-version"),
        Some("2026-07-28")
    );
}

/// A record whose write blocks until released.
#[derive(Default)]
struct Slow(Notify);

impl SessionKeeper for Slow {
    fn write(&self) -> Keeping<'_, ()> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }

    fn keeps(&self) -> Keeping<'_, bool> {
        Box::pin(std::future::ready(true))
    }
}

#[tokio::test]
async fn session_that_is_being_put_on_record_ends_with_the_clients() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let backend = start(settings(server.transport()));
    let (sessions, slow) = (
        Arc::new(ServerSessions::default()),
        Arc::new(Slow::default()),
    );
    let keeper: Weak<Slow> = Arc::downgrade(&slow);
    sessions.put_on_record(keeper);
    let asked = tokio::spawn({
        let (backend, request) = (Arc::clone(&backend), request(1, &sessions));
        async move { send(&backend, request).await }
    });
    slow.0.notified().await;
    let session = sessions.entries()[0].1.id.clone();
    sessions.end(watch::channel(Some(true)).1);
    backend.end_session(SessionKey(1));
    assert_eq!(
        server.next_of("DELETE").await.header("mcp-session-id"),
        Some(&*session)
    );
    assert!(asked.await.unwrap().is_err());
}

/// A server reached in another way may be another server, or belong to another account.
#[tokio::test]
async fn session_is_told_to_no_server_that_is_reached_otherwise() {
    let mut server = numbering(|seen| seen.result("{}")).await;
    let mut other = numbering(|seen| seen.result("{}")).await;
    let first = start(settings(server.transport()));
    let (sessions, session) = opened(&first, &mut server).await;
    let TransportSettings::Http { url, .. } = server.transport() else {
        unreachable!()
    };
    let headers = vec![("x-account".to_owned(), Secret::new("other"))];
    let transports = [TransportSettings::Http { url, headers }, other.transport()];
    let named = BackendSettings {
        name: "another".into(),
        ..settings(server.transport())
    };
    for settings in transports.map(settings).into_iter().chain([named]) {
        let (backend, sessions) = (start(settings), found(&sessions));
        backend.continue_session(&request(9, &sessions).context);
        send(&backend, request(9, &sessions)).await.unwrap();
    }
    for seen in [server.next_of("x/y").await, server.next_of("x/y").await] {
        assert_ne!(seen.header("mcp-session-id"), Some(&*session));
    }
    // The base connection, and one for the client.
    for method in ["initialize", "initialize", "x/y"] {
        other.next_of(method).await;
    }
}
