//! Tasks: a task id belongs to the server that created it, and Fanlight sends requests about the
//! task there.
//!
//! The core remembers which server has each task (`owners`). If it does not know, after a restart or
//! on another replica, it asks the servers that have tasks. Asking for a task's state changes
//! nothing. Of both dialects of tasks the core reads only ids and lifetimes.
//!
//! Ids stay as they are, unless the client already has a task of the same id at another server. Such
//! a task gets an alias, made like a resource's.
//!
//! Under a policy the core also remembers the call that created a task. A client that may no longer
//! make that call learns nothing of the task. Other replicas share both facts, and decide by their
//! own policy and their own definition of the tool.
//!
//! A server with the tasks extension does not say which tools take tasks. Without such a statement,
//! a client of the 2025-11-25 dialect, which asks for tasks itself, must not do so. Fanlight makes
//! a task of any answer of such a server, so all its tools take tasks.

mod list;
mod owners;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    BackendError, Call, CallContext, HandleSeal, Listen, Names, PolicyKind, PolicySubject,
    ServerMessage, TaskDialect,
};
use fanlight_fair::limit;
use fanlight_protocol::{
    Json, Method, Notification, ObjectBuilder, Response, RpcError, code, has_tasks_extension,
    task_support, word,
};
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;

use crate::catalogue::ListWatcher;
use crate::cursor::CursorSeal;
use crate::fault;
use crate::topology::{BackendId, Filtered, Member, View};
use crate::uri_places::{find_task, rename_task};
pub(crate) use owners::reduce;
pub use owners::{CommonTask, CommonTaskOwners};
use owners::{Evidence, Known, Learnt, MemoryOwners, TaskKey};

/// How many tasks of one request are looked up at the same time. [`ListLimits::unknown_tasks`](crate::ListLimits::unknown_tasks)
/// is the limit for users, and this one only orders the requests.
const ASKED_AT_ONCE: usize = 16;

/// The tasks of all servers.
pub(crate) struct Tasks {
    owners: MemoryOwners,
    /// The task owners that the replicas share; `None` without replicas.
    common: Option<Arc<dyn CommonTaskOwners>>,
    /// Weak, because subscriptions at servers, which the lists keep, hold the tasks.
    lists: Weak<ListWatcher>,
}

impl Tasks {
    pub(crate) fn new(common: Option<Arc<dyn CommonTaskOwners>>, lists: &Arc<ListWatcher>) -> Self {
        Self {
            owners: MemoryOwners::new(limit("tasks", owners::OWNERS)),
            common,
            lists: Arc::downgrade(lists),
        }
    }

    /// Answers a request about tasks. Also returns the server that answered, unless several did.
    pub(crate) async fn handle(
        &self,
        view: &View,
        call: Call,
        seal: &CursorSeal,
    ) -> Result<(Option<BackendId>, Response), RpcError> {
        if call.method == Method::ListTasks {
            return Ok((None, self.list(view, &call, seal).await?));
        }
        let task = task_id(call.params.as_ref())?;
        let (method, context) = (call.method.clone(), Arc::clone(&call.context));
        let Known { backend, made_by } = self.owner_of(view, &context, &task).await?;
        let response = match view.unalias(&task) {
            Some((_, own)) => send_by_alias(view, backend, call, own, task.clone()).await?,
            None => view.send(backend, call).await?,
        };
        match (method, response.result()) {
            (Method::GetTask | Method::CancelTask, Some(state)) => {
                self.learn(
                    view,
                    &context,
                    &state,
                    Known { backend, made_by },
                    Evidence::Seen,
                )
                .await;
            }
            // This server does not know the task (any more), so the next request asks all servers.
            (Method::GetTask, None) if response.error_code() == Some(code::INVALID_PARAMS) => {
                for key in TaskKey::all_of(&context.caller, &task) {
                    self.forget(&key).await;
                }
            }
            _ => {}
        }
        Ok((Some(backend), response))
    }

    /// Remembers the owner of a task that a server's answer has created, and the call that created
    /// it. A later policy may forbid its client to make that call. Returns the answer with the
    /// client's id of the task.
    pub(crate) async fn note(
        &self,
        view: &View,
        context: &CallContext,
        backend: BackendId,
        response: Response,
        made_by: Option<PolicySubject>,
    ) -> Response {
        let Some(created) = created_task(&response) else {
            return response;
        };
        // Another replica may know a task of the same id.
        self.known(view, context, Some(&created)).await;
        let named = self.for_client(view, context, backend, response.body());
        let response = response.with_body(&named);
        let known = Known {
            backend,
            made_by: made_by.map(reduce),
        };
        if let Some(task) = created_task(&response) {
            self.learn(view, context, &task, known, Evidence::Created)
                .await;
        }
        response
    }

