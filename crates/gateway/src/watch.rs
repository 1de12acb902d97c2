//! The catalogue listens: what backends announce has their parts of the lists read anew, and
//! clients told if the merged lists have changed.
//!
//! One task for all of it, begun when somebody first asks for a list or listens, so that a
//! configuration with many servers starts fast.
//!
//! Must not know: clients, or how a list is read and merged.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use fanlight_canonical::{CallContext, Interest, Listen, Parent, ServerMessage, ServerMessages};
use fanlight_protocol::json::Json;
use fanlight_protocol::{Method, Notification};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::debug;

use crate::announce::Announcer;
use crate::background::Background;
use crate::cache::Reads;
use crate::catalogue::{Catalogues, Change, ListKind, Snapshot, Sources};

/// Listens on behalf of the catalogues.
pub(crate) struct Watch {
    pub(crate) sources: Arc<Sources>,
    pub(crate) catalogues: Arc<Catalogues>,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) reads: Arc<Reads>,
    pub(crate) background: Background,
    pending: Mutex<HashSet<Part>>,
    /// What each backend announced last.
    latest: Vec<Mutex<Option<Json>>>,
    woken: Notify,
    begun: AtomicBool,
}

/// A backend's part of the lists that one announcement is about.
type Part = (Change, usize);

impl Watch {
    pub(crate) fn new(sources: Arc<Sources>, reads: Arc<Reads>) -> Arc<Self> {
        let (announcer, background) = (Announcer::new(&sources.limits), Background::default());
        let catalogues = Arc::new(Catalogues::new(&sources, &announcer, &background));
        let latest = sources.backends.iter().map(|_| Mutex::default()).collect();
        Arc::new(Self {
            latest,
            sources,
            catalogues,
            announcer,
            reads,
            background,
            pending: Mutex::default(),
            woken: Notify::new(),
            begun: AtomicBool::new(false),
        })
    }

