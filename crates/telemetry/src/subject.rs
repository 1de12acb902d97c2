//! The subject of a message, such as its tool, and how the response ends its span.

use std::borrow::Cow;

use fanlight_protocol::json::Value;
use fanlight_protocol::{Json, Method, Response};
use smol_str::SmolStr;

use crate::text::truncated;
use crate::{ErrorType, Outcome};

/// The limit of the characters of a line that are examined. It is above the length that a span
/// stores, so a secret is never cut in two before it is found.
pub(crate) const LONGEST_LINE: usize = 2048;

/// The tool, prompt or resource that a message names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Named<T> {
    /// The message names none of these.
    #[default]
    None,
    /// A tool.
    Tool(T),
    /// A prompt.
    Prompt(T),
    /// A resource. Spans record its URI in an attribute, without query and user information, never
    /// in their name.
    Resource(T),
}

/// The subject of a message, owned. Names of the usual length need no allocation.
pub type Subject = Named<SmolStr>;
/// The subject of a message, borrowed.
pub type Target<'a> = Named<&'a str>;

impl<T> Named<T> {
    /// The name or URI of the subject.
    pub(crate) fn text(&self) -> Option<&T> {
        match self {
            Self::None => None,
            Self::Tool(text) | Self::Prompt(text) | Self::Resource(text) => Some(text),
        }
    }
}

impl Subject {
    /// The subject of a message with these `params`.
    pub fn new(method: &Method, params: Option<&Json>) -> Self {
        Self::from_members(method, |key| params?.peek(key))
    }

    /// The subject of a message. `member` reads the members of its `params`.
    pub fn from_members<'a>(
        method: &Method,
        member: impl Fn(&'static str) -> Option<Value<'a>>,
    ) -> Self {
        let text = |key| Some(SmolStr::from(member(key)?.as_str()?));
        let found = match method {
            Method::CallTool => text("name").map(Self::Tool),
            Method::GetPrompt => text("name").map(Self::Prompt),
            Method::ReadResource | Method::Subscribe | Method::Unsubscribe => {
                text("uri").map(Self::Resource)
            }
            _ => None,
        };
        found.unwrap_or_default()
    }

    /// The subject, borrowed.
    pub fn target(&self) -> Target<'_> {
        match self {
            Self::None => Target::None,
            Self::Tool(name) => Target::Tool(name),
            Self::Prompt(name) => Target::Prompt(name),
            Self::Resource(uri) => Target::Resource(uri),
        }
    }
}

/// Whether a response is a success, a tool error or a JSON-RPC error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict(Option<(ErrorType, Option<String>)>);

impl Verdict {
    /// The verdict on the response to a request for `method`.
    pub fn judge(method: &Method, answer: &Response) -> Self {
        if let Some(error) = answer.error() {
            let message = error
                .get("message")
                .and_then(|message| message.as_str().map(Cow::into_owned));
            return Self(Some((
                answer
                    .error_code()
                    .map_or(ErrorType::Other, ErrorType::JsonRpc),
                message,
            )));
        }
        let is_tool_error = *method == Method::CallTool
            && answer.peek_result("isError").is_some_and(Value::is_true);
        Self(is_tool_error.then(|| (ErrorType::ToolError, first_line(answer))))
    }

    /// The outcome of the span, for after the response has been sent.
    pub fn outcome(&self) -> Outcome<'_> {
        match &self.0 {
            None => Outcome::Finished,
            Some((error, message)) => Outcome::Failed {
                error: *error,
                message: message.as_deref(),
            },
        }
    }
}

/// The first line of text in the result of a tool call.
fn first_line(answer: &Response) -> Option<String> {
    let content = answer.result()?.get("content")?;
    let is_text = |block: &Json| {
        block
            .get("type")
            .is_some_and(|kind| kind.as_str().as_deref() == Some("text"))
    };
    let text = content
        .elements()
        .map(|block| content.slice(block))
        .find(is_text)?
        .get("text")?;
    let text = text.as_str()?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(truncated(line, LONGEST_LINE).to_owned())
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::RpcError;

    use super::*;

    #[test]
    fn tool_error_has_the_first_line_of_its_text() {
        let of = |text: &str| {
            let result = Json::parse(text.to_owned().into(), 16).unwrap();
            let verdict = Verdict::judge(&Method::CallTool, &Response::from_result(&result));
            let Outcome::Failed {
                error: ErrorType::ToolError,
                message,
            } = verdict.outcome()
            else {
                panic!("{verdict:?}")
            };
            message.map(str::to_owned)
        };
        let image = r#"{"type":"image","data":"QQ==","mimeType":"image/png"}"#;
        let text = r#"{"type":"text","text":"\n  no such file\nat line 3"}"#;
        let shown = of(&format!(r#"{{"isError":true,"content":[{image},{text}]}}"#)).unwrap();
        assert_eq!(shown, "no such file");
        for without in [
            "[]",
            "7",
            r#"[{"type":"text","text":" "}]"#,
            r#"[{"type":"text"}]"#,
            "[7]",
        ] {
            assert_eq!(
                of(&format!(r#"{{"isError":true,"content":{without}}}"#)),
                None,
                "{without}"
            );
        }
        let long = of(&format!(
            r#"{{"isError":true,"content":[{{"type":"text","text":"{}"}}]}}"#,
            "é".repeat(90_000)
        ));
        assert!(long.unwrap().chars().count() <= LONGEST_LINE);
    }

    #[test]
    fn verdict_tells_errors_from_tool_errors() {
        let of = |method: &Method, text: &'static str| {
            Verdict::judge(method, &Response::from_result(&Json::literal(text)))
        };
        assert_eq!(
            of(&Method::CallTool, r#"{"content":[],"isError":true}"#).outcome(),
            Outcome::failed(ErrorType::ToolError)
        );
        assert_eq!(
            of(&Method::CallTool, r#"{"isError":false}"#).outcome(),
            Outcome::Finished
        );
        assert_eq!(
            of(
                &Method::CallTool,
                r#"{"structuredContent":{"isError":true}}"#
            )
            .outcome(),
            Outcome::Finished
        );
        assert_eq!(
            of(&Method::ListTools, r#"{"isError":true}"#).outcome(),
            Outcome::Finished
        );
        let error = Verdict::judge(
            &Method::Ping,
            &Response::from_error(&RpcError::new(-32602, "no")),
        );
        assert_eq!(
            error.outcome(),
            Outcome::Failed {
                error: ErrorType::JsonRpc(-32602),
                message: Some("no")
            }
        );
    }

    #[test]
    fn subject_is_read_from_params() {
        let params = Json::literal(r#"{"name":"a\u0064d","uri":"x://y"}"#);
        assert_eq!(
            Subject::new(&Method::CallTool, Some(&params)).target(),
            Target::Tool("add")
        );
        assert_eq!(
            Subject::new(&Method::ReadResource, Some(&params)).target(),
            Target::Resource("x://y")
        );
        assert_eq!(
            Subject::new(&Method::ListTools, Some(&params)),
            Subject::None
        );
    }
}
