//! The listeners of one server: their interests, the part that the server agreed to send, and the
//! delivery of notifications.
//!
//! A listener is an entry in a table, without a task or connection of its own. [`crate::listening`]
//! reads the demand here and subscribes to it at the server.

mod agreement;
mod deliver;
mod joint_updates;
mod state;
mod task_progress;
mod unsolicited;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    Caller, Listen, Names, Principal, ServerMessage, ServerMessages, SessionKey,
};
use fanlight_protocol::subscription::{Change, Lists};
use fanlight_protocol::{Json, Method, Notification};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use agreement::Agreement;
use deliver::Audience;
use joint_updates::{Admission, JointUpdates};
use state::{Entry, Listener, ListenerId, State};
use task_progress::ProgressTarget;

pub(crate) use agreement::ResourceRequest;
pub(crate) use joint_updates::ProcessNumber;
pub(crate) use state::Verdict;
pub(crate) use task_progress::{ExpectedTask, TaskProgress, WaitGuard};
pub(crate) use unsolicited::{UnsolicitedRequest, UnsolicitedRequests, UnsolicitedSender};

/// The connection on which a message arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// The base connection, which Fanlight itself uses.
    Base,
    /// The own connection of a client's session.
    Session(Caller),
    /// A connection of clients without a session.
    Clients {
        principal: Principal,
        /// Whether it serves a single client, or a single request.
        is_one: bool,
    },
}

impl Origin {
    /// The session whose own connection it is.
    pub(crate) fn session(&self) -> Option<&Caller> {
        match self {
            Self::Session(caller) => Some(caller),
            Self::Base | Self::Clients { .. } => None,
        }
    }

    /// The principal that the connection belongs to, if it belongs to one.
    fn principal(&self) -> Option<&Principal> {
        match self {
            Self::Base => None,
            Self::Session(caller) => Some(caller.principal()),
            Self::Clients { principal, .. } => Some(principal),
        }
    }
}

/// The listeners of one server.
pub(crate) struct SubscriptionRegistry {
    pub(crate) backend: Arc<str>,
    settings: RegistrySettings,
    /// Shared with each listener that has its own subscription.
    dedicated: Arc<()>,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    agreement: watch::Sender<Agreement>,
    coalescing: Coalescing,
    /// The processes that announce updates.
    pub(crate) joint_updates: JointUpdates,
    /// The tasks whose progress clients want.
    pub(crate) task_progress: TaskProgress,
    itself: Weak<Self>,
}

/// The settings for the listeners of a server.
#[derive(Clone)]
pub(crate) struct RegistrySettings {
    /// The limit that applies separately to resources on the base connection, to tasks, and to one
    /// session's resources on its own connection.
    pub(crate) limit: usize,
    /// The most tasks that are named for one session.
    pub(crate) tasks_of_session: usize,
    /// Whether all clients share the base connection, whatever the server's era.
    pub(crate) shared: bool,
    /// How long announcements of changes of one list or resource are collected.
    pub(crate) settle: Duration,
    pub(crate) records: Arc<SessionSubscriptions>,
    /// Members of the filter that Fanlight does not know.
    pub(crate) unknown: Option<Json>,
    /// The tasks that deliver announcements later, until the server ends.
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

/// A listener's entry, removed when this is dropped.
pub(crate) struct Registration {
    registry: Arc<SubscriptionRegistry>,
    id: ListenerId,
}

impl SubscriptionRegistry {
    pub(crate) fn new(backend: Arc<str>, settings: RegistrySettings) -> Arc<Self> {
        let (settle, limit) = (settings.settle, settings.limit);
        Arc::new_cyclic(|itself| Self {
            backend,
            settings,
            dedicated: Arc::default(),
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            agreement: watch::Sender::new(Agreement::default()),
            coalescing: Coalescing::new(settle),
            joint_updates: JointUpdates::new(settle),
            task_progress: TaskProgress::new(limit),
            itself: Weak::clone(itself),
        })
    }

