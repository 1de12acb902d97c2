//! Listening at a legacy server. Over HTTP this uses the stream of a GET, which is kept only while
//! needed, and `resources/subscribe` for each resource.
//!
//! Each resource has one running request at a time, so that the last one sent counts. A slow
//! request does not delay those for other resources.
//!
//! On a session's own connection the requests of its client are forwarded. On a shared connection,
//! the server sees only the first subscription to a resource and the last unsubscription. The
//! resulting subscriptions are recorded, so that another connection can repeat them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::{Call, Caller, Names, Principal};
use fanlight_protocol::subscription::{Change, Lists};
use fanlight_protocol::{
    Json, Method, ObjectBuilder, Response, Revision, RpcError, ServerDescription, code,
};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::connection::{Connection, Loss};
use crate::settings::stream_opening;
use crate::subscriptions::{Origin, ResourceRequest, SubscriptionRegistry, Verdict};
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
    let subscribed =
        OptionFuture::from(subscribing.then(|| Box::pin(keep(registry, connection, principal))));
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

/// The notifications that a server declares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notifies {
    pub(crate) lists: Lists,
    /// Whether it accepts `resources/subscribe`.
    pub(crate) resources: bool,
    pub(crate) tasks: bool,
}

impl Notifies {
    pub(crate) fn declared_by(description: &ServerDescription) -> Self {
        let Some(capabilities) = description.capabilities() else {
            return Self::default();
        };
        let declares = |feature: &str, option: &str| {
            let feature = capabilities.get(feature);
            feature.is_some_and(|feature| feature.flag(option))
        };
        Self {
            lists: Change::ALL
                .into_iter()
                .filter(|change| declares(change.capability(), "listChanged"))
                .collect(),
            resources: declares("resources", "subscribe"),
            tasks: capabilities.get("tasks").is_some_and(|it| it.is_object()),
        }
    }
}

/// The number of concurrent subscription requests. A constant: it spares a newly connected server,
/// and the order of the rest does not matter.
const CONCURRENT: usize = 8;

/// Requests to subscribe and unsubscribe, which run while [`Self::complete_one`] is polled.
pub(super) struct ResourceRequests<'a> {
    connection: &'a Connection,
    waiting: VecDeque<ResourceRequest>,
    /// The resources of waiting and running requests.
    pub(super) busy: Names,
    /// The resources whose subscription the server has accepted.
    pub(super) held: Names,
    running: FuturesUnordered<BoxFuture<'a, Completed>>,
}

/// A request that the server has answered, or that failed without an answer.
pub(super) struct Completed {
    pub(super) method: Method,
    pub(super) uri: Arc<str>,
    pub(super) answer: Option<Response>,
}

impl Completed {
    pub(super) fn is_accepted(&self) -> bool {
        let answer = self.answer.as_ref();
        answer.is_some_and(|answer| !answer.is_error())
    }
}

impl<'a> ResourceRequests<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            waiting: VecDeque::new(),
            busy: Names::new(),
            held: Names::new(),
            running: FuturesUnordered::new(),
        }
    }

    pub(super) fn add(&mut self, request: ResourceRequest) {
        self.busy.insert(Arc::clone(&request.1));
        self.waiting.push_back(request);
    }

    /// Waits until one more request is complete; `None` if there is none. Cancel safe.
    pub(super) async fn complete_one(&mut self) -> Option<Completed> {
        while self.running.len() < CONCURRENT
            && let Some((method, uri, params)) = self.waiting.pop_front()
        {
            let connection = self.connection;
            self.running.push(Box::pin(async move {
                let params =
                    params.unwrap_or_else(|| ObjectBuilder::new().string("uri", &uri).finish());
                let answer = connection.ask(&method, Some(&params)).await;
                Completed {
                    method,
                    uri,
                    answer,
                }
            }));
        }
        let completed = self.running.next().await?;
        let uri = self.busy.take(&completed.uri)?;
        match completed.method {
            Method::Subscribe if completed.is_accepted() => drop(self.held.insert(uri)),
            Method::Subscribe => {}
            _ => drop(self.held.remove(&uri)),
        }
        Some(completed)
    }
}

