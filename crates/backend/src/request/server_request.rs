//! Pending requests of a legacy server to the client (elicitation, sampling, roots) while a call
//! runs.
//!
//! They belong to the call's future. Dropping that drops them, which closes
//! [`ServerRequest::answer`] for the client side, and the server gets an error. If the server ends
//! the call before the answers, the client side decides whether the client may still answer. The
//! server gets a reply in every case.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::{
    Json, MessageError, Method, Notification, Request, Response, RpcError, code, meta,
};
use fanlight_telemetry::{ErrorType, Outcome, ServerSpan};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{no_server_requests, pong_text, refusal_text, server_request_answered};
use crate::log::excerpt;
use crate::request::deadline::{Continuing, PausableDeadline, Pause, PauseLimits};
use crate::request::declared::Declared;
use fanlight_canonical::ServerRequest;

/// The maximum number of the client's notifications about one request that wait for the server. A
/// constant: they report progress, and later ones count.
const NOTICES: usize = 16;

/// The reason for not answering a request whose call was cancelled or failed.
pub(crate) const CALL_HAS_ENDED: &str = "the call that the request belonged to has ended";

/// A reply to a server that needs no client.
pub(crate) struct ImmediateReply {
    pub(crate) text: Bytes,
    /// The missing client capability, if that is the reason.
    pub(crate) missing: Option<MissingCapability>,
}

/// The reply to a request of a modern server, which must not send any.
pub(crate) fn refuse_modern(backend: &str, request: &Request) -> Bytes {
    let method = excerpt(request.method.as_str().as_bytes(), 80);
    tracing::warn!(
        backend,
        method,
        "request of the server refused: a modern server must not send any"
    );
    if request.method == Method::Ping {
        pong_text(&request.id)
    } else {
        refusal_text(&request.id, &no_server_requests())
    }
}

/// The reply to a server's request that needs no client. `None` if the client must be asked, which
/// is recorded in `declared`.
pub(crate) fn reply_immediately(request: &Request, declared: &Declared) -> Option<ImmediateReply> {
    if request.method == Method::Ping {
        return Some(ImmediateReply {
            text: pong_text(&request.id),
            missing: None,
        });
    }
    let missing = declared.missing_capability(&request.method, request.params.as_ref());
    let refusal = match missing {
        Some(missing) => missing.to_error(),
        // Nobody is there who could know the method.
        None if declared.is_empty() => RpcError::new(
            code::METHOD_NOT_FOUND,
            format!("no client takes the request {}", request.method),
        ),
        None => {
            declared.note_asked();
            return None;
        }
    };
    Some(ImmediateReply {
        text: refusal_text(&request.id, &refusal),
        missing,
    })
}

/// The reply to an invalid message of a server that is a request, whose answer the server awaits.
pub(crate) fn refuse_invalid(text: &Bytes, error: &MessageError) -> Option<Bytes> {
    let MessageError::Invalid {
        id: Some(id),
        reason,
    } = error
    else {
        return None;
    };
    let request = Json::parse(text.clone(), DEFAULT_NESTING).ok()?;
    let is_request = request.says("jsonrpc", "2.0") && request.get("method").is_some();
    is_request.then(|| refusal_text(id, &RpcError::new(code::INVALID_REQUEST, reason.clone())))
}

/// The reply to a request that cannot be sent to the client.
pub(crate) fn cannot_ask_text(id: &Json, why: &str) -> Bytes {
    refusal_text(
        id,
        &RpcError::new(code::INTERNAL, format!("the client cannot be asked: {why}")),
    )
}

/// The id of the request that the server has cancelled.
pub(crate) fn cancelled_id(notification: &Notification) -> Option<Json> {
    let id = notification.param("requestId")?;
    (notification.method == Method::Cancelled).then_some(id)
}

/// Limits for server requests that the client gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerRequestLimits {
    /// The time limit for the client's answer.
    pub(crate) answer: Duration,
    /// The maximum number of open requests in one call.
    pub(crate) open: usize,
    /// The maximum number of requests in one call.
    pub(crate) number: usize,
    /// Whether the client can send notifications about the request, which needs a session.
    pub(crate) notices: bool,
}