    /// An empty registry for one listener whose filter has these `unknown` members.
    pub(crate) fn registry_for_one(&self, unknown: Option<Json>) -> Arc<Self> {
        let settings = RegistrySettings {
            unknown,
            ..self.settings.clone()
        };
        let registry = Self::new(Arc::clone(&self.backend), settings);
        // Now the server has not answered yet, even if nothing else is wanted.
        registry.reset_verdicts();
        registry
    }

    /// Adds a listener.
    pub(crate) fn add(self: &Arc<Self>, listen: Listen) -> Registration {
        let id = self.change(|state| {
            if state.closed {
                0
            } else {
                state.add(listen, self.settings.limit)
            }
        });
        Registration {
            registry: Arc::clone(self),
            id,
        }
    }

    /// Removes all listeners, for good.
    pub(crate) fn close(&self) {
        self.change(|state| {
            *state = State::default();
            state.closed = true;
        });
    }

    /// Subscribes a session to a resource on the base connection; `None` at the limit.
    pub(crate) async fn subscribe(
        &self,
        session: &Caller,
        uri: &Arc<str>,
        params: Option<&Json>,
    ) -> Option<Verdict> {
        // Recorded before the server answers: otherwise the resource might be unsubscribed meanwhile.
        self.settings.records.add(session, uri);
        let limit = self.settings.limit;
        let mut verdict = None;
        if self.change(|state| state.subscribe_session(session, uri, params, limit)) {
            self.agreed(&[Arc::clone(uri)].into()).await;
            let state = self.state.lock();
            let entry = state.uris.get(uri);
            verdict = Some(entry.map_or_else(Verdict::default, |entry| entry.verdict.clone()));
        }
        if !matches!(verdict, Some(Verdict::Accepted)) {
            self.unsubscribe(session, uri);
        }
        verdict
    }

    pub(crate) fn unsubscribe(&self, session: &Caller, uri: &str) {
        self.settings.records.remove(session, uri);
        self.change(|state| state.unsubscribe_session(session, uri));
    }

    /// Whether a session's subscriptions on the base connection match the record exactly.
    pub(crate) fn is_as_recorded(&self, session: &Caller) -> bool {
        self.settings.records.resources(session) == self.state.lock().subscribed(session)
    }

    /// Makes a session's subscriptions on the base connection match the record. Returns the new
    /// ones, once the server has answered.
    pub(crate) async fn subscribe_as_recorded(&self, session: &Caller) -> Names {
        let recorded = self.settings.records.resources(session);
        let added =
            self.change(|state| state.set_subscribed(session, recorded, self.settings.limit));
        self.agreed(&added).await;
        added
    }

    pub(crate) fn recorded(&self) -> &SessionSubscriptions {
        &self.settings.records
    }

    /// Whether a session may subscribe to one more resource on its own connection.
    pub(crate) fn may_subscribe(&self, session: &Caller, uri: &Arc<str>) -> bool {
        let recorded = self.settings.records.resources(session);
        recorded.len() < self.settings.limit || recorded.contains(uri)
    }

    /// Names a task for a session while it listens, until the task ends. The session's own dialect
    /// cannot name tasks.
    pub(crate) fn follow_task(&self, session: &Caller, task: &str) {
        let limits = (self.settings.tasks_of_session, self.settings.limit);
        self.change(|state| state.follow(session, &task.into(), limits));
    }

    /// Stops naming a task that has ended.
    pub(crate) fn unfollow_task(&self, session: &Caller, task: &str) {
        self.change(|state| state.unfollow(session, task));
    }

    /// Whether a task is named for a listener of `principal`.
    pub(crate) fn any_task(&self, principal: &Principal) -> bool {
        let state = self.state.lock();
        let mut named = state
            .tasks
            .values()
            .flat_map(|entry| state.listeners_of(entry));
        named.any(|listener| listener.principal() == principal)
    }

    /// The resources that `principal`'s listeners without a session want, without those that the
    /// server refused, and the generation of that demand.
    pub(crate) fn resources_of(&self, principal: &Principal) -> (u64, Names) {
        let state = self.state.lock();
        let is_of = |listener: &Listener| Audience::Of(principal).includes(listener);
        let is_wanted = |entry: &Entry| entry.is_wanted() && state.listeners_of(entry).any(is_of);
        let wanted = state.uris.iter().filter(|(_, entry)| is_wanted(entry));
        let wanted = wanted.map(|(uri, _)| Arc::clone(uri)).collect();
        (state.generation, wanted)
    }

