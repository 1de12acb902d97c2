//! The rounds of a call whose server asks for input. The answer to one round gives the client a
//! state, and the request of the next one brings the state back.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;
use opentelemetry::trace::TraceId;

/// The limit of remembered states. The oldest one is forgotten first.
const STATES: usize = 1024;
/// A shorter state does not tell a call. Servers choose the states of clients without
/// authentication.
const SHORTEST: usize = 16;

/// The hash of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateId(u64);

impl StateId {
    /// The id of a state; `None` if other calls may have the same one.
    pub(crate) fn derive(state: &str) -> Option<Self> {
        let hash = || FixedState::default().hash_one(state);
        (state.len() >= SHORTEST).then(|| Self(hash()))
    }
}

/// The states that clients have not brought back, with the traces of their calls.
#[derive(Debug, Default)]
pub(crate) struct Rounds(VecDeque<(StateId, TraceId)>);

impl Rounds {
    pub(crate) fn record_state(&mut self, state: StateId, call: TraceId) {
        if self.0.len() >= STATES {
            self.0.pop_front();
        }
        self.0.push_back((state, call));
    }

    /// The trace of the call that a state belongs to. A state is good once.
    pub(crate) fn take(&mut self, state: StateId) -> Option<TraceId> {
        let at = self.0.iter().rposition(|(one, _)| *one == state)?;
        self.0.remove(at).map(|(_, call)| call)
    }
}
