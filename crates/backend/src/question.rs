//! The questions of a legacy server that are open while a call runs.
//!
//! They belong to the future of the call: when it ends or is dropped, so are they, and whoever
//! holds the other end of [`ServerRequest::answer`] sees it closed.
//!
//! Must not know: how questions come in or answers go out.

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

use crate::deadline::{PausableDeadline, Pause};
use crate::declared::Declared;
use crate::exchange::{pong_text, refusal_text};
use crate::trace::question_answered;
use fanlight_canonical::ServerRequest;

/// Questions that may be open at the same time in one call.
pub(crate) const OPEN: usize = 16;

/// What a server is answered without any client being asked.
pub(crate) struct AtOnce {
    pub(crate) text: Bytes,
    /// What the client lacks, if that is why it is not asked.
    pub(crate) missing: Option<MissingCapability>,
}

/// What a server is answered without any client being asked; `None` if the client is to be asked.
pub(crate) fn answer_at_once(request: &Request, declared: &Declared) -> Option<AtOnce> {
    if request.method == Method::Ping {
        return Some(AtOnce { text: pong_text(&request.id), missing: None });
    }
    let missing = declared.missing(&request.method, request.params.as_ref());
    let refusal = match missing {
        Some(missing) => missing.to_error(),
        // Nothing was declared that any other question could build on.
        None if declared.is_empty() => {
            RpcError::new(code::METHOD_NOT_FOUND, format!("no client takes the request {}", request.method))
        }
        None => return None,
    };
    Some(AtOnce { text: refusal_text(&request.id, &refusal), missing })
}

/// What a server is told whose question cannot be passed on.
pub(crate) fn unasked_text(id: &Json, why: &str) -> Bytes {
    refusal_text(id, &RpcError::new(code::INTERNAL, format!("the client cannot be asked: {why}")))
}

/// The request of the server's that the server does not wait for any more.
pub(crate) fn withdrawn(notification: &Notification) -> Option<Json> {
    if notification.method == Method::Cancelled { notification.params()?.get("requestId") } else { None }
}

/// A request of the server that was sent to the client. It pauses the call's deadline.
pub(crate) struct Question {
    id: Json,
    answer: oneshot::Receiver<Response>,
    limit: Duration,
    deadline: Instant,
    pause: Pause,
    /// `None` once it is answered.
    span: Option<Box<(ServerSpan, Method)>>,
}

impl Question {
    /// A question and what the client is to be sent; the text for the server if too many questions
    /// are open.
    pub(crate) fn new(
        request: &Request,
        call_deadline: &Arc<PausableDeadline>,
        limit: Duration,
        span: ServerSpan,
    ) -> Result<(Self, ServerRequest), Bytes> {
        let too_many = || unasked_text(&request.id, &format!("{OPEN} questions of this call are open already"));
        let pause = call_deadline.pause(OPEN).ok_or_else(too_many)?;
        let (sender, answer) = oneshot::channel();
        let deadline = Instant::now() + limit;
        let (method, params, trace) = (request.method.clone(), request.params.clone(), span.parent());
        let span = Some(Box::new((span, method.clone())));
        let question = Self { id: request.id.clone(), answer, limit, deadline, pause, span };
        Ok((question, ServerRequest { method, params, trace, answer: sender, deadline }))
    }

    /// When the client has to have answered.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The open questions of one call.
#[derive(Default)]
pub(crate) struct OpenQuestions(Vec<Open>);

struct Open {
    question: Question,
    deadline: Pin<Box<Sleep>>,
}

/// A response for the server.
pub(crate) struct Settled {
    pub(crate) text: Bytes,
    /// Keeps the call's deadline paused.
    pub(crate) pause: Pause,
}

impl OpenQuestions {
    pub(crate) fn add(&mut self, question: Question) {
        let deadline = Box::pin(sleep_until(question.deadline));
        self.0.push(Open { question, deadline });
    }

