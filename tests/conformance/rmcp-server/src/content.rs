//! Small media, and constructors for results of tools and prompts.

use rmcp::model::ErrorData;
use rmcp::serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A PNG file of one pixel.
pub const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==";
/// A WAV file of eight silent samples.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";

/// Builds an SDK type from its JSON.
pub fn model<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Builds a result from its JSON. The SDK removes `resultType` for legacy clients.
pub fn result<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = json!("complete");
    model(value)
}

pub fn text(value: impl Into<String>) -> Value {
    json!({ "type": "text", "text": value.into() })
}

pub fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

pub fn audio() -> Value {
    json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })
}

pub fn resource(uri: &str, mime_type: &str, body: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime_type, "text": body } })
}

/// A result with these blocks.
pub fn answer(blocks: impl Into<Vec<Value>>) -> Value {
    json!({ "content": blocks.into() })
}
