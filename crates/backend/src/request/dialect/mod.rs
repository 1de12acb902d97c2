//! Translates between revisions: requests into the form of the server's, and answers into canonical
//! form.
//!
//! Everything that does not depend on the revision keeps its bytes: `params` are spliced, never
//! serialised again.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use fanlight_protocol::json::{Edits, Member, rewrite_object};
use fanlight_protocol::param_header::ParamHeader;
use fanlight_protocol::revision::MirroredMember;
use fanlight_protocol::{
    Json, Method, Notification, Questions, Response, Revision, RpcError, code, header, meta,
};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::request::request_number;
use fanlight_canonical::{Call, CallContext, TaskDialect};

/// The dialect of one server, once its revision is known.
#[derive(Clone, Debug)]
pub(crate) struct Dialect {
    revision: Revision,
    /// Fanlight's own `Implementation` object, for requests without client information.
    own_info: Json,
    /// The beginning of Fanlight's own members of `_meta`, up to the value of the client's
    /// information; only for modern requests.
    meta_head: Arc<str>,
    /// The revision's headers that repeat members of the params.
    mirrored: Arc<[(HeaderName, &'static MirroredMember)]>,
}

/// The parts of a modern request that HTTP headers repeat (2026-07-28 streamable-http, Request
/// Metadata).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// `MCP-Protocol-Version`
    pub(crate) revision: &'static str,
    /// `Mcp-Method`, encoded
    pub(crate) method: HeaderValue,
    /// The headers that repeat members of the params, such as `Mcp-Name`, encoded
    pub(crate) headers: SmallVec<[(HeaderName, HeaderValue); 1]>,
}

/// A tool parameter that a modern request repeats in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MirroredParam {
    name: HeaderName,
    param: ParamHeader,
}

impl MirroredParam {
    /// `None` if its name cannot be a header name.
    pub(crate) fn new(param: ParamHeader) -> Option<Self> {
        let name = format!("{}{}", header::PARAM_PREFIX, param.name)
            .parse()
            .ok()?;
        Some(Self { name, param })
    }

    /// The size of its names in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let path = self.param.path.iter().map(|name| name.len());
        self.name.as_str().len() + self.param.name.len() + path.sum::<usize>()
    }
}

