//! Translates between the two task dialects, for a client and a server that differ in them.
//!
//! [`TaskTranslation`] answers calls that may be about tasks ([`Dispatcher::may_concern_tasks`]),
//! with requests of the [`Dispatcher`]. It changes only the parts about tasks, and only if the client's
//! dialect ([`CallContext::tasks`]) is not the server's:
//!
//! | client \ server | 2025-11-25 tasks | the extension `io.modelcontextprotocol/tasks` |
//! |---|---|---|
//! | 2025-11-25 | unchanged | [`requested_client`] |
//! | extension | [`extension_client`] | unchanged |
//! | neither | [`plain_client`]: the call runs as a task, and the gateway waits for it | the same |
//!
//! A 2025-11-25 client that does not ask for a task is served, for that call, as one without tasks.
//! Task ids and `io.modelcontextprotocol/related-task` never change. Every wait, table and buffer
//! is limited.
//!
//! Every server has a translation, since it may have tasks after any reconnect. A call to a server
//! without tasks does not reach it.

mod collector;
mod extension_client;
mod extension_wait;
mod inputs;
mod notifications;
pub(crate) mod owners;
mod pace;
mod plain_client;
mod requested_client;
mod translate;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_canonical::{
    BackendError, Call, CallContext, Caller, HandleSeal, Peer, ServerMessages, TaskDialect,
};
use fanlight_fair::{Budget, Reservation, Spent};
use fanlight_protocol::{Json, Method, ObjectBuilder, Response, RpcError, code};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::connection::supervisor::ConnectSettings;
use crate::request::BackendContext;
use crate::request::deadline::{CallProgress, OWNER, PauseLimits};
use crate::sessions::dispatcher::Dispatcher;
use collector::InputCollector;
use notifications::TaskNotifications;
use owners::{AtEndpoint, Table, TaskKey, TaskOwners};
use pace::milliseconds;
use translate::with_related_task;

/// Counts a request that waits for a task, until dropped.
type WaitPermit = Reservation<Peer>;

/// Translates messages about tasks, and passes all others on.
pub(crate) struct TaskTranslation {
    calls: Arc<Dispatcher>,
    /// Seals the ids of tasks that Fanlight makes.
    handles: Arc<HandleSeal>,
    waits: Budget<Peer>,
    owners: Arc<AtEndpoint>,
    /// Results for 2025-11-25 clients that asked for a task while their modern server answered at
    /// once.
    immediate: Table<TaskKey, Arc<ImmediateTask>>,
    /// The clients for which a legacy server was asked for tasks: their sessions there have the
    /// tasks.
    origins: Table<TaskKey, Arc<CallContext>>,
    /// The collectors of legacy tasks' server requests.
    collectors: Table<TaskKey, Arc<InputCollector>>,
    /// Locked while deciding whether a task needs a new collector.
    collecting: Mutex<()>,
    /// Modern tasks whose server requests a client is answering.
    answering: Arc<Mutex<HashSet<String>>>,
    notifications: Arc<TaskNotifications>,
}

impl TaskTranslation {
    /// Creates the translation for the server that gets the `calls`. `owners` records its tasks'
    /// owners, `endpoint` is the number of the endpoint.
    pub(crate) fn new(
        calls: Arc<Dispatcher>,
        handles: Arc<HandleSeal>,
        (owners, endpoint): (Arc<TaskOwners>, u64),
    ) -> Arc<Self> {
        let BackendContext { name, limits, .. } = &*calls.pool.settings.context;
        let (limit, bytes) = (limits.tasks.max(1), limits.task_state_bytes);
        let owners: Arc<AtEndpoint> = Arc::new(AtEndpoint { owners, endpoint });
        let (notifications, statuses) = TaskNotifications::new(name, Arc::clone(&owners));
        let results = Table::new(limit, limits.task_bytes);
        let translation = Arc::new(Self {
            calls,
            handles,
            waits: Budget::new(limit, OWNER),
            owners,
            immediate: results,
            origins: Table::new(limit, bytes),
            collectors: Table::new(limit, bytes),
            collecting: Mutex::default(),
            answering: Arc::default(),
            notifications,
        });
        translation.spawn(Arc::clone(&translation).translate_statuses(statuses));
        translation
    }

