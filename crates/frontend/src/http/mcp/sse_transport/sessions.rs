//! The sessions of the HTTP+SSE transport by id. An id is a sealed handle and a secret; only the
//! principal that opened the session can use it.

use std::sync::Arc;

use fanlight_canonical::{HandleKind, HandleSeal, Holder, Keeper, Peer};
use fanlight_fair::Rule;
use fanlight_telemetry::clients::SessionView;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channel::ChannelConnection;
use crate::insight::shown_id;
use crate::streams::OpenError;

/// The sessions of a listener.
pub(crate) struct SseSessions {
    shared: Arc<Shared>,
    limit: usize,
    /// The maximum number per peer; 0 for no limit.
    per_peer: usize,
    /// Ends every session.
    pub(super) cut: CancellationToken,
    handles: Arc<HandleSeal>,
}

struct Shared {
    table: Mutex<Table>,
    /// Requests that are still finishing after the end of their session.
    ending: TaskTracker,
    runtime: Handle,
}

type Table = fanlight_fair::Table<Peer, Box<str>, Entry>;

struct Entry {
    holder: Holder,
    connection: Arc<ChannelConnection>,
    /// The time of the client's last message, or of the start of the session.
    used: Instant,
}

/// A session's entry in the table. Dropping it ends the session.
pub(super) struct SessionEntry {
    id: Box<str>,
    shared: Arc<Shared>,
}

impl SseSessions {
    /// Allows `limit` sessions in total and `per_peer` per peer (0 for no limit). Cancelling `cut`
    /// ends all of them.
    pub(in crate::http) fn new(
        limit: usize,
        per_peer: usize,
        cut: CancellationToken,
        handles: Arc<HandleSeal>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                table: Mutex::default(),
                ending: TaskTracker::new(),
                runtime: Handle::current(),
            }),
            limit: limit.max(1),
            per_peer,
            cut,
            handles,
        }
    }

    /// Adds a session of `holder`. At the limit, the peer with the most sessions loses one, unless
    /// the newcomer would then have as many. Each session has a client with an open stream.
    pub(super) fn open(
        &self,
        holder: Holder,
        peer: Peer,
        connection: &Arc<ChannelConnection>,
    ) -> Result<SessionEntry, OpenError> {
        let id: Box<str> = self
            .handles
            .random_handle(HandleKind::SseSession, &holder)
            .ok_or(OpenError::NoRandomness)?
            .into();
        let mut table = self.shared.table.lock();
        let mut ended = None;
        if self.per_peer > 0 && table.count(&peer) >= self.per_peer {
            return Err(OpenError::Full {
                limit: self.per_peer,
            });
        }
        if table.len() >= self.limit {
            // Prefer sessions without a running request, then the least recently used.
            let need = |entry: &Entry| (entry.connection.is_working(), entry.used);
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
                "session of the HTTP+SSE transport ended: its peer has the most"
            );
            self.shared.end(&ended.connection);
        }
        Ok(SessionEntry {
            id,
            shared: Arc::clone(&self.shared),
        })
    }

    /// The session of `holder` with this id, or its keeper if that is not this process.
    pub(super) fn enter(
        &self,
        id: &str,
        holder: &Holder,
    ) -> Result<Arc<ChannelConnection>, Keeper> {
        let mut table = self.shared.table.lock();
        if let Some(entry) = table.get_mut(id).filter(|entry| entry.holder == *holder) {
            entry.used = Instant::now();
            return Ok(Arc::clone(&entry.connection));
        }
        drop(table);
        Err(self.handles.keeper(HandleKind::SseSession, id, holder))
    }

    /// The number of sessions.
    pub(in crate::http) fn count(&self) -> usize {
        self.shared.table.lock().len()
    }

    /// All sessions, for operators.
    pub(in crate::http) fn views(&self) -> Vec<SessionView> {
        let all: Vec<_> = self
            .shared
            .table
            .lock()
            .iter()
            .map(|(id, entry)| (id.clone(), Arc::clone(&entry.connection)))
            .collect();
        let view = |(id, connection): (Box<str>, Arc<ChannelConnection>)| {
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

    /// Ends the session with this digest, as shown to operators, and cancels its requests. Returns
    /// whether it existed.
    pub(in crate::http) fn end_shown(&self, digest: &str) -> bool {
        let id = self
            .shared
            .table
            .lock()
            .iter()
            .map(|(id, _)| id)
            .find(|id| shown_id(id) == digest)
            .cloned();
        let ended = id.and_then(|id| self.shared.table.lock().remove(&id));
        ended
            .inspect(|ended| self.shared.end(&ended.connection))
            .is_some()
    }

    /// Waits for requests that are still finishing after the end of their session.
    pub(in crate::http) async fn finished(&self) {
        self.shared.ending.close();
        self.shared.ending.wait().await;
    }
}

impl Shared {
    fn end(&self, connection: &Arc<ChannelConnection>) {
        connection.end();
        let connection = Arc::clone(connection);
        // The stream may be dropped outside of a runtime.
        self.ending
            .spawn_on(async move { connection.finished().await }, &self.runtime);
    }
}

impl SessionEntry {
    /// The session's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        let ended = self.shared.table.lock().remove(&self.id);
        if let Some(ended) = ended {
            self.shared.end(&ended.connection);
        }
    }
}
