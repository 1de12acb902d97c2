//! A modern client's call, which may be suspended. A legacy server may ask the client something
//! during the call. The modern client then gets an `input_required` result as the answer, and sends
//! the input in a new request. Between the two the call is *suspended*: it runs on and its messages
//! are read, but no request waits for its answer.
//!
//! docs/eras.md has the states of a suspended call. Source: 2026-07-28 basic/patterns/mrtr.

mod request_state;
mod table;
mod url_elicitation;

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanlight_canonical::{Decidable as _, Holder, ServerMessage, ServerRequest};
use fanlight_gateway::{Decided, Gateway, Operation};
use fanlight_protocol::{
    Chunks, Json, Method, MissingCapability, Notification, ObjectBuilder, Response, RpcError,
    can_be_asked, code, missing_capability_error,
};
use fanlight_telemetry::Parent;
use tokio::time::{Instant, Sleep, sleep};

use crate::call::{CoreCall, RequestEnds, ResponseItem, ResponseStream};
use crate::eras::notifications::NotificationFilter;
use crate::gates::Gates;
use request_state::{RequestDigest, SuspendedId, request_digest};
pub(crate) use table::{Found, Resumption, Retry, SuspendedCalls, WaitingCall, kept_elsewhere};

/// How long a call of a modern client waits for another server request after each, before it is suspended.
const COLLECT_REQUESTS: Duration = Duration::from_millis(20);

type Item = ResponseItem<Chunks, Response>;

/// A modern client's call; `None` once it is answered or suspended.
impl ResponseStream<Response> for Option<Box<SuspendableCall>> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        while let Some(call) = self {
            let next = match call.next_buffered() {
                Some(buffered) => Poll::Ready(Some(buffered)),
                None => call.running.poll_next(cx),
            };
            match next {
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Notification(
                    notification,
                )))) => {
                    let text = call
                        .filter
                        .as_ref()
                        .and_then(|filter| filter.translate(notification));
                    if let Some(text) = text {
                        return Poll::Ready(Some(ResponseItem::Message(text)));
                    }
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Request(request)))) => {
                    // If the call cannot be suspended, dropping the request tells the server that
                    // the client cannot be asked.
                    if call.may_need_input() {
                        call.add_server_request(request);
                        call.more = None;
                    }
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Refused(missing)))) => {
                    call.note_missing(missing);
                }
                Poll::Ready(Some(
                    ResponseItem::Message(
                        ServerMessage::Stream(_) | ServerMessage::TaskProgress(_),
                    )
                    | ResponseItem::Stream(_),
                )) => {}
                Poll::Ready(Some(ResponseItem::Response(response))) => {
                    let error = response.error().filter(|_| call.may_need_input());
                    let asked = error.and_then(|error| url_elicitation::ask(call, error));
                    let response = asked.unwrap_or_else(|| {
                        let response = call.explain_failure(response);
                        let suspended_calls = &call.suspended_calls;
                        suspended_calls.sealing_server_state(response, call.holder())
                    });
                    *self = None;
                    return Poll::Ready(Some(ResponseItem::Response(response)));
                }
                Poll::Ready(None) => *self = None,
                // A server that asks for several things sends one request after the other. The
                // client gets them together.
                Poll::Pending if call.has_server_requests() => {
                    ready!(
                        call.more
                            .get_or_insert_with(|| Box::pin(sleep(COLLECT_REQUESTS)))
                            .as_mut()
                            .poll(cx)
                    );
                    call.more = None;
                    match self.take().map(SuspendedCalls::suspend) {
                        Some(Ok(response)) => {
                            return Poll::Ready(Some(ResponseItem::Response(response)));
                        }
                        Some(Err(mut call)) => {
                            // The server learns that the client cannot be asked.
                            call.requests.clear();
                            *self = Some(call);
                        }
                        None => {}
                    }
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(None)
    }
}

/// A suspended call is cancelled this long before the first deadline of its server requests. Timers
/// are never this late.
const BEFORE_DEADLINE: Duration = Duration::from_millis(100);

/// The maximum length of a name in an operator's view, in characters.
const LONGEST_SHOWN: usize = 128;

/// The member of an error's `data` with the server's own answer.
const ANSWER_KEY: &str = "dev.fanlight/answer";

