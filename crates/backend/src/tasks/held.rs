//! What a legacy server's task asks, for clients with the extension: `tasks/result` is held open,
//! and the questions that come on it are shown in the answers to `tasks/get`.
//!
//! It is given up when the client has not asked for as long as a question may take.
//!
//! Must not know: how the client is answered.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{TaskBridge, task_params};
use crate::deadline::CallProgress;
use crate::declared::Declared;
use crate::question::OPEN;
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext, MessageReceiver, ServerMessage, ServerMessages, ServerRequest};

/// How long the answer to a `tasks/get` waits for the first question.
const FIRST_QUESTION: Duration = Duration::from_secs(1);

/// One task whose questions are collected. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Held {
    questions: Arc<Questions>,
    _end: DropGuard,
}

#[derive(Debug)]
struct Questions {
    state: Mutex<State>,
    /// Something was asked, or nothing more will be.
    news: Notify,
}

#[derive(Debug)]
struct State {
    open: Vec<Open>,
    /// What the client that asked after the task last can be asked.
    declared: Declared,
    used: Instant,
    ended: bool,
}

#[derive(Debug)]
struct Open {
    /// Random: it must not come again in the life of the task, which may be longer than that of
    /// this process.
    key: String,
    question: ServerRequest,
}

impl TaskBridge {
    /// `inputRequests` of a task that requires input: the questions that are open, once there is
    /// one, or soon.
    pub(super) async fn open_questions(
        self: &Arc<Self>,
        (id, name): (&Json, &str),
        origin: &Arc<CallContext>,
        client: &CallContext,
    ) -> Result<Json, BackendError> {
        let held = self.hold(id, name, origin, client)?;
        Ok(timeout(FIRST_QUESTION, held.questions.first()).await.unwrap_or_else(|_| Json::empty_object()))
    }

    fn hold(
        self: &Arc<Self>,
        id: &Json,
        name: &str,
        origin: &Arc<CallContext>,
        client: &CallContext,
    ) -> Result<Arc<Held>, BackendError> {
        let declared = || Declared::by(client, false, self.largest_description);
        let _deciding = self.holding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = self.held.touch(name)
            && held.questions.is_used_by(declared())
        {
            return Ok(held);
        }
        let permit = self.permit()?;
        let questions = Arc::new(Questions {
            state: Mutex::new(State { open: Vec::new(), declared: declared(), used: Instant::now(), ended: false }),
            news: Notify::new(),
        });
        let end = self.shutdown.child_token();
        let held = Arc::new(Held { questions: Arc::clone(&questions), _end: end.clone().drop_guard() });
        self.held.insert(name, Arc::clone(&held), 0, self.timeouts.question);
        let (messages, inbox) = ServerMessages::channel(OPEN);
        let (context, params) = (Arc::clone(origin), Some(task_params(id)));
        let call = Call { method: Method::TaskResult, params, context, messages };
        self.tasks.spawn(Arc::clone(self).collect(call, inbox, questions, end, permit));
        Ok(held)
    }

    async fn collect(
        self: Arc<Self>,
        call: Call,
        mut inbox: MessageReceiver,
        questions: Arc<Questions>,
        end: CancellationToken,
        _permit: OwnedSemaphorePermit,
    ) {
        let course = CallProgress::default();
        let mut exchange = Box::pin(self.caller.exchange_unplaced(&call, &course));
        loop {
            let until = questions.lock().used + self.timeouts.question;
            tokio::select! {
                biased;
                () = end.cancelled() => break,
                _ = &mut exchange => break,
                message = inbox.recv() => match message {
                    Some(ServerMessage::Request(question)) => questions.add(question),
                    Some(_) => {}
                    None => break,
                },
                () = sleep_until(until) => {
                    if questions.lock().used + self.timeouts.question <= Instant::now() {
                        break;
                    }
                }
            }
        }
        questions.end();
    }
}

impl Held {
    /// Answers the questions that `inputResponses` has a key of, and ignores all others.
    pub(super) fn answer(&self, responses: &Json) {
        let mut state = self.questions.lock();
        state.used = Instant::now();
        for member in responses.members() {
            let result = responses.slice(member.value.clone()).detached();
            let known = state.open.iter().position(|open| member.is(responses, &open.key));
            if let Some(at) = known.filter(|_| result.is_object()) {
                // An error means that the server does not wait for it any more.
                let _ = state.open.swap_remove(at).question.answer.send(Response::from_result(&result));
            }
        }
    }
}

/// Why a client with the extension is not asked: `inputRequests` hold input requests only, which it
/// must have declared.
fn refusal(declared: &Declared, question: &ServerRequest) -> Option<RpcError> {
    if !question.method.is_input_request() {
        let message = format!("the client of this call cannot be asked {:?}", question.method.as_str());
        return Some(RpcError::new(code::METHOD_NOT_FOUND, message));
    }
    declared.missing(&question.method, question.params.as_ref()).map(MissingCapability::to_error)
}

impl Questions {
    fn add(&self, question: ServerRequest) {
        let mut state = self.lock();
        if let Some(refusal) = refusal(&state.declared, &question) {
            let _ = question.answer.send(Response::from_error(&refusal));
            return;
        }
        let key = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        state.open.push(Open { key, question });
        drop(state);
        self.news.notify_waiters();
    }

    /// Notes that a client asks; says whether there is anything to be had.
    fn is_used_by(&self, declared: Declared) -> bool {
        let mut state = self.lock();
        state.used = Instant::now();
        state.declared = declared;
        !state.ended
    }

    /// Waits until something is open, or nothing more can be.
    async fn first(&self) -> Json {
        loop {
            let mut news = pin!(self.news.notified());
            news.as_mut().enable();
            let (shown, ended) = self.shown();
            if ended || shown.members().next().is_some() {
                return shown;
            }
            news.await;
        }
    }

    /// The open questions as `inputRequests`, and whether there will be no more.
    fn shown(&self) -> (Json, bool) {
        let mut state = self.lock();
        state.open.retain(|open| !open.question.answer.is_closed());
        let mut requests = ObjectBuilder::new();
        for Open { key, question } in &state.open {
            if refusal(&state.declared, question).is_some() {
                continue;
            }
            let mut request = ObjectBuilder::new();
            request.string("method", question.method.as_str());
            if let Some(params) = &question.params {
                request.member("params", params);
            }
            requests.member(key, &request.finish());
        }
        (requests.finish(), state.ended)
    }

    fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.open.clear();
        drop(state);
        self.news.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
