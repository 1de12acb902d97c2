//! Listening to what a server sends outside of calls, in canonical form.
//!
//! Two kinds of clients listen. One without a session names what it wants to hear of
//! (2026-07-28 basic/patterns/subscriptions); one with a session hears whatever the server sends to
//! that session, and subscribes to resources by requests of their own (`resources/subscribe`, sent
//! as any other call with the session in its context).
//!
//! Must not know: how a server is told, or how the client hears it.

use std::any::Any;
use std::sync::Arc;

use fanlight_protocol::Json;

use crate::client::{CallContext, ServerMessages};

/// What somebody wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// `notifications/tools/list_changed`
    pub tools: bool,
    /// `notifications/prompts/list_changed`
    pub prompts: bool,
    /// `notifications/resources/list_changed`
    pub resources: bool,
    /// `notifications/resources/updated` of these resources.
    pub uris: Vec<Arc<str>>,
    /// The state of these tasks, by id.
    pub tasks: Vec<Arc<str>>,
    /// Everything that the server sends to the client's session and to no call of it: log
    /// messages, questions, and what nobody has invented yet. What the session has subscribed to
    /// by requests belongs to it. Only with [`CallContext::session`].
    pub session: bool,
    /// Members of a subscription filter that nobody has invented yet, as one object of the client's
    /// bytes. Only a server that knows them can honour them.
    pub unknown: Option<Json>,
}

impl Interest {
    /// Whether there is nothing to hear of.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A wish to hear what a server sends outside of calls.
#[derive(Clone, Debug)]
pub struct Listen {
    /// What of it.
    pub interest: Interest,
    /// Who listens.
    pub context: Arc<CallContext>,
    /// Where it goes. What does not fit is dropped: a slow reader holds up nobody. Notifications
    /// carry no `io.modelcontextprotocol/subscriptionId`: that belongs to one hop. Once all its
    /// senders are gone, there is nothing more to hear.
    pub messages: ServerMessages,
}

/// Somebody listens, until this is dropped.
#[must_use = "dropping it ends the listening"]
pub struct Listening {
    /// What of the interest is honoured.
    pub honoured: Interest,
    until_dropped: ListeningGuard,
}

/// The same without what is honoured, for whoever has seen that and keeps many.
#[must_use = "dropping it ends the listening"]
pub struct ListeningGuard {
    _until_dropped: Box<dyn Any + Send + Sync>,
}

impl Listening {
    /// Listening that `guard` ends by being dropped.
    pub fn new(honoured: Interest, guard: impl Any + Send + Sync) -> Self {
        Self { honoured, until_dropped: ListeningGuard { _until_dropped: Box::new(guard) } }
    }

    /// Lets go of all but the listening itself.
    pub fn into_guard(self) -> ListeningGuard {
        self.until_dropped
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening").field("honoured", &self.honoured).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ListeningGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListeningGuard")
    }
}
