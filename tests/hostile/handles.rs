//! Every kind of handle that a client may hold, tried by others: another principal, one without credentials, its own principal
//! with an expired key, and its own principal at another endpoint. Each gets what it would get for a handle that never
//! existed: the same status and the same bytes, in about the same time.
//!
//! Which kinds there are, docs/architecture.md says, with the modules that keep them; a test compares that table with this
//! one and with the sources, so that a new kind, or a new module that knows whose something is, cannot be forgotten here.

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
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Session,
        Self::SseSession,
        Self::EventId,
        Self::SuspendedCall,
        Self::StatelessState,
        Self::ServerState,
        Self::LegacyTask,
        Self::Task,
        Self::Cursor,
    ];

    /// Its name in docs/architecture.md.
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
        }
    }
}

/// A request that uses a handle.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    what: &'static str,
    method: &'static str,
    /// Where it goes instead of the client's endpoint.
    path: Option<String>,
    headers: Vec<(&'static str, String)>,
    /// Whether it is made in a session of the client itself.
    in_own_session: bool,
    body: String,
}

/// The time that an attempt took, of a few the median.
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

/// Tries the handles of a kind.
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
            // The HTTP+SSE transport serves the default endpoint alone.
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
            // Nothing lists it, either.
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
    // All of these were unknown to others, and are there for the one that they belong to.
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
