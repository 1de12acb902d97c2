//! Everybody who listens to one backend: what they want to hear, what of it the server has agreed
//! to, and the way of its messages to them.
//!
//! A listener is an entry in a table, nothing more: no task and no connection belongs to it.
//! [`crate::listening`] reads here what is to be heard and keeps that up at the server.
//!
//! Must not know: how a server is told what is to be heard.

mod agreed;
mod deliver;
mod filter;
mod listener;
mod outlet;
mod registry;
mod wire;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::{Json, Method, Notification};
use tokio::sync::{mpsc, watch};

pub(crate) use agreed::Changes;
pub(crate) use filter::{Filter, Lists};
pub(crate) use listener::ListenerId;
pub(crate) use outlet::{Asked, Outlet};
pub(crate) use registry::Made;
pub(crate) use wire::{subscription_id, with, without_subscription_id};

use crate::log::Throttle;
use crate::tasks::translate::Status;
use fanlight_canonical::{CallContext, ServerMessages, SessionKey};
use fanlight_canonical::{Interest, Listen};
use listener::Session;
use registry::Registry;

/// Which line a message came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The one that Fanlight itself uses.
    Base,
    /// A client session's own.
    Session(SessionKey),
    /// One of clients without a session. Nobody listens to it.
    Pooled,
}

/// What a legacy server tells of a task, for a listener that knows tasks by the extension. Who takes
/// it from the hub translates it, which may take asking the server.
pub(crate) struct TaskStatus {
    pub(crate) listener: ListenerId,
    pub(crate) status: Notification,
    pub(crate) context: Arc<CallContext>,
    pub(crate) messages: ServerMessages,
}

/// Statuses on their way to be translated at most.
const STATUSES: usize = 256;

/// How far what is to be heard has been agreed on with the server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    generation: u64,
    lists: Lists,
    /// Whether updates of resources can arrive.
    hears: bool,
}

/// See the module.
pub(crate) struct Hub {
    backend: Arc<str>,
    /// Resources, and tasks, at most.
    limit: usize,
    /// Clients share the base line whatever the server's era.
    shared: bool,
    registry: Mutex<Registry>,
    statuses: mpsc::Sender<TaskStatus>,
    changed: watch::Sender<u64>,
    standing: watch::Sender<Standing>,
    slow: Throttle,
}

/// A listener's place; given up by dropping it.
pub(crate) struct Place {
    hub: Arc<Hub>,
    id: ListenerId,
}

impl Hub {
    /// A hub, and where statuses of tasks come out that are to be translated.
    pub(crate) fn new(backend: Arc<str>, limit: usize, shared: bool) -> (Arc<Self>, mpsc::Receiver<TaskStatus>) {
        let (statuses, translated) = mpsc::channel(STATUSES);
        let hub = Arc::new(Self {
            backend,
            limit,
            shared,
            registry: Mutex::default(),
            changed: watch::Sender::new(0),
            standing: watch::Sender::new(Standing::default()),
            slow: Throttle::default(),
            statuses,
        });
        (hub, translated)
    }

    /// Takes a listener up.
    pub(crate) fn add(self: &Arc<Self>, listen: Listen) -> Place {
        let limit = self.limit;
        let id = self.change(|registry| if registry.closed { 0 } else { registry.add(listen, limit) });
        Place { hub: Arc::clone(self), id }
    }

    /// Lets go of all listeners, for good.
    pub(crate) fn close(&self) {
        self.registry().close();
    }

    /// What of an interest the server honours, once that is known.
    pub(crate) async fn honoured(&self, interest: &Interest) -> Interest {
        let standing = self.settled(&interest.uris).await;
        let lists = standing.lists.both(Lists::of(interest));
        let (uris, tasks) = self.registry().accepted(interest);
        let uris = if standing.hears { uris } else { Vec::new() };
        Interest {
            tools: lists.tools,
            prompts: lists.prompts,
            resources: lists.resources,
            uris,
            tasks,
            session: interest.session,
            unknown: None,
        }
    }

    /// Waits until what is to be heard now has been agreed on with the server, of resources only
    /// `uris`: one that others wait for may take its time.
    async fn settled(&self, uris: &[Arc<str>]) -> Standing {
        let generation = self.registry().generation;
        let mut standing = self.standing.subscribe();
        let is_settled = |standing: &Standing| standing.generation >= generation && !self.registry().is_open(uris);
        match standing.wait_for(is_settled).await {
            Ok(standing) => *standing,
            // Not while this lives.
            Err(_) => Standing::default(),
        }
    }

