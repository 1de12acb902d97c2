//! A recorded span as a span of the OpenTelemetry SDK, for readers. It has its name, and attributes
//! with the names of the conventions.

use std::borrow::Cow;
use std::sync::Arc;

use fanlight_protocol::Method;
use opentelemetry::trace::{Event as SpanEvent, Link, SpanId, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::names::{
    ATTEMPT, CACHE_HIT, CANARY, CLIENT_ADDRESS, CLIENT_NAME, CLIENT_PORT, CLIENT_VERSION,
    CONNECT_SPAN, ENDPOINT, ERROR_MESSAGE, ERROR_TYPE, GATE, GEN_AI_OPERATION_NAME,
    GEN_AI_PROMPT_NAME, GEN_AI_PROMPT_VARIABLE, GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_RESULT, GEN_AI_TOOL_NAME, JSONRPC_REQUEST_ID, Kind, LEAN_TOOLS,
    MCP_METHOD_NAME, MCP_PROTOCOL_VERSION, MCP_RESOURCE_URI, MCP_SESSION_ID, MIRROR, MIRROR_SPAN,
    NETWORK_PROTOCOL_NAME, NETWORK_PROTOCOL_VERSION, NETWORK_TRANSPORT, OTHER, PARTIAL_FAILURES,
    POLICY, PRINCIPAL, REWRITTEN, RPC_RESPONSE_STATUS_CODE, SHORTENED, TOLD_BY,
};
use crate::record::{OptionalFields, Record, SpanFields};
use crate::redact::{members, redacted};
use crate::stored::StoredId;
use crate::text::truncated;
use crate::{ContentKind, Network, Subject, ring};

/// The limit of the name of a tool, prompt or method in a span's name, in characters.
const LONGEST_NAME: usize = 128;

impl Record {
    /// Makes the span for the SDK.
    pub(crate) fn to_span_data(&self) -> SpanData {
        let fields = self.fields.lock();
        let start_time = self.start.began.wall();
        SpanData {
            span_context: self.context.to_span_context(false),
            parent_span_id: self.parent.map_or(SpanId::INVALID, |parent| parent.id),
            parent_span_is_remote: self.parent.is_some_and(|parent| parent.is_remote),
            span_kind: match self.start.kind {
                Kind::Server => SpanKind::Server,
                Kind::Client => SpanKind::Client,
                Kind::Internal => SpanKind::Internal,
            },
            name: self.name(&fields),
            start_time,
            end_time: start_time + fields.lasted.unwrap_or_default(),
            attributes: self.attributes(&fields),
            dropped_attributes_count: 0,
            events: events(fields.optional.as_deref()),
            links: self.links(),
            status: self.status(&fields),
            instrumentation_scope: InstrumentationScope::builder("fanlight")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        }
    }

    /// Makes the span for an exporter or a file, which calls [`mask_content`] before it uses it.
    pub(crate) fn to_exported(&self) -> SpanData {
        let mut span = self.to_span_data();
        let Some(content) = self.content.get() else {
            return span;
        };
        let has_failed = self.fields.lock().error.is_some();
        for message in content.exported(self.context.span_id(), has_failed) {
            let name = match message.kind {
                ContentKind::Arguments => GEN_AI_TOOL_CALL_ARGUMENTS,
                ContentKind::Result => GEN_AI_TOOL_CALL_RESULT,
                _ => continue,
            };
            span.attributes.push(KeyValue::new(name, message.text));
        }
        span
    }

    /// The name of the span: `{method} {tool or prompt}`, or else the method (conventions for MCP,
    /// Span name). It never contains a URI. A malformed method becomes `_OTHER`.
    pub(crate) fn name(&self, fields: &SpanFields) -> Cow<'static, str> {
        let Some(method) = &self.start.method else {
            return self.name_without_method().into();
        };
        let method = method_name(method);
        match self.subject(fields) {
            Subject::Tool(name) | Subject::Prompt(name) => {
                [&*method, " ", truncated(name, LONGEST_NAME)]
                    .concat()
                    .into()
            }
            Subject::None | Subject::Resource(_) => method,
        }
    }

    /// The name of a span that belongs to no message.
    pub(crate) fn name_without_method(&self) -> &'static str {
        if self.start.backend.is_some() {
            CONNECT_SPAN
        } else {
            MIRROR_SPAN
        }
    }

    fn attributes(&self, fields: &SpanFields) -> Vec<KeyValue> {
        let mut out = Vec::with_capacity(16);
        self.describe_message(fields, &mut out);
        if let Some(backend) = &self.start.backend {
            out.extend_from_slice(&backend.shared().attributes);
        }
        out.extend(
            self.start
                .attempt
                .map(|attempt| KeyValue::new(ATTEMPT, i64::from(attempt))),
        );
        if let Some(network) = fields.network {
            describe_network(&mut out, network);
        }
        out.extend(
            fields
                .revision
                .map(|revision| KeyValue::new(MCP_PROTOCOL_VERSION, revision.name)),
        );
        out.extend(
            fields
                .session
                .as_ref()
                .map(|session| KeyValue::new(MCP_SESSION_ID, session.digest())),
        );
        out.extend(fields.cache_hit.map(|hit| KeyValue::new(CACHE_HIT, hit)));
        let failures = fields
            .partial_failures
            .map(|count| i64::try_from(count).unwrap_or(i64::MAX));
        out.extend(failures.map(|count| KeyValue::new(PARTIAL_FAILURES, count)));
        if !fields.rewritten.is_empty() {
            out.push(KeyValue::new(REWRITTEN, fields.rewritten.to_string()));
        }
        if let Some(optional) = &fields.optional {
            let text =
                |name, text: &Option<String>| text.clone().map(|text| KeyValue::new(name, text));
            out.extend(text(TOLD_BY, &optional.told_by));
            out.extend(text(CANARY, &optional.canary));
            out.extend(text(LEAN_TOOLS, &optional.lean_tools));
            out.extend(text(SHORTENED, &optional.shortened));
            out.extend(text(MIRROR, &optional.mirror));
            out.extend(text(POLICY, &optional.policy));
            out.extend(optional.gate.map(|gate| KeyValue::new(GATE, gate)));
            out.extend(
                optional
                    .endpoint
                    .as_ref()
                    .map(|path| KeyValue::new(ENDPOINT, Arc::clone(path))),
            );
        }
        if let Some(client) = &fields.client {
            let named = [
                (CLIENT_NAME, client.name()),
                (CLIENT_VERSION, client.version()),
                (PRINCIPAL, client.principal()),
            ];
            out.extend(
                named
                    .into_iter()
                    .filter_map(|(key, text)| Some(KeyValue::new(key, text?.to_owned()))),
            );
        }
        if let Some(error) = fields.error {
            match self.is_failure(fields) {
                true => out.push(KeyValue::new(ERROR_TYPE, error.as_text())),
                false => {
                    out.extend(
                        message(fields).map(|message| KeyValue::new(ERROR_MESSAGE, message)),
                    );
                }
            }
            out.extend(
                error
                    .status_code()
                    .map(|code| KeyValue::new(RPC_RESPONSE_STATUS_CODE, code.to_string())),
            );
        }
        out
    }

    /// Whether the span has failed. A SERVER span has not failed if the sender made the mistake.
    fn is_failure(&self, fields: &SpanFields) -> bool {
        fields
            .error
            .is_some_and(|error| self.start.kind != Kind::Server || !error.is_mistake_of_sender())
    }

    fn status(&self, fields: &SpanFields) -> Status {
        if self.is_failure(fields) {
            Status::error(message(fields).unwrap_or_default())
        } else {
            Status::Unset
        }
    }

    fn describe_message(&self, fields: &SpanFields, out: &mut Vec<KeyValue>) {
        let Some(method) = &self.start.method else {
            return;
        };
        out.push(match method.known_name() {
            Some(known) => KeyValue::new(MCP_METHOD_NAME, known),
            None => KeyValue::new(MCP_METHOD_NAME, method.as_str().to_owned()),
        });
        match self.subject(fields) {
            Subject::None => {}
            Subject::Tool(name) => {
                out.push(KeyValue::new(GEN_AI_TOOL_NAME, name.to_string()));
                if *method == Method::CallTool {
                    out.push(KeyValue::new(GEN_AI_OPERATION_NAME, "execute_tool"));
                }
            }
            Subject::Prompt(name) => out.push(KeyValue::new(GEN_AI_PROMPT_NAME, name.to_string())),
            Subject::Resource(uri) => out.push(KeyValue::new(MCP_RESOURCE_URI, uri.to_string())),
        }
        out.extend(self.start.id.as_ref().map(|id| {
            let text = match id {
                StoredId::Number(number) => number.to_string(),
                StoredId::Text(text) => text.to_string(),
            };
            KeyValue::new(JSONRPC_REQUEST_ID, text)
        }));
    }

    fn links(&self) -> SpanLinks {
        let mut links = SpanLinks::default();
        links.links.extend(
            self.start
                .links
                .iter()
                .map(|link| Link::with_context(link.to_span_context(true))),
        );
        links
    }
}

