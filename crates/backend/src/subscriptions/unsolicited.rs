//! Takes from a connection what its server sends outside of calls.

use std::sync::Arc;

use fanlight_canonical::Caller;
use fanlight_protocol::{Json, Method, Notification, Request};
use tokio::sync::mpsc;

use super::{Origin, SubscriptionRegistry};

/// Capacity for server requests and cancellations that wait to be handled.
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
        self.registry.deliver(&self.origin, notification, None);
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
