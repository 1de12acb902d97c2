//! Decides when and how a connection ends.

use std::time::Duration;

use fanlight_http::UsageKind;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::activity::{Activity, Expired};

/// How long an idle connection of a load balancer stays open after shutdown. If it closed at once,
/// the balancer might send a request at the same moment, and could not safely repeat it. A
/// constant, since a busy balancer uses the connection sooner.
const LINGER: Duration = Duration::from_secs(1);

/// The reasons to end a connection that its client keeps open.
pub(super) struct Ending<'a> {
    /// Cancelling this token ends the connection at once.
    pub(super) cut: &'a CancellationToken,
    pub(super) activity: &'a Activity,
    pub(super) header_timeout: Duration,
    /// Whether there are other replicas, and so a load balancer.
    has_balancer: bool,
    is_draining: bool,
    lingers_until: Option<Instant>,
    has_been_idle: bool,
}

/// The way to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The connection ends after its next request, or when [`Self::Graceful`] follows.
    AfterNext,
    /// The connection ends after its running requests.
    Graceful,
    /// The connection ends at once.
    Abort,
}

impl<'a> Ending<'a> {
    pub(super) fn new(
        cut: &'a CancellationToken,
        activity: &'a Activity,
        header_timeout: Duration,
        has_balancer: bool,
    ) -> Self {
        Self {
            cut,
            activity,
            header_timeout,
            has_balancer,
            is_draining: false,
            has_been_idle: false,
            lingers_until: None,
        }
    }

    /// Whether `next` has returned an end.
    pub(super) fn has_begun(&self) -> bool {
        self.is_draining || self.has_been_idle
    }

    /// Waits until an unused connection must end. On shutdown, a connection younger than `grace`
    /// stays open: its first request may be on its way. Cancel safe.
    pub(super) async fn without_request(&mut self, grace: Duration) {
        if self.is_draining || self.next().await == End::Graceful {
            let age = self.activity.usage().since.elapsed();
            tokio::select! {
                () = self.cut.cancelled() => {}
                () = sleep(grace.saturating_sub(age)) => {}
            }
        }
    }

    /// Waits for the next way to end the connection. Cancel safe.
    pub(super) async fn next(&mut self) -> End {
        // hyper does not close a connection that has received part of a head.
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
