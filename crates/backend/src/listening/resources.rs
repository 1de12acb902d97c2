//! Subscriptions on the processes that run calls of clients without a session.
//!
//! Such clients listen on the base connection. Over stdio that is another process, which does not
//! notice what a call changes in its own process. So each process of a principal subscribes to all
//! resources that the principal's clients listen to.

use std::collections::HashSet;
use std::sync::Arc;

use fanlight_canonical::Principal;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;

use crate::connection::Connection;
use crate::subscriptions::{ProcessNumber, SubscriptionRegistry};

/// The number of concurrent subscription requests. A constant: it spares a newly connected server,
/// and the order of the rest does not matter.
pub(super) const CONCURRENT: usize = 8;

type Request<'a> = BoxFuture<'a, ()>;

/// Keeps up the subscriptions of `principal`'s listeners on one connection; returns only if there
/// can be none.
pub(super) async fn keep(
    registry: &SubscriptionRegistry,
    connection: &Connection,
    principal: &Principal,
) {
    if !connection.subscribes_for_clients() {
        return;
    }
    let (mut changed, mut subscribed) = (registry.watch(), HashSet::new());
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
        request(
            connection,
            &Method::Unsubscribe,
            subscribed.difference(&wanted),
        )
        .await;
        request(
            connection,
            &Method::Subscribe,
            wanted.difference(&subscribed),
        )
        .await;
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
        self.registry
            .set_subscribed(self.process, self.principal, uris);
    }
}

impl Drop for Announcing<'_> {
    fn drop(&mut self) {
        self.set(&HashSet::new());
    }
}

/// Sends one request for each resource. A refusal is no failure: the base connection has determined
/// the accepted interests.
async fn request(connection: &Connection, method: &Method, uris: impl Iterator<Item = &Arc<str>>) {
    let asked = uris.map(|uri| {
        let params = params_for(uri);
        // Boxed, since the compiler cannot prove otherwise that it is `Send`.
        Box::pin(async move { drop(connection.ask(method, Some(&params)).await) }) as Request<'_>
    });
    let asked: Vec<_> = asked.collect();
    futures_util::stream::iter(asked)
        .buffer_unordered(CONCURRENT)
        .collect::<()>()
        .await;
}

/// The params of a request about a resource.
pub(super) fn params_for(uri: &str) -> Json {
    let mut params = ObjectBuilder::new();
    params.string("uri", uri);
    params.finish()
}
