//! The state of a call that is or may be suspended.

use std::any::Any;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_canonical::{Holder, ServerMessage, ServerRequest};
use fanlight_gateway::Decided;
use fanlight_protocol::capability::{MissingCapability, missing_capability_error};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Notification, Response, RpcError, code};
use tokio::time::Instant;

use super::request_state::{RequestDigest, SuspendedId, request_digest};
use crate::call::{CoreCall, ResponseItem};

/// A suspended call is cancelled this long before the first deadline of its server requests. Timers
/// are never this late.
const BEFORE_DEADLINE: Duration = Duration::from_millis(100);

/// The maximum length of a name in an operator's view, in characters.
const LONGEST_SHOWN: usize = 128;

/// The member of an error's `data` with the server's own answer.
const ANSWER_KEY: &str = "dev.fanlight/answer";

/// A call and its server's requests to the client.
pub(crate) struct SuspendedCall {
    pub(super) running: CoreCall,
    /// The input of the policy's decision when the call began; `None` if it is never suspended.
    pub(super) decided: Option<Arc<Decided>>,
    /// The client's capabilities in its latest request; `None` while that is the first.
    capabilities: Option<Json>,
    /// The call's entry in the table, from its first suspension until it is dropped.
    pub(super) entry: Option<(SuspendedId, Box<dyn Any + Send + Sync>)>,
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
pub(super) struct OpenRequest {
    pub(super) key: String,
    pub(super) request: ServerRequest,
}

impl SuspendedCall {
    /// Creates the call; `running` is the call of `method` with `params`.
    pub(crate) fn new(
        running: CoreCall,
        method: Method,
        params: Option<Json>,
        decided: Option<Arc<Decided>>,
    ) -> Self {
        Self {
            running,
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
        }
    }

    /// The client's capabilities.
    pub(super) fn capabilities(&self) -> &Json {
        self.capabilities
            .as_ref()
            .unwrap_or(&self.running.context().capabilities)
    }

    /// Sets the client's capabilities from its latest request.
    pub(super) fn set_capabilities(&mut self, capabilities: Json) {
        self.capabilities = Some(capabilities.detached());
    }

    /// Adds a server request, unless the client cannot be asked.
    pub(super) fn add_server_request(&mut self, request: ServerRequest, limit: usize) {
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
    pub(super) fn note_missing(&mut self, missing: MissingCapability) {
        if !missing.capability.is_declared_in(self.capabilities()) {
            self.missing.insert(missing);
        }
    }

    /// The response to the client. If the call failed and the client lacked a capability for it,
    /// this is the error that says so, with the server's own answer inside (2026-07-28 basic/index,
    /// Error Codes).
    pub(super) fn explain_failure(&self, response: Response) -> Response {
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
    pub(super) fn has_server_requests(&mut self) -> bool {
        self.requests
            .retain(|open| !open.request.answer.is_closed());
        !self.requests.is_empty()
    }

    pub(super) fn server_requests(&self) -> &[OpenRequest] {
        &self.requests
    }

    /// Whether the answer to the request may ask for input.
    pub(super) fn may_need_input(&self) -> bool {
        self.method.may_need_input()
    }

    /// The client's principal and endpoint.
    pub(super) fn holder(&self) -> &Holder {
        self.running.context().caller.holder()
    }

    /// The time to cancel the suspended call: `latest`, or shortly before the deadline of a server
    /// request. So the call cannot continue without the answer.
    pub(super) fn deadline(&self, latest: Instant) -> Instant {
        let deadlines = self.requests.iter().map(|open| open.request.deadline);
        let first = deadlines
            .min()
            .and_then(|first| first.checked_sub(BEFORE_DEADLINE));
        first.map_or(latest, |first| first.min(latest))
    }

    /// The operators' view: the method, the named tool or prompt, and the methods of the server
    /// requests.
    pub(super) fn view(&self) -> (String, Option<String>, Vec<String>) {
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

    /// Drops the server requests. The server learns that the client cannot be asked.
    pub(super) fn refuse_server_requests(&mut self) {
        self.requests.clear();
    }

    /// Passes each answer to the server. Answers to no request are ignored (mrtr, Error Handling).
    pub(super) fn answer(&mut self, answers: &[(String, Json)]) {
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
    pub(super) fn next_buffered(&mut self) -> Option<ResponseItem<ServerMessage, Response>> {
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
    pub(super) fn digest(&mut self) -> RequestDigest {
        let (method, params) = (&self.method, self.params.as_ref());
        *self
            .digest
            .get_or_insert_with(|| request_digest(method, params))
    }

    /// Reads messages during the suspension and buffers up to `limit` notifications. Ready if the
    /// call has been cancelled.
    pub(super) fn poll_suspended(
        &mut self,
        limit: usize,
        max_requests: usize,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while self.response.is_none() {
            match std::task::ready!(self.running.poll_next(cx)) {
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
                    self.add_server_request(request, max_requests);
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
