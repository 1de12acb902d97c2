//! `/api/call`: a request through the core, traced like any client's.
//!
//! A program gets only the answer. A page that accepts an event stream attends the call: it also
//! gets progress and the server's questions, and can cancel the call.

pub(crate) mod answers;
mod attended;
mod running;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use fanlight_canonical::{
    Call, CallContext, Caller, Detail, Endpoint, Holder, MessageReceiver, Principal, ServerMessage,
    ServerMessages, cancelled_by_operator,
};
use fanlight_protocol::capability::{ClientCapability, MissingCapability, required_capabilities};
use fanlight_protocol::{InputRequired, Json, Method, ObjectBuilder, Response};
use fanlight_telemetry::{Arrival, Carriers, ClientName, Moment, Network, Parent, ServerSpan};
use http::HeaderMap;
use http::header::ACCEPT;

use super::Answer;
use super::body::read_json;
use super::endpoints::endpoint_at;
use crate::{About, AdminState, Operator, Refusal, Subject, json, millis, to_json};
pub(crate) use answers::{cancel, give};
pub(crate) use running::RunningCalls;

/// A call that an operator makes.
struct OperatorCall {
    method: Method,
    params: Json,
    endpoint: Endpoint,
    received: Moment,
}

/// Makes the call that the body names.
pub(super) async fn answer(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let body = read_json(&admin, &headers, body).await?;
    let received = Moment::now();
    let Request {
        method,
        params,
        endpoint,
    } = parse(&body)?;
    let endpoint = endpoint_at(&admin.subject.gateway, endpoint.as_deref())?;
    let about = describe(&method, &params);
    let call = OperatorCall {
        method,
        params,
        endpoint,
        received,
    };
    let response = match accepts_events(&headers) {
        true => attended::answer(&admin, operator, call)?,
        false => json(unattended(&admin.subject, call).await),
    };
    Ok(about.attach_to(response))
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| {
        kind.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case("text/event-stream")
    })
}

/// The operation for the audit log. The parts of a URI after its path may be secret, and are left
/// out.
fn describe(method: &Method, params: &Json) -> About {
    let named = ["name", "uri"]
        .into_iter()
        .find_map(|key| params.text_at(key));
    let named = named.unwrap_or_default();
    About(format!(
        "{} {}",
        method.as_str(),
        named.split(['?', '#']).next().unwrap_or_default()
    ))
}

/// The answer to a call during which the server cannot ask anything.
async fn unattended(subject: &Subject, call: OperatorCall) -> Json {
    let traced = TracedCall::begin(subject, &call);
    let context = traced.context(subject, call.endpoint, Json::empty_object(), false);
    let (messages, mut refusals) = Refusals::channel(traced.parent());
    let request = Call::new(call.method, Some(call.params), context);
    let gateway = &subject.gateway;
    let answer = async {
        let mut operation = gateway.resolve(request, Detail::Known).await;
        gateway.run(&mut operation, messages).await
    };
    let running = traced.parent();
    let response = tokio::select! {
        biased;
        response = running.scope(refusals.refuse_until(answer)) => response,
        () = cancelled(&running) => Response::from_error(&cancelled_by_operator()),
    };
    traced.finish(&response, refusals.required_capabilities())
}

/// The parsed body.
struct Request {
    method: Method,
    params: Json,
    /// The path of the endpoint to use; `None` for all servers.
    endpoint: Option<String>,
}

fn parse(body: &Json) -> Result<Request, Refusal> {
    let bad = Refusal::bad_request;
    let method = body.text_at("method").map(|name| Method::from_name(&name));
    let (method, key) = match method {
        Some(method @ (Method::CallTool | Method::GetPrompt)) => (method, "name"),
        Some(method @ Method::ReadResource) => (method, "uri"),
        _ => {
            return Err(bad(
                "`method` must be \"tools/call\", \"prompts/get\" or \"resources/read\"".to_owned(),
            ));
        }
    };
    let params = body.get("params").filter(|it| it.text_at(key).is_some());
    let params =
        params.ok_or_else(|| bad(format!("`params` must be an object with a string `{key}`")))?;
    let endpoint = match body.get("endpoint") {
        None => None,
        Some(path) => {
            let path = path
                .as_str()
                .ok_or_else(|| bad("`endpoint` must be the path of an endpoint".to_owned()))?;
            Some(path.into_owned())
        }
    };
    Ok(Request {
        method,
        params,
        endpoint,
    })
}

