//! The forwarded answer of another replica. The next piece is requested when the one before has
//! been sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::forwarding::ForwardedBody;
use futures_util::future::BoxFuture;
use http_body::{Body as _, SizeHint};
use smallvec::smallvec;

use super::events::{Endings, EventBatch, Pieces};
use crate::trace::Ending;

/// Resolves when an answer must end early.
pub(super) type CutShort = BoxFuture<'static, ()>;

/// The body of another replica's answer.
pub(crate) struct PassedOn {
    body: ForwardedBody,
    /// The number of remaining bytes, if known.
    left: Option<u64>,
    /// The end of the request's span.
    ending: Option<Box<Ending>>,
    cut_short: CutShort,
}

impl PassedOn {
    /// Forwards `body` until `cut_short` resolves.
    pub(super) fn new(
        body: ForwardedBody,
        ending: Option<Box<Ending>>,
        cut_short: CutShort,
    ) -> Self {
        Self {
            left: body.size_hint().exact(),
            body,
            ending,
            cut_short,
        }
    }

    /// Whether the whole body has arrived.
    pub(super) fn is_over(&self) -> bool {
        self.left == Some(0) || self.body.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// The next piece; `None` at the end. A client notices a broken answer by its length, or by the
    /// missing response in a stream.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<EventBatch>> {
        if self.cut_short.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            let data = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame.into_data().ok(),
                Some(Err(error)) => {
                    tracing::debug!(%error, "answer broke off: the connection to the replica that gave it is lost");
                    return Poll::Ready(None);
                }
                None => return Poll::Ready(self.batch(Pieces::new(), true)),
            };
            if let Some(data) = data {
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                return Poll::Ready(self.batch(smallvec![data], self.is_over()));
            }
        }
    }

    fn batch(&mut self, pieces: Pieces, is_last: bool) -> Option<EventBatch> {
        let endings: Endings = self.ending.take_if(|_| is_last).into_iter().collect();
        let is_empty = pieces.is_empty() && endings.is_empty();
        (!is_empty).then_some(EventBatch { pieces, endings })
    }
}

fanlight_protocol::opaque!(PassedOn);
