//! A running recording.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_telemetry::recording::{Batch, Captures, Full, Scribe};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use super::head::head;
use crate::api::stream::Watch;
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
    pub(super) watch: Watch,
}

impl Running {
    /// The next lines, and the recording unless these are the last ones.
    pub(super) async fn next(mut self) -> (Bytes, Option<Self>) {
        if !self.has_head {
            self.has_head = true;
            let started = self.scribe.lock().started();
            let head = head(&self.watch.admin, self.captures.selection(), started).await;
            let mut scribe = self.scribe.lock();
            scribe.configure(self.watch.admin.subject.operations.configured_values());
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
            while self.watch.is_in_force().await {
                sleep(event_interval()).await;
            }
        };
        tokio::select! {
            biased;
            reason = self.watch.ended() => Some(reason),
            () = is_disallowed => Some("stopped"),
            () = sleep_until(self.ends) => Some("time"),
            () = arrived => None,
        }
    }

    /// The lines of these messages. They are masked on a thread that serves no requests.
    async fn lines(&self, batch: Batch) -> (Vec<u8>, Option<Full>) {
        let (admin, scribe) = (Arc::clone(&self.watch.admin), Arc::clone(&self.scribe));
        let work = tokio::task::spawn_blocking(move || {
            let mut scribe = scribe.lock();
            scribe.configure(admin.subject.operations.configured_values());
            scribe.lines(batch)
        });
        // It fails only while the program ends.
        work.await.unwrap_or_default()
    }
}