/// A server's request that the client has received. It pauses the call's deadline.
pub(crate) struct PendingServerRequest {
    id: Json,
    /// The server's progress token for the request.
    token: Option<Json>,
    answer: oneshot::Receiver<Response>,
    /// The client's notifications about the request.
    notices: Option<mpsc::Receiver<Box<Notification>>>,
    limit: Duration,
    pub(crate) deadline: Instant,
    pause: Pause,
    /// `None` once it is finished.
    span: Option<Box<(ServerSpan, Method)>>,
}

impl PendingServerRequest {
    /// A pending request, and the request for the client. At the limit, the reply to the server.
    pub(crate) fn new(
        request: &Request,
        call_deadline: &Arc<PausableDeadline>,
        limits: ServerRequestLimits,
        span: ServerSpan,
    ) -> Result<(Self, ServerRequest), Bytes> {
        let ServerRequestLimits {
            answer: limit,
            open,
            number,
            ..
        } = limits;
        let too_many = || {
            let why = format!(
                "at most {open} requests at once, and {number} in all, are allowed in one call"
            );
            cannot_ask_text(&request.id, &why)
        };
        let pause = call_deadline
            .pause(PauseLimits { open, ever: number })
            .ok_or_else(too_many)?;
        let (sender, answer) = oneshot::channel();
        let (notices_sender, notices) = limits.notices.then(|| mpsc::channel(NOTICES)).unzip();
        let deadline = Instant::now() + limit;
        let (method, params, trace) = (
            request.method.clone(),
            request.params.clone(),
            span.parent(),
        );
        let span = Some(Box::new((span, method.clone())));
        let pending = Self {
            id: request.id.clone(),
            token: request
                .param("_meta")
                .and_then(|meta| meta.get(meta::PROGRESS_TOKEN)),
            answer,
            notices,
            limit,
            deadline,
            pause,
            span,
        };
        Ok((
            pending,
            ServerRequest {
                method,
                params,
                trace,
                answer: sender,
                notices: notices_sender,
                deadline,
            },
        ))
    }
}

/// The pending requests of one call.
#[derive(Default)]
pub(crate) struct OpenServerRequests {
    open: Vec<Open>,
    /// A reply that is sent once the call has a permit again.
    delayed: Option<(Bytes, Continuing)>,
}

struct Open {
    request: PendingServerRequest,
    deadline: Pin<Box<Sleep>>,
}

/// A response for the server, or a client's notification about the request.
pub(crate) struct ServerRequestReply {
    pub(crate) text: Bytes,
    /// Keeps the call's deadline paused until the reply has been sent.
    pub(crate) pause: Option<Pause>,
}

impl OpenServerRequests {
    pub(crate) fn add(&mut self, request: PendingServerRequest) {
        let deadline = Box::pin(sleep_until(request.deadline));
        // Usually there is one, and it may be open for long.
        self.open.reserve_exact(1);
        self.open.push(Open { request, deadline });
    }

    /// Drops a request that the server has cancelled.
    pub(crate) fn cancel(&mut self, id: &Json) {
        self.open.retain(|open| !is_same(&open.request.id, id));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.delayed.is_none()
    }

    /// Drops all requests. Returns the replies to the server: the client cannot be asked.
    pub(crate) fn refuse_all(&mut self, why: &str) -> Vec<Bytes> {
        let delayed = self.delayed.take().map(|(text, _)| text);
        let refused = self
            .open
            .drain(..)
            .map(|open| cannot_ask_text(&open.request.id, why));
        delayed.into_iter().chain(refused).collect()
    }

