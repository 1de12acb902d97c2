//! Replaces servers and endpoints while requests run.

use std::sync::Arc;

use fanlight_canonical::Policy;
use futures_util::FutureExt as _;
use futures_util::future::OptionFuture;

use super::Gateway;
use crate::topology::{BackendEntry, EndpointEntry, ListLimits, NamingPolicy, Topology};

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
        let again = || self.subscribe_again(None, |_| true);
        let subscribing = OptionFuture::from(is_any_gone.then(again)).map(drop);
        self.lists
            .spawn(Arc::clone(&self.listeners).replaced(Arc::clone(&new), subscribing));
        let lists = Arc::clone(&self.lists);
        self.lists.spawn(async move {
            let changes = lists.catalogues.replaced(&new, shows_all_the_same).await;
            lists.announcer.replaced(&changes);
        });
    }
}
