//! The permit of a running call. The call gives it back while its server waits for the client: a
//! person may take minutes, and the server does nothing meanwhile. It acquires a permit again
//! before the server gets the client's answer.

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{Claim, Permit};

/// The permit of a running call.
#[derive(Default)]
pub(crate) struct CallPermit(Mutex<State>);

#[derive(Default)]
enum State {
    /// The call needs no permit.
    #[default]
    Unlimited,
    Held(Permit),
    GivenBack(Claim),
}

/// Resolves to the permit of a continuing call.
pub(crate) type Reacquiring = BoxFuture<'static, Permit>;

impl CallPermit {
    /// Stores the permit that the call runs with.
    pub(crate) fn hold(&self, permit: Permit) {
        self.replace(State::Held(permit));
    }

    /// Ends the call and drops its permit.
    pub(crate) fn end(&self) {
        self.replace(State::Unlimited);
    }

    /// Gives the permit back while the server waits for the client.
    pub(crate) fn give_back(&self) {
        let claim = match &*self.0.lock() {
            State::Held(permit) => permit.claim(),
            State::Unlimited | State::GivenBack(_) => return,
        };
        self.replace(State::GivenBack(claim));
    }

    /// Acquires a permit again if it was given back. If that takes time, returns a future whose
    /// result must be [held](Self::hold).
    pub(crate) fn reacquire(&self) -> Option<Reacquiring> {
        let claim = match &*self.0.lock() {
            State::GivenBack(claim) => claim.clone(),
            State::Unlimited | State::Held(_) => return None,
        };
        match claim.try_acquire() {
            Some(permit) => {
                self.hold(permit);
                None
            }
            None => Some(Box::pin(claim.acquire_again())),
        }
    }

    fn replace(&self, state: State) {
        let previous = std::mem::replace(&mut *self.0.lock(), state);
        // Dropped without the lock, since a returned permit wakes others.
        drop(previous);
    }
}