    /// Removes all entries of a session.
    pub(crate) fn end_session(&self, session: SessionKey) {
        self.settings.records.end(session);
        self.leave_session(session);
    }

    /// Removes the entries of a session that continues at another endpoint, which repeats its
    /// subscriptions.
    pub(crate) fn leave_session(&self, session: SessionKey) {
        self.task_progress.end_session(session);
        self.change(|state| state.end_session(session));
    }

    /// The channel to a session's listener; to the newest if there are several.
    pub(crate) fn listener_of(&self, session: &Caller) -> Option<ServerMessages> {
        let state = self.state.lock();
        let id = state.session(session)?.listeners.last()?;
        state
            .listeners
            .get(id)
            .map(|listener| listener.messages.clone())
    }

    /// Whether a session has listeners.
    pub(crate) fn is_listening(&self, session: &Caller) -> bool {
        self.state
            .lock()
            .session(session)
            .is_some_and(|session| !session.listeners.is_empty())
    }

    /// Keeps a client's notification until its session has a connection.
    pub(crate) fn add_early(&self, session: &Caller, notification: &Notification) {
        if let Some(session) = self.state.lock().session_or_new(session) {
            session.more().early.add(notification);
        }
    }

    /// The notifications that waited for a session's connection.
    pub(crate) fn take_early(&self, session: &Caller) -> Vec<Notification> {
        let mut state = self.state.lock();
        let session = state.session_mut(session);
        session.map_or_else(Vec::new, |session| session.more().early.take())
    }

    /// Observes whether a session has listeners.
    pub(crate) fn presence(&self, session: &Caller) -> Option<watch::Receiver<bool>> {
        self.state.lock().presence(session)
    }

    /// Handles the final end of a session's own connection.
    pub(crate) fn connection_ended(&self, session: &Caller) {
        self.state.lock().remove_if_unused(session);
    }

    /// Records whether list changes arrive on the session's own connection.
    pub(crate) fn set_own_stream(&self, session: &Caller, has_own_stream: bool) {
        self.change(|state| state.set_own_stream(session, has_own_stream));
    }

    /// Observes every change of the demand.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether the base connection of a legacy server needs a stream. The server announces changes
    /// of these lists, and of tasks if `tasks`.
    pub(crate) fn needs_stream(&self, lists: Lists, tasks: bool) -> bool {
        let state = self.state.lock();
        !(state.lists() & lists).is_empty()
            || state.uris.values().any(Entry::is_wanted)
            || (tasks && !state.tasks.is_empty())
            || (self.settings.shared && state.any_session())
    }

    /// Whether listeners on the base connection want more than changes of lists.
    pub(crate) fn needs_more_than_lists(&self) -> bool {
        let state = self.state.lock();
        let mut named = state.uris.values().chain(state.tasks.values());
        named.any(Entry::is_wanted) || Arc::strong_count(&self.dedicated) > 1
    }

    /// Marks that a listener has its own subscription on the base connection, until this is
    /// dropped.
    pub(crate) fn dedicated(&self) -> Arc<()> {
        Arc::clone(&self.dedicated)
    }

    /// Delivers a notification to its listeners, except for a session that has already received it.
    pub(crate) fn deliver(
        &self,
        origin: &Origin,
        mut notification: Notification,
        except: Option<&Caller>,
    ) {
        if Change::from_method(&notification.method).is_some()
            || notification.method == Method::ResourceUpdated
        {
            // Copied, since many listeners may keep it for long: otherwise it would keep its read
            // buffer in memory.
            notification.text = notification.text.detached();
        }
        if *origin == Origin::Base
            && notification.method == Method::ResourceUpdated
            && except.is_none()
        {
            return self.deliver_update_of_base(&notification);
        }
        let Some(change) = Change::from_method(&notification.method) else {
            return self.deliver_now(origin, &notification, except);
        };
        if *origin == Origin::Base && !self.agreement.borrow().announces(change) {
            return;
        }
        let list = (origin.clone(), notification.method.clone());
        match self.coalescing.admit(&list, &notification, except) {
            Admission::Deliver => self.deliver_now(origin, &notification, except),
            Admission::Merged => {}
            Admission::Held(until, ()) => self.later(until, move |registry| {
                if let Some((due, except)) = registry.coalescing.take_due(&list) {
                    registry.deliver_now(&list.0, &due, except.as_ref());
                }
            }),
        }
    }