    /// Answers a call that concerns tasks, within the time limit of a call.
    pub(crate) async fn request(self: &Arc<Self>, call: Call) -> Result<Response, BackendError> {
        let progress = CallProgress::default();
        self.calls
            .limit(&progress, Box::pin(self.answer(&call, &progress)))
            .await
    }

    /// Answers a call that may be about tasks.
    async fn answer(
        self: &Arc<Self>,
        call: &Call,
        progress: &CallProgress,
    ) -> Result<Response, BackendError> {
        use TaskDialect::{Extension, Requested};
        let Some(server) = self.calls.server(call).await?.tasks else {
            return self.calls.exchange(call, progress).await;
        };
        let is_other = server == Requested && call.context.tasks != Some(Requested);
        // The server would take for its own what the client's dialect does not have.
        let plain = (is_other && call.param("task").is_some()).then(|| as_plain(call));
        let call = plain.as_ref().unwrap_or(call);
        let asks_for_task = call.param("task").is_some();
        match (&call.method, call.context.tasks, server) {
            (Method::CallTool, Some(Requested), Extension) if asks_for_task => {
                self.create_requested(call, progress).await
            }
            (Method::CallTool, Some(Extension), Requested) => {
                self.create_extension(call, progress).await
            }
            (Method::CallTool, None | Some(Requested), Requested) if !asks_for_task => {
                self.call_legacy(call, progress).await
            }
            (Method::CallTool, None | Some(Requested), Extension) if !asks_for_task => {
                self.call_modern(call, progress).await
            }
            (Method::CallTool, ..) => {
                let response = self.calls.exchange(call, progress).await?;
                let task = response.result().and_then(|result| match server {
                    Requested => result.get("task"),
                    Extension => created(&result).map(|_| result),
                });
                self.record_created(&call.context, task.as_ref(), server);
                Ok(response)
            }
            (Method::ListTasks, Some(Requested), Extension) => self.list_owned(call).await,
            // Clients without a session share one at the server, which has other clients' tasks,
            // too.
            (Method::ListTasks, None, Requested) if call.context.session().is_none() => {
                Ok(no_such_method(&call.method))
            }
            (Method::ListTasks, client, _) if client != Some(Extension) => {
                self.without_foreign(call, self.calls.exchange(call, progress).await?)
            }
            (_, client, _) => {
                let task = TaskId::read(call);
                match &task {
                    Ok(task) if self.owners.is_foreign(&task.name, &call.context.caller) => {
                        return Ok(unknown_task());
                    }
                    // A server may accept an id that Fanlight cannot read, for example one with
                    // half a surrogate pair.
                    Err(refusal) if call.param("taskId").is_some() => return Ok(refusal.clone()),
                    _ => {}
                }
                match (client, server, task) {
                    (Some(Requested), Extension, task) if call.method != Method::UpdateTask => {
                        match task {
                            Ok(task) => self.serve_requested(call, &task, progress).await,
                            Err(refusal) => Ok(refusal),
                        }
                    }
                    (Some(Extension), Requested, Ok(task)) => {
                        self.serve_extension(call, &task).await
                    }
                    (Some(Extension), Requested, Err(refusal)) => Ok(refusal),
                    _ => self.calls.exchange(call, progress).await,
                }
            }
        }
    }

    /// Removes other clients' tasks from a list of tasks.
    fn without_foreign(&self, call: &Call, response: Response) -> Result<Response, BackendError> {
        let is_foreign = |task: &Json| {
            let id = task.text_at("taskId");
            id.is_some_and(|id| self.owners.is_foreign(&id, &call.context.caller))
        };
        let Some(result) = response.result() else {
            return Ok(response);
        };
        let Some(tasks) = result.get("tasks") else {
            return Ok(response);
        };
        let all = || tasks.items();
        if !all().any(|task| is_foreign(&task)) {
            return Ok(response);
        }
        let own = Json::array(all().filter(|task| !is_foreign(task)));
        Ok(response.with_body(&result.with_member("tasks", &own)))
    }

