//! What a client may be asked, by the capabilities it has declared.
//!
//! Source: 2025-11-25 and 2026-07-28 client/elicitation, client/sampling, client/roots, Capabilities
//! and Error Handling. Must not know: who asks, or how.

use fanlight_protocol::{Json, Method, RpcError, code};

/// Whether a modern client can be asked this at all: `inputRequests` hold nothing else
/// (2026-07-28 basic/patterns/mrtr, Server Requirements).
pub(crate) fn is_input(method: &Method) -> bool {
    matches!(method.as_str(), "elicitation/create" | "sampling/createMessage" | "roots/list")
}

/// Why a client with these capabilities is not asked; `None` if it may be. A method of which
/// nothing is known is the client's to judge.
pub(crate) fn refusal(capabilities: &Json, method: &Method, params: Option<&Json>) -> Option<RpcError> {
    let declared = |name: &str| capabilities.get(name).filter(Json::is_object);
    let param = |name: &str| params.and_then(|params| params.get(name));
    match method.as_str() {
        "elicitation/create" => {
            let Some(elicitation) = declared("elicitation") else { return Some(lacks("elicitation")) };
            let by_url = param("mode").is_some_and(|mode| mode.as_str().as_deref() == Some("url"));
            let url = elicitation.get("url").is_some();
            // "An empty capabilities object is equivalent to declaring support for form mode only."
            let form = elicitation.get("form").is_some() || !url;
            match by_url {
                true if !url => Some(does_not_extend("elicitation.url")),
                false if !form => Some(does_not_extend("elicitation.form")),
                _ => None,
            }
        }
        "sampling/createMessage" => {
            let Some(sampling) = declared("sampling") else { return Some(lacks("sampling")) };
            let with_tools = param("tools").or_else(|| param("toolChoice")).is_some();
            (with_tools && sampling.get("tools").is_none()).then(|| does_not_extend("sampling.tools"))
        }
        "roots/list" => declared("roots").is_none().then(|| lacks("roots")),
        _ => None,
    }
}

fn lacks(name: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, undeclared(name))
}

/// "Server sends an `elicitation/create` request with a mode not declared in client capabilities:
/// -32602" (2025-11-25 client/elicitation, Error Handling); likewise for tools.
fn does_not_extend(name: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, undeclared(name))
}

fn undeclared(name: &str) -> String {
    format!("the client has not declared the capability {name:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_declared_is_asked() {
        let (no_method, no_mode) = (Some(code::METHOD_NOT_FOUND), Some(code::INVALID_PARAMS));
        for (capabilities, method, params, expected) in [
            ("{}", "elicitation/create", "{}", no_method),
            (r#"{"elicitation":null}"#, "elicitation/create", "{}", no_method),
            (r#"{"elicitation":{}}"#, "elicitation/create", "{}", None),
            (r#"{"elicitation":{}}"#, "elicitation/create", r#"{"mode":"form"}"#, None),
            (r#"{"elicitation":{}}"#, "elicitation/create", r#"{"mode":"url"}"#, no_mode),
            (r#"{"elicitation":{"url":{}}}"#, "elicitation/create", r#"{"mode":"url"}"#, None),
            (r#"{"elicitation":{"url":{}}}"#, "elicitation/create", "{}", no_mode),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, "elicitation/create", "{}", None),
            ("{}", "sampling/createMessage", "{}", no_method),
            (r#"{"sampling":{}}"#, "sampling/createMessage", "{}", None),
            (r#"{"sampling":{}}"#, "sampling/createMessage", r#"{"tools":[]}"#, no_mode),
            (r#"{"sampling":{}}"#, "sampling/createMessage", r#"{"toolChoice":{}}"#, no_mode),
            (r#"{"sampling":{"tools":{}}}"#, "sampling/createMessage", r#"{"tools":[]}"#, None),
            ("{}", "roots/list", "{}", no_method),
            (r#"{"roots":{}}"#, "roots/list", "{}", None),
            ("{}", "x/y", "{}", None),
        ] {
            let refused =
                refusal(&Json::literal(capabilities), &Method::from_name(method), Some(&Json::literal(params)));
            assert_eq!(refused.map(|error| error.code), expected, "{capabilities} {method} {params}");
        }
        assert!(is_input(&Method::from_name("roots/list")) && !is_input(&Method::Ping));
    }
}
