//! JSON-RPC envelopes: the kind of a message, and the offsets of its parts.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::json::{
    AmbiguousMember, Chunks, DuplicateMember, Edits, Json, Kind, ObjectBuilder, SyntaxError, Value,
};
use crate::result::{AnyResult, ResultView};
use crate::{LogLevel, Method, RpcError};

/// The longest forwarded message that is fully validated, in bytes. For longer ones only the
/// structure is.
const LONG: usize = 64 << 10;

/// One message, as received.
#[derive(Clone, Debug)]
pub enum Message {
    /// A request, which must be answered.
    Request(Request),
    /// A notification, which is not answered.
    Notification(Notification),
    /// The answer to a request.
    Response(Response),
}

/// The reason why a text is not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// The text is an array, perhaps of messages, which [`Message::parse_batch`] can read.
    #[error("a batch, which this revision does not have")]
    Batch(Bytes),
    /// The message has a member that a server could take for one of the envelope's members.
    #[error("{member}")]
    Confusable {
        /// The member.
        member: AmbiguousMember,
        /// The request's id as it was written.
        id: Option<Json>,
    },
    /// The text is JSON, but not a JSON-RPC message. With the id, if it could be read, the sender
    /// can be answered.
    #[error("not a JSON-RPC message: {reason}")]
    Invalid {
        /// The fault.
        reason: String,
        /// The request's id as it was written.
        id: Option<Json>,
    },
}

/// The reason why a text is not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Syntax(#[from] SyntaxError),
    /// The text is JSON, but not an array.
    #[error("not a batch")]
    NoArray,
    /// The batch has more messages than the limit.
    #[error("the batch has more than {0} messages, the limit here")]
    TooLong(usize),
}

/// The sender of a message. Messages from clients are forwarded to servers, which may read them
/// less strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// A text without the byte order mark that some peers begin with (RFC 8259, 8.1).
pub fn without_mark(text: Bytes) -> Bytes {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if text.starts_with(MARK) {
        text.slice(MARK.len()..)
    } else {
        text
    }
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

impl Request {
    /// The member `key` of `params`.
    pub fn param(&self, key: &str) -> Option<Json> {
        self.params.as_ref()?.get(key)
    }
}

/// A notification.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The whole message.
    pub text: Json,
    /// The method.
    pub method: Method,
    /// The range of `params` in the text.
    pub(crate) params: Option<Range<usize>>,
    /// The range of a progress token in the text. It is read often, and replaced for the client.
    token: Option<Range<usize>>,
    number: u64,
    /// Whether Fanlight made it, and no server or client.
    pub is_own: bool,
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
    whole: Option<Arc<Self>>,
}

impl Message {
    /// Reads the envelope of `text`, which may have at most `nesting` levels.
    pub fn parse(text: Bytes, nesting: usize) -> Result<Self, MessageError> {
        Self::classify(Json::parse(text, nesting)?, Sender::Server)
    }

    /// Like [`Message::parse`], for a client's message. A member that a server could take for one
    /// of the envelope's members is an error.
    pub fn parse_from_client(text: Bytes, nesting: usize) -> Result<Self, MessageError> {
        Self::classify(Json::parse(without_mark(text), nesting)?, Sender::Client)
    }

    /// Reads a message that is forwarded as a whole. For a long message, only the structure is
    /// validated, so parts that are merged with other text have to be parsed before.
    pub fn parse_for_forwarding(text: Bytes, nesting: usize) -> Result<Self, MessageError> {
        let is_long = text.len() > LONG;
        let json = if is_long {
            Json::validate_structure(text, nesting)?
        } else {
            Json::parse(text, nesting)?
        };
        Self::classify(json, Sender::Server)
    }

    fn classify(text: Json, sender: Sender) -> Result<Self, MessageError> {
        match text.kind() {
            Kind::Object => Self::from_object(text, sender),
            Kind::Array => Err(MessageError::Batch(text.into_bytes())),
            _ => Err(MessageError::Invalid {
                reason: "neither an object nor an array".into(),
                id: None,
            }),
        }
    }