    /// Records the owner of a created task.
    fn record_created(
        self: &Arc<Self>,
        client: &Arc<CallContext>,
        task: Option<&Json>,
        server: TaskDialect,
    ) {
        if let Some(task) = task {
            let ttl = task.get(if server == TaskDialect::Requested {
                "ttl"
            } else {
                "ttlMs"
            });
            self.record_owner(&client.caller, &client.peer, task, ttl, true);
            // In its own session, the client gets notifications without being followed.
            if server == TaskDialect::Extension || self.calls.pool.is_shared() {
                self.follow(client, task);
            }
        }
    }

    /// Records that a caller has made or asked for a task.
    fn record_owner(
        &self,
        owner: &Caller,
        peer: &Peer,
        task: &Json,
        ttl: Option<Json>,
        is_maker: bool,
    ) {
        if let Some(id) = task.text_at("taskId") {
            self.owners
                .add(&id, owner, peer, is_maker, self.lifetime(ttl));
        }
    }

    /// Sends the translation's own request, within the time of a call.
    async fn ask(
        &self,
        method: Method,
        params: Json,
        context: &Arc<CallContext>,
        messages: &ServerMessages,
    ) -> Result<Response, BackendError> {
        let (context, messages) = (Arc::clone(context), messages.clone());
        let call = Call {
            method,
            params: Some(params),
            context,
            messages,
        };
        Box::pin(self.calls.request(&call, 0)).await
    }

    /// Like `ask`, without a channel for the server's messages.
    async fn query(
        &self,
        method: Method,
        params: Json,
        context: &Arc<CallContext>,
    ) -> Result<Response, BackendError> {
        self.ask(method, params, context, &ServerMessages::discard())
            .await
    }

    /// A permit for a client of `peer` to wait for a task. Each peer has a share.
    fn permit(&self, peer: &Peer) -> Result<WaitPermit, BackendError> {
        self.waits
            .reserve(peer, 1)
            .map_err(|Spent| BackendError::Busy {
                limit: self.waits.limit(),
            })
    }

    /// Waits for a task, which may take longer than a call; the call's deadline is paused. The
    /// task's `ttl` is no limit: the server reports when it has forgotten the task, and may still
    /// be working on it.
    async fn wait(
        &self,
        progress: &CallProgress,
        wait: impl Future<Output = Result<Response, BackendError>>,
    ) -> Result<Response, BackendError> {
        let _pause = progress.deadline.pause(PauseLimits {
            open: usize::MAX,
            ever: usize::MAX,
        });
        let limit = self.calls.timeouts.task;
        timeout(limit, wait)
            .await
            .unwrap_or(Err(BackendError::Timeout {
                after: limit,
                sent: true,
            }))
    }

    /// The time for which a task's state is kept.
    fn lifetime(&self, ttl: Option<Json>) -> Duration {
        let longest = self.calls.timeouts.task;
        ttl.as_ref()
            .and_then(milliseconds)
            .map_or(longest, |ttl| ttl.min(longest))
    }

    /// Spawns work that ends with the server.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ConnectSettings {
            context, shutdown, ..
        } = &*self.calls.pool.settings;
        let work = shutdown.clone().run_until_cancelled_owned(work);
        context.tasks.spawn(work);
    }
}

/// The id of a request's task.
struct TaskId {
    /// The id as the client wrote it.
    json: Json,
    name: String,
}

impl TaskId {
    fn read(call: &Call) -> Result<Self, Response> {
        let id = call.param("taskId");
        let id = id.and_then(|json| {
            Some(Self {
                name: json.to_str()?,
                json,
            })
        });
        id.ok_or_else(|| refusal(code::INVALID_PARAMS, "taskId is missing or no string"))
    }

    /// The task's key in the tables, for a client.
    fn key(&self, client: &CallContext) -> TaskKey {
        (client.caller.holder().clone(), self.name.clone())
    }
}

/// Cancels a task when dropped, unless disarmed; best effort.
struct CancelOnDrop {
    translator: Arc<TaskTranslation>,
    context: Arc<CallContext>,
    id: Json,
    armed: bool,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.armed {
            let translator = Arc::clone(&self.translator);
            let (context, params) = (Arc::clone(&self.context), task_params(&self.id));
            let limit = translator.calls.timeouts.own_message;
            self.translator.spawn(async move {
                let _ = timeout(
                    limit,
                    translator.query(Method::CancelTask, params, &context),
                )
                .await;
            });
        }
    }
}

