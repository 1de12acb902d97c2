//! The sessions of the HTTP+SSE transport, by id. An id is a sealed handle and a secret, and only the principal that opened
//! the session can use it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_canonical::{Core, HandleKind, HandleSeal, Holder, Keeper, Peer};
use fanlight_fair::Rule;
use fanlight_telemetry::clients::SessionView;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channel::ChannelConnection;
use crate::insight::shown_id;
use crate::streams::OpenError;

/// The sessions of a listener.
pub(crate) struct SseSessions<C> {
    shared: Arc<Shared<C>>,
    limit: usize,
    /// The most of one peer; 0 for no such bound.
    per_peer: usize,
    /// Ends every session.
    pub(super) cut: CancellationToken,
    handles: Arc<HandleSeal>,
}

struct Shared<C> {
    table: Mutex<Table<C>>,
    /// Requests that still finish after their session has ended.
    ending: TaskTracker,
    runtime: Handle,
}

type Table<C> = fanlight_fair::Table<Peer, Box<str>, Entry<C>>;

struct Entry<C> {
    holder: Holder,
    connection: Arc<ChannelConnection<C>>,
    /// When the client sent a message last, or opened the session.
    used: Instant,
}

/// A session's entry in the table. The session ends when this is dropped.
pub(super) struct SessionEntry<C: Core> {
    id: Box<str>,
    shared: Arc<Shared<C>>,
}

impl<C: Core> SseSessions<C> {
    /// At most `limit` sessions, and `per_peer` of one peer unless that is 0, all of which end when `cut` is cancelled.
    pub(in crate::http) fn new(
        limit: usize,
        per_peer: usize,
        cut: CancellationToken,
        handles: Arc<HandleSeal>,
    ) -> Self {
        let (table, ending, runtime) = (Mutex::default(), TaskTracker::new(), Handle::current());
        Self {
            shared: Arc::new(Shared {
                table,
                ending,
                runtime,
            }),
            limit: limit.max(1),
            per_peer,
            cut,
            handles,
        }
    }

    /// Enters a session of `holder`. If there are too many, the peer that has most loses one, unless the newcomer would
    /// have as many then: each session has a client with an open stream.
    pub(super) fn open(
        &self,
        holder: Holder,
        peer: Peer,
        connection: &Arc<ChannelConnection<C>>,
    ) -> Result<SessionEntry<C>, OpenError> {
        let id: Box<str> = self
            .handles
            .fresh(HandleKind::SseSession, &holder)
            .ok_or(OpenError::NoRandomness)?
            .into();
        let mut table = self.shared.lock();
        let mut ended = None;
        if self.per_peer > 0 && table.count(&peer) >= self.per_peer {
            return Err(OpenError::Full {
                limit: self.per_peer,
            });
        }
        if table.len() >= self.limit {
            // Sessions without a running request go first, the least recently used of them before others.
            let need = |entry: &Entry<C>| (entry.connection.is_working(), entry.used);
            let newcomer = table.newcomer(&peer, self.limit);
            let lost = newcomer.least(Rule::IN_USE, |session| Some(need(session.value)));
            ended = table.remove(&lost.ok_or(OpenError::Full { limit: self.limit })?);
        }
        table.insert(
            id.clone(),
            peer,
            Entry {
                holder,
                connection: Arc::clone(connection),
                used: Instant::now(),
            },
        );
        drop(table);
        if let Some(ended) = ended {
            tracing::debug!(
                limit = self.limit,
                "session of the HTTP+SSE transport ended: its peer has most of them"
            );
            self.shared.end(&ended.connection);
        }
        Ok(SessionEntry {
            id,
            shared: Arc::clone(&self.shared),
        })
    }

    /// The session of `holder` with this id, or who keeps it if this process does not.
    pub(super) fn enter(
        &self,
        id: &str,
        holder: &Holder,
    ) -> Result<Arc<ChannelConnection<C>>, Keeper> {
        let mut table = self.shared.lock();
        if let Some(entry) = table.get_mut(id).filter(|entry| entry.holder == *holder) {
            entry.used = Instant::now();
            return Ok(Arc::clone(&entry.connection));
        }
        drop(table);
        Err(self.handles.keeper(HandleKind::SseSession, id, holder))
    }

    /// The number of sessions.
    pub(in crate::http) fn count(&self) -> usize {
        self.shared.lock().len()
    }

    /// All sessions, for an operator.
    pub(in crate::http) fn views(&self) -> Vec<SessionView> {
        let all: Vec<_> = self
            .shared
            .lock()
            .iter()
            .map(|(id, entry)| (id.clone(), Arc::clone(&entry.connection)))
            .collect();
        let view = |(id, connection): (Box<str>, Arc<ChannelConnection<C>>)| {
            connection
                .session_view(&id, "sse")
                .unwrap_or_else(|| SessionView {
                    digest: shown_id(&id),
                    revision: None,
                    endpoint: None,
                    identity: None,
                    transport: "sse",
                    client_info: None,
                    running: 0,
                    server_requests: 0,
                    streams: 1,
                    idle: None,
                })
        };
        all.into_iter().map(view).collect()
    }

    /// Ends the session that an operator sees under this digest, and cancels its requests; returns whether there was one.
    pub(in crate::http) fn end_shown(&self, digest: &str) -> bool {
        let id = self
            .shared
            .lock()
            .iter()
            .map(|(id, _)| id)
            .find(|id| shown_id(id) == digest)
            .cloned();
        let ended = id.and_then(|id| self.shared.lock().remove(&id));
        ended
            .inspect(|ended| self.shared.end(&ended.connection))
            .is_some()
    }

    /// Waits for the requests that still finish after their session has ended.
    pub(in crate::http) async fn finished(&self) {
        self.shared.ending.close();
        self.shared.ending.wait().await;
    }
}

impl<C> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, Table<C>> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Core> Shared<C> {
    fn end(&self, connection: &Arc<ChannelConnection<C>>) {
        connection.end();
        let connection = Arc::clone(connection);
        // The stream may be dropped outside of a runtime.
        self.ending
            .spawn_on(async move { connection.finished().await }, &self.runtime);
    }
}

impl<C: Core> SessionEntry<C> {
    /// The session's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl<C: Core> Drop for SessionEntry<C> {
    fn drop(&mut self) {
        let ended = self.shared.lock().remove(&self.id);
        if let Some(ended) = ended {
            self.shared.end(&ended.connection);
        }
    }
}
