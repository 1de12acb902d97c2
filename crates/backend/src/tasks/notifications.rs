//! Notifications about tasks, in the listener's dialect.
//!
//! The extension inlines the outcome of a task, which Fanlight may have to request from a legacy
//! server. That would delay the connection with the notification, so one task per server does it.
//! While notifications of a task wait for that, only the newest one is kept per listener.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::{
    BackendError, CallContext, Listen, Listening, ServerMessage, ServerMessages, TaskDialect,
};
use fanlight_protocol::{Json, Method};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::TaskTranslation;
use super::owners::AtEndpoint;
use super::translate::{Status, task_to_legacy, with_method};

/// The maximum length of a followed task's id in bytes.
const MAX_ID: usize = 1024;
/// The number of statuses that may wait for translation.
const QUEUE: usize = 256;
/// The number of statuses that are translated at the same time. A constant: further ones wait.
const CONCURRENT: usize = 16;
/// The time limit of a translation; after that the client gets no notification. A constant: a
/// client that polls, as it should, loses nothing.
const MAX_TRANSLATION: Duration = Duration::from_secs(30);

/// Translates the notifications about tasks for all listeners of a server.
pub(super) struct TaskNotifications {
    backend: String,
    owners: Arc<AtEndpoint>,
    statuses: mpsc::Sender<TaskStatus>,
    next_listener: AtomicU64,
}

/// A legacy server's task status, for a listener with the extension.
pub(super) struct TaskStatus {
    listener: Arc<Listener>,
    task: String,
    message: ServerMessage,
}

struct Listener {
    id: u64,
    context: Arc<CallContext>,
    messages: ServerMessages,
}

impl TaskNotifications {
    pub(super) fn new(
        backend: &str,
        owners: Arc<AtEndpoint>,
    ) -> (Arc<Self>, mpsc::Receiver<TaskStatus>) {
        let (statuses, receiver) = mpsc::channel(QUEUE);
        let (backend, next_listener) = (backend.to_owned(), AtomicU64::default());
        (
            Arc::new(Self {
                backend,
                owners,
                statuses,
                next_listener,
            }),
            receiver,
        )
    }

    /// A channel to a listener that translates notifications about tasks.
    fn translated(self: &Arc<Self>, listen: &Listen) -> ServerMessages {
        let listener = Arc::new(Listener {
            id: self.next_listener.fetch_add(1, Ordering::Relaxed),
            context: Arc::clone(&listen.context),
            messages: listen.messages.clone(),
        });
        let this = Arc::clone(self);
        listen
            .messages
            .with_map(move |message| this.translate(&listener, message))
    }

    /// The message in the listener's dialect. `None` if the listener must not get it, or gets it
    /// later.
    fn translate(&self, listener: &Arc<Listener>, message: ServerMessage) -> Option<ServerMessage> {
        use TaskDialect::{Extension, Requested};
        let ServerMessage::Notification(notification) = &message else {
            return Some(message);
        };
        if !matches!(
            notification.method,
            Method::TaskStatus | Method::TaskChanged
        ) {
            return Some(message);
        }
        let caller = &listener.context.caller;
        // A client without tasks gets the final result instead of notifications.
        let dialect = listener.context.tasks?;
        let params = notification.params().unwrap_or_else(Json::empty_object);
        let task = params.text_at("taskId");
        if task
            .as_ref()
            .is_some_and(|task| self.owners.is_foreign(task, caller))
        {
            return None;
        }
        match (&notification.method, dialect) {
            (Method::TaskStatus, Extension) => {
                let status = TaskStatus {
                    listener: Arc::clone(listener),
                    task: task?,
                    message,
                };
                self.warn_if(self.statuses.try_send(status).is_err());
                None
            }
            (Method::TaskChanged, Requested) => {
                let status =
                    with_method(notification, &Method::TaskStatus, &task_to_legacy(&params));
                Some(ServerMessage::Notification(status?))
            }
            _ => Some(message),
        }
    }

    fn warn_if(&self, is_dropped: bool) {
        if is_dropped {
            let backend = &*self.backend;
            tracing::warn!(
                backend,
                "task status dropped: a listening client does not keep up"
            );
        }
    }
}

impl TaskTranslation {
    /// Listens, but leaves out other clients' tasks.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        mut listen: Listen,
    ) -> Result<Listening, BackendError> {
        let client = Arc::clone(&listen.context);
        listen
            .interest
            .tasks
            .retain(|task| !self.owners.is_foreign(task, &client.caller));
        if listen.interest.session || !listen.interest.tasks.is_empty() {
            listen.messages = self.notifications.translated(&listen);
        }
        self.calls.pool.listen(listen).await
    }

    /// Follows a task of a 2025-11-25 session until it ends, at a server that does not notify the
    /// session itself.
    ///
    /// A modern server notifies about a task only if a subscription names it, which that dialect
    /// cannot do. On a shared connection, a legacy server does not tell which session a task belongs
    /// to. So Fanlight itself names the tasks of a session while the session listens.
    pub(super) fn follow(&self, client: &CallContext, task: &Json) {
        let id = task.text_at("taskId");
        let Some(id) = id.filter(|_| client.tasks == Some(TaskDialect::Requested)) else {
            return;
        };
        let (registry, session) = (&self.calls.pool.registry, &client.caller);
        if Status::read(task).is_terminal() {
            registry.unfollow_task(session, &id);
        } else if id.len() <= MAX_ID {
            registry.follow_task(session, &id);
        }
    }

    /// Stops following a session's task, which has ended.
    pub(super) fn unfollow(&self, client: &CallContext, task: &str) {
        let registry = &self.calls.pool.registry;
        registry.unfollow_task(&client.caller, task);
    }

    /// Translates the statuses of a legacy server for listeners with the extension; never returns.
    pub(super) async fn translate_statuses(
        self: Arc<Self>,
        mut statuses: mpsc::Receiver<TaskStatus>,
    ) {
        let mut running = FuturesUnordered::new();
        // Keyed by listener and task of each running translation; the value is the newest status
        // since its start.
        let mut newest: HashMap<(u64, String), Option<TaskStatus>> = HashMap::new();
        loop {
            tokio::select! {
                biased;
                Some(key) = running.next() => if let Entry::Occupied(mut entry) = newest.entry(key) {
                    match entry.get_mut().take() {
                        Some(next) => running.push(self.translate_status(next)),
                        None => drop(entry.remove()),
                    }
                },
                status = statuses.recv(), if running.len() < CONCURRENT => {
                    let Some(status) = status else { return };
                    match newest.entry((status.listener.id, status.task.clone())) {
                        Entry::Occupied(mut entry) => drop(entry.insert(Some(status))),
                        Entry::Vacant(entry) => {
                            running.push(self.translate_status(status));
                            entry.insert(None);
                        }
                    }
                }
            }
        }
    }

    async fn translate_status(self: &Arc<Self>, status: TaskStatus) -> (u64, String) {
        let TaskStatus {
            listener,
            task,
            message,
        } = status;
        if let ServerMessage::Notification(notification) = message {
            let params = notification.params().unwrap_or_else(Json::empty_object);
            let changed = timeout(
                MAX_TRANSLATION,
                self.notification_params(&params, &listener.context),
            )
            .await
            .ok()
            .flatten();
            let changed = changed
                .and_then(|params| with_method(&notification, &Method::TaskChanged, &params));
            if let Some(changed) = changed {
                let is_taken = listener
                    .messages
                    .try_send(ServerMessage::Notification(changed));
                self.notifications.warn_if(!is_taken);
            }
        }
        (listener.id, task)
    }
}
