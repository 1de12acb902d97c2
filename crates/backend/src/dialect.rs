//! What an era does to a request on its way out and to an answer on its way in.
//!
//! The core's one form in, the backend's own form out, and back. Everything the era does not own
//! keeps its bytes: `params` are spliced, never written anew.
//!
//! Must not know: how messages travel, or when.

use std::ops::Range;

use bytes::Bytes;
use fanlight_protocol::json::{Edits, Member, rewrite_object};
use fanlight_protocol::meta::{self, LogLevel};
use fanlight_protocol::param_header::ParamHeader;
use fanlight_protocol::{Era, Json, Method, Notification, Response, Revision, RpcError, code, header};

use crate::client::{Call, CallContext, TaskDialect};
use crate::exchange::request_number;

/// How one backend is spoken to, once its revision is known.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    revision: Revision,
    /// Fanlight's own `Implementation` object, for requests on nobody's behalf.
    own_info: Json,
}

/// What a modern request repeats in HTTP headers (2026-07-28 streamable-http, Request Metadata).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// `MCP-Protocol-Version`
    pub(crate) revision: &'static str,
    /// `Mcp-Method`, encoded
    pub(crate) method: String,
    /// `Mcp-Name`, encoded
    pub(crate) name: Option<String>,
    /// `Mcp-Param-*`: the part of the name after the prefix, and the encoded value
    pub(crate) params: Vec<(String, String)>,
}

