//! Whom a message of a server is for that belongs to no call.
//!
//! Nothing here waits: what a listener does not take in time is dropped.
//!
//! Must not know: how messages come in.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::uri::with_parents;
use fanlight_protocol::{Json, Method, Notification};
use tokio::sync::mpsc;

use super::Origin;
use super::filter::Lists;
use super::listener::{Listener, ListenerId, Session};
use super::registry::{Entry, Registry, Subscriber};
use super::{TaskStatus, wire};
use crate::tasks::translate::task_to_legacy;
use fanlight_canonical::Interest;
use fanlight_canonical::{ServerMessage, ServerMessages, SessionKey, TaskDialect};

/// The flag of a wish that a list change is for.
fn list_of(method: &Method) -> Option<fn(Lists) -> bool> {
    match method {
        Method::ToolsChanged => Some(|lists| lists.tools),
        Method::PromptsChanged => Some(|lists| lists.prompts),
        Method::ResourcesChanged => Some(|lists| lists.resources),
        _ => None,
    }
}

/// Whether a notification says that a list or a resource has changed.
pub(super) fn is_announcement(method: &Method) -> bool {
    list_of(method).is_some() || *method == Method::ResourceUpdated
}

/// Sends a notification to everybody it is for; how many did not take it.
pub(super) fn deliver(
    (registry, statuses): (&Registry, &mpsc::Sender<TaskStatus>),
    origin: Origin,
    shared: bool,
    notification: &Notification,
    except: Option<SessionKey>,
) -> usize {
    let mut outbox = Outbox { notification, statuses, except, dropped: 0 };
    if matches!(notification.method, Method::TaskStatus | Method::TaskChanged) {
        registry.about_task(origin, &mut outbox);
        return outbox.dropped;
    }
    match origin {
        Origin::Session(key) => registry.to_session(key, &mut outbox),
        Origin::Base => registry.on_base(shared, &mut outbox),
        Origin::Pooled => {}
    }
    outbox.dropped
}

/// Tells everybody that what they listen to may have changed; how many did not take it.
pub(super) fn announce(
    (registry, statuses): (&Registry, &mpsc::Sender<TaskStatus>),
    origin: Origin,
    lists: Lists,
) -> usize {
    let mut dropped = 0;
    for notification in changes(lists) {
        dropped += deliver((registry, statuses), origin, false, &notification, None);
    }
    let uris: Vec<Arc<str>> = match origin {
        Origin::Base => {
            let accepted = |entry: &Entry| matches!(entry.made, super::Made::Accepted);
            registry.uris.iter().filter(|(_, entry)| accepted(entry)).map(|(uri, _)| Arc::clone(uri)).collect()
        }
        Origin::Session(key) => registry.sessions.get(&key).into_iter().flat_map(Session::own_uris).cloned().collect(),
        Origin::Pooled => Vec::new(),
    };
    for notification in uris.iter().filter_map(|uri| wire::updated(uri)) {
        dropped += deliver((registry, statuses), origin, false, &notification, None);
    }
    dropped
}

/// Tells one listener that what it listens to may have changed; how many messages it did not take.
pub(super) fn announce_to(messages: &ServerMessages, heard: &Interest) -> usize {
    let updates = heard.uris.iter().filter_map(|uri| wire::updated(uri));
    let all = changes(Lists::of(heard)).into_iter().chain(updates);
    all.filter(|notification| !messages.try_send(ServerMessage::Notification(notification.clone()))).count()
}

fn changes(lists: Lists) -> Vec<Notification> {
    let kinds = [
        (Method::ToolsChanged, lists.tools),
        (Method::PromptsChanged, lists.prompts),
        (Method::ResourcesChanged, lists.resources),
    ];
    kinds.iter().filter(|(_, heard)| *heard).filter_map(|(method, _)| wire::changed(method)).collect()
}

struct Outbox<'a> {
    notification: &'a Notification,
    /// Where what takes time to be translated goes.
    statuses: &'a mpsc::Sender<TaskStatus>,
    except: Option<SessionKey>,
    dropped: usize,
}

impl Outbox<'_> {
    fn send(&mut self, listener: &Listener) {
        if self.except.is_some() && listener.session() == self.except {
            return;
        }
        let taken = listener.messages.try_send(ServerMessage::Notification(self.notification.clone()));
        self.dropped += usize::from(!taken);
    }
}

