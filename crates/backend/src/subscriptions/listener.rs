//! The state of one listener and of one client's session. It is small, since every backend has one of
//! each for every client that listens.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::{CallContext, Caller, Interest, Principal, ServerMessages};
use fanlight_protocol::meta::LogLevel;
use smallvec::SmallVec;
use tokio::sync::watch;

use super::filter::Lists;

/// Tells listeners apart.
pub(crate) type ListenerId = u64;

pub(super) struct Listener {
    /// What it receives of the base connection: what that server has agreed to.
    pub(super) request: ListenRequest,
    /// The lists whose changes it asked for. A session's own connection may announce those that the base connection does
    /// not: the eras of a server may differ.
    pub(super) lists: Lists,
    pub(super) context: Arc<CallContext>,
    pub(super) messages: ServerMessages,
}

/// What a listener wants to receive.
#[derive(Default)]
pub(super) struct ListenRequest {
    pub(super) lists: Lists,
    /// What is sent to its session.
    pub(super) session: bool,
    /// Few listeners name any.
    named: Option<Box<Named>>,
}

struct Named {
    uris: Box<[Arc<str>]>,
    tasks: Box<[Arc<str>]>,
}

/// The state of a client's session.
pub(super) struct Session {
    /// Whose session it is.
    pub(super) caller: Caller,
    /// The listeners that receive what is sent to the session.
    pub(super) listeners: SmallVec<[ListenerId; 1]>,
    /// The least severe log message the session asked for last.
    pub(super) level: Option<LogLevel>,
    /// List changes arrive on the session's own connection.
    pub(super) has_own_stream: bool,
    pub(super) more: Option<Box<More>>,
}

/// What few sessions have.
#[derive(Default)]
pub(super) struct More {
    /// Whether the session has listeners, for the task of its own connection.
    pub(super) presence: Option<watch::Sender<bool>>,
    /// Resources that it has subscribed to on the base connection.
    pub(super) base_uris: HashSet<Arc<str>>,
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
            lists: Lists::of(interest),
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
            || more.is_some_and(|more| !more.base_uris.is_empty())
            || more
                .and_then(|more| more.presence.as_ref())
                .is_some_and(|watched| watched.receiver_count() > 0)
    }
}
