//! A running recording.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_telemetry::recording::{Batch, Captures, Full, Scribe};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::head::head;
use crate::Admin;
use crate::operator::Operator;
use crate::settings::event_interval;

/// How long messages are collected before they are written, so that masking them wakes few threads.
const COLLECT: Duration = Duration::from_millis(20);

/// A running recording.
pub(super) struct Running {
    pub(super) captures: Captures,
    pub(super) scribe: Arc<Mutex<Scribe>>,
    /// When the recording ends.
    pub(super) ends: Instant,
    /// Why it ends, unless its size or secrets are the reason.
    pub(super) reason: &'static str,
    pub(super) has_head: bool,
    /// Cancelled when the settings that allowed the recording are replaced.
    pub(super) disallowed: CancellationToken,
    /// The operator who records.
    pub(super) operator: Operator,
    pub(super) admin: Arc<Admin>,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Running {
    /// The next lines, and the recording unless these are the last ones.
    pub(super) async fn next(mut self) -> (Bytes, Option<Self>) {
        if !self.has_head {
            self.has_head = true;
            let started = self.scribe.lock().started();
            let head = head(&self.admin, self.captures.selection(), started).await;
            let mut scribe = self.scribe.lock();
            scribe.configure(self.admin.subject.operations.configured_values());
            let lines = scribe.head(head);
            drop(scribe);
            return (lines.into(), Some(self));
        }
        if let Some(reason) = self.wait().await {
            self.reason = reason;
            self.captures.end();
        }
        let batch = self.captures.take();
        let ended = batch.is_last.then_some(self.reason);
        let (mut lines, full) = self.lines(batch).await;
        match full.map(Full::reason).or(ended) {
            None => (lines.into(), Some(self)),
            Some(reason) => {
                lines.extend(self.scribe.lock().end(reason));
                (lines.into(), None)
            }
        }
    }

    /// Waits for messages, or for the end of the recording; returns why it ends, unless an operator
    /// has ended it.
    async fn wait(&self) -> Option<&'static str> {
        let arrived = async {
            self.captures.arrived().await;
            sleep(COLLECT).await;
        };
        let is_disallowed = async {
            while self.admin.is_in_force(&self.operator).await {
                sleep(event_interval()).await;
            }
        };
        tokio::select! {
            biased;
            () = self.admin.shutdown.cancelled() => Some("gateway-ended"),
            () = self.disallowed.cancelled() => Some("stopped"),
            () = self.operator.ended() => Some("stopped"),
            () = is_disallowed => Some("stopped"),
            () = sleep_until(self.ends) => Some("time"),
            () = arrived => None,
        }
    }

    /// The lines of these messages. They are masked on a thread that serves no requests.
    async fn lines(&self, batch: Batch) -> (Vec<u8>, Option<Full>) {
        let (admin, scribe) = (Arc::clone(&self.admin), Arc::clone(&self.scribe));
        let work = tokio::task::spawn_blocking(move || {
            let mut scribe = scribe.lock();
            scribe.configure(admin.subject.operations.configured_values());
            scribe.lines(batch)
        });
        // It fails only while the program ends.
        work.await.unwrap_or_default()
    }
}