/// Replaces the secrets in the content of an exported span. Arguments of a prompt become one
/// attribute each. Other methods than tool calls have no attribute for their content.
pub(crate) fn mask_content(span: &mut SpanData) {
    let method = ring::attribute(span, MCP_METHOD_NAME).map(Value::to_string);
    let (is_tool, is_prompt) = (
        method.as_deref() == Some(Method::CallTool.as_str()),
        method.as_deref() == Some(Method::GetPrompt.as_str()),
    );
    let is_content = |one: &KeyValue| {
        [GEN_AI_TOOL_CALL_ARGUMENTS, GEN_AI_TOOL_CALL_RESULT].contains(&one.key.as_str())
    };
    let content: Vec<KeyValue> = span
        .attributes
        .extract_if(.., |one| is_content(one))
        .collect();
    for KeyValue { key, value, .. } in content {
        let masked = redacted(&value.as_str());
        if is_tool {
            span.attributes.push(KeyValue::new(key, masked));
        } else if is_prompt && key.as_str() == GEN_AI_TOOL_CALL_ARGUMENTS {
            let variables = members(&masked).into_iter();
            span.attributes.extend(variables.map(|(name, value)| {
                KeyValue::new([GEN_AI_PROMPT_VARIABLE, ".", &name].concat(), value)
            }));
        }
    }
}

