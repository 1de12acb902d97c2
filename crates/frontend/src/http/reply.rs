//! Response bodies: one JSON text in the pieces it is made of, or a stream of events driven by the
//! connection that sends it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use fanlight_protocol::json::Chunks;
use fanlight_protocol::{Json, RpcError, code, sse};
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::{Metrics, ServerSpan};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use smallvec::smallvec;

use super::connection::ActiveRequest;
use super::events::{Endings, Next, Pieces};
use super::slots::Slot;
use super::stream::EventStream;
use crate::fault;
use crate::trace::Ending;

/// Bodies up to this size are sent in one piece: copying them costs less than the bookkeeping.
pub(super) const ONE_PIECE: usize = 8 << 10;
/// A map with room for more headers is not kept for the next request of a connection.
const SPARE: usize = 32;

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    form: Form,
    ready: Ready,
    stream: Option<Box<EventStream>>,
    /// Keeps the connection from being idle until this body is dropped.
    active: Option<ActiveRequest>,
    /// Its place among the streams, if it is one on which a client only listens.
    slot: Option<Slot>,
    /// Whether it is sent without hyper.
    bypasses_hyper: bool,
    /// The spans of what it answers.
    endings: Endings,
    /// What is counted of it.
    counters: Option<Arc<Metrics>>,
}

/// Pieces that are there to be taken; nearly always one.
type Ready = smallvec::IntoIter<[Bytes; 1]>;

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing.
    Empty,
    /// One JSON text.
    Json,
    /// An event stream.
    Events,
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<ReplyBody> {
    with_status(status, ReplyBody::of(Form::Empty, Pieces::new(), None))
}

/// A response with a JSON body.
pub(crate) fn json(status: StatusCode, text: Chunks) -> Response<ReplyBody> {
    let ready = if text.len() <= ONE_PIECE { smallvec![text.into_bytes()] } else { text.into_parts().collect() };
    with_status(status, ReplyBody::of(Form::Json, ready, None))
}

/// A response that is an event stream: first `events`, then what comes of `stream`. Without one it
/// just ends.
pub(crate) fn events(events: Pieces, stream: Option<EventStream>) -> Response<ReplyBody> {
    with_status(StatusCode::OK, ReplyBody::of(Form::Events, events, stream.map(Box::new)))
}

/// Writes the headers that go with the body. `spare` are those of the request, which nobody needs any
/// more: the HTTP library takes the map of a response for the head of the connection's next request,
/// and makes a new one if that has no room.
pub(crate) fn describe(response: &mut Response<ReplyBody>, mut spare: HeaderMap) {
    let form = response.body().form;
    // What lasts is not to hold more than it needs.
    if form != Form::Events && spare.capacity() <= SPARE {
        spare.clear();
        let own = std::mem::replace(response.headers_mut(), spare);
        if !own.is_empty() {
            response.headers_mut().extend(own);
        }
    }
    let headers = response.headers_mut();
    match form {
        Form::Empty => {}
        Form::Json => drop(headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"))),
        Form::Events => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(sse::CONTENT_TYPE));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // 2026-07-28 streamable-http, Receiving Messages: keeps nginx and its like from buffering.
            headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        }
    }
}

