//! Calls that may make a task of 2025-11-25, and requests that wait for one. A task's progress goes
//! on after the answer to the call that made it.

use std::sync::atomic::Ordering;

use fanlight_canonical::Call;
use fanlight_protocol::{Method, Response};

use super::Connection;
use crate::request::deadline::CallProgress;
use crate::subscriptions::{ExpectedTask, WaitGuard};

/// The task that a request is about, until the answer.
pub(super) enum TaskRequest<'a> {
    /// The request may make a task.
    Makes(ExpectedTask<'a>),
    /// The request waits for a task's result.
    Awaits { task: String, _guard: WaitGuard<'a> },
}

impl Connection {
    /// Begins to follow the progress of the request's task. The request already has its id.
    pub(super) fn follow_task(
        &self,
        call: &Call,
        progress: &CallProgress,
    ) -> Option<TaskRequest<'_>> {
        let (tasks, caller) = (
            &self.context.outlet.registry.task_progress,
            &call.context.caller,
        );
        let sent_as = |token| (self.context.outlet.process, token);
        match call.method {
            Method::CallTool if call.context.wants_progress => {
                call.params.as_ref()?.peek("task")?;
                let own = call.context.request.as_ref()?.progress_token()?;
                tasks
                    .expect(sent_as(progress.id.load(Ordering::Relaxed)), caller, own)
                    .map(TaskRequest::Makes)
            }
            Method::TaskResult => {
                let task = call.params.as_ref()?.text_at("taskId")?;
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

    /// Handles the answer to a request about a task.
    pub(super) fn task_answered(&self, call: &Call, request: TaskRequest<'_>, response: &Response) {
        match request {
            TaskRequest::Makes(expected) => {
                let task = response
                    .result()
                    .and_then(|result| result.get("task")?.text_at("taskId"));
                if let Some(task) = task {
                    expected.made(&task);
                }
            }
            // The result has arrived, so the task has ended.
            TaskRequest::Awaits { task, .. } if !response.is_error() => {
                self.context
                    .outlet
                    .registry
                    .task_progress
                    .ended(&call.context.caller, &task);
            }
            TaskRequest::Awaits { .. } => {}
        }
    }
}
