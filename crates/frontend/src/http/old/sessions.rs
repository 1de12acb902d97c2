//! The sessions of the HTTP+SSE transport, by id. The id is a secret: whoever has it is the client.
//!
//! Must not know: HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_telemetry::clients::SessionView;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channel::Connection;
use crate::insight::shown_id;
use crate::session::{OpenError, new_id};
use fanlight_canonical::Core;

/// See the module.
pub(crate) struct OldSessions<C> {
    shared: Arc<Shared<C>>,
    limit: usize,
    /// Ends every session.
    pub(super) cut: CancellationToken,
}

struct Shared<C> {
    table: Mutex<HashMap<Box<str>, Arc<Connection<C>>>>,
    /// What still comes to its end of sessions that are over.
    ending: TaskTracker,
    runtime: Handle,
}

/// A session's place in the table. The session ends when this is dropped.
pub(super) struct Place<C: Core> {
    id: Box<str>,
    shared: Arc<Shared<C>>,
}

impl<C: Core> OldSessions<C> {
    /// Room for `limit` sessions, all of which end when `cut` is cancelled.
    pub(in crate::http) fn new(limit: usize, cut: CancellationToken) -> Self {
        let (table, ending, runtime) = (Mutex::default(), TaskTracker::new(), Handle::current());
        Self { shared: Arc::new(Shared { table, ending, runtime }), limit: limit.max(1), cut }
    }

    /// Enters a session. None gives way: each has a client that holds its stream open.
    pub(super) fn enter(&self, connection: &Arc<Connection<C>>) -> Result<Place<C>, OpenError> {
        let id = new_id()?;
        let mut table = self.shared.lock();
        if table.len() >= self.limit {
            return Err(OpenError::Full { limit: self.limit });
        }
        table.insert(id.clone(), Arc::clone(connection));
        Ok(Place { id, shared: Arc::clone(&self.shared) })
    }

    /// The session with this id, if there is one.
    pub(super) fn find(&self, id: &str) -> Option<Arc<Connection<C>>> {
        self.shared.lock().get(id).cloned()
    }

    /// How many there are.
    pub(in crate::http) fn count(&self) -> usize {
        self.shared.lock().len()
    }

    /// What an operator may see of all of them.
    pub(in crate::http) fn shown(&self) -> Vec<SessionView> {
        let all: Vec<_> =
            self.shared.lock().iter().map(|(id, connection)| (id.clone(), Arc::clone(connection))).collect();
        let shown = |(id, connection): (Box<str>, Arc<Connection<C>>)| {
            connection.shown(&id, "sse").unwrap_or_else(|| SessionView {
                digest: shown_id(&id),
                revision: None,
                transport: "sse",
                client_info: None,
                running: 0,
                server_requests: 0,
                streams: 1,
                idle: None,
            })
        };
        all.into_iter().map(shown).collect()
    }

    /// Waits for what is left of sessions whose streams have ended.
    pub(in crate::http) async fn finished(&self) {
        self.shared.ending.close();
        self.shared.ending.wait().await;
    }
}

impl<C> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Connection<C>>>> {
        // Nothing that can panic runs under this lock.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Core> Place<C> {
    /// The session's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl<C: Core> Drop for Place<C> {
    fn drop(&mut self) {
        let ended = self.shared.lock().remove(&self.id);
        if let Some(connection) = ended {
            connection.end();
            // The stream may be dropped outside of the runtime.
            let finished = async move { connection.finished().await };
            self.shared.ending.spawn_on(finished, &self.shared.runtime);
        }
    }
}
