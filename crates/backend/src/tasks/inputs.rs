//! The `inputRequests` of a modern server's task. Each becomes a server request to the client. When
//! all open ones are answered, the answers are sent together, since a server need not accept them
//! one by one (the tasks extension, Task Update Requests).

use std::collections::HashSet;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{CallContext, ServerMessage, ServerMessages, ServerRequest};
use fanlight_protocol::{Json, Method, MissingCapability, ObjectBuilder, Response, RpcError, code};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::translate::with_related_task;

/// The server requests of one task.
pub(super) struct Inputs<'a> {
    context: &'a CallContext,
    messages: &'a ServerMessages,
    /// The task that each request names, if the client has tasks.
    related: Option<&'a Json>,
    /// The time limit for each answer of the client.
    limit: Duration,
    /// The maximum number of server requests during one wait.
    most: usize,
    /// The keys asked so far. A key is unique over a task's life, and asked once.
    seen: HashSet<String>,
    open: FuturesUnordered<BoxFuture<'static, Answered>>,
    answers: Vec<(Json, Json)>,
}

/// Selects, among calls that wait for the same task, the one whose client answers the server
/// requests. The selection ends when this is dropped.
pub(super) struct AnsweringGuard {
    answering: Arc<Mutex<HashSet<String>>>,
    task: String,
}

impl AnsweringGuard {
    /// Selects the caller; `None` if another call is selected.
    pub(super) fn acquire(answering: &Arc<Mutex<HashSet<String>>>, task: &Json) -> Option<Self> {
        let task = task.to_str()?;
        let is_first = answering.lock().insert(task.clone());
        is_first.then(|| Self {
            answering: Arc::clone(answering),
            task,
        })
    }
}

impl Drop for AnsweringGuard {
    fn drop(&mut self) {
        self.answering.lock().remove(&self.task);
    }
}

/// The outcome of a server request.
pub(super) struct Answered {
    key: Json,
    /// The client's result; or the reason why there is none, and the client's error.
    outcome: Result<Json, (String, Option<Json>)>,
}

impl<'a> Inputs<'a> {
    pub(super) fn new(
        context: &'a CallContext,
        messages: &'a ServerMessages,
        related: Option<&'a Json>,
        (limit, most): (Duration, usize),
    ) -> Self {
        Self {
            context,
            messages,
            related,
            limit,
            most,
            seen: HashSet::new(),
            open: FuturesUnordered::new(),
            answers: Vec::new(),
        }
    }

    /// Sends the unsent requests in `inputRequests`. At the limit, returns the answer to the call.
    pub(super) async fn ask(&mut self, task: &Json) -> Result<(), Response> {
        let Some(requests) = task.get("inputRequests") else {
            return Ok(());
        };
        for member in requests.members() {
            let key = requests.slice(member.key.clone());
            if !member
                .name(&requests)
                .is_some_and(|name| self.seen.insert(name))
            {
                continue;
            }
            if self.seen.len() > self.most {
                let message = format!("the task asks for more than {} inputs", self.most);
                return Err(Response::from_error(&RpcError::new(
                    code::INTERNAL,
                    message,
                )));
            }
            let request = requests.slice(member.value);
            let outcome = self.send(&request).await;
            let limit = self.limit;
            self.open.push(match outcome {
                Ok(answer) => Box::pin(async move {
                    Answered {
                        key,
                        outcome: await_answer(answer, limit).await,
                    }
                }),
                Err(why) => Box::pin(ready(Answered {
                    key,
                    outcome: Err((why, None)),
                })),
            });
        }
        Ok(())
    }

    async fn send(&mut self, request: &Json) -> Result<oneshot::Receiver<Response>, String> {
        let method = request.text_at("method").ok_or("it names no method")?;
        let method = Method::from_name(&method);
        let params = request.get("params").filter(Json::is_object);
        if let Some(missing) = MissingCapability::for_server_request(
            &self.context.capabilities,
            &method,
            params.as_ref(),
        ) {
            return Err(missing.to_error().message);
        }
        let params = match self.related {
            Some(id) => Some(with_related_task(
                &params.unwrap_or_else(Json::empty_object),
                id,
            )),
            None => params,
        };
        let (answer, receiver) = oneshot::channel();
        let (deadline, trace) = (Instant::now() + self.limit, self.context.trace.clone());
        let request = ServerRequest {
            method,
            params,
            trace,
            answer,
            notices: None,
            deadline,
        };
        let sent = self.messages.send(ServerMessage::Request(request));
        timeout(self.limit, sent)
            .await
            .map_err(|_| "the client does not keep up")?;
        Ok(receiver)
    }

    /// Waits for the next answer; never resolves if nothing is open. Cancel safe.
    pub(super) async fn next(&mut self) -> Answered {
        match self.open.next().await {
            Some(answered) => answered,
            None => pending().await,
        }
    }

    /// Records an answer. If the client has none, returns the answer to the call.
    pub(super) fn take(&mut self, answered: Answered) -> Result<(), Response> {
        let Answered { key, outcome } = answered;
        match outcome {
            Ok(result) => {
                self.answers.push((key, result));
                Ok(())
            }
            Err((why, error)) => {
                let name = crate::log::excerpt(key.bytes(), 80);
                let data = ObjectBuilder::new()
                    .member("key", &key)
                    .optional("error", error.as_ref())
                    .finish();
                let message = format!("no input {name} for the task: {why}");
                let refusal = RpcError::new(code::INTERNAL, message).with_data(data);
                Err(Response::from_error(&refusal))
            }
        }
    }

    /// The `inputResponses`, once all open requests are answered; kept until [`Self::clear_answers`].
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

    /// Removes the responses, which the server has received.
    pub(super) fn clear_answers(&mut self) {
        self.answers.clear();
    }
}

async fn await_answer(
    answer: oneshot::Receiver<Response>,
    limit: Duration,
) -> Result<Json, (String, Option<Json>)> {
    match timeout(limit, answer).await {
        Ok(Ok(response)) => match response.error() {
            None => Ok(response.body()),
            Some(error) => Err(("the client answered with an error".into(), Some(error))),
        },
        Ok(Err(_)) => Err((
            "the client takes no server requests or has gone".into(),
            None,
        )),
        Err(_) => Err((format!("the client did not answer within {limit:?}"), None)),
    }
}
