//! Tasks, for clients and a server that speak of them in different ways.
//!
//! The core passes both dialects as they are. Here, at the edge towards the server, one is
//! translated into the other where the client's ([`CallContext::tasks`]) is not the server's:
//!
//! | client \ server | 2025-11-25 tasks | the extension `io.modelcontextprotocol/tasks` |
//! |---|---|---|
//! | 2025-11-25 | as it is | [`requested`] |
//! | extension | [`extension`] | as it is |
//! | neither | [`plain`]: run as a task and awaited | the same |
//!
//! A client of 2025-11-25 that asks for no task is taken, for that call, as one that has none.
//! Task ids and `io.modelcontextprotocol/related-task` are never changed, and every wait, table and
//! buffer is bounded (`timeouts.task`, `limits.tasks`, `limits.taskResults`).
//!
//! Must not know: transports, or which backend a client means.

mod await_extension;
mod await_requested;
mod extension;
mod held;
mod inputs;
mod kept;
mod pace;
mod plain;
mod requested;
mod status;
mod table;
pub(crate) mod translate;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use futures_util::future::Either;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::caller::Caller;
use crate::deadline::CallProgress;
use crate::hub::Hub;
use crate::settings::{Limits, Timeouts};
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext, Pending, ServerMessages, TaskDialect};
use held::Held;
use kept::Kept;
use requested::Owned;
use table::Table;

/// How long telling a server that nobody waits for a task any more may take.
const CANCELLING: Duration = Duration::from_secs(5);
/// Bytes of what is remembered of tasks besides results, per task: capabilities above all.
const REMEMBERED: usize = 32 << 10;

/// Stands between the core and one backend.
pub(crate) struct TaskBridge {
    caller: Arc<Caller>,
    /// Told whose a task is, so that its client hears of it.
    hub: Arc<Hub>,
    timeouts: Timeouts,
    /// One permit for each wait for a task.
    waits: Arc<Semaphore>,
    most_waits: usize,
    /// Bytes of what is kept of a client's capabilities.
    largest_description: usize,
    /// Which client of 2025-11-25 has which of a modern server's tasks: that dialect has no list.
    owned: Table<Owned>,
    /// Results that a modern server gave at once although a client of 2025-11-25 wanted a task.
    kept: Table<Arc<Kept>>,
    /// In whose name a legacy server was asked for a task: its session with that server has it.
    origins: Table<Arc<CallContext>>,
    /// Legacy tasks whose questions are collected.
    held: Table<Arc<Held>>,
    /// Modern servers' tasks of which somebody asks a client what they want to know.
    asked: Arc<Mutex<HashSet<String>>>,
    /// Locked while it is decided whether a task is held already.
    holding: Mutex<()>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl TaskBridge {
    pub(crate) fn new(
        caller: Arc<Caller>,
        hub: Arc<Hub>,
        limits: &Limits,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let most = limits.tasks.clamp(1, Semaphore::MAX_PERMITS);
        let bytes = most.saturating_mul(REMEMBERED);
        Arc::new(Self {
            timeouts: caller.timeouts,
            caller,
            hub,
            waits: Arc::new(Semaphore::new(most)),
            most_waits: most,
            largest_description: limits.client_description,
            owned: Table::new(most, bytes),
            kept: Table::new(most, limits.task_bytes),
            origins: Table::new(most, bytes),
            held: Table::new(most, bytes),
            asked: Arc::default(),
            holding: Mutex::default(),
            tasks,
            shutdown,
        })
    }

    /// Sends one request, translated where it is about tasks and the dialects differ.
    pub(crate) fn answer<'a>(
        self: &'a Arc<Self>,
        call: &'a Call,
        course: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        let server = match is_about_tasks(&call.method) {
            true => self.caller.pool.current(&call.context).map(|connection| connection.tasks()),
            false => Some(None),
        };
        // Rarely needed: boxed, so that the future of every call stays small.
        let other: Pending<'_, _> = match server {
            Some(None) => return Either::Left(self.caller.exchange(call, course)),
            Some(Some(server)) => Box::pin(self.translate(server, call, course)),
            None => Box::pin(self.answer_once_connected(call, course)),
        };
        Either::Right(other)
    }

    async fn answer_once_connected(
        self: &Arc<Self>,
        call: &Call,
        course: &CallProgress,
    ) -> Result<Response, BackendError> {
        match self.caller.server(&call.context).await?.tasks() {
            None => self.caller.exchange(call, course).await,
            Some(server) => self.translate(server, call, course).await,
        }
    }

    async fn translate(
        self: &Arc<Self>,
        server: TaskDialect,
        call: &Call,
        course: &CallProgress,
    ) -> Result<Response, BackendError> {
        use TaskDialect::{Extension, Requested};
        let asks_for_task = call.params.as_ref().is_some_and(|params| params.get("task").is_some());
        match (&call.method, call.context.tasks, server) {
            (Method::CallTool, Some(Requested), Extension) if asks_for_task => {
                self.create_requested(call, course).await
            }
            (Method::CallTool, Some(Extension), Requested) => self.create_extension(call, course).await,
            (Method::CallTool, None | Some(Requested), _) if !asks_for_task => {
                self.call_plainly(server, call, course).await
            }
            (Method::CallTool, ..) => {
                let response = self.caller.exchange(call, course).await?;
                self.note_on_shared_line(call, &response);
                Ok(response)
            }
            (method, Some(Requested), Extension) if *method != Method::UpdateTask => {
                self.serve_requested(call, course).await
            }
            (_, Some(Extension), Requested) => self.serve_extension(call).await,
            // Clients without a session share one at the server: they must not see each other's tasks.
            (Method::ListTasks, None, Requested) if call.context.session().is_none() => {
                Ok(no_such_method(&call.method))
            }
            _ => self.caller.exchange(call, course).await,
        }
    }

    /// On a line that clients share, the server does not tell apart whose a task is.
    fn note_on_shared_line(&self, call: &Call, response: &Response) {
        if !self.hub.is_shared() {
            return;
        }
        let id = response.result().and_then(|result| result.get("task")?.get("taskId"));
        if let Some(id) = id.as_ref().and_then(Json::as_str) {
            self.hub.own_task(call.context.session(), &id);
        }
    }

    /// Sends a request of the bridge's own, within the time of a call.
    async fn ask(
        &self,
        method: Method,
        params: Json,
        context: &Arc<CallContext>,
        messages: &ServerMessages,
    ) -> Result<Response, BackendError> {
        let context = Arc::clone(context);
        let call = Call { method, params: Some(params), context, messages: messages.clone() };
        let (course, limit) = (CallProgress::default(), self.timeouts.call);
        // Boxed, so that the futures of those who ask in several places stay small.
        let mut exchange = Box::pin(self.caller.exchange(&call, &course));
        let outcome = course.deadline.limit(limit, exchange.as_mut()).await;
        outcome.unwrap_or_else(|_late| {
            let sent = course.sent.load(Ordering::Relaxed);
            Err(BackendError::Timeout { after: limit, sent })
        })
    }

    /// The right to wait for a task.
    fn permit(&self) -> Result<OwnedSemaphorePermit, BackendError> {
        let busy = |_| BackendError::Busy { limit: self.most_waits };
        Arc::clone(&self.waits).try_acquire_owned().map_err(busy)
    }

    /// Waits for a task, which takes longer than a call may: the call's time stands still. The task's
    /// own `ttl` is no bound: a server that has forgotten a task says so, and one that still works
    /// on it is not left for being late.
    async fn wait(
        &self,
        course: &CallProgress,
        wait: impl Future<Output = Result<Response, BackendError>>,
    ) -> Result<Response, BackendError> {
        let _stopped = course.deadline.pause(usize::MAX);
        let limit = self.timeouts.task;
        timeout(limit, wait).await.unwrap_or(Err(BackendError::Timeout { after: limit, sent: true }))
    }

    /// How long something about a task is remembered.
    fn lifetime(&self, ttl: Option<Json>) -> Duration {
        let ttl = ttl.as_ref().and_then(pace::milliseconds);
        ttl.map_or(self.timeouts.task, |ttl| ttl.min(self.timeouts.task))
    }
}

