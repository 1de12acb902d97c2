//! Response bodies: a JSON text in pieces, or a stream of events that its connection polls.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{Identity, Peer, SessionKey};
use fanlight_fair::Spent;
use fanlight_http::Rejection;
use fanlight_protocol::{Chunks, Json, RpcError, code, partial, sse};
use fanlight_telemetry::Metrics;
use fanlight_telemetry::metrics::Direction;
use fanlight_telemetry::recording::{Captured, Tap};
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use smallvec::smallvec;

use super::activity::ActiveRequest;
use super::events::listeners::StreamPermit;
use super::events::stream::EventStream;
use super::events::{Endings, EventBatch, ONE_PIECE, Pieces};
use super::http2::StreamWrites;
use super::limits::PIECE;
use super::recorded::RecordedStream;
use crate::call::RenderedCall;
use crate::call::core_call::{ValidityEnd, end_of};
use crate::eras::fault;
use crate::forwarding::ForwardedBody;
use crate::ingress::{self, Origin, Reason};
use crate::settings::ByteBudget;
use crate::trace::Ending;

/// A larger header map is not reused for a connection's next request.
const MAX_REUSED_HEADERS: usize = 32;

/// The retry time for a client that was refused because of load.
const RETRY_AFTER_SECONDS: &str = "1";

/// The outcome of a request.
pub(super) type Reply = Result<Response<ReplyBody>, Box<Refusal>>;

/// The body of a response.
pub(crate) struct ReplyBody {
    form: Form,
    ready: Ready,
    stream: Option<Stream>,
    /// Keeps the connection from being idle until this body is dropped.
    active: Option<ActiveRequest>,
    /// Counts a listen-only stream against the limit of streams.
    permit: Option<StreamPermit>,
    /// Ends a listen-only stream with its client's credentials, if the client is authenticated.
    validity: Option<ValidityEnd>,
    /// Whether it bypasses hyper.
    pub(crate) bypasses_hyper: bool,
    /// The ends of the spans of answered requests.
    endings: Endings,
    /// Counts the sent bytes.
    counters: Option<Arc<Metrics>>,
    /// The rest of a partly sent piece; only on HTTP/2.
    rest: Bytes,
    /// Watches the writes of an HTTP/2 stream.
    pub(crate) writes: Option<StreamWrites>,
    /// The session that the response opens.
    pub(crate) opens: Option<SessionKey>,
    /// Gives the events of a stream to a recording.
    recorded: Option<Box<RecordedStream>>,
    /// Counts the bytes that a stream buffers for a slow client.
    memory: Option<Box<AnswerMemory>>,
}

/// The source of further pieces.
enum Stream {
    Events(Box<EventStream>),
    /// The answer of another replica.
    PassedOn(Box<PassedOn>),
}

impl Stream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<EventBatch>> {
        match self {
            Self::Events(events) => events.poll_next(cx),
            Self::PassedOn(answer) => answer.poll_next(cx),
        }
    }

    /// Whether certainly nothing more follows.
    fn is_over(&self) -> bool {
        match self {
            Self::Events(_) => false,
            Self::PassedOn(answer) => answer.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Events(_) => SizeHint::default(),
            Self::PassedOn(answer) => answer.size_hint(),
        }
    }
}

/// The memory for answers, and the client whose share is used.
#[derive(Debug)]
struct AnswerMemory {
    budget: ByteBudget,
    peer: Peer,
}

impl AnswerMemory {
    /// Counts the pieces until they have been sent.
    fn count(&self, pieces: impl Iterator<Item = Bytes>) -> Result<Ready, Spent> {
        let count = |piece: Bytes| {
            if piece.len() <= UNCOUNTED_ANSWER {
                return Ok(piece);
            }
            Ok(self.budget.reserve(&self.peer, piece.len())?.hold(piece))
        };
        Ok(pieces
            .map(count)
            .collect::<Result<Pieces, Spent>>()?
            .into_iter())
    }
}

/// Pieces up to this size are not counted.
const UNCOUNTED_ANSWER: usize = 64 << 10;

/// Pieces that are ready to be sent; usually one.
type Ready = smallvec::IntoIter<[Bytes; 1]>;

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing.
    Empty,
    /// One JSON text.
    Json,
    /// An HTML page.
    Page,
    /// An event stream.
    Events,
    /// Another replica's answer with its own header fields.
    PassedOn,
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<ReplyBody> {
    with_status(status, ReplyBody::new(Form::Empty, Pieces::new(), None))
}

