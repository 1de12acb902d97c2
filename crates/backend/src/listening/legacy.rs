//! What it takes to hear of everything at a legacy server: over HTTP a stream, kept only while
//! somebody needs it, and `resources/subscribe` for each resource.
//!
//! Must not know: who listens, or modern servers.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::timeout;

use super::declares::Declares;
use crate::connection::{Connection, Loss};
use crate::hub::{Changes, Hub, Made, Origin};
use crate::transport::http::{HttpTransport, StreamState, StreamUnavailable};
use fanlight_canonical::SessionKey;

/// Subscriptions that are made at the same time.
const AT_ONCE: usize = 8;

/// How long subscriptions wait for the stream on which they are heard. Some servers send not even
/// the head of it before they have something to say.
const OPENING: Duration = Duration::from_secs(2);

/// Whether anything can arrive outside of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// It is not known yet, since nothing needed to.
    Unknown,
    /// It is there, or will be: one that fails is tried again, and what may have been missed is
    /// announced then.
    Open,
    /// It was not there in time. What was missed until it is will be announced.
    Late,
    /// The server has no such stream.
    Absent,
}

/// The base line of a legacy server.
pub(super) struct Base<'a> {
    pub(super) hub: &'a Hub,
    pub(super) connection: &'a Arc<Connection>,
    /// The connection replaces one on which things were heard.
    pub(super) again: bool,
}

impl Base<'_> {
    /// Keeps up what is to be heard, for ever.
    pub(super) async fn keep(self) {
        let declares = Declares::of(self.connection);
        let known = if self.connection.http().is_some() { Stream::Unknown } else { Stream::Open };
        let stream = watch::Sender::new(known);
        tokio::join!(self.keep_stream(declares, &stream), self.keep_subscribed(declares, &stream));
    }

    async fn keep_stream(&self, declares: Declares, stream: &watch::Sender<Stream>) {
        let Some(http) = self.connection.http() else { return };
        let mut changed = self.hub.watch();
        let told = |hearing: StreamState| {
            let late = stream.send_replace(Stream::Open) == Stream::Late;
            if matches!(hearing, StreamState::Open { missed } if missed || late) {
                self.hub.announce(Origin::Base, declares.lists);
            }
        };
        loop {
            wait_for_need(self.hub, declares, &mut changed, true).await;
            tokio::select! {
                deaf = http.keep_notification_stream(self.connection.is_seasoned(), told) => {
                    match deaf {
                        StreamUnavailable::NoStream => drop(stream.send_replace(Stream::Absent)),
                        StreamUnavailable::SessionGone => self.connection.lose(Loss::SessionGone),
                    }
                    return;
                }
                () = wait_for_need(self.hub, declares, &mut changed, false) => {}
            }
            stream.send_replace(Stream::Unknown);
        }
    }

    async fn keep_subscribed(&self, declares: Declares, stream: &watch::Sender<Stream>) {
        let (mut changed, mut again) = (self.hub.watch(), self.again);
        let mut work = Work {
            base: self,
            declares,
            waiting: VecDeque::new(),
            busy: HashSet::new(),
            asking: FuturesUnordered::new(),
        };
        loop {
            changed.mark_unchanged();
            if self.hub.needs_stream(declares.lists, declares.tasks) {
                // What changes right after it was subscribed to must find the stream open.
                tokio::select! {
                    heard = timeout(OPENING, self.hearing(declares, stream)) => if heard.is_err() {
                        stream.send_if_modified(|known| {
                            let late = *known == Stream::Unknown;
                            *known = if late { Stream::Late } else { *known };
                            late
                        });
                    },
                    () = async { loop { work.one().await } } => {}
                }
            }
            let changes = self.hub.changes(&work.busy);
            let hears = *stream.borrow() != Stream::Absent;
            self.hub.stand(changes.generation, declares.lists, declares.tasks, hears);
            work.add(changes);
            if work.busy.is_empty() && std::mem::take(&mut again) {
                self.hub.announce(Origin::Base, declares.lists);
            }
            tokio::select! {
                // Not while the hub lives.
                _ = changed.changed() => {}
                () = work.one() => {}
            }
        }
    }

    /// Waits until it is known whether anything can arrive, or nothing is to any more.
    async fn hearing(&self, declares: Declares, stream: &watch::Sender<Stream>) {
        let (mut changed, mut stream) = (self.hub.watch(), stream.subscribe());
        tokio::select! {
            _ = stream.wait_for(|stream| *stream != Stream::Unknown) => {}
            () = wait_for_need(self.hub, declares, &mut changed, false) => {}
        }
    }
}

/// What the server is being told of resources, so that one on which it takes long holds up no
/// other. Of one resource it is told one thing at a time: what is said later must come later.
struct Work<'a> {
    base: &'a Base<'a>,
    declares: Declares,
    waiting: VecDeque<Task>,
    /// The resources of what waits, and of what is being asked.
    busy: HashSet<Arc<str>>,
    asking: FuturesUnordered<Pin<Box<dyn Future<Output = Arc<str>> + Send + 'a>>>,
}

/// A resource to be subscribed to, with what the server is to be told; `None` is the end of it.
type Task = (Arc<str>, Option<Option<Json>>);

