//! Takes from a connection what its server sends outside of calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_canonical::{Caller, ServerMessages};
use fanlight_protocol::{Json, Method, Notification, Request};
use tokio::sync::Notify;

use super::{Origin, ProcessNumber, SubscriptionRegistry, TaskProgress};

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
    process: ProcessNumber,
    requests: Arc<RequestQueue>,
}

/// The server requests of one connection, taken one by one.
pub(crate) struct UnsolicitedRequests(Arc<RequestQueue>);

/// A queue that is nearly always empty. There is one for each session and each suspended call, and a channel has memory for
/// all that can wait.
#[derive(Default)]
struct RequestQueue {
    waiting: Mutex<VecDeque<UnsolicitedRequest>>,
    /// Notified of each new one. Only [`UnsolicitedRequests::next`] waits for it.
    added: Notify,
}

impl UnsolicitedSender {
    /// The sender of a connection, and the receiver of its server requests.
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

    /// Passes a notification on to every listener that it is for.
    pub(crate) fn deliver(&self, notification: Notification) {
        match (&notification.method, &self.origin) {
            (Method::Progress, _) => {
                self.registry
                    .deliver_progress(self.process, notification, None)
            }
            (Method::ResourceUpdated, Origin::Pooled(principal) | Origin::Request(principal)) => {
                self.registry
                    .deliver_update_of(self.process, principal, notification);
            }
            _ => self.registry.deliver(&self.origin, notification, None),
        }
    }

    /// Passes on progress that arrived on the stream of a request of `receiver` and belongs to another one.
    pub(crate) fn deliver_progress(
        &self,
        notification: Notification,
        receiver: &Caller,
        messages: &ServerMessages,
    ) {
        self.registry
            .deliver_progress(self.process, notification, Some((receiver, messages)));
    }

    /// The number of its process, or of its HTTP connection.
    pub(crate) fn process(&self) -> ProcessNumber {
        self.process
    }

    /// Whether it is of a connection of clients without a session.
    pub(crate) fn is_of_requests(&self) -> bool {
        matches!(self.origin, Origin::Pooled(_) | Origin::Request(_))
    }

    /// Whether it is of the connection of a single request of a client without a session.
    pub(crate) fn is_of_one_request(&self) -> bool {
        matches!(self.origin, Origin::Request(_))
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
        matches!(self.origin, Origin::Session(_) | Origin::Request(_)) && self.requests.add(request)
    }
}

impl UnsolicitedRequests {
    /// Waits for the next one. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> UnsolicitedRequest {
        loop {
            let first = self.0.waiting().pop_front();
            match first {
                Some(first) => return first,
                // What is added from here on leaves a permit.
                None => self.0.added.notified().await,
            }
        }
    }

    /// Drops those that wait.
    pub(crate) fn clear(&mut self) {
        self.0.waiting().clear();
    }
}

impl RequestQueue {
    /// Adds a request; false if there are too many.
    fn add(&self, request: impl FnOnce() -> UnsolicitedRequest) -> bool {
        let mut waiting = self.waiting();
        if waiting.len() >= QUEUE {
            return false;
        }
        waiting.push_back(request());
        drop(waiting);
        self.added.notify_one();
        true
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<UnsolicitedRequest>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
