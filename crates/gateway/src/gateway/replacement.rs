//! Replaces servers and endpoints while requests run.

use std::sync::{Arc, Weak};

use fanlight_canonical::{Call, Detail, Policy, Unresolved};
use futures_util::{StreamExt as _, stream};
use tracing::debug;

use super::Gateway;
use crate::topology::{BackendEntry, EndpointEntry, ListLimits, NamingPolicy, Topology};

/// How many subscriptions of sessions are made again at the same time. No option: the limit spares
/// servers, and a reload is complete once all are made.
const SUBSCRIBING_AT_ONCE: usize = 32;

impl Gateway {
    /// Uses these servers, in this order, and these endpoints for new requests. Running requests
    /// keep theirs. A server with the id of a current one counts as unchanged, so its lists and
    /// kept reads stay.
    ///
    /// Listening clients keep listening. Clients with a different merged list are notified in the
    /// background. Must not run twice at the same time.
    pub async fn replace(
        self: &Arc<Self>,
        backends: Vec<BackendEntry>,
        naming: &NamingPolicy,
        lists: ListLimits,
        endpoints: Vec<EndpointEntry>,
        policy: Option<Arc<dyn Policy>>,
    ) {
        let old = self.topology.load();
        let new = Topology::replacing(&old, backends, naming, lists, endpoints, policy);
        let has_same_canaries = new.has_canaries_of(&old);
        let shows_all_the_same = new.has_policy_of(&old) && has_same_canaries;
        if new.number() == old.number() {
            return self.topology.replace(new);
        }
        self.lists.catalogues.prepare_replacement(&old).await;
        self.lists.catalogues.retain(&old, &new);
        self.topology.replace(Arc::clone(&new));
        let is_any_gone = !has_same_canaries || old.ids().any(|backend| new.get(backend).is_none());
        // After the listeners, so that announcements have a stream.
        let subscribing = self.subscribe_again(is_any_gone);
        self.lists
            .spawn(Arc::clone(&self.listeners).replaced(Arc::clone(&new), subscribing));
        let lists = Arc::clone(&self.lists);
        self.lists.spawn(async move {
            let changes = lists.catalogues.replaced(&new, shows_all_the_same).await;
            lists.announcer.replaced(&changes);
        });
    }

    /// Makes the sessions' subscriptions again, because a server that knew of one may be gone.
    pub(super) fn subscribe_again(
        self: &Arc<Self>,
        is_any_gone: bool,
    ) -> impl Future<Output = ()> + Send + 'static {
        let requests = if is_any_gone {
            self.subscribed.requests()
        } else {
            Vec::new()
        };
        let gateway = Arc::downgrade(self);
        let subscribe = move |call: Call| {
            let gateway = Weak::clone(&gateway);
            async move {
                let (Some(gateway), Some(session)) = (gateway.upgrade(), call.context.session())
                else {
                    return;
                };
                if !gateway.subscribed.has(session) {
                    return;
                }
                let Call {
                    method,
                    params,
                    context,
                    messages,
                } = call;
                let request = Unresolved {
                    method,
                    params,
                    context,
                };
                let mut operation = gateway.resolve(request, Detail::Known).await;
                let response = gateway.run(&mut operation, messages).await;
                if response.is_error() {
                    debug!(
                        error = response.body().as_text(),
                        "subscription of a session lost by a change of the servers"
                    );
                }
                if !gateway.subscribed.has(session) {
                    gateway.end_session(session);
                }
            }
        };
        stream::iter(requests).for_each_concurrent(SUBSCRIBING_AT_ONCE, subscribe)
    }
}
