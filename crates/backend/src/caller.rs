//! One request's way to a server: a place, then a connection, then the exchange.
//!
//! Must not know: eras, transports, what requests mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fanlight_protocol::Response;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::connection::{Connection, Failure};
use crate::deadline::CallProgress;
use crate::pool::{Lease, Pool};
use crate::settings::Timeouts;
use crate::shares::{SharePermit, Shares};
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext};

/// Sends requests to one backend.
pub(crate) struct Caller {
    pub(crate) pool: Arc<Pool>,
    pub(crate) timeouts: Timeouts,
    concurrency: usize,
    /// Requests that run or wait, at most twice as many as may run.
    admitted: AtomicUsize,
    running: Semaphore,
    /// How many of these one session may have.
    shares: Shares,
}

/// A request's place. What is given up first is declared first.
struct Place<'a> {
    _running: SemaphorePermit<'a>,
    _admitted: Admitted<'a>,
    _within: SharePermit,
}

/// A request that runs or waits.
struct Admitted<'a>(&'a AtomicUsize);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Caller {
    pub(crate) fn new(pool: Arc<Pool>, timeouts: Timeouts, concurrency: usize) -> Self {
        let concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS / 2);
        Self {
            pool,
            timeouts,
            concurrency,
            admitted: AtomicUsize::new(0),
            running: Semaphore::new(concurrency),
            shares: Shares::of(concurrency),
        }
    }

    /// Sends one request once there is a place for it. The caller bounds the time.
    pub(crate) fn exchange<'a>(
        &'a self,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        self.run(true, call, progress)
    }

    /// The same without a place, for a request that the server holds for as long as it likes. The
    /// caller bounds how many there are.
    pub(crate) fn exchange_unplaced<'a>(
        &'a self,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        self.run(false, call, progress)
    }

    /// `placed`: with a place of its own.
    fn run<'a>(
        &'a self,
        placed: bool,
        call: &'a Call,
        progress: &'a CallProgress,
    ) -> impl Future<Output = Result<Response, BackendError>> + Send {
        async move {
            let mut _place = None;
            if placed {
                // A request to a backend that is down does not queue behind those that wait for a place.
                if let Some(error) = self.pool.down(&call.context) {
                    return Err(error);
                }
                _place = Some(self.place(&call.context).await?);
            }
            // Rare, and large: in boxes they make no call's future larger.
            let lease = match self.pool.lease_at_once(&call.context) {
                Some(lease) => lease,
                None => Box::pin(self.pool.lease(&call.context)).await?,
            };
            if let Some(answer) = self.pool.local_answer(call, &lease).await {
                return Ok(answer);
            }
            progress.attempts.store(0, Ordering::Relaxed);
            let answer = match lease.connection.request(call, progress).await {
                Ok(answer) => answer,
                Err(failure) => Box::pin(self.send_again(call, progress, lease, failure)).await?,
            };
            self.pool.remember(call, &answer);
            Ok(answer)
        }
    }

    /// Sends a request once more if it certainly did not run.
    async fn send_again(
        &self,
        call: &Call,
        progress: &CallProgress,
        lease: Lease,
        failure: Failure,
    ) -> Result<Response, BackendError> {
        let Failure::NotRun { loss, instead } = failure else { return failure.settle() };
        progress.sent.store(false, Ordering::Relaxed);
        lease.lose(loss);
        match self.pool.lease(&call.context).await {
            Ok(fresh) => fresh.connection.request(call, progress).await.or_else(Failure::settle),
            // What the backend said of the request says more than that it is gone now.
            Err(error) => instead.or(Err(error)),
        }
    }

    /// What is known of the server, for deciding what to send it for a client.
    pub(crate) async fn server(&self, client: &CallContext) -> Result<Arc<Connection>, BackendError> {
        match self.pool.current(client) {
            Some(connection) => Ok(connection),
            None => Ok(self.lease(client).await?.connection),
        }
    }

    /// The very connection that a request of this client would be sent on.
    pub(crate) async fn lease(&self, client: &CallContext) -> Result<Lease, BackendError> {
        if let Some(error) = self.pool.down(client) {
            return Err(error);
        }
        let _place = self.place(client).await?;
        self.pool.lease(client).await
    }

    async fn place(&self, client: &CallContext) -> Result<Place<'_>, BackendError> {
        let busy = || BackendError::Busy { limit: self.concurrency };
        let within = self.shares.enter(&client.caller).await.ok_or_else(busy)?;
        let before = self.admitted.fetch_add(1, Ordering::Relaxed);
        let admitted = Admitted(&self.admitted);
        if before >= 2 * self.concurrency {
            return Err(busy());
        }
        // The semaphore is never closed.
        let running = self.running.acquire().await.map_err(|_| BackendError::ShuttingDown)?;
        Ok(Place { _running: running, _admitted: admitted, _within: within })
    }
}
