//! A running call, whose end shows whether the server answers calls.

use fanlight_canonical::{BackendError, Call};

use crate::health::{Admission, Health, Item};
use crate::request::deadline::PausableDeadline;

/// A call whose outcome shows whether the server answers calls.
pub(crate) struct WatchedCall<'a> {
    health: &'a Health,
    call: &'a Call,
    deadline: &'a PausableDeadline,
    admission: Admission,
    /// Whether the outcome still matters.
    is_watched: bool,
}

impl<'a> WatchedCall<'a> {
    /// Admits a call, unless the server does not answer calls now.
    pub(crate) fn admit(
        health: &'a Health,
        call: &'a Call,
        deadline: &'a PausableDeadline,
    ) -> Result<Self, BackendError> {
        let is_watched = Item::is_of(&call.method);
        let admission = if is_watched {
            health.admit(&call.context.peer)?
        } else {
            Admission::Closed
        };
        Ok(Self {
            health,
            call,
            deadline,
            admission,
            is_watched,
        })
    }

    /// Whether the call would still be admitted after its wait.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        match self.health.left_alone() {
            Some((error, _)) if self.is_watched && self.admission == Admission::Closed => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Records the outcome of a call that ended within its time.
    pub(crate) fn ended<T>(mut self, outcome: &Result<T, BackendError>) {
        if !std::mem::take(&mut self.is_watched) {
            return;
        }
        match outcome {
            Ok(_) => self.health.call_answered(),
            Err(error) if is_no_answer(error) => self.failed(),
            Err(_) => self.abandoned(),
        }
    }

    fn failed(&self) {
        let name = Item::name(self.call.params.as_ref());
        let item = Item::new(&self.call.method, name.as_deref());
        self.health
            .call_failed(item, &self.call.context.peer, self.admission);
    }

    fn abandoned(&self) {
        self.health
            .call_abandoned(&self.call.context.peer, self.admission);
    }
}

impl Drop for WatchedCall<'_> {
    fn drop(&mut self) {
        if !self.is_watched {
            return;
        }
        match self.deadline.is_unanswered() {
            true => self.failed(),
            // The client has given the call up, or it was never sent.
            false => self.abandoned(),
        }
    }
}

/// Whether the server got the call but did not answer it, though it is there.
pub(crate) fn is_no_answer(error: &BackendError) -> bool {
    match error {
        BackendError::Timeout { sent, .. } => *sent,
        BackendError::Status { status } => *status >= 500,
        BackendError::ClosedEarly | BackendError::Malformed { .. } => true,
        _ => false,
    }
}
