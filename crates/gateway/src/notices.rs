//! Forwards client notifications that Fanlight does not know. Only legacy clients send these.
//!
//! A notification that names a task, or anything else that Fanlight knows (`routing`), goes to the
//! server that has it. Others go to all servers where the client's session has its own connection.
//!
//! A notification that names a request of the client, or its progress token, is for the server that
//! got the request. The server edge (`backend`) knows whether it sent that request, and puts in the
//! server's own ids. Without such a request the notification is dropped, because at a server the id
//! could mean another request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fanlight_canonical::CallContext;
use fanlight_protocol::method::ROOTS_CHANGED;
use fanlight_protocol::{Json, Notification};
use futures_util::future::join_all;
use tracing::debug;

use crate::routing::Directory;
use crate::topology::{Member, View};

/// Names of members whose values belong to one hop.
const OF_ONE_HOP: [&str; 2] = ["requestId", "progressToken"];

/// Everything needed to forward notifications.
#[derive(Clone)]
pub(crate) struct Notices {
    pub(crate) directory: Directory,
    /// The number of notifications being forwarded.
    pub(crate) under_way: Arc<AtomicUsize>,
}

/// Counts one notification as being forwarded until it is dropped.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    /// Returns `None` if `most` are being forwarded already.
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
    /// Forwards a notification in the background, unless too many are being forwarded. Holds
    /// `session` meanwhile.
    pub(crate) fn pass_on(
        &self,
        view: View,
        notification: Notification,
        context: Arc<CallContext>,
        session: Arc<dyn Send + Sync>,
    ) {
        let Some(under_way) = UnderWay::begin(&self.under_way, view.limits().client_notifications)
        else {
            return debug!(method = %notification.method, "notification of a client dropped: too many at once");
        };
        let notices = self.clone();
        self.directory.lists.spawn(async move {
            notices.deliver(&view, notification, &context).await;
            drop((under_way, session));
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
                let lookup = self.directory.lookup(view, context);
                lookup.target_of_unknown(&params).await
            }
        };
        let send = async |backend: &Member, notification: &Notification| {
            let method = notification.method.as_str();
            if method != ROOTS_CHANGED && !view.passes_unknown(backend, method) {
                return debug!(backend = backend.name(), method = %notification.method, "notification of a client dropped: unknown, to a server with filters");
            }
            if let Err(error) = view
                .wait_briefly(
                    backend
                        .serving(&context.caller)
                        .notify(notification, context),
                )
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
                drop(join_all(view.backends().map(|backend| send(backend, &notification))).await);
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
