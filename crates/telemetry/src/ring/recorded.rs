//! One trace as a recording, made from the content that was kept of its calls.
//!
//! Traces keep no whole messages. So a recorded request has its name, arguments, and answers to
//! questions; ids are numbers of the trace.

use std::time::{Instant, SystemTime};

use fanlight_protocol::meta::PROGRESS_TOKEN;
use fanlight_protocol::{DEFAULT_NESTING, INPUT_RESPONSES, Json, Method, ObjectBuilder, Revision};
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;

use super::{Trace, TraceContent, attribute};
use crate::content::{ContentKind, has_content};
use crate::names::{
    BACKEND_NAME, ENDPOINT, GEN_AI_PROMPT_NAME, GEN_AI_TOOL_NAME, MCP_METHOD_NAME,
    MCP_PROTOCOL_VERSION, MCP_RESOURCE_URI,
};
use crate::recording::{Batch, Captured, Framing, Item, Party, Scribe, To};

/// A call of a client, or of the gateway to a server. The number is the one of its exchange, and its
/// id.
type Call<'a> = (u64, &'a SpanData);

/// The messages of a trace.
struct Messages<'a> {
    trace: &'a Trace,
    default_endpoint: &'a str,
    /// The start of the trace by two clocks.
    start: (SystemTime, Instant),
    /// The calls whose requests were kept whole.
    calls: Vec<Call<'a>>,
    batch: Batch,
}

impl Trace {
    /// The messages of the calls, as far as their content was kept, and a scribe for them; `None` if
    /// nothing was kept. Messages of clients without an endpoint in the trace get `default_endpoint`.
    pub fn to_recording(&self, default_endpoint: &str) -> Option<(Scribe, Batch)> {
        let started = self.spans.iter().map(|span| span.start_time).min();
        let (scribe, began) = Scribe::from_start(started.filter(|_| !self.content.is_empty())?);
        let mut messages = Messages {
            trace: self,
            default_endpoint,
            start: (started?, began),
            calls: Vec::new(),
            batch: Batch::default(),
        };
        // Callers end after what they call, and come first here.
        for call in (1..).zip(self.spans.iter().rev()) {
            messages.add_call(call);
        }
        for content in &self.content {
            messages.add_content(content);
        }
        messages.batch.items.sort_by_key(|(at, _)| *at);
        Some((scribe, messages.batch))
    }
}

