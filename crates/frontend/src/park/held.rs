//! What is held of a call that is or can be parked.
//!
//! Must not know: how it is found again.

use std::collections::{BTreeSet, VecDeque};
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_canonical::{ServerMessage, ServerRequest};
use fanlight_protocol::capability::{MissingCapability, missing_capability_error};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Notification, Response, RpcError, code};

use tokio::time::Instant;

use super::state::{self, Subject};
use super::table::Ticket;
use crate::running::{Event, Running};

/// How long before its questions are given up a parked call is cancelled: more than timers are out.
const BEFORE_GIVEN_UP: Duration = Duration::from_millis(100);

/// Characters of a name that are shown.
const LONGEST_SHOWN: usize = 128;

/// The member of an error's `data` that holds what the server answered itself.
const ANSWER_KEY: &str = "dev.fanlight/answer";

/// A call on its way, and what the server asks.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) running: Running,
    /// What the client can be asked, by its latest request; `None` while that is the first.
    renewed: Option<Json>,
    /// Its place in the table, from the first time it is parked until it is dropped.
    pub(super) ticket: Option<Ticket>,
    method: Method,
    params: Option<Json>,
    subject: Option<Subject>,
    questions: Vec<Question>,
    /// What the client lacked for what the server has asked.
    missing: BTreeSet<MissingCapability>,
    asked: u64,
    /// What came while it was parked.
    kept: VecDeque<Notification>,
    response: Option<Box<Response>>,
}

/// A question that is open.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) key: String,
    pub(super) request: ServerRequest,
}

impl Held {
    pub(super) fn new(running: Running, method: Method, params: Option<Json>) -> Self {
        Self {
            running,
            renewed: None,
            ticket: None,
            method,
            params,
            subject: None,
            questions: Vec::new(),
            missing: BTreeSet::new(),
            asked: 0,
            kept: VecDeque::new(),
            response: None,
        }
    }

    /// What the client can be asked.
    pub(super) fn capabilities(&self) -> &Json {
        self.renewed.as_ref().unwrap_or(&self.running.context().capabilities)
    }

    /// From now on, the client can be asked what these say.
    pub(super) fn renew(&mut self, capabilities: Json) {
        self.renewed = Some(capabilities);
    }

    /// Takes a question in, unless the client cannot be asked it.
    pub(super) fn ask(&mut self, question: ServerRequest, limit: usize) {
        let (method, params) = (&question.method, question.params.as_ref());
        let missing = MissingCapability::for_server_request(self.capabilities(), method, params);
        self.missing.extend(missing);
        let refusal = missing.map(MissingCapability::to_error).or_else(|| {
            let message = || format!("the client's protocol version has no way to be asked {method}");
            (!method.is_input_request()).then(|| RpcError::new(code::METHOD_NOT_FOUND, message()))
        });
        if let Some(error) = refusal {
            // An error means that nobody waits for it any more.
            let _ = question.answer.send(Response::from_error(&error));
        } else if self.questions.len() < limit {
            self.asked += 1;
            self.questions.push(Question { key: format!("input-{}", self.asked), request: question });
        } else {
            tracing::warn!(limit, "too many open questions in one call; one is refused");
        }
    }

    /// Takes note that the server has been refused something because the client lacks a capability
    /// for it; unless it does not, and was not declared for another reason.
    pub(super) fn note_missing(&mut self, missing: MissingCapability) {
        if !missing.capability.is_declared_in(self.capabilities()) {
            self.missing.insert(missing);
        }
    }

    /// The answer as the client is to have it: if the call failed and the client lacked what it took,
    /// the error that says so, with the server's own answer in it (2026-07-28 basic/index, Error
    /// Codes).
    pub(super) fn explained(&self, response: Response) -> Response {
        if self.missing.is_empty() || !has_failed(&response) {
            return response;
        }
        let mut answer = ObjectBuilder::new();
        answer.member(if response.is_error() { "error" } else { "result" }, &response.body());
        let missing: Vec<MissingCapability> = self.missing.iter().copied().collect();
        let error = missing_capability_error(&missing, &[(ANSWER_KEY, answer.finish())]);
        error.map_or(response, |error| Response::from_error(&error))
    }

