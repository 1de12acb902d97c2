//! Notifications about the tasks of 2025-11-25 sessions, at servers that do not notify the session
//! themselves.
//!
//! A modern server notifies about a task only if a subscription names it, which that dialect cannot
//! do. On a shared connection, a legacy server does not tell which session a task belongs to. So
//! Fanlight itself names the tasks of a session while the session listens.

use std::collections::HashMap;
use std::sync::Arc;

use fanlight_canonical::{
    BackendError, Backoff, CallContext, Caller, Interest, Listen, ServerMessages, SessionKey,
    TaskDialect,
};
use fanlight_protocol::Json;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::TaskTranslation;
use super::translate::Status;
use crate::sessions::dispatcher::Dispatcher;

/// The maximum length of a followed task's id in bytes.
const MAX_ID: usize = 1024;

/// The tasks of each session, and its listeners.
pub(super) struct FollowedTasks {
    limit: usize,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    by_key: HashMap<SessionKey, Session>,
    next: u64,
}

struct Session {
    caller: Caller,
    listeners: HashMap<u64, (ServerMessages, CancellationToken)>,
    /// Each token is cancelled when its task has ended.
    tasks: HashMap<String, CancellationToken>,
}

/// One listener's interest in one task.
struct Follow {
    task: String,
    messages: ServerMessages,
    /// Cancelled when the listener has left.
    left: CancellationToken,
    /// Cancelled when the task has ended.
    ended: CancellationToken,
}

/// Removes a listener when dropped.
pub(super) struct Following {
    followed: Arc<FollowedTasks>,
    session: SessionKey,
    id: u64,
    _left: DropGuard,
}

impl FollowedTasks {
    /// Follows at most `limit` tasks per session.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            sessions: Mutex::default(),
        }
    }

    /// Stops following a session's task, which has ended.
    pub(super) fn remove(&self, session: &Caller, task: &str) {
        let Some(key) = session.session() else { return };
        if let Some(session) = self
            .sessions
            .lock()
            .by_key
            .get_mut(&key)
            .filter(|known| known.caller == *session)
            && let Some(ended) = session.tasks.remove(task)
        {
            ended.cancel();
        }
    }

    pub(super) fn end_session(&self, session: SessionKey) {
        if let Some(session) = self.sessions.lock().by_key.remove(&session) {
            session
                .listeners
                .into_values()
                .for_each(|(_, left)| left.cancel());
        }
    }
}

impl Sessions {
    fn session(&mut self, caller: &Caller) -> Option<&mut Session> {
        let new = || Session {
            caller: caller.clone(),
            listeners: HashMap::new(),
            tasks: HashMap::new(),
        };
        let session = self.by_key.entry(caller.session()?).or_insert_with(new);
        (session.caller == *caller).then_some(session)
    }
}

impl TaskTranslation {
    /// Follows a session's task until it ends.
    pub(super) fn follow(self: &Arc<Self>, client: &Arc<CallContext>, task: &Json) {
        let id = task.get("taskId");
        let Some(id) = id
            .as_ref()
            .and_then(Json::as_str)
            .filter(|_| client.tasks == Some(TaskDialect::Requested))
        else {
            return;
        };
        if Status::of(task).is_terminal() {
            return self.followed.remove(&client.caller, &id);
        }
        let mut follows = Vec::new();
        if let Some(session) = self.followed.sessions.lock().session(&client.caller)
            && !session.tasks.contains_key(&*id)
            && session.tasks.len() < self.followed.limit
            && id.len() <= MAX_ID
        {
            let ended = CancellationToken::new();
            for (messages, left) in session.listeners.values() {
                let (task, messages) = (id.clone().into_owned(), messages.clone());
                follows.push(Follow {
                    task,
                    messages,
                    left: left.clone(),
                    ended: ended.clone(),
                });
            }
            session.tasks.insert(id.into_owned(), ended);
        }
        self.start(client, follows);
    }

    /// Follows a session's tasks for one more listener, until the result is dropped.
    pub(super) fn follow_for(
        self: &Arc<Self>,
        client: &Arc<CallContext>,
        messages: &ServerMessages,
    ) -> Option<Following> {
        let (mut follows, left) = (Vec::new(), CancellationToken::new());
        let mut sessions = self.followed.sessions.lock();
        sessions.next += 1;
        let id = sessions.next;
        let session = sessions.session(&client.caller)?;
        for (task, ended) in &session.tasks {
            let (task, messages) = (task.clone(), messages.clone());
            follows.push(Follow {
                task,
                messages,
                left: left.clone(),
                ended: ended.clone(),
            });
        }
        session
            .listeners
            .insert(id, (messages.clone(), left.clone()));
        drop(sessions);
        self.start(client, follows);
        let session = client.caller.session()?;
        Some(Following {
            followed: Arc::clone(&self.followed),
            session,
            id,
            _left: left.drop_guard(),
        })
    }

    fn start(&self, client: &Arc<CallContext>, follows: Vec<Follow>) {
        for Follow {
            task,
            messages,
            left,
            ended,
        } in follows
        {
            let interest = Interest {
                tasks: vec![task.into()],
                ..Interest::default()
            };
            let listen = Listen {
                interest,
                context: Arc::clone(client),
                messages,
            };
            let mut follow = Box::pin(listen_until_dropped(Arc::clone(&self.calls), listen));
            // Polled here, so that no notification is missed before the task below runs.
            if (&mut follow).now_or_never().is_none() {
                self.spawn(async move {
                    left.run_until_cancelled(ended.run_until_cancelled(follow))
                        .await;
                });
            }
        }
    }
}

async fn listen_until_dropped(calls: Arc<Dispatcher>, listen: Listen) {
    let mut backoff = Backoff::new(calls.timeouts.reconnect);
    loop {
        match calls.pool.listen(listen.clone()).await {
            Ok(_listening) => std::future::pending().await,
            Err(BackendError::ShuttingDown) => return,
            Err(_) => sleep(backoff.next_delay()).await,
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut sessions = self.followed.sessions.lock();
        let Some(session) = sessions.by_key.get_mut(&self.session) else {
            return;
        };
        session.listeners.remove(&self.id);
        if session.listeners.is_empty() && session.tasks.is_empty() {
            sessions.by_key.remove(&self.session);
        }
    }
}
