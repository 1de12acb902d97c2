//! Whether anything uses a process, and its end when nothing does.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_canonical::Call;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Connection, Loss};

/// Bounds of the interval between looks at whether a process is unused, which is an eighth of its allowed idle time. No
/// option: it follows from `idle`.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(30));

/// The requests that run on a connection. A request enters, and an unused process is given up, under one lock, so that no
/// request enters a process that is about to end.
#[derive(Default)]
pub(super) struct ProcessUsage {
    state: Mutex<UsageState>,
    running: TaskTracker,
}

#[derive(Default)]
struct UsageState {
    /// Requests of clients so far.
    uses: u64,
    /// The process has been given up as unused.
    is_retired: bool,
}

impl ProcessUsage {
    /// Counts a call as use of the process until the token is dropped; `None` if the process has been given up as unused,
    /// so that the call needs another.
    pub(super) fn enter(&self, call: &Call) -> Option<TaskTrackerToken> {
        let mut state = self.state();
        if state.is_retired {
            return None;
        }
        state.uses += u64::from(!call.context.caller.is_gateway());
        Some(self.running.token())
    }

    /// Waits until the requests that run have ended.
    pub(super) async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// Gives the process up, unless a request runs or clients have made more than `uses` requests; returns whether it did.
    fn retire_after(&self, uses: u64) -> bool {
        let mut state = self.state();
        state.is_retired = state.uses == uses && self.running.is_empty();
        state.is_retired
    }

    /// The requests of clients so far, and whether any request runs.
    fn look(&self) -> (u64, bool) {
        (self.state().uses, !self.running.is_empty())
    }

    fn state(&self) -> MutexGuard<'_, UsageState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Waits until nothing has used the process for `idle`, and then gives it up. `is_needed` says whether something
    /// depends on it without calling it.
    pub(crate) async fn retire_when_unused(&self, idle: Duration, is_needed: impl Fn() -> bool) {
        let (mut uses, mut since) = (None, Instant::now());
        loop {
            let (now, is_running) = self.usage.look();
            if uses != Some(now) || is_running || self.has_open_task() || is_needed() {
                (uses, since) = (Some(now), Instant::now());
            } else if since.elapsed() >= idle && self.usage.retire_after(now) {
                self.lose(Loss::Unused);
                return;
            }
            sleep((idle / 8).clamp(LOOK.0, LOOK.1)).await;
        }
    }

    /// Whether the server has made a task that may not have ended.
    pub(crate) fn has_open_task(&self) -> bool {
        let last = *self
            .last_task
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < self.context.timeouts.task)
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::{CallContext, ServerMessages};
    use fanlight_protocol::Method;

    use super::*;

    #[test]
    fn process_is_retired_only_while_no_request_is_in_it_and_none_enters_afterwards() {
        let call = Call {
            method: Method::ListTools,
            params: None,
            context: CallContext::internal(),
            messages: ServerMessages::discard(),
        };
        let usage = ProcessUsage::default();
        let token = usage.enter(&call).unwrap();
        assert!(!usage.retire_after(0));
        drop(token);
        assert!(!usage.retire_after(1));
        assert!(usage.enter(&call).is_some());
        assert!(usage.retire_after(0));
        assert!(usage.enter(&call).is_none());
    }
}
