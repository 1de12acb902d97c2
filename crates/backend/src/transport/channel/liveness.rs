//! Tracks whether the server at the other end of a channel still answers: the causes of doubt, and
//! their resolution.
//!
//! A process that was stopped, hangs, or reads nothing looks like a slow one. Only a ping tells
//! them apart; the connection's supervisor sends it in case of doubt.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fanlight_canonical::BackendError;
use tokio::sync::Notify;

/// The signs of life on a channel.
pub(crate) struct Liveness {
    /// The number of consecutive timeouts that make the server suspect even if other messages
    /// arrive.
    most_timeouts: usize,
    /// The number of received messages.
    received: AtomicU64,
    /// The number of requests that timed out since the last answer.
    timeouts: AtomicUsize,
    doubted: Notify,
    /// The reason why the channel was given up.
    given_up: OnceLock<BackendError>,
}

impl Liveness {
    /// Starts without any signs; `most_timeouts` timeouts in a row are doubtful.
    pub(crate) fn new(most_timeouts: usize) -> Self {
        Self {
            most_timeouts,
            received: AtomicU64::new(0),
            timeouts: AtomicUsize::new(0),
            doubted: Notify::new(),
            given_up: OnceLock::new(),
        }
    }

    /// The number of received messages.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Records a message.
    pub(super) fn message(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Records an answer.
    pub(super) fn answer(&self) {
        self.timeouts.store(0, Ordering::Relaxed);
    }

    /// Records a timeout. `received` is the number of received messages when the request was sent.
    pub(super) fn timeout(&self, received: u64) {
        let timeouts = self
            .timeouts
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if received == self.received() || timeouts >= self.most_timeouts {
            self.doubted.notify_one();
        }
    }

    /// Waits until it is doubtful whether the server still answers.
    pub(crate) async fn doubted(&self) {
        self.doubted.notified().await;
    }

    /// Gives the channel up. The first reason counts.
    pub(super) fn give_up(&self, reason: String) {
        let _ = self.given_up.set(BackendError::GivenUp { reason });
    }

    /// The reason why the channel was given up, if it was.
    pub(crate) fn given_up(&self) -> Option<BackendError> {
        self.given_up.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_doubted(liveness: &Liveness) -> bool {
        liveness.doubted().now_or_never().is_some()
    }

    #[test]
    fn timeout_without_a_sign_of_life_is_doubtful() {
        let liveness = Liveness::new(3);
        let sent = liveness.received();
        assert!(!is_doubted(&liveness));
        liveness.timeout(sent);
        assert!(is_doubted(&liveness));
        assert!(!is_doubted(&liveness), "once for each reason");
    }

    #[test]
    fn timeouts_beside_other_messages_are_doubtful_in_a_row_only() {
        let liveness = Liveness::new(3);
        let timeout = || {
            let sent = liveness.received();
            liveness.message();
            liveness.timeout(sent);
            is_doubted(&liveness)
        };
        assert_eq!([timeout(), timeout(), timeout()], [false, false, true]);
        liveness.answer();
        assert_eq!([timeout(), timeout(), timeout()], [false, false, true]);
    }
}
