//! Detects whether a `reqwest` request is still without a connection, so that certainly nothing of
//! it was sent.
//!
//! `reqwest` does not tell. But it has no task of its own for a request. The request's future polls
//! the future that makes a connection, and in each poll only after the pool turned out to have no
//! connection for it (`connection_for` of hyper-util, which itself depends on this order).
//!
//! So if a request's last poll ended with such a future pending, the request has no connection, and
//! gets none without another poll. Anything else counts as sent.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_layer::Layer;
use tower_service::Service;

thread_local! {
    /// Whether the last polled future that makes a connection was pending, on this thread.
    static IS_PENDING: Cell<bool> = const { Cell::new(false) };
}

/// A request that knows whether it is still without a connection.
pub(super) struct WatchedRequest<T> {
    request: BoxFuture<'static, T>,
    is_connecting: bool,
}

impl<T> WatchedRequest<T> {
    /// Watches `request`, which must make connections only through a [`ConnectingLayer`].
    pub(super) fn new(request: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            request: Box::pin(request),
            is_connecting: true,
        }
    }

    /// Whether the request certainly had no connection at its last poll.
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

/// The future that makes a connection for a request.
pub(super) struct Connecting<F>(pub(super) F);

impl<F: Future + Unpin> Future for Connecting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = Pin::new(&mut self.0).poll(cx);
        IS_PENDING.set(polled.is_pending());
        polled
    }
}

/// Wraps a client's connecting in [`Connecting`], including TLS and a proxy's tunnel.
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

    /// Another request gives its connection back before the own one is made.
    #[test]
    fn request_that_gets_the_connection_of_another_may_be_sent() {
        let (give_back, checkout) = oneshot::channel::<()>();
        let mut request = WatchedRequest::new(async {
            // The rest of making the connection is no longer polled here: hyper-util moves it to a
            // separate task.
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
