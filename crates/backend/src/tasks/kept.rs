//! Results that a modern server gave at once although a client of 2025-11-25 wanted a task: that
//! dialect answers with a task then, so one is made here, which has ended already.
//!
//! Its id is unguessable: whoever knows it may have the result, as with any task of a server that
//! has no authorization (2025-11-25 basic/utilities/tasks, Task Isolation and Access Control).
//!
//! Must not know: what the result says.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response, code};

use super::translate::with_related_task;
use super::{TaskBridge, no_such_method, pace, refusal};
use fanlight_canonical::Call;

/// What ids of tasks begin with that are kept here.
const PREFIX: &str = "fanlight-task-";
/// Bytes of an id that are random.
const RANDOM: usize = 18;
/// What a client is told to wait before it asks: there is nothing to wait for.
const POLL_INTERVAL: i64 = 50;

/// A result kept as a task.
#[derive(Debug)]
pub(super) struct Kept {
    id: String,
    result: Json,
    created: String,
    ttl: Duration,
}

impl TaskBridge {
    /// Keeps the result of a call as a task; the answer that creates it. `None` if that cannot be
    /// done: then the result itself is the answer.
    pub(super) fn keep(&self, call: &Call, result: &Json) -> Option<Response> {
        let ttl = call.params.as_ref().and_then(|params| params.get("task")?.get("ttl"));
        let kept = Arc::new(Kept {
            id: new_id()?,
            result: result.detached(),
            created: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            ttl: self.lifetime(ttl.filter(|ttl| pace::milliseconds(ttl).is_some_and(|ttl| !ttl.is_zero()))),
        });
        let bytes = result.bytes().len() + kept.id.len();
        if !self.kept.insert(&kept.id, Arc::clone(&kept), bytes, kept.ttl) {
            return None;
        }
        let mut created = ObjectBuilder::new();
        // A task begins as working (Task Status Lifecycle); it has ended when it is asked after.
        created.member("task", &kept.task("working"));
        Some(Response::from_result(&created.finish()))
    }
}

impl Kept {
    /// Whether a task of this id can only be one that is kept here.
    pub(super) fn has_id(id: &str) -> bool {
        id.starts_with(PREFIX)
    }

    /// Serves a request about it.
    pub(super) fn serve(&self, method: &Method) -> Response {
        match method {
            Method::GetTask => Response::from_result(&self.ended()),
            Method::TaskResult => Response::from_result(&with_related_task(&self.result, &Json::string(&self.id))),
            Method::CancelTask => {
                let message = format!("the task has ended already: it is {}", self.status());
                refusal(code::INVALID_PARAMS, message)
            }
            other => no_such_method(other),
        }
    }

    /// It as a `Task`.
    pub(super) fn ended(&self) -> Json {
        self.task(self.status())
    }

    /// A tool's own error counts as the task's failure (Task Status).
    fn status(&self) -> &'static str {
        let is_error = self.result.get("isError").is_some_and(|is_error| is_error.is_true());
        if is_error { "failed" } else { "completed" }
    }

    fn task(&self, status: &str) -> Json {
        let mut task = ObjectBuilder::new();
        task.string("taskId", &self.id)
            .string("status", status)
            .string("createdAt", &self.created)
            .string("lastUpdatedAt", &self.created)
            .integer("ttl", i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX))
            .integer("pollInterval", POLL_INTERVAL);
        task.finish()
    }
}

fn new_id() -> Option<String> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).ok()?;
    Some(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}
