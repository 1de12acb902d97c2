//! Every kind of handle that a client may hold, tried by other clients: another principal, a client
//! without credentials, the same principal with an expired key, and the same principal at another
//! endpoint. Each gets the answer for a handle that never existed: the same status and bytes, in
//! about the same time.
//!
//! docs/architecture.md lists the kinds with the modules that keep them. A test compares that list
//! with this one and with the sources. So nobody can forget a new kind here, or a new module that
//! knows owners.

mod behaviour;
mod catalogue;
mod other_kinds;
mod world;

use std::time::{Duration, Instant};

use world::{Client, World};

/// A kind of handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Session,
    SseSession,
    EventId,
    SuspendedCall,
    StatelessState,
    ServerState,
    LegacyTask,
    Task,
    Cursor,
    Result,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Session,
        Self::SseSession,
        Self::EventId,
        Self::SuspendedCall,
        Self::StatelessState,
        Self::ServerState,
        Self::LegacyTask,
        Self::Task,
        Self::Cursor,
        Self::Result,
    ];

    /// The kind's name in docs/architecture.md.
    fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::SseSession => "session of the HTTP+SSE transport",
            Self::EventId => "event id",
            Self::SuspendedCall => "`requestState` of a suspended call",
            Self::StatelessState => "`requestState` of a call that is not suspended",
            Self::ServerState => "`requestState` of a server",
            Self::LegacyTask => "task of a session",
            Self::Task => "task without a session",
            Self::Cursor => "cursor",
            Self::Result => "kept result",
        }
    }
}

/// A request that uses a handle.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    what: &'static str,
    method: &'static str,
    /// The path, if it is not the client's endpoint.
    path: Option<String>,
    headers: Vec<(&'static str, String)>,
    /// Whether the client sends it in a session of its own.
    in_own_session: bool,
    body: String,
}

/// The median duration of a few attempts.
async fn median(world: &World, client: Client, attempt: &Use) -> Duration {
    let mut times = Vec::new();
    for _ in 0..15 {
        let began = Instant::now();
        world.send(client, attempt).await;
        times.push(began.elapsed());
    }
    times.sort();
    times[times.len() / 2]
}

/// Tries the handles of one kind.
async fn try_kind(kind: Kind) {
    let world = World::start().await;
    let handle = world.make(kind).await;
    let invented = world.invent(kind, &handle);
    assert_ne!(handle, invented);
    for (real, other) in world
        .uses(kind, &handle)
        .iter()
        .zip(world.uses(kind, &invented))
    {
        for client in [
            Client::Bob,
            Client::Nobody,
            Client::Expired,
            Client::Elsewhere,
        ] {
            // Only the default endpoint serves the HTTP+SSE transport.
            if (kind, client) == (Kind::SseSession, Client::Elsewhere) {
                continue;
            }
            let (got, expected) = (
                world.send(client, real).await,
                world.send(client, &other).await,
            );
            let plain = |text: &str, handle: &str| text.replace(handle, "HANDLE");
            assert_eq!(
                (got.0, plain(&got.1, &handle)),
                (expected.0, plain(&expected.1, &invented)),
                "{kind:?}, {} by {client:?}",
                real.what
            );
            // The answer does not contain the handle, either.
            let is_named = real.body.contains(&handle)
                || real.headers.iter().any(|(_, value)| *value == handle);
            assert!(
                is_named || real.path.is_some() || !got.1.contains(&handle),
                "{kind:?}, {}: {}",
                real.what,
                got.1
            );
            if matches!(client, Client::Nobody | Client::Expired) {
                assert_eq!(
                    got.0, 401,
                    "{kind:?}, {} by {client:?}: {}",
                    real.what, got.1
                );
            }
        }
    }
    let (real, other) = (
        &world.uses(kind, &handle)[0],
        &world.uses(kind, &invented)[0],
    );
    let (took, expected) = (
        median(&world, Client::Bob, real).await,
        median(&world, Client::Bob, other).await,
    );
    let (less, more) = (took.min(expected), took.max(expected));
    assert!(
        more <= less * 5 + Duration::from_millis(50),
        "{kind:?}: {took:?}, where never made {expected:?}"
    );
    // All these handles, unknown to others, still work for their owner.
    world.is_there(kind, &handle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_unknown_to_others() {
    try_kind(Kind::Session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_of_the_sse_transport_is_unknown_to_others() {
    try_kind(Kind::SseSession).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_id_is_unknown_to_others() {
    try_kind(Kind::EventId).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_call_is_unknown_to_others() {
    try_kind(Kind::SuspendedCall).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_call_that_is_not_suspended_is_unknown_to_others() {
    try_kind(Kind::StatelessState).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_server_is_unknown_to_others() {
    try_kind(Kind::ServerState).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_a_session_is_unknown_to_others() {
    try_kind(Kind::LegacyTask).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_without_a_session_is_unknown_to_others() {
    try_kind(Kind::Task).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cursor_is_unknown_to_others() {
    try_kind(Kind::Cursor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_result_is_unknown_to_others() {
    try_kind(Kind::Result).await;
}
