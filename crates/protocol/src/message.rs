//! JSON-RPC envelopes: the kind of a message, and the offsets of its parts.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::derived::Derived;
use crate::error::RpcError;
use crate::json::{
    AmbiguousMember, Chunks, DuplicateMember, Edits, Json, Kind, ObjectBuilder, SyntaxError, Value,
};
use crate::meta::LogLevel;
use crate::method::Method;
use crate::result::{AnyResult, ResultView};

/// Of forwarded messages longer than this many bytes only the structure is validated.
const LONG: usize = 64 << 10;

/// One message, as received.
#[derive(Clone, Debug)]
pub enum Message {
    /// A request, which has to be answered.
    Request(Request),
    /// A notification, which is not answered.
    Notification(Notification),
    /// The answer to a request.
    Response(Response),
}

/// Why a text is not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not JSON at all.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// An array, perhaps of messages: its text, for [`Message::parse_batch`].
    #[error("a batch, which this revision does not have")]
    Batch(Bytes),
    /// A member that a server could take for one of the message's own.
    #[error("{member}")]
    Confusable {
        /// Which.
        member: AmbiguousMember,
        /// The request's id as it was written.
        id: Option<Json>,
    },
    /// JSON, but no JSON-RPC message. The id, if one could be read, lets the sender be answered.
    #[error("not a JSON-RPC message: {reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
        /// The request's id as it was written.
        id: Option<Json>,
    },
}

/// Why a text is not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Not JSON at all.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// JSON, but not an array.
    #[error("not a batch")]
    NoArray,
    /// More messages than may be in one.
    #[error("the batch has more than {0} messages, the limit here")]
    TooLong(usize),
}

/// Who has sent a message: what is received from a client is forwarded to servers that may read it less strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The id, as written: a string or an integer.
    pub id: Json,
    /// The method.
    pub method: Method,
    /// `params`, an object.
    pub params: Option<Json>,
}

/// A notification.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The whole message.
    pub text: Json,
    /// The method.
    pub method: Method,
    /// `params` within the text.
    params: Option<Range<usize>>,
    /// The range of a progress token within the text. It is read often, and replaced for the client.
    token: Option<Range<usize>>,
    number: u64,
}

/// A response: the text of the whole message, with the ranges of its id and its body.
#[derive(Clone)]
pub struct Response {
    text: Json,
    id: Range<usize>,
    body: Range<usize>,
    is_error: bool,
    derived: Option<Arc<Derived>>,
    server_info: Option<Arc<Json>>,
}

impl Message {
    /// Reads the envelope of `text`, which may nest at most `nesting` levels deep.
    pub fn parse(text: Bytes, nesting: usize) -> Result<Self, MessageError> {
        Self::of(Json::parse(text, nesting)?, Sender::Server)
    }

    /// [`Message::parse`] of a client's message: a member of the envelope that a server could take for another one is
    /// an error.
    pub fn parse_from_client(text: Bytes, nesting: usize) -> Result<Self, MessageError> {
        Self::of(Json::parse(text, nesting)?, Sender::Client)
    }

    /// Reads a message that is forwarded whole: of a long one only the structure is validated. Parts of
    /// it that are merged with other text have to be parsed first.
    pub fn parse_for_forwarding(text: Bytes, nesting: usize) -> Result<Self, MessageError> {
        let is_long = text.len() > LONG;
        let json = if is_long {
            Json::validate_structure(text, nesting)?
        } else {
            Json::parse(text, nesting)?
        };
        Self::of(json, Sender::Server)
    }

    fn of(text: Json, sender: Sender) -> Result<Self, MessageError> {
        match text.kind() {
            Kind::Object => Self::from_object(text, sender),
            Kind::Array => Err(MessageError::Batch(text.into_bytes())),
            _ => Err(MessageError::Invalid {
                reason: "neither an object nor an array".into(),
                id: None,
            }),
        }
    }

    /// Reads each message of a batch of at most `limit`, which only 2025-03-26 has. An invalid message does not
    /// affect the others. The messages are counted before any is read: an array of 15 MiB can have millions.
    pub fn parse_batch(
        text: Bytes,
        nesting: usize,
        limit: usize,
        sender: Sender,
    ) -> Result<Vec<Result<Self, MessageError>>, BatchError> {
        let batch = Json::parse(text, nesting)?;
        if batch.kind() != Kind::Array {
            return Err(BatchError::NoArray);
        }
        if batch.elements().nth(limit).is_some() {
            return Err(BatchError::TooLong(limit));
        }
        let parse = |range| {
            Self::of(
                Json::parse(batch.slice(range).into_bytes(), nesting)?,
                sender,
            )
        };
        Ok(batch.elements().map(parse).collect())
    }

