//! Processes that end together with everything that they have started.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The process group of a program that leads one. It is killed when this is dropped.
pub(crate) struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    pub(crate) fn new(child: &Child) -> Self {
        let id = child.id();
        Self(id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    pub(crate) fn send(&self, signal: Signal) {
        // The group no longer exists if all its processes have ended.
        let _ = self.0.map(|group| kill_process_group(group, signal));
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.send(Signal::KILL);
    }
}