    /// The alias for a task of this server, if the client has or had a task of the same id at
    /// another one.
    fn alias(
        &self,
        view: &View,
        context: &CallContext,
        backend: BackendId,
        own: &str,
    ) -> Option<String> {
        let alias = view.get(backend)?.naming.alias(own);
        let find = |key| self.owners.find(&key);
        let is_elsewhere =
            |known: Known| known.backend != backend && view.topology().get(known.backend).is_some();
        let caller = &context.caller;
        let is_needed = TaskKey::all_of(caller, &alias).any(|key| find(key).is_some())
            || TaskKey::all_of(caller, own)
                .filter_map(find)
                .any(is_elsewhere);
        is_needed.then_some(alias)
    }

    /// Params or a result of this server with the client's id of the task that they are about.
    pub(crate) fn for_client(
        &self,
        view: &View,
        context: &CallContext,
        backend: BackendId,
        value: Json,
    ) -> Json {
        let renamed = || {
            let own = find_task(&value)?;
            let alias = self.alias(view, context, backend, &own)?;
            Some(rename_task(&value, &own, &alias))
        };
        renamed().unwrap_or(value)
    }

    async fn learn(
        &self,
        view: &View,
        context: &CallContext,
        state: &Json,
        known: Known,
        evidence: Evidence,
    ) {
        let Some((task, kept_for)) = owners::id_and_time(state) else {
            return;
        };
        let is_created = evidence == Evidence::Created;
        for key in TaskKey::all_of(&context.caller, &task) {
            // A new task is shared before its client learns of it and may ask another replica.
            // Later it is shared only rarely, because that takes time.
            let common = self.common.as_ref();
            let to_be_told = common
                .filter(|_| is_created || !self.owners.is_told(&key))
                .and_then(|common| Some((common, key.in_common(known.made_by.is_some())?)));
            let is_told = to_be_told.is_some();
            if let Some((common, key)) = to_be_told {
                let told = CommonTask {
                    server: view.name(known.backend).into(),
                    made_by: known.made_by.clone(),
                    kept_for,
                };
                common.learn(key, told, is_created).await;
            }
            self.remember(context, key, known.clone(), kept_for, evidence, is_told);
        }
    }

    /// Remembers, in this process alone, the owner of a listed task.
    fn learn_here(&self, context: &CallContext, state: &Json, backend: BackendId) {
        if let Some((task, kept_for)) = owners::id_and_time(state) {
            let known = Known {
                backend,
                made_by: None,
            };
            self.remember(
                context,
                TaskKey::new(&context.caller, &task),
                known,
                kept_for,
                Evidence::Seen,
                false,
            );
        }
    }

    fn remember(
        &self,
        context: &CallContext,
        task: TaskKey,
        known: Known,
        kept_for: Duration,
        evidence: Evidence,
        is_told: bool,
    ) {
        self.owners.learn(
            task,
            Learnt {
                known,
                peer: context.peer.clone(),
                kept_for,
                evidence,
                is_told,
            },
        );
    }

    async fn forget(&self, task: &TaskKey) {
        self.owners.forget(task);
        if let Some((common, key)) = self.common.as_ref().zip(task.in_common(true)) {
            common.forget(key).await;
        }
    }

    /// Whether tasks at this server are given only to the authenticated client that made them. Fanlight
    /// alone keeps such clients apart, unless each uses its own credentials there. 2025-11-25
    /// basic/utilities/tasks, Task Isolation and Access Control: a receiver must bind tasks to the
    /// authorization context.
    fn are_guarded(context: &CallContext, backend: &Member) -> bool {
        !context.caller.principal().is_anonymous() && !backend.traits.knows_principals
    }

    /// Whether the only server's answer to this request cannot be passed on unseen.
    pub(crate) fn guard(context: &CallContext, method: &Method, backend: &Member) -> bool {
        (context.tasks.is_some() || method.is_about_tasks()) && Self::are_guarded(context, backend)
    }

