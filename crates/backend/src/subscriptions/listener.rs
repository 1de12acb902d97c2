//! The state of one listener and of one client's session. It is small, since every server has both
//! for every listening client.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::{CallContext, Caller, Interest, Principal, ServerMessages};
use fanlight_protocol::Notification;
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::subscription::Lists;
use smallvec::SmallVec;
use tokio::sync::watch;

/// Identifies a listener.
pub(crate) type ListenerId = u64;

pub(super) struct Listener {
    /// The messages it receives from the base connection, as agreed by the server.
    pub(super) request: ListenRequest,
    /// The lists whose changes it asked for. A session's own connection may announce more than the
    /// base connection, since a server's eras may differ.
    pub(super) lists: Lists,
    pub(super) context: Arc<CallContext>,
    pub(super) messages: ServerMessages,
}

/// The messages that a listener wants.
#[derive(Default)]
pub(super) struct ListenRequest {
    pub(super) lists: Lists,
    /// Whether it wants messages to its session.
    pub(super) session: bool,
    /// Few listeners name resources or tasks.
    named: Option<Box<Named>>,
}

struct Named {
    uris: Box<[Arc<str>]>,
    tasks: Box<[Arc<str>]>,
}

/// The state of a client's session.
pub(super) struct Session {
    /// The session and its client.
    pub(super) caller: Caller,
    /// The listeners that receive messages to the session.
    pub(super) listeners: SmallVec<[ListenerId; 1]>,
    /// The least severe log level that the session last asked for.
    pub(super) level: Option<LogLevel>,
    /// Whether list changes arrive on the session's own connection.
    pub(super) has_own_stream: bool,
    pub(super) more: Option<Box<More>>,
}

/// The limits of messages that wait: their number, and their bytes.
const WAITING: (usize, usize) = (32, 64 << 10);

/// Notifications that wait for their receiver. Further ones are dropped above the limits.
#[derive(Default)]
pub(super) struct Waiting(Vec<Notification>);

impl Waiting {
    pub(super) fn add(&mut self, notification: &Notification) {
        let texts = self.0.iter().chain([notification]);
        let bytes: usize = texts.map(|waiting| waiting.text.bytes().len()).sum();
        if self.0.len() < WAITING.0 && bytes <= WAITING.1 {
            let mut waiting = notification.clone();
            // Copied, since it may wait long: otherwise it would keep its read buffer in memory.
            waiting.text = waiting.text.detached();
            self.0.push(waiting);
        }
    }

    pub(super) fn take(&mut self) -> Vec<Notification> {
        std::mem::take(&mut self.0)
    }
}

/// The data that few sessions have.
#[derive(Default)]
pub(super) struct More {
    /// The server's messages until the client listens.
    pub(super) unheard: Waiting,
    /// The client's notifications until the session has a connection.
    pub(super) early: Waiting,
    /// Reports to the task of the session's own connection whether the session has listeners.
    pub(super) presence: Option<watch::Sender<bool>>,
    /// The resources that it is subscribed to on the base connection.
    pub(super) base_uris: HashSet<Arc<str>>,
    /// The running tasks that are named for it while it listens.
    pub(super) tasks: HashSet<Arc<str>>,
}

impl Listener {
    pub(super) fn principal(&self) -> &Principal {
        self.context.caller.principal()
    }
}

impl ListenRequest {
    pub(super) fn of(interest: &Interest) -> Self {
        let Interest {
            uris,
            tasks,
            session,
            ..
        } = interest;
        let named = || {
            Box::new(Named {
                uris: uris.as_slice().into(),
                tasks: tasks.as_slice().into(),
            })
        };
        let any = !uris.is_empty() || !tasks.is_empty();
        Self {
            lists: interest.lists,
            session: *session,
            named: any.then(named),
        }
    }

    pub(super) fn uris(&self) -> &[Arc<str>] {
        self.named.as_ref().map_or(&[], |named| &named.uris)
    }

    pub(super) fn tasks(&self) -> &[Arc<str>] {
        self.named.as_ref().map_or(&[], |named| &named.tasks)
    }
}

impl Session {
    pub(super) fn of(caller: &Caller) -> Self {
        let (caller, listeners) = (caller.clone(), SmallVec::new());
        Self {
            caller,
            listeners,
            level: None,
            has_own_stream: false,
            more: None,
        }
    }

    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(super) fn update_presence(&self) {
        if let Some(presence) = self.more.as_ref().and_then(|more| more.presence.as_ref()) {
            presence.send_replace(!self.listeners.is_empty());
        }
    }

    pub(super) fn is_used(&self) -> bool {
        let more = self.more.as_ref();
        !self.listeners.is_empty()
            || self.has_own_stream
            || more.is_some_and(|more| !more.base_uris.is_empty() || !more.tasks.is_empty())
            || more
                .and_then(|more| more.presence.as_ref())
                .is_some_and(|watched| watched.receiver_count() > 0)
    }
}
