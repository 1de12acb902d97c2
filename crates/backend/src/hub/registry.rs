//! Who listens to what, and what of it the server has agreed to. Plain tables; [`super::Hub`]
//! locks them.
//!
//! Must not know: servers, or waiting.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_protocol::{Json, Response};
use foldhash::fast::RandomState;
use tokio::sync::watch;

use super::filter::{Filter, Lists};
use super::listener::{Listener, ListenerId, Session, Wish};
use fanlight_canonical::SessionKey;
use fanlight_canonical::{Interest, Listen};

/// Bytes of the `params` of a subscription at most that are kept to be sent again.
const KEPT_PARAMS: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Registry {
    next: ListenerId,
    /// Grows whenever something else is to be heard on the base line.
    pub(super) generation: u64,
    pub(super) listeners: HashMap<ListenerId, Listener, RandomState>,
    pub(super) sessions: HashMap<SessionKey, Session, RandomState>,
    /// Resources whose updates are heard on the base line.
    pub(super) uris: HashMap<Arc<str>, Entry>,
    pub(super) tasks: HashMap<Arc<str>, Entry>,
    /// Resources to subscribe to or unsubscribe from at a legacy server.
    pub(super) dirty: HashSet<Arc<str>>,
    counts: Counts,
    /// Nobody can begin to listen any more.
    pub(super) closed: bool,
}

/// A resource or a task.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) subscribers: HashSet<Subscriber>,
    pub(super) params: Option<Json>,
    pub(super) made: Made,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subscriber {
    Listener(ListenerId),
    Session(SessionKey),
}

impl Subscriber {
    fn session(&self) -> Option<SessionKey> {
        if let Self::Session(key) = self { Some(*key) } else { None }
    }
}

/// What the server says to a subscription.
#[derive(Clone, Debug, Default)]
pub(crate) enum Made {
    /// Nothing yet.
    #[default]
    Open,
    Accepted,
    /// With its answer, if it gave one.
    Refused(Option<Response>),
}

/// How many listeners want to hear of it on the base line.
#[derive(Default)]
struct Counts {
    tools: usize,
    prompts: usize,
    resources: usize,
    sessions: usize,
}

impl Registry {
    /// Lets go of everybody, for good.
    pub(super) fn close(&mut self) {
        *self = Self { closed: true, ..Self::default() };
    }

    /// Takes a listener up. Resources and tasks beyond `limit` are left out.
    pub(super) fn add(&mut self, listen: Listen, limit: usize) -> ListenerId {
        self.next += 1;
        let id = self.next;
        let Listen { interest, context, messages } = listen;
        let session = context.session();
        for uri in &interest.uris {
            self.subscribe(Subscriber::Listener(id), uri, None, limit);
        }
        for task in &interest.tasks {
            if self.tasks.contains_key(task) || self.tasks.len() < limit {
                let entry = self.tasks.entry(Arc::clone(task)).or_default();
                entry.subscribers.insert(Subscriber::Listener(id));
                self.generation += 1;
            }
        }
        if let Some(key) = session.filter(|_| interest.session) {
            let of_session = self.sessions.entry(key).or_default();
            of_session.listeners.push(id);
            of_session.tell_presence();
            of_session.level = of_session.level.or(context.log_level);
            self.generation += u64::from(of_session.has_tasks());
        }
        let wish = Wish::of(&interest);
        if !self.hears_itself(session) {
            self.count(wish.lists, wish.session, true);
        }
        self.listeners.insert(id, Listener { wish, context, messages });
        id
    }

    pub(super) fn remove(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.remove(&id) else { return };
        if !self.hears_itself(listener.session()) {
            self.count(listener.wish.lists, listener.wish.session, false);
        }
        for uri in listener.wish.uris() {
            self.unsubscribe(Subscriber::Listener(id), uri);
        }
        for task in listener.wish.tasks() {
            self.leave_task(Subscriber::Listener(id), task);
        }
        if let Some(key) = listener.session()
            && let Some(session) = self.sessions.get_mut(&key)
        {
            session.listeners.retain(|listener| *listener != id);
            session.tell_presence();
            self.generation += u64::from(session.has_tasks());
            self.forget_if_empty(key);
        }
    }

