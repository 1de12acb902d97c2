//! The listening clients, who are told that a merged list has changed, at a limited rate; and
//! whether Fanlight has to listen to a server for changes of its lists.
//!
//! A single Fanlight process listens to every server. With several replicas each stream is one of
//! many at the server. So a replica listens only while one of its clients listens, or while a list
//! of the server has no lifetime (`ttlMs`; 2026-07-28 server/utilities/caching).
//!
//! When a new topology replaces the current one, lists are compared: which differ, and at which
//! endpoints.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    Endpoint, Listen, Listening, ListeningGuard, Parent, ServerMessage, SessionKey,
};
use fanlight_protocol::Notification;
use fanlight_protocol::subscription::Lists;
use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::{Catalogue, Catalogues, Change, ListKind};
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
pub(crate) struct Hearing {
    /// The principal whose lists the client sees; `None` if it sees the common lists.
    pub(crate) reader: Option<Reader>,
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

    /// Makes a notification due for the clients that the change concerns, if the gateway announces it
    /// to them, at the earliest `pause` after the last one.
    pub(super) fn announce(
        &self,
        change: Change,
        pause: Duration,
        concerns: impl Fn(&Listen, &Hearing) -> bool,
    ) {
        self.make_due(change, pause, |listen, hearing| {
            hearing.announced.has(change) && concerns(listen, hearing)
        });
    }

    fn make_due(
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
                if hearing.take_due(change) {
                    if let Some(told) = hearing.told.get_mut(change.index()) {
                        *told = Some(now);
                    }
                    listener.tell(&notification);
                }
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
        for (change, differing) in changes {
            self.make_due(*change, Duration::ZERO, |listen, _| {
                listen.interest.lists.has(*change)
                    && differing.includes(listen.context.caller.endpoint())
            });
        }
        self.send_due();
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

/// How long a stream stays open after nobody needs it. No option: clients come and go, and each new
/// stream makes Fanlight read the lists again.
const LINGER: Duration = Duration::from_secs(60);

/// Tracks the reasons to listen to servers for changes of lists.
#[derive(Default)]
pub(super) struct Demand(watch::Sender<Reasons>);

/// The reasons to listen to servers for changes of lists.
#[derive(Default)]
struct Reasons {
    /// Whether any client listens for changes.
    clients: bool,
    /// The lists that have no lifetime.
    untimed: HashSet<(BackendId, ListKind)>,
}

impl Demand {
    fn set_clients(&self, listen: bool) {
        self.0
            .send_if_modified(|all| std::mem::replace(&mut all.clients, listen) != listen);
    }

    /// Records that a list of a server was read, and whether it has a lifetime.
    pub(crate) fn read(&self, backend: BackendId, kind: ListKind, is_timed: bool) {
        let list = (backend, kind);
        self.0.send_if_modified(|all| match is_timed {
            true => all.untimed.remove(&list),
            false => all.untimed.insert(list),
        });
    }

    /// Forgets the servers for which `is_there` is false.
    pub(crate) fn retain(&self, is_there: impl Fn(BackendId) -> bool) {
        self.0
            .send_modify(|all| all.untimed.retain(|(backend, _)| is_there(*backend)));
    }

    /// Waits until Fanlight has to listen to the server.
    pub(crate) async fn begins(&self, backend: BackendId) {
        self.becomes(backend, true).await;
    }

    /// Waits until Fanlight has not had to listen to the server for [`LINGER`].
    pub(crate) async fn ends(&self, backend: BackendId) {
        loop {
            self.becomes(backend, false).await;
            if timeout(LINGER, self.begins(backend)).await.is_err() {
                return;
            }
        }
    }

    async fn becomes(&self, backend: BackendId, wanted: bool) {
        let is_wanted = |all: &Reasons| {
            all.clients || all.untimed.iter().any(|(untimed, _)| *untimed == backend)
        };
        let mut reasons = self.0.subscribe();
        // The sender belongs to `self`, so it cannot close here.
        let _ = reasons
            .wait_for(|all| is_wanted(all) == wanted)
            .await
            .map(drop);
    }
}

/// The endpoints at which a list differs from the list of the previous topology.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    /// The list differs at every endpoint, or may, because the previous list is unknown.
    everywhere: bool,
    pub(super) endpoints: HashSet<Endpoint>,
}

impl Differing {
    /// Whether the list differs at this endpoint.
    pub(crate) fn includes(&self, endpoint: &Endpoint) -> bool {
        self.everywhere || self.endpoints.contains(endpoint)
    }
}

impl Catalogues {
    /// Prepares to replace `old`: reads the unknown lists whose changes clients listen for, so that
    /// they can be compared with the new ones. Such lists exist because with one server each client
    /// reads its own.
    pub(crate) async fn prepare_replacement(&self, old: &Arc<Topology>, new: &Arc<Topology>) {
        let wanted = Change::ALL
            .into_iter()
            .filter(|change| self.is_wanted(*change));
        let all = wanted.flat_map(|change| self.changed_by(change));
        join_all(all.map(|catalogue| catalogue.prepare_replacement(old, new))).await;
    }

