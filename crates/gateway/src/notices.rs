//! Notifications of clients that Fanlight does not know, which only legacy clients send.
//!
//! One whose parameters name a task, or anything else that is known (`routing`), goes to the backend that has it. Others go to
//! all backends with which the client's session has a connection of its own. One that names a request of the client, or its
//! progress token, is for the backend that the request was sent to: each backend's edge knows whether it is, and puts the
//! server's names in. If that request is not known, it is dropped: at a server the names would be those of another.

use std::sync::Arc;

use fanlight_canonical::CallContext;
use fanlight_protocol::{Json, Notification};
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tracing::debug;

use crate::catalogue::ListWatcher;
use crate::routing::Lookup;
use crate::tasks::Tasks;
use crate::topology::{Member, View};
use crate::uris::HandedOut;

/// Notifications that are being passed on at one time, at most.
const AT_ONCE: usize = 64;
/// Names of members whose values belong to one hop.
const OF_ONE_HOP: [&str; 2] = ["requestId", "progressToken"];

/// What is needed to pass notifications on.
#[derive(Clone)]
pub(crate) struct Notices {
    lists: Arc<ListWatcher>,
    handed_out: Arc<HandedOut>,
    tasks: Arc<Tasks>,
    permits: Arc<Semaphore>,
}

impl Notices {
    pub(crate) fn new(lists: &Arc<ListWatcher>, handed_out: &Arc<HandedOut>, tasks: &Arc<Tasks>) -> Self {
        let (lists, handed_out, tasks) = (Arc::clone(lists), Arc::clone(handed_out), Arc::clone(tasks));
        Self { lists, handed_out, tasks, permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Passes a notification on in the background, unless too many are under way.
    pub(crate) fn pass_on(&self, view: View, notification: Notification, context: Arc<CallContext>) {
        if view.has_filters() {
            return debug!(method = %notification.method, "notification of a client dropped: unknown, at an endpoint with filters");
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return debug!(method = %notification.method, "notification of a client dropped: too many at once");
        };
        let notices = self.clone();
        self.lists.spawn(async move {
            notices.deliver(&view, notification, &context).await;
            drop(permit);
        });
    }

    async fn deliver(&self, view: &View, notification: Notification, context: &CallContext) {
        let params = notification.params();
        let is_of_one_hop = |params: &Json| OF_ONE_HOP.iter().any(|name| params.peek(name).is_some());
        let is_of_hop = params.as_ref().is_some_and(is_of_one_hop);
        if is_of_hop && context.request.is_none() {
            return debug!(method = %notification.method, "notification of a client dropped: it names an unknown request");
        }
        let several = !is_of_hop && view.topology().backends().len() > 1;
        let routed = match params.filter(|_| several) {
            None => Ok(None),
            Some(params) => {
                let lookup = Lookup { view, lists: &self.lists, handed_out: &self.handed_out, context };
                let owner = self.tasks.known_owner(view, context, Some(&params)).await;
                lookup.target_of_unknown(&params, owner).await
            }
        };
        let send = async |backend: &Member, notification: &Notification| {
            if let Err(error) = view.briefly(backend.client.notify(notification, context)).await {
                debug!(backend = backend.name(), %error, method = %notification.method, "notification of a client lost");
            }
        };
        match routed {
            Ok(Some(routed)) => {
                if let Some(backend) = view.get(routed.backend) {
                    send(backend, &Notification::new(notification.method, Some(&routed.params))).await;
                }
            }
            Ok(None) => drop(join_all(view.backends().map(|backend| send(backend, &notification))).await),
            Err(error) => {
                debug!(method = %notification.method, error = error.message, "notification of a client dropped");
            }
        }
    }
}
