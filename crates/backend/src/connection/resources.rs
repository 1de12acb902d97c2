//! Resource subscriptions on a process that serves clients without a session.
//!
//! Over stdio each connection is a process, which may be the only one to announce a change that a
//! call makes. So a call waits until its process has the subscriptions of all such clients.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::Connection;
use crate::subscriptions::ProcessNumber;

/// The generation of demand up to which the resources are subscribed.
pub(super) struct SubscribedResources(watch::Sender<u64>);

impl SubscribedResources {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Waits until the demand of `generation` is met. If the server takes longer than `patience`,
    /// later calls do not wait.
    pub(super) async fn reach(&self, generation: u64, patience: Duration) {
        let is_met = |met: &u64| *met >= generation;
        if is_met(&self.0.borrow()) {
            return;
        }
        let mut met = self.0.subscribe();
        // The sender lives as long as `self`.
        if timeout(patience, met.wait_for(is_met)).await.is_err() {
            self.0.send_replace(u64::MAX);
        }
    }
}

impl Connection {
    /// Whether clients without a session need their subscriptions on this connection.
    pub(crate) fn subscribes_for_clients(&self) -> bool {
        self.resources.is_some()
    }

    pub(crate) fn process(&self) -> ProcessNumber {
        self.context.outlet.process()
    }

    /// Reports that the resources of all demand up to `generation` are subscribed.
    pub(crate) fn resources_are_subscribed(&self, generation: u64) {
        if let Some(SubscribedResources(met)) = &self.resources {
            met.send_if_modified(|met| std::mem::replace(met, generation.max(*met)) < generation);
        }
    }
}
