//! Waits for the end of a modern server's task: polls it, and answers its server requests.

use std::sync::Arc;

use fanlight_canonical::{BackendError, CallContext, ServerMessages};
use fanlight_protocol::{Json, Method, ObjectBuilder, Response, code};

use super::inputs::{AnsweringGuard, Inputs};
use super::pace::{Pace, Step};
use super::translate::{Status, with_related_task};
use super::{TaskTranslation, refusal, task_params};
use crate::settings::PollIntervals;

/// Inputs that one task of a modern server may request while a call waits for it.
const TASK_INPUTS: usize = 256;

/// Errors with which a server refuses a request about a task for good.
const REFUSALS: [i64; 3] = [
    code::INVALID_PARAMS,
    code::METHOD_NOT_FOUND,
    code::MISSING_CLIENT_CAPABILITY,
];

/// One wait for a task of a server with the tasks extension.
pub(super) struct ExtensionWait<'a> {
    pub(super) translator: &'a TaskTranslation,
    /// A context that declares the extension.
    pub(super) context: &'a Arc<CallContext>,
    pub(super) messages: &'a ServerMessages,
    pub(super) id: &'a Json,
    /// Whether the client has tasks; then all messages of this task name it.
    pub(super) names_task: bool,
}

impl ExtensionWait<'_> {
    /// Waits, and answers as if the request had run without a task. `task` is the last known state;
    /// without it the task is read at once.
    pub(super) async fn run(&self, task: Option<&Json>) -> Result<Response, BackendError> {
        let mut pace = Pace::new(PollIntervals::default());
        if let Some(task) = task {
            pace.follow(task.get("pollIntervalMs").as_ref());
        }
        let related = self.names_task.then_some(self.id);
        let limit = self.translator.calls.timeouts.question;
        let mut inputs = Inputs::new(self.context, self.messages, related, (limit, TASK_INPUTS));
        let (mut at_once, mut answering) = (task.is_none(), None);
        loop {
            if !std::mem::take(&mut at_once) {
                tokio::select! {
                    biased;
                    answered = inputs.next() => match inputs.take(answered) {
                        Ok(()) if inputs.responses().is_none() => continue,
                        Ok(()) => {}
                        Err(refusal) => return Ok(refusal),
                    },
                    () = pace.wait() => {}
                }
            }
            if let Some(responses) = inputs.responses() {
                let params = ObjectBuilder::new()
                    .member("taskId", self.id)
                    .member("inputResponses", &responses)
                    .finish();
                match pace.judge(self.ask(Method::UpdateTask, params).await, &REFUSALS)? {
                    Step::Result(_) => inputs.clear_answers(),
                    Step::Refused(response) => return Ok(response),
                    Step::Retry => continue,
                }
            }
            let task = match pace.judge(
                self.ask(Method::GetTask, task_params(self.id)).await,
                &REFUSALS,
            )? {
                Step::Result(task) => task,
                Step::Refused(response) => return Ok(response),
                Step::Retry => continue,
            };
            pace.follow(task.get("pollIntervalMs").as_ref());
            match Status::read(&task) {
                Status::Working => {}
                Status::InputRequired => {
                    // Another call may be answering; if that call ends, this one takes over.
                    answering = answering
                        .or_else(|| AnsweringGuard::acquire(&self.translator.answering, self.id));
                    if answering.is_none() {
                        continue;
                    }
                    if let Err(refusal) = inputs.ask(&task).await {
                        return Ok(refusal);
                    }
                }
                status => return self.outcome(status, &task),
            }
        }
    }

    async fn ask(&self, method: Method, params: Json) -> Result<Response, BackendError> {
        self.translator
            .ask(method, params, self.context, self.messages)
            .await
    }

    fn outcome(&self, status: Status, task: &Json) -> Result<Response, BackendError> {
        let lacks = |what: &str| BackendError::Malformed {
            reason: format!("a task that ended without {what}"),
        };
        match status {
            Status::Completed => {
                let result = task
                    .get("result")
                    .filter(Json::is_object)
                    .ok_or_else(|| lacks("a result"))?;
                let result = if self.names_task {
                    with_related_task(&result, self.id)
                } else {
                    result
                };
                Ok(Response::from_result(&result))
            }
            Status::Failed => {
                let error = task
                    .get("error")
                    .filter(Json::is_object)
                    .ok_or_else(|| lacks("an error"))?;
                Ok(refusal(code::INTERNAL, "").with_body(&error))
            }
            _ => {
                let reason = task.text_at("statusMessage");
                let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
                Ok(refusal(
                    code::INTERNAL,
                    format!("the task was cancelled{reason}"),
                ))
            }
        }
    }
}