    fn from_object(text: Json, sender: Sender) -> Result<Self, MessageError> {
        const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
        let found = match sender {
            Sender::Client => text.find_distinct(&MEMBERS),
            Sender::Server => text.find(MEMBERS).map_err(AmbiguousMember::from),
        };
        let [version, id, method, params, result, error] = found.map_err(|ambiguous| {
            // An id that occurs twice identifies nothing.
            let is_id = matches!(&ambiguous, AmbiguousMember::Duplicate(DuplicateMember { key }) if key == "id");
            let id = if is_id || text.find(["id"]).is_err() { None } else { valid_id(&text) };
            match ambiguous {
                AmbiguousMember::Duplicate(duplicate) => MessageError::Invalid { reason: duplicate.to_string(), id },
                member @ AmbiguousMember::Confusable { .. } => MessageError::Confusable { member, id },
            }
        })?;
        let invalid = |reason: &str| MessageError::Invalid {
            reason: reason.into(),
            id: valid_id(&text),
        };
        if !version
            .and_then(|range| text.at(range))
            .is_some_and(|version| version.is_str("2.0"))
        {
            return Err(invalid("\"jsonrpc\" must be \"2.0\""));
        }
        match (method, result, error) {
            (Some(method), None, None) => Self::call(text, id, method, params),
            (None, Some(body), None) => Response::new(text, id, body, false).map(Self::Response),
            (None, None, Some(body)) => Response::new(text, id, body, true).map(Self::Response),
            (None, None, None) => Err(invalid(
                "none of \"method\", \"result\" and \"error\" is there",
            )),
            _ => Err(invalid(
                "more than one of \"method\", \"result\" and \"error\" is there",
            )),
        }
    }

    fn call(
        text: Json,
        id: Option<Range<usize>>,
        method: Range<usize>,
        params: Option<Range<usize>>,
    ) -> Result<Self, MessageError> {
        let id = id.map(|range| text.slice(range));
        let invalid = |id: Option<Json>, reason: &str| {
            Err(MessageError::Invalid {
                reason: reason.into(),
                id: id.filter(is_valid_id),
            })
        };
        let method = match text.at(method).and_then(Value::as_str) {
            Some(name) => Method::from_name(&name),
            None => return invalid(id, "\"method\" must be a string"),
        };
        if params
            .as_ref()
            .and_then(|range| text.at(range.clone()))
            .is_some_and(|params| !params.is_object())
        {
            // MCP narrows JSON-RPC: parameters are always named (2026-07-28 basic, Requests).
            return invalid(id, "\"params\" must be an object");
        }
        match id {
            None => Ok(Self::Notification(Notification::of(text, method, params))),
            Some(id) if is_valid_id(&id) => Ok(Self::Request(Request {
                id,
                method,
                params: params.map(|range| text.slice(range)),
            })),
            Some(_) => invalid(None, "\"id\" must be a string or an integer"),
        }
    }
}

fn valid_id(text: &Json) -> Option<Json> {
    text.get("id").filter(is_valid_id)
}

/// A string or an integer, not null (2026-07-28 basic, Requests).
fn is_valid_id(id: &Json) -> bool {
    id.kind() == Kind::String || id.is_integer()
}

impl Notification {
    fn of(text: Json, method: Method, params: Option<Range<usize>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut notification = Self {
            text,
            method,
            params,
            token: None,
            number,
        };
        if notification.method == Method::Progress {
            notification.token = notification.param_range("progressToken");
        }
        notification
    }

    /// The level that a `notifications/message` states.
    #[must_use]
    pub fn log_level(&self) -> Option<LogLevel> {
        LogLevel::from_name(&self.params()?.get("level")?.as_str()?)
    }

    /// A number that only clones of this notification share within the process: tells receivers of
    /// copies that they have received one notification, and not two with equal texts.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The range of the token of a progress notification within the text.
    #[must_use]
    pub fn progress_token(&self) -> Option<Range<usize>> {
        self.token.clone()
    }

