//! Progress of 2025-11-25 tasks after the answers to the calls that made them.
//!
//! A call's progress token stays valid as long as its task (2025-11-25 basic/utilities/tasks, Task
//! Progress Notifications). A server sends the progress where it can: on the stream of a GET, or on
//! a request's stream. Of these, `tasks/result` stays open. The client gets it on its own GET
//! stream, or else on the stream of its `tasks/result`, with its own token.

use std::collections::BTreeMap;

use fanlight_canonical::{Caller, ServerMessages, SessionKey};
use fanlight_protocol::Json;
use parking_lot::Mutex;

use super::ProcessNumber;

/// The maximum size in bytes of a client's progress token, and of a task id, that are kept.
const MOST_BYTES: usize = 1024;

/// The tasks whose progress a client wants, and the requests that wait for tasks.
pub(crate) struct TaskProgress {
    limit: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    tasks: BTreeMap<ServerToken, Tracked>,
    waits: BTreeMap<u64, Wait>,
    /// The last number that a task or a request has got.
    last: u64,
}

/// A progress token that a server got. It is valid on that connection only; on another one it may
/// belong to another client.
pub(crate) type ServerToken = (ProcessNumber, i64);

/// A task, or a call that may make one.
struct Tracked {
    /// The entry with the lowest number is the oldest.
    number: u64,
    caller: Caller,
    /// The client's token.
    token: Json,
    /// `None` until the call is answered.
    task: Option<String>,
}

/// A running `tasks/result`.
struct Wait {
    caller: Caller,
    task: String,
    /// The token of the call that made the task, if the client does not know about the task.
    continues: Option<ServerToken>,
    messages: ServerMessages,
}

/// The destination of progress that belongs to no running call.
pub(super) enum ProgressTarget {
    /// A running call that continues the token's call.
    Call(ServerMessages),
    /// A client, under its own token.
    Client {
        caller: Caller,
        token: Json,
        /// The channel of the client's `tasks/result` for the task, if that is running.
        waiting: Option<ServerMessages>,
    },
}

/// A call that may make a task. Dropping this forgets the progress, unless the call has made a
/// task.
pub(crate) struct ExpectedTask<'a> {
    progress: &'a TaskProgress,
    token: ServerToken,
    is_made: bool,
}

/// A running `tasks/result`, until this is dropped.
pub(crate) struct WaitGuard<'a> {
    progress: &'a TaskProgress,
    number: u64,
}

impl TaskProgress {
    /// Tracks at most `limit` tasks; above that, the oldest is forgotten.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            table: Mutex::default(),
        }
    }

    /// Registers a call of `caller` that may make a task. `sent` is the token for the server,
    /// `token` the client's own.
    pub(crate) fn expect(
        &self,
        sent: ServerToken,
        caller: &Caller,
        token: &Json,
    ) -> Option<ExpectedTask<'_>> {
        if token.bytes().len() > MOST_BYTES {
            return None;
        }
        let mut table = self.table.lock();
        while table.tasks.len() >= self.limit {
            let oldest = table
                .tasks
                .iter()
                .min_by_key(|(_, known)| known.number)
                .map(|(sent, _)| *sent);
            oldest.map(|sent| table.tasks.remove(&sent));
        }
        table.last += 1;
        let number = table.last;
        table.tasks.insert(
            sent,
            Tracked {
                number,
                caller: caller.clone(),
                token: token.detached(),
                task: None,
            },
        );
        Some(ExpectedTask {
            progress: self,
            token: sent,
            is_made: false,
        })
    }

    /// Registers a `tasks/result` of `caller`. `continues` is the token of the call that made the
    /// task, if the client does not know about the task.
    pub(crate) fn wait(
        &self,
        caller: &Caller,
        task: String,
        continues: Option<ServerToken>,
        messages: &ServerMessages,
    ) -> WaitGuard<'_> {
        let mut table = self.table.lock();
        table.last += 1;
        let number = table.last;
        table.waits.insert(
            number,
            Wait {
                caller: caller.clone(),
                task,
                continues,
                messages: messages.clone(),
            },
        );
        WaitGuard {
            progress: self,
            number,
        }
    }

    /// Removes a client's task that has ended.
    pub(crate) fn ended(&self, caller: &Caller, task: &str) {
        self.table
            .lock()
            .tasks
            .retain(|_, known| known.task.as_deref() != Some(task) || known.caller != *caller);
    }

    pub(super) fn end_session(&self, session: SessionKey) {
        self.table
            .lock()
            .tasks
            .retain(|_, known| known.caller.session() != Some(session));
    }

    /// The destination of progress with this token.
    pub(super) fn target(&self, token: ServerToken) -> Option<ProgressTarget> {
        let table = self.table.lock();
        if let Some(wait) = table
            .waits
            .values()
            .find(|wait| wait.continues == Some(token))
        {
            return Some(ProgressTarget::Call(wait.messages.clone()));
        }
        let Tracked {
            caller,
            token,
            task,
            number: _,
        } = table.tasks.get(&token)?;
        let waits = |wait: &&Wait| task.as_ref() == Some(&wait.task) && wait.caller == *caller;
        Some(ProgressTarget::Client {
            caller: caller.clone(),
            token: token.clone(),
            waiting: table
                .waits
                .values()
                .find(waits)
                .map(|wait| wait.messages.clone()),
        })
    }
}

