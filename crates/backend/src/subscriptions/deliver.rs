//! Chooses the listeners for a message that belongs to no call.
//!
//! Nothing here waits: a message is dropped if its listener has no capacity for it.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::{Caller, Interest, Names, Principal, ServerMessage};
use fanlight_protocol::subscription::{Change, Lists};
use fanlight_protocol::uri::with_parents;
use fanlight_protocol::{Json, Method, Notification};

use super::Origin;
use super::state::{Entry, Listener, ListenerId, State, Subscriber, Verdict};

/// A notification, and the session that has already received it. Each delivery returns the number
/// of listeners without capacity.
type Delivery<'a> = (&'a Notification, Option<&'a Caller>);

/// Sends a notification to its listeners.
pub(super) fn deliver(
    state: &mut State,
    origin: &Origin,
    shared: bool,
    delivery: Delivery<'_>,
) -> usize {
    match (origin, &delivery.0.method) {
        (_, Method::TaskStatus | Method::TaskChanged) => state.deliver_task(origin, delivery),
        (Origin::Session(caller), _) => state.deliver_to_session(caller, delivery),
        (Origin::Base, _) => state.deliver_to_all(shared, delivery),
        // Updates of resources go through [`State::deliver_update`].
        (Origin::Clients { .. }, _) => 0,
    }
}

/// The listeners for a resource update.
#[derive(Clone, Copy)]
pub(super) enum Audience<'a> {
    /// All listeners, except for these principals' listeners without a session.
    AllBut(&'a [Principal]),
    /// The listeners of this principal without a session; sessions have their own connections.
    Of(&'a Principal),
}

/// Announces to all listeners of a connection that lists and resources may have changed. `recorded`
/// has the subscriptions of the session on its own connection.
pub(super) fn announce(
    state: &mut State,
    origin: &Origin,
    lists: Lists,
    recorded: &Names,
) -> usize {
    let is_accepted = |(_, entry): &(&Arc<str>, &Entry)| {
        *origin == Origin::Base && matches!(entry.verdict, Verdict::Accepted)
    };
    let accepted = state.uris.iter().filter(is_accepted).map(|(uri, _)| uri);
    let changed = Interest {
        lists,
        uris: accepted.chain(recorded).cloned().collect(),
        ..Interest::default()
    };
    let all = changed.announcements();
    all.map(|announcement| deliver(state, origin, false, (&announcement, None)))
        .sum()
}

/// The statuses of tasks that have ended.
const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

impl Audience<'_> {
    pub(super) fn includes(self, listener: &Listener) -> bool {
        let has_session = listener.context.session().is_some();
        match self {
            Self::AllBut(others) => has_session || !others.contains(listener.principal()),
            Self::Of(principal) => !has_session && principal == listener.principal(),
        }
    }
}

/// Sends a notification to these listeners.
fn send<'a>(
    (notification, except): Delivery<'_>,
    listeners: impl Iterator<Item = &'a Listener>,
) -> usize {
    let is_full = |listener: &&Listener| {
        except != Some(&listener.context.caller)
            && !listener
                .messages
                .try_send(ServerMessage::Notification(notification.clone()))
    };
    listeners.filter(is_full).count()
}

impl State {
    /// Messages on a session's own connection belong to the session; list changes are sent only if
    /// wanted. Without a listener, the first messages wait for one.
    fn deliver_to_session(&mut self, caller: &Caller, delivery: Delivery<'_>) -> usize {
        let Some(session) = self.session_mut(caller) else {
            return 0;
        };
        if session.listeners.is_empty() {
            session.more().unheard.add(delivery.0);
            return 0;
        }
        let ids = session.listeners.clone();
        let change = Change::from_method(&delivery.0.method);
        let listeners = ids.iter().filter_map(|id| self.listeners.get(id));
        send(
            delivery,
            listeners.filter(|listener| change.is_none_or(|change| listener.lists.has(change))),
        )
    }

    fn deliver_to_all(&self, shared: bool, delivery: Delivery<'_>) -> usize {
        let method = &delivery.0.method;
        let change = Change::from_method(method);
        let concerns = |listener: &Listener| match (method, change) {
            (_, Some(change)) => listener.lists.has(change),
            // Log messages of the base session do not concern clients with their own sessions.
            (Method::LogMessage, _) if !shared => false,
            // Nobody knows whom it concerns, so all listeners get it.
            (Method::Other(_), _) => true,
            _ => listener.session,
        };
        if *method == Method::ResourceUpdated {
            return self.deliver_update(Audience::AllBut(&[]), delivery);
        }
        // A session with its own stream gets its messages there.
        let without_stream = |listener: &&Listener| !self.has_own_stream(&listener.context.caller);
        let concerned = self
            .listeners
            .values()
            .filter(|listener| concerns(listener));
        send(delivery, concerned.filter(without_stream))
    }

    /// The updated resource may be a part of the subscribed one (2026-07-28 schema,
    /// `ResourceUpdatedNotification`).
    pub(super) fn deliver_update(&self, audience: Audience<'_>, delivery: Delivery<'_>) -> usize {
        let uri = delivery.0.updated_uri().unwrap_or_default();
        let entries = with_parents(&uri).filter_map(|uri| self.uris.get(uri));
        let listeners = entries.flat_map(|entry| self.listeners_of(entry));
        send(
            delivery,
            listeners.filter(|listener| audience.includes(listener)),
        )
    }

    /// Sends a task's state to the listeners that named the task, and to the session whose own
    /// connection it arrived on. On a connection of one principal, only that principal's listeners
    /// get it. Sessions stop naming a task that has ended.
    fn deliver_task(&mut self, origin: &Origin, delivery: Delivery<'_>) -> usize {
        let (notification, principal) = (delivery.0, origin.principal());
        let task = notification.param("taskId").and_then(|id| id.to_str());
        let entry = task.as_ref().and_then(|task| self.tasks.get(&**task));
        let session = origin.session().and_then(|caller| self.session(caller));
        let ids: HashSet<&ListenerId> = entry
            .into_iter()
            .flat_map(|entry| self.ids_of(entry))
            .chain(session.into_iter().flat_map(|session| &session.listeners))
            .collect();
        let is_allowed = |listener: &&Listener| {
            principal.is_none_or(|principal| principal == listener.principal())
        };
        let listeners = ids.into_iter().filter_map(|id| self.listeners.get(id));
        let told: Vec<_> = listeners.filter(is_allowed).collect();
        let dropped = send(delivery, told.iter().copied());
        let has_ended = |status: Json| ENDED.iter().any(|ended| status.is_str(ended));
        if notification.param("status").is_some_and(has_ended) {
            let told: Vec<_> = told
                .iter()
                .map(|listener| listener.context.caller.clone())
                .collect();
            let task = task.unwrap_or_default();
            told.iter().for_each(|caller| self.unfollow(caller, &task));
        }
        dropped
    }

    /// The listeners of a resource or task: all that name it, and all listeners of sessions.
    fn ids_of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a ListenerId> {
        entry
            .subscribers
            .iter()
            .flat_map(|subscriber| match subscriber {
                Subscriber::Listener(id) => std::slice::from_ref(id),
                Subscriber::Session(key) => self
                    .sessions
                    .get(key)
                    .map_or(&[][..], |session| &session.listeners),
            })
    }

    pub(super) fn listeners_of<'a>(
        &'a self,
        entry: &'a Entry,
    ) -> impl Iterator<Item = &'a Listener> {
        self.ids_of(entry).filter_map(|id| self.listeners.get(id))
    }
}
