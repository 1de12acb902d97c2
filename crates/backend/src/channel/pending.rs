//! The requests that a server has not answered yet, and whom its notifications are for.
//!
//! Locked for moments only, never across an await.
//!
//! Must not know: pipes, HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::{Json, Response};
use fanlight_telemetry::Parent;
use tokio::sync::{mpsc, oneshot};

use crate::deadline::PausableDeadline;
use crate::question::Question;
use fanlight_canonical::BackendError;
use fanlight_canonical::{CallContext, ServerMessages};

/// What has become of a request.
pub(super) type Outcome = Result<Response, BackendError>;

/// One unanswered request.
pub(super) struct Waiting {
    pub(super) answer: oneshot::Sender<Outcome>,
    /// The progress token that its client is told of progress by.
    pub(super) token: i64,
    /// The task whose result it waits for.
    pub(super) task: Option<String>,
    pub(super) messages: ServerMessages,
    pub(super) context: Arc<CallContext>,
    pub(super) deadline: Arc<PausableDeadline>,
    /// It is a subscription, not a call.
    pub(super) subscription: bool,
    /// Tells the caller of the server's questions; absent where none can be asked.
    pub(super) asks: Option<mpsc::Sender<Asked>>,
    /// Its span.
    pub(super) trace: Parent,
}

/// What a caller is told of the server's questions.
pub(super) enum Asked {
    /// The client has been sent this one.
    Question(Question),
    /// The server does not wait for the one with this id any more.
    Withdrawn(Json),
}

/// Whom a question is for.
pub(super) enum AskTarget {
    Call {
        messages: ServerMessages,
        deadline: Arc<PausableDeadline>,
        asks: mpsc::Sender<Asked>,
        trace: Parent,
    },
    /// No client is waiting for anything.
    Nobody,
    /// Several clients could be meant.
    Ambiguous,
}

/// The unanswered requests by id: the lowest is the oldest.
#[derive(Default)]
pub(super) struct PendingCalls(Mutex<Table>);

#[derive(Default)]
struct Table {
    calls: BTreeMap<i64, Waiting>,
    closed: bool,
}

/// No request can be added: the channel has ended.
#[derive(Debug)]
pub(super) struct Closed;

/// Whom a log message is for.
pub(super) enum LogTarget {
    Call(ServerMessages),
    /// Nobody asked for it.
    Nobody,
    /// Several clients could be meant, and what is meant for one must not be shown to another.
    Ambiguous,
}

impl PendingCalls {
    pub(super) fn insert(&self, id: i64, waiting: Waiting) -> Result<(), Closed> {
        let mut table = self.lock();
        if table.closed {
            return Err(Closed);
        }
        table.calls.insert(id, waiting);
        Ok(())
    }

    pub(super) fn remove(&self, id: i64) -> Option<Waiting> {
        self.lock().calls.remove(&id)
    }

    /// Gives a request its outcome; says whether it was still pending.
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

    /// Fails every pending request, and every later one.
    pub(super) fn close(&self, error: &BackendError) {
        let calls = {
            let mut table = self.lock();
            table.closed = true;
            std::mem::take(&mut table.calls)
        };
        for waiting in calls.into_values() {
            let _ = waiting.answer.send(Err(error.clone()));
        }
    }

    /// Where the messages of a subscription go.
    pub(super) fn subscription(&self, id: i64) -> Option<ServerMessages> {
        let table = self.lock();
        table.calls.get(&id).filter(|waiting| waiting.subscription).map(|waiting| waiting.messages.clone())
    }

    /// The only pending call, if there is exactly one.
    pub(super) fn only(&self) -> Option<i64> {
        let table = self.lock();
        let mut ids = table.calls.iter().filter(|(_, waiting)| !waiting.subscription).map(|(id, _)| *id);
        let only = ids.next();
        only.filter(|_| ids.next().is_none())
    }

    /// Whom progress is for, if its client asked for it.
    pub(super) fn progress_target(&self, token: i64) -> Option<ServerMessages> {
        let table = self.lock();
        // Almost always a request's token is its id.
        let same_id = table.calls.get(&token).filter(|waiting| waiting.token == token);
        let waiting = same_id.or_else(|| table.calls.values().find(|waiting| waiting.token == token))?;
        waiting.context.wants_progress.then(|| waiting.messages.clone())
    }