/// A call that is suspended when its server asks the client something.
pub(crate) struct SuspendableCall {
    running: CoreCall,
    /// The notifications that the client gets; `None` if it can get none.
    filter: Option<NotificationFilter>,
    suspended_calls: Arc<SuspendedCalls>,
    /// Runs while more server requests may follow.
    more: Option<Pin<Box<Sleep>>>,
    /// The input of the policy's decision when the call began; `None` if it is never suspended.
    decided: Option<Arc<Decided>>,
    /// The client's capabilities in its latest request; `None` while that is the first.
    capabilities: Option<Json>,
    /// The call's entry in the table, from its first suspension until it is dropped.
    entry: Option<(SuspendedId, Box<dyn Any + Send + Sync>)>,
    method: Method,
    params: Option<Json>,
    digest: Option<RequestDigest>,
    requests: Vec<OpenRequest>,
    /// The capabilities that the client lacked for the server's requests.
    missing: BTreeSet<MissingCapability>,
    /// The number of server requests so far, for their keys.
    asked: u64,
    /// Notifications that arrived during the suspension.
    notifications: VecDeque<Notification>,
    response: Option<Box<Response>>,
}

/// A server request without an answer of the client.
#[derive(Debug)]
struct OpenRequest {
    key: String,
    request: ServerRequest,
}

impl SuspendableCall {
    /// Starts `operation`, which the client has asked for with `params`; returns its stream.
    pub(crate) fn begin(
        suspended_calls: &Arc<SuspendedCalls>,
        core: &Arc<Gateway>,
        operation: Operation,
        params: Option<Json>,
        gates: Gates,
        filter: Option<NotificationFilter>,
        ends: RequestEnds,
    ) -> Box<dyn ResponseStream<Response>> {
        let method = operation.method().clone();
        // The answer carries the server request to the client, so no event stream is needed.
        let may_be_asked = method.may_need_input();
        let messages =
            (filter.is_some() || may_be_asked).then(|| suspended_calls.max_notifications());
        // Without this, the call is never suspended; nor is the call of a client that cannot be
        // asked.
        let may_be_suspended = may_be_asked && can_be_asked(&operation.context().capabilities);
        let decided = may_be_suspended.then(|| Arc::new(operation.decided()));
        let mut running = CoreCall::start(core, operation, gates, messages);
        running.set_ends(ends);
        Box::new(Some(Box::new(Self {
            running,
            filter,
            suspended_calls: Arc::clone(suspended_calls),
            more: None,
            decided,
            capabilities: None,
            entry: None,
            method,
            params,
            digest: None,
            requests: Vec::new(),
            missing: BTreeSet::new(),
            asked: 0,
            notifications: VecDeque::new(),
            response: None,
        })))
    }

    /// The stream of a suspended call for the request that resumes it. That request may have other
    /// capabilities, notifications and credentials, another id to cancel, and another span.
    pub(crate) fn resume(
        mut self: Box<Self>,
        capabilities: &Json,
        filter: Option<NotificationFilter>,
        ends: RequestEnds,
        span: Parent,
    ) -> Box<dyn ResponseStream<Response>> {
        self.capabilities = Some(capabilities.detached());
        self.filter = filter;
        self.running.set_ends(ends);
        self.running.set_answered_span(span);
        Box::new(Some(self))
    }

    /// The client's capabilities.
    fn capabilities(&self) -> &Json {
        self.capabilities
            .as_ref()
            .unwrap_or(&self.running.context().capabilities)
    }

    /// Adds a server request, unless the client cannot be asked.
    fn add_server_request(&mut self, request: ServerRequest) {
        let limit = self.suspended_calls.max_server_requests();
        let (method, params) = (&request.method, request.params.as_ref());
        let missing = MissingCapability::for_server_request(self.capabilities(), method, params);
        self.missing.extend(missing);
        let refusal = missing.map(MissingCapability::to_error).or_else(|| {
            let message = || format!("{method} does not exist in the client's protocol version");
            (!method.is_input_request()).then(|| RpcError::new(code::METHOD_NOT_FOUND, message()))
        });
        if let Some(error) = refusal {
            // An error means that the server no longer waits.
            let _ = request.answer.send(Response::from_error(&error));
        } else if self.requests.len() < limit {
            self.asked += 1;
            // Usually there is one, and it may be open for long.
            self.requests.reserve_exact(1);
            self.requests.push(OpenRequest {
                key: format!("input-{}", self.asked),
                request,
            });
        } else {
            tracing::warn!(
                limit,
                "server request refused: too many open requests in one call"
            );
        }
    }

    /// Notes that a server request was refused for lack of a client capability, if the client
    /// really lacks it. Fanlight may have withheld the capability from the server for another
    /// reason.
    fn note_missing(&mut self, missing: MissingCapability) {
        if !missing.capability.is_declared_in(self.capabilities()) {
            self.missing.insert(missing);
        }
    }

