//! Receives a server's messages outside of calls from a connection.

use std::collections::VecDeque;
use std::sync::Arc;

use fanlight_canonical::{Caller, Principal, ServerMessages};
use fanlight_protocol::{Json, Method, Notification, Request};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Origin, ProcessNumber, SubscriptionRegistry};

/// The number of server requests and cancellations that may wait. Another limit applies to the open
/// requests of a client.
const QUEUE: usize = 32;

/// A server's request outside of calls.
#[derive(Debug)]
pub(crate) enum UnsolicitedRequest {
    Request(Request),
    /// The server has cancelled its request with this id.
    Cancelled(Json),
}

/// Receives the messages that the server of one connection sends outside of calls.
#[derive(Clone)]
pub(crate) struct UnsolicitedSender {
    pub(crate) registry: Arc<SubscriptionRegistry>,
    pub(crate) origin: Origin,
    /// The number of its process or HTTP connection.
    pub(crate) process: ProcessNumber,
    requests: Arc<RequestQueue>,
}

/// The server requests of one connection, returned one by one.
pub(crate) struct UnsolicitedRequests(Arc<RequestQueue>);

/// A queue that is usually empty. Each session and suspended call has one, and a channel would
/// allocate memory for its whole capacity.
#[derive(Default)]
struct RequestQueue {
    waiting: Mutex<VecDeque<UnsolicitedRequest>>,
    /// Notified of each new request. Only [`UnsolicitedRequests::next`] waits for it.
    added: Notify,
}

impl UnsolicitedSender {
    /// The sender for a connection, and the receiver of its server requests.
    pub(crate) fn new(
        registry: Arc<SubscriptionRegistry>,
        origin: Origin,
    ) -> (Self, UnsolicitedRequests) {
        let requests = Arc::<RequestQueue>::default();
        let process = registry.process_number(&origin);
        (
            Self {
                registry,
                origin,
                process,
                requests: Arc::clone(&requests),
            },
            UnsolicitedRequests(requests),
        )
    }

    /// Delivers a notification to its listeners.
    pub(crate) fn deliver(&self, mut notification: Notification) {
        match (&notification.method, &self.origin) {
            (Method::Progress, _) => {
                self.registry
                    .deliver_progress(self.process, notification, None);
            }
            (Method::ResourceUpdated, Origin::Clients { principal, .. }) => {
                notification.text = notification.text.detached();
                self.registry
                    .deliver_jointly(self.process, principal, &notification);
            }
            _ => self.registry.deliver(&self.origin, notification, None),
        }
    }

    /// Delivers progress that arrived on the stream of a request of `receiver` but belongs to
    /// another request.
    pub(crate) fn deliver_progress(
        &self,
        notification: Notification,
        receiver: &Caller,
        messages: &ServerMessages,
    ) {
        self.registry
            .deliver_progress(self.process, notification, Some((receiver, messages)));
    }

    /// The owner of its connection, for operators.
    pub(crate) fn owner(&self) -> String {
        let of_nobody = match &self.origin {
            Origin::Session(_) => "a session",
            Origin::Clients { principal, .. } if *principal == Principal::gateway() => "Fanlight",
            Origin::Clients { is_one: true, .. } => "a client",
            Origin::Clients { is_one: false, .. } => "clients without a session",
            Origin::Base => "Fanlight",
        };
        let id = self.origin.principal().and_then(Principal::id);
        id.unwrap_or_else(|| of_nobody.to_owned())
    }

    /// Whether its connection serves clients without a session.
    pub(crate) fn is_of_requests(&self) -> bool {
        matches!(self.origin, Origin::Clients { .. })
    }

    /// Whether its connection serves a single client without a session.
    pub(crate) fn is_of_one_client(&self) -> bool {
        matches!(self.origin, Origin::Clients { is_one: true, .. })
    }

    /// Whether its connection belongs to a session.
    pub(crate) fn is_of_session(&self) -> bool {
        self.origin.session().is_some()
    }

    /// Whether its connection belongs to a session whose client listens.
    pub(crate) fn is_of_listener(&self) -> bool {
        let session = self.origin.session();
        session.is_some_and(|session| self.registry.is_listening(session))
    }

    /// Delivers a message from a call's stream that also concerns other listeners. That happens
    /// only on the base connection, with one exception: listeners that named a task get its status
    /// from any connection.
    pub(crate) fn deliver_beside(&self, notification: Notification, receiver: &Caller) {
        if matches!(self.origin, Origin::Base) || notification.method == Method::TaskStatus {
            let except = receiver.session().is_some().then_some(receiver);
            self.registry.deliver(&self.origin, notification, except);
        }
    }

    /// Passes a server request on; false if that is impossible.
    pub(crate) fn ask(&self, request: &Request) -> bool {
        self.send(|| UnsolicitedRequest::Request(request.clone()))
    }

    /// Handles a server's cancellation of its request with this id.
    pub(crate) fn withdraw(&self, id: &Json) {
        // If the queue is full, the server will ignore the answer to the request.
        self.send(|| UnsolicitedRequest::Cancelled(id.clone()));
    }

    /// Only on a connection that serves a single client is it clear which client a request is for.
    fn send(&self, request: impl FnOnce() -> UnsolicitedRequest) -> bool {
        (self.is_of_session() || self.is_of_one_client()) && self.requests.add(request)
    }
}

impl UnsolicitedRequests {
    /// Waits for the next request. Cancel safe.
    pub(crate) async fn next(&mut self) -> UnsolicitedRequest {
        loop {
            let first = self.0.waiting.lock().pop_front();
            match first {
                Some(first) => return first,
                // A request that is added from here on leaves a permit.
                None => self.0.added.notified().await,
            }
        }
    }

    /// Drops all waiting requests.
    pub(crate) fn clear(&mut self) {
        self.0.waiting.lock().clear();
    }
}

impl RequestQueue {
    /// Adds a request; false if there are too many.
    fn add(&self, request: impl FnOnce() -> UnsolicitedRequest) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= QUEUE {
            return false;
        }
        waiting.push_back(request());
        drop(waiting);
        self.added.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: usize) -> impl FnOnce() -> UnsolicitedRequest {
        move || UnsolicitedRequest::Cancelled(Json::integer(i64::try_from(number).unwrap()))
    }

    fn number(request: &UnsolicitedRequest) -> String {
        match request {
            UnsolicitedRequest::Cancelled(id) => id.as_text().to_owned(),
            UnsolicitedRequest::Request(_) => panic!("{request:?}"),
        }
    }

    #[tokio::test]
    async fn requests_are_taken_in_order_and_bounded_in_number() {
        let queue = Arc::<RequestQueue>::default();
        let mut requests = UnsolicitedRequests(Arc::clone(&queue));
        let taking = tokio::spawn(async move {
            let first = number(&requests.next().await);
            (first, requests)
        });
        tokio::task::yield_now().await;
        assert!(queue.add(request(7)));
        let (first, mut requests) = taking.await.unwrap();
        assert_eq!(first, "7");
        assert!((0..QUEUE).all(|next| queue.add(request(next))) && !queue.add(request(QUEUE)));
        for next in 0..3 {
            assert_eq!(number(&requests.next().await), next.to_string());
        }
        requests.clear();
        assert!(queue.add(request(9)));
        assert_eq!(number(&requests.next().await), "9");
    }
}
