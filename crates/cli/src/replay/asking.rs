//! Asks the new server: its lists, and the recorded requests.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::comparison::without_meta;
use fanlight_canonical::{
    BackendClient, BackendError, Call, CallContext, Caller, LIST_PAGES, Principal, SameClient,
    ServerMessage, ServerMessages, SessionKey,
};
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::input::{InputRequired, MAX_INPUT_ROUNDS, next_params};
use fanlight_protocol::{Era, Json, Method, ObjectBuilder, Response, RpcError, code};
use parking_lot::Mutex;

use crate::recording::script::RecordedQuestion;

/// The capabilities that replayed requests declare: the client can be asked, and knows no tasks.
const CAPABILITIES: &str = r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#;
/// The limit of messages that wait.
const MESSAGES: usize = 64;
/// The limit of questions that are shown as declined.
const DECLINED: usize = 20;

/// The client of the new server.
pub(super) struct Asker<'a> {
    client: &'a dyn BackendClient,
    questions: &'a [RecordedQuestion],
    caller: Caller,
    era: Era,
    /// The methods of declined questions.
    pub(super) declined: Mutex<Vec<String>>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        client: &'a dyn BackendClient,
        questions: &'a [RecordedQuestion],
        has_sessions: bool,
    ) -> Self {
        let principal = Principal::operator();
        // A client without a session has one connection, too: a request may depend on earlier ones.
        let (caller, era) = match has_sessions {
            true => (
                Caller::session_of(principal, SessionKey::generate()),
                Era::Legacy,
            ),
            false => {
                let caller = Caller::request_of(principal);
                (
                    caller.with_client(Some(SameClient::Connection)),
                    Era::Modern,
                )
            }
        };
        let declined = Mutex::default();
        Self {
            client,
            questions,
            caller,
            era,
            declined,
        }
    }

    /// Ends the session.
    pub(super) fn close(&self) {
        self.caller
            .session()
            .into_iter()
            .for_each(|session| self.client.end_session(session));
    }

    /// The entries of a list with their names, read with the server's own cursors. None if the
    /// server has no such list.
    pub(super) async fn list(&self, kind: ListKind) -> Result<Vec<(String, Json)>, String> {
        let (mut pages, mut params) = (Vec::new(), None);
        while pages.len() < LIST_PAGES {
            let call = Call::new(
                kind.method(),
                params.take(),
                CallContext::for_lists(&fanlight_canonical::Parent::default()),
            );
            let answer = self.client.request(call).await;
            let answer = answer.map_err(|error| error.to_string())?;
            let Some(page) = answer.result() else {
                if answer.error_code() == Some(code::METHOD_NOT_FOUND) {
                    break;
                }
                return Err(answer.body().as_text().to_owned());
            };
            let cursor = page
                .get("nextCursor")
                .filter(|cursor| cursor.as_str().is_some());
            pages.push(page);
            let Some(cursor) = cursor else {
                break;
            };
            let mut next = ObjectBuilder::new();
            next.member("cursor", &cursor);
            params = Some(next.finish());
        }
        Ok(kind.own_entries(&pages))
    }

    /// The answer to a request, after all rounds of input. If there is none, an error says why.
    pub(super) async fn ask(&self, method: &Method, params: &Json) -> Response {
        let mut sent = params.clone();
        for _ in 0..MAX_INPUT_ROUNDS {
            let answer = match self.round(method, sent.clone()).await {
                Ok(answer) => answer,
                Err(error) => {
                    let message = format!("no answer: the server {error}");
                    return Response::from_error(&RpcError::new(code::INTERNAL, message));
                }
            };
            let Some(wanted) = InputRequired::from_response(&answer) else {
                return answer;
            };
            sent = self.continued(params, &wanted);
        }
        let message =
            format!("no answer: the server wanted more than {MAX_INPUT_ROUNDS} rounds of input");
        Response::from_error(&RpcError::new(code::INTERNAL, message))
    }

    async fn round(&self, method: &Method, params: Json) -> Result<Response, BackendError> {
        let (messages, mut received) = ServerMessages::channel(MESSAGES);
        let context = CallContext {
            caller: self.caller.clone(),
            era: self.era,
            capabilities: Json::literal(CAPABILITIES),
            wants_progress: params
                .get("_meta")
                .is_some_and(|meta| meta.get("progressToken").is_some()),
            ..(*CallContext::internal()).clone()
        };
        let request = self.client.request(Call {
            method: method.clone(),
            params: Some(params),
            context: Arc::new(context),
            messages,
        });
        let answering = async {
            while let Some(message) = received.recv().await {
                if let ServerMessage::Request(request) = message {
                    let params = request.params.unwrap_or_else(Json::empty_object);
                    // The server may no longer wait.
                    let _ = request.answer.send(self.answer(&request.method, &params));
                }
            }
        };
        tokio::pin!(request);
        tokio::select! {
            answer = &mut request => answer,
            () = answering => request.as_mut().await,
        }
    }

    /// The parameters of the next round: the same, with the answers to the server's questions.
    fn continued(&self, params: &Json, wanted: &InputRequired) -> Json {
        let questions = wanted.requests().unwrap_or_default().into_iter();
        let answers = questions.map(|question| {
            let params = question.params.unwrap_or_else(Json::empty_object);
            let answer = self.answer(&question.method, &params).result();
            (question.key, answer.unwrap_or_else(Json::empty_object))
        });
        let answers: Vec<_> = answers.collect();
        next_params(Some(params), &answers, wanted.state.as_ref())
    }

    /// The recorded answer to a question; otherwise declines.
    fn answer(&self, method: &Method, params: &Json) -> Response {
        let text = |params: &Json| {
            let params = without_meta(params);
            params.canonical().unwrap_or(params)
        };
        let is_it = |known: &&RecordedQuestion| {
            known.method == *method && text(&known.params) == text(params)
        };
        let known = self.questions.iter().find(is_it);
        if let Some(answer) = known.and_then(|known| known.answer.clone()) {
            return answer;
        }
        let mut declined = self.declined.lock();
        if declined.len() < DECLINED {
            declined.push(method.as_str().to_owned());
        }
        match method {
            Method::Elicit => Response::from_result(&Json::literal(r#"{"action":"decline"}"#)),
            Method::ListRoots => Response::from_result(&Json::literal(r#"{"roots":[]}"#)),
            // 2025-11-25 client/sampling, Error Handling.
            _ => Response::from_error(&RpcError::new(-1, "the user has declined")),
        }
    }
}

/// Waits so long between two equal requests that times in seconds differ.
pub(super) async fn wait_for_other_times() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}
