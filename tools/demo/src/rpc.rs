//! JSON-RPC 2.0 envelopes: reading lines, and writing answers.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// Revisions before 2026-07-28 only; later ones use [`INVALID_PARAMS`].
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// Revision 2026-07-28, `UnsupportedProtocolVersionError`.
pub(crate) const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;

/// One line of input.
pub(crate) enum Incoming {
    Request {
        id: Value,
        call: Call,
    },
    Notification(Call),
    /// A response, which is ignored, since these servers send no requests.
    Response,
    /// Not a message; the answer carries the id if it was usable.
    Invalid {
        id: Option<Value>,
        error: RpcError,
    },
}

/// The method and parameters of a request or notification; `params` is an object, empty if absent.
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) params: Value,
}

impl Call {
    /// A string member of `params`.
    pub(crate) fn text(&self, name: &str) -> Result<&str, RpcError> {
        self.params
            .get(name)
            .and_then(Value::as_str)
            .ok_or_else(|| RpcError::invalid_params(format!("`params.{name}` must be a string")))
    }

    /// A string member of `params.arguments`, empty if absent.
    pub(crate) fn argument(&self, name: &str) -> &Value {
        &self.params["arguments"][name]
    }

    /// A string member of `params.arguments`.
    pub(crate) fn text_argument(&self, name: &str) -> Result<&str, RpcError> {
        let message = || RpcError::invalid_params(format!("`arguments.{name}` must be a string"));
        self.argument(name).as_str().ok_or_else(message)
    }

    /// An integer member of `params.arguments` within a range; an error is about `prefix` and the
    /// name.
    pub(crate) fn whole_number(
        &self,
        prefix: &str,
        name: &str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, String> {
        let number = match self.argument(name) {
            Value::Null => Some(default),
            value => value.as_u64(),
        };
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                format!("`{prefix}{name}` must be an integer from {least} to {most}")
            })
    }

    /// The beginning of a value to complete.
    pub(crate) fn value_to_complete(&self) -> Result<&str, RpcError> {
        let value = self.params["argument"]["value"].as_str();
        value.ok_or_else(|| RpcError::invalid_params("`params.argument.value` must be a string"))
    }

    /// The client's progress token, if it wants progress.
    pub(crate) fn progress_token(&self) -> Option<&Value> {
        let token = self.params.get("_meta")?.get("progressToken")?;
        (token.is_string() || token.is_i64() || token.is_u64()).then_some(token)
    }
}

/// The definitions with this name in a server's JSON.
pub(crate) fn definitions(all: &str, name: &str) -> Value {
    let all = serde_json::from_str::<Value>(all);
    all.map(|mut all| all[name].take()).unwrap_or_default()
}

/// The identity in a server's JSON.
pub(crate) fn server_info(all: &str) -> Value {
    let mut info = definitions(all, "serverInfo");
    info["version"] = json!(env!("CARGO_PKG_VERSION"));
    info
}

/// The page for a request's cursor. Every list here is one page, so every cursor is unknown.
pub(crate) fn page(call: &Call, name: &str, list: Value) -> Result<Value, RpcError> {
    match call.params.get("cursor") {
        None => Ok(json!({ name: list })),
        Some(_) => Err(RpcError::invalid_params(
            "unknown cursor: this list has one page only",
        )),
    }
}

/// A JSON-RPC error object.
#[derive(Debug)]
pub(crate) struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(crate) fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }

    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

/// Parses one line; never fails, since an invalid line needs an answer.
pub(crate) fn parse(line: &[u8]) -> Incoming {
    match serde_json::from_slice(line) {
        Ok(message) => classify(message),
        Err(error) => Incoming::Invalid {
            id: None,
            error: RpcError::new(PARSE_ERROR, format!("Parse error: {error}")),
        },
    }
}

fn classify(mut message: Value) -> Incoming {
    let id = message.get("id").cloned();
    let usable_id = id
        .clone()
        .filter(|id| id.is_string() || id.is_i64() || id.is_u64());
    let invalid = |reason: &str| Incoming::Invalid {
        id: usable_id.clone(),
        error: RpcError::new(INVALID_REQUEST, format!("Invalid request: {reason}")),
    };
    if !message.is_object() {
        return invalid("a message is one JSON object; batches are not supported");
    }
    if message["jsonrpc"] != "2.0" {
        return invalid("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = message["method"].as_str().map(str::to_owned) else {
        let is_response = message.get("result").is_some() || message.get("error").is_some();
        return if is_response {
            Incoming::Response
        } else {
            invalid("`method` must be a string")
        };
    };
    let params = match message.get_mut("params").map(Value::take) {
        None => json!({}),
        Some(params @ Value::Object(_)) => params,
        Some(_) => return invalid("`params` must be an object"),
    };
    let call = Call { method, params };
    match (id, usable_id.clone()) {
        (None, _) => Incoming::Notification(call),
        (Some(_), Some(id)) => Incoming::Request { id, call },
        (Some(_), None) => invalid("`id` must be a string or an integer"),
    }
}

/// A response with a result or an error; an absent `id` is left out.
pub(crate) fn response(id: Option<Value>, outcome: Result<Value, RpcError>) -> Value {
    let mut message = json!({ "jsonrpc": "2.0" });
    if let Some(id) = id {
        message["id"] = id;
    }
    match outcome {
        Ok(result) => message["result"] = result,
        Err(error) => {
            message["error"] = json!({ "code": error.code, "message": error.message });
            if let Some(data) = error.data {
                message["error"]["data"] = data;
            }
        }
    }
    message
}

/// A notification to the client.
pub(crate) fn notification(method: &str, params: Value) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    message["params"] = params;
    message
}
