//! Replaces servers and endpoints while requests run.

use std::sync::{Arc, Weak};

use fanlight_canonical::{CallContext, Detail, Policy, ServerMessages, SessionKey, Unresolved};
use futures_util::future::OptionFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tracing::debug;

use super::{Gateway, Operation};
use crate::topology::{BackendEntry, EndpointEntry, ListLimits, NamingPolicy, Topology};

/// How many subscriptions are made again at the same time. No option: the limit spares servers, and
/// a reload is complete once all are made.
const AT_ONCE: usize = 32;

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
        let new = Topology::replace(&old, backends, naming, lists, endpoints, policy);
        let has_same_canaries = new.has_canaries_of(&old);
        let shows_all_the_same = new.has_policy_of(&old) && has_same_canaries;
        if new.number() == old.number() {
            return self.topology.replace(new);
        }
        self.lists.catalogues.prepare_replacement(&old, &new).await;
        self.lists.catalogues.retain(&old, &new);
        self.topology.replace(Arc::clone(&new));
        let is_any_gone = !has_same_canaries || old.ids().any(|backend| new.get(backend).is_none());
        // After the listeners, so that announcements have a stream.
        let again = || self.subscribe_again(None, |_| true);
        let subscribing = OptionFuture::from(is_any_gone.then(again)).map(drop);
        let (directory, all) = (self.directory.clone(), self.lists.announcer.set_up());
        self.lists
            .spawn(directory.set_up_again(all, Arc::clone(&new), subscribing));
        let lists = Arc::clone(&self.lists);
        self.lists.spawn(async move {
            let changes = lists.catalogues.replaced(&new, shows_all_the_same).await;
            lists.announcer.announce_replacement(&changes);
        });
    }

    /// Makes subscriptions of sessions again, of one session (in requests with this context) or of
    /// all sessions. Removes those that `is_permitted` refuses.
    pub fn subscribe_again<P: Fn(&Operation) -> bool + Send + Sync>(
        self: &Arc<Self>,
        of_one: Option<Arc<CallContext>>,
        is_permitted: P,
    ) -> impl Future<Output = ()> + Send + use<P> {
        let requests = self.subscribed.requests(of_one);
        let again = Arc::new((Arc::downgrade(self), is_permitted));
        let subscribe = move |(session, uri, request): (SessionKey, String, Unresolved)| {
            let again = Arc::clone(&again);
            async move {
                let (gateway, is_permitted) = &*again;
                let Some(gateway) = Weak::upgrade(gateway) else {
                    return;
                };
                if !gateway.subscribed.has(session, &uri) {
                    return;
                }
                let mut operation = gateway.resolve(request, Detail::Known).await;
                if !is_permitted(&operation) {
                    return gateway.subscribed.remove(session, &uri);
                }
                let response = gateway.run(&mut operation, ServerMessages::discard()).await;
                if response.is_error() {
                    debug!(
                        error = response.body().as_text(),
                        "subscription of a session not made again"
                    );
                }
                if !gateway.subscribed.knows(session) {
                    gateway.end_session(session);
                }
            }
        };
        stream::iter(requests).for_each_concurrent(AT_ONCE, subscribe)
    }
}
