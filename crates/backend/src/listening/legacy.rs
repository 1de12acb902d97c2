//! Listening at a legacy server. Over HTTP this uses the stream of a GET, which is kept only while
//! needed, and `resources/subscribe` for each resource.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::{Caller, Principal};
use fanlight_protocol::{Json, Method};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::timeout;

use super::capabilities::Notifies;
use super::resources::{self, CONCURRENT, params_for};
use crate::connection::{Connection, Loss};
use crate::settings::stream_opening;
use crate::subscriptions::{Origin, PendingChanges, SubscriptionRegistry, Verdict};
use crate::transport::http::{StreamState, StreamUnavailable};

/// The state of the base connection's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    /// Not needed so far.
    Unknown,
    /// Open, or reopened after failures. Reopening announces changes that may have been missed.
    Open,
    /// Not open in time. Opening announces changes that may have been missed.
    Late,
    /// The server has no such stream.
    Absent,
}

/// The base connection of a legacy server.
pub(super) struct Base<'a> {
    pub(super) registry: &'a SubscriptionRegistry,
    pub(super) connection: &'a Arc<Connection>,
    /// Whether an earlier connection was listened to.
    pub(super) is_repeated: bool,
}

impl Base<'_> {
    /// Keeps up the stream and the subscriptions; never returns.
    pub(super) async fn keep(self) {
        let notifies = Notifies::of(self.connection);
        let known = if self.connection.http().is_some() {
            Stream::Unknown
        } else {
            Stream::Open
        };
        let stream = watch::Sender::new(known);
        let opened = |hearing: StreamState| {
            let late = stream.send_replace(Stream::Open) == Stream::Late;
            if matches!(hearing, StreamState::Open { missed } if missed || late) {
                self.registry.announce(&Origin::Base, notifies.lists);
            }
        };
        let closed = |deaf: Option<StreamUnavailable>| {
            let known = if deaf == Some(StreamUnavailable::NoStream) {
                Stream::Absent
            } else {
                Stream::Unknown
            };
            stream.send_replace(known);
        };
        let need = self.registry.watch();
        tokio::join!(
            keep_stream(
                self.connection,
                need,
                |_| self.needs_stream(notifies),
                opened,
                closed
            ),
            self.keep_subscribed(notifies, &stream)
        );
    }

    fn needs_stream(&self, notifies: Notifies) -> bool {
        self.registry.needs_stream(notifies.lists, notifies.tasks)
    }

    async fn keep_subscribed(&self, notifies: Notifies, stream: &watch::Sender<Stream>) {
        let (mut changed, mut is_repeated) = (self.registry.watch(), self.is_repeated);
        let mut requests = ResourceRequests {
            base: self,
            notifies,
            waiting: VecDeque::new(),
            busy: HashSet::new(),
            running: FuturesUnordered::new(),
        };
        let opening = stream_opening();
        loop {
            changed.mark_unchanged();
            if self.needs_stream(notifies) {
                // The stream must be open before an update can follow a subscription.
                tokio::select! {
                    // Some servers do not even send the stream's head before the first message.
                    opened = timeout(opening, self.opened(notifies, stream)) => if opened.is_err() {
                        stream.send_if_modified(|known| {
                            let late = *known == Stream::Unknown;
                            *known = if late { Stream::Late } else { *known };
                            late
                        });
                    },
                    () = async { loop { requests.complete_one().await } } => {}
                }
            }
            let changes = self.registry.take_changes(&requests.busy);
            let has_stream = *stream.borrow() != Stream::Absent;
            self.registry.set_declared(
                changes.generation,
                notifies.lists,
                notifies.tasks,
                has_stream,
            );
            requests.add(changes);
            if requests.busy.is_empty() && std::mem::take(&mut is_repeated) {
                self.registry.announce(&Origin::Base, notifies.lists);
            }
            tokio::select! {
                // The registry outlives this.
                _ = changed.changed() => {}
                () = requests.complete_one() => {}
            }
        }
    }

    /// Waits until the state of the stream is known, or the stream is no longer needed.
    async fn opened(&self, notifies: Notifies, stream: &watch::Sender<Stream>) {
        let (mut changed, mut stream) = (self.registry.watch(), stream.subscribe());
        tokio::select! {
            _ = stream.wait_for(|stream| *stream != Stream::Unknown) => {}
            _ = changed.wait_for(|_| !self.needs_stream(notifies)) => {}
        }
    }
}

