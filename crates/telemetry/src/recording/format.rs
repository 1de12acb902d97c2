//! The lines of a recording.

use std::collections::BTreeMap;

use fanlight_protocol::Method;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Serialize};

/// The version of the format.
pub const VERSION: u32 = 1;

/// A line of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// The first line.
    Head(Head),
    /// A message.
    Message(Box<Message>),
    /// Messages that are missing here.
    Lost(Lost),
    /// The last line.
    End(End),
    /// A line that a later version may write.
    Unknown,
}

/// The first line: what was known when the recording started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The version of the format.
    pub recording: u32,
    /// The version of Fanlight.
    pub fanlight: String,
    /// The wall time of microsecond 0 (RFC 3339).
    pub started: String,
    /// The path of the endpoint that the recording is limited to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The recorded servers by name.
    #[serde(default)]
    pub servers: BTreeMap<String, RecordedServer>,
}

/// A server when the recording started. A server that could not be read has neither an opening nor
/// definitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedServer {
    /// The revision of the protocol, unless nothing tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The JSON text of the result of `initialize` or `server/discover`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opening: Option<String>,
    /// The JSON texts of all definitions.
    #[serde(default)]
    pub definitions: Definitions,
    /// The digest of each definition, in the same order, as in the file of `pins`. It is empty for
    /// a definition that cannot be pinned.
    #[serde(default)]
    pub digests: Definitions,
    /// The JSON Pointers of masked places. They begin with `/opening`, or with the place of the
    /// definition, such as `/definitions/tools/0`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<String>,
}

/// Texts about definitions, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Definitions {
    /// Tools.
    pub tools: Vec<String>,
    /// Prompts.
    pub prompts: Vec<String>,
    /// Resources.
    pub resources: Vec<String>,
    /// Templates of resources.
    pub resource_templates: Vec<String>,
}

impl Definitions {
    /// The texts of each list, by the method that reads it.
    #[must_use]
    pub fn lists(&self) -> [(Method, &[String]); 4] {
        [
            (Method::ListTools, &self.tools),
            (Method::ListPrompts, &self.prompts),
            (Method::ListResources, &self.resources),
            (Method::ListResourceTemplates, &self.resource_templates),
        ]
    }
}

/// A recorded message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Microseconds since the start.
    pub us: u64,
    /// The side of the gateway.
    pub side: Side,
    /// The endpoint's path; only on the side of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The server's name; only on the side of servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The number of the connection or session.
    pub connection: u64,
    /// The number of the HTTP request, stream or line.
    pub exchange: u64,
    /// The direction.
    pub to: To,
    /// The form in which the message travelled.
    pub kind: Framing,
    /// `http`, `sse` (the deprecated transport) or `stdio`.
    pub transport: String,
    /// The revision of the protocol, unless nothing tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The method of the HTTP request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The status of the HTTP response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Headers on the allow-list, by lower-case name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The message.
    #[serde(flatten)]
    pub content: Text,
    /// The masked places: JSON Pointers into the message, and `header:NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<String>,
    /// The exchange of the client's message that caused this message of the servers' side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<u64>,
}

/// A side of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Between clients and the gateway.
    Client,
    /// Between the gateway and servers.
    Server,
}

/// The direction of a message, on both sides of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum To {
    /// A message on its way to a server.
    Server,
    /// A message on its way to a client.
    Client,
}

/// The form in which a message travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// The body of an HTTP request or response.
    Body,
    /// The data of a server-sent event.
    Event,
    /// A line of a stream.
    Line,
}

/// The text of a message, as it crossed the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Text {
    /// A text.
    Text(String),
    /// Bytes that are not UTF-8, in base64.
    Base64(String),
}

/// Messages that are missing at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Microseconds since the start.
    pub us: u64,
    /// How much is missing.
    pub lost: Loss,
}

