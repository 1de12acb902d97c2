//! The listeners of one server, the clients' sessions and their interests. Plain tables;
//! [`super::SubscriptionRegistry`] locks them. A listener and a session take little memory, since
//! every server has both for every listening client.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fanlight_canonical::{
    CallContext, Caller, Interest, KEPT_PARAMS, Listen, Names, Principal, ServerMessage,
    ServerMessages, SessionKey,
};
use fanlight_protocol::subscription::{Change, Lists};
use fanlight_protocol::uri::with_parents;
use fanlight_protocol::{Json, Notification, Response};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use tokio::sync::watch;

/// Identifies a listener.
pub(crate) type ListenerId = u64;

pub(super) struct Listener {
    /// The lists whose changes it wants.
    pub(super) lists: Lists,
    /// Whether it wants messages to its session.
    pub(super) session: bool,
    /// Few listeners name resources or tasks.
    names: Option<Box<Named>>,
    pub(super) context: Arc<CallContext>,
    pub(super) messages: ServerMessages,
}

/// The resources and the tasks that a listener names.
type Named = [(Kind, Names); 2];

/// The state of a client's session.
pub(super) struct Session {
    /// The session and its client.
    pub(super) caller: Caller,
    /// The listeners that receive messages to the session.
    pub(super) listeners: SmallVec<[ListenerId; 1]>,
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

/// Fields that only few sessions need.
#[derive(Default)]
pub(super) struct More {
    /// The server's messages until the client listens.
    pub(crate) unheard: Waiting,
    /// The client's notifications until the session has a connection.
    pub(crate) early: Waiting,
    /// Reports to the task of the session's own connection whether the session has listeners.
    presence: Option<watch::Sender<bool>>,
    /// The running tasks that are named for it while it listens.
    tasks: Names,
}

impl Listener {
    pub(super) fn principal(&self) -> &Principal {
        self.context.caller.principal()
    }
}

impl Session {
    fn from_caller(caller: &Caller) -> Self {
        let (caller, listeners) = (caller.clone(), SmallVec::new());
        Self {
            caller,
            listeners,
            has_own_stream: false,
            more: None,
        }
    }

    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn update_presence(&self) {
        if let Some(presence) = self.more.as_ref().and_then(|more| more.presence.as_ref()) {
            presence.send_replace(!self.listeners.is_empty());
        }
    }

    fn is_used(&self) -> bool {
        let more = self.more.as_ref();
        !self.listeners.is_empty()
            || self.has_own_stream
            || more.is_some_and(|more| !more.tasks.is_empty())
            || more
                .and_then(|more| more.presence.as_ref())
                .is_some_and(|watched| watched.receiver_count() > 0)
    }
}

#[derive(Default)]
pub(super) struct State {
    next: ListenerId,
    /// Grows with every change of the demand on the base connection.
    pub(super) generation: u64,
    pub(super) listeners: HashMap<ListenerId, Listener, RandomState>,
    /// Sessions by key. A key belongs to the caller that used it first: see [`State::session`].
    pub(super) sessions: HashMap<SessionKey, Session, RandomState>,
    /// The subscribed resources on the base connection.
    pub(super) uris: HashMap<Arc<str>, Entry>,
    /// The tasks that listeners have named.
    pub(super) tasks: HashMap<Arc<str>, Entry>,
    /// The numbers of listeners that depend on the base connection: for changes of each list, and
    /// for messages to sessions.
    counts: [usize; 4],
    /// Whether the registry is closed, so that no listener can be added.
    pub(super) closed: bool,
}

/// A resource or a task.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) subscribers: HashSet<Subscriber>,
    pub(super) params: Option<Json>,
    pub(super) verdict: Verdict,
}

