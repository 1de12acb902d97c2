//! A supervised connection from its users' side: its state, and the number of users.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::attempt::Attempt;
use crate::connection::Connection;
use crate::process_log::ProcessLog;
use crate::request::declared::Declared;
use fanlight_canonical::{BackendError, Peer};
use fanlight_protocol::{Revision, ServerDescription};

/// How long a call waits for an attempt to connect to a server that could not be reached before. Calls that find an attempt in
/// progress wait only until a quarter of this time has passed since it began.
fn connect_on_call() -> Duration {
    fanlight_fair::limit("connectOnCall", Duration::from_secs(1))
}

/// The state of a connection.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// The last agreed revision.
    pub(crate) revision: Option<Revision>,
    /// The server's last description of itself.
    pub(crate) description: Option<ServerDescription>,
    /// Whether an attempt to connect has ended, successfully or not.
    pub(crate) attempted: bool,
    /// The number of attempts begun.
    pub(crate) attempts: u64,
}

#[derive(Clone, Default)]
pub(crate) enum Phase {
    /// Not connected; the next request connects.
    #[default]
    Idle,
    Connecting {
        /// The error of the attempt before, if it failed.
        after: Option<BackendError>,
        attempt: Attempt,
    },
    Ready(Arc<Connection>),
    Down {
        error: BackendError,
        /// The time of the next attempt without a request; `None` if there is none.
        until: Option<Instant>,
        /// The time from which a request starts an attempt.
        on_demand: Instant,
    },
    Stopped,
}

impl State {
    /// The outcome that a request can rely on; `None` while it is being determined.
    pub(crate) fn verdict(&self) -> Option<Result<Arc<Connection>, BackendError>> {
        match &self.phase {
            Phase::Ready(connection) if !connection.is_lost() => Some(Ok(Arc::clone(connection))),
            // The supervisor is about to notice the loss.
            Phase::Ready(_) | Phase::Connecting { .. } | Phase::Idle => None,
            Phase::Down { error, .. } => Some(Err(error.clone())),
            Phase::Stopped => Some(Err(BackendError::ShuttingDown)),
        }
    }
}

pub(crate) struct SupervisedConnection {
    pub(crate) state: watch::Receiver<State>,
    /// Wakes the supervisor of a client's connection, which connects on demand.
    wanted: Arc<Notify>,
    end: CancellationToken,
    declared: Arc<Declared>,
    process_log: Arc<ProcessLog>,
    /// The peer whose share of the connection limit it uses.
    pub(crate) peer: Peer,
    usage: Mutex<Usage>,
}

struct Usage {
    users: usize,
    /// Whether the server has a task that was made on this connection.
    has_task: bool,
    /// The time when the first user came or the last one left.
    since: Instant,
}

/// Keeps a connection from being closed as idle.
pub(crate) struct InUse(Arc<SupervisedConnection>);

impl SupervisedConnection {
    pub(crate) fn new(
        state: watch::Receiver<State>,
        wanted: Arc<Notify>,
        end: CancellationToken,
        declared: Arc<Declared>,
        peer: Peer,
        process_log: Arc<ProcessLog>,
    ) -> Arc<Self> {
        let usage = Mutex::new(Usage {
            users: 0,
            has_task: false,
            since: Instant::now(),
        });
        Arc::new(Self {
            state,
            wanted,
            end,
            declared,
            process_log,
            peer,
            usage,
        })
    }

    pub(crate) fn take(self: &Arc<Self>) -> InUse {
        let mut usage = self.usage.lock();
        if usage.users == 0 {
            usage.since = Instant::now();
        }
        usage.users += 1;
        drop(usage);
        InUse(Arc::clone(self))
    }

    /// The connection, if there is one.
    pub(crate) fn connection(&self) -> Option<Arc<Connection>> {
        self.state.borrow().verdict()?.ok()
    }

    /// How long it has been unused; `None` while it is in use.
    pub(crate) fn idle_time(&self) -> Option<Duration> {
        let usage = self.usage.lock();
        (usage.users == 0).then(|| usage.since.elapsed())
    }

    /// The time since which it has been in use, or unused.
    pub(crate) fn last_change(&self) -> Instant {
        self.usage.lock().since
    }

    /// Whether the server has sent a request for the client on it.
    pub(crate) fn has_asked(&self) -> bool {
        self.declared.has_asked()
    }

    /// Whether the current request may leave the connection to others, as far as known.
    pub(crate) fn may_become_spare(&self) -> bool {
        !self.has_task() && !self.has_asked() && !self.has_stopped()
    }

    /// Whether the connection declares exactly these capabilities.
    pub(crate) fn declares(&self, capabilities: &[u8]) -> bool {
        self.declared.capabilities().bytes() == capabilities
    }

    /// The time for which the connection has been in use. If its request has ended and is about to
    /// release it, the time for which it has been unused. `None` without a connection.
    pub(crate) fn ready_for(&self) -> Option<Duration> {
        let used = self.last_change().elapsed();
        match &self.state.borrow().phase {
            Phase::Ready(connection) if !connection.is_lost() => Some(used.min(connection.age())),
            _ => None,
        }
    }