    /// Begins to hear of a resource for a session on the base line. `None` if there are too many.
    pub(crate) async fn subscribe(&self, session: SessionKey, uri: &Arc<str>, params: Option<&Json>) -> Option<Made> {
        if !self.change(|registry| registry.subscribe_session(session, uri, params, self.limit)) {
            return None;
        }
        self.settled(std::slice::from_ref(uri)).await;
        let made = self.registry().uris.get(uri).map(|entry| entry.made.clone()).unwrap_or_default();
        if !matches!(made, Made::Accepted) {
            self.unsubscribe(session, uri);
        }
        Some(made)
    }

    pub(crate) fn unsubscribe(&self, session: SessionKey, uri: &Arc<str>) {
        self.change(|registry| registry.unsubscribe_session(session, uri));
    }

    /// Remembers what a session has subscribed to on its own line; says whether there was room.
    pub(crate) fn remember(&self, session: SessionKey, uri: &Arc<str>, subscribed: bool) {
        let mut registry = self.registry();
        if subscribed {
            let uris = &mut registry.sessions.entry(session).or_default().more().own_uris;
            if uris.len() < self.limit {
                uris.insert(Arc::clone(uri));
            }
        } else if let Some(of_session) = registry.sessions.get_mut(&session) {
            of_session.more().own_uris.remove(uri);
            registry.forget_if_empty(session);
        }
    }

    /// Whether a session may subscribe to one more resource on its own line.
    pub(crate) fn has_room(&self, session: SessionKey, uri: &Arc<str>) -> bool {
        let registry = self.registry();
        let own = || registry.sessions.get(&session).into_iter().flat_map(Session::own_uris);
        own().count() < self.limit || own().any(|own| own == uri)
    }

    /// What a session has subscribed to on its own line.
    pub(crate) fn remembered(&self, session: SessionKey) -> Vec<Arc<str>> {
        let registry = self.registry();
        registry.sessions.get(&session).into_iter().flat_map(Session::own_uris).cloned().collect()
    }

    /// A task that this session has made, or asked after, at a server that tells of tasks on the
    /// base line: the session hears of it while it listens.
    pub(crate) fn own_task(&self, session: Option<SessionKey>, task: &str) {
        if let Some(session) = session {
            self.change(|registry| registry.own_task(session, task, self.limit));
        }
    }

    /// There is nothing more to be told of a task.
    pub(crate) fn end_task(&self, task: &str) {
        self.change(|registry| registry.end_task(task));
    }

    /// Whether clients share the base line whatever the server's era.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether the status of any task is to be heard.
    pub(crate) fn any_task(&self) -> bool {
        self.registry().any_task()
    }

    /// Forgets what is kept for a session.
    pub(crate) fn end_session(&self, session: SessionKey) {
        self.change(|registry| registry.forget_session(session));
    }

    /// Notes the level that a session asks for with a call.
    pub(crate) fn note_level(&self, context: &CallContext) {
        if let (true, Some(key), level @ Some(_)) = (self.shared, context.session(), context.log_level) {
            self.set_level(key, level);
        }
    }

    fn set_level(&self, session: SessionKey, level: Option<LogLevel>) {
        if let Some(session) = self.registry().sessions.get_mut(&session) {
            session.level = level;
        }
    }

    /// Where what is meant for a session goes; the one that began to listen last, if several do.
    pub(crate) fn listener_of(&self, session: SessionKey) -> Option<ServerMessages> {
        let registry = self.registry();
        let id = registry.sessions.get(&session)?.listeners.last()?;
        registry.listeners.get(id).map(|listener| listener.messages.clone())
    }

    /// Whether anybody hears what is meant for a session.
    pub(crate) fn is_listening(&self, session: SessionKey) -> bool {
        self.registry().sessions.get(&session).is_some_and(|session| !session.listeners.is_empty())
    }

    /// Sees whether anybody hears what is meant for a session.
    pub(crate) fn presence(&self, session: SessionKey) -> watch::Receiver<bool> {
        self.registry().presence(session)
    }

    /// A session's own line has ended: forgets the session unless more is kept for it.
    pub(crate) fn let_go(&self, session: SessionKey) {
        self.registry().forget_if_empty(session);
    }

    /// Notes whether a session hears of list changes on a line of its own.
    pub(crate) fn set_hearing(&self, session: SessionKey, hears_itself: bool) {
        self.change(|registry| registry.set_hearing(session, hears_itself));
    }

    /// Sees every change of what is to be heard.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Grows with every change of what is to be heard on the base line.
    pub(crate) fn generation(&self) -> u64 {
        self.registry().generation
    }