    /// The response to the client. If the call failed and the client lacked a capability for it,
    /// this is the error that says so, with the server's own answer inside (2026-07-28 basic/index,
    /// Error Codes).
    fn explain_failure(&self, response: Response) -> Response {
        if self.missing.is_empty() || !has_failed(&response) {
            return response;
        }
        let answer = ObjectBuilder::new()
            .member(
                if response.is_error() {
                    "error"
                } else {
                    "result"
                },
                &response.body(),
            )
            .finish();
        let missing: Vec<MissingCapability> = self.missing.iter().copied().collect();
        let error = missing_capability_error(&missing, &[(ANSWER_KEY, answer)]);
        error.map_or(response, |error| Response::from_error(&error))
    }

    /// Whether the server still waits for an answer to any request.
    fn has_server_requests(&mut self) -> bool {
        self.requests
            .retain(|open| !open.request.answer.is_closed());
        !self.requests.is_empty()
    }

    /// Whether the answer to the request may ask for input.
    fn may_need_input(&self) -> bool {
        self.method.may_need_input()
    }

    /// The client's principal and endpoint.
    fn holder(&self) -> &Holder {
        self.running.context().caller.holder()
    }

    /// The time to cancel the suspended call: `latest`, or shortly before the deadline of a server
    /// request. So the call cannot continue without the answer.
    fn deadline(&self, latest: Instant) -> Instant {
        let deadlines = self.requests.iter().map(|open| open.request.deadline);
        let first = deadlines
            .min()
            .and_then(|first| first.checked_sub(BEFORE_DEADLINE));
        first.map_or(latest, |first| first.min(latest))
    }

    /// The operators' view: the method, the named tool or prompt, and the methods of the server
    /// requests.
    fn view(&self) -> (String, Option<String>, Vec<String>) {
        let name = self
            .params
            .as_ref()
            .and_then(|params| params.text_at("name"));
        let name = name.map(|name| name.chars().take(LONGEST_SHOWN).collect());
        let asked = self
            .requests
            .iter()
            .map(|open| open.request.method.as_str().to_owned());
        (self.method.as_str().to_owned(), name, asked.collect())
    }

    /// Passes each answer to the server. Answers to no request are ignored (mrtr, Error Handling).
    fn answer(&mut self, answers: &[(String, Json)]) {
        for (key, result) in answers {
            if let Some(at) = self.requests.iter().position(|open| open.key == *key) {
                // An error means that the server no longer waits.
                let _ = self
                    .requests
                    .swap_remove(at)
                    .request
                    .answer
                    .send(Response::from_result(result));
            }
        }
        self.requests
            .sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
    }

    /// The next item that arrived during the suspension.
    fn next_buffered(&mut self) -> Option<ResponseItem<ServerMessage, Response>> {
        let notification = self
            .notifications
            .pop_front()
            .map(ServerMessage::Notification);
        let response = || {
            self.response
                .take()
                .map(|response| ResponseItem::Response(*response))
        };
        notification.map(ResponseItem::Message).or_else(response)
    }

    /// The digest of the client's request.
    fn digest(&mut self) -> RequestDigest {
        let (method, params) = (&self.method, self.params.as_ref());
        *self
            .digest
            .get_or_insert_with(|| request_digest(method, params))
    }

    /// Reads messages during the suspension and buffers some notifications. Ready if the call has
    /// been cancelled.
    fn poll_suspended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.suspended_calls.max_notifications();
        while self.response.is_none() {
            match ready!(self.running.poll_next(cx)) {
                Some(ResponseItem::Message(ServerMessage::Notification(notification))) => {
                    if self.notifications.len() < limit {
                        self.notifications.push_back(notification);
                    } else {
                        tracing::debug!(
                            limit,
                            "notification for a suspended call dropped: too many"
                        );
                    }
                }
                Some(ResponseItem::Message(ServerMessage::Request(request))) => {
                    self.add_server_request(request);
                }
                Some(ResponseItem::Message(ServerMessage::Refused(missing))) => {
                    self.note_missing(missing);
                }
                Some(
                    ResponseItem::Message(
                        ServerMessage::Stream(_) | ServerMessage::TaskProgress(_),
                    )
                    | ResponseItem::Stream(_),
                ) => {}
                Some(ResponseItem::Response(response)) => self.response = Some(Box::new(response)),
                None => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

/// Whether the server says that the request failed. The gateway's own errors have other causes than
/// missing capabilities.
fn has_failed(response: &Response) -> bool {
    match response.result() {
        Some(result) => result.flag("isError"),
        None => !matches!(
            response.error_code(),
            Some(code::BACKEND_UNAVAILABLE | code::BACKEND_TIMEOUT | code::NOT_AUTHENTICATED)
        ),
    }
}
