//! Waiting for the end of a legacy server's task: `tasks/result` is held open, since what the task
//! asks comes on it, and the task is asked after meanwhile, since a stream may be lost unnoticed.
//!
//! Must not know: what made the task.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::{Json, Method, Response, code};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::pace::{Pace, may_pass};
use super::translate::Status;
use super::{TaskBridge, quietly, task_params};
use crate::deadline::CallProgress;
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext, ServerMessages};

/// How long after a task's end its result may take to arrive before it is asked for again; doubles
/// from time to time, since a large result may take long.
const LINGER: Duration = Duration::from_secs(30);

/// One wait for a task of a legacy server.
pub(super) struct RequestedWait<'a> {
    pub(super) bridge: &'a TaskBridge,
    pub(super) context: &'a Arc<CallContext>,
    pub(super) messages: &'a ServerMessages,
    pub(super) id: &'a Json,
    /// The progress token of the request that made the task.
    pub(super) token: Option<i64>,
}

/// What asking after the task tells the one who waits for its result.
#[derive(Default)]
struct News {
    /// The server is there.
    alive: Notify,
    /// The result should have come.
    overdue: Notify,
}

impl RequestedWait<'_> {
    /// Waits for the answer to `tasks/result`. `seen` is what is known of the task.
    pub(super) async fn run(&self, seen: &Json) -> Result<Response, BackendError> {
        let news = News::default();
        tokio::select! {
            biased;
            outcome = self.result(&news) => outcome,
            outcome = self.ask_after(seen, &news) => outcome,
        }
    }

    async fn result(&self, news: &News) -> Result<Response, BackendError> {
        let call = Call {
            method: Method::TaskResult,
            params: Some(task_params(self.id)),
            context: Arc::clone(self.context),
            messages: self.messages.clone(),
        };
        loop {
            let course = CallProgress { carries_on: self.token, ..CallProgress::default() };
            tokio::select! {
                biased;
                outcome = Box::pin(self.bridge.caller.exchange_unplaced(&call, &course)) => match outcome {
                    Err(error) if may_pass(&error) => news.alive.notified().await,
                    outcome => return outcome,
                },
                () = news.overdue.notified() => {}
            }
        }
    }

    /// Asks after the task for ever, unless the server cannot be asked or knows no such task.
    async fn ask_after(&self, seen: &Json, news: &News) -> Result<Response, BackendError> {
        let mut pace = Pace::default();
        pace.heed(seen.get("pollInterval").as_ref());
        let mut linger = LINGER;
        let context = Arc::new(quietly(self.context));
        loop {
            pace.wait().await;
            let nowhere = ServerMessages::discard();
            match self.bridge.ask(Method::GetTask, task_params(self.id), &context, &nowhere).await {
                Ok(response) => match response.result() {
                    Some(task) => {
                        pace.heed(task.get("pollInterval").as_ref());
                        news.alive.notify_one();
                        if Status::of(&task).is_terminal() {
                            sleep(linger).await;
                            linger = linger.saturating_mul(2);
                            news.overdue.notify_one();
                        }
                    }
                    None if response.error_code() == Some(code::INVALID_PARAMS) => return Ok(response),
                    None if pace.bears(&BackendError::ClosedEarly) => {}
                    None => return Ok(response),
                },
                Err(error) if pace.bears(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
