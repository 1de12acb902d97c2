//! The unanswered requests, and which of them each message of the server belongs to.
//!
//! Locked only for moments, never across an await.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanlight_protocol::{Json, LogLevel, Response};
use fanlight_telemetry::Parent;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::request::deadline::PausableDeadline;
use crate::request::request_number;
use crate::request::server_request::{OpenServerRequests, PendingServerRequest};
use fanlight_canonical::{BackendError, CallContext, ServerMessages};

pub(super) type Outcome = Result<Response, BackendError>;

/// One unanswered request.
pub(super) struct PendingCall {
    pub(super) answer: oneshot::Sender<Outcome>,
    /// The call's progress token.
    pub(super) token: i64,
    /// The task whose result it waits for.
    pub(super) task: Option<String>,
    pub(super) messages: ServerMessages,
    pub(super) context: Arc<CallContext>,
    pub(super) deadline: Arc<PausableDeadline>,
    /// Set for a subscription, which is not a call.
    pub(super) subscription: bool,
    /// Receives server requests; `None` if the server must not send any.
    pub(super) asks: Option<mpsc::Sender<ServerRequestEvent>>,
    /// The call's span.
    pub(super) trace: Parent,
}

/// An event about a server request, for the call that it belongs to.
pub(super) enum ServerRequestEvent {
    /// The request has been sent to the client.
    Sent(PendingServerRequest),
    /// The server has cancelled its request with this id.
    Withdrawn(Json),
}

impl ServerRequestEvent {
    pub(super) fn apply_to(self, requests: &mut OpenServerRequests) {
        match self {
            Self::Sent(request) => requests.add(request),
            Self::Withdrawn(id) => requests.cancel(&id),
        }
    }
}

/// The call that a server request belongs to.
pub(super) enum RequestTarget {
    Call {
        messages: ServerMessages,
        deadline: Arc<PausableDeadline>,
        asks: mpsc::Sender<ServerRequestEvent>,
        trace: Parent,
    },
    /// No running call can be asked.
    None,
    /// Calls of several clients are running.
    Ambiguous,
}

/// The unanswered requests by id; the lowest is the oldest.
#[derive(Default)]
pub(super) struct PendingCalls(Mutex<Table>);

#[derive(Default)]
struct Table {
    calls: BTreeMap<i64, PendingCall>,
    closed: bool,
}

/// The channel has ended, so no request can be added.
#[derive(Debug)]
pub(super) struct Closed;

/// The call that a log message belongs to.
pub(super) enum LogTarget {
    Call(ServerMessages),
    /// The log message belongs to no call.
    None,
    /// Calls of several clients asked for it, and none must see another's messages.
    Ambiguous,
}

impl PendingCalls {
    pub(super) fn insert(&self, id: i64, waiting: PendingCall) -> Result<(), Closed> {
        let mut table = self.0.lock();
        if table.closed {
            return Err(Closed);
        }
        table.calls.insert(id, waiting);
        Ok(())
    }

    pub(super) fn remove(&self, id: i64) -> Option<PendingCall> {
        self.0.lock().calls.remove(&id)
    }

    /// Gives a request its outcome; returns whether it was still pending.
    pub(super) fn resolve(&self, id: i64, outcome: Outcome) -> bool {
        match self.remove(id) {
            Some(waiting) => {
                // The caller may have gone just now.
                let _ = waiting.answer.send(outcome);
                true
            }
            None => false,
        }
    }

    /// Fails every pending and every later request.
    pub(super) fn close(&self, error: &BackendError) {
        let calls = {
            let mut table = self.0.lock();
            table.closed = true;
            std::mem::take(&mut table.calls)
        };
        for waiting in calls.into_values() {
            let _ = waiting.answer.send(Err(error.clone()));
        }
    }

    /// The receiver of a subscription's messages.
    pub(super) fn subscription(&self, id: i64) -> Option<ServerMessages> {
        let table = self.0.lock();
        table
            .calls
            .get(&id)
            .filter(|waiting| waiting.subscription)
            .map(|waiting| waiting.messages.clone())
    }

    /// The only pending call, if there is exactly one.
    pub(super) fn only_call(&self) -> Option<i64> {
        let table = self.0.lock();
        let mut ids = table
            .calls
            .iter()
            .filter(|(_, waiting)| !waiting.subscription)
            .map(|(id, _)| *id);
        let only = ids.next();
        only.filter(|_| ids.next().is_none())
    }

    /// The receiver of progress with this token, if its client asked for progress.
    pub(super) fn progress_target(&self, token: i64) -> Option<ServerMessages> {
        let table = self.0.lock();
        // A request's token usually is its id.
        let same_id = table
            .calls
            .get(&token)
            .filter(|waiting| waiting.token == token);
        let waiting =
            same_id.or_else(|| table.calls.values().find(|waiting| waiting.token == token))?;
        waiting
            .context
            .wants_progress
            .then(|| waiting.messages.clone())
    }

