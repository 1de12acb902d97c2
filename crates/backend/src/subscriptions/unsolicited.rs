//! Takes from a connection what its server sends outside of calls.

use std::sync::Arc;

use fanlight_canonical::{Caller, ServerMessages};
use fanlight_protocol::{Json, Method, Notification, Request};
use tokio::sync::mpsc;

use super::{Origin, SubscriptionRegistry, TaskProgress};

/// Capacity for server requests and cancellations that wait to be handled. No option: `limits.serverRequests` bounds
/// those that a client has open.
const QUEUE: usize = 32;

/// What a server requests outside of calls.
#[derive(Debug)]
pub(crate) enum UnsolicitedRequest {
    Request(Request),
    /// The server has cancelled its request with this id.
    Cancelled(Json),
}

/// Takes what the server of one connection sends outside of calls.
#[derive(Clone)]
pub(crate) struct UnsolicitedSender {
    registry: Arc<SubscriptionRegistry>,
    origin: Origin,
    requests: mpsc::Sender<Box<UnsolicitedRequest>>,
}

impl UnsolicitedSender {
    /// The sender of a connection, and the receiver of its server requests.
    pub(crate) fn new(
        registry: Arc<SubscriptionRegistry>,
        origin: Origin,
    ) -> (Self, mpsc::Receiver<Box<UnsolicitedRequest>>) {
        // Boxed, since a channel has memory for all that can wait, and there is one for each session.
        let (requests, receiver) = mpsc::channel(QUEUE);
        (Self { registry, origin, requests }, receiver)
    }

    /// Passes a notification on to every listener that it is for.
    pub(crate) fn deliver(&self, notification: Notification) {
        match notification.method {
            Method::Progress => self.registry.deliver_progress(notification, None),
            _ => self.registry.deliver(&self.origin, notification, None),
        }
    }

    /// Passes on progress that arrived on the stream of a request of `receiver` and belongs to another one.
    pub(crate) fn deliver_progress(&self, notification: Notification, receiver: &Caller, messages: &ServerMessages) {
        self.registry.deliver_progress(notification, Some((receiver, messages)));
    }

    /// Whether it is of a connection of clients without a session.
    pub(crate) fn is_of_requests(&self) -> bool {
        matches!(self.origin, Origin::Pooled(_) | Origin::Request(_))
    }

    /// Grows with every change of what listeners want.
    pub(crate) fn generation(&self) -> u64 {
        self.registry.generation()
    }

    /// The tasks whose progress clients want.
    pub(crate) fn task_progress(&self) -> &TaskProgress {
        self.registry.task_progress()
    }

    /// Passes on what arrived on the stream of a call but concerns other listeners too. Only the base
    /// connection has such listeners, except for the status of a task: listeners that have named the
    /// task receive it from any connection.
    pub(crate) fn deliver_beside(&self, notification: Notification, receiver: &Caller) {
        if matches!(self.origin, Origin::Base) || notification.method == Method::TaskStatus {
            let except = receiver.session().is_some().then_some(receiver);
            self.registry.deliver(&self.origin, notification, except);
        }
    }

    /// Passes on a server request; false if it cannot be passed on.
    pub(crate) fn ask(&self, request: &Request) -> bool {
        self.send(|| UnsolicitedRequest::Request(request.clone()))
    }

    /// The server has cancelled its request with this id.
    pub(crate) fn withdraw(&self, id: &Json) {
        // If the queue is full, the answer to the request is ignored by the server.
        self.send(|| UnsolicitedRequest::Cancelled(id.clone()));
    }

    /// Only a connection that one client has to itself says which client a request is for.
    fn send(&self, request: impl FnOnce() -> UnsolicitedRequest) -> bool {
        matches!(self.origin, Origin::Session(_) | Origin::Request(_))
            && self.requests.try_send(Box::new(request())).is_ok()
    }
}
