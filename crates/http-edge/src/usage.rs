//! Whether a connection carries a request.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connections::{Endable, Idle};

/// The use of one connection.
#[derive(Debug)]
pub struct ConnectionUse {
    state: Mutex<State>,
    end: CancellationToken,
}

#[derive(Debug)]
struct State {
    requests: usize,
    idle: Idle,
}

impl ConnectionUse {
    /// Of a connection that has just been accepted and ends when `end` is cancelled.
    pub(crate) fn new(end: CancellationToken) -> Arc<Self> {
        let idle = Idle { has_served: false, since: Instant::now() };
        Arc::new(Self { state: Mutex::new(State { requests: 0, idle }), end })
    }

    /// Records that a request has arrived. It ends when the result is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> RequestUse {
        let mut state = self.state();
        state.requests += 1;
        state.idle.has_served = true;
        RequestUse(Arc::clone(self))
    }

    /// Cancelled when the connection is to end.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.end
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endable for ConnectionUse {
    fn idle(&self) -> Option<Idle> {
        let state = self.state();
        (state.requests == 0 && !self.end.is_cancelled()).then_some(state.idle)
    }

    fn end(&self) {
        self.end.cancel();
    }
}

/// A request that has not been answered yet.
#[derive(Debug)]
pub struct RequestUse(Arc<ConnectionUse>);

impl Drop for RequestUse {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.idle.since = Instant::now();
    }
}

/// A response body that keeps its request from ending until it is dropped.
#[derive(Debug)]
pub(crate) struct UsedBody<B> {
    body: B,
    _request: RequestUse,
}

impl<B> UsedBody<B> {
    /// `body` as the answer to a request.
    pub(crate) fn new(body: B, request: RequestUse) -> Self {
        Self { body, _request: request }
    }
}

impl<B: Body + Unpin> Body for UsedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