    /// The receiver of a log message. On a channel it names no request, so it is delivered only if
    /// it can belong to a single client. Modern servers log for requests that ask for it
    /// (2026-07-28 server/utilities/logging), legacy ones for any.
    pub(super) fn log_target(&self, level: Option<LogLevel>, in_session: bool) -> LogTarget {
        let table = self.0.lock();
        let asked = |waiting: &&PendingCall| match (waiting.context.log_level, level) {
            (None, _) => in_session,
            (Some(least), Some(level)) => in_session || level >= least,
            (Some(_), None) => true,
        };
        let mut candidates = table.calls.values().filter(asked);
        let Some(oldest) = candidates.next() else {
            return LogTarget::None;
        };
        if candidates.any(|other| !other.context.is_of_client(&oldest.context)) {
            return LogTarget::Ambiguous;
        }
        // A session has one level for all; this client may have asked for less.
        match (oldest.context.log_level, level) {
            (Some(least), Some(level)) if level < least => LogTarget::None,
            _ => LogTarget::Call(oldest.messages.clone()),
        }
    }

    /// The call that a server request belongs to. A request of a task belongs to the call that
    /// waits for the task's result. Others name no call, so all running calls must belong to one
    /// client, as for log messages; the oldest one that does not wait for its client gets it.
    ///
    /// A progress token in the request does not help: the server invents it for progress of its own
    /// request (2025-11-25 basic/utilities/progress), and both may be small numbers.
    pub(super) fn request_target(&self, task: Option<&str>) -> RequestTarget {
        let table = self.0.lock();
        let can_be_asked =
            |waiting: &&PendingCall| waiting.asks.is_some() && waiting.messages.is_connected();
        let waits = |waiting: &&PendingCall| task.is_some() && waiting.task.as_deref() == task;
        let candidates = || table.calls.values().filter(can_be_asked);
        let waiting = candidates().find(waits);
        // A call that waits for its client's answer seldom asks again.
        let oldest = || candidates().min_by_key(|waiting| waiting.deadline.is_paused());
        let found = waiting.or_else(oldest);
        let Some((found, asks)) = found.and_then(|found| Some((found, found.asks.clone()?))) else {
            return RequestTarget::None;
        };
        if waiting.is_none()
            && candidates().any(|other| !other.context.is_of_client(&found.context))
        {
            return RequestTarget::Ambiguous;
        }
        RequestTarget::Call {
            messages: found.messages.clone(),
            deadline: Arc::clone(&found.deadline),
            asks,
            trace: found.trace.clone(),
        }
    }

    /// The channel to the only client with running calls, through its oldest call.
    pub(super) fn only_client(&self) -> Option<ServerMessages> {
        let table = self.0.lock();
        let mut candidates = table
            .calls
            .values()
            .filter(|waiting| waiting.messages.is_connected());
        let oldest = candidates.next()?;
        let alone = candidates.all(|other| other.context.is_of_client(&oldest.context));
        alone.then(|| oldest.messages.clone())
    }