/// The kinds of entries that listeners name.
#[derive(Clone, Copy)]
enum Kind {
    Resource,
    Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subscriber {
    Listener(ListenerId),
    Session(SessionKey),
}

/// The server's answer to a subscription.
#[derive(Clone, Debug, Default)]
pub(crate) enum Verdict {
    /// No answer yet.
    #[default]
    Pending,
    Accepted,
    /// Refused, with the error response if the server sent one.
    Refused(Option<Response>),
}

impl State {
    /// Adds a listener. Resources and tasks beyond `limit` are left out.
    pub(super) fn add(&mut self, listen: Listen, limit: usize) -> ListenerId {
        self.next += 1;
        let id = self.next;
        let Listen {
            interest,
            context,
            messages,
        } = listen;
        let Interest {
            lists,
            uris,
            tasks,
            session,
            unknown: _,
        } = interest;
        if session && let Some(session) = self.session_or_new(&context.caller) {
            session.listeners.push(id);
            session.update_presence();
            for unheard in session.more().unheard.take() {
                if Change::from_method(&unheard.method).is_none_or(|change| lists.has(change)) {
                    let _ = messages.try_send(ServerMessage::Notification(unheard));
                }
            }
        }
        let caller = context.caller.clone();
        if !self.has_own_stream(&caller) {
            self.count(lists, session, true);
        }
        let names = [(Kind::Resource, uris), (Kind::Task, tasks)];
        for (kind, names) in &names {
            for name in names {
                self.subscribe(*kind, Subscriber::Listener(id), name, (None, limit));
            }
        }
        let any = names.iter().any(|(_, names)| !names.is_empty());
        self.listeners.insert(
            id,
            Listener {
                lists,
                session,
                names: any.then(|| Box::new(names)),
                context,
                messages,
            },
        );
        self.name_tasks(&caller, limit);
        id
    }

    pub(super) fn remove(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.remove(&id) else {
            return;
        };
        if !self.has_own_stream(&listener.context.caller) {
            self.count(listener.lists, listener.session, false);
        }
        for (kind, names) in listener.names.iter().flat_map(|names| names.iter()) {
            for name in names {
                self.unsubscribe(*kind, Subscriber::Listener(id), name);
            }
        }
        if let Some(session) = self.session_mut(&listener.context.caller) {
            session.listeners.retain(|listener| *listener != id);
            session.update_presence();
            self.name_tasks(&listener.context.caller, 0);
            self.remove_if_unused(&listener.context.caller);
        }
    }

    fn entries(&mut self, kind: Kind) -> &mut HashMap<Arc<str>, Entry> {
        match kind {
            Kind::Resource => &mut self.uris,
            Kind::Task => &mut self.tasks,
        }
    }

    /// Adds a subscriber to a resource or task; false if that would exceed `limit`.
    fn subscribe(
        &mut self,
        kind: Kind,
        who: Subscriber,
        name: &Arc<str>,
        (params, limit): (Option<&Json>, usize),
    ) -> bool {
        let entries = self.entries(kind);
        if !entries.contains_key(name) && entries.len() >= limit {
            return false;
        }
        let entry = entries.entry(Arc::clone(name)).or_default();
        if entry.subscribers.is_empty() {
            entry.params = params
                .filter(|params| params.bytes().len() <= KEPT_PARAMS)
                .map(Json::detached);
        }
        if entry.subscribers.insert(who) && !matches!(entry.verdict, Verdict::Accepted) {
            entry.verdict = Verdict::Pending;
            self.generation += 1;
        }
        true
    }

    fn unsubscribe(&mut self, kind: Kind, who: Subscriber, name: &str) {
        let entries = self.entries(kind);
        if let Some(entry) = entries.get_mut(name)
            && entry.subscribers.remove(&who)
            && entry.subscribers.is_empty()
        {
            entries.remove(name);
            self.generation += 1;
        }
    }

