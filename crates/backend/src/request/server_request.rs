//! Requests of a legacy server to the client (elicitation, sampling, roots) that are pending while a call runs.
//!
//! They belong to the future of the call. If that is dropped, so are they, which closes [`ServerRequest::answer`] for the
//! client edge, and the server gets an error. If the server ends the call before they are answered, the client may still
//! answer: whether it can is for the client edge to say. In every case the server gets a reply.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::{Json, Method, Notification, Request, Response, RpcError, code};
use fanlight_telemetry::{ErrorType, Outcome, ServerSpan};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::deadline::{PausableDeadline, Pause, PauseLimits};
use crate::request::declared::Declared;
use crate::request::trace::server_request_answered;
use crate::request::{pong_text, refusal_text};
use fanlight_canonical::ServerRequest;

/// Why a request is not answered whose call was cancelled or has failed.
pub(crate) const CALL_HAS_ENDED: &str = "the call that the request belonged to has ended";

/// A reply to a server that needs no client.
pub(crate) struct ImmediateReply {
    pub(crate) text: Bytes,
    /// The capability that the client lacks, if that is the reason.
    pub(crate) missing: Option<MissingCapability>,
}

/// The reply to a request of the server that needs no client; `None` if the client is to be asked, which `declared` records.
pub(crate) fn reply_immediately(request: &Request, declared: &Declared) -> Option<ImmediateReply> {
    if request.method == Method::Ping {
        return Some(ImmediateReply { text: pong_text(&request.id), missing: None });
    }
    let missing = declared.missing(&request.method, request.params.as_ref());
    let refusal = match missing {
        Some(missing) => missing.to_error(),
        // No capability was declared, so the server may send no request.
        None if declared.is_empty() => {
            RpcError::new(code::METHOD_NOT_FOUND, format!("no client takes the request {}", request.method))
        }
        None => {
            declared.note_asked();
            return None;
        }
    };
    Some(ImmediateReply { text: refusal_text(&request.id, &refusal), missing })
}

/// The reply to a request that cannot be sent to the client.
pub(crate) fn cannot_ask_text(id: &Json, why: &str) -> Bytes {
    refusal_text(id, &RpcError::new(code::INTERNAL, format!("the client cannot be asked: {why}")))
}

/// The id of the request that the server has cancelled.
pub(crate) fn cancelled_id(notification: &Notification) -> Option<Json> {
    if notification.method == Method::Cancelled { notification.params()?.get("requestId") } else { None }
}

/// Bounds on the requests of the server that are sent to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerRequestLimits {
    /// The time for the client's answer.
    pub(crate) answer: Duration,
    /// Requests in one call that may be open at the same time.
    pub(crate) open: usize,
    /// Requests in one call.
    pub(crate) number: usize,
}

/// A request of the server that was sent to the client. It pauses the call's deadline.
pub(crate) struct PendingServerRequest {
    id: Json,
    answer: oneshot::Receiver<Response>,
    limit: Duration,
    deadline: Instant,
    pause: Pause,
    /// `None` once it is finished.
    span: Option<Box<(ServerSpan, Method)>>,
}

impl PendingServerRequest {
    /// A pending request, and the request for the client; the reply to the server if too many are pending.
    pub(crate) fn new(
        request: &Request,
        call_deadline: &Arc<PausableDeadline>,
        limits: ServerRequestLimits,
        span: ServerSpan,
    ) -> Result<(Self, ServerRequest), Bytes> {
        let ServerRequestLimits { answer: limit, open, number } = limits;
        let too_many = || {
            let why = format!("at most {open} requests at once, and {number} in all, are allowed in one call");
            cannot_ask_text(&request.id, &why)
        };
        let pause = call_deadline.pause(PauseLimits { open, ever: number }).ok_or_else(too_many)?;
        let (sender, answer) = oneshot::channel();
        let deadline = Instant::now() + limit;
        let (method, params, trace) = (request.method.clone(), request.params.clone(), span.parent());
        let span = Some(Box::new((span, method.clone())));
        let pending = Self { id: request.id.clone(), answer, limit, deadline, pause, span };
        Ok((pending, ServerRequest { method, params, trace, answer: sender, deadline }))
    }

    /// The latest time for the client's answer.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The pending requests of one call.
#[derive(Default)]
pub(crate) struct OpenServerRequests(Vec<Open>);

struct Open {
    request: PendingServerRequest,
    deadline: Pin<Box<Sleep>>,
}

/// A response for the server.
pub(crate) struct ServerRequestReply {
    pub(crate) text: Bytes,
    /// Keeps the call's deadline paused.
    pub(crate) pause: Pause,
}

impl OpenServerRequests {
    pub(crate) fn add(&mut self, request: PendingServerRequest) {
        let deadline = Box::pin(sleep_until(request.deadline));
        self.0.push(Open { request, deadline });
    }

