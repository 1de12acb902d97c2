//! What is kept of one listener, and of one client's session: little, since at every backend there
//! is one of each for every client that listens.
//!
//! Must not know: the other listeners.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_protocol::meta::LogLevel;
use smallvec::SmallVec;
use tokio::sync::watch;

use super::filter::Lists;
use fanlight_canonical::Interest;
use fanlight_canonical::{CallContext, ServerMessages, SessionKey};

/// Tells listeners apart.
pub(crate) type ListenerId = u64;

/// Somebody who listens.
pub(super) struct Listener {
    pub(super) wish: Wish,
    pub(super) context: Arc<CallContext>,
    pub(super) messages: ServerMessages,
}

/// What a listener wants to hear of.
#[derive(Clone, Default)]
pub(super) struct Wish {
    pub(super) lists: Lists,
    /// What is meant for its session.
    pub(super) session: bool,
    /// Few listeners name any.
    named: Option<Box<Named>>,
}

#[derive(Clone, Default)]
struct Named {
    uris: Box<[Arc<str>]>,
    tasks: Box<[Arc<str>]>,
}

/// What is kept of a client's session, while anything is.
#[derive(Default)]
pub(super) struct Session {
    /// Those that hear what is meant for the session.
    pub(super) listeners: SmallVec<[ListenerId; 1]>,
    /// The least severe log message the session asked for last.
    pub(super) level: Option<LogLevel>,
    /// The session has a line of its own on which list changes arrive.
    pub(super) hears_itself: bool,
    pub(super) more: Option<Box<More>>,
}

/// What few sessions have.
#[derive(Default)]
pub(super) struct More {
    /// Tells the keeper of the session's own line whether anybody listens.
    pub(super) presence: Option<watch::Sender<bool>>,
    /// Subscribed to on the session's own line.
    pub(super) own_uris: HashSet<Arc<str>>,
    /// Subscribed to on the base line.
    pub(super) base_uris: HashSet<Arc<str>>,
    /// Its tasks, whose status it hears on the base line.
    pub(super) tasks: HashSet<Arc<str>>,
}

impl Listener {
    pub(super) fn session(&self) -> Option<SessionKey> {
        self.context.session()
    }
}

impl Wish {
    pub(super) fn of(interest: &Interest) -> Self {
        let Interest { uris, tasks, session, .. } = interest;
        let named = || Box::new(Named { uris: uris.as_slice().into(), tasks: tasks.as_slice().into() });
        let any = !uris.is_empty() || !tasks.is_empty();
        Self { lists: Lists::of(interest), session: *session, named: any.then(named) }
    }

    pub(super) fn uris(&self) -> &[Arc<str>] {
        self.named.as_ref().map_or(&[], |named| &named.uris)
    }

    pub(super) fn tasks(&self) -> &[Arc<str>] {
        self.named.as_ref().map_or(&[], |named| &named.tasks)
    }
}

impl Session {
    /// What it has subscribed to on its own line.
    pub(super) fn own_uris(&self) -> impl Iterator<Item = &Arc<str>> {
        self.more.iter().flat_map(|more| &more.own_uris)
    }

    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(super) fn has_tasks(&self) -> bool {
        self.more.as_ref().is_some_and(|more| !more.tasks.is_empty())
    }

    pub(super) fn tell_presence(&self) {
        if let Some(presence) = self.more.as_ref().and_then(|more| more.presence.as_ref()) {
            presence.send_replace(!self.listeners.is_empty());
        }
    }

    pub(super) fn is_of_use(&self) -> bool {
        !self.listeners.is_empty() || self.hears_itself || self.more.as_ref().is_some_and(|more| more.is_of_use())
    }
}

impl More {
    fn is_of_use(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.receiver_count() > 0)
            || !self.own_uris.is_empty()
            || !self.base_uris.is_empty()
            || !self.tasks.is_empty()
    }
}
