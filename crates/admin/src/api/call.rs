//! `/api/call`: a request through the core, traced as any client's is.
//!
//! Must not know: HTTP.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fanlight_canonical::{Call, CallContext, Caller, Principal};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method};
use fanlight_telemetry::{Arrival, Carriers, Moment, Network, Parent};
use http::StatusCode;

use super::asked::Asked;
use crate::Subject;
use crate::reply::{Reply, refused};
use crate::shown::{millis, optional};

/// Makes the call that `text` asks for; returns its result or error as it came, and its trace.
pub(crate) async fn answer(subject: &Subject, text: Bytes, nesting: usize) -> Result<Json, Box<Reply>> {
    let received = Moment::now();
    let began = Instant::now();
    let (method, params) = read(text, nesting)?;
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
    let (messages, mut asked) = Asked::during(span.parent());
    let context = context(subject, span.parent());
    let call = Call { method: method.clone(), params: Some(params), context, messages };
    let response = span.parent().scope(asked.until(subject.gateway.handle(call))).await;
    // The answer names the trace, so this is where it ends: who reads the one may read the other.
    let verdict = span.verdict(&method, &response);
    span.finish(&verdict.outcome());

    let mut answer = ObjectBuilder::new();
    optional(&mut answer, "traceId", trace.as_deref());
    answer.member("durationMs", &millis(began.elapsed()));
    if let Some(required) = asked.required() {
        answer.member("requiredCapabilities", &required);
    }
    answer.member(if response.is_error() { "error" } else { "result" }, &response.body());
    Ok(answer.finish())
}

/// The operator can be asked nothing, and declares nothing.
fn context(subject: &Subject, trace: Parent) -> Arc<CallContext> {
    let mut info = ObjectBuilder::new();
    info.string("name", "fanlight-admin").string("version", subject.version);
    let internal = CallContext::internal();
    Arc::new(CallContext {
        caller: Caller::request_of(Principal::operator()),
        client_info: Some(info.finish()),
        trace,
        ..(*internal).clone()
    })
}

fn read(text: Bytes, nesting: usize) -> Result<(Method, Json), Box<Reply>> {
    let bad = |message: &str| refused(StatusCode::BAD_REQUEST, message);
    let body = Json::parse(text, nesting).map_err(|error| bad(&format!("the body is no JSON: {error}")))?;
    let method = body.get("method").as_ref().and_then(Json::as_str).map(|name| Method::from_name(&name));
    let key = match method {
        Some(Method::CallTool | Method::GetPrompt) => "name",
        Some(Method::ReadResource) => "uri",
        _ => return Err(bad("`method` must be \"tools/call\", \"prompts/get\" or \"resources/read\"")),
    };
    let params = body.get("params").filter(|params| params.get(key).is_some_and(|named| named.as_str().is_some()));
    let message = || bad(&format!("`params` must be an object with a string `{key}`"));
    Ok((method.ok_or_else(message)?, params.ok_or_else(message)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_methods_are_called() {
        let ok = |text: &'static str| read(Bytes::from_static(text.as_bytes()), 8).is_ok();
        assert!(ok(r#"{"method":"tools/call","params":{"name":"a","arguments":{}}}"#));
        assert!(ok(r#"{"method":"prompts/get","params":{"name":"a"}}"#));
        assert!(ok(r#"{"method":"resources/read","params":{"uri":"a:b"}}"#));
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"method":"tools/list","params":{"name":"a"}}"#,
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
