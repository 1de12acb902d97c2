//! Listening to what a server sends outside of calls, in canonical form.
//!
//! Two kinds of clients listen. One without a session names what it is interested in
//! (2026-07-28 basic/patterns/subscriptions). One with a session receives everything that the server
//! sends to that session, and subscribes to resources by requests of their own
//! (`resources/subscribe`, sent as any other call with the session in its context).

use std::any::Any;
use std::sync::Arc;

use fanlight_protocol::Json;

use crate::call::CallContext;
use crate::messages::ServerMessages;

/// What a listener wants to receive.
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
    /// Everything that the server sends to the client's session outside of its calls: log messages,
    /// requests to the client, updates that the session has subscribed to by requests, and
    /// notifications that Fanlight does not know. Only with [`CallContext::session`].
    pub session: bool,
    /// Members of the subscription filter that Fanlight does not know, as one object of the client's
    /// bytes. Only a server that knows them can honour them.
    pub unknown: Option<Json>,
}

impl Interest {
    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it is about nothing but changes of lists, and what the server sends to the session.
    #[must_use]
    pub fn is_about_lists_and_session(&self) -> bool {
        self.uris.is_empty() && self.tasks.is_empty() && self.unknown.is_none()
    }
}

/// A request to receive what a server sends outside of calls.
#[derive(Clone, Debug)]
pub struct Listen {
    /// What to receive.
    pub interest: Interest,
    /// The listening client.
    pub context: Arc<CallContext>,
    /// Takes the messages. What does not fit is dropped, so that a slow client delays no other.
    /// Notifications carry no `io.modelcontextprotocol/subscriptionId`, which belongs to one hop.
    /// Listening has ended once all senders of the channel are gone.
    pub messages: ServerMessages,
}

/// Listening that ends when this is dropped.
#[must_use = "dropping it ends the listening"]
pub struct Listening {
    /// The part of the interest that is honoured.
    pub honoured: Interest,
    until_dropped: ListeningGuard,
}

/// A [`Listening`] without the honoured interest, smaller.
#[must_use = "dropping it ends the listening"]
pub struct ListeningGuard {
    _until_dropped: Box<dyn Any + Send + Sync>,
}

impl Listening {
    /// Listening that ends when `guard` is dropped.
    pub fn new(honoured: Interest, guard: impl Any + Send + Sync) -> Self {
        Self {
            honoured,
            until_dropped: ListeningGuard {
                _until_dropped: Box::new(guard),
            },
        }
    }

    /// Drops the honoured interest and keeps listening.
    pub fn into_guard(self) -> ListeningGuard {
        self.until_dropped
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening")
            .field("honoured", &self.honoured)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ListeningGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListeningGuard")
    }
}
