//! One call on its way through the core, with the messages and the response for its client.

pub(crate) mod core_call;
pub(crate) mod input_rounds;
mod legacy_call;
mod rendered;
pub(crate) mod subscription;

use std::task::{Context, Poll};

use fanlight_canonical::StreamSignal;
use fanlight_protocol::Response;
use fanlight_protocol::json::Chunks;

pub(crate) use self::core_call::{Admitted, CoreCall, RequestEnds};
pub(crate) use self::legacy_call::{LegacyCall, Noted};
pub(crate) use self::rendered::{Answer, RenderedCall, Responses};
pub(crate) use core_call::DetachedCalls;

/// The items of a response stream, in order. `M` is the type of messages before the response, `R`
/// the type of the response.
#[derive(Debug)]
pub(crate) enum ResponseItem<M, R> {
    /// A notification, or a server's request to the client.
    Message(M),
    /// The server's stream has begun or pauses; the client's stream may do the same.
    Stream(StreamSignal),
    /// The response. Nothing follows it.
    Response(R),
}

/// The items of a response stream up to the response, rendered for the client.
pub(crate) trait ResponseStream<R>: Send {
    /// The next item; `None` after the response. Also `None` instead of the response if the request
    /// was cancelled: "the receiver SHOULD NOT send a response" (2025-11-25
    /// basic/utilities/cancellation).
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ResponseItem<Chunks, R>>>;
}

/// The response to a request that the gateway answers without the core.
#[derive(Debug)]
pub(crate) struct Answered(Option<Response>);

impl Answered {
    pub(crate) fn new(response: Response) -> Self {
        Self(Some(response))
    }
}

impl ResponseStream<Response> for Answered {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<ResponseItem<Chunks, Response>>> {
        Poll::Ready(self.0.take().map(ResponseItem::Response))
    }
}
