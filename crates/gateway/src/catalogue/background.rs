//! Owns the background tasks of the gateway core.

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Starts tasks and ends them together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Background {
    /// Runs `work` until it is done or all tasks are ended. Returns `None` if `work` did not
    /// finish.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        self.tasks
            .spawn(self.end.clone().run_until_cancelled_owned(work))
    }

    /// Ends all tasks and waits until they have ended.
    pub(crate) async fn stop(&self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns a guard that ends all tasks when it is dropped.
    pub(crate) fn guard(&self) -> DropGuard {
        self.end.clone().drop_guard()
    }
}