    /// Runs `act` at this time, unless the server ends before.
    fn later(&self, until: Instant, act: impl FnOnce(&Self) + Send + 'static) {
        let (registry, shutdown) = (Weak::clone(&self.itself), self.settings.shutdown.clone());
        self.settings.tasks.spawn(async move {
            let waited = shutdown.run_until_cancelled(sleep_until(until)).await;
            if let Some(registry) = waited.and_then(|()| registry.upgrade()) {
                act(&registry);
            }
        });
    }

    /// Delivers an update that the base connection's process has announced. Principals with their
    /// own subscribed processes get it together with the announcements of those.
    fn deliver_update_of_base(&self, notification: &Notification) {
        let joint = notification
            .updated_uri()
            .map(|uri| self.joint_updates.principals(&uri))
            .unwrap_or_default();
        self.deliver_update(Audience::AllBut(&joint), notification);
        for principal in &joint {
            self.deliver_jointly(ProcessNumber::BASE, principal, notification);
        }
    }

    /// Delivers an update to `principal`'s listeners once the other processes have announced it, or
    /// after a moment.
    fn deliver_jointly(
        &self,
        process: ProcessNumber,
        principal: &Principal,
        notification: &Notification,
    ) {
        let Some(uri) = notification.updated_uri() else {
            return;
        };
        let is_base_subscribed = self.state.lock().is_subscribed(&uri);
        match self
            .joint_updates
            .admit((principal, process), notification, &uri, is_base_subscribed)
        {
            Admission::Deliver => self.deliver_update(Audience::Of(principal), notification),
            Admission::Merged => {}
            Admission::Held(until, number) => self.later(until, move |registry| {
                if let Some((principal, update)) = registry.joint_updates.take_due(number) {
                    registry.deliver_update(Audience::Of(&principal), &update);
                }
            }),
        }
    }

    fn deliver_update(&self, audience: Audience<'_>, notification: &Notification) {
        let dropped = self
            .state
            .lock()
            .deliver_update(audience, (notification, None));
        self.warn_of_slow(dropped);
    }

    /// The number of `origin`'s process or HTTP connection.
    fn process_number(&self, origin: &Origin) -> ProcessNumber {
        if *origin == Origin::Base {
            ProcessNumber::BASE
        } else {
            self.joint_updates.next_process()
        }
    }

    /// Delivers progress from `process` that belongs to no running call. `on` is the request that
    /// had the progress on its stream, if any.
    fn deliver_progress(
        &self,
        process: ProcessNumber,
        notification: Notification,
        on: Option<(&Caller, &ServerMessages)>,
    ) {
        let target = notification
            .progress_token()
            .and_then(|place| notification.text.slice(place).as_i64());
        let (messages, message) = match target
            .and_then(|token| self.task_progress.target((process, token)))
        {
            Some(ProgressTarget::Call(messages)) => {
                (Some(messages), ServerMessage::Notification(notification))
            }
            Some(ProgressTarget::Client {
                caller,
                token,
                waiting,
            }) => {
                let on_own = on
                    .filter(|(receiver, _)| **receiver == caller)
                    .map(|(_, messages)| messages.clone());
                let messages = on_own.or_else(|| self.listener_of(&caller)).or(waiting);
                (
                    messages,
                    ServerMessage::TaskProgress(notification.with_param("progressToken", &token)),
                )
            }
            None => return,
        };
        let is_taken = messages.is_none_or(|messages| messages.try_send(message));
        self.warn_of_slow(usize::from(!is_taken));
    }