    /// Whom a log message is for. On one channel it names no request, so it is delivered only where one
    /// client alone can be meant. Modern servers log for requests that ask for it
    /// (2026-07-28 server/utilities/logging), legacy ones for any.
    pub(super) fn log_target(&self, level: Option<LogLevel>, modern: bool) -> LogTarget {
        let table = self.lock();
        let asked = |waiting: &&Waiting| match (waiting.context.log_level, level) {
            (None, _) => !modern,
            (Some(least), Some(level)) => !modern || level >= least,
            (Some(_), None) => true,
        };
        let mut candidates = table.calls.values().filter(asked);
        let Some(oldest) = candidates.next() else { return LogTarget::Nobody };
        if candidates.any(|other| other.context.caller != oldest.context.caller) {
            return LogTarget::Ambiguous;
        }
        // A legacy server has one level for all; this client may have asked for less.
        match (oldest.context.log_level, level) {
            (Some(least), Some(level)) if level < least => LogTarget::Nobody,
            _ => LogTarget::Call(oldest.messages.clone()),
        }
    }

    /// Whom a question is for. One that belongs to a task is for the client that waits for the
    /// task's result. Others name no request on one channel: the same certainty is needed as for log
    /// messages. A progress token in a question is no sign: the server makes it up for progress on
    /// the question (2025-11-25 basic/utilities/progress), and small numbers are often both.
    pub(super) fn ask_target(&self, task: Option<&str>) -> AskTarget {
        let table = self.lock();
        let can_be_asked = |waiting: &&Waiting| waiting.asks.is_some() && waiting.messages.is_connected();
        let waits = |waiting: &&Waiting| task.is_some() && waiting.task.as_deref() == task;
        if let Some(Waiting { messages, deadline, asks: Some(asks), trace, .. }) =
            table.calls.values().filter(can_be_asked).find(waits)
        {
            let (messages, deadline, trace) = (messages.clone(), Arc::clone(deadline), trace.clone());
            return AskTarget::Call { messages, deadline, asks: asks.clone(), trace };
        }
        let mut candidates = table.calls.values().filter(can_be_asked);
        let Some(oldest) = candidates.next() else { return AskTarget::Nobody };
        let Some(asks) = oldest.asks.clone() else { return AskTarget::Nobody };
        if candidates.any(|other| other.context.caller != oldest.context.caller) {
            return AskTarget::Ambiguous;
        }
        let (messages, deadline, trace) = (oldest.messages.clone(), Arc::clone(&oldest.deadline), oldest.trace.clone());
        AskTarget::Call { messages, deadline, asks, trace }
    }

    /// The way to the client that alone can be meant by what the server asks; the oldest call's, if
    /// the client has several.
    pub(super) fn only_client(&self) -> Option<ServerMessages> {
        let table = self.lock();
        let mut candidates = table.calls.values().filter(|waiting| waiting.messages.is_connected());
        let oldest = candidates.next()?;
        let alone = candidates.all(|other| other.context.caller == oldest.context.caller);
        alone.then(|| oldest.messages.clone())
    }

