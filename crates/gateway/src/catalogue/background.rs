//! The owner of the tasks that the core runs by itself.

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Starts tasks that end with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Background {
    /// Runs `work` until it is done or everything ends. `None` if it was not done.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        self.tasks
            .spawn(self.end.clone().run_until_cancelled_owned(work))
    }

    /// Ends everything, and waits for that.
    pub(crate) async fn stop(&self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Ends everything when it is dropped.
    pub(crate) fn guard(&self) -> DropGuard {
        self.end.clone().drop_guard()
    }
}
