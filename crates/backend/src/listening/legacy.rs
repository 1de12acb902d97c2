//! Listening at a legacy server. Over HTTP this uses the stream of a GET, which is kept only while
//! needed, and `resources/subscribe` for each resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::{Caller, Principal};
use fanlight_protocol::Method;
use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::capabilities::Notifies;
use super::resources::{self, Completed, ResourceRequests};
use crate::connection::{Connection, Loss};
use crate::settings::stream_opening;
use crate::subscriptions::{Origin, SubscriptionRegistry, Verdict};
use crate::transport::http::{StreamState, StreamUnavailable};

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
        let notifies = Notifies::declared_by(&self.connection.description());
        let known = match self.connection.http() {
            Some(_) => StreamState::Closed,
            None => StreamState::Open { missed: false },
        };
        let stream = watch::Sender::new(known);
        let report = |state: StreamState| {
            let late = stream.send_replace(state) == StreamState::Late;
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

    async fn keep_subscribed(&self, notifies: Notifies, stream: &watch::Sender<StreamState>) {
        let (mut changed, mut opened) = (self.registry.watch(), stream.subscribe());
        let (mut is_repeated, mut late) = (self.is_repeated, None);
        let mut requests = ResourceRequests::new(self.connection);
        loop {
            changed.mark_unchanged();
            let known = *opened.borrow_and_update();
            // The stream must be open before an update can follow a subscription.
            if known == StreamState::Closed && self.needs_stream(notifies) {
                late.get_or_insert_with(|| Instant::now() + stream_opening());
            } else {
                late = None;
                let has_stream = known != StreamState::Absent;
                let (held, busy) = (&requests.held, &requests.busy);
                let accepts = notifies.resources && has_stream;
                let (generation, changes) = self.registry.changes(held, busy, accepts);
                changes.into_iter().for_each(|change| requests.add(change));
                self.registry
                    .set_declared(generation, notifies.lists, notifies.tasks, has_stream);
                if requests.busy.is_empty() && std::mem::take(&mut is_repeated) {
                    self.registry.announce(&Origin::Base, notifies.lists);
                }
            }
            tokio::select! {
                // The registry outlives this.
                _ = changed.changed() => {}
                _ = opened.changed() => {}
                Some(completed) = requests.complete_one() => self.judge(completed),
                // Some servers do not even send the stream's head before the first message.
                () = sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => {
                    stream.send_if_modified(|known| {
                        let is_late = *known == StreamState::Closed;
                        if is_late {
                            *known = StreamState::Late;
                        }
                        is_late
                    });
                }
            }
        }
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

/// Keeps the stream and the subscriptions on a connection for `principal`'s clients without a
/// session. The stream is needed for the status of tasks that the connection made, and for
/// questions to the client of a request (`asks`).
pub(super) async fn keep_for_clients(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    principal: &Principal,
    asks: bool,
) {
    let tasks = Notifies::declared_by(&connection.description()).tasks;
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
/// asked. Repeats the session's subscriptions if it had another connection before.
pub(super) async fn keep_own(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    session: &Caller,
    is_repeated: bool,
) {
    let lists = Notifies::declared_by(&connection.description()).lists;
    let resubscribe = async {
        let mut requests = ResourceRequests::new(connection);
        for uri in registry.recorded().resources(session) {
            requests.add((Method::Subscribe, uri, None));
        }
        while let Some(completed) = requests.complete_one().await {
            if !completed.is_accepted() {
                tracing::debug!("subscription of a session not renewed: refused by the server");
            }
        }
    };
    let resubscribe = OptionFuture::from(is_repeated.then_some(resubscribe));
    let is_repeated = AtomicBool::new(is_repeated);
    let report = |stream: StreamState| {
        registry.set_own_stream(session, matches!(stream, StreamState::Open { .. }));
        connection.stream_is_settled();
        if let StreamState::Open { missed } = stream
            && (is_repeated.swap(false, Ordering::Relaxed) || missed)
        {
            registry.announce(&Origin::Session(session.clone()), lists);
        }
    };
    if connection.http().is_none() {
        resubscribe.await;
        return report(StreamState::Open { missed: false });
    }
    let stream = async {
        if let Some(presence) = registry.presence(session) {
            let may_ask = connection.may_ask();
            let is_needed = |is_present: &bool| *is_present || may_ask;
            keep_stream(connection, presence, is_needed, report).await;
        }
    };
    tokio::join!(resubscribe, stream);
}
