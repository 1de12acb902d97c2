//! What a scripted server answers with: replies, the gates that hold them, the faults that break them.

use std::sync::Arc;

use fanlight_tests::slicer;
use tokio::sync::watch;

use super::stream::Way;
use super::{Received, Shared, response};
use crate::harness::within;

/// What a request is answered with.
#[derive(Clone)]
pub(crate) struct Reply {
    /// stdio: written to standard error before anything else.
    pub(super) stderr: Vec<u8>,
    /// What happens first.
    pub(super) steps: Vec<Step>,
    pub(super) gate: Option<Gate>,
    /// HTTP: answer with an event stream though nothing comes first.
    pub(super) stream: bool,
    pub(super) end: End,
}

/// Something that happens before the answer. `{token}` in messages stands for the request's raw progress token, and
/// `{call}` for its id without quotes, so that each call can ask under an id of its own.
#[derive(Clone)]
pub(super) enum Step {
    Say(String),
    /// Waits until the client has answered everything asked so far.
    Answered,
}

/// A raw result from a request and the client's answers to what was asked during it.
type Conclude = dyn Fn(&Received, &[Arc<Received>]) -> String + Send + Sync;

#[derive(Clone)]
pub(super) enum End {
    Result(String),
    Error(String),
    Compute(Arc<dyn Fn(&Received) -> String + Send + Sync>),
    Conclude(Arc<Conclude>),
    Driven,
    /// Driven, once everything that the request asks for has been acknowledged.
    Acknowledged,
    Fault(Fault),
}

/// How an answer goes wrong.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Never answers.
    Hang,
    /// stdio: the process exits with this code. HTTP: the connection closes without an answer.
    Die(u8),
    /// HTTP: the body breaks off in the middle.
    BreakOff,
    /// HTTP: the stream ends, in good order, after half an event.
    HalfEvent,
    /// These bytes first, which are no message, then this result.
    Garbage(Vec<u8>, String),
    /// A result that makes the line or event at least this long, in bytes.
    Huge(usize),
    /// HTTP: this status, content type and body.
    Status(u16, &'static str, &'static str),
}

impl End {
    /// The whole response, if the end is one.
    pub(super) fn response(&self, request: &Received, answers: &[Arc<Received>]) -> Option<String> {
        match self {
            Self::Result(result) => Some(response(request, "result", result)),
            Self::Error(error) => Some(response(request, "error", error)),
            Self::Compute(compute) => Some(response(request, "result", &compute(request))),
            Self::Conclude(conclude) => Some(response(request, "result", &conclude(request, answers))),
            Self::Driven | Self::Acknowledged | Self::Fault(_) => None,
        }
    }
}

impl Reply {
    /// A response with this result, raw.
    pub(crate) fn result(raw: impl Into<String>) -> Self {
        Self::of(End::Result(raw.into()))
    }

    /// A response with this error object, raw.
    pub(crate) fn error(raw: impl Into<String>) -> Self {
        Self::of(End::Error(raw.into()))
    }

    /// A response whose raw result depends on the request.
    pub(crate) fn compute(result: impl Fn(&Received) -> String + Send + Sync + 'static) -> Self {
        Self::of(End::Compute(Arc::new(result)))
    }

    /// A response whose raw result depends on the request and on what the client answered to [`Reply::asking`], in the
    /// order of the questions.
    pub(crate) fn conclude(result: impl Fn(&Received, &[Arc<Received>]) -> String + Send + Sync + 'static) -> Self {
        Self::of(End::Conclude(Arc::new(result)))
    }

    /// An event stream, or lines, that the test writes itself: see [`super::Backend::stream`].
    pub(crate) fn driven() -> Self {
        Self::of(End::Driven).streamed()
    }

    /// The same for `subscriptions/listen`; the whole filter is acknowledged first.
    pub(crate) fn listening() -> Self {
        Self::of(End::Acknowledged).streamed()
    }

    pub(crate) fn fault(fault: Fault) -> Self {
        Self::of(End::Fault(fault))
    }

    fn of(end: End) -> Self {
        Self { stderr: Vec::new(), steps: Vec::new(), gate: None, stream: false, end }
    }

    /// stdio: writes this to standard error first.
    pub(crate) fn complaining(mut self, stderr: &[u8]) -> Self {
        self.stderr = stderr.to_vec();
        self
    }

    /// Sends these whole messages first.
    pub(crate) fn after(mut self, messages: &[&str]) -> Self {
        self.steps.extend(messages.iter().map(|message| Step::Say((*message).to_owned())));
        self
    }

    /// Sends these whole requests, all at once, and waits until the client has answered each.
    pub(crate) fn asking(self, requests: &[&str]) -> Self {
        let mut reply = self.after(requests);
        reply.steps.push(Step::Answered);
        reply
    }

    /// Waits at `gate` before the end, after the messages that come first.
    pub(crate) fn gated(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// HTTP: uses an event stream in any case.
    pub(crate) fn streamed(mut self) -> Self {
        self.stream = true;
        self
    }

    /// Takes the steps before the answer and returns what the client answered to them. Without a way there is nothing
    /// to be said.
    pub(super) async fn take_steps(
        &self,
        request: &Received,
        shared: &Shared,
        way: Option<&Way>,
    ) -> Vec<Arc<Received>> {
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        for step in &self.steps {
            match step {
                Step::Say(message) => {
                    let message = filled(message, request);
                    shared.says(&message);
                    if let (Some(id), Some(_)) = (slicer::member(&message, "id"), slicer::member(&message, "method")) {
                        asked.push(id.to_owned());
                    }
                    way.expect("a way to say it").message(&message).await;
                }
                Step::Answered => {
                    for id in asked.drain(..) {
                        answers.push(shared.answer_to(&id, request).await);
                    }
                }
            }
        }
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        answers
    }
}

fn filled(message: &str, request: &Received) -> String {
    let token = request.member("params._meta.progressToken").unwrap_or("null");
    let call = request.member("id").unwrap_or_default().trim_matches('"');
    message.replace("{token}", token).replace("{call}", call)
}

/// Holds an answer until the test lets it go.
#[derive(Clone)]
pub(crate) struct Gate(Arc<watch::Sender<GateState>>);

#[derive(Default)]
struct GateState {
    reached: usize,
    open: bool,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(GateState::default())))
    }

    /// Waits until `count` answers have come to the gate.
    pub(crate) async fn reached(&self, count: usize) {
        within("the gate", self.0.subscribe().wait_for(|state| state.reached >= count)).await.unwrap();
    }

    /// Lets through whoever waits and whoever comes later.
    pub(crate) fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    pub(super) async fn pass(&self) {
        self.0.send_modify(|state| state.reached += 1);
        // The sender lives as long as `self`, so this waits for the gate and nothing else.
        let _ = self.0.subscribe().wait_for(|state| state.open).await;
    }
}