    /// Starts a resting process, without waiting for it.
    pub(crate) fn wake(&self) {
        // A running process would otherwise restart as soon as it rests.
        let rests = matches!(self.state.borrow().phase, Phase::Idle);
        if rests {
            self.wanted.notify_one();
        }
    }

    /// Whether its first connection is being made, or about to be made, for a request.
    pub(crate) fn is_starting(&self) -> bool {
        let is_first = matches!(
            &self.state.borrow().phase,
            Phase::Idle | Phase::Connecting { after: None, .. }
        );
        is_first && self.idle_time().is_none()
    }

    /// Records that the server made a task on this connection.
    pub(crate) fn note_task(&self) {
        self.usage.lock().has_task = true;
    }

    /// Whether the server has made a task on this connection.
    pub(crate) fn has_task(&self) -> bool {
        self.usage.lock().has_task
    }

    /// Whether the server has made a task on this connection that may still be running.
    pub(crate) fn has_open_task(&self) -> bool {
        matches!(&self.state.borrow().phase, Phase::Ready(connection) if connection.has_open_task())
    }

    /// Whether it has ended for good.
    pub(crate) fn has_stopped(&self) -> bool {
        self.end.is_cancelled()
    }

    /// Begins to end it for good.
    pub(crate) fn end(&self) {
        self.end.cancel();
    }

    /// The reason why it has no connection and will not have one soon.
    pub(crate) fn down_reason(&self) -> Option<BackendError> {
        match &self.state.borrow().phase {
            Phase::Down {
                error, on_demand, ..
            } => (Instant::now() < *on_demand).then(|| error.clone()),
            Phase::Stopped => Some(BackendError::ShuttingDown),
            Phase::Idle | Phase::Connecting { .. } | Phase::Ready(_) => None,
        }
    }

    /// The known facts about a server without a connection. While its process rests, this is its
    /// description. While the process first starts, this is the description of an earlier run.
    /// While the server is down, this is the reason; in that case an attempt to connect begins if
    /// one is due.
    pub(crate) fn resting_description(&self) -> Option<Result<ServerDescription, BackendError>> {
        let state = self.state.borrow();
        match &state.phase {
            Phase::Idle => state.description.clone().map(Ok),
            Phase::Down { error, .. } => {
                self.wanted.notify_one();
                Some(Err(error.clone()))
            }
            Phase::Connecting {
                after: Some(error), ..
            } => Some(Err(error.clone())),
            Phase::Connecting { after: None, .. } if !state.attempted => {
                state.description.clone().map(Ok)
            }
            Phase::Connecting { after: None, .. } | Phase::Ready(_) | Phase::Stopped => None,
        }
    }

    /// Waits for the connection, or for the failed attempt to make one. After a failure, waits only
    /// a moment for the next attempt, so that a server that is down does not delay calls.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<Arc<Connection>, BackendError> {
        let mut patience = connect_on_call();
        let (attempts, failure) = {
            let state = self.state.borrow();
            match (&state.phase, state.verdict()) {
                (
                    Phase::Down {
                        error, on_demand, ..
                    },
                    _,
                ) if Instant::now() >= *on_demand => (state.attempts + 1, Some(error.clone())),
                (_, Some(verdict)) => return verdict,
                // A request joins another request's attempt for no longer than a successful attempt
                // takes.
                (
                    Phase::Connecting {
                        after: Some(error),
                        attempt,
                    },
                    None,
                ) => {
                    patience = (patience / 4).saturating_sub(attempt.elapsed());
                    if patience.is_zero() {
                        return Err(error.clone());
                    }
                    (state.attempts, Some(error.clone()))
                }
                (_, None) => (state.attempts, None),
            }
        };
        self.wanted.notify_one();
        let mut state = self.state.clone();
        let settled = async move {
            let is_settled = |state: &State| {
                matches!(state.phase, Phase::Stopped)
                    || (state.attempts >= attempts && state.verdict().is_some())
            };
            match state.wait_for(is_settled).await {
                Ok(state) => state.verdict().unwrap_or(Err(BackendError::ShuttingDown)),
                Err(_) => Err(BackendError::ShuttingDown),
            }
        };
        let patience = if failure.is_some() {
            limit.min(patience)
        } else {
            limit
        };
        timeout(patience, settled)
            .await
            .unwrap_or_else(|_| Err(failure.unwrap_or_else(|| self.not_ready(limit))))
    }

    /// The error of a request that has waited for `limit`.
    fn not_ready(&self, limit: Duration) -> BackendError {
        match &self.state.borrow().phase {
            Phase::Connecting { attempt, .. } => attempt.not_ready(&self.process_log, limit),
            _ => BackendError::Timeout {
                after: limit,
                sent: false,
            },
        }
    }
}

impl std::ops::Deref for InUse {
    type Target = SupervisedConnection;

    fn deref(&self) -> &SupervisedConnection {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.users -= 1;
        if usage.users == 0 {
            usage.since = Instant::now();
        }
    }
}