    /// Reads each message of a batch of at most `limit` messages. Only 2025-03-26 has batches. An
    /// invalid message does not affect the others. The messages are counted before any is read,
    /// because an array of 15 MiB can have millions.
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
            Self::classify(
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
            .and_then(|range| text.value_at(range))
            .is_some_and(|version| version.is_str("2.0"))
        {
            return Err(invalid("\"jsonrpc\" must be \"2.0\""));
        }
        let is_null = |at: &Option<Range<usize>>| {
            let value = at.clone().and_then(|at| text.value_at(at));
            value.is_some_and(|value| value.kind() == Kind::Null)
        };
        match (method, result, error) {
            (Some(method), None, None) if !is_null(&params) => Self::call(text, id, method, params),
            (None, Some(body), None) => Response::new(text, id, body, false).map(Self::Response),
            (None, None, Some(body)) => Response::new(text, id, body, true).map(Self::Response),
            (None, None, None) => Err(invalid(
                "none of \"method\", \"result\" and \"error\" is there",
            )),
            (method, result, error) => {
                // Some libraries write members that they do not have as null, which others refuse.
                let members = [
                    ("method", &method),
                    ("params", &params),
                    ("result", &result),
                    ("error", &error),
                ];
                let nulls = members.into_iter().filter(|(_, at)| is_null(at));
                let nulls: Vec<_> = nulls.map(|(key, _)| key).collect();
                if nulls.is_empty() {
                    let reason = "more than one of \"method\", \"result\" and \"error\" is there";
                    return Err(invalid(reason));
                }
                Self::from_object(text.without_members(&nulls), sender)
            }
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
        let method = match text.value_at(method).and_then(Value::as_str) {
            Some(name) => Method::from_name(&name),
            None => return invalid(id, "\"method\" must be a string"),
        };
        if params
            .as_ref()
            .and_then(|range| text.value_at(range.clone()))
            .is_some_and(|params| !params.is_object())
        {
            // MCP restricts JSON-RPC: parameters are always named (2026-07-28 basic, Requests).
            return invalid(id, "\"params\" must be an object");
        }
        match id {
            None => Ok(Self::Notification(Notification::from_text(
                text, method, params,
            ))),
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

/// Whether an id is a string or an integer, and not null (2026-07-28 basic, Requests).
fn is_valid_id(id: &Json) -> bool {
    id.kind() == Kind::String || id.is_integer()
}

impl Notification {
    fn from_text(text: Json, method: Method, params: Option<Range<usize>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut notification = Self {
            text,
            method,
            params,
            token: None,
            number,
            is_own: false,
        };
        if notification.method == Method::Progress {
            notification.token = notification.param_range("progressToken");
        }
        notification
    }

    /// The log level in a `notifications/message`.
    pub fn log_level(&self) -> Option<LogLevel> {
        LogLevel::from_name(&self.param("level")?.as_str()?)
    }

    /// A number that only clones of this notification share within the process. Receivers of copies
    /// tell by it that they got the same notification, and not two with equal texts.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The range of the progress token in the text of a progress notification.
    pub fn progress_token(&self) -> Option<Range<usize>> {
        self.token.clone()
    }

    /// `params`, if there are any.
    pub fn params(&self) -> Option<Json> {
        self.params.clone().map(|range| self.text.slice(range))
    }

    /// The member `key` of `params`.
    pub fn param(&self, key: &str) -> Option<Json> {
        self.params()?.get(key)
    }

    /// The range in the text of the member `key` of `params`.
    pub fn param_range(&self, key: &str) -> Option<Range<usize>> {
        let params = self.params.clone()?;
        let view = self.text.slice(params.clone());
        let member = view.members().find(|member| member.is(&view, key))?;
        Some(params.start + member.value.start..params.start + member.value.end)
    }

    /// The text to send, with the value at `range` replaced. The range must be one of this
    /// notification's.
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
    pub fn with_value(&self, range: Range<usize>, value: &Json) -> Json {
        self.text.with(range, value)
    }

    /// Creates a notification that Fanlight sends.
    pub fn new(method: Method, params: Option<&Json>) -> Self {
        let text = notification_text(method.as_str(), params);
        let end = text.bytes().len() - 1;
        let params = params.map(|params| end - params.bytes().len()..end);
        Self {
            is_own: true,
            ..Self::from_text(text, method, params)
        }
    }

    /// The notification with the member `key` of `params` replaced, if `params` has it.
    pub fn with_param(&self, key: &str, value: &Json) -> Self {
        let changed = self
            .params()
            .and_then(|params| Some(params.with(params.place(key)?, value)));
        changed.map_or_else(|| self.clone(), |params| self.with_params(&params))
    }

    /// The notification with other `params`, if it has any.
    pub fn with_params(&self, params: &Json) -> Self {
        let Some(range) = self.params.clone() else {
            return self.clone();
        };
        let end = range.start + params.bytes().len();
        let (text, params) = (self.with_value(range.clone(), params), range.start..end);
        Self::from_text(text, self.method.clone(), Some(params))
    }
}

impl Response {
    /// A response with `result`. It gets its id when it is sent.
    pub fn from_result(result: &Json) -> Self {
        Self::originate("result", result, false)
    }

    /// A response with an error of Fanlight.
    pub fn from_error(error: &RpcError) -> Self {
        Self::from_error_object(&error.to_json())
    }

    /// A response with a server's error object, as written.
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
            whole: None,
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
        if !text.value_at(body.clone()).is_some_and(Value::is_object) {
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
            whole: None,
        })
    }

    /// The id as written; `null` if the request's id could not be read.
    pub fn id(&self) -> Json {
        self.text.slice(self.id.clone())
    }

    /// Whether the body is an error object rather than a result.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The result or error object, as written.
    pub fn body(&self) -> Json {
        self.text.slice(self.body.clone())
    }

    /// The result object, unless this is an error.
    pub fn result(&self) -> Option<Json> {
        (!self.is_error).then(|| self.body())
    }

    /// The member `key` of the result, borrowed; `None` for an error.
    pub fn peek_result(&self, key: &str) -> Option<Value<'_>> {
        if self.is_error {
            None
        } else {
            self.text.peek_in(self.body.clone(), key)
        }
    }

    /// The error object, if this is one.
    pub fn error(&self) -> Option<Json> {
        self.is_error.then(|| self.body())
    }

    /// The result as one of the views of [`crate::result`], unless this is an error.
    pub fn view<T: ResultView>(&self) -> Option<T> {
        self.result().map(T::from)
    }

    /// Whether this is a final result that is not meant for one client alone (2026-07-28 schema,
    /// ResultType).
    pub fn is_complete(&self) -> bool {
        let result = self.view::<AnyResult>();
        result.is_some_and(|result| {
            result
                .result_type()
                .is_none_or(|kind| kind.as_text() == "\"complete\"")
        })
    }

    /// The integer code of an error response; otherwise `None`.
    pub fn error_code(&self) -> Option<i64> {
        self.error()?.get("code")?.as_i64()
    }

    /// The response with another result or error object.
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
            whole: None,
        }
    }

    /// The response with a shorter result for its client. Spans still see this one.
    #[must_use]
    pub fn with_shorter_result(self, result: &Json) -> Self {
        Self {
            whole: Some(Arc::new(self.clone())),
            ..self.with_body(result)
        }
    }

    /// The response before it was [shortened](Self::with_shorter_result); `None` if it was not.
    pub fn original_response(&self) -> Option<&Self> {
        self.whole.as_deref()
    }

    /// The `Implementation` object of the server that answered, unless its results can contain it
    /// themselves.
    pub fn server_info(&self) -> Option<&Json> {
        self.server_info.as_deref()
    }

    /// Adds the `Implementation` object of the server that answered.
    #[must_use]
    pub fn from_server(self, server_info: Arc<Json>) -> Self {
        Self {
            server_info: Some(server_info),
            ..self
        }
    }

    /// The length of the whole message in bytes.
    pub fn size(&self) -> usize {
        self.text.bytes().len()
    }

    /// Prepares this response to be sent many times. It is indexed for quick lookups
    /// ([`Json::indexed`]), and all clones share the values derived from it.
    #[must_use]
    pub fn cached(self) -> Self {
        Self {
            text: self.text.indexed(),
            derived: Some(Arc::default()),
            ..self
        }
    }

    /// The values derived from a [cached](Self::cached) response; `None` for any other.
    pub fn derived_values(&self) -> Option<&Derived> {
        self.derived.as_deref()
    }

    /// A copy of the response in its own memory ([`Json::detached`]).
    pub fn detached(&self) -> Self {
        Self {
            text: self.text.detached(),
            ..self.clone()
        }
    }

    /// The message to send: with `id` instead of its own id, and with `added` (raw member text
    /// without outer commas) at the front of the body. All other text stays as received.
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
pub fn request_text(id: &Json, method: &str, params: Option<&Json>) -> Json {
    ObjectBuilder::new()
        .string("jsonrpc", "2.0")
        .member("id", id)
        .string("method", method)
        .optional("params", params)
        .finish()
}

