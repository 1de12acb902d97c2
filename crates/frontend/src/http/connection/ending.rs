//! When a connection ends, and how.

use std::time::Duration;

use fanlight_http_edge::UsageKind;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::activity::{Activity, Expired};

/// How long an idle connection of a load balancer is kept after shutdown, so that the balancer sends no request on it just as it
/// is closed: such a request may have run, and is not sent again. No option: a balancer that has requests uses it earlier.
const LINGER: Duration = Duration::from_secs(1);

/// The reasons for which a connection ends although its client keeps it open.
pub(super) struct Ending<'a> {
    /// The connection ends at once.
    pub(super) cut: &'a CancellationToken,
    pub(super) activity: &'a Activity,
    pub(super) header_timeout: Duration,
    /// Whether there are other replicas, and so a load balancer.
    has_balancer: bool,
    is_draining: bool,
    lingers_until: Option<Instant>,
    has_been_idle: bool,
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With the next request that it carries, or when this is followed by [`Self::Graceful`].
    AfterNext,
    /// With the requests that it carries.
    Graceful,
    /// At once.
    Abort,
}

impl<'a> Ending<'a> {
    pub(super) fn new(
        cut: &'a CancellationToken,
        activity: &'a Activity,
        header_timeout: Duration,
        has_balancer: bool,
    ) -> Self {
        let (is_draining, has_been_idle, lingers_until) = (false, false, None);
        Self {
            cut,
            activity,
            header_timeout,
            has_balancer,
            is_draining,
            has_been_idle,
            lingers_until,
        }
    }

    /// Whether an end has been returned.
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
        let grace = if self.has_been_idle {
            self.header_timeout
        } else {
            Duration::ZERO
        };
        let expired = tokio::select! {
            biased;
            () = self.cut.cancelled() => return End::Abort,
            () = self.activity.shutdown().cancelled(), if !self.is_draining => {
                self.is_draining = true;
                if self.has_balancer && self.activity.usage().kind == UsageKind::Idle {
                    self.lingers_until = Some(Instant::now() + LINGER);
                    return End::AfterNext;
                }
                return End::Graceful;
            }
            () = sleep_until(self.lingers_until.unwrap_or_else(Instant::now)), if self.lingers_until.is_some() => {
                self.lingers_until = None;
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
