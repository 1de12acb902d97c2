//! The history of servers' states, for operators.

use std::collections::{HashMap, VecDeque};
use std::time::SystemTime;

use fanlight_canonical::{BackendState, BackendStatus};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::ready::{reason, state};
use crate::{Admin, event_interval, moment};

/// The limit of changes stored for a server. There is no option: they fill a page.
const KEPT: usize = 50;
/// The limit of characters of a change's reason.
const LONGEST: usize = 500;

/// The last changes of each server's state.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<HashMap<String, VecDeque<StateChange>>>);

answers! {
    /// A change of a server's state.
    #[derive(Clone, Debug, PartialEq)]
    pub(crate) struct StateChange {
        at_ms: f64,
        state: &'static str,
        /// The reason why it cannot be used.
        error: Option<String>,
        /// How many attempts to connect have ended like this, one after the other.
        times: u32,
    }
}

impl StateChange {
    fn is_like(&self, other: &Self) -> bool {
        (self.state, &self.error) == (other.state, &other.error)
    }
}

impl History {
    /// Checks the states at the interval of events, forever.
    pub(crate) async fn follow(admin: &Admin) {
        loop {
            // Also without a reader: it has to be known that the first attempts have ended.
            admin.latest.is_ready();
            admin
                .history
                .note(&admin.subject.gateway.status(), SystemTime::now());
            sleep(event_interval()).await;
        }
    }

    /// Records changed states, and forgets servers that no longer exist.
    fn note(&self, status: &[(String, BackendStatus)], at: SystemTime) {
        let mut table = self.0.lock();
        table.retain(|name, _| status.iter().any(|(known, _)| known == name));
        for (name, status) in status {
            let error = reason(&status.state)
                .map(|error| error.to_string().chars().take(LONGEST).collect());
            let change = StateChange {
                at_ms: moment(at),
                state: state(&status.state),
                error,
                times: 1,
            };
            let changes = table.entry(name.clone()).or_default();
            if changes.back().is_some_and(|last| last.is_like(&change)) {
                continue;
            }
            // Another attempt that fails for the same reason does not push out what was before.
            if let [.., failed, attempt] = changes.make_contiguous()
                && change.error.is_some()
                && attempt.state == state(&BackendState::Connecting)
                && failed.is_like(&change)
            {
                failed.times += 1;
                changes.pop_back();
                continue;
            }
            if changes.len() >= KEPT {
                changes.pop_front();
            }
            changes.push_back(change);
        }
    }

    /// The changes of one server, oldest first.
    pub(crate) fn changes(&self, name: &str) -> Vec<StateChange> {
        self.0
            .lock()
            .get(name)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use fanlight_canonical::BackendError;

    use super::*;

    #[test]
    fn changes_are_noted_once_bounded_and_forgotten_with_their_backend() {
        let history = History::default();
        let down = |reason: &str| BackendState::Down {
            error: BackendError::Unreachable {
                reason: reason.to_owned(),
            },
            retry_in: Duration::ZERO,
        };
        let note = |name: &str, state, second| {
            let status = BackendStatus {
                attempted: true,
                state,
                era: None,
                revision: None,
                transport: "stdio",
                starting: None,
                failure: None,
            };
            history.note(
                &[(name.to_owned(), status)],
                UNIX_EPOCH + Duration::from_secs(second),
            );
        };
        note("a", BackendState::Ready, 1);
        note("a", BackendState::Ready, 2);
        note("a", down("x"), 3);
        note("a", down("x"), 4);
        note("a", down("y"), 5);
        let of = |name: &str| history.changes(name);
        let states: Vec<_> = of("a").iter().map(|one| (one.state, one.at_ms)).collect();
        assert_eq!(
            states,
            [("ready", 1000.0), ("down", 3000.0), ("down", 5000.0)]
        );
        assert!(of("a")[2].error.as_ref().unwrap().contains('y') && of("b").is_empty());
        for second in 6..200 {
            note(
                "a",
                if second % 2 == 0 {
                    BackendState::Idle
                } else {
                    BackendState::Ready
                },
                second,
            );
        }
        assert_eq!((of("a").len(), of("a")[49].at_ms), (KEPT, 199_000.0));
        for second in 0..40 {
            note("a", BackendState::Connecting, 200 + 2 * second);
            note("a", down("x"), 201 + 2 * second);
        }
        note("a", BackendState::Connecting, 280);
        note("a", down("y"), 281);
        let last: Vec<_> = of("a")[45..]
            .iter()
            .map(|one| (one.state, one.times, one.at_ms))
            .collect();
        assert_eq!(
            last,
            [
                ("ready", 1, 199_000.0),
                ("connecting", 1, 200_000.0),
                ("down", 40, 201_000.0),
                ("connecting", 1, 280_000.0),
                ("down", 1, 281_000.0),
            ]
        );
        note("b", BackendState::Idle, 300);
        assert!(of("a").is_empty() && of("b").len() == 1);
    }
}