impl Work<'_> {
    fn add(&mut self, changes: Changes) {
        let unsubscribe = changes.unsubscribe.into_iter().map(|uri| (uri, None));
        let subscribe = changes.subscribe.into_iter().map(|(uri, params)| (uri, Some(params)));
        for (uri, task) in unsubscribe.chain(subscribe) {
            self.busy.insert(Arc::clone(&uri));
            self.waiting.push_back((uri, task));
        }
    }

    /// Waits until one more is done; for ever if nothing is to be.
    async fn one(&mut self) {
        while self.asking.len() < AT_ONCE
            && let Some((uri, task)) = self.waiting.pop_front()
        {
            let (base, declares) = (self.base, self.declares);
            self.asking.push(Box::pin(async move {
                match task {
                    Some(params) => {
                        let made = subscribe_to(base.connection, declares, &uri, params).await;
                        base.hub.set_made(&uri, made);
                    }
                    None => drop(base.connection.ask(&Method::Unsubscribe, Some(&params_for(&uri))).await),
                }
                uri
            }));
        }
        match self.asking.next().await {
            Some(uri) => drop(self.busy.remove(&uri)),
            None => std::future::pending().await,
        }
    }
}

/// Waits until something is to be heard, or nothing is.
async fn wait_for_need(hub: &Hub, declares: Declares, changed: &mut watch::Receiver<u64>, need: bool) {
    loop {
        changed.mark_unchanged();
        if hub.needs_stream(declares.lists, declares.tasks) == need || changed.changed().await.is_err() {
            return;
        }
    }
}

/// A line of clients without a session: all that can concern them outside of calls is the status of
/// their tasks, which a server tells in the session in which it has the task.
pub(super) struct Pooled<'a> {
    pub(super) hub: &'a Hub,
    pub(super) connection: &'a Arc<Connection>,
}

impl Pooled<'_> {
    /// Keeps a stream up while the status of tasks is to be heard, for ever.
    pub(super) async fn keep(self) {
        let Some(http) = self.connection.http().filter(|_| Declares::of(self.connection).tasks) else { return };
        let mut changed = self.hub.watch();
        loop {
            self.wait_for_need(&mut changed, true).await;
            tokio::select! {
                deaf = http.keep_notification_stream(self.connection.is_seasoned(), |_| ()) => {
                    if deaf == StreamUnavailable::SessionGone {
                        self.connection.lose(Loss::SessionGone);
                    }
                    return;
                }
                () = self.wait_for_need(&mut changed, false) => {}
            }
        }
    }

    async fn wait_for_need(&self, changed: &mut watch::Receiver<u64>, need: bool) {
        loop {
            changed.mark_unchanged();
            if self.hub.any_task() == need || changed.changed().await.is_err() {
                return;
            }
        }
    }
}

/// A client session's own line at a legacy server.
pub(super) struct Own<'a> {
    pub(super) hub: &'a Hub,
    pub(super) connection: &'a Arc<Connection>,
    pub(super) session: SessionKey,
    pub(super) again: bool,
}

impl Own<'_> {
    /// Keeps up what is to be heard, for ever.
    pub(super) async fn keep(self) {
        let declares = Declares::of(self.connection);
        let again = AtomicBool::new(self.again);
        let announce = || self.hub.announce(Origin::Session(self.session), declares.lists);
        let resubscribe = async {
            if self.again {
                self.resubscribe().await;
            }
        };
        let Some(http) = self.connection.http() else {
            resubscribe.await;
            self.hub.set_hearing(self.session, true);
            if self.again {
                announce();
            }
            return;
        };
        let told = |hearing: StreamState| {
            self.hub.set_hearing(self.session, matches!(hearing, StreamState::Open { .. }));
            if let StreamState::Open { missed } = hearing
                && (again.swap(false, Ordering::Relaxed) || missed)
            {
                announce();
            }
        };
        tokio::join!(resubscribe, self.keep_stream(http, told));
    }

    /// The stream is there as long as somebody hears what is meant for the session.
    async fn keep_stream(&self, http: &HttpTransport, told: impl Fn(StreamState) + Copy) {
        let mut listening = self.hub.presence(self.session);
        loop {
            if listening.wait_for(|listening| *listening).await.is_err() {
                return;
            }
            tokio::select! {
                deaf = http.keep_notification_stream(self.connection.is_seasoned(), told) => {
                    self.hub.set_hearing(self.session, false);
                    if deaf == StreamUnavailable::SessionGone {
                        self.connection.lose(Loss::SessionGone);
                    }
                    return;
                }
                _ = listening.wait_for(|listening| !*listening) => self.hub.set_hearing(self.session, false),
            }
        }
    }

    /// Makes the session's subscriptions again, on a connection that knows nothing of them.
    async fn resubscribe(&self) {
        let all = self.hub.remembered(self.session).into_iter().map(|uri| async move {
            let params = params_for(&uri);
            if self.connection.ask(&Method::Subscribe, Some(&params)).await.is_none_or(|answer| answer.is_error()) {
                tracing::debug!("a subscription of a client was not accepted again");
            }
        });
        futures_util::stream::iter(all).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
    }
}

/// Subscribes to a resource: with the `params` of the client that wants it, if one asked by itself.
async fn subscribe_to(connection: &Connection, declares: Declares, uri: &str, params: Option<Json>) -> Made {
    if params.is_none() && !declares.subscribe {
        return Made::Refused(None);
    }
    let params = params.unwrap_or_else(|| params_for(uri));
    match connection.ask(&Method::Subscribe, Some(&params)).await {
        Some(answer) if answer.is_error() => Made::Refused(Some(answer)),
        Some(_) => Made::Accepted,
        None => Made::Refused(None),
    }
}

fn params_for(uri: &str) -> Json {
    let mut params = ObjectBuilder::new();
    params.string("uri", uri);
    params.finish()
}
