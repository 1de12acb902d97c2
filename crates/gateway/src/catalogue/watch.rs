//! Keeps the catalogues current: listens to the servers, reads announced parts again, and notifies
//! clients if the merged lists have changed.
//!
//! The first request for a list or the first listener starts it, so that a configuration with many
//! servers starts fast.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::{
    BackendClient, BackendError, Backoff, CallContext, Listen, Parent, RetryDelays, ServerMessage,
    ServerMessages, SessionKey,
};
use fanlight_protocol::subscription::Lists;
use fanlight_protocol::{Json, Method, Notification};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::debug;

use super::announce::{Announcer, Told};
use super::{Catalogue, Catalogues, Change, ListKind, ListView, is_resting};
use crate::reads::Reads;
use crate::topology::{BackendId, CurrentTopology, Member, Reader, Topology, View, settle_time};

/// The catalogues, and the tasks that keep them current.
pub(crate) struct ListWatcher {
    topology: Arc<CurrentTopology>,
    pub(crate) catalogues: Catalogues,
    pub(crate) announcer: Arc<Announcer>,
    reads: Arc<Reads>,
    pub(crate) background: Background,
    pending: Mutex<HashMap<Part, Told>>,
    /// The number of the last notification from each server.
    latest: Mutex<HashMap<BackendId, u64>>,
    woken: Notify,
    begun: AtomicBool,
}

/// A server's part of the lists that one announcement concerns.
type Part = (Change, BackendId);

impl ListWatcher {
    pub(crate) fn new(topology: &Arc<CurrentTopology>, reads: &Arc<Reads>) -> Arc<Self> {
        let (announcer, background) = (Arc::<Announcer>::default(), Background::default());
        Arc::new(Self {
            topology: Arc::clone(topology),
            catalogues: Catalogues::new(topology, &announcer, &background),
            announcer,
            reads: Arc::clone(reads),
            background,
            pending: Mutex::default(),
            latest: Mutex::default(),
            woken: Notify::new(),
            begun: AtomicBool::new(false),
        })
    }