    /// Leaves a listener with nothing but what the server honours, so that what it does not is
    /// not asked for again and again.
    pub(super) fn trim(&mut self, id: ListenerId, honoured: &Interest) {
        let Some(listener) = self.listeners.get_mut(&id) else { return };
        let before = std::mem::replace(&mut listener.wish, Wish::of(honoured));
        let session = listener.session();
        if !self.hears_itself(session) {
            self.count(Lists::of(honoured), honoured.session, true);
            self.count(before.lists, before.session, false);
        }
        for uri in before.uris().iter().filter(|uri| !honoured.uris.contains(uri)) {
            self.unsubscribe(Subscriber::Listener(id), uri);
        }
        for task in before.tasks().iter().filter(|task| !honoured.tasks.contains(task)) {
            self.leave_task(Subscriber::Listener(id), task);
        }
    }

    /// Adds somebody to those who hear of a resource; says whether there was room.
    fn subscribe(&mut self, who: Subscriber, uri: &Arc<str>, params: Option<&Json>, limit: usize) -> bool {
        if !self.uris.contains_key(uri) && self.uris.len() >= limit {
            return false;
        }
        let entry = self.uris.entry(Arc::clone(uri)).or_default();
        if entry.subscribers.is_empty() {
            entry.params = params.filter(|params| params.bytes().len() <= KEPT_PARAMS).map(Json::detached);
        }
        entry.subscribers.insert(who);
        if !matches!(entry.made, Made::Accepted) {
            entry.made = Made::Open;
            self.dirty.insert(Arc::clone(uri));
            self.generation += 1;
        }
        true
    }

    fn unsubscribe(&mut self, who: Subscriber, uri: &Arc<str>) {
        let Some(entry) = self.uris.get_mut(uri) else { return };
        if entry.subscribers.remove(&who) && entry.subscribers.is_empty() {
            self.dirty.insert(Arc::clone(uri));
            self.generation += 1;
        }
    }

    fn leave_task(&mut self, who: Subscriber, task: &Arc<str>) {
        let Some(entry) = self.tasks.get_mut(task) else { return };
        entry.subscribers.remove(&who);
        if entry.subscribers.is_empty() {
            self.tasks.remove(task);
            self.generation += 1;
        }
    }

    /// A task has become a session's, whose listeners hear of it from now on, if there is room.
    pub(super) fn own_task(&mut self, key: SessionKey, task: &str, limit: usize) {
        if self.closed || (!self.tasks.contains_key(task) && self.tasks.len() >= limit) {
            return;
        }
        let task: Arc<str> = task.into();
        let entry = self.tasks.entry(Arc::clone(&task)).or_default();
        if entry.subscribers.insert(Subscriber::Session(key)) {
            self.generation += 1;
        }
        self.sessions.entry(key).or_default().more().tasks.insert(task);
    }

    /// There is nothing more to be told of a task to the sessions that have it.
    pub(super) fn end_task(&mut self, task: &str) {
        let Some((task, entry)) = self.tasks.get_key_value(task) else { return };
        let task = Arc::clone(task);
        let sessions: Vec<_> = entry.subscribers.iter().filter_map(Subscriber::session).collect();
        for key in sessions {
            self.leave_task(Subscriber::Session(key), &task);
            if let Some(session) = self.sessions.get_mut(&key) {
                session.more().tasks.remove(&task);
                self.forget_if_empty(key);
            }
        }
    }

    /// Whether somebody listens who hears of this.
    fn is_heard(&self, entry: &Entry) -> bool {
        entry.subscribers.iter().any(|subscriber| match subscriber {
            Subscriber::Listener(_) => true,
            Subscriber::Session(key) => self.sessions.get(key).is_some_and(|session| !session.listeners.is_empty()),
        })
    }

    /// Whether the status of any task is to be heard.
    pub(super) fn any_task(&self) -> bool {
        self.tasks.values().any(|entry| self.is_heard(entry))
    }

    pub(super) fn subscribe_session(
        &mut self,
        key: SessionKey,
        uri: &Arc<str>,
        params: Option<&Json>,
        limit: usize,
    ) -> bool {
        let taken = self.subscribe(Subscriber::Session(key), uri, params, limit);
        if taken {
            self.sessions.entry(key).or_default().more().base_uris.insert(Arc::clone(uri));
        }
        taken
    }