    /// Whether anything is asked that the server still wants to know.
    pub(super) fn has_questions(&mut self) -> bool {
        self.questions.retain(|question| !question.request.answer.is_closed());
        !self.questions.is_empty()
    }

    pub(super) fn questions(&self) -> &[Question] {
        &self.questions
    }

    /// When it is over with being parked: at `latest`, or shortly before a question is given up. The
    /// call is to be cancelled then, not to go on with a question that went unanswered.
    pub(super) fn deadline(&self, latest: Instant) -> Instant {
        let asked = self.questions.iter().map(|question| question.request.deadline);
        let given_up = asked.min().and_then(|first| first.checked_sub(BEFORE_GIVEN_UP));
        given_up.map_or(latest, |given_up| given_up.min(latest))
    }

    /// What an operator may see of it: its method, the tool or prompt it names, and the methods of
    /// what is asked.
    pub(super) fn shown(&self) -> (String, Option<String>, Vec<String>) {
        let name = self.params.as_ref().and_then(|params| params.get("name"));
        let name = name.as_ref().and_then(Json::as_str).map(|name| name.chars().take(LONGEST_SHOWN).collect());
        let asked = self.questions.iter().map(|question| question.request.method.as_str().to_owned());
        (self.method.as_str().to_owned(), name, asked.collect())
    }

    /// Tells the server that the client cannot be asked.
    pub(super) fn refuse_questions(&mut self) {
        self.questions.clear();
    }

    /// Gives each answer to whoever asked. What answers nothing is ignored (mrtr, Error Handling).
    pub(super) fn answer(&mut self, answers: &[(String, Json)]) {
        for (key, result) in answers {
            if let Some(place) = self.questions.iter().position(|question| question.key == *key) {
                // An error means that the question has been withdrawn.
                let _ = self.questions.swap_remove(place).request.answer.send(Response::from_result(result));
            }
        }
        self.questions.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
    }

    /// What came while the call was parked, in order.
    pub(super) fn next_kept(&mut self) -> Option<Event> {
        let notification = self.kept.pop_front().map(|kept| Event::Message(ServerMessage::Notification(kept)));
        notification.or_else(|| self.response.take().map(|response| Event::Response(*response)))
    }

    /// The digest of what the client asked for.
    pub(super) fn subject(&mut self) -> Subject {
        let (method, params) = (&self.method, self.params.as_ref());
        *self.subject.get_or_insert_with(|| state::subject(method, params))
    }

    /// Reads what comes while the call is parked, keeping as many notifications as `limit`; ready
    /// if the call is gone.
    pub(super) fn poll_parked(&mut self, limit: usize, max_questions: usize, cx: &mut Context<'_>) -> Poll<()> {
        while self.response.is_none() {
            match std::task::ready!(self.running.poll_next(cx)) {
                Event::Message(ServerMessage::Notification(notification)) if self.kept.len() < limit => {
                    self.kept.push_back(notification);
                }
                Event::Message(ServerMessage::Notification(_)) => {
                    tracing::debug!(limit, "too many notifications for a parked call; one is dropped");
                }
                Event::Message(ServerMessage::Request(question)) => self.ask(question, max_questions),
                Event::Message(ServerMessage::Refused(missing)) => self.note_missing(missing),
                Event::Message(ServerMessage::Pause { .. }) => {}
                Event::Response(response) => self.response = Some(Box::new(response)),
                Event::Cancelled => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

/// Whether a server says that the request did not succeed. What the gateway says for want of an
/// answer has its own reasons.
fn has_failed(response: &Response) -> bool {
    match response.result() {
        Some(result) => result.get("isError").is_some_and(|is_error| is_error.is_true()),
        None => !matches!(response.error_code(), Some(code::BACKEND_UNAVAILABLE | code::BACKEND_TIMEOUT)),
    }
}
