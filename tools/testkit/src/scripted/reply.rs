//! The replies of a scripted server, the gates that hold them, and the faults that break them.

use std::sync::Arc;

use crate::slicer;
use tokio::sync::watch;

use super::channel::Channel;
use super::{Received, Shared, response};
use crate::patience::within;

/// The reply to a request.
#[derive(Clone)]
pub struct Reply {
    /// Text for standard error before anything else (stdio only).
    pub(super) stderr: Vec<u8>,
    /// The steps before the response.
    pub(super) steps: Vec<Step>,
    pub(super) gate: Option<Gate>,
    /// Whether to respond with an event stream even without earlier messages (HTTP only).
    pub(super) stream: bool,
    /// The exit code with which the process exits after the response (stdio only).
    pub(super) exit: Option<u8>,
    pub(super) end: End,
}

/// A step before the response. In messages the request's raw progress token replaces `{token}`. The
/// request's id without quotes replaces `{call}`, so that the server requests of different calls
/// have different ids.
#[derive(Clone)]
pub(super) enum Step {
    Say(String),
    /// Waits until the client has responded to all server requests so far.
    Answered,
}

/// Makes a raw result from a request and the client's responses to the server requests during it.
type Conclude = dyn Fn(&Received, &[Arc<Received>]) -> String + Send + Sync;

#[derive(Clone)]
pub(super) enum End {
    Result(String),
    Error(String),
    Compute(Arc<dyn Fn(&Received) -> String + Send + Sync>),
    /// A whole message.
    Written(Arc<dyn Fn(&Received) -> String + Send + Sync>),
    /// Another reply, which depends on the request.
    Chosen(Arc<dyn Fn(&Received) -> Reply + Send + Sync>),
    Conclude(Arc<Conclude>),
    Driven,
    /// A stream that the test writes, after the whole filter has been acknowledged.
    Acknowledged,
    Fault(Fault),
}

/// A fault of a response.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No response.
    Hang,
    /// stdio: the process exits with this code. HTTP: the connection closes without a response.
    Die(u8),
    /// stdio: the process sends SIGKILL to itself.
    Kill,
    /// HTTP: the body breaks off in the middle.
    BreakOff,
    /// HTTP: the stream ends regularly after half an event.
    HalfEvent,
    /// These bytes, which are no message, and then this result.
    Garbage(Vec<u8>, String),
    /// A result that makes the line or event at least this many bytes long.
    Huge(usize),
    /// HTTP: this status, content type and body.
    Status(u16, &'static str, &'static str),
}

impl End {
    /// The whole response, if the reply ends with one.
    pub(super) fn response(&self, request: &Received, answers: &[Arc<Received>]) -> Option<String> {
        match self {
            Self::Result(result) => Some(response(request, "result", result)),
            Self::Error(error) => Some(response(request, "error", error)),
            Self::Compute(compute) => Some(response(request, "result", &compute(request))),
            Self::Conclude(conclude) => {
                Some(response(request, "result", &conclude(request, answers)))
            }
            Self::Written(write) => Some(write(request)),
            Self::Driven | Self::Acknowledged | Self::Fault(_) | Self::Chosen(_) => None,
        }
    }
}

impl Reply {
    /// A response with this raw result.
    pub fn result(raw: impl Into<String>) -> Self {
        Self::new(End::Result(raw.into()))
    }

    /// A response with this raw error object.
    pub fn error(raw: impl Into<String>) -> Self {
        Self::new(End::Error(raw.into()))
    }

    /// A response whose raw result depends on the request.
    pub fn compute(result: impl Fn(&Received) -> String + Send + Sync + 'static) -> Self {
        Self::new(End::Compute(Arc::new(result)))
    }

    /// A response whose raw result depends on the request and on the client's responses to
    /// [`Reply::asking`], in the order of the server requests.
    pub fn conclude(
        result: impl Fn(&Received, &[Arc<Received>]) -> String + Send + Sync + 'static,
    ) -> Self {
        Self::new(End::Conclude(Arc::new(result)))
    }

