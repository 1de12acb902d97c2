//! Tracks whether a connection carries a request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connections::{Endable, Usage, UsageKind};

/// The use of one connection.
#[derive(Debug)]
pub struct ConnectionUse {
    state: Mutex<State>,
    end: CancellationToken,
}

#[derive(Debug)]
struct State {
    requests: usize,
    has_served: bool,
    /// The time when the connection was accepted, or a request last began or ended.
    since: Instant,
}

impl ConnectionUse {
    /// The use of a newly accepted connection, which ends when `end` is cancelled.
    pub(crate) fn new(end: CancellationToken) -> Arc<Self> {
        let state = State {
            requests: 0,
            has_served: false,
            since: Instant::now(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            end,
        })
    }

    /// Records the arrival of a request. The request ends when the result is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> RequestUse {
        let mut state = self.state.lock();
        state.requests += 1;
        state.has_served = true;
        state.since = Instant::now();
        RequestUse(Arc::clone(self))
    }

    /// Cancelled when the connection must end.
    pub(crate) fn end_token(&self) -> &CancellationToken {
        &self.end
    }
}

impl Endable for ConnectionUse {
    fn usage(&self) -> Option<Usage> {
        let state = self.state.lock();
        let kind = match state.requests {
            0 if state.has_served => UsageKind::Idle,
            0 => UsageKind::Unused,
            _ => UsageKind::Works,
        };
        (!self.end.is_cancelled()).then_some(Usage {
            kind,
            since: state.since,
        })
    }

    fn end(&self) {
        self.end.cancel();
    }
}

/// A request without an answer yet.
#[derive(Debug)]
pub struct RequestUse(Arc<ConnectionUse>);

impl Drop for RequestUse {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.requests -= 1;
        state.since = Instant::now();
    }
}

/// A response body whose request does not end before the body is dropped.
#[derive(Debug)]
pub(crate) struct UsedBody<B> {
    body: B,
    _request: RequestUse,
}

impl<B> UsedBody<B> {
    /// `body` as the answer to a request.
    pub(crate) fn new(body: B, request: RequestUse) -> Self {
        Self {
            body,
            _request: request,
        }
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
