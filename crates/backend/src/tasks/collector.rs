//! Server requests of a legacy server's task, for clients with the extension.
//!
//! `tasks/result` stays open. The server requests that arrive on it appear as `inputRequests` in
//! the answers to `tasks/get`. It is cancelled once the client has not asked for as long as it may
//! take to answer a server request.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    BackendError, Call, CallContext, MessageReceiver, ServerMessage, ServerMessages, ServerRequest,
};
use fanlight_protocol::{Json, Method, MissingCapability, ObjectBuilder, Response, RpcError, code};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{CallProgress, TaskId, TaskTranslation, WaitPermit, task_params};
use crate::request::declared::Declared;

/// The time for which `tasks/get` waits for the first request of a legacy server's task that needs
/// input.
const TASK_INPUT: Duration = Duration::from_secs(1);

/// The number of a task's messages that may wait for the collector.
const QUEUE: usize = 16;

/// Collects the server requests of one task, until dropped.
#[derive(Debug)]
pub(super) struct InputCollector {
    state: watch::Sender<State>,
    _end: DropGuard,
}

#[derive(Debug)]
struct State {
    open: Vec<Open>,
    /// The capabilities of the client that last asked for the task.
    declared: Declared,
    used: Instant,
    ended: bool,
}

#[derive(Debug)]
struct Open {
    /// A random key. It must be unique during the task's life, which may be longer than this
    /// process's.
    key: String,
    request: ServerRequest,
}

impl TaskTranslation {
    /// The `inputRequests` of a task that needs input: the open server requests, after a short wait
    /// for the first.
    pub(super) async fn open_inputs(
        self: &Arc<Self>,
        task: &TaskId,
        origin: &Arc<CallContext>,
        client: &CallContext,
    ) -> Result<Json, BackendError> {
        let collector = self.collector(task, origin, client)?;
        Ok(timeout(TASK_INPUT, collector.first_requests())
            .await
            .unwrap_or_else(|_| Json::empty_object()))
    }

    fn collector(
        self: &Arc<Self>,
        task: &TaskId,
        origin: &Arc<CallContext>,
        client: &CallContext,
    ) -> Result<Arc<InputCollector>, BackendError> {
        let declared = || Declared::from_client(client, false);
        let _deciding = self.collecting.lock();
        if let Some(collector) = self.collectors.touch(&task.key(client))
            && collector.is_used_by(declared())
        {
            return Ok(collector);
        }
        let permit = self.permit(&client.peer)?;
        let state = State {
            open: Vec::new(),
            declared: declared(),
            used: Instant::now(),
            ended: false,
        };
        let end = self.calls.pool.settings.shutdown.child_token();
        let (state, _) = watch::channel(state);
        let collector = Arc::new(InputCollector {
            state: state.clone(),
            _end: end.clone().drop_guard(),
        });
        let lifetime = self.calls.timeouts.question;
        self.collectors.insert(
            task.key(client),
            Arc::clone(&collector),
            &client.peer,
            task.name.len(),
            lifetime,
        );
        let (messages, receiver) = ServerMessages::channel(QUEUE);
        let call = Call {
            method: Method::TaskResult,
            params: Some(task_params(&task.json)),
            context: Arc::clone(origin),
            messages,
        };
        let tasks = &self.calls.pool.settings.context.tasks;
        tasks.spawn(Arc::clone(self).collect(call, receiver, state, end, permit));
        Ok(collector)
    }

    async fn collect(
        self: Arc<Self>,
        call: Call,
        mut messages: MessageReceiver,
        state: watch::Sender<State>,
        end: CancellationToken,
        _permit: WaitPermit,
    ) {
        let progress = CallProgress::default();
        let mut exchange = Box::pin(self.calls.exchange_unlimited(&call, &progress));
        loop {
            let until = state.borrow().used + self.calls.timeouts.question;
            tokio::select! {
                biased;
                () = end.cancelled() => break,
                _ = &mut exchange => break,
                message = messages.recv() => match message {
                    Some(ServerMessage::Request(request)) => state.send_modify(|state| state.add(request)),
                    Some(_) => {}
                    None => break,
                },
                // The client may have asked meanwhile.
                () = sleep_until(until) => if state.borrow().used + self.calls.timeouts.question <= Instant::now() {
                    break;
                },
            }
        }
        state.send_modify(|state| {
            state.ended = true;
            state.open.clear();
        });
    }
}

impl InputCollector {
    /// Answers the server requests whose keys are in `inputResponses`; ignores unknown keys.
    pub(super) fn answer(&self, responses: &Json) {
        self.state.send_modify(|state| {
            state.used = Instant::now();
            for member in responses.members() {
                let result = responses.slice(member.value.clone()).detached();
                let known = state
                    .open
                    .iter()
                    .position(|open| member.is(responses, &open.key));
                if let Some(at) = known.filter(|_| result.is_object()) {
                    // An error means that the server has cancelled the request.
                    let _ = state
                        .open
                        .swap_remove(at)
                        .request
                        .answer
                        .send(Response::from_result(&result));
                }
            }
        });
    }

    /// Records that a client asks for the task; false if the collector has ended.
    fn is_used_by(&self, declared: Declared) -> bool {
        self.state.send_modify(|state| {
            state.used = Instant::now();
            state.declared = declared;
            state.open.retain(|open| !open.request.answer.is_closed());
        });
        !self.state.borrow().ended
    }

    /// Waits until a server request is open or the task has ended; returns the open requests.
    async fn first_requests(&self) -> Json {
        let mut state = self.state.subscribe();
        let first = state
            .wait_for(|state| state.ended || state.askable_requests().next().is_some())
            .await;
        // Cannot fail, since `self` has a sender.
        first.map_or_else(|_| Json::empty_object(), |state| state.to_json())
    }
}

impl State {
    fn add(&mut self, request: ServerRequest) {
        match refusal(&self.declared, &request) {
            Some(refusal) => drop(request.answer.send(Response::from_error(&refusal))),
            None => {
                let key = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
                self.open.push(Open { key, request });
            }
        }
    }

    /// The open requests that this client can be asked.
    fn askable_requests(&self) -> impl Iterator<Item = &Open> {
        let is_open = |open: &&Open| !open.request.answer.is_closed();
        self.open
            .iter()
            .filter(is_open)
            .filter(|open| refusal(&self.declared, &open.request).is_none())
    }

    /// `inputRequests`
    fn to_json(&self) -> Json {
        let mut requests = ObjectBuilder::new();
        for Open { key, request } in self.askable_requests() {
            let shown = ObjectBuilder::new()
                .string("method", request.method.as_str())
                .optional("params", request.params.as_ref())
                .finish();
            requests.member(key, &shown);
        }
        requests.finish()
    }
}

/// The refusal of a request to a client with the extension: `inputRequests` may contain only input
/// requests that the client has declared.
fn refusal(declared: &Declared, request: &ServerRequest) -> Option<RpcError> {
    if !request.method.is_input_request() {
        let message = format!(
            "the client of this call cannot be asked {:?}",
            request.method.as_str()
        );
        return Some(RpcError::new(code::METHOD_NOT_FOUND, message));
    }
    declared
        .missing_capability(&request.method, request.params.as_ref())
        .map(MissingCapability::to_error)
}
