//! What spans say of a message that came or goes, and when it did.
//!
//! Must not know: how the message travels.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use fanlight_protocol::{Json, Method};
use opentelemetry::KeyValue;

use crate::inbound::Carriers;
use crate::names::{
    CLIENT_ADDRESS, CLIENT_PORT, GEN_AI_OPERATION_NAME, GEN_AI_PROMPT_NAME, GEN_AI_TOOL_NAME, JSONRPC_REQUEST_ID,
    MCP_METHOD_NAME, MCP_RESOURCE_URI, NETWORK_PROTOCOL_NAME, NETWORK_PROTOCOL_VERSION, NETWORK_TRANSPORT, OTHER,
};

/// Longest name of a tool, prompt or method in a span's name, in characters.
const LONGEST_NAME: usize = 128;
/// Longest value of any other attribute that a peer chooses, in characters.
const LONGEST_VALUE: usize = 512;

/// A moment by both clocks: the one of the world, and the one that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    wall: SystemTime,
    steady: Instant,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    /// How long ago it was.
    pub(crate) fn elapsed(&self) -> Duration {
        self.steady.elapsed()
    }

    pub(crate) fn wall(&self) -> SystemTime {
        self.wall
    }

    /// The end of what began here: a clock that is set meanwhile makes no span longer or negative.
    pub(crate) fn end(&self) -> SystemTime {
        self.wall + self.elapsed()
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target<'a> {
    /// Nothing that has a name.
    #[default]
    None,
    /// A tool.
    Tool(&'a str),
    /// A prompt.
    Prompt(&'a str),
    /// A resource. Its query and user info are not recorded, and it names no span.
    Resource(&'a str),
}

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its method.
    pub method: &'a Method,
    /// What it is about, by the name the sender uses.
    pub target: Target<'a>,
    /// The request's id; notifications have none.
    pub id: Option<&'a Json>,
    /// When it arrived: before it was read.
    pub received: Moment,
    /// Where its trace context may stand.
    pub carriers: Carriers<'a>,
}

/// A message that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Its method.
    pub method: &'a Method,
    /// What it is about, by the name the receiver uses.
    pub target: Target<'a>,
    /// The id it is sent with; notifications have none.
    pub id: Option<&'a Json>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// The network to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// HTTP.
    Http {
        /// `1.1`, `2`.
        version: &'static str,
        /// The client, where it may be recorded.
        client: Option<SocketAddr>,
    },
    /// Pipes to a process.
    Stdio,
}

impl Network {
    pub(crate) fn transport(self) -> &'static str {
        match self {
            Self::Http { .. } => "tcp",
            Self::Stdio => "pipe",
        }
    }

    /// Hands each attribute to `set`.
    pub(crate) fn describe(self, mut set: impl FnMut(KeyValue)) {
        set(KeyValue::new(NETWORK_TRANSPORT, self.transport()));
        let Self::Http { version, client } = self else { return };
        set(KeyValue::new(NETWORK_PROTOCOL_NAME, "http"));
        set(KeyValue::new(NETWORK_PROTOCOL_VERSION, version));
        if let Some(client) = client {
            set(KeyValue::new(CLIENT_ADDRESS, address(client.ip())));
            set(KeyValue::new(CLIENT_PORT, i64::from(client.port())));
        }
    }
}

/// `{method} {tool or prompt}`, else the method (conventions for MCP, Span name). Never a URI; a
/// method that looks like anything but a method does not name a span.
pub(crate) fn span_name(method: &Method, target: Target<'_>) -> Cow<'static, str> {
    let method = method_name(method);
    match target {
        Target::Tool(name) | Target::Prompt(name) => Cow::Owned([&*method, " ", capped(name, LONGEST_NAME)].concat()),
        Target::None | Target::Resource(_) => method,
    }
}

fn method_name(method: &Method) -> Cow<'static, str> {
    if let Some(known) = method.known_name() {
        return Cow::Borrowed(known);
    }
    let name = method.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'$');
    let ok = !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(plain);
    if ok { Cow::Owned(name.to_owned()) } else { Cow::Borrowed(OTHER) }
}

/// The address as text. Those of IPv4 are written here, for each request has one and the formatter
/// of the standard library takes ten times as long.
fn address(ip: IpAddr) -> String {
    let IpAddr::V4(ip) = ip else { return ip.to_string() };
    let mut out = String::with_capacity("255.255.255.255".len());
    for (index, octet) in ip.octets().into_iter().enumerate() {
        if index > 0 {
            out.push('.');
        }
        for (unit, least) in [(100, 100), (10, 10), (1, 0)] {
            if octet >= least {
                out.push(char::from(b'0' + octet / unit % 10));
            }
        }
    }
    out
}

