//! Handles in the wrong place: handles of other kinds, and handles that an earlier run of the
//! gateway made with the same keys. Even their owner gets the answer for a handle that was never
//! made.

use super::world::{Client, World, in_session};
use super::{Kind, Use};
use crate::harness::Gateway;
use crate::raw_client::{Connection, JSON_HEADERS, NEWEST_LEGACY, initialize, legacy_request};
use crate::scripted::{Backend, Era, Transport};

/// Whether a handle of `kind`, used as one of `as_kind`, is a mere mistake of kinds.
fn is_mistaken(as_kind: Kind, kind: Kind) -> bool {
    // Tasks have their servers' ids. A text without the prefix of Fanlight's `requestState` belongs
    // to a server.
    let is_task = |kind| matches!(kind, Kind::Task | Kind::LegacyTask);
    let is_state = |kind| {
        matches!(
            kind,
            Kind::SuspendedCall | Kind::StatelessState | Kind::ServerState
        )
    };
    // An event's handle is its session's.
    as_kind != kind
        && kind != Kind::EventId
        && as_kind != Kind::EventId
        && !is_state(as_kind)
        && !(is_task(as_kind) && is_task(kind))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handle_of_another_kind_is_unknown() {
    let world = World::start().await;
    for kind in Kind::ALL {
        let handle = world.make(kind).await;
        let invented = world.invent(kind, &handle);
        for as_kind in Kind::ALL
            .into_iter()
            .filter(|as_kind| is_mistaken(*as_kind, kind))
        {
            for (real, other) in world
                .uses(as_kind, &handle)
                .iter()
                .zip(world.uses(as_kind, &invented))
            {
                let (got, expected) = (
                    world.send(Client::Ann, real).await,
                    world.send(Client::Ann, &other).await,
                );
                let plain = |text: &str, handle: &str| text.replace(handle, "HANDLE");
                assert_eq!(
                    (got.0, plain(&got.1, &handle)),
                    (expected.0, plain(&expected.1, &invented)),
                    "{kind:?} as {as_kind:?}, {}",
                    real.what
                );
            }
        }
        // The attempts have ended nothing.
        world.is_there(kind, &handle).await;
    }
}

/// Sends a request without credentials; returns its status, its session id and its text.
async fn send(gateway: &Gateway, attempt: &Use) -> (u16, Option<String>, String) {
    let mut headers: Vec<(&str, &str)> = attempt
        .headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    match attempt.method {
        "POST" => headers.extend(JSON_HEADERS),
        _ => headers.push(("Accept", "text/event-stream")),
    }
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request(
            attempt.method,
            attempt.path.as_deref().unwrap_or("/mcp"),
            &headers,
            attempt.body.as_bytes(),
        )
        .await;
    let mut response = connection.response().await;
    let id = response.header("mcp-session-id").map(str::to_owned);
    (response.status, id, response.text().await)
}

fn attempt(
    method: &'static str,
    path: Option<String>,
    headers: Vec<(&'static str, String)>,
    body: &str,
) -> Use {
    Use {
        what: "",
        method,
        path,
        headers,
        in_own_session: false,
        body: body.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_an_earlier_run_with_the_same_keys_is_unknown() {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    let entry = backend.entry("a");
    let config = format!(
        r#"{{"keys":["{}"],"mcpServers":{{{entry}}}}}"#,
        "5a".repeat(32)
    );
    let earlier = Gateway::start(&config).await;
    let open = attempt("POST", None, Vec::new(), &initialize(NEWEST_LEGACY, "{}"));
    let id = send(&earlier, &open).await.1.expect("a session");
    let ping = legacy_request("1", "ping", "");
    assert_eq!(
        send(
            &earlier,
            &attempt("POST", None, in_session(id.clone()), &ping)
        )
        .await
        .0,
        200
    );
    let mut listening = Connection::open(earlier.mcp).await;
    listening
        .request("GET", "/sse", &[("Accept", "text/event-stream")], b"")
        .await;
    let endpoint = listening.response().await.event().await.unwrap().unwrap();
    let of_sse = endpoint.split_once("sessionId=").unwrap().1.to_owned();
    assert!(earlier.terminate().await.success());

    let later = Gateway::start(&config).await;
    assert_ne!(send(&later, &open).await.1.expect("a session").len(), 0);
    let last = ("Last-Event-ID", "get1-0-AAAAAAAA".to_owned());
    for (id, other) in [(&id, changed(&id)), (&of_sse, changed(&of_sse))] {
        let uses = |id: &str| {
            let session = in_session(id.to_owned());
            let resumed = [&session[..], std::slice::from_ref(&last)].concat();
            [
                attempt("POST", None, session.clone(), &ping),
                attempt(
                    "POST",
                    None,
                    session.clone(),
                    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                ),
                attempt("GET", None, resumed, ""),
                attempt("DELETE", None, session, ""),
                attempt(
                    "POST",
                    Some(format!("/sse/message?sessionId={id}")),
                    Vec::new(),
                    &ping,
                ),
            ]
        };
        for (real, invented) in uses(id).iter().zip(uses(&other)) {
            let (got, expected) = (send(&later, real).await, send(&later, &invented).await);
            assert_eq!((got.0, got.2), (expected.0, expected.2), "{real:?}");
            assert_eq!(got.0, 404, "{real:?}");
        }
    }
}

/// An id that was never made.
fn changed(id: &str) -> String {
    let (start, end) = id.split_at(id.len() - 8);
    format!(
        "{start}{}",
        end.chars()
            .map(|c| if c == '3' { '4' } else { '3' })
            .collect::<String>()
    )
}
