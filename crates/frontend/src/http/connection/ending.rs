//! When a connection ends, and how.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::activity::{Activity, Expired};

/// The reasons for which a connection ends although its client keeps it open.
pub(super) struct Ending<'a> {
    /// The connection ends at once.
    pub(super) cut: &'a CancellationToken,
    pub(super) activity: &'a Activity,
    pub(super) header_timeout: Duration,
    is_draining: bool,
    has_been_idle: bool,
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With the requests that it carries.
    Graceful,
    /// At once.
    Abort,
}

impl<'a> Ending<'a> {
    pub(super) fn new(cut: &'a CancellationToken, activity: &'a Activity, header_timeout: Duration) -> Self {
        Self { cut, activity, header_timeout, is_draining: false, has_been_idle: false }
    }

    /// Whether [`End::Graceful`] has been returned.
    pub(super) fn has_begun(&self) -> bool {
        self.is_draining || self.has_been_idle
    }

    /// Waits until a connection that has carried nothing yet is to end. On shutdown, the first request of one that was
    /// accepted less than `grace` ago may be on its way. Cancel safe.
    pub(super) async fn without_request(&mut self, grace: Duration) {
        if self.is_draining || self.next().await == End::Graceful {
            let age = self.activity.usage().since.elapsed();
            tokio::select! {
                () = self.cut.cancelled() => {}
                () = sleep(grace.saturating_sub(age)) => {}
            }
        }
    }

    /// Waits until the connection is to end in a way that has not been returned yet. Cancel safe.
    pub(super) async fn next(&mut self) -> End {
        // A connection that has part of a head does not close by itself.
        let grace = if self.has_been_idle { self.header_timeout } else { Duration::ZERO };
        let expired = tokio::select! {
            biased;
            () = self.cut.cancelled() => return End::Abort,
            () = self.activity.shutdown().cancelled(), if !self.is_draining => {
                self.is_draining = true;
                return End::Graceful;
            }
            expired = self.activity.expired(grace) => expired,
        };
        match expired {
            Expired::Idle if !self.has_been_idle => {
                self.has_been_idle = true;
                End::Graceful
            }
            Expired::Idle => End::Abort,
            Expired::Stuck => {
                tracing::debug!("closing a client connection that makes no progress");
                End::Abort
            }
        }
    }
}