    pub(super) fn unsubscribe_session(&mut self, key: SessionKey, uri: &Arc<str>) {
        self.unsubscribe(Subscriber::Session(key), uri);
        if let Some(session) = self.sessions.get_mut(&key) {
            session.more().base_uris.remove(uri);
            self.forget_if_empty(key);
        }
    }

    pub(super) fn forget_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let listeners = session.listeners.clone();
        let (uris, tasks) = session.more.as_mut().map_or_else(Default::default, |more| {
            more.own_uris.clear();
            (std::mem::take(&mut more.base_uris), std::mem::take(&mut more.tasks))
        });
        for task in tasks {
            self.leave_task(Subscriber::Session(key), &task);
        }
        for uri in uris {
            self.unsubscribe(Subscriber::Session(key), &uri);
        }
        for id in listeners {
            self.remove(id);
        }
        self.forget_if_empty(key);
    }

    /// Sees whether anybody hears what is meant for a session.
    pub(super) fn presence(&mut self, key: SessionKey) -> watch::Receiver<bool> {
        let session = self.sessions.entry(key).or_default();
        let listening = !session.listeners.is_empty();
        session.more().presence.get_or_insert_with(|| watch::Sender::new(listening)).subscribe()
    }

    pub(super) fn forget_if_empty(&mut self, key: SessionKey) {
        if !self.sessions.get(&key).is_some_and(Session::is_of_use) {
            self.sessions.remove(&key);
        }
    }

    /// Notes whether a session hears of list changes on a line of its own.
    pub(super) fn set_hearing(&mut self, key: SessionKey, hears_itself: bool) {
        if self.hears_itself(Some(key)) == hears_itself {
            return;
        }
        let session = self.sessions.entry(key).or_default();
        session.hears_itself = hears_itself;
        for id in session.listeners.clone() {
            if let Some((lists, session)) = self.listeners.get(&id).map(|of| (of.wish.lists, of.wish.session)) {
                self.count(lists, session, !hears_itself);
            }
        }
        self.forget_if_empty(key);
    }

    pub(super) fn hears_itself(&self, session: Option<SessionKey>) -> bool {
        session.and_then(|key| self.sessions.get(&key)).is_some_and(|session| session.hears_itself)
    }

    fn count(&mut self, lists: Lists, session: bool, more: bool) {
        let before = (self.lists(), self.counts.sessions > 0);
        let counts = &mut self.counts;
        for (count, wanted) in [
            (&mut counts.tools, lists.tools),
            (&mut counts.prompts, lists.prompts),
            (&mut counts.resources, lists.resources),
            (&mut counts.sessions, session),
        ] {
            let by = usize::from(wanted);
            *count = if more { *count + by } else { count.saturating_sub(by) };
        }
        if before != (self.lists(), self.counts.sessions > 0) {
            self.generation += 1;
        }
    }

    /// The lists whose changes are to be heard on the base line.
    pub(super) fn lists(&self) -> Lists {
        let Counts { tools, prompts, resources, .. } = self.counts;
        Lists { tools: tools > 0, prompts: prompts > 0, resources: resources > 0 }
    }

    /// Whether any session depends on the base line.
    pub(super) fn any_session(&self) -> bool {
        self.counts.sessions > 0
    }

    /// Whether updates of any resource are to be heard on the base line.
    pub(super) fn any_uri(&self) -> bool {
        self.uris.values().any(|entry| !entry.subscribers.is_empty())
    }

    /// Everything that is to be heard on the base line.
    pub(super) fn demand(&self) -> Filter {
        let tasks = self.tasks.iter().filter(|(_, entry)| self.is_heard(entry));
        let subscribed = self.uris.iter().filter(|(_, entry)| !entry.subscribers.is_empty());
        Filter {
            lists: self.lists(),
            uris: subscribed.map(|(uri, _)| Arc::clone(uri)).collect(),
            tasks: tasks.map(|(task, _)| Arc::clone(task)).collect(),
        }
    }
}
