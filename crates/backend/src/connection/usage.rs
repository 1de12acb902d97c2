//! Whether anything uses a process, and its end when nothing does.

use std::sync::PoisonError;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use fanlight_canonical::Call;
use tokio::time::{Instant, sleep};

use super::{Connection, Loss};

/// Bounds of the interval between looks at whether a process is unused, which is an eighth of its allowed idle time. No
/// option: it follows from `idle`.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(30));

impl Connection {
    /// Counts a call as use of the process; true if that has been given up as unused, so that the call needs another.
    pub(super) fn has_been_retired(&self, call: &Call) -> bool {
        if !call.context.caller.is_gateway() {
            self.uses.fetch_add(1, Ordering::Relaxed);
        }
        // With the fence in `close_when_idle`: either this call is seen there, or the loss here.
        fence(Ordering::SeqCst);
        self.loss.get() == Some(&Loss::Unused)
    }

    /// Waits until nothing has used the process for `idle`, and then gives it up. `is_needed` says whether something
    /// depends on it without calling it.
    pub(crate) async fn retire_when_unused(&self, idle: Duration, is_needed: impl Fn() -> bool) {
        let (mut uses, mut since) = (u64::MAX, Instant::now());
        loop {
            let now = self.uses.load(Ordering::Relaxed);
            if now != uses || !self.users.is_empty() || self.has_open_task() || is_needed() {
                (uses, since) = (now, Instant::now());
            } else if since.elapsed() >= idle {
                self.lose(Loss::Unused);
                return;
            }
            sleep((idle / 8).clamp(LOOK.0, LOOK.1)).await;
        }
    }

    /// Whether the server has made a task that may not have ended.
    pub(crate) fn has_open_task(&self) -> bool {
        let last = *self.last_task.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < self.context.timeouts.task)
    }
}
