//! What a connection declares to a legacy server on behalf of its clients, and what the server may
//! therefore ask.
//!
//! Must not know: how questions travel.

use bytes::Bytes;
use fanlight_protocol::{Json, Method, RpcError, code};

use crate::client::CallContext;

/// Bytes of capabilities or client information at most. They are kept for as long as the
/// connection; no client needs nearly as many.
const LARGEST: usize = 16 << 10;

/// What `initialize` says of the client.
#[derive(Debug)]
pub(crate) struct Declared {
    capabilities: Json,
    client_info: Option<Json>,
}

impl Declared {
    /// Nothing can be asked, and nobody is named.
    pub(crate) fn nothing() -> Self {
        Self { capabilities: Json::empty_object(), client_info: None }
    }

    /// The very bytes of a client's capabilities and, if it is `named`, of its information.
    pub(crate) fn by(context: &CallContext, named: bool) -> Self {
        let client_info = context.client_info.as_ref().filter(|_| named).and_then(kept);
        Self { capabilities: kept(&context.capabilities).unwrap_or_else(Json::empty_object), client_info }
    }

    /// What tells clients without a session apart: the text of their capabilities, if they have any.
    pub(crate) fn key(context: &CallContext) -> Option<Bytes> {
        let capabilities = &context.capabilities;
        let any = fits(capabilities) && capabilities.members().next().is_some();
        any.then(|| Bytes::copy_from_slice(capabilities.bytes()))
    }

    pub(crate) fn capabilities(&self) -> &Json {
        &self.capabilities
    }

    /// The client's `Implementation` object; Fanlight's own is to be used if absent.
    pub(crate) fn client_info(&self) -> Option<&Json> {
        self.client_info.as_ref()
    }

    /// Whether no capability is declared.
    pub(crate) fn is_empty(&self) -> bool {
        self.capabilities.members().next().is_none()
    }

    /// Why the server must not ask this; `None` if it may. The codes are those of 2025-11-25:
    /// client/roots and client/elicitation, Error Handling; where it names none, JSON-RPC's own.
    pub(crate) fn refusal(&self, method: &Method, params: Option<&Json>) -> Option<RpcError> {
        match method.as_str() {
            "elicitation/create" => match self.declared("elicitation") {
                Some(modes) => refused_mode(&modes, params),
                None => Some(not_declared("elicitation")),
            },
            "sampling/createMessage" => match self.declared("sampling") {
                Some(sampling) => refused_sampling(&sampling, params),
                None => Some(not_declared("sampling")),
            },
            "roots/list" => self.declared("roots").is_none().then(|| not_declared("roots")),
            // Tasks that the client runs for the server (2025-11-25 basic/utilities/tasks).
            "tasks/get" | "tasks/result" => self.declared("tasks").is_none().then(|| not_declared("tasks")),
            "tasks/list" => self.refused_task_method("list"),
            "tasks/cancel" => self.refused_task_method("cancel"),
            other => {
                let message = format!("Fanlight does not take the request {other:?}");
                Some(RpcError::new(code::METHOD_NOT_FOUND, message))
            }
        }
    }

    fn refused_task_method(&self, member: &str) -> Option<RpcError> {
        let declared = self.declared("tasks").and_then(|tasks| tasks.get(member));
        declared.is_none_or(|declared| !declared.is_object()).then(|| not_declared(&format!("tasks.{member}")))
    }

    fn declared(&self, capability: &str) -> Option<Json> {
        self.capabilities.get(capability).filter(Json::is_object)
    }
}

/// Form mode is what capabilities without any mode stand for, and requests without one.
fn refused_mode(modes: &Json, params: Option<&Json>) -> Option<RpcError> {
    let has = |mode: &str| modes.get(mode).is_some_and(|mode| !mode.is_null());
    let mode = params.and_then(|params| params.get("mode"));
    let mode = mode.as_ref().map_or_else(|| Some("form".into()), Json::as_str);
    let offered = match mode.as_deref() {
        Some("form") => has("form") || !has("url"),
        Some("url") => has("url"),
        _ => false,
    };
    let message = "the client did not declare this mode of elicitation";
    (!offered).then(|| RpcError::new(code::INVALID_PARAMS, message))
}

/// 2025-11-25 schema, `CreateMessageRequestParams`: `tools` and `toolChoice` need `sampling.tools`.
fn refused_sampling(sampling: &Json, params: Option<&Json>) -> Option<RpcError> {
    let given = |key: &str| params.and_then(|params| params.get(key)).is_some();
    let refused = (given("tools") || given("toolChoice")) && sampling.get("tools").is_none();
    refused.then(|| RpcError::new(code::INVALID_PARAMS, "the client did not declare sampling with tools"))
}

