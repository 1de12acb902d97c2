//! A modern client's call, which may be suspended. A legacy server may ask the client something
//! during the call. The modern client then gets an `input_required` result as the answer, and sends
//! the input in a new request. Between the two the call is *suspended*: it runs on and its messages
//! are read, but no request waits for its answer.
//!
//! docs/eras.md has the states of a suspended call. Source: 2026-07-28 basic/patterns/mrtr.

mod request_state;
mod store;
mod suspended_call;
mod table;
mod url_elicitation;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanlight_canonical::ServerMessage;
use fanlight_protocol::json::Chunks;
use fanlight_protocol::{Json, Response};
use fanlight_telemetry::Parent;
use tokio::time::{Sleep, sleep};

pub(crate) use self::store::kept_elsewhere;
pub(crate) use self::suspended_call::SuspendedCall;
pub(crate) use self::table::{Found, Resumption, Retry, SuspendedCalls, WaitingCall};
use crate::call::{RequestEnds, ResponseItem, ResponseStream};
use crate::eras::notifications::NotificationFilter;

/// How long a call of a modern client waits for another server request after each, before it is suspended.
const COLLECT_REQUESTS: Duration = Duration::from_millis(20);

type Item = ResponseItem<Chunks, Response>;

/// A call that is suspended when the server asks something.
pub(crate) struct SuspendableCall {
    /// `None` once the call is answered or suspended.
    call: Option<Box<SuspendedCall>>,
    /// The notifications that the client gets; `None` if it can get none.
    filter: Option<NotificationFilter>,
    suspended_calls: Arc<SuspendedCalls>,
    /// Runs while more server requests may follow.
    more: Option<Pin<Box<Sleep>>>,
}

impl SuspendableCall {
    pub(crate) fn new(
        call: SuspendedCall,
        filter: Option<NotificationFilter>,
        suspended_calls: Arc<SuspendedCalls>,
    ) -> Self {
        Self {
            call: Some(Box::new(call)),
            filter,
            suspended_calls,
            more: None,
        }
    }

    /// A call that a request resumes. That request may have other capabilities, notifications and
    /// credentials, another id to cancel, and another span.
    pub(crate) fn from_suspended(
        mut call: Box<SuspendedCall>,
        capabilities: Json,
        filter: Option<NotificationFilter>,
        ends: RequestEnds,
        span: Parent,
        suspended_calls: Arc<SuspendedCalls>,
    ) -> Self {
        call.set_capabilities(capabilities);
        call.running.set_ends(ends);
        call.running.set_answered_span(span);
        Self {
            call: Some(call),
            filter,
            suspended_calls,
            more: None,
        }
    }
}

impl ResponseStream<Response> for SuspendableCall {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            let Some(call) = &mut self.call else {
                return Poll::Ready(None);
            };
            let next = match call.next_buffered() {
                Some(buffered) => Poll::Ready(Some(buffered)),
                None => call.running.poll_next(cx),
            };
            match next {
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Notification(
                    notification,
                )))) => {
                    let text = self
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
                        call.add_server_request(
                            request,
                            self.suspended_calls.max_server_requests(),
                        );
                        self.more = None;
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
                    let asked = error
                        .and_then(|error| url_elicitation::ask(call, error, &self.suspended_calls));
                    let response = asked.unwrap_or_else(|| {
                        let response = call.explain_failure(response);
                        let suspended_calls = &self.suspended_calls;
                        suspended_calls.sealing_server_state(response, call.holder())
                    });
                    self.call = None;
                    return Poll::Ready(Some(ResponseItem::Response(response)));
                }
                Poll::Ready(None) => {
                    self.call = None;
                    return Poll::Ready(None);
                }
                // A server that asks for several things sends one request after the other. The
                // client gets them together.
                Poll::Pending if call.has_server_requests() => {
                    ready!(
                        self.more
                            .get_or_insert_with(|| Box::pin(sleep(COLLECT_REQUESTS)))
                            .as_mut()
                            .poll(cx)
                    );
                    self.more = None;
                    match self
                        .call
                        .take()
                        .map(|call| self.suspended_calls.suspend(call))
                    {
                        Some(Ok(response)) => {
                            return Poll::Ready(Some(ResponseItem::Response(response)));
                        }
                        Some(Err(mut call)) => {
                            call.refuse_server_requests();
                            self.call = Some(call);
                        }
                        None => {}
                    }
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
