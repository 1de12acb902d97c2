//! What a message is about, and what its answer says of how it went, as both sides need it.
//!
//! Must not know: which side asks.

use std::borrow::Cow;

use fanlight_protocol::json::Value;
use fanlight_protocol::{Json, Method, Response, RpcError};
use smol_str::SmolStr;

use crate::error_type::{ErrorType, Outcome};
use crate::message::Target;

/// What a message is about, in its own memory; names of the usual length need none but this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// Nothing that has a name.
    #[default]
    None,
    /// A tool.
    Tool(SmolStr),
    /// A prompt.
    Prompt(SmolStr),
    /// A resource.
    Resource(SmolStr),
}

impl Subject {
    /// What a message with these `params` is about.
    #[must_use]
    pub fn of(method: &Method, params: Option<&Json>) -> Self {
        Self::found(method, |key| params?.peek(key))
    }

    /// The same, where the members of `params` have been found already.
    pub fn found<'a>(method: &Method, member: impl Fn(&'static str) -> Option<Value<'a>>) -> Self {
        let text = |key| Some(SmolStr::from(member(key)?.as_str()?));
        let found = match method {
            Method::CallTool => text("name").map(Self::Tool),
            Method::GetPrompt => text("name").map(Self::Prompt),
            Method::ReadResource | Method::Subscribe | Method::Unsubscribe => text("uri").map(Self::Resource),
            _ => None,
        };
        found.unwrap_or_default()
    }

    /// The same, borrowed.
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        match self {
            Self::None => Target::None,
            Self::Tool(name) => Target::Tool(name),
            Self::Prompt(name) => Target::Prompt(name),
            Self::Resource(uri) => Target::Resource(uri),
        }
    }
}

/// What an answer says of how its request went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict(Option<(ErrorType, Option<String>)>);

impl Verdict {
    /// Of the answer to a request for `method`.
    #[must_use]
    pub fn of(method: &Method, answer: &Response) -> Self {
        if let Some(error) = answer.error() {
            let message = error.get("message").and_then(|message| message.as_str().map(Cow::into_owned));
            return Self(Some((answer.error_code().map_or(ErrorType::Other, ErrorType::JsonRpc), message)));
        }
        let is_tool_error = *method == Method::CallTool && answer.peek_result("isError").is_some_and(Value::is_true);
        Self(is_tool_error.then_some((ErrorType::ToolError, None)))
    }

    /// Of an error that this side answers with.
    #[must_use]
    pub fn of_error(error: &RpcError) -> Self {
        Self(Some((ErrorType::JsonRpc(error.code), Some(error.message.clone()))))
    }

    /// How the span ends once the answer has gone.
    #[must_use]
    pub fn outcome(&self) -> Outcome<'_> {
        match &self.0 {
            None => Outcome::Finished,
            Some((error, message)) => Outcome::Failed { error: *error, message: message.as_deref() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_an_error_a_tool_error_or_nothing() {
        let of =
            |method: &Method, text: &'static str| Verdict::of(method, &Response::from_result(&Json::literal(text)));
        assert_eq!(
            of(&Method::CallTool, r#"{"content":[],"isError":true}"#).outcome(),
            Outcome::failed(ErrorType::ToolError)
        );
        assert_eq!(of(&Method::CallTool, r#"{"isError":false}"#).outcome(), Outcome::Finished);
        assert_eq!(of(&Method::CallTool, r#"{"structuredContent":{"isError":true}}"#).outcome(), Outcome::Finished);
        assert_eq!(of(&Method::ListTools, r#"{"isError":true}"#).outcome(), Outcome::Finished);
        let error = Verdict::of(&Method::Ping, &Response::from_error(&RpcError::new(-32602, "no")));
        assert_eq!(error.outcome(), Outcome::Failed { error: ErrorType::JsonRpc(-32602), message: Some("no") });
    }

    #[test]
    fn subjects_are_read_from_params() {
        let params = Json::literal(r#"{"name":"a\u0064d","uri":"x://y"}"#);
        assert_eq!(Subject::of(&Method::CallTool, Some(&params)).target(), Target::Tool("add"));
        assert_eq!(Subject::of(&Method::ReadResource, Some(&params)).target(), Target::Resource("x://y"));
        assert_eq!(Subject::of(&Method::ListTools, Some(&params)), Subject::None);
    }
}
