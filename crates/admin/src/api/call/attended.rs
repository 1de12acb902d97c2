//! A call that an operator attends: its progress, the server's questions and the answer, as
//! server-sent events.
//!
//! It runs as a separate task. The task ends with the event stream, the operator's session or
//! credentials, or the settings that allowed it.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use axum::response::sse::Event;
use fanlight_canonical::{
    Call, Detail, MessageReceiver, ServerMessage, ServerMessages, ServerRequest,
};
use fanlight_gateway::Operation;
use fanlight_protocol::{
    InputRequired, Json, MAX_INPUT_ROUNDS, Method, ObjectBuilder, RpcError, code,
};
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _, unfold};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::running::{NotBegun, Owner, RunningCall};
use super::{MissingCapabilities, OperatorCall, TracedCall};
use crate::api::stream::{self, Watch, event};
use crate::{Admin, Operator, Refusal, millis, to_json};

/// The page's capabilities as a client (2025-11-25 and 2026-07-28 client/elicitation,
/// Capabilities).
const CAPABILITIES: &str = r#"{"elicitation":{"form":{},"url":{}}}"#;
/// The limits of events to be sent, and of messages to be read.
const QUEUE: usize = 16;
/// The time between two progress events. There is no option: a person notices no difference below
/// this.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Begins the call; the response is the stream of its events.
pub(super) fn answer(
    admin: &Arc<Admin>,
    operator: Operator,
    call: OperatorCall,
) -> Result<Response, Refusal> {
    let now = admin.now();
    let running = admin
        .calls
        .begin(Owner::from_operator(&operator), now.settings.max_calls)
        .map_err(|error| match error {
            NotBegun::TooMany => {
                let limit = now.settings.max_calls;
                let message = format!(
                    "you already have {limit} running calls, which is the limit: cancel one, or wait"
                );
                Refusal::unavailable(message)
            }
            NotBegun::NoRandomNumbers => Refusal::unavailable("the system has no random numbers for the id of a call",
            ),
        })?;
    let (events, receiver) = mpsc::channel(QUEUE);
    let traced = TracedCall::begin(&admin.subject, &call);
    let watch = Watch::new(admin, &now, operator);
    let (admin, cancelled) = (Arc::clone(admin), running.cancelled.clone());
    tokio::spawn(async move {
        let scope = traced.parent();
        let closed = events.clone();
        let attended = Attended::new(admin, running, traced, events);
        tokio::select! {
            biased;
            () = closed.closed() => {}
            _ = watch.ended() => {}
            () = cancelled.cancelled() => {}
            () = super::cancelled(&scope) => {}
            () = scope.scope(attended.run(call)) => return,
        }
        // The event is lost if the stream is closed.
        let _ = closed.try_send(event("cancelled", &Json::empty_object()));
    });
    let events = unfold(receiver, |mut receiver| async move {
        Some((receiver.recv().await?, receiver))
    });
    Ok(stream::response(&now, events))
}

/// A call, with everything needed to show it to its operator.
struct Attended {
    admin: Arc<Admin>,
    running: RunningCall,
    traced: TracedCall,
    events: mpsc::Sender<Event>,
    sender: ServerMessages,
    messages: MessageReceiver,
    missing: MissingCapabilities,
    /// A legacy server's requests that wait for the operator.
    open: FuturesUnordered<BoxFuture<'static, u64>>,
    progress: Progress,
}

impl Attended {
    fn new(
        admin: Arc<Admin>,
        running: RunningCall,
        traced: TracedCall,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (sender, messages) = ServerMessages::channel(QUEUE);
        let missing = MissingCapabilities::new(Json::literal(CAPABILITIES));
        let (open, progress) = (FuturesUnordered::new(), Progress::default());
        Self {
            admin,
            running,
            traced,
            events,
            sender,
            messages,
            missing,
            open,
            progress,
        }
    }

    async fn run(mut self, call: OperatorCall) {
        let mut begun = ObjectBuilder::new();
        begun.string("call", &self.running.id);
        begun.member("traceId", &to_json(&self.traced.trace_id()));
        self.send("call", &begun.finish()).await;
        let response = self.resolve(call).await;
        let Self {
            traced,
            events,
            missing,
            ..
        } = self;
        let answer = traced.finish(&response, missing.required_capabilities());
        // An error means that the stream is closed.
        let _ = events.send(event("answer", &answer)).await;
    }

    /// The response after all rounds of input (2026-07-28 basic/patterns/mrtr, Client
    /// Requirements).
    async fn resolve(&mut self, call: OperatorCall) -> fanlight_protocol::Response {
        let patience = self.admin.now().settings.answer_timeout;
        let context = self.traced.context(
            &self.admin.subject,
            call.endpoint,
            Json::literal(CAPABILITIES),
            true,
        );
        let request = Call::new(call.method, Some(call.params), context);
        let mut operation = self
            .admin
            .subject
            .gateway
            .resolve(request, Detail::Known)
            .await;
        for round in 0.. {
            let response = self.until_answered(&mut operation).await;
            let Some(required) = InputRequired::from_response(&response) else {
                return response;
            };
            if round == MAX_INPUT_ROUNDS {
                return error_response(format!(
                    "the server asked for input more than {MAX_INPUT_ROUNDS} times, which is the limit"
                ));
            }
            match self.ask_all(&required, patience).await {
                Ok(answers) => operation.answer(&answers, required.state.as_ref()),
                Err(Unanswered::Incapable) => return response,
                Err(Unanswered::Because(reason)) => return error_response(reason),
            }
        }
        error_response("the server asked for input too often".to_owned())
    }

