//! One read for all who want the same at the same time.
//!
//! Everyone on board drives it, so whoever leaves harms no other, and it is cancelled when the last
//! one has left.
//!
//! Must not know: what makes two reads the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::BackendError;
use fanlight_protocol::Response;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio_util::sync::CancellationToken;

use super::is_complete;

type Outcome = Result<Response, BackendError>;
type Underway = Shared<BoxFuture<'static, Outcome>>;

/// A read that is going on, as those see it who may join.
pub(super) struct Flight {
    /// Absent if it ended at once.
    underway: Option<WeakShared<BoxFuture<'static, Outcome>>>,
    state: State,
}

#[derive(Clone, Default)]
struct State {
    /// The server asked the leader's client something: the answer will be that client's own.
    personal: CancellationToken,
    /// The one whose call it is has left, so that nobody answers the server's questions.
    is_left: Arc<AtomicBool>,
}

/// How somebody is on board.
pub(super) enum Seat {
    Leader(Leader),
    Follower(Follower),
}

/// The one whose call it is.
pub(super) struct Leader {
    underway: Underway,
    state: State,
    has_landed: bool,
}

/// One who made the same call meanwhile.
pub(super) struct Follower {
    underway: Underway,
    state: State,
}

impl Flight {
    /// A flight on which `read` is done; it is told how to say that it is personal.
    pub(super) fn begin<F>(read: impl FnOnce(CancellationToken) -> F) -> (Self, Leader)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let state = State::default();
        let underway = read(state.personal.clone()).boxed().shared();
        (Self { underway: underway.downgrade(), state: state.clone() }, Leader { underway, state, has_landed: false })
    }

    /// A place for one more; `None` if it is over or is one client's own.
    pub(super) fn follow(&self) -> Option<Follower> {
        // In this order: one who boards and leaves again may be the last, and callers hold a lock.
        if self.state.personal.is_cancelled() {
            return None;
        }
        Some(Follower { underway: self.underway.as_ref()?.upgrade()?, state: self.state.clone() })
    }
}

impl Leader {
    pub(super) async fn land(mut self) -> Outcome {
        let outcome = self.underway.clone().await;
        self.has_landed = true;
        outcome
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.state.is_left.fetch_or(!self.has_landed, Ordering::Relaxed);
    }
}

impl Follower {
    /// The outcome, unless it is the leader's own.
    pub(super) async fn land(self) -> Option<Outcome> {
        let outcome = tokio::select! {
            biased;
            () = self.state.personal.cancelled() => return None,
            outcome = self.underway => outcome,
        };
        match &outcome {
            // The server may have failed for want of an answer to a question.
            Ok(response) if response.is_error() => (!self.state.is_left.load(Ordering::Relaxed)).then_some(outcome),
            Ok(response) => is_complete(response).then_some(outcome),
            Err(_) => Some(outcome),
        }
    }
}