pub(crate) fn json(status: StatusCode, text: Chunks) -> Response<ReplyBody> {
    let ready = if text.len() <= ONE_PIECE {
        smallvec![text.into_bytes()]
    } else {
        text.into_parts().collect()
    };
    with_status(status, ReplyBody::new(Form::Json, ready, None))
}

pub(crate) fn page(status: StatusCode, html: Bytes) -> Response<ReplyBody> {
    with_status(status, ReplyBody::new(Form::Page, smallvec![html], None))
}

/// A response with an event stream: first `events`, then the events of `stream`, if there is one.
pub(crate) fn events(events: Pieces, stream: Option<EventStream>) -> Response<ReplyBody> {
    with_status(
        StatusCode::OK,
        ReplyBody::new(
            Form::Events,
            events,
            stream.map(|stream| Stream::Events(Box::new(stream))),
        ),
    )
}

/// Another replica's answer; its body follows.
pub(super) fn passed_on(head: http::response::Parts, body: PassedOn) -> Response<ReplyBody> {
    let body = ReplyBody::new(
        Form::PassedOn,
        Pieces::new(),
        Some(Stream::PassedOn(Box::new(body))),
    );
    let mut response = with_status(head.status, body);
    *response.headers_mut() = head.headers;
    response
}

/// Writes the headers that belong to the body. The response reuses `spare`, the request's header
/// map. hyper in turn reuses the response's map for the head of the connection's next request,
/// unless its capacity is too small.
pub(crate) fn describe(response: &mut Response<ReplyBody>, mut spare: HeaderMap) {
    let form = response.body().form;
    // A stream lasts long, and would keep the map's memory.
    if !matches!(form, Form::Events | Form::PassedOn) && spare.capacity() <= MAX_REUSED_HEADERS {
        spare.clear();
        let own = std::mem::replace(response.headers_mut(), spare);
        if !own.is_empty() {
            response.headers_mut().extend(own);
        }
    }
    let headers = response.headers_mut();
    match form {
        Form::Empty | Form::PassedOn => {}
        Form::Json => {
            drop(headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        Form::Page => drop(headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        )),
        Form::Events => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(sse::CONTENT_TYPE));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // 2026-07-28 streamable-http, Receiving Messages: keeps nginx and similar proxies from
            // buffering.
            headers.insert(
                HeaderName::from_static("x-accel-buffering"),
                HeaderValue::from_static("no"),
            );
        }
    }
}