    /// A response written as a whole, including its id; it may be invalid.
    pub fn written(response: impl Fn(&Received) -> String + Send + Sync + 'static) -> Self {
        Self::new(End::Written(Arc::new(response)))
    }

    /// A reply that depends on the request.
    pub fn chosen(reply: impl Fn(&Received) -> Self + Send + Sync + 'static) -> Self {
        Self::new(End::Chosen(Arc::new(reply)))
    }

    /// An event stream, or lines, that the test writes: see [`super::Backend::stream`].
    pub fn driven() -> Self {
        Self::new(End::Driven).streamed()
    }

    /// [`Reply::driven`] for `subscriptions/listen`; the whole filter is acknowledged first.
    pub fn listening() -> Self {
        Self::new(End::Acknowledged).streamed()
    }

    /// A broken response, or none.
    pub fn fault(fault: Fault) -> Self {
        Self::new(End::Fault(fault))
    }

    fn new(end: End) -> Self {
        Self {
            stderr: Vec::new(),
            steps: Vec::new(),
            gate: None,
            stream: false,
            exit: None,
            end,
        }
    }

    /// First writes this to standard error (stdio only).
    pub fn complaining(mut self, stderr: &[u8]) -> Self {
        self.stderr = stderr.to_vec();
        self
    }

    /// Makes the process exit with this code after the response (stdio only).
    pub fn exiting(mut self, code: u8) -> Self {
        self.exit = Some(code);
        self
    }

    /// First sends these whole messages.
    pub fn after(mut self, messages: &[&str]) -> Self {
        self.steps.extend(
            messages
                .iter()
                .map(|message| Step::Say((*message).to_owned())),
        );
        self
    }

    /// Sends these whole server requests at once, and waits until the client has responded to each.
    pub fn asking(self, requests: &[&str]) -> Self {
        let mut reply = self.after(requests);
        reply.steps.push(Step::Answered);
        reply
    }

    /// Waits at `gate` before the response, after the earlier messages.
    pub fn gated(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Uses an event stream in any case (HTTP only).
    pub fn streamed(mut self) -> Self {
        self.stream = true;
        self
    }

    /// Executes the steps before the response and returns the client's responses to server
    /// requests. Without a sender there is nothing to do.
    pub(super) async fn take_steps(
        &self,
        request: &Received,
        shared: &Shared,
        channel: Option<&Channel>,
    ) -> Vec<Arc<Received>> {
        let (mut open, mut answers) = (Vec::new(), Vec::new());
        for step in &self.steps {
            match step {
                Step::Say(message) => {
                    let message = filled(message, request);
                    shared.record_sent(&message);
                    if let (Some(id), Some(_)) = (
                        slicer::member(&message, "id"),
                        slicer::member(&message, "method"),
                    ) {
                        open.push(id.to_owned());
                    }
                    channel
                        .expect("a stream for the message")
                        .message(&message)
                        .await;
                }
                Step::Answered => {
                    for id in open.drain(..) {
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
    let token = request
        .member("params._meta.progressToken")
        .unwrap_or("null");
    let call = request.member("id").unwrap_or_default().trim_matches('"');
    message.replace("{token}", token).replace("{call}", call)
}

/// A gate that holds responses until the test opens it.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<GateState>>);

#[derive(Default)]
struct GateState {
    reached: usize,
    open: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(GateState::default())))
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until `count` responses wait at the gate.
    pub async fn reached(&self, count: usize) {
        within(
            "the gate",
            self.0.subscribe().wait_for(|state| state.reached >= count),
        )
        .await
        .unwrap();
    }

    /// Lets all waiting and later responses pass.
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    pub(super) async fn pass(&self) {
        self.0.send_modify(|state| state.reached += 1);
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|state| state.open).await;
    }
}