    pub(super) fn subscribe_session(
        &mut self,
        caller: &Caller,
        uri: &Arc<str>,
        params: Option<&Json>,
        limit: usize,
    ) -> bool {
        let Some(key) = caller.session() else {
            return false;
        };
        // The session must belong to the caller.
        if self.session_or_new(caller).is_none()
            || !self.subscribe(
                Kind::Resource,
                Subscriber::Session(key),
                uri,
                (params, limit),
            )
        {
            self.remove_if_unused(caller);
            return false;
        }
        true
    }

    pub(super) fn unsubscribe_session(&mut self, caller: &Caller, uri: &str) {
        if let Some((key, _)) = caller.session().zip(self.session(caller)) {
            self.unsubscribe(Kind::Resource, Subscriber::Session(key), uri);
            self.remove_if_unused(caller);
        }
    }

    /// The subscribed resources of a session.
    pub(super) fn subscribed(&self, caller: &Caller) -> Names {
        let session = self.session(caller).and(caller.session());
        session.map_or_else(Names::new, |key| self.uris_of(key).cloned().collect())
    }

    fn uris_of(&self, key: SessionKey) -> impl Iterator<Item = &Arc<str>> {
        let is_subscriber =
            move |entry: &Entry| entry.subscribers.contains(&Subscriber::Session(key));
        let entries = self.uris.iter();
        entries.filter_map(move |(uri, entry)| is_subscriber(entry).then_some(uri))
    }

    /// Sets a session's subscriptions to exactly these resources; returns the new ones.
    pub(super) fn set_subscribed(
        &mut self,
        caller: &Caller,
        mut wanted: Names,
        limit: usize,
    ) -> Names {
        for uri in self.subscribed(caller) {
            if !wanted.remove(&uri) {
                self.unsubscribe_session(caller, &uri);
            }
        }
        wanted.retain(|uri| self.subscribe_session(caller, uri, None, limit));
        wanted
    }

    /// Names a task for a session while it listens, until the task ends. A session has at most
    /// `of_session` such tasks.
    pub(super) fn follow(
        &mut self,
        caller: &Caller,
        task: &Arc<str>,
        (of_session, limit): (usize, usize),
    ) {
        if let Some(session) = self.session_or_new(caller)
            && session.more().tasks.len() < of_session
        {
            session.more().tasks.insert(Arc::clone(task));
            self.name_tasks(caller, limit);
        }
    }

    /// Stops naming a task for a session.
    pub(super) fn unfollow(&mut self, caller: &Caller, task: &str) {
        let tasks = |session: &mut Session| Some(session.more.as_mut()?.tasks.remove(task));
        let is_followed = self.session_mut(caller).and_then(tasks).unwrap_or_default();
        if let Some(key) = caller.session().filter(|_| is_followed) {
            self.unsubscribe(Kind::Task, Subscriber::Session(key), task);
            self.remove_if_unused(caller);
        }
    }

    /// Makes the tasks that are named for a session agree with whether it listens.
    fn name_tasks(&mut self, caller: &Caller, limit: usize) {
        let Some((key, session)) = caller.session().zip(self.session(caller)) else {
            return;
        };
        let (who, is_listening) = (Subscriber::Session(key), !session.listeners.is_empty());
        let tasks = session.more.iter().flat_map(|more| &more.tasks);
        for task in tasks.cloned().collect::<Vec<_>>() {
            if is_listening {
                self.subscribe(Kind::Task, who, &task, (None, limit));
            } else {
                self.unsubscribe(Kind::Task, who, &task);
            }
        }
    }

    pub(super) fn end_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        if let Some(more) = &mut session.more {
            more.tasks.clear();
        }
        let (caller, listeners) = (session.caller.clone(), session.listeners.clone());
        let who = Subscriber::Session(key);
        for entries in [&mut self.uris, &mut self.tasks] {
            let before = entries.len();
            entries.retain(|_, entry| {
                !entry.subscribers.remove(&who) || !entry.subscribers.is_empty()
            });
            self.generation += u64::from(entries.len() < before);
        }
        for id in listeners {
            self.remove(id);
        }
        self.remove_if_unused(&caller);
    }