/// Keeps the stream of a GET open while `need` says so; returns if the server turns out to have
/// none. `opened` is called with each change of the open stream, `closed` at its end.
async fn keep_stream<T>(
    connection: &Connection,
    mut need: watch::Receiver<T>,
    is_needed: impl Fn(&T) -> bool,
    opened: impl Fn(StreamState),
    closed: impl Fn(Option<StreamUnavailable>),
) {
    let Some(http) = connection.http() else {
        return;
    };
    while need.wait_for(&is_needed).await.is_ok() {
        let deaf = tokio::select! {
            deaf = http.keep_notification_stream(connection.is_seasoned(), &opened) => deaf,
            _ = need.wait_for(|value| !is_needed(value)) => {
                closed(None);
                continue;
            }
        };
        let deaf = match deaf {
            StreamUnavailable::Refused { status } if connection.has_lost_session(status).await => {
                StreamUnavailable::SessionGone
            }
            StreamUnavailable::Refused { .. } => StreamUnavailable::NoStream,
            deaf => deaf,
        };
        closed(Some(deaf));
        if deaf == StreamUnavailable::SessionGone {
            connection.lose(Loss::SessionGone);
        }
        return;
    }
}

/// Requests to subscribe and unsubscribe. A slow request does not delay those for other resources.
/// Each resource has one running request at a time, so that the last one sent counts.
struct ResourceRequests<'a> {
    base: &'a Base<'a>,
    notifies: Notifies,
    waiting: VecDeque<ResourceRequest>,
    /// The resources of waiting and running requests.
    busy: HashSet<Arc<str>>,
    running: FuturesUnordered<BoxFuture<'a, Arc<str>>>,
}

/// A resource, and the client's `params` for subscribing, if any; `None` unsubscribes.
type ResourceRequest = (Arc<str>, Option<Option<Json>>);

impl ResourceRequests<'_> {
    fn add(&mut self, changes: PendingChanges) {
        let unsubscribe = changes.unsubscribe.into_iter().map(|uri| (uri, None));
        let subscribe = changes
            .subscribe
            .into_iter()
            .map(|(uri, params)| (uri, Some(params)));
        for (uri, request) in unsubscribe.chain(subscribe) {
            self.busy.insert(Arc::clone(&uri));
            self.waiting.push_back((uri, request));
        }
    }

    /// Waits until one more request is complete; never returns if there is none.
    async fn complete_one(&mut self) {
        while self.running.len() < CONCURRENT
            && let Some((uri, request)) = self.waiting.pop_front()
        {
            let (base, notifies) = (self.base, self.notifies);
            self.running.push(Box::pin(async move {
                match request {
                    Some(params) => {
                        let verdict = subscribe_to(base.connection, notifies, &uri, params).await;
                        base.registry.set_verdict(&uri, verdict);
                    }
                    None => drop(
                        base.connection
                            .ask(&Method::Unsubscribe, Some(&params_for(&uri)))
                            .await,
                    ),
                }
                uri
            }));
        }
        match self.running.next().await {
            Some(uri) => drop(self.busy.remove(&uri)),
            None => std::future::pending().await,
        }
    }
}

/// Listens on a connection for `principal`'s clients without a session. A server sends a task's
/// status on the connection that made the task.
pub(super) async fn keep_pooled(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    principal: &Principal,
) {
    let stream = async {
        if Notifies::of(connection).tasks {
            let is_needed = |_: &u64| registry.any_task(principal);
            keep_stream(connection, registry.watch(), is_needed, |_| (), |_| ()).await;
        }
    };
    tokio::join!(stream, resources::keep(registry, connection, principal));
}

