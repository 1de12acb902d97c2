//! A scripted server: each tool does one thing that a test needs.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_canonical::{
    BackendClient, BackendError, BackendStatus, Call, CallContext, Caller, Listen, Listening,
    Pending, ServerMessage, ServerRequest, SessionKey, StreamSignal,
};
use fanlight_gateway::Gateway;
use fanlight_protocol::capability::{ClientCapability, MissingCapability};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::result::ServerDescription;
use fanlight_protocol::subscription::Change;
use fanlight_protocol::{Json, Message, Method, Notification, Response, RpcError};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// An event at the server.
#[derive(Debug)]
pub(crate) enum Happened {
    Began(Box<Call>),
    /// A call was dropped before it was answered.
    Dropped,
    Answered,
    /// A client listens to messages outside of calls.
    Listens(Listen),
    ListensNoMore,
    /// The end of a session was reported to the server.
    SessionEnded(SessionKey),
}

pub(crate) struct TestCore {
    happened: mpsc::UnboundedSender<Happened>,
    /// Each call of the tool `wait` continues with one of these permits.
    pub(crate) release: Semaphore,
    description: Json,
}

pub(crate) struct Log(mpsc::UnboundedReceiver<Happened>);

impl Log {
    /// The next call that begins; skips earlier ends.
    pub(crate) async fn began(&mut self) -> Call {
        loop {
            if let Happened::Began(call) = self.next().await {
                return *call;
            }
        }
    }

    /// The next end of a call; skips earlier begins.
    pub(crate) async fn ended(&mut self) -> Happened {
        loop {
            match self.next().await {
                Happened::Began(_)
                | Happened::SessionEnded(_)
                | Happened::Listens(_)
                | Happened::ListensNoMore => {}
                ended => return ended,
            }
        }
    }

    /// Waits until this many further calls have been dropped.
    pub(crate) async fn dropped(&mut self, count: usize) {
        for _ in 0..count {
            while !matches!(self.next().await, Happened::Dropped) {}
        }
    }

    /// The next session that ends; skips other events.
    pub(crate) async fn session_ended(&mut self) -> SessionKey {
        loop {
            if let Happened::SessionEnded(session) = self.next().await {
                return session;
            }
        }
    }

    /// The next listening client; skips other events.
    pub(crate) async fn listens(&mut self) -> Listen {
        loop {
            if let Happened::Listens(listen) = self.next().await {
                return listen;
            }
        }
    }

    /// Waits for the next end of listening; skips other events.
    pub(crate) async fn listens_no_more(&mut self) {
        while !matches!(self.next().await, Happened::ListensNoMore) {}
    }

    /// The events that no test has read yet.
    pub(crate) fn pending(&mut self) -> Vec<Happened> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }

    async fn next(&mut self) -> Happened {
        crate::client::soon(self.0.recv()).await.unwrap()
    }
}

pub(crate) const LEGACY_DESCRIPTION: &str = r#"{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1.0"},"x":1.00}"#;

impl TestCore {
    pub(crate) fn new() -> (Arc<Self>, Log) {
        Self::described_by(LEGACY_DESCRIPTION)
    }

    pub(crate) fn described_by(description: &'static str) -> (Arc<Self>, Log) {
        let (happened, log) = mpsc::unbounded_channel();
        let core = Self {
            happened,
            release: Semaphore::new(0),
            description: Json::literal(description),
        };
        (Arc::new(core), Log(log))
    }

    /// A gateway in front of this server, with these endpoints or else `/mcp`.
    pub(crate) fn gateway(self: &Arc<Self>, endpoints: &[&str]) -> Arc<Gateway> {
        crate::gateway::gateway(Arc::clone(self) as _, endpoints)
    }

