//! Listening at a legacy server. Over HTTP this uses the stream of a GET, which is kept only while
//! needed, and `resources/subscribe` for each resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::{Caller, Principal};
use fanlight_protocol::Method;
use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio::time::timeout;

use super::capabilities::Notifies;
use super::resources::{self, Completed, ResourceRequests};
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
        let notifies = Notifies::from_connection(self.connection);
        let known = if self.connection.http().is_some() {
            Stream::Unknown
        } else {
            Stream::Open
        };
        let stream = watch::Sender::new(known);
        let report = |state: StreamState| {
            let next = match state {
                StreamState::Open { .. } | StreamState::Failing => Stream::Open,
                StreamState::Closed => Stream::Unknown,
                StreamState::Absent => Stream::Absent,
            };
            let late = stream.send_replace(next) == Stream::Late;
            if matches!(state, StreamState::Open { missed } if missed || late) {
                self.registry.announce(&Origin::Base, notifies.lists);
            }
        };
        let (need, is_needed) = (self.registry.watch(), |_: &u64| self.needs_stream(notifies));
        tokio::join!(
            keep_stream(self.connection, need, is_needed, report),
            self.keep_subscribed(notifies, &stream)
        );
    }

    fn needs_stream(&self, notifies: Notifies) -> bool {
        self.registry.needs_stream(notifies.lists, notifies.tasks)
    }

    async fn keep_subscribed(&self, notifies: Notifies, stream: &watch::Sender<Stream>) {
        let (mut changed, mut is_repeated) = (self.registry.watch(), self.is_repeated);
        let mut requests = ResourceRequests::new(self.connection);
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
                    () = self.complete_all(&mut requests) => {}
                }
            }
            let (generation, changes) = self.registry.changes(&requests.held, &requests.busy);
            let has_stream = *stream.borrow() != Stream::Absent;
            self.registry
                .set_declared(generation, notifies.lists, notifies.tasks, has_stream);
            self.request(&mut requests, changes, notifies);
            if requests.busy.is_empty() && std::mem::take(&mut is_repeated) {
                self.registry.announce(&Origin::Base, notifies.lists);
            }
            tokio::select! {
                // The registry outlives this.
                _ = changed.changed() => {}
                Some(completed) = requests.complete_one() => self.judge(completed),
            }
        }
    }

    /// Requests the changes that only the server can make.
    fn request(
        &self,
        requests: &mut ResourceRequests<'_>,
        (subscribe, unsubscribe): PendingChanges,
        notifies: Notifies,
    ) {
        for uri in &unsubscribe {
            requests.add(Method::Unsubscribe, uri, None);
        }
        for (uri, params) in subscribe {
            if requests.held.contains(&uri) {
                self.registry.set_verdict(&uri, Verdict::Accepted);
            } else if params.is_none() && !notifies.resources {
                self.registry.set_verdict(&uri, Verdict::Refused(None));
            } else {
                requests.add(Method::Subscribe, &uri, params);
            }
        }
    }

    /// Completes the requests; never returns.
    async fn complete_all(&self, requests: &mut ResourceRequests<'_>) {
        while let Some(completed) = requests.complete_one().await {
            self.judge(completed);
        }
        std::future::pending::<()>().await;
    }

    /// Records the server's answer to a subscription.
    fn judge(&self, completed: Completed) {
        if completed.method == Method::Subscribe {
            let verdict = if completed.is_accepted() {
                Verdict::Accepted
            } else {
                Verdict::Refused(completed.answer)
            };
            self.registry.set_verdict(&completed.uri, verdict);
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
/// none. `report` is called with each change.
async fn keep_stream<T>(
    connection: &Connection,
    mut need: watch::Receiver<T>,
    is_needed: impl Fn(&T) -> bool,
    report: impl Fn(StreamState),
) {
    let Some(http) = connection.http() else {
        return;
    };
    while need.wait_for(&is_needed).await.is_ok() {
        let why = tokio::select! {
            why = http.keep_notification_stream(connection.is_seasoned(), &report) => why,
            _ = need.wait_for(|value| !is_needed(value)) => {
                report(StreamState::Closed);
                continue;
            }
        };
        let is_gone = match why {
            StreamUnavailable::NoStream => false,
            StreamUnavailable::SessionGone => true,
            StreamUnavailable::Refused { status } => connection.has_lost_session(status).await,
        };
        if is_gone {
            report(StreamState::Closed);
            connection.lose(Loss::SessionGone);
        } else {
            report(StreamState::Absent);
        }
        return;
    }
}

/// Listens on a connection for `principal`'s clients without a session. A server sends a task's
/// status on the connection that made the task. If the connection serves one request, the server
/// may ask its client (`asks`) during the call, on the stream of a GET.
pub(super) async fn keep_for_clients(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    principal: &Principal,
    asks: bool,
) {
    let tasks = Notifies::from_connection(connection).tasks;
    let is_needed = |_: &u64| asks || (tasks && registry.any_task(principal));
    let settled = |_| connection.stream_is_settled();
    let stream = keep_stream(connection, registry.watch(), is_needed, settled);
    // Boxed, since each suspended call has one, and over HTTP it is nothing.
    let subscribing = connection.subscribes_for_clients();
    let subscribed = OptionFuture::from(
        subscribing.then(|| Box::pin(resources::keep(registry, connection, principal))),
    );
    tokio::join!(stream, subscribed);
}

/// Keeps up the stream of a session's own connection while the session has listeners or can be
/// asked, and repeats its subscriptions if it had another connection before.
pub(super) async fn keep_own(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    session: &Caller,
    is_repeated: bool,
) {
    let lists = Notifies::from_connection(connection).lists;
    let announce = || registry.announce(&Origin::Session(session.clone()), lists);
    let resubscribe = async {
        let mut requests = ResourceRequests::new(connection);
        for uri in registry.recorded().resources(session) {
            requests.add(Method::Subscribe, &uri, None);
        }
        while let Some(completed) = requests.complete_one().await {
            if !completed.is_accepted() {
                tracing::debug!("subscription of a session not renewed: refused by the server");
            }
        }
    };
    let resubscribe = OptionFuture::from(is_repeated.then_some(resubscribe));
    if connection.http().is_none() {
        resubscribe.await;
        registry.set_own_stream(session, true);
        if is_repeated {
            announce();
        }
        return;
    }
    let is_repeated = AtomicBool::new(is_repeated);
    let report = |stream: StreamState| {
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
            let may_ask = connection.may_ask();
            let is_needed = |is_present: &bool| *is_present || may_ask;
            keep_stream(connection, presence, is_needed, report).await;
        }
    };
    tokio::join!(resubscribe, stream);
}