    /// The response to one request. Meanwhile the server's messages are shown.
    async fn until_answered(&mut self, operation: &mut Operation) -> fanlight_protocol::Response {
        let admin = Arc::clone(&self.admin);
        let mut answering =
            std::pin::pin!(admin.subject.gateway.run(operation, self.sender.clone()));
        let response = loop {
            tokio::select! {
                biased;
                Some(message) = self.messages.recv() => self.take(message).await,
                Some(question) = self.open.next() => self.settled(question).await,
                progress = self.progress.next() => self.send("progress", &progress).await,
                response = &mut answering => break response,
            }
        };
        while let Some(message) = self.messages.try_recv() {
            if let ServerMessage::Refused(missing) = message {
                self.missing.note(missing);
            }
        }
        // The server no longer waits for any of them.
        self.open.clear();
        response
    }

    async fn take(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Notification(notification)
            | ServerMessage::TaskProgress(notification) => {
                self.traced.parent().record_notification(&notification);
                if notification.method == Method::from_name("notifications/progress") {
                    self.progress.latest = notification.params();
                }
            }
            ServerMessage::Refused(missing) => self.missing.note(missing),
            ServerMessage::Request(request) => self.ask(request).await,
            ServerMessage::Stream(_) => {}
        }
    }

    /// Asks the operator on behalf of a legacy server. Dropping the request tells the server that
    /// the operator cannot be asked.
    async fn ask(&mut self, request: ServerRequest) {
        if self.missing.lacks(&request.method, request.params.as_ref())
            || request.method != Method::Elicit
        {
            return;
        }
        let Some(question) = self.running.open_question() else {
            return;
        };
        self.show(question.number, request.params.as_ref(), request.deadline)
            .await;
        let ServerRequest {
            answer: mut to_server,
            deadline,
            ..
        } = request;
        self.open.push(Box::pin(async move {
            tokio::select! {
                biased;
                () = to_server.closed() => {}
                given = timeout_at(deadline, question.answer) => if let Ok(Ok(result)) = given {
                    // An error means that the server no longer waits.
                    let _ = to_server.send(fanlight_protocol::Response::from_result(&result));
                },
            }
            question.number
        }));
    }

    /// Asks the operator for all input that a modern server needs, at once.
    async fn ask_all(
        &mut self,
        required: &InputRequired,
        patience: Duration,
    ) -> Result<Vec<(Json, Json)>, Unanswered> {
        if required.is_empty() {
            return Err(Unanswered::new(
                "the server asks for input, but has neither input requests nor a state",
            ));
        }
        let requests = required.requests();
        let requests =
            requests.map_err(|_| Unanswered::new("an input request of the server is malformed"))?;
        let mut is_incapable = false;
        for request in &requests {
            is_incapable |= self.missing.lacks(&request.method, request.params.as_ref());
        }
        if is_incapable {
            return Err(Unanswered::Incapable);
        }
        let deadline = Instant::now() + patience;
        let (mut keys, mut answers) = (Vec::new(), Vec::new());
        for request in requests {
            if request.method != Method::Elicit {
                return Err(Unanswered::new(
                    "the page does not support this request of the server",
                ));
            }
            let question = self.running.open_question();
            let question = question
                .ok_or_else(|| Unanswered::new("the server asks too many questions at once"))?;
            self.show(question.number, request.params.as_ref(), deadline)
                .await;
            keys.push((question.number, request.key));
            answers.push(question.answer);
        }
        let given = timeout_at(deadline, join_all(answers)).await;
        let given = given.map_err(|_| {
            Unanswered::Because(format!("nobody answered the server within {patience:?}"))
        })?;
        for (number, _) in &keys {
            self.settled(*number).await;
        }
        Ok(keys
            .into_iter()
            .zip(given)
            .filter_map(|((_, key), given)| Some((key, given.ok()?)))
            .collect())
    }

    async fn show(&mut self, question: u64, params: Option<&Json>, deadline: Instant) {
        let mut shown = ObjectBuilder::new();
        shown.member("question", &to_json(&question));
        shown.member(
            "params",
            &params.cloned().unwrap_or_else(Json::empty_object),
        );
        shown.member(
            "leftMs",
            &to_json(&millis(deadline.saturating_duration_since(Instant::now()))),
        );
        self.send("question", &shown.finish()).await;
    }

    async fn settled(&mut self, question: u64) {
        let mut settled = ObjectBuilder::new();
        settled.member("question", &to_json(&question));
        self.send("settled", &settled.finish()).await;
    }

    async fn send(&mut self, name: &str, value: &Json) {
        // An error means that the stream is closed, and the call is about to be cancelled.
        let _ = self.events.send(event(name, value)).await;
    }
}

/// The reason why a server gets no input.
enum Unanswered {
    /// The request needs a capability that the page lacks.
    Incapable,
    /// Another reason, for the operator.
    Because(String),
}

impl Unanswered {
    fn new(reason: &str) -> Self {
        Self::Because(reason.to_owned())
    }
}

/// The latest progress that has not been shown yet.
#[derive(Default)]
struct Progress {
    latest: Option<Json>,
    /// When the next progress may be shown.
    due: Option<Instant>,
}

impl Progress {
    /// Waits for progress that may be shown.
    async fn next(&mut self) -> Json {
        let Some(latest) = &self.latest else {
            return std::future::pending().await;
        };
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
        let latest = latest.clone();
        self.latest = None;
        self.due = Some(Instant::now() + PROGRESS_INTERVAL);
        latest
    }
}

fn error_response(reason: String) -> fanlight_protocol::Response {
    fanlight_protocol::Response::from_error(&RpcError::new(code::INTERNAL, reason))
}
