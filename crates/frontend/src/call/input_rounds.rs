//! Rounds of input for a legacy client that calls a modern server.
//!
//! A modern server that needs input answers `input_required`; a legacy client expects one answer to
//! its call. So this module runs the rounds: it sends each of the `inputRequests` to the client as
//! a server request, and repeats the call with all answers. The client sees one call.
//!
//! Source: 2026-07-28 basic/patterns/mrtr, Client Requirements.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fanlight_canonical::{CallContext, ServerMessage, ServerMessages, ServerRequest};
use fanlight_gateway::{Gateway, Operation};
use fanlight_protocol::capability::{ClientCapability, MissingCapability};
use fanlight_protocol::input::{InputRequest, InputRequired};
use fanlight_protocol::json::{Edits, ObjectBuilder};
use fanlight_protocol::message::notification_text;
use fanlight_protocol::method::ELICITATION_COMPLETE;
use fanlight_protocol::{Json, Message, Method, Response, RpcError, code};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::eras::fault;

/// Limits for the rounds of one call.
#[derive(Clone, Debug)]
pub(crate) struct RoundLimits {
    /// The maximum number of rounds.
    pub(crate) rounds: usize,
    /// The maximum time for the answers of one round.
    pub(crate) timeout: Duration,
    /// Cancelling this token ends the wait for answers.
    pub(crate) give_up: CancellationToken,
}

/// Answers `operation` in as many rounds as it needs within `limits`.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an `async fn` holds the operation twice"
)]
pub(crate) fn resolve_input_rounds(
    core: Arc<Gateway>,
    mut operation: Operation,
    messages: ServerMessages,
    limits: RoundLimits,
) -> impl Future<Output = Response> + Send + 'static {
    async move {
        let mut rounds = 0;
        let mut elicitations = UrlElicitations::default();
        loop {
            let response = core.run(&mut operation, messages.clone()).await;
            let required = InputRequired::from_response(&response);
            if !elicitations.is_empty() && !response.is_error() {
                let asked = required
                    .as_ref()
                    .and_then(|required| required.requests().ok())
                    .unwrap_or_default();
                elicitations.complete(&asked, &messages).await;
            }
            let Some(required) = required else {
                return response;
            };
            if rounds == limits.rounds {
                return Response::from_error(&too_many(limits.rounds));
            }
            rounds += 1;
            // Boxed, since few calls need input.
            let answers = answers(
                operation.context(),
                &messages,
                &required,
                &mut elicitations,
                limits.timeout,
            );
            let answers = Box::pin(limits.give_up.run_until_cancelled(answers));
            let answers = answers.await.unwrap_or_else(|| Err(interrupted()));
            // The policy may have changed while the client was asked.
            let answers = answers.and_then(|answers| {
                core.may_go_on(&operation.decided(), operation.context())
                    .map(|()| answers)
            });
            match answers {
                Ok(answers) => operation.answer(&answers, required.state.as_ref()),
                Err(error) => return Response::from_error(&error),
            }
        }
    }
}

/// An input request that the client has not answered yet.
struct OpenInput {
    key: Json,
    method: Method,
    /// The URL, for an elicitation by URL.
    url: Option<Json>,
    answer: oneshot::Receiver<Response>,
    result: Option<Json>,
}

