//! One request to a server and its reply, as all transports see them, and Fanlight's own few
//! messages.

pub(crate) mod deadline;
pub(crate) mod declared;
pub(crate) mod dialect;
pub(crate) mod server_request;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{BackendError, CallContext, RequestIds, ServerMessages, SessionAt};
use fanlight_protocol::json::{DEFAULT_NESTING, ObjectBuilder, SyntaxErrorKind};
use fanlight_protocol::message::{Sender, notification_text, without_mark};
use fanlight_protocol::{
    Json, Message, MessageError, Method, Request, Response, RpcError, code, partial,
};
use fanlight_telemetry::recording::fresh_number;
use fanlight_telemetry::{
    Arrival, BackendTelemetry, Carriers, ClientSpan, Departure, ErrorType, Moment, Outcome, Parent,
    Propagation, ServerSpan, Subject,
};
use http::header::HeaderValue;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::health::Health;
use crate::memory::ServerMemory;
use crate::outage::Outage;
use crate::process_log::ProcessLog;
use crate::settings::{BackendLimits, BackendTimeouts, OPEN_SERVER_REQUESTS};
use crate::subscriptions::UnsolicitedSender;
use deadline::PausableDeadline;
use declared::Declared;
use dialect::Mirror;
use server_request::ServerRequestLimits;

/// The most requests to the client that a legacy server may send during one call.
const CALL_SERVER_REQUESTS: usize = 1000;

/// The shared data of one connection's parts. One value serves all of them, since there is a
/// connection for each session and each suspended call.
pub(crate) struct TransportContext {
    backend: Arc<BackendContext>,
    /// The capabilities declared to a legacy server.
    pub(crate) declared: Arc<Declared>,
    /// Receives the server's messages outside of calls.
    pub(crate) outlet: UnsolicitedSender,
    /// Cancelled when the connection is given up for good.
    pub(crate) end: CancellationToken,
    /// The record of its session, if another process could continue that.
    pub(crate) kept: Option<SessionAt>,
    /// Ids for the requests of such a session; other sessions use the server's counter.
    pub(crate) own_ids: Option<RequestIds>,
    /// The number of the connection in recordings.
    pub(crate) number: u64,
}

/// State that all connections of one server share.
pub(crate) struct BackendContext {
    pub(crate) name: Arc<str>,
    pub(crate) limits: BackendLimits,
    pub(crate) timeouts: BackendTimeouts,
    /// Whether the server is known to open its stream outside of calls late.
    pub(crate) stream_is_late: AtomicBool,
    /// The last request id. Ids are never used twice on a connection, and progress tokens stay
    /// unique across reconnects.
    pub(crate) ids: AtomicI64,
    /// Whether the server still answers.
    pub(crate) health: Health,
    /// Log state for failed attempts to connect: of the base connection, and of client connections.
    pub(crate) outages: [Mutex<Outage>; 2],
    /// Output of its processes other than messages.
    pub(crate) process_log: Arc<ProcessLog>,
    /// The memory for the server's messages.
    pub(crate) memory: Arc<ServerMemory>,
    /// All tasks of the server, so that stopping can wait for them.
    pub(crate) tasks: TaskTracker,
    /// The attributes of the server's spans and counters.
    pub(crate) telemetry: BackendTelemetry,
    /// The parent of spans that belong to no request.
    pub(crate) root: Parent,
    /// Whether it matters which tools may safely be called twice.
    pub(crate) knows_safe: bool,
}

impl std::ops::Deref for TransportContext {
    type Target = BackendContext;

    fn deref(&self) -> &BackendContext {
        &self.backend
    }
}

impl TransportContext {
    /// The context of a connection that declares `declared`.
    pub(crate) fn new(
        backend: Arc<BackendContext>,
        declared: Arc<Declared>,
        outlet: UnsolicitedSender,
        end: CancellationToken,
        kept: Option<SessionAt>,
    ) -> Arc<Self> {
        let own_ids = kept.as_ref().map(SessionAt::request_ids);
        Arc::new(Self {
            backend,
            declared,
            outlet,
            end,
            kept,
            own_ids,
            number: fresh_number(),
        })
    }

