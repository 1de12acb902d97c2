//! Tasks: a task id belongs to the backend that made it, and whatever is asked of the task goes there.
//!
//! Ids are never rewritten, so the core remembers whose each is (`owners`). Where it does not know,
//! after a restart or on another replica, it asks the backends that have tasks: asking for the state
//! of a task changes nothing.
//!
//! Must not know: the ways of speaking of tasks beyond the places of ids and lifetimes (the backend's
//! edge answers in the client's).

mod list;
mod owners;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use fanlight_canonical::{BackendError, Call, CallContext, ServerMessages};
use fanlight_protocol::capability::has_tasks_extension;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use memchr::memmem;

use self::owners::{How, Owners};
use crate::catalogue::Sources;
use crate::cursor::CursorSeal;
use crate::fault;

/// Tasks of one request whose owners are asked for at the same time.
const ASKED_AT_ONCE: usize = 16;

/// The tasks of all backends.
pub(crate) struct Tasks {
    sources: Arc<Sources>,
    owners: Owners,
}

impl Tasks {
    /// Remembers the owners of at most `limit` tasks.
    pub(crate) fn new(sources: &Arc<Sources>, limit: usize) -> Self {
        Self { sources: Arc::clone(sources), owners: Owners::new(limit) }
    }

    /// Whether requests of this method are about tasks.
    pub(crate) fn are_concerned(method: &Method) -> bool {
        matches!(
            method,
            Method::GetTask | Method::TaskResult | Method::UpdateTask | Method::CancelTask | Method::ListTasks
        )
    }

    /// Answers a request about tasks.
    pub(crate) async fn handle(&self, call: Call, seal: &CursorSeal) -> Result<Response, RpcError> {
        if call.method == Method::ListTasks {
            return self.list(&call, seal).await;
        }
        let task = task_id(call.params.as_ref())?;
        let (method, context) = (call.method.clone(), Arc::clone(&call.context));
        let backend = self.owner_of(&context, &task).await?;
        let response = self.sources.send(backend, call).await?;
        match (method, response.result()) {
            (Method::GetTask | Method::CancelTask, Some(state)) => {
                self.owners.learn(context.session(), &state, backend, How::Seen);
            }
            // It does not know the task, or no longer: the next request looks elsewhere.
            (Method::GetTask, None) if response.error_code() == Some(code::INVALID_PARAMS) => {
                self.owners.forget(context.session(), &task);
            }
            _ => {}
        }
        Ok(response)
    }

    /// Learns whose a task is that a backend has just made for a client, if its answer is one.
    pub(crate) fn note(&self, context: &CallContext, backend: usize, response: &Response) {
        if let Some(task) = response.result().as_ref().and_then(created) {
            self.owners.learn(context.session(), &task, backend, How::Created);
        }
    }

    /// The backend whose task this is: its place in the configuration. Asks the backends if that is
    /// not known.
    pub(crate) async fn owner_of(&self, context: &Arc<CallContext>, task: &str) -> Result<usize, RpcError> {
        match self.owners.of(context.session(), task) {
            Some(backend) => Ok(backend),
            None => self.find(context, task).await,
        }
    }

    /// The backends that have these tasks; nothing of those that nobody has.
    pub(crate) async fn owners_of(&self, context: &Arc<CallContext>, tasks: &[Arc<str>]) -> HashMap<Arc<str>, usize> {
        let asked = tasks.iter().cloned().map(|task| async move {
            let owner = self.owner_of(context, &task).await.ok()?;
            Some((task, owner))
        });
        futures_util::stream::iter(asked).buffer_unordered(ASKED_AT_ONCE).filter_map(std::future::ready).collect().await
    }

