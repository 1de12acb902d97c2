//! Sends one request within the time of a call: waits for a permit, then for a connection, then for
//! the answer.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fanlight_canonical::{BackendError, Call, CallContext, Pending, ServerMessage};
use fanlight_fair::limit;
use fanlight_protocol::{Json, Method, Notification, ObjectBuilder, Response};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Failure};
use crate::health::{Admission, Health, Item};
use crate::request::deadline::{
    CallLimits, CallPermit, CallProgress, Expired, FairQueue, Full, PausableDeadline, Permit,
};
use crate::sessions::{Lease, SessionPool};
use crate::settings::BackendTimeouts;

/// The limit of a call's duration, including the waits for the client's answers, so that a server
/// that keeps asking cannot keep the call open for ever.
fn call_total() -> Duration {
    limit("callTotal", Duration::from_secs(3600))
}

/// The interval of progress while a call waits for a process.
fn start_progress() -> Duration {
    limit("startProgress", Duration::from_secs(5))
}

/// Sends requests to one server within the time of a call.
pub(crate) struct Dispatcher {
    pub(crate) pool: Arc<SessionPool>,
    pub(crate) timeouts: BackendTimeouts,
    shutdown: CancellationToken,
    concurrency: usize,
    /// Whether lists that broke off are read again here, and not by the sender.
    repeats_lists: bool,
    queue: FairQueue,
}

/// A call that runs with a permit. Dropping this gives the permit back.
struct Running<'a>(&'a CallPermit);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A call whose outcome shows whether the server answers calls.
struct WatchedCall<'a> {
    health: &'a Health,
    call: &'a Call,
    deadline: &'a PausableDeadline,
    admission: Admission,
    /// Whether the outcome still matters.
    is_watched: bool,
}

impl Dispatcher {
    /// `shutdown` is the server's.
    pub(crate) fn new(
        pool: Arc<SessionPool>,
        timeouts: BackendTimeouts,
        concurrency: usize,
        repeats_lists: bool,
        shutdown: CancellationToken,
    ) -> Self {
        let concurrency = concurrency.max(1);
        Self {
            pool,
            timeouts,
            shutdown,
            concurrency,
            repeats_lists,
            queue: FairQueue::new(concurrency),
        }
    }

    /// Whether a call may be about tasks, at a server that has tasks or is not connected now.
    pub(crate) fn may_concern_tasks(&self, call: &Call) -> bool {
        (call.method == Method::CallTool || call.method.is_about_tasks())
            && self
                .pool
                .current(&call.context)
                .is_none_or(|connection| connection.tasks.is_some())
    }

    /// Sends a call as one request; it was sent `earlier` times before.
    pub(crate) async fn request(
        &self,
        call: &Call,
        earlier: u32,
    ) -> Result<Response, BackendError> {
        let progress = CallProgress {
            earlier,
            ..CallProgress::default()
        };
        let exchange = pin!(self.exchange(call, &progress));
        let outcome = self
            .within_deadline(call_total(), &progress, exchange)
            .await;
        if let Err(error) = &outcome
            && progress.attempts.load(Ordering::Relaxed) == 0
        {
            self.pool.count_unsent(call, error);
        }
        outcome
    }

    /// Runs work within the time of one call, and ends it with the server. The work may take
    /// several requests and wait for a task, which has its own limit.
    pub(crate) async fn limit(
        &self,
        progress: &CallProgress,
        work: Pending<'_, Response>,
    ) -> Result<Response, BackendError> {
        let BackendTimeouts { call, task, .. } = self.timeouts;
        self.within_deadline(
            call_total().max(task.saturating_add(call)),
            progress,
            pin!(work),
        )
        .await
    }

