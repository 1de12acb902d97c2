//! Approved calls whose servers have asked for input. The next round belongs to the same call and
//! needs no new approval.

use fanlight_protocol::Json;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::approvals::answer::ApprovalLimits;
use crate::approvals::call::CallToApprove;

/// The longest state of a server that is remembered, in bytes. No option: with a longer state the
/// next round asks again.
const LONGEST_STATE: usize = 4096;

/// Approved calls between two of their rounds.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<Vec<Round>>);

#[derive(Debug)]
struct Round {
    /// The id of the approval.
    id: String,
    call: CallToApprove,
    /// The server's state, which the client sends back (2026-07-28 basic/patterns/mrtr).
    state: Json,
    expires: Instant,
}

impl Rounds {
    /// Remembers a call that can go on with `state`. Beyond the limits it is not remembered, and
    /// the next round asks again.
    pub(crate) fn add(&self, limits: ApprovalLimits, id: &str, call: &CallToApprove, state: &Json) {
        let mut rounds = self.lock();
        let own = rounds
            .iter()
            .filter(|round| round.call.principal == call.principal)
            .count();
        if rounds.len() < limits.calls
            && own < limits.calls_of_one
            && state.bytes().len() <= LONGEST_STATE
        {
            let (id, state, expires) = (
                id.to_owned(),
                state.detached(),
                Instant::now() + limits.lifetime,
            );
            rounds.push(Round {
                id,
                call: call.detached(),
                state,
                expires,
            });
        }
    }

    /// Takes the approval of the round that returned `state`, for the next round of the same call.
    pub(crate) fn take(&self, call: &CallToApprove, state: &Json) -> Option<String> {
        let mut rounds = self.lock();
        let is_same = |known: &Json| match (known.as_str(), state.as_str()) {
            (Some(known), Some(state)) => known == state,
            _ => known == state,
        };
        let at = rounds
            .iter()
            .position(|round| round.call == *call && is_same(&round.state))?;
        Some(rounds.swap_remove(at).id)
    }

    /// The rounds that have not expired.
    fn lock(&self) -> MutexGuard<'_, Vec<Round>> {
        // Nothing that can panic runs under this lock.
        let mut rounds = self.0.lock();
        let now = Instant::now();
        rounds.retain(|round| now < round.expires);
        rounds
    }
}