    /// Asks every backend at once. Should several know the task, it is that of the first in
    /// configuration order, however fast the others are: with guessable ids the answer would else
    /// differ from time to time.
    async fn find(&self, context: &Arc<CallContext>, task: &str) -> Result<usize, RpcError> {
        let mut params = ObjectBuilder::new();
        params.string("taskId", task);
        let call = Call {
            method: Method::GetTask,
            params: Some(params.finish()),
            // The client's own: the task may belong to its session.
            context: Arc::new(CallContext { wants_progress: false, ..(**context).clone() }),
            messages: ServerMessages::discard(),
        };
        let backends = 0..self.sources.backends.len();
        let mut asked: FuturesOrdered<_> =
            backends.map(|backend| self.sources.briefly(self.state(backend, task, call.clone()))).collect();
        let mut not_asked = Vec::new();
        let mut backend = 0;
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(Some(state)) => {
                    self.owners.learn(context.session(), &state, backend, How::Seen);
                    return Ok(backend);
                }
                Ok(None) => {}
                Err(error) => not_asked.push((self.sources.name(backend), error)),
            }
            backend += 1;
        }
        Err(fault::unknown_task(&not_asked))
    }

    /// The state of the task at a backend; `None` if that does not know it.
    async fn state(&self, backend: usize, task: &str, call: Call) -> Result<Option<Json>, BackendError> {
        let capabilities = self.sources.capabilities(backend).await?;
        let has_tasks = capabilities.get("tasks").is_some_and(|tasks| tasks.is_object());
        if !has_tasks && !has_tasks_extension(&capabilities) {
            return Ok(None);
        }
        let response = self.sources.request(backend, call).await?;
        let is_it = |state: &Json| state.get("taskId").is_some_and(|id| id.as_str().as_deref() == Some(task));
        Ok(response.result().filter(is_it))
    }
}

/// `params.taskId`, which alone says which task is meant (2025-11-25 basic/utilities/tasks,
/// Associating Task-Related Messages).
fn task_id(params: Option<&Json>) -> Result<String, RpcError> {
    let missing = || fault::invalid_params("params.taskId is missing");
    let params = params.ok_or_else(missing)?;
    let [found] =
        params.find(["taskId"]).map_err(|duplicate| fault::invalid_params(format!("params.taskId: {duplicate}")))?;
    let id = params.slice(found.ok_or_else(missing)?);
    let text = id.as_str().map(|text| text.into_owned());
    text.ok_or_else(|| fault::invalid_params("params.taskId must be a string"))
}

/// The task that an answer to any request creates, in either way of speaking of tasks.
fn created(result: &Json) -> Option<Json> {
    // Almost no result does. Of a short one that is told by its text, where an escape could hide the
    // word; of a long one by its members, over whose values a walk steps.
    const SHORT: usize = 1 << 10;
    // What each search would begin with, done once.
    static TASK_ID: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("taskId"));
    static ESCAPE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("\\u"));
    let text = result.bytes();
    if text.len() <= SHORT && TASK_ID.find(text).is_none() && ESCAPE.find(text).is_none() {
        return None;
    }
    let [kind, id, task] = result.find(["resultType", "taskId", "task"]).ok()?;
    let kind = kind.map(|kind| result.slice(kind));
    if id.is_some() && kind.is_some_and(|kind| kind.as_str().as_deref() == Some("task")) {
        return Some(result.clone());
    }
    Some(result.slice(task?)).filter(Json::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_known_in_either_form_and_nothing_else_is() {
        let id = |text: &'static str| created(&Json::literal(text)).map(|task| task.get("taskId").unwrap().to_string());
        assert_eq!(id(r#"{"task":{"taskId":"a","ttl":1}}"#).as_deref(), Some("\"a\""));
        assert_eq!(id(r#"{"taskId":"b","resultType":"t\u0061sk"}"#).as_deref(), Some("\"b\""));
        assert_eq!(id(r#"{"t\u0061sk":{"taskId":"c"}}"#).as_deref(), Some("\"c\""));
        for no in [
            r#"{"resultType":"complete","taskId":"d"}"#,
            r#"{"content":[{"task":{"taskId":"e"}}]}"#,
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"f"}}}"#,
            r#"{"task":"taskId"}"#,
        ] {
            assert!(created(&Json::literal(no)).is_none(), "{no}");
        }
    }

    #[test]
    fn tasks_are_known_however_long_the_result_is() {
        let long = |members: &str| {
            let text = format!(r#"{{"content":[{{"text":"{} taskId"}}],{members}}}"#, "x".repeat(4 << 10));
            created(&Json::parse(text.into(), 8).unwrap()).map(|task| task.get("taskId").unwrap().to_string())
        };
        assert_eq!(long(r#""task":{"taskId":"a"}"#).as_deref(), Some("\"a\""));
        assert_eq!(long(r#""resultType":"task","t\u0061skId":"b""#).as_deref(), Some("\"b\""));
        assert_eq!(long(r#""isError":false"#), None);
    }
}
