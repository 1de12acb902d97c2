//! Tasks made from results that a modern server returned at once to a 2025-11-25 client that asked
//! for a task. In that dialect the answer must be a task.
//!
//! Such a task has already ended. Its id is a sealed handle. It is bound to its client, and
//! unguessable, as it must be without authorization (2025-11-25 basic/utilities/tasks, Task
//! Isolation and Access Control). It names the process that keeps the task, so that other replicas
//! can forward requests about it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_canonical::Call;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response};

use super::translate::with_related_task;
use super::wait::milliseconds;
use super::{TaskTranslation, has_ended, no_such_method};

/// In milliseconds. Short, since the task has already ended.
const POLL_INTERVAL: i64 = 50;

/// A result in the form of a task.
#[derive(Debug)]
pub(super) struct ImmediateTask {
    id: String,
    result: Json,
    created: String,
    ttl: Duration,
}

impl TaskTranslation {
    /// Makes a task from the result of a call. Returns the response that creates the task; `None`
    /// if the result is too large to be kept.
    pub(super) fn keep(&self, call: &Call, result: &Json) -> Option<Response> {
        let ttl = call
            .params
            .as_ref()
            .and_then(|params| params.get("task")?.get("ttl"));
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
        let mut created = ObjectBuilder::new();
        // A task begins as working (Task Status Lifecycle).
        created.member("task", &task.to_json("working"));
        Some(Response::from_result(&created.finish()))
    }
}

impl ImmediateTask {
    /// Answers a request about the task.
    pub(super) fn serve(&self, method: &Method) -> Response {
        match method {
            Method::GetTask => Response::from_result(&self.ended()),
            Method::TaskResult => {
                Response::from_result(&with_related_task(&self.result, &Json::string(&self.id)))
            }
            Method::CancelTask => has_ended(self.status()),
            other => no_such_method(other),
        }
    }

    /// The task as a `Task` object.
    pub(super) fn ended(&self) -> Json {
        self.to_json(self.status())
    }

    /// The task's status. A tool's own error counts as the task's failure (Task Status).
    fn status(&self) -> &'static str {
        let is_error = self
            .result
            .get("isError")
            .is_some_and(|is_error| is_error.is_true());
        if is_error { "failed" } else { "completed" }
    }

    fn to_json(&self, status: &str) -> Json {
        let mut task = ObjectBuilder::new();
        task.string("taskId", &self.id)
            .string("status", status)
            .string("createdAt", &self.created)
            .string("lastUpdatedAt", &self.created)
            .integer(
                "ttl",
                i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX),
            )
            .integer("pollInterval", POLL_INTERVAL);
        task.finish()
    }
}