impl Dialect {
    pub(crate) fn new(revision: Revision, own_info: Json) -> Self {
        let (version, info) = (meta::PROTOCOL_VERSION, meta::CLIENT_INFO);
        let mirrored = revision.mirrored.unwrap_or_default().iter();
        Self {
            revision,
            own_info,
            meta_head: format!(r#""{version}":"{revision}","{info}":"#).into(),
            mirrored: mirrored
                .map(|member| (HeaderName::from_static(member.header), member))
                .collect(),
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// The dialect of tasks of a server with these capabilities (2025-11-25 basic/utilities/tasks,
    /// Capabilities; the tasks extension, Capability Negotiation).
    pub(crate) fn tasks(&self, capabilities: &Json) -> Option<TaskDialect> {
        let path: &[&str] = match self.revision.tasks? {
            TaskDialect::Extension => &["extensions", meta::TASKS_EXTENSION],
            TaskDialect::Requested => &["tasks", "requests", "tools", "call"],
        };
        let declared = path
            .iter()
            .try_fold(capabilities.clone(), |at, step| at.get(step))?;
        self.revision.tasks.filter(|_| declared.is_object())
    }

    /// The only sensible answer to a request that the revision does not have. 2026-07-28 has neither
    /// `ping` nor `logging/setLevel`: each request carries the level.
    pub(crate) fn local_answer(&self, method: &Method) -> Option<Response> {
        let is_local = matches!(method, Method::Ping | Method::SetLogLevel)
            && !self.revision.has_request(method);
        is_local.then(|| Response::from_result(&Json::empty_object()))
    }

    /// Refuses a retry with input that a legacy server never asked for. The suspended call is gone
    /// (Fanlight was restarted, or another replica has it), and without it the server would run the
    /// request again. Only clients without a session send such retries.
    pub(crate) fn lost_conversation(&self, call: &Call) -> Option<Response> {
        if self.revision.questions == Questions::InputRequired
            || call.context.session().is_some()
            || !call.method.may_need_input()
        {
            return None;
        }
        call.params.as_ref()?.get("requestState")?;
        let message = "the call of this requestState is gone: it expired, or the gateway was restarted; send the request again \
                       without requestState";
        Some(Response::from_error(&RpcError::new(
            code::INVALID_PARAMS,
            message,
        )))
    }

    /// The text of a request with `id`, which is also its progress token: both must be unique among
    /// active requests.
    pub(crate) fn request_text(
        &self,
        id: i64,
        method: &Method,
        params: Option<&Json>,
        context: &CallContext,
    ) -> Bytes {
        self.request_text_with_token(
            id,
            context.wants_progress.then_some(id),
            method,
            params,
            context,
        )
    }

    /// Like [`Dialect::request_text`], with another progress token or none.
    pub(crate) fn request_text_with_token(
        &self,
        id: i64,
        token: Option<i64>,
        method: &Method,
        params: Option<&Json>,
        context: &CallContext,
    ) -> Bytes {
        let own = OwnMeta {
            dialect: self,
            token,
            context,
        };
        let params_len = params.map_or(0, |params| params.bytes().len());
        let mut out =
            Vec::with_capacity(params_len + own.most_bytes() + method.as_str().len() + 96);
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        push_integer(&mut out, id);
        out.extend_from_slice(br#","method":"#);
        match self.revision.name_of(method) {
            Some(name) => push_plain(&mut out, name),
            None => out.extend_from_slice(Json::string(method.as_str()).bytes()),
        }
        match params {
            Some(params) => {
                out.extend_from_slice(br#","params":"#);
                write_params(&mut out, params, &own);
            }
            None if own.is_empty() => {}
            None => {
                out.extend_from_slice(br#","params":{"_meta":{"#);
                own.write(&mut out);
                out.extend_from_slice(b"}}");
            }
        }
        out.push(b'}');
        Bytes::from(out)
    }

    /// The headers that repeat parts of a request; `None` if the revision has none. `subject`: see
    /// [`request_subject`].
    pub(crate) fn mirror(
        &self,
        method: &Method,
        subject: Option<&Json>,
        params: Option<&Json>,
        mirrored: &[MirroredParam],
    ) -> Option<Mirror> {
        self.revision.mirrored?;
        let own_name = self.revision.name_of(method);
        let name = own_name.unwrap_or(method.as_str());
        let repeated = |(header, rule): &(HeaderName, &MirroredMember)| {
            let member = rule.find(name)?;
            let value = match subject {
                Some(subject) if method.subject_member() == Some(member) => header_text(subject)?,
                _ => header_text(&params?.get(member)?)?,
            };
            Some((header.clone(), value))
        };
        let mut headers: SmallVec<_> = self.mirrored.iter().filter_map(repeated).collect();
        if !mirrored.is_empty()
            && let Some(arguments) = params.and_then(|params| params.get("arguments"))
        {
            headers.extend(mirrored.iter().filter_map(|mirrored| {
                let value = mirrored.param.value(&arguments)?;
                Some((mirrored.name.clone(), header_value(header::encode(&value))?))
            }));
        }
        Some(Mirror {
            revision: self.revision.name,
            method: match own_name {
                Some(known) => HeaderValue::from_static(known),
                None => header_value(header::encode(name))?,
            },
            headers,
        })
    }

    /// An answer in canonical form. For a missing resource the core uses the code -32002, which
    /// 2026-07-28 has replaced (server/resources, Error Handling).
    pub(crate) fn canonical(&self, method: &Method, response: Response) -> Response {
        let own = self.revision.code(code::RESOURCE_NOT_FOUND);
        if own == code::RESOURCE_NOT_FOUND || *method != Method::ReadResource {
            return response;
        }
        let Some(error) = response.error() else {
            return response;
        };
        let Some(code) = error.place("code") else {
            return response;
        };
        if error.slice(code.clone()).as_text() != own.to_string() {
            return response;
        }
        let mut edits = Edits::new(error.bytes().clone());
        edits.replace(code, code::RESOURCE_NOT_FOUND.to_string());
        response.with_body(&edits.finish_json())
    }
}

/// Whether the client wants a notification on a request's stream: progress that it asked for by
/// `token`, or log messages of its level.
pub(crate) fn concerns(notification: &Notification, token: i64, context: &CallContext) -> bool {
    match notification.method {
        Method::Progress => context.wants_progress && progress_token(notification) == Some(token),
        Method::LogMessage => match (notification.log_level(), context.log_level) {
            (Some(level), Some(least)) => level >= least,
            _ => true,
        },
        _ => true,
    }
}

/// The number of the request that a progress notification belongs to.
pub(crate) fn progress_token(notification: &Notification) -> Option<i64> {
    request_number(&notification.text.slice(notification.progress_token()?))
}

/// The name, URI or task in a request that is about one.
pub(crate) fn request_subject(method: &Method, params: Option<&Json>) -> Option<Json> {
    params?.get(method.subject_member()?)
}

/// A JSON string as a header value; copied only if it needs encoding.
fn header_text(text: &Json) -> Option<HeaderValue> {
    let plain = text.as_str()?;
    match (header::encode(&plain), &plain) {
        (Cow::Borrowed(same), Cow::Borrowed(_)) => {
            HeaderValue::from_maybe_shared(text.bytes().slice_ref(same.as_bytes())).ok()
        }
        (encoded, _) => header_value(encoded),
    }
}

/// An encoded text is always a valid header value.
fn header_value(encoded: Cow<'_, str>) -> Option<HeaderValue> {
    match encoded {
        Cow::Borrowed(plain) => HeaderValue::from_str(plain).ok(),
        Cow::Owned(text) => HeaderValue::try_from(text).ok(),
    }
}

/// Fanlight's own members of `_meta` on one hop.
struct OwnMeta<'a> {
    dialect: &'a Dialect,
    /// The progress token, if progress is wanted.
    token: Option<i64>,
    context: &'a CallContext,
}

impl OwnMeta<'_> {
    fn is_empty(&self) -> bool {
        self.dialect.revision.has_sessions && self.token.is_none()
    }

    fn info(&self) -> &Json {
        self.context
            .client_info
            .as_ref()
            .unwrap_or(&self.dialect.own_info)
    }

    /// An upper bound for the length of [`OwnMeta::write`]'s output.
    fn most_bytes(&self) -> usize {
        if self.dialect.revision.has_sessions {
            return 64;
        }
        288 + self.info().bytes().len() + self.context.capabilities.bytes().len()
    }

    /// Writes the members without braces.
    fn write(&self, out: &mut Vec<u8>) {
        let describes_client = !self.dialect.revision.has_sessions;
        if describes_client {
            out.extend_from_slice(self.dialect.meta_head.as_bytes());
            out.extend_from_slice(self.info().bytes());
            push_key(out, meta::CLIENT_CAPABILITIES, true);
            out.extend_from_slice(self.context.capabilities.bytes());
            if let Some(level) = self.context.log_level {
                push_key(out, meta::LOG_LEVEL, true);
                push_plain(out, level.as_str());
            }
        }
        if let Some(token) = self.token {
            push_key(out, meta::PROGRESS_TOKEN, describes_client);
            push_integer(out, token);
        }
    }
}

/// Writes a member's key; `further` means that it is not the first.
fn push_key(out: &mut Vec<u8>, key: &str, further: bool) {
    if further {
        out.push(b',');
    }
    push_plain(out, key);
    out.push(b':');
}

/// Writes a string that needs no escapes.
fn push_plain(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn push_integer(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes `params` without the client's per-hop keys in `_meta`, and with `own`.
fn write_params(out: &mut Vec<u8>, params: &Json, own: &OwnMeta<'_>) {
    let text = params.bytes();
    let mut metas = params.members().filter(|member| member.is(params, "_meta"));
    let Some(at) = metas.next().map(|member| member.value) else {
        return write_without_meta(out, params, own);
    };
    if metas.next().is_some() {
        // Only the first `_meta` counts: a second one could smuggle per-hop keys through.
        let mut seen = false;
        let first_only =
            |member: &_| !is_meta(params, member) || !std::mem::replace(&mut seen, true);
        return write_params(out, &rewrite_object(params, first_only, b""), own);
    }
    let before = out.len();
    out.extend_from_slice(text.get(..at.start).unwrap_or_default());
    match write_meta(out, &params.slice(at.clone()), own) {
        Written::Changed => out.extend_from_slice(text.get(at.end..).unwrap_or_default()),
        Written::Unchanged => {
            out.truncate(before);
            out.extend_from_slice(text);
        }
        Written::Nothing => {
            out.truncate(before);
            out.extend_from_slice(
                rewrite_object(params, |member| !is_meta(params, member), b"").bytes(),
            );
        }
    }
}

/// The outcome of [`write_meta`].
enum Written {
    Changed,
    Unchanged,
    /// No member remains.
    Nothing,
}

/// Writes a `_meta` without the client's per-hop keys and with `own`.
fn write_meta(out: &mut Vec<u8>, given: &Json, own: &OwnMeta<'_>) -> Written {
    let text = given.bytes();
    out.push(b'{');
    let (mut any, mut removed) = (false, false);
    for member in given.members() {
        if meta::PER_HOP.iter().any(|key| member.is(given, key)) {
            removed = true;
            continue;
        }
        if any {
            out.push(b',');
        }
        any = true;
        out.extend_from_slice(text.get(member.lead..member.value.end).unwrap_or_default());
    }
    if own.is_empty() {
        if !removed {
            return Written::Unchanged;
        }
        if !any {
            return Written::Nothing;
        }
    } else {
        if any {
            out.push(b',');
        }
        own.write(out);
    }
    out.push(b'}');
    Written::Changed
}

fn is_meta(params: &Json, member: &Member) -> bool {
    member.is(params, "_meta")
}

fn write_without_meta(out: &mut Vec<u8>, params: &Json, own: &OwnMeta<'_>) {
    if own.is_empty() {
        out.extend_from_slice(params.bytes());
        return;
    }
    out.extend_from_slice(br#"{"_meta":{"#);
    own.write(out);
    out.push(b'}');
    if params.has_members() {
        out.push(b',');
    }
    out.extend_from_slice(params.bytes().get(1..).unwrap_or(b"}"));
}

#[cfg(test)]
mod tests;
