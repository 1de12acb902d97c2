//! When a connection has been idle, slow or stuck for too long.
//!
//! A connection is closed when the head of a request takes too long to arrive, when it has carried no request for too
//! long, or when its client takes nothing of what is sent for too long. hyper's own head timeout does not distinguish
//! the first two. One timer for each connection checks what the I/O has recorded, so that no request sets
//! a timer; a limit may therefore be noticed late, by at most the head timeout.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_http_edge::Idle;
use tokio::time::{Instant, sleep};

/// The recorded activity of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    header_timeout: Duration,
    idle_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests: usize,
    /// Whether there has been a request.
    has_served: bool,
    /// Whether a head is arriving: bytes have come since the last request ended, or the connection is new.
    is_head_arriving: bool,
    /// HTTP/2 sends frames between requests that belong to none; only idleness counts there.
    is_multiplexed: bool,
    /// When the last request ended, or the head began to arrive.
    since: Instant,
    /// Since when the client has taken nothing of what is being written.
    blocked_since: Option<Instant>,
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// It has carried no request for too long; closing it loses nothing.
    Idle,
    /// A head does not arrive, or a response is not taken.
    Stuck,
}

impl Activity {
    /// The activity of a connection that has just been accepted: its first head is awaited.
    pub(crate) fn new(header_timeout: Duration, idle_timeout: Duration) -> Arc<Self> {
        let state = State {
            requests: 0,
            has_served: false,
            is_head_arriving: true,
            is_multiplexed: false,
            since: Instant::now(),
            blocked_since: None,
        };
        Arc::new(Self { header_timeout, idle_timeout, state: Mutex::new(state) })
    }

    /// Records that a request has arrived. It ends when the result is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>, is_multiplexed: bool) -> ActiveRequest {
        let mut state = self.state();
        state.requests += 1;
        state.has_served = true;
        state.is_head_arriving = false;
        state.is_multiplexed = is_multiplexed;
        ActiveRequest(Arc::clone(self))
    }

    /// Since when the connection has carried no request; `None` while it carries one.
    pub(super) fn idle(&self) -> Option<Idle> {
        let state = self.state();
        (state.requests == 0).then_some(Idle { has_served: state.has_served, since: state.since })
    }

    /// Whether something is still to be written that the client does not take.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.state().blocked_since.is_some()
    }

    /// Records that bytes have been read.
    pub(super) fn record_read(&self) {
        let mut state = self.state();
        if state.requests == 0 && !state.is_multiplexed && !state.is_head_arriving {
            state.is_head_arriving = true;
            state.since = Instant::now();
        }
    }

    /// Records whether a write made progress.
    pub(super) fn record_write(&self, has_progress: bool) {
        let mut state = self.state();
        if has_progress {
            state.blocked_since = None;
        } else {
            state.blocked_since.get_or_insert_with(Instant::now);
        }
    }

    /// Waits for `grace`, and then until the connection is to be closed.
    pub(super) async fn expired(&self, grace: Duration) -> Expired {
        sleep(grace).await;
        loop {
            match self.next_expiry() {
                (expired, left) if left.is_zero() => return expired,
                (_, left) => sleep(left.min(self.header_timeout)).await,
            }
        }
    }

    /// What expires next unless there is activity, and in how long.
    fn next_expiry(&self) -> (Expired, Duration) {
        let state = self.state();
        let left = |since: Instant, limit: Duration| limit.saturating_sub(since.elapsed());
        if let Some(since) = state.blocked_since {
            (Expired::Stuck, left(since, self.idle_timeout))
        } else if state.requests > 0 {
            (Expired::Idle, self.header_timeout.max(Duration::from_millis(1)))
        } else if state.is_head_arriving && !state.is_multiplexed {
            (Expired::Stuck, left(state.since, self.header_timeout))
        } else {
            (Expired::Idle, left(state.since, self.idle_timeout))
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that has not been answered yet. Its connection is not idle as long as this exists.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<Activity>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(75);

    #[tokio::test(start_paused = true)]
    async fn new_connection_expires_after_head_timeout() {
        let activity = Activity::new(HEAD, IDLE);
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert_eq!(start.elapsed(), HEAD);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_expires_after_idle_timeout() {
        let activity = Activity::new(HEAD, IDLE);
        drop(activity.begin_request(false));
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Idle);
        assert_eq!(start.elapsed(), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn dripping_head_counts_from_its_first_byte() {
        let activity = Activity::new(HEAD, IDLE);
        drop(activity.begin_request(false));
        activity.record_read();
        tokio::time::advance(HEAD / 2).await;
        activity.record_read();
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert_eq!(start.elapsed(), HEAD / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn active_request_keeps_the_connection_open() {
        let activity = Activity::new(HEAD, IDLE);
        let request = activity.begin_request(false);
        assert!(tokio::time::timeout(IDLE * 100, activity.expired(Duration::ZERO)).await.is_err());
        drop(request);
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn blocked_write_expires_after_idle_timeout_without_progress() {
        let activity = Activity::new(HEAD, IDLE);
        let _request = activity.begin_request(true);
        activity.record_write(false);
        tokio::time::advance(IDLE / 2).await;
        activity.record_write(true);
        activity.record_write(false);
        let start = Instant::now();
        assert_eq!(activity.expired(Duration::ZERO).await, Expired::Stuck);
        assert!(start.elapsed() >= IDLE && start.elapsed() <= IDLE + HEAD);
    }
}