    /// Drops a request that the server has cancelled.
    pub(crate) fn cancel(&mut self, id: &Json) {
        self.0.retain(|open| !is_same(&open.request.id, id));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops all of them, and returns the replies for the server, which say that the client cannot be asked.
    pub(crate) fn refuse_all(&mut self, why: &str) -> Vec<Bytes> {
        self.0.drain(..).map(|open| cannot_ask_text(&open.request.id, why)).collect()
    }

    /// Waits for the reply to any of them; pends forever if there is none. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> ServerRequestReply {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ServerRequestReply> {
        for at in 0..self.0.len() {
            let Some(open) = self.0.get_mut(at) else { break };
            if let Poll::Ready(text) = open.poll_text(context) {
                let pause = self.0.swap_remove(at).request.pause;
                return Poll::Ready(ServerRequestReply { text, pause });
            }
        }
        Poll::Pending
    }
}

impl Open {
    fn poll_text(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        let PendingServerRequest { id, answer, limit, span, .. } = &mut self.request;
        match Pin::new(answer).poll(context) {
            Poll::Ready(Ok(response)) => {
                if let Some((span, method)) = span.take().map(|span| *span) {
                    server_request_answered(span, &method, &response);
                }
                Poll::Ready(response.to_message(id, Bytes::new()).into_bytes())
            }
            Poll::Ready(Err(_)) => Poll::Ready(cannot_ask_text(id, "it takes no requests or has gone")),
            Poll::Pending => {
                let too_late = |()| {
                    if let Some((span, _)) = span.take().map(|span| *span) {
                        span.finish(&Outcome::failed(ErrorType::Timeout));
                    }
                    let message = format!("the client did not answer within {limit:?}");
                    refusal_text(id, &RpcError::new(code::INTERNAL, message))
                };
                self.deadline.as_mut().poll(context).map(too_late)
            }
        }
    }
}

/// Whether two ids are the same value: escapes in a string do not matter.
fn is_same(one: &Json, other: &Json) -> bool {
    one.bytes() == other.bytes() || one.as_str().is_some_and(|text| other.as_str() == Some(text))
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Message;
    use futures_util::FutureExt as _;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);
    const LIMITS: ServerRequestLimits = ServerRequestLimits { answer: LIMIT, open: 16, number: 100 };

    fn request(id: &str) -> Request {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list","params":{{"x":1.0}}}}"#);
        match Message::parse(text.into(), 8) {
            Ok(Message::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn ask(requests: &mut OpenServerRequests, call_deadline: &Arc<PausableDeadline>, id: &str) -> ServerRequest {
        let (pending, asked) =
            PendingServerRequest::new(&request(id), call_deadline, LIMITS, ServerSpan::off()).ok().unwrap();
        requests.add(pending);
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn replies_keep_the_bytes_of_client_and_server() {
        let (mut requests, call_deadline) = (OpenServerRequests::default(), Arc::default());
        let first = ask(&mut requests, &call_deadline, r#""\u0041""#);
        let second = ask(&mut requests, &call_deadline, "7");
        assert_eq!(first.params.unwrap().as_text(), r#"{"x":1.0}"#);
        assert!(requests.next().now_or_never().is_none());
        second.answer.send(Response::from_result(&Json::literal(r#"{ "n" : 1.0 }"#))).unwrap();
        assert_eq!(requests.next().await.text, r#"{"jsonrpc":"2.0","id":7,"result":{ "n" : 1.0 }}"#);
        first.answer.send(Response::from_error(&RpcError::new(-1, "no"))).unwrap();
        let text = requests.next().await.text;
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":"\u0041","error":{"code":-1,"message":"no"}}"#);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_answer_is_reported_to_the_server() {
        let (mut requests, call_deadline) = (OpenServerRequests::default(), Arc::default());
        drop(ask(&mut requests, &call_deadline, "1"));
        let text = requests.next().await.text;
        assert!(text.starts_with(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"#), "{text:?}");
        let silent = ask(&mut requests, &call_deadline, "2");
        let began = Instant::now();
        let text = requests.next().await.text;
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        assert!(text.starts_with(br#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"#), "{text:?}");
        assert!(silent.answer.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_requests_are_closed_and_no_longer_counted() {
        let (mut requests, call_deadline) = (OpenServerRequests::default(), Arc::default());
        let mut asked: Vec<_> =
            (0..LIMITS.open).map(|id| ask(&mut requests, &call_deadline, &format!("\"{id}\""))).collect();
        assert!(PendingServerRequest::new(&request("99"), &call_deadline, LIMITS, ServerSpan::off()).is_err());
        requests.cancel(&Json::literal(r#""\u0033""#));
        assert!(asked.remove(3).answer.is_closed());
        assert!(asked.iter().all(|asked| !asked.answer.is_closed()));
        assert!(PendingServerRequest::new(&request("99"), &call_deadline, LIMITS, ServerSpan::off()).is_ok());
        drop(requests);
        assert!(asked.iter().all(|asked| asked.answer.is_closed()));
    }
}
