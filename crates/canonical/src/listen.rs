//! Listening to messages that a server sends outside of calls, in canonical form.
//!
//! Two kinds of clients listen. A client without a session names its interests (2026-07-28
//! basic/patterns/subscriptions). A client with a session receives everything that the server sends
//! to that session. It subscribes to resources by `resources/subscribe`, which is sent like any
//! other call with the session in its context.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use fanlight_protocol::json::union;
use fanlight_protocol::subscription::{self, Lists};
use fanlight_protocol::{Json, Notification};

use crate::{CallContext, ServerMessage, ServerMessages};

/// The longest URI, in bytes, that is compared with lists and templates.
pub const LONGEST_URI: usize = 64 << 10;

/// The most bytes of a subscription's parameters that are kept to subscribe again. Of longer ones
/// only the URI is kept, which is what matters.
pub const KEPT_PARAMS: usize = 16 << 10;

/// URIs of resources, or ids of tasks.
pub type Names = BTreeSet<Arc<str>>;

/// A wish: the messages that a listener wants to receive, or the part that is honoured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Changes of these lists.
    pub lists: Lists,
    /// `notifications/resources/updated` of these resources.
    pub uris: Names,
    /// The state of these tasks, by id.
    pub tasks: Names,
    /// Everything that the server sends to the client's session outside of its calls: log messages,
    /// requests to the client, updates of subscribed resources, and unknown notifications. Only
    /// with [`CallContext::session`].
    pub session: bool,
    /// Members of the subscription filter that Fanlight does not know, as one object of the
    /// client's bytes. Only a server that knows them can honour them.
    pub unknown: Option<Json>,
}

impl Interest {
    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it contains only changes of lists and messages to the session.
    pub fn is_about_lists_and_session(&self) -> bool {
        self.uris.is_empty() && self.tasks.is_empty() && self.unknown.is_none()
    }

    /// Adds the interests that another server or connection has accepted.
    pub fn extend(&mut self, other: Self) {
        self.lists = self.lists | other.lists;
        self.uris.extend(other.uris);
        self.tasks.extend(other.tasks);
        self.session |= other.session;
        self.unknown = match (self.unknown.take(), other.unknown) {
            (Some(all), Some(one)) => Some(union(&all, &one)),
            (all, one) => all.or(one),
        };
    }

    /// Whether this contains everything in a `smaller` interest without a session.
    #[must_use]
    pub fn covers(&self, smaller: &Self) -> bool {
        self.lists & smaller.lists == smaller.lists
            && smaller.uris.is_subset(&self.uris)
            && smaller.tasks.is_subset(&self.tasks)
            && (smaller.unknown.is_none() || smaller.unknown == self.unknown)
    }

    /// The interest that a server's filter of `subscriptions/listen` expresses.
    pub fn from_filter(filter: &Json) -> Self {
        Self {
            lists: subscription::lists_of(filter),
            uris: subscription::texts_of(filter, subscription::URIS),
            tasks: subscription::texts_of(filter, subscription::TASKS),
            session: false,
            unknown: subscription::unknown_members(filter),
        }
    }

    /// The notifications that all these lists and resources may have changed.
    pub fn announcements(&self) -> impl Iterator<Item = Notification> {
        let lists = self.lists.changes();
        let lists = lists.map(|change| Notification::new(change.method(), None));
        let uris = self.uris.iter();
        lists.chain(uris.map(|uri| Notification::resource_updated(uri)))
    }

    /// Announces to a listener that all these lists and resources may have changed. Messages that
    /// do not fit are lost, as any notification.
    pub fn announce(&self, messages: &ServerMessages) {
        for announcement in self.announcements() {
            let _lost = messages.try_send(ServerMessage::Notification(announcement));
        }
    }
}

impl From<Lists> for Interest {
    fn from(lists: Lists) -> Self {
        Self {
            lists,
            ..Self::default()
        }
    }
}

/// A request to receive messages that a server sends outside of calls.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The messages to receive.
    pub interest: Interest,
    /// The listening client.
    pub context: Arc<CallContext>,
    /// Takes the messages. Messages that do not fit are dropped, so that a slow client delays no
    /// other one. Notifications carry no `io.modelcontextprotocol/subscriptionId`, which belongs to
    /// one hop. Listening has ended once all senders of the channel are gone.
    pub messages: ServerMessages,
}

/// A client's listening, which ends when this is dropped.
#[must_use = "dropping it ends the listening"]
pub struct Listening {
    /// The part of the interest that is honoured.
    pub honoured: Interest,
    until_dropped: ListeningGuard,
}

/// A [`Listening`] without the honoured interest, which takes less memory.
#[must_use = "dropping it ends the listening"]
pub struct ListeningGuard {
    _until_dropped: Box<dyn Any + Send + Sync>,
}

impl Listening {
    /// Creates a listening that ends when `guard` is dropped.
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

fanlight_protocol::opaque!(ListeningGuard, Listening);

#[cfg(test)]
mod tests {
    use fanlight_protocol::subscription::Change;

    use super::*;

    #[test]
    fn interest_covers_equal_and_smaller_ones() {
        let interest = Interest {
            lists: Change::Tools.into(),
            uris: ["a".into(), "b".into()].into(),
            ..Interest::default()
        };
        let smaller = Interest {
            uris: ["b".into()].into(),
            ..Interest::default()
        };
        assert!(
            interest.covers(&interest) && interest.covers(&smaller) && !smaller.covers(&interest)
        );
        let unknown = Interest {
            unknown: Some(Json::literal(r#"{"x":1}"#)),
            ..interest.clone()
        };
        assert!(unknown.covers(&interest) && !interest.covers(&unknown));
    }
}