    fn deliver_now(&self, origin: &Origin, notification: &Notification, except: Option<&Caller>) {
        let dropped = self.change(|state| {
            deliver::deliver(state, origin, self.settings.shared, (notification, except))
        });
        self.warn_of_slow(dropped);
    }

    /// Announces that lists and resources may have changed while nothing could be received.
    pub(crate) fn announce(&self, origin: &Origin, lists: Lists) {
        let recorded = origin
            .session()
            .map(|session| self.settings.records.resources(session));
        let recorded = recorded.unwrap_or_default();
        let dropped = deliver::announce(&mut self.state.lock(), origin, lists, &recorded);
        self.warn_of_slow(dropped);
    }

    /// Logs that listeners had no capacity for a message.
    pub(crate) fn warn_of_slow(&self, dropped: usize) {
        if dropped > 0 {
            let backend = &*self.backend;
            tracing::warn!(
                backend,
                dropped,
                "message dropped: a listening client does not keep up"
            );
        }
    }

    /// Changes the tables, and wakes the watchers if the demand has changed.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let before = state.generation;
        let outcome = change(&mut state);
        let generation = state.generation;
        drop(state);
        if generation != before {
            self.changed.send_replace(generation);
        }
        outcome
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.change(|state| state.remove(self.id));
    }
}

/// Merges announcements by connection and list.
struct Coalescing {
    /// How long announcements are collected.
    settle: Duration,
    windows: Mutex<HashMap<(Origin, Method), Window>>,
}

/// The time after the delivery of an announcement.
struct Window {
    end: Instant,
    waiting: Option<Announcement>,
}

/// An announcement, and the client that has already received it.
type Announcement = (Notification, Option<Caller>);

impl Coalescing {
    fn new(settle: Duration) -> Self {
        Self {
            settle,
            windows: Mutex::default(),
        }
    }

    fn admit(
        &self,
        list: &(Origin, Method),
        notification: &Notification,
        except: Option<&Caller>,
    ) -> Admission<()> {
        let (now, mut windows) = (Instant::now(), self.windows.lock());
        windows.retain(|_, window| window.end > now || window.waiting.is_some());
        let Some(window) = windows.get_mut(list) else {
            let (end, waiting) = (now + self.settle, None);
            windows.insert(list.clone(), Window { end, waiting });
            return Admission::Deliver;
        };
        let waiting = window.waiting.take();
        // A client that has received all of them needs no more.
        let is_same = |(_, other): &Announcement| other.as_ref() == except;
        let except = except.filter(|_| waiting.as_ref().is_none_or(is_same));
        window.waiting = Some((notification.clone(), except.cloned()));
        match waiting {
            Some(_) => Admission::Merged,
            None => Admission::Held(window.end, ()),
        }
    }

    /// The announcement of this list that has waited long enough. The following ones wait again.
    fn take_due(&self, list: &(Origin, Method)) -> Option<Announcement> {
        let mut windows = self.windows.lock();
        let window = windows.get_mut(list)?;
        window.end = Instant::now() + self.settle;
        window.waiting.take()
    }
}

#[cfg(test)]
mod coalescing_tests {
    use fanlight_canonical::{Principal, SessionKey};

    use super::*;

    const SETTLE: Duration = Duration::from_millis(100);

    const TOOLS: (Origin, Method) = (Origin::Base, Method::ToolsChanged);

