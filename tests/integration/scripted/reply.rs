//! What a scripted server answers with: replies, the gates that hold them, the faults that break them.

use std::sync::Arc;

use tokio::sync::watch;

use super::Received;
use crate::harness::within;

/// What a request is answered with.
#[derive(Clone)]
pub(crate) struct Reply {
    /// stdio: written to standard error before anything else.
    pub(super) stderr: Vec<u8>,
    /// Whole messages sent first.
    pub(super) before: Vec<String>,
    pub(super) gate: Option<Gate>,
    /// HTTP: answer with an event stream though nothing comes first.
    pub(super) stream: bool,
    pub(super) end: End,
}

#[derive(Clone)]
pub(super) enum End {
    Result(String),
    Error(String),
    Compute(Arc<dyn Fn(&Received) -> String + Send + Sync>),
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

    pub(crate) fn fault(fault: Fault) -> Self {
        Self::of(End::Fault(fault))
    }

    fn of(end: End) -> Self {
        Self { stderr: Vec::new(), before: Vec::new(), gate: None, stream: false, end }
    }

    /// stdio: writes this to standard error first.
    pub(crate) fn complaining(mut self, stderr: &[u8]) -> Self {
        self.stderr = stderr.to_vec();
        self
    }

    /// Sends these whole messages first. `{token}` in them stands for the request's raw progress token.
    pub(crate) fn after(mut self, messages: &[&str]) -> Self {
        self.before = messages.iter().map(|message| (*message).to_owned()).collect();
        self
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

    pub(super) fn messages_before(&self, request: &Received) -> Vec<String> {
        let token = request.member("params._meta.progressToken").unwrap_or("null");
        self.before.iter().map(|message| message.replace("{token}", token)).collect()
    }
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