    /// Waits for the next reply; never resolves without pending requests. Cancel safe.
    pub(crate) async fn next(&mut self) -> ServerRequestReply {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ServerRequestReply> {
        if let Some(text) = self.poll_notice(context) {
            return Poll::Ready(ServerRequestReply { text, pause: None });
        }
        if self.delayed.is_none() {
            let (text, pause) = ready!(self.poll_answered(context));
            match pause.prepare_end() {
                Ok(pause) => {
                    return Poll::Ready(ServerRequestReply {
                        text,
                        pause: Some(pause),
                    });
                }
                Err(continuing) => self.delayed = Some((text, continuing)),
            }
        }
        let Some((_, continuing)) = &mut self.delayed else {
            return Poll::Pending;
        };
        ready!(continuing.poll(context));
        match self.delayed.take() {
            Some((text, _)) => Poll::Ready(ServerRequestReply { text, pause: None }),
            None => Poll::Pending,
        }
    }

    /// The client's next notification about one of the requests, if any.
    fn poll_notice(&mut self, context: &mut Context<'_>) -> Option<Bytes> {
        self.open
            .iter_mut()
            .find_map(|open| open.request.poll_notice(context))
    }

    fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<(Bytes, Pause)> {
        for at in 0..self.open.len() {
            let Some(open) = self.open.get_mut(at) else {
                break;
            };
            if let Poll::Ready(text) = open.poll_text(context) {
                return Poll::Ready((text, self.open.swap_remove(at).request.pause));
            }
        }
        Poll::Pending
    }
}

impl PendingServerRequest {
    fn poll_notice(&mut self, context: &mut Context<'_>) -> Option<Bytes> {
        let notices = self.notices.as_mut()?;
        while let Poll::Ready(Some(notification)) = notices.poll_recv(context) {
            let names_token = notification.param("progressToken").is_some();
            let renamed = notification.with_param("requestId", &self.id);
            match &self.token {
                Some(token) if names_token => {
                    return Some(
                        renamed
                            .with_param("progressToken", token)
                            .text
                            .on_one_line()
                            .into_bytes(),
                    );
                }
                // The server gave no token.
                None if names_token => {}
                _ => return Some(renamed.text.on_one_line().into_bytes()),
            }
        }
        None
    }
}

impl Open {
    fn poll_text(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        let PendingServerRequest {
            id,
            answer,
            limit,
            span,
            ..
        } = &mut self.request;
        match Pin::new(answer).poll(context) {
            Poll::Ready(Ok(response)) => {
                if let Some((span, method)) = span.take().map(|span| *span) {
                    server_request_answered(span, &method, &response);
                }
                Poll::Ready(response.to_message(id, Bytes::new()).into_bytes())
            }
            Poll::Ready(Err(_)) => {
                Poll::Ready(cannot_ask_text(id, "it takes no requests or has gone"))
            }
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
    one.bytes() == other.bytes()
        || one
            .as_str()
            .is_some_and(|text| other.as_str() == Some(text))
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Message;
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn invalid_request_is_refused_and_other_invalid_text_is_not() {
        let refused = |text: &'static str| {
            let error = Message::parse(text.into(), 8).unwrap_err();
            let refusal = refuse_invalid(&Bytes::from_static(text.as_bytes()), &error)?;
            let refusal = Json::parse(refusal, 8).unwrap();
            assert_eq!(
                refusal.at_pointer("/error/code").unwrap().as_i64(),
                Some(code::INVALID_REQUEST)
            );
            refusal.get("id")
        };
        let request = r#"{"jsonrpc":"2.0","id":"a","method":"x","params":[]}"#;
        assert_eq!(refused(request), Some(Json::string("a")));
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"result":7}"#,
            r#"{"jsonrpc":"2.0","method":"x","params":[]}"#,
            r#"{"level":"info","id":1,"method":"GET"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            "GET",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
    }

    const LIMIT: Duration = Duration::from_secs(600);
    const LIMITS: ServerRequestLimits = ServerRequestLimits {
        answer: LIMIT,
        open: 16,
        number: 100,
        notices: true,
    };