    /// Reads the lists whose changes clients listen for, and returns the endpoints where each
    /// differs from before `new`. Unless `shows_all_the_same`, policy or canaries have changed, and
    /// each list may differ for somebody anywhere.
    pub(crate) async fn replaced(
        &self,
        new: &Arc<Topology>,
        shows_all_the_same: bool,
    ) -> Vec<(Change, Differing)> {
        let wanted = Change::ALL
            .into_iter()
            .filter(|change| self.is_wanted(*change));
        let differ = wanted.map(async |change| {
            let mut differing = Differing {
                everywhere: !shows_all_the_same,
                ..Differing::default()
            };
            for one in join_all(
                self.changed_by(change)
                    .map(|catalogue| catalogue.replaced(new)),
            )
            .await
            {
                differing.everywhere |= one.everywhere;
                differing.endpoints.extend(one.endpoints);
            }
            (change, differing)
        });
        join_all(differ).await
    }

    fn is_wanted(&self, change: Change) -> bool {
        let [tools, ..] = &self.all;
        tools.announcer.is_wanted(change)
    }

    /// Drops the parts of servers that are in neither topology. Requests that began with `old` may
    /// still need its parts.
    pub(crate) fn retain(&self, old: &Topology, new: &Topology) {
        let is_in = |backend| old.get(backend).is_some() || new.get(backend).is_some();
        let retain = |catalogue: &Catalogue| {
            catalogue.with_state(|state| state.parts.retain(|backend, _| is_in(*backend)));
        };
        self.all.iter().for_each(|catalogue| retain(catalogue));
        self.own.for_each(retain);
    }
}

impl Catalogue {
    /// Reads the list of a topology that is about to be replaced, if it is not known.
    pub(super) async fn prepare_replacement(
        self: &Arc<Self>,
        old: &Arc<Topology>,
        new: &Arc<Topology>,
    ) {
        let is_known = old.transparent_server().is_none() && self.newest_snapshot(old).is_some();
        let is_unknown = match is_known {
            true => false,
            false => {
                let trace = Parent::default();
                timeout(
                    old.limits.timeout,
                    self.current(&View::everything(old), &trace),
                )
                .await
                .map_or(true, |read| read.list.failures() > 0)
            }
        };
        let mut endpoints = HashSet::new();
        for endpoint in self.announcer.endpoints() {
            let [before, after] =
                [old, new].map(|topology| View::for_endpoint(Arc::clone(topology), &endpoint));
            // Computes now what the endpoint shows by the old rules, for the comparison later.
            drop(self.newest_in(&before));
            // The tool that reads shortened results is in no catalogue.
            if self.kind == ListKind::Tools && before.has_results() != after.has_results() {
                endpoints.insert(endpoint);
            }
        }
        self.with_state(|state| {
            state.differs = Differing {
                everywhere: is_unknown,
                endpoints,
            }
        });
    }

    /// Reads the list of the new topology. Returns the endpoints where it differs from the previous
    /// one.
    pub(super) async fn replaced(self: &Arc<Self>, new: &Arc<Topology>) -> Differing {
        // Servers that do not answer within the time for a list are left out.
        let _ = self
            .current(&View::everything(new), &Parent::default())
            .await;
        self.with_state(|state| std::mem::take(&mut state.differs))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backend_is_listened_to_for_clients_and_for_lists_that_do_not_say_how_long_they_hold() {
        let (demand, [one, other]) = (
            Arc::new(Demand::default()),
            [BackendId::generate(), BackendId::generate()],
        );
        let is_wanted = async |backend| {
            timeout(Duration::ZERO, demand.begins(backend))
                .await
                .is_ok()
        };
        demand.read(one, ListKind::Tools, true);
        assert!(!is_wanted(one).await && !is_wanted(other).await);
        demand.read(one, ListKind::Prompts, false);
        assert!(is_wanted(one).await && !is_wanted(other).await);
        demand.set_clients(true);
        assert!(is_wanted(other).await);
        demand.read(one, ListKind::Prompts, true);
        demand.set_clients(false);
        assert!(!is_wanted(one).await && !is_wanted(other).await);
    }

    #[tokio::test(start_paused = true)]
    async fn stream_stays_for_a_while_after_the_last_client() {
        let (demand, backend) = (Arc::new(Demand::default()), BackendId::generate());
        demand.set_clients(true);
        let waiting = Arc::clone(&demand);
        let ended = tokio::spawn(async move {
            waiting.ends(backend).await;
            Instant::now()
        });
        advance(LINGER).await;
        demand.set_clients(false);
        tokio::task::yield_now().await;
        advance(LINGER / 2).await;
        demand.set_clients(true);
        tokio::task::yield_now().await;
        let left = Instant::now();
        demand.set_clients(false);
        assert_eq!(ended.await.unwrap() - left, LINGER);
    }
}