/// Cancels a task that nobody waits for any more, best effort, unless disarmed.
struct CancelOnDrop {
    bridge: Arc<TaskBridge>,
    context: Arc<CallContext>,
    id: Json,
    armed: bool,
}

impl CancelOnDrop {
    fn new(bridge: &Arc<TaskBridge>, context: &Arc<CallContext>, id: &Json) -> Self {
        Self { bridge: Arc::clone(bridge), context: Arc::clone(context), id: id.clone(), armed: true }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (bridge, context, params) = (Arc::clone(&self.bridge), Arc::clone(&self.context), task_params(&self.id));
        self.bridge.tasks.spawn(async move {
            let nowhere = ServerMessages::discard();
            let cancel = bridge.ask(Method::CancelTask, params, &context, &nowhere);
            let _ = bridge.shutdown.run_until_cancelled(timeout(CANCELLING, cancel)).await;
        });
    }
}

fn is_about_tasks(method: &Method) -> bool {
    matches!(
        method,
        Method::CallTool
            | Method::GetTask
            | Method::TaskResult
            | Method::UpdateTask
            | Method::CancelTask
            | Method::ListTasks
    )
}

/// The same context for requests that the bridge makes on its behalf: no progress is wanted of them.
fn quietly(context: &CallContext) -> CallContext {
    CallContext { wants_progress: false, ..context.clone() }
}

/// The same context with the tasks extension among its capabilities.
fn declaring(context: &CallContext) -> CallContext {
    CallContext { capabilities: translate::with_extension(&context.capabilities), ..context.clone() }
}

/// The id of the task that a request is about.
fn task_id(call: &Call) -> Result<(Json, String), Response> {
    let id = call.params.as_ref().and_then(|params| params.get("taskId"));
    let named = id.and_then(|id| Some((id.clone(), id.as_str()?.into_owned())));
    named.ok_or_else(|| refusal(code::INVALID_PARAMS, "taskId is missing or no string"))
}

fn task_params(id: &Json) -> Json {
    let mut params = ObjectBuilder::new();
    params.member("taskId", id);
    params.finish()
}

/// A task that a modern server made of a request.
fn created(result: &Json) -> Option<Json> {
    let is_task = result.get("resultType")?.as_str()? == "task";
    result.get("taskId").filter(|id| is_task && id.as_str().is_some())
}

fn refusal(code: i64, message: impl Into<String>) -> Response {
    Response::from_error(&RpcError::new(code, message))
}

fn no_such_task(id: &str) -> Response {
    let id = crate::excerpt::excerpt(id.as_bytes(), 80);
    refusal(code::INVALID_PARAMS, format!("there is no task {id}: it never was, or its time is over"))
}

fn no_such_method(method: &Method) -> Response {
    refusal(code::METHOD_NOT_FOUND, format!("the server's tasks have no {method} for this client"))
}

/// An error object of a server's as a response.
fn error_response(error: &Json) -> Response {
    refusal(code::INTERNAL, "").with_body(error)
}