/// The call with a request for a task.
fn as_task(call: &Call) -> Call {
    Call {
        params: Some(translate::with_task(call.params.as_ref())),
        ..call.clone()
    }
}

/// The call without a request for a task.
fn as_plain(call: &Call) -> Call {
    Call {
        params: call.params.as_ref().map(translate::without_task),
        ..call.clone()
    }
}

/// The call with the tasks extension among the client's capabilities.
fn with_extension(call: &Call) -> Call {
    let context = CallContext {
        capabilities: translate::with_extension(&call.context.capabilities),
        ..(*call.context).clone()
    };
    Call {
        context: Arc::new(context),
        ..call.clone()
    }
}

fn task_params(id: &Json) -> Json {
    ObjectBuilder::new().member("taskId", id).finish()
}

/// The id of the task that a modern server made from a request.
fn created(result: &Json) -> Option<Json> {
    let is_task = result.get("resultType")?.as_str()? == "task";
    result
        .get("taskId")
        .filter(|id| is_task && id.as_str().is_some())
}

fn refusal(code: i64, message: impl Into<String>) -> Response {
    Response::from_error(&RpcError::new(code, message))
}

/// The answer about another client's task. It is the same as for a task that does not exist, the
/// specification's example (2025-11-25 basic/utilities/tasks, Protocol Errors).
pub(crate) fn unknown_task() -> Response {
    refusal(
        code::INVALID_PARAMS,
        "Failed to retrieve task: Task not found",
    )
}

fn no_such_method(method: &Method) -> Response {
    refusal(
        code::METHOD_NOT_FOUND,
        format!("the server's tasks have no {method} for this client"),
    )
}

fn has_ended(status: &str) -> Response {
    refusal(
        code::INVALID_PARAMS,
        format!("the task has ended already: it is {status}"),
    )
}

/// In milliseconds. Short, since the task has already ended.
const POLL_INTERVAL: i64 = 50;

/// A result in the form of a task.
#[derive(Debug)]
struct ImmediateTask {
    id: String,
    result: Json,
    created: String,
    ttl: Duration,
}

impl TaskTranslation {
    /// Makes a task from the result of a call. Returns the response that creates the task; `None`
    /// if the result is too large to be kept.
    fn keep(&self, call: &Call, result: &Json) -> Option<Response> {
        let ttl = call.param("task").and_then(|task| task.get("ttl"));
        let task = Arc::new(ImmediateTask {
            id: self.handles.fresh_task(call.context.caller.holder())?,
            result: result.detached(),
            created: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            ttl: self
                .lifetime(ttl.filter(|ttl| milliseconds(ttl).is_some_and(|ttl| !ttl.is_zero()))),
        });
        let bytes = result.bytes().len() + task.id.len();
        let key = (call.context.caller.holder().clone(), task.id.clone());
        if !self
            .immediate
            .insert(key, Arc::clone(&task), &call.context.peer, bytes, task.ttl)
        {
            return None;
        }
        let created = ObjectBuilder::new()
            // A task begins as working (Task Status Lifecycle).
            .member("task", &task.to_json("working"))
            .finish();
        Some(Response::from_result(&created))
    }
}

impl ImmediateTask {
    /// Answers a request about the task.
    fn serve(&self, method: &Method) -> Response {
        match method {
            Method::GetTask => Response::from_result(&self.to_task()),
            Method::TaskResult => {
                Response::from_result(&with_related_task(&self.result, &Json::string(&self.id)))
            }
            Method::CancelTask => has_ended(self.status()),
            other => no_such_method(other),
        }
    }

    /// The task as a `Task` object.
    fn to_task(&self) -> Json {
        self.to_json(self.status())
    }

    /// The task's status. A tool's own error counts as the task's failure (Task Status).
    fn status(&self) -> &'static str {
        let is_error = self.result.flag("isError");
        if is_error { "failed" } else { "completed" }
    }

    fn to_json(&self, status: &str) -> Json {
        ObjectBuilder::new()
            .string("taskId", &self.id)
            .string("status", status)
            .string("createdAt", &self.created)
            .string("lastUpdatedAt", &self.created)
            .integer(
                "ttl",
                i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX),
            )
            .integer("pollInterval", POLL_INTERVAL)
            .finish()
    }
}
