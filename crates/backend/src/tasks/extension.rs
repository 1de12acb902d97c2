//! Clients with the tasks extension at a legacy server with the tasks of 2025-11-25.
//!
//! A tool that requires a task is called as one; what comes of a task is inlined when the client
//! asks after it.
//!
//! Must not know: transports.

use std::sync::Arc;

use fanlight_protocol::{Json, Method, Response, code};
use fanlight_telemetry::Parent;

use super::translate::{Inlined, Status, complete, created_to_extension, task_to_extension, with_task};
use super::{TaskBridge, no_such_method, quietly, task_id, task_params};
use crate::deadline::CallProgress;
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext, ServerMessages};

impl TaskBridge {
    /// A tool call that may become a task: it does where the tool requires one.
    pub(super) async fn create_extension(&self, call: &Call, course: &CallProgress) -> Result<Response, BackendError> {
        let mut response = None;
        if !self.needs_task(call).await? {
            let plain = self.caller.exchange(call, course).await?;
            if !self.turns_out_to_need_task(call, &plain).await {
                response = Some(plain);
            }
        }
        let response = match response {
            Some(response) => response,
            None => {
                let call = Call { params: Some(with_task(call.params.as_ref())), ..call.clone() };
                self.caller.exchange(&call, course).await?
            }
        };
        let Some(result) = response.result() else { return Ok(response) };
        let Some(created) = created_to_extension(&result) else { return Ok(response) };
        self.remember_origin(&call.context, &created);
        Ok(response.with_body(&created))
    }

    /// A request about a task.
    pub(super) async fn serve_extension(self: &Arc<Self>, call: &Call) -> Result<Response, BackendError> {
        let (id, name) = match task_id(call) {
            Ok(id) => id,
            Err(refusal) => return Ok(refusal),
        };
        let origin = self.origins.touch(&name).unwrap_or_else(|| Arc::new(quietly(&call.context)));
        match call.method {
            Method::GetTask => {
                let params = call.params.clone().unwrap_or_else(Json::empty_object);
                self.detailed((&id, &name), params, &origin, &call.context).await
            }
            Method::UpdateTask => self.update_legacy(call, (&id, &name), &origin).await,
            Method::CancelTask => self.cancel_legacy(call, (&id, &name), &origin).await,
            _ => Ok(no_such_method(&call.method)),
        }
    }

    /// `params` of `notifications/tasks` for what a legacy server tells by
    /// `notifications/tasks/status`: just what the client would get by asking after the task. `None`
    /// if that cannot be found out; the client goes on asking then, as it must be ready to.
    pub(crate) async fn changed(self: &Arc<Self>, status: &Json, client: &Arc<CallContext>) -> Option<Json> {
        match Status::of(status) {
            Status::Working | Status::Cancelled => Some(task_to_extension(status, &Inlined::Nothing)),
            _ => {
                let call = Call {
                    method: Method::GetTask,
                    params: Some(task_params(&status.get("taskId")?)),
                    context: Arc::clone(client),
                    messages: ServerMessages::discard(),
                };
                let detailed = self.serve_extension(&call).await.ok()?.result()?;
                Some(super::translate::without_type(&detailed))
            }
        }
    }

    /// The answer to `tasks/get`.
    async fn detailed(
        self: &Arc<Self>,
        (id, name): (&Json, &str),
        params: Json,
        origin: &Arc<CallContext>,
        client: &Arc<CallContext>,
    ) -> Result<Response, BackendError> {
        let nowhere = ServerMessages::discard();
        let response = self.ask(Method::GetTask, params, origin, &nowhere).await?;
        let Some(task) = response.result() else { return Ok(response) };
        let status = Status::of(&task);
        if status.is_terminal() {
            self.held.remove(name);
        }
        let inlined = match status {
            Status::Working | Status::Cancelled => Inlined::Nothing,
            Status::InputRequired => Inlined::InputRequests(self.open_questions((id, name), origin, client).await?),
            Status::Completed | Status::Failed => {
                let outcome = self.ask(Method::TaskResult, task_params(id), origin, &nowhere).await?;
                match (outcome.result(), status) {
                    (Some(result), _) => Inlined::Result(result),
                    (None, Status::Failed) => Inlined::Error(outcome.body()),
                    // What has completed has a result: the error is about getting it.
                    (None, _) => return Ok(outcome),
                }
            }
        };
        Ok(response.with_body(&complete(&task_to_extension(&task, &inlined))))
    }

    async fn update_legacy(
        &self,
        call: &Call,
        (id, name): (&Json, &str),
        origin: &Arc<CallContext>,
    ) -> Result<Response, BackendError> {
        match self.held.touch(name) {
            Some(held) => {
                if let Some(responses) = call.params.as_ref().and_then(|params| params.get("inputResponses")) {
                    held.answer(&responses);
                }
            }
            None => {
                let known = self.ask(Method::GetTask, task_params(id), origin, &ServerMessages::discard()).await?;
                if known.is_error() {
                    return Ok(known);
                }
            }
        }
        Ok(acknowledgement())
    }

    /// In the extension cancelling is a wish that is acknowledged, also of what has ended already.
    async fn cancel_legacy(
        &self,
        call: &Call,
        (id, name): (&Json, &str),
        origin: &Arc<CallContext>,
    ) -> Result<Response, BackendError> {
        let nowhere = ServerMessages::discard();
        let params = call.params.clone().unwrap_or_else(Json::empty_object);
        let cancelled = self.ask(Method::CancelTask, params, origin, &nowhere).await?;
        match cancelled.error_code() {
            None if !cancelled.is_error() => {}
            Some(code::INVALID_PARAMS | code::METHOD_NOT_FOUND) => {
                let task = self.ask(Method::GetTask, task_params(id), origin, &nowhere).await?;
                let Some(state) = task.result() else { return Ok(task) };
                let cannot_cancel = cancelled.error_code() == Some(code::METHOD_NOT_FOUND);
                if !cannot_cancel && !Status::of(&state).is_terminal() {
                    return Ok(cancelled);
                }
            }
            _ => return Ok(cancelled),
        }
        self.held.remove(name);
        Ok(acknowledgement())
    }

    /// Remembers in whose name a task was made. A later request may come with other capabilities,
    /// which would lead to another session, where the server may not know the task.
    fn remember_origin(&self, client: &CallContext, created: &Json) {
        let Some(id) = created.get("taskId") else { return };
        let Some(id) = id.as_str() else { return };
        let origin = CallContext {
            client_info: client.client_info.as_ref().map(Json::detached),
            capabilities: client.capabilities.detached(),
            trace: Parent::default(),
            ..quietly(client)
        };
        let bytes =
            origin.capabilities.bytes().len() + origin.client_info.as_ref().map_or(0, |info| info.bytes().len());
        self.origins.insert(&id, Arc::new(origin), bytes, self.lifetime(created.get("ttlMs")));
    }
}

fn acknowledgement() -> Response {
    Response::from_result(&complete(&Json::empty_object()))
}