/// Listens on the connection of one request of `principal`'s client without a session. During a
/// call, the server may ask the client on the stream of a GET.
pub(super) async fn keep_of_request(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    principal: &Principal,
) {
    let (asks, tasks) = (connection.may_ask(), Notifies::of(connection).tasks);
    let is_needed = |_: &u64| asks || (tasks && registry.any_task(principal));
    let settled = || connection.stream_is_settled();
    let stream = keep_stream(
        connection,
        registry.watch(),
        is_needed,
        |_| settled(),
        |_| settled(),
    );
    // Boxed, since each suspended call has one, and over HTTP it is nothing.
    let subscribing = connection.subscribes_for_clients();
    let subscribed = OptionFuture::from(
        subscribing.then(|| Box::pin(resources::keep(registry, connection, principal))),
    );
    tokio::join!(stream, subscribed);
}

/// A session's own connection to a legacy server.
pub(super) struct Own<'a> {
    pub(super) registry: &'a SubscriptionRegistry,
    pub(super) connection: &'a Arc<Connection>,
    pub(super) session: &'a Caller,
    /// Whether the session had another connection before.
    pub(super) is_repeated: bool,
}

impl Own<'_> {
    /// Keeps up the stream while the session has listeners or can be asked, and repeats its
    /// subscriptions.
    pub(super) async fn keep(self) {
        let Self {
            registry,
            connection,
            session,
            is_repeated,
        } = self;
        let lists = Notifies::of(connection).lists;
        let announce = || registry.announce(&Origin::Session(session.clone()), lists);
        let resubscribe = async {
            if is_repeated {
                self.resubscribe().await;
            }
        };
        if connection.http().is_none() {
            resubscribe.await;
            registry.set_own_stream(session, true);
            if is_repeated {
                announce();
            }
            return;
        }
        let is_repeated = AtomicBool::new(is_repeated);
        let opened = |stream: StreamState| {
            registry.set_own_stream(session, matches!(stream, StreamState::Open { .. }));
            connection.stream_is_settled();
            if let StreamState::Open { missed } = stream
                && (is_repeated.swap(false, Ordering::Relaxed) || missed)
            {
                announce();
            }
        };
        let stream = async {
            if let Some(presence) = registry.presence(session) {
                let closed = |_| {
                    registry.set_own_stream(session, false);
                    connection.stream_is_settled();
                };
                let may_ask = connection.may_ask();
                keep_stream(
                    connection,
                    presence,
                    |is_present| *is_present || may_ask,
                    opened,
                    closed,
                )
                .await;
            }
        };
        tokio::join!(resubscribe, stream);
    }

    /// Repeats the session's subscriptions on a new connection.
    async fn resubscribe(&self) {
        let all = self
            .registry
            .recorded()
            .of(self.session)
            .into_iter()
            .map(|uri| async move {
                let params = params_for(&uri);
                if self
                    .connection
                    .ask(&Method::Subscribe, Some(&params))
                    .await
                    .is_none_or(|answer| answer.is_error())
                {
                    tracing::debug!("subscription of a session not renewed: refused by the server");
                }
            });
        futures_util::stream::iter(all)
            .buffer_unordered(CONCURRENT)
            .for_each(|()| async {})
            .await;
    }
}

/// Subscribes to a resource, with the `params` of the client's own request, if any.
async fn subscribe_to(
    connection: &Connection,
    notifies: Notifies,
    uri: &str,
    params: Option<Json>,
) -> Verdict {
    if params.is_none() && !notifies.resources {
        return Verdict::Refused(None);
    }
    let params = params.unwrap_or_else(|| params_for(uri));
    match connection.ask(&Method::Subscribe, Some(&params)).await {
        Some(answer) if answer.is_error() => Verdict::Refused(Some(answer)),
        Some(_) => Verdict::Accepted,
        None => Verdict::Refused(None),
    }
}