fn not_declared(capability: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("the client did not declare the capability {capability:?}"))
}

/// The value apart from the message it came in, unless it is too large to be kept.
fn kept(value: &Json) -> Option<Json> {
    fits(value).then(|| value.detached())
}

fn fits(value: &Json) -> bool {
    value.is_object() && value.bytes().len() <= LARGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_for(capabilities: &'static str, method: &str, params: &'static str) -> Option<i64> {
        let declared = Declared { capabilities: Json::literal(capabilities), client_info: None };
        let params = Json::literal(params);
        declared.refusal(&Method::from_name(method), Some(&params)).map(|error| error.code)
    }

    #[test]
    fn only_what_is_declared_may_be_asked() {
        for (method, capability) in [
            ("elicitation/create", r#"{"elicitation":{}}"#),
            ("sampling/createMessage", r#"{"sampling":{}}"#),
            ("roots/list", r#"{"roots":{"listChanged":true}}"#),
            ("tasks/get", r#"{"tasks":{}}"#),
            ("tasks/result", r#"{"tasks":{}}"#),
            ("tasks/list", r#"{"tasks":{"list":{}}}"#),
            ("tasks/cancel", r#"{"tasks":{"cancel":{}}}"#),
        ] {
            assert_eq!(code_for(capability, method, "{}"), None, "{method}");
            assert_eq!(code_for("{}", method, "{}"), Some(code::METHOD_NOT_FOUND), "{method}");
        }
        for method in ["tasks/list", "tasks/cancel"] {
            assert_eq!(code_for(r#"{"tasks":{}}"#, method, "{}"), Some(code::METHOD_NOT_FOUND), "{method}");
        }
        assert_eq!(code_for(r#"{"x":{}}"#, "x/y", "{}"), Some(code::METHOD_NOT_FOUND));
        assert_eq!(code_for(r#"{"roots":null}"#, "roots/list", "{}"), Some(code::METHOD_NOT_FOUND));
    }

    #[test]
    fn modes_of_elicitation_are_told_apart() {
        let refused = Some(code::INVALID_PARAMS);
        let asked = |capabilities, params| code_for(capabilities, "elicitation/create", params);
        let (none, form, url, both) = (
            r#"{"elicitation":{}}"#,
            r#"{"elicitation":{"form":{}}}"#,
            r#"{"elicitation":{"url":{}}}"#,
            r#"{"elicitation":{"form":{},"url":{}}}"#,
        );
        for (capabilities, plain, formed, urled) in [
            (none, None, None, refused),
            (form, None, None, refused),
            (url, refused, refused, None),
            (both, None, None, None),
        ] {
            assert_eq!(asked(capabilities, "{}"), plain, "{capabilities}");
            assert_eq!(asked(capabilities, r#"{"mode":"form"}"#), formed, "{capabilities}");
            assert_eq!(asked(capabilities, r#"{"mode":"url"}"#), urled, "{capabilities}");
            assert_eq!(asked(capabilities, r#"{"mode":7}"#), refused, "{capabilities}");
        }
    }

    #[test]
    fn sampling_with_tools_is_a_capability_of_its_own() {
        let asked = |capabilities, params| code_for(capabilities, "sampling/createMessage", params);
        assert_eq!(asked(r#"{"sampling":{}}"#, r#"{"tools":[]}"#), Some(code::INVALID_PARAMS));
        assert_eq!(asked(r#"{"sampling":{"tools":{}}}"#, r#"{"tools":[],"toolChoice":{}}"#), None);
    }

    #[test]
    fn bytes_are_kept_unless_there_are_too_many() {
        let mut context = (*CallContext::internal()).clone();
        context.capabilities = Json::literal(r#"{ "roots" : {"x":1.0} }"#);
        context.client_info = Some(Json::literal(r#"{"name":"\u0041"}"#));
        let declared = Declared::by(&context, true);
        assert_eq!(declared.capabilities().as_text(), r#"{ "roots" : {"x":1.0} }"#);
        assert_eq!(declared.client_info().map(Json::as_text), Some(r#"{"name":"\u0041"}"#));
        assert!(Declared::by(&context, false).client_info().is_none());
        let large = format!(r#"{{"roots":{{"x":"{}"}}}}"#, "x".repeat(LARGEST));
        context.capabilities = Json::parse(large.into(), 8).unwrap();
        assert!(Declared::by(&context, true).is_empty());
        assert_eq!(Declared::key(&context), None);
    }
}
