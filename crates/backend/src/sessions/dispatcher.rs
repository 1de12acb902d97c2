//! Sending one request: a permit, then a connection, then the exchange.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fanlight_protocol::Response;

use crate::concurrency::{CallPermit, FairQueue, Full, Permit};
use crate::connection::{Connection, Failure};
use crate::request::deadline::CallProgress;
use crate::sessions::{Lease, SessionPool};
use crate::settings::Timeouts;
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext};

/// Sends requests to one backend.
pub(crate) struct Dispatcher {
    pub(crate) pool: Arc<SessionPool>,
    pub(crate) timeouts: Timeouts,
    concurrency: usize,
    queue: FairQueue,
}

/// A call that runs with a permit, which it gives back when this is dropped.
struct Running<'a>(&'a CallPermit);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Dispatcher {
    pub(crate) fn new(pool: Arc<SessionPool>, timeouts: Timeouts, concurrency: usize) -> Self {
        let concurrency = concurrency.max(1);
        Self { pool, timeouts, concurrency, queue: FairQueue::new(concurrency) }
    }

    /// Sends one request once there is a permit for it. The caller bounds the time.
    pub(crate) fn exchange<'a>(
        &'a self,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        self.run(true, call, progress)
    }

    /// Sends one request without a permit, for one that the server may hold for long. The caller bounds how many there
    /// are.
    pub(crate) fn exchange_unlimited<'a>(
        &'a self,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        self.run(false, call, progress)
    }

    /// `is_limited`: with a permit.
    fn run<'a>(
        &'a self,
        is_limited: bool,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        async move {
            // Ends after everything below.
            let mut _running = None;
            if is_limited {
                // A request to a backend that is down does not queue behind those that wait for a permit.
                if let Some(error) = self.pool.down(&call.context) {
                    return Err(error);
                }
                let permit = match self.queue.claim(&call.context).try_acquire() {
                    Some(permit) => permit,
                    None => Box::pin(self.wait(&call.context, progress)).await?,
                };
                progress.deadline.permit.hold(permit);
                _running = Some(Running(&progress.deadline.permit));
            }
            // Rare and large: boxed to keep the future of every call small.
            let lease = match self.pool.lease_at_once(&call.context) {
                Some(lease) => lease,
                None => Box::pin(self.pool.lease(&call.context)).await?,
            };
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

    /// Sends a request once more if it certainly did not run, or if it does not matter whether it did.
    async fn send_again(
        &self,
        call: &Call,
        progress: &CallProgress,
        lease: Lease,
        failure: Failure,
    ) -> Result<Response, BackendError> {
        let (loss, instead) = match failure {
            // Clients that keep lists would lose what this server offers.
            Failure::Final(error) if call.method.is_list() && is_broken_off(&error) => {
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
                let answer = fresh.connection.request(call, progress).await.or_else(Failure::settle)?;
                self.pool.remember(call, &fresh, &answer);
                Ok(answer)
            }
            // The error of the first attempt says more than that the backend is gone now.
            Err(error) => instead.or(Err(error)),
        }
    }

    /// Sends a request for a list once more, after the connection broke.
    async fn list_again(&self, call: &Call, progress: &CallProgress) -> Result<Response, BackendError> {
        progress.deadline.set_sent(false);
        let lease = self.pool.lease(&call.context).await?;
        lease.connection.request(call, progress).await.or_else(Failure::settle)
    }

    /// A connection by which to decide what to send for a client.
    pub(crate) async fn server(&self, client: &CallContext) -> Result<Arc<Connection>, BackendError> {
        match self.pool.current(client) {
            Some(connection) => Ok(connection),
            None => Ok(self.lease(client).await?.connection),
        }
    }

    /// The connection that a request of this client would be sent on.
    pub(crate) async fn lease(&self, client: &CallContext) -> Result<Lease, BackendError> {
        if let Some(error) = self.pool.down(client) {
            return Err(error);
        }
        let _permit = self.permit(client).await?;
        self.pool.lease(client).await
    }

    /// Waits for a permit. A call whose time is over by then, or whose backend ends, is not sent any more.
    async fn wait(&self, client: &CallContext, progress: &CallProgress) -> Result<Permit, BackendError> {
        let permit = self.permit(client).await?;
        if self.pool.has_ended() {
            return Err(BackendError::ShuttingDown);
        }
        if progress.deadline.is_over() {
            return Err(BackendError::Timeout { after: self.timeouts.call, sent: false });
        }
        Ok(permit)
    }

    async fn permit(&self, client: &CallContext) -> Result<Permit, BackendError> {
        self.queue.claim(client).acquire().await.map_err(|Full| BackendError::Busy { limit: self.concurrency })
    }
}

/// Whether the connection or the process ended before the answer was whole.
fn is_broken_off(error: &BackendError) -> bool {
    matches!(error, BackendError::ClosedEarly | BackendError::Exited { .. })
}