    /// The server waits for this answer no longer.
    pub(crate) fn withdraw(&mut self, id: &Json) {
        self.0.retain(|open| !is_same(&open.question.id, id));
    }

    /// Waits for the next outcome of any question; for ever if none is open. Can be dropped and
    /// called again.
    pub(crate) async fn next(&mut self) -> Settled {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Settled> {
        for at in 0..self.0.len() {
            let Some(open) = self.0.get_mut(at) else { break };
            if let Poll::Ready(text) = open.poll_text(context) {
                let pause = self.0.swap_remove(at).question.pause;
                return Poll::Ready(Settled { text, pause });
            }
        }
        Poll::Pending
    }
}

impl Open {
    fn poll_text(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        let Question { id, answer, limit, span, .. } = &mut self.question;
        match Pin::new(answer).poll(context) {
            Poll::Ready(Ok(response)) => {
                if let Some((span, method)) = span.take().map(|span| *span) {
                    question_answered(span, &method, &response);
                }
                Poll::Ready(response.to_message(id, Bytes::new()).into_bytes())
            }
            Poll::Ready(Err(_)) => Poll::Ready(unasked_text(id, "it takes no questions or has gone")),
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

    fn request(id: &str) -> Request {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list","params":{{"x":1.0}}}}"#);
        match Message::parse(text.into(), 8) {
            Ok(Message::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn ask(questions: &mut OpenQuestions, call_deadline: &Arc<PausableDeadline>, id: &str) -> ServerRequest {
        let (question, asked) = Question::new(&request(id), call_deadline, LIMIT, ServerSpan::off()).ok().unwrap();
        questions.add(question);
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn answers_carry_the_bytes_of_both_sides() {
        let (mut questions, call_deadline) = (OpenQuestions::default(), Arc::default());
        let first = ask(&mut questions, &call_deadline, r#""\u0041""#);
        let second = ask(&mut questions, &call_deadline, "7");
        assert_eq!(first.params.unwrap().as_text(), r#"{"x":1.0}"#);
        assert!(questions.next().now_or_never().is_none());
        second.answer.send(Response::from_result(&Json::literal(r#"{ "n" : 1.0 }"#))).unwrap();
        assert_eq!(questions.next().await.text, r#"{"jsonrpc":"2.0","id":7,"result":{ "n" : 1.0 }}"#);
        first.answer.send(Response::from_error(&RpcError::new(-1, "no"))).unwrap();
        let text = questions.next().await.text;
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":"\u0041","error":{"code":-1,"message":"no"}}"#);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_answer_is_reported() {
        let (mut questions, call_deadline) = (OpenQuestions::default(), Arc::default());
        drop(ask(&mut questions, &call_deadline, "1"));
        let text = questions.next().await.text;
        assert!(text.starts_with(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"#), "{text:?}");
        let silent = ask(&mut questions, &call_deadline, "2");
        let began = Instant::now();
        let text = questions.next().await.text;
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        assert!(text.starts_with(br#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"#), "{text:?}");
        assert!(silent.answer.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn withdrawn_questions_are_closed_and_make_room() {
        let (mut questions, call_deadline) = (OpenQuestions::default(), Arc::default());
        let mut asked: Vec<_> = (0..OPEN).map(|id| ask(&mut questions, &call_deadline, &format!("\"{id}\""))).collect();
        assert!(Question::new(&request("99"), &call_deadline, LIMIT, ServerSpan::off()).is_err());
        questions.withdraw(&Json::literal(r#""\u0033""#));
        assert!(asked.remove(3).answer.is_closed());
        assert!(asked.iter().all(|asked| !asked.answer.is_closed()));
        assert!(Question::new(&request("99"), &call_deadline, LIMIT, ServerSpan::off()).is_ok());
        drop(questions);
        assert!(asked.iter().all(|asked| asked.answer.is_closed()));
    }
}