/// How much is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The number of messages, or of their parts if they came in parts.
    pub messages: u64,
    /// The number of their bytes.
    pub bytes: u64,
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Microseconds since the start.
    pub us: u64,
    /// Why the recording ended, and whether it is whole.
    pub end: Ending,
}

/// Why a recording ended, and whether it is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// `interrupted`, `time`, `size`, `stopped`, `gateway-ended` or `trace`.
    pub reason: String,
    /// Whether no message is missing from the start to the end.
    pub whole: bool,
    /// The number of recorded messages.
    pub messages: u64,
}

impl Message {
    /// The text, unless it was no UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Text::Text(text) => Some(text),
            Text::Base64(_) => None,
        }
    }
}

/// The members that tell the kinds of lines apart.
#[derive(Deserialize)]
struct Kind {
    recording: Option<IgnoredAny>,
    side: Option<IgnoredAny>,
    lost: Option<IgnoredAny>,
    end: Option<IgnoredAny>,
}

impl Line {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// If it is no JSON object, or lacks a member of its kind, or has a later version.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let kind: Kind = serde_json::from_str(text)?;
        Ok(match kind {
            Kind { side: Some(_), .. } => Self::Message(serde_json::from_str(text)?),
            Kind {
                recording: Some(_), ..
            } => Self::Head(head(text)?),
            Kind { lost: Some(_), .. } => Self::Lost(serde_json::from_str(text)?),
            Kind { end: Some(_), .. } => Self::End(serde_json::from_str(text)?),
            _ => Self::Unknown,
        })
    }
}

fn head(text: &str) -> Result<Head, serde_json::Error> {
    let head: Head = serde_json::from_str(text)?;
    match head.recording {
        VERSION => Ok(head),
        version => Err(serde_json::Error::custom(format!(
            "version {version} of the format; this Fanlight reads version {VERSION}"
        ))),
    }
}

/// The text of a line, with its line break.
#[must_use]
pub fn line(value: &impl Serialize) -> Vec<u8> {
    // Only maps with other keys than texts cannot be written.
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let message = Message {
            us: 7,
            side: Side::Server,
            endpoint: None,
            server: Some("a".to_owned()),
            connection: 1,
            exchange: 2,
            to: To::Client,
            kind: Framing::Event,
            transport: "http".to_owned(),
            revision: Some("2025-11-25".to_owned()),
            method: None,
            status: Some(200),
            headers: BTreeMap::from([("content-type".to_owned(), "x".to_owned())]),
            content: Text::Text("{\"id\":1.0}\u{1}\"".to_owned()),
            masked: vec!["/a~1b".to_owned()],
            cause: Some(3),
        };
        let written = line(&message);
        let text = std::str::from_utf8(&written).unwrap();
        assert!(
            text.ends_with("\"cause\":3}\n") && text.contains(r#""text":"{\"id\":1.0}\u0001\"""#)
        );
        assert_eq!(Line::parse(text).unwrap(), Line::Message(Box::new(message)));
        let lost = Lost {
            us: 9,
            lost: Loss {
                messages: 1,
                bytes: 2,
            },
        };
        let text = String::from_utf8(line(&lost)).unwrap();
        assert_eq!(text, "{\"us\":9,\"lost\":{\"messages\":1,\"bytes\":2}}\n");
        assert_eq!(Line::parse(&text).unwrap(), Line::Lost(lost));
    }

    #[test]
    fn unknown_members_and_lines_are_ignored() {
        let head = r#"{"recording":1,"new":{},"fanlight":"1","started":"t","servers":{"a":{"new":1,"definitions":{"new":[]}}}}"#;
        assert!(matches!(Line::parse(head), Ok(Line::Head(head)) if head.servers.len() == 1));
        assert_eq!(Line::parse(r#"{"us":1,"new":1}"#).unwrap(), Line::Unknown);
        assert!(Line::parse(r#"{"recording":2,"fanlight":"1","started":"t"}"#).is_err());
        assert!(Line::parse("[]").is_err() && Line::parse(r#"{"us":1,"side":"x"}"#).is_err());
    }
}
