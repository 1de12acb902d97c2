//! Calls of clients without tasks: where the server makes a task of one, it is awaited here, and
//! the client gets the final result as if the call had run plainly.
//!
//! Must not know: transports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fanlight_protocol::{Json, Method, Response, code, meta};

use super::await_extension::ExtensionWait;
use super::await_requested::RequestedWait;
use super::translate::with_task;
use super::{CancelOnDrop, TaskBridge, created, declaring, quietly};
use crate::deadline::CallProgress;
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, TaskDialect};

impl TaskBridge {
    /// Calls a tool for a client that knows of no tasks.
    pub(super) async fn call_plainly(
        self: &Arc<Self>,
        server: TaskDialect,
        call: &Call,
        course: &CallProgress,
    ) -> Result<Response, BackendError> {
        match server {
            TaskDialect::Requested => self.call_legacy(call, course).await,
            TaskDialect::Extension => self.call_modern(call, course).await,
        }
    }

    async fn call_legacy(self: &Arc<Self>, call: &Call, course: &CallProgress) -> Result<Response, BackendError> {
        if !self.needs_task(call).await? {
            let response = self.caller.exchange(call, course).await?;
            if !self.turns_out_to_need_task(call, &response).await {
                return Ok(response);
            }
        }
        let _permit = self.permit()?;
        let call = Call { params: Some(with_task(call.params.as_ref())), ..call.clone() };
        let response = self.caller.exchange(&call, course).await?;
        let Some(task) = response.result().and_then(|result| result.get("task")) else { return Ok(response) };
        let Some(id) = task.get("taskId").filter(|id| id.as_str().is_some()) else { return Ok(response) };
        let mut abandoned = CancelOnDrop::new(self, &Arc::new(quietly(&call.context)), &id);
        let wait = RequestedWait {
            bridge: self,
            context: &call.context,
            messages: &call.messages,
            id: &id,
            token: Some(course.id.load(Ordering::Relaxed)),
        };
        let outcome = self.wait(course, wait.run(&task)).await;
        abandoned.armed = outcome.is_err();
        outcome
    }

    async fn call_modern(self: &Arc<Self>, call: &Call, course: &CallProgress) -> Result<Response, BackendError> {
        let mut response = self.caller.exchange(call, course).await?;
        let mut permit = None;
        if requires_extension(&response) {
            permit = Some(self.permit()?);
            let context = Arc::new(declaring(&call.context));
            response = self.caller.exchange(&Call { context, ..call.clone() }, course).await?;
        }
        let Some(task) = response.result() else { return Ok(response) };
        let Some(id) = created(&task) else { return Ok(response) };
        let context = Arc::new(quietly(&declaring(&call.context)));
        let mut abandoned = CancelOnDrop::new(self, &context, &id);
        let permit = permit.map_or_else(|| self.permit(), Ok);
        let _permit = permit.map_err(|error| BackendError::Malformed {
            reason: format!("a task that it was not asked for, which cannot be awaited: {error}"),
        })?;
        let messages = &call.messages;
        let wait = ExtensionWait { bridge: self, context: &context, messages, id: &id, names_task: false };
        let outcome = self.wait(course, wait.run(Some(&task))).await;
        abandoned.armed = outcome.as_ref().map_or(true, Response::is_error);
        outcome
    }

    /// Whether a legacy server wants this tool to be called as a task.
    pub(super) async fn needs_task(&self, call: &Call) -> Result<bool, BackendError> {
        let Some(tool) = called_tool(call) else { return Ok(false) };
        Ok(self.caller.lease(&call.context).await?.connection.needs_task(&tool).await)
    }

    /// Whether a plain call was refused because the tool needs a task: then it did not run. The code
    /// is -32601 for tools (2025-11-25 basic/utilities/tasks, Tool-Level Negotiation), -32600 for
    /// requests in general (Protocol Errors); the tool list tells whether it means that.
    pub(super) async fn turns_out_to_need_task(&self, call: &Call, response: &Response) -> bool {
        if !matches!(response.error_code(), Some(code::METHOD_NOT_FOUND | code::INVALID_REQUEST)) {
            return false;
        }
        let Some(tool) = called_tool(call) else { return false };
        match self.caller.lease(&call.context).await {
            Ok(lease) => lease.connection.needs_task_now(&tool).await,
            Err(_) => false,
        }
    }
}

fn called_tool(call: &Call) -> Option<String> {
    debug_assert!(call.method == Method::CallTool);
    let name = call.params.as_ref()?.get("name")?;
    name.as_str().map(std::borrow::Cow::into_owned)
}

/// Whether a request was refused for want of the tasks extension (the tasks extension, Capability
/// Negotiation): then it did not run.
fn requires_extension(response: &Response) -> bool {
    if response.error_code() != Some(code::MISSING_CLIENT_CAPABILITY) {
        return false;
    }
    let required = response.error().and_then(|error| error.get("data")?.get("requiredCapabilities")?.get("extensions"));
    required.and_then(|extensions| extensions.get(meta::TASKS_EXTENSION)).as_ref().is_some_and(Json::is_object)
}