    /// The server that has this task. Asks the servers if it is not remembered, but none that relies
    /// on Fanlight to keep clients apart.
    async fn owner_of(
        &self,
        view: &View,
        context: &Arc<CallContext>,
        task: &str,
    ) -> Result<Known, RpcError> {
        let aliased = view.unalias(task).map(|(owner, _)| owner);
        let is_guarded = aliased.is_some_and(|owner| Self::are_guarded(context, owner));
        match self.remembered_owner(view, context, task).await {
            Some(known) => Ok(known),
            // A server has tasks of tools that this endpoint hides, and none that Fanlight made
            // itself.
            None if is_guarded || view.filters(Filtered::Tools) || HandleSeal::is_task(task) => {
                Err(fault::unknown_task(&[]))
            }
            None => Ok(Known {
                backend: match aliased {
                    Some(owner) => owner.id,
                    None => self.find(view, context, task).await?,
                },
                made_by: None,
            }),
        }
    }

    /// The remembered server of this task, if the policy still permits the call that created it.
    async fn remembered_owner(
        &self,
        view: &View,
        context: &CallContext,
        task: &str,
    ) -> Option<Known> {
        for key in TaskKey::all_of(&context.caller, task) {
            if let Some(owner) = self.owner_here(view, &key) {
                return owner;
            }
            if let Some((known, kept_for)) = self.known_in_common(view, context, &key).await {
                let known = Some(known).filter(|known| is_permitted(view, known))?;
                self.remember(context, key, known.clone(), kept_for, Evidence::Seen, true);
                return Some(known);
            }
        }
        None
    }

    /// This process's knowledge of the task. `None` if that is not enough, `Some(None)` if the
    /// client must not learn of the task.
    fn owner_here(&self, view: &View, task: &TaskKey) -> Option<Option<Known>> {
        // A policy cannot decide without the call that created the task. Another replica may know
        // it.
        let known = self
            .owners
            .find(task)
            .filter(|known| known.made_by.is_some() || view.rights().is_none())?;
        Some(Some(known).filter(|known| is_permitted(view, known)))
    }

    /// The replicas' common knowledge of this task, and how long it is valid.
    async fn known_in_common(
        &self,
        view: &View,
        context: &CallContext,
        task: &TaskKey,
    ) -> Option<(Known, Duration)> {
        let CommonTask {
            server,
            made_by,
            kept_for,
        } = self
            .common
            .as_ref()?
            .find(task.in_common(view.rights().is_some())?)
            .await?;
        let backend = view.backends().find(|backend| backend.name() == &*server)?;
        let made_by = match view.rights() {
            None => None,
            // Boxed to keep a request's future small, because it may read a list.
            Some(_) => {
                Some(Box::pin(self.as_defined_here(view, context, backend, &*made_by?)).await?)
            }
        };
        Some((
            Known {
                backend: backend.id,
                made_by,
            },
            kept_for.min(owners::LONGEST_OWNER),
        ))
    }

    /// A call on another replica, with the tool's definition of this process. `None` if the client
    /// is not shown such a tool.
    async fn as_defined_here(
        &self,
        view: &View,
        context: &CallContext,
        backend: &Member,
        made_by: &PolicySubject,
    ) -> Option<Arc<PolicySubject>> {
        let PolicySubject {
            kind, server, name, ..
        } = made_by;
        if *kind != PolicyKind::Tool || **server != *backend.name() || !backend.permits_tool(name) {
            return None;
        }
        let definition = self
            .lists
            .upgrade()?
            .tool_of(view, backend, name, &context.trace)
            .await?;
        let is_shown = view.permits_name(Filtered::Tools, backend.id, name, Some(&definition));
        is_shown.then(|| {
            Arc::new(PolicySubject {
                definition: Some(definition),
                ..made_by.clone()
            })
        })
    }

    /// Whether the policy lets the client learn of the task that `params` name.
    pub(crate) fn permits_status(
        &self,
        view: &View,
        context: &CallContext,
        params: Option<&Json>,
    ) -> bool {
        let made_by = |task: String| {
            TaskKey::all_of(&context.caller, &task)
                .find_map(|key| self.owners.find(&key))?
                .made_by
        };
        view.rights().is_none()
            || view.permits_again(task_id(params).ok().and_then(made_by).as_deref())
    }

    /// The remembered server of the task that `params` name, and the call that made the task.
    pub(crate) async fn known(
        &self,
        view: &View,
        context: &CallContext,
        params: Option<&Json>,
    ) -> Option<Known> {
        self.remembered_owner(view, context, &task_id(params).ok()?)
            .await
    }

    /// Listens to the only server, without tasks of other clients.
    pub(crate) async fn keep_own_tasks(&self, view: &View, mut listen: Listen) -> Listen {
        let owned = self
            .owners_of(view, &listen.context, &listen.interest.tasks)
            .await;
        listen
            .interest
            .tasks
            .retain(|task| owned.contains_key(task));
        listen
    }

