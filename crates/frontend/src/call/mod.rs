//! One call on its way through the core, with the messages and the response for its client.

pub(crate) mod core_call;
pub(crate) mod input_rounds;
mod legacy_call;
pub(crate) mod subscription;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use fanlight_canonical::StreamSignal;
use fanlight_protocol::json::Chunks;
use fanlight_protocol::{Json, Response, RpcError};
use fanlight_telemetry::{ErrorType, Outcome, ServerSpan};
use tokio::sync::OwnedSemaphorePermit;

use crate::eras::render::Rendering;
use crate::trace::Ending;
pub(crate) use core_call::{CoreCall, DetachedCalls, RequestEnds};
pub(crate) use legacy_call::{LegacyCall, Noted};

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

/// A rendered response.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: Chunks,
    /// The error code, if the response is an error.
    pub(crate) error: Option<i64>,
    /// Ends the span of the request once the response has been sent.
    pub(crate) ending: Option<Box<Ending>>,
}

type Item = ResponseItem<Chunks, Answer>;

/// An admitted call, whose response `rendering` renders. It does nothing until it is polled.
pub(crate) struct RenderedCall {
    stream: Box<dyn ResponseStream<Response>>,
    pub(crate) rendering: Rendering,
    /// The request's span; `None` once it has ended.
    span: Option<ServerSpan>,
    /// Ends the span with the first message. A subscription lasts as long as its client likes, so
    /// its span ends with the acknowledgement.
    pub(crate) ends_span_at_message: bool,
    /// Must be held until the call has been answered.
    _permit: Option<OwnedSemaphorePermit>,
}

impl RenderedCall {
    pub(crate) fn new(
        stream: Box<dyn ResponseStream<Response>>,
        rendering: Rendering,
        span: ServerSpan,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            stream,
            rendering,
            span: Some(span),
            ends_span_at_message: false,
            _permit: permit,
        }
    }

    /// Gives up the call because of `error`; returns the request's id and the end of its span.
    pub(crate) fn refuse(self, error: &RpcError) -> (Json, Option<Box<Ending>>) {
        (
            self.rendering.id,
            self.span
                .map(|span| Box::new(Ending::for_refusal(span, error))),
        )
    }

    /// The next item; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl ResponseStream<Answer> for RenderedCall {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let Self {
            stream,
            rendering,
            span,
            ends_span_at_message,
            ..
        } = self;
        Poll::Ready(match ready!(stream.poll_next(cx)) {
            Some(ResponseItem::Message(text)) => {
                if let Some(span) = span.take_if(|_| *ends_span_at_message) {
                    span.finish(&Outcome::Finished);
                }
                Some(ResponseItem::Message(text))
            }
            Some(ResponseItem::Stream(signal)) => Some(ResponseItem::Stream(signal)),
            Some(ResponseItem::Response(response)) => {
                let whole = response.original_response().unwrap_or(&response);
                let ending = span
                    .take()
                    .map(|span| Box::new(Ending::for_answer(span, &rendering.method, whole)));
                Some(ResponseItem::Response(Answer {
                    text: rendering.message(&response),
                    error: response.error_code(),
                    ending,
                }))
            }
            None => {
                if let Some(span) = span.take() {
                    span.finish(&Outcome::failed(ErrorType::Cancelled));
                }
                None
            }
        })
    }
}

/// Several concurrent calls. The items of each call stay in order; the calls interleave.
#[derive(Default)]
pub(crate) struct Responses {
    /// Items to return before all others.
    first: VecDeque<Item>,
    calls: Vec<RenderedCall>,
}

impl From<RenderedCall> for Responses {
    fn from(call: RenderedCall) -> Self {
        Self {
            first: VecDeque::new(),
            calls: vec![call],
        }
    }
}

impl Responses {
    pub(crate) fn add(&mut self, call: RenderedCall) {
        self.calls.push(call);
    }

    /// Puts `item` before all others.
    pub(crate) fn put_first(&mut self, item: Item) {
        self.first.push_front(item);
    }

    /// The next item; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl ResponseStream<Answer> for Responses {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Some(item) = self.first.pop_front() {
            return Poll::Ready(Some(item));
        }
        let mut at = 0;
        while let Some(call) = self.calls.get_mut(at) {
            let item = match call.poll_next(cx) {
                Poll::Pending => {
                    at += 1;
                    continue;
                }
                Poll::Ready(item) => item,
            };
            if !matches!(
                item,
                Some(ResponseItem::Message(_) | ResponseItem::Stream(_))
            ) {
                drop(self.calls.swap_remove(at));
            }
            if item.is_some() {
                return Poll::Ready(item);
            }
        }
        if self.calls.is_empty() {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }
}