    /// Handles a server's cancellation: of its request, or of a subscription (2026-07-28
    /// basic/patterns/cancellation), which ends as by its response. All calls are notified, since
    /// the right one is unknown here.
    pub(super) fn withdraw(&self, id: &Json) {
        if let Some(id) = request_number(id).filter(|id| self.subscription(*id).is_some()) {
            self.resolve(id, Ok(Response::from_result(&Json::empty_object())));
        }
        for asks in self
            .0
            .lock()
            .calls
            .values()
            .filter_map(|waiting| waiting.asks.as_ref())
        {
            // A call with a full queue is about to end.
            let _ = asks.try_send(ServerRequestEvent::Withdrawn(id.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanlight_canonical::MessageReceiver;

    use fanlight_canonical::{Caller, Principal, SessionKey};

    type Answered = oneshot::Receiver<Result<Response, BackendError>>;

    struct Running {
        answered: Answered,
        _inbox: MessageReceiver,
    }

    fn call(pending: &PendingCalls, id: i64, client: u64, log_level: Option<LogLevel>) -> Running {
        let (answer, answered) = oneshot::channel();
        let (messages, inbox) = ServerMessages::channel(1);
        let (asks, _) = mpsc::channel(1);
        let mut context = (*CallContext::internal()).clone();
        context.caller = Caller::session_of(Principal::anonymous(), SessionKey(client));
        context.log_level = log_level;
        context.wants_progress = id % 2 == 1;
        let waiting = PendingCall {
            answer,
            token: id,
            task: (id == 9).then(|| "t".to_owned()),
            messages,
            context: Arc::new(context),
            deadline: Arc::default(),
            subscription: false,
            trace: Parent::default(),
            asks: Some(asks),
        };
        pending.insert(id, waiting).unwrap();
        Running {
            answered,
            _inbox: inbox,
        }
    }

    fn internal(answer: oneshot::Sender<Result<Response, BackendError>>) -> PendingCall {
        PendingCall {
            answer,
            token: 1,
            task: None,
            messages: ServerMessages::discard(),
            context: CallContext::internal(),
            deadline: Arc::default(),
            subscription: false,
            trace: Parent::default(),
            asks: None,
        }
    }

    fn target(pending: &PendingCalls, level: LogLevel, modern: bool) -> &'static str {
        match pending.log_target(Some(level), !modern) {
            LogTarget::Call(_) => "call",
            LogTarget::None => "none",
            LogTarget::Ambiguous => "ambiguous",
        }
    }

    #[test]
    fn legacy_log_message_is_for_the_only_client_with_calls() {
        let pending = PendingCalls::default();
        assert_eq!(target(&pending, LogLevel::Info, false), "none");
        let _a = call(&pending, 1, 1, None);
        assert_eq!(target(&pending, LogLevel::Info, false), "call");
        let _b = call(&pending, 2, 1, None);
        assert_eq!(target(&pending, LogLevel::Info, false), "call");
        let _c = call(&pending, 3, 2, Some(LogLevel::Error));
        // The level does not tell whose message it is, since the server has one level for all.
        assert_eq!(target(&pending, LogLevel::Info, false), "ambiguous");
        pending.remove(1);
        pending.remove(2);
        assert_eq!(target(&pending, LogLevel::Info, false), "none");
        assert_eq!(target(&pending, LogLevel::Error, false), "call");
    }

    #[test]
    fn modern_log_message_is_for_calls_that_asked_for_its_level() {
        let pending = PendingCalls::default();
        let _a = call(&pending, 1, 1, None);
        assert_eq!(target(&pending, LogLevel::Info, true), "none");
        let _b = call(&pending, 2, 2, Some(LogLevel::Info));
        assert_eq!(target(&pending, LogLevel::Info, true), "call");
        let _c = call(&pending, 3, 3, Some(LogLevel::Error));
        assert_eq!(target(&pending, LogLevel::Info, true), "call");
        assert_eq!(target(&pending, LogLevel::Error, true), "ambiguous");
        assert_eq!(target(&pending, LogLevel::Debug, true), "none");
    }

    #[test]
    fn server_request_is_for_the_only_client_with_calls() {
        let pending = PendingCalls::default();
        assert!(matches!(pending.request_target(None), RequestTarget::None));
        let (answer, _answered) = oneshot::channel();
        let messages = ServerMessages::discard();
        let (asks, _) = mpsc::channel(1);
        let own = PendingCall {
            messages,
            asks: Some(asks),
            ..internal(answer)
        };
        pending.insert(1, own).unwrap();
        assert!(matches!(pending.request_target(None), RequestTarget::None));
        let _a = call(&pending, 2, 1, None);
        let _b = call(&pending, 3, 1, None);
        assert!(matches!(
            pending.request_target(None),
            RequestTarget::Call { .. }
        ));
        let gone = call(&pending, 4, 2, None);
        assert!(matches!(
            pending.request_target(None),
            RequestTarget::Ambiguous
        ));
        assert!(pending.only_client().is_none());
        // A task's request belongs to the call that waits for the task.
        let _waits = call(&pending, 9, 3, None);
        assert!(matches!(
            pending.request_target(Some("t")),
            RequestTarget::Call { .. }
        ));
        assert!(matches!(
            pending.request_target(Some("u")),
            RequestTarget::Ambiguous
        ));
        pending.remove(9);
        drop(gone);
        assert!(matches!(
            pending.request_target(None),
            RequestTarget::Call { .. }
        ));
        assert!(pending.only_client().is_some());
    }

    #[test]
    fn progress_is_for_the_request_it_names() {
        let pending = PendingCalls::default();
        let _a = call(&pending, 1, 1, None);
        let _b = call(&pending, 2, 1, None);
        assert!(pending.progress_target(1).is_some());
        assert!(pending.progress_target(2).is_none());
        assert!(pending.progress_target(3).is_none());
    }

    #[test]
    fn closing_fails_all_calls_and_rejects_new_ones() {
        let pending = PendingCalls::default();
        let mut callers = [call(&pending, 1, 1, None), call(&pending, 2, 2, None)];
        let error = BackendError::Exited {
            status: Some("signal: 9".into()),
        };
        pending.close(&error);
        for caller in &mut callers {
            assert_eq!(caller.answered.try_recv().unwrap().unwrap_err(), error);
        }
        let (answer, _answered) = oneshot::channel();
        assert!(pending.insert(3, internal(answer)).is_err());
    }

    #[test]
    fn request_is_resolved_once() {
        let pending = PendingCalls::default();
        let mut caller = call(&pending, 4, 1, None);
        assert_eq!(pending.only_call(), Some(4));
        let answer = || Ok(Response::from_result(&Json::empty_object()));
        assert!(pending.resolve(4, answer()));
        assert!(!pending.resolve(4, answer()));
        assert!(caller.answered.try_recv().unwrap().is_ok());
        assert_eq!(pending.only_call(), None);
    }
}
