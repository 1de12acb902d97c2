//! Waits for the end of a legacy server's task. `tasks/result` stays open, since server requests
//! and progress arrive on it. The task is also polled, since a stream may be lost unnoticed.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, CallContext, ServerMessages};
use fanlight_protocol::{Json, Method, Response, code};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::pace::{Pace, Step, is_transient};
use super::translate::Status;
use super::{TaskTranslation, task_params};
use crate::request::deadline::CallProgress;
use crate::settings::PollIntervals;

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