    /// A new request id. It must not have been used before in the session (2025-11-25 basic/index,
    /// Requests).
    pub(crate) fn next_id(&self) -> i64 {
        self.own_ids.as_ref().map_or_else(
            || self.ids.fetch_add(1, Ordering::Relaxed),
            RequestIds::take,
        )
    }

    /// The number for a new exchange in the running recording; 0 if there is none.
    #[inline]
    pub(crate) fn recorded_exchange(&self) -> u64 {
        self.telemetry.tap().map_or(0, |tap| tap.exchange())
    }

    /// Limits for the server's requests during one call.
    pub(crate) fn server_request_limits(&self) -> ServerRequestLimits {
        ServerRequestLimits {
            answer: self.timeouts.question,
            open: OPEN_SERVER_REQUESTS,
            number: CALL_SERVER_REQUESTS,
            notices: !self.outlet.is_of_one_client(),
        }
    }
}

/// One request to be sent.
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) request: ActiveRequest<'a>,
    /// The task whose result the request waits for.
    pub(crate) task: Option<String>,
    /// The whole message.
    pub(crate) text: Bytes,
    /// The values of its HTTP headers; only for modern requests.
    pub(crate) mirror: Option<Mirror>,
    /// The trace context.
    pub(crate) propagation: Propagation,
}

/// The part of a request that is kept until its answer.
pub(crate) struct ActiveRequest<'a> {
    pub(crate) id: i64,
    /// The progress token: the request's id, or the id of an earlier request whose progress this
    /// one continues.
    pub(crate) token: i64,
    pub(crate) method: &'a Method,
    pub(crate) context: &'a Arc<CallContext>,
    pub(crate) messages: &'a ServerMessages,
    /// Paused while the server waits for the client.
    pub(crate) deadline: &'a Arc<PausableDeadline>,
    /// Whether dropping it sends a cancellation. `initialize` must not be cancelled (2025-11-25
    /// basic/utilities/cancellation), and an era probe need not be.
    pub(crate) cancellable: bool,
    /// The span.
    pub(crate) sending: &'a RequestSpan,
}

/// The context of Fanlight's own request: no client, and a receiver that discards messages.
pub(crate) struct OwnRequest {
    pub(crate) id: i64,
    pub(crate) context: Arc<CallContext>,
    messages: ServerMessages,
    deadline: Arc<PausableDeadline>,
}

impl OwnRequest {
    /// Creates a request with the next id; its span is a child of `within`.
    pub(crate) fn new(transport: &TransportContext, within: &Parent) -> Self {
        Self {
            id: transport.next_id(),
            context: CallContext::for_trace(within),
            messages: ServerMessages::discard(),
            deadline: Arc::default(),
        }
    }

    /// The part that is kept until its answer.
    pub(crate) fn active<'a>(
        &'a self,
        method: &'a Method,
        sending: &'a RequestSpan,
    ) -> ActiveRequest<'a> {
        let Self {
            id,
            context,
            messages,
            deadline,
        } = self;
        ActiveRequest {
            id: *id,
            token: *id,
            method,
            context,
            messages,
            deadline,
            cancellable: true,
            sending,
        }
    }
}

/// The outcome of a sent request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The answer to the request, error answers included.
    Answer {
        response: Response,
        /// The session that the server assigned; only set with the answer to `initialize`.
        session: Option<HeaderValue>,
    },
    /// A redirect within the server's origin: the request did not run, and is to be sent again.
    Redirected,
    /// An HTTP error status without an answer to the request, or with one whose cause may be the
    /// session.
    Rejected {
        status: u16,
        /// The body's JSON-RPC error object.
        error: Option<Json>,
        /// Signs that the server has forgotten the session.
        session: SessionSigns,
        /// The pause that the server asks for.
        pause: Option<Duration>,
    },
}

/// Signs that a server rejects the session of a request rather than the request itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionSigns {
    /// Whether the body's error has the request's id.
    pub(crate) answers: bool,
    /// Whether the body's text is about sessions.
    pub(crate) is_named: bool,
}

