//! The questions that one legacy client has been asked and has not answered yet.
//!
//! Every session has its own, and ids mean something only within it: what one client answers can
//! never reach a question to another.
//!
//! Must not know: transports, or what is asked.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use fanlight_canonical::ServerRequest;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::message::{notification_text, request_text};
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::{ClientSpan, Departure, Target};
use tokio::sync::oneshot;

const PREFIX: &str = "fanlight-";

/// The open questions of one session.
#[derive(Debug)]
pub(crate) struct Questions {
    limit: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<u64, Open>,
    last: u64,
}

#[derive(Debug)]
struct Open {
    asker: oneshot::Sender<Response>,
    method: Method,
    span: ClientSpan,
}

impl Questions {
    /// Room for `limit` questions at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, table: Mutex::default() }
    }

    /// Enters a question; returns its number, and the request to send. `None` if there is no room,
    /// and then the server is told that the client cannot be asked.
    pub(crate) fn ask(&self, question: ServerRequest) -> Option<(u64, Json)> {
        let mut table = self.lock();
        if table.open.len() >= self.limit {
            tracing::warn!(limit = self.limit, "too many open questions to one client; one is refused");
            return None;
        }
        table.last += 1;
        let number = table.last;
        let ServerRequest { method, params, trace, answer: asker, .. } = question;
        let (id, target) = (id(number), Target::None);
        let span = trace.to_client(&Departure { method: &method, target, id: Some((&id).into()), attempt: 1 });
        let text = request_text(&id, method.as_str(), span.propagation().into_params(params.as_ref()).as_ref());
        table.open.insert(number, Open { asker, method, span });
        Some((number, text))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().open.len()
    }

    /// Hands a client's answer to whoever asked. An answer to nothing is ignored: the question may
    /// just have been withdrawn.
    pub(crate) fn answer(&self, response: Response) {
        let answered = number(&response.id()).and_then(|number| self.lock().open.remove(&number));
        match answered {
            Some(Open { asker, method, span }) => {
                span.answered(&method, &response);
                drop(asker.send(response));
            }
            None => tracing::debug!("ignoring a response that answers no open question"),
        }
    }

    /// Whether a question is still open. One that nobody wants answered any more is withdrawn, and
    /// gives the notification that tells the client; else the task is woken when that happens.
    pub(crate) fn poll_open(&self, number: u64, cx: &mut Context<'_>) -> Result<bool, Json> {
        let mut table = self.lock();
        let Some(open) = table.open.get_mut(&number) else { return Ok(false) };
        if open.asker.poll_closed(cx) == Poll::Pending {
            return Ok(true);
        }
        table.open.remove(&number);
        Err(cancelled(number))
    }

    /// Withdraws a question; gives the notification that tells the client if it was still open.
    pub(crate) fn withdraw(&self, number: u64) -> Option<Json> {
        self.lock().open.remove(&number).map(|_| cancelled(number))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(number: u64) -> Json {
    Json::string(&format!("{PREFIX}{number}"))
}

fn number(id: &Json) -> Option<u64> {
    id.as_str()?.strip_prefix(PREFIX)?.parse().ok()
}

/// 2025-11-25 basic/utilities/cancellation.
fn cancelled(number: u64) -> Json {
    let mut params = ObjectBuilder::new();
    params.member("requestId", &id(number)).string("reason", "the server no longer waits for an answer");
    notification_text("notifications/cancelled", Some(&params.finish()))
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use bytes::Bytes;
    use fanlight_protocol::{Message, Method};
    use fanlight_telemetry::Parent;
    use tokio::time::Instant;

    use super::*;

    fn question() -> (ServerRequest, oneshot::Receiver<Response>) {
        let (answer, answered) = oneshot::channel();
        let params = Some(Json::literal(r#"{ "x":1.0}"#));
        let deadline = Instant::now() + Duration::from_secs(600);
        let (method, trace) = (Method::from_name("elicitation/create"), Parent::default());
        (ServerRequest { method, params, trace, answer, deadline }, answered)
    }

    fn answer(text: &'static str) -> Response {
        match Message::parse(Bytes::from_static(text.as_bytes()), 64) {
            Ok(Message::Response(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_reach_their_question_with_their_bytes() {
        let questions = Questions::new(2);
        let ((first, mut first_answer), (second, mut second_answer)) = (question(), question());
        let (_, text) = questions.ask(first).unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":"fanlight-1","method":"elicitation/create","params":{ "x":1.0}}"#;
        assert_eq!(text.as_text(), expected);
        questions.ask(second).unwrap();
        let (third, mut third_answer) = question();
        assert!(questions.ask(third).is_none());
        assert_eq!(third_answer.try_recv().unwrap_err(), oneshot::error::TryRecvError::Closed);
        questions.answer(answer(r#"{"jsonrpc":"2.0","id":"fanlight-\u0032","result":{ "a":1E400}}"#));
        assert_eq!(second_answer.try_recv().unwrap().body().as_text(), r#"{ "a":1E400}"#);
        assert!(first_answer.try_recv().is_err());
        for text in [
            r#"{"jsonrpc":"2.0","id":"fanlight-2","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
        ] {
            questions.answer(answer(text));
        }
        questions.answer(answer(r#"{"jsonrpc":"2.0","id":"fanlight-1","error":{"code":-1,"message":"no"}}"#));
        assert_eq!(first_answer.try_recv().unwrap().error_code(), Some(-1));
    }

    #[test]
    fn a_question_that_nobody_asks_any_more_is_withdrawn_once() {
        let questions = Questions::new(1);
        let cx = &mut Context::from_waker(Waker::noop());
        let (request, answered) = question();
        let (number, _) = questions.ask(request).unwrap();
        assert_eq!(questions.poll_open(number, cx), Ok(true));
        drop(answered);
        let told = questions.poll_open(number, cx).unwrap_err();
        assert!(told.as_text().contains(r#""requestId":"fanlight-1""#), "{told}");
        assert_eq!(questions.poll_open(number, cx), Ok(false));
        assert!(questions.withdraw(number).is_none());
    }
}
