//! Calls of clients without tasks. If the server makes a task from a call, Fanlight waits for it,
//! and the client gets the final result as from an ordinary call.
//!
//! At a legacy server `tasks/result` stays open, since server requests and progress arrive on it. The
//! task is also polled, since a stream may be lost unnoticed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, CallContext, Caller, Principal, ServerMessages};
use fanlight_protocol::{Json, Method, Response, code, meta};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::extension_wait::ExtensionWait;
use super::pace::{Pace, Step, is_transient};
use super::translate::Status;
use super::{
    CallProgress, CancelOnDrop, TaskTranslation, as_task, created, task_params, with_extension,
};
use crate::settings::PollIntervals;

impl TaskTranslation {
    pub(super) async fn call_legacy(
        self: &Arc<Self>,
        call: &Call,
        progress: &CallProgress,
    ) -> Result<Response, BackendError> {
        if let Some(response) = self.call_without_task(call, progress).await? {
            return Ok(response);
        }
        let _permit = self.permit(&call.context.peer)?;
        let response = self.calls.exchange(&as_task(call), progress).await?;
        let Some(task) = response.result().and_then(|result| result.get("task")) else {
            return Ok(response);
        };
        let Some(id) = task.get("taskId").filter(|id| id.as_str().is_some()) else {
            return Ok(response);
        };
        self.record_owner(
            &unlisted(call),
            &call.context.peer,
            &task,
            task.get("ttl"),
            true,
        );
        let (context, messages) = (call.context.without_progress(), &call.messages);
        let mut cancel = CancelOnDrop {
            translator: Arc::clone(self),
            context,
            id: id.clone(),
            armed: true,
        };
        let wait = RequestedWait {
            translator: self,
            context: &call.context,
            messages,
            id: &id,
            token: Some(progress.id.load(Ordering::Relaxed)),
        };
        let outcome = self
            .wait(progress, wait.run(&task))
            .await
            .map_err(BackendError::after_it_began);
        cancel.armed = outcome.is_err();
        outcome
    }

    pub(super) async fn call_modern(
        self: &Arc<Self>,
        call: &Call,
        progress: &CallProgress,
    ) -> Result<Response, BackendError> {
        let mut response = self.calls.exchange(call, progress).await?;
        let mut permit = None;
        if requires_extension(&response) && !is_modern(&call.context) {
            permit = Some(self.permit(&call.context.peer)?);
            response = self.calls.exchange(&with_extension(call), progress).await?;
        }
        let Some(task) = response.result() else {
            return Ok(response);
        };
        let Some(id) = created(&task) else {
            return Ok(response);
        };
        self.record_owner(
            &unlisted(call),
            &call.context.peer,
            &task,
            task.get("ttlMs"),
            true,
        );
        let context = with_extension(call).context.without_progress();
        let (translator, armed) = (Arc::clone(self), true);
        let mut cancel = CancelOnDrop {
            translator,
            context: Arc::clone(&context),
            id: id.clone(),
            armed,
        };
        let permit = permit.map_or_else(|| self.permit(&call.context.peer), Ok);
        let _permit = permit.map_err(|error| BackendError::Malformed {
            reason: format!(
                "a task that was not requested, and whose end the gateway cannot wait for: {error}"
            ),
        })?;
        let wait = ExtensionWait {
            translator: self,
            context: &context,
            messages: &call.messages,
            id: &id,
            names_task: false,
        };
        let outcome = self
            .wait(progress, wait.run(Some(&task)))
            .await
            .map_err(BackendError::after_it_began);
        cancel.armed = outcome.as_ref().map_or(true, Response::is_error);
        outcome
    }

    /// Calls a legacy server's tool without asking for a task; `None` if the tool requires a task,
    /// and so did not run.
    ///
    /// A server that requires a task answers -32601 for tools (2025-11-25 basic/utilities/tasks,
    /// Tool-Level Negotiation), or -32600 for requests in general (Protocol Errors). A freshly read
    /// tool list shows whether that is the reason.
    pub(super) async fn call_without_task(
        &self,
        call: &Call,
        progress: &CallProgress,
    ) -> Result<Option<Response>, BackendError> {
        let tool = call.param("name").and_then(|name| name.to_str());
        if let Some(tool) = &tool
            && self.calls.requires_task(&call.context, tool, false).await?
        {
            return Ok(None);
        }
        let response = self.calls.exchange(call, progress).await?;
        if let Some(tool) = &tool
            && matches!(
                response.error_code(),
                Some(code::METHOD_NOT_FOUND | code::INVALID_REQUEST)
            )
            && self
                .calls
                .requires_task(&call.context, tool, true)
                .await
                .unwrap_or(false)
        {
            return Ok(None);
        }
        Ok(Some(response))
    }
}