    async fn answer(&self, call: Call) -> Response {
        let mut ending = Ending(self.happened.clone(), Some(Happened::Dropped));
        let _ = self.happened.send(Happened::Began(Box::new(call.clone())));
        let response = match &call.method {
            Method::CallTool => self.tool(&call).await,
            Method::Complete => {
                let arguments = call
                    .params
                    .as_ref()
                    .and_then(|params| params.get("arguments"))
                    .unwrap();
                self.ask(&call, &arguments).await
            }
            Method::GetTask | Method::CancelTask | Method::UpdateTask => {
                answer(r#"{"status":"input_required"}"#)
            }
            Method::TaskResult => {
                // A legacy server may ask something on this stream.
                let answered = ask(
                    &call,
                    &Json::literal(r#"{"method":"roots/list","params":{"x":1.0}}"#),
                )
                .await
                .await;
                answer(answered.unwrap().body().as_text())
            }
            Method::ListTools => Response::from_result(&Json::literal("{\n\"tools\":[]}")),
            Method::SetLogLevel
                if call
                    .params
                    .as_ref()
                    .is_some_and(|it| it.as_text().contains("emergency")) =>
            {
                Response::from_error(&RpcError::new(-32602, "no such level".to_owned()))
            }
            Method::SetLogLevel | Method::Subscribe => Response::from_result(&Json::empty_object()),
            other => Response::from_error(&RpcError::new(-32601, format!("no {other}"))),
        };
        ending.1 = Some(Happened::Answered);
        response
    }

    async fn tool(&self, call: &Call) -> Response {
        let params = call.params.clone().unwrap_or_else(Json::empty_object);
        let arguments = params.get("arguments").unwrap_or_else(Json::empty_object);
        let name = params
            .get("name")
            .and_then(|name| name.as_str().map(|name| name.into_owned()))
            .unwrap_or_default();
        match name.as_str() {
            "wait" => self.release.acquire().await.unwrap().forget(),
            "notify-and-wait" => {
                call.messages
                    .send(ServerMessage::Notification(progress(1)))
                    .await;
                self.release.acquire().await.unwrap().forget();
                call.messages
                    .send(ServerMessage::Notification(progress(2)))
                    .await;
            }
            "notify" => {
                for count in 1..=50 {
                    call.messages
                        .send(ServerMessage::Notification(progress(count)))
                        .await;
                }
                for level in ["debug", "warning", "error"] {
                    let params = format!(r#"{{"level":"{level}","data":1.0}}"#);
                    call.messages
                        .send(ServerMessage::Notification(notification(
                            "notifications/message",
                            &params,
                        )))
                        .await;
                }
            }
            "count" => {
                for count in 1..=5 {
                    self.release.acquire().await.unwrap().forget();
                    call.messages
                        .send(ServerMessage::Notification(progress(count)))
                        .await;
                }
            }
            "pause" => {
                let retry = arguments.get("retry").and_then(|retry| retry.as_i64());
                let retry = retry.map(|millis| Duration::from_millis(millis.try_into().unwrap()));
                call.messages
                    .send(ServerMessage::Stream(StreamSignal::Paused {
                        retry,
                        resumed: Arc::default(),
                    }))
                    .await;
                self.release.acquire().await.unwrap().forget();
                call.messages
                    .send(ServerMessage::Notification(progress(1)))
                    .await;
            }
            "ask" => return self.ask(call, &arguments).await,
            "ask-and-be-refused" => {
                let answered = ask(call, &Json::literal(r#"{"method":"roots/list"}"#)).await;
                self.release.acquire().await.unwrap().forget();
                let missing = MissingCapability::check(
                    &call.context.capabilities,
                    ClientCapability::Sampling,
                )
                .unwrap();
                call.messages.send(ServerMessage::Refused(missing)).await;
                drop(answered);
                return body(&arguments);
            }
            "ask-and-withdraw" => {
                drop(ask(call, &Json::literal(r#"{"method":"roots/list"}"#)).await);
                self.release.acquire().await.unwrap().forget();
            }
            "ask-then-wait" => {
                drop(
                    ask(call, &Json::literal(r#"{"method":"roots/list"}"#))
                        .await
                        .await,
                );
                call.messages
                    .send(ServerMessage::Notification(progress(1)))
                    .await;
                self.release.acquire().await.unwrap().forget();
            }
            "ask-and-wait" => {
                let _asked = ask(call, &Json::literal(r#"{"method":"roots/list"}"#)).await;
                self.release.acquire().await.unwrap().forget();
            }
            "need-input" => {
                // Like a modern server: asks for input until it gets the awaited member.
                let enough = arguments
                    .get("until")
                    .map_or("inputResponses".into(), |text| {
                        text.as_str().unwrap().into_owned()
                    });
                if params.get(&enough).is_none() {
                    return answer(arguments.get("required").unwrap().as_text());
                }
            }
            "fail" => {
                let code = arguments
                    .get("code")
                    .and_then(|code| code.as_i64())
                    .unwrap_or(-1);
                return Response::from_error(&RpcError::new(code, "as asked"));
            }
            "refuse" => {
                // Like the backend, refuses a server request that the client has not declared.
                let question = arguments.get("question").unwrap();
                let method = Method::from_name(&question.get("method").unwrap().as_str().unwrap());
                let capabilities = arguments
                    .get("declared")
                    .unwrap_or_else(|| call.context.capabilities.clone());
                let missing = MissingCapability::for_server_request(
                    &capabilities,
                    &method,
                    question.get("params").as_ref(),
                );
                call.messages
                    .send(ServerMessage::Refused(missing.unwrap()))
                    .await;
                return body(&arguments);
            }
            // Answers as asked until the test lets it succeed.
            "answer"
                if self
                    .release
                    .try_acquire()
                    .map(tokio::sync::SemaphorePermit::forget)
                    .is_err() =>
            {
                return body(&arguments);
            }
            "large" => {
                let mut result = ObjectBuilder::new();
                result.string("text", &"x".repeat(1 << 20));
                return Response::from_result(&result.finish());
            }
            _ => {}
        }
        answer(&format!(
            r#"{{ "content":[],"structuredContent":{}, "n": 1.0 }}"#,
            arguments.as_text()
        ))
    }

    /// Asks each round of `arguments.ask` at once, reports progress, and answers with the answers.
    async fn ask(&self, call: &Call, arguments: &Json) -> Response {
        let mut bodies = Vec::new();
        let rounds = arguments.get("ask").unwrap();
        for (count, round) in rounds.elements().enumerate() {
            let round = rounds.slice(round);
            let mut asked = Vec::new();
            for request in round.elements() {
                asked.push(ask(call, &round.slice(request)).await);
            }
            for answered in asked {
                bodies.push(answered.await.map_or("null".to_owned(), |answer| {
                    answer.body().as_text().to_owned()
                }));
            }
            call.messages
                .send(ServerMessage::Notification(progress(count)))
                .await;
        }
        let failed = if arguments.get("isError").is_some() {
            r#""isError":true,"#
        } else {
            ""
        };
        answer(&format!(r#"{{{failed}"answers":[{}]}}"#, bodies.join(",")))
    }
}

/// How long the server waits for an answer.
pub(crate) const GIVES_UP: Duration = Duration::from_secs(15);

async fn ask(call: &Call, request: &Json) -> oneshot::Receiver<Response> {
    let (answer, answered) = oneshot::channel();
    let method = Method::from_name(&request.get("method").unwrap().as_str().unwrap());
    let (params, trace) = (request.get("params"), Default::default());
    let deadline = tokio::time::Instant::now() + GIVES_UP;
    let request = ServerRequest {
        method,
        params,
        trace,
        answer,
        notices: None,
        deadline,
    };
    call.messages.send(ServerMessage::Request(request)).await;
    answered
}

/// The tools, as the gateway reads them.
const TOOLS: &str = r#"{"tools":[
    {"name":"mirrored","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},
    {"name":"echo","inputSchema":{"type":"object"}},
    {"name":"files__delete_all","inputSchema":{"type":"object"}}
]}"#;

impl BackendClient for TestCore {
    fn name(&self) -> &str {
        "one"
    }

    fn describe<'a>(&'a self, client: &'a CallContext) -> Pending<'a, ServerDescription> {
        let description = Box::pin(ready(Ok(self.description.clone().into())));
        if client.caller.is_gateway() {
            return description;
        }
        let call = Call::new(Method::Discover, None, Arc::new(client.clone()));
        let _ = self.happened.send(Happened::Began(Box::new(call)));
        let _ = self.happened.send(Happened::Answered);
        description
    }

    fn request(&self, call: Call) -> Pending<'_, Response> {
        if call.context.caller == Caller::gateway() {
            return Box::pin(ready(Ok(Response::from_result(&Json::literal(TOOLS)))));
        }
        Box::pin(async move { Ok(self.answer(call).await) })
    }

    fn listen(&self, listen: Listen) -> Pending<'_, Listening> {
        if listen.context.caller == Caller::gateway() {
            return Box::pin(ready(Ok(Listening::new(listen.interest, ()))));
        }
        // Special resource names make the server refuse listening or drop parts of it.
        let mut honoured = listen.interest.clone();
        if honoured.uris.iter().any(|uri| **uri == *"refuse:") {
            let reason = "as asked".to_owned();
            return Box::pin(ready(Err(BackendError::Unreachable { reason })));
        }
        honoured.uris.retain(|uri| **uri != *"ignore:");
        if !honoured.session {
            let is_honoured = |change: &Change| *change != Change::Prompts;
            honoured.lists = honoured.lists.changes().filter(is_honoured).collect();
        }
        let _ = self.happened.send(Happened::Listens(listen));
        let ending = Ending(self.happened.clone(), Some(Happened::ListensNoMore));
        Box::pin(ready(Ok(Listening::new(honoured, ending))))
    }

    fn end_session(&self, session: SessionKey) {
        let _ = self.happened.send(Happened::SessionEnded(session));
    }

    fn status(&self) -> BackendStatus {
        crate::gateway::ready()
    }
}

struct Ending(mpsc::UnboundedSender<Happened>, Option<Happened>);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.send(self.1.take().unwrap());
    }
}

/// The `result` or `error` in the arguments.
fn body(arguments: &Json) -> Response {
    let (kind, body) = match arguments.get("result") {
        Some(result) => ("result", result),
        None => ("error", arguments.get("error").unwrap()),
    };
    response(kind, body.as_text())
}

fn answer(result: &str) -> Response {
    response("result", result)
}

fn response(kind: &str, body: &str) -> Response {
    let text = format!(r#"{{"jsonrpc":"2.0","id":77,"{kind}":{body}}}"#);
    match Message::parse(Bytes::from(text), 64) {
        Ok(Message::Response(response)) => response,
        other => panic!("{other:?}"),
    }
}

fn progress(count: usize) -> Notification {
    notification(
        "notifications/progress",
        &format!(r#"{{"progressToken":99,"progress":{count}}}"#),
    )
}

pub(crate) fn notification(method: &str, params: &str) -> Notification {
    let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
    match Message::parse(Bytes::from(text), 64) {
        Ok(Message::Notification(notification)) => notification,
        other => panic!("{other:?}"),
    }
}

/// The members of a context, except for its key.
pub(crate) fn told(context: &CallContext) -> (Option<&str>, &str, Option<&'static str>, bool) {
    let info = context.client_info.as_ref().map(Json::as_text);
    let level = context
        .log_level
        .map(fanlight_protocol::meta::LogLevel::as_str);
    (
        info,
        context.capabilities.as_text(),
        level,
        context.wants_progress,
    )
}
