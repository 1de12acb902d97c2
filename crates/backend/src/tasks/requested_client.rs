//! Clients of 2025-11-25 at a server with the tasks extension.
//!
//! The extension has no `tasks/list`. Fanlight answers it with the client's known tasks: those that
//! its session has made or asked for since Fanlight started.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, CallContext, HandleSeal};
use fanlight_protocol::{ArrayBuilder, Json, Method, ObjectBuilder, Response, code};
use tokio::time::sleep;

use super::extension_wait::ExtensionWait;
use super::translate::{Status, created_to_legacy, task_to_legacy};
use super::{
    CallProgress, TaskDialect, TaskId, TaskTranslation, as_plain, created, has_ended,
    no_such_method, refusal, task_params, unknown_task, with_extension,
};

/// The number of tasks per page of a list. A constant: the server chooses the page size, and
/// clients read all pages.
const PAGE: usize = 20;
/// The number of attempts to read a cancelled task, with a delay between them. A modern server
/// acknowledges a cancellation before it takes effect, but a legacy client must get the cancelled
/// task.
const CANCEL_READS: u32 = 10;
const CANCEL_DELAY: Duration = Duration::from_millis(100);

impl TaskTranslation {
    /// Handles a tool call that must become a task. The server decides, but the client gets a task
    /// in any case.
    pub(super) async fn create_requested(
        self: &Arc<Self>,
        call: &Call,
        progress: &CallProgress,
    ) -> Result<Response, BackendError> {
        let plain = as_plain(&with_extension(call));
        let response = self.calls.exchange(&plain, progress).await?;
        let Some(result) = response.result() else {
            return Ok(response);
        };
        if created(&result).is_some() {
            self.record_created(&call.context, Some(&result), TaskDialect::Extension);
            return Ok(response.with_body(&created_to_legacy(&result)));
        }
        if (result.text_at("resultType")).is_some_and(|kind| kind != "complete") {
            // The server wants input before it begins.
            return Ok(response);
        }
        let Some(created) = self.keep(call, &result) else {
            return Ok(response);
        };
        if let Some(task) = created.result().and_then(|result| result.get("task")) {
            self.record_owner(&call.context.caller, &call.context.peer, &task, None, true);
        }
        Ok(created)
    }

    /// Handles a request about a task.
    pub(super) async fn serve_requested(
        self: &Arc<Self>,
        call: &Call,
        task: &TaskId,
        progress: &CallProgress,
    ) -> Result<Response, BackendError> {
        if HandleSeal::is_task(&task.name) {
            let immediate = self.immediate.get(&task.key(&call.context));
            return Ok(
                immediate.map_or_else(unknown_task, |immediate| immediate.serve(&call.method))
            );
        }
        match call.method {
            Method::GetTask => {
                let call = with_extension(call);
                let response = self.calls.exchange(&call, progress).await?;
                let Some(state) = response.result() else {
                    if response.error_code() == Some(code::INVALID_PARAMS) {
                        self.unfollow(&call.context, &task.name);
                    }
                    return Ok(response);
                };
                self.record_asked(&call.context, &state);
                self.follow(&call.context, &state);
                Ok(response.with_body(&task_to_legacy(&state)))
            }
            Method::TaskResult => {
                let _permit = self.permit(&call.context.peer)?;
                let context = with_extension(call).context.without_progress();
                let (messages, id) = (&call.messages, &task.json);
                let wait = ExtensionWait {
                    translator: self,
                    context: &context,
                    messages,
                    id,
                    names_task: true,
                };
                let outcome = self.wait(progress, wait.run(None)).await?;
                if outcome.error_code() != Some(code::INVALID_PARAMS) {
                    self.record_asked(&call.context, &task_params(id));
                }
                Ok(outcome)
            }
            Method::CancelTask => self.cancel_requested(call, &task.json).await,
            _ => Ok(no_such_method(&call.method)),
        }
    }

    fn record_asked(&self, client: &CallContext, task: &Json) {
        self.record_owner(&client.caller, &client.peer, task, task.get("ttlMs"), false);
    }

    async fn cancel_requested(&self, call: &Call, id: &Json) -> Result<Response, BackendError> {
        let context = with_extension(call).context.without_progress();
        let get = || self.query(Method::GetTask, task_params(id), &context);
        let before = get().await?;
        let Some(task) = before.result() else {
            return Ok(before);
        };
        if Status::read(&task).is_terminal() {
            let status = task_to_legacy(&task).text_at("status");
            return Ok(has_ended(&status.unwrap_or_default()));
        }
        let params = call.params.clone().unwrap_or_else(Json::empty_object);
        let acknowledged = self.query(Method::CancelTask, params, &context).await?;
        if acknowledged.is_error() {
            return Ok(acknowledged);
        }
        let mut reads = 0;
        loop {
            let response = get().await?;
            let Some(task) = response.result() else {
                return Ok(response);
            };
            reads += 1;
            if Status::read(&task).is_terminal() || reads == CANCEL_READS {
                return Ok(response.with_body(&task_to_legacy(&task)));
            }
            sleep(CANCEL_DELAY).await;
        }
    }

    /// The client's tasks, oldest first. The cursor is the number of the last listed one.
    pub(super) async fn list_owned(&self, call: &Call) -> Result<Response, BackendError> {
        let after = match call.cursor() {
            None => 0,
            Some(cursor) => match cursor.as_str().and_then(|cursor| cursor.parse().ok()) {
                Some(after) => after,
                None => {
                    return Ok(refusal(
                        code::INVALID_PARAMS,
                        "the cursor does not belong to this list",
                    ));
                }
            },
        };
        let mut owned = self.owners.tasks_of(&call.context.caller);
        owned.retain(|(number, _)| *number > after);
        let next = (owned.len() > PAGE)
            .then(|| owned.get(PAGE - 1).map(|(number, _)| *number))
            .flatten();
        let context = with_extension(call).context.without_progress();
        let mut tasks = ArrayBuilder::default();
        for (_, id) in owned.into_iter().take(PAGE) {
            if let Some(task) = self.listed(id, &context).await? {
                tasks.push(&task);
            }
        }
        let next = next.map(|next| Json::string(&next.to_string()));
        let result = ObjectBuilder::new()
            .member("tasks", &tasks.finish())
            .optional("nextCursor", next.as_ref())
            .finish();
        Ok(Response::from_result(&result))
    }

    /// A task for the list, unless it is gone.
    async fn listed(
        &self,
        name: String,
        context: &Arc<CallContext>,
    ) -> Result<Option<Json>, BackendError> {
        let task = TaskId {
            json: Json::string(&name),
            name,
        };
        if HandleSeal::is_task(&task.name) {
            return Ok(self
                .immediate
                .get(&task.key(context))
                .map(|immediate| immediate.to_task()));
        }
        let response = self
            .query(Method::GetTask, task_params(&task.json), context)
            .await?;
        if response.error_code() == Some(code::INVALID_PARAMS) {
            self.owners.remove(&task.name, &context.caller);
        }
        Ok(response.result().map(|task| task_to_legacy(&task)))
    }
}