    fn request(id: &str) -> Request {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list","params":{{"x":1.0}}}}"#);
        match Message::parse(text.into(), 8) {
            Ok(Message::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn ask(
        requests: &mut OpenServerRequests,
        call_deadline: &Arc<PausableDeadline>,
        id: &str,
    ) -> ServerRequest {
        let (pending, asked) =
            PendingServerRequest::new(&request(id), call_deadline, LIMITS, ServerSpan::off())
                .ok()
                .unwrap();
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
        second
            .answer
            .send(Response::from_result(&Json::literal(r#"{ "n" : 1.0 }"#)))
            .unwrap();
        assert_eq!(
            requests.next().await.text,
            r#"{"jsonrpc":"2.0","id":7,"result":{ "n" : 1.0 }}"#
        );
        first
            .answer
            .send(Response::from_error(&RpcError::new(-1, "no")))
            .unwrap();
        let text = requests.next().await.text;
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":"\u0041","error":{"code":-1,"message":"no"}}"#
        );
    }

    #[tokio::test(start_paused = true)]
    async fn notifications_of_the_client_name_the_request_as_the_server_does() {
        let (mut requests, call_deadline) = (OpenServerRequests::default(), Arc::default());
        let mut with_token = request(r#""\u0041""#);
        with_token.params = Some(Json::literal(r#"{"_meta":{"progressToken":7}}"#));
        let (pending, asked) =
            PendingServerRequest::new(&with_token, &call_deadline, LIMITS, ServerSpan::off())
                .ok()
                .unwrap();
        requests.add(pending);
        let without_token = ask(&mut requests, &call_deadline, "2");
        let notice = |text: &'static str| {
            Box::new(Notification::new(
                Method::from_name("notifications/x"),
                Some(&Json::literal(text)),
            ))
        };
        let send = |request: &ServerRequest, text| {
            request.notices.as_ref().unwrap().try_send(notice(text))
        };
        send(&asked, r#"{"progressToken":"fanlight-1","progress":1E2}"#).unwrap();
        send(&without_token, r#"{"progressToken":"fanlight-2"}"#).unwrap();
        send(&without_token, r#"{"requestId":"fanlight-2"}"#).unwrap();
        let sent = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{params}}}"#)
        };
        assert_eq!(
            requests.next().await.text,
            sent(r#"{"progressToken":7,"progress":1E2}"#)
        );
        assert_eq!(requests.next().await.text, sent(r#"{"requestId":2}"#));
        assert!(
            requests.next().now_or_never().is_none(),
            "the server gave no token with the second"
        );
        for _ in 0..NOTICES {
            send(&asked, "{}").unwrap();
        }
        assert!(send(&asked, "{}").is_err(), "no more are kept");
        asked
            .answer
            .send(Response::from_result(&Json::empty_object()))
            .unwrap();
        for _ in 0..NOTICES {
            assert_eq!(requests.next().await.text, sent("{}"));
        }
        assert!(
            requests
                .next()
                .await
                .text
                .starts_with(br#"{"jsonrpc":"2.0","id":"\u0041""#)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_answer_is_reported_to_the_server() {
        let (mut requests, call_deadline) = (OpenServerRequests::default(), Arc::default());
        drop(ask(&mut requests, &call_deadline, "1"));
        let text = requests.next().await.text;
        assert!(
            text.starts_with(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"#),
            "{text:?}"
        );
        let silent = ask(&mut requests, &call_deadline, "2");
        let began = Instant::now();
        let text = requests.next().await.text;
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        assert!(
            text.starts_with(br#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"#),
            "{text:?}"
        );
        assert!(silent.answer.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_requests_are_closed_and_no_longer_counted() {
        let (mut requests, call_deadline) = (OpenServerRequests::default(), Arc::default());
        let mut asked: Vec<_> = (0..LIMITS.open)
            .map(|id| ask(&mut requests, &call_deadline, &format!("\"{id}\"")))
            .collect();
        assert!(
            PendingServerRequest::new(&request("99"), &call_deadline, LIMITS, ServerSpan::off())
                .is_err()
        );
        requests.cancel(&Json::literal(r#""\u0033""#));
        assert!(asked.remove(3).answer.is_closed());
        assert!(asked.iter().all(|asked| !asked.answer.is_closed()));
        assert!(
            PendingServerRequest::new(&request("99"), &call_deadline, LIMITS, ServerSpan::off())
                .is_ok()
        );
        drop(requests);
        assert!(asked.iter().all(|asked| asked.answer.is_closed()));
    }
}