/// Keeps up the subscriptions of `principal`'s listeners on a process that runs calls of clients
/// without a session.
///
/// Such clients listen on the base connection. Over stdio that is another process, which does not
/// notice what a call changes in its own process. So each process of a principal subscribes to all
/// resources that the principal's clients listen to.
async fn keep(registry: &SubscriptionRegistry, connection: &Connection, principal: &Principal) {
    let (mut changed, mut subscribed) = (registry.watch(), Names::new());
    let mut requests = ResourceRequests::new(connection);
    let (updates, process) = (&registry.joint_updates, connection.process());
    loop {
        changed.mark_unchanged();
        let (generation, wanted) = registry.resources_of(principal);
        // Set before the request, since the server may announce an update right after its answer.
        updates.set_subscribed(process, principal, wanted.clone());
        for uri in subscribed.difference(&wanted) {
            requests.add((Method::Unsubscribe, Arc::clone(uri), None));
        }
        for uri in wanted.difference(&subscribed) {
            requests.add((Method::Subscribe, Arc::clone(uri), None));
        }
        // A refusal is no failure: the base connection has determined the accepted interests.
        while requests.complete_one().await.is_some() {}
        subscribed = wanted;
        connection.resources_are_subscribed(generation);
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// The session, the resource, and whether the call subscribes; `None` for other calls.
fn subject(call: &Call) -> Option<(&Caller, Arc<str>, bool)> {
    let subscribes = match call.method {
        Method::Subscribe => true,
        Method::Unsubscribe => false,
        _ => return None,
    };
    let uri = call.params.as_ref()?.get("uri")?;
    call.context.session()?;
    Some((&call.context.caller, Arc::from(uri.as_str()?), subscribes))
}

/// The answer on a connection that clients share; `None` for other calls.
pub(crate) async fn local_answer(
    registry: &SubscriptionRegistry,
    call: &Call,
    revision: Revision,
) -> Option<Response> {
    let (session, uri, subscribes) = subject(call)?;
    if !subscribes {
        registry.unsubscribe(session, &uri);
        return Some(Response::from_result(&Json::empty_object()));
    }
    // A server without this request never sees its parameters.
    let has_request = revision.has_request(&call.method);
    let params = call.params.as_ref().filter(|_| has_request);
    let refused = |code, message: &str| Response::from_error(&RpcError::new(code, message));
    Some(match registry.subscribe(session, &uri, params).await {
        Some(Verdict::Accepted) => Response::from_result(&Json::empty_object()),
        Some(Verdict::Refused(Some(answer))) => answer,
        Some(_) => refused(
            code::INVALID_PARAMS,
            "the server does not send updates of this resource",
        ),
        None => refused(
            code::INTERNAL,
            "the clients' subscriptions to resources of this server are at the limit",
        ),
    })
}

/// The refusal of a subscription beyond the limit, on a session's own connection. If several calls
/// are checked at once, some beyond the limit reach the server; the record stays limited
/// nevertheless.
pub(crate) fn refusal(registry: &SubscriptionRegistry, call: &Call) -> Option<Response> {
    let (session, uri, subscribes) = subject(call)?;
    let refused = subscribes && !registry.may_subscribe(session, &uri);
    let message = "this session has subscribed to as many resources of this server as are allowed: unsubscribe from one";
    refused.then(|| Response::from_error(&RpcError::new(code::INVALID_PARAMS, message)))
}

/// Records the effect of an answered call on a session's own connection.
pub(crate) fn record(registry: &SubscriptionRegistry, call: &Call, answer: &Response) {
    match subject(call).filter(|_| !answer.is_error()) {
        Some((session, uri, true)) => registry.recorded().add(session, &uri),
        Some((session, uri, false)) => registry.recorded().remove(session, &uri),
        None => {}
    }
}