    /// `params`, if there are any.
    #[must_use]
    pub fn params(&self) -> Option<Json> {
        self.params.clone().map(|range| self.text.slice(range))
    }

    /// The range of the member `key` of `params` within the text.
    #[must_use]
    pub fn param_range(&self, key: &str) -> Option<Range<usize>> {
        let params = self.params.clone()?;
        let view = self.text.slice(params.clone());
        let member = view.members().find(|member| member.is(&view, key))?;
        Some(params.start + member.value.start..params.start + member.value.end)
    }

    /// The text to send with the value at `range`, which must be one of its own, replaced.
    #[must_use]
    pub fn to_message(&self, range: Range<usize>, value: &Json) -> Chunks {
        let text = self.text.bytes();
        if range.start > range.end || range.end > text.len() {
            return Chunks::from(text.clone());
        }
        [
            text.slice(..range.start),
            value.bytes().clone(),
            text.slice(range.end..),
        ]
        .into_iter()
        .collect()
    }

    /// The text with the value at `range` replaced.
    #[must_use]
    pub fn with_value(&self, range: Range<usize>, value: &Json) -> Json {
        self.text.with(range, value)
    }

    /// A notification that Fanlight sends.
    #[must_use]
    pub fn new(method: Method, params: Option<&Json>) -> Self {
        let text = notification_text(method.as_str(), params);
        let end = text.bytes().len() - 1;
        let params = params.map(|params| end - params.bytes().len()..end);
        Self::of(text, method, params)
    }

    /// The notification with the value of the member `key` of `params` replaced, if it has one.
    #[must_use]
    pub fn with_param(&self, key: &str, value: &Json) -> Self {
        let (Some(range), Some(params)) = (self.param_range(key), self.params.clone()) else {
            return self.clone();
        };
        let end = params.end - range.len() + value.bytes().len();
        Self::of(
            self.with_value(range, value),
            self.method.clone(),
            Some(params.start..end),
        )
    }
}

impl Response {
    /// A response with `result`, to be given an id when it is sent.
    #[must_use]
    pub fn from_result(result: &Json) -> Self {
        Self::originate("result", result, false)
    }

    /// A response with an error that Fanlight originates.
    #[must_use]
    pub fn from_error(error: &RpcError) -> Self {
        Self::from_error_object(&error.to_json())
    }

    /// A response with an error object of a server, as written.
    #[must_use]
    pub fn from_error_object(error: &Json) -> Self {
        Self::originate("error", error, true)
    }

    fn originate(key: &str, body: &Json, is_error: bool) -> Self {
        const ENVELOPE: usize = br#""jsonrpc":"2.0","id":null,"":"#.len();
        let mut object = ObjectBuilder::with_capacity(ENVELOPE + key.len() + body.bytes().len());
        object
            .string("jsonrpc", "2.0")
            .member("id", &Json::null())
            .member(key, body);
        let text = object.finish();
        let end = text.bytes().len() - 1;
        let id_start = br#"{"jsonrpc":"2.0","id":"#.len();
        Self {
            id: id_start..id_start + 4,
            body: end - body.bytes().len()..end,
            text,
            is_error,
            derived: None,
            server_info: None,
        }
    }

    fn new(
        text: Json,
        id: Option<Range<usize>>,
        body: Range<usize>,
        is_error: bool,
    ) -> Result<Self, MessageError> {
        let Some(id) = id else {
            return Err(MessageError::Invalid {
                reason: "a response without \"id\"".into(),
                id: None,
            });
        };
        if !text.at(body.clone()).is_some_and(Value::is_object) {
            let reason = "\"result\" and \"error\" must be objects".into();
            return Err(MessageError::Invalid {
                reason,
                id: valid_id(&text),
            });
        }
        Ok(Self {
            text,
            id,
            body,
            is_error,
            derived: None,
            server_info: None,
        })
    }

    /// The id as written; `null` if the request's id could not be read.
    #[must_use]
    pub fn id(&self) -> Json {
        self.text.slice(self.id.clone())
    }

    /// Whether the body is an error object rather than a result.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The result or error object, as written.
    #[must_use]
    pub fn body(&self) -> Json {
        self.text.slice(self.body.clone())
    }

