//! Chooses the listeners for a message that belongs to no call.
//!
//! Nothing here waits: a message is dropped if its listener has no capacity for it.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::{Caller, Interest, Principal, ServerMessage};
use fanlight_protocol::subscription::{Change, Lists};
use fanlight_protocol::uri::with_parents;
use fanlight_protocol::{Json, Method, Notification};

use super::Origin;
use super::state::{Entry, Listener, Session, State, Subscriber, Verdict};

/// Sends a notification to its listeners, except for the session that has already received it.
/// Returns the number of listeners without capacity.
pub(super) fn deliver(
    state: &mut State,
    origin: &Origin,
    shared: bool,
    notification: &Notification,
    except: Option<&Caller>,
) -> usize {
    let mut delivery = Delivery {
        notification,
        except,
        dropped: 0,
    };
    match origin {
        _ if matches!(
            notification.method,
            Method::TaskStatus | Method::TaskChanged
        ) =>
        {
            state.deliver_task(origin, &mut delivery);
            state.unfollow_ended(origin, notification);
        }
        Origin::Session(caller) => state.deliver_to_session(caller, &mut delivery),
        Origin::Base => state.deliver_to_all(shared, &mut delivery),
        // Updates of resources go through [`update`].
        Origin::Clients { .. } => {}
    }
    delivery.dropped
}

/// The listeners for a resource update.
#[derive(Clone, Copy)]
pub(super) enum Audience<'a> {
    /// All listeners, except for these principals' listeners without a session.
    AllBut(&'a [Principal]),
    /// The listeners of this principal without a session; sessions have their own connections.
    Of(&'a Principal),
}

/// Sends a resource update to its listeners; returns the number without capacity.
pub(super) fn update(state: &State, audience: Audience<'_>, notification: &Notification) -> usize {
    let mut delivery = Delivery {
        notification,
        except: None,
        dropped: 0,
    };
    state.deliver_update(audience, &mut delivery);
    delivery.dropped
}

/// Announces to all listeners of a connection that lists and resources may have changed. `recorded`
/// has the subscriptions of the session on its own connection.
pub(super) fn announce(
    state: &mut State,
    origin: &Origin,
    lists: Lists,
    recorded: &HashSet<Arc<str>>,
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
    all.map(|announcement| deliver(state, origin, false, &announcement, None))
        .sum()
}

/// The statuses of tasks that have ended.
const ENDED: [&str; 3] = ["completed", "failed", "cancelled"];

/// The id of the task that a notification is about.
fn task_of(notification: &Notification) -> Option<String> {
    notification.param("taskId")?.to_str()
}

struct Delivery<'a> {
    notification: &'a Notification,
    except: Option<&'a Caller>,
    dropped: usize,
}

impl Audience<'_> {
    fn includes(self, listener: &Listener) -> bool {
        match self {
            Self::AllBut(others) => {
                listener.context.session().is_some() || !others.contains(listener.principal())
            }
            Self::Of(principal) => {
                listener.context.session().is_none() && principal == listener.principal()
            }
        }
    }
}

impl Delivery<'_> {
    fn send(&mut self, listener: &Listener) {
        if self.except != Some(&listener.context.caller) {
            let taken = listener
                .messages
                .try_send(ServerMessage::Notification(self.notification.clone()));
            self.dropped += usize::from(!taken);
        }
    }

    fn send_all<'a>(&mut self, listeners: impl Iterator<Item = &'a Listener>) {
        listeners.for_each(|listener| self.send(listener));
    }
}

impl State {
    /// Messages on a session's own connection belong to the session; list changes are sent only if
    /// wanted. Without a listener, the first messages wait for one.
    fn deliver_to_session(&mut self, caller: &Caller, delivery: &mut Delivery<'_>) {
        if let Some(session) = self.session_mut(caller)
            && session.listeners.is_empty()
        {
            return session.more().unheard.add(delivery.notification);
        }
        let change = Change::from_method(&delivery.notification.method);
        let listeners = self
            .session(caller)
            .into_iter()
            .flat_map(|session| self.listeners(session));
        delivery.send_all(
            listeners.filter(|listener| change.is_none_or(|change| listener.lists.has(change))),
        );
    }