    /// The server does not wait for the answer to a question any more; which call it belongs to,
    /// the callers know.
    pub(super) fn withdraw(&self, id: &Json) {
        for asks in self.lock().calls.values().filter_map(|waiting| waiting.asks.as_ref()) {
            // A caller with so many messages unread is about to find its questions unanswered.
            let _ = asks.try_send(Asked::Withdrawn(id.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let waiting = Waiting {
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
        Running { answered, _inbox: inbox }
    }

    fn internal(answer: oneshot::Sender<Result<Response, BackendError>>) -> Waiting {
        Waiting {
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
        match pending.log_target(Some(level), modern) {
            LogTarget::Call(_) => "call",
            LogTarget::Nobody => "nobody",
            LogTarget::Ambiguous => "ambiguous",
        }
    }

    #[test]
    fn legacy_log_messages_go_to_the_one_client_that_can_be_meant() {
        let pending = PendingCalls::default();
        assert_eq!(target(&pending, LogLevel::Info, false), "nobody");
        let _a = call(&pending, 1, 1, None);
        assert_eq!(target(&pending, LogLevel::Info, false), "call");
        let _b = call(&pending, 2, 1, None);
        assert_eq!(target(&pending, LogLevel::Info, false), "call");
        let _c = call(&pending, 3, 2, Some(LogLevel::Error));
        // The level does not tell whose it is: the server has one for all.
        assert_eq!(target(&pending, LogLevel::Info, false), "ambiguous");
        pending.remove(1);
        pending.remove(2);
        assert_eq!(target(&pending, LogLevel::Info, false), "nobody");
        assert_eq!(target(&pending, LogLevel::Error, false), "call");
    }

    #[test]
    fn modern_log_messages_go_to_who_asked_for_them() {
        let pending = PendingCalls::default();
        let _a = call(&pending, 1, 1, None);
        assert_eq!(target(&pending, LogLevel::Info, true), "nobody");
        let _b = call(&pending, 2, 2, Some(LogLevel::Info));
        assert_eq!(target(&pending, LogLevel::Info, true), "call");
        let _c = call(&pending, 3, 3, Some(LogLevel::Error));
        assert_eq!(target(&pending, LogLevel::Info, true), "call");
        assert_eq!(target(&pending, LogLevel::Error, true), "ambiguous");
        assert_eq!(target(&pending, LogLevel::Debug, true), "nobody");
    }

    #[test]
    fn questions_go_to_the_one_client_that_can_be_meant() {
        let pending = PendingCalls::default();
        assert!(matches!(pending.ask_target(None), AskTarget::Nobody));
        let (answer, _answered) = oneshot::channel();
        let messages = ServerMessages::discard();
        let (asks, _) = mpsc::channel(1);
        let own = Waiting { messages, asks: Some(asks), ..internal(answer) };
        pending.insert(1, own).unwrap();
        assert!(matches!(pending.ask_target(None), AskTarget::Nobody));
        let _a = call(&pending, 2, 1, None);
        let _b = call(&pending, 3, 1, None);
        assert!(matches!(pending.ask_target(None), AskTarget::Call { .. }));
        let gone = call(&pending, 4, 2, None);
        assert!(matches!(pending.ask_target(None), AskTarget::Ambiguous));
        assert!(pending.only_client().is_none());
        // What belongs to a task is for whoever waits for the task.
        let _waits = call(&pending, 9, 3, None);
        assert!(matches!(pending.ask_target(Some("t")), AskTarget::Call { .. }));
        assert!(matches!(pending.ask_target(Some("u")), AskTarget::Ambiguous));
        pending.remove(9);
        drop(gone);
        assert!(matches!(pending.ask_target(None), AskTarget::Call { .. }));
        assert!(pending.only_client().is_some());
    }

    #[test]
    fn progress_goes_to_the_request_it_names() {
        let pending = PendingCalls::default();
        let _a = call(&pending, 1, 1, None);
        let _b = call(&pending, 2, 1, None);
        assert!(pending.progress_target(1).is_some());
        assert!(pending.progress_target(2).is_none());
        assert!(pending.progress_target(3).is_none());
    }

    #[test]
    fn closing_fails_all_at_once_and_lets_nobody_in() {
        let pending = PendingCalls::default();
        let mut callers = [call(&pending, 1, 1, None), call(&pending, 2, 2, None)];
        let error = BackendError::Exited { status: Some("signal: 9".into()) };
        pending.close(&error);
        for caller in &mut callers {
            assert_eq!(caller.answered.try_recv().unwrap().unwrap_err(), error);
        }
        let (answer, _answered) = oneshot::channel();
        assert!(pending.insert(3, internal(answer)).is_err());
    }

    #[test]
    fn answers_find_their_request_once() {
        let pending = PendingCalls::default();
        let mut caller = call(&pending, 4, 1, None);
        assert_eq!(pending.only(), Some(4));
        let answer = || Ok(Response::from_result(&Json::empty_object()));
        assert!(pending.resolve(4, answer()));
        assert!(!pending.resolve(4, answer()));
        assert!(caller.answered.try_recv().unwrap().is_ok());
        assert_eq!(pending.only(), None);
    }
}