    /// The session of a caller. Session keys are unique, so a key in use by another principal is
    /// not this caller's.
    pub(super) fn session(&self, caller: &Caller) -> Option<&Session> {
        self.sessions
            .get(&caller.session()?)
            .filter(|session| session.caller == *caller)
    }

    pub(super) fn session_mut(&mut self, caller: &Caller) -> Option<&mut Session> {
        self.sessions
            .get_mut(&caller.session()?)
            .filter(|session| session.caller == *caller)
    }

    pub(super) fn session_or_new(&mut self, caller: &Caller) -> Option<&mut Session> {
        let session = self
            .sessions
            .entry(caller.session()?)
            .or_insert_with(|| Session::from_caller(caller));
        (session.caller == *caller).then_some(session)
    }

    /// Observes whether a session has listeners.
    pub(super) fn presence(&mut self, caller: &Caller) -> Option<watch::Receiver<bool>> {
        let session = self.session_or_new(caller)?;
        let is_listening = !session.listeners.is_empty();
        Some(
            session
                .more()
                .presence
                .get_or_insert_with(|| watch::Sender::new(is_listening))
                .subscribe(),
        )
    }

    pub(super) fn remove_if_unused(&mut self, caller: &Caller) {
        if let Some(key) = caller.session()
            && self
                .session(caller)
                .is_some_and(|session| !session.is_used())
            && self.uris_of(key).next().is_none()
        {
            self.sessions.remove(&key);
        }
    }

    /// Records whether list changes arrive on the session's own connection.
    pub(super) fn set_own_stream(&mut self, caller: &Caller, has_own_stream: bool) {
        if self.has_own_stream(caller) == has_own_stream {
            return;
        }
        let Some(session) = self.session_or_new(caller) else {
            return;
        };
        session.has_own_stream = has_own_stream;
        for id in session.listeners.clone() {
            if let Some(Listener { lists, session, .. }) = self.listeners.get(&id) {
                self.count(*lists, *session, !has_own_stream);
            }
        }
        self.remove_if_unused(caller);
    }

    pub(super) fn has_own_stream(&self, caller: &Caller) -> bool {
        self.session(caller)
            .is_some_and(|session| session.has_own_stream)
    }

    fn count(&mut self, lists: Lists, session: bool, more: bool) {
        let before = self.counts.map(|count| count > 0);
        let [tools, prompts, resources] = Change::ALL.map(|change| lists.has(change));
        let wanted = [tools, prompts, resources, session];
        for (count, by) in self.counts.iter_mut().zip(wanted.map(usize::from)) {
            *count = if more {
                *count + by
            } else {
                count.saturating_sub(by)
            };
        }
        self.generation += u64::from(before != self.counts.map(|count| count > 0));
    }

    /// The lists whose changes are wanted on the base connection.
    pub(super) fn lists(&self) -> Lists {
        let counts = Change::ALL.into_iter().zip(self.counts);
        counts
            .filter_map(|(change, count)| (count > 0).then_some(change))
            .collect()
    }

    /// Whether any session depends on the base connection.
    pub(super) fn any_session(&self) -> bool {
        let [.., sessions] = self.counts;
        sessions > 0
    }

    /// Whether updates of a resource arrive on the base connection, as far as known.
    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        let mut entries = with_parents(uri).filter_map(|uri| self.uris.get(uri));
        entries.any(|entry| matches!(entry.verdict, Verdict::Accepted))
    }
}

impl Entry {
    /// Whether the server may still be asked for the entry, since it has not refused it.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self.verdict, Verdict::Refused(_))
    }

    /// Whether a session has subscribed to it by a request.
    pub(super) fn has_session(&self) -> bool {
        let is_session = |subscriber| matches!(subscriber, &Subscriber::Session(_));
        self.subscribers.iter().any(is_session)
    }
}
