//! How the states of backends have changed, for operators.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use fanlight_canonical::BackendStatus;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use tokio::time::sleep;

use crate::Admin;
use crate::ready::{reason, state};
use crate::values::{array, moment, optional};

/// Most changes that are kept of one backend. No option: they fill a page.
const KEPT: usize = 50;
/// Most characters of the reason of a change.
const LONGEST: usize = 500;

/// The last changes of the state of each backend.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<HashMap<String, VecDeque<Change>>>);

/// A backend was found in another state than before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    at: SystemTime,
    state: &'static str,
    /// Why it is down.
    error: Option<String>,
}

impl History {
    /// Looks at the states at the interval of events, for ever.
    pub(crate) async fn follow(admin: &Admin) {
        loop {
            admin.history.note(&admin.subject.gateway.status(), SystemTime::now());
            sleep(admin.now().settings.event_interval).await;
        }
    }

    /// Records the states that have changed; backends that no longer exist are forgotten.
    fn note(&self, status: &[(String, BackendStatus)], at: SystemTime) {
        let mut table = self.table();
        table.retain(|name, _| status.iter().any(|(known, _)| known == name));
        for (name, status) in status {
            let error = reason(&status.state).map(|error| error.to_string().chars().take(LONGEST).collect());
            let change = Change { at, state: state(&status.state), error };
            let changes = table.entry(name.clone()).or_default();
            let is_known = |last: &Change| (last.state, &last.error) == (change.state, &change.error);
            if changes.back().is_some_and(is_known) {
                continue;
            }
            if changes.len() >= KEPT {
                changes.pop_front();
            }
            changes.push_back(change);
        }
    }

    /// The changes of one backend, oldest first.
    pub(crate) fn of(&self, name: &str) -> Json {
        array(self.table().get(name).into_iter().flatten().map(|change| {
            let mut object = ObjectBuilder::new();
            object.member("atMs", &moment(change.at)).string("state", change.state);
            optional(&mut object, "error", change.error.as_deref());
            object.finish()
        }))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, VecDeque<Change>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use fanlight_canonical::{BackendError, BackendState};

    use super::*;

    #[test]
    fn changes_are_noted_once_bounded_and_forgotten_with_their_backend() {
        let history = History::default();
        let down = |reason: &str| BackendState::Down {
            error: BackendError::Unreachable { reason: reason.to_owned() },
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
            history.note(&[(name.to_owned(), status)], UNIX_EPOCH + Duration::from_secs(second));
        };
        note("a", BackendState::Ready, 1);
        note("a", BackendState::Ready, 2);
        note("a", down("x"), 3);
        note("a", down("x"), 4);
        note("a", down("y"), 5);
        let of = |name: &str| serde_json::from_str::<Vec<serde_json::Value>>(history.of(name).as_text()).unwrap();
        let states: Vec<_> = of("a").iter().map(|one| (one["state"].clone(), one["atMs"].clone())).collect();
        assert_eq!(states, [("ready".into(), 1000.into()), ("down".into(), 3000.into()), ("down".into(), 5000.into())]);
        assert!(of("a")[2]["error"].as_str().unwrap().contains('y') && of("b").is_empty());
        for second in 6..200 {
            note("a", if second % 2 == 0 { BackendState::Idle } else { BackendState::Ready }, second);
        }
        assert_eq!((of("a").len(), of("a")[49]["atMs"].clone()), (KEPT, 199_000.into()));
        note("b", BackendState::Idle, 200);
        assert!(of("a").is_empty() && of("b").len() == 1);
    }
}
