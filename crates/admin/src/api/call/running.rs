//! Attended calls of operators, and the questions that wait for their answers.
//!
//! A call has a random id, which only its operator gets. In addition, other operators cannot use
//! it.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_protocol::Json;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::operator::{Digest, Operator};

/// The length of an id in bytes.
const ID: usize = 16;

/// The limit of open questions of a call. There is no option: a person answers one after the other.
const MOST_QUESTIONS: usize = 16;

/// The attended calls of operators.
#[derive(Clone, Default)]
pub(crate) struct RunningCalls(Arc<Mutex<HashMap<String, Entry>>>);

struct Entry {
    owner: Owner,
    cancelled: CancellationToken,
    questions: HashMap<u64, oneshot::Sender<Json>>,
}

/// The owner of a call: a session of the page, or everybody with the same credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Session(Digest),
    Shown {
        source: &'static str,
        name: Arc<str>,
    },
}

impl Owner {
    pub(super) fn from_operator(operator: &Operator) -> Self {
        match &operator.session {
            Some(session) => Self::Session(session.key),
            None => Self::Shown {
                source: operator.source,
                name: Arc::clone(&operator.name),
            },
        }
    }
}

/// The reason why a call cannot be attended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// Its operator has too many running calls.
    TooMany,
    /// The system has no random numbers for an id.
    NoRandomNumbers,
}

impl RunningCalls {
    /// Begins a call, if this owner has fewer than `most`.
    pub(super) fn begin(&self, owner: Owner, most: usize) -> Result<RunningCall, NotBegun> {
        let mut bytes = [0; ID];
        getrandom::fill(&mut bytes).map_err(|_| NotBegun::NoRandomNumbers)?;
        let id = URL_SAFE_NO_PAD.encode(bytes);
        let cancelled = CancellationToken::new();
        let mut table = self.0.lock();
        if table.values().filter(|entry| entry.owner == owner).count() >= most {
            return Err(NotBegun::TooMany);
        }
        table.insert(
            id.clone(),
            Entry {
                owner,
                cancelled: cancelled.clone(),
                questions: HashMap::new(),
            },
        );
        Ok(RunningCall {
            calls: self.clone(),
            id,
            cancelled,
            asked: 0,
        })
    }

    /// Answers a question. Returns false if this owner has no such open question.
    pub(super) fn answer(&self, id: &str, owner: &Owner, question: u64, answer: Json) -> bool {
        let mut table = self.0.lock();
        let entry = table.get_mut(id).filter(|entry| entry.owner == *owner);
        let waiting = entry.and_then(|entry| entry.questions.remove(&question));
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// Cancels a call. Returns false if this owner has no such call.
    pub(super) fn cancel(&self, id: &str, owner: &Owner) -> bool {
        let table = self.0.lock();
        let entry = table.get(id).filter(|entry| entry.owner == *owner);
        entry.inspect(|entry| entry.cancelled.cancel()).is_some()
    }
}

/// A running call, forgotten when dropped.
pub(super) struct RunningCall {
    calls: RunningCalls,
    pub(super) id: String,
    /// Cancelled when the operator cancels the call.
    pub(super) cancelled: CancellationToken,
    asked: u64,
}

/// A question that waits for its answer, and its number within the call.
pub(super) struct OpenQuestion {
    pub(super) number: u64,
    pub(super) answer: oneshot::Receiver<Json>,
}

impl RunningCall {
    /// Opens a question; `None` if too many are open.
    pub(super) fn open_question(&mut self) -> Option<OpenQuestion> {
        let mut table = self.calls.0.lock();
        let questions = &mut table.get_mut(&self.id)?.questions;
        questions.retain(|_, waiting| !waiting.is_closed());
        if questions.len() >= MOST_QUESTIONS {
            return None;
        }
        self.asked += 1;
        let (sender, answer) = oneshot::channel();
        questions.insert(self.asked, sender);
        Some(OpenQuestion {
            number: self.asked,
            answer,
        })
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.calls.0.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        Owner::Shown {
            source: "key",
            name: name.into(),
        }
    }

    #[tokio::test]
    async fn question_is_answered_once_and_by_the_owner_of_its_call() {
        let calls = RunningCalls::default();
        let mut call = calls.begin(owner("ann"), 2).ok().unwrap();
        let OpenQuestion { number, answer } = call.open_question().unwrap();
        let given = || Json::literal("{}");
        assert!(
            !calls.answer(&call.id, &owner("bob"), number, given()),
            "another operator"
        );
        assert!(
            !calls.answer("other", &owner("ann"), number, given()),
            "another call"
        );
        assert!(
            !calls.answer(&call.id, &owner("ann"), number + 1, given()),
            "another question"
        );
        assert!(!calls.cancel(&call.id, &owner("bob")) && !call.cancelled.is_cancelled());
        assert!(calls.answer(&call.id, &owner("ann"), number, given()));
        assert!(
            !calls.answer(&call.id, &owner("ann"), number, given()),
            "again"
        );
        assert_eq!(answer.await.unwrap(), given());
        let session = Owner::Session(Digest::compute(b"one"));
        assert!(session != Owner::Session(Digest::compute(b"two")) && session != owner("ann"));
    }

    #[tokio::test]
    async fn calls_of_one_operator_are_limited_and_end_when_dropped() {
        let calls = RunningCalls::default();
        let first = calls.begin(owner("ann"), 1).ok().unwrap();
        assert_eq!(calls.begin(owner("ann"), 1).err(), Some(NotBegun::TooMany));
        let other = calls.begin(owner("bob"), 1).ok().unwrap();
        assert!(first.id != other.id && first.id.len() > 20);
        assert!(calls.cancel(&first.id, &owner("ann")) && first.cancelled.is_cancelled());
        drop(first);
        assert!(calls.begin(owner("ann"), 1).is_ok());
        assert_eq!(
            calls.0.lock().len(),
            1,
            "only the last is left, whose guard is dropped"
        );
    }

    #[tokio::test]
    async fn open_questions_of_one_call_are_limited() {
        let calls = RunningCalls::default();
        let mut call = calls.begin(owner("ann"), 1).ok().unwrap();
        let mut open: Vec<_> = (0..MOST_QUESTIONS)
            .map(|_| call.open_question().unwrap())
            .collect();
        assert!(call.open_question().is_none());
        open.pop();
        assert!(
            call.open_question().is_some(),
            "one that nothing waits for any more makes way"
        );
    }
}
