//! The sessions of the HTTP+SSE transport, by id. An id is a secret, and only the principal that opened
//! the session can use it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_canonical::{Core, Holder};
use fanlight_telemetry::clients::SessionView;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channel::Connection;
use crate::insight::shown_id;
use crate::random_id::new_id;
use crate::streams::OpenError;

/// The sessions of a listener.
pub(crate) struct SseSessions<C> {
    shared: Arc<Shared<C>>,
    limit: usize,
    /// Ends every session.
    pub(super) cut: CancellationToken,
}

struct Shared<C> {
    table: Mutex<Table<C>>,
    /// Requests that still finish after their session has ended.
    ending: TaskTracker,
    runtime: Handle,
}

type Table<C> = HashMap<Box<str>, (Holder, Arc<Connection<C>>)>;

/// A session's entry in the table. The session ends when this is dropped.
pub(super) struct SessionEntry<C: Core> {
    id: Box<str>,
    shared: Arc<Shared<C>>,
}

impl<C: Core> SseSessions<C> {
    /// At most `limit` sessions, all of which end when `cut` is cancelled.
    pub(in crate::http) fn new(limit: usize, cut: CancellationToken) -> Self {
        let (table, ending, runtime) = (Mutex::default(), TaskTracker::new(), Handle::current());
        Self { shared: Arc::new(Shared { table, ending, runtime }), limit: limit.max(1), cut }
    }

    /// Enters a session of `holder`. No other session is ended for it: each has a client with an open
    /// stream.
    pub(super) fn open(&self, holder: Holder, connection: &Arc<Connection<C>>) -> Result<SessionEntry<C>, OpenError> {
        let id = new_id().map_err(|_| OpenError::NoRandomness)?;
        let mut table = self.shared.lock();
        if table.len() >= self.limit {
            return Err(OpenError::Full { limit: self.limit });
        }
        table.insert(id.clone(), (holder, Arc::clone(connection)));
        Ok(SessionEntry { id, shared: Arc::clone(&self.shared) })
    }

    /// The session of `holder` with this id, if there is one.
    pub(super) fn enter(&self, id: &str, holder: &Holder) -> Option<Arc<Connection<C>>> {
        let table = self.shared.lock();
        let (_, connection) = table.get(id).filter(|(owner, _)| owner == holder)?;
        Some(Arc::clone(connection))
    }

    /// The number of sessions.
    pub(in crate::http) fn count(&self) -> usize {
        self.shared.lock().len()
    }

    /// All sessions, for an operator.
    pub(in crate::http) fn views(&self) -> Vec<SessionView> {
        let all: Vec<_> =
            self.shared.lock().iter().map(|(id, (_, connection))| (id.clone(), Arc::clone(connection))).collect();
        let view = |(id, connection): (Box<str>, Arc<Connection<C>>)| {
            connection.session_view(&id, "sse").unwrap_or_else(|| SessionView {
                digest: shown_id(&id),
                revision: None,
                endpoint: None,
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
        let id = self.shared.lock().keys().find(|id| shown_id(id) == digest).cloned();
        id.is_some_and(|id| self.shared.end(&id))
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
    /// Ends a session, and with it its stream; returns whether there was one.
    fn end(&self, id: &str) -> bool {
        let ended = self.lock().remove(id);
        let Some((_, connection)) = ended else { return false };
        connection.end();
        // The stream may be dropped outside of a runtime.
        self.ending.spawn_on(async move { connection.finished().await }, &self.runtime);
        true
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
        self.shared.end(&self.id);
    }
}
