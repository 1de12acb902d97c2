//! Calls that may make a task of 2025-11-25, and those that wait for one: the progress of the task outlasts the first.

use std::sync::atomic::Ordering;

use fanlight_canonical::{Call, TaskDialect};
use fanlight_protocol::{Json, Method, Response};

use super::Connection;
use crate::request::deadline::CallProgress;
use crate::subscriptions::{ExpectedTask, WaitGuard};

/// The task that a request is about, until the request is answered.
pub(super) enum TaskRequest<'a> {
    /// It may make one.
    Makes(ExpectedTask<'a>),
    /// It waits for the result of one.
    Awaits { task: String, _guard: WaitGuard<'a> },
}

impl Connection {
    /// Begins to follow the progress of the task that a request is about. The request has its id already.
    pub(super) fn follow_task(
        &self,
        call: &Call,
        progress: &CallProgress,
    ) -> Option<TaskRequest<'_>> {
        if self.tasks != Some(TaskDialect::Requested) {
            return None;
        }
        let (tasks, caller) = (self.context.outlet.task_progress(), &call.context.caller);
        let sent_as = |token| (self.context.outlet.process(), token);
        match call.method {
            Method::CallTool if call.context.wants_progress => {
                call.params.as_ref()?.peek("task")?;
                let own = call.context.request.as_ref()?.progress_token()?;
                tasks
                    .expect(sent_as(progress.id.load(Ordering::Relaxed)), caller, own)
                    .map(TaskRequest::Makes)
            }
            Method::TaskResult => {
                let task = call.params.as_ref()?.get("taskId")?.as_str()?.into_owned();
                let guard = tasks.wait(
                    caller,
                    task.clone(),
                    progress.carries_on.map(sent_as),
                    &call.messages,
                );
                Some(TaskRequest::Awaits {
                    task,
                    _guard: guard,
                })
            }
            _ => None,
        }
    }

    /// A request about a task was answered.
    pub(super) fn task_answered(&self, call: &Call, request: TaskRequest<'_>, response: &Response) {
        match request {
            TaskRequest::Makes(expected) => {
                let task = response
                    .result()
                    .and_then(|result| result.get("task")?.get("taskId"));
                if let Some(task) = task.as_ref().and_then(Json::as_str) {
                    expected.made(&task);
                }
            }
            // The result is there: the task has ended.
            TaskRequest::Awaits { task, .. } if !response.is_error() => {
                self.context
                    .outlet
                    .task_progress()
                    .ended(&call.context.caller, &task);
            }
            TaskRequest::Awaits { .. } => {}
        }
    }
}
