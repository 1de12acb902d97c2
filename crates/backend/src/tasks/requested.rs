//! Clients of 2025-11-25 at a server with the tasks extension.
//!
//! `tasks/list` does not exist there: it is answered from the tasks that this client is known to
//! have, which are those made or asked after by its session since Fanlight was started.
//!
//! Must not know: transports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_protocol::{Json, Method, Response, code};
use tokio::time::sleep;

use super::await_extension::ExtensionWait;
use super::kept::Kept;
use super::translate::{Status, created_to_legacy, task_to_legacy, without_task};
use super::{TaskBridge, created, declaring, no_such_method, no_such_task, quietly, refusal, task_id, task_params};
use crate::deadline::CallProgress;
use fanlight_canonical::BackendError;
use fanlight_canonical::{Call, CallContext, Caller, ServerMessages};

/// Tasks on one page of a list.
const PAGE: usize = 20;
/// A modern server acknowledges a cancellation before it has taken effect; a legacy client is told
/// of the task once it has. How often that is looked for, and after which delay.
const CANCEL_LOOKS: u32 = 10;
const CANCEL_LOOK: Duration = Duration::from_millis(100);

/// A client's task, for its list.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    client: Caller,
    /// Rises from task to task: the order of the list.
    number: u64,
}

static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl TaskBridge {
    /// A tool call that is to become a task. The server decides; whatever it answers, the client
    /// gets a task.
    pub(super) async fn create_requested(&self, call: &Call, course: &CallProgress) -> Result<Response, BackendError> {
        let plain = Call {
            params: call.params.as_ref().map(without_task),
            context: Arc::new(declaring(&call.context)),
            ..call.clone()
        };
        let response = self.caller.exchange(&plain, course).await?;
        let Some(result) = response.result() else { return Ok(response) };
        if let Some(id) = created(&result) {
            self.own(&call.context, &id, result.get("ttlMs"));
            if let Some(name) = id.as_str() {
                self.note(&call.context, &name, &result);
            }
            return Ok(response.with_body(&created_to_legacy(&result)));
        }
        let kind = result.get("resultType");
        if kind.as_ref().and_then(Json::as_str).is_some_and(|kind| kind != "complete") {
            // The server wants input before it begins.
            return Ok(response);
        }
        match self.keep(call, &result) {
            Some(created) => {
                let id = created.result().and_then(|result| result.get("task")?.get("taskId"));
                if let Some(id) = id {
                    self.own(&call.context, &id, None);
                }
                Ok(created)
            }
            None => Ok(response),
        }
    }

    /// A request about a task.
    pub(super) async fn serve_requested(&self, call: &Call, course: &CallProgress) -> Result<Response, BackendError> {
        if call.method == Method::ListTasks {
            return self.list_owned(call).await;
        }
        let (id, name) = match task_id(call) {
            Ok(id) => id,
            Err(refusal) => return Ok(refusal),
        };
        if Kept::has_id(&name) {
            return Ok(self.kept.get(&name).map_or_else(|| no_such_task(&name), |kept| kept.serve(&call.method)));
        }
        match call.method {
            Method::GetTask => {
                let call = Call { context: Arc::new(declaring(&call.context)), ..call.clone() };
                let response = self.caller.exchange(&call, course).await?;
                let Some(task) = response.result() else {
                    if response.error_code() == Some(code::INVALID_PARAMS) {
                        self.hub.end_task(&name);
                    }
                    return Ok(response);
                };
                self.own(&call.context, &id, task.get("ttlMs"));
                self.note(&call.context, &name, &task);
                Ok(response.with_body(&task_to_legacy(&task)))
            }
            Method::TaskResult => {
                let _permit = self.permit()?;
                let context = Arc::new(quietly(&declaring(&call.context)));
                let (messages, id) = (&call.messages, &id);
                let wait = ExtensionWait { bridge: self, context: &context, messages, id, names_task: true };
                let outcome = self.wait(course, wait.run(None)).await?;
                if outcome.error_code() != Some(code::INVALID_PARAMS) {
                    self.own(&call.context, id, None);
                }
                Ok(outcome)
            }
            Method::CancelTask => self.cancel_requested(call, &id).await,
            _ => Ok(no_such_method(&call.method)),
        }
    }

    async fn cancel_requested(&self, call: &Call, id: &Json) -> Result<Response, BackendError> {
        let (context, nowhere) = (Arc::new(quietly(&declaring(&call.context))), ServerMessages::discard());
        let get = || self.ask(Method::GetTask, task_params(id), &context, &nowhere);
        let before = get().await?;
        let Some(task) = before.result() else { return Ok(before) };
        if Status::of(&task).is_terminal() {
            let status = task_to_legacy(&task).get("status");
            let status = status.as_ref().and_then(Json::as_str).unwrap_or_default();
            return Ok(refusal(code::INVALID_PARAMS, format!("the task has ended already: it is {status}")));
        }
        let params = call.params.clone().unwrap_or_else(Json::empty_object);
        let acknowledged = self.ask(Method::CancelTask, params, &context, &nowhere).await?;
        if acknowledged.is_error() {
            return Ok(acknowledged);
        }
        let mut looks = 0;
        loop {
            let response = get().await?;
            let Some(task) = response.result() else { return Ok(response) };
            looks += 1;
            if Status::of(&task).is_terminal() || looks == CANCEL_LOOKS {
                return Ok(response.with_body(&task_to_legacy(&task)));
            }
            sleep(CANCEL_LOOK).await;
        }
    }

    /// The client's tasks, oldest first. The cursor is the number of the last one listed.
    async fn list_owned(&self, call: &Call) -> Result<Response, BackendError> {
        let after = match call.params.as_ref().and_then(|params| params.get("cursor")) {
            None => 0,
            Some(cursor) => match cursor.as_str().and_then(|cursor| cursor.parse().ok()) {
                Some(after) => after,
                None => return Ok(refusal(code::INVALID_PARAMS, "the cursor is none of this list")),
            },
        };
        let mut owned = self.owned.all();
        owned.retain(|(_, owned)| owned.client == call.context.caller && owned.number > after);
        owned.sort_by_key(|(_, owned)| owned.number);
        let next = (owned.len() > PAGE).then(|| owned.get(PAGE - 1).map(|(_, last)| last.number)).flatten();
        let context = Arc::new(quietly(&declaring(&call.context)));
        let mut tasks = ArrayBuilder::default();
        for (id, _) in owned.iter().take(PAGE) {
            match self.listed(id, &context).await? {
                Some(task) => tasks.push(&task),
                None => continue,
            };
        }
        let mut result = ObjectBuilder::new();
        result.member("tasks", &tasks.finish());
        if let Some(next) = next {
            result.string("nextCursor", &next.to_string());
        }
        Ok(Response::from_result(&result.finish()))
    }

    /// A task for the list, unless it is gone.
    async fn listed(&self, id: &str, context: &Arc<CallContext>) -> Result<Option<Json>, BackendError> {
        if Kept::has_id(id) {
            return Ok(self.kept.get(id).map(|kept| kept.ended()));
        }
        let params = task_params(&Json::string(id));
        let response = self.ask(Method::GetTask, params, context, &ServerMessages::discard()).await?;
        if response.error_code() == Some(code::INVALID_PARAMS) {
            self.owned.remove(id);
        }
        Ok(response.result().map(|task| task_to_legacy(&task)))
    }

    /// Has the client hear of its task for as long as there is something to hear.
    fn note(&self, client: &CallContext, name: &str, task: &Json) {
        match Status::of(task).is_terminal() {
            true => self.hub.end_task(name),
            false => self.hub.own_task(client.session(), name),
        }
    }

    /// Remembers whose a task is.
    fn own(&self, client: &CallContext, id: &Json, ttl: Option<Json>) {
        let Some(id) = id.as_str() else { return };
        if self.owned.touch(&id).is_none() {
            let owned = Owned { client: client.caller.clone(), number: NUMBERS.fetch_add(1, Ordering::Relaxed) };
            self.owned.insert(&id, owned, id.len(), self.lifetime(ttl));
        }
    }
}
