//! The listening clients. Notifies them that a merged list has changed, at a limited rate.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Endpoint, Listen, Listening, ListeningGuard, ServerMessage, SessionKey};
use fanlight_protocol::Notification;
use fanlight_protocol::subscription::Lists;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::demand::Demand;
use super::{Change, Differing};
use crate::topology::{BackendId, Reader, Topology, View, settle_time};

/// The sessions that a server has told of a change, and when; `None` for clients without one.
pub(super) type Told = HashMap<Option<SessionKey>, Instant>;

/// The clients that listen, and the notifications that are due.
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
    listeners: HashMap<u64, Arc<Listener>>,
    next: u64,
    timing: [Timing; 3],
}

/// A listening client.
pub(crate) struct Listener {
    number: u64,
    /// The client's request. After the topology was replaced, changes of all lists in it are
    /// announced, because a server that announces its own changes knows nothing of the replacement.
    pub(crate) listen: Listen,
    hearing: Mutex<Hearing>,
}

/// The messages that a listening client gets, and their sources. Set again with each topology.
#[derive(Default)]
pub(super) struct Hearing {
    /// The principal whose lists the client sees; `None` if it sees the common lists.
    pub(super) reader: Option<Reader>,
    /// The lists whose changes the gateway announces to this client.
    announced: Lists,
    /// The changes to announce to the client once they are due.
    due: Lists,
    /// When the client was last told of each kind of change.
    told: [Option<Instant>; 3],
    /// The number of the topology whose servers the client listens to.
    topology: u64,
    with_servers: Option<ListeningGuard>,
}

/// The times of the next and the last notification of one kind of change.
#[derive(Clone, Default)]
struct Timing {
    due: Option<Instant>,
    sent: Option<Instant>,
}

impl Hearing {
    /// Whether this change was due, which it is no longer.
    fn take_due(&mut self, change: Change) -> bool {
        let due = self.due;
        self.due = due.changes().filter(|other| *other != change).collect();
        due.has(change)
    }
}

impl Listener {
    fn endpoint(&self) -> &Endpoint {
        self.listen.context.caller.endpoint()
    }

    /// Whether the client still listens.
    pub(crate) fn is_open(&self) -> bool {
        self.listen.messages.is_connected()
    }

    /// Sets the principal whose lists the client sees, and the lists whose changes the gateway
    /// announces to the client.
    pub(crate) fn hear(&self, reader: Option<&Reader>, announced: Lists) {
        let mut hearing = self.hearing.lock();
        hearing.reader = reader.cloned();
        hearing.announced = announced;
    }

    /// Replaces the listening at the servers of an earlier topology, unless a later one is
    /// installed already.
    pub(crate) fn install(&self, topology: u64, listening: Listening) {
        let mut hearing = self.hearing.lock();
        let ended = if topology >= hearing.topology {
            hearing.topology = topology;
            hearing.with_servers.replace(listening.into_guard())
        } else {
            Some(listening.into_guard())
        };
        drop(hearing);
        drop(ended);
    }

    /// Sends a notification. A listener whose channel is full misses its copy.
    fn tell(&self, notification: &Notification) {
        let message = ServerMessage::Notification(notification.clone());
        let _ = self.listen.messages.try_send(message);
    }
}

/// The entry of a listener. Dropping it ends the listening.
pub(crate) struct Registration {
    announcer: Arc<Announcer>,
    pub(crate) listener: Arc<Listener>,
}

impl Announcer {
    /// Adds a client: from now on it gets notifications of changes in its interest.
    pub(crate) fn register(self: &Arc<Self>, listen: Listen) -> Registration {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let hearing = Mutex::new(Hearing {
            announced: listen.interest.lists,
            ..Hearing::default()
        });
        let listener = Arc::new(Listener {
            number,
            listen,
            hearing,
        });
        state.listeners.insert(number, Arc::clone(&listener));
        self.demand.set_clients(true);
        drop(state);
        Registration {
            announcer: Arc::clone(self),
            listener,
        }
    }

    /// The clients that listen to servers.
    pub(crate) fn set_up(&self) -> Vec<Arc<Listener>> {
        let is_set_up = |listener: &&Arc<Listener>| listener.hearing.lock().with_servers.is_some();
        let state = self.lock();
        state
            .listeners
            .values()
            .filter(is_set_up)
            .cloned()
            .collect()
    }