    /// Starts listening, unless it has started.
    pub(crate) fn begin(self: &Arc<Self>) {
        if !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::Relaxed) {
            drop(self.background.spawn(Arc::clone(self).run()));
        }
    }

    /// Runs `work` until it is done or the gateway ends.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.background.spawn(work));
    }

    /// The newest snapshot as a view shows it; read first if there is none.
    pub(crate) async fn newest_view(
        self: &Arc<Self>,
        kind: ListKind,
        view: &View,
        trace: &Parent,
    ) -> ListView {
        self.begin();
        self.catalogue(kind, view).newest_view(view, trace).await
    }

    /// The list that the reader of `view` sees.
    pub(crate) fn catalogue(&self, kind: ListKind, view: &View) -> Arc<Catalogue> {
        self.catalogues.for_reader(kind, view.reader())
    }

    /// The definition of a tool as clients see it, by the server's own name `original`. Asks only
    /// that server.
    pub(crate) async fn tool_of(
        self: &Arc<Self>,
        view: &View,
        backend: &Member,
        original: &str,
        trace: &Parent,
    ) -> Option<Arc<Json>> {
        self.begin();
        let tools = self.catalogue(ListKind::Tools, view);
        let tool = tools
            .entry_of(view.topology(), backend.id, original, trace)
            .await?;
        Some(backend.rewritings.definition(original, tool))
    }

    /// The topology for new requests.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.topology.load()
    }

    /// Handles a server's announcement to `session`, or to clients without one. Called for each
    /// listener, but acts once for each notification, except that each listener is told.
    pub(crate) fn handle_notification(
        &self,
        backend: BackendId,
        notification: &Notification,
        session: Option<SessionKey>,
    ) {
        let change = Change::from_method(&notification.method);
        if let Some(change) = change.filter(|_| !notification.is_own) {
            self.add_pending((change, backend), Some((session, Instant::now())));
        }
        let is_relevant = change.is_some() || notification.method == Method::ResourceUpdated;
        if !is_relevant || !self.is_new(backend, notification) {
            return;
        }
        if let Some(change) = change {
            self.list_changed(change, backend);
        } else if let Some(uri) = notification.updated_uri() {
            self.reads.note_change(backend, Some(&uri));
        }
    }

    /// A sender to the channel of a listener that acts on each announcement of the server first,
    /// then sends what `pass` makes of the message. The reference to the watcher is weak, because
    /// the watcher owns the server that calls the sender.
    pub(crate) fn observe_messages(
        self: &Arc<Self>,
        backend: BackendId,
        session: Option<SessionKey>,
        messages: &ServerMessages,
        pass: impl Fn(&Arc<Self>, ServerMessage) -> Option<ServerMessage> + Send + Sync + 'static,
    ) -> ServerMessages {
        let watcher = Arc::downgrade(self);
        messages.with_map(move |message| {
            let watcher = watcher.upgrade()?;
            if let ServerMessage::Notification(notification) = &message {
                watcher.handle_notification(backend, notification, session);
            }
            pass(&watcher, message)
        })
    }

    /// Whether this notification differs from the server's last one. All listeners get copies of a
    /// notification with its number, one after the other.
    fn is_new(&self, backend: BackendId, notification: &Notification) -> bool {
        let mut latest = self.latest.lock();
        latest.insert(backend, notification.number()) != Some(notification.number())
    }

    fn list_changed(&self, change: Change, backend: BackendId) {
        let mut is_private = false;
        for catalogue in self.catalogues.changed_by(change) {
            is_private |= catalogue.announced(backend);
        }
        // Only the server knows which principals the change concerns.
        let topology = self.topology();
        if is_private {
            let is_named = |reader: &Reader| reader.principal().is_named();
            self.announcer
                .announce_to(is_named, change, &topology, backend);
        }
        if topology
            .get(backend)
            .is_some_and(|member| member.canary.is_some())
        {
            let is_moved = |reader: &Reader| reader.is_moved_from(backend);
            self.announcer
                .announce_to(is_moved, change, &topology, backend);
        }
        if change == Change::Resources {
            self.reads.note_change(backend, None);
        }
        self.read_again(change, backend);
    }

    /// Marks a server's part to be read in the background, together with others that become due
    /// soon.
    pub(crate) fn read_again(&self, change: Change, backend: BackendId) {
        self.add_pending((change, backend), None);
    }

    fn add_pending(&self, part: Part, told: Option<(Option<SessionKey>, Instant)>) {
        self.pending.lock().entry(part).or_default().extend(told);
        self.woken.notify_one();
    }

    async fn run(self: Arc<Self>) {
        let mut listened = HashMap::new();
        self.listen_to_all(&mut listened);
        let mut reading = FuturesUnordered::new();
        let mut busy = HashSet::<Part>::new();
        let mut settled: Option<Instant> = None;
        loop {
            let due = self.announcer.next_due();
            tokio::select! {
                () = self.topology.replaced.notified() => self.listen_to_all(&mut listened),
                Some(part) = reading.next() => {
                    busy.remove(&part);
                    self.woken.notify_one();
                }
                () = self.woken.notified() => {
                    let waits = self.pending.lock().keys().any(|part| !busy.contains(part));
                    settled = settled.or_else(|| waits.then(|| Instant::now() + settle_time()));
                }
                () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                    settled = None;
                    let due = |part: &Part, _: &mut Told| !busy.contains(part);
                    let due: Vec<_> = self.pending.lock().extract_if(due).collect();
                    for (part, told) in due {
                        busy.insert(part);
                        reading.push(self.update(part, told));
                    }
                }
                () = self.announcer.woken.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.announcer.send_due(),
            }
        }
    }

    /// Starts to listen to servers and canaries of the current topology that are not in `listened`.
    /// Stops listening to those that have left.
    fn listen_to_all(
        self: &Arc<Self>,
        listened: &mut HashMap<(BackendId, Option<BackendId>), AbortOnDropHandle<Option<()>>>,
    ) {
        let topology = self.topology();
        let canary_of = |backend: &Member| backend.canary.as_ref().map(|canary| canary.id);
        listened.retain(|(backend, canary), _| {
            topology
                .get(*backend)
                .is_some_and(|backend| canary.is_none() || *canary == canary_of(backend))
        });
        self.announcer
            .demand
            .retain(|backend| topology.get(backend).is_some());
        self.latest
            .lock()
            .retain(|backend, _| topology.get(*backend).is_some());
        for backend in topology.backends() {
            let canary = backend.canary.as_ref();
            let canary = canary.map(|canary| (Some(canary.id), &canary.client));
            for (canary, client) in [(None, &backend.client)].into_iter().chain(canary) {
                if let Entry::Vacant(entry) = listened.entry((backend.id, canary)) {
                    let listening = Arc::clone(self).keep_listening(
                        backend.id,
                        Arc::clone(client),
                        canary.is_some(),
                    );
                    entry.insert(AbortOnDropHandle::new(self.background.spawn(listening)));
                }
            }
        }
    }

    /// Reads a part again, then tells the clients that the server has told: a merged list can stay
    /// equal.
    async fn update(&self, part: Part, told: Told) -> Part {
        let ((change, backend), topology) = (part, self.topology());
        join_all(
            self.catalogues
                .changed_by(change)
                .map(|catalogue| catalogue.update(&topology, backend)),
        )
        .await;
        if change == Change::Resources {
            for kind in [ListKind::Skills, ListKind::Tools] {
                self.catalogues.common(kind).reconsider_claims(&topology);
            }
        }
        let mut lists = self.catalogues.changed_by(change);
        let is_private = lists.any(|list| list.is_private(backend));
        self.announcer
            .tell(change, backend, &told, &topology, is_private);
        part
    }

    /// Listens to one version of a server. Its canary announces to the clients that use it; the
    /// common lists do not depend on it.
    async fn keep_listening(
        self: Arc<Self>,
        backend: BackendId,
        client: Arc<dyn BackendClient>,
        is_canary: bool,
    ) {
        let _comparing = (!is_canary).then(|| {
            let compare = Arc::clone(&self).keep_comparing(backend, Arc::clone(&client));
            AbortOnDropHandle::new(self.background.spawn(compare))
        });
        // A resting server is not started only to listen to it.
        if is_resting(&*client) {
            client.connection_made(None).await;
        }
        let mut backoff = Backoff::new(RetryDelays::LISTEN);
        loop {
            if self.topology().limits.spares_streams {
                self.announcer.demand.begins(backend).await;
            }
            // Nothing is sent through the channel. The mapping acts on each message at once, so a
            // burst cannot fill the channel and lose messages.
            let (messages, _receiver) = ServerMessages::channel(1);
            let listen = Listen {
                interest: Lists::ALL.into(),
                context: CallContext::internal(),
                messages: self.observe_messages(backend, None, &messages, |_, _| None),
            };
            let after = self.topology().limits.timeout;
            let late = |_| Err(BackendError::Timeout { after, sent: false });
            match timeout(after, client.listen(listen))
                .await
                .unwrap_or_else(late)
            {
                Ok(listening) => {
                    let honoured = listening.honoured.lists;
                    if !is_canary {
                        self.now_listening(backend, honoured, backoff.has_failed());
                    }
                    // A server that announces no changes may still send other notifications.
                    self.listened_enough(backend).await;
                    drop(listening);
                    if !is_canary {
                        honoured
                            .changes()
                            .flat_map(|change| self.catalogues.changed_by(change))
                            .for_each(|catalogue| catalogue.announces_no_more(backend));
                    }
                    backoff.reset();
                    continue;
                }
                Err(error) => {
                    debug!(backend = client.name(), %error, "not listening for changes of lists");
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Waits until Fanlight no longer has to listen to a server. Without replicas this never
    /// happens.
    async fn listened_enough(&self, backend: BackendId) {
        match self.topology().limits.spares_streams {
            true => self.announcer.demand.ends(backend).await,
            false => std::future::pending().await,
        }
    }

    /// Compares the lists of one server again after each new connection.
    async fn keep_comparing(self: Arc<Self>, backend: BackendId, client: Arc<dyn BackendClient>) {
        let mut last = None;
        loop {
            let made = client.connection_made(last).await;
            last = Some(made);
            let topology = self.topology();
            join_all(ListKind::ALL.map(|kind| {
                self.catalogues
                    .common(kind)
                    .compare(&topology, backend, made)
            }))
            .await;
        }
    }

    /// Reads lists again that may have changed before listening began. After a failed attempt
    /// (`is_late`) all lists are read, because they were probably unreadable too.
    fn now_listening(&self, backend: BackendId, honoured: Lists, is_late: bool) {
        for change in honoured.changes() {
            self.catalogues
                .changed_by(change)
                .for_each(|catalogue| catalogue.announces(backend));
        }
        let unsure = if is_late { Lists::ALL } else { honoured };
        unsure
            .changes()
            .for_each(|change| self.read_again(change, backend));
    }
}

/// Starts tasks and ends them together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Background {
    /// Runs `work` until it is done or all tasks are ended. Returns `None` if `work` did not
    /// finish.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        self.tasks
            .spawn(self.end.clone().run_until_cancelled_owned(work))
    }

    /// Ends all tasks and waits until they have ended.
    pub(crate) async fn stop(&self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns a guard that ends all tasks when it is dropped.
    pub(crate) fn guard(&self) -> DropGuard {
        self.end.clone().drop_guard()
    }
}