/// The span of an operator's call.
struct TracedCall {
    span: ServerSpan,
    method: Method,
    began: Instant,
}

impl TracedCall {
    fn begin(subject: &Subject, call: &OperatorCall) -> Self {
        let began = Instant::now();
        let about = fanlight_telemetry::Subject::new(&call.method, Some(&call.params));
        let meta = call.params.get("_meta");
        let mut span = subject.telemetry.server(&Arrival {
            method: &call.method,
            target: about.target(),
            id: None,
            received: call.received,
            carriers: Carriers {
                meta: meta.as_ref(),
                ..Carriers::default()
            },
        });
        span.set_network(Network::Http {
            version: "1.1",
            client: None,
        });
        span.set_client(|| ClientName::new(Some(&own_info(subject)), None));
        span.keep_content(&call.method, Some(&call.params));
        if let Some(path) = call.endpoint.path() {
            span.set_endpoint(path);
        }
        Self {
            span,
            method: call.method.clone(),
            began,
        }
    }

    /// The span as the parent of all work for the call.
    fn parent(&self) -> Parent {
        self.span.parent()
    }

    /// The id of the trace; `None` if nothing is recorded.
    fn trace_id(&self) -> Option<String> {
        self.span.parent().ids().map(|ids| ids.trace_id.to_string())
    }

    /// The context of a client of `endpoint` that declares these capabilities.
    fn context(
        &self,
        subject: &Subject,
        endpoint: Endpoint,
        capabilities: Json,
        wants_progress: bool,
    ) -> Arc<CallContext> {
        let internal = CallContext::internal();
        Arc::new(CallContext {
            caller: Caller::request_of(Holder::new(Principal::operator(), endpoint)),
            client_info: Some(own_info(subject)),
            capabilities,
            wants_progress,
            trace: self.span.parent(),
            ..(*internal).clone()
        })
    }

    /// The result or error, byte for byte, with the trace's id. The trace has then ended, so that
    /// the reader of the answer can read it.
    fn finish(self, response: &Response, required: Option<Json>) -> Json {
        let trace = self.trace_id();
        let verdict = self.span.verdict(&self.method, response);
        self.span.finish(&verdict.outcome());
        let mut answer = ObjectBuilder::new();
        answer
            .member("traceId", &to_json(&trace))
            .member("durationMs", &to_json(&millis(self.began.elapsed())));
        if let Some(required) = required {
            answer.member("requiredCapabilities", &required);
        }
        answer.member(
            if response.is_error() {
                "error"
            } else {
                "result"
            },
            &response.body(),
        );
        answer.finish()
    }
}

/// The `Implementation` object of this client.
fn own_info(subject: &Subject) -> Json {
    let mut info = ObjectBuilder::new();
    info.string("name", "fanlight-admin")
        .string("version", subject.version);
    info.finish()
}

/// Waits until an operator has cancelled the call in the list of running ones; its span has then
/// ended as cancelled.
pub(super) async fn cancelled(call: &Parent) {
    poll_fn(|cx| call.poll_cancelled_by_operator(cx)).await;
    call.cancel();
}

/// The capacity of the message queue, which is drained at once.
const CAPACITY: usize = 16;

/// Receives a server's messages during a call, and refuses its requests.
struct Refusals {
    messages: MessageReceiver,
    trace: Parent,
    missing: MissingCapabilities,
}

impl Refusals {
    /// The sender for the server's messages during the call of `trace`, and their receiver.
    fn channel(trace: Parent) -> (ServerMessages, Self) {
        let (sender, messages) = ServerMessages::channel(CAPACITY);
        (
            sender,
            Self {
                messages,
                trace,
                missing: MissingCapabilities::new(Json::empty_object()),
            },
        )
    }

