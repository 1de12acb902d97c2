//! A modern client's call. The server behind it may be a legacy one and ask the client something while
//! the call runs. A modern client is asked by the answer to its call, an `input_required` result, and
//! brings the input in a new request. Between the two the call is *suspended*: it runs and its messages
//! are read, but no request waits for its answer.
//!
//! docs/eras.md has the states of a suspended call. Source: 2026-07-28 basic/patterns/mrtr.

mod request_state;
mod store;
mod suspended_call;
mod table;
mod url_elicitation;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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

type Item = ResponseItem<Chunks, Response>;

/// A call that can be suspended when the server asks something.
#[derive(Debug)]
pub(crate) struct SuspendableCall {
    stage: Stage,
    /// The notifications that the client gets; `None` if it can get none.
    filter: Option<NotificationFilter>,
    suspended_calls: Arc<SuspendedCalls>,
    /// Runs while more server requests may follow.
    more: Option<Pin<Box<Sleep>>>,
}

/// What has become of a call.
enum Stage {
    Running(Box<SuspendedCall>),
    /// It is being suspended.
    Suspending(Pin<Box<dyn Future<Output = Result<Response, Box<SuspendedCall>>> + Send>>),
    /// It is answered or suspended.
    Over,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(call) => f.debug_tuple("Running").field(call).finish(),
            Self::Suspending(_) => f.write_str("Suspending"),
            Self::Over => f.write_str("Over"),
        }
    }
}

impl SuspendableCall {
    /// A call that begins.
    pub(crate) fn new(
        call: SuspendedCall,
        filter: Option<NotificationFilter>,
        suspended_calls: Arc<SuspendedCalls>,
    ) -> Self {
        Self {
            stage: Stage::Running(Box::new(call)),
            filter,
            suspended_calls,
            more: None,
        }
    }

    /// A call that is resumed by a request, which may have other capabilities, want other
    /// notifications, be cancelled by another id, have newer credentials, and has another span.
    pub(crate) fn resumed(
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
            stage: Stage::Running(call),
            filter,
            suspended_calls,
            more: None,
        }
    }

    /// Begins to suspend the call.
    fn suspend(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Running(call) => {
                Stage::Suspending(Box::pin(Arc::clone(&self.suspended_calls).suspend(call)))
            }
            other => other,
        };
    }
}

impl Stage {
    /// The call runs on, and its server has got an error for each of its requests.
    fn refusing(mut call: Box<SuspendedCall>) -> Self {
        call.refuse_server_requests();
        Self::Running(call)
    }
}

impl ResponseStream<Response> for SuspendableCall {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            let call = match &mut self.stage {
                Stage::Running(call) => call,
                Stage::Suspending(suspended) => match ready!(suspended.as_mut().poll(cx)) {
                    Ok(response) => {
                        self.stage = Stage::Over;
                        return Poll::Ready(Some(ResponseItem::Response(response)));
                    }
                    Err(call) => {
                        self.stage = Stage::refusing(call);
                        continue;
                    }
                },
                Stage::Over => return Poll::Ready(None),
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
                    // If the call cannot be suspended, dropping the request tells the server that the
                    // client cannot be asked.
                    if call.may_need_input() {
                        call.add_server_request(
                            request,
                            self.suspended_calls.max_server_requests(),
                        );
                        self.more = None;
                    }
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Refused(missing)))) => {
                    call.note_missing(missing)
                }
                Poll::Ready(Some(
                    ResponseItem::Message(
                        ServerMessage::Stream(_) | ServerMessage::TaskProgress(_),
                    )
                    | ResponseItem::Stream(_),
                )) => {}
                Poll::Ready(Some(ResponseItem::Response(response))) => {
                    let response =
                        url_elicitation::final_response(call, response, &self.suspended_calls);
                    self.stage = Stage::Over;
                    return Poll::Ready(Some(ResponseItem::Response(response)));
                }
                Poll::Ready(None) => {
                    self.stage = Stage::Over;
                    return Poll::Ready(None);
                }
                // Server requests that are sent together reach the client together: a server that asks for several
                // things at once sends them one after the other.
                Poll::Pending if call.has_server_requests() => {
                    let pause = self.suspended_calls.collect_requests();
                    ready!(
                        self.more
                            .get_or_insert_with(|| Box::pin(sleep(pause)))
                            .as_mut()
                            .poll(cx)
                    );
                    self.more = None;
                    self.suspend();
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