fn with_status(status: StatusCode, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

impl ReplyBody {
    fn of(form: Form, ready: Pieces, stream: Option<Box<EventStream>>) -> Self {
        Self {
            form,
            ready: ready.into_iter(),
            stream,
            active: None,
            slot: None,
            bypasses_hyper: false,
            endings: Endings::new(),
            counters: None,
        }
    }

    /// Lets a span end when the body has been sent, or given up.
    pub(crate) fn ends(&mut self, ending: Option<Box<Ending>>) {
        self.endings.extend(ending);
    }

    /// Has its bytes counted as they are taken.
    pub(crate) fn count(&mut self, counters: Option<&Arc<Metrics>>) {
        self.counters = counters.cloned();
    }

    /// Holds `active` until the body has been sent or dropped.
    pub(crate) fn hold_active(&mut self, active: ActiveRequest) {
        self.active = Some(active);
    }

    /// Whether it is a stream on which a client only listens.
    pub(crate) fn only_listens(&self) -> bool {
        self.slot.is_some() && self.stream.is_some()
    }

    /// Has the connection send it without hyper.
    pub(crate) fn bypass_hyper(&mut self) {
        self.bypasses_hyper = true;
    }

    /// Whether it is sent without hyper.
    pub(crate) fn bypasses_hyper(&self) -> bool {
        self.bypasses_hyper
    }

    /// Keeps `slot` until the body has been sent or given up.
    pub(crate) fn occupy(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.ready.next() {
                if let Some(counters) = &this.counters {
                    counters.client_bytes(Direction::Transmit, piece.len() as u64);
                }
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            // Whatever was there has been taken.
            this.endings.drain(..).for_each(|ending| ending.delivered());
            let Some(stream) = &mut this.stream else { return Poll::Ready(None) };
            match std::task::ready!(stream.poll_next(cx)) {
                Some(Next { pieces, endings }) => {
                    this.ready = pieces.into_iter();
                    this.endings = endings;
                }
                None => this.stream = None,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ready.as_slice().is_empty() && self.stream.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.stream {
            None => SizeHint::with_exact(self.ready.as_slice().iter().map(|piece| piece.len() as u64).sum()),
            Some(_) => SizeHint::default(),
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        // The last piece is taken without asking for more where the size is known.
        if self.is_end_stream() {
            self.endings.drain(..).for_each(|ending| ending.delivered());
        }
    }
}

/// A request that is refused on this side: the HTTP status and the JSON-RPC error that explains it.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: RpcError,
    id: Option<Json>,
    ending: Option<Box<Ending>>,
    allow: Option<&'static str>,
}

impl Refusal {
    /// A refusal that names no request, since none was read.
    pub(crate) fn new(status: StatusCode, error: RpcError) -> Box<Self> {
        Box::new(Self { status, error, id: None, ending: None, allow: None })
    }

    /// A refusal of what is no valid request, in words.
    pub(crate) fn invalid(status: StatusCode, message: impl Into<String>) -> Box<Self> {
        Self::new(status, RpcError::new(code::INVALID_REQUEST, message))
    }

    /// A refusal of an HTTP method where only those in `allow` are served.
    pub(crate) fn method(allow: &'static str) -> Box<Self> {
        let mut refusal =
            Self::invalid(StatusCode::METHOD_NOT_ALLOWED, format!("this HTTP method is not served here; {allow} are"));
        refusal.allow = Some(allow);
        refusal
    }

    /// The same refusal, naming the request.
    pub(crate) fn of(mut self: Box<Self>, id: &Json) -> Box<Self> {
        self.id = Some(id.clone());
        self
    }

    /// The same refusal, which ends the span of the request.
    pub(crate) fn ending(mut self: Box<Self>, span: ServerSpan) -> Box<Self> {
        self.ending = Some(Box::new(Ending::refused(span, &self.error)));
        self
    }

    /// The response to send.
    pub(crate) fn into_response(self) -> Response<ReplyBody> {
        let mut text = Chunks::default();
        text.push(fault::message(self.id.as_ref(), &self.error).into_bytes());
        let mut response = json(self.status, text);
        response.body_mut().ends(self.ending);
        if let Some(allow) = self.allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(parts: &[&'static str]) -> Chunks {
        let mut chunks = Chunks::default();
        for part in parts {
            chunks.push(Bytes::from_static(part.as_bytes()));
        }
        chunks
    }

    #[test]
    fn sizes_are_known_for_json_only() {
        let long: &'static str = "x".repeat(2 * ONE_PIECE).leak();
        let body = json(StatusCode::OK, chunks(&["[", long])).into_body();
        assert_eq!((body.ready.as_slice().len(), body.size_hint().exact()), (2, Some(long.len() as u64 + 1)));
        assert_eq!(json(StatusCode::OK, chunks(&["[", "]"])).into_body().ready.as_slice().len(), 1);
        assert_eq!(empty(StatusCode::ACCEPTED).into_body().size_hint().exact(), Some(0));
    }

    #[test]
    fn refusals_explain_themselves() {
        let response = Refusal::method("POST, DELETE").of(&Json::literal("7")).into_response();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[ALLOW], "POST, DELETE");
        let text = response.into_body().ready.next().unwrap();
        assert!(text.starts_with(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32600,"));
    }
}