/// The outcome of a request in the form that its span records.
pub(crate) fn span_outcome(outcome: &Result<Reply, BackendError>) -> Result<&Response, ErrorType> {
    match outcome {
        Ok(Reply::Answer { response, .. }) => Ok(response),
        Ok(Reply::Rejected { status, .. }) => Err(ErrorType::HttpStatus(*status)),
        Ok(Reply::Redirected) => Err(ErrorType::HttpStatus(307)),
        Err(error) => Err(error.error_type()),
    }
}

/// The maximum number of messages that a server may send at once. A constant: `limits.message`
/// limits the bytes, and no real batch comes near.
const MOST_IN_BATCH: usize = 10_000;

/// The messages in one frame. `batches` says whether there may be several; some servers of every
/// revision send an answer in a batch. Invalid messages in a batch are left out.
pub(crate) fn messages(text: Bytes, batches: bool) -> Result<Messages, MessageError> {
    match Message::parse_for_forwarding(without_mark(text), DEFAULT_NESTING) {
        Ok(message) => Ok(Messages::One(Some(message))),
        Err(MessageError::Batch(text)) => {
            let batch =
                Message::parse_batch(text.clone(), DEFAULT_NESTING, MOST_IN_BATCH, Sender::Server)
                    .map_err(|error| MessageError::Invalid {
                        reason: error.to_string(),
                        id: None,
                    })?;
            let mut found: Vec<_> = batch.into_iter().flatten().collect();
            found.retain(|message| batches || matches!(message, Message::Response(_)));
            if found.is_empty() {
                return Err(MessageError::Batch(text));
            }
            Ok(Messages::Several(found.into_iter()))
        }
        Err(error) => Err(error),
    }
}

/// The iterator of [`messages`].
pub(crate) enum Messages {
    One(Option<Message>),
    Several(std::vec::IntoIter<Message>),
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        match self {
            Self::One(message) => message.take(),
            Self::Several(messages) => messages.next(),
        }
    }
}

/// The number of the request that an id names. Fanlight's ids are integers, but a server may return
/// one as a string or as `10.0`; the meaning is unambiguous.
pub(crate) fn request_number(id: &Json) -> Option<i64> {
    let text = id.as_str();
    let text = text.as_deref().unwrap_or_else(|| id.as_text());
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let (number, zeros) = text.split_once('.')?;
    let whole = !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0');
    if whole { number.parse().ok() } else { None }
}

/// The number of the request that an invalid message tried to answer. JSON that does not claim to
/// be a message, such as a line of a log, answers nothing, whatever its `id`.
pub(crate) fn meant_for(text: &[u8], error: &MessageError) -> Option<i64> {
    match error {
        MessageError::Invalid { id, .. } | MessageError::Confusable { id, .. } => {
            let claims = claims_to_be_message(text) || ends_as_message(text);
            id.as_ref().filter(|_| claims).and_then(request_number)
        }
        MessageError::Syntax(syntax)
            if syntax.kind == SyntaxErrorKind::Depth || claims_to_be_message(text) =>
        {
            partial::id_in_head(text).as_ref().and_then(request_number)
        }
        MessageError::Syntax(_) | MessageError::Batch(_) => None,
    }
}

/// The bytes at either end of a text in which it claims to be a message.
const CLAIM: usize = 4096;

fn claims_to_be_message(text: &[u8]) -> bool {
    let head = text.get(..CLAIM).unwrap_or(text);
    head.first() == Some(&b'{') && has_claim(head)
}

/// Like [`claims_to_be_message`], for a text that is complete.
fn ends_as_message(text: &[u8]) -> bool {
    has_claim(text.get(text.len().saturating_sub(CLAIM)..).unwrap_or(text))
}

fn has_claim(part: &[u8]) -> bool {
    part.windows(9).any(|window| window == b"\"jsonrpc\"")
}

/// The message that cancels a request at a server, with the params of the client.
pub(crate) fn cancelled_text(id: i64, context: &CallContext) -> Bytes {
    let request = context.request.as_ref();
    let given = request.and_then(|request| request.cancellation.get());
    let given =
        given.and_then(|params| Some(params.with(params.place("requestId")?, &Json::integer(id))));
    let params = given.unwrap_or_else(|| {
        ObjectBuilder::new()
            .integer("requestId", id)
            .string("reason", "the client waits no longer")
            .finish()
    });
    notification_text(Method::Cancelled.as_str(), Some(&params)).into_bytes()
}

