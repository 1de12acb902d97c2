//! Clients with the tasks extension at a server with 2025-11-25 tasks.
//!
//! A tool that requires a task is called as one. The outcome of a task is inlined when the client
//! asks for the task.

use std::sync::Arc;

use fanlight_canonical::{BackendError, Call, CallContext};
use fanlight_protocol::{Json, Method, Response, code};
use fanlight_telemetry::Parent;

use super::translate::{
    Inlined, Status, complete, created_to_extension, task_to_extension, without_type,
};
use super::{CallProgress, TaskId, TaskTranslation, as_task, no_such_method, task_params};

impl TaskTranslation {
    /// Handles a tool call that may become a task; it does if the tool requires one.
    pub(super) async fn create_extension(
        &self,
        call: &Call,
        progress: &CallProgress,
    ) -> Result<Response, BackendError> {
        let response = match self.call_without_task(call, progress).await? {
            Some(response) => response,
            None => self.calls.exchange(&as_task(call), progress).await?,
        };
        let Some(created) = response
            .result()
            .and_then(|result| created_to_extension(&result))
        else {
            return Ok(response);
        };
        self.record_owner(
            &call.context.caller,
            &call.context.peer,
            &created,
            created.get("ttlMs"),
            true,
        );
        self.record_origin(&call.context, &created);
        Ok(response.with_body(&created))
    }

    /// Handles a request about a task.
    pub(super) async fn serve_extension(
        self: &Arc<Self>,
        call: &Call,
        task: &TaskId,
    ) -> Result<Response, BackendError> {
        let origin = self.origins.touch(&task.key(&call.context));
        let origin = origin.unwrap_or_else(|| call.context.without_progress());
        match call.method {
            Method::GetTask => {
                let params = call.params.clone().unwrap_or_else(Json::empty_object);
                self.detailed(task, params, &origin, &call.context).await
            }
            Method::UpdateTask => self.update_legacy(call, task, &origin).await,
            Method::CancelTask => self.cancel_legacy(call, task, &origin).await,
            _ => Ok(no_such_method(&call.method)),
        }
    }

    /// The `params` of `notifications/tasks` for a legacy server's `notifications/tasks/status`:
    /// the same as the answer to the client's `tasks/get`. `None` if the server cannot be asked;
    /// clients must expect missing notifications.
    pub(super) async fn notification_params(
        self: &Arc<Self>,
        status: &Json,
        client: &Arc<CallContext>,
    ) -> Option<Json> {
        match Status::read(status) {
            Status::Working | Status::Cancelled => {
                Some(task_to_extension(status, &Inlined::Nothing))
            }
            _ => {
                let call = Call::new(
                    Method::GetTask,
                    Some(task_params(&status.get("taskId")?)),
                    Arc::clone(client),
                );
                let task = TaskId::read(&call).ok()?;
                Some(without_type(
                    &self.serve_extension(&call, &task).await.ok()?.result()?,
                ))
            }
        }
    }

    /// The answer to `tasks/get`.
    async fn detailed(
        self: &Arc<Self>,
        task: &TaskId,
        params: Json,
        origin: &Arc<CallContext>,
        client: &Arc<CallContext>,
    ) -> Result<Response, BackendError> {
        let response = self.query(Method::GetTask, params, origin).await?;
        let Some(state) = response.result() else {
            return Ok(response);
        };
        let status = Status::read(&state);
        if status.is_terminal() {
            self.collectors.remove(&task.key(client));
        }
        let inlined = match status {
            Status::Working | Status::Cancelled => Inlined::Nothing,
            Status::InputRequired => {
                Inlined::InputRequests(self.open_inputs(task, origin, client).await?)
            }
            Status::Completed | Status::Failed => {
                let outcome = self
                    .query(Method::TaskResult, task_params(&task.json), origin)
                    .await?;
                match (outcome.result(), status) {
                    (Some(result), _) => Inlined::Result(result),
                    (None, Status::Failed) => Inlined::Error(outcome.body()),
                    // A completed task has a result, so the error is about reading it.
                    (None, _) => return Ok(outcome),
                }
            }
        };
        Ok(response.with_body(&complete(&task_to_extension(&state, &inlined))))
    }

    async fn update_legacy(
        &self,
        call: &Call,
        task: &TaskId,
        origin: &Arc<CallContext>,
    ) -> Result<Response, BackendError> {
        let responses = call.param("inputResponses");
        match self.collectors.touch(&task.key(&call.context)) {
            Some(collector) => {
                responses
                    .into_iter()
                    .for_each(|responses| collector.answer(&responses));
            }
            None => {
                let known = self
                    .query(Method::GetTask, task_params(&task.json), origin)
                    .await?;
                if known.is_error() {
                    return Ok(known);
                }
            }
        }
        Ok(acknowledgement())
    }

    /// Cancels a task. The extension acknowledges every cancellation, even of an ended task.
    async fn cancel_legacy(
        &self,
        call: &Call,
        task: &TaskId,
        origin: &Arc<CallContext>,
    ) -> Result<Response, BackendError> {
        let params = call.params.clone().unwrap_or_else(Json::empty_object);
        let cancelled = self.query(Method::CancelTask, params, origin).await?;
        match cancelled.error_code() {
            None if !cancelled.is_error() => {}
            Some(code::INVALID_PARAMS | code::METHOD_NOT_FOUND) => {
                let response = self
                    .query(Method::GetTask, task_params(&task.json), origin)
                    .await?;
                let Some(state) = response.result() else {
                    return Ok(response);
                };
                let cannot_cancel = cancelled.error_code() == Some(code::METHOD_NOT_FOUND);
                if !cannot_cancel && !Status::read(&state).is_terminal() {
                    return Ok(cancelled);
                }
            }
            _ => return Ok(cancelled),
        }
        self.collectors.remove(&task.key(&call.context));
        Ok(acknowledgement())
    }

    /// Records the client that a task was made for. A later request may declare other capabilities,
    /// and so use another session, in which the server may not know the task.
    fn record_origin(&self, client: &CallContext, created: &Json) {
        let Some(id) = created.text_at("taskId") else {
            return;
        };
        let origin = CallContext {
            client_info: client.client_info.as_ref().map(Json::detached),
            capabilities: client.capabilities.detached(),
            trace: Parent::default(),
            wants_progress: false,
            request: None,
            ..client.clone()
        };
        let info = origin
            .client_info
            .as_ref()
            .map_or(0, |info| info.bytes().len());
        let bytes = id.len() + origin.capabilities.bytes().len() + info;
        let key = (client.caller.holder().clone(), id);
        self.origins.insert(
            key,
            Arc::new(origin),
            &client.peer,
            bytes,
            self.lifetime(created.get("ttlMs")),
        );
    }
}

fn acknowledgement() -> Response {
    Response::from_result(&complete(&Json::empty_object()))
}
