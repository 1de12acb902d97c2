//! Whether a request of `reqwest` is still without a connection: then certainly nothing of it was sent.
//!
//! The library does not say so. But it has no task of its own for a request: the future that makes a connection is polled by
//! the future of the request, and in each poll only after the pool was found to have no connection for it (`connection_for` of
//! hyper-util, which depends on this order itself). A request whose last poll ended with such a future pending therefore has no
//! connection, and gets none without another poll. Anything else counts as sent.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_layer::Layer;
use tower_service::Service;

thread_local! {
    /// Whether a future that makes a connection was pending when it was polled last on this thread.
    static IS_PENDING: Cell<bool> = const { Cell::new(false) };
}

/// A request, which knows whether it is still without a connection.
pub(super) struct WatchedRequest<T> {
    request: BoxFuture<'static, T>,
    is_connecting: bool,
}

impl<T> WatchedRequest<T> {
    /// `request` makes connections through a [`ConnectingLayer`] only.
    pub(super) fn new(request: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            request: Box::pin(request),
            is_connecting: true,
        }
    }

    /// Whether it certainly had no connection when it was polled last.
    pub(super) fn is_connecting(&self) -> bool {
        self.is_connecting
    }
}

impl<T> Future for WatchedRequest<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        IS_PENDING.set(false);
        let polled = self.request.as_mut().poll(cx);
        self.is_connecting = polled.is_pending() && IS_PENDING.get();
        polled
    }
}

/// A future during which a request is without a connection.
pub(super) struct Connecting<F>(pub(super) F);

impl<F: Future + Unpin> Future for Connecting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = Pin::new(&mut self.0).poll(cx);
        IS_PENDING.set(polled.is_pending());
        polled
    }
}

/// Makes the connections of a client [`Connecting`] ones. TLS, and the tunnel of a proxy, are part of that.
#[derive(Clone)]
pub(super) struct ConnectingLayer;

impl<S> Layer<S> for ConnectingLayer {
    type Service = ConnectingService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ConnectingService(inner)
    }
}

#[derive(Clone)]
pub(super) struct ConnectingService<S>(S);

impl<S, R> Service<R> for ConnectingService<S>
where
    S: Service<R>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Connecting<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, target: R) -> Self::Future {
        Connecting(self.0.call(target))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt as _;
    use futures_util::future::select;
    use tokio::sync::oneshot;

    use super::*;

    fn poll<T>(request: &mut WatchedRequest<T>) -> bool {
        assert!(request.now_or_never().is_none());
        request.is_connecting()
    }

    #[test]
    fn request_is_connecting_until_it_has_a_connection() {
        let (connect, connected) = oneshot::channel::<()>();
        let mut request = WatchedRequest::new(async {
            let _ = Connecting(connected).await;
            pending::<()>().await;
        });
        assert!(
            request.is_connecting(),
            "nothing is sent before it is polled"
        );
        assert!(poll(&mut request) && poll(&mut request));
        connect.send(()).unwrap();
        assert!(!poll(&mut request), "it may be sent from now on");
        let mut connected_at_once = WatchedRequest::new(async {
            Connecting(ready(())).await;
            pending::<()>().await;
        });
        assert!(!poll(&mut connected_at_once));
    }

    /// Another request has given its connection back before the own one was made.
    #[test]
    fn request_that_gets_the_connection_of_another_may_be_sent() {
        let (give_back, checkout) = oneshot::channel::<()>();
        let mut request = WatchedRequest::new(async {
            // The rest of making the connection is no longer polled: the library hands it to a task of its own.
            let _left = select(checkout, Connecting(Box::pin(pending::<()>()))).await;
            pending::<()>().await;
        });
        assert!(poll(&mut request));
        give_back.send(()).unwrap();
        assert!(!poll(&mut request));
        assert!(!poll(&mut request));
    }

    #[test]
    fn connection_of_another_request_says_nothing() {
        let mut other = WatchedRequest::new(Connecting(Box::pin(pending::<()>())));
        let mut request = WatchedRequest::new(pending::<()>());
        assert!(poll(&mut other));
        assert!(!poll(&mut request));
        assert!(other.is_connecting());
    }
}