    /// Waits for the answer, and refuses the requests that arrive before it.
    async fn refuse_until(&mut self, answer: impl Future<Output = Response>) -> Response {
        let mut answer = std::pin::pin!(answer);
        let response = loop {
            tokio::select! {
                biased;
                Some(message) = self.messages.recv() => self.take(message),
                response = &mut answer => break response,
            }
        };
        while let Some(message) = self.messages.try_recv() {
            self.take(message);
        }
        // A modern server sends its requests in the result (2026-07-28 basic/patterns/mrtr), which
        // ends the call.
        let requests =
            InputRequired::from_response(&response).and_then(|required| required.requests().ok());
        for request in requests.unwrap_or_default() {
            self.missing.lacks(&request.method, request.params.as_ref());
        }
        response
    }

    /// The `ClientCapabilities` that a client must declare for the refused requests; `None` if
    /// there were none.
    fn required_capabilities(&self) -> Option<Json> {
        self.missing.required_capabilities()
    }

    fn take(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Notification(notification)
            | ServerMessage::TaskProgress(notification) => {
                self.trace.record_notification(&notification);
            }
            ServerMessage::Refused(missing) => self.missing.note(missing),
            // Dropping the request tells the server that the client lacks the capability.
            ServerMessage::Request(request) => {
                self.missing.lacks(&request.method, request.params.as_ref());
            }
            ServerMessage::Stream(_) => {}
        }
    }
}

/// Collects the missing capabilities.
#[derive(Debug)]
struct MissingCapabilities {
    declared: Json,
    missing: Vec<MissingCapability>,
}

impl MissingCapabilities {
    /// An empty collection for a client with the `declared` capabilities.
    fn new(declared: Json) -> Self {
        Self {
            declared,
            missing: Vec::new(),
        }
    }

    /// The `ClientCapabilities` that a client must declare for the refused requests; `None` if
    /// there were none.
    fn required_capabilities(&self) -> Option<Json> {
        required_capabilities(&self.missing)
    }

    /// Notes missing capabilities that a request needs. Returns whether there are any.
    fn lacks(&mut self, method: &Method, params: Option<&Json>) -> bool {
        let needed = ClientCapability::for_request(method, params);
        let missing = needed.and_then(|need| MissingCapability::check(&self.declared, need));
        if let Some(missing) = missing {
            self.note(missing);
        }
        missing.is_some()
    }

    /// Notes a missing capability once.
    fn note(&mut self, missing: MissingCapability) {
        if !self.missing.contains(&missing) {
            self.missing.push(missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::json::DEFAULT_NESTING;

    use super::*;

    #[test]
    fn callable_methods_are_three() {
        let ok = |text: &str| {
            let body = Json::parse(text.to_owned().into(), DEFAULT_NESTING);
            body.is_ok_and(|body| parse(&body).is_ok())
        };
        assert!(ok(
            r#"{"method":"tools/call","params":{"name":"a","arguments":{}}}"#
        ));
        assert!(ok(r#"{"method":"prompts/get","params":{"name":"a"}}"#));
        assert!(ok(r#"{"method":"resources/read","params":{"uri":"a:b"}}"#));
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"method":"tools/list","params":{"name":"a"}}"#,
            r#"{"method":"tools/call","params":{"name":"a"},"endpoint":7}"#,
            r#"{"method":"tools/call"}"#,
            r#"{"method":"tools/call","params":[]}"#,
            r#"{"method":"tools/call","params":{"name":7}}"#,
            r#"{"method":"resources/read","params":{"name":"a"}}"#,
        ] {
            assert!(!ok(bad), "{bad}");
        }
        let nested = |depth| {
            let arrays = "[".repeat(depth) + &"]".repeat(depth);
            let text = format!(r#"{{"method":"tools/call","params":{{"name":"a","x":{arrays}}}}}"#);
            ok(&text)
        };
        assert!(nested(DEFAULT_NESTING - 2) && !nested(DEFAULT_NESTING + 1));
    }
}