    /// Begins to listen, if that has not begun yet.
    pub(crate) fn begin(self: &Arc<Self>) {
        if !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::Relaxed) {
            drop(self.background.spawn(Arc::clone(self).run()));
        }
    }

    /// The newest snapshot of a list, taking the first if there is none.
    pub(crate) async fn known(self: &Arc<Self>, kind: ListKind, trace: &Parent) -> Arc<Snapshot> {
        self.begin();
        self.catalogues.of(kind).known(trace).await
    }

    /// A backend has announced something. Called for each who listens, acts on it once.
    pub(crate) fn heard(&self, backend: usize, notification: &Notification) {
        let change = Change::of(&notification.method);
        let is_of_this = change.is_some() || notification.method == Method::ResourceUpdated;
        if !is_of_this || !self.is_new(backend, &notification.text) {
            return;
        }
        if let Some(change) = change {
            self.list_changed(change, backend);
        } else if let Some(uri) = updated_uri(notification) {
            self.reads.changed(backend, &uri);
        }
    }

    /// Whether this is not the message that was heard last: to everybody who listens goes the very
    /// same text, one after the other.
    fn is_new(&self, backend: usize, text: &Json) -> bool {
        let Some(latest) = self.latest.get(backend) else { return false };
        let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |text: &Json| text.bytes().as_ptr_range();
        // What is held on to cannot make room for another text at the same place.
        let is_new = latest.as_ref().is_none_or(|latest| place(latest) != place(text));
        if is_new {
            *latest = Some(text.clone());
        }
        is_new
    }

    fn list_changed(&self, change: Change, backend: usize) {
        for catalogue in self.catalogues.changed_by(change) {
            catalogue.announced(backend);
        }
        if change == Change::Resources {
            self.reads.all_changed(backend);
        }
        self.read_anew(change, backend);
    }

    /// Has a backend's part read in the background, together with whatever else comes up soon.
    pub(crate) fn read_anew(&self, change: Change, backend: usize) {
        self.with_pending(|pending| pending.insert((change, backend)));
        self.woken.notify_one();
    }

    async fn run(self: Arc<Self>) {
        let mut listening: FuturesUnordered<_> =
            (0..self.sources.backends.len()).map(|backend| self.keep_listening(backend)).collect();
        let mut reading = FuturesUnordered::new();
        let mut busy = HashSet::<Part>::new();
        let mut settled: Option<Instant> = None;
        loop {
            let due = self.announcer.due();
            tokio::select! {
                Some(()) = listening.next() => {}
                Some(part) = reading.next() => {
                    busy.remove(&part);
                    self.woken.notify_one();
                }
                () = self.woken.notified() => {
                    let waits = self.with_pending(|pending| pending.iter().any(|part| !busy.contains(part)));
                    settled = settled.or_else(|| waits.then(|| Instant::now() + self.sources.limits.settle));
                }
                () = sleep_until(settled.unwrap_or_else(Instant::now)), if settled.is_some() => {
                    settled = None;
                    for part in self.take_pending(&busy) {
                        busy.insert(part);
                        reading.push(self.update(part));
                    }
                }
                () = self.announcer.woken.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.announcer.tell(),
            }
        }
    }

    async fn update(&self, part: Part) -> Part {
        let (change, backend) = part;
        join_all(self.catalogues.changed_by(change).map(|catalogue| catalogue.update(backend))).await;
        part
    }

    /// Listens to one backend for as long as the gateway lives, or until it says that it announces
    /// nothing.
    async fn keep_listening(self: &Arc<Self>, backend: usize) {
        let Some(entry) = self.sources.backends.get(backend) else { return };
        let (least, most) = self.sources.limits.listen_retry;
        let mut pause = least;
        loop {
            // Nothing goes through the channel: what is heard is noted at once, so that none of a
            // burst is dropped for want of room.
            let (messages, _open) = ServerMessages::channel(1);
            let listen = Listen {
                interest: Interest { tools: true, prompts: true, resources: true, ..Interest::default() },
                context: CallContext::internal(),
                messages: messages.mapped(noting(Arc::downgrade(self), backend)),
            };
            match timeout(self.sources.limits.timeout, entry.client.listen(listen)).await {
                Ok(Ok(listening)) => {
                    let honoured: Vec<_> =
                        Change::ALL.into_iter().filter(|change| change.is_in(&listening.honoured)).collect();
                    self.now_listening(backend, &honoured, pause > least);
                    if honoured.is_empty() {
                        return;
                    }
                    // The way ends with the task.
                    std::future::pending::<()>().await;
                }
                Ok(Err(error)) => debug!(backend = entry.client.name(), %error, "not listening for changes of lists"),
                Err(_) => debug!(backend = entry.client.name(), "no answer to listening for changes of lists"),
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(most);
        }
    }

    /// What was read before may have changed before anyone listened. What could not be read while
    /// nobody could listen either (`is_late`) probably can be now.
    fn now_listening(&self, backend: usize, honoured: &[Change], is_late: bool) {
        for change in honoured {
            self.catalogues.changed_by(*change).for_each(|catalogue| catalogue.announces(backend));
        }
        let anew = Change::ALL.into_iter().filter(|change| is_late || honoured.contains(change));
        anew.for_each(|change| self.read_anew(change, backend));
    }

    fn take_pending(&self, busy: &HashSet<Part>) -> Vec<Part> {
        self.with_pending(|pending| {
            let taken: Vec<_> = pending.difference(busy).copied().collect();
            pending.retain(|part| busy.contains(part));
            taken
        })
    }

    fn with_pending<T>(&self, f: impl FnOnce(&mut HashSet<Part>) -> T) -> T {
        f(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Notes announcements. Holds no more than a weak reference: the backend that calls it is itself
/// held by the watch.
fn noting(watch: Weak<Watch>, backend: usize) -> impl Fn(ServerMessage) -> Option<ServerMessage> {
    move |message| {
        if let ServerMessage::Notification(notification) = message
            && let Some(watch) = watch.upgrade()
        {
            watch.heard(backend, &notification);
        }
        None
    }
}

/// The URI in an announcement that a resource has changed.
pub(crate) fn updated_uri(notification: &Notification) -> Option<String> {
    let is_update = notification.method == Method::ResourceUpdated;
    Some(notification.params().filter(|_| is_update)?.get("uri")?.as_str()?.into_owned())
}
