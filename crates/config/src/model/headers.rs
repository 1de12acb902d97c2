//! Headers of requests: configured headers, and headers of clients that servers get.

use fanlight_protocol::header::{is_of_transport, may_be_forwarded};
use http::{HeaderName, HeaderValue};
use serde_json::{Value as Json, json};

use super::auth::values::TEXT;
use crate::definition::{Form, Visible};
use crate::option::{Kind, NameMap, Reader, Text};
use crate::report::mask::HIDDEN;
use crate::report::problem::quoted;
use crate::settings::Secret;
use crate::syntax::{Entry, Value};

/// Headers by their names in lower case, whose values may be secret.
pub(crate) struct Headers;

impl Kind for Headers {
    type Value = Vec<(String, Secret)>;

    fn form(&self) -> Form {
        Form::Pairs
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        let mut headers: Self::Value = Vec::new();
        for (pair, text) in reader.pairs(entry) {
            let Ok(name) = HeaderName::from_bytes(pair.key.as_bytes()) else {
                let message = format!("{} is not the name of a header", quoted(&pair.key));
                let help = "write letters, digits and `-`";
                reader.error(pair.key_span, message, help);
                continue;
            };
            let name = name.as_str();
            if is_of_transport(name) {
                reader.warn(
                    pair.key_span,
                    format!("the header {} has no effect here", quoted(&pair.key)),
                    "the protocol defines it: Fanlight sets it itself",
                );
                continue;
            }
            if HeaderValue::from_str(&text.value).is_err() {
                let message = format!(
                    "the value of {} cannot be sent in a header",
                    quoted(&pair.key)
                );
                let help = "remove line breaks and other control characters";
                reader.error(text.span, message, help);
            }
            if headers.iter().any(|(earlier, _)| earlier == name) {
                let message = format!("the header {} is given twice", quoted(&pair.key));
                let help = "keep one of the two: upper and lower case are the same";
                reader.error(pair.key_span, message, help);
            }
            let value = match &pair.value.value {
                Value::String(reference) if text.substituted => {
                    Secret::referred_to(reference, text.value)
                }
                _ => Secret::new(text.value),
            };
            headers.push((name.to_owned(), value));
        }
        Some(headers)
    }

    fn show(&self, value: &Self::Value) -> Json {
        let hidden = |(name, _): &(String, Secret)| (name.clone(), json!(HIDDEN));
        Json::Object(value.iter().map(hidden).collect())
    }
}

/// Headers of clients by their names, each with its name at the server; both in lower case.
pub(super) struct ForwardedHeaders;

impl Kind for ForwardedHeaders {
    type Value = Vec<(String, String)>;

    fn form(&self) -> Form {
        Form::Json(&["array", "object"], Visible::All)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        let given: Vec<_> = match &entry.value.value {
            Value::List(_) => (reader.strings(entry)?.into_iter())
                .map(|text| (text.value.clone(), text))
                .collect(),
            _ => (reader.pairs(entry).into_iter())
                .map(|(pair, text)| (pair.key.clone(), text))
                .collect(),
        };
        let mut read: Self::Value = Vec::new();
        for (theirs, Text { value, span, .. }) in given {
            let [theirs, ours] = [theirs, value].map(|name| name.to_ascii_lowercase());
            let is_usable = [&theirs, &ours].into_iter().all(|name| {
                HeaderName::from_bytes(name.as_bytes()).is_ok() && may_be_forwarded(name)
            });
            if !is_usable || read.iter().any(|(_, earlier)| *earlier == ours) {
                let message =
                    "this header cannot reach a server from its client, or is given twice";
                let help = "write a header of your own, such as `X-Tenant`: no credentials, and nothing that HTTP, MCP or tracing define";
                reader.error(span, message, help);
            }
            read.push((theirs, ours));
        }
        Some(read)
    }

    fn show(&self, value: &Self::Value) -> Json {
        NameMap(TEXT).show(value)
    }
}