    /// Everything that is to be heard on the base line, and its generation.
    pub(crate) fn demand(&self) -> (u64, Filter) {
        let registry = self.registry();
        (registry.generation, registry.demand())
    }

    /// Whether something is to be heard on the base line of a legacy server that sends of these
    /// lists' changes, and of tasks.
    pub(crate) fn needs_stream(&self, lists: Lists, tasks: bool) -> bool {
        let registry = self.registry();
        registry.lists().both(lists).any()
            || registry.any_uri()
            || (tasks && registry.any_task())
            || (self.shared && registry.any_session())
    }

    /// A new connection: nothing has been agreed on.
    pub(crate) fn renew(&self) {
        self.change(Registry::renew);
    }

    /// What is to be done at a legacy server, but for resources in `busy`, whose turn is later.
    pub(crate) fn changes(&self, busy: &HashSet<Arc<str>>) -> Changes {
        self.registry().changes(busy)
    }

    /// What a legacy server answered.
    pub(crate) fn set_made(&self, uri: &Arc<str>, made: Made) {
        self.change(|registry| registry.set_made(uri, made));
        // Somebody may wait for it.
        self.standing.send_modify(|_| ());
    }

    /// What is to be heard of a legacy server up to `generation` is known, and the server is being
    /// told of the resources in it. `hears`: whether anything can arrive.
    pub(crate) fn stand(&self, generation: u64, lists: Lists, tasks: bool, hears: bool) {
        self.registry().accept_tasks(tasks && hears);
        let lists = if hears { lists } else { Lists::default() };
        self.standing.send_replace(Standing { generation, lists, hears });
    }

    /// A modern server has agreed to `honoured` of what was `asked`.
    pub(crate) fn acknowledge(&self, generation: u64, asked: &Filter, honoured: &Filter) {
        self.agree(asked, honoured);
        self.standing.send_replace(Standing { generation, lists: honoured.lists, hears: true });
    }

    /// The same, before everything else that is to be heard has been looked at.
    pub(crate) fn agree(&self, asked: &Filter, honoured: &Filter) {
        self.registry().acknowledge(asked, honoured);
    }

    /// Passes a notification on to everybody it is for.
    pub(crate) fn deliver(&self, origin: Origin, notification: Notification) {
        self.deliver_beside(origin, notification, None);
    }

    /// The same, but not to a session that has it already.
    pub(crate) fn deliver_beside(&self, origin: Origin, mut notification: Notification, except: Option<SessionKey>) {
        if deliver::is_announcement(&notification.method) {
            // It may be held on to, by many, and is not to keep what was read along with it.
            notification.text = notification.text.detached();
        }
        let dropped = deliver::deliver((&self.registry(), &self.statuses), origin, self.shared, &notification, except);
        self.warn_of_slow(dropped);
        let is_status = matches!(notification.method, Method::TaskStatus | Method::TaskChanged);
        if let Some(params) = notification.params().filter(|_| is_status)
            && Status::of(&params).is_terminal()
            && let Some(task) = params.get("taskId").as_ref().and_then(Json::as_str)
        {
            self.end_task(&task);
        }
    }

    /// Tells everybody that what they listen to may have changed while nothing could be heard.
    pub(crate) fn announce(&self, origin: Origin, lists: Lists) {
        let dropped = deliver::announce((&self.registry(), &self.statuses), origin, lists);
        self.warn_of_slow(dropped);
    }

    /// Tells one listener the same of what it listens to.
    pub(crate) fn announce_to(&self, messages: &ServerMessages, heard: &Interest) {
        self.warn_of_slow(deliver::announce_to(messages, heard));
    }

    /// A listener did not take a message.
    pub(crate) fn warn_of_slow(&self, dropped: usize) {
        if dropped > 0
            && let Some(suppressed) = self.slow.admit()
        {
            let backend = &*self.backend;
            tracing::warn!(backend, dropped, suppressed, "message dropped: a listening client does not keep up");
        }
    }

    /// Changes the tables, and tells those who act on what is to be heard if that has changed.
    fn change<T>(&self, change: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.registry();
        let before = registry.generation;
        let outcome = change(&mut registry);
        let generation = registry.generation;
        drop(registry);
        if generation != before {
            self.changed.send_replace(generation);
        }
        outcome
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Leaves the listener with what the server honours.
    pub(crate) fn trim(&self, honoured: &Interest) {
        self.hub.change(|registry| registry.trim(self.id, honoured));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hub.change(|registry| registry.remove(self.id));
    }
}