/// The owner of a task that the client does not know, and that its `tasks/list` must not contain.
fn unlisted(call: &Call) -> Caller {
    Caller::request_of(call.context.caller.holder().clone())
}

/// Whether a client is modern, and so declares its capabilities with each request. The client and a
/// modern server then settle the requirements themselves. Operators call through Fanlight, which
/// has tasks.
fn is_modern(client: &CallContext) -> bool {
    client.session().is_none()
        && !client.caller.is_gateway()
        && *client.caller.principal() != Principal::operator()
}

/// Whether a request was refused for lack of the tasks extension (the tasks extension, Capability
/// Negotiation), and so did not run.
fn requires_extension(response: &Response) -> bool {
    if response.error_code() != Some(code::MISSING_CLIENT_CAPABILITY) {
        return false;
    }
    let required = response.error().and_then(|error| {
        error
            .get("data")?
            .get("requiredCapabilities")?
            .get("extensions")
    });
    required
        .and_then(|extensions| extensions.get(meta::TASKS_EXTENSION))
        .as_ref()
        .is_some_and(Json::is_object)
}

/// The time for the result of a legacy server's task once it has ended, before it is requested again. Doubles with each
/// request.
const TASK_RESULT: Duration = Duration::from_secs(30);

/// One wait for a task of a legacy server.
pub(super) struct RequestedWait<'a> {
    pub(super) translator: &'a TaskTranslation,
    pub(super) context: &'a Arc<CallContext>,
    pub(super) messages: &'a ServerMessages,
    pub(super) id: &'a Json,
    /// The progress token of the request that made the task.
    pub(super) token: Option<i64>,
}

/// The findings of polling, for the wait for the result.
#[derive(Default)]
struct Polled {
    /// Notified when the server responds.
    alive: Notify,
    /// Notified when the task has ended and its result should have arrived.
    overdue: Notify,
}

impl RequestedWait<'_> {
    /// Waits for the answer to `tasks/result`. `task` is the task's initial state.
    pub(super) async fn run(&self, task: &Json) -> Result<Response, BackendError> {
        let polled = Polled::default();
        tokio::select! {
            biased;
            outcome = self.result(&polled) => outcome,
            outcome = self.poll(task, &polled) => outcome,
        }
    }

    async fn result(&self, polled: &Polled) -> Result<Response, BackendError> {
        let call = Call {
            method: Method::TaskResult,
            params: Some(task_params(self.id)),
            context: Arc::clone(self.context),
            messages: self.messages.clone(),
        };
        loop {
            let progress = CallProgress {
                carries_on: self.token,
                ..CallProgress::default()
            };
            tokio::select! {
                biased;
                outcome = self.translator.calls.exchange_unlimited(&call, &progress) => match outcome {
                    Err(error) if is_transient(&error) => polled.alive.notified().await,
                    outcome => return outcome,
                },
                () = polled.overdue.notified() => {}
            }
        }
    }

    /// Polls the task; returns only if the server does not know it or is unreachable.
    async fn poll(&self, task: &Json, polled: &Polled) -> Result<Response, BackendError> {
        let mut pace = Pace::new(PollIntervals::default());
        pace.follow(task.get("pollInterval").as_ref());
        // Doubles each time, since a large result may take long.
        let mut delay = TASK_RESULT;
        let context = self.context.without_progress();
        loop {
            pace.wait().await;
            let outcome = self
                .translator
                .query(Method::GetTask, task_params(self.id), &context)
                .await;
            match pace.judge(outcome, &[code::INVALID_PARAMS])? {
                Step::Result(task) => {
                    pace.follow(task.get("pollInterval").as_ref());
                    polled.alive.notify_one();
                    if Status::read(&task).is_terminal() {
                        sleep(delay).await;
                        delay = delay.saturating_mul(2);
                        polled.overdue.notify_one();
                    }
                }
                Step::Refused(response) => return Ok(response),
                Step::Retry => {}
            }
        }
    }
}
