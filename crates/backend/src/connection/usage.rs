//! Tracks the use of a process, and ends it when nothing uses it.

use std::time::Duration;

use fanlight_canonical::Call;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Connection, Loss};

/// The limits of the interval between checks for an unused process. The interval is an eighth of
/// the allowed idle time, so it is no option.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(30));

/// The running requests of a connection. One lock covers adding a request and giving up an unused
/// process, so no request enters a process that is about to end.
#[derive(Default)]
pub(super) struct ProcessUsage {
    state: Mutex<UsageState>,
    running: TaskTracker,
}

#[derive(Default)]
struct UsageState {
    /// The number of client requests so far.
    uses: u64,
    /// Whether the process has been given up as unused.
    is_retired: bool,
}

impl ProcessUsage {
    /// Counts a call as use of the process until the token is dropped; `None` if the process has
    /// been given up, so that the call needs another.
    pub(super) fn enter(&self, call: &Call) -> Option<TaskTrackerToken> {
        let mut state = self.state.lock();
        if state.is_retired {
            return None;
        }
        state.uses += u64::from(!call.context.caller.is_gateway());
        Some(self.running.token())
    }

    /// Waits until the running requests have ended.
    pub(super) async fn ended(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// Gives the process up, unless a request is running or there were more than `uses` client
    /// requests. Returns whether it did.
    fn retire_after(&self, uses: u64) -> bool {
        let mut state = self.state.lock();
        state.is_retired = state.uses == uses && self.running.is_empty();
        state.is_retired
    }

    /// The number of client requests so far, and whether any request is running.
    fn look(&self) -> (u64, bool) {
        (self.state.lock().uses, !self.running.is_empty())
    }
}

impl Connection {
    /// Waits until nothing has used the process for `idle`, and then gives it up. `is_needed` tells
    /// whether something needs it without calling it.
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

    /// Whether the server has made a task that may still be running.
    pub(crate) fn has_open_task(&self) -> bool {
        let last = *self.last_task.lock();
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