    /// The endpoints at which clients listen.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let state = self.lock();
        let distinct: HashSet<&Endpoint> = state
            .listeners
            .values()
            .map(|listener| listener.endpoint())
            .collect();
        distinct.into_iter().cloned().collect()
    }

    /// Makes a notification due for the clients that the change concerns, at the earliest `pause`
    /// after the last one.
    pub(super) fn announce(
        &self,
        change: Change,
        pause: Duration,
        concerns: impl Fn(&Listen, &Hearing) -> bool,
    ) {
        let (now, mut state) = (Instant::now(), self.lock());
        let State {
            listeners, timing, ..
        } = &mut *state;
        let mut is_due = false;
        for listener in listeners.values() {
            let mut hearing = listener.hearing.lock();
            if concerns(&listener.listen, &hearing) {
                hearing.due = hearing.due | change.into();
                is_due = true;
            }
        }
        if let Some(timing) = timing.get_mut(change.index()).filter(|_| is_due) {
            let due = timing.sent.map_or(now, |sent| now.max(sent + pause));
            timing.due = Some(timing.due.map_or(due, |earlier| earlier.min(due)));
        }
        drop(state);
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
        self.announce(change, settle_time(), |listen, hearing| {
            let last = hearing.told.get(change.index()).copied().flatten();
            let since = told.get(&listen.context.session());
            let is_new = since.is_some_and(|since| last < Some(*since));
            is_new && !hearing.reader.as_ref().is_some_and(has_own) && {
                let view = View::for_client(Arc::clone(topology), &listen.context);
                view.shows(backend) && view.passes_all_of(backend)
            }
        });
    }

    /// Makes a notification due for the readers that `concerns` chooses, at the endpoints that show
    /// `backend`.
    pub(super) fn announce_to(
        &self,
        concerns: impl Fn(&Reader) -> bool,
        change: Change,
        topology: &Arc<Topology>,
        backend: BackendId,
    ) {
        self.announce(change, settle_time(), |listen, hearing| {
            let endpoint = listen.context.caller.endpoint();
            hearing.reader.as_ref().is_some_and(&concerns)
                && View::for_endpoint(Arc::clone(topology), endpoint).shows(backend)
        });
    }

    /// The time at which [`Announcer::send_due`] has to be called next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lock()
            .timing
            .iter()
            .filter_map(|timing| timing.due)
            .min()
    }

    /// Sends the notifications that are due.
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
            (timing.due, timing.sent) = (None, Some(now));
            let notification = Notification::new(change.method(), None);
            for listener in state.listeners.values() {
                let mut hearing = listener.hearing.lock();
                if !hearing.take_due(change) || !hearing.announced.has(change) {
                    continue;
                }
                if let Some(told) = hearing.told.get_mut(change.index()) {
                    *told = Some(now);
                }
                listener.tell(&notification);
            }
        }
    }

    /// Whether any listener is interested in this kind of change.
    pub(crate) fn is_wanted(&self, change: Change) -> bool {
        self.lock()
            .listeners
            .values()
            .any(|listener| listener.listen.interest.lists.has(change))
    }

    /// Notifies each interested listener at whose endpoint the new topology changed the lists.
    pub(crate) fn announce_replacement(&self, changes: &[(Change, Differing)]) {
        let now = Instant::now();
        let mut state = self.lock();
        for (change, differing) in changes {
            if differing.is_empty() {
                continue;
            }
            if let Some(timing) = state.timing.get_mut(change.index()) {
                timing.sent = Some(now);
            }
            let notification = Notification::new(change.method(), None);
            for listener in state.listeners.values() {
                if differing.includes(listener.endpoint()) {
                    listener.hearing.lock().take_due(*change);
                    if listener.listen.interest.lists.has(*change) {
                        listener.tell(&notification);
                    }
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.announcer.lock();
        let gone = state.listeners.remove(&self.listener.number);
        self.announcer
            .demand
            .set_clients(!state.listeners.is_empty());
        drop(state);
        drop(gone);
    }
}
