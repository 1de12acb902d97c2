//! `/api/call`: a request through the core, traced like any client's.
//!
//! A program gets only the answer. A page that accepts an event stream attends the call: it also
//! gets progress and the server's questions, and can cancel the call.

pub(crate) mod answers;
mod attended;
mod refusals;
mod running;
mod traced;

use axum::body::Body;
use axum::extract::{Extension, State};
use bytes::Bytes;
use fanlight_canonical::{Detail, Endpoint, Unresolved, cancelled_by_operator};
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::{Json, Method, Response};
use fanlight_telemetry::Moment;
use http::HeaderMap;
use http::header::ACCEPT;

use super::Answer;
use super::body::read;
use super::endpoints::endpoint_at;
use crate::AdminState;
use crate::Subject;
use crate::access::{About, require_json};
use crate::operator::Operator;
use crate::reply::{Refusal, json};

pub(crate) use answers::{cancel, give};
pub(crate) use running::RunningCalls;

use refusals::Refusals;
use traced::TracedCall;

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
    require_json(&headers)?;
    let now = admin.now();
    let text = read(body, &now.settings).await?;
    let received = Moment::now();
    let Request {
        method,
        params,
        endpoint,
    } = parse(text)?;
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
    let request = Unresolved {
        method: call.method,
        params: Some(call.params),
        context,
    };
    let gateway = &subject.gateway;
    let answer = async {
        let mut operation = gateway.resolve(request, Detail::Known).await;
        gateway.run(&mut operation, messages).await
    };
    let running = traced.parent();
    let response = tokio::select! {
        biased;
        response = running.scope(refusals.refuse_until(answer)) => response,
        () = traced::cancelled(&running) => Response::from_error(&cancelled_by_operator()),
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

fn parse(text: Bytes) -> Result<Request, Refusal> {
    let bad = Refusal::bad_request;
    let body = Json::parse(text, DEFAULT_NESTING)
        .map_err(|error| bad(format!("the body is not JSON: {error}")))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callable_methods_are_three() {
        let ok = |text: &'static str| parse(Bytes::from_static(text.as_bytes())).is_ok();
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
            parse(text.into()).is_ok()
        };
        assert!(nested(DEFAULT_NESTING - 2) && !nested(DEFAULT_NESTING + 1));
    }
}
