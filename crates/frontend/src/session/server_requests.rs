//! The open requests of servers to one legacy client (elicitation, sampling, roots).
//!
//! Each session has its own table and its own ids. So one client's answer can never reach a request
//! to another.

use std::collections::BTreeMap;
use std::task::{Context, Poll};

use fanlight_canonical::{ClientNotices, ServerRequest};
use fanlight_protocol::{
    Edits, Json, Method, Notification, ObjectBuilder, Response, meta, notification_text,
    request_text,
};
use fanlight_telemetry::{ClientSpan, Departure, Target};
use parking_lot::Mutex;
use tokio::sync::oneshot;

const PREFIX: &str = "fanlight-";

/// The open server requests of one session.
#[derive(Debug)]
pub(crate) struct ServerRequests {
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
    answer: oneshot::Sender<Response>,
    notices: Option<ClientNotices>,
    method: Method,
    span: ClientSpan,
}

impl ServerRequests {
    /// Allows at most `limit` open requests.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            table: Mutex::default(),
        }
    }

    /// Adds a request; returns its number and the message to send. `None` at the limit; the server
    /// then gets the error that the client cannot be asked.
    pub(crate) fn open(&self, request: ServerRequest) -> Option<(u64, Json)> {
        let mut table = self.table.lock();
        if table.open.len() >= self.limit {
            // Drop requests whose calls have ended; their servers no longer wait.
            table.open.retain(|_, open| !open.answer.is_closed());
        }
        if table.open.len() >= self.limit {
            tracing::warn!(
                limit = self.limit,
                "server request refused: too many open requests to one client"
            );
            return None;
        }
        table.last += 1;
        let number = table.last;
        let ServerRequest {
            method,
            params,
            trace,
            answer,
            notices,
            ..
        } = request;
        let (id, target) = (id(number), Target::None);
        let span = trace.to_client(&Departure {
            method: &method,
            target,
            id: Some((&id).into()),
            attempt: 1,
        });
        let params = params.map(|params| with_progress_token(&params, &id).unwrap_or(params));
        let text = request_text(
            &id,
            method.as_str(),
            span.propagation().into_params(params.as_ref()).as_ref(),
        );
        table.open.insert(
            number,
            Open {
                answer,
                notices,
                method,
                span,
            },
        );
        Some((number, text))
    }

    /// The number of open requests.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().open.len()
    }

    /// Redirects the answer to a request that is still open.
    pub(crate) fn pass_to(&self, number: u64, answer: oneshot::Sender<Response>) {
        if let Some(open) = self.table.lock().open.get_mut(&number) {
            open.answer = answer;
        }
    }

    /// Passes a client's answer to the server that waits for it. An answer without an open request
    /// is ignored, since the request may just have been withdrawn.
    pub(crate) fn answer(&self, id: &Json, response: Response) {
        let answered = number(id).and_then(|number| self.table.lock().open.remove(&number));
        match answered {
            Some(Open {
                answer,
                method,
                span,
                ..
            }) => {
                span.end_with_answer(&method, &response);
                drop(answer.send(response));
            }
            None => tracing::debug!("response of a client ignored: it answers no open request"),
        }
    }

    /// Passes a client's notification to the server whose open request it names. `id` is also the
    /// request's progress token. A notification without a matching request is dropped.
    pub(crate) fn notify(&self, id: &Json, notification: &Notification) {
        let table = self.table.lock();
        let notices = number(id).and_then(|number| table.open.get(&number)?.notices.as_ref());
        if notices.is_none_or(|notices| notices.try_send(Box::new(notification.clone())).is_err()) {
            tracing::debug!(method = %notification.method, "notification of a client dropped: its request takes none");
        }
    }

    /// Whether an id or progress token has the form that server requests get here.
    pub(crate) fn is_id(id: &Json) -> bool {
        number(id).is_some()
    }

    /// Whether a request is still open; registers the task to be woken when the server stops
    /// waiting. The error means that the server no longer waits: it is the notification that
    /// withdraws the request.
    pub(crate) fn poll_open(&self, number: u64, cx: &mut Context<'_>) -> Result<bool, Json> {
        let mut table = self.table.lock();
        let Some(open) = table.open.get_mut(&number) else {
            return Ok(false);
        };
        if open.answer.poll_closed(cx) == Poll::Pending {
            return Ok(true);
        }
        table.open.remove(&number);
        Err(cancelled(number))
    }

    /// Withdraws a request; returns the notification for the client if it was still open.
    pub(crate) fn withdraw(&self, number: u64) -> Option<Json> {
        self.table
            .lock()
            .open
            .remove(&number)
            .map(|_| cancelled(number))
    }
}

fn id(number: u64) -> Json {
    Json::string(&format!("{PREFIX}{number}"))
}