fn method_name(method: &Method) -> Cow<'static, str> {
    if let Some(known) = method.known_name() {
        return Cow::Borrowed(known);
    }
    let name = method.as_str();
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'$');
    let ok = !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(plain);
    if ok {
        Cow::Owned(name.to_owned())
    } else {
        Cow::Borrowed(OTHER)
    }
}

fn describe_network(out: &mut Vec<KeyValue>, network: Network) {
    out.push(KeyValue::new(
        NETWORK_TRANSPORT,
        network.transport().as_str(),
    ));
    let Network::Http { version, client } = network else {
        return;
    };
    out.push(KeyValue::new(NETWORK_PROTOCOL_NAME, "http"));
    out.push(KeyValue::new(NETWORK_PROTOCOL_VERSION, version));
    if let Some(client) = client {
        out.push(KeyValue::new(CLIENT_ADDRESS, client.ip().to_string()));
        if client.port() > 0 {
            out.push(KeyValue::new(CLIENT_PORT, i64::from(client.port())));
        }
    }
}

fn events(optional: Option<&OptionalFields>) -> SpanEvents {
    let mut events = SpanEvents::default();
    let Some(optional) = optional else {
        return events;
    };
    events.events.extend(
        optional
            .events
            .iter()
            .map(|(at, event)| SpanEvent::new(event.name(), *at, event.attributes(), 0)),
    );
    events.dropped_count = optional.dropped_events;
    events
}

fn message(fields: &SpanFields) -> Option<String> {
    fields
        .optional
        .as_ref()
        .and_then(|optional| optional.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_type::{ErrorType, Outcome};
    use crate::ring::tests::record_of;
    use crate::subject::Target;

    fn name(method: Method, target: Target<'_>) -> String {
        let record = record_of(method, target);
        let fields = record.fields.lock();
        record.name(&fields).into_owned()
    }

    #[test]
    fn message_of_an_error_has_no_secrets() {
        let record = record_of(Method::CallTool, Target::Tool("add"));
        let long = format!("login failed: password=s3cret, {}", "x".repeat(300));
        let outcome = Outcome::Failed {
            error: ErrorType::JsonRpc(-32000),
            message: Some(&long),
        };
        record.end(&outcome, Default::default());
        let shown = message(&record.fields.lock()).unwrap();
        assert!(
            shown.starts_with("login failed: password=") && !shown.contains("s3cret"),
            "{shown}"
        );
        assert_eq!(shown.chars().count(), 256);
    }

    #[test]
    fn span_name_is_method_and_tool_or_prompt() {
        assert_eq!(
            name(Method::CallTool, Target::Tool("add")),
            "tools/call add"
        );
        assert_eq!(
            name(Method::GetPrompt, Target::Prompt("greet")),
            "prompts/get greet"
        );
        assert_eq!(
            name(Method::ReadResource, Target::Resource("file:///x")),
            "resources/read"
        );
        assert_eq!(
            name(Method::from_name("vendor/do-it"), Target::None),
            "vendor/do-it"
        );
        assert_eq!(
            name(Method::from_name("https://x/?token=1"), Target::None),
            OTHER
        );
        assert!(
            name(Method::CallTool, Target::Tool(&"é".repeat(500)))
                .chars()
                .count()
                < 200
        );
    }
}
