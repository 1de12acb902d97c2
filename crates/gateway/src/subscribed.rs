//! The resources that clients' sessions have subscribed to with `resources/subscribe`.
//!
//! Above the servers this is the only table of them. The client edge notes each subscription before
//! the server gets it, and reads them for the record of the session. They are made again after a
//! take-over, and when a server has left, because that server knew of some.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use fanlight_canonical::{
    CallContext, Detail, KEPT_PARAMS, Parent, ServerMessages, SessionKey, Unresolved,
};
use fanlight_protocol::Method;
use fanlight_protocol::json::{Json, ObjectBuilder};
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use tracing::debug;

use crate::gateway::{Gateway, Operation};

/// How many subscriptions are made again at the same time. No option: the limit spares servers, and
/// a reload is complete once all are made.
const AT_ONCE: usize = 32;

/// The subscriptions of all sessions.
#[derive(Default)]
pub struct SessionSubscriptions(Mutex<HashMap<SessionKey, Subscribed>>);

/// The subscriptions of a session, until it ends.
struct Subscribed {
    /// The context of the first one, without its span.
    context: Arc<CallContext>,
    /// By URI.
    resources: BTreeMap<String, Subscription>,
}

struct Subscription {
    params: Json,
    /// Counts the memory of the subscription.
    _memory: Box<dyn Send>,
}

fanlight_protocol::opaque!(SessionSubscriptions);

impl SessionSubscriptions {
    /// Adds a subscription that a request with this context makes; returns whether it is new. Of
    /// long `params` only the URI is kept, which is what matters. `memory` is dropped with the
    /// subscription.
    pub fn add(
        &self,
        context: &CallContext,
        uri: &str,
        params: Option<&Json>,
        memory: impl Send + 'static,
    ) -> bool {
        let Some(session) = context.session() else {
            return false;
        };
        let params = params.filter(|params| params.bytes().len() <= KEPT_PARAMS);
        let subscription = Subscription {
            params: params.map_or_else(
                || ObjectBuilder::new().string("uri", uri).finish(),
                Json::detached,
            ),
            _memory: Box::new(memory),
        };
        let mut sessions = self.0.lock();
        let subscribed = sessions.entry(session).or_insert_with(|| Subscribed {
            context: Arc::new(CallContext {
                trace: Parent::default(),
                ..context.clone()
            }),
            resources: BTreeMap::new(),
        });
        let former = subscribed.resources.insert(uri.to_owned(), subscription);
        former.is_none()
    }

    /// Removes a subscription.
    pub fn remove(&self, session: SessionKey, uri: &str) {
        if let Some(subscribed) = self.0.lock().get_mut(&session) {
            subscribed.resources.remove(uri);
        }
    }

    /// Removes a session that has ended.
    pub fn end(&self, session: SessionKey) {
        drop(self.0.lock().remove(&session));
    }

    /// The resources of a session, in their order.
    pub fn of(&self, session: SessionKey) -> Vec<String> {
        let sessions = self.0.lock();
        let subscribed = sessions.get(&session).into_iter();
        let uris = subscribed.flat_map(|subscribed| subscribed.resources.keys());
        uris.cloned().collect()
    }

    /// The subscriptions to make again: of one session, in requests with this context, or of all.
    fn requests(&self, of_one: Option<Arc<CallContext>>) -> Vec<(SessionKey, String, Unresolved)> {
        let only = of_one.as_ref().and_then(|context| context.session());
        let sessions = self.0.lock();
        let wanted = sessions
            .iter()
            .filter(|(session, _)| of_one.is_none() || only == Some(**session));
        let requests = wanted.flat_map(|(session, subscribed)| {
            let context = of_one.as_ref().unwrap_or(&subscribed.context);
            subscribed.resources.iter().map(|(uri, subscription)| {
                let request = Unresolved {
                    method: Method::Subscribe,
                    params: Some(subscription.params.clone()),
                    context: Arc::clone(context),
                };
                (*session, uri.clone(), request)
            })
        });
        requests.collect()
    }

    fn has(&self, session: SessionKey, uri: &str) -> bool {
        let sessions = self.0.lock();
        let subscribed = sessions.get(&session);
        subscribed.is_some_and(|subscribed| subscribed.resources.contains_key(uri))
    }
}

impl Gateway {
    /// Makes subscriptions of sessions again: of one session, in requests with this context, or of
    /// all. Removes those that `is_permitted` refuses.
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
                if !gateway.subscribed.0.lock().contains_key(&session) {
                    gateway.end_session(session);
                }
            }
        };
        stream::iter(requests).for_each_concurrent(AT_ONCE, subscribe)
    }
}