impl<'a> Messages<'a> {
    /// Adds the request of a call. If one of its parts is unknown, the request is left out, since
    /// it would be a different one.
    fn add_call(&mut self, call: Call<'a>) {
        let (number, span) = call;
        let method = method_of(span);
        if has_content(&method)
            && let Some(params) = self.params(span)
        {
            self.calls.push(call);
            let (method, params) = (method.as_str(), params.as_text());
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}"#
            );
            self.add(call, span.start_time, To::Server, text);
        }
    }

    fn params(&mut self, span: &SpanData) -> Option<Json> {
        let mut params = ObjectBuilder::new();
        for (name, member) in [
            (GEN_AI_TOOL_NAME, "name"),
            (GEN_AI_PROMPT_NAME, "name"),
            (MCP_RESOURCE_URI, "uri"),
        ] {
            if let Some(value) = attribute(span, name) {
                params.string(member, &value.as_str());
            }
        }
        let trace = self.trace;
        for content in &trace.content {
            let is_its = content.span_id == span.span_context.span_id().to_string();
            let member = match content.kind {
                ContentKind::Arguments if is_its => "arguments",
                ContentKind::Answer if is_its => INPUT_RESPONSES,
                _ => continue,
            };
            params.member(member, &self.content_json(content)?);
        }
        let mut progress = trace.content.iter();
        let progress = progress.find(|one| one.kind == ContentKind::Progress);
        if let Some(token) = progress.and_then(|one| one.json()?.get(PROGRESS_TOKEN)) {
            let mut meta = ObjectBuilder::new();
            meta.member(PROGRESS_TOKEN, &token);
            params.member("_meta", &meta.finish());
        }
        Some(params.finish())
    }

    /// The content as JSON. Without it, the message counts as lost.
    fn content_json(&mut self, content: &TraceContent) -> Option<Json> {
        let json = content.json();
        if json.is_none() {
            self.batch.lost.messages += 1;
            self.batch.lost.bytes += content.bytes as u64;
        }
        json
    }

    fn call(&self, id: SpanId) -> Option<Call<'a>> {
        let mut calls = self.calls.iter().copied();
        calls.find(|(_, span)| span.span_context.span_id() == id)
    }

    /// Adds the message of a content, on each side that sent or received it.
    fn add_content(&mut self, content: &TraceContent) {
        let mut spans = self.trace.spans.iter();
        let Some(span) =
            spans.find(|span| span.span_context.span_id().to_string() == content.span_id)
        else {
            return;
        };
        let method = method_of(span);
        let is_question = method.is_input_request();
        let of = match is_question {
            true => span.parent_span_id,
            false => span.span_context.span_id(),
        };
        if !is_question {
            self.add_input(content, span.parent_span_id);
        }
        let is_in_request = content.kind == ContentKind::Answer && !is_question
            || matches!(
                content.kind,
                ContentKind::Arguments | ContentKind::ServerSpans
            );
        let Some(call) = self.call(of).filter(|_| !is_in_request) else {
            return;
        };
        let Some(body) = self.content_json(content) else {
            return;
        };
        let (body, asked) = (body.as_text(), &content.span_id);
        let answer = |member| format!(r#""id":{},"{member}":{body}"#, call.0);
        let notice = |method| format!(r#""method":"notifications/{method}","params":{body}"#);
        let text = match content.kind {
            ContentKind::Question if is_question => {
                let method = method.as_str();
                format!(r#""id":"{asked}","method":"{method}","params":{body}"#)
            }
            ContentKind::Answer => format!(r#""id":"{asked}","result":{body}"#),
            ContentKind::Question => format!(
                r#""id":{},"result":{{"resultType":"input_required","inputRequests":{body}}}"#,
                call.0
            ),
            ContentKind::Progress => notice("progress"),
            ContentKind::Log => notice("message"),
            kind => answer(kind.as_str()),
        };
        let is_notice = text.starts_with("\"method");
        // Notices are kept for the client, and questions of a legacy server for the server.
        let is_other = |(_, other): &&Call<'_>| match is_question {
            true => other.span_context.span_id() == call.1.parent_span_id && has_sessions(other),
            false => is_notice && other.parent_span_id == of && other.end_time >= content.at,
        };
        let other = self.calls.iter().find(is_other).copied();
        let to = match content.kind {
            ContentKind::Answer => To::Server,
            _ => To::Client,
        };
        let text = format!(r#"{{"jsonrpc":"2.0",{text}}}"#);
        if let Some(other) = other {
            let at = match is_question && to == To::Client {
                true => self.passed_on(span.span_context.span_id(), content.at),
                false => content.at,
            };
            self.add(other, at, to, text.clone());
        }
        self.add(call, content.at, to, text);
    }

    /// Adds one message for each question of a modern server, or each answer to one. A legacy
    /// client made the call with the span `caller`.
    fn add_input(&mut self, content: &TraceContent, caller: SpanId) {
        let client = self.call(caller).filter(|(_, span)| has_sessions(span));
        let Some((client, all)) = client.zip(content.json()) else {
            return;
        };
        for member in all.members() {
            let (id, body) = (all.slice(member.key), all.slice(member.value));
            let (to, at, rest) = match content.kind {
                ContentKind::Question => {
                    let rest = String::from_utf8_lossy(body.inner_text()).into_owned();
                    (To::Client, self.passed_on(caller, content.at), rest)
                }
                ContentKind::Answer => (To::Server, content.at, format!(r#""result":{body}"#)),
                _ => return,
            };
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#);
            self.add(client, at, to, text);
        }
    }

    /// The first time after `from` at which the gateway forwarded a question.
    fn passed_on(&self, parent: SpanId, from: SystemTime) -> SystemTime {
        let is_passed =
            |span: &&SpanData| span.parent_span_id == parent && method_of(span).is_input_request();
        let passed = self.trace.spans.iter().filter(is_passed);
        let passed = passed.map(|span| span.start_time);
        passed.filter(|at| *at >= from).min().unwrap_or(from)
    }

    fn add(&mut self, (exchange, span): Call<'a>, at: SystemTime, to: To, text: String) {
        let name = |name| attribute(span, name).map(|value| value.as_str());
        let (peer, connection) = match name(BACKEND_NAME) {
            Some(name) => (
                Party::Server {
                    name: (*name).into(),
                },
                2,
            ),
            None => {
                let endpoint = name(ENDPOINT);
                let endpoint = endpoint.as_deref().unwrap_or(self.default_endpoint);
                let endpoint = endpoint.into();
                (Party::Client { endpoint }, 1)
            }
        };
        let after = at.duration_since(self.start.0).unwrap_or_default();
        let cause = self.call(span.parent_span_id);
        let captured = Captured {
            exchange,
            to,
            kind: Framing::Body,
            transport: "http",
            revision: revision(span).map(|revision| revision.name),
            cause: cause.map_or(0, |(number, _)| number),
            ..Captured::line(peer, connection, text.into())
        };
        let item = Item::Message(Box::new(captured));
        self.batch.items.push((self.start.1 + after, item));
    }
}

impl TraceContent {
    /// The whole message with its secrets, if it was kept.
    fn json(&self) -> Option<Json> {
        let text = (self.left_out == 0).then(|| self.raw.as_bytes().to_vec());
        Json::parse(text?.into(), DEFAULT_NESTING).ok()
    }
}

fn method_of(span: &SpanData) -> Method {
    let name = attribute(span, MCP_METHOD_NAME).map(|name| name.as_str());
    Method::from_name(&name.unwrap_or_default())
}

fn revision(span: &SpanData) -> Option<Revision> {
    Revision::from_name(&attribute(span, MCP_PROTOCOL_VERSION)?.as_str())
}

/// Whether the revision of a call has sessions.
fn has_sessions(span: &SpanData) -> bool {
    revision(span).is_some_and(|revision| revision.has_sessions)
}