/// The reply that refuses a server's request.
fn refusal_text(id: &Json, error: &RpcError) -> Bytes {
    Response::from_error(error)
        .to_message(id, Bytes::new())
        .into_bytes()
}

/// The error for a modern server's request (2026-07-28 basic/patterns/mrtr).
fn no_server_requests() -> RpcError {
    let message = "servers send no requests in this protocol version; answer with an \"input_required\" result";
    RpcError::new(code::INVALID_REQUEST, message)
}

/// The reply to a server's `ping`.
fn pong_text(id: &Json) -> Bytes {
    Response::from_result(&Json::empty_object())
        .to_message(id, Bytes::new())
        .into_bytes()
}

/// The span of a message that is being sent or waits for its answer.
pub(crate) struct RequestSpan {
    /// `None` once it has ended or was handed over.
    span: Option<ClientSpan>,
    /// The parent of further spans after the hand-over.
    parent: Parent,
    /// The deadline of its call.
    deadline: Option<Arc<PausableDeadline>>,
}

#[derive(Clone, Copy)]
pub(crate) struct SentMessage<'a> {
    pub(crate) method: &'a Method,
    pub(crate) params: Option<&'a Json>,
    /// The member of `params` that names its subject, if already known.
    pub(crate) name: Option<&'a Json>,
    pub(crate) id: i64,
    pub(crate) attempt: u32,
}

impl RequestSpan {
    /// Begins the span; also returns the trace context to send along.
    pub(crate) fn begin(
        telemetry: &BackendTelemetry,
        within: &Parent,
        message: SentMessage<'_>,
    ) -> (Self, Propagation) {
        let SentMessage {
            method,
            id,
            attempt,
            ..
        } = message;
        let subject = match message.name {
            Some(name) => Subject::from_members(method, |_| Some(name.value())),
            None => Subject::new(method, message.params),
        };
        let departure = Departure {
            method,
            target: subject.target(),
            id: Some(id.into()),
            attempt,
        };
        let span = within.client(telemetry, &departure);
        if let Some(params) = message.params {
            span.keep_params(method, params);
        }
        let propagation = span.propagation();
        (
            Self {
                span: Some(span),
                parent: Parent::default(),
                deadline: None,
            },
            propagation,
        )
    }

    /// Records a timeout if this is dropped after `deadline` has expired.
    pub(crate) fn timed_by(&mut self, deadline: &Arc<PausableDeadline>) {
        self.deadline = Some(Arc::clone(deadline));
    }

    pub(crate) fn span(&mut self) -> Option<&mut ClientSpan> {
        self.span.as_mut()
    }

    /// The parent of the spans of server requests during the call.
    pub(crate) fn parent(&self) -> Parent {
        self.span
            .as_ref()
            .map_or_else(|| self.parent.clone(), ClientSpan::parent)
    }

    /// Ends the span with the outcome of the request.
    pub(crate) fn end(&mut self, method: &Method, outcome: Result<&Response, ErrorType>) {
        let Some(span) = self.span.take() else { return };
        match outcome {
            Ok(response) => span.end_with_answer(method, response),
            Err(error) => span.finish(&Outcome::failed(error)),
        }
    }

    /// Ends the span without an error, whatever the answer was.
    pub(crate) fn end_without_error(&mut self) {
        if let Some(span) = self.span.take() {
            span.finish(&Outcome::Finished);
        }
    }

    /// Ends the span at the first of `messages`, which acknowledges the request. For requests that
    /// stay open as long as their client likes.
    pub(crate) fn until_acknowledged(
        mut self,
        messages: &ServerMessages,
    ) -> (Self, ServerMessages) {
        self.parent = self.parent();
        let span = Mutex::new(self.span.take());
        let messages = messages.with_map(move |message| {
            if let Some(span) = span.lock().take() {
                span.finish(&Outcome::Finished);
            }
            Some(message)
        });
        (self, messages)
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if self
            .deadline
            .as_ref()
            .is_some_and(|deadline| deadline.has_expired())
            && let Some(span) = self.span.take()
        {
            span.finish(&Outcome::failed(ErrorType::Timeout));
        }
    }
}

