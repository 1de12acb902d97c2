//! The permit of a running call, which the call does not hold while its server waits for the client: a person may take
//! minutes, and the server does nothing meanwhile. It is acquired anew before the client's answer is sent to the server.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Claim, Permit};

/// The permit of a running call.
#[derive(Default)]
pub(crate) struct CallPermit(Mutex<State>);

#[derive(Default)]
enum State {
    /// The call needs none.
    #[default]
    Unlimited,
    Held(Permit),
    GivenBack(Claim),
}

/// Resolves to the permit of a call that continues.
pub(crate) type Reacquiring = Pin<Box<dyn Future<Output = Permit> + Send>>;

impl CallPermit {
    /// The call runs with this permit.
    pub(crate) fn hold(&self, permit: Permit) {
        self.replace(State::Held(permit));
    }

    /// The call has ended.
    pub(crate) fn end(&self) {
        self.replace(State::Unlimited);
    }

    /// Gives the permit back for as long as the server waits for the client.
    pub(crate) fn give_back(&self) {
        let claim = match &*self.lock() {
            State::Held(permit) => permit.claim(),
            State::Unlimited | State::GivenBack(_) => return,
        };
        self.replace(State::GivenBack(claim));
    }

    /// Acquires the permit anew if it was given back. If that takes time, returns a future whose result is to be
    /// [held](Self::hold).
    pub(crate) fn reacquire(&self) -> Option<Reacquiring> {
        let claim = match &*self.lock() {
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
        let previous = std::mem::replace(&mut *self.lock(), state);
        // Without the lock, since a permit that is given back wakes others.
        drop(previous);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