/// The params with the request's id as progress token, if they have one. Tokens of several servers
/// could be equal (2025-11-25 basic/utilities/progress, Progress Flow).
fn with_progress_token(params: &Json, id: &Json) -> Option<Json> {
    let own = params.place("_meta")?;
    let own_meta = params.slice(own.clone());
    let token = own_meta.place(meta::PROGRESS_TOKEN)?;
    let mut edits = Edits::new(params.bytes().clone());
    edits.replace(
        own.start + token.start..own.start + token.end,
        id.bytes().clone(),
    );
    Some(edits.finish_json())
}

fn number(id: &Json) -> Option<u64> {
    id.as_str()?.strip_prefix(PREFIX)?.parse().ok()
}

/// 2025-11-25 basic/utilities/cancellation.
fn cancelled(number: u64) -> Json {
    let params = ObjectBuilder::new()
        .member("requestId", &id(number))
        .string("reason", "the server no longer waits for an answer")
        .finish();
    notification_text("notifications/cancelled", Some(&params))
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

    fn request() -> (ServerRequest, oneshot::Receiver<Response>) {
        let (answer, answered) = oneshot::channel();
        let params = Some(Json::literal(r#"{ "x":1.0}"#));
        let deadline = Instant::now() + Duration::from_secs(600);
        let (method, trace) = (Method::from_name("elicitation/create"), Parent::default());
        (
            ServerRequest {
                method,
                params,
                trace,
                answer,
                notices: None,
                deadline,
            },
            answered,
        )
    }

    fn answer(requests: &ServerRequests, text: &'static str) {
        match Message::parse(Bytes::from_static(text.as_bytes()), 64) {
            Ok(Message::Response(response)) => requests.answer(&response.id(), response),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_reach_their_request_with_their_bytes() {
        let requests = ServerRequests::new(2);
        let ((first, mut first_answer), (second, mut second_answer)) = (request(), request());
        let (_, text) = requests.open(first).unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":"fanlight-1","method":"elicitation/create","params":{ "x":1.0}}"#;
        assert_eq!(text.as_text(), expected);
        requests.open(second).unwrap();
        let (third, mut third_answer) = request();
        assert!(requests.open(third).is_none());
        assert_eq!(
            third_answer.try_recv().unwrap_err(),
            oneshot::error::TryRecvError::Closed
        );
        answer(
            &requests,
            r#"{"jsonrpc":"2.0","id":"fanlight-\u0032","result":{ "a":1E400}}"#,
        );
        assert_eq!(
            second_answer.try_recv().unwrap().body().as_text(),
            r#"{ "a":1E400}"#
        );
        assert!(first_answer.try_recv().is_err());
        for text in [
            r#"{"jsonrpc":"2.0","id":"fanlight-2","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
        ] {
            answer(&requests, text);
        }
        answer(
            &requests,
            r#"{"jsonrpc":"2.0","id":"fanlight-1","error":{"code":-1,"message":"no"}}"#,
        );
        assert_eq!(first_answer.try_recv().unwrap().error_code(), Some(-1));
    }

    #[test]
    fn notifications_reach_the_open_request_that_they_name() {
        let requests = ServerRequests::new(2);
        let (mut asked, _answered) = request();
        let (notices, mut received) = tokio::sync::mpsc::channel(1);
        asked.notices = Some(notices);
        asked.params = Some(Json::literal(
            r#"{ "_meta":{"k":1.0,"progressToken":7 },"x":1}"#,
        ));
        let (_, text) = requests.open(asked).unwrap();
        let params = r#"{ "_meta":{"k":1.0,"progressToken":"fanlight-1" },"x":1}"#;
        assert!(
            text.as_text().ends_with(&format!(r#""params":{params}}}"#)),
            "{text}"
        );
        let progress = Notification::new(
            Method::Progress,
            Some(&Json::literal(r#"{"progressToken":"fanlight-1"}"#)),
        );
        for unknown in [r#""fanlight-2""#, "1", r#""1""#] {
            requests.notify(&Json::literal(unknown), &progress);
            assert!(received.try_recv().is_err(), "{unknown}");
        }
        requests.notify(&id(1), &progress);
        requests.notify(&id(1), &progress);
        assert_eq!(received.try_recv().unwrap().method, Method::Progress);
        assert!(received.try_recv().is_err(), "what does not fit is dropped");
    }

    #[test]
    fn server_request_is_withdrawn_once_when_the_server_stops_waiting() {
        let requests = ServerRequests::new(1);
        let cx = &mut Context::from_waker(Waker::noop());
        let (asked, answered) = request();
        let (number, _) = requests.open(asked).unwrap();
        assert_eq!(requests.poll_open(number, cx), Ok(true));
        drop(answered);
        let notification = requests.poll_open(number, cx).unwrap_err();
        assert!(
            notification
                .as_text()
                .contains(r#""requestId":"fanlight-1""#),
            "{notification}"
        );
        assert_eq!(requests.poll_open(number, cx), Ok(false));
        assert!(requests.withdraw(number).is_none());
    }
}