impl Dialect {
    pub(crate) fn new(revision: Revision, own_info: Json) -> Self {
        Self { revision, own_info }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn era(&self) -> Era {
        self.revision.era()
    }

    /// How a server with these capabilities speaks of tasks (2025-11-25 basic/utilities/tasks,
    /// Capabilities; the tasks extension, Capability Negotiation).
    pub(crate) fn tasks(&self, capabilities: &Json) -> Option<TaskDialect> {
        match self.era() {
            Era::Modern => {
                let extension = capabilities.get("extensions")?.get(meta::TASKS_EXTENSION)?;
                extension.is_object().then_some(TaskDialect::Extension)
            }
            Era::Legacy if self.revision == Revision::V2025_11_25 => {
                let call = capabilities.get("tasks")?.get("requests")?.get("tools")?.get("call")?;
                call.is_object().then_some(TaskDialect::Requested)
            }
            Era::Legacy => None,
        }
    }

    /// The answer to a request that this era does not have and that has only one sensible answer.
    /// 2026-07-28 has neither `ping` nor `logging/setLevel`: the level travels with each request.
    pub(crate) fn local_answer(&self, method: &Method) -> Option<Response> {
        let local = self.era() == Era::Modern && matches!(method, Method::Ping | Method::SetLogLevel);
        local.then(|| Response::from_result(&Json::empty_object()))
    }

    /// Refuses the retry of a request that a legacy server never asked input for: the held call it
    /// means has gone (Fanlight was restarted, or another replica holds it), and without it the
    /// server would run the request anew. Only clients without a session send such retries.
    pub(crate) fn lost_conversation(&self, call: &Call) -> Option<Response> {
        if self.era() == Era::Modern || call.context.session.is_some() || !call.method.may_need_input() {
            return None;
        }
        call.params.as_ref()?.get("requestState")?;
        let message = "the call that this requestState belongs to is not here any more: it expired, or the gateway was \
                       restarted; send the request again without requestState";
        Some(Response::from_error(&RpcError::new(code::INVALID_PARAMS, message)))
    }

    /// The text of a request with `id`. The number is the progress token too: unique among the
    /// active requests, as tokens must be.
    pub(crate) fn request_text(&self, id: i64, method: &Method, params: Option<&Json>, context: &CallContext) -> Bytes {
        self.request_text_with_token(id, context.wants_progress.then_some(id), method, params, context)
    }

    /// The same with another progress token, or none.
    pub(crate) fn request_text_with_token(
        &self,
        id: i64,
        token: Option<i64>,
        method: &Method,
        params: Option<&Json>,
        context: &CallContext,
    ) -> Bytes {
        let own = self.own_meta(token, context);
        let params_len = params.map_or(0, |params| params.bytes().len());
        let mut out = Vec::with_capacity(params_len + own.len() + method.as_str().len() + 96);
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.to_string().as_bytes());
        out.extend_from_slice(br#","method":"#);
        out.extend_from_slice(Json::string(method.as_str()).bytes());
        match params {
            Some(params) => {
                out.extend_from_slice(br#","params":"#);
                write_params(&mut out, params, &own);
            }
            None if own.is_empty() => {}
            None => {
                out.extend_from_slice(br#","params":{"_meta":{"#);
                out.extend_from_slice(&own);
                out.extend_from_slice(b"}}");
            }
        }
        out.push(b'}');
        Bytes::from(out)
    }

    /// The members of `_meta` that Fanlight owns on this hop, without outer braces.
    fn own_meta(&self, token: Option<i64>, context: &CallContext) -> Vec<u8> {
        let mut own = Vec::new();
        if self.era() == Era::Modern {
            own.reserve(256);
            push_member(&mut own, meta::PROTOCOL_VERSION, Json::string(self.revision.as_str()).bytes());
            push_member(&mut own, meta::CLIENT_INFO, context.client_info.as_ref().unwrap_or(&self.own_info).bytes());
            push_member(&mut own, meta::CLIENT_CAPABILITIES, context.capabilities.bytes());
            if let Some(level) = context.log_level {
                push_member(&mut own, meta::LOG_LEVEL, Json::string(level.as_str()).bytes());
            }
        }
        if let Some(token) = token {
            push_member(&mut own, meta::PROGRESS_TOKEN, token.to_string().as_bytes());
        }
        own
    }

    /// What the headers of a modern request repeat; nothing for legacy backends.
    pub(crate) fn mirror(&self, method: &Method, params: Option<&Json>, headers: &[ParamHeader]) -> Option<Mirror> {
        if self.era() == Era::Legacy {
            return None;
        }
        let name = header::name_member(method).and_then(|member| params?.get(member));
        let name = name.and_then(|name| Some(header::encode(&name.as_str()?).into_owned()));
        let arguments = if headers.is_empty() { None } else { params.and_then(|params| params.get("arguments")) };
        let params = arguments.map_or_else(Vec::new, |arguments| {
            let encoded = |header: &ParamHeader| {
                let value = header.value(&arguments)?;
                Some((header.name.clone(), header::encode(&value).into_owned()))
            };
            headers.iter().filter_map(encoded).collect()
        });
        let method = header::encode(method.as_str()).into_owned();
        Some(Mirror { revision: self.revision.as_str(), method, name, params })
    }

    /// An answer in canonical form. The core has one code for a resource that does not exist, the
    /// legacy -32002; 2026-07-28 says -32602 (server/resources, Error Handling).
    pub(crate) fn canonical(&self, method: &Method, response: Response) -> Response {
        if self.era() == Era::Legacy || *method != Method::ReadResource {
            return response;
        }
        let Some(error) = response.error() else { return response };
        let Some(code) = value_range(&error, "code") else { return response };
        if error.slice(code.clone()).as_text() != "-32602" {
            return response;
        }
        let mut edits = Edits::new(error.bytes().clone());
        edits.replace(code, Bytes::from_static(b"-32002"));
        response.with_body(&edits.finish_json())
    }
}

/// Whether a notification on the stream of a request is for its client: progress that it asked
/// for by `token`, and log messages as severe as it asked for.
pub(crate) fn concerns(notification: &Notification, token: i64, context: &CallContext) -> bool {
    match notification.method {
        Method::Progress => context.wants_progress && progress_token(notification) == Some(token),
        Method::LogMessage => match (LogLevel::of(notification), context.log_level) {
            (Some(level), Some(least)) => level >= least,
            _ => true,
        },
        _ => true,
    }
}

/// The request that a progress notification belongs to.
pub(crate) fn progress_token(notification: &Notification) -> Option<i64> {
    request_number(&notification.params()?.get("progressToken")?)
}

fn push_member(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}

fn value_range(object: &Json, key: &str) -> Option<Range<usize>> {
    object.members().find(|member| member.is(object, key)).map(|member| member.value)
}

/// Writes `params` with the client's per-hop keys taken out of its `_meta` and `own` put in.
fn write_params(out: &mut Vec<u8>, params: &Json, own: &[u8]) {
    let text = params.bytes();
    let mut metas = params.members().filter(|member| member.is(params, "_meta"));
    let Some(at) = metas.next().map(|member| member.value) else {
        return write_without_meta(out, params, own);
    };
    if metas.next().is_some() {
        // A second `_meta` could smuggle per-hop keys past this one: only the first counts.
        let mut seen = false;
        let first_only = |member: &_| !is_meta(params, member) || !std::mem::replace(&mut seen, true);
        return write_params(out, &rewrite_object(params, first_only, b""), own);
    }
    let given = params.slice(at.clone());
    let is_per_hop = |member: &Member| meta::PER_HOP.iter().any(|key| member.is(&given, key));
    if own.is_empty() && !given.members().any(|member| is_per_hop(&member)) {
        out.extend_from_slice(text);
        return;
    }
    let meta = rewrite_object(&given, |member| !is_per_hop(member), own);
    if meta.members().next().is_none() {
        out.extend_from_slice(rewrite_object(params, |member| !is_meta(params, member), b"").bytes());
        return;
    }
    out.extend_from_slice(text.get(..at.start).unwrap_or_default());
    out.extend_from_slice(meta.bytes());
    out.extend_from_slice(text.get(at.end..).unwrap_or_default());
}

fn is_meta(params: &Json, member: &Member) -> bool {
    member.is(params, "_meta")
}

fn write_without_meta(out: &mut Vec<u8>, params: &Json, own: &[u8]) {
    if own.is_empty() {
        out.extend_from_slice(params.bytes());
        return;
    }
    out.extend_from_slice(br#"{"_meta":{"#);
    out.extend_from_slice(own);
    out.push(b'}');
    if params.members().next().is_some() {
        out.push(b',');
    }
    out.extend_from_slice(params.bytes().get(1..).unwrap_or(b"}"));
}

#[cfg(test)]
mod tests;