/// The text of a notification that Fanlight sends.
pub fn notification_text(method: &str, params: Option<&Json>) -> Json {
    ObjectBuilder::new()
        .string("jsonrpc", "2.0")
        .string("method", method)
        .optional("params", params)
        .finish()
}

/// Holds one value of each type, which all clones of a response share
/// ([`Response::cached`](crate::Response::cached)).
///
/// The types belong to the crates that derive the values. This crate does not know them.
#[derive(Debug, Default)]
pub struct Derived(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Derived {
    /// The value of type `T`, if it has been derived.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let values = self.0.lock();
        values
            .iter()
            .find_map(|value| Arc::clone(value).downcast().ok())
    }

    /// The value of type `T`; `derive` computes it if it is missing. If two threads compute it at
    /// the same time, the first one to finish provides the value for both.
    pub fn get_or_insert_with<T: Any + Send + Sync>(&self, derive: impl FnOnce() -> T) -> Arc<T> {
        if let Some(value) = self.get() {
            return value;
        }
        let new = Arc::new(derive());
        let mut values = self.0.lock();
        if let Some(value) = values
            .iter()
            .find_map(|value| Arc::clone(value).downcast().ok())
        {
            return value;
        }
        values.push(Arc::<T>::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod derived_tests {
    use super::*;

    #[test]
    fn value_is_derived_once_for_each_type() {
        let derived = Derived::default();
        assert_eq!(derived.get::<u8>(), None);
        assert_eq!(*derived.get_or_insert_with(|| 1_u8), 1);
        assert_eq!(*derived.get_or_insert_with(|| 2_u8), 1);
        assert_eq!(*derived.get_or_insert_with(|| "text"), "text");
        assert_eq!(derived.get::<u8>().as_deref(), Some(&1));
    }
}
