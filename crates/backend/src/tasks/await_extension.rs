//! Waiting for the end of a modern server's task: polling, and answering what it asks.
//!
//! Must not know: what made the task.

use std::sync::Arc;

use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response, code};

use super::inputs::{Asker, Inputs};
use super::pace::Pace;
use super::translate::{Status, with_related_task};
use super::{TaskBridge, error_response, refusal, task_params};
use fanlight_canonical::BackendError;
use fanlight_canonical::{CallContext, ServerMessages};

/// One wait for a task of a server with the tasks extension.
pub(super) struct ExtensionWait<'a> {
    pub(super) bridge: &'a TaskBridge,
    /// Declares the extension.
    pub(super) context: &'a Arc<CallContext>,
    pub(super) messages: &'a ServerMessages,
    pub(super) id: &'a Json,
    /// Whether the client knows of tasks: then everything that belongs to this one names it.
    pub(super) names_task: bool,
}

impl ExtensionWait<'_> {
    /// Waits, and answers as the request would have been answered without a task. `seen` is what is
    /// known of the task; without it, it is asked after at once.
    pub(super) async fn run(&self, seen: Option<&Json>) -> Result<Response, BackendError> {
        let mut pace = Pace::default();
        if let Some(task) = seen {
            pace.heed(task.get("pollIntervalMs").as_ref());
        }
        let related = self.names_task.then_some(self.id);
        let mut inputs = Inputs::new(self.context, self.messages, related, self.bridge.timeouts.question);
        let (mut at_once, mut asker) = (seen.is_none(), None);
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
                match self.borne(&mut pace, self.update(&responses).await)? {
                    Step::Went(_) => inputs.sent(),
                    Step::Refused(response) => return Ok(response),
                    Step::Borne => continue,
                }
            }
            let asked = self.ask(Method::GetTask, task_params(self.id)).await;
            let task = match self.borne(&mut pace, asked)? {
                Step::Went(task) => task,
                Step::Refused(response) => return Ok(response),
                Step::Borne => continue,
            };
            pace.heed(task.get("pollIntervalMs").as_ref());
            match Status::of(&task) {
                Status::Working => {}
                Status::InputRequired => {
                    // Another that waits may be asking; should that one leave, this one takes over.
                    asker = asker.or_else(|| Asker::of(&self.bridge.asked, self.id));
                    if asker.is_none() {
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

    async fn update(&self, responses: &Json) -> Result<Response, BackendError> {
        let mut params = ObjectBuilder::new();
        params.member("taskId", self.id).member("inputResponses", responses);
        self.ask(Method::UpdateTask, params.finish()).await
    }

    async fn ask(&self, method: Method, params: Json) -> Result<Response, BackendError> {
        self.bridge.ask(method, params, self.context, self.messages).await
    }

    /// What a request about the task came to. Repeating one is safe, so that a failure that may pass
    /// is borne for a while; a refusal of the request itself is final.
    fn borne(&self, pace: &mut Pace, outcome: Result<Response, BackendError>) -> Result<Step, BackendError> {
        let error = match outcome {
            Ok(response) => match (response.result(), response.error_code()) {
                (Some(result), _) => return Ok(Step::Went(result)),
                (None, Some(code::INVALID_PARAMS | code::METHOD_NOT_FOUND | code::MISSING_CLIENT_CAPABILITY)) => {
                    return Ok(Step::Refused(response));
                }
                // Asked too often, or out of order for the moment.
                _ if pace.bears(&BackendError::ClosedEarly) => return Ok(Step::Borne),
                _ => return Ok(Step::Refused(response)),
            },
            Err(error) => error,
        };
        if pace.bears(&error) { Ok(Step::Borne) } else { Err(error) }
    }

    fn outcome(&self, status: Status, task: &Json) -> Result<Response, BackendError> {
        let lacks = |what: &str| BackendError::Malformed { reason: format!("a task that has ended without {what}") };
        match status {
            Status::Completed => {
                let result = task.get("result").filter(Json::is_object).ok_or_else(|| lacks("a result"))?;
                let result = if self.names_task { with_related_task(&result, self.id) } else { result };
                Ok(Response::from_result(&result))
            }
            Status::Failed => {
                let error = task.get("error").filter(Json::is_object).ok_or_else(|| lacks("an error"))?;
                Ok(error_response(&error))
            }
            _ => {
                let said = task.get("statusMessage");
                let said = said.as_ref().and_then(Json::as_str).map(|said| format!(": {said}")).unwrap_or_default();
                Ok(refusal(code::INTERNAL, format!("the task was cancelled{said}")))
            }
        }
    }
}

enum Step {
    Went(Json),
    Refused(Response),
    /// To be tried again.
    Borne,
}
