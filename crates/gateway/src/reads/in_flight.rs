//! One read for all equal requests that arrive while it runs.
//!
//! Each request polls the shared future. So the read survives when some requests leave, and is
//! cancelled when the last one leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::BackendError;
use fanlight_protocol::Response;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio_util::sync::CancellationToken;

type Outcome = Result<Response, BackendError>;
type SharedRead = Shared<BoxFuture<'static, Outcome>>;

/// A running read that more requests can join.
pub(super) struct InFlight {
    /// `None` if the read ended at once.
    shared: Option<WeakShared<BoxFuture<'static, Outcome>>>,
    state: State,
}

#[derive(Clone, Default)]
struct State {
    /// Cancelled when the server sent the leader's client a request, so that the answer is for that
    /// client alone.
    personal: CancellationToken,
    /// Set when the leader was cancelled, so that the server's requests stay unanswered.
    is_abandoned: Arc<AtomicBool>,
}

/// A request's part in a shared read.
pub(super) enum Role {
    Leader(Leader),
    Follower(Follower),
}

/// The request whose call is sent to the server.
pub(super) struct Leader {
    shared: SharedRead,
    state: State,
    has_ended: bool,
}

/// An equal request that arrived while the leader's call was running.
pub(super) struct Follower {
    shared: SharedRead,
    state: State,
}

impl InFlight {
    /// Begins `read` with a token. The read cancels the token when its answer is for the leader's
    /// client alone.
    pub(super) fn begin<F>(read: impl FnOnce(CancellationToken) -> F) -> (Self, Leader)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let state = State::default();
        let shared = read(state.personal.clone()).boxed().shared();
        (
            Self {
                shared: shared.downgrade(),
                state: state.clone(),
            },
            Leader {
                shared,
                state,
                has_ended: false,
            },
        )
    }

    /// Joins the read. `None` if it has ended or is for one client alone.
    pub(super) fn follow(&self) -> Option<Follower> {
        // In this order: dropping the upgraded future could drop the last reference to the read,
        // which takes the lock that callers hold.
        if self.state.personal.is_cancelled() {
            return None;
        }
        Some(Follower {
            shared: self.shared.as_ref()?.upgrade()?,
            state: self.state.clone(),
        })
    }
}

impl Leader {
    pub(super) async fn wait(mut self) -> Outcome {
        let outcome = self.shared.clone().await;
        self.has_ended = true;
        outcome
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.state
            .is_abandoned
            .fetch_or(!self.has_ended, Ordering::Relaxed);
    }
}

impl Follower {
    /// The outcome, unless it is for the leader's client alone.
    pub(super) async fn wait(self) -> Option<Outcome> {
        let outcome = tokio::select! {
            biased;
            () = self.state.personal.cancelled() => return None,
            outcome = self.shared => outcome,
        };
        match &outcome {
            // The server may have failed because its own request stayed unanswered.
            Ok(response) if response.is_error() => {
                (!self.state.is_abandoned.load(Ordering::Relaxed)).then_some(outcome)
            }
            Ok(response) => response.is_complete().then_some(outcome),
            Err(_) => Some(outcome),
        }
    }
}