/// The attributes that both directions have.
pub(crate) fn attributes(method: &Method, target: Target<'_>, id: Option<&Json>) -> Vec<KeyValue> {
    let mut out = Vec::with_capacity(14);
    out.push(match method.known_name() {
        Some(known) => KeyValue::new(MCP_METHOD_NAME, known),
        None => KeyValue::new(MCP_METHOD_NAME, capped(method.as_str(), LONGEST_VALUE).to_owned()),
    });
    match target {
        Target::None => {}
        Target::Tool(name) => {
            out.push(KeyValue::new(GEN_AI_TOOL_NAME, capped(name, LONGEST_VALUE).to_owned()));
            if *method == Method::CallTool {
                out.push(KeyValue::new(GEN_AI_OPERATION_NAME, "execute_tool"));
            }
        }
        Target::Prompt(name) => out.push(KeyValue::new(GEN_AI_PROMPT_NAME, capped(name, LONGEST_VALUE).to_owned())),
        Target::Resource(uri) => out.push(KeyValue::new(MCP_RESOURCE_URI, recorded_uri(uri))),
    }
    if let Some(id) = id.filter(|id| !id.is_null()) {
        let text = id.as_str().unwrap_or_else(|| Cow::Borrowed(id.as_text()));
        out.push(KeyValue::new(JSONRPC_REQUEST_ID, capped(&text, LONGEST_VALUE).to_owned()));
    }
    out
}

/// The URI without user info, query and fragment, wherever they could hide a secret.
fn recorded_uri(uri: &str) -> String {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let plain = uri.get(..end).unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else { return capped(plain, LONGEST_VALUE).to_owned() };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(authority_end).unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    capped(&format!("{scheme}://{host}{path}"), LONGEST_VALUE).to_owned()
}

/// The first 64 bits of a digest: enough to tell sessions apart, useless to take one over.
pub(crate) fn shown_session(id: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, id.as_bytes());
    digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The first `longest` characters.
pub(crate) fn capped(text: &str, longest: usize) -> &str {
    if text.len() <= longest {
        return text;
    }
    text.char_indices().nth(longest).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_named_by_method_and_tool_or_prompt() {
        assert_eq!(span_name(&Method::CallTool, Target::Tool("add")), "tools/call add");
        assert_eq!(span_name(&Method::GetPrompt, Target::Prompt("greet")), "prompts/get greet");
        assert_eq!(span_name(&Method::ReadResource, Target::Resource("file:///x")), "resources/read");
        assert_eq!(span_name(&Method::from_name("vendor/do-it"), Target::None), "vendor/do-it");
        assert_eq!(span_name(&Method::from_name("https://x/?token=1"), Target::None), OTHER);
        assert!(span_name(&Method::CallTool, Target::Tool(&"é".repeat(500))).chars().count() < 200);
    }

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        for ip in ["0.0.0.0", "127.0.0.1", "10.20.30.40", "255.255.255.255", "192.168.100.9", "::1", "fe80::1:2"] {
            assert_eq!(address(ip.parse().unwrap()), ip);
        }
    }

    #[test]
    fn uris_lose_query_fragment_and_user_info() {
        for (given, recorded) in [
            ("https://me:pw@host:8443/a/b?token=1#f", "https://host:8443/a/b"),
            ("postgres://u:p@ss@db/customers", "postgres://db/customers"),
            ("file:///home/x@y", "file:///home/x@y"),
            ("https://u:p@host", "https://host"),
            ("urn:a:b?c", "urn:a:b"),
            ("memo", "memo"),
        ] {
            assert_eq!(recorded_uri(given), recorded);
        }
    }

    #[test]
    fn ids_are_recorded_as_text_and_null_is_not() {
        let id = |text: &'static str| {
            let json = Json::literal(text);
            let all = attributes(&Method::Ping, Target::None, Some(&json));
            all.iter().find(|kv| kv.key.as_str() == JSONRPC_REQUEST_ID).map(|kv| kv.value.to_string())
        };
        assert_eq!(id("7").as_deref(), Some("7"));
        assert_eq!(id("\"a\\u0062\"").as_deref(), Some("ab"));
        assert_eq!(id("null"), None);
    }
}
