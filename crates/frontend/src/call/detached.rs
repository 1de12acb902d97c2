//! Legacy requests whose client has disconnected: "Disconnection SHOULD NOT be interpreted as the
//! client cancelling its request" (2025-11-25 basic/transports, Sending Messages to the Server).

use std::future::pending;
use std::sync::Arc;

use fanlight_telemetry::Parent;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::session::{Cancellation, SessionGuard};

/// The events that end a detached call before its answer.
pub(super) struct Ends {
    pub(super) cancellation: Option<Cancellation>,
    /// A revocation of the call's identity cancels this token.
    pub(super) revoked: Option<CancellationToken>,
}

/// Calls that run on without their client until they are done or cancelled. Their number is
/// bounded; the core bounds their time.
#[derive(Debug)]
pub(crate) struct DetachedCalls {
    runtime: Handle,
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
    cut: CancellationToken,
}

impl DetachedCalls {
    /// Allows at most `limit` calls; cancelling `cut` ends all of them.
    pub(crate) fn new(limit: usize, cut: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            permits: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            cut,
        })
    }

    /// Waits until no call is running. Calls may be added meanwhile.
    pub(crate) async fn finished(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs `work`, which bounds its own time, until it is done or `cut` is cancelled.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let cut = self.cut.clone();
        let run = async move {
            tokio::select! { () = work => {} () = cut.cancelled() => {} }
        };
        self.tasks.spawn_on(run, &self.runtime);
    }

    /// A permit for one more call; `None` at the limit.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if self.cut.is_cancelled() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        if permit.is_none() {
            tracing::warn!(
                "stream of a disconnected client dropped: too many calls without a client"
            );
        }
        permit
    }

    /// Runs a call without its client until `answer` resolves or one of `ends` happens.
    pub(super) fn finish<T>(
        &self,
        answer: impl Future<Output = T> + Send + 'static,
        ends: Ends,
        session: Option<SessionGuard>,
        trace: Parent,
    ) {
        if self.cut.is_cancelled() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            tracing::warn!(
                "call of a disconnected client cancelled: too many calls without a client"
            );
            return;
        };
        self.run(async move {
            let _until_done = (permit, session);
            let cancelled = async move {
                let cancelled = async {
                    match ends.cancellation {
                        Some(cancellation) => cancellation.await,
                        None => pending().await,
                    }
                };
                match ends.revoked {
                    Some(revoked) => {
                        tokio::select! { () = cancelled => {} () = revoked.cancelled() => {} }
                    }
                    None => cancelled.await,
                }
                // Cancel the trace before the work is dropped, so that the work's spans get the
                // reason.
                trace.cancel();
            };
            tokio::select! { _ = answer => {} () = cancelled => {} }
        });
    }
}
