//! One MCP server without translation of tasks.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fanlight_canonical::{
    BackendClient, BackendError, BackendState, BackendStatus, Call, CallContext, Listen, Listening, Pending,
    ProcessOutput, SessionKey, TaskDialect,
};
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::{Notification, Response, Revision};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::supervisor::Phase;
use crate::request::deadline::{CallLimits, CallProgress, Expired};
use crate::sessions::SessionPool;
use crate::sessions::dispatcher::Dispatcher;
use crate::settings::Timeouts;
use crate::tasks::InnerClient;

/// A client that sends each call to the server as one request, within the time of a call.
pub(crate) struct DirectClient {
    pub(crate) name: Arc<str>,
    /// The configured transport.
    pub(crate) transport: &'static str,
    pub(crate) pool: Arc<SessionPool>,
    pub(crate) caller: Dispatcher,
    pub(crate) shutdown: CancellationToken,
}

impl DirectClient {
    /// Runs work within the time of a call, `total` with its pauses, and ends it with the backend.
    fn within_deadline(
        &self,
        total: Duration,
        progress: &CallProgress,
        work: Pin<&mut (impl Future<Output = Result<Response, BackendError>> + Send)>,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        async move {
            let limits = CallLimits { active: self.caller.timeouts.call, total };
            let sent = || progress.deadline.is_sent();
            tokio::select! {
                biased;
                outcome = progress.deadline.limit(limits, work) => match outcome {
                    Ok(outcome) => {
                        if outcome.is_ok() {
                            self.pool.health().answered();
                        }
                        outcome
                    }
                    Err(Expired(after)) => {
                        let sent = sent();
                        if sent {
                            self.pool.health().timed_out();
                        }
                        Err(BackendError::Timeout { after, sent })
                    }
                },
                () = self.shutdown.cancelled() => {
                    Err(if sent() { BackendError::Interrupted } else { BackendError::ShuttingDown })
                }
            }
        }
    }
}

impl BackendClient for DirectClient {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> Pending<'_, ServerDescription> {
        Box::pin(self.pool.describe())
    }

    fn describe_to<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        Box::pin(self.pool.describe_to(client))
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        Box::pin(async move {
            let progress = CallProgress::default();
            let exchange = pin!(self.caller.exchange(&call, &progress));
            let outcome = self.within_deadline(self.caller.timeouts.call_total, &progress, exchange).await;
            if let Err(error) = &outcome
                && progress.attempts.load(Ordering::Relaxed) == 0
            {
                self.pool.count_unsent(&call, error);
            }
            outcome
        })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        Box::pin(self.pool.listen(listen))
    }

    fn notify<'a>(&'a self, notification: &'a Notification, client: &'a CallContext) -> Pending<'a, ()> {
        Box::pin(async move {
            let Some(lease) = self.pool.of_session(client) else { return Ok(()) };
            let Some(request) = &client.request else { return lease.connection.notify(notification).await };
            match request.at(&self.name).and_then(|named| named.rename(notification)) {
                Some(renamed) => lease.connection.notify(&renamed).await,
                None => Ok(()),
            }
        })
    }

    fn end_session(&self, session: SessionKey) {
        self.pool.end_session(session);
    }

    fn session_choice(&self) -> Pending<'_, Option<String>> {
        Box::pin(self.pool.session_choice())
    }

    fn may_rest(&self) -> bool {
        self.pool.may_rest()
    }

    fn process_output(&self) -> ProcessOutput {
        self.pool.process_log().output()
    }

    fn status(&self) -> BackendStatus {
        let state = self.pool.base().state.borrow();
        let attempt = match &state.phase {
            Phase::Connecting { attempt, .. } => Some(attempt),
            _ => None,
        };
        // Others are not to wait for one that takes long to start.
        let is_slow = attempt.is_some_and(|attempt| attempt.elapsed() >= self.caller.timeouts.connect);
        BackendStatus {
            era: state.revision.map(Revision::era),
            revision: state.revision.map(Revision::as_str),
            transport: match &state.phase {
                Phase::Ready(connection) => connection.transport(),
                _ => self.transport,
            },
            attempted: state.attempted || is_slow,
            starting: attempt.map(|attempt| attempt.starting(self.pool.process_log())),
            failure: match &state.phase {
                Phase::Connecting { after: error, .. } => error.clone(),
                Phase::Down { error, .. } => Some(error.clone()),
                Phase::Idle | Phase::Ready(_) | Phase::Stopped => None,
            },
            state: match &state.phase {
                Phase::Ready(connection) if !connection.is_lost() => BackendState::Ready,
                Phase::Idle => BackendState::Idle,
                Phase::Ready(_) | Phase::Connecting { .. } => BackendState::Connecting,
                Phase::Down { error, until: None, .. } => BackendState::Failed { error: error.clone() },
                Phase::Down { error, until: Some(until), .. } => BackendState::Down {
                    error: error.clone(),
                    retry_in: until.saturating_duration_since(Instant::now()),
                },
                Phase::Stopped => BackendState::Down { error: BackendError::ShuttingDown, retry_in: Duration::MAX },
            },
        }
    }
}

impl InnerClient for DirectClient {
    fn timeouts(&self) -> &Timeouts {
        &self.caller.timeouts
    }

    fn task_dialect(&self, client: &CallContext) -> Option<Option<TaskDialect>> {
        self.pool.current(client).map(|connection| connection.tasks())
    }

    fn connect<'a>(&'a self, client: &'a CallContext) -> Pending<'a, Option<TaskDialect>> {
        Box::pin(async { Ok(self.caller.server(client).await?.tasks()) })
    }

    fn requires_task<'a>(&'a self, client: &'a CallContext, tool: &'a str, reread: bool) -> Pending<'a, bool> {
        Box::pin(async move {
            let connection = self.caller.lease(client).await?.connection;
            Ok(if reread { connection.needs_task_now(tool).await } else { connection.needs_task(tool).await })
        })
    }

    fn limit<'a>(&'a self, progress: &'a CallProgress, work: Pending<'a, Response>) -> Pending<'a, Response> {
        let Timeouts { call, call_total, task, .. } = self.caller.timeouts;
        // Waiting for the end of a task has a limit of its own.
        let total = call_total.max(task.saturating_add(call));
        Box::pin(async move { self.within_deadline(total, progress, pin!(work)).await })
    }

    fn exchange<'a>(&'a self, call: &'a Call, progress: &'a CallProgress) -> Pending<'a, Response> {
        Box::pin(self.caller.exchange(call, progress))
    }

    fn exchange_unlimited<'a>(&'a self, call: &'a Call, progress: &'a CallProgress) -> Pending<'a, Response> {
        Box::pin(self.caller.exchange_unlimited(call, progress))
    }
}
