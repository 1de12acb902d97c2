//! A modern server's wish for input, made into questions that a legacy client understands.
//!
//! A legacy client waits for one answer to its call. So the rounds are made here: each of the
//! `inputRequests` goes to the client as a question of the server, and once all are answered the
//! call is made again with the answers. To whoever drives the call it is one call all along.
//!
//! Source: 2026-07-28 basic/patterns/mrtr, Client Requirements. Must not know: transports.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fanlight_canonical::{Call, ServerMessage, ServerRequest};
use fanlight_protocol::capability::MissingCapability;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, Response, RpcError, code};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::fault;
use crate::input::{self, InputRequest, InputRequired};
use fanlight_canonical::Core;

/// How far the rounds of one call may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How often input may be asked for.
    pub(crate) rounds: usize,
    /// How long the client may take over the questions of one round.
    pub(crate) timeout: Duration,
}

/// Answers `call`, in as many rounds as it takes within `limits`.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has room for the call twice")]
pub(crate) fn handle<C: Core>(
    core: Arc<C>,
    mut call: Call,
    limits: Limits,
) -> impl Future<Output = Response> + Send + 'static {
    async move {
        let first = call.params.clone();
        let mut rounds = 0;
        loop {
            let response = core.handle(call.clone()).await;
            let Some(required) = InputRequired::of(&response) else { return response };
            if rounds == limits.rounds {
                return Response::from_error(&too_many(limits.rounds));
            }
            rounds += 1;
            // Few calls come to this.
            match Box::pin(answers(&call, &required, limits.timeout)).await {
                Ok(answers) => {
                    call.params = Some(input::next_params(first.as_ref(), &answers, required.state.as_ref()));
                }
                Err(error) => return Response::from_error(&error),
            }
        }
    }
}

/// A question that the client has been asked.
struct Asked {
    key: Json,
    method: Method,
    answer: oneshot::Receiver<Response>,
    result: Option<Json>,
}

/// Asks for everything at once; the first refusal ends it.
async fn answers(call: &Call, required: &InputRequired, limit: Duration) -> Result<Vec<(Json, Json)>, RpcError> {
    if required.is_empty() {
        return Err(broken("it wants input, but says neither which nor how to go on"));
    }
    let requests =
        required.requests().map_err(|key| broken(&format!("its input request {} is no request", named(&key))))?;
    for InputRequest { key, method, params } in &requests {
        if let Some(missing) =
            MissingCapability::for_server_request(&call.context.capabilities, method, params.as_ref())
        {
            return Err(unanswered(key, method, &missing.to_error().message));
        }
    }
    let mut asked = Vec::with_capacity(requests.len());
    let deadline = Instant::now() + limit;
    for InputRequest { key, method, params } in requests {
        let (sender, answer) = oneshot::channel();
        let trace = call.context.trace.clone();
        let request = ServerRequest { method: method.clone(), params, trace, answer: sender, deadline };
        call.messages.send(ServerMessage::Request(request)).await;
        asked.push(Asked { key, method, answer, result: None });
    }
    let all = poll_fn(|cx| {
        let mut waiting = false;
        for one in asked.iter_mut().filter(|one| one.result.is_none()) {
            match Pin::new(&mut one.answer).poll(cx) {
                Poll::Ready(answer) => one.result = Some(one.accept(answer.ok())?),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(Ok(())) }
    });
    match timeout_at(deadline, all).await {
        Ok(all) => all?,
        Err(_) => return Err(RpcError::new(code::INTERNAL, format!("the client gave no input within {limit:?}"))),
    }
    Ok(asked.into_iter().filter_map(|one| Some((one.key, one.result?))).collect())
}

impl Asked {
    fn accept(&self, answer: Option<Response>) -> Result<Json, RpcError> {
        let Some(answer) = answer else {
            return Err(unanswered(&self.key, &self.method, "the client cannot be asked during this call"));
        };
        let Some(error) = answer.error() else { return Ok(answer.body()) };
        let mut data = ObjectBuilder::new();
        data.member("input", &self.key).member("error", &error);
        Err(unanswered(&self.key, &self.method, "the client refused").with_data(data.finish()))
    }
}

fn unanswered(key: &Json, method: &Method, reason: &str) -> RpcError {
    let (key, method) = (named(key), fault::shown(method.as_str()));
    RpcError::new(code::INTERNAL, format!("the server needs the input {key} ({method}) to go on, and {reason}"))
}

fn named(key: &Json) -> String {
    fault::shown(&key.as_str().unwrap_or_else(|| key.as_text().into()))
}

fn too_many(rounds: usize) -> RpcError {
    RpcError::new(code::INTERNAL, format!("the server asked for input more than {rounds} times, the limit here"))
}

fn broken(reason: &str) -> RpcError {
    RpcError::new(code::INTERNAL, format!("the server's answer cannot be used: {reason}"))
}
