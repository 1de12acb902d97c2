//! The resources that clients' sessions have subscribed to with `resources/subscribe`.
//!
//! Above the servers this is the only table of them. The client edge notes each subscription before
//! the server gets it, and reads them for the record of the session. They are made again after a
//! take-over, and when a server has left, because that server knew of some.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fanlight_canonical::{Call, CallContext, KEPT_PARAMS, Parent, SessionKey};
use fanlight_protocol::{Json, Method, ObjectBuilder};
use parking_lot::Mutex;

/// The subscriptions of all sessions.
#[derive(Default)]
pub struct SessionSubscriptions(Mutex<HashMap<SessionKey, Subscribed>>);

/// The subscriptions of a session, until it ends.
struct Subscribed {
    /// The context of the first one, without its span.
    context: Arc<CallContext>,
    /// The subscribed resources by URI.
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
    pub fn resources(&self, session: SessionKey) -> Vec<String> {
        let sessions = self.0.lock();
        let subscribed = sessions.get(&session).into_iter();
        let uris = subscribed.flat_map(|subscribed| subscribed.resources.keys());
        uris.cloned().collect()
    }

    /// The subscriptions to make again: of one session, in requests with this context, or of all.
    pub(crate) fn requests(
        &self,
        of_one: Option<Arc<CallContext>>,
    ) -> Vec<(SessionKey, String, Call)> {
        let only = of_one.as_ref().and_then(|context| context.session());
        let sessions = self.0.lock();
        let wanted = sessions
            .iter()
            .filter(|(session, _)| of_one.is_none() || only == Some(**session));
        let requests = wanted.flat_map(|(session, subscribed)| {
            let context = of_one.as_ref().unwrap_or(&subscribed.context);
            subscribed.resources.iter().map(|(uri, subscription)| {
                let request = Call::new(
                    Method::Subscribe,
                    Some(subscription.params.clone()),
                    Arc::clone(context),
                );
                (*session, uri.clone(), request)
            })
        });
        requests.collect()
    }

    /// Whether the session has subscribed to the resource.
    pub(crate) fn has(&self, session: SessionKey, uri: &str) -> bool {
        let sessions = self.0.lock();
        let subscribed = sessions.get(&session);
        subscribed.is_some_and(|subscribed| subscribed.resources.contains_key(uri))
    }

    /// Whether the session has subscribed to anything and has not ended.
    pub(crate) fn knows(&self, session: SessionKey) -> bool {
        self.0.lock().contains_key(&session)
    }
}