    /// The servers that have these tasks; tasks that no server has are left out.
    ///
    /// Other replicas and servers are asked only for the first few unknown owners, and together no
    /// longer than for one. A client can name any number of tasks, and each unknown owner costs a
    /// request to each server.
    pub(crate) async fn owners_of(
        &self,
        view: &View,
        context: &Arc<CallContext>,
        tasks: &Names,
    ) -> HashMap<Arc<str>, BackendId> {
        let mut owners = HashMap::new();
        let mut unknown = Vec::new();
        for task in tasks {
            match self
                .owner_here(view, &TaskKey::new(&context.caller, task))
                .flatten()
            {
                Some(owner) => drop(owners.insert(Arc::clone(task), owner.backend)),
                None if unknown.len() < view.limits().unknown_tasks => {
                    unknown.push(Arc::clone(task));
                }
                None => {}
            }
        }
        let asked = unknown.into_iter().map(|task| async move {
            let owner = self.owner_of(view, context, &task).await.ok()?;
            Some((task, owner.backend))
        });
        let mut found = futures_util::stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
        let _in_time = timeout(view.limits().timeout, async {
            while let Some(found) = found.next().await {
                owners.extend(found);
            }
        })
        .await;
        owners
    }

    /// Asks all servers at once. If several know the task, the first one in configuration order has
    /// it, however fast the others are. With guessable ids the answer would otherwise vary.
    async fn find(
        &self,
        view: &View,
        context: &Arc<CallContext>,
        task: &str,
    ) -> Result<BackendId, RpcError> {
        let call = Call::new(
            Method::GetTask,
            Some(ObjectBuilder::new().string("taskId", task).finish()),
            // Sent as the client's own request, because the task may belong to its session.
            context.without_progress(),
        );
        let mut asked: FuturesOrdered<_> = view
            .backends()
            .filter(|backend| !Self::are_guarded(context, backend))
            .map(|backend| backend.id)
            .map(async |backend| {
                (
                    backend,
                    view.wait_briefly(state_of(view, backend, task, call.clone()))
                        .await,
                )
            })
            .collect();
        let mut not_asked = Vec::new();
        while let Some((backend, answer)) = asked.next().await {
            match answer {
                Ok(Some(state)) => {
                    let known = Known {
                        backend,
                        made_by: None,
                    };
                    self.learn(view, context, &state, known, Evidence::Seen)
                        .await;
                    return Ok(backend);
                }
                Ok(None) => {}
                Err(error) => not_asked.push((view.name(backend), error)),
            }
        }
        Err(fault::unknown_task(&not_asked))
    }
}

/// Sends a request about a task that the client knows by an alias.
async fn send_by_alias(
    view: &View,
    backend: BackendId,
    mut call: Call,
    own: String,
    alias: String,
) -> Result<Response, RpcError> {
    let named = |params: Json| rename_task(&params, &alias, &own);
    call.params = call.params.map(named);
    let for_client = Arc::new(move |value: Json| rename_task(&value, &own, &alias));
    let change = Arc::clone(&for_client);
    let messages = call
        .messages
        .with_map(move |message| Some(with_params(message, &*change)));
    let response = view.send(backend, Call { messages, ..call }).await?;
    Ok(match response.result() {
        Some(result) => response.with_body(&for_client(result)),
        None => response,
    })
}

/// A server's message to the client with changed params.
pub(crate) fn with_params(message: ServerMessage, change: impl Fn(Json) -> Json) -> ServerMessage {
    let changed = |of: Notification| match of.params() {
        Some(params) => of.with_params(&change(params)),
        None => of,
    };
    match message {
        ServerMessage::Notification(of) => ServerMessage::Notification(changed(of)),
        ServerMessage::TaskProgress(of) => ServerMessage::TaskProgress(changed(of)),
        ServerMessage::Request(mut request) => {
            request.params = request.params.map(&change);
            ServerMessage::Request(request)
        }
        other => other,
    }
}

/// Whether the client is shown the task's server, and the policy still permits the call that
/// created the task.
fn is_permitted(view: &View, known: &Known) -> bool {
    view.shows(known.backend) && view.permits_again(known.made_by.as_deref())
}

/// The state of the task at a server; `None` if the server does not know it.
async fn state_of(
    view: &View,
    backend: BackendId,
    task: &str,
    call: Call,
) -> Result<Option<Json>, BackendError> {
    let capabilities = view.capabilities(backend).await?;
    let has_tasks = capabilities
        .get("tasks")
        .is_some_and(|tasks| tasks.is_object());
    if !has_tasks && !has_tasks_extension(&capabilities) {
        return Ok(None);
    }
    let response = view.request(backend, call).await?;
    let is_it = |state: &Json| {
        state
            .get("taskId")
            .is_some_and(|id| id.as_str().as_deref() == Some(task))
    };
    Ok(response.result().filter(is_it))
}

