//! Notifies clients that a merged list has changed, at a limited rate.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    CallContext, Endpoint, Interest, Listen, ServerMessage, ServerMessages, SessionKey,
};
use fanlight_protocol::Notification;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::demand::Demand;
use super::{Change, Differing};
use crate::topology::{BackendId, Reader, Topology, View, settle_time};

/// The sessions that a server has told of a change, and when; `None` for clients without one.
pub(super) type Told = HashMap<Option<SessionKey>, Instant>;

/// The clients that listen for changes of merged lists, and the notifications that are due.
#[derive(Default)]
pub(crate) struct Announcer {
    state: Mutex<State>,
    /// Tracks which servers Fanlight has to listen to for changes.
    pub(super) demand: Demand,
    /// Wakes the task that sends notifications when one becomes due.
    pub(super) woken: Notify,
}

#[derive(Default)]
struct State {
    listeners: HashMap<u64, Listener>,
    next: u64,
    timing: [Timing; 3],
}

struct Listener {
    context: Arc<CallContext>,
    /// The principal whose lists the client sees; `None` if it sees the common lists. Set again
    /// with each topology.
    reader: Option<Reader>,
    /// The kinds of changes that the gateway announces to this client.
    wants: [bool; 3],
    /// The kinds of changes announced to this client after the topology was replaced. All kinds in
    /// its interest, because a server that announces its own changes knows nothing of the
    /// replacement.
    on_replacement: [bool; 3],
    /// The servers whose messages the client gets directly; `None` means all of them.
    heard: Option<HashSet<BackendId>>,
    /// When the client was last told of each kind of change.
    told: [Option<Instant>; 3],
    messages: ServerMessages,
}

#[derive(Clone, Default)]
struct Timing {
    due: Option<Instant>,
    /// The endpoints whose lists have changed, with the clients to notify there.
    endpoints: HashSet<(Endpoint, Audience)>,
    sent: Option<Instant>,
}

/// The clients of an endpoint that a change is announced to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Audience {
    Everyone,
    /// Clients whose principal has its own lists.
    Readers,
    /// Clients that the canary of this server serves.
    MovedFrom(BackendId),
    Reader(Reader),
    /// The listener with this number.
    Listener(u64),
}

impl Listener {
    fn endpoint(&self) -> &Endpoint {
        self.context.caller.endpoint()
    }

    fn is_among(&self, number: u64, told: &HashSet<(Endpoint, Audience)>) -> bool {
        let is_told = |audience| told.contains(&(self.endpoint().clone(), audience));
        let is_reader = |reader: &Reader| {
            is_told(Audience::Reader(reader.clone()))
                || (reader.principal().is_named() && is_told(Audience::Readers))
                || reader
                    .moved_from()
                    .any(|backend| is_told(Audience::MovedFrom(backend)))
        };
        is_told(Audience::Everyone)
            || is_told(Audience::Listener(number))
            || self.reader.as_ref().is_some_and(is_reader)
    }
}

/// The registration of a listener. Dropping it ends the registration.
pub(crate) struct Registration {
    announcer: Arc<Announcer>,
    number: u64,
}

impl Announcer {
    /// Registers a client: from now on it gets notifications of changes in its interest.
    pub(crate) fn register(self: &Arc<Self>, listen: &Listen) -> Registration {
        let wants = Change::ALL.map(|change| change.is_in(&listen.interest));
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.listeners.insert(
            number,
            Listener {
                context: Arc::clone(&listen.context),
                reader: None,
                wants,
                on_replacement: wants,
                heard: None,
                told: [None; 3],
                messages: listen.messages.clone(),
            },
        );
        self.demand.set_clients(true);
        drop(state);
        Registration {
            announcer: Arc::clone(self),
            number,
        }
    }