    fn deliver_to_all(&self, shared: bool, delivery: &mut Delivery<'_>) {
        if let Some(change) = Change::from_method(&delivery.notification.method) {
            // A session with its own stream receives the change there.
            let listeners = self
                .listeners
                .values()
                .filter(|listener| listener.lists.has(change));
            return delivery.send_all(
                listeners.filter(|listener| !self.has_own_stream(&listener.context.caller)),
            );
        }
        match delivery.notification.method {
            Method::ResourceUpdated => self.deliver_update(Audience::AllBut(&[]), delivery),
            // Log messages of the base session do not concern clients with their own sessions.
            Method::LogMessage if !shared => {}
            // Nobody knows whom it concerns, so all listeners get it. A session with its own stream
            // gets its messages there.
            Method::Other(_) => {
                let without_stream =
                    |listener: &&Listener| !self.has_own_stream(&listener.context.caller);
                delivery.send_all(self.listeners.values().filter(without_stream));
            }
            _ => {
                let sessions = self.sessions.values();
                let without_stream = sessions.filter(|session| !session.has_own_stream);
                delivery.send_all(without_stream.flat_map(|session| self.listeners(session)));
            }
        }
    }

    /// The updated resource may be a part of the subscribed one (2026-07-28 schema,
    /// `ResourceUpdatedNotification`).
    fn deliver_update(&self, audience: Audience<'_>, delivery: &mut Delivery<'_>) {
        let Some(uri) = delivery.notification.updated_uri() else {
            return;
        };
        for entry in with_parents(&uri).filter_map(|uri| self.uris.get(uri)) {
            for subscriber in &entry.subscribers {
                match subscriber {
                    Subscriber::Listener(id) => {
                        let is_in = |listener: &&Listener| audience.includes(listener);
                        delivery.send_all(self.listeners.get(id).into_iter().filter(is_in));
                    }
                    Subscriber::Session(key) if matches!(audience, Audience::AllBut(_)) => {
                        delivery.send_all(
                            self.sessions
                                .get(key)
                                .into_iter()
                                .flat_map(|session| self.listeners(session)),
                        );
                    }
                    Subscriber::Session(_) => {}
                }
            }
        }
    }

    /// Sends a task's state to the listeners that named the task, and to the session whose own
    /// connection it arrived on. On a connection of one principal, only that principal's listeners
    /// get it.
    fn deliver_task(&self, origin: &Origin, delivery: &mut Delivery<'_>) {
        let entry = task_of(delivery.notification).and_then(|id| self.tasks.get(&*id));
        let session = origin.session().and_then(|caller| self.session(caller));
        let principal = origin.principal();
        let named = entry.into_iter().flat_map(Entry::listeners);
        let sessions = session.into_iter().chain(self.following(entry));
        let ids: HashSet<_> = named
            .chain(sessions.flat_map(|session| &session.listeners))
            .collect();
        let listeners = ids.into_iter().filter_map(|id| self.listeners.get(id));
        let is_allowed = |listener: &&Listener| {
            principal.is_none_or(|principal| principal == listener.principal())
        };
        delivery.send_all(listeners.filter(is_allowed));
    }

    /// Stops naming a task that has ended, for all sessions that have learnt of that.
    fn unfollow_ended(&mut self, origin: &Origin, notification: &Notification) {
        let has_ended = |status: Json| ENDED.iter().any(|ended| status.is_str(ended));
        let has_ended = notification.param("status").is_some_and(has_ended);
        let Some(task) = task_of(notification).filter(|_| has_ended) else {
            return;
        };
        let is_told = |session: &&Session| {
            let principal = origin.principal();
            principal.is_none_or(|principal| principal == session.caller.principal())
        };
        let told = self.following(self.tasks.get(&*task)).filter(is_told);
        let told: Vec<_> = told.map(|session| session.caller.clone()).collect();
        told.iter().for_each(|caller| self.unfollow(caller, &task));
    }

    fn listeners(&self, session: &Session) -> impl Iterator<Item = &Listener> {
        session
            .listeners
            .iter()
            .filter_map(|id| self.listeners.get(id))
    }
}
