//! Resource subscriptions on one connection to a legacy server.
//!
//! Each resource has one running request at a time, so that the last one sent counts. A slow request
//! does not delay those for other resources.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use fanlight_canonical::Principal;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Method, Response};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::connection::Connection;
use crate::subscriptions::{ProcessNumber, ResourceRequest, SubscriptionRegistry};

/// The number of concurrent subscription requests. A constant: it spares a newly connected server,
/// and the order of the rest does not matter.
const CONCURRENT: usize = 8;

/// Requests to subscribe and unsubscribe, which run while [`Self::complete_one`] is polled.
pub(super) struct ResourceRequests<'a> {
    connection: &'a Connection,
    waiting: VecDeque<ResourceRequest>,
    /// The resources of waiting and running requests.
    pub(super) busy: HashSet<Arc<str>>,
    /// The resources whose subscription the server has accepted.
    pub(super) held: HashSet<Arc<str>>,
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
            busy: HashSet::new(),
            held: HashSet::new(),
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
/// without a session; returns only if there can be none.
///
/// Such clients listen on the base connection. Over stdio that is another process, which does not
/// notice what a call changes in its own process. So each process of a principal subscribes to all
/// resources that the principal's clients listen to.
pub(super) async fn keep(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    principal: &Principal,
) {
    if !connection.subscribes_for_clients() {
        return;
    }
    let (mut changed, mut subscribed) = (registry.watch(), HashSet::new());
    let mut requests = ResourceRequests::new(connection);
    let announcing = Announcing {
        registry,
        process: connection.process(),
        principal,
    };
    loop {
        changed.mark_unchanged();
        let (generation, wanted) = registry.resources_of(principal);
        // Set before the request, since the server may announce an update right after its answer.
        announcing.set(&wanted);
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

/// The subscriptions of one process, until this is dropped. They are needed to merge the updates of
/// all processes.
struct Announcing<'a> {
    registry: &'a SubscriptionRegistry,
    process: ProcessNumber,
    principal: &'a Principal,
}

impl Announcing<'_> {
    fn set(&self, uris: &HashSet<Arc<str>>) {
        let updates = &self.registry.joint_updates;
        updates.set_subscribed(self.process, self.principal, uris.clone());
    }
}

impl Drop for Announcing<'_> {
    fn drop(&mut self) {
        self.set(&HashSet::new());
    }
}