    /// The endpoints at which clients listen.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let state = self.lock();
        let distinct: HashSet<&Endpoint> =
            state.listeners.values().map(Listener::endpoint).collect();
        distinct.into_iter().cloned().collect()
    }

    /// Makes a notification due at these endpoints, at the earliest `pause` after the last one.
    pub(super) fn announce(
        &self,
        change: Change,
        pause: Duration,
        endpoints: Vec<Endpoint>,
        audience: &Audience,
    ) {
        let audience = |endpoint| (endpoint, audience.clone());
        self.add_due(change, pause, endpoints.into_iter().map(audience));
    }

    fn add_due(
        &self,
        change: Change,
        pause: Duration,
        audience: impl Iterator<Item = (Endpoint, Audience)>,
    ) {
        let now = Instant::now();
        if let Some(timing) = self.lock().timing.get_mut(change.index()) {
            let due = timing.sent.map_or(now, |sent| now.max(sent + pause));
            timing.due = Some(timing.due.map_or(due, |earlier| earlier.min(due)));
            timing.endpoints.extend(audience);
        }
        self.woken.notify_one();
    }

    /// Makes a notification due for the clients that `backend` has told, unless they have been
    /// notified since. A client that may not use everything of the server learns of it only if its
    /// list differs. Principals whose own list `is_private` have been told.
    pub(super) fn tell(
        &self,
        change: Change,
        backend: BackendId,
        told: &Told,
        topology: &Arc<Topology>,
        is_private: bool,
    ) {
        let has_own = |reader: &Reader| is_private && reader.principal().is_named();
        let is_due = |listener: &Listener| {
            let last = listener.told.get(change.index()).copied().flatten();
            let since = told.get(&listener.context.session());
            let is_new = since.is_some_and(|since| last < Some(*since));
            is_new && !listener.reader.as_ref().is_some_and(has_own) && {
                let view = View::of(Arc::clone(topology), &listener.context);
                view.shows(backend) && view.passes_all_of(backend)
            }
        };
        let audience: Vec<_> = self
            .lock()
            .listeners
            .iter()
            .filter(|(_, listener)| is_due(listener))
            .map(|(number, listener)| (listener.endpoint().clone(), Audience::Listener(*number)))
            .collect();
        if !audience.is_empty() {
            self.add_due(change, settle_time(), audience.into_iter());
        }
    }

    /// Makes a notification due for `audience` at the endpoints that show `backend`.
    pub(super) fn announce_to(
        &self,
        audience: &Audience,
        change: Change,
        topology: &Arc<Topology>,
        backend: BackendId,
    ) {
        let mut endpoints = self.endpoints();
        endpoints.retain(|endpoint| View::at(Arc::clone(topology), endpoint).shows(backend));
        self.announce(change, settle_time(), endpoints, audience);
    }

    /// The time at which [`Announcer::send_due`] has to be called next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.lock()
            .timing
            .iter()
            .filter_map(|timing| timing.due)
            .min()
    }

    /// Sends the notifications that are due. A listener whose channel is full misses its copy.
    pub(super) fn send_due(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        for change in Change::ALL {
            let Some(timing) = state.timing.get_mut(change.index()) else {
                continue;
            };
            if timing.due.is_none_or(|due| due > now) {
                continue;
            }
            let endpoints = std::mem::take(&mut timing.endpoints);
            (timing.due, timing.sent) = (None, Some(now));
            let notification = Notification::new(change.method(), None);
            let wants = |(number, listener): &(&u64, &mut Listener)| {
                listener.wants.get(change.index()) == Some(&true)
                    && listener.is_among(**number, &endpoints)
            };
            for (_, listener) in state.listeners.iter_mut().filter(wants) {
                if let Some(told) = listener.told.get_mut(change.index()) {
                    *told = Some(now);
                }
                let _ = listener
                    .messages
                    .try_send(ServerMessage::Notification(notification.clone()));
            }
        }
    }

    /// Forwards a server's notification to the listeners that do not get its messages directly.
    pub(super) fn pass_on(
        &self,
        backend: BackendId,
        notification: &Notification,
        is_shown: impl Fn(&Endpoint) -> bool,
    ) {
        for listener in self.lock().listeners.values() {
            let is_heard = listener
                .heard
                .as_ref()
                .is_none_or(|heard| heard.contains(&backend));
            if !is_heard && is_shown(listener.endpoint()) {
                let _ = listener
                    .messages
                    .try_send(ServerMessage::Notification(notification.clone()));
            }
        }
    }

    /// Whether any listener is interested in this kind of change.
    pub(crate) fn is_wanted(&self, change: Change) -> bool {
        self.lock()
            .listeners
            .values()
            .any(|listener| listener.on_replacement.get(change.index()) == Some(&true))
    }

    /// Notifies each interested listener at whose endpoint the new topology changed the lists.
    pub(crate) fn replaced(&self, changes: &[(Change, Differing)]) {
        let now = Instant::now();
        let mut state = self.lock();
        for (change, differing) in changes {
            if differing.is_empty() {
                continue;
            }
            if let Some(timing) = state.timing.get_mut(change.index()) {
                timing
                    .endpoints
                    .retain(|(endpoint, _)| !differing.includes(endpoint));
                timing.sent = Some(now);
                timing.due = timing.due.filter(|_| !timing.endpoints.is_empty());
            }
            let notification = Notification::new(change.method(), None);
            let interested = |listener: &&Listener| {
                listener.on_replacement.get(change.index()) == Some(&true)
                    && differing.includes(listener.endpoint())
            };
            for listener in state.listeners.values().filter(interested) {
                let _ = listener
                    .messages
                    .try_send(ServerMessage::Notification(notification.clone()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Registration {
    /// Sets the principal whose lists the listener sees from now on.
    pub(crate) fn reads_as(&self, reader: Option<&Reader>) {
        if let Some(listener) = self.announcer.lock().listeners.get_mut(&self.number) {
            listener.reader = reader.cloned();
        }
    }

    /// Limits what the gateway announces to this listener to `interest`.
    pub(crate) fn announce_only(&self, interest: &Interest) {
        if let Some(listener) = self.announcer.lock().listeners.get_mut(&self.number) {
            listener.wants = Change::ALL.map(|change| change.is_in(interest));
        }
    }

    /// Sets the servers whose messages the listener gets directly; `None` means all of them.
    pub(crate) fn hears(&self, backends: Option<HashSet<BackendId>>) {
        if let Some(listener) = self.announcer.lock().listeners.get_mut(&self.number) {
            listener.heard = backends;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.announcer.lock();
        let gone = state.listeners.remove(&self.number);
        self.announcer
            .demand
            .set_clients(!state.listeners.is_empty());
        drop(state);
        drop(gone);
    }
}