impl ExpectedTask<'_> {
    /// Records the task that answered the call.
    pub(crate) fn made(mut self, task: &str) {
        if task.len() <= MOST_BYTES
            && let Some(known) = self.progress.table.lock().tasks.get_mut(&self.token)
        {
            known.task = Some(task.to_owned());
            self.is_made = true;
        }
    }
}

impl Drop for ExpectedTask<'_> {
    fn drop(&mut self) {
        if !self.is_made {
            self.progress.table.lock().tasks.remove(&self.token);
        }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.progress.table.lock().waits.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fanlight_canonical::Principal;

    use super::*;
    use crate::subscriptions::joint_updates::JointUpdates;

    const BASE: ProcessNumber = ProcessNumber::BASE;

    fn caller(session: u64) -> Caller {
        Caller::session_of(Principal::anonymous(), SessionKey(session))
    }

    /// The client's token for the progress, and whether its `tasks/result` can get it.
    fn target(progress: &TaskProgress, token: i64) -> Option<(String, bool)> {
        match progress.target((BASE, token))? {
            ProgressTarget::Client { token, waiting, .. } => {
                Some((token.as_text().to_owned(), waiting.is_some()))
            }
            ProgressTarget::Call(_) => Some((String::new(), true)),
        }
    }

    #[test]
    fn progress_is_the_clients_from_the_call_until_the_task_ends() {
        let (progress, token) = (TaskProgress::new(8), Json::literal(r#""t""#));
        let expected = progress.expect((BASE, 5), &caller(1), &token).unwrap();
        assert_eq!(
            target(&progress, 5),
            Some((r#""t""#.to_owned(), false)),
            "before the answer is taken"
        );
        expected.made("task");
        let messages = ServerMessages::discard();
        for (session, task, waits) in [(1, "other", false), (2, "task", false), (1, "task", true)] {
            let _wait = progress.wait(&caller(session), task.to_owned(), None, &messages);
            assert_eq!(
                target(&progress, 5),
                Some((r#""t""#.to_owned(), waits)),
                "{session} {task}"
            );
        }
        progress.ended(&caller(2), "task");
        assert!(target(&progress, 5).is_some(), "another client's task");
        progress.ended(&caller(1), "task");
        assert!(target(&progress, 5).is_none());
    }

    #[test]
    fn progress_of_calls_without_a_task_and_of_ended_sessions_is_forgotten() {
        let (progress, token) = (TaskProgress::new(8), Json::literal("1"));
        drop(progress.expect((BASE, 5), &caller(1), &token));
        assert!(target(&progress, 5).is_none());
        progress
            .expect((BASE, 6), &caller(1), &token)
            .unwrap()
            .made("task");
        progress.end_session(SessionKey(1));
        assert!(target(&progress, 6).is_none());
    }

    #[test]
    fn progress_continues_on_the_call_of_a_client_that_knows_no_tasks() {
        let progress = TaskProgress::new(8);
        let wait = progress.wait(
            &caller(1),
            "task".to_owned(),
            Some((BASE, 5)),
            &ServerMessages::discard(),
        );
        assert!(matches!(
            progress.target((BASE, 5)),
            Some(ProgressTarget::Call(_))
        ));
        drop(wait);
        assert!(progress.target((BASE, 5)).is_none());
    }

    /// The server of one connection cannot send progress to the client of another.
    #[test]
    fn token_means_nothing_on_another_connection() {
        let (progress, joint) = (TaskProgress::new(8), JointUpdates::new(Duration::ZERO));
        let (ann, bob) = (joint.next_process(), joint.next_process());
        let told = |process| match progress.target((process, 1)) {
            Some(ProgressTarget::Client { caller, .. }) => caller.session(),
            Some(ProgressTarget::Call(_)) | None => None,
        };
        progress
            .expect((ann, 1), &caller(1), &Json::literal("1"))
            .unwrap()
            .made("task");
        assert_eq!(
            [ann, bob, BASE].map(told),
            [Some(SessionKey(1)), None, None]
        );
        let of_bob = progress.expect((bob, 1), &caller(2), &Json::literal("1"));
        assert_eq!(
            [ann, bob, BASE].map(told),
            [Some(SessionKey(1)), Some(SessionKey(2)), None]
        );
        drop(of_bob);
        let _wait = progress.wait(
            &caller(2),
            "task".to_owned(),
            Some((bob, 1)),
            &ServerMessages::discard(),
        );
        assert_eq!(told(ann), Some(SessionKey(1)));
    }

    #[test]
    fn tasks_are_bounded() {
        let (progress, token) = (TaskProgress::new(2), Json::literal("1"));
        for number in [2, 1, 3] {
            progress
                .expect((BASE, number), &caller(1), &token)
                .unwrap()
                .made(&number.to_string());
        }
        assert!(
            target(&progress, 2).is_none()
                && target(&progress, 1).is_some()
                && target(&progress, 3).is_some()
        );
        let long = Json::string(&"x".repeat(MOST_BYTES));
        assert!(progress.expect((BASE, 9), &caller(1), &long).is_none());
    }
}