/// `params.taskId`, which alone identifies the task (2025-11-25 basic/utilities/tasks, Associating
/// Task-Related Messages).
fn task_id(params: Option<&Json>) -> Result<String, RpcError> {
    let missing = || fault::invalid_params("params.taskId is missing");
    let params = params.ok_or_else(missing)?;
    let [found] = params
        .find(["taskId"])
        .map_err(|duplicate| fault::invalid_params(format!("params.taskId: {duplicate}")))?;
    let id = params.slice(found.ok_or_else(missing)?);
    id.to_str()
        .ok_or_else(|| fault::invalid_params("params.taskId must be a string"))
}

/// The task that an answer to any request creates, in either dialect.
pub(crate) fn created_task(response: &Response) -> Option<Json> {
    response.result().as_ref().and_then(find_created)
}

/// The task that the result of such an answer creates.
fn find_created(result: &Json) -> Option<Json> {
    // Almost no result creates one. A short result is searched for the word. In a long
    // one it is faster to find the members, which skips their values.
    const SHORT: usize = 1 << 10;
    if result.bytes().len() <= SHORT && !result.may_contain(word!("taskId")) {
        return None;
    }
    let [kind, id, task] = result.find(["resultType", "taskId", "task"]).ok()?;
    let kind = kind.map(|kind| result.slice(kind));
    if id.is_some() && kind.is_some_and(|kind| kind.is_str("task")) {
        return Some(result.clone());
    }
    Some(result.slice(task?)).filter(Json::is_object)
}

/// The servers whose tools the client may call as tasks although they do not say so.
pub(crate) fn backends_that_take_tasks(view: &View, client: &CallContext) -> Vec<BackendId> {
    let backends = view
        .backends()
        .filter(|backend| takes_tasks(backend, client));
    backends.map(|backend| backend.id).collect()
}

/// The only server's list of tools for a client.
pub(crate) fn list_for(only: &Member, client: &CallContext, response: Response) -> Response {
    if !takes_tasks(only, client) {
        return response;
    }
    match response
        .result()
        .and_then(|list| task_support::optional_for_list(&list))
    {
        Some(list) => response.with_body(&list),
        None => response,
    }
}

fn takes_tasks(backend: &Member, client: &CallContext) -> bool {
    if client.tasks != Some(TaskDialect::Requested) {
        return false;
    }
    // Lists do not wait for a disconnected server, which could take no call either.
    let Some(Ok(description)) = backend
        .serving(&client.caller)
        .describe(client)
        .now_or_never()
    else {
        return false;
    };
    // A description of a session comes from a session in which the extension is not declared.
    !description.is_of_session()
        && description
            .capabilities()
            .is_some_and(|all| has_tasks_extension(&all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_task_is_found_in_either_dialect() {
        let id = |text: &'static str| {
            find_created(&Json::literal(text)).map(|task| task.get("taskId").unwrap().to_string())
        };
        assert_eq!(
            id(r#"{"task":{"taskId":"a","ttl":1}}"#).as_deref(),
            Some("\"a\"")
        );
        assert_eq!(
            id(r#"{"taskId":"b","resultType":"t\u0061sk"}"#).as_deref(),
            Some("\"b\"")
        );
        assert_eq!(
            id(r#"{"t\u0061sk":{"taskId":"c"}}"#).as_deref(),
            Some("\"c\"")
        );
        for no in [
            r#"{"resultType":"complete","taskId":"d"}"#,
            r#"{"content":[{"task":{"taskId":"e"}}]}"#,
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"f"}}}"#,
            r#"{"task":"taskId"}"#,
        ] {
            assert!(find_created(&Json::literal(no)).is_none(), "{no}");
        }
    }

    #[test]
    fn created_task_is_found_in_a_long_result() {
        let long = |members: &str| {
            let text = format!(
                r#"{{"content":[{{"text":"{} taskId"}}],{members}}}"#,
                "x".repeat(4 << 10)
            );
            find_created(&Json::parse(text.into(), 8).unwrap())
                .map(|task| task.get("taskId").unwrap().to_string())
        };
        assert_eq!(long(r#""task":{"taskId":"a"}"#).as_deref(), Some("\"a\""));
        assert_eq!(
            long(r#""resultType":"task","t\u0061skId":"b""#).as_deref(),
            Some("\"b\"")
        );
        assert_eq!(long(r#""isError":false"#), None);
    }
}
