//! What a modern server's task wants of the client: each of `inputRequests` becomes a question,
//! and when all that are open have been answered, their answers go back at once (a server need not
//! take them one by one: the tasks extension, Task Update Requests).
//!
//! Must not know: how the task is asked after.

use std::collections::HashSet;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::translate::with_related_task;
use fanlight_canonical::{CallContext, ServerMessage, ServerMessages, ServerRequest};

/// Questions over the life of one wait.
const MOST: usize = 256;

/// The questions of one task.
pub(super) struct Inputs<'a> {
    context: &'a CallContext,
    messages: &'a ServerMessages,
    /// The task that each question names, if the client knows of tasks.
    related: Option<&'a Json>,
    /// How long the client may take for one.
    limit: Duration,
    /// Keys are unique over a task's life: each is asked once.
    seen: HashSet<String>,
    open: FuturesUnordered<BoxFuture<'static, Answered>>,
    answers: Vec<(Json, Json)>,
}

/// The right to ask what a task wants to know, given up by dropping it. Of several that wait for one
/// task at the same time one alone has it, so that nobody is asked anything twice.
pub(super) struct Asker {
    asked: Arc<Mutex<HashSet<String>>>,
    task: String,
}

impl Asker {
    /// The right, unless another has it.
    pub(super) fn of(asked: &Arc<Mutex<HashSet<String>>>, task: &Json) -> Option<Self> {
        let task = task.as_str()?.into_owned();
        let first = asked.lock().unwrap_or_else(PoisonError::into_inner).insert(task.clone());
        first.then(|| Self { asked: Arc::clone(asked), task })
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.task);
    }
}

/// What came of a question.
pub(super) struct Answered {
    key: Json,
    /// The client's result, or why there is none and what the client said.
    outcome: Result<Json, (String, Option<Json>)>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(
        context: &'a CallContext,
        messages: &'a ServerMessages,
        related: Option<&'a Json>,
        limit: Duration,
    ) -> Self {
        let (seen, open, answers) = (HashSet::new(), FuturesUnordered::new(), Vec::new());
        Self { context, messages, related, limit, seen, open, answers }
    }

    /// Asks whatever has not been asked yet of the `inputRequests` of a task; the answer for the
    /// client if that cannot be done.
    pub(super) async fn ask(&mut self, task: &Json) -> Result<(), Response> {
        let Some(requests) = task.get("inputRequests") else { return Ok(()) };
        for member in requests.members() {
            let key = requests.slice(member.key.clone());
            if !member.name(&requests).is_some_and(|name| self.seen.insert(name)) {
                continue;
            }
            if self.seen.len() > MOST {
                let message = format!("the task asks for more than {MOST} inputs");
                return Err(Response::from_error(&RpcError::new(code::INTERNAL, message)));
            }
            let request = requests.slice(member.value);
            let outcome = self.question(&request).await;
            let limit = self.limit;
            self.open.push(match outcome {
                Ok(answer) => Box::pin(async move { Answered { key, outcome: answered(answer, limit).await } }),
                Err(why) => Box::pin(ready(Answered { key, outcome: Err((why, None)) })),
            });
        }
        Ok(())
    }

    async fn question(&mut self, request: &Json) -> Result<oneshot::Receiver<Response>, String> {
        let method = request.get("method").and_then(|method| Some(Method::from_name(&method.as_str()?)));
        let method = method.ok_or("it names no method")?;
        let params = request.get("params").filter(Json::is_object);
        if let Some(missing) =
            MissingCapability::for_server_request(&self.context.capabilities, &method, params.as_ref())
        {
            return Err(missing.to_error().message);
        }
        let params = match self.related {
            Some(id) => Some(with_related_task(&params.unwrap_or_else(Json::empty_object), id)),
            None => params,
        };
        let (answer, receiver) = oneshot::channel();
        let (deadline, trace) = (Instant::now() + self.limit, self.context.trace.clone());
        let request = ServerRequest { method, params, trace, answer, deadline };
        let sent = self.messages.send(ServerMessage::Request(request));
        timeout(self.limit, sent).await.map_err(|_| "the client does not keep up")?;
        Ok(receiver)
    }

    /// Waits for the next answer; for ever if nothing is open. Can be dropped and called again.
    pub(super) async fn next(&mut self) -> Answered {
        match self.open.next().await {
            Some(answered) => answered,
            None => pending().await,
        }
    }

    /// Takes an answer; the answer for the client if it is none.
    pub(super) fn take(&mut self, answered: Answered) -> Result<(), Response> {
        let Answered { key, outcome } = answered;
        match outcome {
            Ok(result) => {
                self.answers.push((key, result));
                Ok(())
            }
            Err((why, error)) => {
                let name = crate::log::excerpt(key.bytes(), 80);
                let mut data = ObjectBuilder::new();
                data.member("key", &key);
                if let Some(error) = error {
                    data.member("error", &error);
                }
                let mut refusal = RpcError::new(code::INTERNAL, format!("no input {name} for the task: {why}"));
                refusal.data = Some(data.finish());
                Err(Response::from_error(&refusal))
            }
        }
    }

    /// `inputResponses`, once everything that is open has been answered. Stays until [`Self::sent`].
    pub(super) fn responses(&self) -> Option<Json> {
        if self.answers.is_empty() || !self.open.is_empty() {
            return None;
        }
        let mut responses = ObjectBuilder::new();
        for (key, result) in &self.answers {
            responses.raw_member(key, result);
        }
        Some(responses.finish())
    }

    /// The server has the responses.
    pub(super) fn sent(&mut self) {
        self.answers.clear();
    }
}

async fn answered(answer: oneshot::Receiver<Response>, limit: Duration) -> Result<Json, (String, Option<Json>)> {
    match timeout(limit, answer).await {
        Ok(Ok(response)) => match response.error() {
            None => Ok(response.body()),
            Some(error) => Err(("the client answered with an error".into(), Some(error))),
        },
        Ok(Err(_)) => Err(("the client takes no questions or has gone".into(), None)),
        Err(_) => Err((format!("the client did not answer within {limit:?}"), None)),
    }
}
