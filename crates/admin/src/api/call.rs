//! `/api/call`: a request through the core, traced like any client's.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use fanlight_canonical::{Call, CallContext, Caller, Core as _, Endpoint, Holder, Principal};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method};
use fanlight_telemetry::{Arrival, Carriers, Moment, Network, Parent};
use http::HeaderMap;

use super::Answer;
use super::body::read;
use super::endpoints::endpoint_at;
use super::refusals::Refusals;
use crate::Subject;
use crate::access::require_json;
use crate::audit::About;
use crate::reply::{Refusal, json};
use crate::router::Admin;
use crate::values::{millis, optional};

/// Makes the call that the body names.
pub(super) async fn answer(State(admin): State<Arc<Admin>>, headers: HeaderMap, body: Body) -> Answer {
    require_json(&headers)?;
    let now = admin.now();
    let text = read(body, &now.settings).await?;
    let received = Moment::now();
    let Request { method, params, endpoint } = parse(text, now.settings.nesting)?;
    let endpoint = endpoint_at(&admin.subject.gateway, endpoint.as_deref())?;
    let about = about(&method, &params);
    let mut response = json(call(&admin.subject, received, (method, params), endpoint).await);
    response.extensions_mut().insert(about);
    Ok(response)
}

/// What is called, for the audit. What follows the path of a URI may be secret.
fn about(method: &Method, params: &Json) -> About {
    let named = ["name", "uri"].into_iter().find_map(|key| Some(params.get(key)?.as_str()?.into_owned()));
    let named = named.unwrap_or_default();
    About(format!("{} {}", method.as_str(), named.split(['?', '#']).next().unwrap_or_default()))
}

/// The result or error of the call, byte for byte, with its trace.
async fn call(subject: &Subject, received: Moment, (method, params): (Method, Json), endpoint: Endpoint) -> Json {
    let began = Instant::now();
    let about = fanlight_telemetry::Subject::of(&method, Some(&params));
    let meta = params.get("_meta");
    let mut span = subject.telemetry.server(&Arrival {
        method: &method,
        target: about.target(),
        id: None,
        received,
        carriers: Carriers { meta: meta.as_ref(), ..Carriers::default() },
    });
    span.set_network(Network::Http { version: "1.1", client: None });
    let trace = span.parent().ids().map(|ids| ids.trace_id.to_string());
    let (messages, mut refusals) = Refusals::during(span.parent());
    let context = context(subject, endpoint, span.parent());
    let call = Call { method: method.clone(), params: Some(params), context, messages };
    let response = span.parent().scope(refusals.until(subject.gateway.handle(call))).await;
    // Ended before the answer is sent, which names the trace: a reader of the answer can read the trace.
    let verdict = span.verdict(&method, &response);
    span.finish(&verdict.outcome());

    let mut answer = ObjectBuilder::new();
    optional(&mut answer, "traceId", trace.as_deref());
    answer.member("durationMs", &millis(began.elapsed()));
    if let Some(required) = refusals.required() {
        answer.member("requiredCapabilities", &required);
    }
    answer.member(if response.is_error() { "error" } else { "result" }, &response.body());
    answer.finish()
}

/// The context of a client of `endpoint` that declares no capabilities.
fn context(subject: &Subject, endpoint: Endpoint, trace: Parent) -> Arc<CallContext> {
    let mut info = ObjectBuilder::new();
    info.string("name", "fanlight-admin").string("version", subject.version);
    let internal = CallContext::internal();
    Arc::new(CallContext {
        caller: Caller::request_of(Holder::new(Principal::operator(), endpoint)),
        client_info: Some(info.finish()),
        trace,
        ..(*internal).clone()
    })
}

/// What a body asks for.
struct Request {
    method: Method,
    params: Json,
    /// The path of the endpoint that it goes through; `None` for one that shows everything.
    endpoint: Option<String>,
}

fn parse(text: Bytes, nesting: usize) -> Result<Request, Refusal> {
    let bad = Refusal::bad_request;
    let body = Json::parse(text, nesting).map_err(|error| bad(format!("the body is no JSON: {error}")))?;
    let method = body.get("method").as_ref().and_then(Json::as_str).map(|name| Method::from_name(&name));
    let (method, key) = match method {
        Some(method @ (Method::CallTool | Method::GetPrompt)) => (method, "name"),
        Some(method @ Method::ReadResource) => (method, "uri"),
        _ => return Err(bad("`method` must be \"tools/call\", \"prompts/get\" or \"resources/read\"".to_owned())),
    };
    let params = body.get("params").filter(|params| params.get(key).is_some_and(|named| named.as_str().is_some()));
    let params = params.ok_or_else(|| bad(format!("`params` must be an object with a string `{key}`")))?;
    let endpoint = match body.get("endpoint") {
        None => None,
        Some(path) => {
            let path = path.as_str().ok_or_else(|| bad("`endpoint` must be the path of an endpoint".to_owned()))?;
            Some(path.into_owned())
        }
    };
    Ok(Request { method, params, endpoint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callable_methods_are_three() {
        let ok = |text: &'static str| parse(Bytes::from_static(text.as_bytes()), 8).is_ok();
        assert!(ok(r#"{"method":"tools/call","params":{"name":"a","arguments":{}}}"#));
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
            r#"{"method":"tools/call","params":{"name":"a","x":[[[[[[[[[]]]]]]]]]}}"#,
        ] {
            assert!(!ok(bad), "{bad}");
        }
    }
}