/// `params` with the trace context in their `_meta`.
pub(crate) fn params_with<'a>(
    propagation: &Propagation,
    params: Option<&'a Json>,
    over_http: bool,
) -> Option<Cow<'a, Json>> {
    if propagation.leaves_untouched() {
        return params.map(Cow::Borrowed);
    }
    let with = if over_http {
        propagation.within_http().into_params(params)
    } else {
        propagation.into_params(params)
    };
    with.map(Cow::Owned)
}

/// The span of a server request.
pub(crate) fn server_request_span(
    telemetry: &BackendTelemetry,
    within: &Parent,
    request: &Request,
) -> ServerSpan {
    let meta = request.param("_meta");
    let subject = Subject::new(&request.method, request.params.as_ref());
    let mut span = within.server(
        telemetry,
        &Arrival {
            method: &request.method,
            target: subject.target(),
            id: Some(&request.id),
            received: Moment::now(),
            carriers: Carriers {
                meta: meta.as_ref(),
                ..Carriers::default()
            },
        },
    );
    span.keep_content(&request.method, request.params.as_ref());
    span
}

/// Ends the span of a server request with its answer.
fn server_request_answered(span: ServerSpan, method: &Method, answer: &Response) {
    let verdict = span.verdict(method, answer);
    span.finish(&verdict.outcome());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_accepted_in_one_revision_and_answers_in_them_in_all() {
        const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        const NEWS: &str = r#"{"jsonrpc":"2.0","method":"n"}"#;
        let count =
            |batch: String, batches| messages(batch.into(), batches).ok().map(Iterator::count);
        for (batch, with, without) in [
            (format!("[{ANSWER},{NEWS}]"), Some(2), Some(1)),
            (format!("[7,{ANSWER},[]]"), Some(1), Some(1)),
            (format!("[{NEWS}]"), Some(1), None),
            ("[7]".into(), None, None),
            ("[]".into(), None, None),
            (format!("[{ANSWER}"), None, None),
        ] {
            assert_eq!(count(batch.clone(), true), with, "{batch}");
            assert_eq!(count(batch.clone(), false), without, "{batch}");
        }
    }

    #[test]
    fn only_a_text_that_claims_to_be_a_message_answers_a_request() {
        for (text, number) in [
            (r#"{"jsonrpc":"2.0","id":7}"#, Some(7)),
            (r#"{"id":7,"result":1,"error":2,"jsonrpc":"2.0"}"#, Some(7)),
            (r#"{"level":30,"id":7,"msg":"handling"}"#, None),
            (r#"{"id":7,"result":{},"status":200}"#, None),
        ] {
            let error = messages(Bytes::from_static(text.as_bytes()), false)
                .err()
                .unwrap();
            assert_eq!(meant_for(text.as_bytes(), &error), number, "{text}");
        }
        let marked = "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}";
        assert_eq!(messages(marked.into(), false).map(Iterator::count), Ok(1));
    }

    #[test]
    fn request_number_ignores_how_an_id_is_written() {
        for id in [
            "10",
            "\"10\"",
            "10.0",
            "10.00",
            r#""\u0031\u0030""#,
            "\"10.0\"",
        ] {
            assert_eq!(
                request_number(&Json::parse(id.into(), 1).unwrap()),
                Some(10),
                "{id}"
            );
        }
        for id in ["10.5", "1e1", "\"x\"", "\"\"", "null", "\"10.\"", "[10]"] {
            assert_eq!(
                request_number(&Json::parse(id.into(), 2).unwrap()),
                None,
                "{id}"
            );
        }
    }

    #[test]
    fn replies_keep_the_id_of_the_server() {
        let id = Json::literal(r#""a\u0041""#);
        assert_eq!(
            pong_text(&id),
            r#"{"jsonrpc":"2.0","id":"a\u0041","result":{}}"#
        );
        let refused = refusal_text(&id, &RpcError::new(-32601, "no"));
        assert_eq!(
            refused,
            r#"{"jsonrpc":"2.0","id":"a\u0041","error":{"code":-32601,"message":"no"}}"#
        );
    }
}