impl Outbox<'_> {
    /// Sends what is said of a task to a listener, in its own dialect. One that knows of no tasks
    /// waits for calls that are tasks at the server, and hears nothing of these.
    fn send_status(&mut self, id: ListenerId, listener: &Listener) {
        if self.except.is_some() && listener.session() == self.except {
            return;
        }
        let told = match (&self.notification.method, listener.context.tasks) {
            (_, None) => return,
            (Method::TaskStatus, Some(TaskDialect::Extension)) => {
                let status = self.notification.clone();
                let (context, messages) = (Arc::clone(&listener.context), listener.messages.clone());
                let taken = self.statuses.try_send(TaskStatus { listener: id, status, context, messages });
                self.dropped += usize::from(taken.is_err());
                return;
            }
            (Method::TaskChanged, Some(TaskDialect::Requested)) => {
                let params = self.notification.params().map(|params| task_to_legacy(&params));
                let told = params.and_then(|params| wire::with(self.notification, Method::TaskStatus, &params));
                let Some(told) = told else { return };
                told
            }
            _ => self.notification.clone(),
        };
        self.dropped += usize::from(!listener.messages.try_send(ServerMessage::Notification(told)));
    }
}

impl Registry {
    /// What arrives on a session's own line is the session's, list changes only if it wants them.
    fn to_session(&self, key: SessionKey, outbox: &mut Outbox<'_>) {
        let Some(session) = self.sessions.get(&key) else { return };
        let wanted = list_of(&outbox.notification.method);
        for listener in self.of(session) {
            if wanted.is_none_or(|wanted| wanted(listener.wish.lists)) {
                outbox.send(listener);
            }
        }
    }

    fn on_base(&self, shared: bool, outbox: &mut Outbox<'_>) {
        if let Some(wanted) = list_of(&outbox.notification.method) {
            for listener in self.listeners.values().filter(|listener| wanted(listener.wish.lists)) {
                // It hears of the change on its own line.
                if !self.hears_itself(listener.session()) {
                    outbox.send(listener);
                }
            }
            return;
        }
        match outbox.notification.method {
            Method::ResourceUpdated => self.about_resource(outbox),
            // What the base session of a server logs concerns no client that has one of its own.
            Method::LogMessage if !shared => {}
            Method::LogMessage => {
                let level = LogLevel::of(outbox.notification);
                let asked = |session: &&Session| session.level.zip(level).is_none_or(|(least, level)| level >= least);
                for session in self.sessions.values().filter(asked) {
                    self.of(session).for_each(|listener| outbox.send(listener));
                }
            }
            _ => {
                for session in self.sessions.values().filter(|session| !session.hears_itself) {
                    self.of(session).for_each(|listener| outbox.send(listener));
                }
            }
        }
    }

    /// The resource updated may be part of the one subscribed to (2026-07-28 schema,
    /// `ResourceUpdatedNotification`).
    fn about_resource(&self, outbox: &mut Outbox<'_>) {
        let Some(uri) = outbox.notification.params().and_then(|params| params.get("uri")) else { return };
        let Some(uri) = uri.as_str() else { return };
        for entry in with_parents(&uri).filter_map(|uri| self.uris.get(uri)) {
            for subscriber in &entry.subscribers {
                match subscriber {
                    Subscriber::Listener(id) => {
                        self.listeners.get(id).into_iter().for_each(|listener| outbox.send(listener));
                    }
                    Subscriber::Session(key) => {
                        let session = self.sessions.get(key).into_iter();
                        session.flat_map(|session| self.of(session)).for_each(|listener| outbox.send(listener));
                    }
                }
            }
        }
    }

    /// The id of a task is known only to those who may hear of it.
    fn about_task(&self, origin: Origin, outbox: &mut Outbox<'_>) {
        let id = outbox.notification.params().and_then(|params| params.get("taskId"));
        let id = id.as_ref().and_then(Json::as_str);
        let entry = id.as_ref().and_then(|id| self.tasks.get(&**id));
        let of_session = |key: &SessionKey| self.sessions.get(key).map(|session| &*session.listeners);
        let mut hearing = HashSet::new();
        for subscriber in entry.into_iter().flat_map(|entry| &entry.subscribers) {
            match subscriber {
                Subscriber::Listener(id) => drop(hearing.insert(*id)),
                Subscriber::Session(key) => hearing.extend(of_session(key).unwrap_or_default()),
            }
        }
        if let Origin::Session(key) = origin {
            hearing.extend(of_session(&key).unwrap_or_default());
        }
        for (id, listener) in hearing.iter().filter_map(|id| Some((*id, self.listeners.get(id)?))) {
            outbox.send_status(id, listener);
        }
    }

    fn of(&self, session: &Session) -> impl Iterator<Item = &Listener> {
        session.listeners.iter().filter_map(|id| self.listeners.get(id))
    }
}
