//! Subscriptions on the processes in which calls of clients without a session run.
//!
//! Such clients listen on the base connection. Over stdio that is another process, which does not know what a call changes
//! in its own, so the resources that the clients of a principal listen to are subscribed to in each of their processes.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use fanlight_canonical::Principal;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method};
use futures_util::StreamExt as _;

use crate::connection::Connection;
use crate::subscriptions::{ProcessNumber, SubscriptionRegistry};

/// Subscriptions that are made at the same time. No option: it spares a server that has just been connected, and the
/// order of the rest does not show.
pub(super) const CONCURRENT: usize = 8;

type Request<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Keeps up the subscriptions of `principal`'s listeners on one connection, without end unless there can be none.
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
        // Before the server is asked, which may announce an update right after its answer.
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

/// What one process is subscribed to, for merging its updates with those of the others, until this is dropped.
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

/// Sends one request for each resource. A refusal is no failure: the base connection has said what is honoured.
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