    /// Runs work within the time of a call, which is `total` with its pauses, and ends it with the
    /// server.
    fn within_deadline(
        &self,
        total: Duration,
        progress: &CallProgress,
        work: Pin<&mut (impl Future<Output = Result<Response, BackendError>> + Send)>,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        async move {
            let limits = CallLimits {
                active: self.timeouts.call,
                total,
            };
            let sent = || progress.deadline.is_sent();
            tokio::select! {
                biased;
                outcome = progress.deadline.limit(limits, work) => match outcome {
                    Ok(outcome) => {
                        if outcome.is_ok() {
                            self.pool.health().record_answer();
                        }
                        outcome
                    }
                    Err(Expired(after)) => {
                        let sent = sent();
                        if sent {
                            self.pool.health().record_timeout();
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

    /// Sends one request once there is a permit for it. The caller limits the time.
    pub(crate) fn exchange<'a>(
        &'a self,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        async move {
            // If the server is down, fail at once instead of queueing for a permit.
            if let Some(error) = self.pool.down_reason(&call.context) {
                return Err(error);
            }
            let watched = WatchedCall::admit(self.pool.health(), call, &progress.deadline)?;
            let permit = match self.queue.claim(&call.context).try_acquire() {
                Some(permit) => permit,
                None => {
                    let permit = Box::pin(self.wait(&call.context, progress)).await?;
                    watched.check()?;
                    permit
                }
            };
            progress.deadline.permit.hold(permit);
            let running = Running(&progress.deadline.permit);
            let outcome = self.exchange_unlimited(call, progress).await;
            drop(running);
            watched.record_outcome(&outcome);
            outcome
        }
    }

    /// Sends one request, and repeats it if that is safe. It has no permit of its own, because the
    /// server may hold it for long, and the caller limits their number and the time.
    pub(crate) fn exchange_unlimited<'a>(
        &'a self,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        async move {
            // Boxed, since it is rare and large: this keeps the future of every call small.
            let lease = match self.pool.lease_at_once(&call.context) {
                Some(lease) => lease,
                None => Box::pin(self.wait_for_lease(call)).await?,
            };
            self.check(call, &lease)?;
            if let Some(answer) = self.pool.local_answer(call, &lease).await {
                return Ok(answer);
            }
            progress.attempts.store(0, Ordering::Relaxed);
            match lease.connection.request(call, progress).await {
                Ok(answer) => {
                    self.pool.remember(call, &lease, &answer);
                    Ok(answer)
                }
                Err(failure) => Box::pin(self.send_again(call, progress, lease, failure)).await,
            }
        }
    }

    /// Waits for a connection. A call waits for a process that starts as long as it may take, and
    /// its client gets progress if it asked for that; a list is soon wanted without the server.
    async fn wait_for_lease(&self, call: &Call) -> Result<Lease, BackendError> {
        if call.method.is_list() {
            let patience = self.timeouts.connect;
            return self.pool.lease_within(patience, &call.context).await;
        }
        let mut lease = pin!(self.pool.lease(&call.context));
        for step in 1_u32.. {
            match timeout(start_progress(), lease.as_mut()).await {
                Ok(lease) => return lease,
                Err(_) if call.context.wants_progress => {
                    let _ = call.messages.try_send(waiting(step));
                }
                Err(_) => {}
            }
        }
        lease.await
    }

    /// Refuses a call that would run in a process with other users. Its sender has excluded that,
    /// so it happens only if the server's era has just changed.
    fn check(&self, call: &Call, lease: &Lease) -> Result<(), BackendError> {
        if self.pool.is_apart(call, lease) {
            Err(BackendError::Unreachable {
                reason: "its era has just changed: try again".into(),
            })
        } else {
            Ok(())
        }
    }

    /// Repeats a request that certainly did not run, or that may safely run twice.
    async fn send_again(
        &self,
        call: &Call,
        progress: &CallProgress,
        lease: Lease,
        failure: Failure,
    ) -> Result<Response, BackendError> {
        let (loss, instead) = match failure {
            // Otherwise clients that keep lists would lose this server's items.
            Failure::Final(error)
                if self.repeats_lists && call.method.is_list() && is_broken_off(&error) =>
            {
                return self.list_again(call, progress).await.map_err(|_| error);
            }
            Failure::Final(error) => return Err(error),
            Failure::MayHaveRun { loss, outcome } => {
                lease.lose(loss);
                return outcome;
            }
            Failure::NotRun { loss, instead } => (loss, instead),
        };
        progress.deadline.set_sent(false);
        lease.lose(loss);
        match self.pool.lease(&call.context).await {
            Ok(fresh) => {
                self.check(call, &fresh)?;
                let answer = fresh
                    .connection
                    .request(call, progress)
                    .await
                    .or_else(Failure::settle)?;
                self.pool.remember(call, &fresh, &answer);
                Ok(answer)
            }
            // The first error is more informative than the loss of the server.
            Err(error) => instead.or(Err(error)),
        }
    }

    /// Requests a list again after the connection broke.
    async fn list_again(
        &self,
        call: &Call,
        progress: &CallProgress,
    ) -> Result<Response, BackendError> {
        progress.deadline.set_sent(false);
        let lease = self.pool.lease(&call.context).await?;
        lease
            .connection
            .request(call, progress)
            .await
            .or_else(Failure::settle)
    }

    /// A connection whose server determines the form of a client's request.
    pub(crate) async fn server(&self, call: &Call) -> Result<Arc<Connection>, BackendError> {
        let client = &call.context;
        if let Some(connection) = self.pool.current(client) {
            return Ok(connection);
        }
        if let Some(error) = self.pool.down_reason(client) {
            return Err(error);
        }
        let _permit = self.permit(client).await?;
        Ok(Box::pin(self.wait_for_lease(call)).await?.connection)
    }

    /// Whether a server of 2025-11-25 requires that a tool is called as a task, by its tool list;
    /// `reread` reads the list again.
    pub(crate) async fn requires_task(
        &self,
        client: &CallContext,
        tool: &str,
        reread: bool,
    ) -> Result<bool, BackendError> {
        let connection = self.lease(client).await?.connection;
        Ok(connection.needs_task(tool, reread).await)
    }

    /// The connection for a request of this client.
    async fn lease(&self, client: &CallContext) -> Result<Lease, BackendError> {
        if let Some(error) = self.pool.down_reason(client) {
            return Err(error);
        }
        let _permit = self.permit(client).await?;
        self.pool.lease(client).await
    }

    /// Waits for a permit. If the call's time is over by then, or the server has ended, the call is
    /// not sent.
    async fn wait(
        &self,
        client: &CallContext,
        progress: &CallProgress,
    ) -> Result<Permit, BackendError> {
        let permit = self.permit(client).await?;
        if self.shutdown.is_cancelled() {
            return Err(BackendError::ShuttingDown);
        }
        if progress.deadline.is_over() {
            return Err(BackendError::Timeout {
                after: self.timeouts.call,
                sent: false,
            });
        }
        Ok(permit)
    }

    async fn permit(&self, client: &CallContext) -> Result<Permit, BackendError> {
        self.queue
            .claim(client)
            .acquire()
            .await
            .map_err(|Full| BackendError::Busy {
                limit: self.concurrency,
            })
    }
}

/// Progress of a call that waits for its server's process. The steps are small, since progress must
/// increase and the server begins with its own (2026-07-28 basic/utilities/progress, Behavior
/// Requirements).
fn waiting(step: u32) -> ServerMessage {
    let progress = format!("{:e}", f64::from(step) * 1e-9);
    let params = ObjectBuilder::new()
        .integer("progressToken", 0)
        .string("message", "waiting for the server to start")
        .optional("progress", Json::parse(progress.into(), 1).ok().as_ref())
        .finish();
    ServerMessage::Notification(Notification::new(Method::Progress, Some(&params)))
}

/// Whether the connection or the process ended before the answer was complete.
fn is_broken_off(error: &BackendError) -> bool {
    matches!(
        error,
        BackendError::ClosedEarly | BackendError::Exited { .. }
    )
}

impl<'a> WatchedCall<'a> {
    /// Admits a call, unless the server does not answer calls now.
    fn admit(
        health: &'a Health,
        call: &'a Call,
        deadline: &'a PausableDeadline,
    ) -> Result<Self, BackendError> {
        let is_watched = Item::is_of(&call.method);
        let admission = if is_watched {
            health.admit(&call.context.peer)?
        } else {
            Admission::Closed
        };
        Ok(Self {
            health,
            call,
            deadline,
            admission,
            is_watched,
        })
    }

    /// Whether the call would still be admitted after its wait.
    fn check(&self) -> Result<(), BackendError> {
        match self.health.refusal_reason() {
            Some((error, _)) if self.is_watched && self.admission == Admission::Closed => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Records the outcome of a call that ended within its time.
    fn record_outcome<T>(mut self, outcome: &Result<T, BackendError>) {
        if !std::mem::take(&mut self.is_watched) {
            return;
        }
        match outcome {
            Ok(_) => self.health.call_answered(),
            Err(error) if is_no_answer(error) => self.record_failure(),
            Err(_) => self.abandoned(),
        }
    }

    fn record_failure(&self) {
        let name = Item::name(self.call.params.as_ref());
        let item = Item::new(&self.call.method, name.as_deref());
        self.health
            .call_failed(item, &self.call.context.peer, self.admission);
    }

    fn abandoned(&self) {
        self.health
            .call_abandoned(&self.call.context.peer, self.admission);
    }
}

impl Drop for WatchedCall<'_> {
    fn drop(&mut self) {
        if !self.is_watched {
            return;
        }
        if self.deadline.is_unanswered() {
            self.record_failure();
        } else {
            // The client has given the call up, or it was never sent.
            self.abandoned();
        }
    }
}

/// Whether an error means that the server got the call, is alive, and did not answer.
pub(crate) fn is_no_answer(error: &BackendError) -> bool {
    match error {
        BackendError::Timeout { sent, .. } => *sent,
        BackendError::Status { status } => *status >= 500,
        BackendError::ClosedEarly | BackendError::Malformed { .. } => true,
        _ => false,
    }
}
