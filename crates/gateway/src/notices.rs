//! Notifications of clients that Fanlight does not know, which only legacy clients send.
//!
//! One whose parameters name a task, or anything else that is known (`routing`), goes to the backend that has it. Others go to
//! all backends with which the client's session has a connection of its own. One that names a request of the client, or its
//! progress token, is for the backend that the request was sent to: each backend's edge knows whether it is, and puts the
//! server's names in. If that request is not known, it is dropped: at a server the names would be those of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fanlight_canonical::CallContext;
use fanlight_protocol::{Json, Notification};
use futures_util::future::join_all;
use tracing::debug;

use crate::catalogue::ListWatcher;
use crate::routing::Lookup;
use crate::tasks::Tasks;
use crate::topology::{Member, View};
use crate::uris::HandedOut;

/// Names of members whose values are per hop.
const OF_ONE_HOP: [&str; 2] = ["requestId", "progressToken"];

/// What is needed to pass notifications on.
#[derive(Clone)]
pub(crate) struct Notices {
    lists: Arc<ListWatcher>,
    handed_out: Arc<HandedOut>,
    tasks: Arc<Tasks>,
    /// How many notifications are on their way.
    under_way: Arc<AtomicUsize>,
}

/// Counts a notification as being on its way until this is dropped.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    /// `None` if `most` are on their way already.
    fn begin(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let more = |running: usize| (running < most).then_some(running + 1);
        count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Notices {
    pub(crate) fn new(
        lists: &Arc<ListWatcher>,
        handed_out: &Arc<HandedOut>,
        tasks: &Arc<Tasks>,
    ) -> Self {
        let (lists, handed_out, tasks) =
            (Arc::clone(lists), Arc::clone(handed_out), Arc::clone(tasks));
        Self {
            lists,
            handed_out,
            tasks,
            under_way: Arc::default(),
        }
    }

    /// Passes a notification on in the background, unless too many are under way.
    pub(crate) fn pass_on(
        &self,
        view: View,
        notification: Notification,
        context: Arc<CallContext>,
    ) {
        let Some(under_way) = UnderWay::begin(&self.under_way, view.limits().client_notifications)
        else {
            return debug!(method = %notification.method, "notification of a client dropped: too many at once");
        };
        let notices = self.clone();
        self.lists.spawn(async move {
            notices.deliver(&view, notification, &context).await;
            drop(under_way);
        });
    }

    async fn deliver(&self, view: &View, notification: Notification, context: &CallContext) {
        let params = notification.params();
        let is_of_one_hop =
            |params: &Json| OF_ONE_HOP.iter().any(|name| params.peek(name).is_some());
        let is_of_hop = params.as_ref().is_some_and(is_of_one_hop);
        if is_of_hop && context.request.is_none() {
            return debug!(method = %notification.method, "notification of a client dropped: it names an unknown request");
        }
        let several = !is_of_hop && view.topology().backends().len() > 1;
        let routed = match params.filter(|_| several) {
            None => Ok(None),
            Some(params) => {
                let lookup = Lookup {
                    view,
                    lists: &self.lists,
                    handed_out: &self.handed_out,
                    context,
                };
                let owner = self.tasks.known_owner(view, context, Some(&params)).await;
                lookup.target_of_unknown(&params, owner).await
            }
        };
        let send = async |backend: &Member, notification: &Notification| {
            if !backend.takes_unknown(notification.method.as_str(), view.has_filters()) {
                return debug!(backend = backend.name(), method = %notification.method, "notification of a client dropped: unknown, to a server with filters");
            }
            if let Err(error) = view
                .briefly(backend.client.notify(notification, context))
                .await
            {
                debug!(backend = backend.name(), %error, method = %notification.method, "notification of a client lost");
            }
        };
        match routed {
            Ok(Some(routed)) => {
                if let Some(backend) = view.get(routed.backend) {
                    send(
                        backend,
                        &Notification::new(notification.method, Some(&routed.params)),
                    )
                    .await;
                }
            }
            Ok(None) => {
                drop(join_all(view.backends().map(|backend| send(backend, &notification))).await)
            }
            Err(error) => {
                debug!(method = %notification.method, error = error.message, "notification of a client dropped");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_under_way_are_bounded() {
        let count = Arc::default();
        let running: Vec<_> = (0..5).map_while(|_| UnderWay::begin(&count, 2)).collect();
        assert_eq!(running.len(), 2);
        drop(running);
        assert!(UnderWay::begin(&count, 1).is_some() && UnderWay::begin(&count, 0).is_none());
    }
}