    /// The result object, unless this is an error.
    #[must_use]
    pub fn result(&self) -> Option<Json> {
        (!self.is_error).then(|| self.body())
    }

    /// The member `key` of the result, borrowed; `None` of an error.
    #[must_use]
    pub fn peek_result(&self, key: &str) -> Option<Value<'_>> {
        if self.is_error {
            None
        } else {
            self.text.peek_in(self.body.clone(), key)
        }
    }

    /// The error object, if this is one.
    #[must_use]
    pub fn error(&self) -> Option<Json> {
        self.is_error.then(|| self.body())
    }

    /// The result as one of the views of [`crate::result`], unless this is an error.
    #[must_use]
    pub fn view<T: ResultView>(&self) -> Option<T> {
        self.result().map(T::from)
    }

    /// Whether it is a result that is final, and not for one client alone (2026-07-28 schema, ResultType).
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let result = self.view::<AnyResult>();
        result.is_some_and(|result| {
            result
                .result_type()
                .is_none_or(|kind| kind.as_text() == "\"complete\"")
        })
    }

    /// The code of an error response, if it is one and its code is an integer.
    #[must_use]
    pub fn error_code(&self) -> Option<i64> {
        self.error()?.get("code")?.as_i64()
    }

    /// The response with another result or error object.
    #[must_use]
    pub fn with_body(&self, body: &Json) -> Self {
        let mut edits = Edits::new(self.text.bytes().clone());
        edits.replace(self.body.clone(), body.bytes().clone());
        let grown = body.bytes().len();
        let shift = |at: usize| {
            if at >= self.body.end {
                at - self.body.len() + grown
            } else {
                at
            }
        };
        Self {
            text: edits.finish_json(),
            id: shift(self.id.start)..shift(self.id.end),
            body: self.body.start..self.body.start + grown,
            is_error: self.is_error,
            derived: None,
            server_info: self.server_info.clone(),
        }
    }

    /// The `Implementation` object of the server that has answered, unless its own results can say that.
    #[must_use]
    pub fn server_info(&self) -> Option<&Json> {
        self.server_info.as_deref()
    }

    /// This response, with the `Implementation` object of the server that has answered.
    #[must_use]
    pub fn from_server(self, server_info: Arc<Json>) -> Self {
        Self {
            server_info: Some(server_info),
            ..self
        }
    }

    /// The length in bytes of the whole message.
    #[must_use]
    pub fn size(&self) -> usize {
        self.text.bytes().len()
    }

    /// This response, prepared to be sent many times: indexed for quick lookups ([`Json::indexed`]),
    /// and with values derived from it that all clones share.
    #[must_use]
    pub fn cached(self) -> Self {
        Self {
            text: self.text.indexed(),
            derived: Some(Arc::default()),
            ..self
        }
    }

    /// The values derived from a [cached](Self::cached) response; `None` for any other.
    #[must_use]
    pub fn derived(&self) -> Option<&Derived> {
        self.derived.as_deref()
    }

    /// The response in memory of its own ([`Json::detached`]).
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            text: self.text.detached(),
            ..self.clone()
        }
    }

    /// The message to send: as received, but with `id` instead of its own id and with `added` (raw
    /// member text without outer commas) at the front of the body.
    #[must_use]
    pub fn to_message(&self, id: &Json, added: Bytes) -> Chunks {
        let mut edits = Edits::new(self.text.bytes().clone());
        edits.replace(self.id.clone(), id.bytes().clone());
        edits.insert_owned_members(self.body.start, added);
        edits.finish()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Response").field(&self.text).finish()
    }
}

/// The text of a request that Fanlight sends.
#[must_use]
pub fn request_text(id: &Json, method: &str, params: Option<&Json>) -> Json {
    let mut object = ObjectBuilder::new();
    object
        .string("jsonrpc", "2.0")
        .member("id", id)
        .string("method", method);
    if let Some(params) = params {
        object.member("params", params);
    }
    object.finish()
}

/// The text of a notification that Fanlight sends.
#[must_use]
pub fn notification_text(method: &str, params: Option<&Json>) -> Json {
    let mut object = ObjectBuilder::new();
    object.string("jsonrpc", "2.0").string("method", method);
    if let Some(params) = params {
        object.member("params", params);
    }
    object.finish()
}

#[cfg(test)]
mod tests;