    fn announcement(method: &Method) -> Notification {
        Notification::new(method.clone(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn storm_becomes_two_announcements_for_each_interval_at_most() {
        let coalescing = Coalescing::new(SETTLE);
        let (mut delivered, mut waits) = (0, Vec::new());
        for _ in 0..1000 {
            match coalescing.admit(&TOOLS, &announcement(&Method::ToolsChanged), None) {
                Admission::Deliver => delivered += 1,
                Admission::Held(until, ()) => waits.push(until),
                Admission::Merged => {}
            }
        }
        assert_eq!((delivered, waits.len()), (1, 1));
        sleep_until(waits[0]).await;
        assert!(coalescing.take_due(&TOOLS).is_some());
        // Further announcements follow.
        let next = coalescing.admit(&TOOLS, &announcement(&Method::ToolsChanged), None);
        assert!(
            matches!(next, Admission::Held(until, ()) if until == Instant::now() + SETTLE),
            "{next:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn announcement_after_a_pause_and_those_of_others_are_delivered_at_once() {
        let coalescing = Coalescing::new(SETTLE);
        let is_delivered = |origin: &Origin, method: &Method| {
            let list = (origin.clone(), method.clone());
            matches!(
                coalescing.admit(&list, &announcement(method), None),
                Admission::Deliver
            )
        };
        let session = Origin::Session(Caller::session_of(Principal::anonymous(), SessionKey(1)));
        assert!(is_delivered(&Origin::Base, &Method::ToolsChanged));
        assert!(is_delivered(&Origin::Base, &Method::PromptsChanged));
        assert!(is_delivered(&session, &Method::ToolsChanged));
        tokio::time::advance(SETTLE).await;
        assert!(is_delivered(&Origin::Base, &Method::ToolsChanged));
        assert_eq!(coalescing.windows.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn merged_announcement_reaches_all_that_missed_one_of_them() {
        let coalescing = Coalescing::new(SETTLE);
        let client = |key| Some(Caller::session_of(Principal::anonymous(), SessionKey(key)));
        for (second, left) in [(client(1), client(1)), (client(2), None), (None, None)] {
            for except in [None, client(1), second] {
                let announcement = announcement(&Method::ToolsChanged);
                let _ = coalescing.admit(&TOOLS, &announcement, except.as_ref());
            }
            assert_eq!(coalescing.take_due(&TOOLS).unwrap().1, left);
            tokio::time::advance(SETTLE).await;
        }
    }
}

/// The resources that each session has subscribed to. They are used to repeat the subscriptions on
/// the session's next own connection to a legacy server, and at another endpoint.
pub(crate) struct SessionSubscriptions {
    /// The maximum number of resources per session.
    limit: usize,
    sessions: Mutex<HashMap<Caller, Names>>,
}

impl SessionSubscriptions {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            sessions: Mutex::default(),
        }
    }

    /// Adds a subscription.
    pub(crate) fn add(&self, session: &Caller, uri: &Arc<str>) {
        let mut sessions = self.sessions.lock();
        let uris = sessions.entry(session.clone()).or_default();
        if uris.len() < self.limit {
            uris.insert(Arc::clone(uri));
        }
    }

    /// Removes a subscription.
    pub(crate) fn remove(&self, session: &Caller, uri: &str) {
        let mut sessions = self.sessions.lock();
        if let Some(uris) = sessions.get_mut(session)
            && uris.remove(uri)
            && uris.is_empty()
        {
            sessions.remove(session);
        }
    }

    /// The subscriptions of a session.
    pub(crate) fn resources(&self, session: &Caller) -> Names {
        let sessions = self.sessions.lock();
        sessions.get(session).cloned().unwrap_or_default()
    }

    /// Removes all subscriptions of a session.
    pub(crate) fn end(&self, session: SessionKey) {
        self.sessions
            .lock()
            .retain(|caller, _| caller.session() != Some(session));
    }
}

#[cfg(test)]
mod recorded_tests {
    use fanlight_canonical::Principal;

    use super::*;

    #[test]
    fn subscriptions_are_recorded_for_one_caller_up_to_the_limit() {
        let records = SessionSubscriptions::new(2);
        let (key, uris) = (
            SessionKey::generate(),
            ["a:1", "a:2", "a:3"].map(Arc::<str>::from),
        );
        let of = |name| Caller::session_of(Principal::new("issuer", name), key);
        uris.iter().for_each(|uri| records.add(&of("ann"), uri));
        records.add(&of("bob"), &uris[0]);
        records.remove(&of("bob"), "a:1");
        records.remove(&of("ann"), "a:2");
        assert_eq!(records.resources(&of("ann")), [Arc::clone(&uris[0])].into());
        records.end(key);
        assert!(records.resources(&of("ann")).is_empty());
    }
}