/// Sends all input requests to the client at once; the first refusal ends the round.
async fn answers(
    context: &CallContext,
    messages: &ServerMessages,
    required: &InputRequired,
    elicitations: &mut UrlElicitations,
    limit: Duration,
) -> Result<Vec<(Json, Json)>, RpcError> {
    if required.is_empty() {
        return Err(broken(
            "it asks for input, but has neither input requests nor a state",
        ));
    }
    let mut requests = required
        .requests()
        .map_err(|key| broken(&format!("its input request {} is no request", named(&key))))?;
    for InputRequest {
        key,
        method,
        params,
    } in &requests
    {
        if let Some(missing) =
            MissingCapability::for_server_request(&context.capabilities, method, params.as_ref())
        {
            return Err(unanswered(key, method, &missing.to_error().message));
        }
    }
    let mut open = Vec::with_capacity(requests.len());
    let deadline = Instant::now() + limit;
    for request in &mut requests {
        elicitations.identify(request);
    }
    for request in requests {
        let url = url_of(&request);
        let InputRequest {
            key,
            method,
            params,
        } = request;
        let (sender, answer) = oneshot::channel();
        let request = ServerRequest {
            method: method.clone(),
            params,
            trace: context.trace.clone(),
            answer: sender,
            notices: None,
            deadline,
        };
        messages.send(ServerMessage::Request(request)).await;
        open.push(OpenInput {
            key,
            method,
            url,
            answer,
            result: None,
        });
    }
    let all = poll_fn(|cx| {
        let mut waiting = false;
        for one in open.iter_mut().filter(|one| one.result.is_none()) {
            match Pin::new(&mut one.answer).poll(cx) {
                Poll::Ready(answer) => one.result = Some(one.accept(answer.ok())?),
                Poll::Pending => waiting = true,
            }
        }
        if waiting {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    });
    match timeout_at(deadline, all).await {
        Ok(all) => all?,
        Err(_) => {
            return Err(RpcError::new(
                code::INTERNAL,
                format!("the client gave no input within {limit:?}"),
            ));
        }
    }
    for input in &open {
        if let Some(url) = &input.url {
            elicitations.note_answer(url, input.is_accepted());
        }
    }
    Ok(open
        .into_iter()
        .filter_map(|one| Some((one.key, one.result?)))
        .collect())
}

impl OpenInput {
    /// Whether the user has accepted.
    fn is_accepted(&self) -> bool {
        let action = self.result.as_ref().and_then(|result| result.get("action"));
        action.is_some_and(|action| action.as_str().as_deref() == Some("accept"))
    }

    fn accept(&self, answer: Option<Response>) -> Result<Json, RpcError> {
        let Some(answer) = answer else {
            return Err(unanswered(
                &self.key,
                &self.method,
                "the client cannot be asked during this call",
            ));
        };
        let Some(error) = answer.error() else {
            return Ok(answer.body());
        };
        // The server asked the user, so a failing client becomes "cancel": the dialog was not
        // completed (2026-07-28 client/elicitation, Response Actions).
        if self.method == Method::Elicit {
            return Ok(Json::literal(r#"{"action":"cancel"}"#));
        }
        let refused = unanswered(&self.key, &self.method, "the client refused");
        Err(refused.with("input", &self.key).with("error", &error))
    }
}

fn unanswered(key: &Json, method: &Method, reason: &str) -> RpcError {
    let (key, method) = (named(key), fault::shorten(method.as_str()));
    RpcError::new(
        code::INTERNAL,
        format!("the server needs the input {key} ({method}) to continue, and {reason}"),
    )
}

fn named(key: &Json) -> String {
    fault::shorten(&key.as_str().unwrap_or_else(|| key.as_text().into()))
}

fn too_many(rounds: usize) -> RpcError {
    RpcError::new(
        code::INTERNAL,
        format!("the server asked for input more than {rounds} times, the limit here"),
    )
}

fn interrupted() -> RpcError {
    let message = "Fanlight was shut down while the server waited for the client's input; the request was not completed";
    RpcError::new(code::INTERNAL, message)
}

fn broken(reason: &str) -> RpcError {
    RpcError::new(
        code::INTERNAL,
        format!("the server's answer cannot be used: {reason}"),
    )
}

const ELICITATION_ID: &str = "elicitationId";
/// The nesting limit for the notification's text.
const NESTING: usize = 8;

/// Random bytes per id, enough to make it unguessable.
const RANDOM: usize = 16;

/// The URL elicitations of one call.
#[derive(Default)]
struct UrlElicitations(Vec<UrlElicitation>);

struct UrlElicitation {
    url: Json,
    id: Box<str>,
    /// Whether the user has agreed to visit the URL.
    is_accepted: bool,
}

impl UrlElicitations {
    /// Adds an id to a URL elicitation that has none. The same URL keeps its id during a call.
    fn identify(&mut self, request: &mut InputRequest) {
        let Some(params) = request
            .params
            .as_ref()
            .filter(|params| is_by_url(&request.method, params))
        else {
            return;
        };
        let Some(url) = params
            .get("url")
            .filter(|_| params.get(ELICITATION_ID).is_none())
        else {
            return;
        };
        let at = match self.0.iter().position(|known| known.url == url) {
            Some(at) => at,
            None => {
                let Some(id) = new_id() else { return };
                self.0.push(UrlElicitation {
                    url: url.detached(),
                    id,
                    is_accepted: false,
                });
                self.0.len() - 1
            }
        };
        let Some(known) = self.0.get_mut(at) else {
            return;
        };
        known.is_accepted = false;
        let member = ObjectBuilder::new()
            .string(ELICITATION_ID, &known.id)
            .finish();
        let mut edits = Edits::new(params.bytes().clone());
        edits.insert_members(0, member.inner_text());
        request.params = Some(edits.finish_json());
    }

    /// Records whether the user has agreed to visit `url`.
    fn note_answer(&mut self, url: &Json, is_accepted: bool) {
        if let Some(known) = self.0.iter_mut().find(|known| known.url == *url) {
            known.is_accepted = is_accepted;
        }
    }

    /// Reports accepted elicitations as complete that the server no longer asks for. `asked` lists
    /// the inputs that it asks for now.
    async fn complete(&mut self, asked: &[InputRequest], messages: &ServerMessages) {
        let is_asked = |known: &UrlElicitation| {
            asked
                .iter()
                .any(|request| url_of(request).as_ref() == Some(&known.url))
        };
        let completed: Vec<_> = self
            .0
            .extract_if(.., |known| known.is_accepted && !is_asked(known))
            .collect();
        for UrlElicitation { id, .. } in completed {
            let params = ObjectBuilder::new().string(ELICITATION_ID, &id).finish();
            let text = notification_text(ELICITATION_COMPLETE, Some(&params));
            if let Ok(Message::Notification(notification)) =
                Message::parse(text.into_bytes(), NESTING)
            {
                messages
                    .send(ServerMessage::Notification(notification))
                    .await;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The URL of an elicitation by URL.
fn url_of(request: &InputRequest) -> Option<Json> {
    request
        .params
        .as_ref()
        .filter(|params| is_by_url(&request.method, params))?
        .get("url")
}

fn is_by_url(method: &Method, params: &Json) -> bool {
    ClientCapability::for_request(method, Some(params)) == Some(ClientCapability::ElicitationByUrl)
}

/// A new elicitation id. It is not a handle: no request accepts it.
fn new_id() -> Option<Box<str>> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(random)).into())
}