fn with_status(status: StatusCode, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

impl ReplyBody {
    fn new(form: Form, ready: Pieces, stream: Option<Stream>) -> Self {
        Self {
            form,
            ready: ready.into_iter(),
            stream,
            active: None,
            permit: None,
            validity: None,
            bypasses_hyper: false,
            endings: Endings::new(),
            counters: None,
            rest: Bytes::new(),
            writes: None,
            opens: None,
            recorded: None,
            memory: None,
        }
    }

    /// Ends a span once the body has been sent or dropped.
    pub(crate) fn ends(&mut self, ending: Option<Box<Ending>>) {
        self.endings.extend(ending);
    }

    /// Whether this is an event stream of this process that goes on.
    pub(super) fn is_event_stream(&self) -> bool {
        matches!(self.stream, Some(Stream::Events(_)))
    }

    /// Gives the body, with the facts in `message`, to the recording, if there is one. The answer
    /// of another replica is in that replica's recording.
    pub(super) fn record(&mut self, tap: &Arc<Tap>, mut message: Captured) {
        let opened = self.opens.map(|session| session.0);
        message.session = message.session.or(opened);
        match self.form {
            Form::Json => {
                message.text = self.ready.as_slice().to_vec();
                tap.capture(|| message);
            }
            Form::Events => {
                let stream = RecordedStream::new(tap, message);
                stream.record(self.ready.as_slice());
                self.recorded = self.stream.is_some().then(|| Box::new(stream));
            }
            Form::Empty | Form::Page | Form::PassedOn => {}
        }
    }

    /// Counts the bytes as they are sent.
    pub(crate) fn count(&mut self, counters: Option<&Arc<Metrics>>) {
        self.counters = counters.cloned();
    }

    /// Holds `active` until the body has been sent or dropped.
    pub(crate) fn hold_active(&mut self, mut active: ActiveRequest) {
        if self.only_listens() {
            active.listen();
        }
        self.active = Some(active);
    }

    /// Whether this is a listen-only stream.
    pub(crate) fn only_listens(&self) -> bool {
        self.permit.is_some() && self.stream.is_some()
    }

    /// Counts the bytes that the body buffers, now and later, for a slow client.
    pub(crate) fn count_memory(
        &mut self,
        budget: &ByteBudget,
        origin: &Origin<'_>,
    ) -> Result<(), Spent> {
        let is_large = self
            .ready
            .as_slice()
            .iter()
            .any(|piece| piece.len() > UNCOUNTED_ANSWER);
        if !is_large && self.stream.is_none() {
            return Ok(());
        }
        let memory = AnswerMemory {
            budget: budget.clone(),
            peer: origin.peer(),
        };
        if is_large {
            self.ready = memory.count(self.ready.clone())?;
        }
        self.memory = self.stream.is_some().then(|| Box::new(memory));
        Ok(())
    }

    /// The id of the answered request, if the body is one JSON text.
    pub(crate) fn id(&self) -> Option<Json> {
        const HEAD: usize = 1 << 10;
        if self.form != Form::Json {
            return None;
        }
        let pieces = self.ready.as_slice().iter();
        let head: Vec<u8> = pieces
            .flat_map(|piece| piece.get(..HEAD).unwrap_or(piece))
            .take(HEAD)
            .copied()
            .collect();
        partial::id_in_head(&head)
    }

    /// The next ready piece. An HTTP/2 stream gets only a part of a long one.
    fn next_piece(&mut self) -> Option<Bytes> {
        let Some(writes) = &self.writes else {
            return self.ready.next();
        };
        let mut piece = std::mem::take(&mut self.rest);
        if piece.is_empty() {
            piece = self.ready.next()?;
        }
        if piece.len() > PIECE {
            self.rest = piece.split_off(PIECE);
        }
        Some(writes.give(piece))
    }

    /// Makes this a listen-only stream of `identity` that holds `permit` until the body has been
    /// sent or dropped.
    pub(crate) fn listen(&mut self, permit: StreamPermit, identity: &Identity) {
        self.permit = Some(permit);
        self.validity = end_of(identity, Duration::ZERO);
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if let Some(writes) = &this.writes {
            writes.asked_for_more();
        }
        loop {
            if let Some(piece) = this.next_piece() {
                if let Some(counters) = &this.counters {
                    counters.client_bytes(Direction::Transmit, piece.len() as u64);
                }
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            // All ready pieces have been sent.
            this.endings.drain(..).for_each(|ending| ending.finish());
            let Some(stream) = &mut this.stream else {
                return Poll::Ready(None);
            };
            if let Some(Poll::Ready(ended)) = this
                .validity
                .as_mut()
                .map(|validity| validity.as_mut().poll(cx))
            {
                tracing::debug!(
                    ?ended,
                    "listen-only stream ended: its credentials are not valid any more"
                );
                (this.stream, this.validity) = (None, None);
                return Poll::Ready(None);
            }
            let next = match stream.poll_next(cx) {
                Poll::Ready(next) => next,
                // The stream must end to make room for another client.
                Poll::Pending
                    if this
                        .permit
                        .as_mut()
                        .is_some_and(|permit| permit.poll_end(cx).is_ready()) =>
                {
                    None
                }
                Poll::Pending => return Poll::Pending,
            };
            match next {
                Some(EventBatch { pieces, endings }) => {
                    this.endings = endings;
                    if let Some(recorded) = &this.recorded {
                        recorded.record(&pieces);
                    }
                    this.ready = match &this.memory {
                        None => pieces.into_iter(),
                        Some(memory) => match memory.count(pieces.into_iter()) {
                            Ok(ready) => ready,
                            Err(Spent) => {
                                tracing::warn!(peer = ?memory.peer, "event stream ended: too many bytes wait for clients that read slowly (half of limits.memory)");
                                this.stream = None;
                                return Poll::Ready(None);
                            }
                        },
                    };
                }
                None => this.stream = None,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
            && self.ready.as_slice().is_empty()
            && self.stream.as_ref().is_none_or(Stream::is_over)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.stream {
            None => SizeHint::with_exact(
                self.ready
                    .as_slice()
                    .iter()
                    .chain([&self.rest])
                    .map(|piece| piece.len() as u64)
                    .sum(),
            ),
            Some(stream) => stream.size_hint(),
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        // hyper does not poll again after the last piece of a body with a known size.
        if self.is_end_stream() {
            self.endings.drain(..).for_each(|ending| ending.finish());
        }
    }
}

/// A refused request: the HTTP status, and the JSON-RPC error as an explanation.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: RpcError,
    pub(crate) id: Option<Json>,
    pub(crate) ending: Option<Box<Ending>>,
    allow: Option<&'static str>,
    /// All required scopes, if the client lacks any of them.
    pub(crate) required_scopes: Option<Box<[Arc<str>]>>,
    /// The time after which the client may retry.
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal without a request id, which was not read.
    pub(crate) fn new(status: StatusCode, error: RpcError) -> Box<Self> {
        Box::new(Self {
            status,
            error,
            id: None,
            ending: None,
            allow: None,
            required_scopes: None,
            retry_after: None,
        })
    }

    /// A refusal of an invalid request.
    pub(crate) fn invalid(status: StatusCode, message: impl Into<String>) -> Box<Self> {
        Self::new(status, RpcError::new(code::INVALID_REQUEST, message))
    }

    /// A refusal because memory or another resource is in use.
    pub(crate) fn busy(message: impl Into<String>) -> Box<Self> {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            RpcError::new(code::INTERNAL, message),
        )
    }

    /// A refusal of an HTTP method; `allow` lists the served ones.
    pub(crate) fn method(allow: &'static str) -> Box<Self> {
        let mut refusal = Self::invalid(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("this HTTP method is not served here; {allow} are"),
        );
        refusal.allow = Some(allow);
        refusal
    }

    /// Adds the id of the request, if known.
    pub(crate) fn with_request_id(mut self: Box<Self>, id: Option<Json>) -> Box<Self> {
        self.id = id;
        self
    }

    /// Adds the id and the span of a call that has been started.
    pub(crate) fn with_call(mut self: Box<Self>, call: RenderedCall) -> Box<Self> {
        let (id, ending) = call.refuse(&self.error);
        (self.id, self.ending) = (Some(id), ending);
        self
    }

    /// The explanation.
    pub(crate) fn message(&self) -> &str {
        &self.error.message
    }

    pub(crate) fn into_response(self) -> Response<ReplyBody> {
        let mut text = Chunks::default();
        text.push(fault::message(self.id.as_ref(), &self.error).into_bytes());
        let mut response = json(self.status, text);
        response.body_mut().ends(self.ending);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if let Some(retry_after) = self.retry_after {
            response
                .headers_mut()
                .insert(RETRY_AFTER, whole_seconds(retry_after).into());
        }
        if let Some(allow) = self.allow {
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

/// Whole seconds, rounded up, at least one.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

impl From<Box<ingress::Refusal>> for Box<Refusal> {
    fn from(refusal: Box<ingress::Refusal>) -> Self {
        let ingress::Refusal {
            reason,
            error,
            id,
            ending,
            required_scopes,
            retry_after,
            gate: _,
            kept_by: _,
        } = *refusal;
        let status = match reason {
            Reason::Malformed if error.code == code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            Reason::Malformed => StatusCode::BAD_REQUEST,
            Reason::Params => StatusCode::OK,
            Reason::UnknownSession => StatusCode::NOT_FOUND,
            Reason::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Scopes => StatusCode::FORBIDDEN,
            Reason::TooMany => StatusCode::TOO_MANY_REQUESTS,
        };
        Self::new(Refusal {
            status,
            error,
            id,
            ending,
            allow: None,
            required_scopes,
            retry_after,
        })
    }
}

impl From<Rejection> for Box<Refusal> {
    fn from(rejection: Rejection) -> Self {
        Refusal::invalid(rejection.status(), rejection.to_string())
    }
}

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
    fn is_over(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_never_too_early() {
        let seconds =
            [0, 1, 999, 1000, 1001].map(|millis| whole_seconds(Duration::from_millis(millis)));
        assert_eq!(seconds, [1, 1, 1, 1, 2]);
    }

    fn chunks(parts: &[&'static str]) -> Chunks {
        let mut chunks = Chunks::default();
        for part in parts {
            chunks.push(Bytes::from_static(part.as_bytes()));
        }
        chunks
    }

    #[test]
    fn body_size_is_known_for_json_only() {
        let long: &'static str = "x".repeat(2 * ONE_PIECE).leak();
        let body = json(StatusCode::OK, chunks(&["[", long])).into_body();
        assert_eq!(
            (body.ready.as_slice().len(), body.size_hint().exact()),
            (2, Some(long.len() as u64 + 1))
        );
        assert_eq!(
            json(StatusCode::OK, chunks(&["[", "]"]))
                .into_body()
                .ready
                .as_slice()
                .len(),
            1
        );
        assert_eq!(
            empty(StatusCode::ACCEPTED).into_body().size_hint().exact(),
            Some(0)
        );
    }

    #[test]
    fn refusal_names_the_allowed_methods() {
        let response = Refusal::method("POST, DELETE").into_response();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[ALLOW], "POST, DELETE");
        let text = response.into_body().ready.next().unwrap();
        assert!(text.starts_with(b"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32600,"));
    }
}
